"""Medians and quantiles by counting: each group's values with the number of their rows, ascending."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pyarrow as pa

from hybridq import types
from hybridq.engines.column import Column, Indices, Values, within
from hybridq.engines.decimals import divide_rounded, from_integers, scale_of, to_integers
from hybridq.engines.grouped import GroupedRows, fields_of, list_lengths, lists_of, struct_of
from hybridq.plan.expressions import Call, SortKey
from hybridq.plan.expressions import Column as ColumnReference

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


def quantile(call: Call, operands: list[Column]) -> Column:
    """Return a quantile of each tally; NULL of an empty one.

    Options are what to do between two values (``middle`` and ``interpolated``, or ``picked``: take the first value that
    at least the fraction of all rows is not above), and the fraction.
    """
    array = operands[0].array
    assert array is not None
    kind, text = call.options
    fraction = Fraction(text)
    columns = fields_of(array.flatten())
    values, counts = columns[0], columns[1].numbers
    until = np.cumsum(counts, dtype=np.int64)
    ends = np.cumsum(list_lengths(array))
    reached = np.concatenate(([0], until))[ends]
    before = np.concatenate(([0], reached[:-1]))
    totals = reached - before
    some = totals > 0

    def at(positions: Indices) -> Column:
        found = np.searchsorted(until, before + positions, side="right")
        return values.take_padded(np.where(some, found, -1))

    above, below = fraction.numerator, fraction.denominator
    exact = totals if int(totals.max(initial=0)) * below < 2**62 else totals.astype(object)
    if kind == "picked":
        rank = -((-exact * above) // below)
        return at(np.maximum(rank.astype(np.int64) - 1, 0)).with_type(call.type)
    scaled = np.maximum(exact - 1, 0) * above
    lower, rest = (scaled // below).astype(np.int64), scaled % below
    share = (rest / below).astype(np.float64)
    return _between(call, at(lower), at(lower + (share > 0)), share)


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
