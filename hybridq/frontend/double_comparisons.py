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

from hybridq.plan.expressions import Call, Cast, Column, Expression, In, Literal, transform
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
    # DataFusion makes a cast that a condition needs twice a column of a projection below it.
    below = node.inputs[0] if node.inputs else None
    columns = below.expressions if isinstance(below, Project) else ()
    casts = {column.name: column.expression for column in columns if _floating(column.expression) is not None}

    def as_floating(expression: Expression) -> Expression:
        if not casts or not isinstance(expression, (Call, In)):
            return _as_floating(expression)
        inlined = _with_casts(expression, casts)
        found = _as_floating(inlined)
        return expression if found == inlined else found

    return map_expressions(node, lambda expression: transform(expression, as_floating))


def _with_casts(expression: Call | In, casts: Mapping[str, Expression]) -> Call | In:
    def inlined(side: Expression) -> Expression:
        return casts.get(side.name, side) if isinstance(side, Column) else side

    if isinstance(expression, In):
        return replace(expression, operand=inlined(expression.operand))
    return replace(expression, arguments=tuple(inlined(side) for side in expression.arguments))


def _as_floating(expression: Expression) -> Expression:
    if isinstance(expression, In):
        target = _floating(expression.operand)
        if target is None or not isinstance(expression.operand, Cast):
            return expression
        values = tuple(_converted(value, target) for value in expression.values)
        literals = tuple(value for value in values if isinstance(value, Literal))
        return replace(expression, operand=expression.operand.operand, values=literals)
    if not isinstance(expression, Call) or expression.function not in COMPARISONS:
        return expression
    targets = [target for side in expression.arguments if (target := _floating(side)) is not None]
    if not targets or not all(is_decimal(side.type) for side in expression.arguments):
        return expression
    sides = tuple(_converted(side, targets[0]) for side in expression.arguments)
    return replace(expression, arguments=sides)


def _floating(side: Expression) -> pa.DataType | None:
    """Return the type of a floating-point value that was made a decimal; ``None``: it is something else."""
    if isinstance(side, Cast) and not side.null_on_failure and COERCED.get(side.operand.type) == side.type:
        return side.operand.type
    return None


def _converted(side: Expression, target: pa.DataType) -> Expression:
    if isinstance(side, Literal):
        kind = np.float32 if target == pa.float32() else np.float64
        return Literal(target, None if side.value is None else float(kind(side.value)))
    if _floating(side) == target and isinstance(side, Cast):
        return side.operand
    return Cast(target, side)
