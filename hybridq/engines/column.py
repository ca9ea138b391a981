"""Columns of the CPU engine: NumPy where kernels are fastest, Arrow where they are not.

A column is held in one of three forms:

- *numbers*: ``values`` is a NumPy array. Booleans, integers, floats, dates and times have their own width; decimals
  known to fit are scaled 64-bit integers ("narrow"). It may be a strided view of an Arrow decimal128 buffer.
- *codes*: ``values`` are positions in ``dictionary``, an Arrow array of distinct, non-NULL strings.
- *array*: everything else stays an Arrow ``array``: plain strings, decimals too large for 64 bits ("wide"), lists.

Values under a NULL are arbitrary. A *constant* stands for any number of equal rows: its ``values`` have no dimension,
or its ``array`` has one element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hybridq import types
from hybridq.errors import NumericOverflow

Values = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]
Bounds = tuple[int, int]

INT64: Bounds = (-(2**63), 2**63 - 1)
INTERVAL = pa.month_day_nano_interval()
INTERVAL_WORDS = np.dtype([("months", np.int32), ("days", np.int32), ("nanoseconds", np.int64)])
"""How Arrow holds intervals."""

TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Parts of a second, by unit."""

UTC = frozenset({"UTC", "Etc/UTC", "+00:00", "Z", "GMT", "Etc/GMT"})
"""Names of the zone in which timestamps with a zone are counted."""

LARGE_STRING_BYTES = 2**31 - 2**20
"""Bytes of text that one Arrow string array may hold, with room to spare."""


class Column:
    """One immutable column (only ``bounds`` is filled in later, when first asked for).

    Attributes
    ----------
    type : pyarrow.DataType
        Logical type, normalised.
    rows : int
        Number of rows; 1 for a constant.
    values, valid, dictionary, array
        See the module's text; ``valid`` is ``None`` where there is no NULL, and unused in *array* form.
    bounds : (int, int) or None
        A closed range that holds every non-NULL value (scaled, for decimals), where it is known.
    constant : bool
    """

    __slots__ = ("array", "bounds", "constant", "dictionary", "rows", "type", "valid", "values")

    def __init__(
        self,
        data_type: pa.DataType,
        values: Values | None = None,
        valid: Mask | None = None,
        *,
        dictionary: pa.Array | None = None,
        array: pa.Array | None = None,
        bounds: Bounds | None = None,
        constant: bool = False,
    ) -> None:
        self.type = data_type
        self.values = values
        self.valid = valid
        self.dictionary = dictionary
        self.array = array
        self.bounds = bounds
        self.constant = constant
        if constant:
            self.rows = 1
        else:
            self.rows = len(values) if values is not None else len(array or ())

    @property
    def nbytes(self) -> int:
        """Return the bytes held."""
        if self.array is not None:
            return int(self.array.nbytes)
        assert self.values is not None
        total = int(abs(self.values.strides[0]) * len(self.values)) if self.values.ndim else self.values.nbytes
        total += 0 if self.valid is None else self.valid.nbytes
        return total + (0 if self.dictionary is None else int(self.dictionary.nbytes))

    @property
    def is_numbers(self) -> bool:
        """Tell whether ``values`` are the values themselves."""
        return self.values is not None and self.dictionary is None

    @property
    def numbers(self) -> Values:
        """Return the values of a column in *numbers* form."""
        assert self.values is not None
        assert self.dictionary is None
        return self.values

    def validity(self) -> Mask | None:
        """Return which rows are not NULL; ``None``: all."""
        if self.array is None:
            return self.valid
        return arrow_validity(self.array)

    def is_null_constant(self) -> bool:
        """Tell whether the column is the constant NULL."""
        if not self.constant:
            return False
        if self.array is not None:
            return bool(self.array.null_count)
        return self.valid is not None and not bool(self.valid)

    def slice(self, start: int, stop: int) -> Column:
        """Return rows ``start`` to ``stop``, without copying."""
        if self.constant:
            return self
        if self.array is not None:
            return Column(self.type, array=self.array.slice(start, stop - start), bounds=self.bounds)
        assert self.values is not None
        valid = None if self.valid is None else self.valid[start:stop]
        return Column(self.type, self.values[start:stop], valid, dictionary=self.dictionary, bounds=self.bounds)

    def take(self, indices: Indices) -> Column:
        """Return the rows at ``indices``."""
        if self.constant:
            return self
        if self.array is not None:
            return Column(self.type, array=take_array(self.array, indices), bounds=self.bounds)
        assert self.values is not None
        # ndarray.take is the fastest gather, but first copies all of a strided array.
        values = self.values.take(indices) if self.values.flags.c_contiguous else self.values[indices]
        valid = None if self.valid is None else self.valid.take(indices)
        return Column(self.type, values, valid, dictionary=self.dictionary, bounds=self.bounds)

    def take_padded(self, indices: Indices) -> Column:
        """Return the rows at ``indices``, NULL where an index is negative."""
        missing = indices < 0
        if not missing.any():
            return self.take(indices)
        if self.rows == 0:
            return null_column(self.type, len(indices))
        if self.array is not None:
            return Column(self.type, array=take_array(self.array, indices, missing), bounds=self.bounds)
        taken = self.take(np.where(missing, 0, indices))
        return taken.with_valid(combine_valid(taken.valid, ~missing))

    def expand(self, rows: int) -> Column:
        """Turn a constant into so many rows; another column must have them already."""
        if not self.constant:
            return self
        if self.array is not None:
            return Column(self.type, array=take_array(self.array, np.zeros(rows, np.int64)), bounds=self.bounds)
        assert self.values is not None
        values = np.full(rows, self.values)
        valid = None if self.valid is None or bool(self.valid) else np.zeros(rows, np.bool_)
        return Column(self.type, values, valid, dictionary=self.dictionary, bounds=self.bounds)

    def contiguous(self) -> Column:
        """Return the same column with its values side by side in memory."""
        if self.values is None or self.values.flags.c_contiguous:
            return self
        values = np.ascontiguousarray(self.values)
        return Column(self.type, values, self.valid, dictionary=self.dictionary, bounds=self.bounds)

    def with_type(self, data_type: pa.DataType) -> Column:
        """Return the same values under another type of the same physical form."""
        return Column(
            data_type, self.values, self.valid, dictionary=self.dictionary, array=self.array, bounds=self.bounds,
            constant=self.constant,
        )  # fmt: skip

    def with_valid(self, valid: Mask | None) -> Column:
        """Return the same values (*numbers* or *codes*) with other NULLs."""
        return Column(
            self.type, self.values, valid, dictionary=self.dictionary, bounds=self.bounds, constant=self.constant
        )

    def interval(self) -> Bounds:
        """Return a closed range that holds every non-NULL value of integers, dates, times, booleans or decimals.

        It is computed when no tighter one is known; (0, 0) when there is no value. The range of values held as numbers
        fits their NumPy type, also where bounds from statistics do not, since a filter or NULLIF has left few of them.
        """
        if self.bounds is None or not self._holds(self.bounds):
            self.bounds = self.measured()
        return self.bounds

    def _holds(self, bounds: Bounds) -> bool:
        """Tell whether the physical form could hold both ends."""
        if self.values is None or self.values.dtype.kind not in "iu":
            return True
        limits = np.iinfo(self.values.dtype)
        return within(bounds, (int(limits.min), int(limits.max)))

    def measured(self) -> Bounds:
        """Return the least and greatest value: ``interval`` may know of some that a filter has dropped since."""
        if self.array is not None:
            low, high = pc.min_max(self.array).values()
            return (
                (unscaled(low.as_py(), self.type.scale), unscaled(high.as_py(), self.type.scale))
                if low.is_valid
                else (0, 0)
            )
        values = self.numbers
        if self.valid is not None:
            values = np.atleast_1d(values)[np.atleast_1d(np.broadcast_to(self.valid, values.shape))]
        if values.size == 0:
            return (0, 0)
        return (int(values.min()), int(values.max()))

    def plain(self) -> pa.Array:
        """Return a string column as a plain Arrow array (string or large_string)."""
        if self.array is not None:
            return self.array
        assert self.dictionary is not None
        assert self.values is not None
        missing = None if self.valid is None else ~self.valid
        if self.constant:
            value = self.dictionary[int(self.values)] if self.valid is None or bool(self.valid) else None
            return pa.array([value.as_py() if value is not None else None], self.dictionary.type)
        return take_array(self.dictionary, self.values, missing)


# --- NULLs ---------------------------------------------------------------------------------------------------------


def combine_valid(*masks: Mask | None) -> Mask | None:
    """Return where all masks are true; ``None`` stands for all true."""
    result: Mask | None = None
    for mask in masks:
        if mask is not None:
            result = mask if result is None else result & mask
    return result


def arrow_validity(array: pa.Array) -> Mask | None:
    """Return which elements of an Arrow array are not NULL; ``None``: all."""
    if array.null_count == 0:
        return None
    buffer = array.buffers()[0]
    if buffer is None:
        return np.zeros(len(array), np.bool_) if pa.types.is_null(array.type) else None
    return unpack_bits(buffer, array.offset, len(array))


def unpack_bits(buffer: pa.Buffer, offset: int, count: int) -> Mask:
    """Turn a bitmap into one boolean a row."""
    first, last = offset // 8, (offset + count + 7) // 8
    data = np.frombuffer(buffer, np.uint8)[first:last]
    bits = np.unpackbits(data, bitorder="little")
    start = offset - first * 8
    return bits[start : start + count].view(np.bool_)


def pack_bits(mask: Mask | None) -> pa.Buffer | None:
    """Turn one boolean a row into a bitmap."""
    if mask is None:
        return None
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def null_column(data_type: pa.DataType, rows: int) -> Column:
    """Return so many NULLs."""
    if types.is_string(data_type):
        codes = np.zeros(rows, np.int32)
        return Column(data_type, codes, np.zeros(rows, np.bool_), dictionary=pa.array([""], pa.string()))
    dtype = storage_dtype(data_type)
    if dtype is None:
        return Column(data_type, array=pa.nulls(rows, data_type))
    return Column(data_type, np.zeros(rows, dtype), np.zeros(rows, np.bool_), bounds=(0, 0))


# --- Arrow in ------------------------------------------------------------------------------------------------------


def storage_dtype(data_type: pa.DataType) -> np.dtype[Any] | None:
    """Return the NumPy type of a logical type's *numbers* form; ``None`` where it has none."""
    if pa.types.is_boolean(data_type):
        return np.dtype(np.bool_)
    if pa.types.is_integer(data_type) or pa.types.is_floating(data_type):
        dtype: np.dtype[Any] = np.dtype(data_type.to_pandas_dtype())
        return dtype
    if pa.types.is_date32(data_type) or pa.types.is_time32(data_type):
        return np.dtype(np.int32)
    if (
        types.is_decimal(data_type)
        or pa.types.is_timestamp(data_type)
        or pa.types.is_date64(data_type)
        or pa.types.is_time64(data_type)
        or pa.types.is_duration(data_type)
    ):
        return np.dtype(np.int64)
    return None


def from_arrow(array: pa.Array | pa.ChunkedArray, bounds: Bounds | None = None) -> Column:
    """Take over an Arrow array; numbers in one piece are not copied."""
    if isinstance(array, pa.ChunkedArray) and array.num_chunks > 1 and _always_narrow(array.type):
        return _from_decimal_chunks(array, bounds)
    array = normalized_array(array)
    data_type = types.normalize(array.type)
    if pa.types.is_dictionary(array.type):
        return _from_dictionary(array)
    if types.is_decimal(data_type):
        return _from_decimal(array, data_type, bounds)
    dtype = storage_dtype(data_type)
    if dtype is None:
        return Column(data_type, array=array)
    valid = arrow_validity(array)
    if len(array) == 0:
        return Column(data_type, np.zeros(0, dtype), bounds=bounds)
    buffer = array.buffers()[1]
    if pa.types.is_boolean(data_type):
        return Column(data_type, unpack_bits(buffer, array.offset, len(array)), valid)
    values = np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array)]
    return Column(data_type, values, valid, bounds=bounds if dtype.kind in "iu" else None)


def normalized_array(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Combine chunks and turn storage types that kernels lack into those they have."""
    storage = array.type
    if pa.types.is_dictionary(storage):
        if not types.is_string(types.normalize(storage)):
            array = array.cast(storage.value_type)
            return normalized_array(array)
        if storage.value_type != pa.string():
            array = array.cast(pa.dictionary(pa.int32(), pa.string()))
        if isinstance(array, pa.ChunkedArray):
            array = array.unify_dictionaries()
    elif storage == pa.string_view() or storage == pa.binary_view():
        wide = array.nbytes >= LARGE_STRING_BYTES
        text = pa.large_string() if wide else pa.string()
        data = pa.large_binary() if wide else pa.binary()
        array = array.cast(text if storage == pa.string_view() else data)
    elif pa.types.is_decimal(storage) and not pa.types.is_decimal128(storage):
        try:
            array = array.cast(types.normalize(storage))
        except pa.ArrowInvalid as error:
            raise NumericOverflow(f"a value of type {storage} does not fit 38 digits") from error
    elif pa.types.is_large_binary(storage) and array.nbytes < LARGE_STRING_BYTES:
        array = array.cast(pa.binary())
    elif types.normalize(storage) != storage and not _is_large(storage):
        array = array.cast(types.normalize(storage))
    if isinstance(array, pa.ChunkedArray):
        if pa.types.is_string(array.type) and array.num_chunks > 1 and array.nbytes >= LARGE_STRING_BYTES:
            array = array.cast(pa.large_string())
        if array.num_chunks == 1:
            return array.chunk(0)
        return array.combine_chunks() if array.num_chunks else pa.array([], array.type)
    return array


def _from_dictionary(array: pa.DictionaryArray) -> Column:
    dictionary = array.dictionary
    if dictionary.null_count or len(dictionary.unique()) != len(dictionary):
        array = array.cast(dictionary.type).dictionary_encode()
        dictionary = array.dictionary
    if len(dictionary) == 0:
        return null_column(pa.string(), len(array))
    indices = from_arrow(array.indices)
    assert indices.values is not None
    return Column(pa.string(), indices.values, indices.valid, dictionary=dictionary)


def _always_narrow(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(data_type)) and data_type.precision <= types.NARROW_DECIMAL_DIGITS


def _from_decimal_chunks(array: pa.ChunkedArray, bounds: Bounds | None) -> Column:
    """Put the 64-bit halves of several pieces side by side: half the bytes that combining the pieces would write."""
    values = np.empty(len(array), np.int64)
    valid = np.ones(len(array), np.bool_) if array.null_count else None
    start = 0
    for piece in array.chunks:
        stop = start + len(piece)
        if stop > start:
            words = np.frombuffer(piece.buffers()[1], np.int64)
            values[start:stop] = words[2 * piece.offset : 2 * (piece.offset + len(piece)) : 2]
            known = arrow_validity(piece)
            if valid is not None and known is not None:
                valid[start:stop] = known
        start = stop
    return Column(types.normalize(array.type), values, valid, bounds=bounds)


def _from_decimal(array: pa.Array, data_type: pa.DataType, bounds: Bounds | None) -> Column:
    if len(array) == 0:
        return Column(data_type, np.zeros(0, np.int64), bounds=bounds)
    words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    low, high = words[0::2], words[1::2]
    valid = arrow_validity(array)
    fits = data_type.precision <= types.NARROW_DECIMAL_DIGITS or (bounds is not None and within(bounds, INT64))
    if not fits:
        narrow = (low >> 63) == high
        fits = bool(narrow.all() if valid is None else (narrow | ~valid).all())
    if not fits:
        return Column(data_type, array=array, bounds=bounds)
    return Column(data_type, low, valid, bounds=bounds)


# --- Arrow out -----------------------------------------------------------------------------------------------------


def to_arrow(column: Column) -> pa.Array:
    """Give the column as an Arrow array of its logical type (large_string where a string array cannot hold it)."""
    if column.array is not None:
        if pa.types.is_large_string(column.array.type) and column.array.nbytes < LARGE_STRING_BYTES:
            return column.array.cast(pa.string())
        return column.array
    if column.dictionary is not None:
        return column.plain()
    values = column.numbers
    validity = pack_bits(column.valid)
    if pa.types.is_boolean(column.type):
        data = pack_bits(values)
    elif types.is_decimal(column.type):
        words = np.empty((len(values), 2), np.int64)
        words[:, 0] = values
        np.right_shift(values, 63, out=words[:, 1])
        data = pa.py_buffer(words)
    else:
        data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(column.type, len(values), [validity, data])


def take_array(array: pa.Array, indices: Values, missing: Mask | None = None) -> pa.Array:
    """Gather from an Arrow array, NULL where ``missing``; text past 2 GiB comes out as large_string."""
    positions = pa.array(indices, mask=missing)
    try:
        return array.take(positions)
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        if not pa.types.is_string(array.type):
            raise
        return array.cast(pa.large_string()).take(positions)


# --- putting together ----------------------------------------------------------------------------------------------


def concatenate(columns: list[Column]) -> Column:
    """Put columns of one type one below the other."""
    if len(columns) == 1:
        return columns[0]
    first = columns[0]
    bounds = union_bounds([column.bounds for column in columns if column.rows])
    if all(column.is_numbers for column in columns):
        values = np.concatenate([column.numbers for column in columns])
        return Column(first.type, values, concatenate_valid(columns), bounds=bounds)
    if all(column.dictionary is first.dictionary and column.dictionary is not None for column in columns):
        values = np.concatenate([column.values for column in columns if column.values is not None])
        return Column(first.type, values, concatenate_valid(columns), dictionary=first.dictionary)
    if all(column.dictionary is not None for column in columns):
        chunks = [encoded(column) for column in columns]
        return from_arrow(pa.chunked_array(chunks))
    arrays = [to_arrow(column) for column in columns]
    wide = next((array.type for array in arrays if _is_large(array.type)), None)
    if types.is_decimal(first.type) and len({array.type for array in arrays}) > 1:  # some fit into 64 bits
        wide = pa.decimal128(types.MAX_DECIMAL_DIGITS, first.type.scale)
    if wide is not None:
        arrays = [array.cast(wide) for array in arrays]
    return from_arrow(pa.chunked_array(arrays), bounds)


def _is_large(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(data_type) or pa.types.is_large_binary(data_type))


def encoded(column: Column) -> pa.DictionaryArray:
    """Give a column in *codes* form as an Arrow dictionary array."""
    missing = None if column.valid is None else ~column.valid
    codes = pa.array(column.values, mask=missing).cast(pa.int32())
    return pa.DictionaryArray.from_arrays(codes, column.dictionary)


def concatenate_valid(columns: Sequence[Column]) -> Mask | None:
    """Return which rows of columns, one below the other, are not NULL; ``None``: all."""
    if all(column.valid is None for column in columns):
        return None
    return np.concatenate([np.ones(c.rows, np.bool_) if c.valid is None else c.valid for c in columns])


def dictionary_encode(column: Column) -> Column:
    """Turn a string column into *codes* form."""
    if column.dictionary is not None:
        return column
    assert column.array is not None
    array = column.array.dictionary_encode()
    if len(array.dictionary) == 0:
        return null_column(column.type, len(array))
    indices = from_arrow(array.indices)
    return Column(column.type, indices.values, indices.valid, dictionary=array.dictionary)


# --- ranges --------------------------------------------------------------------------------------------------------


def within(inner: Bounds, outer: Bounds) -> bool:
    """Tell whether a range lies in another."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def union_bounds(ranges: list[Bounds | None]) -> Bounds | None:
    """Return the smallest range that holds all; ``None`` when one is not known."""
    known = [bounds for bounds in ranges if bounds is not None]
    if len(known) != len(ranges) or not known:
        return None
    return (min(low for low, _ in known), max(high for _, high in known))


def unscaled(value: Any, scale: int) -> int:
    """Return a decimal's digits as an integer: ``value * 10**scale``."""
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits)))
    shift = exponent + scale
    number *= 10 ** max(shift, 0)
    number //= 10 ** max(-shift, 0)
    return int(-number if sign else number)
