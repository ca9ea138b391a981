"""Reading Parquet row groups straight to the device."""

from __future__ import annotations

from functools import lru_cache

import pylibcudf as plc
from pylibcudf.io.parquet import ParquetReaderOptions, read_parquet
from pylibcudf.io.parquet_metadata import FileMetaData, read_parquet_footers
from pylibcudf.io.types import SourceInfo

from hybridq import types
from hybridq.engines.constants import column_bounds
from hybridq.engines.gpu import device
from hybridq.engines.gpu.column import GpuColumn
from hybridq.engines.gpu.evaluate import Evaluator
from hybridq.engines.gpu.frame import GpuFrame
from hybridq.engines.gpu.host import Host
from hybridq.engines.gpu.interop import from_storage
from hybridq.engines.protocol import ReadRequest
from hybridq.errors import DeviceOutOfMemory
from hybridq.storage import FileStamp, is_url, stamp
from hybridq.types import Field

_OUT_OF_MEMORY = ("out_of_memory", "out of memory", "cudaErrorMemoryAllocation", "bad_alloc")


def read_frame(request: ReadRequest, host: Host) -> GpuFrame:
    """Read row groups, and keep the rows that satisfy the predicate.

    Files that libcudf does not read, or whose columns are of other types than the plan says, are left to the CPU
    engine, which converts them or says what is wrong.

    Raises
    ------
    DataError
        A file is missing, truncated or not what the catalog saw; the message names it.
    """
    frame = _read_on_device(request)
    if frame is None:
        return _read_on_host(request, host)
    if request.predicate is not None and frame.rows:
        mask = Evaluator(frame, host).mask(request.predicate)
        return frame.pick(request.output).keep(mask)
    return frame.pick(request.output)


@lru_cache(maxsize=1024)
def _footer(seen: FileStamp) -> FileMetaData:
    """Parse a file's footer once: of a file of a thousand row groups that takes longer than reading some of them."""
    return read_parquet_footers(SourceInfo([seen.path]))[0]


def _read_on_device(request: ReadRequest) -> GpuFrame | None:
    files = [(path.removeprefix("file://"), groups) for path, groups in request.files if groups]
    if not files or not request.columns or any(is_url(path) for path, _ in files):
        return None
    sources = list(dict.fromkeys(column.source for column in request.columns))
    try:
        options = ParquetReaderOptions.builder(SourceInfo([path for path, _ in files])).column_names(sources).build()
        options.set_row_groups([list(groups) for _, groups in files])
        found = read_parquet(options, parquet_metadatas=[_footer(stamp(path)) for path, _ in files])
    except MemoryError:
        raise
    except (RuntimeError, OSError, ValueError, IndexError, TypeError, OverflowError) as error:
        if any(sign in str(error) for sign in _OUT_OF_MEMORY):
            raise DeviceOutOfMemory(f"out of memory on the GPU while reading {len(files)} files: {error}") from error
        return None
    data = dict(zip(found.column_names(include_children=False), found.tbl.columns(), strict=True))
    return _frame(request, data, int(found.tbl.num_rows()))


def _frame(request: ReadRequest, data: dict[str, plc.Column], rows: int) -> GpuFrame | None:
    """Give the columns their logical types; ``None`` if one has another type than the plan says."""
    ranges = {source: (low, high) for source, low, high in request.bounds}
    columns: dict[str, GpuColumn] = {}
    for wanted in request.columns:
        values = data.get(wanted.source)
        if values is None or values.size() != rows:
            return None
        low, high = ranges.get(wanted.source, (None, None))
        column = from_storage(values, wanted.type, column_bounds(wanted.type, low, high))
        if column is None:
            return None
        columns[wanted.name] = column
    return GpuFrame(columns, rows)


def _read_on_host(request: ReadRequest, host: Host) -> GpuFrame:
    found = {column.name: column.type for column in request.columns}
    schema = tuple(Field(name, types.normalize(found[name])) for name in request.output)
    rows, columns = host.read(request, schema)
    if rows > device.MAX_ROWS:
        raise DeviceOutOfMemory(f"{rows} rows are more than a column on the GPU may have", 0, 0)
    return GpuFrame(columns, rows)
