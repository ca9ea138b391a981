"""Queries as trees, written as SQL in two dialects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

Dialect = Literal["hybridq", "duckdb"]


@dataclass(frozen=True)
class Expr:
    """An expression.

    Attributes
    ----------
    kind : str
        As in ``ColumnSpec``.
    text : str
        With ``{0}``, ``{1}``... for the parts.
    parts : tuple of Expr or Query
    duckdb : str or None
        DuckDB's text where it differs.
    exact : bool
        No floating-point rounding is in it, so that sums do not depend on the order.
    wild : bool
        Arithmetic on it may overflow.
    quotient : bool
        The first two parts are numerator and denominator of an exact decimal quotient, which DuckDB does not have.
    """

    kind: str
    text: str
    parts: tuple[Any, ...] = ()
    duckdb: str | None = None
    exact: bool = True
    wild: bool = False
    quotient: bool = False

    def sql(self, dialect: Dialect) -> str:
        text = self.text if dialect == "hybridq" or self.duckdb is None else self.duckdb
        return text.format(*(part.sql(dialect) for part in self.parts))


@dataclass(frozen=True)
class Relation:
    """A table or a subquery in FROM, with the join that adds it (none for the first)."""

    alias: str
    source: Any  # str, Query, or Expr for a function
    join: str = ""
    condition: Expr | None = None

    def sql(self, dialect: Dialect) -> str:
        source = self.source if isinstance(self.source, str) else self.source.sql(dialect)
        if isinstance(self.source, Query):
            source = f"({source})"
        text = f"{self.join} {source} AS {self.alias}".strip()
        return text if self.condition is None else f"{text} ON {self.condition.sql(dialect)}"


@dataclass(frozen=True)
class Select:
    """SELECT ... FROM ... WHERE ... GROUP BY ... HAVING."""

    items: tuple[Expr, ...]
    relations: tuple[Relation, ...]
    where: Expr | None = None
    groups: tuple[Expr, ...] = ()
    grouping: str = "{0}"
    having: Expr | None = None
    distinct: bool = False

    def sql(self, dialect: Dialect) -> str:
        shown = []
        for number, item in enumerate(self.items):
            if item.quotient and dialect == "duckdb":
                above, below = (part.sql(dialect) for part in item.parts[:2])
                shown.append(f"{above} AS c{number}__numerator, {below} AS c{number}__denominator")
            else:
                shown.append(f"{item.sql(dialect)} AS c{number}")
        text = f"SELECT {'DISTINCT ' if self.distinct else ''}{', '.join(shown)}"
        text += " FROM " + " ".join(relation.sql(dialect) for relation in self.relations)
        if self.where is not None:
            text += f" WHERE {self.where.sql(dialect)}"
        if self.groups:
            text += " GROUP BY " + self.grouping.format(", ".join(group.sql(dialect) for group in self.groups))
        if self.having is not None:
            text += f" HAVING {self.having.sql(dialect)}"
        return text

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(item.kind for item in self.items)


@dataclass(frozen=True)
class SetOperation:
    """UNION, INTERSECT, EXCEPT."""

    operator: str
    left: Any
    right: Any

    def sql(self, dialect: Dialect) -> str:
        return f"({self.left.sql(dialect)}) {self.operator} ({self.right.sql(dialect)})"

    @property
    def items(self) -> tuple[Expr, ...]:
        items: tuple[Expr, ...] = self.left.items
        return items


@dataclass(frozen=True)
class Query:
    """A body with ORDER BY, LIMIT and OFFSET."""

    body: Any
    order: tuple[tuple[int, str], ...] = ()
    limit: int | None = None
    offset: int | None = None

    def sql(self, dialect: Dialect) -> str:
        text: str = self.body.sql(dialect)
        if self.order:
            text += " ORDER BY " + ", ".join(f"c{number}{how}" for number, how in self.order)
        if self.limit is not None:
            text += f" LIMIT {self.limit}"
        if self.offset is not None:
            text += f" OFFSET {self.offset}"
        return text

    @property
    def items(self) -> tuple[Expr, ...]:
        items: tuple[Expr, ...] = self.body.items
        return items

    @property
    def unlimited(self) -> Query | None:
        """Return the query without LIMIT and OFFSET, if it has one."""
        return None if self.limit is None and self.offset is None else replace(self, limit=None, offset=None)


# --- smaller trees ---------------------------------------------------------------------------------------------------


def smaller(node: Any) -> Iterator[Any]:
    """Yield trees that differ from a tree by one simplification."""
    if isinstance(node, Query):
        yield from _smaller_query(node)
    elif isinstance(node, Select):
        yield from _smaller_select(node)
    elif isinstance(node, SetOperation):
        yield node.left
        yield node.right
    elif isinstance(node, Expr):
        yield from (part for part in _descendants(node) if part.kind == node.kind and not part.quotient)
    elif isinstance(node, Relation) and isinstance(node.source, Query):
        yield from _inner_tables(node)
    yield from _inside(node)


def _smaller_query(node: Query) -> Iterator[Query]:
    if node.limit is not None or node.offset is not None:
        yield replace(node, limit=None, offset=None)
    if node.order:
        yield replace(node, order=())
        for position in range(len(node.order)):
            yield replace(node, order=node.order[:position] + node.order[position + 1 :])


def _smaller_select(node: Select) -> Iterator[Select]:
    for name in ("where", "having"):
        if getattr(node, name) is not None:
            yield replace(node, **{name: None})
    if node.distinct:
        yield replace(node, distinct=False)
    if node.grouping != "{0}":
        yield replace(node, grouping="{0}")
    for position in range(len(node.items)):
        if len(node.items) > 1:
            yield replace(node, items=node.items[:position] + node.items[position + 1 :])
    for position in range(len(node.groups)):
        yield replace(node, groups=node.groups[:position] + node.groups[position + 1 :])
    for position in range(1, len(node.relations)):
        yield replace(node, relations=node.relations[:position] + node.relations[position + 1 :])


def _inner_tables(node: Relation) -> Iterator[Relation]:
    body = node.source.body
    if isinstance(body, Select) and len(body.relations) == 1 and isinstance(body.relations[0].source, str):
        yield replace(node, source=body.relations[0].source)


def _descendants(node: Expr) -> Iterator[Expr]:
    for part in node.parts:
        if isinstance(part, Expr):
            yield part
            yield from _descendants(part)


def _inside(node: Any) -> Iterator[Any]:
    """Yield copies of a node in which one child is simpler."""
    if not is_dataclass(node) or isinstance(node, type):
        return
    for each in fields(node):
        value = getattr(node, each.name)
        if isinstance(value, tuple):
            for position, child in enumerate(value):
                if is_dataclass(child):
                    for simpler in smaller(child):
                        yield replace(node, **{each.name: (*value[:position], simpler, *value[position + 1 :])})
        elif is_dataclass(value):
            for simpler in smaller(value):
                yield replace(node, **{each.name: simpler})
