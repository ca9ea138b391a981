"""The split: rows go to partitions by a hash of their key columns.

Rows with equal keys go to the same partition, whatever chunk and worker they are on and in whatever form their column
is stored: integers of any width, plain and dictionary-encoded texts, 0.0 and -0.0, all NaNs, all NULLs. One sort of
the partition numbers puts a partition's rows side by side, so that a piece is a slice.

Both engines use this code: what a GPU computes comes back as Arrow, and is split where it arrives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.types import is_interval, is_text

Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

MOST_PARTITIONS = 1 << 16
"""So many partitions can be numbered with 16 bits, which NumPy sorts by counting."""

BLOCK_ROWS = 1 << 15
"""Rows hashed at a time: what is computed on the way stays in a core's own cache."""

LONG_TEXT = 1 << 16
"""Bytes of a text from which it is hashed alone: shorter ones are hashed eight bytes at a time, all texts at once."""

_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)
_FINISHER = np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x6A09E667F3BCC909)
_NOT_A_NUMBER = np.uint64(0x7FF8000000000000)
_MASKS = np.array([(1 << (8 * count)) - 1 for count in range(9)], np.uint64)


@dataclass(frozen=True, slots=True)
class Split:
    """A table whose rows are ordered by partition.

    Attributes
    ----------
    table : pyarrow.Table
    starts : array of int64
        Where each partition begins; one more for the end of the last.
    """

    table: pa.Table
    starts: Numbers

    def piece(self, first: int, stop: int | None = None) -> pa.Table:
        """Return the rows of partitions ``first`` to ``stop`` (of one alone, if ``None``)."""
        start, end = int(self.starts[first]), int(self.starts[first + 1 if stop is None else stop])
        return self.table.slice(start, end - start)


def split(table: pa.Table, keys: Sequence[str], partitions: int, round_number: int = 0) -> Split:
    """Order a table's rows by partition.

    Parameters
    ----------
    table : pyarrow.Table
        Of normalised types: Arrow cannot reorder views.
    keys : sequence of str
        At least one column.
    partitions : int
        From 1 to ``MOST_PARTITIONS``.
    round_number : int
        Another one sends rows elsewhere: for splitting a partition once more.

    Raises
    ------
    TypeError
        A key is of a type that ``hybridq.types.is_splittable`` does not name.
    """
    numbers = partition_numbers(table, keys, partitions, round_number)
    starts = np.zeros(partitions + 1, np.int64)
    np.cumsum(np.bincount(numbers, minlength=partitions), out=starts[1:])
    if partitions == 1:
        return Split(table, starts)
    order = np.argsort(numbers, kind="stable")
    return Split(table.take(pa.array(order)), starts)


def select(table: pa.Table, keys: Sequence[str], partitions: int, number: int, round_number: int) -> pa.Table:
    """Return the rows of one partition, in their order; see ``split``."""
    if partitions == 1:
        return table
    return table.filter(pa.array(partition_numbers(table, keys, partitions, round_number) == number))


def partition_numbers(
    table: pa.Table, keys: Sequence[str], partitions: int, round_number: int = 0
) -> npt.NDArray[np.uint16]:
    """Return the partition of each row; see ``split``."""
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise ValueError(f"from 1 to {MOST_PARTITIONS} partitions, not {partitions}")
    hashes = hash_rows([table.column(key) for key in keys])
    hashes = _mixed(hashes + np.uint64(int(_STEP) * (round_number + 1) % 2**64))
    # The upper bits, scaled: as even as a remainder, and faster.
    return ((hashes >> np.uint64(32)) * np.uint64(partitions) >> np.uint64(32)).astype(np.uint16)


def hash_rows(columns: Sequence[pa.ChunkedArray]) -> Hashes:
    """Return a hash of each row's values; equal values have equal hashes."""
    if not columns:
        raise ValueError("a split needs a key")
    found = _hash_column(columns[0])
    for column in columns[1:]:
        found = _mixed(found * _MULTIPLIER + _hash_column(column))
    return found


def _hash_column(column: pa.ChunkedArray) -> Hashes:
    return np.concatenate([np.zeros(0, np.uint64), *(_hash_array(chunk) for chunk in column.chunks)])


def _hash_array(array: pa.Array) -> Hashes:
    if pa.types.is_null(array.type):
        return np.full(len(array), _NULL, np.uint64)
    if pa.types.is_dictionary(array.type):
        return _hash_dictionary(array)
    found = np.empty(len(array), np.uint64)
    for start in range(0, len(array), BLOCK_ROWS):
        found[start : start + BLOCK_ROWS] = _hash_block(array.slice(start, BLOCK_ROWS))
    return found


def _hash_block(array: pa.Array) -> Hashes:
    found = _mixed(_hash_text(array) if is_text(array.type) else _words(array))
    if array.null_count:
        found[~_booleans(array.is_valid())] = _NULL
    return found


def _hash_dictionary(array: pa.DictionaryArray) -> Hashes:
    # One more entry, which NULL refers to.
    values = np.append(_hash_array(array.dictionary), _NULL)
    indices = array.indices.cast(pa.int64())
    codes = pc.fill_null(indices, len(values) - 1) if indices.null_count else indices
    found: Hashes = values[codes.to_numpy(zero_copy_only=False)]
    return found


def _words(array: pa.Array) -> Hashes:
    """Return a 64-bit word for each value of a fixed-width type; what NULL gets is of no account."""
    data_type, rows = array.type, len(array)
    if pa.types.is_boolean(data_type):
        array, data_type = array.cast(pa.uint8()), pa.uint8()
    number_type = _whole_numbers(data_type)
    if number_type is not None:
        return _values(array, number_type).astype(np.int64).view(np.uint64)
    if pa.types.is_floating(data_type):
        numbers = _values(array, np.dtype(f"f{data_type.bit_width // 8}")).astype(np.float64)
        words = np.where(np.isnan(numbers), _NOT_A_NUMBER, numbers.view(np.uint64))
        return np.where(numbers == 0, np.uint64(0), words)  # -0.0 is 0.0
    if pa.types.is_decimal128(data_type):
        pairs = _values(array, np.dtype("V16")).view(np.uint64).reshape(rows, 2)
        return _mixed(pairs[:, 1] + _STEP) ^ pairs[:, 0]
    raise TypeError(f"a split by a key of type {data_type} is not possible")


def _values(array: pa.Array, number_type: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """Return the values as they are in memory."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), number_type)
    return np.frombuffer(buffer, number_type, len(array), array.offset * number_type.itemsize)


def _hash_text(array: pa.Array) -> Hashes:
    """Hash texts, eight bytes of each of them at a time."""
    if not (pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)):
        plain = pa.types.is_string(array.type) or pa.types.is_binary(array.type)
        if not plain:  # views, and binary values of one length
            array = array.cast(pa.large_binary() if pa.types.is_fixed_size_binary(array.type) else _large(array.type))
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    rows = len(array)
    if rows == 0:
        return np.zeros(0, np.uint64)
    _, places, content = array.buffers()
    ends = np.frombuffer(places, np.int64 if wide else np.int32, rows + 1, array.offset * (8 if wide else 4))
    ends = ends.astype(np.int64) - int(ends[0])
    lengths = np.diff(ends)
    if array.null_count:
        lengths[~_booleans(array.is_valid())] = 0
    hashes: Hashes = lengths.view(np.uint64) * _STEP
    size = int(ends[-1])
    if size == 0:
        return hashes
    first = int(np.frombuffer(places, np.int64 if wide else np.int32, 1, array.offset * (8 if wide else 4))[0])
    padded = np.zeros(size + 8, np.uint8)
    padded[:size] = np.frombuffer(content, np.uint8, size, first)
    words: Hashes = np.ndarray((size + 1,), np.uint64, padded, strides=(1,))
    chosen = np.flatnonzero((lengths > 0) & (lengths < LONG_TEXT))
    at, left = ends[chosen], lengths[chosen]
    while len(chosen):
        mixed = (hashes[chosen] ^ (words[at] & _MASKS[np.minimum(left, 8)])) * _MULTIPLIER
        hashes[chosen] = mixed ^ (mixed >> np.uint64(32))
        more = left > 8
        chosen, at, left = chosen[more], at[more] + 8, left[more] - 8
    for row in np.flatnonzero(lengths >= LONG_TEXT):
        digest = hashlib.blake2b(padded[ends[row] : ends[row] + lengths[row]].tobytes(), digest_size=8)
        hashes[row] = np.frombuffer(digest.digest(), np.uint64)[0]
    return hashes


def _large(data_type: pa.DataType) -> pa.DataType:
    return pa.large_string() if data_type == pa.string_view() else pa.large_binary()


def _whole_numbers(data_type: pa.DataType) -> np.dtype[np.generic] | None:
    """Return how values of a type are in memory that are whole numbers there; ``None``: they are not."""
    if pa.types.is_integer(data_type):
        sign = "u" if pa.types.is_unsigned_integer(data_type) else "i"
        return np.dtype(f"{sign}{data_type.bit_width // 8}")
    if pa.types.is_temporal(data_type) and not is_interval(data_type):
        return np.dtype(f"i{data_type.bit_width // 8}")
    return None


def _booleans(array: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return found


def _mixed(words: Hashes) -> Hashes:
    """Spread every bit over all others."""
    words = words ^ (words >> np.uint64(30))
    words *= _MULTIPLIER
    words ^= words >> np.uint64(27)
    words *= _FINISHER
    words ^= words >> np.uint64(31)
    return words
