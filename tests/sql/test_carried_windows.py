"""Windows without PARTITION BY, computed range by range, give what DuckDB gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import duckdb_answer

BY_TIES = "over (order by a)"
BY_ALL = "over (order by a desc nulls last, k)"
QUERIES = {
    "ranks": f"select k, rank() {BY_TIES} r, dense_rank() {BY_TIES} d, percent_rank() {BY_TIES} p,"
    f" cume_dist() {BY_TIES} c, ntile(7) {BY_ALL} n, row_number() {BY_ALL} m from t",
    "running": f"select k, sum(b) {BY_TIES} s, avg(b) {BY_TIES} a, count(*) {BY_TIES} c, min(s) {BY_TIES} x from t",
    "other rows": f"select k, lag(s, 2, 'none') {BY_ALL} g, lead(b) {BY_ALL} e, first_value(s) {BY_ALL} f,"
    " nth_value(b, 3) over (order by k rows between 1 preceding and unbounded following) n from t",
    "frames": "select k, sum(b) over (order by k rows between 3 preceding and 2 following) x,"
    " max(d) over (order by k rows between 5 preceding and 4 preceding) y,"
    " count(b) over (order by a range between 1 preceding and current row) z,"
    " sum(d) over (order by a groups between 1 following and unbounded following) g from t",
    "totals": "select k, sum(d) over () x, count(*) over () n, max(b) over () - b q from t",
    "totals of lists": "select k, b - median(b) over () m, stddev(b) over () v, count(distinct s) over () c from t",
    "totals and others": f"select k, median(b) over () m, count(*) over () n, rank() {BY_TIES} r from t",
    "totals of groups": "select a, sum(b) s, sum(sum(b)) over () m from t group by a",
    "totals of some rows": "select k, sum(b) over () m from (select * from t order by k limit 20) u",
    "in the table's order": "select k, row_number() over () r, sum(b) over (rows unbounded preceding) s from t",
    "two orders": f"select k, rank() {BY_TIES} r, rank() over (order by b desc nulls last) q from t",
    "after partitions": f"select k, sum(b) over (partition by a) p, row_number() {BY_ALL} r from t",
    "top": f"select k, row_number() {BY_ALL} r from t order by r desc limit 9",
    "qualified": f"select k, a from t where b > 3 qualify row_number() {BY_ALL} between 5 and 30",
    "joined": f"select x.k, r, u.s from (select k, b, rank() {BY_TIES} r from t) x join t u on x.b = u.b and u.k < 20",
    "of groups": "select a, sum(sum(b)) over (order by a) s, rank() over (order by count(*), a) r from t group by a",
    "of a union": f"select k, sum(b) {BY_TIES} n from (select * from t union all select * from t) u",
    "no rows": f"select k, rank() {BY_TIES} r from t where k < 0",
    "nothing but rows": f"select count(*) from (select rank() {BY_TIES} r from t) x",
}
ORDERED = {"top": (1, 0)}
IN_NO_ORDER = {"nothing but rows", *(name for name in QUERIES if name.startswith("totals") and "others" not in name)}
OPTIONS = {
    "few ranges": {"chunk_units": 3, "partition_bytes": 20_000},
    "a row a range, in files": {"chunk_units": 4, "partition_bytes": 100, "split_memory_bytes": 1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("carried")
    numbers = np.random.default_rng(7)
    rows = 30

    def column(made):
        return pa.array(made, mask=numbers.random(rows) < 0.1)

    table = pa.table(
        {
            "a": column(numbers.integers(0, 5, rows)),
            "b": column(numbers.integers(-9, 50, rows)),
            "d": column(numbers.integers(1, 99, rows).astype(np.int32)).cast(pa.decimal128(12, 0)),
            "s": column([f"text {i % 17}" for i in range(rows)]),
            "k": numbers.permutation(rows),
        }
    )
    pq.write_table(table, found / "t.parquet", row_group_size=5)
    return found


@pytest.fixture(scope="module", params=OPTIONS)
def session(request, folder):
    with connect_in_process(gather_limit_bytes=0, broadcast_limit_bytes=0, **OPTIONS[request.param]) as session:
        session.register_folder(folder)
        yield session


def ranges(query):
    """Count the stages that compute windows range by range."""
    return sum("window (ranges)" in stage.title for stage in query.explain().stages)


@pytest.mark.parametrize("name", QUERIES)
def test_answers_are_duckdbs(session, folder, name):
    text = QUERIES[name]
    query = session.sql(text)
    assert ranges(query) >= (name not in IN_NO_ORDER)
    expected = duckdb_answer(text, folder, query.schema)
    result = query.collect(mode="cop")
    assert_same_answer(result.to_arrow(), expected, order_by=ORDERED.get(name, ()))
    windows = [stage for stage in result.report.stages if "window (ranges)" in stage.title]
    assert all("window" in stage.reason for stage in windows)


def test_windows_of_one_order_share_its_ranges(session):
    assert ranges(session.sql(QUERIES["ranks"])) == 2
    assert ranges(session.sql(QUERIES["totals and others"])) == 1
    assert ranges(session.sql(QUERIES["two orders"])) == 2


def test_nulls_are_passed_over_across_ranges(session, folder):
    text = f"select k, last_value(b) ignore nulls {BY_ALL} x, lag(s, 2) ignore nulls {BY_ALL} y from t"
    found = session.sql(text).collect(mode="cpu").to_arrow()
    inside = text.replace(") ignore nulls", " ignore nulls)")
    assert_same_answer(found, duckdb_answer(inside, folder, session.sql(text).schema))


def test_what_needs_all_values_stays_in_one_place(session, folder):
    text = f"select k, median(b) {BY_TIES} m, rank() {BY_TIES} r, count(*) over () n from t"
    query = session.sql(text)
    assert len(query.explain().stages) == 1
    assert_same_answer(query.collect(mode="cpu").to_arrow(), duckdb_answer(text, folder, query.schema))


def test_a_small_input_meets_in_one_place(folder):
    with connect_in_process(chunk_units=1) as session:
        session.register_folder(folder)
        assert len(session.sql(QUERIES["running"]).explain().stages) == 1


def test_rows_that_are_more_than_estimated_are_cut_into_ranges_while_the_query_runs(tmp_path):
    numbers = np.random.default_rng(3).permutation(20_000)
    pq.write_table(pa.table({"k": numbers, "v": numbers * 30}), tmp_path / "t.parquet", row_group_size=1000)
    text = "select sum(r * k) from (select k, row_number() over (order by k) r from t where v % 3 = 0) x"
    with connect_in_process(gather_limit_bytes=100_000, partition_bytes=200_000, cpu_chunk_rows=2000) as session:
        session.register_folder(tmp_path)
        query = session.sql(text)
        assert ranges(query) == 0
        result = query.collect(mode="cpu")
    assert_same_answer(result.to_arrow(), duckdb_answer(text, tmp_path, query.schema))
    assert any("window (ranges)" in stage.title for stage in result.report.stages)
