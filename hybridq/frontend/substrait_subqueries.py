"""Subqueries within Substrait's expressions, and what the plan that they come from says of joins made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa

from hybridq.errors import PlanFormatError, Unsupported
from hybridq.frontend.coercion import common_type_of
from hybridq.plan.expressions import AggregateCall, Call, Column, Expression, NamedExpression, SubqueryValue
from hybridq.plan.expressions import Literal as Constant
from hybridq.plan.nodes import Aggregate, Join, Limit, Node, Project
from hybridq.types import is_nested

_SUBQUERY = "substrait.Expression.Subquery"


@dataclass(frozen=True, slots=True)
class JoinNote:
    """What Substrait cannot say of an anti or a mark join.

    Attributes
    ----------
    kind : str
        ``anti`` or ``mark``.
    null_aware : bool or None
        Whether the join stands for IN, whose first condition compares the value with the subquery's; else for EXISTS.
        ``None``: that could not be found out.
    """

    kind: Literal["anti", "mark"]
    null_aware: bool | None


class JoinNotes:
    """Notes of one plan's joins, taken in the order in which the plan is read.

    Parameters
    ----------
    notes : iterator of JoinNote or None
        For each anti and each mark join: parents first, subqueries in a node's expressions before its inputs, left
        before right. ``None`` for plans that were not made from SQL here: anti joins are NOT EXISTS then, and mark
        joins are not supported, since producers differ in what they mean.
    """

    def __init__(self, notes: Iterator[JoinNote] | None) -> None:
        self._notes = notes

    def null_aware(self, kind: Literal["anti", "mark"]) -> bool:
        """Tell whether the next such join stands for IN.

        Raises
        ------
        Unsupported
            That is not known.
        """
        if self._notes is None:
            if kind == "mark":
                raise Unsupported("a mark join in a Substrait plan is not supported: it does not say what NULL means")
            return False
        note = next(self._notes, None)
        if note is None or note.kind != kind or note.null_aware is None:
            words = "NOT IN" if kind == "anti" else "IN or EXISTS under OR"
            raise Unsupported(f"{words} over a subquery is not supported in this form: try NOT EXISTS, or a join")
        return note.null_aware

    def check_used(self) -> None:
        """Check that every note has been taken.

        Raises
        ------
        Unsupported
            The plan and its notes differ, so that none of them can be trusted.
        """
        if self._notes is not None and next(self._notes, None) is not None:
            raise Unsupported("IN over a subquery is not supported in this form: try EXISTS, or a join")


def subqueries_of(message: Any) -> Iterator[Any]:
    """Yield the ``substrait.Expression.Subquery`` messages of a relation's own expressions, in order."""
    for descriptor, value in message.ListFields():
        found = _holds(descriptor)
        if found == "nothing":
            continue
        for part in value if descriptor.is_repeated else (value,):
            if found == "subqueries":
                yield part
            else:
                yield from subqueries_of(part)


@lru_cache(maxsize=4096)
def _holds(descriptor: Any) -> Literal["nothing", "subqueries", "perhaps"]:
    """Tell whether a field is a subquery, or may have some, of the same relation, further down.

    Types and literals, say, have none; asking them takes most of the time.
    """
    kind = descriptor.message_type
    if kind is not None and kind.full_name == _SUBQUERY:
        return "subqueries"
    return "perhaps" if kind is not None and _leads_to_subqueries(kind, set()) else "nothing"


def _leads_to_subqueries(kind: Any, seen: set[str]) -> bool:
    if kind.full_name in seen or kind.full_name == "substrait.Rel" or kind.GetOptions().map_entry:
        return False
    seen.add(kind.full_name)
    below = [field.message_type for field in kind.fields if field.message_type is not None]
    return any(each.full_name == _SUBQUERY or _leads_to_subqueries(each, seen) for each in below)


@dataclass(slots=True)
class Subqueries:
    """The subqueries of one plan that have been translated.

    Attributes
    ----------
    values : list of Node
        What each ``SubqueryValue`` stands for.
    """

    values: list[Node] = field(default_factory=list)
    _known: dict[bytes, SubqueryValue | tuple[Node, Column]] = field(default_factory=dict)
    _marks: list[tuple[str, Expression, Node, Column]] = field(default_factory=list)
    _marked: int = 0

    def add(self, message: Any, node: Node, columns: tuple[Column, ...]) -> None:
        """Take in a subquery, once its relation is translated.

        Parameters
        ----------
        message : substrait.Expression.Subquery
        node : Node
            Its relation.
        columns : tuple of Column
            The columns of ``node`` that it gives.
        """
        kind = message.WhichOneof("subquery_type")
        if kind == "set_predicate":
            self._known[message.SerializeToString()] = self._value(*_existence(node))
            return
        if len(columns) != 1:
            raise PlanFormatError(f"the plan has a subquery of {len(columns)} columns where it needs one")
        if kind == "in_predicate":
            self._known[message.SerializeToString()] = (node, columns[0])
        elif is_nested(columns[0].type):
            given = f"a {columns[0].type} ({columns[0]})"
            raise Unsupported(f"a subquery used as a value that gives {given} is not supported: join it instead")
        else:
            self._known[message.SerializeToString()] = self._value(node, columns[0])

    def _value(self, node: Node, column: Column) -> SubqueryValue:
        if tuple(item.name for item in node.schema) != (column.name,):
            node = Project(node, (NamedExpression(column.name, column),))
        if node not in self.values:
            self.values.append(node)
        return SubqueryValue(column.type, self.values.index(node))

    def expression(self, message: Any, needle: Expression | None) -> Expression:
        """Return what stands for a subquery in the expression that has it.

        Parameters
        ----------
        message : substrait.Expression.Subquery
        needle : Expression or None
            With IN: the value that is looked for.
        """
        found = self._known[message.SerializeToString()]
        if isinstance(found, SubqueryValue):
            return found
        if needle is None:
            raise PlanFormatError("the plan has an IN of no value")
        self._marked += 1
        mark = f"mark {self._marked}"
        self._marks.append((mark, needle, *found))
        return Column(pa.bool_(), mark)

    def take_marks(self) -> list[tuple[str, Expression, Node, Column]]:
        """Return for each IN that was met since the last call: the column for its result, and what it compares."""
        found, self._marks = self._marks, []
        return found


def marked(node: Node, mark: str, needle: Expression, haystack: Node, column: Column) -> Node:
    """Return a node with one more column: whether a value is IN the column of another node."""
    left, right = common_type_of([needle, column], "IN")
    return Join(node, haystack, "mark", (left,), (right,), None, True, mark)


def _existence(node: Node) -> tuple[Node, Column]:
    """Return a node of one row, and its column that tells whether the given node has a row."""
    count = AggregateCall("count(*)", "count", None, pa.int64())
    counted = Aggregate(Limit(node, 0, 1), (), (count,))
    positive = Call(pa.bool_(), "greater", (Column(pa.int64(), "count(*)"), Constant(pa.int64(), 0)))
    return Project(counted, (NamedExpression(str(positive), positive),)), Column(pa.bool_(), str(positive))
