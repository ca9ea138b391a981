"""Medians and quantiles of groups that are too large for one worker, found by counting in two passes."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.engines import tallies
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import duckdb_answer

QUERIES = {
    "median": "select g, median(x), count(*) from t group by g",
    "several keys": "select g, h, median(x), quantile_cont(x, 0.9), median(d), sum(k) from t group by g, h",
    "keys that are NULL or NaN": "select f, median(x), quantile_cont(k, 0.3) from t group by f",
    "keys of days": "select day, median(d) from t group by day",
    "a key that is computed": "select k % 3 as r, median(x + k) from t group by k % 3",
    "with a filter": "select g, median(x), median(x) filter (where k < 100) from t where k % 2 = 0 group by g",
    "having": "select g, median(x) m from t group by g having median(x) > 0",
    "beside distinct values": "select g, median(x), count(distinct k), sum(distinct h), count(*) from t group by g",
    "beside lists": "select g, median(x), string_agg(s, ',' order by k), array_agg(k order by k) from t group by g",
    "in order": "select g, median(x) m from t group by g order by m desc nulls last limit 2",
    "of a join": "select t.g, median(u.x) from t join t u on t.k = u.k where u.h < 90 group by t.g",
    "of a union": "select g, median(x) from (select g, x from t union all select h, k from t where h < 5) v group by g",
    "of medians": "select a, median(m) from (select g % 2 a, h, median(x) m from t group by g % 2, h) v group by a",
    "of windows": "select g, median(r) from (select g, row_number() over (partition by g order by k) r from t) v"
    " group by g",
    "no rows": "select g, median(x) from t where k < 0 group by g",
    "nothing but NULL": "select g, median(x) from t where x is null group by g",
    "sets": "select g, h % 3 as r, median(x), count(*), grouping(g) from t group by rollup(g, h % 3)",
    "sets of no rows": "select g, median(x), count(*) from t where k < 0 group by rollup(g)",
    "lists of distinct values": "select g, array_agg(distinct h order by h), count(distinct k), median(d) from t"
    " group by g",
    "distinct": "select g, median(distinct h), median(x) from t group by g",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("group_quantiles")
    numbers, rows = np.random.default_rng(11), 4000
    floats = np.array([0.0, -0.0, float("nan"), 1.5])
    day = datetime.date(2024, 1, 1)
    table = pa.table(
        {
            "x": pa.array(numbers.normal(size=rows) * 1000, mask=numbers.random(rows) < 0.1),
            "d": pa.array(numbers.integers(0, 10**6, rows), pa.int64()).cast(pa.decimal128(21, 2)),
            "g": pa.array(
                np.where(numbers.random(rows) < 0.7, 3, numbers.integers(0, 5, rows)), mask=numbers.random(rows) < 0.1
            ),
            "h": np.where(numbers.random(rows) < 0.5, 7, numbers.integers(0, 100, rows)),
            "f": pa.array(floats[numbers.integers(0, 4, rows)], mask=numbers.random(rows) < 0.2),
            "s": [f"text {i % 97}" for i in range(rows)],
            "day": [None if i % 7 == 3 else day + datetime.timedelta(days=i % 3) for i in range(rows)],
            "k": numbers.permutation(rows),
        }
    )
    pq.write_table(table, found / "t.parquet", row_group_size=500)
    return found


OPTIONS = {
    "merged": {"gather_limit_bytes": 10_000},
    "split": {"gather_limit_bytes": 0},
}


@pytest.fixture(scope="module", params=OPTIONS)
def session(request, folder):
    options = {"chunk_units": 1, "partition_bytes": 800, **OPTIONS[request.param]}
    with pytest.MonkeyPatch.context() as patch, connect_in_process(**options) as session:
        patch.setattr(tallies, "SUMMARY_SIZE", 64)
        session.register_folder(folder)
        yield session


@pytest.mark.parametrize("name", QUERIES)
def test_answers_are_duckdbs(session, folder, name):
    query = session.sql(QUERIES[name])
    expected = duckdb_answer(QUERIES[name], folder, query.schema)
    assert_same_answer(query.collect(mode="cpu").to_arrow(), expected)


def test_bounds_may_be_joined_by_splitting(folder):
    with connect_in_process(
        gather_limit_bytes=0, broadcast_limit_bytes=0, chunk_units=1, partition_bytes=800
    ) as session:
        session.register_folder(folder)
        for name in ("keys that are NULL or NaN", "of a union"):
            query = session.sql(QUERIES[name])
            expected = duckdb_answer(QUERIES[name], folder, query.schema)
            assert_same_answer(query.collect(mode="cpu").to_arrow(), expected)
            assert any(join.method == "partitioned" for stage in query.explain().stages for join in stage.joins)


def test_small_groups_take_one_pass(folder):
    with connect_in_process(gather_limit_bytes=0, chunk_units=1) as session:
        session.register_folder(folder)
        text = "select g, median(x) from t group by g"
        assert len(session.sql(text).explain().stages) == 2
    with connect_in_process(gather_limit_bytes=0, chunk_units=1, partition_bytes=800) as session:
        session.register_folder(folder)
        assert len(session.sql(text).explain().stages) == 4


def test_few_values_of_large_groups_are_put_together(folder, monkeypatch):
    """Without the bounds, all 2,800 values of the largest group are in one list."""
    longest = []
    lists_of = tallies.lists_of

    def watched(items, lengths, data_type, *further):
        longest.append(int(lengths.max(initial=0)))
        return lists_of(items, lengths, data_type, *further)

    monkeypatch.setattr(tallies, "SUMMARY_SIZE", 64)
    monkeypatch.setattr(tallies, "SUMMARY_LEVELS", 2)
    monkeypatch.setattr(tallies, "lists_of", watched)
    with connect_in_process(gather_limit_bytes=0, chunk_units=1, partition_bytes=800) as session:
        session.register_folder(folder)
        text = "select g, median(k), count(distinct k) from t group by g"
        query = session.sql(text)
        assert_same_answer(query.collect(mode="cpu").to_arrow(), duckdb_answer(text, folder, query.schema))
    assert 0 < max(longest) < 1000
