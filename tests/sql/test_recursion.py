"""WITH RECURSIVE: steps over the rows of the step before, until there are none."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from hybridq import recursion
from hybridq.errors import ExecutionError, UnknownColumn, Unsupported
from hybridq.planning import check_query
from hybridq.session import Session
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process

EDGES = pa.table({
    "a": pa.array([1, 2, 3, 4, 5, 6, None], pa.int64()),
    "b": pa.array([2, 3, 1, 5, None, 4, 7], pa.int64()),
})  # fmt: skip

COUNTING = "with recursive w as (select 1 as x union all select x + 1 from w where x < 5) "


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with connect_in_process(chunk_units=1) as opened:
        opened.register("e", EDGES)
        yield opened


@pytest.mark.parametrize(
    "sql",
    [
        COUNTING + "select * from w order by x",
        # Cycles end, and NULL is there once.
        "with recursive w(x) as (select cast(4 as bigint) union select b from e join w on a = x) select * from w",
        "with recursive w(x) as (select a from e where a < 3 union select b from e join w on a = x) select * from w",
        "with recursive w(x, y, d) as (select a, b, cast(0 as bigint) from e where a = 1 "
        "union all select w.x, e.b, d + 1 from w, e where e.a = w.y and d < 6) select * from w",
        "with recursive q as (select a, b from e where b is not null), r(x) as (select a from q where a = 6 "
        "union select q.b from q join r on q.a = r.x), s as (select max(x) as m from r) "
        "select count(*) as n, max(m) as m from r, s where x in (select a from q)",
        "with recursive w(s) as (select 'a' union all select s || 'b' from w where length(s) < 4) select s from w",
        "with recursive w(x) as (select a from e where false union all select x from w) select x from w",
        "with recursive w as (select a from e) select * from w",
    ],
)
def test_as_duckdb(session: Session, sql: str) -> None:
    with duckdb.connect() as connection:
        connection.register("e", EDGES)
        expected = connection.sql(sql).to_arrow_table()
    found = session.sql(sql).collect().to_arrow()
    assert_same_answer(found, expected.cast(pa.schema(zip(expected.column_names, found.schema.types, strict=True))))


def test_the_same_query_runs_again_in_other_modes(session: Session) -> None:
    query = session.sql(COUNTING + "select sum(x) as s from w")
    for mode in ("cpu", "gpu", "cop"):
        assert query.collect(mode=mode).to_arrow().to_pydict() == {"s": [15]}
    assert query.schema.names == ["s"]
    assert "aggregate" in str(query.explain())


def test_a_recursion_without_end_is_an_error(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recursion, "MOST_STEPS", 7)
    with pytest.raises(ExecutionError, match="the recursive query w has not ended after 7 steps"):
        session.sql("with recursive w(x) as (select 1 union all select x from w) select * from w").collect()


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("with recursive w(x) as (select 1 union all select x * 0.5 from w) select * from w", "x is int64 .*cast one"),
        (
            "with recursive w(x, y) as (select 1, 'a' union all select x + 1, x from w) select * from w",
            "query w changes types: y is string in the first rows and int64 in further ones: cast",
        ),
        (
            "with recursive w(x, y) as (select 1, 'a' union all select x + 1 from w) select * from w",
            "query w have 2 columns, and further ones 1$",
        ),
        ("with recursive w(x) as (select x from w union all select 1) select * from w", "follows its last UNION"),
        ("with recursive w(x) as (select 1 union all select x from w limit 3) select * from w", "column 60: LIMIT"),
        ("with recursive e(x) as (select 1 union all select x from e) select * from e", "name of a table"),
        ("with recursive w(x, y) as (select 1 union all select x from w) select * from w", "1 different column names"),
        ("select * from (with recursive w(x) as (select 1 union all select x from w) select * from w) t", "RECURSIVE"),
    ],
)
def test_what_is_refused(session: Session, sql: str, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        session.sql(sql)


def test_errors_are_known_before_anything_runs(session: Session) -> None:
    sql = "with recursive w(x) as (select 1 union all select y from w) select * from w"
    for plan in (session.sql, lambda text: check_query(text, session._catalog)):
        with pytest.raises(UnknownColumn, match="there is no column y"):
            plan(sql)


def test_now_is_one_moment_of_all_steps(session: Session) -> None:
    text = (
        "with recursive w(x, n) as (select 1, now() union all select x + 1, now() from w where x < 3), "
        "v(y, m) as (select 1, now() union all select y + 1, now() from v where y < 2) "
        "select n from w union all select m from v union all select now()"
    )
    query = session.sql(text)
    first, second = (set(query.collect(mode="cpu").to_arrow()["n"].to_pylist()) for _ in range(2))
    assert len(first) == len(second) == 1
    assert min(first) < min(second)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("with recursive w as (select 1 as x union all\nselect nope from w) select * from w", "line 2, column 8"),
        ("with recursive w as (select nope from e union all select * from w) select * from w", "line 1, column 29"),
        (
            "with recursive v as (select 1 as y),\nu as (select 2 as z), w as (select 1 as x union all select 2 from w)"
            ",\nt as (select 3 as s) select nope from w, v, t",
            "line 3, column 29",
        ),
    ],
)
def test_places_are_those_of_the_whole_text(session: Session, text: str, place: str) -> None:
    with pytest.raises(UnknownColumn, match=rf"there is no column nope \({place}\)"):
        session.sql(text)
