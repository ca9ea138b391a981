"""How fast a kind of device gets through a stage, from the chunks that have finished."""

from __future__ import annotations

from collections import deque

QUEUE_SECONDS = 0.03
"""Work that each slot should have queued: the time that news of a finished chunk and the next one take to travel."""

RECENT_CHUNKS = 8
"""Chunks that a rate is taken from: a device that slows down, or recovers, shows after a few."""

CHANGE_FACTOR = 1.5
CHANGE_CHUNKS = 3
"""So many chunks in a row, all faster or all slower than the rate by the factor: earlier ones are forgotten."""


class Rate:
    """Seconds a row of one slot of a device, from finished chunks.

    The first chunk counts only until there is another: it pays for imports, opening files and cold caches.

    Parameters
    ----------
    before : float, optional
        Seconds a row that earlier runs have shown.
    largest : int
        Rows of the largest chunk that is not to be observed any more.

    Attributes
    ----------
    largest : int
        Most rows of a chunk so far.
    """

    def __init__(self, before: float | None = None, largest: int = 0) -> None:
        self._before = before
        self._first: tuple[int, float] | None = None
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT_CHUNKS)
        self._surprises = 0
        self._rate: float | None = None
        self.largest = largest

    @property
    def known(self) -> bool:
        """Tell whether any chunk has finished, or did before."""
        return self._first is not None or self._before is not None

    @property
    def seconds_per_row(self) -> float:
        """Return seconds a row.

        Raises
        ------
        ValueError
            No chunk has finished.
        """
        if self._rate is None:
            self._rate = self._estimate()
        return self._rate

    def _estimate(self) -> float:
        if not self._recent and self._before is not None:
            return max(self._before, 1e-15)
        if self._first is None:
            raise ValueError("no chunk has finished")
        chunks = list(self._recent) or [self._first]
        if len(chunks) > RECENT_CHUNKS // 2:
            chunks.remove(max(chunks, key=lambda chunk: chunk[1] / chunk[0]))  # one hiccup is none of the device's
        return max(sum(seconds for _, seconds in chunks), 1e-9) / max(sum(rows for rows, _ in chunks), 1)

    @property
    def cold_rows(self) -> int:
        """Return the rows of the first chunk while it is all that is known; 0 otherwise."""
        alone = self._first is not None and not self._recent and self._before is None
        return self._first[0] if alone and self._first is not None else 0

    @property
    def chunks_within(self) -> float:
        """Return how many chunks, of the size they had lately, a slot finishes in ``QUEUE_SECONDS``; 0 if unknown."""
        if not self._recent:
            return 0.0
        return QUEUE_SECONDS * len(self._recent) / max(sum(seconds for _, seconds in self._recent), 1e-9)

    def observe(self, rows: int, seconds: float) -> None:
        """Add a finished chunk."""
        self._add(rows, seconds)
        self._rate = None

    def _add(self, rows: int, seconds: float) -> None:
        self.largest = max(self.largest, rows)
        if self._first is None:
            self._first = (rows, seconds)
            if self._before is None or seconds / rows > CHANGE_FACTOR * self._before:
                return
        if self._recent:
            ratio = seconds / rows / self.seconds_per_row
            change = (ratio > CHANGE_FACTOR) - (ratio < 1 / CHANGE_FACTOR)
            same_side = change * self._surprises > 0
            self._surprises = self._surprises + change if change and (same_side or not self._surprises) else change
            if abs(self._surprises) >= CHANGE_CHUNKS:
                kept = list(self._recent)[1 - CHANGE_CHUNKS :]
                self._recent.clear()
                self._recent.extend(kept)
                self._surprises = 0
        self._recent.append((rows, seconds))
