"""Read and carry only the columns that are needed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import singledispatch

from hybridq.plan.expressions import columns_of
from hybridq.plan.nodes import Aggregate, Join, Node, Project, Scan, Sort, TopK, Union, Window
from hybridq.plan.rules.helpers import names_of, passing, read_by

Needed = frozenset[str]


def column_pruning(root: Node) -> Node:
    """Drop columns, expressions and aggregates that nothing reads.

    Scans read what is used, which may be no column at all (COUNT(*)). A Project drops columns that were needed for a
    while where rows are kept: on the build side of a join, below an order, and at the root.

    >>> import pyarrow as pa
    >>> from hybridq.plan.expressions import AggregateCall
    >>> from hybridq.plan.nodes import ScanColumn, render
    >>> scan = Scan("t", tuple(ScanColumn(f"t.{name}", name, pa.int64()) for name in "abc"))
    >>> print(render(column_pruning(Aggregate(scan, (), (AggregateCall("count(*)", "count", None, pa.int64()),)))))
    Aggregate count(*)
      Scan t []
    """
    wanted = root.schema
    pruned = _prune(root, names_of(wanted))
    return pruned if pruned.schema == wanted else Project(pruned, passing(wanted))


def _exact(node: Node, needed: Needed) -> Node:
    """Prune a node so that it has no more columns than needed."""
    pruned = _prune(node, needed)
    if len(pruned.schema) == len(needed):
        return pruned
    return Project(pruned, passing(pruned.schema, needed))


@singledispatch
def _prune(node: Node, needed: Needed) -> Node:
    """Return a node with at least the needed columns of its output, in their order."""
    inputs = node.inputs
    below = needed | read_by(node)
    return _over(node, tuple(_prune(child, below & names_of(child.schema)) for child in inputs))


def _over(node: Node, inputs: tuple[Node, ...]) -> Node:
    return node if all(a is b for a, b in zip(inputs, node.inputs, strict=True)) else node.with_inputs(inputs)


@_prune.register
def _(node: Scan, needed: Needed) -> Node:
    read = needed if node.predicate is None else needed | columns_of(node.predicate)
    columns = tuple(column for column in node.columns if column.name in read)
    return node if len(columns) == len(node.columns) else replace(node, columns=columns)


@_prune.register
def _(node: Project, needed: Needed) -> Node:
    kept = tuple(item for item in node.expressions if item.name in needed)
    read: Needed = frozenset().union(*(columns_of(item.expression) for item in kept))
    child = _prune(node.input, read)
    if not kept:
        # Only the number of rows matters, and that is the input's.
        return child
    if child is node.input and len(kept) == len(node.expressions):
        return node
    return Project(child, kept)


@_prune.register
def _(node: Aggregate, needed: Needed) -> Node:
    kept = tuple(call for call in node.aggregates if call.name in needed)
    if not kept and not node.groups:
        # One row all the same; it needs a column to be a row of.
        kept = node.aggregates[:1]
    if len(kept) != len(node.aggregates):
        node = replace(node, aggregates=kept)
    return _over(node, (_prune(node.input, read_by(node)),))


@_prune.register(Sort)
@_prune.register(TopK)
def _(node: Sort | TopK, needed: Needed) -> Node:
    return _over(node, (_exact(node.input, needed | read_by(node)),))


@_prune.register
def _(node: Join, needed: Needed) -> Node:
    if node.mark is not None and node.mark not in needed:
        return _prune(node.left, needed)
    below = needed | read_by(node)
    left = _prune(node.left, below & names_of(node.left.schema))
    right = _exact(node.right, _of(below, node.right))
    return _over(node, (left, right))


@_prune.register
def _(node: Window, needed: Needed) -> Node:
    kept = tuple(call for call in node.calls if call.name in needed)
    below = _of(needed, node.input)
    if not kept:
        return _prune(node.input, below)
    if len(kept) != len(node.calls):
        node = replace(node, calls=kept)
    # All rows meet in one place: they should be narrow.
    return _over(node, (_exact(node.input, below | read_by(node)),))


@_prune.register
def _(node: Union, needed: Needed) -> Node:
    kept = [position for position, name in enumerate(node.names) if name in needed]
    parts = tuple(_by_position(part, kept) for part in node.parts)
    if len(kept) == len(node.names) and all(a is b for a, b in zip(parts, node.parts, strict=True)):
        return node
    return Union(parts, tuple(node.names[position] for position in kept))


def _by_position(node: Node, positions: Sequence[int]) -> Node:
    """Prune a node to the columns at some positions, in that order."""
    wanted = tuple(node.schema[position] for position in positions)
    pruned = _prune(node, names_of(wanted))
    return pruned if pruned.schema == wanted else Project(pruned, passing(wanted))


def _of(needed: Collection[str], node: Node) -> Needed:
    return frozenset(needed) & names_of(node.schema)
