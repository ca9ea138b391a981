"""Ranges of rows in order: where a run is to be cut so that what comes before a given row is on one side.

Rows are in order by the sort keys, then by the run that they are in, then by their place there: so every row has a
place of its own, and rows that tie can be told apart however many they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hybridq.engines.cpu import CpuEngine
from hybridq.plan.expressions import SortKey, columns_of
from hybridq.plan.windows import RANGE_START, RANGE_STOP

Places = npt.NDArray[np.int64]


def key_columns(names: Sequence[str], keys: Sequence[SortKey]) -> list[str]:
    """Return the columns that sort keys are computed from, in the order of ``names``."""
    used = frozenset().union(*(columns_of(key.expression) for key in keys))
    return [name for name in names if name in used]


def places(samples: Sequence[pa.Table], keys: Sequence[SortKey]) -> list[Places]:
    """Return the places that the rows of several runs have among all of them, in order.

    Parameters
    ----------
    samples : sequence of pyarrow.Table
        Rows of each run, in order. At least one table.
    keys : sequence of SortKey
    """
    order = _order(pa.concat_tables(samples), keys)
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order))
    ends = np.cumsum([sample.num_rows for sample in samples])
    return list(np.split(found, ends[:-1]))


def rows_before(run: pa.Table, border: pa.Table, keys: Sequence[SortKey], ties: bool) -> int:
    """Return how many rows of a run come before another row.

    Parameters
    ----------
    run : pyarrow.Table
        In order.
    border : pyarrow.Table
        One row, with at least the columns of the keys.
    keys : sequence of SortKey
    ties : bool
        Rows that tie with it come before it.
    """
    names = key_columns(border.column_names, keys)
    parts = [run.select(names), border.select(names)] if ties else [border.select(names), run.select(names)]
    order = _order(pa.concat_tables(parts), keys)
    return int(np.flatnonzero(order == (run.num_rows if ties else 0))[0])


def numbered(table: pa.Table, start: int, stop: int) -> pa.Table:
    """Add to the rows of a range which range it is, as columns."""
    for name, place in ((RANGE_START, start), (RANGE_STOP, stop)):
        table = table.append_column(name, pa.array(np.full(table.num_rows, place, np.int64)))
    return table


def _order(table: pa.Table, keys: Sequence[SortKey]) -> Places:
    """Return the stable order of a table's rows."""
    engine = CpuEngine()
    return engine.order(engine.from_arrow(table), keys)
