"""The state of one stage while it runs: which chunks are out, which partial results wait to be merged.

Nothing here talks to a cluster; ``hybridq.dispatch.driver`` does, and keeps its books here.
"""

from __future__ import annotations

import bisect
import itertools
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from hybridq.catalog import Catalog
from hybridq.config import Config
from hybridq.dispatch.chunk_states import ChunksOut, ChunkState, Merging, Part, Waiting, sent_with, source_rows
from hybridq.dispatch.footprint import Footprint
from hybridq.dispatch.memory import FOOTPRINT_FACTOR
from hybridq.dispatch.output_parts import MOST_PARTS
from hybridq.dispatch.pieces import PROBING, PieceList, entry_name
from hybridq.dispatch.progress import KindProgress
from hybridq.dispatch.recording import add_span, record_chunk
from hybridq.dispatch.sending import MERGED_HERE_BYTES, PART_BYTES, opened, packed
from hybridq.dispatch.shared_columns import shares_its_source
from hybridq.dispatch.tasks import SOURCE, ChunkTask
from hybridq.errors import ExecutionError
from hybridq.physical.binding import bind
from hybridq.physical.branches import BranchedSource, SingleSource, Splits, chunk_source
from hybridq.physical.chunks import Chunk, MemoryUnits, PieceUnits, RangeUnits
from hybridq.physical.merges import AggregateMerge, ConcatenateMerge, SortMerge
from hybridq.physical.partitions import SplitChunk, in_range
from hybridq.physical.pipeline import AlignedBuild, SortedRunSink, Stage, TableSource
from hybridq.physical.same import Same
from hybridq.physical.split_aggregates import MERGED_TOGETHER
from hybridq.physical.units import ChunkSource
from hybridq.placement.cost import PullPolicy
from hybridq.placement.modes import Decision
from hybridq.report import Fallback, StageReport
from hybridq.topology import Kind

MAX_ATTEMPTS = 4
"""Times that a chunk is handed out before its disappearance is an error."""


@dataclass(slots=True)
class StageRun:
    """One stage's state.

    Attributes
    ----------
    status : str
        ``waiting`` for its dependencies, ``running`` or ``done``.
    output : str or None
        Key of the stage's output, once it is done; that of a split are its parts, which stay.
    wanted_here : bool
        No task reads the output: it is the answer, or a subquery's value.
    answer : pyarrow.Table, bytes or None
        The output, if it is small: as it is, or in Arrow's stream format. Then nobody reads it from the cluster.
    output_bytes : int
        Its size in memory.
    output_address, output_kind : str
        The worker that made the output, and its kind.
    released : bool
        The output is not on the cluster any more: nobody needed it.
    ahead : dict of int to str
        By chunk, the key of the task that reads, or has read, ahead for it.
    in_parts : bool
        The results of its chunks are the output, which is put together by the tasks that read it.
    delivering : bool
        The results of its chunks are the answer, one after the other, and are handed over like that.
    delivery_begun : bool
    delivered_rows, delivered_prefix, answer_rows : int
        Source rows, rows, and rows that belong to the answer, of the results that have been handed over.
    breadth : float
        Rows that a chunk reads for each row of its source: more than one where build sides are aligned.
    origin : float
        When the query began, on ``time.perf_counter``.
    footprint : Footprint
        Of its chunks on a GPU.
    moved_from : str or None
        The kind of device whose late chunks go to the other one: never the other way as well.
    last_done : float
        When its last chunk came back, on ``time.perf_counter``.
    fold_from : int
        Partial results from which it is looked for neighbours among them again.
    """

    stage: Stage
    decision: Decision
    policy: PullPolicy
    prefix: str
    report: StageReport
    status: Literal["waiting", "running", "done"] = "waiting"
    source: SingleSource | BranchedSource | None = None
    blob: bytes = b""
    started: float = 0.0
    running: ChunksOut = field(default_factory=ChunksOut)
    waiting: list[Waiting] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    merging: dict[str, Merging] = field(default_factory=dict)
    wanted_here: bool = False
    output: str | None = None
    answer: pa.Table | bytes | None = None
    output_bytes: int = 0
    output_address: str = ""
    output_kind: Kind = "cpu"
    released: bool = False
    stopped_early: bool = False
    rows_done: int = 0
    by_kind: dict[Kind, KindProgress] = field(default_factory=dict)
    gpu_refusals: int = 0
    lost_merges: int = 0
    bytes_per_row: float | None = None
    breadth: float = 1.0
    footprint: Footprint = field(init=False)
    attempts: dict[int, int] = field(default_factory=dict)
    ahead: dict[int, str] = field(default_factory=dict)
    in_parts: bool = False
    delivering: bool = False
    delivery_begun: bool = False
    delivered_rows: int = 0
    delivered_prefix: int = 0
    answer_rows: int = 0
    serial: Any = field(default_factory=itertools.count)
    origin: float = field(default_factory=time.perf_counter)
    moved_from: Kind | None = None
    last_done: float = 0.0
    fold_from: int = 0

    def __post_init__(self) -> None:
        self.footprint = Footprint(FOOTPRINT_FACTOR)

    def start(self, catalog: Catalog, config: Config, values: Mapping[int, Any], splits: Splits) -> None:
        """Begin: the stages that this one depends on are done.

        Parameters
        ----------
        catalog : Catalog
        config : Config
        values : mapping of int to object
            Of its subqueries.
        splits : mapping of int to sequence of SplitChunk
            The pieces of the splits that it reads.
        """
        if self.source is None:
            self.stage = bind(self.stage, values)
            self._prepare(catalog, config, splits)
        self.status = "running"
        self.started = time.perf_counter()
        self.report.started_s = self.started - self.origin

    def _prepare(self, catalog: Catalog, config: Config, splits: Splits) -> None:
        self.source = chunk_source(self.stage, catalog, config, splits)
        self.bytes_per_row = self.source.bytes_per_row
        self.breadth = self.source.breadth
        self.policy.narrow(self.breadth)
        self.blob = _pickled(self.stage)

    def prepare_ahead(self, catalog: Catalog, config: Config) -> bool:
        """Do what can be done before the stages that this one depends on; tell whether there was anything to do."""
        stage = self.stage
        if self.status != "waiting" or self.source is not None or stage.subqueries or stage.split_inputs:
            return False
        self._prepare(catalog, config, {})
        return True

    # --- reading ahead ---------------------------------------------------------------------------------------------

    @property
    def may_read_ahead(self) -> bool:
        """Tell whether GPUs can read for this stage while it waits: files' row groups, whatever other stages give."""
        stage = self.stage
        gpus = "gpu" in self.policy.active and (self.policy.active == ("gpu",) or self.policy.measured)
        plain = not (stage.more or stage.subqueries or stage.split_inputs or stage.early_stop)
        source = isinstance(stage.pipeline.source, TableSource) and stage.values is None
        source = source and not shares_its_source(stage)  # a chunk reads that once, with its build side
        return self.status == "waiting" and gpus and plain and source

    def take_ahead(self, catalog: Catalog, config: Config, fitting: Callable[[int], int]) -> Waiting | None:
        """Return the next chunk to be read ahead, which will be handed out once the stage starts; ``None``: no more.

        Parameters
        ----------
        catalog : Catalog
        config : Config
        fitting : callable
            Bounds a chunk's rows by a GPU's memory.
        """
        if len(self.waiting) >= config.read_ahead:
            return None
        if self.source is None:
            self._prepare(catalog, config, {})
        source = self.source
        if not isinstance(source, ChunkSource) or source.exhausted or not source.in_files:
            return None
        taken = sum(source_rows(item.chunk) for item in self.waiting)
        rows = self.policy.rows_for("gpu", self.untaken_rows, {"gpu": taken})
        chunk = None if rows is None else source.take(fitting(int(rows * self.breadth)), largest=True)
        if chunk is None:
            return None
        item = Waiting(chunk, "gpu", 0, f"hybridq_ahead-{self.prefix}-{chunk.id}")
        self.waiting.append(item)
        self.ahead[chunk.id] = item.ahead
        return item

    def no_longer_ahead(self, chunk: Chunk) -> list[str]:
        """Forget that a chunk was read ahead; return the key of the task that did, if there is one."""
        key = self.ahead.pop(chunk.id, None)
        return [] if key is None else [key]

    # --- handing out -----------------------------------------------------------------------------------------------

    @property
    def untaken_rows(self) -> int:
        """Return the source rows that have not been handed out."""
        return self.source.remaining_rows if self.source is not None and not self.stopped_early else 0

    @property
    def exhausted(self) -> bool:
        """Tell whether no chunk is left to hand out."""
        return self.stopped_early or (self.source is not None and self.source.exhausted)

    def takes_more(self, kind: Kind) -> bool:
        """Tell whether a kind of device would take another chunk, now or when it is done with what it has."""
        if self.status != "running" or self.exhausted or kind not in self.policy.active:
            return False
        return self.policy.rows_for(kind, self.untaken_rows, self.running.rows_left(self.policy)) is not None

    def register(self, chunk: Chunk, kind: Kind) -> ChunkState:
        """Note that a chunk is handed out, under a key that was never used before."""
        only = self.exhausted and not (self.running or self.parts or self.merging or self.waiting)
        serial = next(self.serial)
        key = entry_name(kind, self.prefix, chunk.id, serial)
        state = ChunkState(chunk, kind, key, complete=only and not self.stays_in_parts, serial=serial)
        self.running[key] = state
        return state

    def again(self, chunk: Chunk, kind: Kind, cause: str = "") -> None:
        """Queue a chunk to be handed out once more; ``cause`` is for the error's message.

        Raises
        ------
        ExecutionError
            That has been tried too often.
        """
        attempt = self.attempts.get(chunk.id, 0) + 1
        self.attempts[chunk.id] = attempt
        if attempt >= MAX_ATTEMPTS:
            raise ExecutionError(
                f"stage {self.stage.id} ({self.stage.title}): chunk {chunk.id} was lost {attempt} times"
                + (f", the last time because {cause}" if cause else "")
            )
        self.report.retries += 1
        bisect.insort(self.waiting, Waiting(chunk, kind, attempt), key=lambda item: item.chunk.order)

    def task(self, state: ChunkState, query: str, topic: str) -> tuple[ChunkTask, list[pa.Table]]:
        """Return the order to run a chunk, and the tables that it needs besides earlier stages' outputs."""
        chunk, tables, places = state.chunk, [], []
        if state.kind == "cpu" and isinstance(self.source, ChunkSource | BranchedSource):
            chunk = self.source.in_rounds(chunk)
        stage = self.stage.branch(chunk.branch)
        sources = {build.id: build.pipeline.source for build in stage.builds if isinstance(build, AlignedBuild)}
        sources[SOURCE] = stage.pipeline.source
        for place, piece in [(SOURCE, chunk.source), *chunk.aligned]:
            source = sources[place]
            if isinstance(piece, MemoryUnits) and isinstance(source, TableSource):
                places.append(place)
                # A table without columns would lose its rows on the way.
                read = [column.source for column in source.columns] or piece.table.column_names[:1]
                tables.append(piece.table.select(read))
        if tables:
            aligned = tuple((build, _without_table(piece)) for build, piece in chunk.aligned)
            chunk = replace(chunk, source=_without_table(chunk.source), aligned=aligned)
        inputs = stage.inputs
        task = ChunkTask(query, topic, state.key, self.blob, chunk, state.kind, state.complete, tuple(places), inputs)
        return replace(task, footprint_factor=self.footprint.factor), tables

    # --- coming back -----------------------------------------------------------------------------------------------

    def done(self, state: ChunkState) -> None:
        """Take in a chunk's partial result. Each chunk counts once: its task's key is known only until then."""
        event = state.event or {}
        del self.running[state.key]
        self.last_done = time.perf_counter()
        rows = source_rows(state.chunk)
        self.rows_done += rows
        progress = self.by_kind.setdefault(state.kind, KindProgress())
        progress.chunks += 1
        progress.rows += rows
        self._record(state, event)
        if state.complete:
            self.output, self.output_kind, self.answer = state.key, state.kind, event.get("answer")
            self.output_bytes, self.output_address = int(event["bytes"]), str(event.get("address", ""))
            self.report.output_rows = int(event["rows"])
            return
        self.report.spilled_bytes += int(event.get("spilled_bytes", 0))
        address = str(event.get("address", ""))
        part = Part(
            state.chunk.order, state.key, int(event["rows"]), rows, int(event["bytes"]), state, address, state.kind
        )
        bisect.insort(self.parts, part, key=lambda item: item.order)

    def undo(self, part: Part) -> None:
        """Take back a chunk whose partial result has been lost."""
        state = part.state
        if state is None:
            raise ValueError("the part is more than one chunk")
        self.parts = [other for other in self.parts if other.key != part.key]
        self.rows_done -= part.source_rows
        progress = self.by_kind[state.kind]
        progress.chunks -= 1
        progress.rows -= part.source_rows

    def _record(self, state: ChunkState, event: Mapping[str, Any]) -> None:
        rows = source_rows(state.chunk)
        if state.kind == "gpu":
            self.footprint.observe(event)
        record_chunk(self.report, state.kind, rows, event)
        add_span(self.report, self.origin, "chunk", state.chunk.id, state.kind, rows, event)
        self.policy.observe(state.kind, rows, event["seconds"]["total"])
        self.report.cost_ratio = self.policy.cost_ratio
        if self.report.predicted_s is None and not self.exhausted:
            left = self.policy.seconds_left(self.untaken_rows, self.running.rows_left(self.policy))
            if left is not None:
                self.report.predicted_s = time.perf_counter() - self.started + left

    def fell_back(self, chunk: Chunk, cause: str, action: str) -> None:
        """Note that a chunk does not run where it was first sent."""
        self.report.fallbacks.append(Fallback(chunk.id, cause, action))

    # --- handing the answer over -----------------------------------------------------------------------------------

    @property
    def stays_in_parts(self) -> bool:
        """Tell whether the results of the chunks are not merged."""
        return self.stage.keeps_pieces or self.delivering or self.in_parts

    def next_part(self) -> Part | None:
        """Return the result that comes next in order; ``None``: its chunk is not done yet, or there is no other."""
        if not self.parts:
            return None
        pending = self._pending()
        return self.parts[0] if not pending or self.parts[0].order < pending[0] else None

    def delivered(self, part: Part, rows: int) -> None:
        """Note that a result has been handed over, and how many of its rows belong to the answer."""
        self.parts.remove(part)
        self.delivered_rows += part.source_rows
        self.delivered_prefix += part.rows
        self.answer_rows += rows

    # --- merging ---------------------------------------------------------------------------------------------------

    def finished_prefix_rows(self) -> int:
        """Return the rows of the partial results before the first chunk that is not finished."""
        pending = self._pending()
        first = pending[0] if pending else None
        return self.delivered_prefix + sum(part.rows for part in self.parts if first is None or part.order < first)

    def ready_to_fold(self) -> list[Part] | None:
        """Return neighbouring partial results that are enough to be merged now, if there are any."""
        merge = self.stage.merge
        worthwhile = isinstance(merge, AggregateMerge) or (isinstance(merge, SortMerge) and merge.count is not None)
        if not worthwhile or len(self.parts) < max(MERGED_TOGETHER, self.fold_from):
            return None
        pending = self._pending()
        for _, group in itertools.groupby(self.parts, key=lambda part: bisect.bisect(pending, part.order)):
            neighbours = list(group)
            if len(neighbours) >= MERGED_TOGETHER:
                self.fold_from = 0
                return neighbours[:MERGED_TOGETHER]
        # All that is out was looked through: not again for each of them.
        self.fold_from = len(self.parts) + len(pending) // MERGED_TOGETHER
        return None

    def ready_to_end(self) -> bool:
        """Tell whether only the last merge is left to do."""
        return (
            self.status == "running"
            and self.output is None
            and self.exhausted
            and not (self.running or self.waiting or self.merging)
        )

    def part_bytes(self, chunk: Chunk) -> int:
        """Return the bytes up to which a chunk's partial result travels with its report, to be merged without a task.

        Each chunk has its share of what is merged like that. Of many chunks, what tasks read is merged on the cluster.
        """
        if self.stage.keeps_pieces or self.source is None:
            return 0
        share = source_rows(chunk) / max(self.source.total_rows, 1)
        few = len(self.running) + len(self.parts) <= MERGED_TOGETHER
        return max(int(MERGED_HERE_BYTES * share), PART_BYTES if self.wanted_here or few else 0)

    def given(self) -> bytes | None:
        """Return the output as tasks have it that read it, if it is small."""
        if isinstance(self.answer, pa.Table):
            self.answer = packed(self.answer)
        return self.answer

    def parts_here(self) -> list[pa.Table] | None:
        """Return all partial results, if each came with its task's report, and they are small together."""
        if sum(part.bytes for part in self.parts) > MERGED_HERE_BYTES:
            return None
        sent = [sent_with(part) for part in self.parts]
        tables = [opened(each) for each in sent if each is not None]
        return tables if len(tables) == len(sent) else None

    def may_stay_in_parts(self) -> bool:
        """Tell whether the last merge would only put a few results one below the other, which readers can do.

        Dask makes again what is lost of them, as long as they were not made of pieces.
        """
        stage = self.stage
        plain = isinstance(stage.merge, ConcatenateMerge) and stage.merge.count is None and not stage.finish
        whole = bool(stage.schema) and not stage.split_inputs and not self.stopped_early
        return plain and whole and 1 < len(self.parts) <= MOST_PARTS

    def stay_in_parts(self) -> None:
        """Leave the output as it is."""
        self.in_parts = True
        self.output_bytes = sum(part.bytes for part in self.parts)
        self.output_address = max(self.parts, key=lambda part: part.bytes).address

    def begin_merge(self, parts: list[Part], kind: Kind, last: bool) -> str:
        """Note that partial results are being merged; return the merge's key."""
        key = f"hybridq_merge-{self.prefix}-{next(self.serial)}"
        self.fold_from = 0
        taken = {part.key for part in parts}
        self.parts = [part for part in self.parts if part.key not in taken]
        self.merging[key] = Merging(parts, kind, last)
        return key

    def give_up_merge(self, key: str) -> None:
        """Take the parts of a merge back."""
        for part in self.merging.pop(key).parts:
            bisect.insort(self.parts, part, key=lambda item: item.order)

    def merged(self, key: str, event: Mapping[str, Any]) -> list[Part]:
        """Take in a merge's value; return the parts that went into it."""
        merging = self.merging.pop(key)
        self.report.merge_s += event["seconds"]["total"]
        add_span(self.report, self.origin, "merge", 0, merging.kind, int(event["rows"]), event)
        address = str(event.get("address", ""))
        if merging.last:
            self.output, self.output_bytes, self.output_address = key, int(event.get("bytes", 0)), address
            self.output_kind, self.answer = merging.kind, event.get("answer")
            self.report.output_rows = int(event["rows"])
        else:
            total = sum(part.source_rows for part in merging.parts)
            size = int(event.get("bytes", 0))
            part = Part(merging.parts[0].order, key, int(event["rows"]), total, size, None, address, merging.kind)
            bisect.insort(self.parts, part, key=lambda item: item.order)
        return merging.parts

    def check_complete(self) -> None:
        """Check that every source row has come back exactly once.

        Raises
        ------
        ExecutionError
            Some are missing or were counted twice: the driver is wrong, and so would the answer be.
        """
        if self.source is None or self.stopped_early:
            return
        merged = self.delivered_rows + sum(part.source_rows for part in self.parts)
        if merged != self.source.total_rows and (self.stage.values is None or self.stage.more):
            raise ExecutionError(
                f"stage {self.stage.id} ({self.stage.title}): {merged} rows came back of {self.source.total_rows}"
            )

    def finish(self) -> None:
        """Note that the output is there."""
        self.status = "done"
        if self.stage.keeps_pieces or self.in_parts:
            self.report.output_rows = sum(part.rows for part in self.parts)
        elif self.delivering:
            self.report.output_rows = self.answer_rows
        self.report.actual_s = time.perf_counter() - self.started
        if self.decision.mode == "EXEC_COP" and self.report.cost_ratio is not None:
            self.report.reason += f" (cost ratio measured: {self.report.cost_ratio:.2f})"

    # --- pieces of a split -----------------------------------------------------------------------------------------

    def split_chunks(self) -> list[SplitChunk]:
        """Return what is in the pieces of each chunk."""
        events = [(part, part.state.event) for part in self.parts if part.state is not None and part.state.event]
        found = [SplitChunk(part.order, np.array(event["piece_rows"], np.int64), part.bytes) for part, event in events]
        sink = self.stage.pipeline.sink
        if not self.stage.keeps_runs or not isinstance(sink, SortedRunSink) or not found:
            return found
        from hybridq.engines.ranges import places

        samples = [pa.ipc.open_stream(event["samples"]).read_all() for _, event in events]
        numbers = places(samples, sink.keys)
        return [
            replace(chunk, samples=rows, places=own) for chunk, rows, own in zip(found, samples, numbers, strict=True)
        ]

    def run_list(self, units: RangeUnits) -> PieceList:
        """Return which runs a chunk has to read, and what of each."""
        parts = {part.order: part for part in self.parts}
        addresses: dict[str, int] = {}
        entries = []
        for cut in units.cuts:
            part = parts[cut.order]
            if part.state is None:
                raise ValueError("a run is of one chunk")
            place = addresses.setdefault(part.address, len(addresses))
            entries.append((part.state.kind, part.state.chunk.id, part.state.serial, place))
        return PieceList(PROBING, self.stage.id, self.prefix, tuple(addresses), tuple(entries), units.cuts)

    def piece_list(self, reader: int, units: PieceUnits, further: Sequence[int] = ()) -> PieceList:
        """Return which entries a chunk has to read; those of build sides are never left out by ``units``."""
        wanted = [*units.partitions, *further]
        addresses: dict[str, int] = {}
        entries = []
        for part in self.parts:
            state = part.state
            if state is None or state.event is None or (reader == PROBING and not in_range(part.order, units)):
                continue
            rows = state.event["piece_rows"]
            if any(rows[number] for number in wanted):
                place = addresses.setdefault(part.address, len(addresses))
                entries.append((state.kind, state.chunk.id, state.serial, place))
        return PieceList(reader, self.stage.id, self.prefix, tuple(addresses), tuple(entries))

    def output_keys(self) -> list[str]:
        """Return the keys of the output: one, or those of its parts or pieces."""
        if self.stage.keeps_pieces or self.in_parts:
            return [part.key for part in self.parts]
        return [] if self.output is None else [self.output]

    def all_keys(self) -> list[str]:
        """Return the keys of all tasks that this stage has on the cluster."""
        found = [*self.running, *self.merging, *self.ahead.values(), *(part.key for part in self.parts)]
        found += [part.key for merging in self.merging.values() for part in merging.parts]
        return [*found, self.output] if self.output is not None else found

    def _pending(self) -> list[tuple[int, ...]]:
        orders = [state.chunk.order for state in self.running.values()]
        orders += [item.chunk.order for item in self.waiting]
        orders += [merging.parts[0].order for merging in self.merging.values() if merging.parts]
        return sorted(orders)


def _pickled(stage: Stage) -> bytes:
    """Return a stage as tasks have it: a constant table travels in its chunk, not in every task."""
    if all(branch.values is None for branch in stage.branches):
        return _pickled_before(Same(stage))
    more = tuple(replace(branch, values=None) for branch in stage.more)
    return pickle.dumps(replace(stage, values=None, more=more))


@lru_cache(maxsize=256)
def _pickled_before(stage: Same[Stage]) -> bytes:
    return pickle.dumps(stage.part)


def _without_table(piece: Any) -> Any:
    return MemoryUnits(piece.table.schema.empty_table()) if isinstance(piece, MemoryUnits) else piece
