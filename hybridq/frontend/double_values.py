"""What a floating-point value and a decimal are compared as, or become together, is a floating-point number.

DataFusion makes a decimal of both (``decimal(30, 15)`` of DOUBLE, ``decimal(14, 7)`` of FLOAT, or one that has room for
that and the decimal) to compare and join them, and for CASE, COALESCE, GREATEST and UNION. That has no infinity, no NaN
and nothing above 1e15, and is slow. PostgreSQL and DuckDB make the decimal a floating-point number; so does this, and
computes so what is computed of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from hybridq.errors import Unsupported
from hybridq.plan.aggregates import aggregate_type
from hybridq.plan.expressions import (
    AggregateCall,
    Call,
    Case,
    Cast,
    Column,
    Expression,
    In,
    Literal,
    NamedExpression,
    SortKey,
    substitute,
    transform,
)
from hybridq.plan.functions import ARITHMETIC, COMPARISONS, GROUPS, result_type
from hybridq.plan.nodes import Aggregate, Filter, Join, Node, Plan, Project, Sort, TopK, Union, Window
from hybridq.plan.rules.helpers import is_safe_cast
from hybridq.plan.unnesting import Unnest
from hybridq.plan.windows import WindowCall
from hybridq.types import is_decimal, is_floating, is_integer

CHOICES = frozenset({"coalesce", "greatest", "least"})
CARRIED = ARITHMETIC | {"negate", "abs"}
NULL_TESTS = frozenset({"is_null", "is_not_null"})
ROUNDED = frozenset({"round", "ceil", "floor", "trunc"})
OF_LISTS = frozenset(each.name for each in GROUPS["Lists, structs and maps"])
VALUE_FIRST = frozenset({"lag", "lead", "first_value", "last_value", "nth_value"})

LEAST_DIGITS = {pa.float64(): 15, pa.float32(): 7}
"""Digits before and after the point, at least, of the decimal that DataFusion makes of a floating-point number."""

_PLAIN = (38, 10)
"""DECIMAL without digits."""

_WRITTEN = re.compile(r"\(\s*(\d+)\s*,\s*(\d+)\s*\)")

Digits = frozenset[tuple[int, int]]
"""Precision and scale of decimals."""

Stands = dict[str, pa.DataType]
"""Columns that are floating-point numbers by now, with the decimal that the nodes above take them for."""


@dataclass(frozen=True, slots=True)
class StandIn(Cast):
    """A floating-point number where the plan as it was written has a decimal.

    What can do with the number takes ``operand``; for what cannot it is the cast that it looks like.
    """


def own_decimals(text: str) -> Digits:
    """Return the decimals that a query may name: a cast to one of them is its own."""
    return frozenset({_PLAIN, *((int(digits), int(scale)) for digits, scale in _WRITTEN.findall(text))})


def compute_as_floating(plan: Plan, own: Digits) -> Plan:
    """Compute with floating-point numbers what DataFusion has made decimals of, if they are not the query's own.

    Parameters
    ----------
    plan : Plan
        As DataFusion exports it.
    own : set of (precision, scale)
        Decimals that the query names.
    """
    subqueries = tuple(_with_its_types(each, own) for each in plan.subqueries)
    return replace(plan, root=_rewritten(plan.root, own)[0], subqueries=subqueries)


def _with_its_types(subquery: Node, own: Digits) -> Node:
    """Rewrite a subquery; its value keeps the type that expressions have it as."""
    found, _ = _rewritten(subquery, own)
    if found.schema == subquery.schema:
        return found
    columns = (Column(now.type, now.name) for now in found.schema)
    named = zip(subquery.schema, columns, strict=True)
    return Project(found, tuple(NamedExpression(old.name, _cast(column, old.type)) for old, column in named))


def _cast(expression: Expression, data_type: pa.DataType) -> Expression:
    return expression if expression.type == data_type else Cast(data_type, expression)


def is_stand_in(source: pa.DataType, target: pa.DataType, own: Digits) -> bool:
    """Tell whether a type is the decimal that DataFusion makes of a floating-point number, and not the query's own."""
    if pa.types.is_list(source) and pa.types.is_list(target):
        return is_stand_in(source.value_type, target.value_type, own)
    least = LEAST_DIGITS.get(source)
    if least is None or not is_decimal(target):
        return False
    digits, scale = target.precision, target.scale
    return scale >= least and digits - scale >= least and (digits, scale) not in own


class _Changes:
    """Changes the expressions of one node.

    Parameters
    ----------
    children : sequence of Node
        Inputs that were rewritten already.
    stands : dict of str to pyarrow.DataType
        For their columns.
    own : set of (precision, scale)
        Decimals that the query names.
    """

    def __init__(self, children: Sequence[Node], stands: Stands, own: Digits) -> None:
        self._own = own
        types = {item.name: item.type for child in children for item in child.schema}
        self._columns = {
            name: StandIn(decimal, Column(types[name], name)) for name, decimal in stands.items() if name in types
        }

    def of(self, expression: Expression) -> Expression:
        """Return an expression, a ``StandIn`` where it is a floating-point number by now."""
        return transform(expression, self._changed)

    def _changed(self, part: Expression) -> Expression:
        if isinstance(part, Column):
            return self._columns.get(part.name, part)
        if isinstance(part, Cast):
            return _of_cast(part, self._own)
        if isinstance(part, In):
            if not isinstance(part.operand, StandIn):
                return part
            operand = part.operand.operand
            listed = tuple(floating_literal(each, operand.type) for each in part.values)
            return replace(part, operand=operand, values=listed)
        if isinstance(part, Case):
            values = [value for _, value in part.branches] + [part.default]
            if (kind := _floating_type(values)) is None:
                return part
            *chosen, default = (converted(value, kind, self._own) for value in values)
            conditions = [condition for condition, _ in part.branches]
            case = Case(kind, tuple(zip(conditions, chosen, strict=True)), default)
            return case if part.type == kind else StandIn(part.type, case)
        return self._of_call(part) if isinstance(part, Call) else part

    def _of_call(self, part: Call) -> Expression:
        if part.function in NULL_TESTS:
            return replace(part, arguments=tuple(map(taken, part.arguments)))
        first = part.arguments[0] if part.arguments else None
        if part.function in ROUNDED and isinstance(first, StandIn):
            kind = first.operand.type
            return StandIn(part.type, Call(kind, part.function, (first.operand, *part.arguments[1:]), part.options))
        if part.function in OF_LISTS:
            return self._of_list(part)
        known = part.function in CHOICES | CARRIED | COMPARISONS
        if not known or (kind := _floating_type(part.arguments)) is None:
            return part
        arguments = tuple(converted(argument, kind, self._own) for argument in part.arguments)
        if part.function in COMPARISONS:
            return replace(part, arguments=arguments)
        call = Call(kind, part.function, arguments, part.options)
        return call if part.type == kind else StandIn(part.type, call)

    def _of_list(self, part: Call) -> Expression:
        """Return a function of lists whose elements, or one of whose values, are floating-point numbers by now."""
        kinds = {_element(each.operand.type) for each in part.arguments if isinstance(each, StandIn)}
        kind = next((each for each in (pa.float64(), pa.float32()) if each in kinds), None)
        if kind is None:
            return part
        arguments = tuple(self._as_elements(each, kind) for each in part.arguments)
        try:
            data_type = result_type(part.function, tuple(each.type for each in arguments))
        except Unsupported:
            return part
        call = Call(data_type, part.function, arguments, part.options)
        return call if part.type == data_type else StandIn(part.type, call)

    def _as_elements(self, value: Expression, kind: pa.DataType) -> Expression:
        """Return decimals, or lists of such, as floating-point numbers."""
        if pa.types.is_list(value.type) and is_decimal(value.type.value_type):
            return _cast(taken(value), pa.list_(kind))
        return converted(value, kind, self._own) if is_decimal(value.type) else value


def _element(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if pa.types.is_list(data_type) else data_type


def _of_cast(part: Cast, own: Digits) -> Expression:
    operand = part.operand
    if isinstance(operand, StandIn):
        operand = operand.operand
        if operand.type == part.type:
            return operand
    if not part.null_on_failure and is_stand_in(operand.type, part.type, own):
        return StandIn(part.type, operand)
    return part if operand is part.operand else Cast(part.type, operand, part.null_on_failure)


def _floating_type(values: Sequence[Expression]) -> pa.DataType | None:
    """Return the type to compute with, if one of some numbers stands in for a decimal; ``None``: as they are."""
    kinds = [value.operand.type for value in values if isinstance(value, StandIn)]
    if not kinds or not all(_is_number(value.type) for value in values):
        return None
    kinds += [value.type for value in values if is_floating(value.type)]
    return pa.float64() if pa.float64() in kinds else pa.float32()


def _is_number(data_type: pa.DataType) -> bool:
    return is_decimal(data_type) or is_floating(data_type) or is_integer(data_type)


def taken(expression: Expression) -> Expression:
    """Return the floating-point number behind a stand-in; anything else as it is."""
    return expression.operand if isinstance(expression, StandIn) else expression


def converted(value: Expression, kind: pa.DataType, own: Digits) -> Expression:
    """Return a number as a floating-point number of some type."""
    value = taken(value)
    if isinstance(value, Literal):
        return floating_literal(value, kind)
    if isinstance(value, Cast) and not value.null_on_failure and _is_widening(value, own):
        value = value.operand  # made that decimal, of another or an integer, to stand beside the floating-point number
        if isinstance(value, Literal):
            return floating_literal(value, kind)
    return _cast(value, kind)


def _is_widening(part: Cast, own: Digits) -> bool:
    """Tell whether a cast gives an exact number digits that it need not have as a floating-point number."""
    source, target = part.operand.type, part.type
    if not is_decimal(target):
        return False
    if is_safe_cast(source, target):
        return not is_floating(source)
    # For large numbers there is no room: the query may have asked for the error.
    scale = source.scale if is_decimal(source) else 0 if is_integer(source) else None
    return scale is not None and scale <= target.scale and (target.precision, target.scale) not in own


def floating_literal(literal: Literal, kind: pa.DataType) -> Literal:
    """Return a number as a constant of a floating-point type."""
    convert = np.float32 if kind == pa.float32() else np.float64
    return Literal(kind, None if literal.value is None else float(convert(literal.value)))


def _plain(expression: Expression) -> Expression:
    """Make casts of the stand-ins that are left."""
    return transform(expression, lambda part: Cast(part.type, part.operand) if isinstance(part, StandIn) else part)


def _rewritten(node: Node, own: Digits) -> tuple[Node, Stands]:
    """Return a node and which of its columns have another type than before."""
    pairs = [_rewritten(child, own) for child in node.inputs]
    children = [child for child, _ in pairs]
    below: Stands = {}
    for _, stands in pairs:
        below |= stands
    if isinstance(node, Union):
        return _of_union(node, pairs, own)
    node = (
        node if all(a is b for a, b in zip(children, node.inputs, strict=True)) else node.with_inputs(tuple(children))
    )
    changes = _Changes(children, below, own).of
    if isinstance(node, Project):
        items, stands = _named(node.expressions, changes)
        return (node if items == node.expressions else replace(node, expressions=items)), stands
    if isinstance(node, Filter):
        return replace(node, predicate=_plain(changes(node.predicate))), below
    if isinstance(node, Sort | TopK):
        return replace(node, keys=_sort_keys(node.keys, changes)), below
    if isinstance(node, Join):
        stands = pairs[0][1] if node.kind in ("semi", "anti", "mark") else below
        return _of_join(node, changes, own), stands
    if isinstance(node, Aggregate):
        groups, stands = _named(node.groups, changes)
        calls = tuple(_of_aggregate(call, changes) for call in node.aggregates)
        stands |= _retyped(node.aggregates, calls)
        return replace(node, groups=groups, aggregates=calls), stands
    if isinstance(node, Unnest):
        return _of_unnest(node, changes, below)
    if isinstance(node, Window):
        windows = tuple(_of_window(call, changes, own) for call in node.calls)
        return replace(node, calls=windows), below | _retyped(node.calls, windows)
    return node, below


Change = Callable[[Expression], Expression]


def _named(items: Sequence[NamedExpression], change: Change) -> tuple[tuple[NamedExpression, ...], Stands]:
    found: list[NamedExpression] = []
    stands: Stands = {}
    for item in items:
        expression = _plain(taken(change(item.expression)))
        found.append(NamedExpression(item.name, expression))
        if expression.type != item.expression.type:
            stands[item.name] = item.expression.type
    return tuple(found), stands


def _retyped(old: Sequence[AggregateCall | WindowCall], new: Sequence[AggregateCall | WindowCall]) -> Stands:
    return {call.name: call.type for call, now in zip(old, new, strict=True) if call.type != now.type}


def _sort_keys(keys: Sequence[SortKey], change: Change) -> tuple[SortKey, ...]:
    return tuple(replace(key, expression=_plain(taken(change(key.expression)))) for key in keys)


def _of_join(node: Join, change: Change, own: Digits) -> Join:
    left, right = list(node.left_keys), list(node.right_keys)
    for position, pair in enumerate(zip(left, right, strict=True)):
        sides = [change(side) for side in pair]
        if (kind := _floating_type(sides)) is not None:
            sides = [converted(side, kind, own) for side in sides]
        left[position], right[position] = map(_plain, sides)
    residual = None if node.residual is None else _plain(change(node.residual))
    return replace(node, left_keys=tuple(left), right_keys=tuple(right), residual=residual)


def _of_unnest(node: Unnest, change: Change, below: Stands) -> tuple[Node, Stands]:
    lists, retyped = _named(node.lists, change)
    stands = below | {name: old.value_type for name, old in retyped.items()}
    changed = replace(node, lists=lists)
    if node.condition is not None:
        types = {item.name: item.type for item in changed.elements}
        made = {
            name: StandIn(old.value_type, Column(types[name], name)) for name, old in retyped.items() if name in types
        }
        changed = replace(changed, condition=_plain(change(substitute(node.condition, made))))
    return changed, stands


def _of_aggregate(call: AggregateCall, change: Change) -> AggregateCall:
    changed = [change(each) for each in call.expressions]
    first = None if call.argument is None else changed[0]
    if isinstance(first, StandIn):
        bare = [first.operand, *(taken(each) for each in changed[1 : 1 + len(call.further)])]
        data_type = _aggregate_type(call, tuple(each.type for each in bare))
        if data_type is not None:
            rest = tuple(map(_plain, (*bare, *changed[len(bare) :])))
            return replace(call.with_expressions(rest), type=data_type)
    return call.with_expressions(tuple(map(_plain, changed)))


def _aggregate_type(call: AggregateCall, types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    """Return the type of an aggregate over other arguments; ``None`` where it takes no such, or gives no number."""
    try:
        found = aggregate_type(call.function, types)
    except Unsupported:
        return None
    return found if found == call.type or is_floating(found) else None


def _of_window(call: WindowCall, change: Change, own: Digits) -> WindowCall:
    partition = tuple(_plain(taken(change(each))) for each in call.partition)
    arguments = [change(each) for each in call.arguments]
    data_type = call.type
    if call.function in VALUE_FIRST and arguments and isinstance(arguments[0], StandIn):
        data_type = arguments[0].operand.type
        # ``lag`` and ``lead`` have a third one, which stands in the value's place.
        arguments = [
            converted(each, data_type, own) if position in (0, 2) else each for position, each in enumerate(arguments)
        ]
    aggregate = None if call.aggregate is None else _of_aggregate(call.aggregate, change)
    if aggregate is not None:
        data_type = aggregate.type
    return replace(
        call,
        arguments=tuple(map(_plain, arguments)),
        type=data_type,
        partition=partition,
        order=_sort_keys(call.order, change),
        aggregate=aggregate,
    )


def _of_union(node: Union, pairs: Sequence[tuple[Node, Stands]], own: Digits) -> tuple[Node, Stands]:
    """Bring the inputs to one type again, where a column of one has become a floating-point number."""
    stands: Stands = {}
    types = [item.type for item in node.schema]
    for position, old in enumerate(node.schema):
        kinds = {part.schema[position].type for part, _ in pairs} - {old.type}
        if kinds:
            types[position] = pa.float64() if pa.float64() in kinds else pa.float32()
            stands[old.name] = old.type
    parts = tuple(_with_types(part, types, own) if stands else part for part, _ in pairs)
    same = all(a is b for a, b in zip(parts, node.parts, strict=True))
    return (node if same else Union(parts, node.names)), stands


def _with_types(part: Node, types: Sequence[pa.DataType], own: Digits) -> Node:
    if [item.type for item in part.schema] == list(types):
        return part
    values: Mapping[str, Expression] = {}
    below, passed = part, [NamedExpression(item.name, Column(item.type, item.name)) for item in part.schema]
    if isinstance(part, Project):
        below, values = part.input, {item.name: item.expression for item in part.expressions}
    items = []
    for item, data_type in zip(passed, types, strict=True):
        value = values.get(item.name, item.expression)
        items.append(NamedExpression(item.name, value if value.type == data_type else converted(value, data_type, own)))
    return Project(below, tuple(items))
