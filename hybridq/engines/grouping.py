"""Group keys as small integers.

Each key column becomes *codes*: numbers from 0 on, equal exactly for equal keys (NULL is one key, NaN is one, -0.0 is
0.0). Codes of several keys combine by mixed radix. When the possible combinations are few for the number of rows they
number the groups directly; else the combinations that occur are numbered densely.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from hybridq.engines.column import Column, Indices, Values, dictionary_encode, from_arrow, take_array, to_arrow

DIRECT_CELLS = 1 << 16
"""Combinations that are always numbered directly."""

MAX_RADIX = 2**62

SAMPLE_ROWS = 4096
"""Rows that show whether it is worth comparing all texts with those of their group's first row."""

MOST_OF_ALL = 0.25
"""Share of all rows that a sample may have."""


@dataclass(frozen=True, slots=True)
class KeyCodes:
    """Codes of one key column.

    Attributes
    ----------
    codes : array of integers
        One code a row.
    size : int
        Codes are below it.
    decode : callable
        Gives the key column for an array of codes.
    """

    codes: Values
    size: int
    decode: Callable[[Indices], Column]


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows by group.

    Attributes
    ----------
    codes : array of integers
        The cell of each row.
    cells : int
        Codes are below it; a cell may have no row.
    decode : callable
        Gives the key columns for an array of cells.
    """

    codes: Values
    cells: int
    decode: Callable[[Indices], list[Column]]


def group(columns: list[Column], rows: int) -> Groups:
    """Number the groups of rows with equal keys. At least one key column; none is a constant.

    Texts often depend on another key (``GROUP BY id, name``). Where rows that are equal on all other keys turn out to
    have equal texts, these do not take part: to compare texts takes less than to number them.
    """
    texts = [index for index, column in enumerate(columns) if _is_plain_text(column)]
    others = [index for index in range(len(columns)) if index not in texts]
    if others:
        texts = _perhaps_dependent(columns, texts, others, rows)
    if not texts or not others:
        return _group(columns, rows)
    groups = _group([columns[index] for index in others], rows)
    first = _first_rows(groups, rows)
    dependent = [index for index in texts if _depends(columns[index], first, groups.codes)]
    if not dependent:
        return _group(columns, rows)
    rest = [index for index in range(len(columns)) if index not in dependent]
    if len(rest) > len(others):
        groups = _group([columns[index] for index in rest], rows)
        first = _first_rows(groups, rows)

    def decode(cells: Indices) -> list[Column]:
        found = dict(zip(rest, groups.decode(cells), strict=True))
        found |= {index: columns[index].take(first[cells]) for index in dependent}
        return [found[index] for index in range(len(columns))]

    return Groups(groups.codes, groups.cells, decode)


def _perhaps_dependent(columns: list[Column], texts: list[int], others: list[int], rows: int) -> list[int]:
    """Return the texts of which a sample does not show that they differ where all other keys are equal.

    The sample has all rows with some values of one key, so that it has groups as a whole.
    """
    ranges = {
        index: high - low
        for index in others
        if columns[index].is_numbers and columns[index].numbers.dtype.kind in "iu"
        for low, high in [columns[index].interval()]
    }
    if rows <= 2 * SAMPLE_ROWS or not ranges:
        return texts
    values = columns[max(ranges, key=ranges.__getitem__)].numbers
    parts = 1 << (rows // SAMPLE_ROWS).bit_length()
    part = values.dtype.type(parts - 1) if parts - 1 <= np.iinfo(values.dtype).max else None
    if part is None:
        return texts
    sample = np.flatnonzero((values & part) == (values[rows // 2] & part))
    if len(sample) > MOST_OF_ALL * rows:
        return texts
    taken = {index: columns[index].take(sample) for index in (*texts, *others)}
    groups = _group([taken[index] for index in others], len(sample))
    first = _first_rows(groups, len(sample))
    return [index for index in texts if _depends(taken[index], first, groups.codes)]


def _is_plain_text(column: Column) -> bool:
    return column.dictionary is None and column.array is not None and column.array.type in ("string", "large_string")


def _first_rows(groups: Groups, rows: int) -> Indices:
    """Return the first row of each cell, -1 where it has none."""
    first = np.full(groups.cells, -1, np.int64)
    first[groups.codes[::-1]] = np.arange(rows - 1, -1, -1)
    return first


def _depends(column: Column, first: Indices, codes: Values) -> bool:
    """Tell whether the texts of all rows of a cell equal that of its first row."""
    sample = slice(0, SAMPLE_ROWS)
    return all(_equal_to_first(column, first, codes, part) for part in (sample, slice(SAMPLE_ROWS, None)))


def _equal_to_first(column: Column, first: Indices, codes: Values, part: slice) -> bool:
    array = column.plain()
    representatives = first[codes[part]]
    rows = np.arange(len(codes))[part]
    repeated = np.flatnonzero(representatives != rows)
    if len(repeated) == 0:
        return True
    texts, others = take_array(array, rows[repeated]), take_array(array, representatives[repeated])
    if array.null_count and not pc.all(pc.equal(texts.is_null(), others.is_null())).as_py():
        return False
    return bool(pc.all(pc.equal(texts, others), min_count=0).as_py())


def _group(columns: list[Column], rows: int) -> Groups:
    """Number the groups of rows with equal keys, all of which take part."""
    keys = [key_codes(column, rows) for column in columns]
    # Codes combined so far; ``steps`` undoes the combination, last step first.
    codes, size = keys[0].codes, keys[0].size
    dense: list[tuple[int, Indices]] = []
    limit = direct_limit(rows)
    for position, key in enumerate(keys[1:], 1):
        if size * key.size > MAX_RADIX:
            codes, occurring = dense_codes(codes)
            dense.append((position, occurring))
            size = len(occurring)
        # Where no row is left a key may have no value, and the next one many.
        codes = widened(codes, max(size, 1) * key.size) * key.size + key.codes
        size *= key.size
    if size > limit:
        codes, occurring = dense_codes(codes)
        dense.append((len(keys), occurring))
        size = len(occurring)

    def decode(cells: Indices) -> list[Column]:
        undo = dict(dense)
        current = cells
        found: list[Column] = []
        for position in range(len(keys) - 1, -1, -1):
            if position + 1 in undo:
                current = undo[position + 1][current]
            if position:
                current, own = np.divmod(current, keys[position].size)
            else:
                own = current
            found.append(keys[position].decode(own))
        return found[::-1]

    return Groups(codes, size, decode)


def direct_limit(rows: int) -> int:
    """Return how many cells may be addressed directly for so many rows."""
    return max(DIRECT_CELLS, 2 * rows)


def widened(codes: Values, size: int) -> Values:
    """Return codes in the smallest integer type in which numbers below ``size`` can be computed."""
    for dtype in (np.int16, np.int32):
        if size <= np.iinfo(dtype).max:
            return codes.astype(dtype, copy=False)
    return codes.astype(np.int64, copy=False)


def key_codes(column: Column, rows: int) -> KeyCodes:
    """Number the values of one key column."""
    if column.dictionary is None and column.array is not None:
        if column.array.type in ("string", "large_string"):
            column = dictionary_encode(column)
        else:
            return _encoded_by_arrow(column)
    assert column.values is not None
    if column.dictionary is not None:
        size = len(column.dictionary)
        decoded, dictionary = column.type, column.dictionary
        return _with_null(
            column.values,
            size,
            column,
            lambda codes, valid: Column(decoded, codes.astype(np.int32), valid, dictionary=dictionary),
        )
    values, data_type = column.numbers, column.type
    if values.dtype.kind == "f":
        return _float_codes(column)
    low, high = column.interval()
    dtype = values.dtype
    if values.dtype.kind != "b" and high - low >= direct_limit(rows):
        codes, occurring = dense_codes(
            values if column.valid is None else np.where(column.valid, values, values.dtype.type(low))
        )
        return _with_null(
            codes, len(occurring), column, lambda own, valid: Column(data_type, occurring[own].astype(dtype), valid)
        )
    if dtype.kind == "b":
        codes, low, high = values.view(np.int8), 0, 1
    else:
        if high - low > np.iinfo(dtype).max:
            values = values.astype(np.int64)
        codes = values if low == 0 else values - values.dtype.type(low)
        if codes.dtype == np.uint64:  # with signed codes of other keys, NumPy would make floats of them
            codes = codes.astype(np.int64)
    wide = np.uint64 if dtype.kind == "u" else np.int64  # the least value may be past 63 bits
    return _with_null(
        codes,
        high - low + 1,
        column,
        lambda own, valid: Column(
            data_type,
            (own.astype(wide) + wide(low)).astype(dtype),
            valid,
            bounds=(low, high) if dtype.kind != "b" else None,
        ),
    )


def _with_null(
    codes: Values, size: int, column: Column, decode: Callable[[Indices, npt.NDArray[np.bool_] | None], Column]
) -> KeyCodes:
    """Give NULL the code after the values' codes."""
    if column.valid is None:
        return KeyCodes(codes, size, lambda own: decode(own, None))
    wide = widened(codes, size + 1)
    codes = np.where(column.valid, wide, wide.dtype.type(size))

    def decode_nullable(own: Indices) -> Column:
        valid = own < size
        return decode(np.where(valid, own, 0), None if valid.all() else valid)

    return KeyCodes(codes, size + 1, decode_nullable)


def float_bits(values: Values) -> Values:
    """Return floats as integers that are equal exactly for equal floats: one NaN, no negative zero."""
    doubles = values.astype(np.float64) + 0.0
    doubles[np.isnan(doubles)] = np.nan
    return doubles.view(np.int64)


def _float_codes(column: Column) -> KeyCodes:
    bits = float_bits(column.numbers)
    if column.valid is not None:
        bits[~column.valid] = 0
    codes, occurring = dense_codes(bits)
    dtype, data_type = column.numbers.dtype, column.type
    doubles = occurring.view(np.float64)
    return _with_null(
        codes, len(occurring), column, lambda own, valid: Column(data_type, doubles[own].astype(dtype), valid)
    )


def _encoded_by_arrow(column: Column) -> KeyCodes:
    array = to_arrow(column)
    encoded = array.dictionary_encode()
    dictionary = from_arrow(encoded.dictionary)
    data_type = column.type
    indices = from_arrow(encoded.indices)
    size = max(len(encoded.dictionary), 1)

    def decode(own: Indices, valid: npt.NDArray[np.bool_] | None) -> Column:
        positions = own.astype(np.int64)
        return dictionary.take_padded(positions if valid is None else np.where(valid, positions, -1)).with_type(
            data_type
        )

    codes = indices.numbers if indices.valid is None else np.where(indices.valid, indices.numbers, 0)
    return _with_null(codes, size, indices, decode)


def dense_codes(values: Values) -> tuple[Values, Indices]:
    """Number the distinct integers of an array.

    Returns
    -------
    codes : array of int32 or int64
        The number of each element's value.
    occurring : array of int64
        The distinct values by number.
    """
    if values.dtype == np.uint64:
        values = values.view(np.int64)
    values = values.astype(np.int64, copy=False)
    count = len(values)
    if count == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    changes = values[1:] != values[:-1]
    if bool((values[1:] >= values[:-1]).all()):
        codes = np.zeros(count, np.int64)
        np.cumsum(changes, out=codes[1:])
        return codes, values[np.concatenate(([0], np.flatnonzero(changes) + 1))]
    low, high = int(values.min()), int(values.max())
    index_bits = count.bit_length()
    if index_bits <= 31 and (high - low).bit_length() + index_bits <= 63:
        return _dense_by_sort(values, low, index_bits)
    import pandas as pd

    codes, occurring = pd.factorize(values)
    return codes.astype(np.int64, copy=False), np.asarray(occurring)


def _dense_by_sort(values: Indices, low: int, index_bits: int) -> tuple[Values, Indices]:
    """Sort value and position as one integer: NumPy sorts integers several times faster than it argsorts or hashes."""
    combined = values - low
    combined <<= index_bits
    combined |= np.arange(len(values))
    combined.sort()
    order = combined & ((1 << index_bits) - 1)
    combined >>= index_bits
    changes = combined[1:] != combined[:-1]
    # Numbers of half the width: what limits this function is memory traffic.
    numbers = np.zeros(len(values), np.int32)
    np.cumsum(changes, out=numbers[1:])
    codes = np.empty(len(values), np.int32)
    codes[order] = numbers
    return codes, combined[np.concatenate(([0], np.flatnonzero(changes) + 1))] + low
