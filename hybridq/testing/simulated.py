"""A simulated GPU: the CPU engine behind a memory limit, for machines that have no GPU.

It exercises everything that a GPU brings into a query's life: a second kind of worker, chunks of another size, a chunk
that does not fit the device's memory. It computes on the CPU, so its times say nothing about a real GPU, and every
report calls it ``simulated gpu``.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import pyarrow as pa

from hybridq.config import JoinMethod
from hybridq.engines.account import DeviceAccount
from hybridq.engines.cache import ColumnCache, Files
from hybridq.engines.file_constants import constant_array, rows_by_file
from hybridq.engines.protocol import BuildSide, Engine, Frame, ProbeKind, ReadColumn, ReadRequest
from hybridq.engines.support import aggregate_lacking, expression_lacking
from hybridq.errors import DeviceOutOfMemory, Unsupported
from hybridq.plan.expressions import AggregateCall, Column, Expression, NamedExpression, SortKey, walk
from hybridq.testing.steady import SteadyEngine
from hybridq.types import Field, Schema

Held = TypeVar("Held", Frame, BuildSide)


class SimulatedMemory(DeviceAccount):
    """Counts the bytes of live frames, build sides and cached columns against a limit.

    Parameters
    ----------
    limit : int
        Bytes.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._lock = threading.RLock()  # a frame may be collected while the lock is held
        self._used = 0
        self._peak = 0

    @property
    def used(self) -> int:
        """Return the bytes held now."""
        return self._used

    def restart_peak(self) -> int:
        """Return the most bytes held since this was last called."""
        with self._lock:
            peak, self._peak = self._peak, self._used
            return peak

    def reserve(self, wanted: int, what: str) -> None:
        """Take ``wanted`` bytes.

        Raises
        ------
        DeviceOutOfMemory
            Fewer are free.
        """
        with self._lock:
            free = self.limit - self._used
            if wanted > free:
                raise DeviceOutOfMemory(
                    f"out of memory on the simulated GPU: {what} wants {wanted} bytes, {free} of {self.limit} are free",
                    wanted,
                    free,
                )
            self._used += wanted
            self._peak = max(self._peak, self._used)

    def release(self, size: int) -> None:
        """Give bytes back."""
        with self._lock:
            self._used -= size


class _OnDevice:
    """A frame or build side of the CPU engine whose bytes count as device memory while it lives."""

    def __init__(self, held: Any, memory: SimulatedMemory, what: str) -> None:
        # Before its size: a build side makes its tables when they are asked for.
        self.most_matches: int = getattr(held, "most_matches", 0)
        size = held.nbytes
        memory.reserve(size, what)
        self.held = held
        self.rows: int = held.rows
        self.nbytes: int = size
        weakref.finalize(self, memory.release, size).atexit = False


class _CachedColumns:
    """What the column cache does with the simulated GPU's columns: Arrow arrays."""

    def __init__(self, memory: SimulatedMemory) -> None:
        self._memory = memory

    def rows(self, data: _OnDevice) -> int:
        return data.rows

    def nbytes(self, data: _OnDevice) -> int:
        return data.nbytes

    def slice(self, data: _OnDevice, start: int, stop: int) -> _OnDevice:
        return self.hold(data.held.table.slice(start, stop - start))

    def concatenate(self, parts: Sequence[_OnDevice]) -> _OnDevice:
        return self.hold(pa.concat_tables([part.held.table for part in parts]))

    def finish(self) -> None:
        pass

    def hold(self, table: pa.Table) -> _OnDevice:
        """Put one column on the simulated device."""
        return _OnDevice(_Column(table), self._memory, "a cached column")


class _Column:
    """A table of one column, sized as a frame is."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.rows = table.num_rows
        self.nbytes = table.nbytes


class SimulatedGpuEngine:
    """The operators of the CPU engine, with a GPU's limits: of memory, and of what its engine computes.

    Each operator's result counts with the bytes it refers to, also where it shares them with its input, so the account
    is an upper bound of what the CPU engine really holds.

    Parameters
    ----------
    memory_limit : int
        Bytes of the simulated device.
    speed : float
        Above 0 and at most 1: at 0.5 every chunk takes twice as long, by sleeping. It cannot be made faster than the
        CPU that it runs on.
    inner : Engine or None
        The engine that computes; by default a ``CpuEngine``.
    """

    name = "simulated gpu"

    def __init__(self, memory_limit: int, speed: float = 1.0, inner: Engine | None = None) -> None:
        _check_speed(speed)
        if inner is None:
            from hybridq.engines.cpu import CpuEngine

            inner = CpuEngine()
        self._inner = inner
        self._speed = speed
        self._thread = threading.local()
        self.memory = SimulatedMemory(memory_limit)
        self._columns = _CachedColumns(self.memory)
        self.cache = ColumnCache(self._columns)
        self.memory.keeps(lambda: self.cache.nbytes, self.cache.evict)

    def _run(self, what: str, operation: Callable[[], Any]) -> Any:
        """Compute and note how long it took: the sleep comes at the end of the chunk."""
        start = time.perf_counter()
        try:
            return operation()
        except MemoryError as error:
            free = self.memory.limit - self.memory.used
            raise DeviceOutOfMemory(f"out of memory on the simulated GPU in {what}: {error}", 0, free) from error
        finally:
            self._thread.busy = getattr(self._thread, "busy", 0.0) + time.perf_counter() - start

    def _frame(self, what: str, operation: Callable[[], Any]) -> Frame:
        return _OnDevice(self._run(what, operation), self.memory, what)

    def read(self, request: ReadRequest) -> Frame:
        """Read row groups; see ``Engine``."""
        if request.keep:
            return self._read_cached(request)
        return self._frame("reading the chunk", lambda: self._inner.read(request))

    def _read_cached(self, request: ReadRequest) -> Frame:
        by_source = {column.source: column for column in request.columns}

        def load(files: Files, columns: Sequence[str]) -> dict[str, _OnDevice]:
            wanted = tuple(ReadColumn(name, name, by_source[name].type) for name in columns)
            pieces = tuple((path, tuple(groups)) for path, groups in files)
            part = ReadRequest(pieces, wanted, None, tuple(columns), request.bounds)
            schema = tuple(Field(column.name, column.type) for column in wanted)
            table = self._run("reading the chunk", lambda: self._inner.to_arrow(self._inner.read(part), schema))
            return {name: self._columns.hold(table.select([name])) for name in columns}

        data = (request.cache or self.cache).read(request.files, list(by_source), request.keep, load)
        arrays = {column.name: data[column.source].held.table.column(0) for column in request.columns}
        if request.constants:
            rows = rows_by_file(request.files)
            arrays |= {constant.name: constant_array(constant, rows) for constant in request.constants}
        frame = self.from_arrow(pa.table(arrays))
        if request.predicate is not None:
            frame = self.filter(frame, request.predicate)
        types = request.types
        return self.project(frame, [NamedExpression(name, Column(types[name], name)) for name in request.output])

    def settle(self) -> None:
        """Make up for the simulated speed; see ``Engine``."""
        self._inner.settle()
        busy, self._thread.busy = getattr(self._thread, "busy", 0.0), 0.0
        _make_up(busy, self._speed)

    def from_arrow(self, table: pa.Table) -> Frame:
        """Take over an Arrow table; see ``Engine``."""
        return self._frame("copying a table to the device", lambda: self._inner.from_arrow(table))

    def to_arrow(self, frame: Frame, schema: Schema) -> pa.Table:
        """Give the frame's columns, and make up for the simulated speed; see ``Engine``."""
        table = self._run("copying the result", lambda: self._inner.to_arrow(_unwrap(frame), schema))
        busy, self._thread.busy = self._thread.busy, 0.0
        _make_up(busy, self._speed)
        return table

    def concatenate(self, frames: Sequence[Frame]) -> Frame:
        """Put frames one below the other; see ``Engine``."""
        return self._frame("concatenation", lambda: self._inner.concatenate([_unwrap(frame) for frame in frames]))

    def slice(self, frame: Frame, offset: int, count: int | None) -> Frame:
        """Return some rows; see ``Engine``."""
        return self._frame("slicing", lambda: self._inner.slice(_unwrap(frame), offset, count))

    def filter(self, frame: Frame, predicate: Expression) -> Frame:
        """Keep rows for which the predicate is true; see ``Engine``."""
        _check_supported([predicate])
        return self._frame("a filter", lambda: self._inner.filter(_unwrap(frame), predicate))

    def project(self, frame: Frame, expressions: Sequence[NamedExpression]) -> Frame:
        """Compute new columns; see ``Engine``."""
        _check_supported([item.expression for item in expressions])
        return self._frame("a projection", lambda: self._inner.project(_unwrap(frame), expressions))

    def build(self, frame: Frame, keys: Sequence[str], method: JoinMethod = "auto") -> BuildSide:
        """Make the build side of a join; see ``Engine``."""
        what = "a join's build side"
        return _OnDevice(self._run(what, lambda: self._inner.build(_unwrap(frame), keys, method)), self.memory, what)

    def count_matches(self, frame: Frame, build: BuildSide, keys: Sequence[Expression]) -> int:
        """Count the pairs of an inner join; see ``Engine``."""
        found = self._run("a join", lambda: self._inner.count_matches(_unwrap(frame), _unwrap(build), keys))
        return int(found)

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
        """Join with a build side; see ``Engine``."""
        _check_supported([*keys, *([] if residual is None else [residual])])
        sides = _unwrap(frame), _unwrap(build)
        return self._frame("a join", lambda: self._inner.probe(*sides, kind, keys, residual, output, null_aware, mark))

    def aggregate(self, frame: Frame, groups: Sequence[NamedExpression], aggregates: Sequence[AggregateCall]) -> Frame:
        """Group and aggregate; see ``Engine``."""
        _check_supported([item.expression for item in groups], aggregates)
        return self._frame("an aggregate", lambda: self._inner.aggregate(_unwrap(frame), groups, aggregates))

    def sort(self, frame: Frame, keys: Sequence[SortKey]) -> Frame:
        """Order rows; see ``Engine``."""
        _check_supported([key.expression for key in keys])
        return self._frame("a sort", lambda: self._inner.sort(_unwrap(frame), keys))

    def top_k(self, frame: Frame, keys: Sequence[SortKey], count: int) -> Frame:
        """Return the first rows in order; see ``Engine``."""
        _check_supported([key.expression for key in keys])
        return self._frame("a top-k", lambda: self._inner.top_k(_unwrap(frame), keys, count))


class _SlowedEngine:
    """An engine whose every chunk takes longer: it sleeps when the chunk's result is fetched."""

    name = "simulated cpu"

    def __init__(self, inner: Engine, speed: float) -> None:
        _check_speed(speed)
        self._inner = inner
        self._speed = speed
        self._thread = threading.local()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return partial(self._timed, found) if callable(found) else found

    def to_arrow(self, frame: Frame, schema: Schema) -> pa.Table:
        table = self._timed(self._inner.to_arrow, frame, schema)
        busy, self._thread.busy = self._thread.busy, 0.0
        _make_up(busy, self._speed)
        return table

    def _timed(self, operation: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return operation(*arguments, **options)
        finally:
            self._thread.busy = getattr(self._thread, "busy", 0.0) + time.perf_counter() - start


def slowed_cpu_engine(speed: float, inner: Engine | None = None, steady: bool = False) -> Engine:
    """Return a CPU engine at a part of its speed: beside it a simulated GPU of full speed is the faster device.

    Parameters
    ----------
    speed : float
        Above 0 and at most 1: at 0.25 every chunk takes four times as long, by sleeping.
    inner : Engine or None
        The engine that computes; by default a ``CpuEngine``.
    steady : bool
        See ``hybridq.testing.steady``.
    """
    if inner is None:
        from hybridq.engines.cpu import CpuEngine

        inner = CpuEngine()
    return cast("Engine", SteadyEngine(inner, speed) if steady else _SlowedEngine(inner, speed))


def simulated_gpu_engine(memory_limit: int, speed: float, steady: bool = False) -> SimulatedGpuEngine:
    """Return a simulated GPU; a steady one keeps time by rows (``hybridq.testing.steady``)."""
    if not steady:
        return SimulatedGpuEngine(memory_limit, speed)
    from hybridq.engines.cpu import CpuEngine

    _check_speed(speed)
    return SimulatedGpuEngine(memory_limit, inner=cast("Engine", SteadyEngine(CpuEngine(), speed)))


def _check_speed(speed: float) -> None:
    if not 0 < speed <= 1:
        raise ValueError(f"the speed of a simulated device must be above 0 and at most 1, not {speed}")


def _make_up(busy: float, speed: float) -> None:
    """Sleep for what a slower device would have taken longer."""
    if speed < 1:
        time.sleep(busy * (1 / speed - 1))


def _check_supported(expressions: Sequence[Expression], aggregates: Sequence[AggregateCall] = ()) -> None:
    """Raise Unsupported for what a real GPU's engine does not compute."""
    found = [*expressions, *(call.argument for call in aggregates if call.argument is not None)]
    reasons = [expression_lacking("gpu", part) for expression in found for part in walk(expression)]
    reasons += [aggregate_lacking("gpu", call) for call in aggregates]
    for reason in reasons:
        if reason is not None:
            raise Unsupported(reason)


def _unwrap(held: Held) -> Held:
    if not isinstance(held, _OnDevice):
        raise TypeError(f"{type(held).__name__} is not on the simulated GPU")
    inner: Held = held.held
    return inner
