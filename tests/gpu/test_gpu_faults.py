"""When a real GPU's memory runs out, is taken by others, or is used a hundred times over."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.dispatch import merging
from hybridq.dispatch.device_rows import DEVICE_ROWS
from hybridq.errors import DeviceUnavailable
from hybridq.session import connect
from hybridq.shipped import find_plan
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import REFERENCES, duckdb_answer

MIB = 2**20
CPU = {"kind": "cpu", "processes": 1, "threads": 1, "memory": "4GiB"}
GPU = {"kind": "gpu", "engine": "cuda", "processes": 1, "threads": 2, "memory": "8GiB", "device_memory": "4GiB"}
QUERIES = ("tpch/q01", "tpch/q03")

HOLD = """
import sys, rmm.mr
memory = rmm.mr.CudaMemoryResource()
free, total = rmm.mr.available_device_memory()
held = memory.allocate(int(free - float(sys.argv[1]) * total))
print("held", flush=True)
sys.stdin.read()
"""


def check(session, name, folder, mode):
    query = session.sql(find_plan(name).read_text())
    result = query.collect(mode=mode)
    reference = REFERENCES[name]
    expected = duckdb_answer(reference.sql or find_plan(name).read_text(), folder, query.schema)
    assert_same_answer(result.to_arrow(), expected, order_by=reference.order_by)
    return result


@pytest.fixture
def hold():
    """Start a process that leaves only a share of the card's memory free."""
    started = []

    def start(leave):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(leave)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline().strip() == "held"

    yield start
    for process in started:
        process.stdin.close()
        process.wait(30)


def fill(memory):
    """Take the pool's memory until no 64 KiB are left in one piece: columns of the small files here have half a MiB."""
    import rmm

    DEVICE_ROWS.evict(memory.limit)  # they would make room
    held, size = [], memory.limit - memory.used
    while size >= MIB // 16:
        try:
            held.append(rmm.DeviceBuffer(size=size))
        except MemoryError:
            size //= 2
    return held


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("mode", ["gpu", "cop"])
def test_a_device_that_is_nearly_full(engine, device_memory, tpch_folder, name, mode):
    held = fill(device_memory)
    with connect_in_process(gpu=engine, chunk_units=7) as session:
        session.register_folder(tpch_folder)
        result = check(session, name, tpch_folder, mode)
    assert any(stage.retries or stage.fallbacks for stage in result.report.stages)
    assert result.report.peak_device_bytes <= device_memory.limit
    del held
    with connect_in_process(gpu=engine, chunk_units=7) as session:
        session.register_folder(tpch_folder)
        result = check(session, name, tpch_folder, mode)
    # A chunk may have been late, where other processes use the card, but none was too large.
    assert not any("memory" in fallback.cause for stage in result.report.stages for fallback in stage.fallbacks)
    assert mode == "cop" or not any(stage.retries for stage in result.report.stages)


@pytest.mark.parametrize("operator", ["read", "build", "probe", "aggregate", "to_arrow"])
def test_an_allocation_that_fails_now_and_then(engine, tpch_folder, monkeypatch, operator):
    calls = []
    original = getattr(engine, operator)

    def failing(*arguments):
        calls.append(operator)
        if len(calls) % 3 == 1:
            raise MemoryError("std::bad_alloc: out_of_memory: injected")
        return original(*arguments)

    monkeypatch.setattr(engine, operator, failing)
    with connect_in_process(gpu=engine, chunk_units=2) as session:
        session.register_folder(tpch_folder)
        result = check(session, "tpch/q03", tpch_folder, "gpu")
    assert len(calls) > 1
    assert sum(stage.retries + len(stage.fallbacks) for stage in result.report.stages) > 0


def test_groups_merged_on_the_device(engine, tpch_folder, monkeypatch):
    monkeypatch.setattr(merging, "GPU_MERGE_ROWS", 1)
    for name in REFERENCES:
        with connect_in_process(gpu=engine, chunk_units=1) as session:
            session.register_folder(tpch_folder)
            check(session, name, tpch_folder, "gpu")


def test_a_build_side_too_large_for_the_device(tmp_path):
    from hybridq.engines.gpu.engine import GpuEngine
    from hybridq.testing.simulated import SimulatedMemory

    rows = 40_000
    pq.write_table(pa.table({"k": range(rows), "v": range(rows)}), tmp_path / "big.parquet", row_group_size=rows)
    pq.write_table(pa.table({"k": range(100)}), tmp_path / "probe.parquet", row_group_size=10)
    small = GpuEngine()
    small.memory = SimulatedMemory(rows * 20)
    with connect_in_process(gpu=small, chunk_units=4, cpu_chunk_rows=20) as session:
        session.register_folder(tmp_path)
        text = "select count(*) as n, sum(v) as s from probe left join big on probe.k = big.k"
        result = session.sql(text).collect(mode="gpu")
    assert result.to_arrow().to_pylist() == [{"n": 100, "s": 4950}]
    assert all("build side of 40000 rows" in fallback.cause for fallback in result.report.stages[-1].fallbacks)


def test_another_process_holds_most_of_the_card(hold, tpch_folder):
    hold(leave=0.1)
    with pytest.warns(UserWarning, match="cannot reserve .* bytes on the GPU"):
        session = connect({"workers": [CPU, {**GPU, "device_memory": "40GiB"}]})
    with session:
        session.register_folder(tpch_folder)
        check(session, "tpch/q01", tpch_folder, "auto")
        with pytest.raises(DeviceUnavailable):
            session.sql("select count(*) from orders").collect(mode="gpu")
    with connect({"workers": [CPU, {**GPU, "device_memory": "1GiB"}]}) as session:
        session.register_folder(tpch_folder)
        result = check(session, "tpch/q03", tpch_folder, "gpu")
        assert 0 < result.report.peak_device_bytes <= 1024 * MIB


def memory_of(engine, pid):
    """Return bytes on the device and in this process."""
    return engine.memory.used, psutil.Process(pid).memory_info().rss


def test_a_hundred_runs_leave_nothing_behind(engine, tpch_folder):
    answers = {}
    with connect_in_process(gpu=engine, chunk_units=4) as session:
        session.register_folder(tpch_folder)
        for run in range(100):
            for name in QUERIES:
                answer = session.sql(find_plan(name).read_text()).collect(mode="gpu").to_arrow()
                assert answer.equals(answers.setdefault(name, answer))
            if run == 20:
                device_before, host_before = memory_of(engine, os.getpid())
        device_after, host_after = memory_of(engine, os.getpid())
    assert device_after <= device_before
    assert host_after - host_before < 32 * MIB


@pytest.mark.parametrize("mode", ["gpu", "cop"])
def test_a_hundred_runs_on_workers_leave_nothing_behind(tpch_folder, mode):
    with connect({"workers": [CPU, GPU]}, chunk_units=4) as session:
        session.register_folder(tpch_folder)
        pids = [device.pid for device in session.devices()]
        answers = {}
        for run in range(100):
            for name in QUERIES:
                answer = session.sql(find_plan(name).read_text()).collect(mode=mode).to_arrow()
                assert answer.equals(answers.setdefault(name, answer))
            if run == 30:
                before = [psutil.Process(pid).memory_info().rss for pid in pids]
        after = [psutil.Process(pid).memory_info().rss for pid in pids]
    assert max(late - early for early, late in zip(before, after, strict=True)) < 64 * MIB


@pytest.mark.parametrize("chunk_units", [0, 3])
def test_cached_columns_are_not_read_again(tpch_folder, chunk_units):
    with connect({"workers": [CPU, GPU]}, chunk_units=chunk_units) as session:
        session.register_folder(tpch_folder)
        first = {name: check(session, name, tpch_folder, "gpu") for name in QUERIES}
        for table in ("lineitem", "orders", "customer"):
            session.cache(table)
        for name in QUERIES:
            check(session, name, tpch_folder, "gpu")
        for mode in ("gpu", "cop", "gpu"):
            last = {name: check(session, name, tpch_folder, mode) for name in QUERIES}
        for name in QUERIES:
            assert moved(last[name]) <= 0.05 * moved(first[name])


def moved(result):
    return sum(device.bytes_read for stage in result.report.stages for device in stage.devices)


def test_a_small_cache_keeps_within_its_limit(tpch_folder):
    with connect({"workers": [CPU, GPU]}, chunk_units=1) as session:
        session.register_folder(tpch_folder)
        session.cache("lineitem", limit=MIB)
        for _ in range(3):
            result = check(session, "tpch/q01", tpch_folder, "gpu")
            assert all(device.cached_bytes <= MIB for device in result.report.stages[0].devices)
