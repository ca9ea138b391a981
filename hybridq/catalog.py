"""Registered tables: their files or in-memory data, units, schema and statistics."""

from __future__ import annotations

import difflib
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hybridq import storage
from hybridq.engines.footer_check import read_footer
from hybridq.errors import DataError, UnknownTable
from hybridq.plan.statistics import ColumnStatistics, ColumnSummary, IntegerBounds, UnitBounds, integer_bounds
from hybridq.storage import FileStamp
from hybridq.summaries import summarize
from hybridq.types import Field, Schema, declared, to_arrow_schema

__all__ = ["Catalog", "ColumnStatistics", "ColumnSummary", "MemoryUnit", "ParquetUnit", "Table", "Unit"]

MEMORY_UNIT_ROWS = 2**20
"""Rows of a unit of an in-memory table."""

FOOTER_THREADS = 16
"""Threads that read footers, which is waiting more than work."""


class Unit(Protocol):
    """The smallest piece of a table that is read alone."""

    @property
    def rows(self) -> int:
        """Return the number of rows, at least one."""

    def column_bytes(self, source: str) -> int:
        """Return the uncompressed bytes of a column."""

    def statistics(self, source: str) -> ColumnStatistics | None:
        """Return the bounds of a column; ``None`` where nothing is known."""

    def dictionary_entries(self, source: str) -> float | None:
        """Return about how many distinct values a column has, its rows where they hardly repeat; ``None``: no idea."""


@dataclass(frozen=True, slots=True, eq=False)
class Footer:
    """A Parquet file's footer.

    Attributes
    ----------
    stamp : FileStamp
        The file when the footer was read.
    metadata : pyarrow.parquet.FileMetaData
    schema : Schema
        Normalised.
    leaves : dict of str to tuple of int
        Parquet columns of each top-level column; more than one, or a dotted path, where it is nested.
    flat : frozenset of str
        Columns that are not nested.
    """

    stamp: FileStamp
    metadata: pq.FileMetaData
    schema: Schema
    leaves: dict[str, tuple[int, ...]]
    flat: frozenset[str]
    _statistics: dict[str, list[ColumnStatistics | None]] = field(default_factory=dict)
    _sizes: dict[str, list[int]] = field(default_factory=dict)
    _integers: dict[str, IntegerBounds | None] = field(default_factory=dict)
    _whole_sizes: dict[str, int] = field(default_factory=dict)
    _whole_ranges: dict[str, tuple[Any, Any] | None] = field(default_factory=dict)

    def bytes_of(self, source: str, groups: Sequence[int]) -> int:
        """Return the uncompressed bytes of a column in some different row groups; those of a whole file are kept."""
        if len(groups) == self.metadata.num_row_groups and source in self._whole_sizes:
            return self._whole_sizes[source]
        sizes = self.column_bytes(source)
        found = sum(sizes[group] for group in groups)
        if len(groups) == self.metadata.num_row_groups:
            self._whole_sizes[source] = found
        return found

    def range_of(self, source: str, groups: Sequence[int]) -> tuple[Any, Any] | None:
        """Return the least and the greatest value of a column in some different row groups, as statistics say it.

        ``None`` where they do not. That of a whole file is kept.
        """
        if len(groups) == self.metadata.num_row_groups and source in self._whole_ranges:
            return self._whole_ranges[source]
        statistics = self.statistics(source)
        known = [item for group in groups if (item := statistics[group]) is not None and item.minimum is not None]
        found = None
        if known and len(known) == len(groups):
            found = min(item.minimum for item in known), max(item.maximum for item in known)
        if len(groups) == self.metadata.num_row_groups:
            self._whole_ranges[source] = found
        return found

    def column_bytes(self, source: str) -> list[int]:
        """Return the uncompressed bytes of a column in each row group. Read at the first call."""
        known = self._sizes.get(source)
        if known is None:
            groups = [self.metadata.row_group(group) for group in range(self.metadata.num_row_groups)]
            leaves = self.leaves[source]
            known = [sum(int(group.column(leaf).total_uncompressed_size) for leaf in leaves) for group in groups]
            self._sizes[source] = known
        return known

    def integer_bounds(self, source: str) -> IntegerBounds | None:
        """Return the bounds of a column of integers in each row group; ``None`` where a row group has none."""
        if source not in self._integers:
            self._integers[source] = integer_bounds(self.statistics(source))
        return self._integers[source]

    def statistics(self, source: str) -> list[ColumnStatistics | None]:
        """Return the bounds of a column in each row group. Read at the first call, for all row groups at once."""
        known = self._statistics.get(source)
        if known is None:
            groups = range(self.metadata.num_row_groups)
            if source in self.flat:
                (leaf,) = self.leaves[source]
                known = [_chunk_statistics(self.metadata.row_group(group), leaf) for group in groups]
            else:
                known = [None for _ in groups]
            self._statistics[source] = known
        return known


@dataclass(frozen=True, slots=True, eq=False)
class ParquetUnit:
    """A row group.

    Attributes
    ----------
    footer : Footer
    row_group : int
        Counted from 0.
    rows : int
    """

    footer: Footer
    row_group: int
    rows: int

    @property
    def path(self) -> str:
        """Return the file's path or URL."""
        return self.footer.stamp.path

    @property
    def stamp(self) -> FileStamp:
        """Return the file as it was when its footer was read (``storage.check_unchanged`` compares)."""
        return self.footer.stamp

    def column_bytes(self, source: str) -> int:
        """Return the uncompressed bytes of a column."""
        return self.footer.column_bytes(source)[self.row_group]

    def statistics(self, source: str) -> ColumnStatistics | None:
        """Return the bounds of a column; ``None`` where the file has none."""
        return self.footer.statistics(source)[self.row_group]

    def dictionary_entries(self, source: str) -> float | None:
        """Return about how many entries the column's dictionary has; the rows where it has none."""
        if source not in self.footer.flat:
            return None
        (leaf,) = self.footer.leaves[source]
        return _dictionary_entries(self.footer, self.row_group, leaf, self.statistics(source))


@dataclass(frozen=True, slots=True, eq=False)
class MemoryUnit:
    """A slice of an in-memory table, in normalised types."""

    table: pa.Table
    _statistics: dict[str, ColumnStatistics | None] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(self.table.num_rows)

    def column_bytes(self, source: str) -> int:
        """Return the bytes of a column in memory."""
        return int(self.table.column(source).nbytes)

    def statistics(self, source: str) -> ColumnStatistics | None:
        """Return the bounds of a column, computed at the first call."""
        if source not in self._statistics:
            self._statistics[source] = _array_statistics(self.table.column(source))
        return self._statistics[source]

    def dictionary_entries(self, source: str) -> float | None:
        """Return ``None``: counting would read the data."""
        return None


class Table:
    """A registered table.

    Attributes
    ----------
    name : str
    schema : Schema
        Columns with normalised types.
    units : tuple of Unit
        In order, those without rows left out.
    rows : int
    """

    def __init__(self, name: str, schema: Schema, units: Iterable[Unit]) -> None:
        self.name = name
        self.schema = schema
        self.units: tuple[Unit, ...] = tuple(units)
        self.rows: int = sum(unit.rows for unit in self.units)
        self._types = {item.name: item.type for item in schema}
        self._summaries: dict[str, ColumnSummary] = {}
        self._bytes: dict[str, int] = {}
        self._bounds: dict[str, UnitBounds] = {}

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self.rows} rows, {len(self.schema)} columns, {len(self.units)} units)"

    def column_bytes(self, source: str) -> int:
        """Return the uncompressed bytes of a column."""
        if source not in self._bytes:
            self._bytes[source] = sum(unit.column_bytes(source) for unit in self.units)
        return self._bytes[source]

    def storage(self, source: str) -> tuple[str, bool] | None:
        """Return how a column is stored, judged by the first unit; ``None`` for a table in memory.

        Returns
        -------
        tuple of (str, bool)
            The codec in small letters (``none`` if uncompressed), and whether values repeat so that they are stored as
            a dictionary.
        """
        first = self.units[0] if self.units else None
        if not isinstance(first, ParquetUnit):
            return None
        leaf = first.footer.leaves[source][0]
        codec = str(first.footer.metadata.row_group(first.row_group).column(leaf).compression).lower()
        entries = first.dictionary_entries(source)
        return ("none" if codec == "uncompressed" else codec), entries is not None and entries < first.rows / 2

    def bounds(self, source: str) -> UnitBounds:
        """Return the bounds of a column in every unit."""
        if source not in self._bounds:
            self._bounds[source] = UnitBounds.of([unit.statistics(source) for unit in self.units])
        return self._bounds[source]

    def summary(self, source: str) -> ColumnSummary | None:
        """Return bounds, NULLs and the estimated distinct values of a column; ``None`` if there is no such column."""
        if source not in self._types:
            return None
        if source not in self._summaries:
            self._summaries[source] = summarize(self.units, source, self._types[source])
        return self._summaries[source]


class Catalog:
    """Tables by name.

    Attributes
    ----------
    version : int
        Another one whenever a table has been registered.
    """

    def __init__(self) -> None:
        self.version = 0
        self._tables: dict[str, Table] = {}
        self._unreadable: dict[str, DataError] = {}

    def snapshot(self) -> Catalog:
        """Return the tables as they are now, for a query that runs while others are registered."""
        found = Catalog()
        found.version, found._tables, found._unreadable = self.version, dict(self._tables), dict(self._unreadable)
        return found

    @property
    def unreadable(self) -> dict[str, str]:
        """Return what is wrong with each table of a folder that cannot be read."""
        return {name: str(error) for name, error in self._unreadable.items()}

    def register(self, name: str, source: Any) -> Table:
        """Register a table, in place of any of the same name.

        Parameters
        ----------
        name : str
            What queries call it.
        source : str, os.PathLike, pyarrow.Table, pandas.DataFrame, or a sequence of paths
            A Parquet file, a folder (its ``*.parquet`` files and those in ``key=value`` subfolders; the keys do not
            become columns), a glob, an fsspec URL, several of these, or data in memory. Names that start with ``_`` or
            ``.`` are left out of folders and globs.

        Returns
        -------
        Table

        Raises
        ------
        DataError
            Nothing is there, a file is not whole or not Parquet, or two files' schemas differ.
        """
        if not isinstance(name, str) or not name:
            raise DataError(f"a table's name must be a text that is not empty, not {name!r}")
        try:
            table = _make_table(name, source)
        except DataError as error:
            raise DataError(f"table {name!r}: {error}") from error
        except OSError as error:  # of a path that no file system takes
            raise DataError(f"table {name!r}: cannot be looked for: {error.strerror or error}") from error
        self._tables[name] = table
        self._unreadable.pop(name, None)
        self.version += 1
        return table

    def beside(self, tables: Mapping[str, pa.Table]) -> Catalog:
        """Return a catalog that has these tables in memory as well."""
        made = Catalog()
        made._tables, made._unreadable = dict(self._tables), dict(self._unreadable)
        for name, table in tables.items():
            made.register(name, table)
        return made

    def register_folder(self, directory: str | os.PathLike[str], follow_links: bool = False) -> tuple[str, ...]:
        """Register each ``NAME.parquet`` and each folder ``NAME`` of Parquet files as table NAME.

        One that cannot be read is no table; what is wrong with it is said where it is asked for.

        Parameters
        ----------
        directory : str or os.PathLike
        follow_links : bool
            Links may lead out of the folder.

        Returns
        -------
        tuple of str
            The names of those that can be read.

        Raises
        ------
        DataError
            The folder does not exist or has no table, none of its tables can be read, or a link leads out of it.
        """
        try:
            found = storage.tables_in(directory, follow_links)
        except OSError as error:  # of a path that no file system takes
            raise DataError(f"the folder cannot be looked for: {error.strerror or error}") from error
        unreadable: dict[str, DataError] = {}
        for name, path in found.items():
            try:
                self.register(name, path)
            except DataError as error:
                unreadable[name] = error
        if len(unreadable) == len(found):
            raise next(iter(unreadable.values()))
        for name in unreadable:
            self._tables.pop(name, None)  # as it was when the folder was registered before
        self._unreadable |= unreadable
        self.version += 1
        return tuple(name for name in found if name not in unreadable)

    def table(self, name: str) -> Table:
        """Return a table.

        Raises
        ------
        UnknownTable
            No table has that name; the message has the nearest names.
        """
        table = self._tables.get(name)
        if table is not None:
            return table
        near = difflib.get_close_matches(name, self._tables, n=3, cutoff=0.5)
        if near:
            hint = f"did you mean {' or '.join(map(repr, near))}?"
        elif self._tables:
            hint = f"the tables are {', '.join(map(repr, sorted(self._tables)))}"
        else:
            hint = "no table is registered"
        raise UnknownTable(f"no table {name!r}: {hint}", name)

    def check_readable(self, name: str) -> None:
        """Check that a name which is no table's is not that of one which cannot be read, whatever its case.

        Raises
        ------
        DataError
            It is.
        """
        for known, error in self._unreadable.items():
            if known.casefold() == name.casefold():
                raise error

    def schemas(self) -> dict[str, Schema]:
        """Return every table's schema."""
        return {name: table.schema for name, table in self._tables.items()}


# --- making tables ---------------------------------------------------------------------------------------------------


def _make_table(name: str, source: Any) -> Table:
    if isinstance(source, str | os.PathLike):
        return _parquet_table(name, storage.find_parquet(source))
    if isinstance(source, pa.Table):
        return _memory_table(name, source)
    if isinstance(source, pa.RecordBatch):
        return _memory_table(name, pa.Table.from_batches([source]))
    pandas = sys.modules.get("pandas")  # who has a DataFrame has imported it
    if pandas is not None and isinstance(source, pandas.DataFrame):
        try:
            # A copy: Arrow would share its numbers with the DataFrame, which may be changed later.
            return _memory_table(name, pa.Table.from_pandas(source.copy(), preserve_index=False))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DataError(f"the DataFrame does not convert to Arrow: {error}") from error
    if isinstance(source, Sequence | set | frozenset) and not isinstance(source, bytes):
        paths = list(source)
        if not paths:
            raise DataError("an empty list of files")
        for path in paths:
            if not isinstance(path, str | os.PathLike):
                raise DataError(f"a list may hold paths only, not {type(path).__name__}")
        found = [file for path in paths for file in storage.find_parquet(path)]
        return _parquet_table(name, list(dict.fromkeys(found)))
    raise DataError(
        "give a Parquet file, folder, glob, URL, a list of them, a pyarrow.Table or a pandas.DataFrame,"
        f" not {type(source).__name__}"
    )


def _parquet_table(name: str, paths: list[str]) -> Table:
    if len(paths) == 1:
        footers = [_footer_of(paths[0])]
    else:
        with ThreadPoolExecutor(min(FOOTER_THREADS, len(paths))) as pool:
            footers = list(pool.map(_footer_of, paths))
    first = footers[0]
    for other in footers[1:]:
        _check_same_schema(first, other)
    units: list[Unit] = []
    for footer in footers:
        for group in range(footer.metadata.num_row_groups):
            rows = int(footer.metadata.row_group(group).num_rows)
            if rows:
                units.append(ParquetUnit(footer, group, rows))
    return Table(name, first.schema, units)


def _memory_table(name: str, table: pa.Table) -> Table:
    schema = tuple(Field(item.name, declared(item.type)) for item in table.schema)
    _check_unique([item.name for item in schema], "the table")
    target = to_arrow_schema(schema)
    units: list[Unit] = []
    for start in range(0, table.num_rows, MEMORY_UNIT_ROWS):
        piece = table.slice(start, MEMORY_UNIT_ROWS)
        try:
            # Column by column: the target has no metadata and is nullable throughout.
            columns = [piece.column(i).cast(item.type) for i, item in enumerate(target)]
        except pa.ArrowException as error:
            raise DataError(f"the table does not convert to {target.to_string()}: {error}") from error
        units.append(MemoryUnit(pa.Table.from_arrays(columns, schema=target)))
    return Table(name, schema, units)


def _check_unique(names: list[str], owner: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{owner} has several columns {name!r}")


def _check_same_schema(first: Footer, other: Footer) -> None:
    if first.schema == other.schema:
        return
    here, there = first.stamp.path, other.stamp.path
    left = {item.name: item.type for item in first.schema}
    right = {item.name: item.type for item in other.schema}
    for name, data_type in left.items():
        if name not in right:
            raise DataError(f"the files' schemas differ: {here} has a column {name!r} that {there} has not")
        if right[name] != data_type:
            raise DataError(
                f"the files' schemas differ: column {name!r} is {data_type} in {here} and {right[name]} in {there}"
            )
    for name in right:
        if name not in left:
            raise DataError(f"the files' schemas differ: {there} has a column {name!r} that {here} has not")


def _footer_of(path: str) -> Footer:
    return _read_footer(storage.stamp(path))


@lru_cache(maxsize=4096)
def _read_footer(stamp: FileStamp) -> Footer:
    path = stamp.path
    try:
        metadata, digest = read_footer(path)
        arrow_schema = metadata.schema.to_arrow_schema()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(_why_unreadable(stamp, error)) from error
    schema = tuple(Field(item.name, declared(item.type)) for item in arrow_schema)
    _check_unique([item.name for item in schema], path)
    leaves: dict[str, list[int]] = {item.name: [] for item in schema}
    flat: set[str] = set()
    for index in range(metadata.num_columns):
        leaf_path = str(metadata.schema.column(index).path)
        # A name may itself have dots, so the whole path is tried first.
        if leaf_path in leaves:
            leaves[leaf_path].append(index)
            flat.add(leaf_path)
        else:
            owner = max((name for name in leaves if leaf_path.startswith(f"{name}.")), key=len, default=None)
            if owner is not None:
                leaves[owner].append(index)
    seen = replace(stamp, footer=digest)
    return Footer(seen, metadata, schema, {name: tuple(found) for name, found in leaves.items()}, frozenset(flat))


def _why_unreadable(stamp: FileStamp, error: Exception) -> str:
    """Say in one line what is wrong with a file that should be Parquet."""
    if stamp.size == 0:
        return f"{stamp.path} is empty (0 bytes), not a Parquet file"
    try:
        source = storage.open_source(stamp.path)
        with open(source, "rb") if isinstance(source, str) else source as file:  # noqa: PTH123 (a path or a file)
            start = file.read(4)
    except (OSError, DataError):
        start = b""
    detail = str(error).splitlines()[0] if str(error) else type(error).__name__
    if start == b"PAR1":
        return f"{stamp.path} is truncated or damaged: it starts as a Parquet file but has no valid footer ({detail})"
    if start:
        return f"{stamp.path} is not a Parquet file ({detail})"
    return f"{stamp.path} cannot be read ({detail})"


# --- statistics ------------------------------------------------------------------------------------------------------


def _chunk_statistics(group: pq.RowGroupMetaData, leaf: int) -> ColumnStatistics | None:
    chunk = group.column(leaf)
    found = chunk.statistics if chunk.is_stats_set else None
    if found is None:
        return None
    null_count = int(found.null_count) if found.has_null_count else None
    minimum = maximum = None
    if found.has_min_max:
        try:
            minimum, maximum = found.min, found.max
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            # A type without a Python form, or text that a writer cut inside a character.
            minimum = maximum = None
    return _checked(minimum, maximum, null_count, int(group.num_rows))


def _array_statistics(column: pa.ChunkedArray) -> ColumnStatistics | None:
    minimum = maximum = None
    try:
        bounds = pc.min_max(column)
        minimum, maximum = bounds["min"].as_py(), bounds["max"].as_py()
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        minimum = maximum = None
    return _checked(minimum, maximum, int(column.null_count), len(column))


def _checked(minimum: Any, maximum: Any, null_count: int | None, rows: int) -> ColumnStatistics:
    """Drop bounds that bound nothing: those of which one is missing, NaN, or that stand the wrong way round."""
    if minimum is None or maximum is None or minimum != minimum or maximum != maximum or minimum > maximum:
        minimum = maximum = None
    return ColumnStatistics(minimum, maximum, null_count, rows)


def _dictionary_entries(footer: Footer, group: int, leaf: int, bounds: ColumnStatistics | None) -> float:
    """Return about how many entries a column chunk's dictionary has; its rows where it has none.

    The footer gives no count, but a chunk is its dictionary plus one index a row of just the bits that the count needs,
    so the largest count that fits the chunk's uncompressed size is a fair guess (runs make it smaller, never far off).
    """
    rows = int(footer.metadata.row_group(group).num_rows)
    chunk = footer.metadata.row_group(group).column(leaf)
    if not chunk.has_dictionary_page:
        return float(rows)
    size = int(chunk.total_uncompressed_size)
    width = {"INT32": 4.0, "FLOAT": 4.0, "INT96": 12.0, "FIXED_LEN_BYTE_ARRAY": 16.0}.get(chunk.physical_type, 8.0)
    if bounds is not None and isinstance(bounds.minimum, str | bytes):
        width = 4.0 + (len(bounds.minimum) + len(bounds.maximum)) / 2
    low, high = 1, rows
    while low < high:
        middle = (low + high + 1) // 2
        if middle * width + rows * math.ceil(math.log2(max(middle, 2))) / 8 <= size:
            low = middle
        else:
            high = middle - 1
    return float(low)
