"""Comparisons of floating-point values with decimals are made as floating-point numbers.

DataFusion compares ``x < 1.5`` for a DOUBLE column as ``decimal(30, 15)``, which has no infinity, no NaN and nothing
above 1e15, and is slow. PostgreSQL and DuckDB make the decimal a floating-point number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hybridq.plan.expressions import Call, Cast, Column, Expression, In, Literal, NamedExpression, transform
from hybridq.plan.functions import COMPARISONS
from hybridq.plan.nodes import Node, Plan, Project
from hybridq.plan.nodes import transform as transform_node
from hybridq.plan.rules.helpers import map_expressions
from hybridq.types import is_decimal

COERCED = {pa.float64(): pa.decimal128(30, 15), pa.float32(): pa.decimal128(14, 7)}
"""The decimal that DataFusion makes of a floating-point number to compare it with a decimal."""

_WRITTEN = re.compile(r"\(\s*(30\s*,\s*15|14\s*,\s*7)\s*\)")


def compare_as_floating(plan: Plan, text: str) -> Plan:
    """Take the casts to decimals off floating-point values that are compared, if they are not the query's own.

    Parameters
    ----------
    plan : Plan
        As DataFusion exports it.
    text : str
        The query. If it names the type of such a cast, nothing is changed.
    """
    if _WRITTEN.search(text):
        return plan

    root, *subqueries = (transform_node(each, _mended) for each in (plan.root, *plan.subqueries))
    return replace(plan, root=root, subqueries=tuple(subqueries))


def _mended(node: Node) -> Node:
    below = node.inputs[0] if len(node.inputs) == 1 else None
    columns = below.expressions if isinstance(below, Project) else ()
    # A cast that is needed twice is a column of a projection: what was cast becomes another one beside it.
    twins = {
        column.name: NamedExpression(f"{column.name} (floating)", original)
        for column in columns
        if (original := _original(column.expression)) is not None
    }
    casts = {
        name: Cast(COERCED[twin.expression.type], Column(twin.expression.type, twin.name))
        for name, twin in twins.items()
    }

    def mended(expression: Expression) -> Expression:
        if not casts or not isinstance(expression, (Call, In)):
            return as_floating(expression)
        inlined = _with_casts(expression, casts)
        found = as_floating(inlined)
        return expression if found == inlined else found

    changed = map_expressions(node, lambda expression: transform(expression, mended))
    if not isinstance(below, Project) or not twins or changed == node:
        return changed
    changed = changed.with_inputs((Project(below.input, (*below.expressions, *twins.values())),))
    if changed.schema == node.schema:
        return changed
    return Project(changed, tuple(NamedExpression(each.name, Column(each.type, each.name)) for each in node.schema))


def _with_casts(expression: Call | In, casts: Mapping[str, Expression]) -> Call | In:
    def inlined(side: Expression) -> Expression:
        return casts.get(side.name, side) if isinstance(side, Column) else side

    if isinstance(expression, In):
        return replace(expression, operand=inlined(expression.operand))
    return replace(expression, arguments=tuple(inlined(side) for side in expression.arguments))


def as_floating(expression: Expression) -> Expression:
    """Compare values as floating-point numbers, or look for them in a list so, where they were made decimals for that.

    Whatever else the expression is, it is returned as it is.
    """
    if isinstance(expression, In):
        operand = _original(expression.operand)
        if operand is None:
            return expression
        return replace(
            expression, operand=operand, values=tuple(_literal(each, operand.type) for each in expression.values)
        )
    if not isinstance(expression, Call) or expression.function not in COMPARISONS:
        return expression
    original = next((found for side in expression.arguments if (found := _original(side)) is not None), None)
    if original is None or not all(is_decimal(side.type) for side in expression.arguments):
        return expression
    return replace(expression, arguments=tuple(_converted(side, original.type) for side in expression.arguments))


def _original(side: Expression) -> Expression | None:
    """Return the floating-point value that was made a decimal; ``None``: it is something else."""
    if isinstance(side, Cast) and not side.null_on_failure and COERCED.get(side.operand.type) == side.type:
        return side.operand
    return None


def _converted(side: Expression, target: pa.DataType) -> Expression:
    if isinstance(side, Literal):
        return _literal(side, target)
    if isinstance(side, Cast) and side.type == COERCED[target] and not side.null_on_failure:
        side = side.operand  # made that decimal for this comparison, whether a floating-point value or another decimal
    return side if side.type == target else Cast(target, side)


def _literal(literal: Literal, target: pa.DataType) -> Literal:
    kind = np.float32 if target == pa.float32() else np.float64
    return Literal(target, None if literal.value is None else float(kind(literal.value)))
