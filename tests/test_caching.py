"""Columns that a session keeps on a (simulated) GPU, and what reports say of the device's memory."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.errors import RequestError, UnknownColumn, UnknownTable
from hybridq.shipped import find_plan
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.simulated import SimulatedGpuEngine

MIB = 2**20


@pytest.fixture
def session(tpch_folder):
    with connect_in_process(gpu=SimulatedGpuEngine(512 * MIB), chunk_units=2) as session:
        session.register_folder(tpch_folder)
        yield session


def run(session, name="tpch/q01", mode="gpu"):
    """Return the answer, and the bytes read and kept by the GPU."""
    result = session.sql(find_plan(name).read_text()).collect(mode=mode)
    devices = [device for stage in result.report.stages for device in stage.devices if device.kind == "gpu"]
    return result.to_arrow(), sum(d.bytes_read for d in devices), max(d.cached_bytes for d in devices)


def test_the_second_run_reads_nothing(session):
    expected, first, kept = run(session)
    assert kept == 0
    session.cache("lineitem")
    assert run(session)[:2] == (expected, first)
    answer, second, kept = run(session)
    assert (answer, second) == (expected, 0)
    assert 0 < kept <= 256 * MIB


@pytest.mark.parametrize("name", ["tpch/q03", "tpch/q06", "tpch/q12"])
def test_answers_are_the_same(session, name):
    expected, first, _ = run(session, name)
    for table in ("lineitem", "orders", "customer"):
        session.cache(table, limit=64 * MIB)
    run(session)
    for mode in ("gpu", "cop", "gpu"):
        answer, last, _ = run(session, name, mode)
        assert answer == expected
    assert last <= 0.05 * first


def test_only_the_named_columns_are_kept(session):
    _, whole, _ = run(session)
    session.cache("lineitem", columns=["l_extendedprice", "l_shipdate"])
    run(session)
    _, rest, kept = run(session)
    assert 0 < rest < whole
    session.cache("lineitem", columns=["l_shipdate"])
    run(session)
    _, more, _ = run(session)
    assert rest < more < whole
    session.cache("lineitem", columns=[])
    _, all_again, kept = run(session)
    assert (all_again, kept) == (whole, 0)


def test_the_limit_holds(session):
    session.cache("lineitem", limit=MIB)
    for _ in range(2):
        _, read, kept = run(session)
        assert read > 0
        assert kept <= MIB


def test_chunks_come_before_cached_columns(tpch_folder):
    with connect_in_process(gpu=SimulatedGpuEngine(24 * MIB), chunk_units=1) as session:
        session.register_folder(tpch_folder)
        expected, _, _ = run(session)
        session.cache("lineitem", limit=20 * MIB)
        for _ in range(3):
            result = session.sql(find_plan("tpch/q01").read_text()).collect(mode="gpu")
            assert result.to_arrow() == expected
            assert not result.report.stages[0].fallbacks


def test_requests_that_make_no_sense(session):
    session.register("memory", pa.table({"x": [1]}))
    with pytest.raises(UnknownTable):
        session.cache("linitem")
    with pytest.raises(UnknownColumn, match="l_typo"):
        session.cache("lineitem", columns=["l_typo"])
    with pytest.raises(RequestError, match="gpu"):
        session.cache("lineitem", device="tpu")
    with pytest.raises(RequestError, match="limit"):
        session.cache("lineitem", limit=0)
    with pytest.raises(RequestError, match="list"):
        session.cache("lineitem", columns="l_tax")
    with pytest.raises(RequestError, match="local Parquet"):
        session.cache("memory")


def test_predicted_and_measured_memory_are_reported(session):
    result = session.sql(find_plan("tpch/q03").read_text()).collect(mode="gpu")
    for stage in result.report.stages:
        for device in stage.devices:
            assert 0 < device.peak_bytes <= 512 * MIB
            assert device.seconds["wait"] >= 0
    probing = result.report.stages[-1].devices[0]
    assert 0 < probing.predicted_bytes <= 512 * MIB
    assert result.report.peak_device_bytes == max(d.peak_bytes for s in result.report.stages for d in s.devices)


def test_a_build_side_too_large_for_the_gpu_sends_the_stage_to_the_cpu(tmp_path):
    rows = 40_000
    pq.write_table(pa.table({"k": range(rows), "v": range(rows)}), tmp_path / "big.parquet", row_group_size=rows)
    pq.write_table(pa.table({"k": range(100)}), tmp_path / "probe.parquet", row_group_size=10)
    text = "select count(*) as n, sum(v) as s from probe left join big on probe.k = big.k"
    with connect_in_process(gpu=SimulatedGpuEngine(rows * 20), chunk_units=4, cpu_chunk_rows=20) as session:
        session.register_folder(tmp_path)
        result = session.sql(text).collect(mode="cop")
    assert result.to_arrow().to_pylist() == [{"n": 100, "s": 4950}]
    last = result.report.stages[-1]
    causes = [fallback.cause for fallback in last.fallbacks]
    assert causes
    assert all("build side of 40000 rows" in cause for cause in causes)
    assert {device.kind for device in last.devices} == {"cpu"}
