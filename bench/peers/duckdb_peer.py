"""DuckDB in this process, one thread a core, views over the Parquet files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hybridq.shipped import find_plan
from hybridq.testing.reference import duckdb_connection

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


class DuckdbPeer:
    """The shipped SQL as it is; AVG and division of decimals are DOUBLE here."""

    name = "duckdb"

    def __init__(self) -> None:
        self.note = f"in process, {os.cpu_count()} threads, views over Parquet"
        self._connection: Any = None

    def start(self, folder: Path) -> None:
        self._connection = duckdb_connection(folder)

    def run(self, query: str) -> pa.Table:
        return self._connection.sql(find_plan(query).read_text()).to_arrow_table()

    def details(self) -> dict[str, object]:
        return {}

    def worker_pids(self) -> list[int]:
        return []

    def close(self) -> None:
        self._connection.close()
