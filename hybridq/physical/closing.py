"""From open fragments to stages: how partial results meet, which columns are read, what a stage is called."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from hybridq.catalog import Catalog, Unit
from hybridq.config import Config
from hybridq.physical import fragments
from hybridq.physical.binding import subqueries_of
from hybridq.physical.carried import condensed_rows, condensed_schema
from hybridq.physical.decompose import COUNT_TYPE, distinct_arguments, is_quantile
from hybridq.physical.fragments import (
    Fragment,
    OpenMerge,
    OpenPipeline,
    OpenUnion,
    PendingAggregate,
    PendingSort,
    PendingSplit,
)
from hybridq.physical.group_quantiles import SHARE_BETWEEN
from hybridq.physical.merges import ConcatenateMerge, FinishLimit, FinishSort, FinishWindow, KeepPieces
from hybridq.physical.pipeline import (
    AlignedBuild,
    Branch,
    BroadcastBuild,
    Build,
    CarriedWindowStep,
    CollectSink,
    CondenseStep,
    FilterStep,
    GroupStep,
    PartialAggregateSink,
    PartitionedBuild,
    PartitionSource,
    Pipeline,
    ProbeStep,
    ProjectStep,
    RangeSource,
    Sink,
    SortedRunSink,
    Source,
    SplitSink,
    Stage,
    StageSource,
    TableSource,
    TopKSink,
    UnnestStep,
    WindowStep,
)
from hybridq.physical.quantiles import SUMMARY_BYTES
from hybridq.physical.ranges import CELLS
from hybridq.physical.sharing import SharedStages
from hybridq.physical.split_aggregates import FEW_GROUPS, list_bytes, partial_bytes, split_by_groups, split_by_values
from hybridq.physical.units import KeyRanges, surviving_units
from hybridq.plan import nodes
from hybridq.plan.cardinality import Estimator
from hybridq.plan.expressions import columns_of, columns_of_call
from hybridq.plan.selectivity import value_width
from hybridq.types import Schema


@dataclass(frozen=True, slots=True, eq=False)
class ValuesSource(TableSource):
    """A constant table, while its stage is under construction."""

    values: pa.Table


def _prune_source(source: Source, needed: frozenset[str]) -> Source:
    """Read only what is needed."""
    if isinstance(source, RangeSource):  # its rows are there already, with all columns
        return source
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


class Closing:
    """Makes stages of fragments. Holds what that takes: the catalog, settings, estimates and the stages made so far.

    Parameters
    ----------
    catalog : Catalog
    config : Config
    partitioned : frozenset of int
        As for ``plan_stages``.
    """

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

    # --- aggregates whose partial results are split ----------------------------------------------------------------

    def _pending_aggregate(self, node: nodes.Aggregate) -> PendingAggregate:
        """Note what the choice of a method will need."""
        over = distinct_arguments(node.aggregates) or ()
        values = {each: self._estimator.expression_profile(node.input, each).distinct for each in over}
        return PendingAggregate(next(self._ids), node, self._estimator.rows(node), values, self._list_sizes(node))

    def _list_sizes(self, node: nodes.Aggregate) -> tuple[tuple[float, float], ...]:
        """Return how long the lists of an aggregate's partial results may be; see ``PendingAggregate.lists``."""
        lists = []
        for call in node.aggregates:
            if call.argument is None:
                continue
            if is_quantile(call) or call.function == "summary":
                values = self._estimator.expression_profile(node.input, call.argument).distinct
                width = value_width(call.argument.type) + value_width(COUNT_TYPE)
                if call.function == "summary":
                    values = min(values, SUMMARY_BYTES / width)
                elif len(call.further) > 1:  # those between its bounds
                    values *= SHARE_BETWEEN
                lists.append((values, width))
            elif call.function in ("array_agg", "string_agg"):
                kept = (call.argument, *(key.expression for key in call.order))
                lists.append((math.inf, sum(value_width(expression.type) for expression in kept)))
        return tuple(lists)

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
        chunks = self._chunks(pipeline)
        private = self._private_groups(fragment)
        size = list_bytes(fragment, pending, chunks) if private else partial_bytes(fragment, pending, chunks)
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
        if isinstance(pipeline.source, ValuesSource):
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
        if isinstance(pipeline.source, ValuesSource):
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
        return Branch(closed, builds, pipeline.source.values if isinstance(pipeline.source, ValuesSource) else None)

    def _close_pipeline(self, pipeline: OpenPipeline, sink: Sink) -> tuple[Pipeline, tuple[Build, ...]]:
        """Prune a pipeline's columns and close its build sides."""
        schemas = {pending.id: pending.fragment.schema for pending in pipeline.builds}
        steps, needed, from_builds = fragments.prune_steps(pipeline.steps, _sink_columns(sink), schemas)
        builds: list[Build] = []
        method = self._config.join_method
        for pending in pipeline.builds:
            wanted = from_builds[pending.id] | frozenset(pending.keys)
            schema = fragments.restrict(pending.fragment.schema, wanted)
            if pending.partitions:
                stage = self._close_split(
                    pending.fragment, schema, pending.split_keys, pending.partitions, pending.witness
                )
                further = () if pending.witness is None else (pending.partitions,)
                probes = [step for step in pipeline.steps if isinstance(step, ProbeStep) and step.build == pending.id]
                whole = any(step.null_aware for step in probes)
                block = None if whole else self._config.partition_bytes
                names = pending.keys, pending.split_keys
                builds.append(PartitionedBuild(pending.id, stage, *names, schema, further, method, block))
                continue
            if not pending.inlined and pending.build_column is None:
                stage = self.close(pending.fragment, schema)
                builds.append(BroadcastBuild(pending.id, stage, pending.keys, schema, pending.splittable, method))
                continue
            if not isinstance(pending.fragment, OpenPipeline):
                raise TypeError("an aligned build side is a pipeline")
            inner, inner_builds = self._close_pipeline(pending.fragment, CollectSink(schema))
            builds += inner_builds
            columns = (pending.probe_column, pending.build_column)
            builds.append(AlignedBuild(pending.id, inner, pending.keys, *columns, method))
        source = self._close_source(pipeline.source, needed)
        for step in steps:
            if isinstance(step, CarriedWindowStep):
                builds.append(self._close_condensed(source, step))
        return Pipeline(source, steps, sink), tuple(builds)

    def _close_condensed(self, source: Source, step: CarriedWindowStep) -> BroadcastBuild:
        """Make the stage that condenses the ranges that windows go over."""
        if not isinstance(source, RangeSource):
            raise TypeError("windows are carried over ranges only")
        schema = condensed_schema(step.how)
        runs = self.stages[source.stage]
        ranges = CELLS * runs.estimated_bytes / self._config.partition_bytes + 1
        rows = min(float(runs.estimated_rows), ranges * condensed_rows(step.how))
        width = sum(value_width(field.type) for field in schema)
        inner = OpenPipeline(source, schema, rows, rows * width, steps=[CondenseStep(step.how)])
        return BroadcastBuild(step.build, self.close(inner, schema), (), schema)

    def _close_source(self, source: Source | PendingSplit | PendingSort, needed: frozenset[str]) -> Source:
        """Read only what is needed; what is to be split, or sorted, becomes a stage."""
        if isinstance(source, PendingSort):
            fragment, used = source.fragment, (columns_of(key.expression) for key in source.keys)
            schema = fragments.restrict(fragment.schema, needed.union(*used))
            runs, merge = SortedRunSink(source.keys, schema, source.blocks), KeepPieces(schema)
            stage = self.close(OpenMerge(fragment, runs, merge, schema, fragment.rows, fragment.bytes), schema)
            return RangeSource(stage, schema, source.keys, source.id, source.numbered)
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
        stage = self._close_split(source.fragment, schema, source.keys, source.partitions)
        return PartitionSource(stage, schema, source.keys, whole=source.whole, id=source.windows)

    def _close_split(
        self, fragment: Fragment, schema: Schema, keys: tuple[str, ...], partitions: int, witness: str | None = None
    ) -> int:
        """Make a stage whose rows are split, and return its id."""
        inner = self._as_input(fragment)
        sink = SplitSink(keys, partitions, schema, witness)
        return self.close(OpenMerge(inner, sink, KeepPieces(schema), schema, fragment.rows, fragment.bytes), schema)


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
        elif isinstance(step, WindowStep):
            words.append("window (partitioned)")
        elif isinstance(step, UnnestStep):
            words.append("unnest")
        elif isinstance(step, CondenseStep):
            words.append("condense")
        elif isinstance(step, CarriedWindowStep):
            words.append("window (ranges)")
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
