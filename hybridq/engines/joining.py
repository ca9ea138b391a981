"""Joins: a build side with its lookup table, and probes against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hybridq.engines.column import Column, Indices, Mask, Values
from hybridq.engines.comparison import is_true
from hybridq.engines.evaluate import Evaluator
from hybridq.engines.frame import Block, CpuFrame, blocks_of
from hybridq.engines.joinkeys import CompositeEncoder
from hybridq.engines.lookup import Lookup, make_lookup
from hybridq.engines.protocol import ProbeKind
from hybridq.plan.expressions import Expression

PAIR_BLOCK = 1 << 20
"""Pairs of rows that a residual is evaluated on at a time."""


class CpuBuildSide:
    """The build side of a join.

    Rows are ordered by key: ``order`` lists them (``None``: they are in order) so that those of the distinct key at
    position ``p`` are ``order[starts[p]:starts[p + 1]]``. Where all keys are distinct, ``starts`` is ``None`` and row
    ``order[p]`` is the one.
    """

    def __init__(self, frame: CpuFrame, keys: Sequence[str]) -> None:
        self.frame = frame.compact()
        self.encoder = CompositeEncoder([self.frame.columns[key].contiguous() for key in keys], self.frame.rows)
        codes, known = self.encoder.build_codes, self.encoder.build_known
        rows = None if known is None else np.flatnonzero(known)
        if rows is not None:
            codes = codes[rows]
        if bool((codes[1:] > codes[:-1]).all()):
            self.order: Indices | None = rows
            self.starts: Indices | None = None
            distinct = codes
        else:
            order, distinct, starts = _sorted_runs(codes, self.encoder.size)
            self.order = order if rows is None else rows[order]
            self.starts = starts
        self.lookup: Lookup = make_lookup(distinct, self.encoder.size)
        del self.encoder.build_codes, self.encoder.build_known

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return self.frame.rows

    @property
    def nbytes(self) -> int:
        """Return the bytes held."""
        tables = [array.nbytes for array in (self.order, self.starts) if array is not None]
        return self.frame.nbytes + self.encoder.nbytes + self.lookup.nbytes + sum(tables)

    @cached_property
    def counts(self) -> Indices | None:
        """Return the number of rows of each distinct key; ``None``: one each."""
        return None if self.starts is None else np.diff(self.starts)

    def find(self, columns: list[Column], rows: int) -> Values:
        """Return the position of each probing row's key among the distinct keys, -1 where there is none."""
        codes, known = self.encoder.encode(columns, rows)
        positions = self.lookup.find(codes)
        if known is None:
            return positions
        return np.where(known, positions, -1)


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
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    if len(first) == len(ordered):
        return order, ordered, None
    return order, ordered[first], np.append(first, len(ordered))


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


@dataclass(frozen=True, slots=True)
class _Matches:
    """Where the rows of a probing frame found their key.

    Attributes
    ----------
    rows : array of int64 or None
        Stored rows that were looked up; ``None``: all.
    positions : array of integers
        Position of each one's key, -1 where it has none.
    """

    rows: Indices | None
    positions: Values

    def stored(self, looked_up: Indices) -> Indices:
        """Return stored rows by their place among those looked up."""
        return looked_up if self.rows is None else self.rows.take(looked_up)


def _find(frame: CpuFrame, build: CpuBuildSide, keys: Sequence[Expression]) -> _Matches:
    rows = frame.selected_indices()
    evaluator = Evaluator(keys)
    positions = np.empty(frame.rows, np.int64)
    done = 0
    for start, stop, block in blocks_of(frame):
        if frame.selection is not None:
            block = block.take(np.flatnonzero(frame.selection[start:stop]))
        columns = [evaluator.evaluate(block, index).expand(block.rows) for index in range(len(keys))]
        positions[done : done + block.rows] = build.find(columns, block.rows)
        done += block.rows
    return _Matches(rows, positions)


def count_matches(frame: CpuFrame, build: CpuBuildSide, keys: Sequence[Expression]) -> int:
    """Count the pairs of an inner join, before any residual."""
    positions = _find(frame, build, keys).positions
    counts = build.counts
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
) -> CpuFrame:
    """Join; see ``Engine.probe``."""
    matches = _find(frame, build, keys)
    if kind in ("semi", "anti"):
        hit = matches.positions >= 0 if residual is None else _satisfied(frame, build, matches, residual)
        keep = hit if kind == "semi" else ~hit
        if matches.rows is not None:
            selection = np.zeros(frame.stored_rows, np.bool_)
            selection[matches.rows[keep]] = True
            keep = selection
        return CpuFrame({name: frame.columns[name] for name in output}, frame.stored_rows, keep)
    if kind == "left" and residual is None and build.starts is None:
        looked_up: Indices = np.arange(len(matches.positions))
        right = _first_rows(build, matches.positions)
        left = matches.stored(looked_up)
        if matches.rows is None:
            # Every row of the left side, in order: its columns stay as they are.
            columns = {name: _either(name, frame, build, right) for name in output}
            return CpuFrame(columns, frame.stored_rows)
        return _Pairs(frame, build.frame, left, right).frame(output)
    looked_up, right = _pairs(build, matches.positions)
    if residual is not None:
        passed = _passing(frame, build, matches.stored(looked_up), right, residual)
        looked_up, right = looked_up[passed], right[passed]
    if kind == "left":
        looked_up, right = _padded(looked_up, right, len(matches.positions))
    return _Pairs(frame, build.frame, matches.stored(looked_up), right).frame(output)


def _either(name: str, frame: CpuFrame, build: CpuBuildSide, right: Indices) -> Column:
    return frame.columns[name] if name in frame.columns else build.frame.columns[name].take_padded(right)


def _first_rows(build: CpuBuildSide, positions: Values) -> Indices:
    """Return the build row of each position, -1 where there is none. Keys are distinct."""
    if build.order is None:
        return positions.astype(np.int64, copy=False)
    if len(build.order) == 0:
        return np.full(len(positions), -1, np.int64)
    return np.where(positions >= 0, build.order.take(positions, mode="clip"), -1)


def _pairs(build: CpuBuildSide, positions: Values) -> tuple[Indices, Indices]:
    """Return all pairs of a looked-up row and a build row, in the order of the former."""
    hits = np.flatnonzero(positions >= 0)
    found = positions.take(hits)
    if build.starts is None:
        return hits, found.astype(np.int64) if build.order is None else build.order.take(found)
    counts = build.counts
    assert counts is not None
    repeats = counts.take(found)
    left = np.repeat(hits, repeats)
    ends = np.cumsum(repeats)
    # Within one row's pairs: 0, 1, 2 ... from the start of its key's rows.
    right = np.arange(len(left)) + np.repeat(build.starts.take(found) - (ends - repeats), repeats)
    return left, right if build.order is None else build.order.take(right)


def _passing(frame: CpuFrame, build: CpuBuildSide, left: Indices, right: Indices, residual: Expression) -> Mask:
    """Return which pairs satisfy the residual."""
    evaluator = Evaluator([residual])
    passed = np.empty(len(left), np.bool_)
    for start in range(0, len(left), PAIR_BLOCK):
        stop = min(start + PAIR_BLOCK, len(left))
        pairs = _Pairs(frame, build.frame, left[start:stop], right[start:stop])
        passed[start:stop] = is_true(evaluator.evaluate(Block(pairs, stop - start), 0))
    return passed


def _satisfied(frame: CpuFrame, build: CpuBuildSide, matches: _Matches, residual: Expression) -> Mask:
    """Return which looked-up rows have a pair that satisfies the residual."""
    satisfied = np.zeros(len(matches.positions), np.bool_)
    looked_up, right = _pairs(build, matches.positions)
    satisfied[looked_up[_passing(frame, build, matches.stored(looked_up), right, residual)]] = True
    return satisfied


def _padded(looked_up: Indices, right: Indices, rows: int) -> tuple[Indices, Indices]:
    """Add a pair with no build row (-1) for each row that is in no pair, keeping the order of rows."""
    alone = np.ones(rows, np.bool_)
    alone[looked_up] = False
    missing = np.flatnonzero(alone)
    if len(missing) == 0:
        return looked_up, right
    left = np.concatenate((looked_up, missing))
    right = np.concatenate((right, np.full(len(missing), -1, np.int64)))
    order = np.argsort(left, kind="stable")
    return left[order], right[order]
