"""The steps that follow a merge in the same task: HAVING, projections, ORDER BY and LIMIT."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hybridq.engines.cpu import CpuEngine
from hybridq.physical.pipeline import FilterStep, FinishLimit, FinishSort, FinishStep, ProjectStep
from hybridq.types import Field, Schema, normalize


def finish(steps: Sequence[FinishStep], table: pa.Table) -> pa.Table:
    """Apply finishing steps to merged rows.

    Parameters
    ----------
    steps : sequence of FinishStep
    table : pyarrow.Table
        All merged rows.

    Returns
    -------
    pyarrow.Table
        The stage's output.
    """
    if not steps:
        return table
    engine = CpuEngine()
    frame = engine.from_arrow(table)
    schema: Schema = tuple(Field(field.name, normalize(field.type)) for field in table.schema)
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if isinstance(step, FilterStep):
            frame = engine.filter(frame, step.predicate)
        elif isinstance(step, ProjectStep):
            frame = engine.project(frame, step.expressions)
            schema = tuple(Field(item.name, item.expression.type) for item in step.expressions)
        elif isinstance(step, FinishSort):
            if isinstance(following, FinishLimit) and following.count is not None:
                frame = engine.top_k(frame, step.keys, following.offset + following.count)
            else:
                frame = engine.sort(frame, step.keys)
        else:
            frame = engine.slice(frame, step.offset, step.count)
    return engine.to_arrow(frame, schema)
