"""Finding a literal in many strings at once: NumPy compares the whole text buffer, faster than pyarrow's search."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines.column import Indices, Mask, Values

SCAN_BYTES = 1 << 16
"""Bytes of text compared at a time: they stay in the cache."""
FIRST_BYTES = 3
"""Bytes compared everywhere; later ones only where these match."""


def rows_containing(array: pa.Array, literal: str) -> Indices:
    """Return which strings of an Arrow array contain a literal, ascending; NULL contains nothing."""
    word = np.frombuffer(literal.encode(), np.uint8)
    if len(word) < FIRST_BYTES or len(array) == 0:
        found = pc.match_substring(array, pattern=literal).fill_null(False)
        return np.flatnonzero(found.to_numpy(zero_copy_only=False))
    validity, offsets_buffer, text = array.buffers()
    wide = pa.types.is_large_string(array.type)
    offsets: Values = np.frombuffer(offsets_buffer, np.int64 if wide else np.int32)[
        array.offset : array.offset + len(array) + 1
    ]
    if text is None:
        return np.zeros(0, np.int64)
    positions = _positions(np.frombuffer(text, np.uint8)[offsets[0] : offsets[-1]], word) + offsets[0]
    rows: Indices = np.searchsorted(offsets, positions, side="right") - 1
    # A hit that runs over the end of its string is none; neighbours in the buffer are unrelated.
    rows = rows[positions + len(word) <= offsets[rows + 1]]
    if len(rows):
        rows = rows[np.concatenate(([True], rows[1:] != rows[:-1]))]
    if validity is not None and array.null_count:
        valid: Mask = pc.is_valid(array).to_numpy(zero_copy_only=False)
        rows = rows[valid[rows]]
    return rows


def _positions(text: Values, word: Values) -> Indices:
    """Return where a word of at least three bytes starts in a text."""
    found = []
    length = len(word)
    for start in range(0, len(text) - length + 1, SCAN_BYTES):
        window = text[start : start + SCAN_BYTES + length - 1]
        count = len(window) - length + 1
        match = window[:count] == word[0]
        for place in range(1, FIRST_BYTES):
            match &= window[place : place + count] == word[place]
        hits = np.flatnonzero(match)
        for place in range(FIRST_BYTES, length):
            if len(hits) == 0:
                break
            hits = hits[window[hits + place] == word[place]]
        found.append(hits + start)
    everywhere: Indices = np.concatenate(found) if found else np.zeros(0, np.int64)
    return everywhere
