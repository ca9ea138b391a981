"""Handing out the chunks of a stage that has several inputs (UNION ALL)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hybridq.catalog import Catalog
from hybridq.config import Config
from hybridq.physical.chunks import Chunk
from hybridq.physical.partitions import PartitionChunks, SplitChunk
from hybridq.physical.pipeline import PartitionSource, RangeSource, Stage
from hybridq.physical.ranges import RangeChunks
from hybridq.physical.units import ChunkSource

Splits = Mapping[int, Sequence[SplitChunk]]
"""The pieces of each stage whose rows were split."""


SingleSource = ChunkSource | PartitionChunks | RangeChunks


def chunk_source(stage: Stage, catalog: Catalog, config: Config, splits: Splits) -> SingleSource | BranchedSource:
    """Return what hands out a stage's input."""
    if stage.more:
        return BranchedSource([_single_source(branch, catalog, config, splits) for branch in stage.branches], stage)
    return _single_source(stage, catalog, config, splits)


def _single_source(stage: Stage, catalog: Catalog, config: Config, splits: Splits) -> SingleSource:
    if isinstance(stage.pipeline.source, RangeSource):
        return RangeChunks(stage, config, splits[stage.pipeline.source.stage])
    if isinstance(stage.pipeline.source, PartitionSource):
        return PartitionChunks(stage, config, splits)
    return ChunkSource(stage, catalog, config)


class BranchedSource:
    """Hands out the chunks of all of a stage's inputs, one input after the other, as ``ChunkSource`` does for one.

    Parameters
    ----------
    sources : sequence of ChunkSource, PartitionChunks or RangeChunks
        Of each input.
    stage : Stage
    """

    def __init__(self, sources: Sequence[SingleSource], stage: Stage) -> None:
        branches = stage.branches
        self._sources = list(sources)
        # A constant table is no unit of a registered one, and its rows count all the same.
        self._values_rows = sum(int(branch.values.num_rows) for branch in branches if branch.values is not None)
        self._ids = itertools.count()
        self._originals: dict[int, Chunk] = {}

    @property
    def total_rows(self) -> int:
        """Return the source rows of all chunks (those of earlier stages' output do not count)."""
        return sum(source.total_rows for source in self._sources) + self._values_rows

    @property
    def remaining_rows(self) -> int:
        """Return the source rows not handed out yet."""
        return sum(source.remaining_rows for source in self._sources)

    @property
    def exhausted(self) -> bool:
        """Tell whether nothing is left to take."""
        return all(source.exhausted for source in self._sources)

    @property
    def bytes_per_row(self) -> float | None:
        """Return the bytes of a decoded row, of the input that has the widest; ``None`` if none has units."""
        return max((size for source in self._sources if (size := source.bytes_per_row) is not None), default=None)

    @property
    def breadth(self) -> float:
        """Return the rows that are read for each source row, over all inputs."""
        total = sum(source.total_rows for source in self._sources)
        return sum(source.breadth * source.total_rows for source in self._sources) / total if total else 1.0

    def take(self, rows: int, largest: bool = False) -> Chunk | None:
        """Return the next chunk of about ``rows`` rows; ``None`` at the end."""
        for branch, source in enumerate(self._sources):
            chunk = source.take(rows, largest)
            if chunk is not None:
                return self._own(chunk, branch)
        return None

    def halve(self, chunk: Chunk) -> tuple[Chunk, Chunk] | None:
        """Split a chunk in two of about equal rows; ``None`` where it is a single unit."""
        halves = self._sources[chunk.branch].halve(self._originals[chunk.id])
        if halves is None:
            return None
        return self._own(halves[0], chunk.branch), self._own(halves[1], chunk.branch)

    def in_rounds(self, chunk: Chunk) -> Chunk:
        """Return a chunk for a CPU; see ``ChunkSource.in_rounds``."""
        source = self._sources[chunk.branch]
        if not isinstance(source, ChunkSource):
            return chunk
        return replace(chunk, rounds=source.in_rounds(self._originals[chunk.id]).rounds)

    def _own(self, chunk: Chunk, branch: int) -> Chunk:
        """Number a chunk among all inputs' chunks; it sorts after those of earlier inputs."""
        number = next(self._ids)
        self._originals[number] = chunk
        return replace(chunk, id=number, order=(branch, *chunk.order), branch=branch)
