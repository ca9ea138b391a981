"""What is computed once groups have been merged."""

from __future__ import annotations

from collections.abc import Iterable

from hybridq.physical.merges import AggregateMerge, FinishSort
from hybridq.physical.pipeline import FilterStep, FinishStep, ProjectStep
from hybridq.plan.expressions import Expression


def finishing_expressions(merge: AggregateMerge, steps: Iterable[FinishStep]) -> list[Expression]:
    """Return the expressions of an aggregate's final values and of the steps that follow, but for window functions."""
    found = [item.expression for item in merge.final]
    for step in steps:
        if isinstance(step, ProjectStep):
            found += [item.expression for item in step.expressions]
        elif isinstance(step, FilterStep):
            found.append(step.predicate)
        elif isinstance(step, FinishSort):
            found += [key.expression for key in step.keys]
    return found
