"""Arithmetic: exact on integers and decimals, IEEE on floats.

Ranges of the operands choose between 64-bit and 128-bit integers. What may not fit 128 bits is computed on the CPU,
which also raises the errors of results that do not fit their type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pylibcudf as plc

from hybridq import types
from hybridq.engines.arithmetic import combined_bounds, type_bounds
from hybridq.engines.column import INT64, Bounds, within
from hybridq.engines.decimals import divide_rounded, overflow, scale_of
from hybridq.engines.gpu import device
from hybridq.engines.gpu.column import Constant, GpuColumn, Operand, is_null_constant
from hybridq.engines.gpu.device import compare
from hybridq.errors import DivisionByZero
from hybridq.plan.expressions import Call, Expression

INT128: Bounds = (-(2**127), 2**127 - 1)
HALF_INT64: Bounds = (-(2**62), 2**62)
HALF_INT128: Bounds = (-(2**126), 2**126)


class Run(Protocol):
    """What kernels may ask of the evaluation that they are part of."""

    @property
    def rows(self) -> int:
        """Return the number of rows."""

    def host(self, expression: Expression, operands: list[Operand]) -> GpuColumn:
        """Evaluate one node on the CPU."""


Kernel = Callable[[Call, list[Operand], Run], Operand]


@dataclass(frozen=True, slots=True)
class Integers:
    """Integers of any width, or one for all rows, and a range that holds them."""

    value: plc.Column | int
    bounds: Bounds

    def operand(self, data_type: plc.DataType) -> plc.Column | plc.Scalar:
        """Return the values, or a scalar, as INT64 or INT128."""
        if isinstance(self.value, int):
            return device.scalar(self.value, data_type)
        return device.to_int128(self.value) if data_type is device.INT128 else device.to_int64(self.value)


def integers_of(operand: Operand) -> Integers:
    """Return an operand that holds integers or decimals, not NULL for all rows."""
    if isinstance(operand, Constant):
        return Integers(int(operand.stored), operand.interval())
    return Integers(operand.data, operand.interval())


def operate(function: str, left: Integers, right: Integers) -> Integers | None:
    """Add, subtract or multiply exactly; ``None`` where 128 bits may not hold a result."""
    bounds = combined_bounds(function, left.bounds, right.bounds)
    if isinstance(left.value, int) and isinstance(right.value, int):
        return Integers(bounds[0], bounds)
    data_type = common_width(left, right, bounds)
    if data_type is None:
        return None
    return Integers(device.binary(function, left.operand(data_type), right.operand(data_type), data_type), bounds)


def common_width(left: Integers, right: Integers, result: Bounds = (0, 0)) -> plc.DataType | None:
    """Return the width that holds both operands and a result; ``None`` if 128 bits may not."""
    ranges = (left.bounds, right.bounds, result)
    if all(within(bounds, INT64) for bounds in ranges):
        return device.INT64
    # Constants of more than 38 digits have no scalar.
    limit = 10**types.MAX_DECIMAL_DIGITS
    for side in (left, right):
        if isinstance(side.value, int) and abs(side.value) >= limit:
            return None
    return device.INT128 if all(within(bounds, INT128) for bounds in ranges) else None


def scaled(values: Integers, power: int) -> Integers | None:
    """Multiply by a power of ten; ``None`` where 128 bits may not hold a result."""
    factor = 10**power
    return values if power == 0 else operate("multiply", values, Integers(factor, (factor, factor)))


def divided(numerator: Integers, denominator: Integers) -> Integers | None:
    """Divide, rounding half away from zero; no denominator is 0. ``None`` where 128 bits may not do."""
    if all(within(side.bounds, HALF_INT64) for side in (numerator, denominator)):
        data_type = device.INT64
    elif all(within(side.bounds, HALF_INT128) for side in (numerator, denominator)):
        data_type = device.INT128
    else:
        return None
    if common_width(numerator, denominator) is None:
        return None
    n, d = numerator.operand(data_type), denominator.operand(data_type)
    zero = device.scalar(0, data_type)
    quotient = device.binary("divide", n, d, data_type)
    rest = device.binary("subtract", n, device.binary("multiply", quotient, d, data_type), data_type)
    rest = _magnitude(rest, data_type)
    size: plc.Column | plc.Scalar
    if isinstance(denominator.value, int):
        size = device.scalar(abs(denominator.value), data_type)
        negative = compare("less" if denominator.value > 0 else "greater", n, zero)
    else:
        size = _magnitude(d, data_type)
        negative = compare("less", d, zero)
        if isinstance(numerator.value, int):
            negative = negative if numerator.value >= 0 else device.negated(negative)
        else:
            negative = compare("not_equal", compare("less", n, zero), negative)
    up = compare("greater_equal", rest, device.binary("subtract", size, rest, data_type))
    step = device.choose(negative, device.scalar(-1, data_type), device.scalar(1, data_type))
    rounded = device.choose(up, device.binary("add", quotient, step, data_type), quotient)
    if isinstance(denominator.value, int):
        ends = [divide_rounded(end, denominator.value) for end in numerator.bounds]
        return Integers(rounded, (min(ends), max(ends)))
    largest = max(abs(numerator.bounds[0]), abs(numerator.bounds[1]))
    return Integers(rounded, (-largest, largest))


def _magnitude(data: Any, data_type: plc.DataType) -> plc.Column:
    zero = device.scalar(0, data_type)
    return device.choose(compare("less", data, zero), device.binary("subtract", zero, data, data_type), data)


def typed(values: Integers, scale: int, data_type: pa.DataType) -> GpuColumn | None:
    """Return decimals of some scale as a column of a decimal type, rounded half away from zero to its scale.

    ``None`` where it cannot be told on the device that each fits: the CPU engine looks at the values then.
    """
    shift = data_type.scale - scale
    found: Integers | None = values
    if shift > 0:
        found = scaled(values, shift)
    elif shift < 0:
        found = divided(values, Integers(10**-shift, (10**-shift,) * 2))
    if found is None or isinstance(found.value, int):
        return None
    column = GpuColumn(data_type, found.value, found.bounds)
    limits = type_bounds(data_type)
    if not within(found.bounds, limits) and not within(column.measured(), limits):
        return None
    fits = within(column.interval(), INT64)
    data = device.to_int64(column.data) if fits else device.to_int128(column.data)
    return GpuColumn(data_type, data, column.bounds)


def as_float(operand: Operand) -> plc.Column | plc.Scalar | None:
    """Return numbers as floats (decimals as the nearest ones); ``None`` where that is not exact on the device."""
    if isinstance(operand, Constant):
        return device.scalar(float(operand.value), device.FLOAT64)
    if types.is_floating(operand.type):
        return operand.data
    if operand.wide:
        return None
    values = device.cast(operand.data, device.FLOAT64)
    scale = scale_of(operand.type)
    # The CPU engine divides by the same float.
    return (
        device.binary("divide", values, device.scalar(10.0**scale, device.FLOAT64), device.FLOAT64) if scale else values
    )


# --- functions -----------------------------------------------------------------------------------------------------


def _any_null(operands: list[Operand]) -> bool:
    return any(is_null_constant(operand) for operand in operands)


def _arithmetic(call: Call, operands: list[Operand], run: Run) -> Operand:
    if _any_null(operands):
        return Constant(call.type, None)
    if types.is_floating(call.type):
        return _float_operation(call, operands, run)
    left, right = (integers_of(operand) for operand in operands)
    if types.is_decimal(call.type):
        scales = [scale_of(operand.type) for operand in operands]
        natural = sum(scales) if call.function == "multiply" else max(scales)
        if call.function != "multiply":
            aligned = [scaled(side, natural - own) for side, own in zip((left, right), scales, strict=True)]
            if aligned[0] is None or aligned[1] is None:
                return run.host(call, operands)
            left, right = aligned[0], aligned[1]
        found = operate(call.function, left, right)
        column = None if found is None else typed(found, natural, call.type)
        return run.host(call, operands) if column is None else column
    found = operate(call.function, left, right)
    return run.host(call, operands) if found is None else _fitted(call, found)


def _fitted(call: Call, values: Integers) -> GpuColumn:
    """Return integers as the call's type.

    Raises
    ------
    NumericOverflow
        One does not fit.
    """
    assert not isinstance(values.value, int)
    column = GpuColumn(call.type, values.value, values.bounds)
    limits = type_bounds(call.type)
    if not within(values.bounds, limits) and not within(column.measured(), limits):
        raise overflow(call, call.type)
    data_type = device.physical(call.type)
    if column.wide and within(limits, INT64):
        return GpuColumn(call.type, device.cast(device.to_int64(column.data), data_type), column.bounds)
    return GpuColumn(call.type, device.cast(column.data, data_type), column.bounds)


def _float_operation(call: Call, operands: list[Operand], run: Run) -> GpuColumn:
    found = [side for operand in operands if (side := as_float(operand)) is not None]
    if len(found) < len(operands):
        return run.host(call, operands)
    data_type = device.physical(call.type)
    if any(
        isinstance(operand, GpuColumn) and device.physical(operand.type).id() != data_type.id() for operand in operands
    ):
        # Computed in the wider type, as the CPU engine does.
        wide = device.binary(call.function, found[0], found[1], device.FLOAT64)
        return GpuColumn(call.type, device.cast(wide, data_type))
    sides = [
        device.scalar(float(operand.value), data_type) if isinstance(operand, Constant) else side
        for operand, side in zip(operands, found, strict=True)
    ]
    return GpuColumn(call.type, device.binary(call.function, sides[0], sides[1], data_type))


def check_divisor(call: Call, left: Operand, right: Operand) -> None:
    """Raise DivisionByZero if a row that has both operands divides by zero."""
    if isinstance(right, Constant):
        if right.stored != 0:
            return
        divides = isinstance(left, Constant) or left.nulls < left.rows
    else:
        if right.bounds is not None and not right.bounds[0] <= 0 <= right.bounds[1]:
            return
        by_zero = compare("equal", right.data, device.scalar(0, right.data.type()))
        if isinstance(left, GpuColumn) and left.nulls:
            by_zero = compare("and", by_zero, device.is_valid(left.data))
        divides = device.any_true(by_zero)
    if divides:
        raise DivisionByZero(f"division by zero in {call}: test the divisor first, or use NULLIF(divisor, 0)")


def _divide(call: Call, operands: list[Operand], run: Run) -> Operand:
    if _any_null(operands):
        return Constant(call.type, None)
    if types.is_floating(call.type):
        return _float_operation(call, operands, run)
    check_divisor(call, *operands)
    left, right = (integers_of(operand) for operand in operands)
    if types.is_decimal(call.type):
        column = _quotient(call, operands, left, right)
        return run.host(call, operands) if column is None else column
    limits = type_bounds(call.type)
    if left.bounds[0] == limits[0] < 0 and right.bounds[0] <= -1 <= right.bounds[1]:
        return run.host(call, operands)
    data_type = common_width(left, right)
    if data_type is None:
        return run.host(call, operands)
    quotient = device.binary("divide", left.operand(data_type), right.operand(data_type), data_type)
    largest = max(abs(left.bounds[0]), abs(left.bounds[1]))
    return _fitted(call, Integers(quotient, (-largest, largest)))


def _quotient(call: Call, operands: list[Operand], left: Integers, right: Integers) -> GpuColumn | None:
    """Divide decimals (no divisor is 0), rounded half away from zero to the call's scale."""
    shift = call.type.scale - scale_of(operands[0].type) + scale_of(operands[1].type)
    numerator, denominator = scaled(left, max(shift, 0)), scaled(right, max(-shift, 0))
    if numerator is None or denominator is None:
        return None
    found = divided(numerator, denominator)
    return None if found is None else typed(found, call.type.scale, call.type)


def _modulus(call: Call, operands: list[Operand], run: Run) -> Operand:
    if _any_null(operands):
        return Constant(call.type, None)
    if types.is_floating(call.type):
        if call.type != pa.float64() or any(operand.type != call.type for operand in operands):
            return run.host(call, operands)
        return _float_operation(call, operands, run)
    check_divisor(call, *operands)
    natural = max(scale_of(operand.type) for operand in operands)
    sides = [scaled(integers_of(operand), natural - scale_of(operand.type)) for operand in operands]
    left, right = sides
    if left is None or right is None:
        return run.host(call, operands)
    # The least integer over -1 is the one quotient that does not fit.
    data_type = common_width(left, right, (left.bounds[0] - 1, left.bounds[1]))
    if data_type is None:
        return run.host(call, operands)
    n, d = left.operand(data_type), right.operand(data_type)
    quotient = device.binary("divide", n, d, data_type)
    rest = device.binary("subtract", n, device.binary("multiply", quotient, d, data_type), data_type)
    largest = max(abs(end) for end in left.bounds)
    found = Integers(rest, (-largest, largest))
    if not types.is_decimal(call.type):
        return _fitted(call, found)
    column = typed(found, natural, call.type)
    return run.host(call, operands) if column is None else column


def _negate(call: Call, operands: list[Operand], run: Run) -> Operand:
    (operand,) = operands
    assert isinstance(operand, GpuColumn)
    if types.is_floating(call.type):
        data_type = operand.data.type()
        return GpuColumn(call.type, device.binary("multiply", operand.data, device.scalar(-1.0, data_type), data_type))
    return _integers_or_host(call, operate("subtract", Integers(0, (0, 0)), integers_of(operand)), operands, run)


def _absolute(call: Call, operands: list[Operand], run: Run) -> Operand:
    (operand,) = operands
    assert isinstance(operand, GpuColumn)
    if types.is_floating(call.type):
        unary = plc.unary.UnaryOperator.ABS
        return GpuColumn(call.type, plc.unary.unary_operation(operand.data, unary))
    low, high = operand.interval()
    if low >= 0:
        return operand.with_type(call.type)
    opposite = operate("subtract", Integers(0, (0, 0)), integers_of(operand))
    if opposite is None or isinstance(opposite.value, int):
        return run.host(call, operands)
    data_type = opposite.value.type()
    values = integers_of(operand).operand(device.INT128 if device.is_wide(opposite.value) else device.INT64)
    chosen = device.choose(compare("less", values, device.scalar(0, data_type)), opposite.value, values)
    return _integers_or_host(call, Integers(chosen, (0, max(abs(low), abs(high)))), operands, run)


def _integers_or_host(call: Call, found: Integers | None, operands: list[Operand], run: Run) -> GpuColumn:
    if found is None:
        return run.host(call, operands)
    if not types.is_decimal(call.type):
        return _fitted(call, found)
    column = typed(found, scale_of(operands[0].type), call.type)
    return run.host(call, operands) if column is None else column


def _average(call: Call, operands: list[Operand], run: Run) -> Operand:
    """Divide a sum by a count: exact and rounded half away from zero for decimals; NULL where the count is 0."""
    total, count = operands
    if not isinstance(total, GpuColumn) or not isinstance(count, GpuColumn) or types.is_floating(call.type):
        return run.host(call, operands)
    present = compare("greater", count.data, device.scalar(0, count.data.type()))
    divisor = count.with_data(device.with_nulls(count.data, present))
    column = _quotient(call, [total, divisor], integers_of(total), integers_of(divisor))
    return run.host(call, operands) if column is None else column


def _list_length(call: Call, operands: list[Operand], run: Run) -> Operand:
    (operand,) = operands
    assert isinstance(operand, GpuColumn)
    lengths = device.fill_null(plc.lists.count_elements(operand.data), 0)
    return GpuColumn(call.type, device.cast(lengths, device.physical(call.type)))


KERNELS: Mapping[str, Kernel] = {
    "add": _arithmetic, "subtract": _arithmetic, "multiply": _arithmetic,
    "divide": _divide, "modulus": _modulus, "negate": _negate, "abs": _absolute,
    "average": _average, "list_length": _list_length,
}  # fmt: skip
