"""Components of dates and timestamps."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pylibcudf as plc
from pylibcudf.datetime import DatetimeComponent

from hybridq.engines.gpu import device
from hybridq.engines.gpu.arithmetic import Kernel, Run
from hybridq.engines.gpu.column import GpuColumn, Operand
from hybridq.plan.expressions import Call

SECONDS_OF_DAY = 86400

_COMPONENTS = {
    "year": DatetimeComponent.YEAR, "month": DatetimeComponent.MONTH, "day": DatetimeComponent.DAY,
    "hour": DatetimeComponent.HOUR, "minute": DatetimeComponent.MINUTE, "second": DatetimeComponent.SECOND,
}  # fmt: skip
_OF_DAY = frozenset({"hour", "minute", "second"})
_BOUNDS = {
    "quarter": (1, 4), "month": (1, 12), "week": (1, 53), "day": (1, 31), "doy": (1, 366), "dow": (0, 6),
    "hour": (0, 23), "minute": (0, 59), "second": (0, 59),
}  # fmt: skip


def _extract(call: Call, operands: list[Operand], run: Run) -> Operand:
    (name,) = call.options
    (column,) = operands
    assert isinstance(column, GpuColumn)
    zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    data = None if zoned else _component(column, name)
    if data is None:
        return run.host(call, operands)
    return GpuColumn(call.type, device.cast(data, device.physical(call.type)), _BOUNDS.get(name))


def _component(column: GpuColumn, name: str) -> plc.Column | None:
    """Return a component as integers of some width; ``None`` if the device does not compute it."""
    data = column.data
    is_date = pa.types.is_date32(column.type)
    if name == "epoch" and is_date:
        seconds = device.scalar(SECONDS_OF_DAY, device.INT64)
        return device.binary("multiply", device.to_int64(data), seconds, device.INT64)
    if name in _OF_DAY and is_date:
        return device.with_nulls(device.full(device.scalar(0, device.INT32), column.rows), device.is_valid(data))
    if name in _COMPONENTS:
        return plc.datetime.extract_datetime_component(data, _COMPONENTS[name])
    if name == "quarter":
        return plc.datetime.extract_quarter(data)
    if name == "doy":
        return plc.datetime.day_of_year(data)
    if name == "dow":
        # 1 to 7 from Monday on becomes 0 to 6 from Sunday on.
        return device.binary("modulus", _weekday(data), device.scalar(7, device.INT32), device.INT32)
    if name == "week" and is_date:
        return _iso_week(data)
    return None


def _weekday(data: plc.Column) -> plc.Column:
    """Return the day of the week, 1 (Monday) to 7."""
    return device.cast(plc.datetime.extract_datetime_component(data, DatetimeComponent.WEEKDAY), device.INT32)


def _iso_week(days: plc.Column) -> plc.Column:
    """Return the ISO week: that of the year in which the week's Thursday lies."""
    int32 = device.INT32
    ahead = device.binary("subtract", device.scalar(4, int32), _weekday(days), int32)
    thursday = device.relabelled(device.binary("add", device.relabelled(days, int32), ahead, int32), device.DAYS)
    day = device.cast(plc.datetime.day_of_year(thursday), int32)
    before = device.binary("subtract", day, device.scalar(1, int32), int32)
    weeks = device.binary("divide", before, device.scalar(7, int32), int32)
    return device.binary("add", weeks, device.scalar(1, int32), int32)


KERNELS: Mapping[str, Kernel] = {"extract": _extract}
