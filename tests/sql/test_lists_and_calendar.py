"""Functions of lists, dates made of their parts, and bins of time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from hybridq.errors import ExecutionError, Unsupported
from hybridq.session import Session
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process

TABLE = pa.table({
    "i": pa.array([1, 2, 3, 4], pa.int32()),
    "y": pa.array([2024, 1999, None, -4], pa.int32()), "m": pa.array([2, 12, 1, 3], pa.int64()),
    "d": pa.array([29, 31, 1, None], pa.int16()),
    "t": pa.array([dt.datetime(2024, 5, 17, 13, 47, 11, 5), dt.datetime(1969, 12, 31, 23, 0, 1), None,
                   dt.datetime(2000, 1, 1)], pa.timestamp("us")),
    "l": pa.array([[1, 2, None], [], None, [3, 3, 4]], pa.list_(pa.int64())),
    "s": pa.array([["a"], ["b", "ü"], None, [None, ""]], pa.list_(pa.string())),
})  # fmt: skip


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with connect_in_process(chunk_units=1) as opened:
        opened.register("t", TABLE)
        yield opened


@pytest.mark.parametrize(
    ("ours", "duckdbs"),
    [
        ("make_date(y, m, d)", "make_date(y, m, d)"),
        ("make_date(2023, 2, i)", "make_date(2023, 2, i)"),
        ("make_date(2024, 2, 29)", "make_date(2024, 2, 29)"),
        ("date_bin(interval '15 minutes', t, timestamp '2000-01-01')", "time_bucket(interval '15 minutes', t)"),
        (
            "date_bin(interval '2 days 3 hours', t, timestamp '2001-02-03 00:00:07')",
            "time_bucket(interval '51 hours', t, timestamp '2001-02-03 00:00:07')",
        ),
        ("array_length(l)", "len(l)"),
        ("cardinality(s)", "len(s)"),
        ("l[1]", "l[1]"),
        ("s[2]", "s[2]"),
        ("l[-1]", "l[-1]"),
        ("l[i]", "l[i]"),
        ("array_element(s, i - 3)", "case when i <> 3 then s[i - 3] end"),
        ("array_has(l, 3)", "list_contains(l, 3)"),
        ("array_has(s, 'ü')", "list_contains(s, 'ü')"),
        ("array_has(l, cast(i as bigint))", "list_contains(l, i)"),
        ("to_unixtime(t)", "cast(floor(epoch(t)) as bigint)"),
        ("iszero(i - 2)", "i = 2"),
    ],
)
def test_values(session: Session, ours: str, duckdbs: str) -> None:
    with duckdb.connect() as connection:
        connection.register("t", TABLE)
        expected = connection.sql(f"select i, {duckdbs} as v from t").to_arrow_table()
    for mode in ("cpu", "gpu"):
        answer = session.sql(f"select i, {ours} as v from t").collect(mode=mode).to_arrow()
        assert_same_answer(answer, expected.cast(answer.schema))


def test_functions_of_lists_in_conditions(session: Session) -> None:
    answer = session.sql("select i from t where array_length(l) > 2 and l[1] <> 3 or array_has(s, 'b')").collect()
    assert sorted(row["i"] for row in answer.to_arrow().to_pylist()) == [1, 2]


@pytest.mark.parametrize("day", ["make_date(2023, 2, i + 28)", "make_date(2023, i + 10, 1)", "make_date(2023, 2, 29)"])
def test_a_day_that_there_is_not(session: Session, day: str) -> None:
    with pytest.raises(ExecutionError, match="there is no day 2023-"):
        session.sql(f"select {day} as v from t").collect()
    assert session.sql(f"select {day} as v from t where i > 9").collect().to_arrow().num_rows == 0


def test_bins_of_months_are_refused(session: Session) -> None:
    with pytest.raises(Unsupported, match="bins of months"):
        session.sql("select date_bin(interval '1 month', t, timestamp '2000-01-01') as v from t").collect()


@pytest.mark.parametrize("length", ["interval '-1 hour'", "interval '0 hours'"])
def test_bins_take_some_time(session: Session, length: str) -> None:
    with pytest.raises(ExecutionError, match="bins must take some time"):
        session.sql(f"select date_bin({length}, t, timestamp '2000-01-01') as v from t").collect()
