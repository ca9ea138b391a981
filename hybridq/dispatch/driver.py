"""Runs one query: hands chunks to devices as these become free, and merges what comes back.

Dask assigns tasks that name a resource to workers at once, so giving it all chunks would fix beforehand what each
device does. The driver therefore keeps only a few chunks in flight for each device and decides about the next one, its
size and its device, when one has finished.
"""

from __future__ import annotations

import queue
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from hybridq.dispatch.chunk_states import ChunkState, Part
from hybridq.dispatch.delivery import Delivering
from hybridq.dispatch.device_rows import collects_columns, finishes_on_device, merges_groups
from hybridq.dispatch.executor import CancelRequested, Event, Failed, Finished, Message, Vanished
from hybridq.dispatch.memory import check_answer, check_window, factor_of, range_bytes, rows_that_fit
from hybridq.dispatch.pieces import PROBING, PieceList
from hybridq.dispatch.progress import KindProgress, Progress
from hybridq.dispatch.recovery import TooLarge, check_broadcast, check_gathered, unneeded
from hybridq.dispatch.sending import opened
from hybridq.dispatch.spreading import MOST_NAMED, least_busy
from hybridq.dispatch.stage_run import StageRun
from hybridq.dispatch.tasks import MergeTask, Stay, merge_here
from hybridq.errors import ExecutionError, HybridqError, QueryCancelled
from hybridq.physical.binding import value_of
from hybridq.physical.chunks import Chunk, PieceUnits, RangeUnits
from hybridq.physical.pipeline import BroadcastBuild, PartitionedBuild, PartitionSource, RangeSource
from hybridq.placement.passing_on import NETWORK_BYTES_PER_S, merging_kind
from hybridq.topology import Kind

POLL_SECONDS = 0.5
"""How often the driver looks which workers are there, and whether something is overdue."""

POLL_SHARE = 20
"""Times as long as such a look takes until the next one: with a thousand workers it takes a tenth of a second."""

MERGE_PRIORITY = 1000
"""Merges go before chunks: they free memory."""

LATE_POLL_SECONDS = 0.05
"""How often it looks whether chunks take far longer than expected, where another kind of device could do them."""

HERE = "client"
"""What this process is called, among workers, in a report."""

LARGE_INPUT_BYTES = 2**20
"""Build sides from which it matters, for a stage of few chunks as well, that every device has them: Dask would rather
have a chunk wait for the worker that has them than send them. To copy them takes a question to the scheduler."""


class Driver(Delivering):
    """Runs one query. Parameters are those of ``QueryRun``."""

    # --- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> pa.Table | None:
        """Run the query to its end.

        Returns
        -------
        pyarrow.Table or None
            The answer; ``None``: it went to ``target``.

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
                except TooLarge as found:
                    self._switch(found)
            last = self._runs[self._last]
            if last.delivering:
                return self._gathered.table(last.stage.schema) if self._target is None else None
            if self._target is None:
                check_answer(last.report.output_rows, last.output_bytes, self._config.result_bytes)
                return self._fetch(self._last)
            self._target.begin()
            self._target.take(self._fetch(self._last))
            return None
        finally:
            self._clean_up()

    def _run_stages(self) -> None:
        self._look_for_workers()
        checked, pause = time.monotonic(), POLL_SECONDS
        while self._runs[self._last].status != "done":
            self._advance()
            if self._runs[self._last].status == "done":
                break  # without a word from the cluster: there was nothing more to do there
            self._prepare_ahead()
            try:
                self._handle(self._next_message())
                while True:
                    self._handle(self._executor.messages.get_nowait())
            except queue.Empty:
                pass
            if (now := time.monotonic()) - checked >= pause:
                self._look_for_workers()
                self._look_for_overdue()
                checked = time.monotonic()
                pause = max(POLL_SECONDS, POLL_SHARE * (checked - now))

    def _next_message(self) -> Message:
        """Wait for the next message, looking for chunks that are late meanwhile.

        Raises
        ------
        queue.Empty
            There was none for ``POLL_SECONDS``, or late chunks are to be handed out anew.
        """
        until = time.monotonic() + POLL_SECONDS
        while self._watches() and (left := until - time.monotonic()) > 0:
            try:
                return self._executor.messages.get(timeout=min(left, LATE_POLL_SECONDS))
            except queue.Empty:
                if self._move_late():
                    raise
        return self._executor.messages.get(timeout=max(until - time.monotonic(), 0.001))

    def _switch(self, found: TooLarge) -> None:
        """Begin the query again, with rows split where too many were to be in one place."""
        if self._replan is None:
            raise TypeError("there is nothing to plan the query with")
        self._executor.cancel([key for run in self._runs.values() for key in run.all_keys()])
        self._events.clear()
        self._finished.clear()
        self._restarts.clear()
        self._generation += 1
        self._load(*self._replan(found.parts))
        for run in self._runs.values():
            if run.stage.split_parts & found.parts:
                run.report.reason += f"; {found.cause}"

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
                self._choose_delivery(run)
                self._share_inputs(run)
            if run.status != "running" or any(self._runs[i].status != "done" for i in run.stage.dependencies):
                continue  # inputs that were lost are made again
            if run.delivering:
                self._deliver(run)  # which makes room for more
            if self._runs[run.stage.id] is not run:
                continue
            self._hand_out(run)
            while (parts := run.ready_to_fold()) is not None:
                self._merge(run, last=False, count=len(parts))
            if not run.delivering and self._is_too_large_to_merge(run):
                run.delivering = True
                self._deliver(run)
            if self._runs[run.stage.id] is run and run.ready_to_end():
                run.check_complete()
                if run.delivering:
                    self._begin_delivery(run)
                if run.stays_in_parts:
                    self._stage_done(run)
                else:
                    self._merge(run, last=True)
        self._read_ahead()

    def _prepare_ahead(self) -> None:
        """Prepare stages that wait for others, as long as there is nothing else to do."""
        for run in self._runs.values():
            if not self._executor.messages.empty():
                return
            run.prepare_ahead(self._catalog, self._config)

    def _read_ahead(self) -> None:
        """Let GPUs read, when nothing is left to do for them, what stages will need that wait for others.

        One slot stays free for the next stage's chunks, which would otherwise wait for what is read to be whole.
        """
        if any(run.takes_more("gpu") for run in self._runs.values()):
            return  # what they begin to read between two chunks would hold up the second
        for run in self._runs.values():
            before = [self._runs[number] for number in run.stage.dependencies]
            if not run.may_read_ahead or any(each.status == "waiting" and not each.ahead for each in before):
                continue
            spare = sum(device.threads for device in self._devices if device.kind == "gpu") - 1
            fitting = partial(self._fitting, run, "gpu")
            while self._being_read() < spare and (item := run.take_ahead(self._catalog, self._config, fitting)):
                self._reading.add(item.ahead)
                state = ChunkState(item.chunk, "gpu", item.ahead, complete=False)
                task, _ = run.task(state, self._query, self._executor.topic)
                self._executor.read_ahead(replace(task, hot=self._hot), "gpu", -run.stage.id)

    def _being_read(self) -> int:
        """Return how many chunks are being read ahead now; those that were given up do not count."""
        return sum(key in self._reading for run in self._runs.values() for key in run.ahead.values())

    def _share_inputs(self, run: StageRun) -> None:
        """Copy build sides to the devices that will probe them, where there will be several chunks to run."""
        sides = [build for branch in run.stage.branches for build in branch.builds]
        stages = dict.fromkeys(build.stage for build in sides if isinstance(build, BroadcastBuild))
        builds = [stage for stage in stages if self._runs[stage].answer is None]
        if not builds:
            return
        run.policy.charge(self._entry_seconds(builds))
        # Not to a kind that would only slow the stage down, as far as earlier runs tell.
        asked = {kind: run.policy.rows_for(kind, run.untaken_rows, {}) for kind in run.policy.active}
        kinds = {kind: rows for kind, rows in asked.items() if rows is not None}
        large = sum(self._runs[stage].output_bytes for stage in builds) >= LARGE_INPUT_BYTES
        several = any(rows < run.untaken_rows for rows in kinds.values())
        if run.untaken_rows <= self._config.cpu_chunk_rows and not (large and several):
            return
        devices = [device for device in self._devices if device.kind in kinds]
        if max(Counter(device.kind for device in devices).values(), default=0) < 2 or self._few_cpus:
            return  # Dask has no choice, and sends what is needed as soon as a chunk waits for it
        self._executor.share([key for stage in builds for key in self._outputs(stage)], devices)

    def _entry_seconds(self, builds: Sequence[int]) -> dict[Kind, float]:
        """Return the seconds that it takes to pass build sides to each kind of device, from where they were made."""
        places = {device.address: device.kind for device in self._devices}
        found: dict[Kind, float] = {}
        for made in (self._runs[stage] for stage in builds):
            home = places.get(made.output_address)
            for kind in {device.kind for device in self._devices} - {home}:
                found[kind] = found.get(kind, 0.0) + made.output_bytes / NETWORK_BYTES_PER_S
        return found

    # --- handing out chunks ----------------------------------------------------------------------------------------

    def _hand_out(self, run: StageRun) -> None:
        for item in list(run.waiting):
            if self._in_flight(item.kind) < max(run.policy.window(item.kind, self._config.window), 1):
                run.waiting.remove(item)
                self._submit(run, item.chunk, item.kind, item.ahead)
        if run.exhausted or run.source is None:
            return
        cause = run.policy.call_in(run.untaken_rows, run.running.rows_left(run.policy))
        if cause is not None:
            run.report.reason += f"; while it ran both were put to work: {cause}"
            self._share_inputs(run)
        took = True
        while took and not run.exhausted and not self._is_ahead(run):
            took = False
            # The result of an earlier stage is one small chunk: better on the CPU, where it comes from.
            kinds = run.policy.takers if run.untaken_rows else reversed(run.policy.active)
            for kind in kinds:
                if self._in_flight(kind) >= run.policy.window(kind, self._config.window):
                    continue
                rows = run.policy.rows_for(kind, run.untaken_rows, run.running.rows_left(run.policy))
                fitting = 0 if rows is None else self._fitting(run, kind, int(rows * run.breadth))
                chunk = None if rows is None else run.source.take(fitting, largest=kind == "gpu")
                if chunk is not None:
                    self._submit(run, chunk, kind)
                    took = True

    def _fitting(self, run: StageRun, kind: Kind, rows: int) -> int:
        """Bound a chunk by the device's memory, as far as a row's bytes are known from earlier chunks."""
        if run.bytes_per_row is None:
            return min(rows, self._config.cpu_chunk_rows)
        if any(isinstance(branch.pipeline.source, RangeSource) for branch in run.stage.branches):
            most = range_bytes(self._devices)
            rows = rows if most is None else min(rows, max(int(most / run.bytes_per_row), 1))
        factor = run.footprint.factor if kind == "gpu" else factor_of(run.stage)
        fitting = rows_that_fit(self._tightest, run.bytes_per_row, kind, factor)
        return rows if fitting is None else min(rows, fitting)

    def _submit(self, run: StageRun, chunk: Chunk, kind: Kind, ahead: str = "") -> None:
        state = run.register(chunk, kind)
        if chunk.rows:
            run.bytes_per_row = chunk.decoded_bytes / chunk.rows
        task, tables = run.task(state, self._query, self._executor.topic)
        given = {stage: sent for stage in task.inputs if (sent := self._runs[stage].given()) is not None}
        keys = [(stage, key) for stage in task.inputs if stage not in given for key in self._outputs(stage)]
        left, inputs = tuple(stage for stage, _ in keys), [key for _, key in keys]
        if ahead:
            inputs.append(ahead)
        pieces = self._piece_lists(run, chunk)
        if isinstance(chunk.source, RangeUnits):  # what to cut is said by the list
            task = replace(task, chunk=replace(task.chunk, source=replace(chunk.source, cuts=())))
        memory = self._config.split_memory_bytes
        stay = self._where_to_stay(run) if kind == "gpu" else "no"
        task = replace(task, inputs=left, given=tuple(given.items()), hot=self._hot, pieces=pieces, ahead=bool(ahead))
        task = replace(task, split_memory=memory, stay=stay, send=run.part_bytes(chunk))
        if kind == "gpu" and task.complete:
            task = replace(task, output=self._where_output_stays(run))
        if self._few_cpus and left and not task.complete:
            state.worker = self._worker_for(left)
        self._executor.run_chunk(task, tables, inputs, kind, -run.stage.id, state.worker)

    @property
    def _few_cpus(self) -> bool:
        """Tell whether each chunk may be given to a certain worker: they are few, and all of one kind.

        Where that worker is gone, Dask takes any other, and would not ask whether it is a CPU or a GPU.
        """
        return len(self._devices) <= MOST_NAMED and all(device.kind == "cpu" for device in self._devices)

    def _worker_for(self, inputs: Sequence[int]) -> str:
        """Return the worker that is to run a CPU's chunk which reads these stages' outputs; empty: Dask may choose."""
        largest = max((self._runs[stage] for stage in inputs), key=lambda made: made.output_bytes)
        busy = Counter(state.worker for run in self._runs.values() for state in run.running.values())
        return least_busy(self._devices, busy, largest.output_address)

    def _where_to_stay(self, run: StageRun) -> Stay:
        """Say whether a GPU that has made rows of a stage keeps them, for the merge or for stages that it will run."""
        if merges_groups(run.stage):
            return "on device" if run.policy.active == ("gpu",) else "no"
        return self._where_readers_are(run) if collects_columns(run.stage) else "no"

    def _where_output_stays(self, run: StageRun) -> Stay:
        """Say the same of what is made of groups."""
        return self._where_readers_are(run) if finishes_on_device(run.stage) else "no"

    def _where_readers_are(self, run: StageRun) -> Stay:
        readers = [self._runs[number] for number in self._needed_by[run.stage.id]]
        if not readers or any(
            run.stage.id not in reader.stage.inputs or "gpu" not in reader.policy.active for reader in readers
        ):
            return "no"
        return "both" if any("cpu" in reader.policy.active for reader in readers) else "on device"

    def _piece_lists(self, run: StageRun, chunk: Chunk) -> tuple[PieceList, ...]:
        """Say where the partitions are that a chunk reads."""
        branch, units = run.stage.branch(chunk.branch), chunk.source
        source = branch.pipeline.source
        if isinstance(units, RangeUnits) and isinstance(source, RangeSource):
            return (self._runs[source.stage].run_list(units),)
        if not isinstance(units, PieceUnits) or not isinstance(source, PartitionSource):
            return ()
        found = [self._runs[source.stage].piece_list(PROBING, units)]
        partitioned = [build for build in branch.builds if isinstance(build, PartitionedBuild)]
        found += [self._runs[each.stage].piece_list(each.id, units, each.further) for each in partitioned]
        return tuple(found)

    def _in_flight(self, kind: Kind) -> int:
        return sum(run.running.count.get(kind, 0) for run in self._runs.values())

    def _fetch(self, stage: int) -> pa.Table:
        """Return a stage's output: what came with its task's report, or what has to be asked for."""
        answer = self._runs[stage].answer
        if answer is not None:
            return opened(answer)
        (key,) = self._outputs(stage)
        return self._executor.fetch(key, self._stop.is_set)

    def _subquery_value(self, stage: int) -> Any:
        return value_of(self._fetch(stage), self._runs[stage].stage.title)

    # --- merging ---------------------------------------------------------------------------------------------------

    def _merge(self, run: StageRun, last: bool, count: int | None = None) -> None:
        """Merge all partial results of a stage, or the neighbours that are ready to be folded."""
        if last and (tables := run.parts_here()) is not None:
            self._merge_here(run, tables)
            return
        if last and self._is_read_in_parts(run):
            run.stay_in_parts()
            self._stage_done(run)
            return
        parts = list(run.parts) if count is None else run.ready_to_fold() or []
        kind: Kind = "cpu"
        if not self._has_cpu():
            kind = "gpu"
        elif any(device.kind == "gpu" for device in self._devices):
            kind = merging_kind(self._bytes_by_kind(run, parts), sum(part.rows for part in parts))
        if last:
            check_window(run.stage, sum(part.bytes for part in parts), self._devices)
        key = run.begin_merge(parts, kind, last)
        stay = self._where_to_stay(run) if kind == "gpu" else "no"
        task = MergeTask(self._query, self._executor.topic, key, run.blob, last, kind, stay)
        if kind == "gpu" and last:
            task = replace(task, output=self._where_output_stays(run))
        self._executor.merge(task, [part.key for part in parts], kind, MERGE_PRIORITY)

    def _is_read_in_parts(self, run: StageRun) -> bool:
        """Tell whether a stage's output is left to be put together by the tasks that read it: those of a few CPUs."""
        number = run.stage.id
        return (
            self._few_cpus and number in self._read_by_tasks and number not in self._values and run.may_stay_in_parts()
        )

    def _merge_here(self, run: StageRun, tables: Sequence[pa.Table]) -> None:
        """Merge small partial results in this process: to have a worker do it would take longer than the rest."""
        key = run.begin_merge(list(run.parts), "cpu", last=True)
        try:
            table, event = merge_here(run.stage, tables)
        except HybridqError as error:
            self._handle_failure(run, Failed(key, error))
            return
        parts = run.merged(key, {**event, "answer": table, "device": HERE})
        self._executor.release([part.key for part in parts])
        self._check_sizes(run)
        self._stage_done(run)

    def _bytes_by_kind(self, run: StageRun, parts: Sequence[Part]) -> dict[Kind, int]:
        """Return the bytes of partial results that lie on workers of each kind."""
        kinds = {device.address: device.kind for device in self._devices}
        found: dict[Kind, int] = dict.fromkeys(run.by_kind, 0)
        for part in parts:
            kind = kinds.get(part.address)
            if kind is not None:
                found[kind] = found.get(kind, 0) + part.bytes
        return found

    def _stage_done(self, run: StageRun) -> None:
        """Let go what no other stage will read any more, nor will be needed to make that again."""
        run.finish()
        if run.answer is not None:
            self._executor.release(run.output_keys())  # whoever reads it gets it from here
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
        self._reading.discard(message.key)
        run = self._owner(message.key)
        if run is None:
            return  # read ahead, or given up in the meantime
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

    def _settle(self, run: StageRun, key: str) -> None:
        """Take in a task's value, once both it and the task's report are there."""
        if key not in self._finished or key not in self._events:
            return
        del self._finished[key]
        event = self._events.pop(key)
        if key in run.merging:
            parts = run.merged(key, event)
            self._executor.release([part.key for part in parts])
            self._check_sizes(run)
        elif event["outcome"] == "done":
            state = run.running[key]
            state.event = event
            run.done(state)
            self._executor.release(run.no_longer_ahead(state.chunk))
            self._check_sizes(run)
            self._stop_early(run)
        else:
            self._executor.release(run.no_longer_ahead(run.running[key].chunk))
            self._handle_out_of_memory(run, run.running[key], event)
        if run.output is not None:
            self._stage_done(run)

    def _check_sizes(self, run: StageRun) -> None:
        if self._replan is not None:
            check_gathered(run, self._config.gather_limit_bytes)
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
