"""What several rules need: looks at expressions, and small ways to make nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from hybridq.plan.expressions import (
    AggregateCall,
    Call,
    Cast,
    Column,
    Expression,
    Literal,
    NamedExpression,
    SortKey,
    columns_of,
    conjunction,
    conjuncts,
    substitute,
    walk,
)
from hybridq.plan.functions import FUNCTIONS
from hybridq.plan.nodes import Aggregate, Filter, Join, Node, Project, Scan, Sort, TopK, Window
from hybridq.plan.unnesting import Unnest
from hybridq.plan.windows import WindowCall
from hybridq.types import Schema, is_decimal, is_floating, is_integer

LARGEST_INLINED = 400
"""Parts of an expression up to which columns are replaced by what computes them."""

OVERFLOWING = frozenset({"add", "subtract", "multiply", "negate", "abs"})


def names_of(schema: Schema) -> frozenset[str]:
    """Return the column names of a schema."""
    return frozenset(item.name for item in schema)


def is_identity(node: Project) -> bool:
    """Tell whether a Project passes on just its input's columns, in order, under their names."""
    below = node.input.schema
    return len(below) == len(node.expressions) and all(
        item.name == field.name and isinstance(item.expression, Column) and item.expression.name == field.name
        for item, field in zip(node.expressions, below, strict=True)
    )


def only_columns(node: Project) -> bool:
    """Tell whether a Project computes nothing: it drops, repeats, reorders or renames columns."""
    return all(isinstance(item.expression, Column) for item in node.expressions)


def values_of(node: Project) -> dict[str, Expression]:
    """Return what each output column of a Project is."""
    return {item.name: item.expression for item in node.expressions}


def passing(schema: Schema, keep: Collection[str] | None = None) -> tuple[NamedExpression, ...]:
    """Return expressions that pass columns on, all of them or those to keep."""
    return tuple(
        NamedExpression(item.name, Column(item.type, item.name)) for item in schema if keep is None or item.name in keep
    )


def filtered(node: Node, predicates: Iterable[Expression]) -> Node:
    """Put a Filter above a node, if there is something to filter by; a Filter that is there takes the predicates."""
    parts = tuple(predicates)
    if not parts:
        return node
    if isinstance(node, Filter):
        parts = (*conjuncts(node.predicate), *parts)
        node = node.input
    predicate = conjunction(tuple(dict.fromkeys(parts)))
    return node if predicate is None else Filter(node, predicate)


def size(expression: Expression) -> int:
    """Return how many parts an expression has, counted up to a bit more than may be inlined."""
    count = 0
    for _ in walk(expression):
        count += 1
        if count > LARGEST_INLINED:
            break
    return count


def inlined(expression: Expression, values: Mapping[str, Expression]) -> Expression | None:
    """Put expressions in place of columns; ``None`` where the result would be too large."""
    result = substitute(expression, values)
    return result if result is expression or size(result) <= LARGEST_INLINED else None


def can_fail(expression: Expression, overflow: bool = False) -> bool:
    """Tell whether evaluating an expression may raise an error.

    Parameters
    ----------
    expression : Expression
        What would be evaluated.
    overflow : bool
        Also count results that do not fit their type; those of plain arithmetic are left out otherwise.
    """
    return any(_may_raise(part, overflow) for part in walk(expression))


def can_fail_for_some(expression: Expression) -> bool:
    """Tell whether an expression may raise an error for some rows and not for others; overflow counts."""
    return any(_may_raise(part, overflow=True) and columns_of(part) for part in walk(expression))


def _may_raise(part: Expression, overflow: bool) -> bool:
    if isinstance(part, Cast):
        return not part.null_on_failure and not is_safe_cast(part.operand.type, part.type)
    if not isinstance(part, Call):
        return False
    function = FUNCTIONS.get(part.function)
    if function is not None and function.always_raises:
        return True
    if function is not None and function.raises:
        last = part.arguments[-1]
        return len(part.arguments) == 1 or not (isinstance(last, Literal) and last.value and last.value > 0)
    if is_floating(part.type):
        return False
    if part.function in ("divide", "modulus"):
        divisor = part.arguments[1]
        if not isinstance(divisor, Literal) or not divisor.value:
            return True
        return overflow and part.function == "divide"
    return overflow and part.function in OVERFLOWING


def is_safe_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether every value of one type fits another."""
    if source == target or pa.types.is_null(source):
        return True
    if is_integer(source):
        if is_integer(target):
            same_sign = pa.types.is_signed_integer(source) == pa.types.is_signed_integer(target)
            wider = target.bit_width > source.bit_width
            return bool(wider and (same_sign or pa.types.is_signed_integer(target)))
        if is_decimal(target):
            return bool(target.precision - target.scale >= INTEGER_DIGITS[source.bit_width])
        return is_floating(target) or bool(pa.types.is_string(target))
    if is_decimal(source):
        if is_decimal(target):
            whole = target.precision - target.scale >= source.precision - source.scale
            return bool(whole and target.scale >= source.scale)
        return is_floating(target) or bool(pa.types.is_string(target))
    if is_floating(source):
        return is_floating(target)
    if pa.types.is_date32(source):
        return bool(pa.types.is_timestamp(target) and target.unit != "ns") or bool(pa.types.is_string(target))
    return bool(pa.types.is_boolean(source) and (is_integer(target) or pa.types.is_string(target)))


INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Decimal digits of the largest integer of so many bits."""


def key_pair(
    predicate: Expression, left: Collection[str], right: Collection[str]
) -> tuple[Expression, Expression] | None:
    """Read a predicate as an equality between two sides, as (left key, right key); ``None`` where it is none."""
    if not isinstance(predicate, Call) or predicate.function != "equal":
        return None
    one, other = predicate.arguments
    if one.type != other.type:
        return None
    one_reads, other_reads = columns_of(one), columns_of(other)
    if not one_reads or not other_reads:
        return None
    if one_reads <= set(left) and other_reads <= set(right):
        return one, other
    if one_reads <= set(right) and other_reads <= set(left):
        return other, one
    return None


def map_expressions(node: Node, change: Callable[[Expression], Expression]) -> Node:
    """Return a node with each of its own expressions changed; names stay. The node itself where nothing changed."""
    if isinstance(node, Project):
        items = _map_named(node.expressions, change)
        return node if items is node.expressions else replace(node, expressions=items)
    if isinstance(node, Filter):
        predicate = change(node.predicate)
        return node if predicate is node.predicate else replace(node, predicate=predicate)
    if isinstance(node, Scan):
        if node.predicate is None:
            return node
        predicate = change(node.predicate)
        return node if predicate is node.predicate else replace(node, predicate=predicate)
    if isinstance(node, Aggregate):
        groups = _map_named(node.groups, change)
        calls = tuple(_map_call(call, change) for call in node.aggregates)
        same = groups is node.groups and all(a is b for a, b in zip(calls, node.aggregates, strict=True))
        return node if same else replace(node, groups=groups, aggregates=calls)
    if isinstance(node, Window):
        windows = tuple(_map_window(call, change) for call in node.calls)
        same = all(a is b for a, b in zip(windows, node.calls, strict=True))
        return node if same else replace(node, calls=windows)
    if isinstance(node, Sort | TopK):
        keys = tuple(_map_key(key, change) for key in node.keys)
        same = all(a is b for a, b in zip(keys, node.keys, strict=True))
        return node if same else replace(node, keys=keys)
    if isinstance(node, Unnest):
        lists = _map_named(node.lists, change)
        condition = None if node.condition is None else change(node.condition)
        same = lists is node.lists and condition is node.condition
        return node if same else replace(node, lists=lists, condition=condition)
    if isinstance(node, Join):
        left, right = tuple(map(change, node.left_keys)), tuple(map(change, node.right_keys))
        residual = None if node.residual is None else change(node.residual)
        old = (*node.left_keys, *node.right_keys, node.residual)
        same = all(a is b for a, b in zip((*left, *right, residual), old, strict=True))
        return node if same else replace(node, left_keys=left, right_keys=right, residual=residual)
    return node


def _map_named(
    items: tuple[NamedExpression, ...], change: Callable[[Expression], Expression]
) -> tuple[NamedExpression, ...]:
    changed = [change(item.expression) for item in items]
    if all(new is item.expression for new, item in zip(changed, items, strict=True)):
        return items
    return tuple(NamedExpression(item.name, new) for item, new in zip(items, changed, strict=True))


def _map_call(call: AggregateCall, change: Callable[[Expression], Expression]) -> AggregateCall:
    old = call.expressions
    new = tuple(map(change, old))
    return call if all(a is b for a, b in zip(old, new, strict=True)) else call.with_expressions(new)


def _map_window(call: WindowCall, change: Callable[[Expression], Expression]) -> WindowCall:
    aggregate = None if call.aggregate is None else _map_call(call.aggregate, change)
    arguments, partition = tuple(map(change, call.arguments)), tuple(map(change, call.partition))
    order = tuple(_map_key(key, change) for key in call.order)
    changed = replace(call, arguments=arguments, partition=partition, order=order, aggregate=aggregate)
    return call if changed == call else changed


def _map_key(key: SortKey, change: Callable[[Expression], Expression]) -> SortKey:
    expression = change(key.expression)
    return key if expression is key.expression else replace(key, expression=expression)


def read_by(node: Node) -> frozenset[str]:
    """Return the input columns that a node's own expressions read."""
    found: set[str] = set()

    def note(expression: Expression) -> Expression:
        found.update(columns_of(expression))
        return expression

    map_expressions(node, note)
    return frozenset(found)
