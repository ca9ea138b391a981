from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from engine_helpers import BOOL, DOUBLE, INT, LONG, aggregate, call, col, lit, money, project, total, values
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.engines.cpu import CpuEngine
from hybridq.errors import DivisionByZero, NumericOverflow
from hybridq.plan.expressions import Case, NamedExpression
from hybridq.plan.functions import result_type
from hybridq.types import Field

MAX = 2**63 - 1
OPERATORS = {"add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b}


def rounded(numerator, denominator):
    """Round a quotient half away from zero."""
    quotient, rest = divmod(abs(numerator), abs(denominator))
    quotient += 2 * rest >= abs(denominator)
    return quotient if (numerator < 0) == (denominator < 0) else -quotient


def unscaled(value):
    sign, digits, _ = value.as_tuple()
    return (-1 if sign else 1) * int("".join(map(str, digits)))


def scaled(number, scale):
    sign, digits, _ = Decimal(number).as_tuple()
    return Decimal((sign, digits, -scale))


def decimals(precision, scale):
    limit = 10**precision - 1
    extremes = st.sampled_from([0, 1, -1, limit, -limit, min(10**scale, limit)])
    return st.one_of(extremes, st.integers(-limit, limit)).map(lambda number: scaled(number, scale))


@st.composite
def decimal_pairs(draw):
    columns = []
    for _ in range(2):
        precision = draw(st.integers(1, 38))
        scale = draw(st.integers(0, min(precision, 12)))
        columns.append((pa.decimal128(precision, scale), st.none() | decimals(precision, scale)))
    rows = draw(st.lists(st.tuples(columns[0][1], columns[1][1]), min_size=1, max_size=6))
    types = [data_type for data_type, _ in columns]
    return types, rows


@settings(max_examples=150, deadline=None)
@given(decimal_pairs(), st.sampled_from(["add", "subtract", "multiply", "divide", "modulus"]))
def test_decimals_are_exact_or_overflow(pair, function):
    (left, right), rows = pair
    returns = result_type(function, (left, right))
    expected, overflows, by_zero = [], False, False
    for a, b in rows:
        if a is None or b is None:
            expected.append(None)
            continue
        x, y = unscaled(a), unscaled(b)
        common = max(left.scale, right.scale)
        if function == "multiply":
            number = x * y
        elif function in ("add", "subtract"):
            number = OPERATORS[function](x * 10 ** (common - left.scale), y * 10 ** (common - right.scale))
        elif y == 0:
            by_zero = True
            continue
        elif function == "divide":
            number = rounded(x * 10 ** (returns.scale + right.scale), y * 10**left.scale)
        else:
            u, v = x * 10 ** (common - left.scale), y * 10 ** (common - right.scale)
            number = (abs(u) % abs(v)) * (-1 if u < 0 else 1)
        overflows |= abs(number) >= 10**38
        expected.append(scaled(number, returns.scale))
    table = pa.table({"a": pa.array([a for a, _ in rows], left), "b": pa.array([b for _, b in rows], right)})
    expression = call(function, col("a", left), col("b", right), returns=returns)
    if by_zero or overflows:
        with pytest.raises((DivisionByZero, NumericOverflow)):
            values(CpuEngine(), expression, table)
    else:
        # The declared precision may be smaller than the digits that a result has: 38 digits are the limit.
        wide = call(function, col("a", left), col("b", right), returns=pa.decimal128(38, returns.scale))
        assert values(CpuEngine(), wide, table) == expected


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(*[st.none() | st.integers(-(2**63), MAX) | st.integers(-3, 3)] * 2), min_size=1, max_size=8),
    st.sampled_from(["add", "subtract", "multiply", "divide", "modulus"]),
)
def test_integers_are_exact_or_overflow(rows, function):
    expected, error = [], None
    for a, b in rows:
        if a is None or b is None:
            expected.append(None)
            continue
        if function in ("divide", "modulus"):
            if b == 0:
                error = DivisionByZero
                continue
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            result = quotient if function == "divide" else a - quotient * b
        else:
            result = OPERATORS[function](a, b)
        if not -(2**63) <= result <= MAX:
            error = error or NumericOverflow
        expected.append(result)
    table = pa.table({"a": pa.array([a for a, _ in rows], LONG), "b": pa.array([b for _, b in rows], LONG)})
    expression = call(function, col("a"), col("b"), returns=LONG)
    if error is not None:
        with pytest.raises((DivisionByZero, NumericOverflow)):
            values(CpuEngine(), expression, table)
    else:
        assert values(CpuEngine(), expression, table) == expected


@pytest.mark.parametrize(
    ("data_type", "a", "b"), [(pa.int8(), 100, 100), (pa.int16(), -32768, -1), (INT, 2**31 - 1, 1), (LONG, MAX, 1)]
)
def test_narrow_integers_do_not_wrap(engine, data_type, a, b):
    table = pa.table({"a": pa.array([1, a], data_type), "b": pa.array([1, b], data_type)})
    expression = call("add", col("a", data_type), col("b", data_type), returns=data_type)
    with pytest.raises(NumericOverflow, match="a \\+ b"):
        values(engine, expression, table)
    assert values(engine, expression, table.slice(0, 1)) == [2]


def test_price_with_discount_and_tax_is_exact(engine):
    table = pa.table({
        "price": pa.array([Decimal("100.00")], money()),
        "discount": pa.array([Decimal("0.10")], money()),
        "tax": pa.array([Decimal("0.05")], money()),
    })  # fmt: skip
    one = lit(Decimal(1), pa.decimal128(1, 0))
    factors = [
        call("subtract", one, col("discount", money()), returns=money(16)),
        call("add", one, col("tax", money()), returns=money(16)),
    ]
    discounted = call("multiply", col("price", money()), factors[0], returns=pa.decimal128(32, 4))
    charged = call("multiply", discounted, factors[1], returns=pa.decimal128(38, 6))
    assert values(engine, charged, table) == [Decimal("94.500000")]


def test_decimal_sum_past_the_arguments_precision(engine):
    table = pa.table({"x": pa.array([Decimal("9999999999999.99")] * 2, money())})
    result = aggregate(engine, table, {}, [total("s", col("x", money()), pa.decimal128(38, 2))])
    assert result["s"].to_pylist() == [Decimal("19999999999999.98")]


def test_division_by_zero_names_the_expression(engine):
    table = pa.table({"a": [1], "b": [0]})
    with pytest.raises(DivisionByZero, match=r"\(a / b\)"):
        values(engine, call("divide", col("a"), col("b"), returns=LONG), table)


def test_division_of_null_by_zero_is_null(engine):
    table = pa.table({"a": pa.array([None, 6], LONG), "b": pa.array([0, 4], LONG)})
    assert values(engine, call("divide", col("a"), col("b"), returns=LONG), table) == [None, 1]


def test_floats_are_ieee(engine):
    table = pa.table({"a": [1.0, -1.0, 0.0, 7.5], "b": [0.0, 0.0, 0.0, 2.0]})
    result = values(engine, call("divide", col("a", DOUBLE), col("b", DOUBLE), returns=DOUBLE), table)
    assert result[:2] == [float("inf"), float("-inf")]
    assert result[2] != result[2]
    assert result[3] == 3.75
    assert values(engine, call("modulus", col("a", DOUBLE), col("b", DOUBLE), returns=DOUBLE), table)[3] == 1.5


def test_integer_division_and_remainder_truncate(engine):
    table = pa.table({"a": [7, -7, 7, -7], "b": [2, 2, -2, -2]})
    assert values(engine, call("divide", col("a"), col("b"), returns=LONG), table) == [3, -3, -3, 3]
    assert values(engine, call("modulus", col("a"), col("b"), returns=LONG), table) == [1, -1, 1, -1]


def test_negate_and_abs(engine):
    table = pa.table({"a": [5, -7, None]})
    assert values(engine, call("negate", col("a"), returns=LONG), table) == [-5, 7, None]
    assert values(engine, call("abs", col("a"), returns=LONG), table) == [5, 7, None]
    least = pa.table({"a": pa.array([-128], pa.int8())})
    for function in ("negate", "abs"):
        with pytest.raises(NumericOverflow):
            values(engine, call(function, col("a", pa.int8()), returns=pa.int8()), least)
    wide = pa.table({"a": pa.array([Decimal(-(2**63)), Decimal(10**37)], pa.decimal128(38, 0))})
    negated = call("negate", col("a", pa.decimal128(38, 0)), returns=pa.decimal128(38, 0))
    assert values(engine, negated, wide) == [Decimal(2**63), Decimal(-(10**37))]


def test_unsigned_integers_past_63_bits(engine):
    table = pa.table({"a": pa.array([2**64 - 1, 2**63], pa.uint64()), "b": pa.array([0, 1], pa.uint64())})
    add = call("add", col("a", pa.uint64()), col("b", pa.uint64()), returns=pa.uint64())
    assert values(engine, add, table) == [2**64 - 1, 2**63 + 1]
    divide = call("divide", col("a", pa.uint64()), lit(2, pa.uint64()), returns=pa.uint64())
    assert values(engine, divide, table) == [2**63 - 1, 2**62]
    with pytest.raises(NumericOverflow):
        values(engine, call("add", col("a", pa.uint64()), lit(1, pa.uint64()), returns=pa.uint64()), table)


def test_average_divides_exactly(engine):
    table = pa.table(
        {
            "total": pa.array(
                [Decimal("0.03"), Decimal("0.10"), Decimal("-0.05"), None, Decimal("5")], pa.decimal128(38, 2)
            ),
            "count": pa.array([2, 3, 100000, 0, 0], LONG),
        }
    )
    average = call("average", col("total", pa.decimal128(38, 2)), col("count"), returns=pa.decimal128(19, 6))
    expected = [Decimal("0.015000"), Decimal("0.033333"), Decimal("-0.000001"), None, None]
    assert values(engine, average, table) == expected
    huge = pa.table({"total": pa.array([Decimal(10**37), None], pa.decimal128(38, 0)), "count": [4, 1]})
    double = call("average", col("total", pa.decimal128(38, 0)), col("count"), returns=DOUBLE)
    assert values(engine, double, huge) == [2.5e36, None]


def test_case_divides_only_where_it_may(engine):
    table = pa.table({"a": [6, 1, 4], "b": pa.array([3, 0, None], LONG)})
    nonzero = call("not_equal", col("b"), lit(0))
    guarded = Case(LONG, ((nonzero, call("divide", col("a"), col("b"), returns=LONG)),), lit(None, LONG))
    assert values(engine, guarded, table) == [2, None, None]


def test_and_or_do_not_fail_on_decided_rows(engine):
    table = pa.table({"a": [6, 1, 4], "b": [3, 0, 2]})
    quotient = call("divide", col("a"), col("b"), returns=LONG)
    nonzero, zero = call("not_equal", col("b"), lit(0)), call("equal", col("b"), lit(0))
    assert values(engine, call("and", nonzero, call("equal", quotient, lit(2))), table) == [True, False, True]
    assert values(engine, call("or", zero, call("equal", quotient, lit(3))), table) == [False, True, False]
    with pytest.raises(DivisionByZero):
        values(engine, call("and", call("less", col("a"), lit(100)), call("equal", quotient, lit(2))), table)


def test_a_filtered_row_does_not_fail_later(engine):
    table = pa.table({"a": list(range(100)), "b": [0] + [1] * 99})
    frame = engine.filter(engine.from_arrow(table), call("not_equal", col("b"), lit(0)))
    quotient = call("divide", col("a"), col("b"), returns=LONG)
    again = engine.filter(frame, call("greater", quotient, lit(-1)))
    assert again.rows == 99
    from hybridq.plan.expressions import NamedExpression
    from hybridq.types import Field

    groups = [NamedExpression("g", call("modulus", col("a"), lit(2), returns=LONG))]
    result = engine.aggregate(frame, groups, [total("s", quotient, LONG)])
    found = engine.to_arrow(result, (Field("g", LONG), Field("s", LONG)))
    assert sorted(zip(*(c.to_pylist() for c in found.columns), strict=True)) == [(0, 2450), (1, 2500)]


def test_results_have_the_declared_types(engine):
    table = pa.table({"a": pa.array([1], INT), "b": pa.array([2], INT)})
    result = project(engine, table, s=call("add", col("a", INT), col("b", INT), returns=INT), n=lit(None, BOOL))
    assert result.schema.types == [INT, BOOL]
    assert result.to_pydict() == {"s": [3], "n": [None]}


def test_bounds_that_a_filter_has_left_behind_do_not_overflow(engine):
    x = col("x", pa.int8())
    opposite = {function: call(function, x, returns=pa.int8()) for function in ("negate", "abs")}
    # A column that was computed knows its bounds.
    table = pa.table({"x": pa.array([-127, 5], pa.int8())})
    less = [NamedExpression("x", call("subtract", x, lit(1, pa.int8()), returns=pa.int8()))]
    frame = engine.project(engine.from_arrow(table), less)
    kept = engine.filter(frame, call("greater", x, lit(0, pa.int8())))
    for function, expected in (("negate", -4), ("abs", 4)):
        found = engine.project(kept, [NamedExpression("y", opposite[function])])
        assert engine.to_arrow(found, (Field("y", pa.int8()),))["y"].to_pylist() == [expected]
        with pytest.raises(NumericOverflow):
            engine.project(frame, [NamedExpression("y", opposite[function])])
