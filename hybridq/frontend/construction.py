"""Plan nodes that every front end makes in the same way."""

from __future__ import annotations

import pyarrow as pa

from hybridq.errors import PlanFormatError, Unsupported
from hybridq.frontend.coercion import cast_to
from hybridq.plan.expressions import Call, Expression, Literal, columns_of, conjunction, conjuncts
from hybridq.plan.functions import common_type
from hybridq.plan.nodes import Join, JoinKind, Limit, Node
from hybridq.types import average_type, is_decimal, is_floating, is_integer, sum_type


def join_node(left: Node, right: Node, kind: JoinKind, condition: Expression | None, null_aware: bool) -> Join:
    """Return a join whose condition is split into pairs of equal keys and a residual."""
    left_names = {field.name for field in left.schema}
    right_names = {field.name for field in right.schema}
    keys: list[tuple[Expression, Expression]] = []
    rest: list[Expression] = []
    for part in () if condition is None else conjuncts(condition):
        pair = _key_pair(part, left_names, right_names)
        if pair is not None:
            keys.append(pair)
        elif not is_true(part):
            rest.append(part)
    left_keys, right_keys = tuple(pair[0] for pair in keys), tuple(pair[1] for pair in keys)
    return Join(left, right, kind, left_keys, right_keys, conjunction(tuple(rest)), null_aware)


def _key_pair(part: Expression, left: set[str], right: set[str]) -> tuple[Expression, Expression] | None:
    if not (isinstance(part, Call) and part.function == "equal"):
        return None
    first, second = part.arguments
    if columns_of(first) <= right and columns_of(second) <= left:
        first, second = second, first
    first_columns, second_columns = columns_of(first), columns_of(second)
    if not (first_columns and second_columns and first_columns <= left and second_columns <= right):
        return None
    data_type = common_type(first.type, second.type)
    return None if data_type is None else (cast_to(first, data_type), cast_to(second, data_type))


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


def aggregate_type(function: str, argument: Expression | None, declared: pa.DataType | None) -> pa.DataType:
    """Return the type of an aggregate's result.

    Raises
    ------
    Unsupported
        If the function does not take such values.
    """
    if function == "count":
        return pa.int64()
    if argument is None:
        raise PlanFormatError(f"the plan has {function} of nothing")
    data_type = argument.type
    if function in ("min", "max"):
        return data_type
    if not (is_decimal(data_type) or is_integer(data_type) or is_floating(data_type)):
        raise Unsupported(f"{function} of values of type {data_type} is not supported")
    if function == "sum":
        return sum_type(data_type)
    if declared is not None and is_decimal(declared) and is_decimal(data_type):
        return declared
    return average_type(data_type)
