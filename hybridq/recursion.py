"""WITH RECURSIVE: one query after the other, each over the rows that the one before it gave.

The rows are the client's: each step is a query like any other, and what it gives is a table in memory for the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hybridq.errors import ExecutionError, Unsupported
from hybridq.frontend.sql_recursion import RecursiveTable, RecursiveText, recursive_text

if TYPE_CHECKING:
    import pyarrow as pa

    from hybridq.catalog import Catalog
    from hybridq.types import Schema

MOST_STEPS = 1000
"""Steps after which a recursion is taken to have no end."""

_ALL = "hybridq_recursive_rows"
"""What a step's new rows are compared with, where UNION leaves out those that have been there."""

Collect = Callable[[str, "Catalog"], "pa.Table"]
"""Runs a text over a catalog's tables."""


@dataclass(frozen=True, slots=True)
class Recursion:
    """The recursive tables of one text.

    Attributes
    ----------
    parts : RecursiveText
    catalog : Catalog
        Of the session, with each recursive table as an empty one: to plan with.
    """

    parts: RecursiveText
    catalog: Catalog

    def run(self, catalog: Catalog, collect: Collect) -> tuple[Catalog, float]:
        """Make the tables' rows; return the catalog that has them too, and the seconds it took.

        Raises
        ------
        ExecutionError
            A recursion has not ended after 1,000 steps, or a step has failed.
        """
        start = time.perf_counter()
        for table in self.parts.tables:
            schema = self.catalog.table(table.name).schema
            catalog = catalog.beside({table.name: _rows_of(table, schema, catalog, collect)})
        return catalog, time.perf_counter() - start


def recursion_of(text: str, catalog: Catalog) -> Recursion | None:
    """Find the recursive tables of a text, and plan their queries; ``None``: it has none.

    Raises
    ------
    SqlError, UnknownTable, UnknownColumn, AmbiguousColumn, Unsupported
        One of the queries cannot be planned, or gives other types than the first rows have.
    """
    from hybridq.planning import logical_plan

    parts = recursive_text(text)
    if parts is None:
        return None
    for table in parts.tables:
        if table.name in catalog.schemas():
            raise Unsupported(f"the recursive query {table.name} has the name of a table: rename it")
        first = logical_plan(table.first, catalog)
        names = table.columns or first.names
        if len(names) != len(first.names) or len(set(names)) != len(names):
            raise Unsupported(f"the recursive query {table.name} needs {len(first.names)} different column names")
        types = [field.type for field in first.root.schema]
        catalog = catalog.beside({table.name: _empty(names, types)})
        found = [field.type for field in logical_plan(table.step, catalog).root.schema]
        _check_same_types(table.name, names, types, found)
    return Recursion(parts, catalog)


def _check_same_types(table: str, names: Sequence[str], first: list[pa.DataType], further: list[pa.DataType]) -> None:
    """Check that the steps of a recursive query give the types of its first rows.

    Raises
    ------
    Unsupported
        They do not.
    """
    if len(first) != len(further):
        raise Unsupported(
            f"the first rows of the recursive query {table} have {len(first)} columns, and further ones {len(further)}"
        )
    other = [
        f"{name} is {kind} in the first rows and {found} in further ones"
        for name, kind, found in zip(names, first, further, strict=True)
        if kind != found
    ]
    if other:
        raise Unsupported(f"the recursive query {table} changes types: {'; '.join(other)}: cast one to the other")


def _empty(names: tuple[str, ...], types: list[pa.DataType]) -> pa.Table:
    import pyarrow as pa

    return pa.schema([pa.field(name, kind) for name, kind in zip(names, types, strict=True)]).empty_table()


def _rows_of(table: RecursiveTable, schema: Schema, catalog: Catalog, collect: Collect) -> pa.Table:
    import pyarrow as pa

    names = [field.name for field in schema]

    def rows(text: str, known: Catalog) -> pa.Table:
        return collect(text, known).rename_columns(names)

    first = f"select distinct * from ({table.first}) as t" if table.distinct else table.first
    found = [rows(first, catalog)]
    while found[-1].num_rows:
        if len(found) > MOST_STEPS:
            raise ExecutionError(
                f"the recursive query {table.name} has not ended after {MOST_STEPS} steps, which is the limit: end it "
                "with a condition, or with UNION in place of UNION ALL where rows repeat"
            )
        tables = {table.name: found[-1]}
        step = table.step
        if table.distinct:
            tables[_ALL] = pa.concat_tables(found)
            step = f"select * from ({step}) as t except select * from {_ALL}"
        found.append(rows(step, catalog.beside(tables)))
    return pa.concat_tables(found)
