"""Arithmetic: exact on integers and decimals, IEEE on floats.

Ranges of the operands decide how a result is computed: in plain 64-bit integers when no value can overflow, else with
checked kernels (integers) or with more digits (decimals).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq import types
from hybridq.engines.column import (
    INT64,
    Bounds,
    Column,
    Mask,
    Values,
    combine_valid,
    from_arrow,
    storage_dtype,
    to_arrow,
    within,
)
from hybridq.engines.constants import constant
from hybridq.engines.decimals import (
    MAX_256_DIGITS,
    as_constant,
    combine_integers,
    divide_rounded,
    from_wide,
    overflow,
    scale_of,
    to_integers,
    wide_array,
)
from hybridq.errors import DivisionByZero
from hybridq.plan.expressions import Call

_UFUNCS: Mapping[str, np.ufunc] = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}
_CHECKED: Mapping[str, Callable[..., Any]] = {
    "add": pc.add_checked, "subtract": pc.subtract_checked, "multiply": pc.multiply_checked,
}  # fmt: skip
_PYTHON: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
}  # fmt: skip
_WIDE: Mapping[str, Callable[..., Any]] = {"add": pc.add, "subtract": pc.subtract, "multiply": pc.multiply}


def result(
    data_type: pa.DataType,
    values: Values,
    operands: list[Column],
    bounds: Bounds | None = None,
    valid: Mask | None = None,
) -> Column:
    """Return a computed numbers column, constant if all operands are."""
    if all(operand.constant for operand in operands):
        return Column(data_type, np.asarray(values), valid, bounds=bounds, constant=True)
    if valid is not None and valid.ndim == 0:
        valid = np.broadcast_to(valid, values.shape)
    return Column(data_type, values, valid, bounds=bounds)


def combined_bounds(function: str, left: Bounds, right: Bounds) -> Bounds:
    """Return the range of ``left function right``."""
    if function == "add":
        return left[0] + right[0], left[1] + right[1]
    if function == "subtract":
        return left[0] - right[1], left[1] - right[0]
    corners = [a * b for a in left for b in right]
    return min(corners), max(corners)


def type_bounds(data_type: pa.DataType) -> Bounds:
    """Return the range of an integer type, or of what a decimal result may be."""
    if types.is_decimal(data_type):
        limit = 10**types.MAX_DECIMAL_DIGITS - 1
        return -limit, limit
    info = np.iinfo(storage_dtype(data_type))
    return int(info.min), int(info.max)


def _null_result(data_type: pa.DataType) -> Column:
    return constant(data_type, None)


def _any_null_constant(arguments: list[Column]) -> bool:
    return any(argument.is_null_constant() for argument in arguments)


def as_int64(values: Values) -> Values:
    """Return integers as 64-bit ones, the same array if they are."""
    return values if values.dtype == np.int64 else values.astype(np.int64)


def _arithmetic(call: Call, arguments: list[Column]) -> Column:
    left, right = arguments
    if _any_null_constant(arguments):
        return _null_result(call.type)
    if types.is_floating(call.type):
        with np.errstate(all="ignore"):
            values = _UFUNCS[call.function](as_float(left), as_float(right))
        dtype = storage_dtype(call.type)
        return result(
            call.type, values.astype(dtype, copy=False), arguments, None, combine_valid(left.valid, right.valid)
        )
    if types.is_decimal(call.type):
        return _decimal_arithmetic(call, left, right)
    return _integer_arithmetic(call, left, right)


def as_float(column: Column) -> Values:
    """Return numbers as floats (decimals as the nearest ones)."""
    if column.array is not None:
        values: Values = pc.cast(column.array, pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
        return np.asarray(values[0]) if column.constant else values
    if types.is_decimal(column.type) and column.type.scale:
        return np.asarray(column.numbers / 10.0**column.type.scale)
    return column.numbers


def _integer_arithmetic(call: Call, left: Column, right: Column) -> Column:
    function, data_type = call.function, call.type
    dtype = storage_dtype(data_type)
    assert dtype is not None
    bounds = combined_bounds(function, left.interval(), right.interval())
    limits = type_bounds(data_type)
    valid = combine_valid(left.valid, right.valid)
    if within(bounds, INT64) and within(left.interval(), INT64) and within(right.interval(), INT64):
        values = _UFUNCS[function](as_int64(left.numbers), as_int64(right.numbers))
        column = result(data_type, values, [left, right], None, valid)
        if not within(bounds, limits):
            column.bounds = bounds = column.interval()
            if not within(bounds, limits):
                raise overflow(call, data_type)
        return result(data_type, np.asarray(column.numbers.astype(dtype, copy=False)), [left, right], bounds, valid)
    try:
        operands = [to_arrow(_one_or_more(operand)).cast(data_type) for operand in (left, right)]
        scalars = [
            operand[0] if column.constant else operand for operand, column in zip(operands, (left, right), strict=True)
        ]
        if left.constant and right.constant:
            return as_constant(from_arrow(_CHECKED[function](*operands)))
        return from_arrow(_CHECKED[function](*scalars))
    except pa.ArrowInvalid as error:
        raise overflow(call, data_type) from error


def _one_or_more(column: Column) -> Column:
    return column.expand(1) if column.constant else column


def rescaled(column: Column, scale: int) -> tuple[Values, Bounds] | None:
    """Return numbers at a scale no less than their own, and their range; ``None`` if 64 bits may not hold them."""
    if column.array is not None:
        return None
    low, high = column.interval()
    factor = 10 ** (scale - scale_of(column.type))
    bounds = (low * factor, high * factor)
    if not within(bounds, INT64):
        return None
    values = as_int64(column.numbers)
    return (values if factor == 1 else values * factor), bounds


def _decimal_arithmetic(call: Call, left: Column, right: Column) -> Column:
    function, data_type = call.function, call.type
    if function == "multiply":
        natural = scale_of(left.type) + scale_of(right.type)
        scales = (scale_of(left.type), scale_of(right.type))
    else:
        natural = max(scale_of(left.type), scale_of(right.type))
        scales = (natural, natural)
    a, b = rescaled(left, scales[0]), rescaled(right, scales[1])
    operands = [left, right]
    if a is not None and b is not None:
        bounds = combined_bounds(function, a[1], b[1])
        if within(bounds, INT64):
            values = np.asarray(_UFUNCS[function](a[0], b[0]))
            valid = combine_valid(left.valid, right.valid)
            exact = result(pa.decimal128(types.MAX_DECIMAL_DIGITS, natural), values, operands, bounds, valid)
            return to_scale(exact, data_type, call)
    return _wide_arithmetic(call, left, right, scales, natural)


def _wide_arithmetic(call: Call, left: Column, right: Column, scales: tuple[int, int], natural: int) -> Column:
    constant_result = left.constant and right.constant
    a, b = wide_array(left, scales[0]), wide_array(right, scales[1])
    digits = a.type.precision + b.type.precision + 1
    if call.function != "multiply":
        digits = max(a.type.precision, b.type.precision) + 1
    if natural <= types.MAX_DECIMAL_DIGITS and digits <= MAX_256_DIGITS:
        first, second = (
            (a[0] if left.constant and not right.constant else a),
            (b[0] if right.constant and not left.constant else b),
        )
        if natural == scale_of(call.type):
            return from_wide(_WIDE[call.function](first, second), call.type, call, constant_result)
    python = _PYTHON[call.function]
    left_factor, right_factor = 10 ** (scales[0] - scale_of(left.type)), 10 ** (scales[1] - scale_of(right.type))
    shift = natural - scale_of(call.type)

    def exactly(x: int, y: int) -> int:
        value = python(x * left_factor, y * right_factor)
        return divide_rounded(value, 10**shift) if shift > 0 else value * 10**-shift

    return combine_integers(exactly, [left, right], call.type, call)


def to_scale(column: Column, data_type: pa.DataType, what: object) -> Column:
    """Bring a decimal (or integer) column to the scale of ``data_type``, rounding half away from zero.

    Raises
    ------
    NumericOverflow
        A value has more than 38 digits.
    """
    shift = data_type.scale - scale_of(column.type)
    if shift == 0:
        return column.with_type(data_type)
    if shift > 0:
        found = rescaled(column, data_type.scale)
        if found is not None:
            return Column(data_type, np.asarray(found[0]), column.valid, bounds=found[1], constant=column.constant)
        return combine_integers(lambda value: value * 10**shift, [column], data_type, what)
    factor = 10**-shift
    if column.array is not None or factor > INT64[1] // 4:
        return combine_integers(lambda value: divide_rounded(value, factor), [column], data_type, what)
    low, high = column.interval()
    values = divide_half_away(as_int64(column.numbers), factor)
    bounds = (divide_rounded(low, factor), divide_rounded(high, factor))
    return Column(data_type, values, column.valid, bounds=bounds, constant=column.constant)


def divide_half_away(numerator: Values, denominator: Values | int) -> Values:
    """Divide 64-bit integers, rounding half away from zero. No denominator is zero, or the least integer."""
    quotient, remainder = np.divmod(numerator, denominator)
    # Floor division leaves a remainder of the denominator's sign: the exact quotient is from quotient to quotient + 1.
    size, whole = np.abs(remainder), np.abs(denominator)
    rest = whole - size
    up = (size > rest) | ((size == rest) & (quotient >= 0))
    return np.asarray(quotient + up)


def _divide(call: Call, arguments: list[Column]) -> Column:
    left, right = arguments
    if _any_null_constant(arguments):
        return _null_result(call.type)
    valid = combine_valid(left.valid, right.valid)
    if types.is_floating(call.type):
        with np.errstate(all="ignore"):
            values = np.divide(as_float(left), as_float(right))
        return result(call.type, np.asarray(values, storage_dtype(call.type)), arguments, None, valid)
    check_divisor(call, left, right)
    if types.is_decimal(call.type):
        return _divide_decimals(call, left, right)
    if right.interval()[0] <= -1 <= right.interval()[1] and left.interval()[0] == type_bounds(call.type)[0]:
        at_risk = (left.numbers == type_bounds(call.type)[0]) & (right.numbers == -1)
        if np.any(at_risk if valid is None else at_risk & valid):
            raise overflow(call, call.type)
    a, b = left.numbers, _nonzero(right)
    quotient, remainder = np.divmod(a, b)
    if a.dtype.kind == "i":
        quotient = quotient + ((remainder != 0) & ((a < 0) != (b < 0)))
    return result(call.type, np.asarray(quotient, storage_dtype(call.type)), arguments, None, valid)


def _nonzero(column: Column) -> Values:
    """Return divisors with 1 in place of the zeros (which are under NULLs)."""
    values = column.numbers
    return values if values.all() else np.where(values == 0, np.asarray(1, values.dtype), values)


def check_divisor(call: Call, left: Column, right: Column) -> None:
    """Raise DivisionByZero if a row that has both operands divides by zero."""
    if right.array is not None:
        low, high = right.interval()
        if not low <= 0 <= high:
            return
        integers, _ = to_integers(right)
        values = np.asarray(integers[0] == 0) if right.constant else integers == 0
    else:
        values = right.numbers == 0
    if not np.any(values):
        return
    masks = [np.asarray(mask[0]) if column.constant and mask.ndim else mask
             for column in (left, right) if (mask := column.validity()) is not None]  # fmt: skip
    valid = combine_valid(*masks)
    if np.any(values if valid is None else values & valid):
        raise DivisionByZero(f"division by zero in {call}: test the divisor first, or use NULLIF(divisor, 0)")


def _divide_decimals(call: Call, left: Column, right: Column) -> Column:
    data_type = call.type
    shift = data_type.scale - scale_of(left.type) + scale_of(right.type)
    valid = combine_valid(left.valid, right.valid)
    if left.array is None and right.array is None and shift >= 0:
        low, high = left.interval()
        factor = 10**shift
        bounds = (low * factor, high * factor)
        if within(bounds, INT64) and right.interval()[0] > INT64[0] and bounds[0] > INT64[0]:
            values = divide_half_away(as_int64(left.numbers) * factor, as_int64(_nonzero(right)))
            extent = max(abs(bounds[0]), abs(bounds[1]))
            return result(data_type, values, [left, right], (-extent, extent), valid)
    up, down = 10 ** max(shift, 0), 10 ** max(-shift, 0)
    return combine_integers(lambda a, b: divide_rounded(a * up, b * down), [left, right], data_type, call)


def _modulus(call: Call, arguments: list[Column]) -> Column:
    left, right = arguments
    if _any_null_constant(arguments):
        return _null_result(call.type)
    valid = combine_valid(left.valid, right.valid)
    if types.is_floating(call.type):
        with np.errstate(all="ignore"):
            values = np.fmod(as_float(left), as_float(right))
        return result(call.type, np.asarray(values, storage_dtype(call.type)), arguments, None, valid)
    check_divisor(call, left, right)
    if types.is_decimal(call.type):
        natural = max(scale_of(left.type), scale_of(right.type))
        a, b = rescaled(left, natural), rescaled(right, natural)
        if a is not None and b is not None and natural == call.type.scale:
            divisor = np.where(b[0] == 0, 1, b[0]) if not np.all(b[0]) else b[0]
            return result(call.type, np.asarray(np.fmod(a[0], divisor)), arguments, None, valid)
        up = [10 ** (natural - scale_of(column.type)) for column in arguments]
        return combine_integers(
            lambda x, y: remainder_of(x * up[0], y * up[1]) * 10 ** (call.type.scale - natural),
            arguments,
            call.type,
            call,
        )
    values = np.fmod(left.numbers, _nonzero(right))
    return result(call.type, np.asarray(values, storage_dtype(call.type)), arguments, None, valid)


def remainder_of(numerator: int, denominator: int) -> int:
    """Return the remainder of a division that truncates: it has the numerator's sign."""
    rest = abs(numerator) % abs(denominator)
    return -rest if numerator < 0 else rest


def _negate(call: Call, arguments: list[Column]) -> Column:
    (operand,) = arguments
    if types.is_floating(call.type):
        return result(call.type, np.asarray(np.negative(operand.numbers)), arguments, None, operand.valid)
    low, high = operand.interval()
    if operand.array is not None or ((-high, -low)[1] > INT64[1] and types.is_decimal(call.type)):
        return combine_integers(lambda value: -value, arguments, call.type, call)
    if not within((-high, -low), type_bounds(call.type)):
        low, high = operand.measured()
        if not within((-high, -low), type_bounds(call.type)):
            raise overflow(call, call.type)
    return result(call.type, np.asarray(np.negative(operand.numbers)), arguments, (-high, -low), operand.valid)


def _absolute(call: Call, arguments: list[Column]) -> Column:
    (operand,) = arguments
    if types.is_floating(call.type):
        return result(call.type, np.asarray(np.abs(operand.numbers)), arguments, None, operand.valid)
    low, high = operand.interval()
    bounds = (0, max(abs(low), abs(high)))
    if operand.array is not None or (bounds[1] > INT64[1] and types.is_decimal(call.type)):
        return combine_integers(abs, arguments, call.type, call)
    if not within(bounds, type_bounds(call.type)):
        low, high = operand.measured()
        bounds = (0, max(abs(low), abs(high)))
        if not within(bounds, type_bounds(call.type)):
            raise overflow(call, call.type)
    return result(call.type, np.asarray(np.abs(operand.numbers)), arguments, bounds, operand.valid)


def _average(call: Call, arguments: list[Column]) -> Column:
    """Divide a sum by a count: exact and rounded half away from zero for decimals; NULL where the count is 0."""
    total, count = (argument.expand(1) if argument.constant else argument for argument in arguments)
    present = count.numbers > 0
    valid = present if count.valid is None else present & count.valid
    total_valid = total.validity()
    if total_valid is not None:
        valid = valid & total_valid
    divisor = Column(count.type, np.where(valid, count.numbers, 1))
    if types.is_floating(call.type):
        if total.type == pa.float64():
            dividend: Any = total.numbers
        elif total.array is None and scale_of(total.type) == 0:
            dividend = total.numbers
        else:
            dividend = as_float(total)
        with np.errstate(all="ignore"):
            values = np.where(valid, np.divide(dividend, divisor.numbers), 0.0)
        quotient = Column(call.type, values, valid)
    else:
        quotient = _divide_decimals(call, total, divisor)
        if quotient.array is not None:
            missing = np.where(valid, np.arange(quotient.rows), -1)
            return quotient.take_padded(missing)
        quotient = quotient.with_valid(combine_valid(quotient.valid, valid))
    return as_constant(quotient) if all(argument.constant for argument in arguments) else quotient


def _list_length(call: Call, arguments: list[Column]) -> Column:
    (column,) = arguments
    assert column.array is not None
    lengths = pc.list_value_length(column.array).fill_null(0).cast(call.type)
    return as_constant(from_arrow(lengths)) if column.constant else from_arrow(lengths)


KERNELS: Mapping[str, Callable[[Call, list[Column]], Column]] = {
    "add": _arithmetic, "subtract": _arithmetic, "multiply": _arithmetic,
    "divide": _divide, "modulus": _modulus, "negate": _negate, "abs": _absolute,
    "average": _average, "list_length": _list_length,
}  # fmt: skip
