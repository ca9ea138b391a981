"""Floating-point values and decimals together are floating-point numbers, as DuckDB has them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from hybridq.frontend.sql import plan_sql
from hybridq.session import Session
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.types import Field

TABLE = pa.table({
    "x": [1.5, 2.0, float("nan"), 1e300, None, 0.1],
    "f": pa.array([1.0, 2.0, 0.1, float("inf"), None, 3.25], pa.float32()),
    "d": pa.array([Decimal("1.50"), None, Decimal("0.10"), Decimal("3.00"), Decimal("7.25"), Decimal("0.10")],
                  pa.decimal128(10, 2)),
    "i": [1, 2, 3, 4, 5, 6],
    "g": ["a", "b", "a", "b", "a", "b"],
})  # fmt: skip

QUERIES = [
    "select sum(d) over (order by i::double range between 1.5e0 preceding and current row) v from t",
    "select [x, d, 0.5] v from t",
    "select list_sort([x, 2.5, d])[1] v from t",
    "select list_concat([x], [0.1]) v, list_append([x], 1.5e0) w from t",
    "select v[1] + 1 a, v w from (select [x, 0.5] v from t) q",
    "select 1e3 a, -1.5E-3 b, .5e1 c, 5.e1 d, 1e308 * 10 e from t where i = 1",
    "select i * 1e0 v, d > 1e0 w, d in (1.5e0, 2.5) u, coalesce(d, 1e0) c from t",
    "select 1.5 v union all select 2e0",
    "select v from (select 1.5 v union select cast(1.5 as double)) q",
    "select case when i = 1 then 1.5 else 1e0 end v from t",
    "select a from (values (1.5), (cast(2 as double)), (NULL), (1e300), ('nan'::double)) v(a)",
    "select a from (values (1.5), (cast(2 as real))) v(a)",
    "select sum(a) s, max(b) m from (values (1.5, 1), (1e300, 2)) v(a, b)",
    "select a, b from (values (1e0), (2.25)) v(a) join (values (2.25), (3)) w(b) on a = b",
    "select a from (values (0.1), (cast('nan' as double)), (2)) v(a) where a > 0.05",
    "select case when i<=4 then x else d end v from t",
    "select coalesce(x, d) v from t",
    "select coalesce(d, 0.5, x) v from t",
    "select greatest(x, 1.5) a, least(x,d) b from t",
    "select x v from t union all select d from t",
    "select d v from t union all select x from t union all select 1.5 from t",
    "select a.i, b.i j from t a join t b on a.x=b.d",
    "select case x when 1.5 then 1 else 0 end v from t",
    "select nullif(x, 1.5) v from t",
    "select x from t intersect select d from t",
    "select x from t where x in (select d from t)",
    "select coalesce(f, 1.5) v from t",
    "select lag(x, 1, 1.5) over (order by i) v from t",
    "select sum(case when i<3 then x else 0.0 end) s, avg(coalesce(d,x)) a, max(coalesce(x,d)) m,"
    " count(coalesce(x,d)) c from t where i <> 3",
    "select g, sum(case when i<3 then x else 0.0 end) s from t where i<>3 group by g having sum(case when i<3"
    " then x else 0.0 end) > 0.5",
    "select coalesce(x,d) * 2.5 + d v, -coalesce(x, d) n, abs(coalesce(x,d)) b from t",
    "select coalesce(x,d) v, count(*) c from t group by coalesce(x,d) order by 1",
    "select distinct case when i<3 then x else d end v from t",
    "select i from t where coalesce(x,d) = (select max(coalesce(x, d)) from t where i < 3)",
    "select cast(coalesce(x, 0.5) as decimal(20,3)) v from t where i not in (3,4)",
    "select cast(coalesce(x, d) as varchar) is null v from t",
    "select v from (select x v from t union select d from t) q where v >= 1.5",
    "select sum(coalesce(x,d)) over (partition by g order by i) v, first_value(coalesce(x,d)) over (partition"
    " by g order by i) w from t where i not in (3,4)",
    "select a.i from t a left join t b on coalesce(a.x, a.d) = b.d and b.i < 5",
    "select i in (1.5, 2) v, coalesce(x, d) in (1.5, 7.25) w from t",
    "select coalesce(x, d) is null v, coalesce(x,d) is distinct from 1.5 w from t",
    "select round(coalesce(x, d), 1) v from t where i not in (3,4)",
    "select nvl2(i, x, d) v from t",
    "select coalesce(f, x, d) v from t",
    "select case when i=1 then f else 0.1 end v from t",
    "select median(coalesce(x,d)) m, stddev(coalesce(x,d)) s from t where i not in (3,4)",
    "select g, min(v) m from (select g, x v from t union all select g, d from t) q group by rollup(g)",
    "select x from t except select d from t",
    "select v from (select coalesce(x, d) as v from t) q where v > 1.5 and v < 10000.0 order by v",
    "select count(*) as n from t a join t b on a.f < b.d",
    "select f + 0 from t where f < d",
    "select coalesce(0.5, 2.5e-1) v from t limit 0",
    "select coalesce(x, d) v, sum(coalesce(d, x)) over () w from t where false",
    "select a.x from t a join t b on false union all select d from t limit 0",
    "select d v from t where false union all select x from t where i = 1",
]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with connect_in_process(chunk_units=1) as opened:
        opened.register("t", TABLE)
        yield opened


@pytest.mark.parametrize("sql", QUERIES)
def test_answers_and_types_are_duckdbs(session: Session, sql: str) -> None:
    with duckdb.connect() as connection:
        connection.register("t", TABLE)
        reference = sql.replace("nvl2(i, x, d)", "case when i is not null then x else d end")
        expected = connection.sql(reference).to_arrow_table()
    for mode in ("cpu", "gpu"):
        answer = session.sql(sql).collect(mode=mode).to_arrow()
        for own, theirs in zip(answer.schema.types, expected.schema.types, strict=True):
            assert pa.types.is_floating(own) == pa.types.is_floating(theirs)
        assert_same_answer(answer, expected.rename_columns(answer.column_names).cast(answer.schema))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select cast(x as decimal(30, 15)) as v from t", pa.decimal128(30, 15)),
        ("select coalesce(cast(x as decimal(30, 15)), d) as v from t", pa.decimal128(30, 15)),
        ("select cast(coalesce(x, d) as decimal(12, 3)) as v from t", pa.decimal128(12, 3)),
        ("select coalesce(d, 0.5) as v from t", pa.decimal128(10, 2)),
        ("select coalesce(f, d) as v from t", pa.float32()),
        ("select x from t union all select i from t", pa.float64()),
    ],
)
def test_casts_that_the_query_asks_for_stay(sql: str, expected: pa.DataType) -> None:
    schema = tuple(Field(item.name, item.type) for item in TABLE.schema)
    assert plan_sql(sql, {"t": schema}).root.schema[0].type == expected
