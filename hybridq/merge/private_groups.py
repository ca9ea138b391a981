"""HAVING, and ORDER BY with LIMIT, before the merge, for groups that only one chunk can have.

Where a table is clustered by a group key, nearly all groups lie within one chunk. Their partial results are whole, so
those that HAVING drops need not go to the merge, nor those that so many others of the same chunk go before that LIMIT
leaves them out. Where one chunk is all there is, or a device has merged the others, that is so of all groups.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hybridq.engines.cpu import CpuEngine
from hybridq.engines.protocol import Engine, Frame
from hybridq.engines.support import expression_lacking
from hybridq.merge.aggregate import final_values
from hybridq.merge.finish import finish_frame
from hybridq.merge.finishing import finishing_expressions
from hybridq.physical.merges import AggregateMerge, FinishLimit, FinishSort
from hybridq.physical.pipeline import FilterStep, FinishStep, Stage
from hybridq.plan.expressions import Call, Column, Expression, Literal, NamedExpression, walk

PARTIAL = "partial "
"""Put before the names of partial results while they stand beside final values; names of plans do not begin so."""


def deciding_steps(steps: tuple[FinishStep, ...]) -> tuple[FinishStep, ...]:
    """Return the first steps after a merge, as far as they drop groups for what is in them and their chunk's others."""
    conditions = tuple(itertools.takewhile(lambda step: isinstance(step, FilterStep), steps))
    following = steps[len(conditions) : len(conditions) + 2]
    if len(following) == 2 and isinstance(following[0], FinishSort) and isinstance(following[1], FinishLimit):
        limit = following[1]
        if limit.count is not None:
            # The offset's rows may be of other chunks: all of these must be kept.
            return (*conditions, following[0], FinishLimit(0, limit.offset + limit.count))
    return conditions


def without_dropped_groups(
    engine: Engine, stage: Stage, frame: Frame, private: tuple[int, int] | None, gpu: bool
) -> Frame:
    """Drop the whole groups of a partial result that will be dropped after the merge; others stay as they are.

    Parameters
    ----------
    engine : Engine
        Has the frame.
    stage : Stage
        An aggregate; with ``clustered`` if ``private`` is given.
    frame : Frame
        The partial result.
    private : tuple of (int, int) or None
        As in ``Chunk.private``; ``None``: all groups are whole.
    gpu : bool
        The engine is a GPU's.

    Raises
    ------
    NumericOverflow
        A sum does not fit its type.
    """
    merge, clustered = stage.merge, stage.clustered
    if not isinstance(merge, AggregateMerge) or (private is not None and clustered is None):
        raise TypeError("only a clustered aggregate has private groups")
    steps = deciding_steps(stage.finish)
    least = 0
    if steps and isinstance(steps[-1], FinishLimit):
        least = steps[-1].count or 0
    if not steps or frame.rows <= least:
        return frame
    if gpu and _lacking(merge, steps):
        cpu = CpuEngine()
        table = engine.to_arrow(frame, merge.partial_schema)
        dropped = without_dropped_groups(cpu, stage, cpu.from_arrow(table), private, False)
        return engine.from_arrow(cpu.to_arrow(dropped, merge.partial_schema))
    if private is None or clustered is None:
        return _left(engine, merge, steps, frame)
    types = {field.name: field.type for field in merge.partial_schema}
    inside, outside = _split_by(Column(types[clustered.key], clustered.key), private)
    own = engine.filter(frame, inside)
    if own.rows <= least:
        return frame
    left = _left(engine, merge, steps, own)
    others = engine.filter(frame, outside)
    if not others.rows:
        return left
    return engine.concatenate(
        [left, engine.project(others, [NamedExpression(n, Column(t, n)) for n, t in types.items()])]
    )


def _left(engine: Engine, merge: AggregateMerge, steps: tuple[FinishStep, ...], whole: Frame) -> Frame:
    """Return the partial results of the whole groups that the steps after the merge will leave."""
    types = {field.name: field.type for field in merge.partial_schema}
    kept = tuple(NamedExpression(PARTIAL + name, Column(kind, name)) for name, kind in types.items())
    final = final_values(engine, replace(merge, final=(*merge.final, *kept)), whole)
    final = finish_frame(engine, steps, final)
    return engine.project(final, [NamedExpression(name, Column(kind, PARTIAL + name)) for name, kind in types.items()])


def _split_by(key: Column, private: tuple[int, int]) -> tuple[Expression, Expression]:
    """Return the conditions for keys between two, exclusive, and for all others, NULL included."""
    ends = np.iinfo(np.int64)
    inside: list[Expression] = [Call(pa.bool_(), "is_not_null", (key,))]
    outside: list[Expression] = [Call(pa.bool_(), "is_null", (key,))]
    low, high = (Literal(key.type, end) for end in private)
    # The ends of the range of numbers stand for there being no other chunk; they need not be of the key's type.
    if private[0] != ends.min:
        inside.append(Call(pa.bool_(), "greater", (key, low)))
        outside.append(Call(pa.bool_(), "less_equal", (key, low)))
    if private[1] != ends.max:
        inside.append(Call(pa.bool_(), "less", (key, high)))
        outside.append(Call(pa.bool_(), "greater_equal", (key, high)))
    return _joined("and", inside), _joined("or", outside)


def _joined(operator: str, terms: list[Expression]) -> Expression:
    return terms[0] if len(terms) == 1 else Call(pa.bool_(), operator, tuple(terms))


def _lacking(merge: AggregateMerge, steps: tuple[FinishStep, ...]) -> bool:
    """Tell whether GPUs cannot compute final values or conditions."""
    return any(
        expression_lacking("gpu", node)
        for expression in finishing_expressions(merge, steps)
        for node in walk(expression)
    )
