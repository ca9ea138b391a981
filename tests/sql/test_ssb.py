"""The Star Schema Benchmark's queries against DuckDB on the same files, in every mode and several chunk sizes."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

import pytest

from hybridq.session import connect
from hybridq.shipped import find_plan, plan_names
from hybridq.testing import ssb
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import SSB_REFERENCES, duckdb_answer

MODES = ("cpu", "gpu", "cop")
QUERIES = tuple(SSB_REFERENCES)


@pytest.fixture(scope="module")
def ssb_folder(tmp_path_factory):
    return ssb.generate(0.02, tmp_path_factory.mktemp("ssb") / "sf0.02", row_group_rows=15_000)


@pytest.fixture(scope="module", params=["chunks of 1", "a cluster, chunks of 3", "chunks by rows"])
def session(request, ssb_folder):
    with contextlib.ExitStack() as stack:
        if request.param.startswith("a cluster"):
            address = request.getfixturevalue("two_workers").address
            found = stack.enter_context(connect(address, chunk_units=3))
        else:
            found = stack.enter_context(connect_in_process(chunk_units=1 if request.param == "chunks of 1" else 0))
        found.register_folder(ssb_folder)
        yield found


@functools.cache
def right_answer(name, folder, schema):
    return duckdb_answer(find_plan(name).read_text(), folder, schema)


def check(session, name, folder, mode):
    text = find_plan(name).read_text()
    query = session.sql(text)
    answer = query.collect(mode=mode).to_arrow()
    order_by = SSB_REFERENCES[name].order_by
    assert_same_answer(answer, right_answer(name, folder, query.schema), order_by=order_by)
    return answer


def test_all_thirteen_are_shipped():
    assert {name for name in plan_names() if name.startswith("ssb/")} == set(QUERIES)
    assert len(QUERIES) == 13


@pytest.mark.parametrize("name", QUERIES)
def test_the_answer_is_duckdbs(session, ssb_folder, name):
    # On a cluster both kinds of device at once.
    for mode in MODES if session.address == "in process" else ("cop",):
        answer = check(session, name, ssb_folder, mode)
        if name not in ("ssb/q3_3", "ssb/q3_4"):  # two cities of 250 are in no line of so small a table
            assert answer.num_rows > 0
            assert answer.column(answer.num_columns - 1).null_count < answer.num_rows


@pytest.mark.slow
@pytest.mark.scale
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", QUERIES)
def test_the_answer_is_duckdbs_at_scale(two_workers, name, mode):
    chosen = os.environ.get("HYBRIDQ_TEST_SSB")
    folder = Path(chosen) if chosen else ssb.cached(1)
    with connect(two_workers.address) as session:
        session.register_folder(folder)
        check(session, name, folder, mode)
