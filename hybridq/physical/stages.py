"""From the logical plan to a DAG of stages.

The plan is lowered bottom-up. Scan, Filter, Project and the probe side of a Join extend an open pipeline; Aggregate,
Sort, TopK and Limit end it in a sink and a merge, and what follows runs on the merged rows in the same task until a
Join or another Aggregate needs them as input of a stage of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import singledispatchmethod

from hybridq.catalog import Catalog
from hybridq.config import Config
from hybridq.errors import Unsupported
from hybridq.physical import fragments
from hybridq.physical.binding import subqueries_of
from hybridq.physical.carried import by_order, can_be_carried, is_total, window_by_ranges
from hybridq.physical.closing import Closing, ValuesSource
from hybridq.physical.decompose import decompose, tally_type
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
from hybridq.physical.group_quantiles import LARGE_GROUP, counted_by_group, of_each_set, with_bounds
from hybridq.physical.merges import AggregateMerge, ConcatenateMerge, FinishLimit, FinishSort, FinishWindow, SortMerge
from hybridq.physical.partitions import partitions_for
from hybridq.physical.pipeline import (
    CollectSink,
    FilterStep,
    PartialAggregateSink,
    ProbeStep,
    ProjectStep,
    SortedRunSink,
    Stage,
    TableSource,
    TopKSink,
    UnnestStep,
)
from hybridq.physical.quantiles import bound, counted, summary, within
from hybridq.physical.ranges import blocks_for
from hybridq.physical.split_aggregates import MERGED_TOGETHER
from hybridq.physical.units import KeyRanges, alignment_overhead
from hybridq.physical.windows import by_split_keys, decompose_windows, split_by_partition, united
from hybridq.plan import nodes
from hybridq.plan.expressions import AggregateCall, Column, Expression, Literal, NamedExpression, SubqueryValue
from hybridq.plan.selectivity import value_width
from hybridq.plan.unnesting import Unnest
from hybridq.plan.windows import WindowCall
from hybridq.types import Field, Schema, is_splittable

ALIGNED_OVERHEAD_LIMIT = 2.0
"""An aligned join may read its build side at most this many times over."""

INLINED_ROWS, INLINING_ROWS = 1024, 2 * 2**20
"""Rows of a table that is read by each chunk which joins it, and of the table that is cut into those chunks: a stage of
its own, whose output goes to the workers, would take longer."""

INLINED_SHARE = 1 / 16
"""Part of ``one_chunk_rows`` up to which a table is read by each such chunk, where that is more: in some 2 ms a chunk,
where a stage more is 8 to 11 to wait for."""

MOST_IDS = 1 << 20
"""Identifiers of the parts of a plan, and numbers of its subqueries, are below this."""

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


class _Planner(Closing):
    """Lowers nodes to fragments. Parameters are those of ``Closing``."""

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
        source = ValuesSource("values", columns, None, tuple(column.name for column in columns), node.table)
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
        return self._probing(node, self._settled(self.lower(node.left)), self._settled(self.lower(node.right)))

    def _probing(self, node: nodes.Join, left: Fragment, build: Fragment) -> OpenPipeline:
        """Return a pipeline that joins a fragment's rows with a build side."""
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
    def _(self, node: Unnest) -> Fragment:
        fragment = self._as_input(self.lower(node.input))
        columns = fragments.with_key_columns(fragment, [item.expression for item in node.lists])
        lists = tuple((column, item.name) for column, item in zip(columns, node.lists, strict=True))
        output = tuple(field.name for field in node.schema)
        width = sum(value_width(field.type) for field in node.schema) + ROW_NUMBERS_WIDTH
        most_rows = max(int(self._config.join_bytes / width), 1)
        step = UnnestStep(lists, node.kind, node.ordinality, node.condition, output, most_rows)
        return self._step(fragment, step, node)

    @lower.register
    def _(self, node: nodes.Aggregate) -> Fragment:
        pipeline = self._as_input(self.lower(node.input))
        pending = self._pending_aggregate(node)
        quantiles = counted(node)
        if quantiles and not self._tallies_may_meet(node, quantiles, pipeline, pending.id):
            node = within(node, self._bounds(node, quantiles, pending.id))
            pending, quantiles = replace(pending, node=node), ()
        by_group = counted_by_group(node)
        if by_group and self._are_large(node, by_group, pending, pipeline):
            if node.sets is not None:
                with self._other_numbers(pending.id):
                    return self.lower(of_each_set(node))
            pipeline, node = self._beside_bounds(node, by_group, pipeline, pending.id)
            pending = replace(pending, node=node, lists=self._list_sizes(node))
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
        merged = OpenMerge(pipeline, sink, merge, node.schema, *self._estimate(node), aggregate=pending)
        merged.gathers = pending.id if quantiles else None
        return merged

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
        output, (rows, size) = node.schema, self._estimate(node)
        node = united(node)
        fragment = self._settled(self.lower(node.input))
        identifier = next(self._ids)
        groups = by_split_keys(node.calls)
        left = tuple(call for keys, calls in groups if not keys for call in calls)
        totals = tuple(call for call in left if is_total(call))
        if len(totals) < len(left):  # some are carried anyway
            totals = tuple(call for call in totals if not self._can_be_carried(call, node.input))
        left = tuple(call for call in left if call not in totals)
        carried = all(self._can_be_carried(call, node.input) for call in left)
        orders = [(next(self._ids), *each) for each in by_order(left)] if carried else []
        splittable = carried or any(keys for keys, _ in groups)
        if splittable and not self._may_be_gathered(fragment, identifier):
            for keys, calls in groups:
                if keys:
                    fragment = split_by_partition(self._as_input(fragment), keys, calls, identifier, self._config)
            for number, order, calls in orders:
                inner, numbers = self._as_input(fragment), (identifier, number)
                fragment = window_by_ranges(inner, order, calls, numbers, self._chunks(inner), self._config)
            if carried and totals:
                beside = fragments.identity(fragment.schema)
                fragments.append(fragment, ProjectStep(beside + self._totals(node, totals, identifier)))
            left = () if carried else (*left, *totals)
        else:
            left = node.calls
        if left:
            schema = fragment.schema
            if not isinstance(fragment, OpenMerge):
                gathers = identifier if splittable and left == node.calls else None
                merge, sink = ConcatenateMerge(schema), CollectSink(schema)
                fragment = OpenMerge(fragment, sink, merge, schema, rows, size, gathers=gathers)
            partial, final = decompose_windows(left)
            made = {item.name: item for item in (*fragments.identity(schema), *final)}
            ordered = tuple(made[field.name] for field in output)
            fragment.finish += [FinishWindow(partial), ProjectStep(ordered)]
        fragment.schema, fragment.rows, fragment.bytes = output, rows, size
        return fragment

    def _can_be_carried(self, call: WindowCall, node: nodes.Node) -> bool:
        """Tell whether a window function can be computed range by range."""

        def distinct(key: Expression) -> float:
            return self._estimator.expression_profile(node, key).distinct

        limit = self._config.gather_limit_bytes
        width = sum(value_width(field.type) for field in node.schema)
        return can_be_carried(call, distinct, limit / max(width, 1) if limit else math.inf)

    def _totals(self, node: nodes.Window, calls: Sequence[WindowCall], identifier: int) -> tuple[NamedExpression, ...]:
        """Compute aggregates of all rows by a pass over the input of their own; what is returned is constant."""
        made = tuple(replace(call.aggregate, name=call.name) for call in calls if call.aggregate is not None)
        aggregate = nodes.Aggregate(node.input, (), made)
        with self._other_numbers(identifier) as numbers:
            stage = self.close(self.lower(aggregate), aggregate.schema)
        found = []
        for field in aggregate.schema:
            value = NamedExpression(field.name, Column(field.type, field.name))
            fragment, number = fragments.single_value(stage, aggregate.schema, value), next(numbers)
            self.subqueries[number] = self.close(fragment, fragment.schema)
            found.append(NamedExpression(field.name, SubqueryValue(field.type, number)))
        return tuple(found)

    @contextmanager
    def _other_numbers(self, identifier: int) -> Iterator[Iterator[int]]:
        """Number what is lowered inside by itself: not all plans of a query have it, and the rest keeps its numbers."""
        numbers = itertools.count(MOST_IDS * (1 + identifier))
        ids, self._ids = self._ids, numbers
        try:
            yield numbers
        finally:
            self._ids = ids

    def _may_be_gathered(self, fragment: Fragment, identifier: int) -> bool:
        """Tell whether all rows of a fragment may be in one place, which those of a merge are."""
        if not isinstance(fragment, OpenMerge):
            return self._may_meet(fragment, identifier, fragment.bytes)
        limit = self._config.gather_limit_bytes
        return limit > 0 and identifier not in self._partitioned and fragment.bytes <= limit

    # --- quantiles -------------------------------------------------------------------------------------------------

    def _tallies_may_meet(
        self, node: nodes.Aggregate, calls: Sequence[AggregateCall], pipeline: OpenPipeline | OpenUnion, identifier: int
    ) -> bool:
        """Tell whether all different values that quantiles are of may be in one place, with their counts."""
        rows = self._estimator.rows(node.input)
        size = 0.0
        for argument in dict.fromkeys(call.argument for call in calls if call.argument is not None):
            distinct = self._estimator.expression_profile(node.input, argument).distinct
            size += min(distinct * MERGED_TOGETHER, rows) * value_width(tally_type(argument.type).value_type)
        return self._may_meet(pipeline, identifier, size)

    def _bounds(
        self, node: nodes.Aggregate, calls: Sequence[AggregateCall], identifier: int
    ) -> dict[AggregateCall, tuple[Expression, Expression]]:
        """Find by a pass over the input between which values quantiles are: constants, once that has been done."""
        with self._other_numbers(identifier) as numbers:
            first = summary(self._as_input(self.lower(node.input)), calls)
            stage = self.close(first, first.schema)
        found = {}
        for call in calls:
            values: list[Expression] = []
            for side in ("low", "high"):
                fragment = bound(stage, first.schema, calls, call, side)
                number = next(numbers)
                self.subqueries[number] = self.close(fragment, fragment.schema)
                values.append(SubqueryValue(fragment.schema[0].type, number))
            found[call] = (values[0], values[1])
        return found

    def _are_large(
        self,
        node: nodes.Aggregate,
        calls: Sequence[AggregateCall],
        pending: PendingAggregate,
        pipeline: OpenPipeline | OpenUnion,
    ) -> bool:
        """Tell whether all different values of a group, which its quantiles are of, are too many for one task."""
        rows, largest, size = self._estimator.rows(node.input), 0.0, 0.0
        fewest = (
            pending.groups if node.sets is None else min(self._estimator.rows(part) for part in of_each_set(node).parts)
        )
        for argument in dict.fromkeys(call.argument for call in calls if call.argument is not None):
            distinct = self._estimator.expression_profile(node.input, argument).distinct
            width = value_width(tally_type(argument.type).value_type)
            largest = max(largest, min(distinct, rows / fewest) * width)
            size += min(distinct * pending.groups * MERGED_TOGETHER, rows) * width
        if largest <= LARGE_GROUP * self._config.partition_bytes:
            return False
        return not self._may_meet(pipeline, pending.id, size)

    def _beside_bounds(
        self,
        node: nodes.Aggregate,
        calls: Sequence[AggregateCall],
        pipeline: OpenPipeline | OpenUnion,
        identifier: int,
    ) -> tuple[OpenPipeline | OpenUnion, nodes.Aggregate]:
        """Put beside each row between which values its group's quantiles are; return this and the aggregate over it."""
        join, second = with_bounds(node, calls)
        parts = pipeline.parts if isinstance(pipeline, OpenUnion) else [pipeline]
        found = []
        with self._other_numbers(identifier):
            for part in parts:
                rows = part.rows
                found.append(self._probing(join, part, self._settled(self.lower(join.right))))
                found[-1].rows, found[-1].bytes = rows, rows * self._estimator.row_bytes(join)
        if not isinstance(pipeline, OpenUnion):
            return found[0], second
        return OpenUnion(found, join.schema, pipeline.rows, sum(part.bytes for part in found)), second

    def _step(self, fragment: Fragment, step: FilterStep | ProjectStep | UnnestStep, node: nodes.Node) -> Fragment:
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
        if not all(fragments.reads_table(part) for part in (build, probe)):
            return False
        if any(isinstance(part.source, ValuesSource) for part in (build, probe)):
            return False
        rows, probing = self._input_rows(build), self._input_rows(probe)
        # In one chunk each table is read once, in less time than messages between several stages would take.
        config = self._config
        one_chunk = min(config.one_chunk_rows, config.cpu_chunk_rows, config.gpu_chunk_rows)
        if config.chunk_units:
            one_chunk = 0
        few = max(INLINED_ROWS, int(one_chunk * INLINED_SHARE))
        return (rows <= few and probing <= INLINING_ROWS) or rows + probing <= one_chunk

    def _aligned_columns(
        self, probe: OpenPipeline, build: Fragment, key: Expression, name: str
    ) -> tuple[str, str] | None:
        """Return the columns by which both sides are clustered alike, or ``None``."""
        if not isinstance(build, OpenPipeline):
            return None
        if not isinstance(probe.source, TableSource) or not isinstance(build.source, TableSource):
            return None
        if isinstance(probe.source, ValuesSource) or isinstance(build.source, ValuesSource):
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
