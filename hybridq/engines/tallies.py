"""Medians and quantiles by counting: each group's values with the number of their rows, ascending.

A summary is a tally of some of the values, the greatest among them: each stands for the rows above the
value before it, up to itself. What is made of rows, or put together of summaries, has ``SUMMARY_SIZE`` steps of equal
numbers of rows, and so the rows up to any value are never fewer than the summary says, and more by one step at most for
each time that one was made.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pyarrow as pa

from hybridq import types
from hybridq.engines.column import Column, Indices, Values, within
from hybridq.engines.decimals import divide_rounded, from_integers, scale_of, to_integers
from hybridq.engines.grouped import GroupedRows, fields_of, list_lengths, lists_of, struct_of
from hybridq.errors import ExecutionError
from hybridq.plan.expressions import Call, SortKey
from hybridq.plan.expressions import Column as ColumnReference

SUMMARY_SIZE = 8192
"""Steps of a summary."""

SUMMARY_LEVELS = 16
"""Times that summaries have been put together of summaries, at most: 32 at a time, for more chunks than there are."""

NARROW_SUM = (-(2**59), 2**59)
"""Decimals of which ten times the sum of two fits 64 bits."""


def tally(rows: GroupedRows) -> Column:
    """Count the rows of each value."""
    return _tallied(rows.known(), None)


def merge_tallies(rows: GroupedRows) -> Column:
    """Add the counts of equal values up."""
    rows = rows.unnested()
    values, counts = rows.columns
    return _tallied(GroupedRows(rows.call, (values,), rows.codes, rows.groups), counts.numbers)


def _tallied(rows: GroupedRows, counts: Indices | None) -> Column:
    from hybridq.engines.ordering import runs_of  # which needs the evaluator, which needs this module

    (values,) = rows.columns
    ascending = SortKey(ColumnReference(values.type, "value"))
    order, starts = runs_of([rows.group_column(), values], [ascending, ascending])
    if counts is None or len(starts) == 0:
        totals = np.diff(starts, append=len(order))
    else:
        totals = np.add.reduceat(counts.take(order), starts)
    chosen = order.take(starts)
    columns = [values.take(chosen), Column(pa.int64(), totals.astype(np.int64))]
    data_type = rows.call.type
    lengths = np.bincount(rows.codes.take(chosen), minlength=rows.groups)
    return lists_of(struct_of(columns, data_type.value_type), lengths, data_type)


def summary(rows: GroupedRows) -> Column:
    """Count the rows of some values, and of those below each."""
    return _summarized(tally(rows))


def merge_summaries(rows: GroupedRows) -> Column:
    """Put summaries together."""
    return _summarized(merge_tallies(rows))


def _summarized(tallies: Column) -> Column:
    counts = _Counts(tallies)
    lengths = counts.lengths
    if int(lengths.max(initial=0)) <= SUMMARY_SIZE:
        return tallies
    group = np.repeat(np.arange(len(lengths)), lengths)
    reached = counts.until - counts.before[group]
    steps = reached * SUMMARY_SIZE // counts.totals[group]
    kept = np.empty(len(steps), np.bool_)
    kept[1:] = steps[1:] != steps[:-1]
    kept[(counts.ends - lengths)[lengths > 0]] = True  # they begin anew there
    kept[(counts.ends - 1)[lengths > 0]] = True
    chosen = np.flatnonzero(kept)
    first = np.append(True, group[chosen][1:] != group[chosen][:-1])
    before = np.where(first, 0, np.append(0, reached[chosen][:-1]))
    columns = [counts.values.take(chosen), Column(pa.int64(), reached[chosen] - before)]
    data_type = tallies.type
    kept_lengths = np.bincount(group[chosen], minlength=len(lengths))
    return lists_of(struct_of(columns, data_type.value_type), kept_lengths, data_type)


class _Counts:
    """Tallies, taken apart.

    Attributes
    ----------
    values : Column
        Those of all tallies, one after the other.
    lengths, ends : array of int64
        Of each tally among them.
    until : array of int64
        Rows up to each value, those of earlier tallies included.
    before, totals : array of int64
        Rows before each tally, and in it.
    """

    def __init__(self, tallies: Column) -> None:
        array = tallies.array
        assert array is not None
        columns = fields_of(array.flatten())
        self.values = columns[0]
        self.until = np.cumsum(columns[1].numbers, dtype=np.int64)
        self.lengths = list_lengths(array)
        self.ends = np.cumsum(self.lengths)
        reached = np.concatenate(([0], self.until))[self.ends]
        self.before = np.concatenate(([0], reached[:-1]))
        self.totals = reached - self.before


class _Rank:
    """Where a quantile is among so many rows in order.

    Attributes
    ----------
    first, last : array of int64
        The rows that it is made of: one, or two neighbours.
    share : array of float64
        How far it is from the one to the other.
    """

    def __init__(self, kind: str, fraction: Fraction, totals: Indices) -> None:
        above, below = fraction.numerator, fraction.denominator
        exact = totals if int(totals.max(initial=0)) * below < 2**62 else totals.astype(object)
        if kind == "picked":
            rank = -((-exact * above) // below)
            self.first = self.last = np.maximum(rank.astype(np.int64) - 1, 0)
            self.share = np.zeros(len(totals))
            return
        scaled = np.maximum(exact - 1, 0) * above
        self.first, rest = (scaled // below).astype(np.int64), scaled % below
        self.share = (rest / below).astype(np.float64)
        self.last = self.first + (self.share > 0)


def quantile(call: Call, operands: list[Column]) -> Column:
    """Return a quantile of each tally; NULL of an empty one.

    Options are what to do between two values (``middle`` and ``interpolated``, or ``picked``: take the first value that
    at least the fraction of all rows is not above), and the fraction. Further operands are the numbers of rows below
    those of the tally, and of all rows, where the tally is not of all.

    Raises
    ------
    ExecutionError
        The quantile is not among the tally's values.
    """
    counts = _Counts(operands[0])
    kind, text = call.options
    skipped = np.zeros(len(counts.totals), np.int64)
    totals = counts.totals
    if len(operands) > 1:
        skipped, totals = (column.contiguous().numbers.astype(np.int64) for column in operands[1:])
    rank = _Rank(kind, Fraction(text), totals)
    some = totals > 0
    inside = (rank.first >= skipped) & (rank.last < skipped + counts.totals)
    if not inside[some].all():
        raise ExecutionError(
            "a quantile is not between the values that were found for it before: the rows that it is of depend on the"
            " order of rows that tie"
        )

    def at(rows: Indices) -> Column:
        found = np.searchsorted(counts.until, counts.before + rows - skipped, side="right")
        return counts.values.take_padded(np.where(some, found, -1))

    if kind == "picked":
        return at(rank.first).with_type(call.type)
    return _between(call, at(rank.first), at(rank.last), rank.share)


def summary_bound(call: Call, operands: list[Column]) -> Column:
    """Return a value that the quantile of summarized rows is not below, or not above; NULL: there is none known.

    Options are ``low`` or ``high``, and those of ``quantile``.
    """
    counts = _Counts(operands[0])
    side, kind, text = call.options
    rank = _Rank(kind, Fraction(text), counts.totals)
    # At least as many rows are up to a value as the summary says, and at most so many more.
    more = SUMMARY_LEVELS * (counts.totals // SUMMARY_SIZE + 1)
    if side == "high":
        found = np.searchsorted(counts.until, counts.before + rank.last + more, side="right")
        known = found < counts.ends - 1
    else:
        found = np.searchsorted(counts.until, counts.before + rank.first - more, side="right") - 1
        known = found >= counts.ends - counts.lengths
    return counts.values.take_padded(np.where(known, found, -1)).with_type(call.type)


def _between(call: Call, low: Column, high: Column, share: Values) -> Column:
    """Return the value so far above ``low`` in the direction of ``high``."""
    if types.is_decimal(low.type):
        return _middle(call, low, high)
    first, second = (column.numbers.astype(np.float64) for column in (low, high))
    with np.errstate(all="ignore"):
        # Of equal values (infinities among them) no difference is taken.
        distance = np.where(first == second, 0.0, (second - first) * share)
        apart = np.isinf(distance) & np.isfinite(first) & np.isfinite(second)
        result = np.where(apart, first * (1 - share) + second * share, first + distance)
        result = np.where(share == 0, first, result)
        dtype = call.type.to_pandas_dtype()
        return Column(call.type, result.astype(dtype), low.valid)


def _middle(call: Call, low: Column, high: Column) -> Column:
    """Return the mean of two decimals: exact where the type has a digit more, else rounded half away from zero."""
    more = scale_of(call.type) - scale_of(low.type)
    valid = low.validity()
    narrow = low.array is None and high.array is None
    if more and narrow and within(low.interval(), NARROW_SUM) and within(high.interval(), NARROW_SUM):
        total = low.numbers.astype(np.int64) + high.numbers.astype(np.int64)
        return Column(call.type, total * 5, valid)
    (first, _), (second, _) = to_integers(low), to_integers(high)
    halve: Callable[[int], int] = (lambda total: total * 5) if more else (lambda total: divide_rounded(total, 2))
    result = np.empty(len(first), object)
    result[:] = [halve(int(total)) for total in first + second]
    return from_integers(result, valid, call.type, call)
