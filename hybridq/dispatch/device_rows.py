"""Rows that stay on the device that made them, for the next stage on the same device.

A stage's output is an Arrow table that any process can read. A build side that a GPU has made, and that the same GPU
will probe, need not be copied to main memory and back, nor groups that it will merge: these rows stay where they are.
Whoever else asks for them gets the Arrow table, which is made then. All of them may be moved to main memory when the
device's memory is needed for something else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

import pyarrow as pa

from hybridq.dispatch.on_device import OnDevice
from hybridq.engines.account import DeviceAccount
from hybridq.engines.protocol import Engine, Frame
from hybridq.engines.support import expression_lacking
from hybridq.errors import DeviceOutOfMemory
from hybridq.merge.finishing import finishing_expressions
from hybridq.physical.merges import AggregateMerge, ConcatenateMerge, FinishWindow
from hybridq.physical.pipeline import CollectSink, PartialAggregateSink, ProjectStep, Stage
from hybridq.plan.expressions import Column, NamedExpression, walk
from hybridq.types import Field, Schema, is_decimal

HALVINGS = 6
"""How often rows are halved that cannot be copied from the device at once."""

WAIT_SECONDS = 0.05
"""Before it is tried again."""

STAY_SHARE = 0.25
"""Share of a device's memory that such rows may take: chunks need the rest."""


class DeviceRows:
    """A stage's output on the device of this process; an Arrow table in any other.

    Parameters
    ----------
    engine : Engine
        Whose device has it.
    frame : Frame
        With at least the columns of ``schema``; any thread may use it, for the one that made it has settled.
    schema : Schema
        Columns, in order.

    Attributes
    ----------
    num_rows : int
    nbytes : int
        On the device.
    """

    def __init__(self, engine: Engine, frame: Frame, schema: Schema) -> None:
        self._lock = threading.Lock()
        self._engine = engine
        self._schema = schema
        self._table: pa.Table | None = None
        self._frame: Frame | None = engine.project(frame, [_column(field.name, field) for field in schema])
        self._lent = False
        self._users = 0
        self.num_rows = frame.rows
        self.nbytes = self._frame.nbytes
        DEVICE_ROWS.add(self)

    def __reduce__(self) -> tuple[Callable[[pa.Table], pa.Table], tuple[pa.Table]]:
        """Leave the device: another process gets a table."""
        return _itself, (self.table(),)

    @property
    def column_names(self) -> list[str]:
        """Return the columns' names, in order."""
        return [field.name for field in self._schema]

    @property
    def held(self) -> int:
        """Return the bytes on the device that nobody else answers for."""
        return 0 if self._frame is None or self._lent else self.nbytes

    def frame(self, engine: Engine, names: Sequence[str]) -> Frame | None:
        """Return the rows on the engine's device, with other names if need be; ``None`` where they are not there.

        They have to be ``in_use`` as long as anything is computed with them.

        Parameters
        ----------
        engine : Engine
        names : sequence of str
            Of the columns, in order.
        """
        with self._lock:
            if self._frame is None or engine is not self._engine:
                return None
            frame = self._frame
        named = [_column(name, field) for name, field in zip(names, self._schema, strict=True)]
        return engine.project(frame, named)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the rows where they are: work that was asked of the device may still read what nobody refers to."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1

    def lend(self) -> None:
        """Take note that a build side made of the rows keeps them, and answers for their memory."""
        with self._lock:
            self._lent = True

    def table(self) -> pa.Table:
        """Return the rows as an Arrow table in main memory; they stay on the device as well."""
        with self._lock:
            if self._table is None:
                if self._frame is None:
                    raise RuntimeError("the rows are neither on the device nor in main memory")
                self._table = _copied(self._engine, self._frame, self._schema)
            return self._table

    def leave(self) -> int:
        """Move to main memory, if nobody uses the rows; return the bytes that this frees on the device."""
        if not self._may_leave():
            return 0
        self.table()
        with self._lock:
            if not self._may_leave():  # somebody has come meanwhile
                return 0
            self._frame = None
        return self.nbytes

    def _may_leave(self) -> bool:
        return self._frame is not None and not self._lent and not self._users

    @property
    def host_nbytes(self) -> int:
        """Return the bytes in main memory."""
        table = self._table
        return 0 if table is None else int(table.nbytes)


Rows: TypeAlias = "pa.Table | DeviceRows"


DEVICE_ROWS: OnDevice[DeviceRows] = OnDevice()
"""What this process has on its device."""


def copied_bytes() -> int:
    """Return the bytes of copies of such rows in main memory, which Dask does not know of."""
    return sum(rows.host_nbytes for rows in DEVICE_ROWS.items())


def collects_columns(stage: Stage) -> bool:
    """Tell whether a stage does nothing with its rows on their way to main memory.

    Computed decimals are checked there for digits that their type does not have.
    """
    sink, merge = stage.pipeline.sink, stage.merge
    if not isinstance(sink, CollectSink) or not isinstance(merge, ConcatenateMerge) or stage.finish or stage.more:
        return False
    computed = (
        is_decimal(item.expression.type) and not isinstance(item.expression, Column)
        for step in stage.pipeline.steps
        if isinstance(step, ProjectStep)
        for item in step.expressions
    )
    return bool(sink.schema) and sink.count is None and merge.count is None and not any(computed)


def merges_groups(stage: Stage) -> bool:
    """Tell whether chunks give groups that are merged, and nothing else is done with them before."""
    sink, merge = stage.pipeline.sink, stage.merge
    plain = isinstance(sink, PartialAggregateSink) and sink.sets is None and not stage.more
    return plain and isinstance(merge, AggregateMerge) and bool(merge.groups)


def finishes_on_device(stage: Stage) -> bool:
    """Tell whether a GPU can make a stage's output of groups, and leave it where it is.

    Computed decimals are checked in main memory for digits that their type does not have.
    """
    if not merges_groups(stage) or not isinstance(stage.merge, AggregateMerge):
        return False
    if any(isinstance(step, FinishWindow) for step in stage.finish):
        return False
    expressions = finishing_expressions(stage.merge, stage.finish)
    if any(is_decimal(expression.type) and not isinstance(expression, Column) for expression in expressions):
        return False
    return not any(expression_lacking("gpu", node) for expression in expressions for node in walk(expression))


def may_stay(engine: Engine, size: int) -> bool:
    """Tell whether an engine's device has room for so many bytes of rows more that stay."""
    account: DeviceAccount | None = getattr(engine, "memory", None)
    return account is None or DEVICE_ROWS.nbytes + size <= account.limit * STAY_SHARE


def as_table(rows: Rows) -> pa.Table:
    """Return rows as an Arrow table, wherever they are."""
    return rows.table() if isinstance(rows, DeviceRows) else rows


def as_frame(engine: Engine, rows: Rows, names: Sequence[str]) -> Frame:
    """Return rows on an engine's device, with the names that their columns have there.

    Parameters
    ----------
    engine, names
        As for ``DeviceRows.frame``.
    rows : pyarrow.Table or DeviceRows
        Copied to the device if they are not there.
    """
    if isinstance(rows, DeviceRows):
        frame = rows.frame(engine, names)
        if frame is not None:
            return frame
    table = as_table(rows)
    return engine.from_arrow(table if table.column_names == list(names) else table.rename_columns(list(names)))


@contextmanager
def all_in_use(rows: Iterable[object]) -> Iterator[None]:
    """Keep those that are on a device there."""
    with ExitStack() as held:
        for each in rows:
            if isinstance(each, DeviceRows):
                held.enter_context(each.in_use())
        yield


def together(engine: Engine, parts: Sequence[Rows], schema: Schema) -> DeviceRows:
    """Put rows one below the other on an engine's device.

    Parameters
    ----------
    engine : Engine
    parts : sequence of pyarrow.Table or DeviceRows
        Of ``schema``; at least one.
    schema : Schema
    """
    if len(parts) == 1 and isinstance(parts[0], DeviceRows):
        return parts[0]
    names = [field.name for field in schema]
    frame = engine.concatenate([as_frame(engine, part, names) for part in parts])
    engine.settle()
    return DeviceRows(engine, frame, schema)


def _copied(engine: Engine, frame: Frame, schema: Schema) -> pa.Table:
    """Copy rows to main memory; where the device has no memory left for that, some at a time.

    Raises
    ------
    MemoryError, DeviceOutOfMemory
        Not even a few can be copied.
    """
    tables = _copied_parts(engine, frame, schema, HALVINGS)
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def _copied_parts(engine: Engine, frame: Frame, schema: Schema, halvings: int) -> list[pa.Table]:
    try:
        return [engine.to_arrow(frame, schema)]
    except (MemoryError, DeviceOutOfMemory):
        if halvings == 0:
            raise
    time.sleep(WAIT_SECONDS)  # what others hold at the moment may be less then
    middle = frame.rows // 2
    cuts = [(0, middle), (middle, frame.rows - middle)] if middle else [(0, frame.rows)]
    halves = [engine.slice(frame, start, count) for start, count in cuts]
    return [table for half in halves for table in _copied_parts(engine, half, schema, halvings - 1)]


def _column(name: str, field: Field) -> NamedExpression:
    return NamedExpression(name, Column(field.type, field.name))


def _itself(table: pa.Table) -> pa.Table:
    return table
