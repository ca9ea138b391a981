"""Joins with the tables that stand for UNNEST (see ``sql_unnest``), as ``Unnest`` nodes.

Such a table has a row for every value there is, and a condition chooses the elements of a list. So the join of it is
the other side's rows once for each element; and whatever the table has been joined with first, or filtered by, may as
well be done with these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from hybridq.errors import Unsupported
from hybridq.frontend.construction import with_columns
from hybridq.frontend.sql_unnest import FUNCTION, TABLE
from hybridq.plan.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    NamedExpression,
    columns_of,
    conjunction,
    conjuncts,
    substitute,
)
from hybridq.plan.expressions import walk as parts_of
from hybridq.plan.naming import unique_name
from hybridq.plan.nodes import Filter, Join, Node, Plan, Project, Scan, Values, transform, walk
from hybridq.plan.rules.helpers import map_expressions
from hybridq.plan.unnesting import Unnest, UnnestKind
from hybridq.types import Schema

_KINDS: Mapping[str, UnnestKind] = {"inner": "inner", "left": "left", "semi": "semi", "anti": "anti"}
_UNSUPPORTED = "UNNEST in this place is not supported: write it in FROM, beside the table that has the list"


@dataclass(frozen=True, slots=True)
class UnnestNames:
    """What an UNNEST is called.

    Attributes
    ----------
    lists : int
        How many it has.
    columns : tuple of str
        Of the table that stands for it: the elements'.
    ordinality : str or None
        The column of their places.
    """

    lists: int
    columns: tuple[str, ...]
    ordinality: str | None


def with_unnests(plan: Plan, tables: Mapping[str, UnnestNames]) -> Plan:
    """Return a plan with ``Unnest`` nodes in place of joins with the given tables.

    Raises
    ------
    Unsupported
        UNNEST is used in a way for which there is no such node.
    """
    if not tables:
        return plan
    put = _Placing(tables).put
    placed = replace(
        plan, root=transform(plan.root, put), subqueries=tuple(transform(node, put) for node in plan.subqueries)
    )
    for root in (placed.root, *placed.subqueries):
        for node in walk(root):
            if isinstance(node, Scan) and node.table in tables:
                raise Unsupported(_UNSUPPORTED)
            map_expressions(node, _checked)
    return placed


def _checked(expression: Expression) -> Expression:
    if any(_is_marker(part) for part in parts_of(expression)):
        raise Unsupported(_UNSUPPORTED)
    return expression


def _is_marker(part: Expression) -> bool:
    return isinstance(part, Call) and part.function.startswith(FUNCTION)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """An UNNEST that is to be put somewhere.

    Attributes
    ----------
    table : str
    names : UnnestNames
    lists : tuple of Expression
    column : str
        A column of the scan that stands for it.
    """

    table: str
    names: UnnestNames
    lists: tuple[Expression, ...]
    column: str

    @property
    def reads(self) -> frozenset[str]:
        """Return the columns that the lists are made of."""
        return frozenset().union(*map(columns_of, self.lists))

    def of(self, scan: Scan, source: Node, kind: UnnestKind = "inner", condition: Expression | None = None) -> Unnest:
        """Return the node, over some rows, that gives the columns of a scan of the table."""
        called = {column.source: column.name for column in scan.columns}
        taken = {*called.values(), *(field.name for field in source.schema)}
        for name in (*self.names.columns, *([] if self.names.ordinality is None else [self.names.ordinality])):
            if name not in called:
                called[name] = unique_name(name, taken)
                taken.add(called[name])
        pairs = zip(self.names.columns, self.lists, strict=True)
        lists = tuple(NamedExpression(called[name], expression) for name, expression in pairs)
        place = None if self.names.ordinality is None else called[self.names.ordinality]
        return Unnest(source, lists, kind, place, condition)


class _Placing:
    """Puts the nodes of one plan. Parameters are those of ``with_unnests``."""

    def __init__(self, tables: Mapping[str, UnnestNames]) -> None:
        self._tables = tables
        self._placed: set[str] = set()

    def put(self, node: Node) -> Node:
        """Return a node whose inputs are done with, without the markers of its own conditions."""
        if isinstance(node, Filter):
            return self._of_filter(node)
        if isinstance(node, Join) and node.residual is not None and node.mark is None:
            return self._of_join(node)
        return node

    def _taken(self, condition: Expression) -> tuple[_Wanted | None, tuple[Expression, ...]]:
        """Return one of the UNNESTs that a condition names, and the rest of the condition."""
        parts = tuple(part for part in conjuncts(condition) if not self._is_concluded(part))
        for part in parts:
            if isinstance(part, Call) and _is_marker(part):
                table, lists, columns = self._read(part)
                rest = tuple(each for each in parts if each is not part)
                return _Wanted(table, self._tables[table], lists, str(columns[0])), rest
        return None, parts

    def _read(self, marker: Call) -> tuple[str, tuple[Expression, ...], tuple[Expression, ...]]:
        table = TABLE + marker.function.removeprefix(FUNCTION)
        count = self._tables[table].lists
        return table, marker.arguments[:count], marker.arguments[count:]

    def _is_concluded(self, part: Expression) -> bool:
        """Tell whether DataFusion has concluded a condition from that of an UNNEST.

        Where ``x = k``, what is true of an element x is true of k. The condition itself is still there, and says more.
        Of a list that is made of k it may have concluded a second condition, which says the same.
        """
        if not isinstance(part, Call) or not _is_marker(part):
            return False
        table, _, columns = self._read(part)
        if str(columns[0]) in self._placed:
            return True
        return not all(
            isinstance(each, Column) and each.name.startswith((f"{table}.", f"{table}#")) for each in columns
        )

    def _of_filter(self, node: Filter) -> Node:
        wanted, rest = self._taken(node.predicate)
        if wanted is None:
            return node if len(rest) == len(conjuncts(node.predicate)) else _filtered(node.input, rest)
        below = node.input
        if not wanted.reads:
            # A constant list: its table is not joined with anything here.
            alone = Values(pa.table({"one row": pa.array([True])}))
            placed = self._grafted(below, wanted, alone)
        elif isinstance(below, Join) and below.kind == "inner":
            residual = conjunction((*([] if below.residual is None else conjuncts(below.residual)), node.predicate))
            return self.put(replace(below, residual=residual))
        else:
            raise Unsupported(_UNSUPPORTED)
        return self.put(_filtered(_like(placed, below.schema), rest))

    def _of_join(self, node: Join) -> Node:
        assert node.residual is not None
        wanted, rest = self._taken(node.residual)
        if wanted is None:
            return replace(node, residual=conjunction(rest))
        if node.kind not in _KINDS or node.null_aware:
            return node
        left, right = node.left, node.right
        if node.kind == "inner" and _reads(left, wanted):
            left, right = right, left
        if not wanted.reads <= {field.name for field in left.schema} or not _reads(right, wanted):
            return node
        pairs = zip(node.left_keys, node.right_keys, strict=True)
        conditions = (*(Call(pa.bool_(), "equal", pair) for pair in pairs), *rest)
        if node.kind == "inner":
            # More UNNESTs may be named among the conditions, and what they name be in what has been put together.
            placed = self.put(_filtered(self._grafted(right, wanted, left), conditions))
        else:
            scan, own, values = _bare(right)
            self._placed.add(wanted.column)
            conditions = (*own, *(substitute(each, values) for each in conditions))
            if any(_is_marker(part) for each in conditions for part in parts_of(each)):
                raise Unsupported(_UNSUPPORTED)
            placed = wanted.of(scan, left, _KINDS[node.kind], conjunction(conditions))
            if node.kind == "left":
                passed = [NamedExpression(field.name, Column(field.type, field.name)) for field in left.schema]
                renamed = [NamedExpression(name, value) for name, value in values.items()]
                placed = Project(placed, (*passed, *renamed))
        return _like(placed, node.schema)

    def _grafted(self, node: Node, wanted: _Wanted, source: Node) -> Node:
        """Return a node with UNNEST of some rows in place of its table, and these rows' columns beside its own."""
        self._placed.add(wanted.column)
        if isinstance(node, Scan) and _reads(node, wanted):
            return _spread(source, wanted, node)
        taken = {field.name for field in node.schema} & {field.name for field in source.schema}
        if taken:
            raise Unsupported(_UNSUPPORTED)
        if isinstance(node, Filter):
            return Filter(self._grafted(node.input, wanted, source), node.predicate)
        if isinstance(node, Project):
            below = self._grafted(node.input, wanted, source)
            passed = tuple(NamedExpression(field.name, Column(field.type, field.name)) for field in source.schema)
            return Project(below, (*node.expressions, *passed))
        if isinstance(node, Unnest):
            return node.with_inputs((self._grafted(node.input, wanted, source),))
        if isinstance(node, Join) and node.kind != "full":
            if _reads(node.left, wanted):
                return replace(node, left=self._grafted(node.left, wanted, source))
            if node.kind == "inner":
                return replace(node, right=self._grafted(node.right, wanted, source))
        raise Unsupported(_UNSUPPORTED)


def _spread(source: Node, wanted: _Wanted, scan: Scan) -> Node:
    """Return UNNEST over some rows: below a cross join in them, where only one side has to do with it."""
    if isinstance(source, Join) and source.kind == "inner" and not source.left_keys and source.residual is None:
        for side in source.inputs:
            if wanted.reads and wanted.reads <= {field.name for field in side.schema}:
                done = _spread(side, wanted, scan)
                return replace(source, left=done) if side is source.left else replace(source, right=done)
    return wanted.of(scan, source)


def _bare(node: Node) -> tuple[Scan, tuple[Expression, ...], dict[str, Expression]]:
    """Take a table's scan apart that is only filtered and renamed: also its conditions, and what its columns are."""
    if isinstance(node, Scan):
        return node, (), {column.name: Column(column.type, column.name) for column in node.columns}
    if isinstance(node, Filter):
        scan, conditions, values = _bare(node.input)
        return scan, (*conditions, *(substitute(part, values) for part in conjuncts(node.predicate))), values
    if isinstance(node, Project) and all(isinstance(item.expression, Column) for item in node.expressions):
        scan, conditions, values = _bare(node.input)
        return scan, conditions, {item.name: substitute(item.expression, values) for item in node.expressions}
    raise Unsupported(_UNSUPPORTED)


def _reads(node: Node, wanted: _Wanted) -> bool:
    """Tell whether the scan that stands for an UNNEST is among those of a node."""
    return any(
        isinstance(part, Scan) and any(column.name == wanted.column for column in part.columns) for part in walk(node)
    )


def _filtered(node: Node, conditions: Sequence[Expression]) -> Node:
    kept = tuple(part for part in conditions if part != Literal(pa.bool_(), True))
    condition = conjunction(kept)
    return node if condition is None else Filter(node, condition)


def _like(node: Node, schema: Schema) -> Node:
    """Return a node with exactly the columns of a schema, in order."""
    return with_columns(node, [Column(field.type, field.name) for field in schema])
