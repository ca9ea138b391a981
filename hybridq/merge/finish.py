"""What happens to merged rows: HAVING, projections, window functions, ORDER BY, LIMIT."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import pyarrow as pa

from hybridq.engines.cpu import CpuEngine
from hybridq.engines.protocol import Engine, Frame
from hybridq.physical.merges import FinishLimit, FinishWindow
from hybridq.physical.pipeline import FilterStep, FinishStep, ProjectStep
from hybridq.types import Field, Schema


def finish(steps: Sequence[FinishStep], table: pa.Table) -> pa.Table:
    """Apply finishing steps to merged rows, in order.

    Parameters
    ----------
    steps : sequence of FinishStep
    table : pyarrow.Table
        All merged rows.
    """
    if not steps:
        return table
    engine = CpuEngine()
    schema: Schema = tuple(Field(field.name, field.type) for field in table.schema)
    for step in steps:
        if isinstance(step, ProjectStep):
            schema = tuple(Field(item.name, item.expression.type) for item in step.expressions)
        elif isinstance(step, FinishWindow):
            schema += tuple(Field(call.name, call.type) for call in step.calls)
    return engine.to_arrow(finish_frame(engine, steps, engine.from_arrow(table)), schema)


def finish_frame(engine: Engine, steps: Sequence[FinishStep], frame: Frame) -> Frame:
    """Apply finishing steps to rows that an engine has; see ``finish``."""
    for step, following in zip_longest(steps, steps[1:]):
        if isinstance(step, FilterStep):
            frame = engine.filter(frame, step.predicate)
        elif isinstance(step, ProjectStep):
            frame = engine.project(frame, step.expressions)
        elif isinstance(step, FinishWindow):
            if not isinstance(engine, CpuEngine):
                raise TypeError("window functions are the CPU engine's")
            frame = engine.window(frame, step.calls)
        elif isinstance(step, FinishLimit):
            frame = engine.slice(frame, step.offset, step.count)
        elif isinstance(following, FinishLimit) and following.count is not None:
            frame = engine.top_k(frame, step.keys, following.offset + following.count)
        else:
            frame = engine.sort(frame, step.keys)
    return frame
