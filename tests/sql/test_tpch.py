"""The shipped TPC-H queries against DuckDB on the same files: every mode, chunk size and number of workers."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

import pytest

from hybridq.session import connect
from hybridq.shipped import find_plan
from hybridq.testing import tpch
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.reference import REFERENCES, duckdb_answer

MODES = ("cpu", "gpu", "cop")
QUERIES = ("tpch/q01", "tpch/q03", "tpch/q04", "tpch/q06", "tpch/q12", "tpch/q14")
"""Those that go through a real cluster in every way here; test_tpch_queries.py has all, in process."""


CLUSTERS = {
    "2 workers, chunks of 1": ("two_workers", 1),
    "1 worker, chunks of 7": ("one_worker", 7),
    "2 workers, chunks by rows": ("two_workers", 0),
}


@pytest.fixture(scope="module", params=CLUSTERS)
def session(request, tpch_folder):
    cluster, chunk_units = CLUSTERS[request.param]
    with connect(request.getfixturevalue(cluster).address, chunk_units=chunk_units) as attached:
        attached.register_folder(tpch_folder)
        yield attached


@functools.cache
def right_answer(name, folder, schema):
    """Return DuckDB's answer, and the one without LIMIT where the query has one."""
    reference = REFERENCES[name]
    text = reference.sql or find_plan(name).read_text()
    expected = duckdb_answer(text, folder, schema)
    if reference.limit is None:
        return expected, None
    unlimited, replaced = re.subn(rf"\blimit\s+{reference.limit}\s*;?\s*$", "", text)
    assert replaced == 1
    return expected, duckdb_answer(unlimited, folder, schema)


def check(session, name, folder, mode):
    query = session.sql(find_plan(name).read_text())
    expected, unlimited = right_answer(name, folder, query.schema)
    result = query.collect(mode=mode)
    assert_same_answer(result.to_arrow(), expected, order_by=REFERENCES[name].order_by, unlimited=unlimited)
    return result


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", QUERIES)
def test_the_answer_is_duckdbs(session, tpch_folder, name, mode):
    check(session, name, tpch_folder, mode)


@pytest.mark.parametrize("chunk_units", [1, 3, 0])
@pytest.mark.parametrize("name", ["tpch/q03", "tpch/q04", "tpch/q12"])
def test_aligned_joins_give_the_same_answer(two_workers, tpch_folder, name, chunk_units):
    options = {"chunk_units": chunk_units, "broadcast_bytes": 8_000, "one_chunk_rows": 0}
    with connect(two_workers.address, **options) as session:
        session.register_folder(tpch_folder)
        explanation = session.sql(find_plan(name).read_text()).explain()
        assert any(join.method == "aligned" for stage in explanation.stages for join in stage.joins)
        for mode in MODES:
            check(session, name, tpch_folder, mode)


@pytest.mark.parametrize("name", ["tpch/q01", "tpch/q03"])
def test_substrait_gives_the_same_answer(one_worker, tpch_folder, name):
    with connect(one_worker.address, chunk_units=3) as session:
        session.register_folder(tpch_folder)
        query = session.substrait(find_plan(f"{name}.json"))
        expected, unlimited = right_answer(name, tpch_folder, query.schema)
        answer = query.collect(mode="cop").to_arrow()
        assert_same_answer(answer, expected, order_by=REFERENCES[name].order_by, unlimited=unlimited)


# --- larger data: pytest -m scale ----------------------------------------------------------------------------------


def scale_folder():
    """Return the folder that HYBRIDQ_TEST_TPCH names, else scale factor 1 in the user's cache."""
    chosen = os.environ.get("HYBRIDQ_TEST_TPCH")
    return Path(chosen) if chosen else tpch.cached(1)


@pytest.fixture(scope="module", params=[1, 2], ids=["1 worker", "2 workers"])
def roomy(request):
    """Workers with memory for a whole table as one chunk."""
    workers = [
        {"kind": "cpu", "processes": request.param, "threads": 1, "memory": "12GiB"},
        {"kind": "gpu", "engine": "simulated", "processes": request.param, "device_memory": "2GiB", "memory": "8GiB"},
    ]
    with connect({"workers": workers}) as session:
        yield session.address


@pytest.mark.slow
@pytest.mark.scale
@pytest.mark.parametrize("chunk_units", [1, 7, 100_000, 0], ids=["chunks of 1", "chunks of 7", "all", "chunks by rows"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", QUERIES)
def test_the_answer_is_duckdbs_at_scale(roomy, name, mode, chunk_units):
    folder = scale_folder()
    with connect(roomy, chunk_units=chunk_units) as session:
        session.register_folder(folder)
        check(session, name, folder, mode)


def test_what_ran_where_is_reported(single_units, tpch_folder):
    single_units.register_folder(tpch_folder)
    lineitem = 60_175
    for mode, kinds in (("cpu", {"cpu"}), ("gpu", {"gpu"}), ("cop", {"cpu", "gpu"})):
        result = check(single_units, "tpch/q01", tpch_folder, mode)
        (stage,) = result.report.stages
        assert stage.mode == f"EXEC_{mode.upper()}"
        assert stage.reason
        assert sum(device.rows for device in stage.devices) == lineitem
        assert {device.kind for device in stage.devices if device.chunks} <= kinds
        assert {device.engine for device in stage.devices if device.kind == "gpu"} <= {"simulated gpu"}
        assert result.report.seconds["total"] > 0
        assert stage.fallbacks == []
