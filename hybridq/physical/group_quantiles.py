"""Medians and quantiles of groups that are too large for one worker, by counting in two passes.

As for those of all rows (``hybridq.physical.quantiles``): the first pass gives a summary of each group's values, from
which follow two values that the group's quantile is between. Rows get these beside them by a join with the groups; the
second pass counts what is below, and each value between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hybridq.physical.decompose import is_quantile, quantile_rank, tally_type
from hybridq.physical.quantiles import is_comparable, within
from hybridq.plan.expressions import AggregateCall, Call, Column, Expression, Literal, NamedExpression
from hybridq.plan.nodes import SET_NUMBER_TYPE, Aggregate, Join, Project, Union
from hybridq.plan.null_safe import null_safe_keys
from hybridq.types import is_splittable

SHARE_BETWEEN = 1 / 240
"""Share of a group's rows that are between the two values, for a group of many."""

LARGE_GROUP = 1 / 8
"""Share of ``partition_bytes`` from which the values of one group, with their counts, are too many to be merged."""


def counted_by_group(node: Aggregate) -> tuple[AggregateCall, ...]:
    """Return which aggregates of a node can be computed so: quantiles of what can be compared, by keys of a join.

    Where there are grouping sets it is those of each set (``of_each_set``).
    """
    if not node.groups:
        return ()
    keys = [item.expression for item in node.groups]
    if not all(is_splittable(key.type) and null_safe_keys(key, key) for key in keys):
        return ()
    return tuple(
        call
        for call in node.aggregates
        if is_quantile(call) and not call.distinct and call.argument is not None and is_comparable(call.argument.type)
    )


def of_each_set(node: Aggregate) -> Union:
    """Return an aggregate by grouping sets as an aggregate for each of them."""
    assert node.sets is not None
    parts = []
    for number, members in enumerate(node.sets.members):
        groups = tuple(node.groups[index] for index in members)
        there = {item.name: item.expression.type for item in groups}
        items = [
            NamedExpression(name, Column(kind, name) if name in there else Literal(kind, None))
            for name, kind in ((item.name, item.expression.type) for item in node.groups)
        ]
        items.append(NamedExpression(node.sets.name, Literal(SET_NUMBER_TYPE, number)))
        items += [NamedExpression(call.name, Column(call.type, call.name)) for call in node.aggregates]
        parts.append(Project(Aggregate(node.input, groups, node.aggregates), tuple(items)))
    return Union(tuple(parts), tuple(field.name for field in node.schema))


def with_bounds(node: Aggregate, calls: Sequence[AggregateCall]) -> tuple[Join, Aggregate]:
    """Return both passes.

    Parameters
    ----------
    node : Aggregate
    calls : sequence of AggregateCall
        Some of those that ``counted_by_group`` gives.

    Returns
    -------
    Join
        The node's input, with the bounds of its group beside each row; the first pass is below.
    Aggregate
        The second pass, over that.
    """
    keys = tuple(NamedExpression(f"group:{number}", item.expression) for number, item in enumerate(node.groups))
    arguments = dict.fromkeys(call.argument for call in calls if call.argument is not None)
    summaries = {
        argument: AggregateCall(f"summary:{number}", "summary", argument, tally_type(argument.type))
        for number, argument in enumerate(arguments)
    }
    items = [NamedExpression(key.name, Column(key.expression.type, key.name)) for key in keys]
    bounds: dict[AggregateCall, tuple[Expression, Expression]] = {}
    for number, call in enumerate(calls):
        assert call.argument is not None
        of = summaries[call.argument]
        kind, fraction = quantile_rank(call)
        found = []
        for side in ("low", "high"):
            options = (side, kind, str(fraction))
            value = Call(call.argument.type, "summary_bound", (Column(of.type, of.name),), options)
            items.append(NamedExpression(f"{side}:{number}", value))
            found.append(Column(value.type, f"{side}:{number}"))
        bounds[call] = (found[0], found[1])
    first = Project(Aggregate(node.input, keys, tuple(summaries.values())), tuple(items))
    pairs = [
        pair
        for item, key in zip(node.groups, keys, strict=True)
        for pair in null_safe_keys(item.expression, Column(key.expression.type, key.name))
    ]
    # A left join: a group that the first pass has not seen has no bounds, and none of its rows is lost.
    join = Join(node.input, first, "left", tuple(left for left, _ in pairs), tuple(right for _, right in pairs))
    return join, replace(within(node, bounds), input=join)
