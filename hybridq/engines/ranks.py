"""Integers that are in the order of a column's values."""

from __future__ import annotations

import numpy as np

from hybridq.engines.column import Column, Indices, Values
from hybridq.engines.grouping import float_bits
from hybridq.engines.lists import ranked


def ascending(column: Column) -> tuple[Indices, int, int]:
    """Return integers in the order of a column's values, and their range."""
    if column.array is not None or column.dictionary is not None:
        ranks, distinct = ranked(column)
        return ranks, 0, max(len(distinct) - 1, 0)
    values = column.numbers
    if values.dtype.kind == "f":
        bits = float_bits(values)
        # Negative floats order backwards by their bits.
        ordered = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
        return ordered, *_range(ordered)
    if values.dtype == np.uint64:
        ordered = (values ^ np.uint64(2**63)).view(np.int64)
        return ordered, *_range(ordered)
    low, high = column.interval()
    return values.astype(np.int64), low, high


def _range(values: Values) -> tuple[int, int]:
    return (int(values.min()), int(values.max())) if len(values) else (0, 0)
