"""GROUPING SETS, ROLLUP and CUBE: every set is made of the partial results of a larger one.

Rows are grouped once, by all keys. Partial results merge, so those of (a) are made of those of (a, b), on whatever
engine has them, and the rows of a chunk are read and hashed once however many sets there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hybridq.engines.protocol import Engine, Frame
from hybridq.physical.merges import AggregateMerge
from hybridq.physical.pipeline import PartialAggregateSink
from hybridq.plan.expressions import AggregateCall, Column, Literal, NamedExpression
from hybridq.plan.nodes import SET_NUMBER_TYPE, GroupingSets
from hybridq.types import Field


def into_sets(engine: Engine, frame: Frame, sink: PartialAggregateSink) -> Frame:
    """Make the partial results of all sets of those grouped by all keys.

    Parameters
    ----------
    engine : Engine
        Whose frame it is.
    frame : Frame
        Grouped by all of ``sink.groups``.
    sink : PartialAggregateSink
        With sets.

    Returns
    -------
    Frame
        Of ``sink.schema``: keys (NULL where they are not in the set), number of the set, partial results.
    """
    assert sink.sets is not None
    keys = [Field(item.name, item.expression.type) for item in sink.groups]
    known: dict[tuple[int, ...], Frame] = {tuple(range(len(keys))): frame}
    parts: list[tuple[int, Frame]] = []
    by_size = sorted(enumerate(sink.sets.members), key=lambda item: (-len(item[1]), item[0]))
    for number, members in by_size:
        if members not in known:
            larger = [members_of for members_of in known if set(members) <= set(members_of)]
            source = known[min(larger, key=lambda members_of: known[members_of].rows)]
            kept = [NamedExpression(keys[index].name, Column(keys[index].type, keys[index].name)) for index in members]
            known[members] = engine.aggregate(source, kept, sink.merge)
        parts.append((number, engine.project(known[members], _columns(keys, members, number, sink.sets, sink.merge))))
    return engine.concatenate([part for _, part in sorted(parts, key=lambda item: item[0])])


def nothing(engine: Engine, merge: AggregateMerge) -> list[pa.Table]:
    """Return partial results of no rows at all: a row for each set without keys, which is there even so."""
    if merge.sets is None:
        return []
    types = {field.name: field.type for field in merge.partial_schema}
    keys = [Field(name, types[name]) for name in merge.groups if name != merge.sets.name]
    found = []
    for number, members in enumerate(merge.sets.members):
        if not members:
            empty = engine.from_arrow(pa.table({f.name: pa.array([], f.type) for f in merge.partial_schema}))
            row = engine.aggregate(empty, [], merge.aggregates)
            row = engine.project(row, _columns(keys, members, number, merge.sets, merge.aggregates))
            found.append(engine.to_arrow(row, merge.partial_schema))
    return found


def _columns(
    keys: Sequence[Field], members: Sequence[int], number: int, sets: GroupingSets, calls: Sequence[AggregateCall]
) -> list[NamedExpression]:
    columns = [
        NamedExpression(key.name, Column(key.type, key.name) if index in members else Literal(key.type, None))
        for index, key in enumerate(keys)
    ]
    columns.append(NamedExpression(sets.name, Literal(SET_NUMBER_TYPE, number)))
    return columns + [NamedExpression(call.name, Column(call.type, call.name)) for call in calls]
