"""Merging partial results, as a stage says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from hybridq.physical.pipeline import AggregateMerge, ConcatenateMerge, Stage


def merge_tables(stage: Stage, parts: Sequence[pa.Table], last: bool) -> pa.Table:
    """Merge partial results in chunk order; with ``last``, also finalise them and run the stage's finishing steps."""
    # Here, because the client imports this module as well, and does not merge.
    from hybridq.merge.aggregate import finalize, merge_partials
    from hybridq.merge.finish import finish
    from hybridq.merge.join import concatenate
    from hybridq.merge.sort import merge_sorted

    merge = stage.merge
    if isinstance(merge, AggregateMerge):
        merged = parts[0] if len(parts) == 1 else merge_partials(merge, parts)
        if not last:
            return merged
        merged = finalize(merge, merged)
    elif isinstance(merge, ConcatenateMerge):
        merged = concatenate(merge, parts)
    elif last:
        merged = merge_sorted(merge, parts)
    else:
        kept = None if merge.count is None else merge.offset + merge.count
        return merge_sorted(replace(merge, offset=0, count=kept), parts)
    return finish(stage.finish, merged) if last else merged
