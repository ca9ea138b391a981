"""Reading Parquet row groups straight to the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import pyarrow as pa
import pylibcudf as plc
from pylibcudf.io.parquet import ParquetReaderOptions, read_parquet
from pylibcudf.io.parquet_metadata import FileMetaData
from pylibcudf.io.types import SourceInfo

from hybridq import types
from hybridq.engines.cache import ColumnCache, Files
from hybridq.engines.constants import column_bounds
from hybridq.engines.file_constants import rows_by_file
from hybridq.engines.footer import FileFooter, footer_of
from hybridq.engines.gpu import device
from hybridq.engines.gpu.column import GpuColumn
from hybridq.engines.gpu.evaluate import Evaluator
from hybridq.engines.gpu.frame import GpuFrame
from hybridq.engines.gpu.host import Host
from hybridq.engines.gpu.interop import from_arrow, from_storage
from hybridq.engines.protocol import FileConstant, ReadRequest
from hybridq.errors import DeviceOutOfMemory
from hybridq.storage import is_url
from hybridq.types import Field

_OUT_OF_MEMORY = ("out_of_memory", "out of memory", "cudaErrorMemoryAllocation", "bad_alloc")


KEPT_FOOTERS = 512
"""Parts of files whose parsed footers are kept: parsing one takes a millisecond or two, in which no other is read."""


class _Unreadable(Exception):
    """libcudf does not read the files."""


class ColumnOperations:
    """What the column cache does with device columns."""

    def rows(self, data: plc.Column) -> int:
        return int(data.size())

    def nbytes(self, data: plc.Column) -> int:
        return int(data.device_buffer_size())

    def slice(self, data: plc.Column, start: int, stop: int) -> plc.Column:
        return plc.copying.slice(data, [start, stop])[0]

    def concatenate(self, parts: Sequence[plc.Column]) -> plc.Column:
        return plc.concatenate.concatenate(list(parts))

    def finish(self) -> None:
        device.synchronize()


def read_frame(request: ReadRequest, host: Host, cache: ColumnCache[plc.Column]) -> GpuFrame:
    """Read row groups, and keep the rows that satisfy the predicate.

    Files that libcudf does not read, or whose columns are of other types than the plan says, are left to the CPU
    engine, which converts them or says what is wrong.

    Raises
    ------
    DataError
        A file is missing, truncated or not what the catalog saw; the message names it.
    """
    frame = _read_on_device(request, cache)
    if frame is None:
        return _read_on_host(request, host)
    if request.predicate is not None and frame.rows:
        mask = Evaluator(frame, host).mask(request.predicate)
        return frame.pick(request.output).keep(mask)
    return frame.pick(request.output)


def _read_on_device(request: ReadRequest, cache: ColumnCache[plc.Column]) -> GpuFrame | None:
    files = [(path.removeprefix("file://"), groups) for path, groups in request.files if groups]
    if not files or not request.columns or any(is_url(path) for path, _ in files):
        return None
    sources = list(dict.fromkeys(column.source for column in request.columns))
    try:
        sources = footer_of(files[0][0]).in_file_order(sources)
        data = cache.read(files, sources, request.keep, _load) if request.keep else _load(files, sources)
    except MemoryError:
        raise
    except _Unreadable:
        return None
    except (RuntimeError, OSError, ValueError, IndexError, TypeError, OverflowError) as error:
        if any(sign in str(error) for sign in _OUT_OF_MEMORY):
            raise DeviceOutOfMemory(f"out of memory on the GPU while reading {len(files)} files: {error}") from error
        return None
    return _frame(request, data)


def _load(files: Files, columns: Sequence[str]) -> dict[str, plc.Column]:
    """Read row groups of local files to the device."""
    footers = _footers(files, columns)
    options = ParquetReaderOptions.builder(SourceInfo([path for path, _ in files])).column_names(list(columns)).build()
    if footers is None:
        options.set_row_groups([list(groups) for _, groups in files])
    found = read_parquet(options, parquet_metadatas=footers)
    data = dict(zip(found.column_names(include_children=False), found.tbl.columns(), strict=True))
    rows = int(found.tbl.num_rows())
    if any(name not in data or data[name].size() != rows for name in columns):
        raise _Unreadable
    return {name: data[name] for name in columns}


def _footers(files: Files, columns: Sequence[str]) -> list[FileMetaData] | None:
    """Return footers of just what is read; ``None`` where libcudf has to look at the files' own."""
    found = []
    for path, groups in files:
        metadata = _metadata_of(footer_of(path), tuple(groups), tuple(columns))
        if metadata is None:
            return None
        found.append(metadata)
    return found


@lru_cache(maxsize=KEPT_FOOTERS)
def _metadata_of(footer: FileFooter, groups: tuple[int, ...], columns: tuple[str, ...]) -> FileMetaData | None:
    """Return the footer of a part of a file as libcudf has parsed it, which copies it for each reading."""
    data = footer.cut(groups, columns)
    return None if data is None else FileMetaData.from_bytes(data)


def _frame(request: ReadRequest, data: Mapping[str, plc.Column]) -> GpuFrame | None:
    """Give the columns their logical types; ``None`` if one has another type than the plan says."""
    ranges = {source: (low, high) for source, low, high in request.bounds}
    columns: dict[str, GpuColumn] = {}
    for wanted in request.columns:
        values = data[wanted.source]
        low, high = ranges.get(wanted.source, (None, None))
        column = from_storage(values, wanted.type, column_bounds(wanted.type, low, high))
        if column is None:
            return None
        columns[wanted.name] = column
    rows = int(next(iter(data.values())).size())
    if request.constants:
        counts = rows_by_file([(path.removeprefix("file://"), groups) for path, groups in request.files])
        if sum(counts) != rows:
            return None
        columns |= _constants(request.constants, counts)
    return GpuFrame(columns, rows)


def _constants(constants: Sequence[FileConstant], counts: Sequence[int]) -> dict[str, GpuColumn]:
    """Repeat each file's values as often as it has rows."""
    values = [from_arrow(pa.array(constant.values, constant.type), constant.type) for constant in constants]
    times = from_arrow(pa.array(counts, pa.int32())).data
    repeated = plc.filling.repeat(plc.Table([column.data for column in values]), times).columns()
    return {
        constant.name: column.with_data(data)
        for constant, column, data in zip(constants, values, repeated, strict=True)
    }


def _read_on_host(request: ReadRequest, host: Host) -> GpuFrame:
    found = request.types
    schema = tuple(Field(name, types.normalize(found[name])) for name in request.output)
    rows, columns = host.read(request, schema)
    if rows > device.MAX_ROWS:
        raise DeviceOutOfMemory(f"{rows} rows are more than a column on the GPU may have", 0, 0)
    return GpuFrame(columns, rows)
