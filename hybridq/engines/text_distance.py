"""How far texts are from each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from hybridq.engines.column import Column, Indices
from hybridq.engines.constants import constant
from hybridq.engines.list_values import finished, rows_of
from hybridq.engines.text import any_null
from hybridq.plan.expressions import Call

BATCH = 4096
"""Pairs of texts that are looked at together, sorted by length so that they differ little in it."""

BATCH_CHARACTERS = 2**22
"""Characters of the longer texts of such pairs, all taken to be as long as the longest: fewer pairs of longer texts."""

Points = npt.NDArray[np.uint32]


def _levenshtein(call: Call, arguments: list[Column]) -> Column:
    """Return the least number of characters to insert, delete or replace that makes one text of the other."""
    if any_null(arguments):
        return constant(call.type, None)
    rows = rows_of(arguments)
    # What repeats is looked at once.
    codes = [argument.expand(rows).plain().dictionary_encode() for argument in arguments]
    known = codes[0].is_valid().to_numpy(zero_copy_only=False) & codes[1].is_valid().to_numpy(zero_copy_only=False)
    left, right = (each.indices.fill_null(0).to_numpy().astype(np.int64) for each in codes)
    width = max(len(codes[1].dictionary), 1)
    pairs, place = np.unique((left * width + right)[known], return_inverse=True)
    texts = [each.dictionary.to_pylist() for each in codes]
    lefts, rights = (
        [listed[row] for row in rows_] for listed, rows_ in zip(texts, np.divmod(pairs, width), strict=True)
    )
    sizes = np.array([max(len(one), len(other)) for one, other in zip(lefts, rights, strict=True)], np.int64)
    order = np.argsort(sizes, kind="stable")
    distances = np.zeros(len(pairs), np.int32)
    start = 0
    while start < len(pairs):
        count = min(BATCH, len(pairs) - start)
        while count > 1 and count * sizes[order[start + count - 1]] > BATCH_CHARACTERS:
            count //= 2
        part = order[start : start + count]
        start += count
        distances[part] = _distances(_points([lefts[row] for row in part]), _points([rights[row] for row in part]))
    result = np.zeros(rows, np.int32)
    result[known] = distances[place]
    return finished(Column(call.type, result, known), arguments)


def _points(texts: list[str]) -> tuple[Points, Indices]:
    """Return the code points of texts, one text a row, and their lengths."""
    lengths = np.array([len(text) for text in texts], np.int64)
    points = np.zeros((len(texts), int(lengths.max(initial=0))), np.uint32)
    points[np.arange(points.shape[1]) < lengths[:, None]] = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
    return points, lengths


def _distances(left: tuple[Points, Indices], right: tuple[Points, Indices]) -> npt.NDArray[np.int32]:
    """Return the distances of pairs, all pairs at once: Wagner and Fischer's table, a row of it after the other."""
    (a, a_lengths), (b, b_lengths) = left, right
    rows = np.arange(len(a))
    width = b.shape[1]
    ahead = np.arange(width + 1, dtype=np.int32)
    line = np.broadcast_to(ahead, (len(a), width + 1)).copy()
    found = line[rows, b_lengths].copy()
    for position in range(a.shape[1]):
        following = line + 1
        following[:, 1:] = np.minimum(following[:, 1:], line[:, :-1] + (b != a[:, position, None]))
        # An insertion comes from the left: the least of all to the left, each so many further away.
        line = np.minimum.accumulate(following - ahead, axis=1) + ahead
        done = a_lengths == position + 1
        found[done] = line[rows[done], b_lengths[done]]
    return found


KERNELS: Mapping[str, Callable[[Call, list[Column]], Column]] = {"levenshtein": _levenshtein}
