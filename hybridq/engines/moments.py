"""Variances, covariances and regressions, from states that merge without loss.

A state is the number of values, a *pivot* (one of the values), the mean above the pivot, and the sum of squared
deviations from the mean; of two variables also the sum of the products of their deviations. Sums of squares are never
subtracted from each other: what states have in common is merged as Chan, Golub and LeVeque (1979) do. Since a pivot is
one of the values, differences from it are exact where all values are close together, and a constant column has a
variance of exactly 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hybridq.engines.column import Column, Indices, Mask
from hybridq.engines.grouped import GroupedRows, fields_of, struct_of
from hybridq.plan.expressions import Call

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Spread:
    """A variable's pivot and mean above it, by group, and each row's deviation from the mean."""

    pivot: Reals
    mean: Reals
    deviations: Reals


def moments(rows: GroupedRows) -> Column:
    """Return the state of each group's values."""
    return _from_rows(rows)


def comoments(rows: GroupedRows) -> Column:
    """Return the state of each group's pairs of values; a pair with a NULL does not count."""
    return _from_rows(rows)


def merge_moments(rows: GroupedRows) -> Column:
    """Merge states of one variable."""
    count, pivot, mean, m2 = _fields(rows)
    part = _Part(rows, count.astype(np.int64))
    spread = part.spread(pivot, mean)
    return part.state([spread.pivot, spread.mean, part.products(spread, spread, m2)])


def merge_comoments(rows: GroupedRows) -> Column:
    """Merge states of two variables."""
    count, *first, c = _fields(rows)
    part = _Part(rows, count.astype(np.int64))
    y, x = part.spread(first[0], first[1]), part.spread(first[3], first[4])
    return part.state(
        [
            y.pivot, y.mean, part.products(y, y, first[2]),
            x.pivot, x.mean, part.products(x, x, first[5]),
            part.products(y, x, c),
        ]
    )  # fmt: skip


def _from_rows(rows: GroupedRows) -> Column:
    rows = rows.known()
    values = [column.numbers.astype(np.float64) for column in rows.columns]
    part = _Part(rows, None)
    spreads = [part.spread(value, None) for value in values]
    parts: list[Reals] = []
    for spread in spreads:
        parts += [spread.pivot, spread.mean, part.products(spread, spread, None)]
    if len(spreads) == 2:
        parts.append(part.products(spreads[0], spreads[1], None))
    return part.state(parts)


class _Part:
    """Sums over the rows of each group; a row may stand for several values."""

    def __init__(self, rows: GroupedRows, weights: Indices | None) -> None:
        self._rows = rows
        if weights is not None:
            # States of nothing have no pivot.
            self._kept: Indices = np.flatnonzero(weights)
            weights = weights[self._kept]
            self._codes = rows.codes[self._kept]
        else:
            self._kept = np.arange(len(rows.codes))
            self._codes = rows.codes
        self._weights = weights
        if weights is None:
            self.count = np.bincount(self._codes, minlength=rows.groups).astype(np.int64)
        else:
            self.count = np.zeros(rows.groups, np.int64)
            np.add.at(self.count, self._codes, weights)
        self._divisor = np.maximum(self.count, 1).astype(np.float64)

    def _total(self, values: Reals) -> Reals:
        if self._rows.groups == 1:
            # NumPy sums in pairs, which loses less.
            return np.array([values.sum()], np.float64)
        totals: Reals = np.bincount(self._codes, values, self._rows.groups).astype(np.float64, copy=False)
        return totals

    def _weighted(self, values: Reals) -> Reals:
        return values if self._weights is None else values * self._weights

    def spread(self, values: Reals, means: Reals | None) -> _Spread:
        """Return a variable's mean and deviations; with ``means``, values are pivots that these are above."""
        values = values[self._kept]
        pivot = np.zeros(self._rows.groups)
        with np.errstate(all="ignore"):
            pivot[self._codes[::-1]] = values[::-1]
            above = values - pivot[self._codes]
            if means is not None:
                above = above + means[self._kept]
            mean = self._total(self._weighted(above)) / self._divisor
            deviations = above - mean[self._codes]
            # What rounding the mean has left.
            rest = self._total(self._weighted(deviations)) / self._divisor
            return _Spread(pivot, mean + rest, deviations - rest[self._codes])

    def products(self, first: _Spread, second: _Spread, known: Reals | None) -> Reals:
        """Return the sums of products of deviations, those within states included."""
        with np.errstate(all="ignore"):
            total = self._total(self._weighted(first.deviations * second.deviations))
            return total if known is None else total + self._total(known[self._kept])

    def state(self, parts: list[Reals]) -> Column:
        real = pa.float64()
        columns = [Column(pa.int64(), self.count.astype(np.int64)), *(Column(real, part) for part in parts)]
        data_type = self._rows.call.type
        return Column(data_type, array=struct_of(columns, data_type))


def _fields(rows: GroupedRows) -> list[npt.NDArray[np.float64]]:
    """Return the fields of states as arrays; a NULL state is one of no values."""
    array = rows.columns[0].array
    assert array is not None
    return _arrays(fields_of(array))


def _arrays(columns: tuple[Column, ...]) -> list[npt.NDArray[np.float64]]:
    found = []
    for column in columns:
        values = column.numbers
        found.append(values if column.valid is None else np.where(column.valid, values, values.dtype.type(0)))
    return found


# --- final values --------------------------------------------------------------------------------------------------


def moment(call: Call, operands: list[Column]) -> Column:
    """Return a variance or a standard deviation."""
    array = operands[0].array
    assert array is not None
    count, _, _, m2 = _arrays(fields_of(array))
    (name,) = call.options
    with np.errstate(all="ignore"):
        result = m2 / (count - 1 if name.endswith("_samp") else count)
        if name.startswith("stddev"):
            result = np.sqrt(result)
    return _where(result, count > (1 if name.endswith("_samp") else 0))


def comoment(call: Call, operands: list[Column]) -> Column:
    """Return a covariance, the correlation, or a value of the regression of the first variable on the second."""
    array = operands[0].array
    assert array is not None
    parts = _Pairs(*_arrays(fields_of(array)))
    (name,) = call.options
    with np.errstate(all="ignore"):
        result, known = _COMOMENTS[name](parts)
    if name == "regr_count":
        return Column(call.type, result.astype(np.uint64))
    return _where(result, known)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """States of two variables, field by field."""

    count: Reals
    pivot_y: Reals
    mean_y: Reals
    m2_y: Reals
    pivot_x: Reals
    mean_x: Reals
    m2_x: Reals
    c: Reals

    @property
    def any(self) -> Mask:
        return self.count > 0

    @property
    def sloped(self) -> Mask:
        """Tell where the second variable is not constant, so that there is a slope."""
        known: Mask = self.any & (self.m2_x != 0)
        return known

    @property
    def slope(self) -> Reals:
        return self.c / self.m2_x

    @property
    def correlation(self) -> Reals:
        result: Reals = np.clip(self.c / (np.sqrt(self.m2_y) * np.sqrt(self.m2_x)), -1.0, 1.0)
        return result


_COMOMENTS: Mapping[str, Callable[[_Pairs], tuple[Reals, Mask]]] = {
    "covar_pop": lambda p: (p.c / p.count, p.any),
    "covar_samp": lambda p: (p.c / (p.count - 1), p.count > 1),
    # Of a constant there is no correlation.
    "corr": lambda p: (p.correlation, p.sloped & (p.m2_y != 0)),
    "regr_count": lambda p: (p.count, p.any),
    "regr_slope": lambda p: (p.slope, p.sloped),
    "regr_intercept": lambda p: (p.pivot_y + (p.mean_y - p.slope * (p.pivot_x + p.mean_x)), p.sloped),
    "regr_r2": lambda p: (np.where(p.m2_y == 0, 1.0, p.correlation**2), p.sloped),
    "regr_avgy": lambda p: (p.pivot_y + p.mean_y, p.any),
    "regr_avgx": lambda p: (p.pivot_x + p.mean_x, p.any),
    "regr_syy": lambda p: (p.m2_y, p.any),
    "regr_sxx": lambda p: (p.m2_x, p.any),
    "regr_sxy": lambda p: (p.c, p.any),
}


def _where(values: Reals, known: Mask) -> Column:
    return Column(pa.float64(), values, None if known.all() else known)
