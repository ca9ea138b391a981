"""Conditions with thousands of AND and OR mean what they mean with few."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from hybridq.frontend.sql_chains import LONG, with_short_chains
from hybridq.frontend.sql_text import longest_chain, tokens
from hybridq.session import Session
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process

TABLE = pa.table({"a": [1, 2, 3, 4, None, 6], "b": [None, 2, 0, 7, 5, 60], "s": ["x", "y and z", "or", None, "", "x"]})
TERMS = 2 * LONG + 3

OR = " or ".join(f"a = {number} and b between {number} and 70 -- and\n" for number in range(3, 3 + TERMS))
AND = " and ".join(f"(b <> {number + 1} or s like '% and %')" for number in range(TERMS))
MIXED = " AND ".join(f"not a = {number} or b is distinct from {number}" for number in range(2, TERMS))
GROUPS = AND.replace("b <>", "count(*) <>").replace("s like", "max(s) <>")
SIDES = AND.replace("b <>", "t.b <>").replace("s like", "u.s like")
CASES = " or ".join(f"case when a = {number} and b > 1 then true else s = 'or' end" for number in range(TERMS))


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with connect_in_process(chunk_units=1) as opened:
        opened.register("t", TABLE)
        yield opened


@pytest.mark.parametrize(
    "sql",
    [
        f"select * from t where {OR}",
        f"select * from t where {AND} -- and",
        f"select * from t where not ({OR}) and a < 100",
        f"select a, ({AND}) as x, ({OR}) as y from t",
        f"select * from t where {MIXED} order by a limit 3",
        f"select a, count(*) as n from t where {CASES} group by a having {GROUPS}",
        f"select t.a from t join t as u on t.a = u.b where {SIDES}",
    ],
    ids=["or", "and", "not", "values", "mixed", "having", "join"],
)
def test_as_duckdb(session: Session, sql: str) -> None:
    with duckdb.connect() as connection:
        connection.register("t", TABLE)
        assert_same_answer(session.sql(sql).collect().to_arrow(), connection.sql(sql).to_arrow_table())


def test_thousands_nest_little() -> None:
    chain = " or ".join(f"a = {number} and b = 1" for number in range(3000))
    short = with_short_chains(f"select 1 from t where {chain}")
    assert longest_chain(list(tokens(short))) < 40
    assert short.count("(") == short.count(")")


def test_short_ones_and_what_is_no_condition_stay() -> None:
    few = "select 1 from t where " + " or ".join(["a = 1"] * LONG)
    assert with_short_chains(few) == few
    words = "select f(a and b, " + " or ".join(["a"] * TERMS) + ") from t"
    assert with_short_chains(words) == words
