"""Statistics never rule out a unit that has a row for which the predicate is true."""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.physical.pruning import excluded, excluded_units
from hybridq.plan.expressions import Call, Case, Cast, Column, Expression, In, Literal, walk
from hybridq.plan.key_conditions import with_outcomes
from hybridq.plan.statistics import ColumnStatistics, UnitBounds

BOOLEAN, INTEGER, FLOAT, TEXT = pa.bool_(), pa.int64(), pa.float64(), pa.string()
N, X, S, B = Column(INTEGER, "n"), Column(FLOAT, "x"), Column(TEXT, "s"), Column(BOOLEAN, "b")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def bounds(minimum: Any, maximum: Any, nulls: int | None = 0, rows: int = 10) -> Any:
    return lambda name: ColumnStatistics(minimum, maximum, nulls, rows)


def call(function: str, *arguments: Expression, options: tuple[str, ...] = ()) -> Call:
    return Call(BOOLEAN, function, arguments, options)


def integer(value: int | None) -> Literal:
    return Literal(INTEGER, value)


def text(value: str | None) -> Literal:
    return Literal(TEXT, value)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (call("less", N, integer(5)), True),
        (call("less_equal", N, integer(5)), False),
        (call("greater", integer(5), N), True),
        (call("equal", N, integer(4)), True),
        (call("equal", N, integer(5)), False),
        (call("not_equal", N, integer(4)), False),
        (call("equal", N, integer(None)), True),
        (call("and", call("greater_equal", N, integer(1)), call("less_equal", N, integer(4))), True),
        (call("or", call("less", N, integer(5)), call("greater", N, integer(9))), True),
        (call("or", call("less", N, integer(5)), call("greater", N, integer(8))), False),
        (call("not", call("greater", N, integer(4))), True),
        (call("not", call("greater", N, integer(7))), False),
        (In(BOOLEAN, N, (integer(1), integer(20), integer(None))), True),
        (In(BOOLEAN, N, (integer(1), integer(7))), False),
        (call("not", In(BOOLEAN, N, (integer(7), integer(None)))), True),
        (call("is_null", N), True),
        (call("is_not_null", N), False),
        (call("is_true", call("less", N, integer(5))), True),
        (call("is_not_true", call("less", N, integer(5))), False),
        (call("is_not_true", call("less", N, integer(50))), True),
        (Literal(BOOLEAN, None), True),
        (Literal(BOOLEAN, False), True),
        (Literal(BOOLEAN, True), False),
        (call("less", Cast(pa.decimal128(22, 2), N), Literal(pa.decimal128(22, 2), Decimal("4.99"))), True),
        (call("less", Cast(TEXT, N), text("")), False),
        (call("equal", Call(INTEGER, "add", (N, N)), integer(1)), False),
        (Case(BOOLEAN, (), Literal(BOOLEAN, False)), False),
    ],
    ids=str,
)
def test_integers_between_5_and_9_without_nulls(predicate: Expression, expected: bool) -> None:
    assert excluded(predicate, bounds(5, 9)) is expected


def test_nothing_known_rules_nothing_out() -> None:
    assert not excluded(call("less", N, integer(5)), lambda name: None)
    assert not excluded(call("is_null", N), bounds(5, 9, nulls=None))
    assert not excluded(call("is_null", N), bounds(5, 9, nulls=1))
    assert not excluded(call("less", N, integer(5)), bounds(None, None, nulls=0))


def test_nulls_alone_satisfy_only_is_null() -> None:
    nulls = bounds(None, None, nulls=10, rows=10)
    assert excluded(call("not_equal", N, integer(5)), nulls)
    assert excluded(call("not", call("equal", N, integer(5))), nulls)
    assert excluded(call("like", S, text("%")), nulls)
    assert not excluded(call("is_null", N), nulls)
    assert excluded(call("is_not_null", N), nulls)
    assert not excluded(call("is_not_true", B), nulls)


def test_nan_is_above_all_numbers() -> None:
    known = bounds(1.0, 2.0)
    five = Literal(FLOAT, 5.0)
    assert not excluded(call("greater", X, five), known), "a NaN may be there"
    assert excluded(call("equal", X, five), known)
    assert excluded(call("less", X, Literal(FLOAT, 1.0)), known)
    assert not excluded(call("not", call("less", X, five)), known)
    assert not excluded(call("equal", X, Literal(FLOAT, math.nan)), known)
    assert not excluded(call("less", X, Literal(FLOAT, math.nan)), known)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("b%", False), ("a%", True), ("c%", True), ("bb", False), ("bz%", True), ("b_", False), ("%a", False), ("", True)],
)
def test_like_bounds_its_prefix(pattern: str, expected: bool) -> None:
    assert excluded(call("like", S, text(pattern)), bounds("bar", "bo")) is expected


def test_like_stops_at_an_escape() -> None:
    assert not excluded(call("like", S, text("b#%"), options=("escape", "#")), bounds("b%", "b%"))
    assert not excluded(call("like", S, text("b\\%")), bounds("b%", "b%"))
    assert excluded(call("not", call("like", S, text("b%"))), bounds("ba", "bz"))
    assert not excluded(call("not", call("like", S, text("b%b"))), bounds("ba", "bz"))
    assert excluded(call("not", call("starts_with", S, text("b"))), bounds("ba", "bz"))


def test_types_that_do_not_compare_rule_nothing_out() -> None:
    assert not excluded(call("less", N, text("a")), bounds(5, 9))
    day, moment = datetime.date(2020, 1, 1), datetime.datetime(2019, 1, 1)
    column, literal = Column(pa.date32(), "d"), Literal(pa.timestamp("us"), moment)
    assert not excluded(call("less", column, literal), bounds(day, day))
    assert excluded(call("less", Cast(pa.timestamp("us"), column), literal), bounds(day, day))


def test_many_units_at_once() -> None:
    statistics = [ColumnStatistics(i, i + 1, 0, 5) if i % 3 else None for i in range(10)]
    predicate = call("less", N, integer(5))
    dropped = excluded_units(predicate, lambda name: UnitBounds.of(statistics), 10)
    assert dropped.tolist() == [excluded(predicate, lambda name, item=item: item) for item in statistics]  # type: ignore[misc]
    assert excluded_units(Literal(BOOLEAN, False), lambda name: UnitBounds.of(statistics), 3).tolist() == [True] * 3
    assert excluded_units(predicate, lambda name: UnitBounds.of([]), 0).shape == (0,)


# --- any predicate over any small columns, against every row ---------------------------------------------------------

Row = dict[str, Any]
POOL = {
    "n": st.integers(-2, 3),
    "x": st.sampled_from([-1.5, 0.0, 2.0, math.inf, math.nan]),
    "s": st.sampled_from(["", "a", "ab", "b", "ba"]),
    "b": st.booleans(),
}
COLUMNS = {"n": N, "x": X, "s": S, "b": B}


def order(a: Any, b: Any) -> int:
    """Compare as SQL does, NaN above all numbers."""
    a_nan, b_nan = a != a, b != b
    if a_nan or b_nan:
        return int(a_nan) - int(b_nan)
    return (a > b) - (a < b)


TESTS: dict[str, Any] = {
    "equal": lambda c: c == 0,
    "not_equal": lambda c: c != 0,
    "less": lambda c: c < 0,
    "less_equal": lambda c: c <= 0,
    "greater": lambda c: c > 0,
    "greater_equal": lambda c: c >= 0,
}


def matches(predicate: Expression, row: Row) -> bool | None:
    match predicate:
        case Column():
            return row[predicate.name]
        case Literal():
            return predicate.value
        case In():
            found = [matches(call("equal", predicate.operand, value), row) for value in predicate.values]
            return True if True in found else (None if None in found else False)
        case Call(function="and" | "or", arguments=arguments):
            deciding = predicate.function == "or"
            values = [matches(argument, row) for argument in arguments]
            return deciding if deciding in values else (None if None in values else not deciding)
        case Call(function="not"):
            value = matches(predicate.arguments[0], row)
            return None if value is None else not value
        case Call(function="is_null"):
            return matches(predicate.arguments[0], row) is None
        case Call(function="is_not_true"):
            return matches(predicate.arguments[0], row) is not True
        case Call(function="is_false"):
            return matches(predicate.arguments[0], row) is False
        case Call(function="like"):
            value, pattern = (matches(argument, row) for argument in predicate.arguments)
            if value is None or pattern is None:
                return None
            expression = re.escape(str(pattern)).replace("%", ".*").replace("_", ".")
            return re.fullmatch(expression, str(value)) is not None
        case Call():
            a, b = (matches(argument, row) for argument in predicate.arguments)
            return None if a is None or b is None else TESTS[predicate.function](order(a, b))
    raise TypeError(type(predicate).__name__)


def sides(name: str) -> st.SearchStrategy[Expression]:
    literal = st.one_of(st.none(), POOL[name]).map(lambda value: Literal(COLUMNS[name].type, value))
    return st.one_of(st.just(COLUMNS[name]), literal)


@st.composite
def leaf(draw: st.DrawFn) -> Expression:
    name = draw(st.sampled_from(["n", "x", "s"]))
    kind = draw(st.sampled_from(["compare", "compare", "in", "null", "like", "boolean"]))
    if kind == "compare":
        return call(draw(st.sampled_from(COMPARISONS)), draw(sides(name)), draw(sides(name)))
    if kind == "in":
        values = draw(st.lists(st.one_of(st.none(), POOL[name]), min_size=1, max_size=3))
        return In(BOOLEAN, COLUMNS[name], tuple(Literal(COLUMNS[name].type, value) for value in values))
    if kind == "null":
        return call("is_null", COLUMNS[name])
    if kind == "like":
        return call("like", S, text(draw(st.sampled_from(["a%", "%", "b", "ab%", "_b%", "c%", None]))))
    return B


PREDICATES = st.recursive(
    leaf(),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner).map(lambda parts: call(*parts)),
        st.tuples(st.sampled_from(["not", "is_not_true", "is_false", "is_null"]), inner).map(
            lambda parts: call(*parts)
        ),
    ),
    max_leaves=6,
)
ROWS = st.lists(
    st.fixed_dictionaries({name: st.one_of(st.none(), pool) for name, pool in POOL.items()}), min_size=1, max_size=4
)


def statistics_of(rows: list[Row], name: str, known_nulls: bool) -> ColumnStatistics:
    """Bound a column as Parquet writers do: NaN left out."""
    values = [row[name] for row in rows if row[name] is not None]
    numbers = [value for value in values if value == value]
    nulls = len(rows) - len(values) if known_nulls else None
    return ColumnStatistics(min(numbers, default=None), max(numbers, default=None), nulls, len(rows))


@settings(max_examples=700, deadline=None)
@given(predicate=PREDICATES, rows=ROWS, known_nulls=st.booleans())
def test_a_unit_with_a_matching_row_is_never_ruled_out(
    predicate: Expression, rows: list[Row], known_nulls: bool
) -> None:
    if excluded(predicate, lambda name: statistics_of(rows, name, known_nulls)):
        assert not any(matches(predicate, row) is True for row in rows)


@settings(max_examples=200, deadline=None)
@given(predicate=PREDICATES, units=st.lists(ROWS, min_size=1, max_size=4))
def test_conditions_on_columns_of_one_value_a_unit_are_exact(predicate: Expression, units: list[list[Row]]) -> None:
    units = [[{**row, "n": rows[0]["n"], "s": rows[0]["s"]} for row in rows] for rows in units]
    known = {name: UnitBounds.of([statistics_of(rows, name, True) for rows in units]) for name in COLUMNS}
    changed, outcomes = with_outcomes(predicate, {name: known[name] for name in ("n", "s")})
    dropped = excluded_units(changed, lambda name: (outcomes | known)[name], len(units))
    found = [any(matches(predicate, row) is True for row in rows) for rows in units]
    assert not any(drop and one for drop, one in zip(dropped, found, strict=True))
    if not {part.name for part in walk(predicate) if isinstance(part, Column)} & {"x", "b"}:
        assert dropped.tolist() == [not one for one in found]


def test_bounds_of_units_keep_python_values() -> None:
    found = UnitBounds.of([ColumnStatistics(Decimal("1.5"), Decimal("2.5"), 0, 3), None])
    assert found.low.tolist() == [Decimal("1.5"), None]
    assert found.null.tolist() == [False, True]
    assert found.never.dtype == np.bool_
