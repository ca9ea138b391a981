"""What a whole column looks like, guessed from the statistics of its units."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hybridq.plan.statistics import ColumnStatistics, ColumnSummary
from hybridq.types import is_decimal, is_floating, is_integer

if TYPE_CHECKING:
    from hybridq.catalog import Unit

REPEATING_SHARE = 0.8
"""Distinct values a row of one unit from which on nothing is concluded about other units."""


def summarize(units: Sequence[Unit], source: str, data_type: pa.DataType) -> ColumnSummary:
    """Summarize a column over all units of a table."""
    rows = sum(unit.rows for unit in units)
    found = [unit.statistics(source) for unit in units]
    known = [item for item in found if item is not None]
    nulls: int | None = None
    if len(known) == len(found) and all(item.null_count is not None for item in known):
        nulls = sum(item.null_count or 0 for item in known)
    bounded = [item for item in known if item.minimum is not None]
    minimum = maximum = None
    if bounded and all(item is not None and (item.minimum is not None or item.all_null) for item in found):
        minimum, maximum = min(item.minimum for item in bounded), max(item.maximum for item in bounded)
    if len(known) == len(found) and all(item.all_null or _is_one_value(item) for item in known):
        distinct: float | None = float(len({item.minimum for item in bounded}))
    else:
        distinct = _estimate_distinct(units, source, data_type, bounded, rows - (nulls or 0))
    return ColumnSummary(minimum, maximum, nulls, distinct)


def _is_one_value(item: ColumnStatistics) -> bool:
    return item.minimum is not None and item.minimum == item.maximum


def value_range(data_type: pa.DataType, minimum: Any, maximum: Any) -> float | None:
    """Return how many values of a type lie between two bounds, both included; ``None`` where that says nothing.

    >>> import decimal
    >>> value_range(pa.decimal128(15, 2), decimal.Decimal("0.00"), decimal.Decimal("0.10"))
    11.0
    """
    if minimum is None or maximum is None:
        return None
    if is_integer(data_type):
        return float(maximum - minimum + 1)
    if is_decimal(data_type):
        return float((maximum - minimum).scaleb(data_type.scale)) + 1
    if pa.types.is_date(data_type):
        return float((maximum - minimum).days + 1)
    if pa.types.is_boolean(data_type):
        return float(int(maximum) - int(minimum) + 1)
    return 1.0 if minimum == maximum and not is_floating(data_type) else None


def _estimate_distinct(
    units: Sequence[Unit], source: str, data_type: pa.DataType, bounds: list[ColumnStatistics], rows: int
) -> float | None:
    """Guess the number of distinct values from value ranges and from the sizes of dictionaries."""
    if not units or rows <= 0:
        return 0.0
    limits = [float(rows)]
    if bounds:
        lowest, highest = min(item.minimum for item in bounds), max(item.maximum for item in bounds)
        span = value_range(data_type, lowest, highest)
        if span is not None:
            limits.append(span)
    sampled = [units[0], units[len(units) // 2], units[-1]]
    share, largest = 0.0, 0.0
    for unit in sampled:
        entries = unit.dictionary_entries(source)
        if entries is None:
            # Nothing cheap is known of an array but its bounds; texts are taken to repeat somewhat.
            return min(limits) if len(limits) > 1 else max(rows / 2, 1.0)
        share = max(share, entries / unit.rows)
        largest = max(largest, entries)
    if len(units) == 1:
        limits.append(largest)
    elif share < 0.5 and _disjoint(bounds):
        # Row groups in key order: each has its own values.
        limits.append(share * rows)
    elif share < REPEATING_SHARE:
        limits.append(_values_behind(largest, largest / share))
    return max(float(round(min(limits))), 1.0)


def _values_behind(seen: float, drawn: float) -> float:
    """Return how many values there are, all as frequent, when ``drawn`` rows show ``seen`` different ones."""
    low, high = seen, drawn * 10
    for _ in range(40):
        middle = (low + high) / 2
        if middle * -math.expm1(-drawn / middle) < seen:
            low = middle
        else:
            high = middle
    return high


def _disjoint(bounds: list[ColumnStatistics]) -> bool:
    """Tell whether the ranges, sorted, hardly overlap (neighbours may share a value)."""
    ordered = sorted(((item.minimum, item.maximum) for item in bounds), key=lambda pair: pair[0])
    return all(left[1] <= right[0] for left, right in itertools.pairwise(ordered))
