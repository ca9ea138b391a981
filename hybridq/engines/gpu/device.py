"""The kernels of libcudf that the engine uses, in the few forms in which it uses them.

Integers are held in three widths: as they are, as INT64, and as DECIMAL128 of scale 0, which serves as a 128-bit
integer: its sums, products and (truncated) quotients are those of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pylibcudf as plc
from pylibcudf.aggregation import Aggregation
from pylibcudf.binaryop import BinaryOperator
from pylibcudf.copying import OutOfBoundsPolicy
from pylibcudf.types import DataType, TypeId

from hybridq import types
from hybridq.errors import Unsupported

BOOL = DataType(TypeId.BOOL8)
INT8 = DataType(TypeId.INT8)
INT32 = DataType(TypeId.INT32)
INT64 = DataType(TypeId.INT64)
INT128 = DataType(TypeId.DECIMAL128, 0)
DECIMAL64 = DataType(TypeId.DECIMAL64, 0)
FLOAT64 = DataType(TypeId.FLOAT64)
STRING = DataType(TypeId.STRING)
DAYS = DataType(TypeId.TIMESTAMP_DAYS)

MAX_ROWS = 2**31 - 1
"""Rows that a column of libcudf may have."""

_NUMBERS = {
    pa.int8(): TypeId.INT8, pa.int16(): TypeId.INT16, pa.int32(): TypeId.INT32, pa.int64(): TypeId.INT64,
    pa.uint8(): TypeId.UINT8, pa.uint16(): TypeId.UINT16, pa.uint32(): TypeId.UINT32, pa.uint64(): TypeId.UINT64,
    pa.float32(): TypeId.FLOAT32, pa.float64(): TypeId.FLOAT64, pa.bool_(): TypeId.BOOL8,
    pa.string(): TypeId.STRING, pa.date32(): TypeId.TIMESTAMP_DAYS, pa.null(): TypeId.INT8,
}  # fmt: skip
_TIMES = {
    "s": TypeId.TIMESTAMP_SECONDS, "ms": TypeId.TIMESTAMP_MILLISECONDS, "us": TypeId.TIMESTAMP_MICROSECONDS,
    "ns": TypeId.TIMESTAMP_NANOSECONDS,
}  # fmt: skip
_OPERATORS = {
    "add": BinaryOperator.ADD, "subtract": BinaryOperator.SUB, "multiply": BinaryOperator.MUL,
    "divide": BinaryOperator.DIV, "modulus": BinaryOperator.MOD,
    "equal": BinaryOperator.EQUAL, "not_equal": BinaryOperator.NOT_EQUAL, "less": BinaryOperator.LESS,
    "less_equal": BinaryOperator.LESS_EQUAL, "greater": BinaryOperator.GREATER,
    "greater_equal": BinaryOperator.GREATER_EQUAL,
    "and": BinaryOperator.NULL_LOGICAL_AND, "or": BinaryOperator.NULL_LOGICAL_OR,
    "bits": BinaryOperator.BITWISE_AND, "shift_right": BinaryOperator.SHIFT_RIGHT,
    "exclusive_or": BinaryOperator.BITWISE_XOR,
}  # fmt: skip

KEPT_SCALARS = 4096
"""Scalars that stay on the device."""

_kept_scalars: dict[Hashable, plc.Scalar] = {}


# --- types and scalars ---------------------------------------------------------------------------------------------


def physical(data_type: pa.DataType, wide: bool = False) -> DataType:
    """Return how values of a logical type are held: decimals as INT64, or as INT128 if ``wide``.

    Raises
    ------
    Unsupported
        The engine has no columns of the type.
    """
    if types.is_decimal(data_type):
        return INT128 if wide else INT64
    if pa.types.is_timestamp(data_type):
        return DataType(_TIMES[data_type.unit])
    found = _NUMBERS.get(data_type)
    if found is None:
        raise Unsupported(f"columns of type {data_type} are not supported on the GPU")
    return DataType(found)


def is_wide(data: plc.Column) -> bool:
    """Tell whether a column holds 128-bit integers."""
    return bool(data.type().id() == TypeId.DECIMAL128)


def scalar(value: Any, data_type: DataType) -> plc.Scalar:
    """Return a scalar of a physical type: an integer for INT64, INT128 and the other integer types; ``None``: NULL."""
    # Floats that are equal need not be the same: 0.0 and -0.0.
    exact = value.hex() if isinstance(value, float) else value
    return kept_scalar((data_type.id(), data_type.scale(), type(value), exact), lambda: _made(value, data_type))


def kept_scalar(key: Hashable, make: Callable[[], plc.Scalar]) -> plc.Scalar:
    """Return a scalar, made once: making one takes an allocation and a copy to the device.

    Parameters
    ----------
    key : hashable
        Says what it is.
    make : callable
        Makes it.
    """
    found = _kept_scalars.get(key)
    if found is None:
        found = make()
        if len(_kept_scalars) < KEPT_SCALARS:
            synchronize()  # other threads, on other streams, may use it at once
            # For good, and the first of two: nobody knows which stream still reads one.
            return _kept_scalars.setdefault(key, found)
    return found


def _made(value: Any, data_type: DataType) -> plc.Scalar:
    if value is None:
        return plc.Scalar.from_py(None, data_type)
    kind = data_type.id()
    if kind == TypeId.DECIMAL128:
        return plc.Scalar.from_py(Decimal(value))
    if kind == TypeId.BOOL8:
        return plc.Scalar.from_py(bool(value), data_type)
    return plc.Scalar.from_py(value, data_type)


def integer(value: plc.Scalar) -> int | None:
    """Return an integer scalar's value; ``None`` for NULL."""
    if not value.is_valid():
        return None
    # Scalar.to_py would round 128-bit integers to 28 digits.
    number: Any = value.to_arrow().as_py() if value.type().id() == TypeId.DECIMAL128 else value.to_py()
    return int(number)


def full(value: plc.Scalar, rows: int) -> plc.Column:
    """Return so many equal rows."""
    return plc.Column.from_scalar(value, rows) if rows else empty(value.type())


def empty(data_type: DataType) -> plc.Column:
    """Return a column without rows."""
    return plc.column_factories.make_empty_column(data_type)


def positions(rows: int) -> plc.Column:
    """Return 0, 1, 2 ... as INT32."""
    if rows == 0:
        return empty(INT32)
    return plc.filling.sequence(rows, scalar(0, INT32), scalar(1, INT32))


def synchronize() -> None:
    """Wait for this thread's stream."""
    plc.utils._get_stream().synchronize()


# --- one column to another -----------------------------------------------------------------------------------------


def relabelled(data: plc.Column, data_type: DataType) -> plc.Column:
    """Return the same memory as another type of the same width."""
    return plc.Column(data_type, data.size(), data.data(), data.null_mask(), data.null_count(), data.offset(), [])


def cast(data: plc.Column, data_type: DataType) -> plc.Column:
    """Convert values; the same column if it is of that type."""
    kind = data.type()
    if kind.id() == data_type.id() and kind.scale() == data_type.scale():
        return data
    return plc.unary.cast(data, data_type)


def to_int64(data: plc.Column) -> plc.Column:
    """Return integers (that fit), dates or timestamps as INT64."""
    kind = data.type().id()
    if kind == TypeId.INT64:
        return data
    if kind == TypeId.DECIMAL128:
        return relabelled(plc.unary.cast(data, DECIMAL64), INT64)
    if kind == TypeId.TIMESTAMP_DAYS:
        return cast(relabelled(data, INT32), INT64)
    if plc.traits.is_timestamp(data.type()):
        return relabelled(data, INT64)
    return cast(data, INT64)


def to_int128(data: plc.Column) -> plc.Column:
    """Return integers as INT128."""
    return data if is_wide(data) else cast(data, INT128)


def binary(
    operator: str, left: plc.Column | plc.Scalar, right: plc.Column | plc.Scalar, result: DataType
) -> plc.Column:
    """Apply an operator; at least one operand is a column. NULL where an operand is, except for ``and`` and ``or``."""
    return plc.binaryop.binary_operation(left, right, _OPERATORS[operator], result)


def compare(operator: str, left: plc.Column | plc.Scalar, right: plc.Column | plc.Scalar) -> plc.Column:
    """Apply a comparison or a logical operator."""
    return binary(operator, left, right, BOOL)


def negated(mask: plc.Column) -> plc.Column:
    """Return NOT of booleans."""
    return plc.unary.unary_operation(mask, plc.unary.UnaryOperator.NOT)


def choose(mask: plc.Column, yes: plc.Column | plc.Scalar, no: plc.Column | plc.Scalar) -> plc.Column:
    """Return ``yes`` where the mask is true, ``no`` where it is false or NULL."""
    return plc.copying.copy_if_else(yes, no, mask)


def is_null(data: plc.Column) -> plc.Column:
    """Return which rows are NULL."""
    return plc.unary.is_null(data)


def is_valid(data: plc.Column) -> plc.Column:
    """Return which rows are not NULL."""
    return plc.unary.is_valid(data)


def fill_null(data: plc.Column, value: Any) -> plc.Column:
    """Replace NULLs by a Python value."""
    return plc.replace.replace_nulls(data, scalar(value, data.type())) if data.null_count() else data


def with_nulls(data: plc.Column, present: plc.Column) -> plc.Column:
    """Return the values where ``present`` is true, NULL elsewhere."""
    return choose(present, data, scalar(None, data.type()))


def normalized(data: plc.Column) -> plc.Column:
    """Make equal floats equal in their bits: one NaN, no -0.0. Other columns stay as they are."""
    if plc.traits.is_floating_point(data.type()):
        return plc.replace.normalize_nans_and_zeros(data)
    return data


# --- rows ----------------------------------------------------------------------------------------------------------


def keep(columns: Sequence[plc.Column], mask: plc.Column) -> list[plc.Column]:
    """Return the rows for which a mask is true."""
    if not columns:
        return []
    return list(plc.stream_compaction.apply_retention_mask(plc.Table(list(columns)), mask).columns())


def gather(columns: Sequence[plc.Column], indices: plc.Column, checked: bool = False) -> list[plc.Column]:
    """Return the rows at indices, none of which is NULL; if ``checked``, NULL where an index is past the end."""
    if not columns:
        return []
    policy = OutOfBoundsPolicy.NULLIFY if checked else OutOfBoundsPolicy.DONT_CHECK
    return list(plc.copying.gather(plc.Table(list(columns)), indices, policy).columns())


def scatter(values: plc.Column | plc.Scalar, indices: plc.Column, target: plc.Column) -> plc.Column:
    """Return ``target`` with some rows replaced."""
    source = [values] if isinstance(values, plc.Scalar) else plc.Table([values])
    (result,) = plc.copying.scatter(source, indices, plc.Table([target])).columns()
    return result


def spread(values: plc.Column, mask: plc.Column) -> plc.Column:
    """Put values, in order, where a mask without NULLs is true; other rows are NULL."""
    target = plc.Column.all_null_like(values, mask.size())
    (result,) = plc.copying.boolean_mask_scatter(plc.Table([values]), plc.Table([target]), mask).columns()
    return result


# --- reductions ----------------------------------------------------------------------------------------------------


def reduce(data: plc.Column, aggregation: Aggregation, result: DataType) -> plc.Scalar:
    """Reduce to one value; NULL if there is none to reduce."""
    return plc.reduce.reduce(data, aggregation, result)


def any_true(mask: plc.Column) -> bool:
    """Tell whether a row is true."""
    if mask.size() == mask.null_count():
        return False
    found = reduce(mask, plc.aggregation.any(), BOOL)
    return bool(found.is_valid() and found.to_py())


def count_true(mask: plc.Column) -> int:
    """Count the rows that are true."""
    if mask.size() == mask.null_count():
        return 0
    return integer(reduce(mask, plc.aggregation.sum(), INT64)) or 0


def has_nan(data: plc.Column) -> bool:
    """Tell whether a column of floats has a NaN."""
    return any_true(plc.unary.is_nan(data))


def extent(data: plc.Column) -> tuple[int, int]:
    """Return the least and the greatest of integers, dates or timestamps; (0, 0) where there is no value."""
    if data.size() == data.null_count():
        return 0, 0
    kind = data.type().id()
    if kind == TypeId.BOOL8:
        return 0, 1
    if kind == TypeId.TIMESTAMP_DAYS:
        data = relabelled(data, INT32)
    elif plc.traits.is_timestamp(data.type()):
        data = relabelled(data, INT64)
    if is_wide(data):
        low = integer(reduce(data, plc.aggregation.min(), data.type()))
        high = integer(reduce(data, plc.aggregation.max(), data.type()))
    else:
        low, high = (integer(value) for value in plc.reduce.minmax(data))
    assert low is not None
    assert high is not None
    return low, high
