"""What the planner may know about a table's data, as protocols and values that need no data access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Bounds of one column of one unit.

    Attributes
    ----------
    minimum, maximum : object or None
        Every value that is neither NULL nor NaN lies between the two, both included; they need not occur (writers may
        shorten long strings). Python values of the column's type: ``int``, ``float``, ``decimal.Decimal``, ``str``,
        ``bytes``, ``bool``, ``datetime.date`` and so on. ``None``: not known, or there is no such value.
    null_count : int or None
        Number of NULLs; ``None``: not known.
    rows : int
        Number of values, NULLs included.
    """

    minimum: Any
    maximum: Any
    null_count: int | None
    rows: int

    @property
    def all_null(self) -> bool:
        """Tell whether it is certain that every value is NULL."""
        return self.null_count is not None and self.null_count >= self.rows


@dataclass(frozen=True, slots=True, eq=False)
class UnitBounds:
    """Bounds of one column in every unit of a table.

    Thousands of units often have the same few bounds: each of these stands here once.

    Attributes
    ----------
    low, high : array of object
        As ``ColumnStatistics.minimum`` and ``maximum``.
    null : array of bool
        There may be NULLs.
    never : array of bool
        It is certain that every value is NULL.
    units : array of int
        Which of them each unit has.
    """

    low: npt.NDArray[np.object_]
    high: npt.NDArray[np.object_]
    null: npt.NDArray[np.bool_]
    never: npt.NDArray[np.bool_]
    units: npt.NDArray[np.intp]

    @classmethod
    def of(cls, statistics: Sequence[ColumnStatistics | None]) -> UnitBounds:
        """Gather the statistics of units.

        >>> bounds = UnitBounds.of([ColumnStatistics(1, 5, 0, 9), None, ColumnStatistics(1, 5, 0, 8)])
        >>> bounds.low.tolist(), bounds.units.tolist()
        ([1, None], [0, 1, 0])
        """
        found: dict[tuple[object, object, bool, bool], int] = {}
        units = np.empty(len(statistics), np.intp)
        for position, item in enumerate(statistics):
            bounds: tuple[object, object, bool, bool] = (None, None, True, False)
            if item is not None:
                bounds = (item.minimum, item.maximum, item.null_count != 0, item.all_null)
            units[position] = found.setdefault(bounds, len(found))
        low, high = np.empty(len(found), object), np.empty(len(found), object)
        null, never = np.empty(len(found), np.bool_), np.empty(len(found), np.bool_)
        for position, bounds in enumerate(found):
            low[position], high[position], null[position], never[position] = bounds
        return cls(low, high, null, never, units)


IntegerBounds = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""The lowest and the highest value of a column of integers, one array element a unit."""


def integer_bounds(statistics: Sequence[ColumnStatistics | None]) -> IntegerBounds | None:
    """Gather the bounds of a column of integers; ``None`` where a unit has none, or a value is past an int64.

    >>> bounds = integer_bounds([ColumnStatistics(1, 5, 0, 9), ColumnStatistics(4, 9, 0, 9)])
    >>> bounds[0].tolist(), bounds[1].tolist()
    ([1, 4], [5, 9])
    """
    low, high = [], []
    for item in statistics:
        if item is None or not isinstance(item.minimum, int) or not isinstance(item.maximum, int):
            return None
        if item.maximum > np.iinfo(np.int64).max:  # of a uint64
            return None
        low.append(item.minimum)
        high.append(item.maximum)
    return np.array(low, np.int64), np.array(high, np.int64)


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """What is known or guessed of one column of a whole table.

    Attributes
    ----------
    minimum, maximum : object or None
        As in ``ColumnStatistics``; ``None`` unless every unit has them (units of NULLs alone aside).
    null_count : int or None
    distinct : float or None
        Estimated number of distinct values; ``None``: no idea.
    """

    minimum: Any
    maximum: Any
    null_count: int | None
    distinct: float | None


class TableStatistics(Protocol):
    """A table as the estimator sees it. ``hybridq.catalog.Table`` is one."""

    @property
    def rows(self) -> int:
        """Return the number of rows."""

    def summary(self, source: str) -> ColumnSummary | None:
        """Return what is known of a column; ``None`` for nothing. Cheap after the first call."""

    def column_bytes(self, source: str) -> int:
        """Return the uncompressed bytes of a column."""
