"""The Python builder: queries as chained calls, for those who would rather not write SQL.

>>> from datetime import date
>>> orders = scan("orders").filter(col("o_orderdate") < date(1995, 3, 15))
>>> query = orders.group_by("o_custkey").agg(spent=col("o_totalprice").sum()).sort("spent", descending=True).limit(10)

Nothing is read, nor are names looked up, until the frame is bound to tables, by a session or by ``to_plan``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hybridq.errors import UnknownTable, Unsupported
from hybridq.frontend.builder_binding import (
    Binder,
    Bound,
    Entry,
    check_grouped,
    equality,
    projected,
    renamed,
    shown_name,
    table_of,
    usable,
)
from hybridq.frontend.builder_expressions import Expr, Ordering, When, col, count, lit, when
from hybridq.frontend.construction import join_node, limit_node
from hybridq.frontend.substrait_reads import is_supported, nearest
from hybridq.plan.expressions import (
    Call,
    Column,
    Expression,
    NamedExpression,
    SortKey,
    conjunction,
)
from hybridq.plan.naming import expression_name, unique_name
from hybridq.plan.nodes import Aggregate, Filter, JoinKind, Plan, Project, Scan, ScanColumn, Sort
from hybridq.types import Schema

__all__ = ["Expr", "Frame", "GroupBy", "When", "col", "count", "lit", "scan", "when"]

_HOW: Mapping[str, JoinKind] = {
    "inner": "inner", "left": "left", "full": "full", "semi": "semi", "anti": "anti", "cross": "inner",
    "right": "left",
}  # fmt: skip


class Frame:
    """A query, or a part of one. Every method returns a new frame; nothing runs."""

    def to_plan(self, tables: Mapping[str, Schema]) -> Plan:
        """Bind names to tables and return the plan, not yet optimised.

        Parameters
        ----------
        tables : mapping of str to Schema
            The registered tables.

        Raises
        ------
        UnknownTable, UnknownColumn, AmbiguousColumn
            The message offers the nearest names.
        Unsupported
            If a function does not take values of such types.
        """
        try:
            bound = self._bind(Binder(tables))
        except RecursionError:
            raise Unsupported("a query nested this deeply is not supported") from None
        if not bound.entries:
            raise Unsupported("a query without columns is not supported")
        columns = [usable(entry) for entry in bound.entries]
        names = tuple(entry.name for entry in bound.entries)
        if tuple(item.name for item in bound.node.schema) == tuple(column.name for column in columns):
            return Plan(bound.node, names)
        items: dict[str, NamedExpression] = {}
        for column in columns:
            name = unique_name(column.name, items)
            items[name] = NamedExpression(name, column)
        return Plan(Project(bound.node, tuple(items.values())), names)

    def _bind(self, binder: Binder) -> Bound:
        raise NotImplementedError

    def filter(self, *predicates: Expr) -> Frame:
        """Keep rows for which all predicates are true."""
        return _Filtered(self, predicates)

    def select(self, *expressions: Expr | str, **named: Any) -> Frame:
        """Show just these columns: names, expressions, or ``name=expression``."""
        return _Selected(self, _listed(expressions, named), keep=False)

    def with_columns(self, *expressions: Expr, **named: Any) -> Frame:
        """Show more columns; those of a name that is there already take its place."""
        return _Selected(self, _listed(expressions, named), keep=True)

    def join(
        self,
        other: Frame,
        on: str | Sequence[str] | Expr | None = None,
        *,
        left_on: str | Expr | Sequence[str | Expr] | None = None,
        right_on: str | Expr | Sequence[str | Expr] | None = None,
        how: str = "inner",
    ) -> Frame:
        """Join with another frame.

        Parameters
        ----------
        other : Frame
            The right side.
        on : str, sequence of str, or Expr, optional
            Columns that both sides have, which the result shows once; or any condition on a pair of rows.
        left_on, right_on : str, Expr or sequence, optional
            Pairs of what must be equal.
        how : str
            ``inner``, ``left``, ``right``, ``full``, ``semi`` (rows of the left side that have a match), ``anti``
            (those that have none, as NOT EXISTS) or ``cross``.

        Raises
        ------
        ValueError
            If these arguments do not fit together.
        """
        if how not in _HOW:
            raise ValueError(f"how={how!r}: it must be one of {', '.join(_HOW)}")
        lefts, rights = _several(left_on), _several(right_on)
        given = (on is not None, bool(lefts or rights))
        if how == "cross" and any(given):
            raise ValueError("a cross join takes no keys")
        if how != "cross" and given.count(True) != 1:
            raise ValueError("a join takes either on= or both left_on= and right_on=")
        if len(lefts) != len(rights):
            raise ValueError(f"left_on has {len(lefts)} keys and right_on {len(rights)}")
        return _Joined(self, other, on, lefts, rights, how)

    def group_by(self, *keys: Expr | str, **named: Any) -> GroupBy:
        """Group rows of equal keys; say with ``agg`` what to compute of each group."""
        return GroupBy(self, _listed(keys, named))

    def agg(self, *aggregates: Expr, **named: Any) -> Frame:
        """Aggregate all rows to one."""
        return _Aggregated(self, (), _listed(aggregates, named))

    def distinct(self) -> Frame:
        """Keep one of rows that are equal in all columns."""
        return _Distinct(self)

    def sort(
        self,
        *keys: Expr | Ordering | str,
        descending: bool | Sequence[bool] = False,
        nulls_first: bool | None = None,
    ) -> Frame:
        """Sort rows.

        Parameters
        ----------
        *keys : str, Expr, or the result of ``Expr.asc()`` and ``Expr.desc()``
            The first decides, the next ones where it is equal.
        descending : bool or sequence of bool
            For all keys, or for each.
        nulls_first : bool, optional
            Where NULLs go. Left out: first when descending, last when ascending, as in SQL here.
        """
        flags = [descending] * len(keys) if isinstance(descending, bool) else list(descending)
        if len(flags) != len(keys):
            raise ValueError(f"descending has {len(flags)} values for {len(keys)} keys")
        orderings = []
        for key, flag in zip(keys, flags, strict=True):
            if isinstance(key, Ordering):
                orderings.append(key)
            else:
                expression = col(key) if isinstance(key, str) else key
                orderings.append(Ordering(expression, flag, flag if nulls_first is None else nulls_first))
        return _Sorted(self, tuple(orderings))

    def limit(self, rows: int | None, offset: int = 0) -> Frame:
        """Keep the first rows, after leaving out ``offset`` of them; ``None`` keeps all that follow."""
        if offset < 0 or (rows is not None and rows < 0):
            raise ValueError("limit and offset are numbers of rows, and not negative")
        return _Limited(self, rows, offset)


@dataclass(frozen=True, slots=True)
class GroupBy:
    """Rows grouped by keys."""

    frame: Frame
    keys: tuple[tuple[str | None, Expr], ...]

    def agg(self, *aggregates: Expr, **named: Any) -> Frame:
        """Compute aggregates of each group: ``agg(total=col("x").sum(), rows=count())``.

        The result shows the keys, then the aggregates.
        """
        return _Aggregated(self.frame, self.keys, _listed(aggregates, named))


def scan(table: str, alias: str | None = None) -> Frame:
    """Begin a query with the rows of a registered table.

    Parameters
    ----------
    table : str
        Its name.
    alias : str, optional
        Another name for ``col("alias.column")``, for a table that is joined with itself.
    """
    return _Scanned(table, alias)


@dataclass(frozen=True, slots=True)
class _Scanned(Frame):
    table: str
    alias: str | None

    def _bind(self, binder: Binder) -> Bound:
        if self.table not in binder.tables:
            hint = nearest(self.table, list(binder.tables))
            raise UnknownTable(f"there is no table {self.table}{hint}", self.table)
        binder.scans[self.table] += 1
        number = binder.scans[self.table]
        prefix = self.table if number == 1 else f"{self.table}#{number}"
        columns, entries = [], []
        for item in binder.tables[self.table]:
            shown: Column | Unsupported
            if is_supported(item.type):
                columns.append(ScanColumn(f"{prefix}.{item.name}", item.name, item.type))
                shown = Column(item.type, f"{prefix}.{item.name}")
            else:
                shown = Unsupported(
                    f"column {self.table}.{item.name} has the type {item.type}, which queries cannot use yet"
                )
            entries.append(Entry(item.name, self.alias or self.table, shown))
        return Bound(Scan(self.table, tuple(columns)), tuple(entries))


@dataclass(frozen=True, slots=True)
class _Filtered(Frame):
    input: Frame
    predicates: tuple[Expr, ...]

    def _bind(self, binder: Binder) -> Bound:
        bound = self.input._bind(binder)
        parts: list[Expression] = []
        for predicate in self.predicates:
            part = predicate.bind(bound)
            if not pa.types.is_boolean(part.type):
                raise Unsupported(f"filter by {part}, which is of type {part.type}, is not supported")
            parts.extend(part.arguments if isinstance(part, Call) and part.function == "and" else (part,))
        condition = conjunction(tuple(parts))
        return bound if condition is None else Bound(Filter(bound.node, condition), bound.entries)


@dataclass(frozen=True, slots=True)
class _Selected(Frame):
    input: Frame
    outputs: tuple[tuple[str | None, Expr], ...]
    keep: bool

    def _bind(self, binder: Binder) -> Bound:
        bound = self.input._bind(binder)
        outputs = [(name, expression.bind(bound), expression) for name, expression in self.outputs]
        entries = [
            Entry(shown_name(name, source, item, bound), table_of(bound, item), item) for name, item, source in outputs
        ]
        if self.keep:
            replaced = {entry.name: entry for entry in entries}
            old = [replaced.pop(entry.name, entry) for entry in bound.entries]
            entries = [*old, *(entry for entry in entries if entry.name in replaced)]
        return projected(bound.node, entries)


@dataclass(frozen=True, slots=True)
class _Joined(Frame):
    left: Frame
    right: Frame
    on: str | Sequence[str] | Expr | None
    left_on: tuple[Expr, ...]
    right_on: tuple[Expr, ...]
    how: str

    def _bind(self, binder: Binder) -> Bound:
        left = self.left._bind(binder)
        right = renamed(self.right._bind(binder), left.node)
        shared = () if self.on is None or isinstance(self.on, Expr) else _several(self.on)
        conditions = [
            equality(first.bind(left), second.bind(right))
            for first, second in zip((*shared, *self.left_on), (*shared, *self.right_on), strict=True)
        ]
        if isinstance(self.on, Expr):
            conditions.append(self.on.bind(Bound(left.node, (*left.entries, *right.entries))))
        condition = conjunction(tuple(conditions))
        kind = _HOW[self.how]
        sides = (right, left) if self.how == "right" else (left, right)
        node = join_node(sides[0].node, sides[1].node, kind, condition, False)
        if kind in ("semi", "anti"):
            return Bound(node, left.entries)
        if self.how == "full" and shared:
            raise Unsupported("a full join with on= names is not supported: use left_on= and right_on=")
        names = {expression.output_name for expression in shared}
        lefts, rights = left.entries, right.entries
        if self.how == "right":
            lefts = tuple(entry for entry in lefts if entry.name not in names)
        else:
            rights = tuple(entry for entry in rights if entry.name not in names)
        return Bound(node, (*lefts, *rights))


@dataclass(frozen=True, slots=True)
class _Aggregated(Frame):
    input: Frame
    keys: tuple[tuple[str | None, Expr], ...]
    outputs: tuple[tuple[str | None, Expr], ...]

    def _bind(self, binder: Binder) -> Bound:
        bound = self.input._bind(binder)
        groups: dict[str, NamedExpression] = {}
        entries = []
        for name, source in self.keys:
            key = source.bind(bound)
            column = next((Column(key.type, item.name) for item in groups.values() if item.expression == key), None)
            if column is None:
                column = Column(key.type, unique_name(expression_name(key), groups))
                groups[column.name] = NamedExpression(column.name, key)
            entries.append(Entry(shown_name(name, source, key, bound), table_of(bound, key), column))
        bound.calls, bound.taken = {}, frozenset(groups)
        outputs = []
        for name, source in self.outputs:
            value = source.bind(bound)
            check_grouped(value, {*groups, *(call.name for call in bound.calls.values())})
            outputs.append(Entry(shown_name(name, source, value, bound), None, value))
        calls = tuple(bound.calls.values())
        if not groups and not calls:
            raise Unsupported("agg() without an aggregate is not supported")
        node = Aggregate(bound.node, tuple(groups.values()), calls)
        return projected(node, [*entries, *outputs])


@dataclass(frozen=True, slots=True)
class _Distinct(Frame):
    input: Frame

    def _bind(self, binder: Binder) -> Bound:
        bound = self.input._bind(binder)
        columns = dict.fromkeys(usable(entry) for entry in bound.entries)
        groups = tuple(NamedExpression(column.name, column) for column in columns)
        return Bound(Aggregate(bound.node, groups, ()), bound.entries)


@dataclass(frozen=True, slots=True)
class _Sorted(Frame):
    input: Frame
    keys: tuple[Ordering, ...]

    def _bind(self, binder: Binder) -> Bound:
        bound = self.input._bind(binder)
        keys = tuple(SortKey(key.expression.bind(bound), key.descending, key.nulls_first) for key in self.keys)
        return Bound(Sort(bound.node, keys), bound.entries) if keys else bound


@dataclass(frozen=True, slots=True)
class _Limited(Frame):
    input: Frame
    rows: int | None
    offset: int

    def _bind(self, binder: Binder) -> Bound:
        bound = self.input._bind(binder)
        return Bound(limit_node(bound.node, self.offset, self.rows), bound.entries)


def _listed(expressions: Sequence[Any], named: Mapping[str, Any]) -> tuple[tuple[str | None, Expr], ...]:
    listed = [(None, col(item) if isinstance(item, str) else _expression(item)) for item in expressions]
    return (*listed, *((name, _expression(item)) for name, item in named.items()))


def _expression(value: Any) -> Expr:
    return value if isinstance(value, Expr) else lit(value)


def _several(keys: Any) -> tuple[Expr, ...]:
    if keys is None:
        return ()
    if isinstance(keys, str | Expr):
        keys = (keys,)
    return tuple(col(key) if isinstance(key, str) else key for key in keys)
