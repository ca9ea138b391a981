"""Subqueries in every place, and joins of every kind, against DuckDB: chunks of one row, pieces of few pairs."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest

from hybridq.errors import ExecutionError, Unsupported
from hybridq.testing.in_process import connect_in_process

INT = pa.int64()
MODES = ("cpu", "gpu", "cop")

QUERIES = [
    # NOT IN and IN, with NULL on either side, and with an empty subquery
    "select a, b from l where a not in (select c from r)",
    "select a, b from l where a not in (select c from r where c is not null)",
    "select a, b from l where a not in (select g from nothing)",
    "select a, b from l where a not in (select c from r where d = b)",
    "select a, b from l where a not in (select c from r where d > b)",
    "select a, b from l where a not in (select c from r where d = b and m > k)",
    "select a, b from l where a not in (select c from r) or b > 2",
    "select a, b from l where a not in (select c from r where c is not null) or b > 2",
    "select a, b from l where not (a in (select c from r) and b > 2)",
    "select a, b from l where a in (select c from r) or b = 1",
    "select a, b from l where a in (select c from r where d = b) or k = 1",
    "select a, b from l where a not in (select c from r where d = b) or k = 1",
    "select a, b from l where a not in (select c from r) or a in (select e from s)",
    "select a + 1 from l where a + 1 not in (select c + 1 from r where m < 3)",
    "select a, a in (select c from r) as x, a not in (select e from s) as y from l",
    "select a, case when a in (select c from r) then 'yes' else 'no' end as w from l",
    "select k, count(*) as n from l where s1 not in (select s2 from r) group by k",
    # rows of values
    "select a, b from l where (a, b) in (select c, d from r)",
    "select a, b from l where (a, b) not in (select c, d from r)",
    "select a, b from l where (a, b) not in (select c, d from r where c is not null) or k = 3",
    "select a, b from l where (a, b) not in (select g, g + 1 from nothing)",
    "select a, b from l where ((a + 1, b) in (select c, d from r where m > 2) and k > 2) or a in (select e from s)",
    "select a, b from l where (a, b) in (select c, max(d) from r where (c, d) not in (select e, 3 from s) group by c)",
    "select a from l where (a, s1) in (values (1, 'a'), (2, ''))",
    # EXISTS
    "select a, b from l where exists (select c from r)",
    "select a, b from l where exists (select c from r where m > 99)",
    "select a, b from l where not exists (select c from r where m > 99)",
    "select a, b from l where not exists (select g from nothing) or b > 2",
    "select a, b from l where not exists (select c from r where c = a) or b > 2",
    "select a, b from l where exists (select 1 from r where b < d)",
    "select a, b from l where not exists (select 1 from r where b < d)",
    "select a, b from l where exists (select 1 from r where c = a and d <> b)",
    "select a, b from l where not exists (select 1 from r where c = a and d <> b)",
    "select a, exists (select 1 from r) as x, exists (select 1 from nothing) as y from l",
    # joins inside, of which one side depends on the query around it
    "select a, (select count(*) from r p, r q where p.d = q.d and p.c = a) as n from l",
    "select a, (select sum(q.c) from r p join r q on p.d = q.d where p.c = a) as n from l",
    "select a, b from l where exists (select 1 from (select * from r where c = a) p left join s on p.d = s.e)",
    "select a, b from l where a in (select d from r join s on e = d where c = b)",
    "select a, (select count(*) from s left join r on e = c and d in (select e from s) where s.e = a) as n from l",
    # both under OR, where DataFusion makes the same joins of them
    "select a, b from l where exists (select 1 from r where c = a) or a in (select d from r)",
    "select a, b from l where exists (select 1 from r where c = a) or a not in (select d from r where m > k)",
    "select a, b from l where not exists (select 1 from r where c = a and d <> b) or not (a in (select d as x from r))",
    "select a from l where a in (select c from r) or (exists (select 1 from r where d = a) and b in (select e from s))",
    "select a from l where a not in (select d from r) and (exists (select 1 from s where e = b) or b in (select 2))",
    "select a from l where s1 in (select s2 from r group by s2) or exists (select e from s intersect select 3)",
    "select k, count(*) as n from l where a + 1 in (select c + 1 from r where d = b)"
    " or not exists (select 1 from nothing) group by k",
    # correlated by other comparisons than equality
    "select a, b, (select count(*) from r where c < a) as n from l",
    "select a, b, (select max(m) from r where c <> a and d = b) as n from l",
    "select a, b, (select count(c + a) from r where c < a + 1 and d > b) as n from l",
    "select a, b from l where b > (select avg(d) from r where c <= a and m > 2)",
    "select a from l where k = (select min(c) from r where m between a and b)",
    "select x.a, (select sum(m) from r where c > x.a and s2 = x.s1) as n from l as x where x.a < 4 or x.b is null",
    "select x.a, (select count(*) from l as y where y.a < x.a and y.b >= x.b) as n from l as x where x.k > 2",
    "select a, (select string_agg(s2, ',' order by m) from r where c < a) as t from l",
    "select l.a, e, (select count(*) from r where c > a) as n from l left join s on a = e and k < 3",
    "with w as (select a, b from l where b is not null) select a, (select count(*) from r where d < w.b) as n from w",
    # EXISTS as a value
    "select a, exists (select 1 from r where c < a) as x from l",
    "select a, not exists (select 1 from r where c = a and d > b) as x from l",
    "select a, case when exists (select 1 from r where c > a order by m) then b else k end as x from l",
    "select a from l where exists (select 1 from r where c < a) or b = (select max(d) from r where c > a)",
    # the only row
    "select a, (select d from r where m = a) as x, (select s2 from r where m = b and c > k) as y from l",
    "select a, (select d > 2 from r where m = k) as x from l",
    "select a, (select d from r where m > a and m < a + 2 order by d) as x from l where a < 4",
    "select a from l where (select s2 from r where m = a) >= s1 or b = 1",
    "select k, sum(x) as t from (select k, (select d from r where m = a) as x from l) as q group by k",
    "select m from (values (1), (8)) v(m) where (select d from (select m as n, d from r union all select 9, 1 union all"
    " select 9, 2) q where n = v.m) > 0",
    # the first row, and the first rows of each
    "select a, (select m from r where c = a order by m desc limit 1) as x from l",
    "select a, (select d as o from r where c < a order by o desc nulls last, m limit 1) as x from l",
    "select a, (select s2 from r where d = b order by m limit 1) as x from l",
    "select a, (select d from r where c > a order by 1 limit 1) as x from l",
    "select a, x.d, x.m from l, lateral (select d, m from r where c = a order by m limit 2) as x",
    "select a, d, m from l left join lateral (select d, m from r where c = a order by d desc nulls last, m limit 1)"
    " as x on true",
    "select a, x.m from l cross join lateral (select m from r where c < a order by m desc limit 2 offset 1) as x",
    "select a, x.* from l, lateral (select * from r where d = b and c is not null order by m limit 1) as x",
    "select a, x.c, x.n from l, lateral (select c, count(*) n from r where d >= b group by c order by n, 1 limit 2) x",
    "select a, x.n from l, lateral (select max(m) as n from r where c < a) as x",
    # the comparison of IN once more
    "select a, b from l where a in (select d from r where d = a) or b = 3",
    "select a, b from l where a not in (select d from r where c = a and d = b)",
    "select a, b from l where a in (select d from r where d = a and c > 2) and b not in (select d from r where c = b)",
    # aggregates of all rows, which have a row for no rows
    "select a, b from l where exists (select count(*) from r where c = a and m > 4)",
    "select a, b from l where not exists (select max(d) from r where c = a)",
    "select a, b from l where exists (select count(*) from r where c = a having count(*) < 2) and b > 1",
    "select a, b from l where not exists (select max(d) from r where c = a having count(*) > 1)",
    "select a, b from l where 0 in (select count(*) from r where c = a)",
    "select a, b from l where b in (select count(*) from r where c = a) or k = 1",
    "select a, b from l where b not in (select max(d) from r where c = a)",
    "select a, b from l where b - 1 not in (select count(d) filter (where m > 2) from r where c = a)",
    "select a, b from l where b > all (select max(d) from r where c = a)",
    "select a, b from l where b <> any (select count(*) from r where c = a)",
    "select a, b from l where a in (select max(c) from r) and exists (select sum(e) from s where e > 7)",
    "select a, (select sum(d) as t from r where c = a having count(*) < 2) as x from l",
    "select a, (select sum(d) from r where c = a having count(*) = 0) as x from l",
    "select a, (select count(*) from r where c = a having max(d) is null) as x from l",
    "select a from l where b in (select d from r where m > (select count(*) from s where e = c))",
    "select a from l where exists (select d from r where c = a and m > (select sum(e) from s where e <= 2 and e = d))",
    "select a, x.n from l, lateral (select count(*) as n from r where c = a) x",
    # values of subqueries
    "select a from l where a >= (select max(c) from r where c not in (select e from s))",
    "select a, (select max(c) from r) as m, (select sum(d) from r) as n from l",
    "select a, (select g from nothing) as m from l",
    "select a from l where a > (select g from nothing)",
    "select a, (select c from r where m = 1) as m from l",
    "select a from l where a between (select min(e) from s) and (select max(c) from r)",
    "select a from l where a > (select max(e) from s) - (select min(c) from r)",
    "select k, sum(a) as n from l group by k having sum(a) > (select min(d) from r)",
    "select sum(a + (select max(e) from s)) as n from l",
    "select (select count(*) from r) as n",
    "select a from l join r on a = c and b > (select min(e) from s)",
    "select a from l where a > (select min(c) from r where d > (select min(e) from s))",
    "select s1 from l where s1 > (select min(s2) from r)",
    "select a from l left join (select c, d from r where d > (select min(e) from s)) on a = c",
    # joins
    "select a, c, d from l right join r on a = c",
    "select a, c, d from l right join r on a = c and b < d",
    "select a, c, d from l left join r on a = c and b < d and k <= m",
    "select a, c, d from l left join r on a = c and b = d",
    "select a, c, d from l left join r on b < d",
    "select a, c, d from l right join r on b < d",
    "select a, c, d from l join r on b < d",
    "select a, c, d from l join r on a = c and b = d and k <> m",
    "select a, b, c, d from l full join r on a = c",
    "select a, b, c, d from l full join r on a = c and b = d and k < m",
    "select a, b, c, d from l full join r on b < d",
    "select k, count(c) as n, count(a) as o from l full join r on a = c group by k",
    "select coalesce(a, c) as x, count(*) as n from l full join nothing on a = g full join r on a = c group by 1",
    "select a, c from l full join r on a = c where d is null or d > 2",
    "select a, c, e from l cross join r cross join s",
    "select a, c from l, r where a + c > b",
    "select count(*) as n from l, r",
    "select count(*) as n, sum(m) as t from l left join r on b < d",
    "select k, count(d) as n from l left join r on b < d group by k",
    "select a, d from l, r where b < d order by a, d, k, m limit 5",
    "select a from l where a in (select c from r join s on d > e)",
]


@pytest.fixture(scope="module", params=[0, 1, 2, 3])
def sides(request):
    """A session and DuckDB with the same random small tables."""
    choose = random.Random(request.param)

    def numbers(count):
        return pa.array([choose.choice([None, 1, 2, 3, 4, 5]) for _ in range(count)], INT)

    def texts(count):
        return pa.array([choose.choice([None, "", "a", "ab", "b"]) for _ in range(count)], pa.string())

    tables = {
        "l": pa.table({"a": numbers(9), "b": numbers(9), "k": numbers(9), "s1": texts(9)}),
        "r": pa.table({"c": numbers(7), "d": numbers(7), "m": pa.array(range(1, 8), INT), "s2": texts(7)}),
        "s": pa.table({"e": pa.array([choose.randint(1, 5) for _ in range(3)], INT)}),
        "nothing": pa.table({"g": pa.array([], INT)}),
    }
    options = {"chunk_units": choose.choice([0, 1]), "join_bytes": choose.choice([1, 300, 10**9])}
    with connect_in_process(**options) as session, duckdb.connect() as connection:
        for name, table in tables.items():
            session.register(name, table)
            connection.register(name, table)
        yield session, connection


def in_any_order(columns):
    return sorted(zip(*columns, strict=True), key=str)


@pytest.mark.parametrize("sql", QUERIES)
def test_the_answer_is_duckdbs(sides, sql):
    session, connection = sides
    query = session.sql(sql)
    expected = sorted(connection.sql(sql).fetchall(), key=str)
    for mode in MODES:
        answer = query.collect(mode=mode).to_arrow()
        assert in_any_order(column.to_pylist() for column in answer.columns) == expected, mode


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("select a from l where exists (select c from r where c = a offset 1)", 30),
        ("select a from l where a in (select max(c) from r where c = b having count(*) > 1)", 28),
        ("select a, x.n from l, lateral (select max(d) as n from r where c = a having count(*) > 1) x", 31),
    ],
)
def test_a_row_of_nothing_is_never_lost_silently(sides, sql, column):
    session, _ = sides
    with pytest.raises(Unsupported, match=f"line 1, column {column}: a subquery that depends on the query around it"):
        session.sql(sql)


CHOSEN_BY_ONE_NAME = (
    "select a from l where a not in (select p.c from r p join (select c from r) q on d > 1 where q.c = b)"
)
WINDOW_INSIDE = (
    "select a, (select max(n) from (select c, rank() over (order by d) as n from r where c = a) q) as n from l"
)


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("select a, (select count(*) from r p, r q where p.c = a and q.c = b) as n from l", "one name"),
        ("select a from l where a in (select p.c from r p join r q on p.d = q.d where q.c = b)", "one name"),
        (CHOSEN_BY_ONE_NAME, "one name"),
        ("select a from l where exists (select 1 from r p, r q where p.c = a and q.c = b)", "one name"),
        ("select a, (select count(*) from s left join r on e = c and d = b) as n from l", "an outer"),
        (
            "select a, (select count(*) from s left join (select * from r where d = b) w on e = c) as n from l",
            "an outer",
        ),
        ("select a from l where not exists (select 1 from r full join s on e = c and m = a)", "an outer"),
        ("select a, n from l, lateral (select rank() over (order by d) as n from r where c = a) x", "a window"),
        (WINDOW_INSIDE, "a window"),
    ],
)
def test_what_would_be_moved_past_what_it_changes_is_refused(sides, sql, what):
    session, _ = sides
    with pytest.raises(Unsupported, match=f"^a subquery with .*{what}.* is not supported: write a join"):
        session.sql(sql)


@pytest.mark.parametrize(
    "condition",
    [
        "a not in (select d from r where d = a)",
        "a not in (select d from r where l.a = r.d and c > 1) or b = 3",
        "not (a in (select d as x from r where c = b and d = a))",
        "a + 1 not in (select distinct d + 1 from r where d + 1 = a + 1)",
        "a <> all (select d from r where d = a)",
        "not a = any (select d from r where d = a)",
    ],
)
def test_not_in_over_what_its_own_comparison_chooses_is_refused(sides, condition):
    session, _ = sides
    with pytest.raises(Unsupported, match=r"NOT IN over a subquery with the same comparison .* write NOT EXISTS"):
        session.sql(f"select a from l where {condition}")


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("select a, (select max(d) from r where c < a or d = 1) as x from l", 11),
        ("select a, (select max(d) from r where coalesce(c, 1) < coalesce(a, 1)) as x from l", 11),
        ("select a, (select distinct d from r where c < a) as x from l", 11),
        ("select (select d from r where m = a) as x, count(*) as n from l group by 1", 8),
        ("select k, sum((select count(*) from r where c < a)) as n from l group by k", 15),
        ("select a from l where a in (select d from r where c < a order by m limit 1)", 28),
        ("select a, x.y from l, lateral (select s1 || s2 as y from r where c = a order by m limit 1) x", 23),
        ("select a, (select max(n) from (select count(*) as n from r where c = a) x) as x from l", 66),
    ],
)
def test_what_cannot_be_taken_apart_has_a_place(sides, sql, place):
    session, _ = sides
    with pytest.raises(Unsupported, match=f"line 1, column {place}"):
        session.sql(sql)


def test_a_value_of_more_than_one_row_is_an_error(sides):
    session, _ = sides
    query = session.sql("select a, (select c from r) as x from l")
    with pytest.raises(ExecutionError, match="more than one row"):
        query.collect()


def test_a_value_of_more_than_one_row_for_one_row_is_an_error(sides):
    session, _ = sides
    query = session.sql("select e, (select m from (select 1 as n, m from r) q where n = e - e + 1) as x from s")
    with pytest.raises(ExecutionError, match="a subquery that is used as a value gives more than one row"):
        query.collect()


def test_a_value_that_is_not_used_is_not_computed(sides):
    session, _ = sides
    query = session.sql("select a from (select a, (select c from r) as x from l) as t")
    assert query.collect().to_arrow().num_rows == 9
    assert [stage.title.split(",")[0] for stage in query.explain().stages] == ["scan l"]


def test_values_are_constants_of_the_stages_that_use_them(sides):
    session, _ = sides
    query = session.sql("select a from l where a > (select max(e) from s)")
    first, last = query.explain().stages
    assert (first.source, last.source) == ("table s", "table l")
    assert last.dependencies == (first.id,)
    assert query.collect().report.stages[0].output_rows == 1
