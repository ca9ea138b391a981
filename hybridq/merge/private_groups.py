"""HAVING, and ORDER BY with LIMIT, before the merge, for groups that only one chunk can have.

Where a table is clustered by a group key, nearly all groups lie within one chunk. Their partial results are whole, so
those that HAVING drops need not go to the merge, nor those that so many others of the same chunk go before that LIMIT
leaves them out.
"""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines.cpu import CpuEngine
from hybridq.engines.protocol import Engine
from hybridq.engines.support import expression_lacking
from hybridq.errors import DeviceOutOfMemory
from hybridq.merge.aggregate import finalize
from hybridq.merge.finish import finish
from hybridq.physical.pipeline import AggregateMerge, FilterStep, FinishLimit, FinishSort, FinishStep, Stage
from hybridq.plan.expressions import walk

NUMBER = "number of the partial result"
"""A column's name; columns of plans have no such one."""

GPU_ROWS = 50_000
"""Private groups from which a GPU looks through them; fewer are done before a GPU has them."""


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
    stage: Stage, partial: pa.Table, private: tuple[int, int], gpu: Engine | None = None
) -> pa.Table:
    """Drop the private groups of a chunk that will be dropped after the merge; others stay as they are.

    Parameters
    ----------
    stage : Stage
        An aggregate with ``clustered``.
    partial : pyarrow.Table
        The chunk's partial result.
    private : tuple of (int, int)
        As in ``Chunk.private``.
    gpu : Engine, optional
        What computes where groups are many; otherwise the CPU.

    Raises
    ------
    NumericOverflow
        A sum does not fit its type.
    """
    merge, clustered = stage.merge, stage.clustered
    if not isinstance(merge, AggregateMerge) or clustered is None:
        raise TypeError("only a clustered aggregate has private groups")
    steps = deciding_steps(stage.finish)
    key = partial.column(clustered.key)
    low, high = (pa.scalar(end, pa.int64()) for end in private)
    inside = pc.fill_null(pc.and_(pc.greater(key, low), pc.less(key, high)), False)
    rows = pc.indices_nonzero(inside)
    limit = steps[-1].count if isinstance(steps[-1], FinishLimit) else None
    if len(rows) == 0 or (len(steps) == 2 and limit is not None and len(rows) <= limit):
        return partial
    candidates = partial if len(rows) == partial.num_rows else partial.take(rows)
    kept = _kept(merge, steps, candidates, rows.cast(pa.int64()), gpu)
    stays = pc.invert(inside).to_numpy()
    stays[kept.to_numpy()] = True
    return partial if stays.all() else partial.take(pa.array(np.flatnonzero(stays)))


def _kept(
    merge: AggregateMerge, steps: tuple[FinishStep, ...], groups: pa.Table, numbers: pa.Array, gpu: Engine | None
) -> pa.ChunkedArray:
    """Return the numbers of the groups that are kept."""
    if gpu is not None and len(numbers) >= GPU_ROWS and not _lacking(merge, steps):
        try:
            return _computed(merge, steps, groups, numbers, gpu)
        except (DeviceOutOfMemory, MemoryError):
            pass  # the CPU has more
    return _computed(merge, steps, groups, numbers, CpuEngine())


def _computed(
    merge: AggregateMerge, steps: tuple[FinishStep, ...], groups: pa.Table, numbers: pa.Array, engine: Engine
) -> pa.ChunkedArray:
    whole = finalize(merge, groups, engine)
    return finish(steps, whole.append_column(NUMBER, numbers), engine).column(NUMBER)


def _lacking(merge: AggregateMerge, steps: tuple[FinishStep, ...]) -> bool:
    """Tell whether GPUs cannot compute final values or conditions."""
    expressions = [item.expression for item in merge.final]
    for step in steps:
        if isinstance(step, FilterStep):
            expressions.append(step.predicate)
        elif isinstance(step, FinishSort):
            expressions += [key.expression for key in step.keys]
    return any(expression_lacking("gpu", node) for expression in expressions for node in walk(expression))
