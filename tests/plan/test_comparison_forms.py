"""Conditions get the forms that statistics and scans understand, and mean the same."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from plan_building import BOOLEAN, INTEGER, TEXT, column, number, test_of

from hybridq.plan.expressions import Call, Cast, Expression, In, Literal
from hybridq.plan.rules.comparison_forms import formed

A, B = column("t.a"), column("t.b")
SMALL = column("t.small", pa.int32())
FLAG, OTHER = column("t.flag", BOOLEAN), column("t.other", BOOLEAN)
DAY = column("t.day", pa.date32())
MOMENT = column("t.moment", pa.timestamp("us"))
RISKY = test_of("equal", Call(INTEGER, "divide", (number(1), A)), number(1))
FINE = pa.timestamp("ns")


def small(value: int | None) -> Literal:
    return Literal(pa.int32(), value)


def wide(operand: Expression, data_type: pa.DataType = INTEGER) -> Cast:
    return Cast(data_type, operand)


def both(*terms: Expression) -> Expression:
    return Call(BOOLEAN, "and", terms)


def either(*terms: Expression) -> Expression:
    return Call(BOOLEAN, "or", terms)


def negated(term: Expression) -> Expression:
    return Call(BOOLEAN, "not", (term,))


def at(day: int, hour: int = 0) -> Literal:
    return Literal(FINE, datetime.datetime(2020, 1, day, hour))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (test_of("less", number(1), A), test_of("greater", A, number(1))),
        (test_of("equal", number(1), A), test_of("equal", A, number(1))),
        (test_of("less", wide(SMALL), number(5)), test_of("less", SMALL, small(5))),
        (test_of("less_equal", number(5), wide(SMALL)), test_of("greater_equal", SMALL, small(5))),
        (In(BOOLEAN, wide(SMALL), (number(1), number(None))), In(BOOLEAN, SMALL, (small(1), small(None)))),
        (
            test_of("less", wide(SMALL, pa.decimal128(12, 1)), Literal(pa.decimal128(12, 1), Decimal("2.0"))),
            test_of("less", SMALL, small(2)),
        ),
        (
            test_of("greater", wide(SMALL, pa.float64()), Literal(pa.float64(), 2.0)),
            test_of("greater", SMALL, small(2)),
        ),
        (
            test_of("less", wide(DAY, FINE), at(2)),
            test_of("less", DAY, Literal(pa.date32(), datetime.date(2020, 1, 2))),
        ),
        (
            test_of("less", wide(MOMENT, FINE), at(2, 5)),
            test_of("less", MOMENT, Literal(pa.timestamp("us"), datetime.datetime(2020, 1, 2, 5))),
        ),
        (
            test_of("less", wide(MOMENT, FINE), wide(DAY, FINE)),
            test_of("less", MOMENT, wide(DAY, pa.timestamp("us"))),
        ),
        (
            test_of("less", wide(DAY, FINE), at(2, 12)),
            test_of("less", wide(DAY, pa.timestamp("us")), Literal(pa.timestamp("us"), at(2, 12).value)),
        ),
        (negated(test_of("less", A, B)), test_of("greater_equal", A, B)),
        (negated(negated(FLAG)), FLAG),
        (negated(both(FLAG, test_of("equal", A, B))), either(negated(FLAG), test_of("not_equal", A, B))),
        (either(both(FLAG, OTHER), both(FLAG, RISKY)), both(FLAG, either(OTHER, RISKY))),
        (either(both(FLAG, OTHER), FLAG), FLAG),
    ],
    ids=str,
)  # fmt: skip
def test_forms(expression: Expression, expected: Expression) -> None:
    assert formed(expression) == expected
    assert formed(expected) == expected


@pytest.mark.parametrize(
    "expression",
    [
        test_of("less", wide(SMALL), number(2**40)),
        test_of("less", wide(SMALL, pa.decimal128(12, 1)), Literal(pa.decimal128(12, 1), Decimal("2.5"))),
        test_of("less", wide(A, pa.float64()), Literal(pa.float64(), 2.0)),  # 2**53 + 1 is no float
        test_of("less", wide(A, pa.int32()), small(2)),  # fails for large values
        test_of("equal", wide(A, TEXT), Literal(TEXT, "1")),
        test_of("equal", wide(SMALL), number(None)),
        In(BOOLEAN, wide(SMALL), (number(1), number(2**40))),
        either(both(OTHER, RISKY), both(FLAG, RISKY)),  # the first conditions guard the second
        negated(Call(BOOLEAN, "like", (column("t.s", TEXT), Literal(TEXT, "a%")))),
    ],
    ids=str,
)
def test_what_stays(expression: Expression) -> None:
    assert formed(expression) == expression
