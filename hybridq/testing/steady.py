"""Simulated devices that keep time by rows, not by the clock.

A simulated device that sleeps for a multiple of what its work took shows every hiccup of the machine, enlarged. One
that is steady takes a fixed time for each row of each operator, so that what is left in a measurement is what hybridq
did: the same chunks take the same time, whatever else the machine does, as long as that leaves it the time to compute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from hybridq.config import JoinMethod
from hybridq.engines.footer import footer_at
from hybridq.engines.protocol import BuildSide, Engine, Frame, ReadRequest
from hybridq.plan.expressions import AggregateCall, Call, Case, Cast, Expression, In, NamedExpression, SortKey, walk
from hybridq.storage import stamp
from hybridq.types import Schema

READ_S = 15e-9
"""Seconds for a row of a column that is read: two to three times what reading really takes on one core."""

ROW_S: Mapping[str, float] = {
    "from_arrow": 1e-9, "filter": 5e-9, "project": 10e-9, "build": 60e-9, "probe": 30e-9, "count_matches": 5e-9,
    "aggregate": 20e-9, "sort": 120e-9, "top_k": 15e-9, "slice": 0.0, "concatenate": 1e-9,
}  # fmt: skip
"""Seconds for a row that an operator takes in; for each operation of an expression, each aggregate and each key."""


class SteadyEngine:
    """An engine whose every chunk takes a time that follows from its rows.

    Parameters
    ----------
    inner : Engine
        Computes.
    speed : float
        Above 0: at 0.5 everything takes twice as long. Beyond some 1.5 computing takes longer than it should.
    name : str
        What reports call it.
    """

    def __init__(self, inner: Engine, speed: float = 1.0, name: str = "simulated cpu") -> None:
        if not speed > 0:
            raise ValueError(f"the speed of a simulated device must be above 0, not {speed}")
        self.name = name
        self._inner = inner
        self._speed = speed
        self._thread = threading.local()

    def change_speed(self, speed: float) -> None:
        """Become slower or faster from the next operator on."""
        self._speed = speed

    def _run(self, what: str, rows: float, operation: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        try:
            return operation()
        finally:
            taken = time.perf_counter() - start
            self._owe(what, rows)
            self._thread.owed -= taken

    def _owe(self, what: str, rows: float) -> None:
        """Note the time that something has to take."""
        owed = rows * (READ_S if what == "read" else ROW_S[what]) / self._speed
        self._thread.owed = getattr(self._thread, "owed", 0.0) + owed

    def read(self, request: ReadRequest) -> Frame:
        """Read row groups; see ``Engine``."""
        rows = 0
        for path, groups in request.files:
            metadata = footer_at(stamp(path)).metadata
            rows += sum(metadata.row_group(group).num_rows for group in groups)
        if request.predicate is not None:
            self._owe("filter", rows * _operations([request.predicate]))
        found: Frame = self._run("read", rows * len(request.columns), lambda: self._inner.read(request))
        return found

    def to_arrow(self, frame: Frame, schema: Schema) -> pa.Table:
        """Give the frame's columns, once the time for them has come; see ``Engine``."""
        start = time.perf_counter()
        table = self._inner.to_arrow(frame, schema)
        self._pay(start - time.perf_counter())
        return table

    def settle(self) -> None:
        """Wait until the time for what this thread has asked for has come; see ``Engine``."""
        self._inner.settle()
        self._pay(0.0)

    def _pay(self, more: float) -> None:
        owed, self._thread.owed = getattr(self._thread, "owed", 0.0), 0.0
        time.sleep(max(owed + more, 0.0))

    def from_arrow(self, table: pa.Table) -> Frame:
        """Take over an Arrow table; see ``Engine``."""
        found: Frame = self._run(
            "from_arrow", table.num_rows * table.num_columns, lambda: self._inner.from_arrow(table)
        )
        return found

    def concatenate(self, frames: Sequence[Frame]) -> Frame:
        """Put frames one below the other; see ``Engine``."""
        rows = sum(frame.rows for frame in frames)
        found: Frame = self._run("concatenate", rows, lambda: self._inner.concatenate(frames))
        return found

    def project(self, frame: Frame, expressions: Sequence[NamedExpression]) -> Frame:
        """Compute new columns; see ``Engine``."""
        rows = frame.rows * _operations([item.expression for item in expressions])
        found: Frame = self._run("project", rows, lambda: self._inner.project(frame, expressions))
        return found

    def aggregate(self, frame: Frame, groups: Sequence[NamedExpression], aggregates: Sequence[AggregateCall]) -> Frame:
        """Group and aggregate; see ``Engine``."""
        arguments = [call.argument for call in aggregates if call.argument is not None]
        self._owe("project", frame.rows * _operations([*arguments, *(item.expression for item in groups)]))
        rows = frame.rows * max(len(aggregates), 1)
        found: Frame = self._run("aggregate", rows, lambda: self._inner.aggregate(frame, groups, aggregates))
        return found

    def filter(self, frame: Frame, predicate: Expression) -> Frame:
        """Keep rows; see ``Engine``."""
        rows = frame.rows * _operations([predicate])
        found: Frame = self._run("filter", rows, lambda: self._inner.filter(frame, predicate))
        return found

    def sort(self, frame: Frame, keys: Sequence[SortKey]) -> Frame:
        """Sort rows; see ``Engine``."""
        found: Frame = self._run("sort", frame.rows * len(keys), lambda: self._inner.sort(frame, keys))
        return found

    def build(self, frame: Frame, keys: Sequence[str], method: JoinMethod = "auto") -> BuildSide:
        """Make the build side of a join; see ``Engine``."""
        found: BuildSide = self._run("build", frame.rows, lambda: self._inner.build(frame, keys, method))
        return found

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._inner, name)
        if name not in ROW_S:
            return operation

        def run(frame: Frame, *arguments: Any, **options: Any) -> Any:
            return self._run(name, frame.rows, lambda: operation(frame, *arguments, **options))

        return run


def _operations(expressions: Sequence[Expression]) -> int:
    """Count what has to be computed in expressions: references and constants are free."""
    return sum(isinstance(part, (Call, Case, Cast, In)) for each in expressions for part in walk(each))


def change_speed(kind: str, speed: float) -> None:
    """Change the speed of this worker process's steady device (to be run on a worker)."""
    from hybridq.dispatch.worker import engine_for_worker

    engine = engine_for_worker(kind)
    steady = engine if isinstance(engine, SteadyEngine) else getattr(engine, "_inner", None)
    if not isinstance(steady, SteadyEngine):
        raise TypeError(f"{engine.name} does not keep time by rows")
    steady.change_speed(speed)
