"""Footers of Parquet files: schema, row groups, and what they say of the values of columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hybridq import storage
from hybridq.engines.footer_check import read_footer
from hybridq.errors import DataError
from hybridq.plan.statistics import ColumnStatistics, IntegerBounds, integer_bounds
from hybridq.storage import FileStamp
from hybridq.types import Field, Schema, declared


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
    constants : mapping of str to value
        Columns that a table has besides those of the file, or in their place, with the one value of all rows: what
        the names of folders say. A Python value of the column's type, or ``None`` for NULL.
    """

    stamp: FileStamp
    metadata: pq.FileMetaData
    schema: Schema
    leaves: dict[str, tuple[int, ...]]
    flat: frozenset[str]
    constants: Mapping[str, Any] = field(default_factory=dict)
    _statistics: dict[str, list[ColumnStatistics | None]] = field(default_factory=dict)
    _sizes: dict[str, list[int]] = field(default_factory=dict)
    _integers: dict[str, IntegerBounds | None] = field(default_factory=dict)
    _whole_sizes: dict[str, int] = field(default_factory=dict)
    _whole_ranges: dict[str, tuple[Any, Any] | None] = field(default_factory=dict)

    def with_constants(self, constants: Mapping[str, Any]) -> Footer:
        """Return the footer for a table in which the file's rows have these values as well.

        Their statistics are exact, and they take no bytes of the file.
        """
        rows = [int(self.metadata.row_group(group).num_rows) for group in range(self.metadata.num_row_groups)]
        statistics: dict[str, list[ColumnStatistics | None]] = {
            name: [ColumnStatistics(value, value, count if value is None else 0, count) for count in rows]
            for name, value in constants.items()
        }
        sizes = {name: [0] * len(rows) for name in constants}
        return replace(
            self, constants=dict(constants), _statistics=statistics, _sizes=sizes, _integers={}, _whole_sizes={},
            _whole_ranges={},
        )  # fmt: skip

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

    def dictionary_entries(self, source: str, group: int) -> float | None:
        """Return about how many entries a column's dictionary has in a row group; the rows where it has none.

        ``None`` where the column is nested.
        """
        if source in self.constants:
            return 1.0
        if source not in self.flat:
            return None
        (leaf,) = self.leaves[source]
        return _dictionary_entries(self.metadata.row_group(group), leaf, self.statistics(source)[group])


def footer_of(path: str) -> Footer:
    """Return the footer of a file as it is now, which is read once as long as the file stays the same.

    Raises
    ------
    DataError
        It is no Parquet file, or cannot be read.
    """
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
    check_unique([item.name for item in schema], path)
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


def check_unique(names: list[str], owner: str) -> None:
    """Check that the names of columns differ.

    Raises
    ------
    DataError
        Several are the same; it names one of them, and their owner.
    """
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{owner} has several columns {name!r}")


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
    return sound_statistics(minimum, maximum, null_count, int(group.num_rows))


def sound_statistics(minimum: Any, maximum: Any, null_count: int | None, rows: int) -> ColumnStatistics:
    """Drop bounds that bound nothing: those of which one is missing, NaN, or that stand the wrong way round."""
    if minimum is None or maximum is None or minimum != minimum or maximum != maximum or minimum > maximum:
        minimum = maximum = None
    return ColumnStatistics(minimum, maximum, null_count, rows)


def _dictionary_entries(group: pq.RowGroupMetaData, leaf: int, bounds: ColumnStatistics | None) -> float:
    """Return about how many entries a column chunk's dictionary has; its rows where it has none.

    The footer gives no count, but a chunk is its dictionary plus one index a row of just the bits that the count needs,
    so the largest count that fits the chunk's uncompressed size is a fair guess (runs make it smaller, never far off).
    """
    rows = int(group.num_rows)
    chunk = group.column(leaf)
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
