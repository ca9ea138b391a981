"""Keep only the first rows of an order."""

from __future__ import annotations

from dataclasses import replace

from hybridq.plan.nodes import Limit, Node, Project, Sort, TopK, transform


def top_k(root: Node) -> Node:
    """Make one TopK of a LIMIT over a Sort; a Project between them is computed for the rows that are left.

    >>> import pyarrow as pa
    >>> from hybridq.plan.expressions import Column, SortKey
    >>> from hybridq.plan.nodes import Scan, ScanColumn, render
    >>> scan = Scan("t", (ScanColumn("t.a", "a", pa.int64()),))
    >>> print(render(top_k(Limit(Sort(scan, (SortKey(Column(pa.int64(), "t.a")),)), 0, 10))))
    TopK 10 OFFSET 0 BY t.a ASC NULLS LAST
      Scan t [a]
    """
    return transform(root, _merge)


def _merge(node: Node) -> Node:
    if not isinstance(node, Limit):
        return node
    below = node.input
    if isinstance(below, Sort) and node.count is not None:
        return TopK(below.input, below.keys, node.offset, node.count)
    if isinstance(below, Project) and _over_sort(below):
        return replace(below, input=_merge(replace(node, input=below.input)))
    if isinstance(below, TopK):
        left = max(below.count - node.offset, 0)
        count = left if node.count is None else min(left, node.count)
        return replace(below, offset=below.offset + node.offset, count=count)
    return node


def _over_sort(node: Node) -> bool:
    while isinstance(node, Project):
        node = node.input
    return isinstance(node, Sort | TopK)
