"""Asks small questions of small tables, cut into chunks of single rows, in every mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.session import connect
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hybridq.session import Session

MODES = ("cpu", "gpu", "cop")

Ask = "Callable[..., pa.Table]"


@pytest.fixture(scope="session")
def single_units(two_workers: Session) -> Iterator[Session]:
    """A cluster where every chunk is one unit, so that everything is merged from many partial results."""
    with connect(two_workers.address, chunk_units=1) as session:
        yield session


@pytest.fixture(scope="session")
def in_place() -> Iterator[Session]:
    """The same without a cluster: for what does not depend on processes and messages."""
    with connect_in_process(chunk_units=1) as session:
        yield session


@pytest.fixture
def ask(in_place: Session, tmp_path: Path) -> Callable[..., pa.Table]:
    """Return a function that answers SQL over tables given by keyword.

    Tables are written as Parquet with one row a row group, unless they are paths. The answer must be the same in every
    mode, and is returned once.
    """

    def answer(sql: str, order_by: tuple[str, ...] = (), **tables: pa.Table | Path) -> pa.Table:
        for name, table in tables.items():
            if isinstance(table, pa.Table):
                path = tmp_path / f"{name}.parquet"
                pq.write_table(table, path, row_group_size=1)
                table = path
            in_place.register(name, table)
        query = in_place.sql(sql)
        answers = [query.collect(mode=mode).to_arrow() for mode in MODES]
        for other in answers[1:]:
            assert_same_answer(other, answers[0], order_by=order_by)
        assert answers[0].schema.types == query.schema.types
        return answers[0]

    return answer


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    """Return a table's rows, sorted by their text so that order does not matter."""
    return sorted(in_order(table), key=str)


def in_order(table: pa.Table) -> list[tuple[object, ...]]:
    """Return a table's rows as they come."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
