"""HAVING before the merge, for groups that only one chunk can have.

Where a table is clustered by a group key, nearly all groups lie within one chunk. Their partial results are whole, so
those that HAVING drops need not go to the merge.
"""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.merge.aggregate import finalize
from hybridq.merge.finish import finish
from hybridq.physical.pipeline import AggregateMerge, FilterStep, Stage

NUMBER = "number of the partial result"
"""A column's name; columns of plans have no such one."""


def without_dropped_groups(stage: Stage, partial: pa.Table, private: tuple[int, int]) -> pa.Table:
    """Drop the private groups of a chunk that HAVING drops; other partial results stay as they are.

    Parameters
    ----------
    stage : Stage
        An aggregate with ``clustered``.
    partial : pyarrow.Table
        The chunk's partial result.
    private : tuple of (int, int)
        As in ``Chunk.private``.

    Raises
    ------
    NumericOverflow
        A sum does not fit its type.
    """
    merge, clustered = stage.merge, stage.clustered
    if not isinstance(merge, AggregateMerge) or clustered is None:
        raise TypeError("only a clustered aggregate has private groups")
    key = partial.column(clustered.key)
    low, high = (pa.scalar(end, pa.int64()) for end in private)
    inside = pc.fill_null(pc.and_(pc.greater(key, low), pc.less(key, high)), False)
    rows = pc.indices_nonzero(inside)
    if len(rows) == 0:
        return partial
    conditions = tuple(itertools.takewhile(lambda step: isinstance(step, FilterStep), stage.finish))
    groups = finalize(merge, partial.take(rows))
    kept = finish(conditions, groups.append_column(NUMBER, rows.cast(pa.int64()))).column(NUMBER)
    stays = pc.invert(inside).to_numpy()
    stays[kept.to_numpy()] = True
    return partial if stays.all() else partial.take(pa.array(np.flatnonzero(stays)))
