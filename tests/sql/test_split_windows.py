"""Windows whose rows are split by what they are partitioned by give what DuckDB gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.session import connect
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import duckdb_answer

RANKED = "row_number() over (partition by b order by k)"
QUERIES = {
    "ranks": (f"select k, {RANKED} r, rank() over (partition by b order by a, k) x from t", 1),
    "more keys": (f"select k, {RANKED} r, sum(c) over (partition by a, b order by k) x from t", 1),
    "other keys": (f"select k, {RANKED} r, sum(c) over (partition by a order by k) x from t", 2),
    "computed keys": ("select k, sum(c) over (partition by b % 3, upper(s) order by k) x from t", 1),
    "all rows": (f"select k, count(*) over () n, {RANKED} r, max(c) over (order by k) x from t", 1),
    "frames": (
        "select k, avg(c) over (partition by a order by k rows between 2 preceding and 1 following) x,"
        " lag(s, 2) over (partition by a order by k) y, median(c) over (partition by a) z from t",
        1,
    ),
    "qualify": (f"select k, b from t qualify {RANKED} <= 2", 1),
    "of groups": ("select b, a, sum(c) s, rank() over (partition by b order by sum(c), a) r from t group by b, a", 1),
    "of groups, by one key": ("select b, sum(k) s, count(*) over (partition by b) r from t group by b", 0),
    "of a union": ("select k, count(*) over (partition by b) n from (select * from t union all select * from t) u", 1),
    "joined": (
        f"select x.k, x.r, u.s from (select k, b, {RANKED} r from t) x join t u on x.b = u.b and u.k < 90",
        1,
    ),
    "aggregated": (f"select a, max(r), count(*) from (select a, {RANKED} r from t) x group by a", 1),
    "top": (f"select k, {RANKED} r from t order by r desc, k limit 9", 1),
    "no rows": (f"select k, {RANKED} r from t where k < 0", 1),
    "nothing but rows": (f"select count(*) from (select {RANKED} r from t) x", 0),
}
ORDERED = {"top": (1, 0)}
OPTIONS = {
    "whole": {"chunk_units": 3},
    "cut, in files": {"chunk_units": 3, "partition_bytes": 4000, "split_memory_bytes": 1, "cpu_chunk_rows": 50},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("windows")
    numbers = np.random.default_rng(5)
    rows = 1200

    def column(made):
        return pa.array(made, mask=numbers.random(rows) < 0.1)

    table = pa.table(
        {
            "a": column(numbers.integers(0, 5, rows)),
            "b": column(numbers.integers(0, 200, rows)),
            "c": column(numbers.integers(0, 50, rows) * 1.0),
            "s": column([f"text {i % 17}" for i in range(rows)]),
            "k": numbers.permutation(rows),
        }
    )
    pq.write_table(table, found / "t.parquet", row_group_size=100)
    return found


@pytest.fixture(scope="module", params=OPTIONS)
def session(request, folder):
    with connect_in_process(gather_limit_bytes=0, broadcast_limit_bytes=0, **OPTIONS[request.param]) as session:
        session.register_folder(folder)
        yield session


def splits(query):
    """Count the splits that windows read."""
    titles = [stage.title for stage in query.explain().stages]
    return sum("window (partitioned)" in title for title in titles)


@pytest.mark.parametrize("name", QUERIES)
def test_answers_are_duckdbs(session, folder, name):
    text, stages = QUERIES[name]
    query = session.sql(text)
    assert splits(query) >= stages
    expected = duckdb_answer(text, folder, query.schema)
    for mode in ("cpu", "gpu", "cop"):
        result = query.collect(mode=mode)
        assert_same_answer(result.to_arrow(), expected, order_by=ORDERED.get(name, ()))
    windows = [stage for stage in result.report.stages if "window (partitioned)" in stage.title]
    assert all("window" in stage.reason for stage in windows if "gpu" not in stage.mode.lower())


def test_windows_of_equal_keys_share_one_split(session):
    by_more = session.sql(QUERIES["more keys"][0])
    assert splits(by_more) == 1
    assert splits(session.sql(QUERIES["other keys"][0])) == 2
    of_groups = session.sql(QUERIES["of groups, by one key"][0])
    assert [stage.title.count("split by") for stage in of_groups.explain().stages] == [1, 0]


def test_a_small_input_meets_in_one_place(folder):
    with connect_in_process(chunk_units=1) as session:
        session.register_folder(folder)
        assert splits(session.sql(QUERIES["ranks"][0])) == 0
        assert len(session.sql(QUERIES["ranks"][0]).explain().stages) == 1


@pytest.mark.parametrize("mode", ["cpu", "gpu", "cop"])
def test_rows_that_are_more_than_estimated_are_split_while_the_query_runs(mode, tmp_path):
    numbers = np.random.default_rng(3).permutation(40_000)
    pq.write_table(pa.table({"k": numbers, "v": numbers * 30}), tmp_path / "t.parquet", row_group_size=1000)
    with connect_in_process(gather_limit_bytes=200_000, cpu_chunk_rows=2000, gpu_chunk_rows=9000) as session:
        session.register_folder(tmp_path)
        condition = "v % 2 = 0 and v % 3 = 0 and v % 5 = 0"  # estimated to leave few rows; it leaves all
        query = session.sql(f"select k, rank() over (partition by k % 7 order by k) r from t where {condition}")
        assert splits(query) == 0
        result = query.collect(mode=mode)
        found = dict(zip(result.to_arrow()["k"].to_pylist(), result.to_arrow()["r"].to_pylist(), strict=True))
        assert found == {number: number // 7 + 1 for number in range(40_000)}
        (windows,) = [stage for stage in result.report.stages if "window (partitioned)" in stage.title]
        assert "gather_limit_bytes" in windows.reason


def test_a_cluster_gives_the_same(two_workers, folder):
    with connect(two_workers.address, gather_limit_bytes=0, chunk_units=3, split_memory_bytes=1) as session:
        session.register_folder(folder)
        for name in ("other keys", "joined"):
            query = session.sql(text := QUERIES[name][0])
            expected = duckdb_answer(text, folder, query.schema)
            for mode in ("cpu", "cop"):
                assert_same_answer(query.collect(mode=mode).to_arrow(), expected)
