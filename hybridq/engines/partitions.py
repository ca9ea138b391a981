"""Rows in the order of a window: partitions side by side, and in each the rows by the sort keys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from hybridq.engines.column import Indices, Mask
from hybridq.engines.frame import CpuFrame
from hybridq.engines.ordering import OrderedKey, combined, ordered_keys, stable_order
from hybridq.plan.expressions import Expression, SortKey


class Segments:
    """Neighbouring rows that belong together.

    Parameters
    ----------
    first : array of bool
        Whether a row is the first one of its segment; the first row is.

    Attributes
    ----------
    number : array of int64
        The segment of each row.
    starts, ends : array of int64
        Where each segment begins, and where it has ended.
    """

    def __init__(self, first: Mask) -> None:
        self.number = np.cumsum(first) - 1
        self.starts = np.flatnonzero(first)
        self.ends = np.append(self.starts[1:], len(first))

    @cached_property
    def start(self) -> Indices:
        """Return for each row where its segment begins."""
        found: Indices = self.starts[self.number]
        return found

    @cached_property
    def end(self) -> Indices:
        """Return for each row where its segment has ended."""
        found: Indices = self.ends[self.number]
        return found


class WindowOrder:
    """A frame's rows in the order of a window. Positions below are positions in that order.

    Parameters
    ----------
    frame : CpuFrame
        Without deselected rows.
    partition : sequence of Expression
    order : sequence of SortKey
        Rows that tie keep the frame's order.

    Attributes
    ----------
    rows : int
    indices : array of int64
        The frame's row at each position.
    partitions : Segments
    peers : Segments
        Rows of a partition that are equal on all sort keys.
    """

    def __init__(self, frame: CpuFrame, partition: Sequence[Expression], order: Sequence[SortKey]) -> None:
        self.rows = frame.stored_rows
        keys = ordered_keys(frame, [SortKey(expression) for expression in partition])
        sort_keys = ordered_keys(frame, order)
        self.indices = stable_order(*combined([*keys, *sort_keys]), self.rows)
        first = np.zeros(self.rows, np.bool_)
        first[:1] = True
        self.partitions = Segments(self._changes(first, keys))
        self.peers = Segments(self._changes(first, sort_keys)) if order else self.partitions

    def _changes(self, first: Mask, keys: Sequence[OrderedKey]) -> Mask:
        """Add to the first rows of segments those where a key differs from the row before."""
        for key in keys:
            values = key.values[self.indices]
            first[1:] |= values[1:] != values[:-1]
        return first.copy()

    @cached_property
    def positions(self) -> Indices:
        """Return the position of each of the frame's rows."""
        found = np.empty(self.rows, np.int64)
        found[self.indices] = np.arange(self.rows)
        return found
