"""The GPU engine: kernels of libcudf on one device.

Threads may share an engine; frames stay with the thread that made them until it has settled, build sides may be used by
all.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hybridq.config import JoinMethod
from hybridq.engines.cache import ColumnCache
from hybridq.engines.column import LARGE_STRING_BYTES, within
from hybridq.engines.gpu import device
from hybridq.engines.gpu.aggregate import aggregate_frame
from hybridq.engines.gpu.column import GpuColumn, concatenate
from hybridq.engines.gpu.evaluate import Evaluator
from hybridq.engines.gpu.frame import GpuFrame
from hybridq.engines.gpu.host import Host
from hybridq.engines.gpu.interop import from_arrow, to_arrow
from hybridq.engines.gpu.join import GpuBuildSide, count_matches, probe_frame
from hybridq.engines.gpu.memory import DeviceMemory
from hybridq.engines.gpu.read import ColumnOperations, read_frame
from hybridq.engines.gpu.sort import sort_frame
from hybridq.engines.gpu.support import HOST_ONLY_METHODS
from hybridq.engines.protocol import BuildSide, Frame, ProbeKind, ReadRequest
from hybridq.errors import DeviceOutOfMemory, NumericOverflow, Unsupported
from hybridq.plan.expressions import AggregateCall, Expression, NamedExpression, SortKey
from hybridq.types import Schema, is_decimal, is_string, to_arrow_schema


class GpuEngine:
    """Runs a pipeline's operators on the GPU; see ``hybridq.engines.protocol.Engine`` for each.

    An operator that does not fit the device's memory raises MemoryError or DeviceOutOfMemory.

    Parameters
    ----------
    memory : DeviceMemory or None
        The account of the device's memory (see ``hybridq.engines.gpu.memory.start_device``).

    Attributes
    ----------
    cache : ColumnCache
        Columns that stay on the device; empty until a read request asks for that and the cache has a limit.
    """

    name = "gpu"

    def __init__(self, memory: DeviceMemory | None = None) -> None:
        self.memory = memory
        self.cache = ColumnCache(ColumnOperations())
        if memory is not None:
            memory.keeps(lambda: self.cache.nbytes, self.cache.evict)
        self._host = Host()

    @property
    def host_evaluations(self) -> int:
        """Return how often columns were taken to the CPU, for functions that the device does not have."""
        return self._host.evaluations

    def read(self, request: ReadRequest) -> Frame:
        return read_frame(request, self._host, request.cache or self.cache)

    def settle(self) -> None:
        device.synchronize()

    def from_arrow(self, table: pa.Table) -> Frame:
        if table.num_rows > device.MAX_ROWS:
            raise DeviceOutOfMemory(f"{table.num_rows} rows are more than a column on the GPU may have")
        found = {name: from_arrow(table.column(index)) for index, name in enumerate(table.column_names)}
        return GpuFrame(found, table.num_rows)

    def to_arrow(self, frame: Frame, schema: Schema) -> pa.Table:
        found = own(frame)
        if not schema:
            return pa.table({"rows": pa.nulls(found.rows)}).select([])
        columns = []
        for field in schema:
            column = found.columns[field.name]
            _check_digits(column, field.name)
            array: pa.Array | pa.ChunkedArray = to_arrow(column)
            if array.type != field.type:
                array = _converted(array, field.name, field.type)
            columns.append(array)
        return pa.Table.from_arrays(columns, schema=to_arrow_schema(schema))

    def concatenate(self, frames: Sequence[Frame]) -> Frame:
        parts = [own(frame) for frame in frames]
        rows = sum(part.rows for part in parts)
        if rows > device.MAX_ROWS:
            raise DeviceOutOfMemory(f"{rows} rows are more than a column on the GPU may have")
        names = parts[0].columns
        return GpuFrame({name: concatenate([part.columns[name] for part in parts]) for name in names}, rows)

    def slice(self, frame: Frame, offset: int, count: int | None) -> Frame:
        found = own(frame)
        start = min(offset, found.rows)
        return found.slice(start, found.rows if count is None else min(start + count, found.rows))

    def filter(self, frame: Frame, predicate: Expression) -> Frame:
        found = own(frame)
        return found.keep(Evaluator(found, self._host).mask(predicate)) if found.rows else found

    def project(self, frame: Frame, expressions: Sequence[NamedExpression]) -> Frame:
        found = own(frame)
        evaluator = Evaluator(found, self._host)
        return GpuFrame({item.name: evaluator.column(item.expression) for item in expressions}, found.rows)

    def build(self, frame: Frame, keys: Sequence[str], method: JoinMethod = "auto") -> BuildSide:
        if method in HOST_ONLY_METHODS:
            raise Unsupported(f"the GPU engine has no {method} joins")
        side = GpuBuildSide(own(frame), keys)
        self.settle()  # other threads, on other streams, may use it at once
        return side

    def count_matches(self, frame: Frame, build: BuildSide, keys: Sequence[Expression]) -> int:
        assert isinstance(build, GpuBuildSide)
        return count_matches(own(frame), build, keys, self._host)

    def probe(
        self,
        frame: Frame,
        build: BuildSide,
        kind: ProbeKind,
        keys: Sequence[Expression],
        residual: Expression | None,
        output: Sequence[str],
        null_aware: bool = False,
        mark: str | None = None,
    ) -> Frame:
        assert isinstance(build, GpuBuildSide)
        return probe_frame(own(frame), build, kind, keys, residual, output, self._host, null_aware, mark)

    def aggregate(self, frame: Frame, groups: Sequence[NamedExpression], aggregates: Sequence[AggregateCall]) -> Frame:
        return aggregate_frame(own(frame), groups, aggregates, self._host)

    def sort(self, frame: Frame, keys: Sequence[SortKey]) -> Frame:
        return sort_frame(own(frame), keys, self._host)

    def top_k(self, frame: Frame, keys: Sequence[SortKey], count: int) -> Frame:
        return sort_frame(own(frame), keys, self._host, max(count, 0))


def own(frame: Frame) -> GpuFrame:
    """Check that a frame is this engine's."""
    if not isinstance(frame, GpuFrame):
        raise TypeError(f"the GPU engine cannot use a {type(frame).__name__}")
    return frame


def _check_digits(column: GpuColumn, name: str) -> None:
    """Raise NumericOverflow if a decimal has more digits than its type says."""
    if column.wide and is_decimal(column.type):
        limit = 10**column.type.precision - 1
        if not within(column.interval(), (-limit, limit)) and not within(column.measured(), (-limit, limit)):
            raise NumericOverflow(f"a value of {name} does not fit {column.type}")


def _converted(array: pa.Array, name: str, data_type: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Give an array the type that the plan declares."""
    if pa.types.is_large_string(array.type) and is_string(data_type):
        return pa.chunked_array(_cut_text(array), pa.string())
    try:
        return array.cast(data_type)
    except pa.ArrowInvalid as error:
        raise NumericOverflow(f"a value of {name} does not fit {data_type}: {error}") from error


def _cut_text(array: pa.LargeStringArray) -> list[pa.StringArray]:
    """Cut text past 2 GiB into pieces that string arrays can hold."""
    if array.nbytes < LARGE_STRING_BYTES or len(array) < 2:
        return [array.cast(pa.string())]
    middle = len(array) // 2
    return _cut_text(array.slice(0, middle)) + _cut_text(array.slice(middle))
