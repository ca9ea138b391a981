"""Merging of join outputs, build sides and other plain rows: chunks one below the other."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hybridq.physical.pipeline import ConcatenateMerge
from hybridq.types import to_arrow_schema


def concatenate(merge: ConcatenateMerge, parts: Sequence[pa.Table]) -> pa.Table:
    """Put the chunks' rows together in chunk order, without copying them.

    Parameters
    ----------
    merge : ConcatenateMerge
    parts : sequence of pyarrow.Table
        Of the merge's schema, in chunk order. May be empty.

    Returns
    -------
    pyarrow.Table
        All rows, or the first ``merge.count``.
    """
    schema = to_arrow_schema(merge.schema)
    table = pa.concat_tables(parts) if parts else schema.empty_table()
    return table if merge.count is None else table.slice(0, merge.count)
