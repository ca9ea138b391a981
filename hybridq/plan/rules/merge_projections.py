"""Inline Projects into what reads them."""

from __future__ import annotations

from dataclasses import replace

from hybridq.plan.expressions import Expression, NamedExpression, substitute
from hybridq.plan.nodes import Aggregate, Join, Limit, Node, Project, Sort, TopK, transform
from hybridq.plan.rules.helpers import inlined, is_identity, map_expressions, names_of, only_columns, passing, values_of


def merge_projections(root: Node) -> Node:
    """Merge a Project into the Project or Aggregate above it; lift Projects that compute nothing above joins.

    Engines evaluate a node's equal subexpressions once, so what a Project computed for several uses still costs no
    more. Projects that pass their whole input on go away.

    >>> import pyarrow as pa
    >>> from hybridq.plan.expressions import Call, Column, Literal
    >>> from hybridq.plan.nodes import Scan, ScanColumn, render
    >>> a = Column(pa.int64(), "t.a")
    >>> scan = Scan("t", (ScanColumn("t.a", "a", pa.int64()),))
    >>> twice = NamedExpression("twice", Call(pa.int64(), "add", (a, a)))
    >>> more = NamedExpression("more", Call(pa.int64(), "add", (Column(pa.int64(), "twice"), Literal(pa.int64(), 1))))
    >>> print(render(merge_projections(Project(Project(scan, (twice,)), (more,)))))
    Project ((t.a + t.a) + 1) AS more
      Scan t [a]
    """
    return transform(root, _merge)


def _merge(node: Node) -> Node:
    if isinstance(node, Project):
        return _merge_project(node)
    if isinstance(node, Aggregate) and isinstance(node.input, Project):
        below = node.input
        changed = _with_values(node, values_of(below))
        return node if changed is None else _merge(changed.with_inputs((below.input,)))
    if isinstance(node, Join):
        return _lift_above_join(node)
    if isinstance(node, Sort | TopK | Limit) and isinstance(node.input, Project) and _only_renames(node.input):
        # A Project below that only reorders or renames would keep joins and orders apart for nothing.
        below = node.input
        changed = map_expressions(node, lambda expression: substitute(expression, values_of(below)))
        return Project(changed.with_inputs((below.input,)), below.expressions)
    return node


def _merge_project(node: Project) -> Node:
    while isinstance(node.input, Project):
        below = node.input
        changed = _with_values(node, values_of(below))
        if not isinstance(changed, Project):
            break
        node = replace(changed, input=below.input)
    return node.input if is_identity(node) else node


def _with_values(node: Node, values: dict[str, Expression]) -> Node | None:
    """Inline into all expressions of a node, or into none."""
    too_large = False

    def change(expression: Expression) -> Expression:
        nonlocal too_large
        result = inlined(expression, values)
        if result is None:
            too_large = True
            return expression
        return result

    changed = map_expressions(node, change)
    return None if too_large else changed


def _only_renames(node: Project) -> bool:
    """Tell whether a Project passes on every input column once, under whatever name and in whatever order."""
    below = names_of(node.input.schema)
    return only_columns(node) and len(node.expressions) == len(below) == len({i.expression for i in node.expressions})


def _lift_above_join(node: Join) -> Node:
    """Turn Join(Project, Project) into Project(Join) where the Projects compute nothing."""
    left, right = node.left, node.right
    values: dict[str, Expression] = {}
    outputs: list[NamedExpression] = []
    lifted = False
    for side in (left, right):
        if isinstance(side, Project) and only_columns(side):
            values |= values_of(side)
            outputs += side.expressions
            lifted = True
        else:
            outputs += passing(side.schema)
    if not lifted:
        return node
    below_left = left.input if isinstance(left, Project) and only_columns(left) else left
    below_right = right.input if isinstance(right, Project) and only_columns(right) else right
    names = names_of(below_left.schema), names_of(below_right.schema)
    if names[0] & names[1] or node.mark in names[0] | names[1]:
        return node
    changed = map_expressions(node, lambda expression: substitute(expression, values))
    joined = changed.with_inputs((below_left, below_right))
    if node.kind in ("semi", "anti", "mark"):
        outputs = outputs[: len(left.schema)] + list(passing(node.schema[len(left.schema) :]))
    top = Project(joined, tuple(outputs))
    return joined if is_identity(top) else top
