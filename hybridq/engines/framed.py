"""Aggregates over window frames.

A frame is a range of neighbouring positions. Counts and exact sums are differences of running totals. Minima, maxima
and sums of floats, whose running totals would carry NaN, infinity and rounding errors of rows outside the frame into
it, are put together from precomputed results of aligned blocks of 1, 2, 4, ... rows. For other aggregates the rows of
each different frame are gathered.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from hybridq import types
from hybridq.engines.accumulators import LIMB_BITS, LIMB_MASK, sum_of_integers, sum_of_limbs
from hybridq.engines.aggregate import aggregate_frame
from hybridq.engines.column import INT64, Column, Indices, Mask, Values, concatenate, from_arrow
from hybridq.engines.decimals import to_integers
from hybridq.engines.frame import CpuFrame
from hybridq.engines.lists import ranked
from hybridq.errors import ExecutionError
from hybridq.plan import expressions as plan
from hybridq.plan.expressions import AggregateCall, NamedExpression

GATHERED_ROWS = 1 << 22
"""Rows that are gathered at a time for aggregates without a faster way."""

NUMBER = pa.int64()

MOST_GATHERED_ROWS = 1 << 29
"""Rows that are gathered in all; more take minutes."""


def running(values: Values) -> Values:
    """Return the totals before each position, and after the last."""
    totals = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=totals[1:])
    return totals


def framed_aggregate(
    call: AggregateCall, argument: Column | None, columns: Mapping[str, Column], start: Indices, end: Indices
) -> Column:
    """Compute an aggregate, in partial form, over each row's frame.

    Parameters
    ----------
    call : AggregateCall
    argument : Column or None
        Values of the call's argument by position.
    columns : mapping of str to Column
        All columns by position, for aggregates that need more than that.
    start, end : array of int64
        First position of each row's frame, and the one after its last.

    Raises
    ------
    NumericOverflow
        A sum does not fit the call's type.
    ExecutionError
        Too many rows would have to be looked at.
    """
    rows = len(start)
    if rows == 0:
        return _gathered(call, columns, start, end)
    # Neighbours often have the same frame (all of their partition, or up to their last peer).
    new = np.ones(rows, np.bool_)
    new[1:] = (start[1:] != start[:-1]) | (end[1:] != end[:-1])
    chosen = np.flatnonzero(new)
    if len(chosen) == rows:
        return _aggregate(call, argument, columns, start, end)
    return _aggregate(call, argument, columns, start[chosen], end[chosen]).take(np.cumsum(new) - 1)


def _aggregate(
    call: AggregateCall, argument: Column | None, columns: Mapping[str, Column], start: Indices, end: Indices
) -> Column:
    if call.distinct or call.further or call.condition is not None:
        return _gathered(call, columns, start, end)
    if call.function == "count":
        return Column(call.type, (end - start) if argument is None else _present(argument, start, end))
    if argument is None:
        return _gathered(call, columns, start, end)
    if call.function == "sum":
        return _sum(call, argument, start, end)
    if call.function in ("min", "max"):
        return _extreme(call, argument, start, end)
    return _gathered(call, columns, start, end)


def _present(argument: Column, start: Indices, end: Indices) -> Indices:
    """Count the values of each frame that are not NULL."""
    valid = argument.validity()
    if valid is None:
        return end - start
    totals = running(valid)
    return totals[end] - totals[start]


def _validity(argument: Column, start: Indices, end: Indices) -> Mask | None:
    seen = _present(argument, start, end) > 0
    return None if seen.all() else seen


# --- sums ----------------------------------------------------------------------------------------------------------


def _sum(call: AggregateCall, argument: Column, start: Indices, end: Indices) -> Column:
    valid = _validity(argument, start, end)
    known = argument.validity()
    if types.is_floating(call.type):
        doubles = argument.numbers.astype(np.float64)
        if known is not None:
            doubles = np.where(known, doubles, 0.0)
        with np.errstate(all="ignore"):
            totals = BlockTree(doubles, np.add, 0.0).combine(start, end)
        return Column(call.type, totals, valid)
    if argument.array is not None or argument.numbers.dtype == np.uint64:
        integers, _ = to_integers(argument)
        low = (integers & (2**64 - 1)).astype(np.uint64)
        high = (integers >> 64).astype(np.int64)
        shift, mask = np.uint64(LIMB_BITS), np.uint64(LIMB_MASK)
        parts = [low & mask, low >> shift, high & LIMB_MASK, high >> LIMB_BITS]
        return sum_of_limbs([_difference(part.astype(np.int64), start, end) for part in parts], valid, call)
    values: Values = argument.numbers.astype(np.int64)
    if known is not None:
        values = np.where(known, values, 0)
    low_bound, high_bound = argument.interval()
    longest = int((end - start).max()) if len(start) else 0
    if max(abs(low_bound), abs(high_bound)) * longest <= INT64[1]:
        # Running totals may wrap around, but their differences are right.
        return sum_of_integers(_difference(values, start, end), valid, call)
    return sum_of_limbs(
        [_difference(values & LIMB_MASK, start, end), _difference(values >> LIMB_BITS, start, end)], valid, call
    )


def _difference(values: Values, start: Indices, end: Indices) -> Indices:
    totals = running(values)
    found: Indices = totals[end] - totals[start]
    return found


# --- minima, maxima ------------------------------------------------------------------------------------------------


def _extreme(call: AggregateCall, argument: Column, start: Indices, end: Indices) -> Column:
    valid = _validity(argument, start, end)
    known = argument.validity()
    smallest = call.function == "min"
    nothing: float
    if argument.array is not None or argument.dictionary is not None:
        ranks, ordered = ranked(argument)
        nothing = len(ordered) if smallest else -1
        if known is not None:
            ranks = np.where(known, ranks, nothing)
        best = BlockTree(ranks, np.minimum if smallest else np.maximum, nothing).combine(start, end)
        missing = best == nothing
        return from_arrow(ordered).take_padded(np.where(missing, -1, best)).with_type(call.type)
    values = argument.numbers
    function, nothing = _extreme_function(values, smallest)
    if values.dtype.kind == "f":
        values = values + values.dtype.type(0)  # no negative zero
    if known is not None:
        values = np.where(known, values, values.dtype.type(nothing))
    with np.errstate(invalid="ignore"):
        best = BlockTree(values, function, nothing).combine(start, end)
    return Column(call.type, best, valid, bounds=argument.bounds if values.dtype.kind in "iu" else None)


def _extreme_function(values: Values, smallest: bool) -> tuple[np.ufunc, float]:
    """Return what chooses one of two values, NaN being above all numbers, and the value that is never chosen."""
    if values.dtype.kind == "f":
        # fmin leaves a NaN only where there is nothing else; maximum keeps any.
        return (np.fmin, np.nan) if smallest else (np.maximum, -np.inf)
    if values.dtype.kind == "b":
        return (np.logical_and, True) if smallest else (np.logical_or, False)
    info = np.iinfo(values.dtype)
    return (np.minimum, info.max) if smallest else (np.maximum, info.min)


class BlockTree:
    """Results of a function over aligned blocks of 1, 2, 4, ... values.

    Parameters
    ----------
    values : array
    function : ufunc
        Associative and commutative, of two values.
    nothing : value
        Its neutral element: what it gives for no value.
    """

    def __init__(self, values: Values, function: np.ufunc, nothing: float) -> None:
        self._function = function
        self._nothing = nothing
        self._levels = [values]
        while len(values) > 1:
            if len(values) % 2:
                values = np.append(values, values.dtype.type(nothing))
            values = function(values[0::2], values[1::2])
            self._levels.append(values)

    def combine(self, start: Indices, end: Indices) -> Values:
        """Return the function's result over each range of positions."""
        found = np.full(len(start), self._nothing, self._levels[0].dtype)
        left, right = start.copy(), end.copy()
        left_rows = np.flatnonzero(left < right)
        for level in self._levels:
            if len(left_rows) == 0:
                break
            low, high = left[left_rows], right[left_rows]
            odd = (low & 1).astype(np.bool_)
            rows = left_rows[odd]
            found[rows] = self._function(found[rows], level[low[odd]])
            odd_end = (high & 1).astype(np.bool_) & (high > low + odd)
            rows = left_rows[odd_end]
            found[rows] = self._function(found[rows], level[high[odd_end] - 1])
            low, high = (low + odd) >> 1, high >> 1
            left[left_rows], right[left_rows] = low, high
            left_rows = left_rows[low < high]
        return found


# --- everything else -----------------------------------------------------------------------------------------------


def _gathered(call: AggregateCall, columns: Mapping[str, Column], start: Indices, end: Indices) -> Column:
    """Gather the rows of each frame and aggregate them by frame."""
    lengths = end - start
    total = int(lengths.sum())
    if total > MOST_GATHERED_ROWS:
        raise ExecutionError(
            f"{call.text} over frames that hold {total} rows together would take too long: only sum, count, avg, min "
            "and max can be computed over long frames that differ from row to row"
        )
    frame_name = "frame number"
    pieces = [_of_nothing(call, columns)]
    position = np.zeros(len(start), np.int64)  # the first piece is the result of an empty frame
    filled = np.flatnonzero(lengths)
    ends = np.cumsum(lengths[filled])
    begin, offset = 0, 1
    while begin < len(filled):
        before = int(ends[begin - 1]) if begin else 0
        stop = max(int(np.searchsorted(ends, before + GATHERED_ROWS, side="right")), begin + 1)
        frames = filled[begin:stop]
        counts = lengths[frames]
        number = np.repeat(np.arange(len(frames)), counts)
        inside = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = start[frames][number] + inside
        taken = {name: column.take(rows) for name, column in columns.items()}
        taken[frame_name] = Column(NUMBER, number, bounds=(0, max(len(frames) - 1, 0)))
        key = NamedExpression(frame_name, plan.Column(NUMBER, frame_name))
        result = aggregate_frame(CpuFrame(taken, len(rows)), [key], [call])
        order = np.argsort(result.columns[frame_name].numbers, kind="stable")
        pieces.append(result.columns[call.name].take(order))
        position[frames] = offset + np.arange(len(frames))
        begin, offset = stop, offset + len(frames)
    return concatenate(pieces).take(position)


def _of_nothing(call: AggregateCall, columns: Mapping[str, Column]) -> Column:
    """Return the aggregate of no rows."""
    empty = {name: column.take(np.zeros(0, np.int64)) for name, column in columns.items()}
    return aggregate_frame(CpuFrame(empty, 0), [], [call]).columns[call.name]
