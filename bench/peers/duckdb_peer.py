"""DuckDB in its own process, views over the Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.suites import query_text
from hybridq.testing.reference import duckdb_connection

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from bench.peers import Setup


class DuckdbPeer:
    """The shipped SQL as it is; AVG and division of decimals are DOUBLE here."""

    name = "duckdb"
    must_be_exact = False
    uses_gpu = False

    def __init__(self, setup: Setup) -> None:
        self.note = f"{setup.threads} threads, views over Parquet, AVG and division of decimals are DOUBLE"
        self._threads = setup.threads
        self._scale_factor = setup.scale_factor
        self._connection: Any = None

    def start(self, folder: Path) -> None:
        self._connection = duckdb_connection(folder, self._threads)

    def run(self, query: str) -> pa.Table:
        return self._connection.sql(query_text(query, self._scale_factor)).to_arrow_table()

    def details(self) -> dict[str, object]:
        return {}

    def worker_pids(self) -> list[int]:
        return []

    def close(self) -> None:
        self._connection.close()
