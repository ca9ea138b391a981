"""Measures one worker's engine: reading, moving, and each operator at several sizes.

Everything goes through ``hybridq.engines.protocol``, so what is measured of a GPU is what queries will see of it. Work
on a GPU is queued: each measurement ends with fetching one row of its result, which waits for the rest.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hybridq.dispatch.worker import engine_for_worker
from hybridq.engines.protocol import Engine, Frame, ReadColumn, ReadRequest
from hybridq.errors import DeviceOutOfMemory, ExecutionError, RequestError
from hybridq.merge.aggregate import merge_partials
from hybridq.physical.merges import AggregateMerge
from hybridq.placement.calibrate import EffortName
from hybridq.plan.expressions import AggregateCall, Call, Column, Expression, Literal, NamedExpression, SortKey
from hybridq.types import Field, sum_type

MONEY = pa.decimal128(15, 2)
COLUMNS: dict[str, pa.DataType] = {
    "integer": pa.int64(), "decimal": MONEY, "floating": pa.float64(), "date": pa.date32(), "dictionary": pa.string(),
    "string": pa.string(), "repeating_integer": pa.int64(), "repeating_decimal": MONEY,
}  # fmt: skip
"""One column of each kind of value: the names are the profile's type classes."""

CODECS = ("snappy", "zstd", "lz4", "gzip", "none")

FEW_GROUPS = 8
MANY_GROUPS_SHARE = 8
"""The larger aggregate has a group for so many rows, and a build side one row for so many probing ones."""

FEW_VALUES = 50
"""Different values of columns that repeat."""

ROW_GROUP_ROWS = 256 * 1024

MOST_ROWS_OF_OTHERS = 2**18
"""Rows up to which the less common codecs are measured."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    Attributes
    ----------
    sizes : tuple of int
        Rows, smallest first.
    read_sizes : tuple of int
        Rows of the Parquet files that are read.
    codecs : tuple of str
        The first is measured at all sizes, the others, whose writing takes long, up to ``MOST_ROWS_OF_OTHERS``.
    enough_s : float
        An operator that took so long is not measured at larger sizes.
    repeats : int
        Runs, of which the fastest counts; one, where it takes long.
    budget_s : float
        No further size is begun after so long.
    until_straight : bool
        No further size is measured of what grows with its size already.
    copies : int
        Times that the largest file is read at once, as one more size; 0: not at all.
    empty_tasks : int
        Tasks that do nothing, to see what Dask takes for each.
    together : bool
        All kinds of device are measured at the same time.
    """

    sizes: tuple[int, ...]
    read_sizes: tuple[int, ...]
    codecs: tuple[str, ...]
    enough_s: float
    repeats: int
    budget_s: float
    until_straight: bool = False
    copies: int = 0
    empty_tasks: int = 100
    together: bool = False


FULL = Effort(tuple(2**power for power in range(10, 27, 2)), (2**14, 2**18, 2**20), CODECS, 0.15, 3, 5.0)
QUICK = Effort((2**12, 2**16, 2**19), (2**14, 2**18), ("snappy",), 0.05, 2, 2.0)
SMALL = Effort(
    (2**13, 2**17, 2**19), (2**14, 2**17), ("snappy",), 0.01, 2, 0.6, until_straight=True, copies=16, empty_tasks=20,
    together=True,
)  # fmt: skip
EFFORTS: Mapping[EffortName, Effort] = {"full": FULL, "quick": QUICK, "small": SMALL}

STRAIGHT = 0.5
"""What takes at least this part as much longer as it is larger is taken to be straight from there on."""


@dataclass(slots=True)
class Measured:
    """What was measured of one worker; sizes are rows, or bytes for the transfers."""

    engine: str
    cores: int
    read: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    operators: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    to_device: list[tuple[float, float]] = field(default_factory=list)
    from_device: list[tuple[float, float]] = field(default_factory=list)
    merge: list[tuple[float, float]] = field(default_factory=list)
    page_cache: list[tuple[float, float]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def measure_worker(kind: str, effort: EffortName) -> Measured:
    """Measure this process's engine for one kind of device."""
    from distributed import get_worker

    return measure(engine_for_worker(kind), EFFORTS[effort], get_worker().local_directory)


def measure(engine: Engine, effort: Effort, folder: str | None = None) -> Measured:
    """Measure an engine.

    Parameters
    ----------
    engine : Engine
    effort : Effort
    folder : str, optional
        Where the files go that are read; by default the system's place for such.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = Measured(engine.name, cores)
    _warm_up(engine)
    _measure_operators(engine, effort, found)
    _measure_transfers(engine, effort, found)
    _measure_reading(engine, effort, found, folder)
    _measure_merging(effort, found)
    return found


def _warm_up(engine: Engine) -> None:
    """Run everything once: the first call of a kernel pays for loading it."""
    for _, run in _operations(engine, _numbers(1024), 1024):
        run()


def _timed(run: Callable[[], object], repeats: int, enough: float) -> float:
    """Return the seconds of the fastest run."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
        if best > enough:
            break
    return best


def _wait(engine: Engine, frame: Frame, column: str, data_type: pa.DataType) -> None:
    """Wait until a frame's rows are there."""
    engine.to_arrow(engine.slice(frame, 0, 1), (Field(column, data_type),))


# --- operators -----------------------------------------------------------------------------------------------------


def _numbers(rows: int) -> pa.Table:
    """Return a table of keys, a few groups, many groups, and money."""
    random = np.random.default_rng(rows)
    cents = random.integers(100, 10_000_000, rows, np.int64)
    many = max(rows // MANY_GROUPS_SHARE, 1)
    return pa.table(
        {
            "key": pa.array(random.integers(0, many, rows, np.int64)),
            "group": pa.array(random.integers(0, FEW_GROUPS, rows, np.int64)),
            "money": _decimals(cents),
        }
    )


def _decimals(cents: np.ndarray[Any, Any]) -> pa.Array:
    """Make decimals of non-negative integers without converting one by one: 128 bits, the low half first."""
    words = np.zeros((len(cents), 2), np.int64)
    words[:, 0] = cents
    return pa.Array.from_buffers(MONEY, len(cents), [None, pa.py_buffer(words)])


def _operations(engine: Engine, table: pa.Table, rows: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield each operator's name and a function that runs it on the table."""
    integer = pa.int64()
    key, group, money = Column(integer, "key"), Column(integer, "group"), Column(MONEY, "money")
    frame = engine.from_arrow(table)
    _wait(engine, frame, "key", integer)
    keys = pa.table({"build_key": pa.array(np.arange(max(rows // MANY_GROUPS_SHARE, 1), dtype=np.int64))})
    build_frame = engine.from_arrow(keys)
    build = engine.build(build_frame, ["build_key"])
    total = [AggregateCall("total", "sum", money, sum_type(MONEY))]
    product = pa.decimal128(31, 4)
    predicate: Expression = Call(pa.bool_(), "less", (key, Literal(integer, max(rows // MANY_GROUPS_SHARE // 2, 1))))
    expressions = [NamedExpression("product", Call(product, "multiply", (money, money)))]
    order = [SortKey(money, False, False)]

    def waiting(make: Callable[[], Frame], column: str, data_type: pa.DataType) -> Callable[[], None]:
        return lambda: _wait(engine, make(), column, data_type)

    def probe(side: Any, probing: Frame) -> Frame:
        return engine.probe(probing, side, "inner", [key], None, ["key"])

    yield "filter", waiting(lambda: engine.filter(frame, predicate), "key", integer)
    yield "project", waiting(lambda: engine.project(frame, expressions), "product", product)
    # A build side cannot be fetched: one row that probes it waits for it.
    one = engine.slice(frame, 0, 1)
    wide = engine.project(frame, [NamedExpression("build_key", key)])
    yield "build", waiting(lambda: probe(engine.build(wide, ["build_key"]), one), "key", integer)
    yield "probe", waiting(lambda: probe(build, frame), "key", integer)
    for name, by in (("aggregate_few", group), ("aggregate_many", key)):
        groups = [NamedExpression("by", by)]
        yield name, waiting(partial(engine.aggregate, frame, groups, total), "by", integer)
    yield "sort", waiting(lambda: engine.sort(frame, order), "key", integer)
    yield "top_k", waiting(lambda: engine.top_k(frame, order, 10), "key", integer)


def _measure_operators(engine: Engine, effort: Effort, found: Measured) -> None:
    deadline = time.perf_counter() + effort.budget_s
    done: set[str] = set()
    for rows in effort.sizes:
        if time.perf_counter() > deadline:
            break
        try:
            for name, run in _operations(engine, _numbers(rows), rows):
                if name not in done:
                    seconds = _timed(run, effort.repeats, effort.enough_s)
                    samples = found.operators.setdefault(name, [])
                    samples.append((rows, seconds))
                    if seconds > effort.enough_s or (effort.until_straight and _is_straight(samples)):
                        done.add(name)
        except (DeviceOutOfMemory, MemoryError) as error:
            found.left_out.append(f"operators from {rows} rows: {error}")
            break


def _is_straight(samples: Sequence[tuple[float, float]]) -> bool:
    """Tell whether the last sample takes longer than the one before much as it is larger."""
    if len(samples) < 2:
        return False
    (before, earlier), (size, seconds) = samples[-2:]
    return seconds / earlier >= STRAIGHT * size / before


def _put(engine: Engine, table: pa.Table) -> None:
    _wait(engine, engine.from_arrow(table), "number", pa.int64())


def _measure_transfers(engine: Engine, effort: Effort, found: Measured) -> None:
    for rows in effort.sizes:
        table = pa.table({"number": pa.array(np.arange(rows, dtype=np.int64))})
        schema = (Field("number", pa.int64()),)
        try:
            frame = engine.from_arrow(table)
            _wait(engine, frame, "number", pa.int64())

            put = partial(_put, engine, table)
            get = partial(engine.to_arrow, frame, schema)
            found.to_device.append((table.nbytes, _timed(put, effort.repeats, effort.enough_s)))
            found.from_device.append((table.nbytes, _timed(get, effort.repeats, effort.enough_s)))
        except (DeviceOutOfMemory, MemoryError) as error:
            found.left_out.append(f"transfers from {table.nbytes} bytes: {error}")
            break
        if max(found.to_device[-1][1], found.from_device[-1][1]) > effort.enough_s:
            break


# --- reading -------------------------------------------------------------------------------------------------------


def _values(rows: int) -> pa.Table:
    """Return a table with one column of each kind of value."""
    random = np.random.default_rng(rows)
    words = np.array(["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK", "OTHER"])
    columns = {
        "integer": pa.array(random.integers(0, 2**40, rows, np.int64)),
        "decimal": _decimals(random.integers(100, 10_000_000, rows, np.int64)),
        "floating": pa.array(random.random(rows)),
        "date": pa.array(random.integers(8000, 10500, rows, np.int32)).cast(pa.date32()),
        "dictionary": pa.array(words[random.integers(0, len(words), rows)]),
        "string": pa.array(random.integers(2**50, 2**60, rows, np.int64)).cast(pa.string()),
        "repeating_integer": pa.array(random.integers(0, FEW_VALUES, rows, np.int64)),
        "repeating_decimal": _decimals(random.integers(0, FEW_VALUES, rows, np.int64)),
    }
    return pa.table(columns)


def _measure_reading(engine: Engine, effort: Effort, found: Measured, place: str | None) -> None:
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory(prefix="hybridq-calibrate-", dir=place) as folder:
        tables = {rows: _values(rows) for rows in effort.read_sizes}
        deadline = time.perf_counter() + effort.budget_s
        files = [(codec, rows) for codec in effort.codecs for rows in effort.read_sizes]
        for codec, rows in files:
            if rows > MOST_ROWS_OF_OTHERS and codec != effort.codecs[0]:
                continue
            if time.perf_counter() > deadline:
                found.left_out.append(f"reading {rows} rows of {codec}: no time left")
                continue
            path = Path(folder) / f"{codec}-{rows}.parquet"
            # Decimals as integers, as most writers other than Arrow's store them.
            pq.write_table(
                tables[rows], path, compression=codec.upper(), row_group_size=ROW_GROUP_ROWS,
                store_decimal_as_integer=True,
            )  # fmt: skip
            found.page_cache.append((path.stat().st_size, _timed(path.read_bytes, 2, effort.enough_s)))
            groups = tuple(range(-(-rows // ROW_GROUP_ROWS)))
            largest = rows == effort.read_sizes[-1]
            for copies in (1, effort.copies) if effort.copies and largest else (1,):
                for name, data_type in COLUMNS.items():
                    samples = found.read.get(f"{codec}/{name}", [])
                    if copies > 1 and (_is_straight(samples) or time.perf_counter() > deadline):
                        continue
                    request = ReadRequest(
                        ((str(path), groups),) * copies, (ReadColumn(name, name, data_type),), None, (name,)
                    )
                    _measure_read(engine, effort, found, f"{codec}/{name}", rows * copies, request)
            path.unlink()


def _measure_read(engine: Engine, effort: Effort, found: Measured, name: str, rows: int, request: ReadRequest) -> None:
    column = request.columns[0]

    def read() -> None:
        _wait(engine, engine.read(request), column.name, column.type)

    try:
        if name not in found.read:
            read()  # the first time pays for loading what decodes
        seconds = _timed(read, effort.repeats, effort.enough_s)
    except (ExecutionError, RequestError, MemoryError) as error:
        found.left_out.append(f"reading {name}, {rows} rows: {error}")
    else:
        found.read.setdefault(name, []).append((rows, seconds))


# --- merging -------------------------------------------------------------------------------------------------------


def _measure_merging(effort: Effort, found: Measured) -> None:
    """Merge two partial aggregates that share half of their groups."""
    money = sum_type(MONEY)
    total = AggregateCall("total", "sum", Column(money, "total"), money)
    schema = (Field("key", pa.int64()), Field("total", money))
    merge = AggregateMerge(("key",), (total,), (), schema)
    for rows in effort.sizes:
        half = max(rows // 2, 1)
        totals = _decimals(np.arange(1, half + 1, dtype=np.int64)).cast(money)
        parts = [
            pa.table({"key": pa.array(np.arange(first, first + half, dtype=np.int64)), "total": totals})
            for first in (0, half // 2)
        ]
        seconds = _timed(partial(merge_partials, merge, parts), effort.repeats, effort.enough_s)
        found.merge.append((rows, seconds))
        if seconds > effort.enough_s:
            break
