"""Short ways to write plans by hand, and tables of which only sizes are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from hybridq.plan.cardinality import Estimator
from hybridq.plan.expressions import Call, Column, Expression, Literal, NamedExpression
from hybridq.plan.nodes import Join, JoinKind, Node, Project, Scan, ScanColumn
from hybridq.plan.statistics import ColumnSummary, TableStatistics

INTEGER, BOOLEAN, TEXT = pa.int64(), pa.bool_(), pa.string()


def column(name: str, data_type: pa.DataType = INTEGER) -> Column:
    return Column(data_type, name)


def number(value: int | None) -> Literal:
    return Literal(INTEGER, value)


def test_of(function: str, *arguments: Expression) -> Call:
    return Call(BOOLEAN, function, arguments)


test_of.__test__ = False  # type: ignore[attr-defined]


def scan(table: str, columns: str = "ab", predicate: Expression | None = None) -> Scan:
    """Scan integer columns of one letter each."""
    return Scan(table, tuple(ScanColumn(f"{table}.{name}", name, INTEGER) for name in columns), predicate)


def project(node: Node, **items: Expression) -> Project:
    return Project(node, tuple(NamedExpression(name, expression) for name, expression in items.items()))


def join(left: Node, right: Node, left_key: str, right_key: str, kind: JoinKind = "inner", **rest: Any) -> Join:
    return Join(left, right, kind, (column(left_key),), (column(right_key),), **rest)


@dataclass
class FakeTable:
    """A table of so many rows; ``distinct`` and ``ranges`` by column, a column is a key without them."""

    rows: int
    distinct: dict[str, float] = field(default_factory=dict)
    ranges: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)

    def summary(self, source: str) -> ColumnSummary | None:
        low, high = self.ranges.get(source, (None, None))
        return ColumnSummary(low, high, self.nulls.get(source, 0), self.distinct.get(source, float(self.rows)))

    def column_bytes(self, source: str) -> int:
        return 8 * self.rows


def statistics(**tables: FakeTable) -> Callable[[str], TableStatistics]:
    return lambda name: tables[name]


def estimator(**tables: FakeTable) -> Estimator:
    return Estimator(statistics(**tables))
