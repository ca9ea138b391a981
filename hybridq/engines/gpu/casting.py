"""Conversions between types.

The device converts where ranges prove that every value can be converted; the CPU engine does all else, and raises the
errors (or gives the NULLs of TRY_CAST) of values that cannot.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pylibcudf as plc

from hybridq import types
from hybridq.engines.arithmetic import type_bounds
from hybridq.engines.column import within
from hybridq.engines.decimals import scale_of
from hybridq.engines.gpu import device
from hybridq.engines.gpu.arithmetic import Run, as_float, integers_of, typed
from hybridq.engines.gpu.column import GpuColumn, Operand
from hybridq.engines.gpu.device import compare
from hybridq.plan.expressions import Cast

EXACT_FLOAT = 2.0**52
"""Floats of this size are integers, and 64-bit integers hold them."""

LARGEST_FLOAT32 = 3.4e38

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86400


def cast(expression: Cast, operand: GpuColumn, run: Run) -> Operand:
    """Convert a column; see ``hybridq.engines.casting.cast``."""
    if operand.type == expression.type:
        return operand
    found = _converted(operand, expression.type)
    return run.host(expression, [operand]) if found is None else found


def _converted(operand: GpuColumn, target: pa.DataType) -> GpuColumn | None:
    """Convert on the device; ``None`` where it cannot, or where a value might not be convertible."""
    source = operand.type
    number = types.is_integer(source) or types.is_decimal(source)
    if pa.types.is_boolean(target):
        if not (number or types.is_floating(source)):
            return None
        zero = device.scalar(0.0 if types.is_floating(source) else 0, operand.data.type())
        return GpuColumn(target, compare("not_equal", operand.data, zero))
    if pa.types.is_boolean(source):
        return _from_bool(operand, target)
    if types.is_decimal(target):
        return _to_decimal(operand, target) if number else None
    if types.is_floating(target):
        return _to_float(operand, target) if number or types.is_floating(source) else None
    if types.is_integer(target):
        return _to_integer(operand, target) if number or types.is_floating(source) else None
    if types.is_string(target) and types.is_integer(source):
        return GpuColumn(target, plc.strings.convert.convert_integers.from_integers(operand.data))
    if pa.types.is_timestamp(target) or pa.types.is_date32(target):
        return _to_time(operand, target)
    return None


def _from_bool(operand: GpuColumn, target: pa.DataType) -> GpuColumn | None:
    if types.is_integer(target) or types.is_floating(target):
        bounds = (0, 1) if types.is_integer(target) else None
        return GpuColumn(target, device.cast(operand.data, device.physical(target)), bounds)
    if types.is_decimal(target):
        return _to_decimal(GpuColumn(pa.int64(), device.cast(operand.data, device.INT64), (0, 1)), target)
    return None


def _to_decimal(operand: GpuColumn, target: pa.DataType) -> GpuColumn | None:
    column = typed(integers_of(operand), scale_of(operand.type), target)
    limit = 10**target.precision - 1
    if column is None:
        return None
    fits = within(column.interval(), (-limit, limit)) or within(column.measured(), (-limit, limit))
    return column if fits else None


def _to_float(operand: GpuColumn, target: pa.DataType) -> GpuColumn | None:
    values = as_float(operand)
    if values is None or not isinstance(values, plc.Column):
        return None
    if target == pa.float32() and operand.type == pa.float64() and not _within_float32(values):
        return None
    if target == pa.float32() and not types.is_floating(operand.type) and not types.is_decimal(operand.type):
        # Straight from the integer: by way of a double it would be rounded twice.
        values = operand.data
    return GpuColumn(target, device.cast(values, device.physical(target)))


def _within_float32(values: plc.Column) -> bool:
    """Tell whether no value is too large for a float, or perhaps so: the CPU engine looks at each."""
    if values.null_count() == values.size():
        return True
    ends: tuple[Any, Any] = plc.reduce.minmax(values)
    return not device.has_nan(values) and all(abs(float(end.to_py())) <= LARGEST_FLOAT32 for end in ends)


def _to_integer(operand: GpuColumn, target: pa.DataType) -> GpuColumn | None:
    if types.is_floating(operand.type):
        return _float_to_integer(operand, target)
    column = typed(integers_of(operand), scale_of(operand.type), pa.decimal128(types.MAX_DECIMAL_DIGITS, 0))
    if column is None:
        return None
    limits = type_bounds(target)
    if not within(column.interval(), limits) and not within(column.measured(), limits):
        return None
    data = column.data if column.wide and target == pa.uint64() else device.to_int64(column.data)
    return GpuColumn(target, device.cast(data, device.physical(target)), column.bounds)


def _float_to_integer(operand: GpuColumn, target: pa.DataType) -> GpuColumn | None:
    """Round half to even. None where a value is too large, or no number."""
    values = device.cast(operand.data, device.FLOAT64)
    if operand.nulls == operand.rows:
        return None
    ends: tuple[Any, Any] = plc.reduce.minmax(values)
    low, high = (float(end.to_py()) for end in ends)
    limits = type_bounds(target)
    least, most = max(limits[0], -EXACT_FLOAT), min(limits[1], EXACT_FLOAT)
    if device.has_nan(values) or not (least <= low and high <= most):
        return None
    rounded = plc.unary.unary_operation(values, plc.unary.UnaryOperator.RINT)
    return GpuColumn(target, device.cast(rounded, device.physical(target)))


def _to_time(operand: GpuColumn, target: pa.DataType) -> GpuColumn | None:
    source = operand.type
    if pa.types.is_date32(source) and pa.types.is_timestamp(target) and target.tz is None:
        low, high = operand.interval()
        ticks = _DAY * _TICKS[target.unit]
        if not within((low * ticks, high * ticks), (-(2**63), 2**63 - 1)):
            return None
        return GpuColumn(target, device.cast(operand.data, device.physical(target)), (low * ticks, high * ticks))
    if pa.types.is_timestamp(source) and source.tz is None and pa.types.is_date32(target):
        day = plc.datetime.floor_datetimes(operand.data, plc.datetime.RoundingFrequency.DAY)
        return GpuColumn(target, device.cast(day, device.DAYS))
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target) and source.tz == target.tz:
        factor = _TICKS[target.unit] // _TICKS[source.unit]
        low, high = operand.interval()
        if factor == 0 or not within((low * factor, high * factor), (-(2**63), 2**63 - 1)):
            return None  # a coarser unit may lose something, which is an error
        return GpuColumn(target, device.cast(operand.data, device.physical(target)), (low * factor, high * factor))
    return None
