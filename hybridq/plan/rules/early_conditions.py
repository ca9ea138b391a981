"""Compute conditions on a build side's texts before the join, so that the texts need not be part of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from hybridq.plan.expressions import Column, Expression, NamedExpression, columns_of
from hybridq.plan.nodes import Aggregate, Join, Node, Project, transform, walk
from hybridq.plan.rules.helpers import can_fail, map_expressions, names_of, passing
from hybridq.types import is_fixed_width, is_string


def early_conditions(root: Node) -> Node:
    """Take what a node computes from texts of a build side, and from nothing else, below the join.

    A build side is made once and goes to every worker: a truth value a row is less to copy and to gather than a text.

    >>> from hybridq.plan.expressions import Call, Literal
    >>> from hybridq.plan.nodes import Scan, ScanColumn, render
    >>> def scan(name, *columns):
    ...     return Scan(name, tuple(ScanColumn(f"{name}.{column}", column, kind) for column, kind in columns))
    >>> items, parts = scan("items", ("part", pa.int64())), scan("parts", ("key", pa.int64()), ("type", pa.string()))
    >>> keys = (Column(pa.int64(), "items.part"),), (Column(pa.int64(), "parts.key"),)
    >>> like = Call(pa.bool_(), "like", (Column(pa.string(), "parts.type"), Literal(pa.string(), "PROMO%")))
    >>> plan = Project(Join(items, parts, "inner", *keys), (NamedExpression("promo", like),))
    >>> print(render(early_conditions(plan)))
    Project (parts.type LIKE 'PROMO%') AS promo
      Join inner ON items.part = parts.key
        Scan items [part]
        Project parts.key, parts.type, (parts.type LIKE 'PROMO%')
          Scan parts [key, type]
    """
    return transform(root, _early)


def _early(node: Node) -> Node:
    if not isinstance(node, Project | Aggregate) or not isinstance(node.input, Join):
        return node
    owners = _texts(node.input)
    found: dict[Expression, tuple[str, int]] = {}
    changed = map_expressions(node, lambda expression: _without_conditions(expression, owners, found))
    if not found or not isinstance(changed, Project | Aggregate):
        return node
    still_read: set[str] = set()
    map_expressions(changed, lambda expression: _noted(expression, still_read))
    if any(columns_of(expression) & still_read for expression in found):
        return node  # the texts are needed all the same
    return replace(changed, input=_with_conditions(node.input, found))


def _texts(node: Node) -> dict[str, int]:
    """Return the texts that build sides add to a tree of joins and that its conditions do not read, by build side."""
    found: dict[str, int] = {}
    read: set[str] = set()
    while isinstance(node, Join) and node.kind != "full":  # which pads both sides with NULL
        for condition in (*node.left_keys, *node.right_keys, *([] if node.residual is None else [node.residual])):
            read |= columns_of(condition)
        if node.kind == "inner" and not any(isinstance(below, Join) for below in walk(node.right)):
            found |= {field.name: id(node.right) for field in node.right.schema if is_string(field.type)}
        node = node.left
    return {name: owner for name, owner in found.items() if name not in read}


def _without_conditions(
    expression: Expression, owners: Mapping[str, int], found: dict[Expression, tuple[str, int]]
) -> Expression:
    """Put columns in place of what can be computed from the texts of one build side; note them."""
    read = columns_of(expression)
    sides = {owners.get(name) for name in read}
    (side,) = sides if len(sides) == 1 else (None,)
    small = pa.types.is_boolean(expression.type) or is_fixed_width(expression.type)
    if side is not None and small and not can_fail(expression, overflow=True):
        found.setdefault(expression, (str(expression), side))
        return Column(expression.type, found[expression][0])
    children = expression.children
    changed = tuple(_without_conditions(child, owners, found) for child in children)
    if all(new is old for new, old in zip(changed, children, strict=True)):
        return expression
    return expression.with_children(changed)


def _noted(expression: Expression, names: set[str]) -> Expression:
    names |= columns_of(expression)
    return expression


def _with_conditions(node: Node, found: Mapping[Expression, tuple[str, int]]) -> Node:
    if not isinstance(node, Join):
        return node
    own = [NamedExpression(name, expression) for expression, (name, side) in found.items() if side == id(node.right)]
    right: Node = node.right
    if own:
        there = names_of(right.schema)
        right = Project(right, (*passing(right.schema), *(item for item in own if item.name not in there)))
    return replace(node, left=_with_conditions(node.left, found), right=right)
