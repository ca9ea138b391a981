"""Frames of the GPU engine, and the rows that expressions are evaluated on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import pylibcudf as plc

from hybridq.engines.gpu import device
from hybridq.engines.gpu.column import GpuColumn


class GpuFrame:
    """An immutable table on the device.

    Attributes
    ----------
    columns : mapping of str to GpuColumn
    rows : int
    """

    def __init__(self, columns: Mapping[str, GpuColumn], rows: int) -> None:
        self.columns = MappingProxyType(dict(columns))
        self._rows = rows

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return self._rows

    @property
    def nbytes(self) -> int:
        """Return the bytes held, shared buffers included."""
        return sum(column.nbytes for column in self.columns.values())

    def column(self, name: str) -> GpuColumn:
        """Return a column."""
        return self.columns[name]

    def pick(self, names: Sequence[str]) -> GpuFrame:
        """Return some columns."""
        return GpuFrame({name: self.columns[name] for name in names}, self.rows)

    def keep(self, mask: plc.Column) -> GpuFrame:
        """Return the rows for which a mask is true (not false, not NULL)."""
        if self.rows == 0:
            return self
        if not self.columns:
            return GpuFrame({}, device.count_true(mask))
        kept = device.keep([column.data for column in self.columns.values()], mask)
        return self._like(kept, int(kept[0].size()))

    def gather(self, indices: plc.Column) -> GpuFrame:
        """Return the rows at indices."""
        return self._like(
            device.gather([column.data for column in self.columns.values()], indices), int(indices.size())
        )

    def slice(self, start: int, stop: int) -> GpuFrame:
        """Return rows ``start`` to ``stop``, without copying."""
        if start == 0 and stop == self.rows:
            return self
        parts = [plc.copying.slice(column.data, [start, stop])[0] for column in self.columns.values()]
        return self._like(parts, stop - start)

    def _like(self, data: Sequence[plc.Column], rows: int) -> GpuFrame:
        columns = {
            name: column.with_data(values) for (name, column), values in zip(self.columns.items(), data, strict=True)
        }
        return GpuFrame(columns, rows)


class Rows(Protocol):
    """Rows that expressions are evaluated on."""

    @property
    def rows(self) -> int:
        """Return their number."""

    def column(self, name: str) -> GpuColumn:
        """Return a column."""


class SomeRows:
    """The rows of others for which a mask is true; columns are copied when first asked for."""

    def __init__(self, origin: Rows, mask: plc.Column) -> None:
        self._origin = origin
        self._mask = mask
        self._columns: dict[str, GpuColumn] = {}
        self.rows = device.count_true(mask)

    def column(self, name: str) -> GpuColumn:
        """Return a column."""
        found = self._columns.get(name)
        if found is None:
            whole = self._origin.column(name)
            found = self._columns[name] = whole.with_data(device.keep([whole.data], self._mask)[0])
        return found
