"""A stage on imagined devices: the pull policy decides, time is only counted."""

from __future__ import annotations

import math
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
    given_up: int = 0

    def rows(self, kind: str) -> int:
        return sum(rows for each, rows, _, _ in self.chunks if each == kind)

    def idle_at_end(self) -> float:
        """Seconds between the ends of the first and the last kind to finish."""
        last = {kind: end for kind, _, _, end in self.chunks}
        return max(last.values()) - min(last.values())


LOOK_SECONDS = 0.05
"""How often it is looked whether chunks are late, as the driver does."""


@dataclass
class Running:
    """A chunk that is out: queued until a slot begins it."""

    kind: str
    rows: int
    begin: float = math.inf
    end: float = math.inf
    waits: float = 0.0


def simulate(
    policy: PullPolicy,
    slots: Mapping[str, int],
    rows: int,
    speeds: Mapping[str, Speed],
    unit: int = 1,
    window: int = 2,
    entry: Mapping[str, float] | None = None,
) -> Outcome:
    """Hand out chunks as the driver does: whenever one has finished, up to a window for each kind.

    Chunks are whole units; those of a kind wait in one queue for its slots. Late ones go to the other kind, in pieces;
    a slot goes on with one that it has begun, for nothing. Before a kind's first chunk its slot waits for what is
    brought there (``entry``), which is not a part of what the chunk itself takes.
    """
    brought: set[str] = set()
    outcome = Outcome()
    remaining, now, last_done = rows, 0.0, 0.0
    free = {kind: [0.0] * count for kind, count in slots.items()}
    running: list[Running] = []
    waiting: list[tuple[str, int]] = []
    moved_from: str | None = None

    def flying() -> dict[str, int]:
        found: dict[str, int] = {}
        for each in running:
            begun = each.begin <= now
            left = policy.rows_left(each.kind, each.rows, now - each.begin) if begun else each.rows
            found[each.kind] = found.get(each.kind, 0) + left
        return found

    def begin_queued() -> None:
        for each in running:
            ends = free[each.kind]
            slot = min(range(len(ends)), key=ends.__getitem__)
            at_work = sum(other.kind == each.kind and other.begin <= now for other in running)
            if each.begin == math.inf and ends[slot] <= now and at_work < max(policy.working(each.kind), 1):
                each.waits = 0.0 if each.kind in brought else (entry or {}).get(each.kind, 0.0)
                brought.add(each.kind)
                each.begin, each.end = now, now + each.waits + speeds[each.kind](now, each.rows)
                free[each.kind][slot] = each.end

    def hand_out(kind: str, size: int) -> None:
        running.append(Running(kind, size))
        begin_queued()

    def has_room(kind: str) -> bool:
        return sum(each.kind == kind for each in running) < max(policy.window(kind, window), 1)

    def late() -> Running | None:
        busy = flying()
        for kind, size in waiting:
            busy[kind] = busy.get(kind, 0) + size
        for each in reversed(running):
            if moved_from not in (None, each.kind):
                continue
            before = remaining + sum(size for kind, size in busy.items() if kind != each.kind)
            elapsed = max(now - each.begin, 0.0)
            if policy.is_late(each.kind, each.rows, elapsed, before):
                return each
            alone = remaining + len(waiting) == 0 and len(busy) == 1
            if alone and elapsed and policy.holds_up(each.kind, each.rows, now - max(last_done, each.begin)):
                return each
        return None

    def move_late() -> bool:
        nonlocal moved_from
        found = False
        while (given_up := late()) is not None:
            running.remove(given_up)
            moved_from, found = given_up.kind, True
            other = policy.replacement(given_up.kind)
            policy.give_up(given_up.kind, given_up.rows, max(now - given_up.begin, 0.0))
            piece = policy._limits[other]
            waiting.extend((other, min(piece, given_up.rows - at)) for at in range(0, given_up.rows, piece))
            outcome.given_up += 1
        return found

    while True:
        begin_queued()
        policy.call_in(remaining, flying())
        for item in list(waiting):
            if has_room(item[0]):
                waiting.remove(item)
                hand_out(*item)
        took = True
        while took and remaining:
            took = False
            for kind in policy.takers:
                if not remaining or not has_room(kind):
                    continue
                wanted = policy.rows_for(kind, remaining, flying())
                if wanted is None:
                    continue
                size = min(max(round(wanted / unit), 1) * unit, remaining)
                remaining -= size
                hand_out(kind, size)
                took = True
        if not running:
            assert remaining + len(waiting) == 0, f"{remaining} rows that nobody takes"
            outcome.makespan = now
            return outcome
        moved = False
        until = min(end for ends in free.values() for end in ends if end > now)
        while not moved and until > now + LOOK_SECONDS:
            now += LOOK_SECONDS
            moved = move_late()
        if moved:
            continue
        now = until
        for each in [each for each in running if each.end <= now]:
            last_done = now
            running.remove(each)
            policy.observe(each.kind, each.rows, now - each.begin - each.waits)
            outcome.chunks.append((each.kind, each.rows, each.begin + each.waits, now))


def steady(seconds_per_row: float, latency: float = 0.0) -> Speed:
    return lambda begin, rows: latency + rows * seconds_per_row
