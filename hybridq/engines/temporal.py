"""Components of dates and timestamps, and truncation to units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines.column import TICKS, Column, from_arrow, to_arrow
from hybridq.engines.constants import constant
from hybridq.engines.decimals import as_constant
from hybridq.errors import Unsupported
from hybridq.plan.expressions import Call

TABLE_DAYS = 200_000
"""Days (five centuries) up to which components of dates are looked up in a table instead of computed for each row."""

COMPONENTS: Mapping[str, Callable[[Any], Any]] = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "week": pc.iso_week,
    "isoyear": pc.iso_year,
    "day": pc.day,
    "doy": pc.day_of_year,
    "dow": lambda array: pc.day_of_week(array, count_from_zero=True, week_start=7),
    "isodow": lambda array: pc.day_of_week(array, count_from_zero=False, week_start=1),
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
    "decade": lambda array: pc.floor(pc.divide(pc.year(array).cast(pa.float64()), 10.0)).cast(pa.int64()),
    "century": lambda array: _period(array, 100),
    "millennium": lambda array: _period(array, 1000),
    "millisecond": lambda array: _below_second(array, 10**3),
    "microsecond": lambda array: _below_second(array, 10**6),
    "nanosecond": lambda array: _below_second(array, 10**9),
}
_OF_DAY = frozenset({"hour", "minute", "second", "millisecond", "microsecond", "nanosecond"})


def _period(array: pa.Array, years: int) -> pa.Array:
    """Return the century or millennium: the first begins in year 1, and none is number 0."""
    year = pc.year(array)
    found = [
        None if value is None else (value + years - 1) // years if value > 0 else -(-value // years) - 1
        for value in year.to_pylist()
    ]
    return pa.array(found, pa.int64())


def _below_second(array: pa.Array, per_second: int) -> pa.Array:
    """Return the seconds of the minute in a finer unit."""
    nanoseconds = pc.add(
        pc.multiply(pc.second(array), 10**9),
        pc.add(
            pc.multiply(pc.millisecond(array), 10**6),
            pc.add(pc.multiply(pc.microsecond(array), 10**3), pc.nanosecond(array)),
        ),
    )
    return pc.divide(nanoseconds, 10**9 // per_second)


def component(array: pa.Array, name: str, data_type: pa.DataType) -> pa.Array:
    """Return one component of an Arrow date, timestamp or (days and seconds only) duration array."""
    if pa.types.is_duration(array.type):
        return _of_duration(array, name, data_type)
    if name == "epoch":
        if pa.types.is_timestamp(array.type):
            ticks = array.cast(pa.int64())
            per_second = TICKS[array.type.unit]
            if pa.types.is_floating(data_type):
                return pc.divide(ticks.cast(pa.float64(), safe=False), float(per_second)).cast(data_type)
            return pa.array(ticks.to_numpy(zero_copy_only=False) // per_second, mask=~_valid(ticks)).cast(data_type)
        days = array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        return pc.multiply(days, 86400).cast(data_type)
    if name in _OF_DAY and pa.types.is_date(array.type):
        return pc.if_else(pc.is_valid(array), 0, pa.scalar(None, pa.int64())).cast(data_type)
    return COMPONENTS[name](array).cast(data_type)


def _of_duration(array: pa.Array, name: str, data_type: pa.DataType) -> pa.Array:
    ticks, per_second = array.cast(pa.int64()), TICKS[array.type.unit]
    if name == "epoch":
        return pc.divide(ticks.cast(pa.float64(), safe=False), float(per_second)).cast(data_type)
    if name == "day":
        # Arrow's division of integers truncates, as the days of a negative duration do.
        return pc.divide(ticks, 86400 * per_second).cast(data_type)
    raise Unsupported(f"extract({name}) of a difference of timestamps is not supported: use day or epoch")


def _valid(array: pa.Array) -> Any:
    return pc.is_valid(array).to_numpy(zero_copy_only=False)


def _extract(call: Call, arguments: list[Column]) -> Column:
    (name,) = call.options
    if name not in COMPONENTS and name != "epoch":
        raise Unsupported(f"extract({name}) is not supported: use {', '.join(COMPONENTS)} or epoch")
    (column,) = arguments
    if column.is_null_constant():
        return constant(call.type, None)
    if column.constant:
        return as_constant(from_arrow(component(to_arrow(column.expand(1)), name, call.type)))
    if not pa.types.is_date32(column.type):
        return from_arrow(component(to_arrow(column), name, call.type))
    low, high = column.interval()
    if high - low > TABLE_DAYS or high - low > 8 * column.rows:
        return from_arrow(component(to_arrow(column), name, call.type))
    days = pa.array(np.arange(low, high + 1, dtype=np.int32)).cast(pa.date32())
    table = from_arrow(component(days, name, call.type))
    positions = column.numbers - low
    if column.valid is not None:
        positions = np.where(column.valid, positions, 0)
    bounds = None if table.numbers.dtype.kind == "f" else table.interval()
    return Column(call.type, table.numbers.take(positions), column.valid, bounds=bounds)


def _truncate(call: Call, arguments: list[Column]) -> Column:
    """DATE_TRUNC: the beginning of the year, month and so on, in the timestamp's own zone."""
    (unit,) = call.options
    (column,) = arguments
    if column.is_null_constant():
        return constant(call.type, None)
    array = to_arrow(column.expand(1)).cast(call.type)
    found = from_arrow(pc.floor_temporal(array, unit=unit, week_starts_monday=True).cast(call.type))
    return as_constant(found) if column.constant else found


def _write(call: Call, arguments: list[Column]) -> Column:
    """TO_CHAR: in the timestamp's own zone, without a second's fraction."""
    (pattern,) = call.options
    (column,) = arguments
    if column.is_null_constant():
        return constant(call.type, None)
    array = to_arrow(column.expand(1))
    if pa.types.is_timestamp(array.type):
        array = pc.floor_temporal(array, unit="second").cast(pa.timestamp("s", array.type.tz))
    found = from_arrow(pc.strftime(array, format=pattern, locale="C").cast(call.type))
    return as_constant(found) if column.constant else found


KERNELS: Mapping[str, Callable[[Call, list[Column]], Column]] = {
    "extract": _extract, "date_trunc": _truncate, "to_char": _write,
}  # fmt: skip
