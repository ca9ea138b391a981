"""Medians and quantiles of all rows by counting, in two passes, where their values are too many for one worker.

The first pass gives a summary of the values: some of them, with how many rows are about up to each. It says between
which two values a quantile is for certain. The second counts the rows below these, and each value between them
(Govindaraju et al., "Fast Computation of Database Operations using Graphics Processors", 2004, find the k-th largest
value by passes that count).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from hybridq.physical import fragments
from hybridq.physical.decompose import is_quantile, quantile_rank, tally_type
from hybridq.physical.fragments import OpenMerge, OpenPipeline, OpenUnion
from hybridq.physical.merges import AggregateMerge
from hybridq.physical.pipeline import PartialAggregateSink
from hybridq.plan.expressions import AggregateCall, Call, Column, Expression, NamedExpression
from hybridq.plan.nodes import Aggregate
from hybridq.types import Field, Schema, is_decimal, is_floating, is_integer, is_string

SUMMARY_BYTES = 256 * 1024
"""About what the summary of a column takes."""


def counted(node: Aggregate) -> tuple[AggregateCall, ...]:
    """Return which aggregates of a node can be computed so: quantiles of all rows of what can be compared."""
    if node.groups or node.sets is not None:
        return ()
    return tuple(
        call
        for call in node.aggregates
        if is_quantile(call) and not call.distinct and call.argument is not None and is_comparable(call.argument.type)
    )


def summary(pipeline: OpenPipeline | OpenUnion, calls: Sequence[AggregateCall]) -> OpenMerge:
    """Return the first pass, whose only row has a summary of each column."""
    arguments = dict.fromkeys(call.argument for call in calls if call.argument is not None)
    partial = tuple(
        AggregateCall(f"summary:{number}", "summary", argument, tally_type(argument.type))
        for number, argument in enumerate(arguments)
    )
    schema: Schema = tuple(Field(call.name, call.type) for call in partial)
    merging = tuple(
        replace(call, function="merge_summaries", argument=Column(call.type, call.name)) for call in partial
    )
    merge = AggregateMerge((), merging, fragments.identity(schema), schema)
    sink = PartialAggregateSink((), partial, schema)
    return OpenMerge(pipeline, sink, merge, schema, 1.0, float(SUMMARY_BYTES * len(partial)))


def bound(stage: int, schema: Schema, calls: Sequence[AggregateCall], call: AggregateCall, side: str) -> OpenMerge:
    """Return what finds, in the summaries that a stage has made, a value that a quantile is not below or not above.

    Parameters
    ----------
    stage : int
    schema : Schema
        Of its output.
    calls : sequence of AggregateCall
        As for ``summary``.
    call : AggregateCall
        The quantile.
    side : str
        ``low`` or ``high``.
    """
    argument = call.argument
    if argument is None:
        raise TypeError("a quantile has an argument")
    names = dict(zip(dict.fromkeys(each.argument for each in calls), schema, strict=True))
    column = names[argument]
    kind, fraction = quantile_rank(call)
    value = Call(argument.type, "summary_bound", (Column(column.type, column.name),), (side, kind, str(fraction)))
    return fragments.single_value(stage, schema, NamedExpression(side, value))


def within(node: Aggregate, bounds: Mapping[AggregateCall, tuple[Expression, Expression]]) -> Aggregate:
    """Return the second pass: quantiles know between which values they are (``hybridq.physical.decompose``)."""
    calls = tuple(
        replace(call, further=(*call.further, *bounds[call])) if call in bounds else call for call in node.aggregates
    )
    return replace(node, aggregates=calls)


def is_comparable(data_type: pa.DataType) -> bool:
    """Tell whether quantiles of values of a type can be counted."""
    number = is_integer(data_type) or is_decimal(data_type) or is_floating(data_type)
    return bool(number or is_string(data_type) or pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type))
