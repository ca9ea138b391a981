"""Handing out the partitions of splits: which of them a chunk reads, and how one that is too large is cut."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hybridq.config import Config
from hybridq.physical.chunks import Chunk, PieceUnits
from hybridq.physical.pipeline import GroupStep, PartitionedBuild, PartitionSource, Stage, WindowStep

Counts = npt.NDArray[np.int64]

MOST_PARTITIONS = 1024
"""Partitions of a split at most: their number times that of chunks is that of pieces."""

LEAST_PARTITIONS = 16
"""Partitions of a split at least: estimates may be far too low, and small partitions are read several at a time."""

WINDOW_SIZE = 2
"""Window functions take so many times the memory that other operators take: their partitions are smaller."""

USUAL = 2
"""A partition with more than so many times the bytes that most have has a frequent key, or several: another round of
splitting does not divide these, and each part reads all of them again."""

MOST_PARTS = 1 << 12
"""Parts that a partition is cut into at most."""


@dataclass(frozen=True, slots=True)
class SplitChunk:
    """One chunk's pieces.

    Attributes
    ----------
    order : tuple of int
        ``Chunk.order``.
    rows : array of int64
        Of each partition, or block of a sorted run; where there are witnesses, theirs are one more.
    bytes : int
        Of all pieces.
    samples : pyarrow.Table or None
        Of a sorted run: the columns of the sort keys, of the first row of each block.
    places : array of int64 or None
        Where these rows come among those of all runs, in order.
    """

    order: tuple[int, ...]
    rows: Counts
    bytes: int
    samples: pa.Table | None = None
    places: Counts | None = None


def partitions_for(size: float, config: Config) -> int:
    """Return how many partitions to split so many (estimated) bytes into."""
    return min(max(int(2 * size / config.partition_bytes), LEAST_PARTITIONS), MOST_PARTITIONS)


@dataclass(frozen=True, slots=True)
class _Item:
    """What can be handed out alone.

    Attributes
    ----------
    units : PieceUnits
    build_bytes : int
        Of the build sides that go with it.
    """

    units: PieceUnits
    build_bytes: int

    @property
    def whole(self) -> bool:
        """Tell whether it is a partition, or several of them."""
        return self.units.parts == 1 and self.units.after is None and self.units.before is None

    @property
    def size(self) -> int:
        """Return the bytes of both sides."""
        return self.units.bytes + self.build_bytes


class PartitionChunks:
    """Hands out a stage's partitions, as ``ChunkSource`` does units.

    Small partitions are read several at a time. Of a partition whose build sides are too large each chunk reads one
    part, by another round of splitting; so it is with too many rows that are to be grouped. Frequent keys of that side
    are not divided by it: they are in one chunk, which takes the rows of a build side in blocks
    (``PartitionedBuild.block_bytes``), or else waits for the memory that it takes. Any other partition with too many
    rows on its probing side is cut by the chunks that these rows are from, each of which meets the whole build sides:
    that is how rows of one frequent key are divided.

    Parameters
    ----------
    stage : Stage
        Its source is a ``PartitionSource``.
    config : Config
    splits : mapping of int to sequence of SplitChunk
        The pieces of each stage that is read.
    """

    def __init__(self, stage: Stage, config: Config, splits: Mapping[int, Sequence[SplitChunk]]) -> None:
        source = stage.pipeline.source
        if not isinstance(source, PartitionSource):
            raise TypeError("the stage reads no partitions")
        self._config = config
        self._grouping = source.whole
        windows = any(isinstance(step, WindowStep) for step in stage.pipeline.steps)
        self._most = config.partition_bytes // (WINDOW_SIZE if windows else 1)
        self._probe = sorted(splits[source.stage], key=lambda each: each.order)
        partitioned = [build for build in stage.builds if isinstance(build, PartitionedBuild)]
        builds = [build.stage for build in partitioned]
        blocks = [math.inf if build.block_bytes is None else build.block_bytes for build in partitioned]
        self._most_build = sum(blocks)
        rows, size = _totals(self._probe)
        build_size = np.zeros(len(rows), np.float64)
        for build in builds:
            own_rows, own_size = _totals(splits[build])
            if len(own_rows):
                build_size += own_size[: len(rows)]
        self._usual_build, self._usual_rows = _usual(build_size), _usual(size)
        self.total_rows = int(rows.sum())
        self._bytes = float(size.sum() + build_size.sum())
        self._ids = itertools.count()
        self._items: list[_Item] = []
        for number in np.flatnonzero(rows).tolist():
            units = PieceUnits((number,), rows=int(rows[number]), bytes=int(size[number]))
            self._items += self._cut(_Item(units, int(build_size[number])))
        self._items.sort(key=lambda item: item.size)
        if not self._items and _gives_rows_of_nothing(stage):
            self._items.append(_Item(PieceUnits(()), 0))

    @property
    def remaining_rows(self) -> int:
        """Return the source rows not handed out yet."""
        return sum(item.units.rows for item in self._items)

    @property
    def exhausted(self) -> bool:
        """Tell whether nothing is left to take."""
        return not self._items

    @property
    def bytes_per_row(self) -> float | None:
        """Return the bytes that are read for each source row; ``None`` where there is none."""
        return self._bytes / self.total_rows if self.total_rows else None

    @property
    def breadth(self) -> float:
        """Return 1: rows of build sides are not counted."""
        return 1.0

    def take(self, rows: int, largest: bool = False) -> Chunk | None:
        """Return the next chunk of about ``rows`` rows, of the largest or else of the smallest partitions."""
        if not self._items:
            return None
        place = -1 if largest else 0
        item = self._items.pop(place)
        while self._items and (other := self._items[place]).whole and item.whole:
            units, more = item.units, other.units
            together = item.size + other.size
            if units.rows + more.rows > rows or together > self._most:
                break
            del self._items[place]
            both = replace(
                units,
                partitions=units.partitions + more.partitions,
                rows=units.rows + more.rows,
                bytes=units.bytes + more.bytes,
            )
            item = _Item(both, item.build_bytes + other.build_bytes)
        number = next(self._ids)
        return self._chunk(number, (number,), item)

    def halve(self, chunk: Chunk) -> tuple[Chunk, Chunk] | None:
        """Split a chunk in two; ``None`` where it cannot be made smaller."""
        units = chunk.source
        if not isinstance(units, PieceUnits):
            raise TypeError("the chunk reads no partitions")
        halves = self._halves(_Item(units, chunk.bytes - units.bytes))
        if halves is None:
            return None
        first, second = halves
        return (
            self._chunk(next(self._ids), (*chunk.order, 0), first),
            self._chunk(next(self._ids), (*chunk.order, 1), second),
        )

    def _at_once(self, item: _Item) -> int:
        """Return the bytes of an item's build sides that are in memory at the same time."""
        return int(min(item.build_bytes, self._most_build))

    def _chunk(self, number: int, order: tuple[int, ...], item: _Item) -> Chunk:
        units, size = item.units, item.units.bytes + self._at_once(item)
        return Chunk(number, order, units, rows=units.rows, bytes=item.size, decoded_bytes=size)

    # --- cutting ---------------------------------------------------------------------------------------------------

    def _cut(self, item: _Item) -> list[_Item]:
        """Cut a partition until its parts fit."""
        most = self._most
        parts = item.units.parts
        build_bytes = min(item.build_bytes, self._usual_build / parts)
        if build_bytes > most or (self._grouping and min(item.units.bytes, self._usual_rows / parts) > most):
            halves = self._by_another_round(item)
        elif self._grouping:
            halves = None
        elif item.units.bytes > max(2 * most, self._at_once(item)) or (
            item.units.rows > self._config.cpu_chunk_rows and item.units.bytes > self._at_once(item)
        ):
            halves = self._by_chunks(item)
        else:
            halves = None
        return [item] if halves is None else [part for half in halves for part in self._cut(half)]

    def _halves(self, item: _Item) -> tuple[_Item, _Item] | None:
        units = item.units
        if len(units.partitions) > 1:
            middle = len(units.partitions) // 2
            return (
                self._half(item, item.build_bytes // 2, 0, partitions=units.partitions[:middle]),
                self._half(item, item.build_bytes // 2, 1, partitions=units.partitions[middle:]),
            )
        if self._grouping or len(units.partitions) == 0:
            return self._by_another_round(item) if units.partitions else None
        if item.build_bytes > units.bytes:
            return self._by_another_round(item) or self._by_chunks(item)
        return self._by_chunks(item) or self._by_another_round(item)

    def _by_another_round(self, item: _Item) -> tuple[_Item, _Item] | None:
        units = item.units
        if units.parts >= MOST_PARTS:
            return None
        return (
            self._half(item, item.build_bytes // 2, 0, part=2 * units.part, parts=2 * units.parts),
            self._half(item, item.build_bytes // 2, 1, part=2 * units.part + 1, parts=2 * units.parts),
        )

    def _by_chunks(self, item: _Item) -> tuple[_Item, _Item] | None:
        """Cut where about half of the rows are before."""
        units = item.units
        (number,) = units.partitions
        inside = [each for each in self._probe if in_range(each.order, units) and each.rows[number]]
        if len(inside) < 2:
            return None
        sums = np.cumsum([each.rows[number] for each in inside])
        middle = min(max(int(np.searchsorted(sums, sums[-1] / 2)), 1), len(inside) - 1)
        share = float(sums[middle - 1] / sums[-1])
        rows, size = round(units.rows * share), int(units.bytes * share)
        border = inside[middle].order
        return (
            replace(item, units=replace(units, before=border, rows=rows, bytes=size)),
            replace(item, units=replace(units, after=border, rows=units.rows - rows, bytes=units.bytes - size)),
        )

    def _half(self, item: _Item, build_bytes: int, which: int, **changes: object) -> _Item:
        """Return one of two parts, with its share of what is known; exact rows where whole partitions are parted."""
        units = replace(item.units, **changes)  # type: ignore[arg-type]
        if "partitions" in changes:
            rows = sum(int(each.rows[number]) for each in self._probe for number in units.partitions)
        else:
            rows = units.rows // 2 if which == 0 else units.rows - units.rows // 2
        size = units.bytes // 2 if which == 0 else units.bytes - units.bytes // 2
        return _Item(replace(units, rows=rows, bytes=size), build_bytes)


def _gives_rows_of_nothing(stage: Stage) -> bool:
    """Tell whether a stage has groups even where there are no rows: those of an empty grouping set."""
    sets = [step.merge.sets for step in stage.pipeline.steps if isinstance(step, GroupStep)]
    return any(each is not None and () in each.members for each in sets)


def in_range(order: tuple[int, ...], units: PieceUnits) -> bool:
    """Tell whether the pieces of a chunk belong to a part of a partition."""
    return (units.after is None or order >= units.after) and (units.before is None or order < units.before)


def _usual(sizes: npt.NDArray[np.float64]) -> float:
    """Return the bytes past which a partition is larger than others of that number."""
    some = sizes[sizes > 0]
    return float(USUAL * np.median(some)) if len(some) else 0.0


def _totals(chunks: Sequence[SplitChunk]) -> tuple[Counts, npt.NDArray[np.float64]]:
    """Return rows and bytes of each partition over all chunks; bytes are taken to be even over a chunk's rows."""
    if not chunks:
        return np.zeros(0, np.int64), np.zeros(0, np.float64)
    rows = np.array([each.rows for each in chunks])
    widths = np.array([each.bytes / max(int(each.rows.sum()), 1) for each in chunks])
    return rows.sum(axis=0), (rows * widths[:, None]).sum(axis=0)
