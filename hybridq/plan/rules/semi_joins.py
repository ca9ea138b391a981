"""Move semi and anti joins below inner joins, to the rows that they choose from."""

from __future__ import annotations

from dataclasses import replace

from hybridq.plan.cardinality import Estimator
from hybridq.plan.expressions import Column, Expression, columns_of, substitute
from hybridq.plan.nodes import Join, Node, Project
from hybridq.plan.rules.helpers import can_fail


def semi_joins(root: Node, estimator: Estimator) -> Node:
    """Let semi and anti joins choose among the rows of one side of an inner join, if these are no more than it gives.

    ``x IN (subquery)`` keeps or drops all that is joined with a row of x, so it may as well look at that row before
    it is joined. It stays above a join that leaves fewer rows to look at.

    >>> import pyarrow as pa
    >>> from types import SimpleNamespace
    >>> from hybridq.plan.nodes import Scan, ScanColumn, render
    >>> def scan(name):
    ...     return Scan(name, (ScanColumn(f"{name}.k", "k", pa.int64()),))
    >>> def key(name):
    ...     return (Column(pa.int64(), f"{name}.k"),)
    >>> def statistics(name):
    ...     rows = {"facts": 1000, "dimension": 10, "chosen": 5}[name]
    ...     return SimpleNamespace(rows=rows, summary=lambda source: None, column_bytes=lambda source: 8 * rows)
    >>> joined = Join(scan("facts"), scan("dimension"), "inner", key("facts"), key("dimension"))
    >>> chosen = Join(joined, scan("chosen"), "semi", key("dimension"), key("chosen"))
    >>> print(render(semi_joins(chosen, Estimator(statistics))))
    Join inner ON facts.k = dimension.k
      Scan facts [k]
      Join semi ON dimension.k = chosen.k
        Scan dimension [k]
        Scan chosen [k]
    """
    inputs = root.inputs
    changed = tuple(semi_joins(child, estimator) for child in inputs)
    node = root if all(a is b for a, b in zip(changed, inputs, strict=True)) else root.with_inputs(changed)
    if not isinstance(node, Join) or node.kind not in ("semi", "anti"):
        return node
    conditions = [*node.left_keys, *([] if node.residual is None else [node.residual])]
    if any(can_fail(condition) for condition in conditions):
        return node
    lowered = _lowered(node, node.left, estimator, estimator.rows(node.left))
    return node if lowered is None else lowered


def _lowered(join: Join, target: Node, estimator: Estimator, most: float) -> Node | None:
    """Return a target with a semi or anti join at one of the relations below it; ``None`` where it cannot be.

    Only at one of at most so many rows: not at a few that happen to be joined first, for these have no order yet.
    """
    if isinstance(target, Project):
        computed = {item.name: item.expression for item in target.expressions}
        values = {name: computed[name] for name in _read_on_left(join)}
        below = {item.name for item in target.input.schema}
        if not all(isinstance(value, Column) for value in values.values()):
            return None
        if join.residual is not None and below & {item.name for item in join.right.schema}:
            return None  # a name would stand for two columns
        keys = tuple(substitute(key, values) for key in join.left_keys)
        residual: Expression | None = None if join.residual is None else substitute(join.residual, values)
        moved = replace(join, left=target.input, left_keys=keys, residual=residual)
        lowered = _lowered(moved, target.input, estimator, most)
        return None if lowered is None else target.with_inputs((lowered,))
    if not isinstance(target, Join) or target.kind != "inner":
        return None
    read = _read_on_left(join)
    for index, side in enumerate(target.inputs):
        if not read <= {item.name for item in side.schema}:
            continue
        lowered = _lowered(join, side, estimator, most)
        if lowered is None and not _is_joined(side) and estimator.rows(side) <= most:
            lowered = replace(join, left=side)
        if lowered is not None:
            return target.with_inputs((lowered, target.right) if index == 0 else (target.left, lowered))
    return None


def _is_joined(node: Node) -> bool:
    while isinstance(node, Project):
        node = node.input
    return isinstance(node, Join) and node.kind == "inner"


def _read_on_left(join: Join) -> frozenset[str]:
    """Return the columns of its left side that a join's conditions read."""
    read = frozenset().union(*map(columns_of, join.left_keys))
    if join.residual is not None:
        read |= columns_of(join.residual) & {item.name for item in join.left.schema}
    return read
