"""What a stage has to do: how much is read, moved and computed for each row of its input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from hybridq.physical.merges import AggregateMerge
from hybridq.physical.pipeline import (
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
    ProjectStep,
    RangeSource,
    Sink,
    SortedRunSink,
    Source,
    SplitSink,
    Stage,
    StageSource,
    TableSource,
    UnnestStep,
    WindowStep,
)
from hybridq.placement.profile import REPEATING, DeviceProfile
from hybridq.plan import nodes
from hybridq.plan.cardinality import USUAL_ELEMENTS, Estimator
from hybridq.plan.expressions import Call, Case, Cast, Expression, In, walk
from hybridq.plan.statistics import TableStatistics
from hybridq.types import Field, is_decimal, is_fixed_width, is_floating, is_integer

FEW_GROUPS = 10_000
"""Up to so many groups an aggregate's state stays in a processor's cache."""

TEXT_BYTES = 24
"""Bytes assumed of a text."""

SECTIONS = ("read", "in", "build", "probe", "compute", "out")


class TableFacts(TableStatistics, Protocol):
    """What is known of a table (``hybridq.catalog.Table``)."""

    @property
    def units(self) -> Sequence[object]:
        """Return the pieces that are read alone."""

    def storage(self, source: str) -> tuple[str, bool] | None:
        """Return a column's codec and whether its values repeat; ``None`` for a table in memory."""


class Tables(Protocol):
    """Tables by name (``hybridq.catalog.Catalog``)."""

    def table(self, name: str) -> TableFacts:
        """Return a table."""


@dataclass(frozen=True, slots=True)
class Item:
    """A part of the work.

    Attributes
    ----------
    section : str
        One of ``SECTIONS``.
    what : str
        ``read``, ``to_device``, ``from_device``, or an operator of the profile.
    share : float
        Rows (bytes, for the two transfers) for each row of the stage's input.
    fixed : float
        Rows (or bytes) of every chunk, whatever its size.
    weight : float
        Times that it is done: expressions, keys, columns.
    codec, type_class : str
        Of what is read.
    column : tuple of str
        Table and column that are read: it costs nothing where it is on the device already.
    once : bool
        Done for a worker's first chunk only (a build side that is kept).
    """

    section: str
    what: str
    share: float
    fixed: float = 0.0
    weight: float = 1.0
    codec: str = ""
    type_class: str = ""
    column: tuple[str, str] = ("", "")
    once: bool = False

    def seconds(self, device: DeviceProfile, rows: float, resident: AbstractSet[tuple[str, str]]) -> float:
        """Return the seconds that it takes a device in a chunk of so many rows."""
        amount = rows * self.share + self.fixed
        if amount <= 0 or (self.column[0] and self.column in resident):
            return 0.0
        if self.what == "read":
            return self.weight * device.reading(self.codec, self.type_class, amount)
        if self.what == "to_device":
            return device.to_device.seconds(amount)
        if self.what == "from_device":
            return device.from_device.seconds(amount)
        return self.weight * device.operating(self.what, amount)


@dataclass(frozen=True, slots=True)
class Work:
    """A whole stage.

    Attributes
    ----------
    rows : float
        Of the input: of its table, or of the earlier stage's output.
    from_table : bool
        It reads a table, which can be cut into chunks.
    row_bytes : float
        Of the input, decoded.
    unit_rows : float
        Rows of the smallest piece that can be read alone.
    items : tuple of Item
        In the order of the work.
    result_rows : float
        Of one chunk's partial result, at most; 0: as many as flow through.
    result_share : float
        Rows of a partial result for each row of the input.
    merges : bool
        Partial results are merged by value, not only put together.
    inputs : tuple of int
        Stages that it reads.
    result_bytes : float
        Of a row of a partial result, where these are brought to one worker; 0: they stay where they are.
    planned_rows : float
        Of the tables that it reads: what whole runs of the stage are remembered by.
    """

    rows: float
    from_table: bool
    row_bytes: float
    unit_rows: float
    items: tuple[Item, ...]
    result_rows: float
    result_share: float
    merges: bool
    inputs: tuple[int, ...]
    result_bytes: float = 0.0
    planned_rows: float = 1.0

    def sections(
        self, device: DeviceProfile, rows: float, resident: AbstractSet[tuple[str, str]] = frozenset()
    ) -> dict[str, float]:
        """Return the seconds by section of a chunk of so many rows, what is done once left out."""
        found = dict.fromkeys(SECTIONS, 0.0)
        for item in self.items:
            if not item.once:
                found[item.section] += item.seconds(device, rows, resident)
        return found

    def once(self, device: DeviceProfile) -> float:
        """Return the seconds of what is done for a worker's first chunk only."""
        return sum(item.seconds(device, 0.0, frozenset()) for item in self.items if item.once)

    def partial_rows(self, chunks: int) -> float:
        """Return the rows of all partial results together."""
        whole = self.rows * self.result_share
        return min(whole, self.result_rows * chunks) if self.result_rows else whole


class WorkPlanner:
    """Finds what each stage of a plan has to do.

    Parameters
    ----------
    stages : sequence of Stage
    tables : Tables
    """

    def __init__(self, stages: Sequence[Stage], tables: Tables) -> None:
        self._stages = {stage.id: stage for stage in stages}
        self._tables = tables
        self._estimator = Estimator(tables.table)

    def of(self, stage: Stage) -> Work:
        """Return the work of a stage; the inputs of a union count as one."""
        total = max(float(stage.input_rows), 1.0)
        items: list[Item] = []
        rows = row_bytes = flowing = 0.0
        unit_rows = 1.0
        from_table = False
        for branch in stage.branches:
            source = branch.pipeline.source
            known = isinstance(source, TableSource) and branch.values is None
            from_table = from_table or known or isinstance(source, PartitionSource | RangeSource)
            own = self._rows_of(branch)
            share = own / total if len(stage.branches) > 1 else 1.0
            rows += own
            unit_rows = max(unit_rows, self._unit_rows(branch))
            row_bytes = max(row_bytes, _width(_source_fields(source)))
            left = self._pipeline(branch, branch.pipeline, share, known, items)
            flowing += left
        groups = float(max(stage.estimated_rows, 1))
        sink = stage.pipeline.sink
        result_rows = groups if isinstance(sink, PartialAggregateSink) else float(getattr(sink, "count", 0) or 0)
        items += _sink_items(sink, flowing, groups)
        return Work(
            rows=max(rows, 1.0),
            from_table=from_table,
            row_bytes=row_bytes,
            unit_rows=unit_rows,
            items=tuple(items),
            result_rows=result_rows,
            result_share=flowing,
            merges=isinstance(stage.merge, AggregateMerge) or isinstance(sink, SortedRunSink),
            inputs=stage.dependencies,
            result_bytes=0.0 if isinstance(sink, SplitSink) else _width(sink.schema),
            planned_rows=total,
        )

    def _rows_of(self, branch: Stage) -> float:
        """Return the rows that one input of a stage reads."""
        source = branch.pipeline.source
        if isinstance(source, StageSource | PartitionSource | RangeSource):
            return float(self._stages[source.stage].estimated_rows)
        if branch.values is not None:
            return float(branch.values.num_rows)
        return float(min(branch.input_rows, self._tables.table(source.table).rows))

    def _unit_rows(self, branch: Stage) -> float:
        source = branch.pipeline.source
        if not isinstance(source, TableSource) or branch.values is not None:
            return 1.0
        table = self._tables.table(source.table)
        return table.rows / max(len(table.units), 1)

    def _pipeline(self, stage: Stage, pipeline: Pipeline, share: float, known: bool, items: list[Item]) -> float:
        """Add a pipeline's work; return the rows that reach its sink for each row of the stage's input."""
        source = pipeline.source
        if isinstance(source, RangeSource):
            items.append(Item("in", "to_device", share * _width(source.schema)))
            items.append(Item("compute", "sort", share, weight=len(source.keys)))
        elif isinstance(source, StageSource | PartitionSource):
            items.append(Item("in", "to_device", share * _width(source.schema)))
        elif not known:
            items.append(Item("in", "to_device", share * _width(_source_fields(source))))
        else:
            items += self._reading(source, share)
            share *= self._kept(source)
        builds = {build.id: build for build in stage.builds}
        for step in pipeline.steps:
            if isinstance(step, FilterStep):
                items.append(Item("compute", "filter", share, weight=_operations([step.predicate])))
                share *= self._guess(step.predicate)
            elif isinstance(step, ProjectStep):
                weight = _operations(item.expression for item in step.expressions)
                if weight:
                    items.append(Item("compute", "project", share, weight=weight))
            elif isinstance(step, GroupStep):
                weight = max(len(step.merge.aggregates), 1)
                items.append(Item("compute", "aggregate_many", share, weight=weight))
            elif isinstance(step, WindowStep):
                keys = sum(len(call.partition) + len(call.order) for call in step.calls)
                items.append(Item("compute", "sort", share, weight=max(keys, 1)))
            elif isinstance(step, UnnestStep):
                share *= USUAL_ELEMENTS if step.kind in ("inner", "left") else 1
                items.append(Item("compute", "project", share, weight=len(step.output)))
            elif isinstance(step, CondenseStep | CarriedWindowStep):
                items.append(Item("compute", "sort", share, weight=max(len(step.how.order), 1)))
            else:
                build = builds[step.build]
                kept = self._build(stage, build, share, items)
                items.append(Item("probe", "probe", share, weight=max(len(step.keys), 1)))
                if step.kind in ("inner", "semi"):
                    share *= kept
                elif step.kind == "anti":
                    share *= max(1 - kept, 0.05)
        return share

    def _build(self, stage: Stage, build: Build, share: float, items: list[Item]) -> float:
        """Add the making of a build side; return the share of probing rows that find a match.

        A row's key is taken to be in the build side's table before that was filtered, as a foreign key is.
        """
        if isinstance(build, BroadcastBuild):
            made = self._stages[build.stage]
            size = float(made.estimated_rows)
            items.append(Item("in", "to_device", 0.0, size * _width(build.schema), once=True))
            items.append(Item("build", "build", 0.0, size, once=True))
            plain = isinstance(made.pipeline.sink, CollectSink) and made.input_rows > 0
            return min(size / made.input_rows, 1.0) if plain else 1.0
        if isinstance(build, PartitionedBuild):
            own = float(self._stages[build.stage].estimated_rows) / max(self._rows_of(stage), 1.0)
            items += [Item("in", "to_device", own * _width(build.schema)), Item("build", "build", own)]
            return 1.0
        source = build.pipeline.source
        if not isinstance(source, TableSource) or not isinstance(stage.pipeline.source, TableSource):
            return 1.0
        probing = max(self._tables.table(stage.pipeline.source.table).rows, 1)
        own = self._tables.table(source.table).rows / probing
        inner: list[Item] = []
        left = self._pipeline(stage, build.pipeline, own, True, inner)
        items += inner
        items.append(Item("build", "build", left))
        return min(left / own, 1.0) if own else 1.0

    def _reading(self, source: TableSource, share: float) -> list[Item]:
        table = self._tables.table(source.table)
        found: list[Item] = []
        for column in source.columns:
            stored = table.storage(column.source)
            if stored is None:
                found.append(Item("in", "to_device", share * _width([column]), column=(source.table, column.source)))
                continue
            codec, repeats = stored
            kind = type_class(column.type, repeats)
            found.append(
                Item("read", "read", share, codec=codec, type_class=kind, column=(source.table, column.source))
            )
        if source.predicate is not None:
            found.append(Item("compute", "filter", share, weight=_operations([source.predicate])))
        return found

    def _kept(self, source: TableSource) -> float:
        """Return the share of a table's rows that its predicate keeps."""
        if source.predicate is None:
            return 1.0
        scan = nodes.Scan(source.table, source.columns, source.predicate)
        rows = max(self._tables.table(source.table).rows, 1)
        return min(self._estimator.rows(scan) / rows, 1.0)

    @staticmethod
    def _guess(predicate: Expression) -> float:
        """Return the share that a later filter keeps: it compares what was computed, of which little is known."""
        return 0.5


def type_class(data_type: pa.DataType, repeats: bool) -> str:
    """Return the profile's name for a kind of values.

    >>> type_class(pa.string(), True), type_class(pa.date32(), True), type_class(pa.int64(), True)
    ('dictionary', 'date', 'repeating_integer')
    """
    if is_decimal(data_type) or is_integer(data_type):
        name = "decimal" if is_decimal(data_type) else "integer"
        return f"{REPEATING}{name}" if repeats else name
    if is_floating(data_type):
        return "floating"
    if is_fixed_width(data_type):
        return "date"
    return "dictionary" if repeats else "string"


def _sink_items(sink: Sink, flowing: float, groups: float) -> list[Item]:
    width = _width(sink.schema)
    if isinstance(sink, SplitSink) and sink.partial is not None:
        return _sink_items(sink.partial, flowing, groups)
    if isinstance(sink, PartialAggregateSink):
        operator = "aggregate_few" if groups <= FEW_GROUPS else "aggregate_many"
        weight = max(len(sink.aggregates), 1)
        expressions = [call.argument for call in sink.aggregates if call.argument is not None]
        computing = _operations([*expressions, *(item.expression for item in sink.groups)])
        items = [Item("compute", "project", flowing, weight=computing)] if computing else []
        items.append(Item("compute", operator, flowing, weight=weight))
        # No chunk gives more groups than there are, nor more than it has rows.
        small = groups <= FEW_GROUPS
        items.append(Item("out", "from_device", 0.0 if small else flowing * width, groups * width if small else 0.0))
        return items
    if isinstance(sink, SortedRunSink):
        return [Item("compute", "sort", flowing, weight=len(sink.keys)), Item("out", "from_device", flowing * width)]
    if isinstance(sink, CollectSink | SplitSink):
        return [Item("out", "from_device", flowing * width)]
    return [Item("compute", "top_k", flowing), Item("out", "from_device", 0.0, sink.count * width)]


def _operations(expressions: Iterable[Expression]) -> float:
    """Count what has to be computed in expressions: references and constants are free."""
    return float(
        sum(isinstance(part, (Call, Case, Cast, In)) for expression in expressions for part in walk(expression))
    )


def _source_fields(source: Source) -> Sequence[Field | nodes.ScanColumn]:
    return source.columns if isinstance(source, TableSource) else source.schema


def _width(columns: Iterable[Field | nodes.ScanColumn]) -> float:
    """Return the bytes of a row in memory."""
    return float(sum(item.type.byte_width if is_fixed_width(item.type) else TEXT_BYTES for item in columns))


def works(stages: Sequence[Stage], tables: Tables) -> Mapping[int, Work]:
    """Return the work of each stage, by its id."""
    planner = WorkPlanner(stages, tables)
    return {stage.id: planner.of(stage) for stage in stages}
