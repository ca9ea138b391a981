"""Merging of sorted runs."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hybridq.engines.cpu import CpuEngine
from hybridq.physical.pipeline import SortMerge
from hybridq.types import to_arrow_schema


def merge_sorted(merge: SortMerge, runs: Sequence[pa.Table]) -> pa.Table:
    """Merge sorted runs into one, then apply the offset and the count.

    Parameters
    ----------
    merge : SortMerge
    runs : sequence of pyarrow.Table
        Each in order, in chunk order among themselves: rows that tie stay in chunk order. May be empty.

    Returns
    -------
    pyarrow.Table
        Rows ``offset`` to ``offset + count`` of all rows in order.
    """
    runs = [run for run in runs if run.num_rows]
    if not runs:
        return to_arrow_schema(merge.schema).empty_table()
    last = None if merge.count is None else merge.offset + merge.count
    if len(runs) == 1:
        return runs[0].slice(merge.offset, merge.count)
    engine = CpuEngine()
    frame = engine.concatenate([engine.from_arrow(run if last is None else run.slice(0, last)) for run in runs])
    # The engine's stable sort takes runs that are already in order as they are, which makes this a merge.
    ordered = engine.sort(frame, merge.keys) if last is None else engine.top_k(frame, merge.keys, last)
    return engine.to_arrow(engine.slice(ordered, merge.offset, merge.count), merge.schema)
