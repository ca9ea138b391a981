"""Decimals that do not fit 64 bits: exact arithmetic on Arrow decimal256 arrays, and on Python integers past those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from hybridq import types
from hybridq.engines.column import Bounds, Column, Mask, Values, arrow_validity, from_arrow, to_arrow, within
from hybridq.errors import NumericOverflow
from hybridq.plan.expressions import Call

LIMIT: Bounds = (-(10**types.MAX_DECIMAL_DIGITS) + 1, 10**types.MAX_DECIMAL_DIGITS - 1)
MAX_256_DIGITS = 76


def digits_of(bounds: Bounds) -> int:
    """Return the decimal digits that any value of a range needs."""
    return max(len(str(abs(bounds[0]))), len(str(abs(bounds[1]))))


def scale_of(data_type: pa.DataType) -> int:
    """Return a decimal's scale; 0 for integers."""
    return int(data_type.scale) if types.is_decimal(data_type) else 0


def wide_array(column: Column, scale: int | None = None) -> pa.Array:
    """Return integers or decimals as an Arrow decimal256 array, one element for a constant.

    Parameters
    ----------
    column : Column
    scale : int, optional
        Scale of the result, no less than the column's; the column's own by default.
    """
    own = scale_of(column.type)
    scale = own if scale is None else scale
    array = column.array
    if array is None:
        values = np.atleast_1d(column.numbers)
        valid = None if column.valid is None else np.atleast_1d(np.broadcast_to(column.valid, values.shape))
        if values.dtype == np.uint64:
            missing = None if valid is None else ~valid
            array = pa.array(values, mask=missing).cast(pa.decimal128(20, 0))
        else:
            narrow = Column(pa.decimal128(types.MAX_DECIMAL_DIGITS, own), values.astype(np.int64), valid)
            array = to_arrow(narrow)
    low, high = column.interval()
    factor = 10 ** (scale - own)
    digits = min(max(digits_of((low * factor, high * factor)), scale, 1), MAX_256_DIGITS)
    return array.cast(pa.decimal256(MAX_256_DIGITS, own)).cast(pa.decimal256(max(digits, 1), scale))


def from_wide(array: pa.Array, data_type: pa.DataType, what: object, constant: bool) -> Column:
    """Turn an exact decimal256 result into a column of the declared type, whose scale it has.

    Raises
    ------
    NumericOverflow
        A value has more than 38 digits; the message names ``what``.
    """
    try:
        array = array.cast(pa.decimal128(types.MAX_DECIMAL_DIGITS, data_type.scale))
    except pa.ArrowInvalid as error:
        raise overflow(what, data_type) from error
    column = from_arrow(array).with_type(data_type)
    return as_constant(column) if constant else column


def as_constant(column: Column) -> Column:
    """Turn a column of one row into a constant."""
    if column.array is not None:
        return Column(column.type, array=column.array, constant=True)
    assert column.values is not None
    valid = None if column.valid is None else np.asarray(column.valid[0])
    return Column(column.type, np.asarray(column.values[0]), valid, dictionary=column.dictionary, constant=True)


def overflow(what: object, data_type: pa.DataType) -> NumericOverflow:
    """Return the error for a result that does not fit."""
    if isinstance(what, Call) and what.function == "average" and what.options:
        (what,) = what.options  # as it was written, where the call is one of a sum and a count
    limit = "38 digits" if types.is_decimal(data_type) else f"type {data_type}"
    return NumericOverflow(
        f"the result of {what} does not fit {limit}: cast an operand to a smaller scale or to DOUBLE"
    )


# --- Python integers -----------------------------------------------------------------------------------------------


def to_integers(column: Column) -> tuple[Values, Mask | None]:
    """Return integers or decimals as an array of Python integers (scaled), 0 where NULL, and their validity."""
    if column.array is None:
        values = np.atleast_1d(column.numbers).astype(object)
        valid = None if column.valid is None else np.atleast_1d(column.valid)
        return (values if valid is None else np.where(valid, values, 0)), valid
    valid = arrow_validity(column.array)
    array = column.array.cast(pa.decimal128(types.MAX_DECIMAL_DIGITS, scale_of(column.type)))
    words = np.frombuffer(array.buffers()[1], np.uint64)[2 * array.offset : 2 * (array.offset + len(array))]
    high = words[1::2].view(np.int64).astype(object)
    values = high * 2**64 + words[0::2].astype(object)
    return (values if valid is None else np.where(valid, values, 0)), valid


def from_integers(
    values: Values, valid: Mask | None, data_type: pa.DataType, what: object, constant: bool = False
) -> Column:
    """Turn Python integers (scaled) into a decimal column.

    Raises
    ------
    NumericOverflow
        A value has more than 38 digits.
    """
    if valid is not None:
        values = np.where(valid, values, 0)
    if len(values) and not within((min(values), max(values)), LIMIT):
        raise overflow(what, data_type)
    words = np.empty((len(values), 2), np.uint64)
    words[:, 0] = (values & (2**64 - 1)).astype(np.uint64) if len(values) else 0
    words[:, 1] = ((values >> 64) & (2**64 - 1)).astype(np.uint64) if len(values) else 0
    return from_words(words, valid, data_type, constant)


def from_words(words: Values, valid: Mask | None, data_type: pa.DataType, constant: bool = False) -> Column:
    """Turn 128-bit integers, as (low, high) pairs of 64-bit words, into a decimal column."""
    from hybridq.engines.column import pack_bits

    storage = pa.decimal128(types.MAX_DECIMAL_DIGITS, data_type.scale)
    buffers = [pack_bits(valid), pa.py_buffer(np.ascontiguousarray(words))]
    column = from_arrow(pa.Array.from_buffers(storage, len(words), buffers)).with_type(data_type)
    return as_constant(column) if constant else column


def combine_integers(
    function: Callable[..., Any],
    columns: Sequence[Column],
    data_type: pa.DataType,
    what: object,
) -> Column:
    """Apply an exact function of Python integers to columns, element by element; NULL where any operand is."""
    from hybridq.engines.column import combine_valid

    rows = max((column.rows for column in columns if not column.constant), default=1)
    operands, masks = [], []
    for column in columns:
        values, valid = to_integers(column)
        operands.append(np.broadcast_to(values, (rows,)))
        masks.append(None if valid is None else np.broadcast_to(valid, (rows,)))
    valid = combine_valid(*masks)
    result = np.empty(rows, object)
    for row in range(rows):
        result[row] = function(*(values[row] for values in operands)) if valid is None or valid[row] else 0
    return from_integers(result, valid, data_type, what, all(column.constant for column in columns))


def divide_rounded(numerator: int, denominator: int) -> int:
    """Divide integers, rounding half away from zero.

    >>> divide_rounded(-25, 10), divide_rounded(24, 10)
    (-3, 2)
    """
    quotient, remainder = divmod(abs(numerator), abs(denominator))
    quotient += 2 * remainder >= abs(denominator)
    return quotient if (numerator < 0) == (denominator < 0) else -quotient
