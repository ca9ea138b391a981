"""Components of dates and timestamps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines.column import Column, from_arrow, to_arrow
from hybridq.engines.constants import constant
from hybridq.engines.decimals import as_constant
from hybridq.errors import Unsupported
from hybridq.plan.expressions import Call

TABLE_DAYS = 200_000
"""Days (five centuries) up to which components of dates are looked up in a table instead of computed for each row."""

_SECONDS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

COMPONENTS: Mapping[str, Callable[[Any], Any]] = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "week": pc.iso_week,
    "isoyear": pc.iso_year,
    "day": pc.day,
    "doy": pc.day_of_year,
    "dow": lambda array: pc.day_of_week(array, count_from_zero=True, week_start=7),
    "isodow": lambda array: pc.day_of_week(array, count_from_zero=True, week_start=1),
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
}
_OF_DAY = frozenset({"hour", "minute", "second"})


def component(array: pa.Array, name: str, data_type: pa.DataType) -> pa.Array:
    """Return one component of an Arrow date or timestamp array."""
    if name == "epoch":
        if pa.types.is_timestamp(array.type):
            ticks = array.cast(pa.int64())
            per_second = _SECONDS[array.type.unit]
            if pa.types.is_floating(data_type):
                return pc.divide(ticks.cast(pa.float64()), float(per_second)).cast(data_type)
            return pa.array(ticks.to_numpy(zero_copy_only=False) // per_second, mask=~_valid(ticks)).cast(data_type)
        days = array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        return pc.multiply(days, 86400).cast(data_type)
    if name in _OF_DAY and pa.types.is_date(array.type):
        return pc.if_else(pc.is_valid(array), 0, pa.scalar(None, pa.int64())).cast(data_type)
    return COMPONENTS[name](array).cast(data_type)


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


KERNELS: Mapping[str, Callable[[Call, list[Column]], Column]] = {"extract": _extract}
