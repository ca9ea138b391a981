"""A stage on imagined devices: the pull policy decides, time is only counted."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hybridq.placement.cost import PullPolicy

Speed = Callable[[float, int], float]
"""Seconds that a chunk begun at some time, of so many rows, takes one slot."""


@dataclass
class Outcome:
    """What came of it: when the last chunk ended, and each chunk's (kind, rows, begin, end), by end."""

    makespan: float = 0.0
    chunks: list[tuple[str, int, float, float]] = field(default_factory=list)

    def rows(self, kind: str) -> int:
        return sum(rows for each, rows, _, _ in self.chunks if each == kind)

    def idle_at_end(self) -> float:
        """Seconds between the ends of the first and the last kind to finish."""
        last = {kind: end for kind, _, _, end in self.chunks}
        return max(last.values()) - min(last.values())


def simulate(
    policy: PullPolicy, slots: Mapping[str, int], rows: int, speeds: Mapping[str, Speed], unit: int = 1, window: int = 2
) -> Outcome:
    """Hand out chunks as the driver does: whenever one has finished, up to a window for each kind.

    Chunks are whole units; Dask spreads those of a kind evenly over its slots.
    """
    outcome = Outcome()
    remaining, now = rows, 0.0
    free = {kind: [0.0] * count for kind, count in slots.items()}
    in_flight: dict[str, list[tuple[int, float]]] = {kind: [] for kind in slots}
    ends: list[tuple[float, int, str, int, float]] = []
    serial = 0
    while True:
        took = True
        while took and remaining:
            took = False
            for kind in policy.takers:
                if not remaining or len(in_flight[kind]) >= policy.window(kind, window):
                    continue
                flying = {
                    each: sum(policy.rows_left(each, size, max(now - begin, 0.0)) for size, begin in chunks)
                    for each, chunks in in_flight.items()
                    if chunks
                }
                wanted = policy.rows_for(kind, remaining, flying)
                if wanted is None:
                    continue
                size = min(max(round(wanted / unit), 1) * unit, remaining)
                remaining -= size
                slot = min(range(policy.working(kind)), key=free[kind].__getitem__)
                begin = max(now, free[kind][slot])
                in_flight[kind].append((size, begin))
                free[kind][slot] = begin + speeds[kind](begin, size)
                serial += 1
                heapq.heappush(ends, (free[kind][slot], serial, kind, size, begin))
                took = True
        if not ends:
            assert not remaining, f"{remaining} rows that nobody takes"
            outcome.makespan = now
            return outcome
        now, _, kind, size, begin = heapq.heappop(ends)
        in_flight[kind].remove((size, begin))
        policy.observe(kind, size, now - begin)
        outcome.chunks.append((kind, size, begin, now))


def steady(seconds_per_row: float, latency: float = 0.0) -> Speed:
    return lambda begin, rows: latency + rows * seconds_per_row
