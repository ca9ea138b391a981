"""From the logical plan to a DAG of stages.

The plan is lowered bottom-up. Scan, Filter, Project and the probe side of a Join extend an open pipeline; Aggregate,
Sort, TopK and Limit end it in a sink and a merge, and what follows runs on the merged rows in the same task until a
Join or another Aggregate needs them as input of a stage of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatchmethod

import pyarrow as pa

from hybridq.catalog import Catalog, Unit
from hybridq.config import Config
from hybridq.errors import Unsupported
from hybridq.physical import fragments
from hybridq.physical.binding import subqueries_of
from hybridq.physical.decompose import decompose, distinct_arguments
from hybridq.physical.fragments import (
    Fragment,
    OpenMerge,
    OpenPipeline,
    OpenUnion,
    PendingAggregate,
    PendingBuild,
    PendingSort,
    PendingSplit,
)
from hybridq.physical.partitions import partitions_for
from hybridq.physical.pipeline import (
    AggregateMerge,
    AlignedBuild,
    Branch,
    BroadcastBuild,
    Build,
    CollectSink,
    ConcatenateMerge,
    FilterStep,
    FinishLimit,
    FinishSort,
    FinishWindow,
    GroupStep,
    KeepPieces,
    PartialAggregateSink,
    PartitionedBuild,
    PartitionSource,
    Pipeline,
    ProbeStep,
    ProjectStep,
    RangeSource,
    Sink,
    SortedRunSink,
    SortMerge,
    Source,
    SplitSink,
    Stage,
    StageSource,
    TableSource,
    TopKSink,
)
from hybridq.physical.ranges import blocks_for
from hybridq.physical.sharing import SharedStages
from hybridq.physical.split_aggregates import FEW_GROUPS, partial_bytes, split_by_groups, split_by_values
from hybridq.physical.units import KeyRanges, alignment_overhead, surviving_units
from hybridq.physical.windows import decompose_windows
from hybridq.plan import nodes
from hybridq.plan.cardinality import Estimator
from hybridq.plan.expressions import Column, Expression, Literal, NamedExpression, columns_of, columns_of_call
from hybridq.plan.selectivity import value_width
from hybridq.types import Field, Schema, is_splittable

ALIGNED_OVERHEAD_LIMIT = 2.0
"""An aligned join may read its build side at most this many times over."""

INLINED_ROWS, INLINING_ROWS = 1024, 256 * 1024
"""Rows of a table that is read by each chunk which joins it, and of the table that is cut into those chunks: a stage of
its own, whose output goes to the workers, would take longer."""

ROW_NUMBERS_WIDTH = 16
"""Bytes that a pair of rows takes besides its columns while a join is made."""


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """A query as stages.

    Attributes
    ----------
    stages : tuple of Stage
        Dependencies first; the last one's output is the answer.
    schema : Schema
        Of the last stage's output.
    names : tuple of str
        The answer's column names, which may repeat.
    """

    stages: tuple[Stage, ...]
    schema: Schema
    names: tuple[str, ...]


def plan_stages(
    plan: nodes.Plan, catalog: Catalog, config: Config, partitioned: frozenset[int] = frozenset()
) -> PhysicalPlan:
    """Turn an optimised logical plan into stages.

    Parameters
    ----------
    plan : Plan
    catalog : Catalog
    config : Config
    partitioned : frozenset of int
        Build sides (their ids in an earlier call for the same plan) that are too large to be broadcast, whatever is
        estimated.

    Raises
    ------
    Unsupported
        A node cannot be executed yet; the message names it.
    """
    planner = _Planner(catalog, config, partitioned)
    used = subqueries_of(plan.root)
    for number, subquery in reversed(list(enumerate(plan.subqueries))):
        used |= subqueries_of(subquery) if number in used else frozenset()
    for number, subquery in enumerate(plan.subqueries):
        if number not in used:
            continue
        # Two rows are enough to see that there is more than one.
        fragment = planner.lower(nodes.Limit(subquery, 0, 2))
        planner.subqueries[number] = planner.close(fragment, subquery.schema)
    fragment = planner.lower(plan.root)
    planner.close(fragment, plan.root.schema)
    return PhysicalPlan(tuple(planner.stages), plan.root.schema, plan.names)


class _Planner:
    """Holds what lowering needs: the catalog, settings, estimates and the stages made so far."""

    def __init__(self, catalog: Catalog, config: Config, partitioned: frozenset[int]) -> None:
        self._catalog = catalog
        self._partitioned = partitioned
        self._config = config
        self._estimator = Estimator(catalog.table)
        self._ids = itertools.count()
        self.stages: list[Stage] = []
        self.subqueries: dict[int, int] = {}
        self._shared = SharedStages()
        self._surviving: dict[tuple[object, ...], list[Unit]] = {}

    # --- lowering: one method a node -------------------------------------------------------------------------------

    @singledispatchmethod
    def lower(self, node: nodes.Node) -> Fragment:
        """Lower a node and what is below it."""
        raise Unsupported(f"{type(node).__name__} is not supported yet, in: {node.label}")

    @lower.register
    def _(self, node: nodes.Scan) -> Fragment:
        source = TableSource(node.table, node.columns, node.predicate, tuple(field.name for field in node.schema))
        return OpenPipeline(source, node.schema, *self._estimate(node))

    @lower.register
    def _(self, node: nodes.Values) -> Fragment:
        columns = tuple(nodes.ScanColumn(field.name, field.name, field.type) for field in node.schema)
        source = _ValuesSource("values", columns, None, tuple(column.name for column in columns), node.table)
        return OpenPipeline(source, node.schema, node.table.num_rows, node.table.nbytes)

    @lower.register
    def _(self, node: nodes.Filter) -> Fragment:
        return self._step(self.lower(node.input), FilterStep(node.predicate), node)

    @lower.register
    def _(self, node: nodes.Project) -> Fragment:
        return self._step(self.lower(node.input), ProjectStep(node.expressions), node)

    @lower.register
    def _(self, node: nodes.Join) -> Fragment:
        if node.kind == "full":
            return self.lower(_full_as_union(node))
        left, build = self._settled(self.lower(node.left)), self._settled(self.lower(node.right))
        keys = fragments.with_key_columns(build, node.right_keys)
        probe, pending = self._choose_join(node, left, build, keys)
        probe.builds.append(pending)
        output = tuple(field.name for field in node.schema)
        width = sum(value_width(field.type) for field in node.schema) + ROW_NUMBERS_WIDTH
        most_pairs = max(int(self._config.join_bytes / width), 1)
        step = ProbeStep(
            pending.id, node.kind, node.left_keys, node.residual, output, node.null_aware, node.mark, most_pairs
        )
        probe.steps.append(step)
        probe.schema = node.schema
        probe.rows, probe.bytes = self._estimate(node)
        return probe

    @lower.register
    def _(self, node: nodes.Aggregate) -> Fragment:
        pipeline = self._as_input(self.lower(node.input))
        parts = decompose(node.aggregates)
        group_fields = tuple(Field(item.name, item.expression.type) for item in node.groups)
        if node.sets is not None:
            group_fields += (Field(node.sets.name, nodes.SET_NUMBER_TYPE),)
        partial_schema = group_fields + tuple(Field(call.name, call.type) for call in parts.partial)
        group_names = tuple(field.name for field in group_fields)
        merging = parts.merge if node.sets is not None else ()
        sink = PartialAggregateSink(node.groups, parts.partial, partial_schema, node.sets, merging)
        final = fragments.identity(group_fields) + parts.final
        merge = AggregateMerge(group_names, parts.merge, final, partial_schema, node.sets)
        pending = self._pending_aggregate(node)
        return OpenMerge(pipeline, sink, merge, node.schema, *self._estimate(node), aggregate=pending)

    @lower.register
    def _(self, node: nodes.Sort) -> Fragment:
        fragment = self._settled(self.lower(node.input))
        identifier = next(self._ids)
        if isinstance(fragment, OpenMerge):
            fragment.finish.append(FinishSort(node.keys))
            return fragment
        if not self._may_meet(fragment, identifier, fragment.bytes):
            blocks = blocks_for(fragment.bytes, self._chunks(fragment), self._config)
            source = PendingSort(fragment, node.keys, blocks, identifier)
            return OpenPipeline(source, node.schema, fragment.rows, fragment.bytes)
        sink, merge = SortedRunSink(node.keys, node.schema), SortMerge(node.keys, node.schema)
        return OpenMerge(fragment, sink, merge, node.schema, fragment.rows, fragment.bytes, gathers=identifier)

    @lower.register
    def _(self, node: nodes.TopK) -> Fragment:
        if 0 < self._config.gather_limit_bytes < self._estimator.bytes(node):
            return self.lower(nodes.Limit(nodes.Sort(node.input, node.keys), node.offset, node.count))
        fragment = self._settled(self.lower(node.input))
        rows, size = self._estimate(node)
        if isinstance(fragment, OpenMerge):
            fragment.finish += [FinishSort(node.keys), FinishLimit(node.offset, node.count)]
            fragment.rows, fragment.bytes, fragment.early_stop = rows, size, None
            return fragment
        sink = TopKSink(node.keys, node.offset + node.count, node.schema)
        merge = SortMerge(node.keys, node.schema, node.offset, node.count)
        return OpenMerge(fragment, sink, merge, node.schema, rows, size)

    @lower.register
    def _(self, node: nodes.Limit) -> Fragment:
        fragment = self._settled(self.lower(node.input))
        rows, size = self._estimate(node)
        if isinstance(fragment, OpenMerge):
            fragment.finish.append(FinishLimit(node.offset, node.count))
            fragment.rows, fragment.bytes = rows, size
            return fragment
        last = None if node.count is None else node.offset + node.count
        merge = ConcatenateMerge(node.schema, last)
        merged = OpenMerge(fragment, CollectSink(node.schema, last), merge, node.schema, rows, size, early_stop=last)
        merged.finish.append(FinishLimit(node.offset, node.count))
        return merged

    @lower.register
    def _(self, node: nodes.Union) -> Fragment:
        parts: list[OpenPipeline] = []
        for child in node.parts:
            fragment = self.lower(child)
            inner = fragment.parts if isinstance(fragment, OpenUnion) else [self._as_pipeline(fragment)]
            for part in inner:
                columns = zip(node.schema, child.schema, strict=True)
                renamed = tuple(NamedExpression(own.name, Column(old.type, old.name)) for own, old in columns)
                part.steps.append(ProjectStep(renamed))
                part.schema = node.schema
            parts += inner
        return OpenUnion(parts, node.schema, *self._estimate(node))

    @lower.register
    def _(self, node: nodes.Window) -> Fragment:
        fragment = self._settled(self.lower(node.input))
        rows, size = self._estimate(node)
        if not isinstance(fragment, OpenMerge):
            schema = node.input.schema
            fragment = OpenMerge(fragment, CollectSink(schema), ConcatenateMerge(schema), schema, rows, size)
        partial, final = decompose_windows(node.calls)
        fragment.finish += [FinishWindow(partial), ProjectStep(fragments.identity(node.input.schema) + final)]
        fragment.schema, fragment.rows, fragment.bytes = node.schema, rows, size
        return fragment

    def _step(self, fragment: Fragment, step: FilterStep | ProjectStep, node: nodes.Node) -> Fragment:
        fragments.append(fragment, step)
        fragment.schema = node.schema
        fragment.rows, fragment.bytes = self._estimate(node)
        return fragment

    def _estimate(self, node: nodes.Node) -> tuple[float, float]:
        return self._estimator.rows(node), self._estimator.bytes(node)

    # --- joins -----------------------------------------------------------------------------------------------------

    def _choose_join(
        self, node: nodes.Join, left: Fragment, build: Fragment, keys: tuple[str, ...]
    ) -> tuple[OpenPipeline, PendingBuild]:
        """Choose between a broadcast, an inlined, an aligned and a partitioned join."""
        identifier = next(self._ids)
        limit = self._config.broadcast_limit_bytes
        usable = _split_keys(node)
        if usable and (limit == 0 or identifier in self._partitioned):
            return self._partition(node, left, PendingBuild(identifier, build, keys), usable)
        broadcast = PendingBuild(identifier, build, keys, splittable=bool(usable))
        if isinstance(left, OpenPipeline) and self._inlined(left, build):
            return left, replace(broadcast, inlined=True)
        if build.bytes > self._config.broadcast_bytes and not node.null_aware and isinstance(left, OpenPipeline):
            for key, name in zip(node.left_keys, keys, strict=True):
                columns = self._aligned_columns(left, build, key, name)
                if columns is not None:
                    return left, PendingBuild(identifier, build, keys, *columns)
        if build.bytes > max(limit, self._config.broadcast_bytes):
            if usable:
                return self._partition(node, left, broadcast, usable)
            if not node.null_aware:
                raise Unsupported(
                    f"this join has no keys that its sides could be split by: {node.label} (its smaller side has an"
                    f" estimated {build.bytes / 2**20:.0f} MiB; up to {limit / 2**20:.0f} MiB are broadcast, option"
                    " broadcast_limit_bytes)"
                )
        return self._as_pipeline(left), broadcast

    def _partition(
        self, node: nodes.Join, left: Fragment, pending: PendingBuild, usable: tuple[int, ...]
    ) -> tuple[OpenPipeline, PendingBuild]:
        """Split both sides of a join by key; the left one only if it has not been split so already."""
        known = left.split_columns(node.left_keys, usable) if isinstance(left, OpenPipeline) else None
        if known is not None and isinstance(left, OpenPipeline) and isinstance(left.source, PendingSplit):
            probe, usable = left, known
            partitions = left.source.partitions
        else:
            partitions = partitions_for(left.bytes + pending.fragment.bytes, self._config)
            inner = self._as_input(left)
            names = fragments.with_key_columns(inner, [node.left_keys[position] for position in usable])
            probe = OpenPipeline(PendingSplit(inner, names, partitions), inner.schema, inner.rows, inner.bytes)
        pending.partitions = partitions
        pending.split_keys = tuple(pending.keys[position] for position in usable)
        pending.witness = pending.keys[0] if node.null_aware and 0 in usable else None
        return probe, pending

    def _inlined(self, probe: OpenPipeline, build: Fragment) -> bool:
        """Tell whether a table is so small, and so few chunks need it, that each of them reads it for itself."""
        if not isinstance(build, OpenPipeline) or not all(pending.inlined for pending in build.builds):
            return False
        limits = ((build, INLINED_ROWS), (probe, INLINING_ROWS))
        tables = all(fragments.reads_table(part) and self._input_rows(part) <= most for part, most in limits)
        return tables and not any(isinstance(part.source, _ValuesSource) for part in (build, probe))

    def _aligned_columns(
        self, probe: OpenPipeline, build: Fragment, key: Expression, name: str
    ) -> tuple[str, str] | None:
        """Return the columns by which both sides are clustered alike, or ``None``."""
        if not isinstance(build, OpenPipeline):
            return None
        if not isinstance(probe.source, TableSource) or not isinstance(build.source, TableSource):
            return None
        if isinstance(probe.source, _ValuesSource) or isinstance(build.source, _ValuesSource):
            return None
        if any(pending.inlined or pending.build_column is not None for pending in build.builds):
            return None
        data_type = fragments.field_of(build.schema, name).type
        probe_column, build_column = probe.source_column(key), build.source_column(Column(data_type, name))
        if probe_column is None or build_column is None:
            return None
        probe_units = self._units(probe.source)
        build_units = self._units(build.source)
        probe_ranges, build_ranges = KeyRanges.of(probe_units, probe_column), KeyRanges.of(build_units, build_column)
        if probe_ranges is None or build_ranges is None or not probe_units or not build_units:
            return None
        probe_rows, build_rows = [unit.rows for unit in probe_units], [unit.rows for unit in build_units]
        share = sum(probe_rows) / (sum(probe_rows) + sum(build_rows))
        chunk_rows = int(self._config.cpu_chunk_rows * share)
        overhead = alignment_overhead(probe_ranges, build_ranges, probe_rows, build_rows, chunk_rows)
        return (probe_column, build_column) if overhead <= ALIGNED_OVERHEAD_LIMIT else None

    # --- aggregates whose partial results are split ----------------------------------------------------------------

    def _pending_aggregate(self, node: nodes.Aggregate) -> PendingAggregate:
        """Note what the choice of a method will need."""
        over = distinct_arguments(node.aggregates) or ()
        values = {each: self._estimator.expression_profile(node.input, each).distinct for each in over}
        return PendingAggregate(next(self._ids), node, self._estimator.rows(node), values)

    def _settled(self, fragment: Fragment) -> Fragment:
        """Choose how an aggregate is computed, which is known once its conditions are: merged in one place, or split.

        What has been split goes on as a pipeline that reads partitions.
        """
        if not isinstance(fragment, OpenMerge) or fragment.aggregate is None:
            return fragment
        pending, fragment.aggregate = fragment.aggregate, None
        by_values = bool(pending.values) and (not pending.node.groups or pending.groups <= FEW_GROUPS)
        if not by_values and not pending.node.groups:
            return fragment
        if self._gathers(fragment, pending):
            fragment.gathers = pending.id
            return fragment
        return split_by_values(fragment, pending, self._config) if by_values else split_by_groups(
            fragment, pending, self._config
        )  # fmt: skip

    def _gathers(self, fragment: OpenMerge, pending: PendingAggregate) -> bool:
        """Tell whether partial results of an aggregate may all meet on one worker."""
        # What HAVING or joins leave of groups that chunks do not share is hardly estimated, and little to merge.
        pipeline = fragment.pipeline
        size = 0.0 if self._private_groups(fragment) else partial_bytes(fragment, pending, self._chunks(pipeline))
        return self._may_meet(pipeline, pending.id, size)

    def _may_meet(self, pipeline: OpenPipeline | OpenUnion, identifier: int, size: float) -> bool:
        """Tell whether so many bytes of partial results of a pipeline's chunks may meet on one worker."""
        limit = self._config.gather_limit_bytes
        if limit == 0 or identifier in self._partitioned:
            return False
        return size <= limit or self._chunks(pipeline) <= 1

    def _chunks(self, pipeline: OpenPipeline | OpenUnion) -> int:
        """Return into about how many chunks the input of a pipeline is cut."""
        inputs = pipeline.parts if isinstance(pipeline, OpenUnion) else [pipeline]
        return sum(max(-(-self._input_rows(part) // self._config.cpu_chunk_rows), 1) for part in inputs)

    def _private_groups(self, fragment: OpenMerge) -> bool:
        """Tell whether chunks hardly share groups, since the table is clustered by a group key."""
        key, pipeline = fragments.table_key(fragment), fragment.pipeline
        if key is None or not isinstance(pipeline, OpenPipeline) or not isinstance(pipeline.source, TableSource):
            return False
        if isinstance(pipeline.source, _ValuesSource):
            return False
        units = self._units(pipeline.source)
        ranges = KeyRanges.of(units, key.column)
        return ranges is not None and ranges.clustered

    # --- closing: open fragments become stages ---------------------------------------------------------------------

    def _as_input(self, fragment: Fragment) -> OpenPipeline | OpenUnion:
        """Return what a sink can end; a merge becomes a stage of its own that a pipeline reads."""
        return fragment if isinstance(fragment, OpenUnion) else self._as_pipeline(fragment)

    def _as_pipeline(self, fragment: Fragment) -> OpenPipeline:
        """Return an open pipeline; a merge or a union becomes a stage of its own that the pipeline reads."""
        fragment = self._settled(fragment)
        if isinstance(fragment, OpenPipeline):
            return fragment
        schema, rows, size = fragment.schema, fragment.rows, fragment.bytes
        stage = self.close(fragment, schema)
        own = tuple(item.name for item in schema)
        names = () if own == tuple(item.name for item in self.stages[stage].schema) else own
        return OpenPipeline(StageSource(stage, schema, names), schema, rows, size)

    def close(self, fragment: Fragment, schema: Schema) -> int:
        """Make a stage of a fragment, with the columns of ``schema`` as its output, and return its id.

        An equal stage that is there already takes its place; its columns are the same, their names may be others.
        """
        fragment = self._settled(fragment)
        if not isinstance(fragment, OpenMerge):
            merge = ConcatenateMerge(schema)
            fragment = OpenMerge(fragment, CollectSink(schema), merge, schema, fragment.rows, fragment.bytes)
        elif fragment.schema != schema:
            fragment.finish.append(ProjectStep(fragments.identity(schema)))
        inputs = fragment.pipeline.parts if isinstance(fragment.pipeline, OpenUnion) else [fragment.pipeline]
        branches = [self._close_branch(part, fragment.sink) for part in inputs]
        stage = Stage(
            id=len(self.stages),
            pipeline=branches[0].pipeline,
            builds=branches[0].builds,
            merge=fragment.merge,
            finish=tuple(fragment.finish),
            schema=schema,
            estimated_rows=max(round(fragment.rows), 0),
            estimated_bytes=max(round(fragment.bytes), 0),
            input_rows=sum(self._input_rows(part) for part in inputs),
            title=_title(branches, fragment),
            early_stop=fragment.early_stop,
            values=branches[0].values,
            more=tuple(branches[1:]),
            clustered=fragments.clustered(fragment),
            gathers=fragment.gathers,
        )
        used = sorted(subqueries_of(stage))
        stage = replace(stage, subqueries=tuple((number, self.subqueries[number]) for number in used))
        shared = self._shared.find(stage)
        if isinstance(shared, int):
            return shared
        self.stages.append(shared)
        return shared.id

    def _input_rows(self, pipeline: OpenPipeline) -> int:
        """Return the rows of all units that a pipeline reads; an earlier stage's output does not count."""
        if isinstance(pipeline.source, _ValuesSource):
            return int(pipeline.source.values.num_rows)
        if isinstance(pipeline.source, TableSource):
            return sum(unit.rows for unit in self._units(pipeline.source))
        return max(round(pipeline.source.rows), 0) if isinstance(pipeline.source, PendingSplit | PendingSort) else 0

    def _units(self, source: TableSource) -> list[Unit]:
        """Return a table's units that statistics do not exclude; they are looked for once, however often asked for."""
        key = (source.table, source.columns, source.predicate)
        if key not in self._surviving:
            self._surviving[key] = surviving_units(source, self._catalog)
        return self._surviving[key]

    def _close_branch(self, pipeline: OpenPipeline, sink: Sink) -> Branch:
        """Close one input of a stage."""
        closed, builds = self._close_pipeline(pipeline, sink)
        return Branch(closed, builds, pipeline.source.values if isinstance(pipeline.source, _ValuesSource) else None)

    def _close_pipeline(self, pipeline: OpenPipeline, sink: Sink) -> tuple[Pipeline, tuple[Build, ...]]:
        """Prune a pipeline's columns and close its build sides."""
        schemas = {pending.id: pending.fragment.schema for pending in pipeline.builds}
        steps, needed, from_builds = fragments.prune_steps(pipeline.steps, _sink_columns(sink), schemas)
        builds: list[Build] = []
        for pending in pipeline.builds:
            wanted = from_builds[pending.id] | frozenset(pending.keys)
            schema = fragments.restrict(pending.fragment.schema, wanted)
            if pending.partitions:
                stage = self._close_split(
                    pending.fragment, schema, pending.split_keys, pending.partitions, pending.witness
                )
                further = () if pending.witness is None else (pending.partitions,)
                builds.append(PartitionedBuild(pending.id, stage, pending.keys, pending.split_keys, schema, further))
                continue
            if not pending.inlined and pending.build_column is None:
                stage = self.close(pending.fragment, schema)
                builds.append(BroadcastBuild(pending.id, stage, pending.keys, schema, pending.splittable))
                continue
            if not isinstance(pending.fragment, OpenPipeline):
                raise TypeError("an aligned build side is a pipeline")
            inner, inner_builds = self._close_pipeline(pending.fragment, CollectSink(schema))
            builds += inner_builds
            builds.append(AlignedBuild(pending.id, inner, pending.keys, pending.probe_column, pending.build_column))
        return Pipeline(self._close_source(pipeline.source, needed), steps, sink), tuple(builds)

    def _close_source(self, source: Source | PendingSplit | PendingSort, needed: frozenset[str]) -> Source:
        """Read only what is needed; what is to be split, or sorted, becomes a stage."""
        if isinstance(source, PendingSort):
            fragment, used = source.fragment, (columns_of(key.expression) for key in source.keys)
            schema = fragments.restrict(fragment.schema, needed.union(*used))
            runs, merge = SortedRunSink(source.keys, schema, source.blocks), KeepPieces(schema)
            stage = self.close(OpenMerge(fragment, runs, merge, schema, fragment.rows, fragment.bytes), schema)
            return RangeSource(stage, schema, source.keys, source.id)
        if not isinstance(source, PendingSplit):
            return _prune_source(source, needed)
        if source.groups is not None:
            schema, groups = source.groups.schema, source.groups
            sink = SplitSink(source.keys, source.partitions, schema, partial=groups.sink, lists=groups.lists)
            rows, width = groups.rows, sum(value_width(field.type) for field in schema)
            merge = KeepPieces(schema)
            stage = self.close(OpenMerge(source.fragment, sink, merge, schema, rows, rows * width), schema)
            return PartitionSource(stage, schema, source.keys, whole=True, id=groups.id)
        schema = fragments.restrict(source.fragment.schema, needed | frozenset(source.keys))
        return PartitionSource(
            self._close_split(source.fragment, schema, source.keys, source.partitions), schema, source.keys
        )

    def _close_split(
        self, fragment: Fragment, schema: Schema, keys: tuple[str, ...], partitions: int, witness: str | None = None
    ) -> int:
        """Make a stage whose rows are split, and return its id."""
        inner = self._as_input(fragment)
        sink = SplitSink(keys, partitions, schema, witness)
        return self.close(OpenMerge(inner, sink, KeepPieces(schema), schema, fragment.rows, fragment.bytes), schema)


@dataclass(frozen=True, slots=True, eq=False)
class _ValuesSource(TableSource):
    """A constant table, while its stage is under construction."""

    values: pa.Table


def _prune_source(source: Source, needed: frozenset[str]) -> Source:
    """Read only what is needed."""
    if not isinstance(source, TableSource):
        return replace(source, schema=fragments.restrict(source.schema, needed))
    read = needed | (columns_of(source.predicate) if source.predicate is not None else frozenset())
    columns = tuple(column for column in source.columns if column.name in read)
    output = tuple(column.name for column in columns if column.name in needed)
    return TableSource(source.table, columns, source.predicate, output)


def _sink_columns(sink: Sink) -> frozenset[str]:
    """Return the columns that a sink reads."""
    if isinstance(sink, SplitSink) and sink.partial is not None:
        return _sink_columns(sink.partial)
    if isinstance(sink, PartialAggregateSink):
        keys = (columns_of(item.expression) for item in sink.groups)
        return frozenset().union(*keys, *map(columns_of_call, sink.aggregates))
    needed = fragments.names(sink.schema)
    if isinstance(sink, TopKSink | SortedRunSink):
        needed = needed.union(*(columns_of(key.expression) for key in sink.keys))
    return needed


def _split_keys(node: nodes.Join) -> tuple[int, ...]:
    """Return the positions of the keys that a join's sides can be split by, so that rows that concern each other meet.

    A NULL on either side of NOT IN concerns every row that the other keys let meet, so these others are to split by.
    Where there are none, witnesses stand for what all rows have to know; with a residual they could not.
    """
    usable = tuple(position for position, key in enumerate(node.left_keys) if is_splittable(key.type))
    if not node.null_aware:
        return usable
    others = tuple(position for position in usable if position > 0)
    alone = len(node.left_keys) == 1 and node.residual is None
    return others or (usable if alone else ())


def _full_as_union(node: nodes.Join) -> nodes.Union:
    """Return a full join as a left join, and below it the right rows that have no match."""
    matched = replace(node, kind="left")
    alone = nodes.Join(node.right, node.left, "anti", node.right_keys, node.left_keys, node.residual)
    nulls = tuple(NamedExpression(item.name, Literal(item.type, None)) for item in node.left.schema)
    padded = nodes.Project(alone, nulls + fragments.identity(node.right.schema))
    return nodes.Union((matched, padded), tuple(item.name for item in node.schema))


def _title(branches: Sequence[Branch], fragment: OpenMerge) -> str:
    """Describe a stage in one line."""
    words = [" union ".join(", ".join(_input_words(branch)) for branch in branches)]
    sink = fragment.sink
    if isinstance(sink, PartialAggregateSink):
        words.append("aggregate")
    elif isinstance(sink, TopKSink):
        words.append(f"top {sink.count}")
    elif isinstance(sink, SortedRunSink):
        words.append("sort in runs" if sink.blocks else "sort")
    elif isinstance(sink, SplitSink):
        words += ["aggregate"] if sink.partial is not None else []
        words.append(f"split by {', '.join(sink.keys)}")
    else:
        words.append("collect" if sink.count is None else f"first {sink.count} rows")
    for finish in fragment.finish:
        if isinstance(finish, FinishSort):
            words.append("sort")
        elif isinstance(finish, FinishLimit):
            words.append("limit")
        elif isinstance(finish, FinishWindow):
            words.append("window")
    return ", ".join(words)


def _input_words(branch: Branch) -> list[str]:
    """Describe what one input of a stage reads and how its rows are joined."""
    source, by_id = branch.pipeline.source, {build.id: build for build in branch.builds}
    words = [_source_word(source)]
    for step in branch.pipeline.steps:
        if isinstance(step, FilterStep):
            words.append("filter")
        elif isinstance(step, GroupStep):
            words.append(f"merge groups by {', '.join(step.merge.groups)} (partitioned)")
        elif isinstance(step, ProbeStep):
            build = by_id[step.build]
            if isinstance(build, BroadcastBuild):
                words.append(f"{step.kind} join stage {build.stage} (broadcast)")
            elif isinstance(build, PartitionedBuild):
                words.append(f"{step.kind} join stage {build.stage} (partitioned)")
            else:
                inner = build.pipeline.source
                table = inner.table if isinstance(inner, TableSource) else "?"
                how = f"aligned on {build.build_column}" if build.build_column is not None else "inlined"
                words.append(f"{step.kind} join {table} ({how})")
    return words


def _source_word(source: Source) -> str:
    if isinstance(source, TableSource):
        return f"scan {source.table}"
    if isinstance(source, RangeSource):
        return f"read stage {source.stage} in order (ranges)"
    return f"read {'partitions of ' if isinstance(source, PartitionSource) else ''}stage {source.stage}"
