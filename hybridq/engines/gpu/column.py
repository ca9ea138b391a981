"""Columns of the GPU engine, and constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pylibcudf as plc

from hybridq import types
from hybridq.engines.column import INT64, Bounds, union_bounds, within
from hybridq.engines.constants import stored
from hybridq.engines.gpu import device


class GpuColumn:
    """One immutable column on the device (only its range is filled in later, when first asked for).

    Decimals are scaled integers: INT64 ("narrow") or INT128 ("wide"). Dates and timestamps are libcudf's timestamps,
    lists hold their values as a column of the value type would.

    Attributes
    ----------
    type : pyarrow.DataType
        Logical type, normalised.
    data : pylibcudf.Column
    bounds : (int, int) or None
        A closed range that holds every non-NULL value (scaled, for decimals), where it is known.
    """

    __slots__ = ("bounds", "data", "type")

    def __init__(self, data_type: pa.DataType, data: plc.Column, bounds: Bounds | None = None) -> None:
        self.type = data_type
        self.data = data
        self.bounds = bounds

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(self.data.size())

    @property
    def nulls(self) -> int:
        """Return the number of NULLs."""
        return int(self.data.null_count())

    @property
    def nbytes(self) -> int:
        """Return the bytes held."""
        return int(self.data.device_buffer_size())

    @property
    def wide(self) -> bool:
        """Tell whether the values are 128-bit integers."""
        return device.is_wide(self.data)

    def interval(self) -> Bounds:
        """Return a closed range that holds every non-NULL value; it is computed where none is known."""
        if self.bounds is None:
            self.bounds = device.extent(self.data)
        return self.bounds

    def measured(self) -> Bounds:
        """Return the exact range of the values, and remember it."""
        self.bounds = device.extent(self.data)
        return self.bounds

    def with_data(self, data: plc.Column) -> GpuColumn:
        """Return rows taken from this column: same type, same range."""
        return GpuColumn(self.type, data, self.bounds)

    def with_type(self, data_type: pa.DataType) -> GpuColumn:
        """Return the same values under another type that holds them in the same way."""
        return GpuColumn(data_type, self.data, self.bounds)

    def widened(self) -> GpuColumn:
        """Return the same integers or decimals as 128-bit integers."""
        return self if self.wide else GpuColumn(self.type, device.to_int128(self.data), self.bounds)

    def narrowed(self) -> GpuColumn:
        """Return wide values as 64-bit integers if all fit."""
        if not self.wide or not (within(self.interval(), INT64) or within(self.measured(), INT64)):
            return self
        return GpuColumn(self.type, device.to_int64(self.data), self.bounds)


class Constant:
    """A value that all rows have.

    Attributes
    ----------
    type : pyarrow.DataType
    value : Any
        As in ``Literal``; ``None`` is NULL.
    """

    __slots__ = ("type", "value")

    def __init__(self, data_type: pa.DataType, value: Any) -> None:
        self.type = data_type
        self.value = value

    @property
    def stored(self) -> Any:
        """Return the value as columns hold it: scaled integers for decimals, days for dates."""
        return None if self.value is None else stored(self.type, self.value)

    @property
    def wide(self) -> bool:
        """Tell whether the value needs a 128-bit integer."""
        return types.is_decimal(self.type) and self.value is not None and not within((self.stored, self.stored), INT64)

    def interval(self) -> Bounds:
        """Return the value as a range; (0, 0) for NULL."""
        number = self.stored
        return (0, 0) if number is None else (int(number), int(number))

    def scalar(self, wide: bool | None = None) -> plc.Scalar:
        """Return the value as a device scalar; decimals 128 bits wide as told, by default where they need it."""
        data_type = device.physical(self.type, self.wide if wide is None else wide)
        if self.value is not None and pa.types.is_temporal(self.type):
            # From Python's own types nanoseconds would pass through a float.
            plain = self.type if pa.types.is_date32(self.type) else pa.timestamp(self.type.unit)
            array = pa.array([self.value], self.type).cast(plain)
            key = (str(plain), array.view(pa.int32() if pa.types.is_date32(plain) else pa.int64())[0].as_py())
            return device.kept_scalar(key, lambda: plc.Column.from_arrow(array).to_scalar())
        return device.scalar(self.stored, data_type)

    def expanded(self, rows: int) -> GpuColumn:
        """Return so many rows of the value."""
        if pa.types.is_list(self.type):
            return null_column(self.type, rows)
        bounds = self.interval() if has_range(self.type) else None
        return GpuColumn(self.type, device.full(self.scalar(), rows), bounds)


Operand = GpuColumn | Constant


def has_range(data_type: pa.DataType) -> bool:
    """Tell whether values of the type are integers on the device."""
    return bool(
        types.is_integer(data_type)
        or types.is_decimal(data_type)
        or pa.types.is_date32(data_type)
        or pa.types.is_timestamp(data_type)
    )


def is_null_constant(operand: Operand) -> bool:
    """Tell whether an operand is the constant NULL."""
    return isinstance(operand, Constant) and operand.value is None


def empty_data(data_type: pa.DataType) -> plc.Column:
    """Return a device column without rows."""
    if pa.types.is_list(data_type):
        return plc.column_factories.make_empty_lists_column(device.physical(data_type.value_type))
    return device.empty(device.physical(data_type))


def empty_column(data_type: pa.DataType) -> GpuColumn:
    """Return a column without rows."""
    return GpuColumn(data_type, empty_data(data_type), (0, 0) if has_range(data_type) else None)


def null_column(data_type: pa.DataType, rows: int) -> GpuColumn:
    """Return so many NULLs."""
    if rows == 0:
        return empty_column(data_type)
    if pa.types.is_list(data_type):
        return GpuColumn(data_type, plc.Column.all_null_like(empty_data(data_type), rows))
    data = device.full(device.scalar(None, device.physical(data_type)), rows)
    return GpuColumn(data_type, data, (0, 0) if has_range(data_type) else None)


def same_width(columns: Sequence[GpuColumn]) -> list[GpuColumn]:
    """Bring decimals of one type to one width."""
    if any(column.wide for column in columns):
        return [column.widened() for column in columns]
    return list(columns)


def concatenate(columns: Sequence[GpuColumn]) -> GpuColumn:
    """Put columns of one type one below the other."""
    if len(columns) == 1:
        return columns[0]
    filled = [column for column in columns if column.rows]
    if not filled:
        return columns[0]
    if len(filled) == 1:
        return filled[0]
    filled = same_width(filled)
    bounds = union_bounds([column.bounds for column in filled])
    return GpuColumn(filled[0].type, plc.concatenate.concatenate([column.data for column in filled]), bounds)
