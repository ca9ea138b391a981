"""Aggregate a build side before it is joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hybridq.plan.cardinality import Estimator
from hybridq.plan.expressions import (
    AggregateCall,
    Call,
    Cast,
    Column,
    Expression,
    Literal,
    NamedExpression,
    columns_of,
)
from hybridq.plan.naming import unique_name
from hybridq.plan.nodes import Aggregate, Filter, Join, Node, Project, transform
from hybridq.plan.rules.helpers import can_fail, names_of
from hybridq.types import is_decimal, is_floating, sum_type

LARGE_BYTES = 64e6
"""A build side that takes less is joined as it is."""

FEWER_ROWS = 0.25
"""Share of its rows up to which its groups are worth making."""

MATCHED = 0.5
"""Share of its rows that must be thought to find a partner: what the join would drop is better not aggregated."""

STRICT = frozenset({"add", "subtract", "multiply", "divide", "modulus", "negate", "abs"})
"""Functions that are NULL where any argument is."""

SURE_DIGITS = 28
"""A sum of decimals of so many digits fits its type, for any number of rows there may be."""


def early_aggregates(root: Node, estimator: Estimator) -> Node:
    """Where only aggregates are asked of a large build side, join its groups and not its rows.

    The build side is grouped by the join's keys, and what comes of that is aggregated once more above the join, by the
    groups that were asked for. Counts become sums of counts.

    >>> import pyarrow as pa
    >>> from types import SimpleNamespace
    >>> from hybridq.plan.nodes import Scan, ScanColumn, render
    >>> from hybridq.plan.statistics import ColumnSummary
    >>> def scan(name):
    ...     return Scan(name, (ScanColumn(f"{name}.k", "k", pa.int64()),))
    >>> key = [Column(pa.int64(), f"{name}.k") for name in ("few", "many")]
    >>> def statistics(name):
    ...     rows = {"few": 10, "many": 10_000_000}[name]
    ...     summary = ColumnSummary(minimum=1, maximum=10, null_count=0, distinct=10)
    ...     return SimpleNamespace(rows=rows, summary=lambda source: summary, column_bytes=lambda source: 8 * rows)
    >>> joined = Join(scan("few"), scan("many"), "left", (key[0],), (key[1],))
    >>> count = AggregateCall("n", "count", key[1], pa.int64())
    >>> counted = Aggregate(joined, (NamedExpression("few.k", key[0]),), (count,))
    >>> print(render(early_aggregates(counted, Estimator(statistics))))
    Aggregate sum(coalesce(count of n, 0)) AS n BY few.k
      Join left ON few.k = many.k
        Scan few [k]
        Aggregate count(many.k) AS count of n BY many.k
          Scan many [k]
    """
    return transform(root, lambda node: _early(node, estimator) if isinstance(node, Aggregate) else node)


def _early(node: Aggregate, estimator: Estimator) -> Node:
    join = node.input
    if not isinstance(join, Join) or join.kind not in ("left", "inner") or join.residual is not None:
        return node
    if node.sets is not None or not node.groups or not join.right_keys:
        return node
    right = join.right
    own = names_of(right.schema)
    keys = [key.name for key in join.right_keys if isinstance(key, Column) and not is_floating(key.type)]
    if len(keys) < len(join.right_keys) or len(set(keys)) < len(keys):
        return node
    if _is_grouped(right, set(keys)):
        return node
    if not all(columns_of(item.expression) & own <= set(keys) for item in node.groups):
        return node
    if not all(_is_splittable(call, own) for call in node.aggregates):
        return node
    arguments = [call.argument for call in node.aggregates if call.argument is not None]
    if join.kind == "left" and not all(_is_null_of_nulls(argument) for argument in arguments):
        return node  # a row without a partner would count for something
    groups = tuple(NamedExpression(key.name, key) for key in join.right_keys if isinstance(key, Column))
    inner, outer = _split(node.aggregates, join, own)
    grouped = Aggregate(right, groups, inner)
    rows = estimator.rows(right)
    if estimator.bytes(right) < LARGE_BYTES or estimator.rows(grouped) > FEWER_ROWS * rows:
        return node
    if estimator.rows(join) < MATCHED * rows:
        return node
    return replace(node, input=replace(join, right=grouped), aggregates=outer)


def _is_grouped(node: Node, keys: set[str]) -> bool:
    """Tell whether a node gives each key once already."""
    while isinstance(node, Project | Filter):
        node = node.input
    return isinstance(node, Aggregate) and {item.name for item in node.groups} == keys


def _is_splittable(call: AggregateCall, own: frozenset[str]) -> bool:
    """Tell whether a call over rows of the build side is one over their groups, and cannot fail for any of them."""
    if call.distinct or call.further or call.order or call.condition is not None or call.options:
        return False
    argument = call.argument
    if argument is None:
        return call.function == "count"
    if not columns_of(argument) or not columns_of(argument) <= own or can_fail(argument, overflow=True):
        return False
    if call.function == "sum":
        return is_floating(argument.type) or (is_decimal(argument.type) and argument.type.precision <= SURE_DIGITS)
    return call.function in ("count", "min", "max")


def _is_null_of_nulls(expression: Expression) -> bool:
    """Tell whether an expression is NULL, for sure, where all of its columns are."""
    if isinstance(expression, Cast):
        return _is_null_of_nulls(expression.operand)
    if isinstance(expression, Call):
        return expression.function in STRICT and any(_is_null_of_nulls(part) for part in expression.arguments)
    return isinstance(expression, Column)


def _split(
    calls: Sequence[AggregateCall], join: Join, own: frozenset[str]
) -> tuple[tuple[AggregateCall, ...], tuple[AggregateCall, ...]]:
    """Return the calls below the join and above it."""
    taken = set(own) | names_of(join.left.schema)
    inner: list[AggregateCall] = []
    outer: list[AggregateCall] = []
    for call in calls:
        name = unique_name(f"{call.function} of {call.name}", taken)
        taken.add(name)
        inner.append(replace(call, name=name))
        partial: Expression = Column(call.type, name)
        if call.function == "count" and join.kind == "left":
            # A row without a partner is one row, none of whose values on the right is there.
            without = 1 if call.argument is None else 0
            partial = Call(call.type, "coalesce", (partial, Literal(call.type, without)))
        function = "sum" if call.function == "count" else call.function
        data_type = sum_type(call.type) if function == "sum" else call.type
        if data_type != call.type:
            raise TypeError(f"{call.name} is {call.type}, and its sum {data_type}")
        outer.append(AggregateCall(call.name, function, partial, data_type))
    return tuple(inner), tuple(outer)
