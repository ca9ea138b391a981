"""Merging partial results, as a stage says."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import pyarrow as pa

from hybridq.dispatch.device_rows import DeviceRows, Rows, as_frame, as_table
from hybridq.dispatch.memory import FOOTPRINT_FACTOR
from hybridq.engines.account import DeviceAccount
from hybridq.engines.protocol import Engine
from hybridq.engines.support import aggregate_lacking
from hybridq.errors import DeviceOutOfMemory
from hybridq.physical.pipeline import AggregateMerge, ConcatenateMerge, KeepPieces, SortedRunSink, SortMerge, Stage
from hybridq.placement.passing_on import GPU_MERGE_ROWS


def merge_tables(stage: Stage, parts: Sequence[Rows], last: bool, gpu: Engine | None = None) -> pa.Table:
    """Merge partial results in chunk order; with ``last``, also finalise them and run the stage's finishing steps.

    Groups that are many are merged on the GPU where one is given; everything else is the CPU's.
    """
    # Here, because the client imports this module as well, and does not merge.
    from hybridq.merge.aggregate import finalize
    from hybridq.merge.finish import finish
    from hybridq.merge.join import concatenate
    from hybridq.merge.sort import merge_sorted

    merge = stage.merge
    if isinstance(merge, AggregateMerge):
        merged = as_table(parts[0]) if len(parts) == 1 else _merged_groups(merge, parts, gpu)
        return finish(stage.finish, finalize(merge, merged)) if last else merged
    tables = [as_table(part) for part in parts]
    if isinstance(merge, KeepPieces):  # of one chunk, before it is split
        sink = stage.pipeline.sink
        if isinstance(sink, SortedRunSink):
            merged = merge_sorted(SortMerge(sink.keys, sink.schema), tables)
        else:
            merged = concatenate(ConcatenateMerge(merge.schema), tables)
    elif isinstance(merge, ConcatenateMerge):
        merged = concatenate(merge, tables)
    elif last:
        merged = merge_sorted(merge, tables)
    else:
        kept = None if merge.count is None else merge.offset + merge.count
        return merge_sorted(replace(merge, offset=0, count=kept), tables)
    return finish(stage.finish, merged) if last else merged


def _merged_groups(merge: AggregateMerge, parts: Sequence[Rows], gpu: Engine | None) -> pa.Table:
    from hybridq.merge.aggregate import merge_partials, merged_frame

    many = sum(part.num_rows for part in parts) >= GPU_MERGE_ROWS
    if gpu is not None and many and not any(aggregate_lacking("gpu", call) for call in merge.aggregates):
        account: DeviceAccount | None = getattr(gpu, "memory", None)
        wanted = int(sum(part.nbytes for part in parts) * FOOTPRINT_FACTOR)
        try:
            with account.admitted(wanted) if account is not None else nullcontext():
                if not merge.groups or not any(isinstance(part, DeviceRows) for part in parts):
                    return merge_partials(merge, [as_table(part) for part in parts], gpu)
                names = [field.name for field in merge.partial_schema]
                frame = gpu.concatenate([as_frame(gpu, part, names) for part in parts])
                return gpu.to_arrow(merged_frame(gpu, merge, frame), merge.partial_schema)
        except (DeviceOutOfMemory, MemoryError):
            pass  # the CPU has more
    return merge_partials(merge, [as_table(part) for part in parts])
