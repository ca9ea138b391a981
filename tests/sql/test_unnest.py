"""UNNEST in pieces, beside splits, on every kind of device; and what of it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from hybridq.engines.support import operator_lacking
from hybridq.errors import HybridqError, SqlError, Unsupported
from hybridq.frontend.sql import export_substrait
from hybridq.session import Session
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.types import Field

TABLE = pa.table({
    "a": pa.array(range(40), pa.int64()),
    "l": pa.array(
        [None if row % 7 == 3 else [None if (row + k) % 5 == 0 else (row * k) % 11 for k in range(row % 6)]
         for row in range(40)], pa.list_(pa.int64()),
    ),
    "s": pa.array([["x", None, "é"][: row % 4] for row in range(40)], pa.list_(pa.string())),
    "p": pa.array([[{"q": row, "r": "t"}, None][: row % 3] for row in range(40)],
                  pa.list_(pa.struct([("q", pa.int64()), ("r", pa.string())]))),
})  # fmt: skip

QUERIES = (
    "select a, x, o from t left join unnest(l) with ordinality as v(x, o) on x > 2",
    "select a, unnest(l) as x, unnest(s) as y from t where a < 30",
    "select x, count(*) as n, min(a) as y from t, unnest(l) as v(x) group by x",
    "select t.a, x, u.a as b from t cross join unnest(l) as v(x) join t as u on u.a = x where u.a <> 5",
    "select a from t where exists (select 1 from unnest(l) as v(x) where x = a - 10 or x is null)",
    "select a from t where not exists (select 1 from unnest(s) as v(x) where x = 'x')",
    "select a, x, cast(rank() over (partition by a order by x, o) as bigint) as n "
    "from t, unnest(l) with ordinality as v(x, o)",
    "select a, max(x) over (partition by a % 3 order by a, o) as n from t, unnest(l) with ordinality as v(x, o)",
    "select unnest(l) as x from t union all select a from t where a > 35",
    "select max(x.q) as q from t, unnest(p) as v(x)",
    "select a, unnest(l) as x from t order by a, x limit 20",
    "select count(distinct x) as n from t, unnest(s) as v(x)",
)


@pytest.fixture(scope="module", params=["single units", "pieces", "splits"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    options: dict[str, dict[str, Any]] = {
        "single units": {"chunk_units": 1},
        "pieces": {"join_bytes": 300},
        "splits": {"gather_limit_bytes": 0, "broadcast_limit_bytes": 0},
    }
    with connect_in_process(**options[request.param]) as opened:
        opened.register("t", TABLE)
        yield opened


def test_as_duckdb(session: Session) -> None:
    with duckdb.connect() as connection:
        connection.register("t", TABLE)
        for sql in QUERIES:
            expected = connection.sql(sql).to_arrow_table()
            for mode in ("cpu", "gpu"):
                assert_same_answer(session.sql(sql).collect(mode=mode).to_arrow(), expected)


def test_lists_are_taken_apart_on_the_cpu(session: Session) -> None:
    query = session.sql("select x from (select [a, 1] as l from t) as w, unnest(l) as v(x)")
    assert "the GPU engine" in str(query.collect(mode="gpu").report)
    with pytest.raises(HybridqError, match="the GPU engine"):
        query.collect(mode="gpu", strict=True)
    assert operator_lacking("gpu", "UnnestStep") == "the GPU engine does not take lists apart"


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select unnest(unnest([l])) from t", "column 15: UNNEST within UNNEST"),
        ("select a from t where unnest(l) = 1", "in FROM and in the list of SELECT"),
        ("select sum(unnest(l)) from t", "within an aggregate"),
        ("select unnest(array_agg(a)) from t", "UNNEST of an aggregate"),
        ("select unnest(l), rank() over (order by a) from t", "beside window functions"),
        ("select a from t order by unnest(l)", "UNNEST in ORDER BY"),
        ("select a from t right join unnest([1]) as v(x) on true", "after a comma, CROSS JOIN, JOIN and LEFT JOIN"),
        ("select a from unnest([1]) as v(x) full join t on a = x", "before RIGHT or FULL JOIN"),
        ("select a, (select sum(x) from unnest(l) as v(x)) as y from t", "refers to the query around it"),
        ("select a from t where 1 not in (select unnest(l))", "NOT IN"),
        ("select hybridq_unnest_1.a, unnest(l) from t as hybridq_unnest_1", "rename them"),
    ],
)
def test_what_is_refused(session: Session, sql: str, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        session.sql(sql)


def test_only_lists_are_taken_apart(session: Session) -> None:
    with pytest.raises((SqlError, Unsupported)):
        session.sql("select unnest(a) from t")


def test_it_is_not_written_as_substrait() -> None:
    with pytest.raises(Unsupported, match="UNNEST cannot be written as Substrait"):
        export_substrait("select unnest([1]) as x from t", {"t": (Field("a", pa.int64()),)})
