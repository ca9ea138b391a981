"""UNION, INTERSECT and EXCEPT as plan nodes. NULLs are equal to each other here, unlike in joins."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hybridq.errors import PlanFormatError
from hybridq.frontend.coercion import cast_to
from hybridq.frontend.construction import join_node, with_columns
from hybridq.plan.expressions import Call, Column, Expression, NamedExpression
from hybridq.plan.functions import common_type
from hybridq.plan.naming import bounded, unique_name
from hybridq.plan.nodes import Aggregate, Node, Project, Union, Window
from hybridq.plan.windows import WindowCall
from hybridq.types import Schema

Input = tuple[Node, Sequence[Column]]
"""A node, and the columns of it that take part, in order; one may be there twice."""


def columns_of_node(node: Node) -> tuple[Column, ...]:
    """Return a node's columns."""
    return tuple(Column(field.type, field.name) for field in node.schema)


def union_all(inputs: Sequence[Input]) -> Union:
    """Return all rows of all inputs, whose columns are brought to common types.

    Raises
    ------
    PlanFormatError
        The inputs differ in their number of columns, or have types without a common one.
    """
    parts: list[Node] = []
    for node in _aligned(inputs):
        parts += node.parts if isinstance(node, Union) else (node,)
    return Union(tuple(parts), tuple(field.name for field in parts[0].schema))


def distinct(node: Node) -> Aggregate:
    """Return each different row once."""
    groups = tuple(NamedExpression(column.name, column) for column in columns_of_node(node))
    return Aggregate(node, groups, ())


def matched(left: Input, right: Input, kept: bool, multiset: bool) -> Node:
    """Return the left rows that are among the right ones (``kept``: INTERSECT), or that are not (EXCEPT).

    Parameters
    ----------
    left, right : Input
    kept : bool
    multiset : bool
        Each right row matches one left row only (INTERSECT ALL, EXCEPT ALL). Without it, each left row is looked at on
        its own; repeated ones stay.
    """
    first, second = _aligned([left, right])
    columns = columns_of_node(first)
    if multiset:
        first, second = _numbered(first), _numbered(second)
    taken = {field.name for field in first.schema}
    names: list[str] = []
    for field in second.schema:
        names.append(unique_name(field.name, taken))
        taken.add(names[-1])
    renamed = Project(
        second,
        tuple(NamedExpression(name, column) for name, column in zip(names, columns_of_node(second), strict=True)),
    )
    pairs = list(zip(columns_of_node(first), columns_of_node(renamed), strict=True))
    tests = [Call(pa.bool_(), "is_not_distinct_from", pair) for pair in pairs[: len(columns)]]
    tests += [Call(pa.bool_(), "equal", pair) for pair in pairs[len(columns) :]]
    condition = tests[0] if len(tests) == 1 else Call(pa.bool_(), "and", tuple(tests))
    return with_columns(join_node(first, renamed, "semi" if kept else "anti", condition, False), columns)


def _numbered(node: Node) -> Node:
    """Number equal rows from 1 on, in a column at the end."""
    columns = columns_of_node(node)
    call = WindowCall("", "row_number", (), pa.uint64(), columns, ())
    return Window(node, (call.renamed(unique_name(bounded(call.text), {column.name for column in columns})),))


def _aligned(inputs: Sequence[Input]) -> list[Node]:
    """Return nodes with just the columns that take part, of equal types."""
    widths = {len(columns) for _, columns in inputs}
    if len(widths) != 1:
        raise PlanFormatError("the plan has a set operation whose inputs differ in their number of columns")
    types = [_common([columns[i].type for _, columns in inputs]) for i in range(widths.pop())]
    return [_cast(with_columns(node, columns), types) for node, columns in inputs]


def _common(types: Sequence[pa.DataType]) -> pa.DataType:
    found = types[0]
    for data_type in types[1:]:
        wider = common_type(found, data_type)
        if wider is None:
            raise PlanFormatError(f"the plan has a set operation of values of types {found} and {data_type}")
        found = wider
    return found


def _cast(node: Node, types: Sequence[pa.DataType]) -> Node:
    schema: Schema = node.schema
    if all(field.type == data_type for field, data_type in zip(schema, types, strict=True)):
        return node
    items: list[NamedExpression] = []
    for column, data_type in zip(columns_of_node(node), types, strict=True):
        expression: Expression = cast_to(column, data_type)
        items.append(NamedExpression(column.name, expression))
    return Project(node, tuple(items))
