"""Where an answer goes that is handed over part by part."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from hybridq.dispatch.memory import check_answer
from hybridq.types import Schema, to_arrow_schema


class Target(Protocol):
    """Takes an answer in, part by part."""

    def begin(self) -> None:
        """Forget all that has come: the first rows come next."""

    def take(self, table: pa.Table) -> None:
        """Take the next rows, of the answer's types."""


class Gathered:
    """An answer that is gathered in this process's memory.

    Parameters
    ----------
    limit : int
        Bytes that it may have; 0: as much as this process can still get.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tables: list[pa.Table] = []
        self._rows = self._bytes = 0

    def begin(self) -> None:
        """Forget all that has come."""
        self._tables = []
        self._rows = self._bytes = 0

    def take(self, table: pa.Table) -> None:
        """Take the next rows.

        Raises
        ------
        ResultTooLarge
            There are too many.
        """
        self._tables.append(table)
        size = int(table.nbytes)
        self._rows += table.num_rows
        self._bytes += size
        # Without a limit, what has come is counted as memory that is gone.
        check_answer(self._rows, self._bytes if self._limit else size, self._limit)

    def table(self, schema: Schema) -> pa.Table:
        """Return all that has come."""
        return pa.concat_tables([to_arrow_schema(schema).empty_table(), *self._tables])
