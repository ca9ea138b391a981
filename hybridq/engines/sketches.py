"""Approximate numbers of distinct values, by the least hashes.

A sketch is the ``SKETCH_SIZE`` least of the hashes of all values, each once. It does not depend on how rows are cut
into chunks, and the union of two sketches, cut again, is the sketch of both. Fewer hashes than that are an exact count;
else the greatest of them tells how dense hashes lie, with a standard error of 1 / sqrt(SKETCH_SIZE - 2), 1.6 %.
(Bar-Yossef et al. 2002; Beyer et al. 2007 for the estimator.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hybridq import types
from hybridq.engines.column import Column, Indices, Values
from hybridq.engines.decimals import to_integers
from hybridq.engines.frame import BLOCK_ROWS
from hybridq.engines.grouped import GroupedRows, list_lengths, lists_of
from hybridq.engines.grouping import float_bits
from hybridq.errors import Unsupported
from hybridq.plan.expressions import Call

SKETCH_SIZE = 4096
WORD = 8

LONG_BYTES = 256
"""Texts that are longer are hashed in a way that does not take a step for each of their words."""

BLOCK_WORDS = 1 << 16
"""Words of long texts that are hashed together: what they need meanwhile stays in a core's own cache."""

FEW_GROUPS = 16
"""Groups up to which the values of one after the other are picked out."""

CANDIDATES = 4 * SKETCH_SIZE
"""Least values among which those of a sketch are looked for first."""

Hashes = npt.NDArray[np.uint64]


def hashes(rows: GroupedRows) -> Column:
    """Return the sketch of each group's values."""
    rows = rows.known()
    return _least(rows, _hashed(rows.columns[0]).view(np.int64))


def merge_hashes(rows: GroupedRows) -> Column:
    """Merge sketches."""
    rows = rows.unnested()
    return _least(rows, rows.columns[0].numbers)


def _least(rows: GroupedRows, values: Indices) -> Column:
    codes = rows.codes
    if 0 < rows.groups <= FEW_GROUPS:
        lists = [_least_distinct(values if rows.groups == 1 else values[codes == code]) for code in range(rows.groups)]
        values = np.concatenate(lists)
        codes = np.repeat(np.arange(rows.groups), [len(each) for each in lists])
    else:
        order = np.lexsort((values, codes))
        values, codes = values[order], codes[order]
        new = np.ones(len(values), np.bool_)
        new[1:] = (values[1:] != values[:-1]) | (codes[1:] != codes[:-1])
        values, codes = values[new], codes[new]
    lengths = np.bincount(codes, minlength=rows.groups)
    starts = np.cumsum(lengths) - lengths
    kept = np.arange(len(values)) - starts[codes] < SKETCH_SIZE
    return lists_of(pa.array(values[kept]), np.minimum(lengths, SKETCH_SIZE), rows.call.type)


def _least_distinct(values: Indices) -> Indices:
    """Return the least values, each once, in order: as many as a sketch has."""
    if len(values) > CANDIDATES:
        # To sort all takes most of the time, and repeated values seldom leave too few of these.
        found = np.unique(np.partition(values, CANDIDATES)[:CANDIDATES])
        if len(found) > SKETCH_SIZE:
            return found[:SKETCH_SIZE]
    return np.unique(values)[:SKETCH_SIZE]


def estimate_distinct(call: Call, operands: list[Column]) -> Column:
    """Return the number of distinct values that a sketch stands for."""
    array = operands[0].array
    assert array is not None
    lengths = list_lengths(array)
    values = array.flatten().to_numpy(zero_copy_only=False)
    greatest = np.append(values, 0)[np.maximum(np.cumsum(lengths) - 1, 0)]
    # Hashes are spread evenly over the signed 64-bit integers.
    share = (greatest.astype(np.float64) + 2.0**63) / 2.0**64
    with np.errstate(all="ignore"):
        estimate = np.where(lengths < SKETCH_SIZE, lengths, np.rint((SKETCH_SIZE - 1) / share))
    return Column(call.type, estimate.astype(np.uint64))


def _hashed(column: Column) -> Hashes:
    """Hash values so that equal ones have equal hashes, whatever form the column has."""
    if types.is_string(column.type) or pa.types.is_binary(column.type):
        return _hashed_text(column)
    if column.array is None:
        values = column.numbers
        if values.dtype.kind == "f":
            values = float_bits(values)
        if values.dtype == np.uint64:
            return _mixed(values, np.zeros(len(values), np.uint64))
        signed = values.astype(np.int64)
        return _mixed(signed.view(np.uint64), (signed >> 63).view(np.uint64))
    if types.is_decimal(column.type):
        integers, _ = to_integers(column)
        mask = 2**64 - 1
        return _mixed((integers & mask).astype(np.uint64), ((integers >> 64) & mask).astype(np.uint64))
    raise Unsupported(f"approx_distinct of values of type {column.type} is not supported")


def _hashed_text(column: Column) -> Hashes:
    if column.dictionary is not None:
        assert column.values is not None
        return _hashed_bytes(column.dictionary).take(column.values)
    assert column.array is not None
    return _hashed_bytes(column.array)


def _hashed_bytes(array: pa.Array) -> Hashes:
    """Hash text or binary values: all of them at the same time, eight bytes after eight bytes."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    stored = np.frombuffer(array.buffers()[1], np.int64 if large else np.int32)
    offsets: Indices = stored[array.offset : array.offset + len(array) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + WORD, np.uint8)
    if last > first:
        data[:-WORD] = np.frombuffer(array.buffers()[2], np.uint8)[first:last]
    # The word that begins at each byte.
    words = np.ndarray(len(data) - WORD + 1, np.dtype("<u8"), data, strides=(1,))
    begins, lengths = offsets[:-1] - first, offsets[1:] - offsets[:-1]
    found = np.empty(len(lengths), np.uint64)
    long = np.flatnonzero(lengths > LONG_BYTES)
    short_lengths = lengths if len(long) == 0 else np.where(lengths > LONG_BYTES, 0, lengths)
    for start in range(0, len(lengths), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        found[part] = _hashed_words(words, begins[part], short_lengths[part])
    if len(long):
        found[long] = _hashed_long(words, begins[long], lengths[long])
    return found


def _hashed_long(words: Hashes, begins: Indices, lengths: Indices) -> Hashes:
    """Hash long values: all their words at the same time, a block of words after the other.

    Which words are where decides, for each is mixed with its place before they are added.
    """
    counts = -(-lengths // WORD)
    ends = np.cumsum(counts)  # of each value's words among all of them
    sums = np.zeros(len(lengths), np.uint64)
    for start in range(0, int(ends[-1]), BLOCK_WORDS):
        stop = min(start + BLOCK_WORDS, int(ends[-1]))
        low, high = np.searchsorted(ends, (start, stop - 1), side="right")
        own = np.arange(low, high + 1)
        firsts = np.maximum(ends[own] - counts[own], start)
        rows = np.repeat(own, np.minimum(ends[own], stop) - firsts)
        place = np.arange(start, stop) - (ends[rows] - counts[rows])
        unused = (WORD - np.minimum(lengths[rows] - place * WORD, WORD)).astype(np.uint64) * np.uint64(8)
        word = words[begins[rows] + place * WORD] & (np.uint64(2**64 - 1) >> unused)
        sums[own] += np.add.reduceat(_scrambled(word ^ _scrambled(place)), firsts - start)
    return _scrambled(sums ^ _scrambled(lengths))


def _hashed_words(words: Hashes, begins: Indices, lengths: Indices) -> Hashes:
    """Hash values that begin at some of the words and have so many bytes."""
    found = _scrambled(lengths)
    longest, shortest = int(lengths.max(initial=0)), int(lengths.min(initial=0))
    rows = np.flatnonzero(lengths)
    for done in range(0, longest, WORD):
        whole = done + WORD <= shortest  # then nothing of the word is another value's, and no value ends before it
        word = words[(begins if whole else begins[rows]) + done]
        if whole:
            found = _scrambled(found ^ word)
            continue
        left = lengths[rows] - done
        unused = (WORD - np.minimum(left, WORD)).astype(np.uint64) * np.uint64(8)
        found[rows] = _scrambled(found[rows] ^ (word & (np.uint64(2**64 - 1) >> unused)))
        rows = rows[left > WORD]
    return found


def _mixed(low: Hashes, high: Hashes) -> Hashes:
    return _scrambled(low ^ _scrambled(high))


def _scrambled(values: Values) -> Hashes:
    """Spread 64-bit integers evenly: two rounds of multiplication and shift, each of which can be undone."""
    values = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: Hashes = values ^ (values >> np.uint64(31))
    return result
