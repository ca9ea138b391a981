"""Filter as early as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatch

from hybridq.plan.expressions import Column, Expression, columns_of, conjunction, conjuncts, substitute
from hybridq.plan.nodes import Aggregate, Filter, Join, Node, Project, Scan, Sort, Union, Window
from hybridq.plan.rules.helpers import can_fail, filtered, inlined, key_pair, names_of, values_of
from hybridq.plan.unnesting import Unnest

Predicates = tuple[Expression, ...]


def predicate_pushdown(root: Node) -> Node:
    """Move predicates down to the scans, and equalities between the sides of a join into its keys.

    Predicates pass Projects, Sorts, UNION ALL, group keys, keys by which all windows are partitioned, and the sides of
    joins that they cannot pad, but no LIMIT. One that may fail (division, narrowing casts) stays where it is, so that
    it sees no row that another condition or a join would have kept from it.

    >>> import pyarrow as pa
    >>> from hybridq.plan.expressions import Call, Column, Literal
    >>> from hybridq.plan.nodes import ScanColumn, render
    >>> scan = Scan("t", (ScanColumn("t.a", "a", pa.int64()),))
    >>> print(render(predicate_pushdown(
    ...     Filter(scan, Call(pa.bool_(), "less", (Column(pa.int64(), "t.a"), Literal(pa.int64(), 3))))
    ... )))
    Scan t [a] WHERE (t.a < 3)
    """
    return _push(root, ())


@singledispatch
def _push(node: Node, predicates: Predicates) -> Node:
    """Return a node that gives the rows of ``node`` for which all predicates are true. They never fail."""
    return filtered(_push_inside(node), predicates)


def _push_inside(node: Node) -> Node:
    """Push down within each input alone."""
    inputs = node.inputs
    pushed = tuple(_push(child, ()) for child in inputs)
    same = all(new is old for new, old in zip(pushed, inputs, strict=True))
    return node if same else node.with_inputs(pushed)


@_push.register
def _(node: Filter, predicates: Predicates) -> Node:
    mine = conjuncts(node.predicate)
    risky = tuple(part for part in mine if can_fail(part))
    below = tuple(part for part in mine if not can_fail(part))
    child = _push(node.input, _distinct((*below, *predicates)))
    # Not merged with a Filter that is there: what that one drops must not be seen.
    return child if not risky else Filter(child, conjunction(risky) or node.predicate)


@_push.register
def _(node: Scan, predicates: Predicates) -> Node:
    if not predicates:
        return node
    present = () if node.predicate is None else conjuncts(node.predicate)
    return replace(node, predicate=conjunction(_distinct((*present, *predicates))))


@_push.register
def _(node: Project, predicates: Predicates) -> Node:
    values = values_of(node)
    below: list[Expression] = []
    above: list[Expression] = []
    for predicate in predicates:
        rewritten = inlined(predicate, values)
        if rewritten is None or can_fail(rewritten):
            above.append(predicate)
        else:
            below.append(rewritten)
    child = _push(node.input, tuple(below))
    return filtered(node if child is node.input else replace(node, input=child), above)


@_push.register
def _(node: Sort, predicates: Predicates) -> Node:
    child = _push(node.input, predicates)
    return node if child is node.input else replace(node, input=child)


@_push.register
def _(node: Aggregate, predicates: Predicates) -> Node:
    in_all = set(range(len(node.groups)))
    if node.sets is not None:
        # A key that a set leaves out is NULL there, whatever the input's value.
        in_all.intersection_update(*node.sets.members)
    keys = {item.name: item.expression for position, item in enumerate(node.groups) if position in in_all}
    below: list[Expression] = []
    above: list[Expression] = []
    for predicate in predicates:
        # Without groups there is one row whatever the input, so nothing may be filtered below.
        passes = bool(keys) and columns_of(predicate) <= keys.keys()
        rewritten = substitute(predicate, keys) if passes else predicate
        if passes and not can_fail(rewritten):
            below.append(rewritten)
        else:
            above.append(predicate)
    child = _push(node.input, tuple(below))
    return filtered(node if child is node.input else replace(node, input=child), above)


@_push.register
def _(node: Window, predicates: Predicates) -> Node:
    # What is true of a partition's key keeps or drops whole partitions, and so changes no frame.
    keys = [{item.name for item in call.partition if isinstance(item, Column)} for call in node.calls]
    common = frozenset.intersection(*map(frozenset, keys))
    below = tuple(predicate for predicate in predicates if columns_of(predicate) and columns_of(predicate) <= common)
    child = _push(node.input, below)
    above = [predicate for predicate in predicates if predicate not in below]
    return filtered(node if child is node.input else replace(node, input=child), above)


@_push.register
def _(node: Unnest, predicates: Predicates) -> Node:
    own = names_of(node.input.schema)
    below = tuple(predicate for predicate in predicates if columns_of(predicate) <= own)
    child = _push(node.input, below)
    above = [predicate for predicate in predicates if predicate not in below]
    return filtered(node if child is node.input else replace(node, input=child), above)


@_push.register
def _(node: Union, predicates: Predicates) -> Node:
    parts = []
    for part in node.parts:
        columns: dict[str, Expression] = {
            name: Column(item.type, item.name) for name, item in zip(node.names, part.schema, strict=True)
        }
        parts.append(_push(part, tuple(substitute(predicate, columns) for predicate in predicates)))
    same = all(new is old for new, old in zip(parts, node.parts, strict=True))
    return node if same else Union(tuple(parts), node.names)


@_push.register
def _(node: Join, predicates: Predicates) -> Node:
    if node.kind == "full":
        return filtered(_push_inside(node), predicates)
    left_names, right_names = names_of(node.left.schema), names_of(node.right.schema)
    condition = () if node.residual is None else conjuncts(node.residual)
    to_left: list[Expression] = []
    to_right: list[Expression] = []
    keys: list[tuple[Expression, Expression]] = []
    residual: list[Expression] = []
    above: list[Expression] = []
    # Rows that fail what WHERE says of them must go; rows that fail what ON says may still be padded or kept.
    for predicate in predicates:
        reads = columns_of(predicate)
        if reads <= left_names:
            to_left.append(predicate)
        elif node.kind == "inner":
            condition = (*condition, predicate)
        else:
            above.append(predicate)
    for predicate in condition:
        reads = columns_of(predicate)
        pair = key_pair(predicate, left_names, right_names)
        if pair is not None and not node.null_aware and not can_fail(predicate):
            keys.append(pair)
        elif can_fail(predicate) or not reads:
            residual.append(predicate)
        elif reads <= right_names:
            to_right.append(predicate)
        elif reads <= left_names and node.kind in ("inner", "semi"):
            to_left.append(predicate)
        else:
            residual.append(predicate)
    left, right = _push(node.left, _distinct(to_left)), _push(node.right, _distinct(to_right))
    all_keys = (*zip(node.left_keys, node.right_keys, strict=True), *keys)
    if not node.null_aware:
        # The first key of IN is not like the others, even if it is equal to one.
        all_keys = tuple(dict.fromkeys(all_keys))
    joined = replace(
        node,
        left=left,
        right=right,
        left_keys=tuple(pair[0] for pair in all_keys),
        right_keys=tuple(pair[1] for pair in all_keys),
        residual=conjunction(_distinct(residual)),
    )
    return filtered(joined, above)


def _distinct(predicates: Sequence[Expression]) -> Predicates:
    return tuple(dict.fromkeys(predicates))
