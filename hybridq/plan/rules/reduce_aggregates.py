"""Aggregate only the groups that a join will ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hybridq.plan.cardinality import Estimator
from hybridq.plan.expressions import Column, Expression, NamedExpression
from hybridq.plan.naming import unique_name
from hybridq.plan.nodes import Aggregate, Filter, Join, Node, Project, Scan, transform
from hybridq.plan.rules.helpers import names_of, values_of

FEWER_GROUPS = 0.2
"""Share of the groups up to which leaving the others out pays for looking up every row's key."""

CHEAP_SHARE = 0.3
"""Rows that may be read again to find the keys, as a share of those that are aggregated."""


def reduce_aggregates(root: Node, estimator: Estimator) -> Node:
    """Let only rows of the groups that are asked for into an aggregate that is joined by its group key.

    Where the other side of the join takes its keys from a table that a filter leaves few rows of, a semi join with that
    table goes below the aggregate. A correlated subquery such as ``(select avg(x) from t where t.k = u.k)`` would
    otherwise be computed for all keys of ``t``.

    >>> import pyarrow as pa
    >>> from types import SimpleNamespace
    >>> from hybridq.plan.expressions import AggregateCall, Call, Literal
    >>> from hybridq.plan.nodes import ScanColumn, render
    >>> def scan(name, predicate=None):
    ...     return Scan(name, (ScanColumn(f"{name}.k", "k", pa.int64()),), predicate)
    >>> key = [Column(pa.int64(), f"{name}.k") for name in ("few", "many")]
    >>> def statistics(name):
    ...     rows = {"few": 10, "many": 100_000}[name]
    ...     return SimpleNamespace(rows=rows, summary=lambda source: None, column_bytes=lambda source: 8 * rows)
    >>> count = AggregateCall("n", "count", None, pa.int64())
    >>> counted = Aggregate(scan("many"), (NamedExpression("many.k", key[1]),), (count,))
    >>> one = Call(pa.bool_(), "equal", (key[0], Literal(pa.int64(), 1)))
    >>> joined = Join(scan("few", one), counted, "inner", (key[0],), (key[1],))
    >>> print(render(reduce_aggregates(joined, Estimator(statistics))))
    Join inner ON few.k = many.k
      Scan few [k] WHERE (few.k = 1)
      Aggregate count(*) AS n BY many.k
        Join semi ON many.k = few.k wanted
          Scan many [k]
          Project few.k AS few.k wanted
            Scan few [k] WHERE (few.k = 1)
    """
    return transform(root, lambda node: _reduced(node, estimator) if isinstance(node, Join) else node)


def _reduced(node: Join, estimator: Estimator) -> Node:
    if node.kind == "full" or node.null_aware:
        return node
    # An inner join may have the aggregate on either side; other joins drop or pad rows of the right one alone.
    sides = [(node.left, node.left_keys, node.right, node.right_keys)]
    if node.kind == "inner":
        sides.append((node.right, node.right_keys, node.left, node.left_keys))
    for side, (asking, asking_keys, asked, asked_keys) in enumerate(sides):
        for asking_key, asked_key in zip(asking_keys, asked_keys, strict=True):
            if not isinstance(asking_key, Column) or not isinstance(asked_key, Column):
                continue
            changed = _with_fewer_groups(asked, asked_key.name, asking, asking_key.name, estimator)
            if changed is not None:
                return replace(node, right=changed) if side == 0 else replace(node, left=changed)
    return node


def _with_fewer_groups(node: Node, name: str, asking: Node, asking_name: str, estimator: Estimator) -> Node | None:
    """Return the side with the aggregate changed, or ``None`` where there is none, or nothing to gain."""
    if isinstance(node, Filter | Project):
        if isinstance(node, Project):
            passed = values_of(node)[name]
            if not isinstance(passed, Column):
                return None
            name = passed.name
        below = _with_fewer_groups(node.input, name, asking, asking_name, estimator)
        return None if below is None else node.with_inputs((below,))
    if not isinstance(node, Aggregate) or node.sets is not None:
        # Of grouping sets, rows that are not asked for by this key still count in sets without it.
        return None
    key = next((item.expression for item in node.groups if item.name == name), None)
    if key is None or _has_semi_join(node.input, key):
        return None
    groups = estimator.expression_profile(node.input, key).distinct
    rows = estimator.base_rows(node.input)
    best: tuple[float, Node, str] | None = None
    for source, column in _sources(asking, asking_name):
        found = estimator.distinct(source, column)
        if found > FEWER_GROUPS * groups or estimator.streamed_rows(source) > CHEAP_SHARE * rows:
            continue
        if best is None or found < best[0]:
            best = (found, source, column)
    if best is None:
        return None
    _, source, column = best
    wanted = unique_name(f"{column} wanted", names_of(node.input.schema))
    data_type = key.type
    if next(item.type for item in source.schema if item.name == column) != data_type:
        return None
    keys = Project(source, (NamedExpression(wanted, Column(data_type, column)),))
    return replace(node, input=Join(node.input, keys, "semi", (key,), (Column(data_type, wanted),)))


def _has_semi_join(node: Node, key: Expression) -> bool:
    """Tell whether rows are looked up by that key already, wherever other rules have put it."""
    while isinstance(node, Filter | Project | Join):
        if isinstance(node, Join) and node.kind == "semi" and str(key) in map(str, node.left_keys):
            return True
        if isinstance(node, Join) and node.kind == "inner" and _has_semi_join(node.right, key):
            return True
        if isinstance(node, Project):
            values = values_of(node)
            key = values.get(key.name, key) if isinstance(key, Column) else key
        node = node.inputs[0]
    return False


def _sources(node: Node, name: str) -> Iterator[tuple[Node, str]]:
    """Yield filtered tables one of whose columns has every value that a column of the node has."""
    if isinstance(node, Scan):
        if node.predicate is not None and any(column.name == name for column in node.columns):
            yield node, name
    elif isinstance(node, Filter):
        yield from _sources(node.input, name)
    elif isinstance(node, Project):
        value = values_of(node).get(name)
        if isinstance(value, Column):
            yield from _sources(node.input, value.name)
    elif isinstance(node, Join) and node.kind != "full":
        yield from _sources_of_join(node, name)


def _sources_of_join(node: Join, name: str) -> Iterator[tuple[Node, str]]:
    on_left = name in names_of(node.left.schema)
    if on_left:
        yield from _sources(node.left, name)
    elif node.kind == "inner":
        yield from _sources(node.right, name)
    if node.kind not in ("inner", "semi"):
        return
    for pair in zip(node.left_keys, node.right_keys, strict=True):
        own, other = pair if on_left else (pair[1], pair[0])
        if isinstance(own, Column) and own.name == name and isinstance(other, Column):
            yield from _sources(node.right if on_left else node.left, other.name)
