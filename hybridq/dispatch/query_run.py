"""What one query consists of while it runs: its stages' runs, the devices, and what has come back so far."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybridq.catalog import Catalog
from hybridq.config import Config, HotColumns
from hybridq.dispatch.chunk_states import source_rows
from hybridq.dispatch.devices import Device, slots
from hybridq.dispatch.executor import Executor
from hybridq.dispatch.stage_run import StageRun
from hybridq.dispatch.stalls import StallWatch
from hybridq.dispatch.target import Gathered, Target
from hybridq.errors import FallbackForbidden
from hybridq.physical.chunks import Chunk
from hybridq.physical.pipeline import Stage
from hybridq.physical.stages import PhysicalPlan
from hybridq.placement.cost import PullPolicy
from hybridq.placement.modes import Decision
from hybridq.placement.second_look import SecondLook
from hybridq.report import Report, StageReport
from hybridq.topology import Kind

Replan = Callable[[frozenset[int]], tuple[PhysicalPlan, Sequence[Decision]]]
"""Plans the query again, these build sides (by their ids) being too large to be broadcast."""

CPU_ROUNDS = 4
"""Chunks of ``cpu_chunk_rows`` rows that a task takes one after the other at most: client and scheduler together take
some 7 ms for a task, whatever it does."""


class QueryRun:
    """The state of a query that runs, and what asks for it or replaces it.

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
    target : Target, optional
        Takes the answer in, part by part; by default ``run`` returns it.
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
        target: Target | None = None,
    ) -> None:
        self._executor = executor
        self._catalog = catalog
        self._config = config
        self._query = query
        self._report = report
        self._strict = strict
        self._hot = hot
        self._replan = replan
        self._target = target
        self._gathered = Gathered(config.result_bytes)
        self._origin = time.perf_counter()
        self._stop = threading.Event()
        self._events: dict[str, Mapping[str, Any]] = {}
        self._finished: dict[str, float] = {}
        self._reading: set[str] = set()
        self._devices: list[Device] = []
        self._tightest: list[Device] = []
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
        self._read_by_tasks = {number for stage in plan.stages for number in stage.inputs}
        self._values = {number for stage in plan.stages for _, number in stage.subqueries}
        by_stage = {decision.stage: decision for decision in decisions}
        runs: dict[int, StageRun] = {}
        for stage in plan.stages:
            decision = by_stage[stage.id]
            runs[stage.id] = self._run_of(stage, decision, decision.report(stage.title, stage.input_rows))
        self._report.stages[:] = [run.report for run in runs.values()]
        self._runs = runs
        self._last = plan.stages[-1].id

    def _run_of(self, stage: Stage, decision: Decision, report: StageReport) -> StageRun:
        # The generation makes the keys of what is begun again others than those of what it replaces.
        prefix = f"{self._query}-{stage.id}-{self._generation}"
        here = stage.id not in self._read_by_tasks and not stage.keeps_pieces
        policy = self._policy(decision, stage)
        return StageRun(stage, decision, policy, prefix, report, wanted_here=here, origin=self._origin)

    def _policy(self, decision: Decision, stage: Stage) -> PullPolicy:
        rows: dict[Kind, int] = {"cpu": self._config.cpu_chunk_rows, "gpu": self._config.gpu_chunk_rows}
        look = None if decision.reserve is None or self._strict else SecondLook(decision.reserve, decision.try_reserve)
        return PullPolicy(
            decision.kinds,
            slots(self._devices),
            rows,
            before=decision.seconds_per_row,
            cpu_slots=decision.cpu_slots,
            look=look,
            unit_rows=decision.unit_rows,
            rounds=1 if stage.early_stop is not None or stage.keeps_pieces else CPU_ROUNDS,
        )

    def _begin_again(self, run: StageRun, decision: Decision) -> None:
        """Forget all that a stage has done."""
        self._executor.cancel(run.all_keys())
        self._generation += 1
        self._runs[run.stage.id] = self._run_of(run.stage, decision, run.report)

    def _owner(self, key: str) -> StageRun | None:
        """Return the stage that still waits for a task."""
        for run in self._runs.values():
            if key in run.running or key in run.merging:
                return run
        return None

    def _outputs(self, stage: int) -> list[str]:
        """Return the keys that a stage's output is under: several, in order, where it stays in parts."""
        found = self._runs[stage].output_keys()
        if not found:
            raise RuntimeError(f"stage {stage} has no output yet")
        return found

    def _has_cpu(self) -> bool:
        return any(device.kind == "cpu" for device in self._devices)

    def _forbid_if_strict(self, what: str) -> None:
        if self._strict:
            raise FallbackForbidden(f"{what}; it would move to the CPU, which strict forbids")

    @staticmethod
    def _place(run: StageRun, chunk: Chunk) -> str:
        rows = f" of {source_rows(chunk)} rows" if chunk.source is not None else ""
        return f"stage {run.stage.id} ({run.stage.title}), chunk {chunk.id}{rows}"

    @staticmethod
    def _gpu_only(run: StageRun) -> bool:
        return run.decision.mode == "EXEC_GPU" and run.decision.forced
