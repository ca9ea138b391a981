"""Bring conditions into the forms that statistics, scans and joins look for."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from hybridq.plan.exact_values import exact
from hybridq.plan.expressions import Call, Cast, Expression, In, Literal, conjunction, conjuncts
from hybridq.plan.expressions import transform as transform_expression
from hybridq.plan.functions import COMPARISONS, common_type
from hybridq.plan.nodes import Node, transform
from hybridq.plan.rules.helpers import can_fail, is_safe_cast, map_expressions
from hybridq.types import is_decimal, is_floating, is_integer, is_time

MIRRORED = {
    "less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal",
}  # fmt: skip
"""Comparisons with their sides exchanged; all others are the same."""

_OPPOSITES = (
    ("equal", "not_equal"), ("less", "greater_equal"), ("greater", "less_equal"), ("is_null", "is_not_null"),
    ("is_true", "is_not_true"), ("is_false", "is_not_false"), ("is_distinct_from", "is_not_distinct_from"),
)  # fmt: skip
OPPOSITE = {name: other for pair in _OPPOSITES for name, other in (pair, pair[::-1])}
"""What NOT makes of a condition, NULL included."""


def comparison_forms(root: Node) -> Node:
    """Put constants right of what they are compared with, and take casts off: ``cast(a as bigint) < 5`` is ``a < 5``.

    Casts that widen a type go where the constant is a value of the narrower type, so that no comparison changes. NOT
    moves inwards. Conditions that all alternatives of an OR share stand beside it, unless they may fail.

    >>> from hybridq.plan.expressions import Column
    >>> from hybridq.plan.nodes import Filter, Scan, ScanColumn, render
    >>> scan = Scan("t", (ScanColumn("t.a", "a", pa.int32()),))
    >>> wide = Cast(pa.int64(), Column(pa.int32(), "t.a"))
    >>> print(render(comparison_forms(Filter(scan, Call(pa.bool_(), "less", (Literal(pa.int64(), 5), wide))))))
    Filter (t.a > 5)
      Scan t [a]
    """
    return transform(root, lambda node: map_expressions(node, formed))


def formed(expression: Expression) -> Expression:
    """Bring all conditions within an expression into their forms."""
    return transform_expression(expression, formed_alone)


def formed_alone(expression: Expression) -> Expression:
    """Bring one condition, whose operands are in their forms, into its form."""
    if isinstance(expression, In):
        return _membership(expression)
    if not isinstance(expression, Call):
        return expression
    if expression.function in COMPARISONS:
        return _comparison(expression)
    if expression.function == "not":
        return _negation(expression)
    return _alternatives(expression) if expression.function == "or" else expression


def _comparison(call: Call) -> Expression:
    left, right = call.arguments
    if isinstance(left, Literal) and not isinstance(right, Literal):
        call = replace(call, function=MIRRORED.get(call.function, call.function), arguments=(right, left))
        left, right = right, left
    if not isinstance(left, Cast):
        return call
    if isinstance(right, Literal) and right.value is not None and _only_widens(left):
        value = exact(right.value, left.operand.type)
        if value is not None:
            return replace(call, arguments=(left.operand, Literal(left.operand.type, value)))
    if not is_time(left.type) or left.null_on_failure:
        return call
    if isinstance(right, Literal) and right.value is not None and _is_finest(left.type) and is_time(left.operand.type):
        # Literals hold whole microseconds.
        target = pa.timestamp("us", left.type.tz)
        finest = pa.types.is_timestamp(left.operand.type) and _is_finest(left.operand.type)
        return call if finest else replace(call, arguments=(replace(left, type=target), Literal(target, right.value)))
    return _of_times(call, left, right) if isinstance(right, Cast) else call


def _is_finest(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(data_type)) and data_type.unit == "ns"


def _of_times(call: Call, left: Cast, right: Cast) -> Expression:
    """Compare times in no finer unit than they have: years that nanoseconds do not reach compare, too."""
    if (
        left.null_on_failure
        or right.null_on_failure
        or not (is_time(left.operand.type) and is_time(right.operand.type))
    ):
        return call
    target = common_type(left.operand.type, right.operand.type)
    if target is None or target == left.type or (pa.types.is_timestamp(target) and target.tz != left.type.tz):
        return call
    sides = (side.operand if side.operand.type == target else replace(side, type=target) for side in (left, right))
    return replace(call, arguments=tuple(sides))


def _membership(expression: In) -> Expression:
    operand = expression.operand
    if not isinstance(operand, Cast) or not _only_widens(operand):
        return expression
    values = []
    for literal in expression.values:
        value = None if literal.value is None else exact(literal.value, operand.operand.type)
        if value is None and literal.value is not None:
            return expression
        values.append(Literal(operand.operand.type, value))
    return In(expression.type, operand.operand, tuple(values))


def _only_widens(cast: Cast) -> bool:
    """Tell whether two values compare before a cast as they do after it."""
    source, target = cast.operand.type, cast.type
    if is_time(source) and is_time(target):
        # A cast to nanoseconds fails for far years: without it, they compare.
        zone = getattr(source, "tz", None) if pa.types.is_timestamp(source) else None
        finer = pa.types.is_timestamp(target) and target.tz == zone
        return bool(finer and (pa.types.is_date32(source) or common_type(source, target) == target))
    if not (is_integer(source) or is_decimal(source) or is_floating(source)):
        return False
    if is_floating(target):
        digits = 53 if target == pa.float64() else 24
        return source == pa.float32() if is_floating(source) else is_integer(source) and source.bit_width < digits
    return (is_integer(target) or is_decimal(target)) and is_safe_cast(source, target)


def _negation(call: Call) -> Expression:
    (operand,) = call.arguments
    if not isinstance(operand, Call):
        return call
    if operand.function == "not":
        return operand.arguments[0]
    if operand.function in OPPOSITE:
        return replace(operand, function=OPPOSITE[operand.function])
    if operand.function in ("and", "or"):
        terms = tuple(_negation(Call(pa.bool_(), "not", (term,))) for term in operand.arguments)
        return replace(operand, function="or" if operand.function == "and" else "and", arguments=terms)
    return call


def _alternatives(call: Call) -> Expression:
    terms = [conjuncts(argument) for argument in call.arguments]
    shared = [part for part in terms[0] if all(part in term for term in terms[1:])]
    shared = [part for part in shared if not can_fail(part, overflow=True)]
    if len(terms) < 2 or not shared:
        return call
    rests = [conjunction(tuple(part for part in term if part not in shared)) for term in terms]
    if any(rest is None for rest in rests):  # one alternative is all that they share
        return conjunction(tuple(shared)) or call
    alternatives = Call(pa.bool_(), "or", tuple(rest for rest in rests if rest is not None))
    return Call(pa.bool_(), "and", (*shared, alternatives))
