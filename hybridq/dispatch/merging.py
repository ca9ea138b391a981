"""Merging partial results, as a stage says."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import pyarrow as pa

from hybridq.dispatch.device_rows import DeviceRows, Rows, as_frame, as_table, may_stay
from hybridq.dispatch.memory import FOOTPRINT_FACTOR
from hybridq.engines.account import DeviceAccount
from hybridq.engines.protocol import Engine, Frame
from hybridq.engines.support import aggregate_lacking
from hybridq.errors import DeviceOutOfMemory
from hybridq.physical.merges import AggregateMerge, ConcatenateMerge, KeepPieces, SortMerge
from hybridq.physical.pipeline import SortedRunSink, Stage
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
        merged = as_table(parts[0]) if len(parts) == 1 else _merged_groups(stage, merge, parts, last, gpu)
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


def _merged_groups(
    stage: Stage, merge: AggregateMerge, parts: Sequence[Rows], last: bool, gpu: Engine | None
) -> pa.Table:
    from hybridq.merge.aggregate import merge_partials

    if gpu is not None and _worth_a_gpu(merge, parts):
        try:
            with _admitted(gpu, parts):
                if not merge.groups or not any(isinstance(part, DeviceRows) for part in parts):
                    return merge_partials(merge, [as_table(part) for part in parts], gpu)
                return gpu.to_arrow(_groups_on_device(gpu, stage, merge, parts, last), merge.partial_schema)
        except (DeviceOutOfMemory, MemoryError):
            pass  # the CPU has more
    return merge_partials(merge, [as_table(part) for part in parts])


def _worth_a_gpu(merge: AggregateMerge, parts: Sequence[Rows]) -> bool:
    many = sum(part.num_rows for part in parts) >= GPU_MERGE_ROWS
    return many and not any(aggregate_lacking("gpu", call) for call in merge.aggregates)


def _admitted(gpu: Engine, parts: Sequence[Rows]) -> AbstractContextManager[object]:
    account: DeviceAccount | None = getattr(gpu, "memory", None)
    wanted = int(sum(part.nbytes for part in parts) * FOOTPRINT_FACTOR)
    return account.admitted(wanted) if account is not None else nullcontext()


def _groups_on_device(gpu: Engine, stage: Stage, merge: AggregateMerge, parts: Sequence[Rows], last: bool) -> Frame:
    """Merge groups, at least one, on a device; with ``last``, without those that will be dropped next."""
    from hybridq.merge.aggregate import merged_frame
    from hybridq.merge.private_groups import without_dropped_groups

    names = [field.name for field in merge.partial_schema]
    merged = merged_frame(gpu, merge, gpu.concatenate([as_frame(gpu, part, names) for part in parts]))
    return without_dropped_groups(gpu, stage, merged, None, gpu.name != "cpu") if last else merged


def finished_on_device(gpu: Engine, stage: Stage, parts: Sequence[Rows], whole: bool) -> DeviceRows | None:
    """Merge groups and compute the stage's output where it stays on the device.

    Parameters
    ----------
    gpu : Engine
    stage : Stage
        ``finishes_on_device`` is true of it.
    parts : sequence of pyarrow.Table or DeviceRows
        All partial results, in chunk order.
    whole : bool
        There is one part, and its groups are whole.

    Returns
    -------
    DeviceRows or None
        ``None`` where the device has no room, or the groups are so few that the CPU is as fast.
    """
    from hybridq.merge.aggregate import final_values
    from hybridq.merge.finish import finish_frame

    merge = stage.merge
    if not isinstance(merge, AggregateMerge) or not _worth_a_gpu(merge, parts):
        return None
    size = sum(part.nbytes for part in parts)
    if not may_stay(gpu, size):
        return None
    try:
        with nullcontext() if whole else _admitted(gpu, parts):
            if whole:
                groups = as_frame(gpu, parts[0], [field.name for field in merge.partial_schema])
            else:
                groups = _groups_on_device(gpu, stage, merge, parts, last=True)
            frame = finish_frame(gpu, stage.finish, final_values(gpu, merge, groups))
            gpu.settle()
            return DeviceRows(gpu, frame, stage.schema)
    except (DeviceOutOfMemory, MemoryError):
        return None  # the CPU has more
