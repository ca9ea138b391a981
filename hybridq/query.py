"""A planned query: explain it, run it, write its answer."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridq.answers import Handle, Result
from hybridq.report import Report

if TYPE_CHECKING:
    import pyarrow as pa

    from hybridq.catalog import Catalog
    from hybridq.dispatch.target import Target
    from hybridq.explain import Explanation
    from hybridq.physical.stages import PhysicalPlan
    from hybridq.placement.modes import Decision
    from hybridq.placement.predict import StagePrediction
    from hybridq.plan.nodes import Plan
    from hybridq.recursion import Recursion
    from hybridq.session import Session
    from hybridq.topology import Kind

logger = logging.getLogger(__name__)

CANCEL_SECONDS = 10.0
"""Seconds that Ctrl-C waits for the cluster to free what the query had."""


class Query:
    """A planned query. It may be run any number of times; where tables were registered anew, it is planned anew."""

    def __init__(
        self,
        session: Session,
        plan: Plan,
        physical: PhysicalPlan,
        text: str,
        start: float,
        catalog: Catalog,
        recursion: Recursion | None = None,
        source: Any = None,
        version: int | None = None,
    ) -> None:
        self._session = session
        self._catalog = catalog
        self._recursion = recursion
        self._text = text
        self._plan = plan
        self._too_large: frozenset[int] = frozenset()
        self._physical = physical
        self._source = source
        self._version = version
        self._plan_seconds = time.perf_counter() - start

    def __repr__(self) -> str:
        return f"<Query {' '.join(self._text.split())[:60]!r}: {', '.join(self._physical.names)}>"

    @property
    def schema(self) -> pa.Schema:
        """Return the names and types of the answer's columns."""
        import pyarrow as pa

        self._plan_again()
        pairs = zip(self._physical.names, self._physical.schema, strict=True)
        return pa.schema([pa.field(name, field.type) for name, field in pairs])

    def explain(self, mode: str = "auto", analyze: bool = False) -> Explanation:
        """Describe the stages: where each runs, why, how its joins work, and what is estimated.

        Parameters
        ----------
        mode : str
            ``auto``, ``cpu``, ``gpu`` or ``cop``.
        analyze : bool
            Run the query, and put what happened beside it.

        Returns
        -------
        Explanation
            Prints as a tree; has ``to_json``.

        Raises
        ------
        DeviceUnavailable
            The mode needs a kind of device that the cluster does not have.
        """
        from hybridq import explain
        from hybridq.placement.modes import check_mode, decide

        self._session._check_open()
        self._plan_again()
        if analyze:
            predictions = self._predict(self._session._connection.slots(), with_break_even=True)
            break_even = {number: each.break_even_rows for number, each in predictions.items()}
            report = self.collect(mode=mode).report
            for stage in report.stages:
                stage.break_even_rows = break_even.get(stage.id)
        else:
            session = self._session
            available = session._connection.slots()
            predictions = self._predict(available, with_break_even=True)
            decisions = decide(
                self._physical.stages, check_mode(mode), available, session.config, predictions=predictions
            )
            report = Report(self._text, mode)
            stages = {stage.id: stage for stage in self._physical.stages}
            report.stages += [
                each.report(stages[each.stage].title, stages[each.stage].input_rows) for each in decisions
            ]
        engines: dict[str, str] = {device.kind: device.engine for device in self._session.devices()}
        return explain.explain(self._physical, report, engines=engines, analyzed=analyze)

    def _plan_again(self) -> None:
        """Plan the query once more if tables have been registered since: its plan is of what was there before."""
        session = self._session
        if self._version is None or self._version == session._catalog.version:
            return
        new = session._planned(self._source, self._text, time.perf_counter())
        self._plan, self._physical, self._too_large = new._plan, new._physical, new._too_large
        self._catalog, self._recursion = new._catalog, new._recursion
        self._version, self._plan_seconds = new._version, new._plan_seconds

    def _predict(self, available: Mapping[Kind, int], with_break_even: bool = False) -> dict[int, StagePrediction]:
        """Return what each stage is expected to take in each mode on the slots of each kind that there are."""
        from hybridq.dispatch.memory import rows_that_fit

        session = self._session
        session._calibration.wait()
        devices = session.devices()
        hot = session._hot.columns if session._hot is not None else {}
        return session._know().predict(
            self._physical.stages, self._catalog, available, session.config,
            lambda row_bytes: rows_that_fit(devices, row_bytes),
            frozenset((table, column) for table, columns in hot.items() for column in columns),
            with_break_even,
        )  # fmt: skip

    def _learn(self, report: Report) -> None:
        """Take in what the chunks of a finished run took; where there is no choice there is nothing to learn.

        The answer is there, whatever goes wrong here.
        """
        try:
            if any(each.predictions for each in report.stages):
                self._session._know().learn(self._physical.stages, report)
                self._session._know().share()
        except Exception as error:
            logger.warning("nothing was learned from a query: %s: %s", type(error).__name__, error)

    def submit(self, mode: str = "auto", strict: bool = False) -> Handle:
        """Start the query and return at once; the steps of WITH RECURSIVE are waited for.

        Parameters
        ----------
        mode : str
            ``auto`` decides stage by stage; ``cpu``, ``gpu`` and ``cop`` (both at the same time) force every stage.
        strict : bool
            A stage or chunk that would have to move to another kind of device is an error.

        Raises
        ------
        ConfigurationError
            There is no such mode.
        DeviceUnavailable
            The mode needs a kind of device that the cluster does not have.
        """
        return self._submit(mode, strict, None)

    def _submit(self, mode: str, strict: bool, target: Target | None) -> Handle:
        from hybridq.dispatch.driver import Driver
        from hybridq.placement.modes import check_mode, decide
        from hybridq.planning import physical_plan

        session = self._session
        session._check_open()
        start = time.perf_counter()
        chosen = check_mode(mode)
        self._plan_again()
        catalog = self._catalog
        if self._recursion is not None:
            return self._over_rows(self._recursion, mode, strict)._submit(mode, strict, target)

        def place() -> tuple[Decision, ...]:
            available = session._connection.slots()
            predictions = self._predict(available) if len(available) > 1 else {}
            return decide(self._physical.stages, chosen, available, session.config, strict, predictions)

        def replan(too_large: frozenset[int]) -> tuple[PhysicalPlan, tuple[Decision, ...]]:
            self._too_large |= too_large
            self._physical = physical_plan(self._plan, catalog, session.config, self._too_large)
            return self._physical, place()

        decisions = place()
        name = uuid.uuid4().hex
        report = Report(self._text, mode, {"plan": self._plan_seconds})
        executor = session._connection.executor(name)
        driver = Driver(
            executor, self._physical, catalog, session.config, decisions, name, report, strict, session._hot,
            replan, target,
        )  # fmt: skip
        return Handle(driver, self, report, start, lambda: session._connection.forget(name))

    def _over_rows(self, recursion: Recursion, mode: str, strict: bool) -> Query:
        """Run the steps of WITH RECURSIVE; return the query over the rows that they gave."""
        from hybridq.planning import logical_plan, physical_plan

        session = self._session
        moment = datetime.now(UTC)
        plans: dict[str, Plan] = {}  # the steps of a table have one text, and tables of one schema

        def collect(text: str, catalog: Catalog) -> pa.Table:
            start = time.perf_counter()
            plan = plans[text] = plans.get(text) or logical_plan(text, catalog, moment)
            physical = physical_plan(plan, catalog, session.config)
            return Query(session, plan, physical, text, start, catalog).collect(mode, strict).to_arrow()

        catalog, seconds = recursion.run(session._catalog.snapshot(), collect)
        plan = logical_plan(recursion.parts.rest, catalog, moment)
        physical = physical_plan(plan, catalog, session.config)
        start = time.perf_counter() - self._plan_seconds - seconds
        return Query(session, plan, physical, self._text, start, catalog)

    def collect(self, mode: str = "auto", strict: bool = False, progress: bool = False) -> Result:
        """Run the query and return its answer.

        Parameters
        ----------
        mode, strict
            See ``submit``.
        progress : bool
            Show a progress bar on standard error, if that is a terminal.

        Raises
        ------
        ExecutionError
            It failed; there is no partial answer.
        KeyboardInterrupt
            After Ctrl-C, once the query has been cancelled; the session remains usable.
        """
        handle = self._run(mode, strict, progress, None)
        return handle.result()

    def write(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,
        mode: str = "auto",
        strict: bool = False,
        progress: bool = False,
    ) -> Report:
        """Run the query and write its answer to a file, whole or not at all, and return the report.

        The answer may be larger than this process's memory: its parts are written as they come, in order, where the
        query ends in rows of a table, of a join, of split aggregates or of a large sort. ``result_bytes`` is no limit.

        Parameters
        ----------
        path : str or path
        format : str, optional
            ``parquet``, ``csv`` or ``json``; by default what the file's name ends in.
        mode, strict, progress
            See ``collect``.

        Raises
        ------
        RequestError
            There is no such format.
        ExecutionError
            It failed, or the file cannot be written; there is no file then, or the one that was there before.
        KeyboardInterrupt
            As for ``collect``.
        """
        from hybridq.answer_file import answer_file, file_format

        wanted = Path(path)
        with answer_file(wanted, file_format(wanted, format), self.schema) as file:
            return self._run(mode, strict, progress, file).finish()

    def _run(self, mode: str, strict: bool, progress: bool, target: Target | None) -> Handle:
        """Run the query, and wait for its end."""
        from hybridq.dispatch.progress import progress_bar

        handle: Handle | None = None
        try:
            handle = self._submit(mode, strict, target)
            with progress_bar(handle.progress, progress):
                handle.wait()
            return handle
        except KeyboardInterrupt:
            if handle is not None:
                handle.cancel()
                handle.wait(CANCEL_SECONDS)
            raise
