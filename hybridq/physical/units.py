"""From row groups to chunks: which units a stage reads, and how they are handed out."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hybridq.catalog import Catalog, MemoryUnit, ParquetUnit, Unit
from hybridq.config import Config
from hybridq.physical.chunks import Chunk, MemoryUnits, ParquetUnits, Units
from hybridq.physical.pipeline import AlignedBuild, Stage, StageSource, TableSource
from hybridq.physical.pruning import excluded_units
from hybridq.plan.key_conditions import with_outcomes
from hybridq.plan.statistics import integer_bounds
from hybridq.types import is_decimal, is_fixed_width, is_integer

TEXT_WIDTH = 8
"""Bytes that a text takes at least, besides its characters."""


def surviving_units(source: TableSource, catalog: Catalog) -> list[Unit]:
    """Return the table's units that statistics do not exclude, in table order."""
    table = catalog.table(source.table)
    if source.predicate is None or not table.units:
        return list(table.units)
    names = {column.name: column.source for column in source.columns}
    keys = {name: table.bounds(column) for name, column in names.items() if column in table.keys}
    predicate, known = with_outcomes(source.predicate, keys)
    dropped = excluded_units(predicate, lambda name: known.get(name) or table.bounds(names[name]), len(table.units))
    return [unit for unit, drop in zip(table.units, dropped.tolist(), strict=True) if not drop]


def group_units(units: Sequence[Unit], source: TableSource) -> Units:
    """Put units together into one readable piece.

    Parameters
    ----------
    units : sequence of Unit
        At least one, all of one table.
    """
    if isinstance(units[0], MemoryUnit):
        tables = [unit.table for unit in units if isinstance(unit, MemoryUnit)]
        return MemoryUnits(tables[0] if len(tables) == 1 else pa.concat_tables(tables))
    parquet = [unit for unit in units if isinstance(unit, ParquetUnit)]
    by_footer = [
        (footer, tuple(unit.row_group for unit in group))
        for footer, group in itertools.groupby(parquet, key=lambda unit: unit.footer)
    ]
    by_file = [(footer.stamp.path, groups) for footer, groups in by_footer]
    stamps = tuple(dict.fromkeys(footer.stamp for footer, _ in by_footer))
    size, bounds, constants = 0, [], []
    for column in source.columns:
        if column.source in parquet[0].footer.constants:
            values = tuple(footer.constants[column.source] for footer, _ in by_footer)
            constants.append((column.source, values))
        size += sum(footer.bytes_of(column.source, groups) for footer, groups in by_footer)
        if not (is_integer(column.type) or is_decimal(column.type)):
            continue
        found = [footer.range_of(column.source, groups) for footer, groups in by_footer]
        ranges = [each for each in found if each is not None]
        if len(ranges) == len(found):
            bounds.append((column.source, min(low for low, _ in ranges), max(high for _, high in ranges)))
    rows = sum(unit.rows for unit in parquet)
    return ParquetUnits(tuple(by_file), rows, size, tuple(bounds), stamps, tuple(constants))


def decoded_bytes(units: Units, source: TableSource) -> int:
    """Estimate the bytes of units once they are decoded: dictionaries and other encodings undone.

    Fixed-width types have their width; of texts, at least a reference and what the file holds.
    """
    if isinstance(units, MemoryUnits):
        return units.bytes
    widths = [column.type.byte_width if is_fixed_width(column.type) else TEXT_WIDTH for column in source.columns]
    return max(units.bytes, units.rows * sum(widths))


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """Key range of every unit of a table, as arrays of one value a unit; ``None`` where a unit has no statistics."""

    low: npt.NDArray[np.int64]
    high: npt.NDArray[np.int64]

    @classmethod
    def of(cls, units: Iterable[Unit], column: str) -> KeyRanges | None:
        """Read the ranges of an integer column from statistics."""
        found = [np.empty((2, 0), np.int64)]
        # A table may have thousands of row groups: what is known of a file's is gathered once.
        for footer, group in itertools.groupby(units, key=lambda unit: getattr(unit, "footer", None)):
            members = list(group)
            if footer is None:
                bounds = integer_bounds([unit.statistics(column) for unit in members])
            else:
                bounds = footer.integer_bounds(column)
                numbers = [unit.row_group for unit in members if isinstance(unit, ParquetUnit)]
                bounds = None if bounds is None else (bounds[0][numbers], bounds[1][numbers])
            if bounds is None:
                return None
            found.append(np.array(bounds))
        low, high = np.concatenate(found, axis=1)
        return cls(low, high)

    @property
    def clustered(self) -> bool:
        """Tell whether each unit's keys come after those of the units before it, but for one that two may share."""
        return bool(np.all(self.low[1:] >= self.high[:-1]))

    def overlapping(self, low: int, high: int) -> npt.NDArray[np.bool_]:
        """Tell for each unit whether its range meets ``[low, high]``."""
        return (self.high >= low) & (self.low <= high)

    def private(self, start: int, end: int) -> tuple[int, int]:
        """Return between which keys, exclusive, no unit but those from ``start`` to ``end`` has any."""
        low = self.high[:start].max(initial=np.iinfo(np.int64).min)
        high = self.low[end:].min(initial=np.iinfo(np.int64).max)
        return int(low), int(high)


@dataclass(slots=True)
class _Alignment:
    """One aligned build side: its units and both sides' key ranges; none: every chunk reads all units."""

    build: AlignedBuild
    source: TableSource
    units: list[Unit]
    rows: npt.NDArray[np.int64]
    probe_ranges: KeyRanges | None
    build_ranges: KeyRanges | None


def alignment_overhead(
    probe: KeyRanges, build: KeyRanges, probe_rows: Sequence[int], build_rows: Sequence[int], chunk_rows: int
) -> float:
    """Return how many times over an aligned join would read its build side.

    Parameters
    ----------
    probe, build : KeyRanges
    probe_rows, build_rows : sequence of int
        Rows of each unit.
    chunk_rows : int
        Probe rows of a chunk.

    Returns
    -------
    float
        Build rows read by all chunks over build rows; 1.0 is perfect, and less means that some are never needed.
    """
    rows = np.asarray(build_rows, np.int64)
    total, start, n = 0, 0, len(probe_rows)
    while start < n:
        end, size = start, 0
        while end < n and (end == start or size + probe_rows[end] <= chunk_rows):
            size += probe_rows[end]
            end += 1
        mask = build.overlapping(int(probe.low[start:end].min()), int(probe.high[start:end].max()))
        total += int(rows[mask].sum())
        start = end
    return total / max(int(rows.sum()), 1)


class ChunkSource:
    """Hands out a stage's input, chunk by chunk, each as large as the taker asks.

    Parameters
    ----------
    stage : Stage
    catalog : Catalog
    config : Config
        ``chunk_units``, if set, fixes the number of units in every chunk.

    Notes
    -----
    One driver thread uses it; it is not locked.
    """

    def __init__(self, stage: Stage, catalog: Catalog, config: Config) -> None:
        self._stage = stage
        self._chunk_units = config.chunk_units
        self._round_rows = config.cpu_chunk_rows
        self._ids = itertools.count()
        self._members: dict[int, list[int]] = {}
        self._next = 0
        self._pending_whole = isinstance(stage.pipeline.source, StageSource) or stage.values is not None
        self._units: list[Unit] = []
        self._alignments: list[_Alignment] = []
        source = stage.pipeline.source
        if isinstance(source, TableSource) and stage.values is None:
            self._units = surviving_units(source, catalog)
            for build in stage.builds:
                if isinstance(build, AlignedBuild):
                    self._alignments.append(self._align(build, source, catalog))
        self._rows = np.array([unit.rows for unit in self._units], np.int64)
        clustered = stage.clustered
        self._ranges = KeyRanges.of(self._units, clustered.column) if clustered is not None and self._units else None

    def _align(self, build: AlignedBuild, source: TableSource, catalog: Catalog) -> _Alignment:
        build_source = build.pipeline.source
        if not isinstance(build_source, TableSource):
            raise TypeError("an aligned build side reads a table")
        units = surviving_units(build_source, catalog)
        rows = np.array([unit.rows for unit in units], np.int64)
        if build.probe_column is None or build.build_column is None:
            return _Alignment(build, build_source, units, rows, None, None)
        probe_ranges = KeyRanges.of(self._units, build.probe_column)
        build_ranges = KeyRanges.of(units, build.build_column)
        if probe_ranges is None or build_ranges is None:
            raise TypeError(f"{source.table} and {build_source.table} have no statistics to align by")
        return _Alignment(build, build_source, units, rows, probe_ranges, build_ranges)

    @property
    def total_rows(self) -> int:
        """Return the source rows of all chunks (0 where the source is an earlier stage)."""
        return int(self._rows.sum())

    @property
    def remaining_rows(self) -> int:
        """Return the source rows not handed out yet."""
        return int(self._rows[self._next :].sum())

    @property
    def exhausted(self) -> bool:
        """Tell whether nothing is left to take."""
        return self._next >= len(self._units) and not self._pending_whole

    @property
    def in_files(self) -> bool:
        """Tell whether there are units, all of files."""
        return bool(self._units) and isinstance(self._units[0], ParquetUnit)  # all are of one table

    @property
    def bytes_per_row(self) -> float | None:
        """Return the bytes of a row once it is decoded, as the first unit has them; ``None`` where there are no units.

        Rows of aligned build sides count like the others, as in ``Chunk.rows``.
        """
        source = self._stage.pipeline.source
        if not self._units or not isinstance(source, TableSource):
            return None
        pieces = [(group_units(self._units[:1], source), source)]
        for alignment in self._alignments:
            chosen = [alignment.units[i] for i in np.flatnonzero(self._overlap(alignment, [0]))]
            if chosen:
                pieces.append((group_units(chosen, alignment.source), alignment.source))
        rows = sum(piece.rows for piece, _ in pieces)
        return sum(decoded_bytes(piece, origin) for piece, origin in pieces) / rows

    @property
    def breadth(self) -> float:
        """Return the rows that are read for each source row: more than one where build sides are aligned."""
        aligned = sum(int(alignment.rows.sum()) for alignment in self._alignments)
        return 1 + aligned / self.total_rows if self.total_rows else 1.0

    def take(self, rows: int, largest: bool = False) -> Chunk | None:
        """Return the next chunk of about ``rows`` rows, build rows of aligned joins included; ``None`` at the end.

        Chunks come in table order, whether ``largest`` is asked for or not. A chunk has at least one unit; another is
        added while the total stays nearer to ``rows`` with it.
        """
        if self._pending_whole:
            self._pending_whole = False
            chunk_id = next(self._ids)
            values = self._stage.values
            if values is None:
                return Chunk(chunk_id, (chunk_id,), None)
            units = MemoryUnits(values)
            return Chunk(chunk_id, (chunk_id,), units, (), units.rows, units.bytes, units.bytes)
        if self._next >= len(self._units):
            return None
        start = self._next
        end = start + 1
        if self._chunk_units:
            end = min(start + self._chunk_units, len(self._units))
        else:
            # More units never have fewer rows.
            ends = range(start + 1, len(self._units) + 1)
            end = ends[min(bisect.bisect_left(ends, rows, key=lambda stop: self._rows_of(start, stop)), len(ends) - 1)]
            if end > start + 1 and self._rows_of(start, end) - rows > rows - self._rows_of(start, end - 1):
                end -= 1
        self._next = end
        chunk_id = next(self._ids)
        return self._make(chunk_id, (chunk_id,), list(range(start, end)))

    def halve(self, chunk: Chunk) -> tuple[Chunk, Chunk] | None:
        """Split a chunk in two of about equal rows; ``None`` where it is a single unit.

        The parts sort, by ``Chunk.order``, where the whole was.
        """
        members = self._members.get(chunk.id, [])
        if len(members) < 2:
            return None
        middle = len(members) // 2
        first = self._make(next(self._ids), (*chunk.order, 0), members[:middle])
        second = self._make(next(self._ids), (*chunk.order, 1), members[middle:])
        return first, second

    def in_rounds(self, chunk: Chunk) -> Chunk:
        """Return a chunk for a CPU: of row groups of files, in rounds of about ``cpu_chunk_rows`` rows."""
        members = self._members.get(chunk.id, [])
        rounds = min(round(chunk.rows / self._round_rows), len(members))
        if rounds < 2 or not isinstance(chunk.source, ParquetUnits):
            return chunk
        before = np.cumsum(self._rows[members])
        shares = before[-1] * np.arange(1, rounds) // rounds
        ends = [0, *dict.fromkeys(np.searchsorted(before, shares, "right").tolist()), len(members)]
        pieces = [members[start:end] for start, end in itertools.pairwise(ends) if end > start]
        made = [self._chunk_of(chunk.id, (*chunk.order, number), piece) for number, piece in enumerate(pieces)]
        return replace(chunk, rounds=tuple(made))

    def _overlap(self, alignment: _Alignment, members: Sequence[int]) -> npt.NDArray[np.bool_]:
        if alignment.probe_ranges is None or alignment.build_ranges is None:
            return np.ones(len(alignment.units), np.bool_)
        low = int(alignment.probe_ranges.low[members].min())
        high = int(alignment.probe_ranges.high[members].max())
        return alignment.build_ranges.overlapping(low, high)

    def _rows_of(self, start: int, end: int) -> int:
        total = int(self._rows[start:end].sum())
        members = range(start, end)
        for alignment in self._alignments:
            total += int(alignment.rows[self._overlap(alignment, members)].sum())
        return total

    def _make(self, chunk_id: int, order: tuple[int, ...], members: list[int]) -> Chunk:
        self._members[chunk_id] = members
        return self._chunk_of(chunk_id, order, members)

    def _chunk_of(self, chunk_id: int, order: tuple[int, ...], members: list[int]) -> Chunk:
        source = self._stage.pipeline.source
        if not isinstance(source, TableSource):
            raise TypeError("only a table's units can be grouped")
        units = group_units([self._units[i] for i in members], source)
        rows, size, decoded = units.rows, units.bytes, decoded_bytes(units, source)
        aligned: list[tuple[int, Units]] = []
        for alignment in self._alignments:
            chosen = [alignment.units[i] for i in np.flatnonzero(self._overlap(alignment, members))]
            piece = group_units(chosen, alignment.source) if chosen else ParquetUnits((), 0, 0)
            aligned.append((alignment.build.id, piece))
            rows += piece.rows
            size += piece.bytes
            decoded += decoded_bytes(piece, alignment.source)
        private = None if self._ranges is None else self._ranges.private(members[0], members[-1] + 1)
        return Chunk(chunk_id, order, units, tuple(aligned), rows, size, decoded, private=private)
