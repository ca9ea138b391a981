"""What runs on workers: a chunk of a stage, and the merge of partial results. Dask imports both by name.

A task's value is an Arrow table that stays on the worker. What the driver has to know about it (rows, seconds, whether
it fitted into memory) is sent as an event before the task returns, so it reaches the client before the news that the
task has finished.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from hybridq.config import HotColumns
from hybridq.dispatch.device_rows import DeviceRows, Rows, all_in_use, as_table, may_stay, together
from hybridq.dispatch.exchange import exchange_of_this_worker
from hybridq.dispatch.execution import Clock, in_rounds, read_source, run_stage
from hybridq.dispatch.main_memory import Admission, MainMemory, main_memory
from hybridq.dispatch.memory import (
    FOOTPRINT_FACTOR,
    MERGE_FACTOR,
    check_chunk,
    compact,
    factor_of,
    footprint,
    has_windows,
    host_footprint,
    merges_lists,
)
from hybridq.dispatch.merging import finished_on_device, merge_tables
from hybridq.dispatch.output_parts import inputs_of
from hybridq.dispatch.pieces import Fetch, PieceList, PieceReader, PieceStore, cut_run, samples_of, split_pieces
from hybridq.dispatch.read_ahead import ReadAhead
from hybridq.dispatch.sending import ANSWER_BYTES, opened, packed
from hybridq.dispatch.worker import engine_for_worker
from hybridq.engines.account import DeviceAccount, Watch
from hybridq.engines.cache import ColumnCache
from hybridq.engines.protocol import Engine
from hybridq.errors import DeviceOutOfMemory, ExecutionError, HybridqError
from hybridq.physical.chunks import Chunk, MemoryUnits
from hybridq.physical.merges import AggregateMerge, ConcatenateMerge
from hybridq.physical.pipeline import SortedRunSink, SplitSink, Stage

logger = logging.getLogger(__name__)

READ_AHEAD_SHARE = 0.5
"""Share of a device's memory up to which it is filled by reading ahead."""

Stay = Literal["no", "on device", "both"]

SOURCE = -1
"""Stands for the chunk's source in ``ChunkTask.memory``; other values are ids of aligned build sides."""


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """The order to run one chunk.

    Attributes
    ----------
    query : str
        Identifies the query in events.
    topic : str
        Where events go.
    key : str
        The task's Dask key.
    stage : bytes
        The pickled ``Stage``.
    chunk : Chunk
        Without tables: those come as arguments of their own.
    kind : str
        ``cpu`` or ``gpu``: the engine to use.
    complete : bool
        The chunk is the stage's only one: merge and finish it at once.
    memory : tuple of int
        What the first tables are: ``SOURCE``, or an aligned build side's id.
    inputs : tuple of int
        Stages whose outputs the other tables are; one whose output is in several parts is there for each of them.
    given : tuple of (int, bytes)
        Stages whose outputs, being small, come with the order itself: in Arrow's stream format.
    hot : HotColumns or None
        Columns that stay on the device, where it has a cache; ``None``: the cache is left as it is.
    pieces : tuple of PieceList
        Where the partitions are that the chunk reads.
    split_memory : int
        Bytes that the pieces of splits may take in the worker's memory; 0: what the worker finds right.
    ahead : bool
        What it reads was read ahead: that is the last argument.
    stay : str
        ``on device``: its rows stay on the device. ``both``: there, and in main memory, for other workers will ask for
        them. Else they go to main memory.
    output : str
        The same for the stage's output, where the chunk is all there is and gives groups.
    footprint_factor : float
        Device memory that it is expected to take over the decoded bytes of what it reads.
    send : int
        Bytes up to which its partial result travels with its report.
    """

    query: str
    topic: str
    key: str
    stage: bytes
    chunk: Chunk
    kind: str
    complete: bool
    memory: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()
    given: tuple[tuple[int, bytes], ...] = ()
    hot: HotColumns | None = None
    pieces: tuple[PieceList, ...] = ()
    split_memory: int = 0
    ahead: bool = False
    stay: Stay = "no"
    output: Stay = "no"
    footprint_factor: float = FOOTPRINT_FACTOR
    send: int = 0


@dataclass(frozen=True, slots=True)
class MergeTask:
    """The order to merge partial results, given in chunk order.

    Attributes
    ----------
    last : bool
        Nothing else is to be merged: compute the stage's output.
    kind : str
        ``cpu`` or ``gpu``: the worker's kind.
    stay : str
        As for ``ChunkTask``; only where the merge puts parts one below the other.
    output : str
        The same for the stage's output, where groups are merged.
    """

    query: str
    topic: str
    key: str
    stage: bytes
    last: bool
    kind: str = "cpu"
    stay: Stay = "no"
    output: Stay = "no"


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The value of a chunk task that did not fit into memory."""

    message: str
    wanted: int
    free: int


@dataclass(frozen=True, slots=True)
class PiecesKept:
    """The value of a chunk task whose rows were split: they are in the worker's store, under the task's key."""

    rows: int


if TYPE_CHECKING:
    ChunkValue: TypeAlias = Rows | OutOfMemory | PiecesKept


def run_chunk(task: ChunkTask, *arguments: Any) -> ChunkValue:
    """Run one chunk on this worker's engine; the arguments are tables, and what was read ahead.

    Returns
    -------
    pyarrow.Table, OutOfMemory or PiecesKept
        The partial result, or the stage's output if the task says that it is ``complete``.
    """
    exchange = exchange_of_this_worker()
    tables, ahead = (arguments[:-1], arguments[-1]) if task.ahead else (arguments, None)
    result, event = compute_chunk(
        task, engine_for_worker(task.kind), tables, *exchange, host=main_memory(), ahead=ahead
    )
    main_memory().give_back()
    _report(task.topic, task.query, task.key, event)
    return result


def compute_chunk(
    task: ChunkTask,
    engine: Engine,
    tables: Sequence[Rows],
    store: PieceStore,
    fetch: Fetch,
    host: MainMemory | None = None,
    ahead: ReadAhead | None = None,
) -> tuple[ChunkValue, dict[str, Any]]:
    """Run one chunk on an engine, wherever this is called.

    Parameters
    ----------
    task : ChunkTask
    engine : Engine
    tables : sequence of pyarrow.Table or DeviceRows
        What does not come from files.
    store : PieceStore
        Keeps pieces of splits here.
    fetch : callable
        Gets them from elsewhere.
    host : MainMemory or None
        The process's main memory, which the chunk is to be admitted to.
    ahead : ReadAhead or None
        What it reads, if that was read before.

    Returns
    -------
    tuple of (pyarrow.Table, OutOfMemory or PiecesKept, dict)
        The task's value, and what the driver has to know about it.
    """
    stage = load_stage(task.stage)
    chunk = _with_tables(task, tables)
    inputs = inputs_of(task.inputs, tables[len(task.memory) :])
    inputs |= {number: opened(sent) for number, sent in task.given}
    account: DeviceAccount | None = getattr(engine, "memory", None)
    cache: ColumnCache[Any] | None = getattr(engine, "cache", None)
    hot = task.hot.columns if task.hot is not None and cache is not None else {}
    if task.hot is not None and cache is not None and account is not None:
        cache.set_limit(task.hot.bytes_within(account.limit))
    asked = start = time.perf_counter()
    clock = Clock()
    watch = Watch()
    main: Admission | None = None
    saved = 0
    event: dict[str, Any] = {"what": "chunk", "kind": task.kind, "engine": engine.name}
    result: ChunkValue
    lists = {each.reader: each for each in task.pieces}
    try:
        with ExitStack() as admitted:
            if host is not None:
                check_chunk(host, chunk)
                factor = factor_of(stage)
                whole = has_windows(stage) or merges_lists(stage)
                main = admitted.enter_context(Admission(host, factor, strict=whole))
                main.admit(host_footprint(chunk, tables, engine.name == "gpu", factor))
            pieces = PieceReader(store, fetch, lists, None if account is not None else main) if lists else None
            if account is not None:
                watch = admitted.enter_context(account.admitted(footprint(chunk, task.footprint_factor)))
            admitted.enter_context(all_in_use(tables))
            start = time.perf_counter()
            try:
                whole_groups = task.complete and isinstance(stage.merge, AggregateMerge)
                stay = task.output if whole_groups else task.stay
                if chunk.rounds:
                    table = in_rounds(engine, stage, chunk, inputs, clock, task.complete)
                else:
                    table = run_stage(
                        engine, stage, chunk, inputs, clock, hot, pieces, ahead, stay != "no", task.complete
                    )
                with clock.section("sink"):
                    if whole_groups and isinstance(table, DeviceRows):
                        finished = finished_on_device(engine, stage, [table], whole=True)
                        table = finished or merge_tables(stage, [table], last=True)
                    elif task.complete and not isinstance(table, DeviceRows):
                        table = merge_tables(stage, [table], last=True)
                    if task.complete:
                        _for_others(table, stay)
                    event |= {"outcome": "done", "rows": table.num_rows, "bytes": table.nbytes}
                    sink = stage.pipeline.sink
                    if isinstance(table, DeviceRows):
                        result = table
                    elif isinstance(sink, SplitSink) or (isinstance(sink, SortedRunSink) and sink.blocks):
                        result = _keep_pieces(task, table, sink, store, event)
                    else:
                        result = compact(table)
                        if task.complete or task.send:
                            event |= _small_answer(result, ANSWER_BYTES if task.complete else task.send)
            finally:
                saved = cache.release() if cache is not None else 0
    except DeviceOutOfMemory as error:
        result = OutOfMemory(str(error), error.wanted, error.free)
    except HybridqError:
        raise
    except MemoryError as error:
        result = OutOfMemory(f"out of memory: {error}" if str(error) else "out of memory", 0, 0)
    except Exception as error:
        raise ExecutionError(f"{type(error).__name__}: {error}") from error
    if isinstance(result, OutOfMemory):
        event |= {"outcome": "out of memory", "rows": 0, "bytes": 0, "wanted": result.wanted, "free": result.free}
        event |= {"message": result.message, "section": clock.current}
    total = time.perf_counter() - start
    if ahead is not None and ahead.used:
        event["ahead"] = {"seconds": ahead.seconds, "before": start - ahead.ended}
        saved += ahead.saved
        clock.read_again += ahead.read_again
        clock.seconds["read"] += ahead.seconds
        total += ahead.seconds
    event["bytes_read"] = max(chunk.bytes - saved - clock.saved, 0)
    event["read_again"] = clock.read_again
    event["seconds"] = {**clock.seconds, "total": total}
    event["seconds"]["wait"] = start - asked
    event |= {"peak_bytes": watch.peak, "predicted_bytes": watch.predicted}
    peak, predicted = (0, 0) if main is None else (main.peak, main.predicted)
    event |= {"worker_peak_bytes": peak, "worker_predicted_bytes": predicted}
    event["cached_bytes"] = cache.nbytes if cache is not None else 0
    return result, event


def _keep_pieces(
    task: ChunkTask, table: pa.Table, sink: SplitSink | SortedRunSink, store: PieceStore, event: dict[str, Any]
) -> PiecesKept:
    """Split a chunk's rows, keep the pieces, and tell how many rows each partition or block has."""
    if isinstance(sink, SortedRunSink):
        splits = [cut_run(table, sink)]
        event["samples"] = samples_of(splits[0], sink)
    else:
        splits = split_pieces(table, sink)
    event["piece_rows"] = np.sum([np.diff(each.starts) for each in splits], axis=0).tolist()
    event["spilled_bytes"] = store.put(task.key, splits, task.split_memory) + store.moved()
    return PiecesKept(table.num_rows)


def merge_parts(task: MergeTask, *parts: Rows) -> Rows:
    """Merge partial results into one, or into the stage's output."""
    wanted = int(MERGE_FACTOR * sum(part.nbytes for part in parts if isinstance(part, pa.Table)))
    with main_memory().admitted(wanted) as watch:
        table, event = compute_merge(task, parts, engine_for_worker("gpu") if task.kind == "gpu" else None)
    event |= {"worker_peak_bytes": watch.peak, "worker_predicted_bytes": watch.predicted}
    _report(task.topic, task.query, task.key, event)
    return table


def read_ahead(task: ChunkTask) -> ReadAhead:
    """Read what a chunk will need, on this worker's engine, if there is plenty of memory now."""
    return compute_read_ahead(task, engine_for_worker(task.kind), main_memory())


def compute_read_ahead(task: ChunkTask, engine: Engine, host: MainMemory | None = None) -> ReadAhead:
    """Read what a chunk will need on an engine, wherever this is called.

    Returns
    -------
    ReadAhead
        Empty where memory is short or the files cannot be read: the chunk will read them again, and say what is wrong.
    """
    stage = load_stage(task.stage).branch(task.chunk.branch)
    account: DeviceAccount | None = getattr(engine, "memory", None)
    cache: ColumnCache[Any] | None = getattr(engine, "cache", None)
    wanted = footprint(task.chunk, task.footprint_factor)
    if account is not None and account.promised + wanted > account.limit * READ_AHEAD_SHARE:
        return ReadAhead()
    clock = Clock()
    hot = task.hot.columns if task.hot is not None and cache is not None else {}
    try:
        with ExitStack() as admitted:
            if host is not None:
                check_chunk(host, task.chunk)
                admitted.enter_context(host.admitted(host_footprint(task.chunk, (), engine.name == "gpu")))
            if account is not None:
                admitted.enter_context(account.admitted(wanted))
            saved = 0
            try:
                frame = read_source(engine, stage, task.chunk, clock, hot)
                with clock.section("read"):
                    engine.settle()
            finally:
                if cache is not None:
                    saved = cache.release()
            return ReadAhead(frame, clock.seconds["read"], clock.read_again, saved)
    except Exception as error:  # whatever it is: the chunk meets it as well, and can do something about it
        logger.info("%s was not read ahead: %r", task.key, error)
        return ReadAhead()


def compute_merge(task: MergeTask, parts: Sequence[Rows], gpu: Engine | None = None) -> tuple[Rows, dict[str, Any]]:
    """Merge partial results, wherever this is called; also return what the driver has to know about the result.

    Groups that are many are merged on the GPU where there is one; everything else is the CPU's.
    """
    start = time.perf_counter()
    if any(isinstance(part, OutOfMemory) for part in parts):
        # A worker died with a partial result, and this time its chunk did not fit into memory.
        raise ExecutionError("a partial result was lost with its worker and could not be computed again: out of memory")
    stage = load_stage(task.stage)
    with _merging(parts), all_in_use(parts):
        table = _together_on_device(task, stage, parts, gpu)
        if table is None:
            table = compact(merge_tables(stage, parts, task.last, gpu))
    event = _merge_event(table, start)
    return table, event | (_small_answer(table) if task.last and not isinstance(table, DeviceRows) else {})


def merge_here(stage: Stage, parts: Sequence[pa.Table]) -> tuple[pa.Table, dict[str, Any]]:
    """Compute a stage's output in the driver's process, of all partial results; also return what a task reports."""
    start = time.perf_counter()
    with _merging(parts):
        table = compact(merge_tables(stage, parts, last=True))
    return table, _merge_event(table, start)


@contextmanager
def _merging(parts: Sequence[Rows]) -> Iterator[None]:
    """Have what goes wrong in a merge be an error of hybridq's."""
    try:
        yield
    except HybridqError:
        raise
    except MemoryError:
        size = sum(part.nbytes for part in parts)
        raise ExecutionError(f"out of memory while merging {len(parts)} partial results of {size} bytes") from None
    except Exception as error:
        raise ExecutionError(f"{type(error).__name__}: {error}") from error


def _merge_event(table: Rows, start: float) -> dict[str, Any]:
    return {
        "what": "merge",
        "outcome": "done",
        "rows": table.num_rows,
        "bytes": table.nbytes,
        "seconds": {"total": time.perf_counter() - start},
    }


def _together_on_device(task: MergeTask, stage: Stage, parts: Sequence[Rows], gpu: Engine | None) -> DeviceRows | None:
    """Merge on the device, if what that gives is to stay there and there is room."""
    if gpu is not None and task.last and task.output != "no":
        found = finished_on_device(gpu, stage, parts, whole=False)
        if found is not None:
            _for_others(found, task.output)
        return found
    if gpu is None or task.stay == "no" or not isinstance(stage.merge, ConcatenateMerge):
        return None
    account: DeviceAccount | None = getattr(gpu, "memory", None)
    size = sum(part.nbytes for part in parts)
    if not may_stay(gpu, size):
        return None
    try:
        with account.admitted(size) if account is not None else nullcontext():
            rows = together(gpu, parts, stage.pipeline.sink.schema)
    except (DeviceOutOfMemory, MemoryError):
        return None
    if task.last:
        _for_others(rows, task.stay)
    return rows


def _for_others(rows: Rows, stay: Stay) -> None:
    """Have rows on the device in main memory as well, if other workers will ask for them."""
    if isinstance(rows, DeviceRows) and stay == "both":
        with suppress(DeviceOutOfMemory, MemoryError):  # it is made for those who ask, then
            rows.table()


def _small_answer(table: pa.Table, most: int = ANSWER_BYTES) -> dict[str, bytes]:
    """Return a task's table as part of its report, if it is small."""
    return {"answer": packed(table)} if table.nbytes <= most else {}


@lru_cache(maxsize=64)
def load_stage(data: bytes) -> Stage:
    """Unpickle a stage, once for all of its chunks."""
    stage: Stage = pickle.loads(data)
    return stage


def _with_tables(task: ChunkTask, tables: Sequence[Rows]) -> Chunk:
    """Put tables that came as arguments back into the chunk."""
    if not task.memory:
        return task.chunk
    units = {place: MemoryUnits(as_table(table)) for place, table in zip(task.memory, tables, strict=False)}
    aligned = tuple((build, units.get(build, piece)) for build, piece in task.chunk.aligned)
    return replace(task.chunk, source=units.get(SOURCE, task.chunk.source), aligned=aligned)


def _report(topic: str, query: str, key: str, event: dict[str, Any]) -> None:
    from distributed import get_worker

    worker = get_worker()
    worker.log_event(
        topic, {**event, "query": query, "key": key, "device": str(worker.name), "address": worker.address}
    )
