"""Join keys as codes: each key column is mapped to integers that equal values of both sides share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq import types
from hybridq.engines.column import (
    INT64,
    Column,
    Indices,
    Mask,
    combine_valid,
    from_arrow,
    to_arrow,
)
from hybridq.engines.decimals import to_integers
from hybridq.engines.grouping import float_bits
from hybridq.engines.lookup import Lookup, make_lookup

MAX_RADIX = 2**62


class KeyEncoder(Protocol):
    """Codes of one key column in the domain of the build side."""

    size: int
    """Codes are in ``[0, size)``."""

    @property
    def nbytes(self) -> int:
        """Return the bytes held."""

    def encode(self, column: Column) -> tuple[Indices, Mask | None]:
        """Return each row's code and which rows have one (``None``: all). Other rows have any code of the domain."""


class NumberEncoder:
    """Integers, dates, times, booleans and narrow decimals: the distance from the least value."""

    nbytes = 0

    def __init__(self, column: Column) -> None:
        low, high = column.interval()
        self.low = low
        self.size = high - low + 1

    def encode(self, column: Column) -> tuple[Indices, Mask | None]:
        values, valid = _as_numbers(column)
        low, high = self.low, self.low + self.size - 1
        known: Mask | None = valid
        if column.rows and not (column.bounds is not None and low <= column.bounds[0] and column.bounds[1] <= high):
            inside = (values >= low) & (values <= high)
            known = combine_valid(valid, None if inside.all() else inside)
        codes = values.astype(np.int64, copy=False)
        if known is not None:
            codes = np.where(known, codes, np.int64(low))
        return (codes if low == 0 else codes - low), known


def _as_numbers(column: Column) -> tuple[Indices, Mask | None]:
    """Return values that fit 64 bits, and which do."""
    if column.array is None:
        values = column.numbers
        if values.dtype == np.uint64:
            fits = values <= np.uint64(INT64[1])
            return values.view(np.int64), combine_valid(column.valid, None if fits.all() else fits)
        if values.dtype == np.bool_:
            return values.view(np.int8), column.valid
        return values, column.valid
    integers, valid = to_integers(column)
    fits = np.array([INT64[0] <= value <= INT64[1] for value in integers], np.bool_)
    return np.where(fits, integers, 0).astype(np.int64), combine_valid(valid, fits)


class LookupEncoder:
    """Integers too far apart for codes of their own distance, and the bits of floats: the rank of each value."""

    def __init__(self, values: Indices) -> None:
        self._values = np.unique(values)
        self.size = max(len(self._values), 1)
        low, high = (int(self._values[0]), int(self._values[-1])) if len(self._values) else (0, 0)
        self._low = low
        self._lookup: Lookup | None = None
        if high - low <= INT64[1]:
            self._lookup = make_lookup(self._values - low, high - low + 1)
        self._high = high

    @property
    def nbytes(self) -> int:
        return self._values.nbytes + (0 if self._lookup is None else self._lookup.nbytes)

    def encode_values(self, values: Indices, valid: Mask | None) -> tuple[Indices, Mask | None]:
        """Return the rank of each value."""
        if len(self._values) == 0:
            return np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)
        if self._lookup is None:
            positions = np.searchsorted(self._values, values)
            positions[positions == len(self._values)] = 0
            known = self._values[positions] == values
        else:
            inside = (values >= self._low) & (values <= self._high)
            found = self._lookup.find(np.where(inside, values, self._low) - self._low)
            known = inside & (found >= 0)
            positions = np.where(known, found, 0).astype(np.int64)
        return positions, combine_valid(valid, known)

    def encode(self, column: Column) -> tuple[Indices, Mask | None]:
        return self.encode_values(*_wide_numbers(column))


def _wide_numbers(column: Column) -> tuple[Indices, Mask | None]:
    """Return the values of a key of any number type as 64-bit integers."""
    if column.array is None and column.numbers.dtype.kind == "f":
        return float_bits(column.numbers), column.valid
    if column.array is None and column.numbers.dtype == np.uint64:
        return column.numbers.view(np.int64), column.valid
    values, valid = _as_numbers(column)
    return values.astype(np.int64, copy=False), valid


class ArrowEncoder:
    """Strings, wide decimals and other types: the position among the distinct values of the build side."""

    def __init__(self, column: Column) -> None:
        if column.dictionary is not None:
            self._distinct = column.dictionary
        else:
            self._distinct = _plain(column).unique().drop_null()
        self._type = self._distinct.type
        self.size = max(len(self._distinct), 1)

    @property
    def nbytes(self) -> int:
        return int(self._distinct.nbytes)

    def encode(self, column: Column) -> tuple[Indices, Mask | None]:
        if column.dictionary is not None:
            assert column.values is not None
            if column.dictionary is self._distinct:
                codes = column.values.astype(np.int64)
                return (codes, None) if column.valid is None else (np.where(column.valid, codes, 0), column.valid)
            table, known = self._positions(column.dictionary)
            codes = column.values if column.valid is None else np.where(column.valid, column.values, 0)
            hits = None if known is None else known[codes]
            return table[codes], combine_valid(hits, column.valid)
        return self._positions(_plain(column))

    def _positions(self, array: pa.Array) -> tuple[Indices, Mask | None]:
        if array.type != self._type:
            array = array.cast(self._type)
        found = from_arrow(pc.index_in(array, value_set=self._distinct))
        codes = found.numbers.astype(np.int64)
        if found.valid is not None:
            codes[~found.valid] = 0
        return codes, found.valid


def _plain(column: Column) -> pa.Array:
    array = to_arrow(column)
    if types.is_decimal(column.type):
        return array.cast(pa.decimal128(types.MAX_DECIMAL_DIGITS, column.type.scale))
    return array


def key_encoder(column: Column) -> KeyEncoder:
    """Choose an encoder for a key column of the build side."""
    if column.array is not None or column.dictionary is not None:
        return ArrowEncoder(column)
    values = column.numbers
    valid = column.valid
    if values.dtype.kind == "f" or (values.dtype == np.uint64 and column.interval()[1] > INT64[1]):
        numbers, _ = _wide_numbers(column)
        return LookupEncoder(numbers if valid is None else numbers[valid])
    low, high = column.interval()
    if high - low >= MAX_RADIX:
        numbers, _ = _wide_numbers(column)
        return LookupEncoder(numbers if valid is None else numbers[valid])
    return NumberEncoder(column)


@dataclass(frozen=True, slots=True)
class _Densify:
    """After so many keys, combined codes are replaced by their rank among those of the build side."""

    encoder: LookupEncoder


class CompositeEncoder:
    """Codes of several key columns, combined by mixed radix. No columns: every row has code 0.

    ``build_codes`` and ``build_known`` are those of the build side itself.
    """

    def __init__(self, columns: list[Column], rows: int) -> None:
        self._columns = [key_encoder(column) for column in columns]
        self._dense: dict[int, _Densify] = {}
        self.size = 1
        codes: Indices = np.zeros(rows, np.int64)
        known: Mask | None = None
        for position, (encoder, column) in enumerate(zip(self._columns, columns, strict=True)):
            if self.size * encoder.size > MAX_RADIX:
                ranks = LookupEncoder(codes if known is None else codes[known])
                self._dense[position] = _Densify(ranks)
                codes, found = ranks.encode_values(codes, known)
                known = combine_valid(known, found)
                self.size = ranks.size
            own, own_known = encoder.encode(column)
            codes = own if position == 0 else codes * encoder.size + own
            known = combine_valid(known, own_known)
            self.size *= encoder.size
        self.build_codes = codes
        self.build_known = known

    @property
    def number_range(self) -> tuple[int, int] | None:
        """Return the least key and how many codes there are, if a code is the distance of one key from the least."""
        if len(self._columns) != 1 or not isinstance(self._columns[0], NumberEncoder):
            return None
        return self._columns[0].low, self.size

    @property
    def nbytes(self) -> int:
        return sum(encoder.nbytes for encoder in self._columns)

    def encode(self, columns: list[Column], rows: int) -> tuple[Indices, Mask | None]:
        """Return each probing row's code, and which rows have one."""
        codes: Indices = np.zeros(rows, np.int64)
        known: Mask | None = None
        for position, (encoder, column) in enumerate(zip(self._columns, columns, strict=True)):
            if position in self._dense:
                codes, found = self._dense[position].encoder.encode_values(codes, known)
                known = combine_valid(known, found)
            own, own_known = encoder.encode(column)
            codes = own if position == 0 else codes * encoder.size + own
            known = combine_valid(known, own_known)
        return codes, known
