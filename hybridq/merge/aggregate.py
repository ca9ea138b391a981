"""Merging of partial aggregates."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hybridq.engines.cpu import CpuEngine
from hybridq.physical.pipeline import AggregateMerge
from hybridq.plan.expressions import Column, NamedExpression
from hybridq.types import Field, to_arrow_schema


def merge_partials(merge: AggregateMerge, partials: Sequence[pa.Table]) -> pa.Table:
    """Merge partial aggregates of several chunks into one.

    Parameters
    ----------
    merge : AggregateMerge
    partials : sequence of pyarrow.Table
        Of the partial schema. May be empty.

    Returns
    -------
    pyarrow.Table
        Of the partial schema, one row a group; exactly one row when there are no groups.
    """
    engine = CpuEngine()
    frames = [engine.from_arrow(partial) for partial in partials]
    if not frames:
        frames = [engine.from_arrow(to_arrow_schema(merge.partial_schema).empty_table())]
    types = {field.name: field.type for field in merge.partial_schema}
    groups = [NamedExpression(name, Column(types[name], name)) for name in merge.groups]
    merged = engine.aggregate(engine.concatenate(frames), groups, merge.aggregates)
    return engine.to_arrow(merged, merge.partial_schema)


def finalize(merge: AggregateMerge, partial: pa.Table) -> pa.Table:
    """Compute the final aggregates from merged partial ones.

    Parameters
    ----------
    merge : AggregateMerge
    partial : pyarrow.Table
        The only partial result left.

    Returns
    -------
    pyarrow.Table
        The columns of ``merge.final``.

    Raises
    ------
    NumericOverflow
        A total does not fit its type.
    """
    engine = CpuEngine()
    schema = tuple(Field(item.name, item.expression.type) for item in merge.final)
    return engine.to_arrow(engine.project(engine.from_arrow(partial), merge.final), schema)
