"""Pieces of a stage under construction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hybridq.physical.merges import ConcatenateMerge, FinishLimit, FinishSort, Merge
from hybridq.physical.pipeline import (
    CarriedWindowStep,
    Clustered,
    CollectSink,
    CondenseStep,
    FilterStep,
    FinishStep,
    GroupStep,
    PartialAggregateSink,
    ProjectStep,
    Sink,
    Source,
    StageSource,
    Step,
    TableSource,
    UnnestStep,
    WindowStep,
)
from hybridq.plan.expressions import Cast, Column, Expression, NamedExpression, SortKey, columns_of
from hybridq.plan.nodes import Aggregate
from hybridq.plan.unnesting import ORDINALITY_TYPE
from hybridq.plan.windows import columns_of_window
from hybridq.types import Field, Schema, is_integer


@dataclass(slots=True, eq=False)
class PendingSplit:
    """The source of a pipeline that reads partitions of other pipelines' rows: those become a stage of their own.

    Attributes
    ----------
    fragment : OpenPipeline or OpenUnion
        Gives the rows.
    keys : tuple of str
        Columns that the rows are split by.
    partitions : int
    groups : PendingGroups or None
        The rows are aggregated before they are split.
    windows : int
        Identifies the window functions that need all rows of equal keys in one chunk; -1: there are none.
    """

    fragment: OpenPipeline | OpenUnion
    keys: tuple[str, ...]
    partitions: int
    groups: PendingGroups | None = None
    windows: int = -1

    @property
    def rows(self) -> float:
        """Return the estimated rows that are split."""
        return self.fragment.rows if self.groups is None else min(self.groups.rows, self.fragment.rows)

    @property
    def whole(self) -> bool:
        """Tell whether all rows of equal keys are in one chunk."""
        return self.groups is not None or self.windows >= 0


@dataclass(slots=True, eq=False)
class PendingSort:
    """The source of a pipeline that reads other pipelines' rows in order: those become a stage of their own.

    Attributes
    ----------
    fragment : OpenPipeline or OpenUnion
        Gives the rows.
    keys : tuple of SortKey
    blocks : int
        See ``hybridq.physical.pipeline.SortedRunSink``.
    id : int
        Identifies the sort, or the windows.
    numbered : bool
        See ``hybridq.physical.pipeline.RangeSource``.
    """

    fragment: OpenPipeline | OpenUnion
    keys: tuple[SortKey, ...]
    blocks: int
    id: int
    numbered: bool = False

    @property
    def rows(self) -> float:
        """Return the estimated rows that are sorted."""
        return self.fragment.rows


@dataclass(frozen=True, slots=True)
class PendingGroups:
    """How rows are aggregated before they are split.

    Attributes
    ----------
    id : int
        Identifies the aggregate.
    sink : PartialAggregateSink
    schema : Schema
        Of what is split.
    lists : tuple of (list column, value column)
        See ``hybridq.physical.pipeline.SplitSink``.
    rows : float
        Estimated rows of partial results.
    """

    id: int
    sink: PartialAggregateSink
    schema: Schema
    lists: tuple[tuple[str, str], ...]
    rows: float


@dataclass(slots=True)
class OpenPipeline:
    """A pipeline that can still take steps.

    Attributes
    ----------
    source : Source, PendingSplit or PendingSort
    schema : Schema
        Columns that flow at its end.
    steps : list of Step
    builds : list of PendingBuild
        Build sides of its probes, not yet turned into stages.
    rows, bytes : float
        Estimates at its end.
    """

    source: Source | PendingSplit | PendingSort
    schema: Schema
    rows: float
    bytes: float
    steps: list[Step] = field(default_factory=list)
    builds: list[PendingBuild] = field(default_factory=list)

    def origin(self, key: Expression) -> str | None:
        """Return the name under which a key has left the source, unchanged, or ``None``.

        Integer widening does not change a value, so casts between integers are looked through. The name may also be
        that of a build side's column.
        """
        for step in reversed(self.steps):
            name = _plain_column(key)
            if name is None:
                return None
            if isinstance(step, ProjectStep | GroupStep):
                expressions = step.expressions if isinstance(step, ProjectStep) else step.merge.final
                found = next((item.expression for item in expressions if item.name == name), None)
                if found is None:  # it comes from a build side that was joined later
                    return None
                key = found
        return _plain_column(key)

    def source_column(self, key: Expression) -> str | None:
        """Return the table column that a key is, unchanged, or ``None``; see ``origin``."""
        if not isinstance(self.source, TableSource):
            return None
        name = self.origin(key)
        return next((column.source for column in self.source.columns if column.name == name), None)

    def split_columns(self, keys: Sequence[Expression], usable: Sequence[int]) -> tuple[int, ...] | None:
        """Return which of the usable keys the rows have been split by; ``None``: by none, or not by these alone."""
        if not isinstance(self.source, PendingSplit):
            return None
        origins = {self.origin(keys[position]): position for position in usable}
        found = [origins.get(name) for name in self.source.keys]
        return None if None in found else tuple(position for position in found if position is not None)


def reads_table(pipeline: OpenPipeline) -> bool:
    """Tell whether a pipeline reads a table, and not what an earlier stage made."""
    return isinstance(pipeline.source, TableSource)


def _plain_column(expression: Expression) -> str | None:
    """Return the name of the column that an expression is, but for integer casts."""
    while isinstance(expression, Cast) and is_integer(expression.type) and is_integer(expression.operand.type):
        expression = expression.operand
    return expression.name if isinstance(expression, Column) else None


@dataclass(slots=True)
class OpenUnion:
    """Several pipelines with the same columns at their ends, which can still take filters and projections.

    Attributes
    ----------
    parts : list of OpenPipeline
    """

    parts: list[OpenPipeline]
    schema: Schema
    rows: float
    bytes: float


@dataclass(slots=True)
class OpenMerge:
    """Pipelines that end in one sink and a merge, which can still take finishing steps.

    Attributes
    ----------
    schema : Schema
        After the finishing steps.
    aggregate : PendingAggregate or None
        It is an aggregate, of which it is not decided yet whether its partial results are split.
    gathers : int or None
        See ``hybridq.physical.pipeline.Stage``.
    """

    pipeline: OpenPipeline | OpenUnion
    sink: Sink
    merge: Merge
    schema: Schema
    rows: float
    bytes: float
    finish: list[FinishStep] = field(default_factory=list)
    early_stop: int | None = None
    aggregate: PendingAggregate | None = None
    gathers: int | None = None


@dataclass(frozen=True, slots=True)
class PendingAggregate:
    """An aggregate whose method is not chosen yet: what follows it decides as well.

    Attributes
    ----------
    id : int
    node : Aggregate
    groups : float
        Estimated number of groups.
    values : mapping of Expression to float
        Estimated number of distinct values of what DISTINCT aggregates are over.
    lists : tuple of (float, float)
        Of each aggregate that needs a list of values, or of what it counts: how many there are of a group at most, as
        estimated, and the bytes that one takes.
    """

    id: int
    node: Aggregate
    groups: float
    values: Mapping[Expression, float]
    lists: tuple[tuple[float, float], ...] = ()


Fragment = OpenPipeline | OpenUnion | OpenMerge


@dataclass(slots=True)
class PendingBuild:
    """A build side that becomes a stage (broadcast, partitioned) or a part of the probing stage (aligned).

    Attributes
    ----------
    probe_column, build_column : str or None
        Set for aligned builds: the columns whose statistics decide which units meet.
    split_keys : tuple of str
        Set for partitioned builds: the columns that its rows are split by.
    partitions : int
        Of a partitioned build.
    witness : str or None
        See ``hybridq.physical.pipeline.SplitSink``.
    inlined : bool
        Each chunk makes the build side for itself, from all of its table.
    splittable : bool
        See ``hybridq.physical.pipeline.BroadcastBuild``.
    """

    id: int
    fragment: Fragment
    keys: tuple[str, ...]
    probe_column: str | None = None
    build_column: str | None = None
    split_keys: tuple[str, ...] = ()
    partitions: int = 0
    witness: str | None = None
    inlined: bool = False
    splittable: bool = False


def names(schema: Schema) -> frozenset[str]:
    """Return the column names of a schema."""
    return frozenset(item.name for item in schema)


def restrict(schema: Schema, keep: Iterable[str]) -> Schema:
    """Return the fields whose names are kept, in order."""
    wanted = set(keep)
    return tuple(item for item in schema if item.name in wanted)


def identity(schema: Schema) -> tuple[NamedExpression, ...]:
    """Return the projection that passes a schema's columns on."""
    return tuple(NamedExpression(item.name, Column(item.type, item.name)) for item in schema)


def prune_steps(
    steps: list[Step], needed: frozenset[str], build_schemas: dict[int, Schema]
) -> tuple[tuple[Step, ...], frozenset[str], dict[int, frozenset[str]]]:
    """Drop what no later step needs.

    Parameters
    ----------
    steps : list of Step
    needed : frozenset of str
        Columns that the sink reads.
    build_schemas : dict of build id to Schema
        Columns that each build side offers.

    Returns
    -------
    tuple of Step
        The steps, with only the expressions and outputs that are needed.
    frozenset of str
        Columns that the first step needs from the source.
    dict of build id to frozenset of str
        Columns that are needed from each build side, its keys not included.
    """
    kept: list[Step] = []
    from_builds: dict[int, frozenset[str]] = {}
    for step in reversed(steps):
        if isinstance(step, FilterStep):
            needed |= columns_of(step.predicate)
            kept.append(step)
        elif isinstance(step, ProjectStep):
            expressions = tuple(item for item in step.expressions if item.name in needed)
            needed = frozenset().union(*(columns_of(item.expression) for item in expressions))
            if not all(isinstance(e.expression, Column) and e.expression.name == e.name for e in expressions):
                kept.append(ProjectStep(expressions))
        elif isinstance(step, WindowStep):
            calls = tuple(call for call in step.calls if call.name in needed)
            if calls:
                kept.append(WindowStep(calls))
            needed -= frozenset(call.name for call in step.calls)
            needed = needed.union(*map(columns_of_window, calls))
        elif isinstance(step, UnnestStep):
            made = {name for _, name in step.lists} | {step.ordinality or ""}
            condition = columns_of(step.condition) if step.condition is not None else frozenset()
            output = tuple(sorted(needed))
            kept.append(replace(step, output=output))
            needed = ((needed | condition) - made) | {source for source, _ in step.lists}
        elif isinstance(step, CarriedWindowStep):
            carried = tuple(call for call in step.calls if call.name in needed)
            needed -= frozenset(call.name for call in step.calls)
            if carried:
                kept.append(replace(step, calls=carried))
                needed = needed.union(*(columns_of(item.expression) for item in step.how.columns))
        elif isinstance(step, CondenseStep):
            kept.append(step)
            needed = frozenset().union(*(columns_of(item.expression) for item in step.how.columns))
        elif isinstance(step, GroupStep):
            final = tuple(item for item in step.merge.final if item.name in needed)
            kept.append(GroupStep(replace(step.merge, final=final)))
            needed = names(step.merge.partial_schema)
        else:
            offered = names(build_schemas[step.build])
            residual = columns_of(step.residual) if step.residual is not None else frozenset()
            from_builds[step.build] = (needed | residual) & offered
            output = tuple(sorted(needed))
            kept.append(replace(step, output=output))
            keys = frozenset().union(*(columns_of(key) for key in step.keys))
            needed = (needed | residual) - offered - {step.mark or ""} | keys
    return tuple(reversed(kept)), needed, from_builds


def field_of(schema: Schema, name: str) -> Field:
    """Return the field with that name."""
    return next(item for item in schema if item.name == name)


def clustered(fragment: OpenMerge) -> Clustered | None:
    """Return the group key by which a table's chunks may be told apart, where groups are dropped after the merge."""
    if not _drops_groups(fragment.finish):
        return None
    return table_key(fragment)


def table_key(fragment: OpenMerge) -> Clustered | None:
    """Return a group key that is a column of the table that an aggregate reads, unchanged."""
    pipeline, sink = fragment.pipeline, fragment.sink
    if not isinstance(sink, PartialAggregateSink) or sink.sets is not None or not isinstance(pipeline, OpenPipeline):
        return None
    for item in sink.groups:
        column = pipeline.source_column(item.expression)
        if column is not None and is_integer(item.expression.type):
            return Clustered(item.name, column)
    return None


def _drops_groups(finish: Sequence[FinishStep]) -> bool:
    """Tell whether HAVING follows a merge, or ORDER BY with LIMIT."""
    first, second = (*finish, None, None)[:2]
    limited = isinstance(first, FinishSort) and isinstance(second, FinishLimit) and second.count is not None
    return isinstance(first, FilterStep) or limited


def append(fragment: Fragment, step: FilterStep | ProjectStep | UnnestStep) -> None:
    """Put a step at the end of a fragment, or at the end of each of its pipelines."""
    if isinstance(fragment, OpenMerge):
        if isinstance(step, UnnestStep):
            raise TypeError("merged rows are unnested by a pipeline that reads them")
        fragment.finish.append(step)
        return
    for part in fragment.parts if isinstance(fragment, OpenUnion) else [fragment]:
        part.steps.append(step)
        if part is not fragment and isinstance(step, ProjectStep):
            part.schema = tuple(Field(item.name, item.expression.type) for item in step.expressions)
        elif part is not fragment and isinstance(step, UnnestStep):
            types = {item.name: item.type for item in part.schema}
            types |= {name: types[source].value_type for source, name in step.lists}
            part.schema = tuple(Field(name, types.get(name, ORDINALITY_TYPE)) for name in step.output)


def with_key_columns(fragment: Fragment, keys: Sequence[Expression]) -> tuple[str, ...]:
    """Make each key a column of a fragment; return the columns' names."""
    named = [NamedExpression(f"key {i}: {key}", key) for i, key in enumerate(keys)]
    there = names(fragment.schema)
    computed = [item for item in named if not isinstance(item.expression, Column) and item.name not in there]
    if computed:
        append(fragment, ProjectStep(identity(fragment.schema) + tuple(computed)))
        fragment.schema += tuple(Field(item.name, item.expression.type) for item in computed)
    return tuple(item.expression.name if isinstance(item.expression, Column) else item.name for item in named)


def single_value(stage: int, schema: Schema, item: NamedExpression) -> OpenMerge:
    """Return what computes an expression over the only row that a stage gives: a subquery's value."""
    made = (Field(item.name, item.expression.type),)
    source = OpenPipeline(StageSource(stage, schema), schema, 1.0, 1.0)
    found = OpenMerge(source, CollectSink(schema), ConcatenateMerge(schema), made, 1.0, 1.0)
    found.finish.append(ProjectStep((item,)))
    return found
