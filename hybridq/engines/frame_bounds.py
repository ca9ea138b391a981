"""Where each row's window frame begins and ends."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa

from hybridq import types
from hybridq.engines.column import INT64, Column, Indices, Mask, Values
from hybridq.engines.decimals import to_integers
from hybridq.engines.grouping import float_bits
from hybridq.engines.partitions import WindowOrder
from hybridq.errors import Unsupported
from hybridq.plan.expressions import SortKey
from hybridq.plan.windows import Bound, Frame, Interval, Offset

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY = 86_400 * 10**9


def frame_bounds(
    order: WindowOrder, frame: Frame, key: Column | None, sort_key: SortKey | None
) -> tuple[Indices, Indices]:
    """Return the first position of each row's frame, and the one after its last; equal ones for an empty frame.

    Parameters
    ----------
    order : WindowOrder
    frame : Frame
    key : Column or None
        The only sort key's values by position; needed where a RANGE frame has offsets.
    sort_key : SortKey or None
        That sort key.
    """
    if frame.unit == "rows":
        start, end = _by_rows(order, frame)
    elif frame.unit == "groups":
        start, end = _by_groups(order, frame)
    else:
        start, end = _by_range(order, frame, key, sort_key)
    return start, np.maximum(start, end)


def _steps(bound: Bound, rows: int) -> int:
    """Return how many rows or groups a bound reaches forwards (backwards, if negative); never more than matter."""
    if bound.offset is None:
        return 0
    assert isinstance(bound.offset, int)
    distance = min(bound.offset, rows)
    return -distance if bound.kind == "preceding" else distance


def _by_rows(order: WindowOrder, frame: Frame) -> tuple[Indices, Indices]:
    first, last = order.partitions.start, order.partitions.end
    here = np.arange(order.rows)
    start, end = first, last
    if frame.start.kind != "unbounded preceding":
        start = np.clip(here + _steps(frame.start, order.rows), first, last)
    if frame.end.kind != "unbounded following":
        end = np.clip(here + _steps(frame.end, order.rows) + 1, first, last)
    return start, end


def _by_groups(order: WindowOrder, frame: Frame) -> tuple[Indices, Indices]:
    peers, partitions = order.peers, order.partitions
    start, end = partitions.start, partitions.end
    if order.rows == 0:
        return start, end
    first = peers.number[partitions.start]
    last = peers.number[partitions.end - 1]
    if frame.start.kind != "unbounded preceding":
        group = peers.number + _steps(frame.start, order.rows)
        start = np.where(group > last, end, peers.starts[np.clip(group, first, last)])
    if frame.end.kind != "unbounded following":
        group = peers.number + _steps(frame.end, order.rows)
        end = np.where(group < first, partitions.start, peers.ends[np.clip(group, first, last)])
    return start, end


# --- values within a distance of the row's own ---------------------------------------------------------------------


def _by_range(
    order: WindowOrder, frame: Frame, key: Column | None, sort_key: SortKey | None
) -> tuple[Indices, Indices]:
    start, end = order.partitions.start, order.partitions.end
    if frame.start.kind == "current row":
        start = order.peers.start
    if frame.end.kind == "current row":
        end = order.peers.end
    if frame.start.offset is None and frame.end.offset is None:
        return start, end
    assert key is not None
    assert sort_key is not None
    values = _RangeKey(order, key, sort_key)
    if frame.start.offset is not None:
        start = values.reach(frame.start, is_start=True)
    if frame.end.offset is not None:
        end = values.reach(frame.end, is_start=False)
    return start, end


class _RangeKey:
    """A sort key whose values have distances. NULLs tie with each other and are at no distance from other values."""

    def __init__(self, order: WindowOrder, key: Column, sort_key: SortKey) -> None:
        self._type = key.type
        self._descending = sort_key.descending
        self._values = _numbers(key)
        valid = key.validity()
        self._valid: Mask = np.ones(order.rows, np.bool_) if valid is None else valid
        counts = np.concatenate(([0], np.cumsum(self._valid)))
        partitions = order.partitions
        nulls = (partitions.end - partitions.start) - (counts[partitions.end] - counts[partitions.start])
        if sort_key.nulls_first:
            self._first, self._last = partitions.start + nulls, partitions.end
            self._null_first, self._null_last = partitions.start, self._first
        else:
            self._first, self._last = partitions.start, partitions.end - nulls
            self._null_first, self._null_last = self._last, partitions.end

    def reach(self, bound: Bound, is_start: bool) -> Indices:
        """Return the first position that a bound takes in (``is_start``), or the one after the last."""
        assert bound.offset is not None
        upwards = (bound.kind == "following") != self._descending
        target, below, above = self._target(bound.offset, upwards, late=is_start != self._descending)
        keys, wanted = _sortable(self._values), _sortable(target)
        if self._descending:
            keys, wanted, below, above = _reversed(keys), _reversed(wanted), above, below
        found = _search(keys, wanted, self._first, self._last, before_equals=is_start)
        found = np.where(above, self._last, np.where(below, self._first, found))
        return np.where(self._valid, found, self._null_first if is_start else self._null_last)

    def _target(self, offset: Offset, upwards: bool, late: bool) -> tuple[Values, Mask | bool, Mask | bool]:
        """Return the value at a distance from each row's own, and where it is below or above all that there can be.

        A distance finer than the key's values is rounded so that no value in reach is lost and none is added: to the
        greater value if ``late``, else to the smaller one.
        """
        values = self._values
        if isinstance(offset, Interval):
            return _shifted_time(values, self._type, offset if upwards else _negative(offset), late), False, False
        if values.dtype.kind == "f":
            with np.errstate(all="ignore"):
                return values + (float(offset) if upwards else -float(offset)), False, False
        exact = Decimal(offset) * 10 ** (self._type.scale if types.is_decimal(self._type) else 0)
        distance = math.ceil(exact) if late == upwards else math.floor(exact)
        if values.dtype == object:
            return values + (distance if upwards else -distance), False, False
        if distance > INT64[1]:
            wide = values.astype(object) + (distance if upwards else -distance)
            below, above = (wide < INT64[0]).astype(np.bool_), (wide > INT64[1]).astype(np.bool_)
            return np.where(below | above, 0, wide).astype(np.int64), below, above
        if upwards:
            return values + distance, False, values > INT64[1] - distance
        return values - distance, values < INT64[0] + distance, False


def _numbers(key: Column) -> Values:
    """Return a key's values as floats or as integers with the same distances: 64-bit ones, or Python's."""
    if key.array is not None:
        if not types.is_decimal(key.type):
            raise Unsupported(f"RANGE with an offset over values of type {key.type} is not supported")
        return to_integers(key)[0]
    values = key.numbers
    if values.dtype == np.uint64:
        return (values ^ np.uint64(2**63)).view(np.int64)
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)


def _sortable(values: Values) -> Values:
    """Return integers in the order of the values."""
    if values.dtype.kind != "f":
        return values
    bits = float_bits(values)
    return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)


def _reversed(values: Values) -> Values:
    return -values if values.dtype == object else ~values


def _search(keys: Values, wanted: Values, first: Indices, last: Indices, before_equals: bool) -> Indices:
    """Return for each row where its wanted key belongs among the keys of its own range, which ascend."""
    low, high = first.copy(), last.copy()
    limit = max(len(keys) - 1, 0)
    open_rows = np.flatnonzero(low < high)
    while len(open_rows):
        middle = (low[open_rows] + high[open_rows]) >> 1
        found, target = keys[np.minimum(middle, limit)], wanted[open_rows]
        less = (found < target if before_equals else found <= target).astype(np.bool_)
        low[open_rows[less]] = middle[less] + 1
        high[open_rows[~less]] = middle[~less]
        open_rows = open_rows[low[open_rows] < high[open_rows]]
    return low


# --- time ----------------------------------------------------------------------------------------------------------


def _negative(interval: Interval) -> Interval:
    return Interval(-interval.months, -interval.days, -interval.nanoseconds)


def _shifted_time(values: Values, data_type: pa.DataType, interval: Interval, late: bool) -> Values:
    """Add an interval to dates or timestamps: months first, then days, then time."""
    if pa.types.is_date32(data_type):
        shifted = _add_months(values, interval.months) + interval.days
        return shifted + (-(-interval.nanoseconds // DAY) if late else interval.nanoseconds // DAY)
    unit = NANOSECONDS[data_type.unit]
    day = DAY // unit
    days, time = np.divmod(values, day)
    shifted = (_add_months(days, interval.months) + interval.days) * day + time
    return shifted + (-(-interval.nanoseconds // unit) if late else interval.nanoseconds // unit)


def _add_months(days: Indices, months: int) -> Indices:
    """Add months to days since 1970; a day that the month lacks becomes its last one."""
    if months == 0:
        return days
    dates = days.astype("datetime64[D]")
    old = dates.astype("datetime64[M]")
    new = old + np.timedelta64(months, "M")
    day = dates - old.astype("datetime64[D]")
    last = (new + np.timedelta64(1, "M")).astype("datetime64[D]") - new.astype("datetime64[D]") - np.timedelta64(1, "D")
    shifted: Indices = (new.astype("datetime64[D]") + np.minimum(day, last)).astype(np.int64)
    return shifted
