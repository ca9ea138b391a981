"""Frames of the CPU engine: named columns of equal length, some of whose rows may be deselected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType

import numpy as np

from hybridq.engines.column import Column, Indices, Mask, Values

BLOCK_ROWS = 1 << 15
"""Rows evaluated at a time: a few intermediate results of so many 8-byte values stay in a core's own cache."""


class CpuFrame:
    """An immutable table.

    A filter only marks rows (``selection``); they are dropped when an operator needs the remaining rows side by side,
    so that a filter that keeps nearly all rows copies nothing.

    Attributes
    ----------
    columns : mapping of str to Column
        All of ``stored_rows`` rows; no constants.
    stored_rows : int
        Rows held, deselected ones included.
    selection : array of bool or None
        Rows that belong to the frame; ``None``: all.
    """

    def __init__(self, columns: Mapping[str, Column], rows: int, selection: Mask | None = None) -> None:
        self.columns = MappingProxyType(dict(columns))
        self.stored_rows = rows
        self.selection = selection

    @cached_property
    def rows(self) -> int:
        """Return the number of rows."""
        return self.stored_rows if self.selection is None else int(np.count_nonzero(self.selection))

    @property
    def nbytes(self) -> int:
        """Return the bytes held, shared buffers and deselected rows included."""
        return sum(column.nbytes for column in self.columns.values())

    def selected_indices(self) -> Indices | None:
        """Return the positions of the rows that belong to the frame; ``None``: all."""
        return None if self.selection is None else np.flatnonzero(self.selection)

    def compact(self) -> CpuFrame:
        """Return the frame without deselected rows."""
        indices = self.selected_indices()
        return self if indices is None else self.take(indices)

    def take(self, indices: Indices) -> CpuFrame:
        """Return the stored rows at ``indices``."""
        return CpuFrame({name: column.take(indices) for name, column in self.columns.items()}, len(indices))

    def slice(self, start: int, stop: int) -> CpuFrame:
        """Return stored rows ``start`` to ``stop``, all of them selected."""
        return CpuFrame({name: column.slice(start, stop) for name, column in self.columns.items()}, stop - start)

    def pick(self, names: Mapping[str, str]) -> CpuFrame:
        """Return some columns under other names (new name: old name), the selection kept."""
        columns = {new: self.columns[old] for new, old in names.items()}
        return CpuFrame(columns, self.stored_rows, self.selection)


class Block:
    """Rows that expressions are evaluated on: columns are cut out of their origin when first asked for.

    Attributes
    ----------
    rows : int
    results : dict of int to Column
        Results of expressions on these rows, by the number that ``Evaluator`` gave each.
    """

    __slots__ = ("_columns", "_cut", "_origin", "results", "rows")

    def __init__(
        self, origin: Mapping[str, Column] | Block, rows: int, cut: tuple[int, int] | Values | None = None
    ) -> None:
        self._origin = origin
        self._cut = cut
        self._columns: dict[str, Column] = {}
        self.rows = rows
        self.results: dict[int, Column] = {}

    def column(self, name: str) -> Column:
        """Return one column of the block."""
        found = self._columns.get(name)
        if found is None:
            origin = self._origin
            found = origin.column(name) if isinstance(origin, Block) else origin[name]
            if isinstance(self._cut, tuple):
                found = found.slice(*self._cut).contiguous()
            elif self._cut is not None:
                found = found.take(self._cut)
            self._columns[name] = found
        return found

    def take(self, indices: Indices) -> Block:
        """Return a block of some of the rows, which knows the results that are known here."""
        block = Block(self, len(indices), indices)
        block.results = _TakenResults(self.results, indices)
        return block


class _TakenResults(dict[int, Column]):
    """Results on some rows of a block: those of the whole block are cut on demand."""

    def __init__(self, known: dict[int, Column], indices: Indices) -> None:
        super().__init__()
        self._known = known
        self._indices = indices

    def get(self, key: int, default: Column | None = None) -> Column | None:  # type: ignore[override]
        found = super().get(key)
        if found is None and (whole := self._known.get(key)) is not None:
            found = self[key] = whole.take(self._indices)
        return default if found is None else found


def block_of(frame: CpuFrame) -> Block:
    """Return all stored rows as one block."""
    return Block(frame.columns, frame.stored_rows)


def blocks_of(frame: CpuFrame, rows: int = BLOCK_ROWS) -> Iterator[tuple[int, int, Block]]:
    """Cut all stored rows into blocks; yields their start, their stop, and themselves."""
    for start in range(0, frame.stored_rows, rows):
        stop = min(start + rows, frame.stored_rows)
        yield start, stop, Block(frame.columns, stop - start, (start, stop))
