"""All 22 TPC-H queries against DuckDB on the same files: every mode, several ways of cutting tables into chunks."""

from __future__ import annotations

import functools
import os
import random
import re
from pathlib import Path

import pytest

from hybridq.session import connect
from hybridq.shipped import find_plan
from hybridq.testing import tpch
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import REFERENCES, duckdb_answer

MODES = ("cpu", "gpu", "cop")
NUMBERS = range(1, 23)
SCALE = 0.01

CHUNKINGS = {
    "one unit": {"chunk_units": 1},
    "seven units, joins in pieces": {"chunk_units": 7, "join_bytes": 50_000},
    "by rows": {"cpu_chunk_rows": 5_000, "gpu_chunk_rows": 13_000},
    "aligned": {"chunk_units": 3, "broadcast_bytes": 8_000},
    "partitioned": {"chunk_units": 3, "broadcast_limit_bytes": 0, "gather_limit_bytes": 0},
    "partitioned, cut, in files": {
        "chunk_units": 5,
        "broadcast_limit_bytes": 0,
        "gather_limit_bytes": 0,
        "partition_bytes": 60_000,
        "cpu_chunk_rows": 4_000,
        "split_memory_bytes": 1,
    },
}


IN_EVERY_MODE = ("one unit", "partitioned")
"""Where each kind of device has to do it all alone, too; the others run on both at once."""


@pytest.fixture(scope="module", params=CHUNKINGS, ids=lambda name: name)
def chunking(request):
    return request.param


@pytest.fixture(scope="module")
def session(chunking, tpch_folder):
    with connect_in_process(**CHUNKINGS[chunking]) as session:
        session.register_folder(tpch_folder)
        yield session


@functools.cache
def right_answer(number, folder, schema, scale):
    """Return DuckDB's answer, and the one without LIMIT where the query has one."""
    reference = REFERENCES[f"tpch/q{number:02}"]
    text = reference.sql or tpch.query_text(number, scale)
    expected = duckdb_answer(text, folder, schema)
    if reference.limit is None:
        return expected, None
    unlimited, replaced = re.subn(rf"\blimit\s+{reference.limit}\s*;?\s*$", "", text)
    assert replaced == 1
    return expected, duckdb_answer(unlimited, folder, schema)


def check(session, number, folder, mode, scale=SCALE):
    query = session.sql(tpch.query_text(number, scale))
    expected, unlimited = right_answer(number, folder, query.schema, scale)
    answer = query.collect(mode=mode).to_arrow()
    order_by = REFERENCES[f"tpch/q{number:02}"].order_by
    assert_same_answer(answer, expected, order_by=order_by, unlimited=unlimited)


def test_every_query_has_a_reference():
    assert set(REFERENCES) == {f"tpch/q{number:02}" for number in NUMBERS}


@pytest.mark.parametrize("number", NUMBERS)
def test_the_answer_is_duckdbs(session, chunking, tpch_folder, number):
    for mode in MODES if chunking in IN_EVERY_MODE else ("cop",):
        check(session, number, tpch_folder, mode)


@pytest.mark.parametrize("number", [2, 9, 11, 16, 21, 22])
def test_the_answer_of_a_cluster_is_duckdbs(two_workers, tpch_folder, number):
    with connect(two_workers.address, chunk_units=3) as session:
        session.register_folder(tpch_folder)
        check(session, number, tpch_folder, "cop")


FROM_LISTS = (2, 5, 7, 8, 9, 10, 11, 18, 21)
"""Queries that name three tables or more after FROM."""


@pytest.mark.parametrize("number", FROM_LISTS)
def test_the_order_of_joins_does_not_depend_on_the_text(session, number):
    text = find_plan(f"tpch/q{number:02}").read_text()
    found = re.search(r"^( *)from ((\w+( \w+)?, )+\w+( \w+)?)$", text, re.MULTILINE)
    assert found is not None
    expected = session.sql(text).explain(mode="cpu")
    for seed in range(4):
        names = found[2].split(", ")
        random.Random(seed).shuffle(names)
        shuffled = text.replace(found[0], f"{found[1]}from {', '.join(names)}", 1)
        assert shapes(session.sql(shuffled).explain(mode="cpu")) == shapes(expected)


def shapes(explanation):
    """Return what each stage reads and joins; a table's second scan may be numbered differently."""
    return [re.sub(r"#\d", "", stage.title) for stage in explanation.stages]


# --- larger data: pytest -m scale ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.scale
@pytest.mark.parametrize(
    "options", [{}, {"broadcast_limit_bytes": 0, "gather_limit_bytes": 0}], ids=["", "partitioned"]
)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("number", NUMBERS)
def test_the_answer_is_duckdbs_at_scale(two_workers, number, mode, options):
    chosen = os.environ.get("HYBRIDQ_TEST_TPCH")
    with connect(two_workers.address, **options) as session:
        folder = Path(chosen) if chosen else tpch.cached(1)
        session.register_folder(folder)
        check(session, number, folder, mode, scale=1)
