"""Plan nodes that every front end makes in the same way."""

from __future__ import annotations

from collections.abc import Sequence

from hybridq.errors import Unsupported
from hybridq.frontend.coercion import cast_to
from hybridq.plan.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    NamedExpression,
    columns_of,
    conjunction,
    conjuncts,
)
from hybridq.plan.functions import common_type
from hybridq.plan.naming import expression_name, unique_name
from hybridq.plan.nodes import Join, JoinKind, Limit, Node, Project
from hybridq.plan.null_safe import null_safe_keys


def join_node(
    left: Node,
    right: Node,
    kind: JoinKind,
    condition: Expression | None,
    null_aware: bool = False,
    mark: str | None = None,
) -> Join:
    """Return a join whose condition is split into pairs of equal keys and a residual.

    Raises
    ------
    Unsupported
        The join is that of IN, and its first condition is no pair of keys.
    """
    left_names = {field.name for field in left.schema}
    right_names = {field.name for field in right.schema}
    keys: list[tuple[Expression, Expression]] = []
    rest: list[Expression] = []
    for part in () if condition is None else conjuncts(condition):
        pairs = _key_pairs(part, left_names, right_names)
        if pairs:
            keys += pairs
        elif not is_true(part):
            rest.append(part)
    left_keys, right_keys = tuple(pair[0] for pair in keys), tuple(pair[1] for pair in keys)
    if null_aware and (condition is None or not keys or conjuncts(condition)[0] in rest):
        raise Unsupported("IN over a subquery, compared with a constant or with NULL, is not supported here")
    return Join(left, right, kind, left_keys, right_keys, conjunction(tuple(rest)), null_aware, mark)


def with_columns(node: Node, columns: Sequence[Column]) -> Node:
    """Return a node whose columns are exactly these, in order; a repeated column gets a second name."""
    if tuple(field.name for field in node.schema) == tuple(column.name for column in columns):
        return node
    items: dict[str, NamedExpression] = {}
    for column in columns:
        name = unique_name(expression_name(column), items)
        items[name] = NamedExpression(name, column)
    return Project(node, tuple(items.values()))


def _key_pairs(part: Expression, left: set[str], right: set[str]) -> list[tuple[Expression, Expression]]:
    """Return the pairs of keys, a left one and a right one each, whose equality a condition is; none if it is not."""
    if not (isinstance(part, Call) and part.function in ("equal", "is_not_distinct_from")):
        return []
    first, second = part.arguments
    if columns_of(first) <= right and columns_of(second) <= left:
        first, second = second, first
    first_columns, second_columns = columns_of(first), columns_of(second)
    if not (first_columns and second_columns and first_columns <= left and second_columns <= right):
        return []
    data_type = common_type(first.type, second.type)
    if data_type is None:
        return []
    pair = cast_to(first, data_type), cast_to(second, data_type)
    return [pair] if part.function == "equal" else null_safe_keys(*pair)


def limit_node(node: Node, offset: int, count: int | None) -> Limit:
    """Return a limit, merged with one below it (DataFusion writes OFFSET as two)."""
    if isinstance(node, Limit):
        left = None if node.count is None else max(node.count - offset, 0)
        fewest = [rows for rows in (count, left) if rows is not None]
        return Limit(node.input, node.offset + offset, min(fewest) if fewest else None)
    return Limit(node, offset, count)


def is_true(expression: Expression) -> bool:
    """Tell whether the expression is the constant TRUE."""
    return isinstance(expression, Literal) and expression.value is True
