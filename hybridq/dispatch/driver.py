"""Runs one query: hands chunks to devices as these become free, and merges what comes back.

Dask assigns tasks that name a resource to workers at once, so giving it all chunks would fix beforehand what each
device does. The driver therefore keeps only a few chunks in flight for each device and decides about the next one, its
size and its device, when one has finished.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from hybridq.catalog import Catalog
from hybridq.config import Config, HotColumns
from hybridq.dispatch.devices import Device, slots
from hybridq.dispatch.executor import CancelRequested, Event, Executor, Failed, Finished, Message, Vanished
from hybridq.dispatch.memory import GIVE_UP_AFTER, check_answer, check_gathered, remedy, rows_that_fit
from hybridq.dispatch.pieces import PROBING, PieceList
from hybridq.dispatch.progress import KindProgress, Progress
from hybridq.dispatch.recovery import BuildTooLarge, check_broadcast, lost_output, lost_parts, to_restart, unneeded
from hybridq.dispatch.stage_run import ChunkState, Part, StageRun, source_rows
from hybridq.dispatch.stalls import StallWatch
from hybridq.dispatch.tasks import MergeTask
from hybridq.errors import (
    DeviceOutOfMemory,
    ExecutionError,
    FallbackForbidden,
    HybridqError,
    PiecesLost,
    QueryCancelled,
    Unsupported,
    WorkersLost,
)
from hybridq.physical.binding import value_of
from hybridq.physical.pipeline import BroadcastBuild, Chunk, PartitionedBuild, PartitionSource, PieceUnits
from hybridq.physical.stages import PhysicalPlan
from hybridq.placement.cost import PullPolicy
from hybridq.placement.modes import Decision
from hybridq.report import Report
from hybridq.topology import Kind

Replan = Callable[[frozenset[int]], tuple[PhysicalPlan, Sequence[Decision]]]
"""Plans the query again, these build sides (by their ids) being too large to be broadcast."""

POLL_SECONDS = 0.5
"""How often the driver looks which workers are there, and whether something is overdue."""

EVENT_TIMEOUT = 5.0
"""Seconds that a task's report may come after the news that it has finished, before the task is run again."""

MERGE_PRIORITY = 1000
"""Merges go before chunks: they free memory."""


class Driver:
    """Runs one query.

    Parameters
    ----------
    executor : Executor
    plan : PhysicalPlan
    catalog : Catalog
    config : Config
    decisions : sequence of Decision
        One for each stage.
    query : str
        Identifies the query; never used before on this cluster.
    report : Report
        Receives what happens.
    strict : bool
        A chunk that would move to another kind of device is an error.
    hot : HotColumns or None
        What GPU workers are to keep from query to query; ``None``: what they have been told before.
    replan : callable, optional
        Plans the query again when a build side is larger than was estimated; without it that is broadcast all the same.
    """

    def __init__(
        self,
        executor: Executor,
        plan: PhysicalPlan,
        catalog: Catalog,
        config: Config,
        decisions: Sequence[Decision],
        query: str,
        report: Report,
        strict: bool = False,
        hot: HotColumns | None = None,
        replan: Replan | None = None,
    ) -> None:
        self._executor = executor
        self._catalog = catalog
        self._config = config
        self._query = query
        self._report = report
        self._strict = strict
        self._hot = hot
        self._replan = replan
        self._origin = time.perf_counter()
        self._stop = threading.Event()
        self._events: dict[str, Mapping[str, Any]] = {}
        self._finished: dict[str, float] = {}
        self._devices: list[Device] = []
        self._gpu_deaths = 0
        self._gpus_seen: set[str] = set()
        self._stalls = StallWatch(config.stall_timeout)
        self._generation = 0
        self._restarts: dict[int, int] = {}
        self._runs: dict[int, StageRun] = {}
        self._load(plan, decisions)

    def _load(self, plan: PhysicalPlan, decisions: Sequence[Decision]) -> None:
        """Take a plan to be run."""
        self._needed_by = {
            stage.id: [other.id for other in plan.stages if stage.id in other.dependencies] for stage in plan.stages
        }
        by_stage = {decision.stage: decision for decision in decisions}
        runs: dict[int, StageRun] = {}
        for stage in plan.stages:
            decision = by_stage[stage.id]
            stage_report = decision.report(stage.title)
            prefix = f"{self._query}-{stage.id}-{self._generation}"
            runs[stage.id] = StageRun(
                stage, decision, self._policy(decision), prefix, stage_report, origin=self._origin
            )
        self._report.stages[:] = [run.report for run in runs.values()]
        self._runs = runs
        self._last = plan.stages[-1].id

    def _policy(self, decision: Decision) -> PullPolicy:
        rows: dict[Kind, int] = {"cpu": self._config.cpu_chunk_rows, "gpu": self._config.gpu_chunk_rows}
        return PullPolicy(
            decision.kinds,
            slots(self._devices),
            rows,
            before=decision.seconds_per_row,
            cpu_slots=decision.cpu_slots,
            probe=decision.probe,
            unit_rows=decision.unit_rows,
        )

    # --- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> pa.Table:
        """Run the query to its end.

        Returns
        -------
        pyarrow.Table
            The answer.

        Raises
        ------
        QueryCancelled
            ``cancel`` was called.
        WorkersLost
            No worker of a kind that is needed was there for ``stall_timeout`` seconds.
        FallbackForbidden
            A chunk had to move to another kind of device, and ``strict`` was asked for.
        ExecutionError
            A task failed, or another error of hybridq's that it raised.
        """
        try:
            while True:
                try:
                    self._run_stages()
                    break
                except BuildTooLarge as found:
                    self._switch(found)
            last = self._runs[self._last]
            check_answer(last.report.output_rows, last.output_bytes, self._config.result_bytes)
            return self._executor.fetch(self._output(self._last), self._stop.is_set)
        finally:
            self._clean_up()

    def _run_stages(self) -> None:
        self._look_for_workers()
        checked = time.monotonic()
        while self._runs[self._last].status != "done":
            self._advance()
            try:
                self._handle(self._executor.messages.get(timeout=POLL_SECONDS))
                while True:
                    self._handle(self._executor.messages.get_nowait())
            except queue.Empty:
                pass
            if time.monotonic() - checked >= POLL_SECONDS:
                self._look_for_workers()
                self._look_for_overdue()
                checked = time.monotonic()

    def _switch(self, found: BuildTooLarge) -> None:
        """Begin the query again, with joins that split both sides where a build side is too large to be broadcast."""
        if self._replan is None:
            raise TypeError("there is nothing to plan the query with")
        self._executor.cancel([key for run in self._runs.values() for key in run.all_keys()])
        self._events.clear()
        self._finished.clear()
        self._restarts.clear()
        self._generation += 1
        self._load(*self._replan(found.builds))
        cause = (
            f"; a build side came to {found.size / 2**20:.1f} MiB or more, which broadcast_limit_bytes does not let"
            " be broadcast, so both sides are split"
        )
        for run in self._runs.values():
            builds = (build for branch in run.stage.branches for build in branch.builds)
            if any(isinstance(build, PartitionedBuild) and build.id in found.builds for build in builds):
                run.report.reason += cause

    def cancel(self) -> None:
        """Ask the query to stop; ``run`` then raises ``QueryCancelled``. May be called from any thread."""
        self._stop.set()
        self._executor.messages.put(CancelRequested())

    def progress(self) -> Progress:
        """Return how far the query has come. May be called from any thread."""
        runs = list(self._runs.values())
        found = Progress(stages=len(runs))
        for run in runs:
            found.stages_done += run.status == "done"
            found.rows_done += run.rows_done
            found.rows += run.source.total_rows if run.source is not None else run.stage.input_rows
            for kind in tuple(run.by_kind):
                total = found.kinds.setdefault(kind, KindProgress())
                total.chunks += run.by_kind[kind].chunks
                total.rows += run.by_kind[kind].rows
        found.finished = found.stages_done == found.stages
        return found

    def _clean_up(self) -> None:
        """Free everything on the cluster: futures that are still running are cancelled, values are dropped."""
        keys = [key for run in self._runs.values() for key in run.all_keys()]
        try:
            if self._runs[self._last].status == "done":
                self._executor.release(keys)
            else:
                self._executor.cancel(keys)
        except Exception as error:
            # The cluster may be gone, which is then the error that ``run`` is raising.
            if self._runs[self._last].status == "done":
                raise ExecutionError(f"cannot free the query's results: {error}") from error

    def _advance(self) -> None:
        """Start stages, hand out chunks, merge: whatever can be done now."""
        for run in self._runs.values():
            if run.status == "waiting" and all(self._runs[i].status == "done" for i in run.stage.dependencies):
                values = {number: self._subquery_value(stage) for number, stage in run.stage.subqueries}
                splits = {stage: self._runs[stage].split_chunks() for stage in run.stage.split_inputs}
                run.start(self._catalog, self._config, values, splits)
                self._share_inputs(run)
            if run.status != "running" or any(self._runs[i].status != "done" for i in run.stage.dependencies):
                continue  # inputs that were lost are made again
            self._hand_out(run)
            while (parts := run.ready_to_fold()) is not None:
                self._merge(run, last=False, count=len(parts))
            if run.ready_to_end():
                run.check_complete()
                if run.stage.keeps_pieces:
                    self._stage_done(run)
                else:
                    self._merge(run, last=True)

    def _share_inputs(self, run: StageRun) -> None:
        """Copy build sides to the devices that will probe them, where there will be several chunks to run."""
        sides = [build for branch in run.stage.branches for build in branch.builds]
        builds = list(dict.fromkeys(build.stage for build in sides if isinstance(build, BroadcastBuild)))
        if not builds or run.untaken_rows <= self._config.cpu_chunk_rows:
            return
        # Not to a kind that would only slow the stage down, as far as earlier runs tell.
        kinds = [kind for kind in run.policy.active if run.policy.rows_for(kind, run.untaken_rows, {}) is not None]
        devices = [device for device in self._devices if device.kind in kinds]
        self._executor.share([self._output(stage) for stage in builds], devices)

    # --- handing out chunks ----------------------------------------------------------------------------------------

    def _hand_out(self, run: StageRun) -> None:
        for item in list(run.waiting):
            if self._in_flight(item.kind) < max(run.policy.window(item.kind, self._config.window), 1):
                run.waiting.remove(item)
                self._submit(run, item.chunk, item.kind)
        if run.exhausted or run.source is None:
            return
        took = True
        while took and not run.exhausted:
            took = False
            # The result of an earlier stage is one small chunk: better on the CPU, where it comes from.
            kinds = run.policy.takers if run.untaken_rows else reversed(run.policy.active)
            for kind in kinds:
                if self._in_flight(kind) >= run.policy.window(kind, self._config.window):
                    continue
                rows = run.policy.rows_for(kind, run.untaken_rows, run.rows_in_flight())
                fitting = 0 if rows is None else self._fitting(run, kind, int(rows * run.breadth))
                chunk = None if rows is None else run.source.take(fitting, largest=kind == "gpu")
                if chunk is not None:
                    self._submit(run, chunk, kind)
                    took = True

    def _fitting(self, run: StageRun, kind: Kind, rows: int) -> int:
        """Bound a chunk by the device's memory, as far as a row's bytes are known from earlier chunks."""
        if run.bytes_per_row is None:
            return min(rows, self._config.cpu_chunk_rows)
        fitting = rows_that_fit(self._devices, run.bytes_per_row, kind)
        return rows if fitting is None else min(rows, fitting)

    def _submit(self, run: StageRun, chunk: Chunk, kind: Kind) -> None:
        state = run.register(chunk, kind)
        if chunk.rows:
            run.bytes_per_row = chunk.decoded_bytes / chunk.rows
        task, tables = run.task(state, self._query, self._executor.topic)
        inputs = [self._output(stage) for stage in run.stage.branch(chunk.branch).inputs]
        task = replace(
            task, hot=self._hot, pieces=self._piece_lists(run, chunk), split_memory=self._config.split_memory_bytes
        )
        self._executor.run_chunk(task, tables, inputs, kind, -run.stage.id)

    def _piece_lists(self, run: StageRun, chunk: Chunk) -> tuple[PieceList, ...]:
        """Say where the partitions are that a chunk reads."""
        branch, units = run.stage.branch(chunk.branch), chunk.source
        source = branch.pipeline.source
        if not isinstance(units, PieceUnits) or not isinstance(source, PartitionSource):
            return ()
        found = [self._runs[source.stage].piece_list(PROBING, units)]
        partitioned = [build for build in branch.builds if isinstance(build, PartitionedBuild)]
        found += [self._runs[each.stage].piece_list(each.id, units, each.further) for each in partitioned]
        return tuple(found)

    def _in_flight(self, kind: Kind) -> int:
        return sum(state.kind == kind for run in self._runs.values() for state in run.running.values())

    def _subquery_value(self, stage: int) -> Any:
        return value_of(self._executor.fetch(self._output(stage), self._stop.is_set), self._runs[stage].stage.title)

    def _output(self, stage: int) -> str:
        output = self._runs[stage].output
        if output is None:
            raise RuntimeError(f"stage {stage} has no output yet")
        return output

    # --- merging ---------------------------------------------------------------------------------------------------

    def _merge(self, run: StageRun, last: bool, count: int | None = None) -> None:
        """Merge all partial results of a stage, or the neighbours that are ready to be folded."""
        parts = list(run.parts) if count is None else run.ready_to_fold() or []
        # Partial results that are all on GPU workers stay there: a build side, say, is needed there next.
        on_gpus = run.by_kind.keys() == {"gpu"} and any(device.kind == "gpu" for device in self._devices)
        kind: Kind = "gpu" if on_gpus or not self._has_cpu() else "cpu"
        if last:
            check_gathered(run.stage, sum(part.bytes for part in parts), self._devices)
        key = run.begin_merge(parts, kind, last)
        task = MergeTask(self._query, self._executor.topic, key, run.blob, last, kind)
        self._executor.merge(task, [part.key for part in parts], kind, MERGE_PRIORITY)

    def _stage_done(self, run: StageRun) -> None:
        """Let go what no other stage will read any more, nor will be needed to make that again."""
        run.finish()
        for other in reversed(list(self._runs.values())):
            if not other.released and unneeded(self._runs, self._needed_by, other.stage.id):
                other.released = True
                self._executor.release(other.output_keys())

    # --- what comes back -------------------------------------------------------------------------------------------

    def _handle(self, message: Message) -> None:
        if isinstance(message, CancelRequested):
            raise QueryCancelled("the query was cancelled")
        if isinstance(message, Event):
            self._handle_event(message.content)
            return
        run = self._owner(message.key)
        if run is None:
            return  # given up in the meantime
        if isinstance(message, Finished):
            self._finished.setdefault(message.key, time.monotonic())
            self._settle(run, message.key)
        elif isinstance(message, Vanished):
            self._handle_lost(run, message.key)
        else:
            self._handle_failure(run, message)

    def _handle_event(self, event: Mapping[str, Any]) -> None:
        key = event["key"]
        run = self._owner(key)
        self._report.note_peaks(event)
        if run is None:
            return  # given up, or a task that Dask ran again because a worker died with its value
        self._events[key] = {**event, "received": time.perf_counter()}
        self._settle(run, key)

    def _owner(self, key: str) -> StageRun | None:
        """Return the stage that still waits for a task."""
        for run in self._runs.values():
            if key in run.running or key in run.merging:
                return run
        return None

    def _settle(self, run: StageRun, key: str) -> None:
        """Take in a task's value, once both it and the task's report are there."""
        if key not in self._finished or key not in self._events:
            return
        del self._finished[key]
        event = self._events.pop(key)
        if key in run.merging:
            parts = run.merged(key, event)
            self._executor.release([part.key for part in parts])
            self._check_broadcast(run)
        elif event["outcome"] == "done":
            state = run.running[key]
            state.event = event
            run.done(state)
            self._check_broadcast(run)
            self._stop_early(run)
        else:
            self._handle_out_of_memory(run, run.running[key], event)
        if run.output is not None:
            self._stage_done(run)

    def _check_broadcast(self, run: StageRun) -> None:
        if self._replan is not None:
            limit = max(self._config.broadcast_limit_bytes, self._config.broadcast_bytes)
            check_broadcast(run, (self._runs[user] for user in self._needed_by[run.stage.id]), limit)

    def _stop_early(self, run: StageRun) -> None:
        """LIMIT without ORDER BY: stop once the first chunks have given enough rows."""
        wanted = run.stage.early_stop
        if wanted is None or run.output is not None or run.finished_prefix_rows() < wanted:
            return
        run.stopped_early = True
        given_up = list(run.running)
        run.running.clear()
        run.waiting.clear()
        self._executor.cancel(given_up)

    # --- trouble ---------------------------------------------------------------------------------------------------

    def _handle_out_of_memory(self, run: StageRun, state: ChunkState, event: Mapping[str, Any]) -> None:
        del run.running[state.key]
        self._executor.release([state.key])
        wanted, free = int(event["wanted"]), int(event["free"])
        run.policy.limit(state.kind, source_rows(state.chunk) // 2)
        halves = run.source.halve(state.chunk) if run.source is not None else None
        what = remedy(state.kind, event["section"], halves is not None, self._has_cpu())
        place = self._place(run, state.chunk)
        if what.action == "halve" and halves is not None:
            for half in halves:
                run.again(half, state.kind)
            run.report.retries -= len(halves) - 1  # one chunk was tried again, in two pieces
        elif what.action == "move":
            self._forbid_if_strict(f"{place} did not fit the GPU: {wanted} bytes wanted, {free} free")
            run.fell_back(state.chunk, str(event["message"]), "moved to the CPU")
            pieces = self._pieces(run, state.chunk)
            for piece in pieces:
                run.again(piece, "cpu")
            run.report.retries -= len(pieces) - 1
            run.gpu_refusals += 1
            builds = run.stage.branch(state.chunk.branch).builds
            hopeless = event["section"] == "build" and any(isinstance(build, BroadcastBuild) for build in builds)
            if hopeless:
                # Every chunk would try to make that build side again: whatever the mode, the rest goes to the CPU.
                run.policy.replace("gpu", "cpu")
            elif run.gpu_refusals >= GIVE_UP_AFTER and "gpu" not in run.by_kind:
                run.policy.withdraw("gpu", unless_last=True)
        elif state.kind == "gpu":
            raise DeviceOutOfMemory(f"{place}: {event['message']}, and there is no CPU worker to take it", wanted, free)
        else:
            raise ExecutionError(
                f"{place}, its smallest piece, does not fit the CPU worker's memory: {event['message']}"
            )

    def _has_cpu(self) -> bool:
        return any(device.kind == "cpu" for device in self._devices)

    def _pieces(self, run: StageRun, chunk: Chunk) -> list[Chunk]:
        """Cut a GPU's chunk into chunks for the CPU."""
        halves = (
            run.source.halve(chunk) if run.source is not None and chunk.rows > self._config.cpu_chunk_rows else None
        )
        return [chunk] if halves is None else [piece for half in halves for piece in self._pieces(run, half)]

    def _forbid_if_strict(self, what: str) -> None:
        if self._strict:
            raise FallbackForbidden(f"{what}; it would move to the CPU, which strict forbids")

    def _handle_failure(self, run: StageRun, failure: Failed) -> None:
        error, state = failure.error, run.running.get(failure.key)
        if isinstance(error, PiecesLost):
            self._handle_lost_pieces(failure.key, error)
            return
        where = f"stage {run.stage.id} ({run.stage.title})" if state is None else self._place(run, state.chunk)
        if isinstance(error, WorkersLost):
            movable = state is not None and state.kind == "gpu" and not self._gpu_only(run)
            if state is None or not movable:
                raise WorkersLost(f"{where}: {error}") from error
            self._move_to_cpu(run, state, str(error))
            return
        if isinstance(error, Unsupported) and state is not None and state.kind == "gpu" and self._has_cpu():
            # The GPU engine's table did not say so: the rest of the stage would fail in the same way.
            run.policy.replace("gpu", "cpu")
            self._move_to_cpu(run, state, str(error))
            return
        if type(error) is ExecutionError or not isinstance(error, HybridqError):
            raise ExecutionError(f"{where}: {error}") from error
        error.add_note(f"in {where}")
        raise error

    def _handle_lost(self, run: StageRun, key: str) -> None:
        """A task that the scheduler forgot, or whose input it lost: run it again, if the scheduler is still there."""
        self._look_for_workers()
        self._finished.pop(key, None)
        self._events.pop(key, None)
        self._executor.release([key])
        state = run.running.pop(key, None)
        if state is not None:
            run.again(state.chunk, state.kind)
        elif key in run.merging:
            run.lost_merges += 1
            if run.lost_merges > GIVE_UP_AFTER:
                raise ExecutionError(
                    f"stage {run.stage.id} ({run.stage.title}): its merge was lost {run.lost_merges} times"
                )
            run.give_up_merge(key)

    def _handle_lost_pieces(self, key: str, error: PiecesLost) -> None:
        """A task did not find pieces that it reads: make these again, and run it once more."""
        self._look_for_workers()
        run = self._owner(key)
        if run is None:
            return  # it has been begun again already
        state = run.running.pop(key, None)
        if state is None or error.stage not in run.stage.split_inputs:
            # Dask computed an input of it again, which needs pieces that were let go.
            users = [user for user in self._needed_by[error.stage] if not self._runs[user].stage.keeps_pieces]
            self._restart([run.stage.id, *(user for user in users if self._runs[user].status == "done")])
            return
        self._executor.release([key])
        run.again(state.chunk, state.kind, str(error))
        split = self._runs[error.stage]
        self._make_again(split, [part for part in split.parts if part.state and part.state.serial in error.serials])

    def _recover(self, there: set[str]) -> None:
        """Do again what was on workers that are gone, where Dask cannot: pieces, and what was made of pieces."""
        restart = [number for number in self._runs if lost_output(self._runs, self._needed_by, number, there)]
        if restart:
            self._restart(restart)
        for number in list(self._runs):
            run = self._runs[number]
            self._make_again(run, lost_parts(run, there))

    def _make_again(self, run: StageRun, parts: Sequence[Part]) -> None:
        """Run the chunks of some partial results again."""
        if not parts:
            return
        if any(self._runs[stage].released for stage in run.stage.dependencies) or any(not part.state for part in parts):
            self._restart([run.stage.id])
            return
        self._executor.cancel([part.key for part in parts])
        run.status = "running"
        for part in parts:
            if part.state is not None:
                run.undo(part)
                there = any(device.kind == part.state.kind for device in self._devices) or self._gpu_only(run)
                run.again(part.state.chunk, part.state.kind if there else "cpu")

    def _restart(self, stages: Sequence[int]) -> None:
        """Run stages again from their start, with what else that takes."""
        for number in to_restart(self._runs, self._needed_by, stages):
            run = self._runs[number]
            run.report.retries += 1
            self._restarts[number] = self._restarts.get(number, 0) + 1
            if self._restarts[number] > GIVE_UP_AFTER:
                raise WorkersLost(
                    f"stage {number} ({run.stage.title}) was lost with its workers {self._restarts[number]} times"
                )
            self._begin_again(run, run.decision)

    def _begin_again(self, run: StageRun, decision: Decision) -> None:
        """Forget all that a stage has done."""
        self._executor.cancel(run.all_keys())
        self._generation += 1
        prefix = f"{self._query}-{run.stage.id}-{self._generation}"
        self._runs[run.stage.id] = StageRun(
            run.stage, decision, self._policy(decision), prefix, run.report, origin=self._origin
        )

    def _move_to_cpu(self, run: StageRun, state: ChunkState, cause: str) -> None:
        self._forbid_if_strict(f"{self._place(run, state.chunk)} cannot run on the GPU: {cause}")
        run.running.pop(state.key, None)
        self._finished.pop(state.key, None)
        self._events.pop(state.key, None)
        self._executor.cancel([state.key])
        run.fell_back(state.chunk, cause, "moved to the CPU")
        run.again(state.chunk, "cpu")

    def _look_for_overdue(self) -> None:
        """Run tasks again whose report has not come."""
        now = time.monotonic()
        for key, since in list(self._finished.items()):
            run = self._owner(key)
            if run is None:
                del self._finished[key]
            elif now - since > EVENT_TIMEOUT:
                self._handle_lost(run, key)

    @staticmethod
    def _place(run: StageRun, chunk: Chunk) -> str:
        rows = f" of {source_rows(chunk)} rows" if chunk.source is not None else ""
        return f"stage {run.stage.id} ({run.stage.title}), chunk {chunk.id}{rows}"

    @staticmethod
    def _gpu_only(run: StageRun) -> bool:
        return run.decision.mode == "EXEC_GPU" and run.decision.forced

    # --- workers that come and go ----------------------------------------------------------------------------------

    def _look_for_workers(self) -> None:
        devices = self._executor.devices()
        there = {device.address for device in devices}
        gone = [device for device in self._devices if device.address not in there]
        self._devices = devices
        self._gpu_deaths += sum(device.kind == "gpu" for device in gone)
        self._gpus_seen |= {device.worker for device in devices if device.kind == "gpu"}
        available = slots(devices)
        for run in self._runs.values():
            run.policy.set_slots(available)
            if self._gpus_seen and self._gpu_deaths >= 2 * len(self._gpus_seen) and not self._gpu_only(run):
                run.policy.withdraw("gpu", unless_last=True)  # a device that dies twice is out for the query
            if run.status == "running" and not run.policy.active and "cpu" in available and not self._gpu_only(run):
                self._forbid_if_strict(f"stage {run.stage.id} ({run.stage.title}) has lost its last GPU worker")
                run.policy.replace("gpu", "cpu")
        if gone:
            self._recover(there)
        if "gpu" not in available and any(device.kind == "gpu" for device in gone):
            self._leave_gpu(there)
        self._stalls.check(self._needed_kinds(), devices)

    def _leave_gpu(self, there: set[str]) -> None:
        """The last GPU worker is gone: what it had, running or finished, is done again on the CPU."""
        cause = "the last GPU worker was lost"
        for run in list(self._runs.values()):
            if self._gpu_only(run):
                continue
            if run.status == "done":
                self._redo_if_lost(run, there)
                continue
            for key, merging in list(run.merging.items()):
                if merging.kind == "gpu" or any(_lost(part.state, there) for part in merging.parts):
                    run.give_up_merge(key)
                    self._executor.cancel([key])
            for part in [part for part in run.parts if _lost(part.state, there)]:
                if part.state is not None:
                    run.undo(part)
                    self._move_to_cpu(run, part.state, cause)
            for state in [state for state in run.running.values() if state.kind == "gpu"]:
                self._move_to_cpu(run, state, cause)

    def _redo_if_lost(self, run: StageRun, there: set[str]) -> None:
        """Run a whole stage again, on the CPU, whose output is lost while another stage still needs it."""
        users = [self._runs[i] for i in self._needed_by[run.stage.id] if self._runs[i].status != "done"]
        if not users or not _lost(run.output_state, there):
            return
        self._forbid_if_strict(f"stage {run.stage.id} ({run.stage.title}) lost its output with the last GPU worker")
        for each in [run, *users]:
            decision = each.decision
            if each is run:
                decision = Decision(run.stage.id, "EXEC_CPU", "its output was lost with the last GPU worker")
                each.report.mode, each.report.reason = decision.mode, decision.reason
                each.report.retries += 1
            self._begin_again(each, decision)

    def _needed_kinds(self) -> set[Kind]:
        """Return the kinds of worker without which the query does not get on."""
        needed: set[Kind] = set()
        for run in self._runs.values():
            if run.status != "running":
                continue
            needed |= {state.kind for state in run.running.values()} | {item.kind for item in run.waiting}
            needed |= {merging.kind for merging in run.merging.values()}
            if not run.exhausted and not run.policy.active:
                needed |= set(run.decision.kinds)
        return needed


def _lost(state: ChunkState | None, there: set[str]) -> bool:
    """Tell whether a chunk's value was on a GPU worker that is gone."""
    return state is not None and state.kind == "gpu" and state.event is not None and state.event["address"] not in there
