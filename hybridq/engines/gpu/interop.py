"""Columns from Arrow and to Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pylibcudf as plc

from hybridq import types
from hybridq.engines import column as host
from hybridq.engines.column import Bounds
from hybridq.engines.gpu import device
from hybridq.engines.gpu.column import GpuColumn, has_range, null_column
from hybridq.errors import Unsupported

WIDE = pa.decimal128(types.MAX_DECIMAL_DIGITS, 0)
"""How 128-bit integers look in Arrow."""


def from_arrow(array: pa.Array | pa.ChunkedArray, data_type: pa.DataType | None = None) -> GpuColumn:
    """Copy an Arrow array to the device.

    Parameters
    ----------
    array : pyarrow.Array or pyarrow.ChunkedArray
    data_type : pyarrow.DataType, optional
        Logical type; that of the array by default.

    Raises
    ------
    Unsupported
        The engine has no columns of the type.
    """
    logical = types.normalize(array.type) if data_type is None else data_type
    if len(array) == 0 or pa.types.is_null(array.type):
        return null_column(logical, len(array))
    plain = _plain(host.normalized_array(array), logical)
    return GpuColumn(logical, plc.Column.from_arrow(plain))


def _plain(array: pa.Array, logical: pa.DataType) -> pa.Array:
    """Return an array of the type that libcudf turns into the physical type of a column."""
    if pa.types.is_dictionary(array.type) or (
        pa.types.is_large_string(array.type) and array.nbytes < host.LARGE_STRING_BYTES
    ):
        array = array.cast(pa.string())
    if types.is_decimal(logical):
        column = host.from_arrow(array)
        if column.array is not None:
            return _relabelled(column.array, WIDE)
        return host.to_arrow(host.Column(pa.int64(), np.ascontiguousarray(column.numbers), column.valid))
    if pa.types.is_timestamp(logical):
        return _relabelled(array, pa.timestamp(logical.unit))
    if pa.types.is_list(logical):
        return _plain_list(array, logical)
    device.physical(logical)  # raises for other types
    return array


def _plain_list(array: pa.ListArray, logical: pa.DataType) -> pa.Array:
    lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    values = host.normalized_array(array.flatten())
    if types.is_decimal(logical.value_type) and len(values):
        # All lists of a column have values of one width, so as not to depend on the values.
        values = _relabelled(values, WIDE)
        if logical.value_type.precision <= types.NARROW_DECIMAL_DIGITS:
            values = _plain(array.flatten(), logical.value_type)
    elif types.is_decimal(logical.value_type):
        narrow = logical.value_type.precision <= types.NARROW_DECIMAL_DIGITS
        values = pa.array([], pa.int64() if narrow else WIDE)
    else:
        values = _plain(values, logical.value_type)
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)


def _relabelled(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return the same buffers under another fixed-width type of the same width."""
    if array.type == data_type:
        return array
    return pa.Array.from_buffers(data_type, len(array), array.buffers(), array.null_count, array.offset)


def to_arrow(column: GpuColumn) -> pa.Array:
    """Copy a column to the host, as an array of exactly its logical type (large_string past 2 GiB of text)."""
    data_type = column.type
    if pa.types.is_list(data_type):
        return _lists_to_arrow(column)
    if column.rows == 0 or pa.types.is_null(data_type):
        return pa.nulls(column.rows, data_type)
    array = column.data.to_arrow()
    if types.is_decimal(data_type):
        if column.wide:
            return _relabelled(array, data_type)
        return host.to_arrow(host.from_arrow(array).with_type(data_type))
    if types.is_string(data_type):
        if pa.types.is_large_string(array.type) and array.nbytes < host.LARGE_STRING_BYTES:
            array = array.cast(data_type)
        return array
    return array if pa.types.is_boolean(data_type) else _relabelled(array, data_type)


def _lists_to_arrow(column: GpuColumn) -> pa.Array:
    value_type = column.type.value_type
    if column.rows == 0:
        return pa.array([], column.type)
    data = column.data.copy() if column.data.offset() else column.data
    view = data.list_view()
    values = to_arrow(GpuColumn(value_type, view.child()))
    # Of a slice, libcudf gives the offsets of the whole.
    offsets = view.offsets().to_arrow().cast(pa.int32()).slice(0, column.rows + 1)
    mask = None
    if data.null_count():
        mask = device.is_null(data).to_arrow()
    if len(values) == 0:
        values = pa.array([], value_type)
    return pa.ListArray.from_arrays(offsets, values, type=column.type, mask=mask)


def from_storage(data: plc.Column, logical: pa.DataType, bounds: Bounds | None) -> GpuColumn | None:
    """Take over a column that libcudf read from a file; ``None`` where it is not of the expected type.

    Decimals that are known to fit become narrow.
    """
    kind = data.type()
    if types.is_decimal(logical):
        if not plc.traits.is_fixed_point(kind) or -kind.scale() != logical.scale:
            return None
        return GpuColumn(logical, _scaled_integers(data, logical, bounds), bounds)
    try:
        expected = device.physical(logical)
    except Unsupported:
        return None
    if kind.id() != expected.id():
        if not (pa.types.is_timestamp(logical) and plc.traits.is_timestamp(kind)):
            return None
        # Parquet has no seconds: they are stored in a finer unit.
        return GpuColumn(logical, device.cast(data, expected))
    return GpuColumn(logical, data, bounds if has_range(logical) else None)


def _scaled_integers(data: plc.Column, logical: pa.DataType, bounds: Bounds | None) -> plc.Column:
    """Return decimals as INT64 where they fit, else as INT128."""
    kind = data.type().id()
    fits = logical.precision <= types.NARROW_DECIMAL_DIGITS or (bounds is not None and host.within(bounds, host.INT64))
    if kind == plc.TypeId.DECIMAL32:
        return device.cast(device.relabelled(data, device.INT32), device.INT64)
    if kind == plc.TypeId.DECIMAL64:
        return device.relabelled(data, device.INT64)
    wide = device.relabelled(data, device.INT128)
    return device.to_int64(wide) if fits else wide
