"""Merging sorted runs."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hybridq.engines.cpu import CpuEngine
from hybridq.physical.merges import SortMerge
from hybridq.types import to_arrow_schema


def merge_sorted(merge: SortMerge, runs: Sequence[pa.Table]) -> pa.Table:
    """Merge sorted runs into one; rows that tie stay in the order of the runs.

    Parameters
    ----------
    merge : SortMerge
        With ``count``, rows ``offset`` to ``offset + count`` are returned; else all from ``offset`` on.
    runs : sequence of pyarrow.Table
        Each in order and of ``merge.schema``; may be empty.
    """
    engine = CpuEngine()
    table = pa.concat_tables([to_arrow_schema(merge.schema).empty_table(), *runs])
    frame = engine.from_arrow(table)
    if merge.count is None:
        frame = engine.sort(frame, merge.keys)
    else:
        frame = engine.top_k(frame, merge.keys, merge.offset + merge.count)
    return engine.to_arrow(engine.slice(frame, merge.offset, merge.count), merge.schema)
