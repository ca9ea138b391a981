"""Sorting: keys become integers whose order is the wanted one; integers sort fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hybridq.engines.column import Column, Indices
from hybridq.engines.evaluate import evaluate_frame
from hybridq.engines.frame import CpuFrame
from hybridq.engines.ranks import ascending
from hybridq.plan.expressions import SortKey

BITS = 63
RUNS = 64
"""Descents in a column up to which it counts as a few sorted runs, which merge faster than they sort."""


@dataclass(frozen=True, slots=True)
class OrderedKey:
    """A sort key as integers.

    Attributes
    ----------
    values : array of int64
        Ascending in the wanted order; NULLs are in their place.
    low, high : int
        Range of the values.
    """

    values: Indices
    low: int
    high: int


def ordered_keys(frame: CpuFrame, keys: Sequence[SortKey]) -> list[OrderedKey]:
    """Return the sort keys of a compact frame, most significant first; a key whose NULLs need room becomes two."""
    columns = evaluate_frame(frame, [key.expression for key in keys])
    found: list[OrderedKey] = []
    for key, column in zip(keys, columns, strict=True):
        found += _ordered(column, key)
    return found


def _ordered(column: Column, key: SortKey) -> list[OrderedKey]:
    values, low, high = ascending(column)
    if key.descending:
        values, low, high = ~values, ~high, ~low
    valid = column.validity()
    if valid is None or valid.all():
        return [OrderedKey(values, low, high)]
    if high - low < 2**62:
        shifted = np.where(valid, values - low + 1, 0 if key.nulls_first else high - low + 2)
        return [OrderedKey(shifted, 0, high - low + 2)]
    nulls = (valid if key.nulls_first else ~valid).astype(np.int64)
    return [OrderedKey(nulls, 0, 1), OrderedKey(np.where(valid, values, 0), min(low, 0), max(high, 0))]


def combined(keys: Sequence[OrderedKey]) -> tuple[list[Indices], list[int]]:
    """Put neighbouring keys into one integer while they fit; returns the integers and the bits of each."""
    found: list[Indices] = []
    bits: list[int] = []
    for key in keys:
        own = (key.high - key.low).bit_length()
        if own >= BITS:
            # Too wide to shift down to zero: it stands alone.
            found.append(key.values)
            bits.append(64)
            continue
        values = key.values - key.low
        if found and bits[-1] + own <= BITS:
            found[-1] = (found[-1] << own) | values
            bits[-1] += own
        else:
            found.append(values)
            bits.append(own)
    return found, bits


def order_of(columns: Sequence[Column], keys: Sequence[SortKey]) -> Indices:
    """Return the stable order of rows by columns, in the directions of the keys (whose expressions do not matter)."""
    ordered = [part for column, key in zip(columns, keys, strict=True) for part in _ordered(column, key)]
    return stable_order(*combined(ordered), columns[0].rows)


def runs_of(columns: Sequence[Column], keys: Sequence[SortKey]) -> tuple[Indices, Indices]:
    """Return the stable order of rows as ``order_of`` does, and where in it each run of equal rows begins."""
    ordered = [part for column, key in zip(columns, keys, strict=True) for part in _ordered(column, key)]
    integers, bits = combined(ordered)
    rows = columns[0].rows
    order = stable_order(integers, bits, rows)
    new = np.zeros(rows, np.bool_)
    new[:1] = True
    for values in integers:
        sorted_values = values.take(order)
        new[1:] |= sorted_values[1:] != sorted_values[:-1]
    return order, np.flatnonzero(new)


def sort_indices(frame: CpuFrame, keys: Sequence[SortKey]) -> Indices:
    """Return the stable order of a compact frame's rows."""
    columns, bits = combined(ordered_keys(frame, keys))
    return stable_order(columns, bits, frame.stored_rows)


def stable_order(columns: list[Indices], bits: list[int], rows: int) -> Indices:
    """Return the stable order of rows by what ``combined`` gave."""
    if not columns or rows < 2:
        return np.arange(rows)
    if len(columns) > 1:
        return np.lexsort(columns[::-1])
    (values,) = columns
    descents = int(np.count_nonzero(values[1:] < values[:-1]))
    if descents == 0:
        return np.arange(rows)
    index_bits = rows.bit_length()
    if descents > RUNS and bits[0] + index_bits <= BITS:
        # NumPy sorts integers far faster than it argsorts: sort value and position as one.
        pairs = (values << index_bits) | np.arange(rows)
        pairs.sort()
        return pairs & ((1 << index_bits) - 1)
    # NumPy's stable sort merges runs that are in order already.
    return np.argsort(values, kind="stable")


def top_indices(frame: CpuFrame, keys: Sequence[SortKey], count: int) -> Indices:
    """Return the first ``count`` rows of a compact frame in order; among ties, earlier rows first."""
    columns, bits = combined(ordered_keys(frame, keys))
    rows = frame.stored_rows
    if count <= 0:
        return np.zeros(0, np.int64)
    if not columns or count * 2 >= rows:
        return stable_order(columns, bits, rows)[:count]
    # Rows past the count-th smallest value of the first integer cannot be among the first.
    first = columns[0]
    limit = np.partition(first, count - 1)[count - 1]
    candidates = np.flatnonzero(first <= limit)
    chosen = [column.take(candidates) for column in columns]
    return candidates.take(stable_order(chosen, bits, len(candidates))[:count])
