"""Merging partial aggregates, and their final values."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hybridq.engines.cpu import CpuEngine
from hybridq.engines.protocol import Engine, Frame
from hybridq.errors import CastFailed, NumericOverflow
from hybridq.merge.grouping_sets import nothing
from hybridq.physical.merges import AggregateMerge
from hybridq.plan.expressions import Call, Cast, Column, Expression, NamedExpression
from hybridq.types import Field, Schema, to_arrow_schema


def merge_partials(merge: AggregateMerge, partials: Sequence[pa.Table], engine: Engine | None = None) -> pa.Table:
    """Merge partial aggregates of several chunks into one.

    Parameters
    ----------
    merge : AggregateMerge
    partials : sequence of pyarrow.Table
        Of ``merge.partial_schema``; may be empty.
    engine : Engine, optional
        What computes; by default the CPU.

    Returns
    -------
    pyarrow.Table
        Of ``merge.partial_schema``, one row a group; exactly one row without groups.

    Raises
    ------
    NumericOverflow
        A sum does not fit its type.
    """
    schema = merge.partial_schema
    table = pa.concat_tables([to_arrow_schema(schema).empty_table(), *nothing(CpuEngine(), merge), *partials])
    engine = engine or CpuEngine()
    return engine.to_arrow(merged_frame(engine, merge, engine.from_arrow(table)), schema)


def merged_frame(engine: Engine, merge: AggregateMerge, frame: Frame) -> Frame:
    """Merge partial aggregates that an engine has, into one row a group.

    Raises
    ------
    NumericOverflow
        A sum does not fit its type.
    """
    types = {field.name: field.type for field in merge.partial_schema}
    groups = [NamedExpression(name, Column(types[name], name)) for name in merge.groups]
    return engine.aggregate(frame, groups, merge.aggregates)


def finalize(merge: AggregateMerge, partial: pa.Table) -> pa.Table:
    """Compute final values from merged partials.

    Parameters
    ----------
    merge : AggregateMerge
    partial : pyarrow.Table
        What ``merge_partials`` gave.

    Raises
    ------
    NumericOverflow
        A sum does not fit the aggregate's type; the message names it.
    """
    engine = CpuEngine()
    schema: Schema = tuple(Field(item.name, item.expression.type) for item in merge.final)
    return engine.to_arrow(final_values(engine, merge, engine.from_arrow(partial)), schema)


def merge_groups(engine: Engine, merge: AggregateMerge, frame: Frame) -> Frame:
    """Merge partial aggregates of groups that are nowhere else, and compute their final values.

    Parameters
    ----------
    engine : Engine
        Whose frame it is.
    merge : AggregateMerge
    frame : Frame
        Partial results.

    Raises
    ------
    NumericOverflow
        A sum does not fit its type.
    """
    return final_values(engine, merge, merged_frame(engine, merge, frame))


def final_values(engine: Engine, merge: AggregateMerge, frame: Frame) -> Frame:
    """Compute final values from merged partial results, on whatever engine has them; see ``finalize``."""
    try:
        return engine.project(frame, merge.final)
    except CastFailed:
        _raise_overflow(engine, merge, frame)
        raise


def _raise_overflow(engine: Engine, merge: AggregateMerge, frame: Frame) -> None:
    """Find the sum whose total does not fit, and say so: the cast from the wider merged type is not the user's."""
    merged = {call.name for call in merge.aggregates if call.function == "sum"}
    for item in merge.final:
        expression = item.expression
        if not (isinstance(expression, Cast) and _is_sum(expression.operand, merged)):
            continue
        try:
            engine.project(frame, [item])
        except CastFailed as error:
            raise NumericOverflow(
                f"{item.name} does not fit {expression.type}: cast its argument to DECIMAL or DOUBLE"
            ) from error


def _is_sum(expression: Expression, merged: set[str]) -> bool:
    """Tell whether an expression is a merged sum, or the sum of a list of distinct values."""
    if isinstance(expression, Call):
        return expression.function == "aggregate_list" and expression.options == ("sum",)
    return str(expression) in merged
