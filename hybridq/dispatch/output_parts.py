"""A stage's output that stays in parts, where its chunks made them: the tasks that read it put it together.

A merge that only puts rows one below the other would have one worker ask for all of them, and the others ask that one,
each after waiting for the other.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence

import pyarrow as pa

from hybridq.dispatch.device_rows import Rows, as_table
from hybridq.errors import ExecutionError

MOST_PARTS = 16
"""Parts up to which an output stays as it is: each is asked for by itself."""


class TogetherCache:
    """Tables put together of parts, one for all threads, so that what is made of it (a build side) is shared as well.

    One lives as long as its parts: Dask drops these once the query has released them.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a part may be collected while the lock is held
        self._tables: dict[tuple[int, ...], tuple[list[weakref.ref[pa.Table]], pa.Table]] = {}

    def __len__(self) -> int:
        return len(self._tables)

    def get(self, parts: Sequence[Rows]) -> pa.Table:
        """Return the rows of all parts in order.

        Raises
        ------
        ExecutionError
            A part was lost with its worker, and its chunk did not fit into memory when it was computed again.
        """
        if not all(hasattr(part, "num_rows") for part in parts):
            raise ExecutionError(
                "a part of a stage's output was lost with its worker and did not fit into memory again"
            )
        tables = [as_table(part) for part in parts]
        key = tuple(map(id, tables))
        with self._lock:
            known = self._tables.get(key)
            if known is not None and all(ref() is part for ref, part in zip(known[0], tables, strict=True)):
                return known[1]
            whole = pa.concat_tables(tables)
            self._tables[key] = [weakref.ref(part, lambda _: self._drop(key)) for part in tables], whole
            return whole

    def _drop(self, key: tuple[int, ...]) -> None:
        with self._lock:
            self._tables.pop(key, None)


TOGETHER = TogetherCache()
"""Of this process."""


def inputs_of(numbers: Sequence[int], tables: Sequence[Rows]) -> dict[int, Rows]:
    """Return each stage's output; where a number is there several times, these are its parts, in order."""
    parts: dict[int, list[Rows]] = {}
    for number, table in zip(numbers, tables, strict=True):
        parts.setdefault(number, []).append(table)
    return {number: own[0] if len(own) == 1 else TOGETHER.get(own) for number, own in parts.items()}
