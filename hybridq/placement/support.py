"""Tells which engines can run a stage, and why others cannot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from hybridq.engines.support import (
    aggregate_lacking,
    comparison_lacking,
    expression_lacking,
    join_lacking,
    operator_lacking,
    type_lacking,
)
from hybridq.errors import Unsupported
from hybridq.physical.pipeline import (
    AlignedBuild,
    BroadcastBuild,
    PartialAggregateSink,
    PartitionedBuild,
    PartitionSource,
    ProbeStep,
    RangeSource,
    Stage,
    StageSource,
)
from hybridq.physical.same import Same
from hybridq.plan.expressions import AggregateCall, Expression, SortKey
from hybridq.plan.nodes import ScanColumn
from hybridq.plan.parts import field_names
from hybridq.plan.windows import WindowCall
from hybridq.topology import Kind


def unsupported(stage: Stage, kind: Kind) -> str | None:
    """Tell why an engine cannot run a stage's pipelines on its chunks.

    Parameters
    ----------
    stage : Stage
    kind : str
        ``cpu`` or ``gpu``; a simulated GPU lacks what a real one lacks.

    Returns
    -------
    str or None
        The reason, naming the function, type or operator; ``None``: it can.
    """
    if any(branch.values is not None for branch in stage.branches):  # which are not to be kept
        return _lacking((stage.pipeline, stage.builds, stage.more), kind)
    return _of_stage(Same(stage), kind)


@lru_cache(maxsize=512)
def _of_stage(stage: Same[Stage], kind: Kind) -> str | None:
    """Tell the same of a stage that is asked about when it is planned, and whenever it is run."""
    return _lacking((stage.part.pipeline, stage.part.builds, stage.part.more), kind)


def check_supported(stages: Sequence[Stage]) -> None:
    """Check that each stage can run on some engine, and that the CPU engine can merge and finish it.

    Raises
    ------
    Unsupported
        The message names what no engine has, and the stage.
    """
    for stage in stages:
        lacking = unsupported(stage, "cpu")
        if lacking is not None and (on_gpu := unsupported(stage, "gpu")) is not None:
            both = lacking if on_gpu == lacking else f"{lacking}, and {on_gpu}"
            raise Unsupported(f"{both}: in stage {stage.id} ({stage.title})")
        lacking = _lacking((stage.merge, stage.finish), "cpu")
        if lacking is not None:
            raise Unsupported(f"{lacking}, which merges: in stage {stage.id} ({stage.title})")


def _lacking(value: object, kind: Kind) -> str | None:
    return next((reason for part in _parts(value) if (reason := _part_lacking(part, kind)) is not None), None)


def _part_lacking(part: Any, kind: Kind) -> str | None:
    if isinstance(part, Expression):
        return expression_lacking(kind, part)
    if isinstance(part, AggregateCall):
        return aggregate_lacking(kind, part)
    if isinstance(part, ScanColumn):
        return type_lacking(kind, part.type)
    joins = isinstance(part, (BroadcastBuild, AlignedBuild, PartitionedBuild))
    if joins and (reason := join_lacking(kind, part.method)) is not None:
        return reason
    if isinstance(part, (StageSource, PartitionSource, RangeSource, BroadcastBuild, PartitionedBuild)):
        reasons = (type_lacking(kind, field.type) for field in part.schema)
        return next((reason for reason in reasons if reason is not None), None)
    reasons = (comparison_lacking(expression) for expression in _compared(part))
    if (reason := next((reason for reason in reasons if reason is not None), None)) is not None:
        return reason
    if isinstance(part, ProbeStep) and (reason := operator_lacking(kind, part.kind)) is not None:
        return reason
    return operator_lacking(kind, type(part).__name__)


def _compared(part: Any) -> Iterator[Expression]:
    """Yield what a step or sink groups, orders or joins by."""
    if isinstance(part, SortKey):
        yield part.expression
    elif isinstance(part, ProbeStep):
        yield from part.keys
    elif isinstance(part, PartialAggregateSink):
        yield from (item.expression for item in part.groups)
    elif isinstance(part, WindowCall):
        yield from part.partition


def _parts(value: Any) -> Iterator[Any]:
    """Yield what a pipeline is made of, however it is nested: steps, sinks, expressions, aggregates."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, tuple):
            pending.extend(reversed(part))
        elif (names := field_names(type(part))) is not None:  # of tables and types there is nothing to compute
            yield part
            pending.extend([getattr(part, name) for name in reversed(names)])
