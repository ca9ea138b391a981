"""Aggregates whose partial results are split by key give what those give that are merged in one place, and DuckDB."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.errors import NumericOverflow
from hybridq.session import connect
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import duckdb_answer

QUERIES = {
    "groups": "select b, a, sum(c), count(*), min(s), avg(c), stddev(k) from t group by b, a",
    "distinct rows": "select distinct a, b from t",
    "having": "select b, sum(c) x from t group by b having sum(c) > 30",
    "top": "select b, sum(c) x from t group by b having count(*) > 1 order by x desc, b limit 7",
    "lists": "select b, median(c), array_agg(distinct s order by s), string_agg(s, ',' order by s) from t group by b",
    "window": "select b, sum(c), row_number() over (order by b nulls last) from t group by b",
    "rollup": "select b, a, sum(c), count(distinct s), count(distinct c) from t group by rollup(b, a)",
    "rollup of nothing": "select b, sum(c), count(distinct s), count(distinct c) from t where k < 0 group by rollup(b)",
    "rollup of groups": "select b, sum(k) from t group by rollup(b)",
    "rollup of no groups": "select b, sum(k) from t where k < 0 group by rollup(b)",
    "joined": "select t.k, u.x from t join (select b, sum(c) x from t group by b) u on t.b = u.b where u.x > 5",
    "of groups": "select x, count(*) from (select b, sum(c) x from t group by b) u group by x",
    "union": "select distinct b from t union all select distinct k from t",
    "union below": "select b, count(*) from (select b from t union all select a from t) u group by b",
    "one distinct": "select count(distinct b) from t",
    "one distinct by group": "select a, count(distinct b), sum(c) from t group by a",
    "several distinct": "select count(distinct s), count(distinct c), median(k), var_pop(c), max(s), corr(k, c) from t",
    "several distinct by group": "select a, count(distinct b), count(distinct c), avg(c), count(*) from t group by a",
    "sums of distinct": "select a, sum(distinct b), avg(distinct c), min(s), stddev(distinct b) from t group by a",
    "filtered": "select a, count(distinct b) filter (where c > 9), count(distinct s) from t group by a",
    "distinct of nothing": "select count(distinct s), sum(distinct c) from t where k < 0",
    "distinct, lists": "select a, count(distinct b), count(distinct c), array_agg(s order by s) from t group by a",
}

OPTIONS = {
    "whole": {"chunk_units": 3},
    "cut, in files": {"chunk_units": 3, "partition_bytes": 8000, "split_memory_bytes": 1, "cpu_chunk_rows": 50},
}


def values(rows, seed, nulls=0.1):
    numbers = np.random.default_rng(seed)

    def column(made, data_type=None):
        return pa.array(made, data_type, mask=numbers.random(rows) < nulls)

    return pa.table(
        {
            "a": column(numbers.integers(0, 5, rows)),
            "b": column(numbers.integers(0, max(rows // 4, 2), rows)),
            "c": column(numbers.integers(0, 50, rows) * 1.0),
            "s": column([f"text {i % 97}" for i in range(rows)]),
            "k": numbers.permutation(rows),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("groups")
    pq.write_table(values(1500, 1), found / "t.parquet", row_group_size=100)
    return found


@pytest.fixture(scope="module", params=OPTIONS)
def session(request, folder):
    with connect_in_process(gather_limit_bytes=0, **OPTIONS[request.param]) as session:
        session.register_folder(folder)
        yield session


@pytest.mark.parametrize("name", QUERIES)
def test_answers_are_duckdbs(session, folder, name):
    query = session.sql(QUERIES[name])
    assert "(partitioned)" in str(query.explain())
    expected = duckdb_answer(QUERIES[name], folder, query.schema)
    for mode in ("cpu", "gpu", "cop"):
        assert_same_answer(query.collect(mode=mode).to_arrow(), expected, order_by=(1, 0) if name == "top" else ())


def test_many_groups_with_several_distinct_arguments_are_split_by_group(session, folder, monkeypatch):
    monkeypatch.setattr("hybridq.physical.closing.FEW_GROUPS", 10)
    query = session.sql(text := "select b, count(distinct s), count(distinct c) from t group by b")
    assert "split by t.b\n" in str(query.explain())
    assert_same_answer(query.collect(mode="cop").to_arrow(), duckdb_answer(text, folder, query.schema))


def test_a_cluster_gives_the_same(two_workers, folder):
    with connect(two_workers.address, gather_limit_bytes=0, chunk_units=3, split_memory_bytes=1) as session:
        session.register_folder(folder)
        for name in ("groups", "rollup", "several distinct by group", "having"):
            query = session.sql(QUERIES[name])
            expected = duckdb_answer(QUERIES[name], folder, query.schema)
            for mode in ("cpu", "cop"):
                result = query.collect(mode=mode)
                assert_same_answer(result.to_arrow(), expected)
                assert sum(stage.spilled_bytes for stage in result.report.stages) > 0


TYPES = {
    "text": (pa.string(), ["", "a", "a much longer text", "ü"]),
    "date": (pa.date32(), [datetime.date(1992, 1, 1), datetime.date(2024, 2, 29)]),
    "decimal": (pa.decimal128(38, 4), [Decimal("1.0000"), Decimal(10**33) + Decimal("0.0001")]),
    "float": (pa.float64(), [0.0, -0.0, float("nan"), 1.5, float("inf")]),
    "boolean": (pa.bool_(), [True, False]),
    "integer": (pa.int64(), [1, 2, -(2**62)]),
}
CELLS = st.lists(st.tuples(st.none() | st.integers(0, 4), st.none() | st.integers(0, 4)), max_size=15)


@given(rows=CELLS, type_name=st.sampled_from(sorted(TYPES)), parts=st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_any_rows_and_types_of_keys(tmp_path_factory, rows, type_name, parts):
    folder = tmp_path_factory.mktemp("any")
    data_type, made = TYPES[type_name]
    keys = pa.array([None if a is None else made[a % len(made)] for a, _ in rows], data_type)
    table = pa.table({"x": keys, "n": pa.array([n for _, n in rows], pa.int64()), "m": np.arange(len(rows)) % 3})
    pq.write_table(table, folder / "t.parquet", row_group_size=parts)
    with connect_in_process(gather_limit_bytes=0, chunk_units=1, partition_bytes=60) as session:
        session.register_folder(folder)
        for text in (
            "select x, count(*), sum(n), min(m) from t group by x",
            "select m, count(distinct x), count(distinct n), sum(n) from t group by m",
            "select count(distinct x), sum(distinct n) from t",
        ):
            query = session.sql(text)
            assert_same_answer(query.collect(mode="cop").to_arrow(), duckdb_answer(text, folder, query.schema))


@pytest.mark.parametrize("mode", ["cpu", "gpu", "cop"])
def test_groups_that_are_more_than_estimated_are_split_while_the_query_runs(mode, tmp_path):
    numbers = np.random.default_rng(3).permutation(40_000)
    pq.write_table(pa.table({"k": numbers, "v": numbers * 30}), tmp_path / "t.parquet", row_group_size=1000)
    with connect_in_process(gather_limit_bytes=100_000, cpu_chunk_rows=2000, gpu_chunk_rows=9000) as session:
        session.register_folder(tmp_path)
        # Estimated to be few rows; they are all.
        query = session.sql("select k, sum(v) s from t where v % 2 = 0 and v % 3 = 0 and v % 5 = 0 group by k")
        assert "partitioned" not in str(query.explain())
        result = query.collect(mode=mode)
        assert sorted(result.to_arrow()["s"].to_pylist()) == [30 * number for number in range(40_000)]
        (merging,) = [stage for stage in result.report.stages if "(partitioned)" in stage.title]
        assert "gather_limit_bytes" in merging.reason
        again = query.collect(mode=mode)  # the query knows it from now on
        assert not any("gather_limit_bytes" in stage.reason for stage in again.report.stages)


def test_few_groups_are_merged_in_one_place(folder):
    with connect_in_process(chunk_units=1) as session:
        session.register_folder(folder)
        for name in ("groups", "several distinct by group"):
            assert len(session.sql(QUERIES[name]).explain().stages) == 1


def test_a_sum_that_overflows_is_named():
    with connect_in_process(gather_limit_bytes=0, chunk_units=1) as session:
        session.register("t", pa.table({"k": [1, 1], "v": [2**62, 2**62]}))
        with pytest.raises(NumericOverflow, match=r"sum\(t\.v\) does not fit int64"):
            session.sql("select k, sum(v) from t group by k").collect()


def test_lists_count_with_all_their_values():
    table = pa.table({"k": np.arange(100_000), "a": np.arange(100_000) % 4})
    with connect_in_process(gather_limit_bytes=500_000, cpu_chunk_rows=10_000) as session:
        session.register("t", table)
        for call, split in (("sum(k)", False), ("median(a)", False), ("median(k)", True), ("array_agg(k)", True)):
            text = str(session.sql(f"select a, {call} from t group by a").explain())
            assert ("(partitioned)" in text) == split, call
