"""Joins: a build side with its lookup table, and probes against it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from hybridq.config import JoinMethod
from hybridq.engines.column import Column, Indices, Mask, Values
from hybridq.engines.comparison import is_true
from hybridq.engines.compiled import KERNELS
from hybridq.engines.evaluate import Evaluator
from hybridq.engines.frame import Block, CpuFrame, blocks_of
from hybridq.engines.joinkeys import CompositeEncoder
from hybridq.engines.lookup import Lookup, make_lookup
from hybridq.engines.protocol import ProbeKind
from hybridq.plan.expressions import Column as ColumnReference
from hybridq.plan.expressions import Expression

PAIR_BLOCK = 1 << 18
"""Pairs of rows that a residual is evaluated on at a time."""

PRESENCE_CODES = 1 << 24
"""Range of keys up to which a table of one byte a key tells which are there, whatever the number of rows."""
PRESENCE_FACTOR = 16

BITS_CODES = 1 << 24
"""The same of a table of one bit a key: 2 MiB."""
BITS_FACTOR = 256


class CpuBuildSide:
    """The build side of a join.

    What is needed to find matches is made when it is first asked for, since to know only whether there is a match takes
    less: see ``_Matching`` and ``_presence``.
    """

    def __init__(self, frame: CpuFrame, keys: Sequence[str], method: JoinMethod = "auto") -> None:
        self.frame = frame.compact()
        self._keys = tuple(keys)
        self._method = method
        self.encoder = CompositeEncoder([self.frame.columns[key].contiguous() for key in keys], self.frame.rows)
        self._codes, self._known = self.encoder.build_codes, self.encoder.build_known
        del self.encoder.build_codes, self.encoder.build_known
        self._lock = threading.RLock()
        self._bytes = 0

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return self.frame.rows

    @property
    def nbytes(self) -> int:
        """Return the bytes held."""
        return self.frame.nbytes + self.encoder.nbytes + self._codes.nbytes + self._bytes

    @property
    def matching(self) -> _Matching:
        """Return the rows of each key."""
        with self._lock:
            return self._matching

    @cached_property
    def _matching(self) -> _Matching:
        found = _Matching.of(self._codes, self._known, self.encoder.size, self._method)
        self._bytes += found.nbytes
        return found

    @cached_property
    def _presence(self) -> Mask | None:
        """Return for each code whether a row has it; ``None`` where codes are too far apart for such a table."""
        if self._method != "auto" or self.encoder.size > max(PRESENCE_CODES, PRESENCE_FACTOR * len(self._codes)):
            return None
        table = np.zeros(self.encoder.size, np.bool_)
        table[self._codes if self._known is None else self._codes[self._known]] = True
        self._bytes += table.nbytes
        return table

    @cached_property
    def _bits(self) -> Values | None:
        """Return a bit for each code, set if a row has it, and a bit that is not; ``None`` as for ``_presence``."""
        kernels = KERNELS.module
        if kernels is None or self._method != "auto" or self.encoder.size > max(BITS_CODES, BITS_FACTOR * self.rows):
            return None
        words = np.zeros((self.encoder.size >> 6) + 1, np.uint64)
        kernels.set_bits(np.ascontiguousarray(self._codes if self._known is None else self._codes[self._known]), words)
        self._bytes += words.nbytes
        return words

    def present(self, frame: CpuFrame, keys: Sequence[Expression]) -> Mask | None:
        """Return for each stored row whether its key is there; ``None``: that is not known without more ado."""
        if len(keys) != 1 or not isinstance(keys[0], ColumnReference):
            return None
        return self.present_in(frame.columns[str(keys[0])])

    def present_in(self, column: Column) -> Mask | None:
        """Return for each row of a key whether it is there; ``None``: that is not known without more ado.

        It is for one key of integers, dates or narrow decimals: a compiled loop looks at one bit a row.
        """
        kernels, range_of_codes = KERNELS.module, self.encoder.number_range
        if kernels is None or range_of_codes is None or not column.is_numbers:
            return None
        if column.numbers.dtype not in (np.int32, np.int64):
            return None
        with self._lock:
            bits = self._bits
        if bits is None:
            return None
        found = np.empty(column.rows, np.bool_)
        kernels.bits_of(np.ascontiguousarray(column.numbers), *range_of_codes, bits, found)
        return found if column.valid is None else found & column.valid

    @property
    def most_matches(self) -> int:
        """Return how many rows share one key at most."""
        counts = self.matching.counts
        return min(self.rows, 1) if counts is None else int(counts.max(initial=0))

    def find(self, columns: list[Column], rows: int) -> Values:
        """Return the position of each probing row's key among the distinct keys, -1 where there is none."""
        codes, known = self.encoder.encode(columns, rows)
        positions = self.matching.lookup.find(codes)
        return positions if known is None else np.where(known, positions, -1)

    def contains(self, columns: list[Column], rows: int) -> Mask:
        """Return for each probing row whether its key is there."""
        with self._lock:
            presence = self._presence
        if presence is None:
            return self.find(columns, rows) >= 0
        codes, known = self.encoder.encode(columns, rows)
        found = presence.take(codes)
        return found if known is None else found & known

    @cached_property
    def without_first_key(self) -> CpuBuildSide:
        """Return the same rows by the other keys."""
        return CpuBuildSide(self.frame, self._keys[1:], self._method)

    @cached_property
    def null_first_key(self) -> CpuBuildSide:
        """Return the rows whose first key is NULL, by the other keys."""
        valid = self.frame.columns[self._keys[0]].validity()
        none = np.zeros(self.frame.rows, np.bool_)
        selection = none if valid is None else ~valid
        return CpuBuildSide(CpuFrame(self.frame.columns, self.frame.rows, selection), self._keys[1:], self._method)


@dataclass(frozen=True, slots=True)
class _Matching:
    """The rows of each key.

    Rows are ordered by key: ``order`` lists them (``None``: they are in order) so that those of the distinct key at
    position ``p`` are ``order[starts[p]:starts[p + 1]]``. Where all keys are distinct, ``starts`` is ``None`` and row
    ``order[p]`` is the one. ``counts`` are the rows of each key.
    """

    lookup: Lookup
    order: Indices | None
    starts: Indices | None
    counts: Indices | None

    @classmethod
    def of(cls, codes: Indices, known: Mask | None, size: int, method: JoinMethod = "auto") -> _Matching:
        """Order rows by their codes, those that have one."""
        rows = None if known is None else np.flatnonzero(known)
        if rows is not None:
            codes = codes[rows]
        if bool((codes[1:] > codes[:-1]).all()):
            return cls(make_lookup(codes, size, method), rows, None, None)
        if bool((codes[1:] >= codes[:-1]).all()):  # in order, as in a table that is clustered by the key
            order, (distinct, starts) = None, _runs(codes)
        else:
            order, distinct, starts = _sorted_runs(codes, size)
        counts = None if starts is None else np.diff(starts)
        if rows is not None:
            order = rows if order is None else rows[order]
        return cls(make_lookup(distinct, size, method), order, starts, counts)

    @property
    def nbytes(self) -> int:
        """Return the bytes held."""
        tables = [array.nbytes for array in (self.order, self.starts, self.counts) if array is not None]
        return self.lookup.nbytes + sum(tables)


def _sorted_runs(codes: Indices, size: int) -> tuple[Indices, Indices, Indices | None]:
    """Order rows by code; returns the order, the distinct codes, and where each one's rows start (``None``: one)."""
    bits = len(codes).bit_length()
    if size.bit_length() + bits <= 63:
        combined = codes << bits
        combined |= np.arange(len(codes))
        combined.sort()
        order, ordered = combined & ((1 << bits) - 1), combined >> bits
    else:
        order = np.argsort(codes, kind="stable")
        ordered = codes[order]
    return order, *_runs(ordered)


def _runs(ordered: Indices) -> tuple[Indices, Indices | None]:
    """Return the distinct codes of sorted ones, and where each one's run starts (``None``: all are distinct)."""
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    if len(first) == len(ordered):
        return ordered, None
    return ordered[first], np.append(first, len(ordered))


class _Pairs(Mapping[str, Column]):
    """Columns of pairs of rows, gathered when asked for."""

    def __init__(self, left: CpuFrame, right: CpuFrame, left_rows: Indices, right_rows: Indices) -> None:
        self._left, self._right = left, right
        self._left_rows, self._right_rows = left_rows, right_rows

    def __getitem__(self, name: str) -> Column:
        if name in self._left.columns:
            return self._left.columns[name].take(self._left_rows)
        return self._right.columns[name].take_padded(self._right_rows)

    def __iter__(self) -> Iterator[str]:
        yield from self._left.columns
        yield from self._right.columns

    def __len__(self) -> int:
        return len(self._left.columns) + len(self._right.columns)

    def frame(self, names: Sequence[str]) -> CpuFrame:
        """Return some of the columns."""
        return CpuFrame({name: self[name] for name in names}, len(self._left_rows))


def _key_blocks(frame: CpuFrame, keys: Sequence[Expression]) -> Iterator[tuple[int, int, list[Column]]]:
    """Yield the keys of selected rows, block by block: from which to which of those rows, and the columns."""
    evaluator = Evaluator(keys)
    done = 0
    for start, stop, block in blocks_of(frame):
        if frame.selection is not None:
            block = block.take(np.flatnonzero(frame.selection[start:stop]))
        columns = [evaluator.evaluate(block, index).expand(block.rows) for index in range(len(keys))]
        yield done, done + block.rows, columns
        done += block.rows


def _find(frame: CpuFrame, build: CpuBuildSide, keys: Sequence[Expression]) -> Values:
    """Return for each selected row the position of its key, -1 where there is none."""
    positions = np.empty(frame.rows, np.int64)
    for start, stop, columns in _key_blocks(frame, keys):
        positions[start:stop] = build.find(columns, stop - start)
    return positions


def count_matches(frame: CpuFrame, build: CpuBuildSide, keys: Sequence[Expression]) -> int:
    """Count the pairs of an inner join, before any residual."""
    positions = _find(frame, build, keys)
    counts = build.matching.counts
    if counts is None:
        return int(np.count_nonzero(positions >= 0))
    return int(counts.take(positions[positions >= 0]).sum())


def probe_frame(
    frame: CpuFrame,
    build: CpuBuildSide,
    kind: ProbeKind,
    keys: Sequence[Expression],
    residual: Expression | None,
    output: Sequence[str],
    null_aware: bool = False,
    mark: str | None = None,
) -> CpuFrame:
    """Join; see ``Engine.probe``."""
    if kind in ("semi", "anti"):
        keep = _hits(frame, build, keys, residual)
        if kind == "anti":
            keep = ~keep
            if null_aware:
                keep &= ~_unknown(frame, build, keys, residual)
        rows = frame.selected_indices()
        if rows is not None:
            selection = np.zeros(frame.stored_rows, np.bool_)
            selection[rows[keep]] = True
            keep = selection
        return CpuFrame({name: frame.columns[name] for name in output}, frame.stored_rows, keep)
    if kind == "mark":
        frame = frame.compact()
        hits = _hits(frame, build, keys, residual)
        valid = hits | ~_unknown(frame, build, keys, residual) if null_aware else None
        marks = Column(pa.bool_(), hits, None if valid is None or valid.all() else valid)
        return CpuFrame({name: marks if name == mark else frame.columns[name] for name in output}, frame.stored_rows)
    if kind == "inner" and residual is None and (present := build.present(frame, keys)) is not None:
        return _inner(frame, build, keys[0], present).frame(output)
    positions = _find(frame, build, keys)
    rows = frame.selected_indices()
    if kind == "left" and residual is None and build.matching.starts is None:
        right = _first_rows(build, positions)
        if rows is None:
            # Every row of the left side, in order: its columns stay as they are.
            columns = {name: _either(name, frame, build, right) for name in output}
            return CpuFrame(columns, frame.stored_rows)
        return _Pairs(frame, build.frame, rows, right).frame(output)
    if residual is None:
        left, right = _pairs(build, positions, np.flatnonzero(positions >= 0))
    else:
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64)), *_passing(frame, build, positions, rows, residual)]
        left, right = (np.concatenate(side) for side in zip(*found, strict=True))
    if kind == "left":
        left, right = _padded(left, right, len(positions))
    return _Pairs(frame, build.frame, left if rows is None else rows.take(left), right).frame(output)


def _inner(frame: CpuFrame, build: CpuBuildSide, key: Expression, present: Mask) -> _Pairs:
    """Join the selected rows whose key is there."""
    rows = np.flatnonzero(present if frame.selection is None else present & frame.selection)
    keys = frame.columns[str(key)]
    positions = build.find([keys if len(rows) == frame.stored_rows else keys.take(rows)], len(rows))
    left, right = _pairs(build, positions, np.arange(len(rows)))
    return _Pairs(frame, build.frame, rows.take(left), right)


def _hits(frame: CpuFrame, build: CpuBuildSide, keys: Sequence[Expression], residual: Expression | None) -> Mask:
    """Return for each selected row whether it has a match."""
    hits = np.zeros(frame.rows, np.bool_)
    if frame.rows == 0 or build.rows == 0:
        return hits
    if residual is not None:
        for left, _ in _passing(frame, build, _find(frame, build, keys), frame.selected_indices(), residual):
            hits[left] = True
        return hits
    present = build.present(frame, keys)
    if present is not None:
        return present if frame.selection is None else present[frame.selection]
    for start, stop, columns in _key_blocks(frame, keys):
        hits[start:stop] = build.contains(columns, stop - start)
    return hits


def _unknown(frame: CpuFrame, build: CpuBuildSide, keys: Sequence[Expression], residual: Expression | None) -> Mask:
    """Return for each selected row whether NULL, on either side, hides if the first keys are equal for some pair."""
    rest = keys[1:]
    unknown = _hits(frame, build.null_first_key, rest, residual)
    null = np.zeros(frame.rows, np.bool_)
    for start, stop, columns in _key_blocks(frame, keys[:1]):
        valid = columns[0].validity()
        if valid is not None:
            null[start:stop] = ~valid
    if null.any():
        rows = frame.selected_indices()
        selection = np.zeros(frame.stored_rows, np.bool_)
        selection[np.flatnonzero(null) if rows is None else rows[null]] = True
        nulls = CpuFrame(frame.columns, frame.stored_rows, selection)
        unknown[null] |= _hits(nulls, build.without_first_key, rest, residual)
    return unknown


def _either(name: str, frame: CpuFrame, build: CpuBuildSide, right: Indices) -> Column:
    return frame.columns[name] if name in frame.columns else build.frame.columns[name].take_padded(right)


def _first_rows(build: CpuBuildSide, positions: Values) -> Indices:
    """Return the build row of each position, -1 where there is none. Keys are distinct."""
    order = build.matching.order
    if order is None:
        return positions.astype(np.int64, copy=False)
    if len(order) == 0:
        return np.full(len(positions), -1, np.int64)
    return np.where(positions >= 0, order.take(positions, mode="clip"), -1)


def _pairs(build: CpuBuildSide, positions: Values, hits: Indices) -> tuple[Indices, Indices]:
    """Return all pairs of one of the ``hits``, which have a position, and a build row, in the order of the former."""
    matching = build.matching
    found = positions.take(hits)
    if matching.starts is None or matching.counts is None:
        return hits, found.astype(np.int64) if matching.order is None else matching.order.take(found)
    repeats = matching.counts.take(found)
    left = np.repeat(hits, repeats)
    ends = np.cumsum(repeats)
    # Within one row's pairs: 0, 1, 2 ... from the start of its key's rows.
    right = np.arange(len(left)) + np.repeat(matching.starts.take(found) - (ends - repeats), repeats)
    return left, right if matching.order is None else matching.order.take(right)


def _passing(
    frame: CpuFrame, build: CpuBuildSide, positions: Values, rows: Indices | None, residual: Expression
) -> Iterator[tuple[Indices, Indices]]:
    """Yield the pairs that satisfy the residual, in order; only some pairs are in memory at a time."""
    evaluator = Evaluator([residual])
    hits = np.flatnonzero(positions >= 0)
    counts = build.matching.counts
    ends = np.arange(1, len(hits) + 1) if counts is None else np.cumsum(counts.take(positions.take(hits)))
    start = 0
    while start < len(hits):
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + PAIR_BLOCK, side="right")), start + 1)
        all_left, all_right = _pairs(build, positions, hits[start:stop])
        start = stop
        for first in range(0, len(all_left), PAIR_BLOCK):
            left, right = all_left[first : first + PAIR_BLOCK], all_right[first : first + PAIR_BLOCK]
            pairs = _Pairs(frame, build.frame, left if rows is None else rows.take(left), right)
            result = evaluator.evaluate(Block(pairs, len(left)), 0)
            true = is_true(result)
            if result.constant:
                true = np.full(len(left), bool(true))
            yield left[true], right[true]


def _padded(looked_up: Indices, right: Indices, rows: int) -> tuple[Indices, Indices]:
    """Add a pair with no build row (-1) for each row that is in no pair. Pairs are, and stay, in the order of rows."""
    alone = np.ones(rows, np.bool_)
    alone[looked_up] = False
    missing = np.flatnonzero(alone)
    if len(missing) == 0:
        return looked_up, right
    places = np.searchsorted(looked_up, missing)
    return np.insert(looked_up, places, missing), np.insert(right, places, -1)
