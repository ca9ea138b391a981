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
        ("[i, 2, NULL]", "[i, 2, NULL]"),
        ("[s, ['x']]", "[s, ['x']]"),
        ("array_length([])", "len([])"),
        ("array_position(l, 2)", "list_position(l, 2)"),
        ("array_position(l, NULL)", "list_position(l, NULL)"),
        ("array_position(s, s[2])", "case when s is not null then list_position(s, s[2]) end"),
        ("array_position(l, 3, 2)", "list_position(l[2:], 3) + 1"),
        ("array_has_any(l, [2, i])", "list_has_any(l, [2, i])"),
        ("array_has_all(l, [i, 2])", "list_has_all(l, [i, 2])"),
        ("arrays_overlap(s, ['ü', NULL])", "list_has_any(s, ['ü'])"),
        ("i = any([1, i - 1, 3])", "list_contains([1, i - 1, 3], i)"),
        ("array_max(l)", "list_max(l)"),
        ("array_min(s)", "list_min(s)"),
        ("array_max(['nan'::double, 1e0, NULL])", "list_max(['nan'::double, 1e0, NULL])"),
        ("array_to_string(l, '-')", "array_to_string(l, '-')"),
        ("array_to_string(s, '')", "array_to_string(s, '')"),
        ("array_to_string([1.5, d, NULL], ';')", "array_to_string([1.5, d, NULL], ';')"),
        ("string_to_array('a,b,,c', ',')", "string_split('a,b,,c', ',')"),
        ("string_to_array('a,b,,c', ',', 'b')", "['a', NULL, '', 'c']"),
        ("string_to_array(s[1], NULL)", "string_split(s[1], '')"),
        (
            "string_to_array('a-b', s[2])",
            "case when s[2] = '' then ['a-b'] when s[2] is null then ['a', '-', 'b'] "
            "else string_split('a-b', s[2]) end",
        ),
        ("array_sort(l)", "list_sort(l)"),
        ("array_sort(l, 'DESC')", "list_sort(l, 'DESC', 'NULLS FIRST')"),
        ("array_sort(s, 'asc', 'nulls first')", "list_sort(s, 'ASC', 'NULLS FIRST')"),
        ("array_sort([t, timestamp '1999-01-01'])", "list_sort([t, timestamp '1999-01-01'])"),
        ("array_sort([1e0, 'nan'::double, -1e0], 'DESC')", "list_sort([1e0, 'nan'::double, -1e0], 'DESC')"),
        ("array_sort(array_distinct(array_compact(l)))", "list_sort(list_distinct(l))"),
        ("array_concat(l, [i], l)", "list_concat(l, [i], l)"),
        ("l || l", "l || l"),
        ("array_append(s, 'q')", "list_append(s, 'q')"),
        ("array_prepend(NULL, s)", "list_prepend(NULL, s)"),
        ("array_slice(l, 2, 3)", "l[2:3]"),
        ("l[-2:-1]", "l[-2:-1]"),
        ("l[i:9]", "l[i:9]"),
        ("l[1:3:2]", "l[1:3:2]"),
        ("array_pop_back(l)", "array_pop_back(l)"),
        ("array_pop_front(s)", "array_pop_front(s)"),
        ("array_reverse(l)", "list_reverse(l)"),
        ("array_resize(l, i)", "list_resize(l, i)"),
        ("array_resize(s, 3, 'f')", "list_resize(s, 3, 'f')"),
        ("flatten([l, [i], NULL])", "flatten([l, [i], NULL])"),
        ("generate_series(1, i)", "generate_series(1, i)"),
        ("generate_series(i, -3, -2)", "generate_series(i, -3, -2)"),
        ("range(i)", "range(i)"),
        ("range(2, 9, i)", "range(2, 9, i)"),
        ("array_remove_all(l, 3)", "list_filter(l, lambda x: x is distinct from 3)"),
        ("array_replace_all(s, NULL, 'n')", "list_transform(s, lambda x: coalesce(x, 'n'))"),
        ("coalesce(l, [i], [])", "coalesce(l, [i], [])"),
        ("case when i = 1 then l else [] end", "case when i = 1 then l else [] end"),
        ("to_unixtime(t)", "cast(floor(epoch(t)) as bigint)"),
        ("from_unixtime(i * 1000000)", "make_timestamp(i * 1000000000000)"),
        ("to_timestamp_millis(-i)::timestamp", "make_timestamp(-i * 1000)"),
        ("to_timestamp(i)::timestamp", "make_timestamp(i * 1000000)"),
        ("to_timestamp_seconds('2024-02-29 12:00:00')::timestamp", "timestamp '2024-02-29 12:00:00'"),
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


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # What DuckDB lacks.
        ("array_positions(l, 3)", [[], [], None, [1, 2]]),
        ("array_distinct(l)", [[1, 2, None], [], None, [3, 4]]),
        ("array_union(l, [4, NULL, 4])", [[1, 2, None, 4], [4, None], None, [3, 4, None]]),
        ("array_intersect(l, [NULL, 3])", [[None], [], None, [3]]),
        ("array_except(l, [3, NULL])", [[1, 2], [], None, [4]]),
        ("array_remove(l, 3)", [[1, 2, None], [], None, [3, 4]]),
        ("array_remove_n(l, 3, 2)", [[1, 2, None], [], None, [4]]),
        ("array_replace(l, 3, i)", [[1, 2, None], [], None, [4, 3, 4]]),
        ("array_replace_n(l, 3, 7, 2)", [[1, 2, None], [], None, [7, 7, 4]]),
        ("array_to_string(l, s[1], '*')", ["1a2a*", "", None, None]),
        ("array_repeat(s[2], i)", [[None], ["ü", "ü"], [None] * 3, [""] * 4]),
        ("array_any_value(s)", ["a", "b", None, ""]),
        ("empty(l)", [False, True, None, False]),
        # A NULL among what is asked for is never there, and an empty list always is.
        ("array_has_all(s, [cast(NULL as varchar)])", [False, False, None, False]),
        ("array_has_any(s, [cast(NULL as varchar)])", [False, False, None, False]),
        ("array_has_all(l, [])", [True, True, None, True]),
        # As in PostgreSQL; DuckDB has one empty part, and takes an empty separator for every character.
        ("string_to_array('', ',')", [[]] * 4),
        ("string_to_array('ab', '')", [["ab"]] * 4),
    ],
)
def test_values_of_lists(session: Session, expression: str, expected: list[object]) -> None:
    for mode in ("cpu", "gpu"):
        answer = session.sql(f"select i, {expression} as v from t order by i").collect(mode=mode).to_arrow()
        assert answer["v"].to_pylist() == expected


@pytest.mark.parametrize(
    ("expression", "error", "message"),
    [
        ("range(1, 5, i - 1)", ExecutionError, "a step of 0"),
        ("range(0, 9223372036854775807)", ExecutionError, "elements or more"),
        ("array_repeat(1, 3000000000)", ExecutionError, "elements or more"),
        ("array_resize(l, -1)", ExecutionError, "length below 0"),
        ("l[3:1:-1]", ExecutionError, "a step below 1"),
        ("array_sort(l, 'up')", Unsupported, "'ASC' or 'DESC'"),
        ("array_length(l, 2)", Unsupported, "dimensions"),
        ("array_has([[i]], [i])", Unsupported, "array_has"),
        ("array_sum(l)", Unsupported, "array_sum"),
        ("to_timestamp(t, '%c')", Unsupported, "with a format reads texts, not timestamp"),
    ],
)
def test_what_cannot_be_done_with_lists(
    session: Session, expression: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        session.sql(f"select {expression} as v from t").collect()


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
