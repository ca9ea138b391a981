"""The Star Schema Benchmark's queries against DuckDB on the same files, in every mode and several chunk sizes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hybridq.session import connect
from hybridq.shipped import find_plan, plan_names
from hybridq.testing import ssb
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.reference import SSB_REFERENCES, duckdb_answer

MODES = ("cpu", "gpu", "cop")
QUERIES = tuple(SSB_REFERENCES)


@pytest.fixture(scope="module")
def ssb_folder(tmp_path_factory):
    return ssb.generate(0.02, tmp_path_factory.mktemp("ssb") / "sf0.02", row_group_rows=15_000)


@pytest.fixture(scope="module", params=[1, 3, 0], ids=["chunks of 1", "chunks of 3", "chunks by rows"])
def session(request, two_workers, ssb_folder):
    with connect(two_workers.address, chunk_units=request.param) as attached:
        attached.register_folder(ssb_folder)
        yield attached


def check(session, name, folder, mode):
    text = find_plan(name).read_text()
    query = session.sql(text)
    answer = query.collect(mode=mode).to_arrow()
    order_by = SSB_REFERENCES[name].order_by
    assert_same_answer(answer, duckdb_answer(text, folder, query.schema), order_by=order_by)
    return answer


def test_all_thirteen_are_shipped():
    assert {name for name in plan_names() if name.startswith("ssb/")} == set(QUERIES)
    assert len(QUERIES) == 13


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", QUERIES)
def test_the_answer_is_duckdbs(session, ssb_folder, name, mode):
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
