"""What a task reads: units put together, and chunks made of them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from hybridq.storage import FileStamp


@dataclass(frozen=True, slots=True)
class ParquetUnits:
    """Row groups to read together.

    Attributes
    ----------
    files : tuple of (path, row group numbers)
    rows : int
    bytes : int
        Uncompressed bytes of the columns that the pipeline reads.
    bounds : tuple of (source column, minimum, maximum)
        Value ranges from statistics, for columns where every row group has them. Integers for integer columns,
        ``decimal.Decimal`` for decimals, ``datetime.date`` for dates.
    stamps : tuple of FileStamp
        The files as they were when the chunk was planned; what has changed since is not read.
    constants : tuple of (source column, values)
        Columns that are in no file, with their value in each of ``files``.
    """

    files: tuple[tuple[str, tuple[int, ...]], ...]
    rows: int
    bytes: int
    bounds: tuple[tuple[str, object, object], ...] = ()
    stamps: tuple[FileStamp, ...] = ()
    constants: tuple[tuple[str, tuple[object, ...]], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class MemoryUnits:
    """A slice of an in-memory table."""

    table: pa.Table

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(self.table.num_rows)

    @property
    def bytes(self) -> int:
        """Return the size in memory, in bytes."""
        return int(self.table.nbytes)


@dataclass(frozen=True, slots=True)
class PieceUnits:
    """Partitions of an earlier stage whose rows were split, or a part of one partition.

    Attributes
    ----------
    partitions : tuple of int
    part, parts : int
        Only rows that another round of splitting, into ``parts``, puts into number ``part``; one part: all rows.
    after, before : tuple of int or None
        Only pieces of chunks whose order is at least ``after`` and below ``before``: the build sides stay whole.
    rows, bytes : int
        Of the probing side, as far as they are known: of a part they are estimates.
    """

    partitions: tuple[int, ...]
    part: int = 0
    parts: int = 1
    after: tuple[int, ...] | None = None
    before: tuple[int, ...] | None = None
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """What a range of sorted rows has of one chunk's run.

    Attributes
    ----------
    order : tuple of int
        ``Chunk.order`` of the chunk.
    first, stop : int
        Blocks of the run.
    low, high : bool or None
        Whether rows of the first (last) block that tie with the range's first row (with the row after its last) come
        before that; ``None``: the block begins (ends) where the range does.
    """

    order: tuple[int, ...]
    first: int
    stop: int
    low: bool | None = None
    high: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RangeUnits:
    """A range of the sorted rows of an earlier stage.

    Attributes
    ----------
    low, high : pyarrow.Table or None
        Sort keys of its first row and of the row after its last; ``None``: the first and the last of all.
    cuts : tuple of Cut
        Of the runs that may have some of it.
    rows, bytes : int
        Estimates.
    start, stop : int
        The places of its first row, and of the row after its last: any two ranges are in the order of these.
    """

    low: pa.Table | None
    high: pa.Table | None
    cuts: tuple[Cut, ...]
    rows: int = 0
    bytes: int = 0
    start: int = 0
    stop: int = 0


Units = ParquetUnits | MemoryUnits | PieceUnits | RangeUnits


@dataclass(frozen=True, slots=True)
class Chunk:
    """The input of one task.

    Attributes
    ----------
    id : int
        Position among the stage's chunks in table order; unique within the stage. A halved chunk's parts get new ids.
    order : tuple of int
        Sorts chunks in table order, halved ones too: the parts of chunk ``(3,)`` are ``(3, 0)`` and ``(3, 1)``.
    source : Units or None
        What the pipeline's source reads; ``None`` when the source is an earlier stage's output.
    aligned : tuple of (build id, Units)
        For each aligned build side, the row groups that can match this chunk's keys.
    rows, bytes : int
        Totals over ``source`` and ``aligned``.
    decoded_bytes : int
        Estimated size of all columns once they are decoded.
    branch : int
        Which of the stage's branches reads it (``Stage.branch``).
    private : tuple of (int, int) or None
        Keys between the two, exclusive, of the column that ``Stage.clustered`` names are in no other chunk.
    rounds : tuple of Chunk
        What a CPU's task computes one after the other, so that a task costs little beside what it computes, and takes
        no more memory than a smaller one; none: all at once.
    """

    id: int
    order: tuple[int, ...]
    source: Units | None
    aligned: tuple[tuple[int, Units], ...] = ()
    rows: int = 0
    bytes: int = 0
    decoded_bytes: int = 0
    branch: int = 0
    private: tuple[int, int] | None = None
    rounds: tuple[Chunk, ...] = ()
