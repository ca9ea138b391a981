"""Handing out sorted rows in order, range by range, where each chunk of an earlier stage has sorted its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hybridq.config import Config
from hybridq.physical.chunks import Chunk, Cut, RangeUnits
from hybridq.physical.partitions import LEAST_PARTITIONS, MOST_PARTITIONS, WINDOW_SIZE, SplitChunk, partitions_for
from hybridq.physical.pipeline import CondenseStep, RangeSource, Stage

MOST_SAMPLES = 1 << 20
"""Blocks of all runs together, about: each of them gives the driver one row."""

CELLS = 16
"""Ranges that windows go over are cut at certain places only, between which there is this part of a partition."""


def blocks_for(size: float, chunks: int, config: Config) -> int:
    """Return into how many blocks each of so many runs is cut, of so many (estimated) bytes together."""
    return max(min(partitions_for(2 * size, config), MOST_PARTITIONS, MOST_SAMPLES // max(chunks, 1)), LEAST_PARTITIONS)


class RangeChunks:
    """Hands out ranges of a stage's sorted input, the first rows first, as ``ChunkSource`` does units.

    The first row of each block of each run is known. In order they say how many rows come before any of them, give or
    take a block of each run, so a range goes from one of them to another. Where windows go over the ranges, two stages
    read them, the first of which condenses them. The ranges of both begin and end at the same places then, which depend
    on the runs alone.

    Parameters
    ----------
    stage : Stage
        Its source is a ``RangeSource``.
    config : Config
    chunks : sequence of SplitChunk
        The runs.
    """

    def __init__(self, stage: Stage, config: Config, chunks: Sequence[SplitChunk]) -> None:
        source = stage.pipeline.source
        if not isinstance(source, RangeSource):
            raise TypeError("the stage reads no ranges")
        self._config = config
        self._runs = [chunk for chunk in chunks if int(chunk.rows.sum())]
        self._names = [field.name for field in source.schema]
        self._places = [_known(run.places) for run in self._runs]
        count = sum(len(each) for each in self._places)
        rows, size = np.zeros(count, np.int64), np.zeros(count, np.float64)
        self._owner, self._block = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for number, (run, own) in enumerate(zip(self._runs, self._places, strict=True)):
            rows[own] = run.rows
            size[own] = run.rows * (run.bytes / int(run.rows.sum()))
            self._owner[own] = number
            self._block[own] = np.arange(len(own))
        self._rows = np.append(0, np.cumsum(rows))
        self._bytes = np.append(0.0, np.cumsum(size))
        self._most = config.partition_bytes // (WINDOW_SIZE if source.numbered else 1)
        self._places_to_cut = self._cells(config.partition_bytes / CELLS) if source.numbered else np.arange(count + 1)
        self._one_cell = any(isinstance(step, CondenseStep) for step in stage.pipeline.steps)
        self._next = 0
        self._ids = itertools.count()
        self._borders: dict[int, tuple[int, int]] = {}

    @property
    def total_rows(self) -> int:
        """Return the rows of all runs."""
        return int(self._rows[-1])

    @property
    def remaining_rows(self) -> int:
        """Return the rows not handed out yet."""
        return int(self._rows[-1] - self._rows[self._next])

    @property
    def exhausted(self) -> bool:
        """Tell whether nothing is left to take."""
        return self._next >= len(self._owner)

    @property
    def bytes_per_row(self) -> float | None:
        """Return the bytes of a row; ``None`` where there is none."""
        return float(self._bytes[-1]) / self.total_rows if self.total_rows else None

    @property
    def breadth(self) -> float:
        """Return 1: nothing is read besides."""
        return 1.0

    def take(self, rows: int, largest: bool = False) -> Chunk | None:
        """Return the next chunk of about ``rows`` rows, whether ``largest`` is asked for or not."""
        if self.exhausted:
            return None
        start = self._next
        by_rows = int(np.searchsorted(self._rows, self._rows[start] + rows, "right")) - 1
        by_size = int(np.searchsorted(self._bytes, self._bytes[start] + self._most, "right")) - 1
        stop = start if self._one_cell else min(by_rows, by_size, len(self._owner))
        places = self._places_to_cut
        next_cell = int(np.searchsorted(places, start, "right"))
        self._next = int(places[max(int(np.searchsorted(places, stop, "right")) - 1, next_cell)])
        number = next(self._ids)
        return self._chunk(number, (number,), start, self._next)

    def halve(self, chunk: Chunk) -> tuple[Chunk, Chunk] | None:
        """Split a chunk in two of about equal rows; ``None`` where it cannot be made smaller."""
        start, stop = self._borders[chunk.id]
        places = self._places_to_cut
        inside = places[np.searchsorted(places, start, "right") : np.searchsorted(places, stop, "left")]
        if not len(inside):
            return None
        half = (self._rows[start] + self._rows[stop]) / 2
        middle = int(inside[min(int(np.searchsorted(self._rows[inside], half)), len(inside) - 1)])
        return (
            self._chunk(next(self._ids), (*chunk.order, 0), start, middle),
            self._chunk(next(self._ids), (*chunk.order, 1), middle, stop),
        )

    def _cells(self, size: float) -> npt.NDArray[np.int64]:
        """Return places between which there are about so many bytes, the first and the last of all among them."""
        cell = np.floor(self._bytes / max(size, 1.0))
        return np.union1d(np.flatnonzero(cell[1:] != cell[:-1]) + 1, [0, len(self._owner)])

    def _chunk(self, number: int, order: tuple[int, ...], start: int, stop: int) -> Chunk:
        self._borders[number] = (start, stop)
        cuts = [cut for run in range(len(self._runs)) if (cut := self._cut(run, start, stop)) is not None]
        rows, size = int(self._rows[stop] - self._rows[start]), int(self._bytes[stop] - self._bytes[start])
        units = RangeUnits(self._border(start), self._border(stop), tuple(cuts), rows, size, start, stop)
        return Chunk(number, order, units, rows=rows, bytes=size, decoded_bytes=size)

    def _cut(self, run: int, start: int, stop: int) -> Cut | None:
        """Return the blocks of a run that have rows of a range; ``None``: none has."""
        own, order = self._places[run], self._runs[run].order
        last = int(np.searchsorted(own, stop, "left"))
        first = max(int(np.searchsorted(own, start, "right")) - 1, 0)
        if last == 0:
            return None
        low = high = None
        if own[first] < start:
            low = order < self._runs[int(self._owner[start])].order
        # The run's next block begins after the border, unless the border is that very row.
        if stop < len(self._owner) and int(self._owner[stop]) != run:
            high = order < self._runs[int(self._owner[stop])].order
        return Cut(order, first, last, low, high)

    def _border(self, place: int) -> pa.Table | None:
        """Return the sort keys of the row at a place."""
        if place == 0 or place >= len(self._owner):
            return None
        samples = self._runs[int(self._owner[place])].samples
        if samples is None:
            raise TypeError("a sorted run has samples")
        return samples.slice(int(self._block[place]), 1).combine_chunks()


def _known(found: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64]:
    if found is None:
        raise TypeError("the runs' samples have not been put in order")
    return found
