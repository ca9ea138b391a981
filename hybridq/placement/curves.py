"""Seconds as a function of size: never falling, never negative, safe to read outside of what was measured."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

LEAST_SECONDS = 1e-9
"""No curve goes lower."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds over sizes.

    Between two points it is a straight line in logarithms, so that it may rise by decades. Above the last point it goes
    on with the slope of the last segment, below the first it keeps to the line through the first two points as long as
    that is positive: a latency and a slope. Polynomials and splines through the same points turn negative where nothing
    was measured, and then the slower device looks free.

    Attributes
    ----------
    points : tuple of (size, seconds)
        By size, seconds not falling; at least one, sizes and seconds above 0.
    """

    points: tuple[tuple[float, float], ...]

    @classmethod
    def fit(cls, samples: Iterable[tuple[float, float]]) -> Curve:
        """Make a curve of samples: where seconds fall with size, neighbours are pooled.

        Raises
        ------
        ValueError
            There is no sample of a positive size.

        >>> Curve.fit([(10, 1.0), (20, 3.0), (40, 2.0)]).points
        ((10.0, 1.0), (20.0, 2.449...), (40.0, 2.449...))
        """
        by_size: dict[float, list[float]] = {}
        for size, seconds in samples:
            if size > 0 and math.isfinite(size) and math.isfinite(seconds):
                by_size.setdefault(float(size), []).append(math.log(max(seconds, LEAST_SECONDS)))
        if not by_size:
            raise ValueError("a curve needs at least one sample of a positive size")
        sizes = sorted(by_size)
        level = _not_falling([(sum(by_size[size]) / len(by_size[size]), len(by_size[size])) for size in sizes])
        return cls(tuple((size, math.exp(value)) for size, value in zip(sizes, level, strict=True)))

    def at(self, size: float) -> float:
        """Return the seconds for a size; at least ``LEAST_SECONDS``."""
        if size <= self.points[0][0]:
            return max(self._before(size), LEAST_SECONDS)
        largest, seconds = self.points[-1]
        if size >= largest:
            return seconds + (size - largest) * self.last_slope
        place = bisect.bisect_right(self.points, size, key=_size)
        (left, low), (right, high) = self.points[place - 1], self.points[place]
        share = math.log(size / left) / math.log(right / left)
        return float(low * (high / low) ** share)

    @property
    def last_slope(self) -> float:
        """Return seconds for each further unit of size above the last point."""
        size, seconds = self.points[-1]
        if len(self.points) == 1:
            return seconds / size
        before, earlier = self.points[-2]
        slope = (seconds - earlier) / (size - before)
        # A flat end is mostly noise: a whole more of the size costs at least half as much again.
        return max(slope, seconds / size / 2)

    def scaled(self, factor: float) -> Curve:
        """Return the curve with all seconds multiplied."""
        return Curve(tuple((size, seconds * factor) for size, seconds in self.points))

    def _before(self, size: float) -> float:
        first, seconds = self.points[0]
        if len(self.points) == 1:
            return seconds * size / first
        second, later = self.points[1]
        slope = min((later - seconds) / (second - first), seconds / first)
        return seconds - (first - size) * slope


def _size(point: tuple[float, float]) -> float:
    return point[0]


def _not_falling(levels: Sequence[tuple[float, int]]) -> list[float]:
    """Return the closest values that never fall (pool adjacent violators); each level comes with its weight."""
    pools: list[tuple[float, int, int]] = []
    for value, weight in levels:
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (low, low_weight, low_count), (high, high_weight, high_count) = pools.pop(), pools.pop()
            total = low_weight + high_weight
            pools.append(((low * low_weight + high * high_weight) / total, total, low_count + high_count))
    return [value for value, _, count in pools for _ in range(count)]


def break_even(first: Sequence[tuple[float, float]], second: Sequence[tuple[float, float]]) -> float | None:
    """Return the smallest size from which the second of two time series is no slower; ``None`` if there is none.

    Parameters
    ----------
    first, second : sequence of (size, seconds)
        Of the same sizes, in order.
    """
    gaps = [(size, slow - fast) for (size, slow), (_, fast) in zip(first, second, strict=True)]
    if not gaps or gaps[-1][1] < 0:
        return None
    found = gaps[0][0]
    for (before, lost), (after, won) in pairwise(gaps):
        if lost < 0 <= won:
            found = before + (after - before) * lost / (lost - won)
    return found
