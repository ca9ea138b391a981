"""Frames as Arrow tables of exactly the declared types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq import types
from hybridq.engines.column import LARGE_STRING_BYTES, Column, to_arrow
from hybridq.engines.frame import CpuFrame
from hybridq.errors import NumericOverflow
from hybridq.types import Schema, to_arrow_schema


def to_table(frame: CpuFrame, schema: Schema) -> pa.Table:
    """Give a compact frame's columns in a schema's order and types.

    Raises
    ------
    NumericOverflow
        A decimal has more digits than its type says.
    """
    if not schema:
        return pa.table({"rows": pa.nulls(frame.stored_rows)}).select([])
    columns = [_typed(frame.columns[field.name], field.name, field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=to_arrow_schema(schema))


def _typed(column: Column, name: str, data_type: pa.DataType) -> pa.Array | pa.ChunkedArray:
    array = to_arrow(column)
    if array.type == data_type:
        return array
    if pa.types.is_large_string(array.type) and types.is_string(data_type):
        return _cut_text(array)
    try:
        return array.cast(data_type)
    except pa.ArrowInvalid as error:
        raise NumericOverflow(f"a value of {name} does not fit {data_type}: {error}") from error


def _cut_text(array: pa.Array) -> pa.ChunkedArray:
    """Cut text past 2 GiB into chunks that string arrays can hold."""
    ends = np.cumsum(pc.binary_length(array).fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False))
    pieces, start = [], 0
    while start < len(array):
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + LARGE_STRING_BYTES, side="right")), start + 1)
        pieces.append(array.slice(start, stop - start).cast(pa.string()))
        start = stop
    return pa.chunked_array(pieces, pa.string())
