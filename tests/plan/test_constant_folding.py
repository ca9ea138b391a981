"""Constants are computed as columns are."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from plan_building import BOOLEAN, INTEGER, TEXT, column, join, number, scan, test_of

from hybridq.plan.expressions import Call, Case, Cast, Expression, In, Literal
from hybridq.plan.nodes import Filter, Scan
from hybridq.plan.rules import constant_folding
from hybridq.plan.rules.constant_folding import fold

A = column("t.a")
FLAG = column("t.flag", BOOLEAN)
RISKY = test_of("equal", Call(INTEGER, "divide", (number(1), A)), number(1))
TRUE, FALSE, UNKNOWN = (Literal(BOOLEAN, value) for value in (True, False, None))


def money(value: str, precision: int = 15, scale: int = 2) -> Literal:
    return Literal(pa.decimal128(precision, scale), Decimal(value))


def day(number_in_month: int) -> Literal:
    return Literal(pa.date32(), datetime.date(2020, 1, number_in_month))


def arithmetic(function: str, data_type: pa.DataType, *arguments: Expression) -> Expression:
    return fold(Call(data_type, function, arguments))


@pytest.mark.parametrize(
    ("function", "values", "expected"),
    [
        ("add", (2, 3), 5),
        ("subtract", (2, 3), -1),
        ("multiply", (-4, 3), -12),
        ("divide", (7, 2), 3),
        ("divide", (-7, 2), -3),
        ("modulus", (-7, 2), -1),
        ("modulus", (7, -2), 1),
        ("negate", (5,), -5),
        ("abs", (-5,), 5),
        ("add", (2, None), None),
        ("divide", (None, 0), None),
    ],
)
def test_integers(function: str, values: tuple[int | None, ...], expected: int | None) -> None:
    assert arithmetic(function, INTEGER, *map(number, values)) == number(expected)


@pytest.mark.parametrize(
    ("function", "values"),
    [
        ("add", (2**63 - 1, 1)),
        ("multiply", (2**62, 2)),
        ("negate", (-(2**63),)),
        ("divide", (1, 0)),
        ("modulus", (1, 0)),
    ],
)
def test_what_would_fail_stays(function: str, values: tuple[int, ...]) -> None:
    call = Call(INTEGER, function, tuple(map(number, values)))
    assert fold(call) is call


def test_decimals_are_exact() -> None:
    wide = pa.decimal128(38, 4)
    assert arithmetic("add", pa.decimal128(16, 2), money("0.06"), money("0.01")) == money("0.07", 16)
    assert arithmetic("multiply", wide, money("0.10"), money("0.10")) == money("0.0100", 38, 4)
    assert str(arithmetic("multiply", wide, money("0.10"), money("0.10"))) == "0.0100"
    assert arithmetic("divide", wide, money("1.00"), money("8.00")) == money("0.1250", 38, 4)
    assert str(arithmetic("divide", pa.decimal128(38, 5), money("0.50"), money("3.00"))) == "0.16667"
    overflow = Call(pa.decimal128(3, 2), "add", (money("9.99", 3), money("0.01", 3)))
    assert fold(overflow) is overflow
    assert str(arithmetic("multiply", pa.decimal128(30, 4), money("-1.00"), money("0.00"))) == "0.0000"


def test_floats() -> None:
    call = Call(pa.float64(), "add", (Literal(pa.float64(), 0.1), Literal(pa.float64(), 0.2)))
    assert fold(call) == Literal(pa.float64(), 0.1 + 0.2)
    nan = test_of("less", Literal(pa.float64(), float("nan")), Literal(pa.float64(), 1.0))
    assert fold(nan) == FALSE, "NaN is above all numbers"
    minus_zero = Call(pa.float64(), "negate", (Literal(pa.float64(), 0.0),))
    assert fold(minus_zero) is minus_zero, "0.0 and -0.0 are equal, and would be taken for each other"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (Cast(pa.date32(), Literal(TEXT, "1998-12-01")), Literal(pa.date32(), datetime.date(1998, 12, 1))),
        (
            Call(pa.date32(), "subtract_interval", (day(31), Literal(pa.month_day_nano_interval(), (1, 2, 0)))),
            Literal(pa.date32(), datetime.date(2019, 12, 29)),
        ),
        (
            Cast(pa.timestamp("ns"), Literal(TEXT, "2020-01-01 00:00:00.000001")),
            Literal(pa.timestamp("ns"), datetime.datetime(2020, 1, 1, 0, 0, 0, 1)),
        ),
        (Call(TEXT, "upper", (Literal(TEXT, "ß"),)), Literal(TEXT, "ẞ")),
        (Call(pa.float64(), "sqrt", (Literal(pa.float64(), 4.0),)), Literal(pa.float64(), 2.0)),
    ],
    ids=str,
)
def test_every_function(expression: Expression, expected: Expression) -> None:
    assert fold(expression) == expected


@pytest.mark.parametrize(
    "expression",
    [
        Cast(pa.timestamp("ns"), Literal(TEXT, "2020-01-01 00:00:00.000000001")),
        Cast(pa.date32(), Literal(TEXT, "x")),
        Call(INTEGER, "no such function", (number(1),)),
    ],
    ids=str,
)
def test_what_no_literal_stands_for_stays(expression: Expression) -> None:
    assert fold(expression) is expression


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (test_of("less", number(1), number(2)), TRUE),
        (test_of("equal", number(1), number(None)), UNKNOWN),
        (test_of("equal", A, number(None)), UNKNOWN),
        (test_of("less", money("1.50"), money("1.5", 20, 1)), FALSE),
        (test_of("less", Literal(TEXT, "B"), Literal(TEXT, "a")), TRUE),
        (test_of("greater", day(2), day(1)), TRUE),
        (test_of("and", TRUE, FLAG), FLAG),
        (test_of("and", FALSE, FLAG), FALSE),
        (test_of("and", UNKNOWN, FLAG), test_of("and", UNKNOWN, FLAG)),
        (test_of("and", FLAG, test_of("and", FLAG, TRUE)), FLAG),
        (test_of("and", TRUE, TRUE), TRUE),
        (test_of("or", TRUE, FLAG), TRUE),
        (test_of("or", FALSE, FLAG), FLAG),
        (test_of("or", FALSE, UNKNOWN), UNKNOWN),
        (test_of("not", FALSE), TRUE),
        (test_of("not", UNKNOWN), UNKNOWN),
        (test_of("is_null", number(None)), TRUE),
        (test_of("is_not_true", UNKNOWN), TRUE),
        (In(BOOLEAN, number(2), (number(1), number(2))), TRUE),
        (In(BOOLEAN, number(2), (number(1), number(None))), UNKNOWN),
        (In(BOOLEAN, number(2), (number(1),)), FALSE),
        (In(BOOLEAN, number(None), (number(1),)), UNKNOWN),
        (In(BOOLEAN, A, (number(1), number(1))), In(BOOLEAN, A, (number(1),))),
        (
            Case(INTEGER, ((FALSE, number(1)), (FLAG, number(2)), (TRUE, number(3))), A),
            Case(INTEGER, ((FLAG, number(2)),), number(3)),
        ),
        (Case(INTEGER, ((UNKNOWN, number(1)),), A), A),
        (Case(INTEGER, ((TRUE, A), (FLAG, number(2))), number(3)), A),
        (Call(INTEGER, "coalesce", (number(None), A, number(3), A)), Call(INTEGER, "coalesce", (A, number(3)))),
        (Call(INTEGER, "coalesce", (number(None), number(3), A)), number(3)),
        (Cast(INTEGER, A), A),
        (Cast(pa.int8(), number(5)), Literal(pa.int8(), 5)),
        (Cast(pa.int8(), number(500)), Cast(pa.int8(), number(500))),
        (Cast(pa.decimal128(5, 2), number(5)), money("5.00", 5)),
        (Cast(INTEGER, money("5.50")), number(6)),
        (Cast(TEXT, number(None)), Literal(TEXT, None)),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_logic(expression: Expression, expected: Expression) -> None:
    assert fold(expression) == expected


def test_nothing_that_may_fail_is_dropped() -> None:
    for function, constant in (("and", FALSE), ("or", TRUE)):
        expression = test_of(function, constant, RISKY)
        assert fold(expression) == expression
    assert fold(test_of("and", TRUE, RISKY)) == RISKY
    overflow = test_of("less", Call(INTEGER, "add", (A, number(1))), number(None))
    assert fold(overflow) == overflow


def test_predicates_that_are_always_true_go_away() -> None:
    always: Any = test_of("equal", number(1), number(1))
    assert constant_folding(Filter(scan("t"), always)) == scan("t")
    assert constant_folding(scan("t", predicate=always)) == scan("t")
    joined = join(scan("t"), scan("u"), "t.a", "u.a", residual=always)
    assert constant_folding(joined) == join(scan("t"), scan("u"), "t.a", "u.a")
    never = Filter(scan("t"), test_of("equal", number(1), number(2)))
    assert constant_folding(never) == Filter(scan("t"), FALSE)


def test_unchanged_plans_are_the_same_object() -> None:
    plan = Filter(Scan("t", scan("t").columns, FLAG), test_of("less", A, number(3)))
    assert constant_folding(plan) is plan
