"""Registered tables: their files or in-memory data, units, schema and statistics."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from hybridq import storage
from hybridq.errors import DataError, UnknownTable
from hybridq.footers import Footer, check_unique, footer_of, sound_statistics
from hybridq.partitioning import partition_columns
from hybridq.plan.statistics import ColumnStatistics, ColumnSummary, UnitBounds
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
        return self.footer.dictionary_entries(source, self.row_group)


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
    keys : tuple of str
        Columns whose values are in the names of the files' folders.
    """

    def __init__(self, name: str, schema: Schema, units: Iterable[Unit], keys: tuple[str, ...] = ()) -> None:
        self.name = name
        self.schema = schema
        self.keys = keys
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
            a dictionary. A key of folders costs no more than such a column without a codec.
        """
        first = self.units[0] if self.units else None
        if not isinstance(first, ParquetUnit):
            return None
        if source in self.keys:
            return "none", True
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
            A Parquet file, a folder (its ``*.parquet`` files and those in ``key=value`` subfolders), a glob, an fsspec
            URL, several of these, or data in memory. Names that start with ``_`` or ``.`` are left out of folders and
            globs. The keys of the subfolders become columns after those of the files, of type int64, date32 or string
            (``hybridq.partitioning``), unless the path names the subfolder itself; a key that the files have as a
            column is that column, with the values that the folders say.

        Returns
        -------
        Table

        Raises
        ------
        DataError
            Nothing is there, a file is not whole or not Parquet, or two files' schemas or keys differ.
        """
        if not isinstance(name, str) or not name:
            raise DataError(f"a table's name must be a text that is not empty, not {name!r}")
        try:
            table = _make_table(name, source)
        except DataError as error:
            raise _of_table(name, error) from error
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

        One that cannot be read, or that a link out of the folder leads to, is no table; what is wrong with it is said
        where it is asked for.

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
            The folder does not exist or has no table, or none of its tables can be read.
        """
        try:
            found = storage.tables_in(directory, follow_links)
        except OSError as error:  # of a path that no file system takes
            raise DataError(f"the folder cannot be looked for: {error.strerror or error}") from error
        unreadable = {name: _of_table(name, error) for name, error in found.refused.items()}
        for name, path in found.paths.items():
            try:
                self.register(name, path)
            except DataError as error:
                unreadable[name] = error
        if unreadable.keys() >= found.paths.keys():
            raise next(iter(unreadable.values()))
        for name in unreadable:
            self._tables.pop(name, None)  # as it was when the folder was registered before
        self._unreadable |= unreadable
        self.version += 1
        return tuple(name for name in found.paths if name not in unreadable)

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


def _of_table(name: str, error: DataError) -> DataError:
    return DataError(f"table {name!r}: {error}")


def _make_table(name: str, source: Any) -> Table:
    if isinstance(source, str | os.PathLike):
        return _parquet_table(name, [source])
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
        return _parquet_table(name, paths)
    raise DataError(
        "give a Parquet file, folder, glob, URL, a list of them, a pyarrow.Table or a pandas.DataFrame,"
        f" not {type(source).__name__}"
    )


def _parquet_table(name: str, sources: Sequence[str | os.PathLike[str]]) -> Table:
    folders: dict[str, tuple[str, ...]] = {}
    for source in sources:
        for path, names in storage.searched_folders(source, storage.find_parquet(source)).items():
            folders[path] = max(folders.get(path, ()), names, key=len)
    paths = list(folders)
    keys, values = partition_columns(folders)
    if len(paths) == 1:
        footers = [footer_of(paths[0])]
    else:
        with ThreadPoolExecutor(min(FOOTER_THREADS, len(paths))) as pool:
            footers = list(pool.map(footer_of, paths))
    first = footers[0]
    for other in footers[1:]:
        _check_same_schema(first, other, {key.name for key in keys})
    schema = _combined(first.schema, keys)
    if keys:
        footers = [footer.with_constants(values[path]) for path, footer in zip(paths, footers, strict=True)]
    units: list[Unit] = []
    for footer in footers:
        for group in range(footer.metadata.num_row_groups):
            rows = int(footer.metadata.row_group(group).num_rows)
            if rows:
                units.append(ParquetUnit(footer, group, rows))
    return Table(name, schema, units, tuple(key.name for key in keys))


def _memory_table(name: str, table: pa.Table) -> Table:
    schema = tuple(Field(item.name, declared(item.type)) for item in table.schema)
    check_unique([item.name for item in schema], "the table")
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


def _combined(stored: Schema, keys: Schema) -> Schema:
    """Return the columns of a table: those of its files, and then the keys of its folders.

    A key that the files have as a column takes that one's place: the names of the folders say its values.
    """
    found = {item.name: item for item in stored}
    spelled = {name.casefold(): name for name in found}
    for key in keys:
        other = spelled.get(key.name.casefold(), key.name)
        if other != key.name and key.name not in found:
            raise DataError(
                f"the folders' key {key.name!r} and the files' column {other!r} differ in case alone: rename one"
            )
        found[key.name] = key
    return tuple(found.values())


def _check_same_schema(first: Footer, other: Footer, keys: Container[str]) -> None:
    """Check that two files have the same columns, those aside whose values the folders say."""
    if first.schema == other.schema:
        return
    here, there = first.stamp.path, other.stamp.path
    left = {item.name: item.type for item in first.schema if item.name not in keys}
    right = {item.name: item.type for item in other.schema if item.name not in keys}
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


def _array_statistics(column: pa.ChunkedArray) -> ColumnStatistics | None:
    minimum = maximum = None
    try:
        bounds = pc.min_max(column)
        minimum, maximum = bounds["min"].as_py(), bounds["max"].as_py()
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        minimum = maximum = None
    return sound_statistics(minimum, maximum, int(column.null_count), len(column))
