"""Arithmetic of dates and timestamps with intervals.

An interval has months, days and nanoseconds. Months are added first: a day that the new month lacks becomes its last
day. Then come days, then nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hybridq.engines.arithmetic import result
from hybridq.engines.column import (
    INT64,
    INTERVAL_WORDS,
    TICKS,
    UTC,
    Bounds,
    Column,
    Mask,
    Values,
    combine_valid,
    storage_dtype,
    within,
)
from hybridq.engines.constants import constant
from hybridq.engines.decimals import overflow
from hybridq.errors import ExecutionError, Unsupported
from hybridq.plan.expressions import Call

_DAY_SECONDS = 86400
_DAY_NANOSECONDS = _DAY_SECONDS * 10**9
MOST_DAYS = 2**40
"""No date or timestamp is so far from 1970."""


@dataclass(frozen=True, slots=True)
class _Steps:
    """Intervals as 64-bit integers, one or one a row."""

    months: Values
    days: Values
    nanoseconds: Values
    valid: Mask | None


def _steps(column: Column, sign: int) -> _Steps:
    if pa.types.is_duration(column.type):
        per_second = TICKS[column.type.unit]
        days, rest = np.divmod(column.numbers, _DAY_SECONDS * per_second)
        return _Steps(np.zeros((), np.int64), sign * days, sign * rest * (10**9 // per_second), column.valid)
    assert column.array is not None
    array = column.array
    buffer = array.buffers()[1]
    found = np.frombuffer(buffer, INTERVAL_WORDS)[array.offset : array.offset + len(array)]
    valid = column.validity()
    parts = [sign * found[name].astype(np.int64) for name in ("months", "days", "nanoseconds")]
    if column.constant:
        parts = [np.asarray(part[0]) for part in parts]
        valid = None if valid is None else np.asarray(valid[0])
    return _Steps(parts[0], parts[1], parts[2], valid)


def steps_of(column: Column) -> _Steps:
    """Return intervals in their parts: months, days and nanoseconds."""
    return _steps(column, 1)


def _add(call: Call, arguments: list[Column]) -> Column:
    if any(argument.is_null_constant() for argument in arguments):
        return constant(call.type, None)
    time, step = arguments
    steps = _steps(step, -1 if call.function == "subtract_interval" else 1)
    valid = combine_valid(time.valid, steps.valid)
    if pa.types.is_date32(time.type):
        return _add_to_date(call, arguments, steps, valid)
    return _add_to_timestamp(call, arguments, steps, valid)


def _add_to_date(call: Call, arguments: list[Column], steps: _Steps, valid: Mask | None) -> Column:
    time = arguments[0]
    odd = steps.nanoseconds % _DAY_NANOSECONDS != 0
    if np.any(odd if valid is None else odd & valid):
        raise Unsupported(f"hours added to a date in {call}: cast the date to TIMESTAMP first")
    days = _add_months(time.numbers.astype(np.int64), steps.months)
    days = days + steps.days + steps.nanoseconds // _DAY_NANOSECONDS
    return _fitting(call, days, arguments, valid)


def _add_to_timestamp(call: Call, arguments: list[Column], steps: _Steps, valid: Mask | None) -> Column:
    time = arguments[0]
    zone, per_second = time.type.tz, TICKS[time.type.unit]
    if zone is not None and zone not in UTC and (np.any(steps.months) or np.any(steps.days)):
        raise Unsupported(f"months or days added to a timestamp of zone {zone} in {call}: convert it to UTC first")
    ticks = 10**9 // per_second
    if np.any(steps.nanoseconds % ticks):
        raise Unsupported(f"a step finer than the {time.type.unit} of the timestamp in {call}: cast it to a finer unit")
    values, more = time.numbers, steps.nanoseconds // ticks
    low, high = time.interval()
    if np.any(steps.months):
        day_ticks = _DAY_SECONDS * per_second
        days, rest = np.divmod(values, day_ticks)
        moved = _add_months(days, steps.months) + steps.days
        bounds = _extent(moved, valid)
        shift = (bounds[0] * day_ticks, (bounds[1] + 1) * day_ticks)
        _check(call, _sum(shift, _extent(more, None)))
        return _fitting(call, moved * day_ticks + rest + more, arguments, valid)
    days_low, days_high = (edge * _DAY_SECONDS * per_second for edge in _extent(steps.days, None))
    shift = _sum((days_low, days_high), _extent(more, None))
    if not within(_sum((low, high), shift), INT64):
        low, high = time.measured()
    _check(call, shift)
    _check(call, _sum((low, high), shift))
    return _fitting(call, values + (steps.days * (_DAY_SECONDS * per_second) + more), arguments, valid)


def _add_months(days: Values, months: Values) -> Values:
    """Add months to days since 1970; a day that the month lacks becomes its last."""
    if not np.any(months):
        return days
    dates = np.clip(days, -MOST_DAYS, MOST_DAYS).astype("datetime64[D]")
    month = dates.astype("datetime64[M]")
    day = (dates - month.astype("datetime64[D]")).astype(np.int64)
    target = month + months.astype("timedelta64[M]")
    first = target.astype("datetime64[D]")
    length = ((target + np.timedelta64(1, "M")).astype("datetime64[D]") - first).astype(np.int64)
    return np.asarray(first.astype(np.int64) + np.minimum(day, length - 1))


def _extent(values: Values, valid: Mask | None) -> Bounds:
    known = values if valid is None else np.broadcast_to(values, np.broadcast_shapes(values.shape, valid.shape))[
        np.broadcast_to(valid, np.broadcast_shapes(values.shape, valid.shape))
    ]  # fmt: skip
    return (int(known.min()), int(known.max())) if known.size else (0, 0)


def _sum(left: Bounds, right: Bounds) -> Bounds:
    return left[0] + right[0], left[1] + right[1]


def _check(call: Call, bounds: Bounds) -> None:
    if not within(bounds, INT64):
        raise overflow(call, call.type)


def _fitting(call: Call, values: Values, arguments: list[Column], valid: Mask | None) -> Column:
    """Give the values the type's width."""
    dtype = storage_dtype(call.type)
    assert dtype is not None
    info = np.iinfo(dtype)
    if not within(_extent(np.asarray(values), valid), (int(info.min), int(info.max))):
        raise overflow(call, call.type)
    return result(call.type, np.asarray(values).astype(dtype), arguments, None, valid)


def _difference(call: Call, arguments: list[Column]) -> Column:
    """Days between dates; a duration between timestamps."""
    if any(argument.is_null_constant() for argument in arguments):
        return constant(call.type, None)
    left, right = arguments
    if left.type != right.type:
        raise ExecutionError(f"the operands of {call} are of types {left.type} and {right.type}")
    (a, b), (c, d) = left.interval(), right.interval()
    if not within((a - d, b - c), INT64):
        (a, b), (c, d) = left.measured(), right.measured()
        _check(call, (a - d, b - c))
    values = left.numbers.astype(np.int64) - right.numbers.astype(np.int64)
    return result(call.type, np.asarray(values), arguments, None, combine_valid(left.valid, right.valid))


KERNELS: Mapping[str, Callable[[Call, list[Column]], Column]] = {
    "add_interval": _add, "subtract_interval": _add, "time_difference": _difference,
}  # fmt: skip
