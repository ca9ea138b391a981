"""What a query does when something goes wrong: memory runs out, tasks fail, values and workers are lost.

``hybridq.dispatch.recovery`` says what has to be done again; here it is done.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from hybridq.dispatch.chunk_states import ChunkState, Part, Waiting, source_rows
from hybridq.dispatch.devices import slots
from hybridq.dispatch.executor import Failed
from hybridq.dispatch.late_chunks import late_chunk, may_move, note_given_up
from hybridq.dispatch.memory import GIVE_UP_AFTER, remedy, tightest
from hybridq.dispatch.query_run import QueryRun
from hybridq.dispatch.recovery import lost_output, lost_parts, to_restart
from hybridq.dispatch.stage_run import StageRun
from hybridq.errors import DeviceOutOfMemory, ExecutionError, HybridqError, PiecesLost, Unsupported, WorkersLost
from hybridq.physical.chunks import Chunk
from hybridq.physical.pipeline import BroadcastBuild
from hybridq.placement.modes import Decision
from hybridq.plan.naming import as_written
from hybridq.topology import Kind

EVENT_TIMEOUT = 5.0
"""Seconds that a task's report may come after the news that it has finished, before the task is run again."""


LOST = (
    "its worker, or its worker's report, was lost; if workers die for want of memory, start them with more (memory: in"
    " the cluster file) or lower cpu_chunk_rows"
)


class FaultHandling(QueryRun):
    """A query that goes on, if it can. Parameters are those of ``QueryRun``."""

    # --- tasks -----------------------------------------------------------------------------------------------------

    def _handle_out_of_memory(self, run: StageRun, state: ChunkState, event: Mapping[str, Any]) -> None:
        del run.running[state.key]
        self._executor.release([state.key])
        wanted, free = int(event["wanted"]), int(event["free"])
        run.policy.limit(state.kind, source_rows(state.chunk) // 2)
        if state.kind == "gpu":
            run.footprint.too_low()
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

    def _pieces(self, run: StageRun, chunk: Chunk) -> list[Chunk]:
        """Cut a GPU's chunk into chunks for the CPU."""
        halves = (
            run.source.halve(chunk) if run.source is not None and chunk.rows > self._config.cpu_chunk_rows else None
        )
        return [chunk] if halves is None else [piece for half in halves for piece in self._pieces(run, half)]

    def _handle_failure(self, run: StageRun, failure: Failed) -> None:
        error, state = failure.error, run.running.get(failure.key)
        if isinstance(error, PiecesLost):
            self._handle_lost_pieces(failure.key, error)
            return
        if error.args and isinstance(error.args[0], str):
            error.args = (as_written(error.args[0]), *error.args[1:])
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
            self._executor.cancel(run.no_longer_ahead(state.chunk))
            run.again(state.chunk, state.kind, LOST)
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
        self._make_pieces_again(error)

    def _make_pieces_again(self, error: PiecesLost) -> None:
        split = self._runs[error.stage]
        self._make_again(split, [part for part in split.parts if part.state and part.state.serial in error.serials])
        self._read_again(error.stage)

    def _read_again(self, number: int) -> None:
        """Let what reads sorted runs, some of which are made again, begin anew.

        Rows that tie may come in another order in a run that another device makes, and the ranges are cut between them.
        """
        if self._runs[number].stage.keeps_runs:
            status = {user: self._runs[user].status for user in self._needed_by[number]}
            readers = [user for user in status if status[user] == "running"]
            # Also those that are done, if others need what they have made of the same ranges.
            unfinished = {user for user in status if status[user] != "done"}
            readers += [user for user in status if status[user] == "done" and unfinished & set(self._needed_by[user])]
            if readers:
                self._restart(readers)

    def _recover(self, there: set[str]) -> None:
        """Do again what was on workers that are gone, where Dask cannot: pieces, and what was made of pieces."""
        restart = [number for number in self._runs if lost_output(self._runs, self._needed_by, number, there)]
        if restart:
            self._restart(restart)
        for number in list(self._runs):
            run = self._runs[number]
            lost = lost_parts(run, there)
            self._make_again(run, lost)
            if lost:
                self._read_again(number)

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

    def _move_to_cpu(self, run: StageRun, state: ChunkState, cause: str) -> None:
        self._forbid_if_strict(f"{self._place(run, state.chunk)} cannot run on the GPU: {cause}")
        run.running.pop(state.key, None)
        self._finished.pop(state.key, None)
        self._events.pop(state.key, None)
        self._executor.cancel([state.key, *run.no_longer_ahead(state.chunk)])
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

    # --- chunks that are late --------------------------------------------------------------------------------------

    def _watches(self) -> bool:
        """Tell whether there are chunks that another kind of device could take if they are late."""
        return not self._strict and any(may_move(run) for run in self._runs.values())

    def _move_late(self) -> bool:
        """Give chunks that take far longer than expected to the other kind of device; tell whether there were any."""
        now, found = time.perf_counter(), False
        for run in list(self._runs.values()):
            while may_move(run) and (state := late_chunk(run, now)) is not None:
                self._give_up(run, state, now)
                found = True
        return found

    def _give_up(self, run: StageRun, state: ChunkState, now: float) -> None:
        other: Kind = "cpu" if state.kind == "gpu" else "gpu"
        elapsed = now - state.began if state.began else 0.0
        del run.running[state.key]
        self._finished.pop(state.key, None)
        self._events.pop(state.key, None)
        self._executor.cancel([state.key, *run.no_longer_ahead(state.chunk)])
        note_given_up(run, state, elapsed)
        why = f"it was not done after {elapsed:.3g} s" if elapsed else "it would have been done much later"
        run.fell_back(state.chunk, why, f"moved to the {other.upper()}")
        pieces = self._pieces(run, state.chunk) if other == "cpu" else [state.chunk]
        for piece in pieces:
            run.again(piece, other)
        run.report.retries -= len(pieces) - 1

    # --- workers that come and go ----------------------------------------------------------------------------------

    def _look_for_workers(self) -> None:
        devices = self._executor.devices()
        there = {device.address for device in devices}
        gone = [device for device in self._devices if device.address not in there]
        self._devices = devices
        self._tightest = tightest(devices)
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
        for number in list(self._runs):
            run = self._runs[number]  # as it is now: what is done again may have begun others again
            if self._gpu_only(run):
                continue
            if run.status == "done":
                self._redo_if_lost(run, there)
                continue
            for key, merging in list(run.merging.items()):
                if merging.kind == "gpu" or any(_lost(part.kind, part.address, there) for part in merging.parts):
                    run.give_up_merge(key)
                    self._executor.cancel([key])
            lost = [part for part in run.parts if _lost(part.kind, part.address, there)]
            if any(part.state is None for part in lost):
                self._redo(run, "merged results were lost with the last GPU worker")
                continue
            for part in lost:
                if part.state is not None:
                    run.undo(part)
                    self._move_to_cpu(run, part.state, cause)
            for state in [state for state in run.running.values() if state.kind == "gpu"]:
                self._move_to_cpu(run, state, cause)
            self._queue_for_cpu(run)

    def _queue_for_cpu(self, run: StageRun) -> None:
        """Cut chunks that wait for a GPU into chunks for the CPU."""
        for item in [item for item in run.waiting if item.kind == "gpu"]:
            run.waiting.remove(item)
            self._executor.cancel(run.no_longer_ahead(item.chunk))
            run.waiting += [Waiting(piece, "cpu", item.attempt) for piece in self._pieces(run, item.chunk)]
        run.waiting.sort(key=lambda item: item.chunk.order)

    def _redo_if_lost(self, run: StageRun, there: set[str]) -> None:
        """Run a whole stage again, on the CPU, whose output is lost while another stage still needs it."""
        needed = any(self._runs[user].status != "done" for user in self._needed_by[run.stage.id])
        if needed and run.answer is None and _lost(run.output_kind, run.output_address, there):
            self._redo(run, "its output was lost with the last GPU worker")

    def _redo(self, run: StageRun, cause: str) -> None:
        """Run a stage again from its start, on the CPU, with what else that takes."""
        self._forbid_if_strict(f"stage {run.stage.id} ({run.stage.title}): {cause}")
        decision = Decision(run.stage.id, "EXEC_CPU", cause)
        run.report.mode, run.report.reason = decision.mode, decision.reason
        run.decision = decision
        self._restart([run.stage.id])

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


def _lost(kind: Kind, address: str, there: set[str]) -> bool:
    """Tell whether a value was on a GPU worker that is gone."""
    return kind == "gpu" and address not in there
