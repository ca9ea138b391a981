"""Handing an answer over part by part, in order, while the last stage still runs: no process holds all of it."""

from __future__ import annotations

import pyarrow as pa

from hybridq.dispatch.chunk_states import Part, sent_with
from hybridq.dispatch.fault_handling import FaultHandling
from hybridq.dispatch.memory import waiting_bytes
from hybridq.dispatch.sending import opened
from hybridq.dispatch.stage_run import StageRun
from hybridq.dispatch.target import Gathered, Target
from hybridq.errors import ExecutionError, PiecesLost
from hybridq.physical.merges import ConcatenateMerge, FinishLimit
from hybridq.physical.pipeline import RangeSource, Stage

MERGED_BYTES = 64 * 2**20
"""Bytes of an answer that are always put together by a worker: one that is fetched is faster than many."""


def wanted_rows(stage: Stage) -> tuple[int, int | None] | None:
    """Return the first of the rows that chunks give, one after the other, that is wanted, and how many are.

    ``None``: they have to be merged first.
    """
    if not isinstance(stage.merge, ConcatenateMerge) or not stage.schema:
        return None
    if not stage.finish:
        return 0, stage.merge.count
    if len(stage.finish) == 1 and isinstance(limit := stage.finish[0], FinishLimit):
        return limit.offset, limit.count
    return None


class Delivering(FaultHandling):
    """A query whose answer can be handed over while it runs. Parameters are those of ``QueryRun``."""

    def _choose_delivery(self, run: StageRun) -> None:
        """Decide, when the last stage starts, whether its chunks' results are handed over one by one."""
        if run.stage.id != self._last or wanted_rows(run.stage) is None:
            return
        in_order = any(isinstance(branch.pipeline.source, RangeSource) for branch in run.stage.branches)
        run.delivering = self._target is not None or in_order

    def _is_too_large_to_merge(self, run: StageRun) -> bool:
        """Tell whether what is left of the last stage is to put more together than one worker should hold."""
        if run.stage.id != self._last or not run.ready_to_end() or wanted_rows(run.stage) is None:
            return False
        return sum(part.bytes for part in run.parts) > max(self._config.gather_limit_bytes, MERGED_BYTES)

    def _is_ahead(self, run: StageRun) -> bool:
        """Tell whether as much is waiting to be handed over as may: no further chunk is begun until it is."""
        if not run.delivering:
            return False
        most = max(self._config.gather_limit_bytes, 2 * self._config.partition_bytes)
        known = waiting_bytes(self._devices)
        held = sum(part.bytes for part in run.parts)
        held += sum(state.chunk.decoded_bytes for state in run.running.values())
        return held > (most if known is None else min(most, known))

    def _deliver(self, run: StageRun) -> None:
        """Hand over what comes next, as far as it is there."""
        while (part := run.next_part()) is not None:
            self._begin_delivery(run)
            start, stop = self._rows_of(run, part)
            if start < stop:
                table = self._fetch_part(run, part)
                if table is None:
                    return
                self._to.take(table.slice(start, stop - start))
            run.delivered(part, max(stop - start, 0))
            self._executor.release([part.key])

    def _begin_delivery(self, run: StageRun) -> None:
        """Let the answer begin, where nothing of it has been handed over by this run of the stage."""
        if not run.delivery_begun:
            run.delivery_begun = True
            if self._target is None:
                self._gathered = Gathered(self._config.result_bytes)
            self._to.begin()

    @property
    def _to(self) -> Target:
        return self._target if self._target is not None else self._gathered

    @staticmethod
    def _rows_of(run: StageRun, part: Part) -> tuple[int, int]:
        """Return which rows of a part belong to the answer."""
        wanted = wanted_rows(run.stage)
        offset, count = wanted if wanted is not None else (0, None)
        start = max(offset - run.delivered_prefix, 0)
        stop = part.rows if count is None else min(offset + count - run.delivered_prefix, part.rows)
        return start, stop

    def _fetch_part(self, run: StageRun, part: Part) -> pa.Table | None:
        """Return a chunk's result; ``None``: it is lost, and will be made again."""
        if (sent := sent_with(part)) is not None:
            return opened(sent)
        try:
            table = self._executor.fetch(part.key, self._stop.is_set)
        except PiecesLost as error:  # its worker is lost, and with it what Dask would make it of
            self._look_for_workers()
            if self._runs[self._last] is run and any(other.key == part.key for other in run.parts):
                self._make_again(run, [part])
            self._make_pieces_again(error)
            return None
        if not isinstance(table, pa.Table):
            raise ExecutionError("a part of the answer was lost with its worker, and could not be computed again")
        return table
