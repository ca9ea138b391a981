"""What DataFusion's Substrait loses of aggregates."""

from __future__ import annotations

from typing import Any

from hybridq.errors import Unsupported

_SEVERAL = ("GROUPING SETS (", "ROLLUP (", "CUBE (")


def check_aggregates(logical: Any, message: bytes) -> None:
    """Check that a plan has no aggregate that its Substrait form gives in another meaning.

    Parameters
    ----------
    logical : datafusion.plan.LogicalPlan
        Optimised.
    message : bytes
        The same plan as Substrait.

    Raises
    ------
    Unsupported
        It has IGNORE NULLS, which is not exported; or GROUPING SETS of a single set, which look like GROUP BY but have
        a column more.
    """
    lines = [line.lstrip() for line in logical.display_indent().splitlines()]
    aggregates = [line for line in lines if line.startswith("Aggregate: groupBy=")]
    if any(" IGNORE NULLS" in line for line in aggregates):
        raise Unsupported("IGNORE NULLS in an aggregate is not supported: use FILTER (WHERE ... IS NOT NULL)")
    sets = sum(line.startswith(tuple(f"Aggregate: groupBy=[[{word}" for word in _SEVERAL)) for line in aggregates)
    if sets:
        from substrait.proto import Plan

        plan = Plan()
        plan.ParseFromString(message)
        if _aggregates_of_sets(plan) != sets:
            raise Unsupported("GROUPING SETS of a single set are not supported: write GROUP BY")


def _aggregates_of_sets(message: Any) -> int:
    """Count the aggregates of a plan that have several grouping sets."""
    pending, found = [message], 0
    while pending:
        current = pending.pop()
        found += current.DESCRIPTOR.full_name == "substrait.AggregateRel" and len(current.groupings) > 1
        for field, value in current.ListFields():
            if field.message_type is not None:
                pending.extend([value] if hasattr(value, "ListFields") else value)
    return found
