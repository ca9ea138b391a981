"""Tables as they would be at a larger scale: the statistics of small ones, with more rows and wider ranges of keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridq.catalog import Catalog, Table
from hybridq.plan.statistics import ColumnStatistics

UNIT_ROWS = 115_000
"""Rows of a row group, as the data generator makes them."""

CLUSTERED = {"l_orderkey", "o_orderkey", "c_custkey", "p_partkey", "ps_partkey", "s_suppkey"}
GROWING = CLUSTERED | {"l_partkey", "l_suppkey", "ps_suppkey", "o_custkey"}
FIXED = {"nation", "region"}


@dataclass(frozen=True, eq=False)
class EnlargedUnit:
    """A row group that is not there.

    Attributes
    ----------
    base : Table
    scale : int
    position : float
        Of its first row, as a share of the table.
    share : float
        Of the table's rows that it has.
    """

    base: Table
    scale: int
    position: float
    share: float
    rows: int

    def column_bytes(self, source: str) -> int:
        return round(self.base.column_bytes(source) * self.scale * self.share)

    def statistics(self, source: str) -> ColumnStatistics | None:
        whole = self.base.summary(source)
        if whole is None or whole.minimum is None:
            return None
        low, high = whole.minimum, whole.maximum
        if source in GROWING:
            high *= self.scale
        if source in CLUSTERED:
            width = high - low
            low, high = low + int(width * self.position), low + int(width * (self.position + self.share))
        return ColumnStatistics(low, high, 0, self.rows)

    def dictionary_entries(self, source: str) -> float | None:
        entries = self.base.units[0].dictionary_entries(source)
        if entries is None or source in GROWING:
            return float(self.rows)
        return float(self.rows) if entries > self.base.units[0].rows / 3 else entries


class EnlargedTable(Table):
    """A table with so many times the rows of another one."""

    def __init__(self, base: Table, scale: int) -> None:
        rows = base.rows * scale
        count = -(-rows // UNIT_ROWS)
        units = [EnlargedUnit(base, scale, i / count, 1 / count, rows // count) for i in range(count)]
        super().__init__(base.name, base.schema, units)
        self._base = base

    def storage(self, source: str) -> tuple[str, bool] | None:
        codec = self._base.storage(source)
        return None if codec is None else (codec[0], self.units[0].dictionary_entries(source) < self.units[0].rows / 2)


class EnlargedCatalog(Catalog):
    """The tables of a folder, those that grow with the scale enlarged."""

    def __init__(self, folder: Path, scale: int) -> None:
        super().__init__()
        self.register_folder(folder)
        tables: dict[str, Any] = self._tables
        for name, table in tables.items():
            if name not in FIXED:
                tables[name] = EnlargedTable(table, scale)
