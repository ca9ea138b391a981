"""Aggregates whose partial results are split by key, so that no worker has to hold those of all groups.

Each chunk's partial results become pieces. Then one task merges some partitions; what it gives are whole groups, so
that HAVING, further joins and the next aggregate go on in the same task.
"""

from __future__ import annotations

from dataclasses import replace

from hybridq.config import Config
from hybridq.physical import fragments
from hybridq.physical.decompose import decompose_by_values
from hybridq.physical.fragments import (
    OpenMerge,
    OpenPipeline,
    PendingAggregate,
    PendingGroups,
    PendingSplit,
)
from hybridq.physical.merges import AggregateMerge
from hybridq.physical.partitions import partitions_for
from hybridq.physical.pipeline import FilterStep, GroupStep, PartialAggregateSink, ProjectStep
from hybridq.plan.selectivity import value_width
from hybridq.types import Field, Schema

FEW_GROUPS = 4096
"""Up to so many groups, those of DISTINCT aggregates are split by distinct values, and their counts merged at once."""

MERGED_TOGETHER = 32
"""Partial results that meet in a merge at most: so many are merged into one while their stage is still running."""


def partial_bytes(fragment: OpenMerge, pending: PendingAggregate, chunks: int) -> float:
    """Estimate the bytes of all partial results that would meet in one merge.

    Parameters
    ----------
    fragment : OpenMerge
    pending : PendingAggregate
    chunks : int
        Of its input.
    """
    merge = fragment.merge
    if not isinstance(merge, AggregateMerge):
        raise TypeError("only an aggregate has partial results")
    most = max(fragment.pipeline.rows, 1.0)
    width = sum(value_width(field.type) for field in merge.partial_schema)
    meeting = min(chunks, MERGED_TOGETHER)
    groups = min(pending.groups * meeting, most) * width
    values = sum(
        min(values * pending.groups * meeting, most) * value_width(argument.type)
        for argument, values in pending.values.items()
    )
    return groups + values + list_bytes(fragment, pending, chunks)


def list_bytes(fragment: OpenMerge, pending: PendingAggregate, chunks: int) -> float:
    """Estimate the bytes of these that are lists of values; see ``partial_bytes``."""
    most = max(fragment.pipeline.rows, 1.0)
    meeting = max(pending.groups, 1.0) * min(chunks, MERGED_TOGETHER)
    return sum(min(count * meeting, most) * width for count, width in pending.lists)


def split_by_groups(fragment: OpenMerge, pending: PendingAggregate, config: Config) -> OpenPipeline:
    """Return an aggregate as a pipeline that reads partitions of groups."""
    sink, merge = _parts(fragment)
    rows = min(pending.groups * MERGED_TOGETHER, fragment.pipeline.rows)
    groups = PendingGroups(pending.id, sink, sink.schema, (), rows)
    found = _reading(fragment, groups, merge.groups, config)
    found.steps.append(GroupStep(merge))
    return _with_steps(found, fragment)


def split_by_values(fragment: OpenMerge, pending: PendingAggregate, config: Config) -> OpenMerge:
    """Return an aggregate, some of it over DISTINCT, as the merge of what partitions of distinct values give.

    A distinct value of a group, wherever it is from, is in one partition.
    """
    sink, merge = _parts(fragment)
    parts = decompose_by_values(pending.node.aggregates)
    by_name = {field.name: field for field in sink.schema}
    keys: Schema = tuple(by_name[name] for name in merge.groups)
    types = {call.name: call.type for call in parts.partial}
    values: Schema = tuple(Field(value, types[name].value_type) for name, value in parts.lists)
    # What each chunk gives.
    schema = keys + tuple(Field(call.name, call.type) for call in parts.partial)
    merging = parts.partial_merge if sink.sets is not None else ()
    first = replace(sink, aggregates=parts.partial, schema=schema, merge=merging)
    # As rows of one value each, which are united where they are equal.
    split = keys + tuple(Field(call.name, call.type) for call in parts.unite) + values
    most = fragment.pipeline.rows
    rows = sum(min(count * max(pending.groups, 1.0) * MERGED_TOGETHER, most) for count in pending.values.values())
    groups = PendingGroups(pending.id, first, split, parts.lists, rows)
    names = tuple(field.name for field in keys + values)
    found = _reading(fragment, groups, names, config)
    found.steps.append(GroupStep(AggregateMerge(names, parts.unite, fragments.identity(split), split)))
    found.schema = split
    # Of these, partial results as of any aggregate.
    second = keys + tuple(Field(call.name, call.type) for call in parts.second)
    last = PartialAggregateSink(fragments.identity(keys), parts.second, second)
    final = fragments.identity(keys) + parts.final
    merged = AggregateMerge(merge.groups, parts.merge, final, second, merge.sets)
    return replace(fragment, pipeline=found, sink=last, merge=merged)


def _parts(fragment: OpenMerge) -> tuple[PartialAggregateSink, AggregateMerge]:
    if not isinstance(fragment.sink, PartialAggregateSink) or not isinstance(fragment.merge, AggregateMerge):
        raise TypeError("the fragment is no aggregate")
    return fragment.sink, fragment.merge


def _reading(fragment: OpenMerge, groups: PendingGroups, keys: tuple[str, ...], config: Config) -> OpenPipeline:
    """Return the pipeline that reads partitions of a fragment's partial results."""
    width = sum(value_width(field.type) for field in groups.schema)
    source = PendingSplit(fragment.pipeline, keys, partitions_for(groups.rows * width, config), groups)
    return OpenPipeline(source, fragment.schema, fragment.rows, fragment.bytes)


def _with_steps(found: OpenPipeline, fragment: OpenMerge) -> OpenPipeline:
    """Let what was to be done with merged groups be done with those of each partition."""
    for step in fragment.finish:
        if not isinstance(step, FilterStep | ProjectStep):
            raise TypeError(f"{type(step).__name__} needs all groups")
        found.steps.append(step)
    return found
