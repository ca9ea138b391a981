"""Lists of values become rows of one value each."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def one_value_a_row(
    table: pa.Table, keys: Sequence[str], lists: Sequence[tuple[str, str]], schema: pa.Schema
) -> pa.Table:
    """Return a table's rows without its lists, and below them a row for each value in a list.

    Parameters
    ----------
    table : pyarrow.Table
    keys : sequence of str
        Columns that each of these rows has, besides its value. All others are NULL there.
    lists : sequence of (list column, value column)
    schema : pyarrow.Schema
        Of the result: the table's columns without the lists, and the value columns.

    Examples
    --------
    >>> rows = pa.table({"k": [1, 2], "n": [5, 6], "l": [[7], [8, 9]]})
    >>> schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("v", pa.int64())])
    >>> one_value_a_row(rows, ["k"], [("l", "v")], schema).to_pylist()[2:4]
    [{'k': 1, 'n': None, 'v': 7}, {'k': 2, 'n': None, 'v': 8}]
    """
    plain = [name for name in table.column_names if name not in dict(lists)]
    parts = [_filled({name: table.column(name) for name in plain}, table.num_rows, schema)]
    table = table.combine_chunks()
    for name, value in lists:
        column = table.column(name)
        rows = pc.list_parent_indices(column)
        found = {key: table.column(key).take(rows) for key in keys}
        parts.append(_filled({**found, value: pc.list_flatten(column)}, len(rows), schema))
    return pa.concat_tables(parts)


def _filled(columns: dict[str, pa.ChunkedArray], rows: int, schema: pa.Schema) -> pa.Table:
    """Return columns as a table of a schema, with NULL in those that are missing."""
    found = [columns[item.name] if item.name in columns else pa.nulls(rows, item.type) for item in schema]
    return pa.Table.from_arrays(found, schema=schema)
