"""Dates made of their parts, and timestamps put into bins of equal length."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines.column import INT64, TICKS, Column, Values, combine_valid, to_arrow, within
from hybridq.engines.constants import constant
from hybridq.engines.decimals import as_constant, overflow
from hybridq.engines.intervals import steps_of
from hybridq.engines.text import any_null
from hybridq.errors import ExecutionError, Unsupported
from hybridq.plan.expressions import Call

_FIRST_YEAR, _LAST_YEAR = -9999, 9999
_DAY_NANOSECONDS = 86400 * 10**9


def _make_date(call: Call, arguments: list[Column]) -> Column:
    """Return the date of a year, month and day.

    Raises
    ------
    ExecutionError
        There is no such day.
    """
    if any_null(arguments):
        return constant(call.type, None)
    rows = max((argument.rows for argument in arguments if not argument.constant), default=1)
    parts = [argument.expand(rows) for argument in arguments]
    valid = combine_valid(combine_valid(parts[0].valid, parts[1].valid), parts[2].valid)
    numbers: list[Values] = [
        part.numbers if valid is None else np.where(valid, part.numbers, default)
        for part, default in zip(parts, (1970, 1, 1), strict=True)
    ]
    year, month, day = numbers
    real = (year >= _FIRST_YEAR) & (year <= _LAST_YEAR) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    months = np.where(real, (year.astype(np.int64) - 1970) * 12 + month.astype(np.int64) - 1, 0)
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    following = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    real &= day <= following - first
    if not real.all():
        wrong = int(np.argmin(real))
        raise ExecutionError(f"there is no day {year[wrong]}-{month[wrong]}-{day[wrong]} (year-month-day), in {call}")
    found = Column(call.type, (first + day.astype(np.int64) - 1).astype(np.int32), valid)
    return as_constant(found) if all(argument.constant for argument in arguments) else found


def _bin(call: Call, arguments: list[Column]) -> Column:
    """Return the beginning of each timestamp's bin; bins are of equal length, and one begins at the origin."""
    if any_null(arguments):
        return constant(call.type, None)
    stride, time = arguments[:2]
    if not stride.constant:
        raise Unsupported(f"bins of a length that is not a constant, in {call}, are not supported")
    steps, per_second = steps_of(stride), TICKS[call.type.unit]
    if np.any(steps.months):
        raise Unsupported(f"bins of months, in {call}, are not supported: use date_trunc")
    length, rest = divmod(int(steps.days) * _DAY_NANOSECONDS + int(steps.nanoseconds), 10**9 // per_second)
    if rest or length <= 0:
        raise ExecutionError(f"bins must take some time, in whole {call.type.unit}: {call}")
    origin = _ticks(arguments[2], call) if len(arguments) > 2 else 0
    low, high = time.measured()
    if not within((low - origin - length, high - origin), INT64):
        raise overflow(call, call.type)
    values = time.numbers.astype(np.int64)
    binned = values - (values - np.int64(origin)) % np.int64(length)
    return Column(call.type, np.asarray(binned), time.valid, constant=time.constant)


def _ticks(origin: Column, call: Call) -> int:
    """Return a constant timestamp in the unit of the result."""
    if not origin.constant:
        raise Unsupported(f"an origin that is not a constant, in {call}, is not supported")
    array = to_arrow(origin.expand(1)).cast(call.type, safe=False)
    return int(pc.cast(array, pa.int64())[0].as_py())


KERNELS: Mapping[str, Callable[[Call, list[Column]], Column]] = {"make_date": _make_date, "date_bin": _bin}
