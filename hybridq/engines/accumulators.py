"""Accumulators of sums, counts, minima, maxima and bits: one cell a group, filled block by block.

NumPy's ``add.at`` on 64-bit integers takes about 2 ns a row, whatever the number of groups, and is exact as long as the
ranges of the values prove that no cell can overflow. Where they do not, cells are kept as limbs of 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from hybridq import types
from hybridq.engines.arithmetic import type_bounds
from hybridq.engines.column import INT64, Column, Indices, Mask, Values, storage_dtype, within
from hybridq.engines.decimals import from_integers, from_words, to_integers
from hybridq.errors import NumericOverflow
from hybridq.plan.expressions import AggregateCall

LIMB_BITS = 32
LIMB_MASK = (1 << LIMB_BITS) - 1
SIGNED_LIMBS, WIDE_LIMBS = 2, 4


class Accumulator(Protocol):
    """One aggregate over all groups."""

    whole: bool
    """The argument turned out to have a form that only works on all rows at once."""

    def add(self, codes: Indices | None, column: Column) -> None:
        """Take a block: the cell of each row (``None``: the only one) and the argument."""

    def finish(self, present: Indices, counts: Indices) -> Column:
        """Return the results of some cells, given the rows of all cells."""


class _Nulls:
    """NULLs of an argument by cell."""

    def __init__(self, cells: int) -> None:
        self._cells = cells
        self._counts: Indices | None = None

    def add(self, codes: Indices | None, valid: Mask) -> None:
        missing = np.flatnonzero(~valid)
        if len(missing) == 0:
            return
        if self._counts is None:
            self._counts = np.zeros(self._cells + 1, np.int64)
        if codes is None:
            self._counts[0] += len(missing)
        else:
            np.add.at(self._counts, codes[missing], 1)

    def seen(self, present: Indices, counts: Indices) -> Indices:
        """Return the number of values that are not NULL of some cells."""
        return counts[present] if self._counts is None else counts[present] - self._counts[present]


class Sum:
    """SUM, or COUNT of an argument."""

    def __init__(self, call: AggregateCall, cells: int, counts_only: bool = False) -> None:
        self.whole = False
        self._call = call
        self._cells = cells
        self._nulls = _Nulls(cells)
        self._counts_only = counts_only
        self._floating = types.is_floating(call.type)
        self._totals: Values = np.zeros(cells + 1, np.float64 if self._floating else np.int64)
        # Largest size that a cell of ``_totals`` can have by now.
        self._extent = 0
        self._limbs: list[Indices] | None = None

    def add(self, codes: Indices | None, column: Column) -> None:
        valid = column.validity()
        if valid is not None:
            self._nulls.add(codes, valid)
        if self._counts_only:
            return
        if self._floating:
            self._add_floats(codes, column, valid)
        elif column.array is not None or column.numbers.dtype == np.uint64:
            self._add_wide(codes, column)
        else:
            self._add_integers(codes, column, valid)

    def _add_floats(self, codes: Indices | None, column: Column, valid: Mask | None) -> None:
        values = column.numbers.astype(np.float64, copy=False)
        if valid is not None:
            values = np.where(valid, values, 0.0)
        with np.errstate(all="ignore"):
            _accumulate(self._totals, codes, values)

    def _add_integers(self, codes: Indices | None, column: Column, valid: Mask | None) -> None:
        low, high = column.interval()
        values = column.numbers
        if valid is not None:
            values = np.where(valid, values, values.dtype.type(0))
        if values.dtype != np.int64:
            values = values.astype(np.int64)
        self._extent += max(abs(low), abs(high)) * len(values)
        if self._limbs is None and self._extent > INT64[1]:
            self._limbs = _split(self._totals, SIGNED_LIMBS)
        if self._limbs is None:
            _accumulate(self._totals, codes, values)
            return
        if len(self._limbs) == SIGNED_LIMBS:
            _accumulate(self._limbs[0], codes, values & LIMB_MASK)
            _accumulate(self._limbs[1], codes, values >> LIMB_BITS)
        else:
            self._add_words(codes, values.view(np.uint64), values >> 63)

    def _add_wide(self, codes: Indices | None, column: Column) -> None:
        if self._limbs is None:
            self._limbs = _split(self._totals, WIDE_LIMBS)
        elif len(self._limbs) == SIGNED_LIMBS:
            # The upper limb of a pair becomes three: its own 32 bits and its sign.
            low, high = self._limbs
            self._limbs = [low, high & LIMB_MASK, (high >> LIMB_BITS) & LIMB_MASK, high >> 63]
        if column.array is None:
            values = column.numbers if column.valid is None else np.where(column.valid, column.numbers, np.uint64(0))
            self._add_words(codes, values, np.zeros(len(values), np.int64))
            return
        integers, _ = to_integers(column)
        low = (integers & (2**64 - 1)).astype(np.uint64)
        high = (integers >> 64).astype(np.int64)
        self._add_words(codes, low, high)

    def _add_words(self, codes: Indices | None, low: Values, high: Values) -> None:
        assert self._limbs is not None
        mask = np.uint64(LIMB_MASK)
        _accumulate(self._limbs[0], codes, (low & mask).astype(np.int64))
        _accumulate(self._limbs[1], codes, (low >> np.uint64(LIMB_BITS)).astype(np.int64))
        _accumulate(self._limbs[2], codes, high & LIMB_MASK)
        _accumulate(self._limbs[3], codes, high >> LIMB_BITS)

    def finish(self, present: Indices, counts: Indices) -> Column:
        data_type = self._call.type
        seen = self._nulls.seen(present, counts)
        if self._counts_only:
            return Column(data_type, seen.astype(np.int64))
        valid = None if seen.all() else seen > 0
        if self._floating:
            return Column(data_type, self._totals[present].astype(storage_dtype(data_type), copy=False), valid)
        if self._limbs is None:
            return sum_of_integers(self._totals[present], valid, self._call)
        return sum_of_limbs([limb[present] for limb in self._limbs], valid, self._call)


def sum_of_integers(totals: Values, valid: Mask | None, call: AggregateCall) -> Column:
    """Turn exact sums into a column of the call's type.

    Raises
    ------
    NumericOverflow
        One does not fit it.
    """
    if types.is_decimal(call.type) and totals.dtype != object:
        return Column(call.type, totals, valid)
    if types.is_decimal(call.type):
        return from_integers(totals, valid, call.type, call)
    bounds = (int(totals.min()), int(totals.max())) if len(totals) else (0, 0)
    if not within(bounds, type_bounds(call.type)):
        raise NumericOverflow(f"{call} does not fit {call.type}: cast the argument to DECIMAL or DOUBLE")
    return Column(call.type, totals.astype(storage_dtype(call.type)), valid, bounds=bounds)


def sum_of_limbs(limbs: list[Indices], valid: Mask | None, call: AggregateCall) -> Column:
    """Turn exact sums, cut into limbs of 32 bits with the least significant first, into a column of the call's type."""
    if len(limbs) == SIGNED_LIMBS and types.is_decimal(call.type):
        low, high = limbs
        high = high + (low >> LIMB_BITS)
        words = np.empty((len(low), 2), np.uint64)
        words[:, 0] = (high.view(np.uint64) << np.uint64(LIMB_BITS)) | (low & LIMB_MASK).view(np.uint64)
        words[:, 1] = (high >> LIMB_BITS).view(np.uint64)
        return from_words(words, valid, call.type)
    totals = np.zeros(len(limbs[0]), object)
    for index, limb in enumerate(limbs):
        totals += limb.astype(object) << (LIMB_BITS * index)
    return sum_of_integers(totals, valid, call)


def _split(totals: Indices, limbs: int) -> list[Indices]:
    """Cut sums into limbs, least significant first; the last keeps the sign."""
    if limbs == SIGNED_LIMBS:
        return [totals & LIMB_MASK, totals >> LIMB_BITS]
    sign = totals >> 63
    return [totals & LIMB_MASK, (totals >> LIMB_BITS) & LIMB_MASK, sign & LIMB_MASK, sign]


def _accumulate(totals: Values, codes: Indices | None, values: Values) -> None:
    if codes is None:
        totals[0] += values.sum()
    else:
        np.add.at(totals, codes, values)


_BITWISE: Mapping[str, tuple[np.ufunc, int]] = {
    "bit_and": (np.bitwise_and, -1),
    "bit_or": (np.bitwise_or, 0),
    "bit_xor": (np.bitwise_xor, 0),
}
"""Functions of bits, and what they begin with: -1 has all bits set."""


class Fold:
    """MIN and MAX of numbers, dates, times and booleans (NaN is above all numbers), and functions of integers' bits."""

    def __init__(self, call: AggregateCall, cells: int) -> None:
        self.whole = False
        self._call = call
        self._nulls = _Nulls(cells)
        dtype = storage_dtype(call.type)
        assert dtype is not None
        smallest = call.function == "min"
        start: float
        self._function: np.ufunc
        if call.function in _BITWISE:
            self._function, first = _BITWISE[call.function]
            start = int(np.array(first).astype(dtype))
        elif dtype.kind == "f":
            # fmin leaves a NaN only where there is nothing else; maximum keeps any.
            self._function, start = (np.fmin, np.nan) if smallest else (np.maximum, -np.inf)
        elif dtype.kind == "b":
            self._function, start = (np.minimum, 1) if smallest else (np.maximum, 0)
        else:
            info = np.iinfo(dtype)
            self._function, start = (np.minimum, info.max) if smallest else (np.maximum, info.min)
        self._best = np.full(cells + 1, start, dtype)

    def add(self, codes: Indices | None, column: Column) -> None:
        if column.array is not None:
            self.whole = True
            return
        values, valid = column.numbers, column.valid
        if valid is not None:
            self._nulls.add(codes, valid)
            kept = np.flatnonzero(valid)
            values = values.take(kept)
            codes = None if codes is None else codes.take(kept)
        if values.dtype.kind == "f":
            values = values + values.dtype.type(0)  # no negative zero
        if codes is not None:
            with np.errstate(invalid="ignore"):
                self._function.at(self._best, codes, values)
        elif len(values):
            with np.errstate(invalid="ignore"):
                self._best[0] = self._function(self._best[0], self._function.reduce(values))

    def finish(self, present: Indices, counts: Indices) -> Column:
        seen = self._nulls.seen(present, counts)
        return Column(self._call.type, self._best[present], None if seen.all() else seen > 0)
