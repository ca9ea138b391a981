"""Window functions over all rows of a frame: sorted once for each different window, then computed on whole arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from hybridq.engines.column import Column, Indices, Mask, Values, concatenate, storage_dtype
from hybridq.engines.evaluate import evaluate_frame
from hybridq.engines.frame import CpuFrame
from hybridq.engines.frame_bounds import frame_bounds
from hybridq.engines.framed import framed_aggregate, running
from hybridq.engines.partitions import WindowOrder
from hybridq.plan.expressions import AggregateCall, Expression, Literal, SortKey, columns_of
from hybridq.plan.windows import (
    PICKS,
    RANKS,
    SHIFTS,
    STANDS_FOR_PEERS,
    STANDS_FOR_ROWS,
    Frame,
    WindowCall,
)

Window = tuple[tuple[Expression, ...], tuple[SortKey, ...]]


def window_frame(frame: CpuFrame, calls: Sequence[WindowCall], condensed: bool = False) -> CpuFrame:
    """Return a frame, which has no deselected rows, with a column more for each call.

    Parameters
    ----------
    frame : CpuFrame
    calls : sequence of WindowCall
    condensed : bool
        Some rows stand for several (``hybridq.plan.windows.Condensation``). What is computed for these does not matter.
    """
    windows: dict[Window, list[WindowCall]] = {}
    for call in calls:
        windows.setdefault((call.partition, call.order), []).append(call)
    computed: dict[str, Column] = {}
    for (partition, order), members in windows.items():
        ordered = _Ordered(frame, WindowOrder(frame, partition, order), order, condensed)
        for call in members:
            computed[call.name] = ordered.compute(call).take(ordered.order.positions)
    columns = {**frame.columns, **{call.name: computed[call.name] for call in calls}}
    return CpuFrame(columns, frame.stored_rows)


class _Ordered:
    """A frame in the order of one window."""

    def __init__(self, frame: CpuFrame, order: WindowOrder, keys: tuple[SortKey, ...], condensed: bool) -> None:
        self._frame = frame
        self._condensed = condensed
        self.order = order
        self._keys = keys
        self._bounds: dict[Frame, tuple[Indices, Indices]] = {}

    def compute(self, call: WindowCall) -> Column:
        """Compute a call; its values are by position."""
        if call.function in RANKS:
            return self._rank(call)
        if call.function in SHIFTS:
            return self._shift(call)
        start, end = self._frame_bounds(call.frame)
        if call.function in PICKS:
            return self._pick(call, start, end)
        aggregate = call.aggregate
        assert aggregate is not None
        argument = None if aggregate.argument is None else self._evaluate(aggregate.argument)
        columns = {name: self._column(name) for name in _read(aggregate)}
        return framed_aggregate(aggregate, argument, columns, start, end)

    def _column(self, name: str) -> Column:
        return self._frame.columns[name].take(self.order.indices)

    def _evaluate(self, expression: Expression) -> Column:
        (column,) = evaluate_frame(self._frame, [expression])
        return column.contiguous().take(self.order.indices)

    def _frame_bounds(self, frame: Frame) -> tuple[Indices, Indices]:
        found = self._bounds.get(frame)
        if found is None:
            reaches = frame.unit == "range" and (frame.start.offset is not None or frame.end.offset is not None)
            sort_key = self._keys[0] if reaches else None
            key = None if sort_key is None else self._evaluate(sort_key.expression)
            found = self._bounds[frame] = frame_bounds(self.order, frame, key, sort_key)
        return found

    # --- places ----------------------------------------------------------------------------------------------------

    def _rank(self, call: WindowCall) -> Column:
        return Column(call.type, self._places(call).astype(storage_dtype(call.type)))

    def _places(self, call: WindowCall) -> Values:
        order, rows = self.order, self._rows_before
        first, peers = order.partitions.start, order.peers
        before = rows(first)
        found: Values
        if call.function == "row_number":
            found = rows(np.arange(order.rows)) - before + 1
        elif call.function == "rank":
            found = rows(peers.start) - before + 1
        elif call.function == "dense_rank":
            found = peers.number - peers.number[first] + 1
            if self._condensed:
                hidden = running(self._column(STANDS_FOR_PEERS).numbers)
                found = found + hidden[:-1] - hidden[first]
        else:
            count = rows(order.partitions.end) - before
            if call.function == "percent_rank":
                # A row that is alone has rank 1 of 1, which counts as 0.
                found = (rows(peers.start) - before) / np.maximum(count - 1, 1)
            elif call.function == "cume_dist":
                found = (rows(peers.end) - before) / count
            else:
                found = _tiles(_constant(call.arguments[0]), rows(np.arange(order.rows)) - before, count)
        return found

    def _rows_before(self, positions: Indices) -> Indices:
        """Return how many rows there are before some positions."""
        if not self._condensed:
            return positions
        found: Indices = self._stood_for[positions]
        return found

    @cached_property
    def _stood_for(self) -> Indices:
        return running(self._column(STANDS_FOR_ROWS).numbers)

    # --- other rows' values ----------------------------------------------------------------------------------------

    def _shift(self, call: WindowCall) -> Column:
        """LAG and LEAD."""
        value, distance, default = (self._evaluate(argument) for argument in call.arguments)
        order = self.order
        here = np.arange(order.rows)
        steps = distance.numbers.astype(np.int64)
        # Further than all rows is outside, however far; and so nothing overflows.
        steps = np.clip(steps, -order.rows - 1, order.rows + 1)
        steps = -steps if call.function == "lag" else steps
        first, last = order.partitions.start, order.partitions.end
        valid = value.validity() if call.ignore_nulls else None
        if valid is None:
            target = here + steps
            inside = (target >= first) & (target < last)
        else:
            # Step over the values that are there: by their own numbers.
            before, places = running(valid), np.flatnonzero(valid)
            number = np.where(steps > 0, before[here + 1] + steps - 1, before[here] + steps)
            inside = (number >= before[first]) & (number < before[last])
            target = places[np.where(inside, number, 0)] if len(places) else here
            inside, target = inside | (steps == 0), np.where(steps == 0, here, target)
        known = distance.validity()
        if known is not None:
            inside &= known
        found = value.take_padded(np.where(inside, target, -1))
        outside = ~inside if known is None else ~inside & known
        return found if not outside.any() else _replaced(found, default, outside)

    def _pick(self, call: WindowCall, start: Indices, end: Indices) -> Column:
        """FIRST_VALUE, LAST_VALUE and NTH_VALUE."""
        value = self._evaluate(call.arguments[0])
        valid = value.validity() if call.ignore_nulls else None
        if valid is not None:
            # The frame's values that are there are neighbours among all that are.
            before = running(valid)
            start, end = before[start], before[end]
        if call.function == "first_value":
            place = start
        elif call.function == "last_value":
            place = end - 1
        else:
            place = start + min(_constant(call.arguments[1]), self.order.rows + 1) - 1
        inside = (start < end) & (place < end)
        if valid is not None:
            places = np.flatnonzero(valid)
            place = places[np.where(inside, place, 0)] if len(places) else place
        return value.take_padded(np.where(inside, place, -1))


def _read(aggregate: AggregateCall) -> frozenset[str]:
    """Return the columns that an aggregate over frames reads."""
    return frozenset().union(*map(columns_of, aggregate.expressions))


def _constant(expression: Expression) -> int:
    assert isinstance(expression, Literal)
    value: int = expression.value
    return value


def _replaced(column: Column, other: Column, where: Mask) -> Column:
    """Put another column's values in some places."""
    both = concatenate([column, other])
    here = np.arange(column.rows)
    return both.take(np.where(where, here + column.rows, here))


def _tiles(tiles: int, row: Indices, count: Indices) -> Values:
    """NTILE: the first tiles have one row more than the others, where the rows do not divide."""
    tiles = min(tiles, int(count.max(initial=1)))
    small, larger = count // tiles, count % tiles
    in_larger = larger * (small + 1)
    after = larger + (row - in_larger) // np.maximum(small, 1)
    tile: Values = np.where(row < in_larger, row // (small + 1), after) + 1
    return tile
