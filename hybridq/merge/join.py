"""Putting the results of chunks one below the other."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hybridq.physical.merges import ConcatenateMerge
from hybridq.types import to_arrow_schema


def concatenate(merge: ConcatenateMerge, parts: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of all parts in order; with ``merge.count`` only the first so many.

    Parameters
    ----------
    merge : ConcatenateMerge
    parts : sequence of pyarrow.Table
        Of ``merge.schema``, in chunk order; may be empty.
    """
    if not merge.schema:
        # A table without columns keeps its number of rows only if no schema is imposed on it.
        rows = sum(part.num_rows for part in parts)
        rows = rows if merge.count is None else min(rows, merge.count)
        return pa.table({"rows": pa.nulls(rows)}).select([])
    table = pa.concat_tables([to_arrow_schema(merge.schema).empty_table(), *parts])
    return table if merge.count is None else table.slice(0, merge.count)
