"""How much device memory a stage's chunks take for what they read: assumed at first, then as its chunks have shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CHUNKS_SEEN = 4
"""Chunks after which what they took is believed."""

MARGIN = 1.25
"""The next chunks may take so much more than those that were seen."""

LEAST_FACTOR = 1.2
"""What a chunk takes at least over the bytes that it reads, decoded: those, and something to compute with."""


class Footprint:
    """A chunk's peak of device memory over the decoded bytes of what it reads, for one stage.

    A peak is that of all chunks that ran at the time, and so is what they were expected to take: how far these are
    apart shows how far the expectation is off. It is only ever lowered, and the first one again if a chunk did not fit.

    Parameters
    ----------
    factor : float
        Expected as long as nothing is known.

    Attributes
    ----------
    factor : float
        Expected now.

    >>> footprint = Footprint(3.0)
    >>> for _ in range(4):
    ...     footprint.observe({"predicted_bytes": 3000, "peak_bytes": 1600})
    >>> footprint.factor
    2.0
    >>> footprint.too_low()
    >>> footprint.factor
    3.0
    """

    def __init__(self, factor: float) -> None:
        self.factor = self._first = factor
        self._seen = 0
        self._largest = 0.0
        self._failed = False

    def observe(self, event: Mapping[str, Any]) -> None:
        """Take note of a chunk that has finished on a GPU."""
        predicted, peak = int(event.get("predicted_bytes", 0)), int(event.get("peak_bytes", 0))
        if predicted <= 0 or peak <= 0 or self._failed:
            return
        # With a factor that was lowered before, the same peak is a larger part of what is predicted.
        self._largest = max(self._largest, peak / predicted * self.factor)
        self._seen += 1
        if self._seen >= CHUNKS_SEEN:
            self.factor = min(max(self._largest * MARGIN, LEAST_FACTOR), self._first)

    def too_low(self) -> None:
        """Take note of a chunk that did not fit."""
        self._failed = True
        self.factor = self._first
