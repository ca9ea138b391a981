"""Lookup tables from 64-bit join codes to positions, built once and probed by many chunks.

Four kinds, by how densely the codes fill their range: a table of positions; a bitmap with the number of bits set
before each word (a twentieth of the memory, for sparse keys); buckets of the sorted codes, if these are spread evenly;
a hash table. Two more are there to be asked for: sorted codes that each other one is looked for in, or merged with.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from hybridq.config import JoinMethod
from hybridq.engines.column import Indices, Values
from hybridq.engines.compiled import KERNELS

DIRECT_CODES = 1 << 21
"""Range up to which a table of positions is used whatever the number of keys: 8 MiB."""
DIRECT_FACTOR = 4
BITMAP_CODES = 1 << 24
BITMAP_FACTOR = 256
WORD_BITS = 6
LARGEST_BUCKET = 8
"""Codes that share a bucket at most: all are compared."""


class Lookup(Protocol):
    """Finds the position of codes among the distinct, ascending codes that the lookup was made of."""

    @property
    def nbytes(self) -> int:
        """Return the bytes held."""

    def find(self, codes: Indices) -> Values:
        """Return the position of each code, -1 where it is none of the lookup's. Codes are in ``[0, size)``."""


class DirectLookup:
    """One position for each code of the range."""

    def __init__(self, codes: Indices, size: int) -> None:
        self._table = np.full(size, -1, np.int32)
        self._table[codes] = np.arange(len(codes), dtype=np.int32)

    @property
    def nbytes(self) -> int:
        return self._table.nbytes

    def find(self, codes: Indices) -> Values:
        return self._table.take(codes)


class BitmapLookup:
    """One bit for each code of the range; a code's position is the number of bits set before it."""

    def __init__(self, codes: Indices, size: int) -> None:
        words = (size >> WORD_BITS) + 1
        self._words = np.zeros(words, np.uint64)
        # Codes ascend: all bits of a word are one run.
        word = codes >> WORD_BITS
        bits = np.uint64(1) << (codes & 63).astype(np.uint64)
        starts = (
            np.flatnonzero(np.concatenate(([True], word[1:] != word[:-1]))) if len(codes) else np.zeros(0, np.int64)
        )
        if len(codes):
            self._words[word[starts]] = np.bitwise_or.reduceat(bits, starts)
        counts = np.bitwise_count(self._words)
        self._before = np.zeros(words, np.int32)
        np.cumsum(counts[:-1], out=self._before[1:])

    @property
    def nbytes(self) -> int:
        return self._words.nbytes + self._before.nbytes

    def find(self, codes: Indices) -> Values:
        kernels = KERNELS.module
        if kernels is not None:
            found = np.empty(len(codes), np.int32)
            kernels.find_in_bitmap(self._words, self._before, np.ascontiguousarray(codes), found)
            return found
        word = codes >> WORD_BITS
        bit = (codes & 63).astype(np.uint64)
        bits = self._words.take(word)
        hits = np.flatnonzero((bits >> bit) & np.uint64(1))
        positions = np.full(len(codes), -1, np.int32)
        below = (np.uint64(1) << bit.take(hits)) - np.uint64(1)
        positions[hits] = self._before.take(word.take(hits)) + np.bitwise_count(bits.take(hits) & below)
        return positions


class BucketLookup:
    """The sorted codes, cut into about as many ranges of equal width as there are codes."""

    def __init__(self, codes: Indices, size: int) -> None:
        self._codes = codes
        self._shift = max(size.bit_length() - len(codes).bit_length(), 0)
        counts = np.bincount(codes >> self._shift, minlength=(size >> self._shift) + 1)
        self.largest = int(counts.max(initial=0))
        self._starts = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=self._starts[1:])

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes + self._starts.nbytes

    def find(self, codes: Indices) -> Values:
        kernels = KERNELS.module
        if kernels is not None:
            found = np.empty(len(codes), np.int32)
            kernels.find_in_buckets(self._codes, self._starts, self._shift, np.ascontiguousarray(codes), found)
            return found
        positions = np.full(len(codes), -1, np.int32)
        bucket = codes >> self._shift
        place, end = self._starts.take(bucket), self._starts.take(bucket + 1)
        rows = np.flatnonzero(place < end)
        while len(rows):
            places = place.take(rows)
            hits = self._codes.take(places) == codes.take(rows)
            positions[rows[hits]] = places[hits]
            rows, places = rows[~hits], places[~hits] + 1
            place[rows] = places
            rows = rows[places < end.take(rows)]
        return positions


class HashLookup:
    """A hash table (pandas')."""

    def __init__(self, codes: Indices) -> None:
        import pandas as pd

        index: Any = pd.Index(codes)
        self._index = index
        self._bytes = codes.nbytes * 4
        # Fill the table now: the first use would, and threads share it.
        self.find(codes[:1])

    @property
    def nbytes(self) -> int:
        return self._bytes

    def find(self, codes: Indices) -> Values:
        found: Values = self._index.get_indexer(codes)
        return found


class _SortedLookup:
    """The sorted codes themselves."""

    def __init__(self, codes: Indices) -> None:
        self._codes = codes

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes


class IndexLookup(_SortedLookup):
    """Each code is looked for in the sorted ones by halving (the index of an index nested-loop join)."""

    def find(self, codes: Indices) -> Values:
        places = np.searchsorted(self._codes, codes)
        if len(self._codes) == 0:
            return np.full(len(codes), -1, np.int64)
        places[places == len(self._codes)] = 0
        return np.where(self._codes.take(places) == codes, places, -1)


class MergeLookup(_SortedLookup):
    """Sorted codes are merged with the sorted ones (a sort-merge join); others are put in order first."""

    def find(self, codes: Indices) -> Values:
        if bool((codes[1:] >= codes[:-1]).all()):
            return self._merged(codes)
        order = np.argsort(codes, kind="stable")
        positions = np.empty(len(codes), np.int64)
        positions[order] = self._merged(codes.take(order))
        return positions

    def _merged(self, codes: Indices) -> Values:
        """Return the position of each of the sorted codes, -1 where it is not there."""
        known = len(self._codes)
        if known == 0:
            return np.full(len(codes), -1, np.int64)
        # NumPy's stable sort takes two sorted runs for what they are and merges them; of equal codes ours is the first.
        order = np.argsort(np.concatenate([self._codes, codes]), kind="stable")
        ours = order < known
        before = np.cumsum(ours)[~ours] - 1  # the last of ours that is not above it
        return np.where((before >= 0) & (self._codes.take(np.maximum(before, 0)) == codes), before, -1)


def make_lookup(codes: Indices, size: int, method: JoinMethod = "auto") -> Lookup:
    """Choose and build a lookup of distinct, ascending codes in ``[0, size)``; ``method`` may leave no choice."""
    if method == "hash":
        return HashLookup(codes)
    if method == "index":
        return IndexLookup(codes)
    if method == "merge":
        return MergeLookup(codes)
    if size <= max(DIRECT_CODES, DIRECT_FACTOR * len(codes)):
        return DirectLookup(codes, size)
    if size <= max(BITMAP_CODES, BITMAP_FACTOR * len(codes)):
        return BitmapLookup(codes, size)
    if len(codes) < 2**31:
        buckets = BucketLookup(codes, size)
        if buckets.largest <= LARGEST_BUCKET:
            return buckets
    return HashLookup(codes)
