"""Reading Parquet row groups into frames."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hybridq import types
from hybridq.engines.column import Bounds, Column, from_arrow, to_arrow
from hybridq.engines.compiled import KERNELS
from hybridq.engines.constants import column_bounds
from hybridq.engines.file_constants import constant_array
from hybridq.engines.footer import footer_at
from hybridq.engines.footer_check import read_footer
from hybridq.engines.frame import CpuFrame
from hybridq.engines.pages import short_dictionaries
from hybridq.engines.protocol import ReadColumn, ReadRequest
from hybridq.engines.selecting import select
from hybridq.engines.selective import read_selected
from hybridq.engines.unpack import CannotUnpack, unpack, worth_unpacking
from hybridq.errors import DataError
from hybridq.storage import FileStamp, is_url, open_source, stamp


def _metadata(seen: FileStamp) -> pq.FileMetaData:
    return _remote_metadata(seen) if is_url(seen.path) else footer_at(seen).metadata


@lru_cache(maxsize=4096)
def _remote_metadata(seen: FileStamp) -> pq.FileMetaData:
    return read_footer(seen.path).metadata


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn the errors of a file that cannot be read into DataError."""
    try:
        yield
    except (OSError, EOFError, pa.ArrowException) as error:
        detail = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"cannot read {path}: it is missing, damaged or no Parquet file ({detail})") from error


def read_frame(request: ReadRequest) -> CpuFrame:
    """Read row groups; rows that do not satisfy the predicate are left out or deselected.

    Raises
    ------
    DataError
        A file is missing, truncated or not what the catalog saw; the message names it.
    """
    kernels = KERNELS.module
    if kernels is not None and (selected := read_selected(request, kernels, _read_all)) is not None:
        return selected
    frame = _read_all(request)
    KERNELS.did_without(frame.stored_rows)
    return frame


def _read_all(request: ReadRequest) -> CpuFrame:
    """Read all columns with pyarrow, then filter."""
    tables = [_read_file(path, groups, request) for path, groups in request.files]
    rows = sum(table.num_rows for table in tables)
    bounds = {source: (low, high) for source, low, high in request.bounds}
    columns = {}
    for index, column in enumerate(request.columns):
        chunks = [chunk for table in tables for chunk in table.column(index).chunks]
        low, high = bounds.get(column.source, (None, None))
        columns[column.name] = _column(chunks, column, column_bounds(column.type, low, high))
    for constant in request.constants:
        low, high = bounds.get(constant.source, (None, None))
        array = constant_array(constant, [table.num_rows for table in tables])
        columns[constant.name] = from_arrow(array, column_bounds(constant.type, low, high))
    frame = CpuFrame(columns, rows)
    if request.predicate is not None:
        frame = CpuFrame(columns, rows, select(frame, request.predicate))
    return frame.pick({name: name for name in request.output})


def _column(chunks: list[pa.Array], wanted: ReadColumn, bounds: Bounds | None) -> Column:
    if len({chunk.type for chunk in chunks}) > 1:  # Arrow casts a view to no dictionary
        chunks = [chunk.cast(pa.large_string()) if chunk.type == pa.string_view() else chunk for chunk in chunks]
    if any(pa.types.is_dictionary(chunk.type) for chunk in chunks):
        encoded = pa.dictionary(pa.int32(), pa.string())
        chunks = [chunk if chunk.type == encoded else chunk.cast(encoded) for chunk in chunks]
    if types.is_decimal(wanted.type) and any(pa.types.is_integer(chunk.type) for chunk in chunks):
        return _scaled(chunks, wanted, bounds)
    if len({chunk.type for chunk in chunks}) > 1:  # files may store strings in several forms
        common = pa.large_string() if types.is_string(wanted.type) else wanted.type
        chunks = [chunk.cast(common) for chunk in chunks]
    column = from_arrow(pa.chunked_array(chunks) if chunks else pa.array([], wanted.type), bounds)
    return column if column.type == wanted.type else column.with_type(wanted.type)


def _scaled(chunks: list[pa.Array], wanted: ReadColumn, bounds: Bounds | None) -> Column:
    """Make a decimal column of integers that are its scaled values; pieces of other files may be decimals already."""
    if all(chunk.type == chunks[0].type for chunk in chunks):
        column = from_arrow(pa.chunked_array(chunks))
        return Column(wanted.type, column.numbers.astype(np.int64, copy=False), column.valid, bounds=bounds)
    decimals = [to_arrow(_scaled([c], wanted, None)) if pa.types.is_integer(c.type) else c for c in chunks]
    return from_arrow(pa.chunked_array(decimals), bounds)


def _read_file(path: str, groups: tuple[int, ...], request: ReadRequest) -> pa.Table:
    names = [column.source for column in request.columns]
    seen = stamp(path)
    with _explained(path):
        metadata = _metadata(seen)
        _check_columns(path, metadata, groups, request.columns)
        table, scaled = _read_groups(seen, metadata, groups, request.columns)
    table = table.select(names)
    for index, column in enumerate(request.columns):
        data = table.column(index)
        if types.normalize(data.type) != column.type and column.source not in scaled:
            try:
                table = table.set_column(index, column.source, data.cast(column.type))
            except pa.ArrowException as error:
                raise DataError(
                    f"column {column.source} of {path} is {data.type}, not {column.type} as in the other files: {error}"
                ) from error
    return table


def _read_groups(
    seen: FileStamp, metadata: pq.FileMetaData, groups: tuple[int, ...], columns: tuple[ReadColumn, ...]
) -> tuple[pa.Table, set[str]]:
    """Read row groups of a file; also return the decimal columns that are given as integers."""
    encoded = _encoded_columns(metadata, groups, columns)
    names = list(dict.fromkeys(column.source for column in columns))
    local = not is_url(seen.path) and all(_unpackable(column.type) for column in columns)
    if local and worth_unpacking(footer_at(seen), groups, names):
        scaled = _stored_as_integers(metadata, columns)
        try:
            unpacked = unpack(footer_at(seen), groups, names, scaled)
        except CannotUnpack:
            pass
        else:
            with pq.ParquetFile(pa.BufferReader(unpacked), read_dictionary=encoded) as file:
                return file.read(use_threads=False), scaled
    source = open_source(seen.path)
    try:
        # Reading ahead pays for remote files; a local one is in the page cache or soon will be.
        remote = not isinstance(source, str)
        with pq.ParquetFile(source, metadata=metadata, read_dictionary=encoded, pre_buffer=remote) as file:
            return file.read_row_groups(list(groups), columns=names, use_threads=False), set()
    finally:
        if not isinstance(source, str):
            source.close()


def _unpackable(data_type: pa.DataType) -> bool:
    """Tell whether Parquet's own description of a column gives this type, without Arrow's copy of it in the file."""
    return bool(
        types.is_string(data_type)
        or types.is_decimal(data_type)
        or pa.types.is_integer(data_type)
        or pa.types.is_floating(data_type)
        or pa.types.is_boolean(data_type)
        or pa.types.is_date(data_type)
    )


def _stored_as_integers(metadata: pq.FileMetaData, columns: tuple[ReadColumn, ...]) -> set[str]:
    """Return the decimal columns whose scaled values are what the file stores."""
    wanted = {column.source: column.type for column in columns if types.is_decimal(column.type)}
    found = set()
    for index in range(metadata.num_columns if wanted else 0):
        stored = metadata.schema.column(index)
        decimal = wanted.get(stored.path)
        if decimal is None or stored.physical_type not in ("INT32", "INT64"):
            continue
        if (stored.precision, stored.scale) == (decimal.precision, decimal.scale):
            found.add(stored.path)
    return found


def _check_columns(
    path: str, metadata: pq.FileMetaData, groups: tuple[int, ...], columns: tuple[ReadColumn, ...]
) -> None:
    if groups and max(groups) >= metadata.num_row_groups:
        raise DataError(
            f"{path} has changed: it has {metadata.num_row_groups} row groups, and number {max(groups)} is to be read"
        )
    present = set(metadata.schema.to_arrow_schema().names)
    for column in columns:
        if column.source not in present:
            raise DataError(f"{path} has no column {column.source}: it has {', '.join(sorted(present))}")


def _encoded_columns(metadata: pq.FileMetaData, groups: tuple[int, ...], columns: tuple[ReadColumn, ...]) -> list[str]:
    """Return the string columns that are worth reading as dictionaries."""
    wanted = {column.source for column in columns if types.is_string(column.type)}
    if not wanted or not groups:
        return []
    found = []
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        if name not in wanted:
            continue
        if short_dictionaries(metadata, index, groups):
            found.append(name)
    return found
