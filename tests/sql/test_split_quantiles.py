"""Medians and quantiles of all rows, found by counting in two passes, are what they are."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.engines import tallies
from hybridq.session import connect
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import duckdb_answer

QUERIES = {
    "median": "select median(x), count(*) from t",
    "of decimals": "select median(d), median(d) filter (where k < 100) from t",
    "several of a column": "select quantile_cont(x, 0.1), quantile_cont(x, 0.9), median(x), sum(k) from t",
    "ends": "select quantile_cont(x, 0), quantile_cont(x, 1), quantile_cont(k, 0), quantile_cont(k, 1) from t",
    "a value that is everywhere": "select median(h), quantile_cont(h, 0.49), quantile_cont(h, 0.51) from t",
    "beside distinct values": "select median(x), count(distinct h), sum(distinct h) from t",
    "of an expression": "select median(k % 100 + x) from t where h > 3",
    "of groups": "select median(s) from (select h, sum(k) s from t group by h) g",
    "of a join": "select median(t.x) from t join t u on t.k = u.k where u.h < 90",
    "of medians": "select median(m) from (select median(x) m from t union all select median(k) from t) u",
    "with having": "select median(x) m from t having median(x) > 1e9",
    "in a subquery": "select count(*) from t where x > (select median(x) from t)",
    "no rows": "select median(x), median(d), count(*) from t where k < 0",
    "nothing but NULL": "select median(x) from t where x is null",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("quantiles")
    numbers, rows = np.random.default_rng(7), 4000
    common = np.where(numbers.random(rows) < 0.5, 7, numbers.integers(0, 100, rows))
    table = pa.table(
        {
            "x": pa.array(numbers.normal(size=rows) * 1000, mask=numbers.random(rows) < 0.1),
            "d": pa.array(numbers.integers(0, 10**6, rows), pa.int64()).cast(pa.decimal128(21, 2)),
            "h": common,
            "k": numbers.permutation(rows),
        }
    )
    pq.write_table(table, found / "t.parquet", row_group_size=100)
    return found


@pytest.fixture(scope="module")
def session(folder):
    with (
        pytest.MonkeyPatch.context() as patch,
        connect_in_process(gather_limit_bytes=0, chunk_units=2) as session,
    ):
        patch.setattr(tallies, "SUMMARY_SIZE", 64)
        session.register_folder(folder)
        yield session


@pytest.mark.parametrize("name", QUERIES)
def test_answers_are_duckdbs(session, folder, name):
    query = session.sql(QUERIES[name])
    expected = duckdb_answer(QUERIES[name], folder, query.schema)
    for mode in ("cpu", "gpu", "cop"):
        assert_same_answer(query.collect(mode=mode).to_arrow(), expected)


def test_only_values_between_the_bounds_are_put_together(session, monkeypatch):
    most = []
    merged = tallies.merge_tallies

    def watched(rows):
        column = merged(rows)
        most.append(int(tallies.list_lengths(column.array).max(initial=0)))
        return column

    monkeypatch.setattr(tallies, "SUMMARY_LEVELS", 2)
    monkeypatch.setattr(tallies, "merge_tallies", watched)
    monkeypatch.setitem(merging_functions(), "merge_tallies", watched)
    query = session.sql("select median(k) from t")
    assert query.collect(mode="cpu").to_arrow().column(0).to_pylist() == [1999.5]
    assert 0 < max(most) < 1500


def merging_functions():
    """Return the engine's table of aggregates that has ``merge_tallies``."""
    from hybridq.engines import aggregate

    (found,) = [table for table in vars(aggregate).values() if isinstance(table, dict) and "merge_tallies" in table]
    return found


def test_values_that_are_few_are_counted_at_once(folder):
    with connect_in_process(chunk_units=2) as session:
        session.register_folder(folder)
        assert len(session.sql("select median(x) from t").explain().stages) == 1


@pytest.mark.parametrize("mode", ["cpu", "cop"])
def test_values_that_are_more_than_estimated(mode, tmp_path):
    numbers = np.random.default_rng(3).permutation(40_001)
    pq.write_table(pa.table({"k": numbers, "v": numbers * 30}), tmp_path / "t.parquet", row_group_size=1000)
    with connect_in_process(gather_limit_bytes=100_000, cpu_chunk_rows=2000, gpu_chunk_rows=9000) as session:
        session.register_folder(tmp_path)
        query = session.sql("select median(k) from t where v % 2 = 0 and v % 3 = 0 and v % 5 = 0")
        assert len(query.explain().stages) == 1
        result = query.collect(mode=mode)
        assert result.to_arrow().column(0).to_pylist() == [20_000]
        assert len(result.report.stages) == 4


def test_a_cluster_gives_the_same(two_workers, folder):
    with connect(two_workers.address, gather_limit_bytes=0, chunk_units=3) as session:
        session.register_folder(folder)
        for name in ("several of a column", "of a join"):
            query = session.sql(QUERIES[name])
            expected = duckdb_answer(QUERIES[name], folder, query.schema)
            for mode in ("cpu", "cop"):
                assert_same_answer(query.collect(mode=mode).to_arrow(), expected)


VALUES = st.none() | st.sampled_from([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.5]) | st.floats(-9, 9)


@given(rows=st.lists(VALUES, max_size=60), fraction=st.sampled_from(["0", "0.01", "0.5", "0.77", "1"]))
@settings(max_examples=25)
def test_any_values(tmp_path_factory, rows, fraction):
    folder = tmp_path_factory.mktemp("any")
    day = datetime.date(2024, 1, 1)
    days = [None if x is None else day + datetime.timedelta(days=i % 7) for i, x in enumerate(rows)]
    table = pa.table(
        {"x": pa.array(rows, pa.float64()), "t": pa.array(days, pa.date32()), "s": pa.array(map(str, rows))}
    )
    pq.write_table(table, folder / "t.parquet", row_group_size=3)
    text = f"select quantile_cont(x, {fraction}) a, approx_percentile_cont(x, {fraction}) b from t"
    answers = []
    for limit in (0, 2**30):
        with (
            pytest.MonkeyPatch.context() as patch,
            connect_in_process(gather_limit_bytes=limit, chunk_units=1) as session,
        ):
            patch.setattr(tallies, "SUMMARY_SIZE", 2)
            patch.setattr(tallies, "SUMMARY_LEVELS", 5)
            session.register_folder(folder)
            answers.append(session.sql(text).collect(mode="cpu").to_arrow())
    assert_same_answer(answers[0], answers[1])
