"""How the partial results of a stage's chunks become its output: plain data, as all that stages are made of.

``hybridq.dispatch.merging`` does it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hybridq.plan.expressions import AggregateCall, NamedExpression, SortKey
from hybridq.plan.nodes import GroupingSets
from hybridq.plan.windows import WindowCall
from hybridq.types import Schema


@dataclass(frozen=True, slots=True)
class ConcatenateMerge:
    """Rows of all chunks in chunk order; with ``count`` only the first so many."""

    schema: Schema
    count: int | None = None


@dataclass(frozen=True, slots=True)
class AggregateMerge:
    """Merge partial aggregates by group, then compute the final values.

    Attributes
    ----------
    groups : tuple of str
        Key columns of the partials; with ``sets``, the number of the set is the last of them.
    aggregates : tuple of AggregateCall
        How to merge each partial column (arguments are ``Column`` of the partial schema).
    final : tuple of NamedExpression
        Group keys and aggregates in final form, over the merged columns.
    partial_schema : Schema
    sets : GroupingSets or None
        An empty one among them has a row even when there is no partial result.
    """

    groups: tuple[str, ...]
    aggregates: tuple[AggregateCall, ...]
    final: tuple[NamedExpression, ...]
    partial_schema: Schema
    sets: GroupingSets | None = None


@dataclass(frozen=True, slots=True)
class SortMerge:
    """Merge sorted runs, then drop ``offset`` rows and keep ``count`` (all, if ``None``)."""

    keys: tuple[SortKey, ...]
    schema: Schema
    offset: int = 0
    count: int | None = None


@dataclass(frozen=True, slots=True)
class KeepPieces:
    """Nothing is merged: the pieces of a split stay where they are, for the tasks that read partitions."""

    schema: Schema


Merge = ConcatenateMerge | AggregateMerge | SortMerge | KeepPieces


@dataclass(frozen=True, slots=True)
class FinishSort:
    """Order the merged rows (they are all in one place)."""

    keys: tuple[SortKey, ...]


@dataclass(frozen=True, slots=True)
class FinishLimit:
    """Keep rows ``offset`` to ``offset + count`` of the merged rows."""

    offset: int
    count: int | None


@dataclass(frozen=True, slots=True)
class FinishWindow:
    """Compute window functions over the merged rows, as new columns; aggregates are in partial form."""

    calls: tuple[WindowCall, ...]
