"""What the planner hands to the dispatcher: stages and their pipelines. ``chunks.py`` has what these read.

Everything here is plain, immutable, picklable data. The dispatcher sends a stage's pipeline and one chunk to a worker,
which runs it on its engine (``hybridq.dispatch.tasks``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from hybridq.config import JoinMethod
from hybridq.physical.merges import AggregateMerge, FinishLimit, FinishSort, FinishWindow, KeepPieces, Merge
from hybridq.plan.expressions import AggregateCall, Expression, NamedExpression, SortKey
from hybridq.plan.nodes import GroupingSets, JoinKind, ScanColumn
from hybridq.plan.unnesting import UnnestKind
from hybridq.plan.windows import Condensation, WindowCall
from hybridq.types import Schema

# --- input ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableSource:
    """Read a table's units: the ``columns``, and only rows for which ``predicate`` is true.

    ``output`` are the names that leave the scan; the others are read for the predicate alone.
    """

    table: str
    columns: tuple[ScanColumn, ...]
    predicate: Expression | None
    output: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StageSource:
    """Read the whole output of an earlier stage, in a single chunk.

    Attributes
    ----------
    stage : int
    schema : Schema
        The columns that are used.
    names : tuple of str
        What all columns of the output are called here, in order; none: as in the output.
    """

    stage: int
    schema: Schema
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionSource:
    """Read partitions of an earlier stage whose rows were split by ``keys``, some in each chunk.

    Attributes
    ----------
    stage : int
    schema : Schema
    keys : tuple of str
    whole : bool
        All rows with equal keys have to be in one chunk, since they are grouped there, or seen by window functions.
    id : int
        Identifies the aggregate, or the windows, that are split; -1: it is a join.
    """

    stage: int
    schema: Schema
    keys: tuple[str, ...]
    whole: bool = False
    id: int = -1


@dataclass(frozen=True, slots=True)
class RangeSource:
    """Read the rows of an earlier stage, whose chunks are sorted, in order: each chunk reads a range of them.

    Attributes
    ----------
    stage : int
    schema : Schema
    keys : tuple of SortKey
    id : int
        Identifies the sort, or the windows.
    numbered : bool
        Windows go over the ranges: each row also has its range (``hybridq.plan.windows.RANGE_START``), and the rows of
        a range are in no order.
    """

    stage: int
    schema: Schema
    keys: tuple[SortKey, ...]
    id: int
    numbered: bool = False


Source = TableSource | StageSource | PartitionSource | RangeSource

# --- steps ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FilterStep:
    """Keep rows for which the predicate is true."""

    predicate: Expression


@dataclass(frozen=True, slots=True)
class ProjectStep:
    """Replace the columns by computed ones."""

    expressions: tuple[NamedExpression, ...]


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """Join the rows that flow by with a ready build side.

    Attributes
    ----------
    build : int
        Identifies the build side (see ``BroadcastBuild`` and ``AlignedBuild``).
    kind : str
        ``inner``, ``left``, ``semi``, ``anti`` or ``mark``, the flowing rows being the left side.
    keys : tuple of Expression
        Over the flowing columns; pairwise equal types with the build's keys. None: every pair of rows.
    residual : Expression or None
        Over flowing and build columns.
    output : tuple of str
        Columns that leave the step, flowing ones and (for inner and left) build ones.
    null_aware : bool
        The first key is that of IN, see ``hybridq.plan.nodes.Join``.
    mark : str or None
        With ``mark``: the name of the column that tells whether there is a match.
    most_pairs : int
        Pairs of rows past which the flowing rows are cut into pieces, so that their results are not all in memory at
        once.
    """

    build: int
    kind: JoinKind
    keys: tuple[Expression, ...]
    residual: Expression | None
    output: tuple[str, ...]
    null_aware: bool = False
    mark: str | None = None
    most_pairs: int = 2**63


@dataclass(frozen=True, slots=True)
class GroupStep:
    """Merge partial aggregates of groups that no other chunk has, and compute the final values.

    The rows that flow by were split by the group keys, or by these and more.
    """

    merge: AggregateMerge


@dataclass(frozen=True, slots=True)
class WindowStep:
    """Compute window functions whose partitions no other chunk has rows of, as new columns; aggregates in partial form.

    The rows that flow by were split by expressions that every call is partitioned by.
    """

    calls: tuple[WindowCall, ...]


@dataclass(frozen=True, slots=True)
class UnnestStep:
    """Repeat each row for every element of its lists.

    Attributes
    ----------
    lists : tuple of (list column, element column)
        Gone through side by side.
    kind : str
        See ``hybridq.plan.unnesting.Unnest``.
    ordinality : str or None
        Name of the column for an element's place.
    condition : Expression or None
        Over flowing and element columns: which elements count.
    output : tuple of str
        Columns that leave the step.
    most_rows : int
        Elements past which the flowing rows are cut into pieces, so that their results are not all in memory at once.
    """

    lists: tuple[tuple[str, str], ...]
    kind: UnnestKind
    ordinality: str | None
    condition: Expression | None
    output: tuple[str, ...]
    most_rows: int = 2**63


@dataclass(frozen=True, slots=True)
class CondenseStep:
    """Put the rows of a range into few, for the windows of rows in other ranges."""

    how: Condensation


@dataclass(frozen=True, slots=True)
class CarriedWindowStep:
    """Compute window functions over the rows of all ranges for those of one range, as new columns.

    Attributes
    ----------
    build : int
        The condensed rows of all ranges; identifies a ``BroadcastBuild``.
    how : Condensation
    calls : tuple of WindowCall
        Over the columns of condensed rows; not partitioned.
    """

    build: int
    how: Condensation
    calls: tuple[WindowCall, ...]


Step = FilterStep | ProjectStep | ProbeStep | GroupStep | WindowStep | UnnestStep | CondenseStep | CarriedWindowStep

# --- sinks ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartialAggregateSink:
    """One row a group of this chunk, aggregates in partial form (``hybridq.physical.decompose``).

    Attributes
    ----------
    groups : tuple of NamedExpression
    aggregates : tuple of AggregateCall
    schema : Schema
    sets : GroupingSets or None
        Rows are grouped by all groups once; the sets are then made of those partial results by ``merge``.
    merge : tuple of AggregateCall
        How partial results are merged, as in ``AggregateMerge``. Only with ``sets``.
    """

    groups: tuple[NamedExpression, ...]
    aggregates: tuple[AggregateCall, ...]
    schema: Schema
    sets: GroupingSets | None = None
    merge: tuple[AggregateCall, ...] = ()


@dataclass(frozen=True, slots=True)
class TopKSink:
    """The first ``count`` rows of this chunk in order."""

    keys: tuple[SortKey, ...]
    count: int
    schema: Schema


@dataclass(frozen=True, slots=True)
class SortedRunSink:
    """All rows of this chunk, in order.

    Attributes
    ----------
    keys : tuple of SortKey
    schema : Schema
    blocks : int
        Pieces, one after the other, into which the rows are cut that stay on the worker; 0: they go to the merge.
    """

    keys: tuple[SortKey, ...]
    schema: Schema
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class CollectSink:
    """All rows of this chunk; with ``count`` only the first so many."""

    schema: Schema
    count: int | None = None


@dataclass(frozen=True, slots=True)
class SplitSink:
    """All rows of this chunk, split by key into pieces that stay on the worker.

    Attributes
    ----------
    keys : tuple of str
        Columns of ``schema``.
    partitions : int
    schema : Schema
    witness : str or None
        The key of a NOT IN: every partition is to know whether there is a row, and one where this column is NULL. One
        row of each kind is kept as one more piece, of number ``partitions``.
    partial : PartialAggregateSink or None
        The rows are aggregated first: what is split are partial results.
    lists : tuple of (list column, value column)
        Columns of these partial results that are lists, of whose values each becomes a row of its own, with the group's
        keys and NULL in all other columns.
    """

    keys: tuple[str, ...]
    partitions: int
    schema: Schema
    witness: str | None = None
    partial: PartialAggregateSink | None = None
    lists: tuple[tuple[str, str], ...] = ()


Sink = PartialAggregateSink | TopKSink | SortedRunSink | CollectSink | SplitSink


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The fused operators that a chunk passes through in one task."""

    source: Source
    steps: tuple[Step, ...]
    sink: Sink


# --- build sides ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BroadcastBuild:
    """A build side that an earlier stage made; each worker gets it whole, once.

    Attributes
    ----------
    id : int
        What ``ProbeStep.build`` refers to.
    stage : int
        The stage whose output it is.
    keys : tuple of str
        Key columns of the output.
    schema : Schema
        Of the output, with the names that its columns have here.
    splittable : bool
        The join could also be done by splitting both sides.
    method : str
        See ``hybridq.config.Config.join_method``.
    """

    id: int
    stage: int
    keys: tuple[str, ...]
    schema: Schema
    splittable: bool = False
    method: JoinMethod = "auto"


@dataclass(frozen=True, slots=True)
class AlignedBuild:
    """A build side that each chunk makes for itself from the row groups whose key range overlaps the chunk's.

    Or from all row groups, where it is inlined: its table is very small.

    Attributes
    ----------
    id : int
        What ``ProbeStep.build`` refers to.
    pipeline : Pipeline
        Makes the build side from the chunk's ``aligned`` units; it may probe broadcast builds, and inlined ones if it
        is inlined itself, and it ends in a CollectSink.
    keys : tuple of str
        Key columns of the pipeline's output.
    probe_column, build_column : str or None
        Source columns of both tables whose row-group statistics decide what overlaps; ``None``: it is inlined.
    method : str
        As for ``BroadcastBuild``.
    """

    id: int
    pipeline: Pipeline
    keys: tuple[str, ...]
    probe_column: str | None
    build_column: str | None
    method: JoinMethod = "auto"


@dataclass(frozen=True, slots=True)
class PartitionedBuild:
    """A build side that was split as the probing side was; each chunk makes it from its partitions.

    Attributes
    ----------
    id : int
        What ``ProbeStep.build`` refers to.
    stage : int
        The stage that was split.
    keys : tuple of str
        Key columns of the join.
    split_keys : tuple of str
        Those that the rows were split by, pairwise with those of the ``PartitionSource``.
    schema : Schema
    further : tuple of int
        Pieces that belong to every partition: those of ``SplitSink.witness``.
    method : str
        As for ``BroadcastBuild``.
    block_bytes : int or None
        A chunk takes what has more bytes in blocks; ``None``: all of it has to be there at once, for NOT IN.
    """

    id: int
    stage: int
    keys: tuple[str, ...]
    split_keys: tuple[str, ...]
    schema: Schema
    further: tuple[int, ...] = ()
    method: JoinMethod = "auto"
    block_bytes: int | None = None


Build = BroadcastBuild | AlignedBuild | PartitionedBuild

# --- stages ----------------------------------------------------------------------------------------------------------

FinishStep = FilterStep | ProjectStep | FinishSort | FinishLimit | FinishWindow


@dataclass(frozen=True, slots=True)
class Clustered:
    """A group key that is a column of the table read, unchanged, so that statistics tell which chunks may share groups.

    Attributes
    ----------
    key : str
        The group key in partial results.
    column : str
        The table's column.
    """

    key: str
    column: str


@dataclass(frozen=True, slots=True)
class Branch:
    """Another input of a stage (UNION ALL): its pipeline ends in the same sink as the stage's own.

    ``pipeline``, ``builds`` and ``values`` are as in ``Stage``.
    """

    pipeline: Pipeline
    builds: tuple[Build, ...] = ()
    values: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline over all chunks of one input, plus the merge of its partial results.

    Attributes
    ----------
    id : int
        Stages are numbered so that a stage's dependencies come before it.
    pipeline : Pipeline
    builds : tuple of Build
    merge : Merge
        Runs on a CPU worker, after the last chunk; in the driver's process where there is little to merge.
    finish : tuple of FinishStep
        Applied to the merged rows in the same task: HAVING, projections, ORDER BY, LIMIT above the merge.
    schema : Schema
        Of the stage's output, after ``finish``.
    estimated_rows, estimated_bytes : int
        Estimated output.
    input_rows : int
        Rows of all units of the source that survive row-group pruning.
    title : str
        One line for explain and report, such as ``"scan lineitem, probe orders, aggregate"``.
    early_stop : int or None
        LIMIT without ORDER BY: no more chunks are needed once the finished prefix of chunks has this many rows.
    values : pyarrow.Table or None
        A constant input: the stage's only chunk is this table, whose columns the source names.
    more : tuple of Branch
        Further inputs, whose chunks come after those of ``pipeline`` and flow into the same sink.
    subqueries : tuple of (number, stage)
        Subqueries whose values the expressions use, and the stages that give them. The values are put in before the
        first chunk is handed out (``hybridq.physical.binding``).
    clustered : Clustered or None
        Where HAVING, or ORDER BY with LIMIT, follows an aggregate: groups that only one chunk can have, and that will
        be dropped, do not get to the merge.
    gathers : int or None
        Identifies what of the plan makes all partial results meet in the merge, where it could also be done by
        splitting them.
    """

    id: int
    pipeline: Pipeline
    builds: tuple[Build, ...]
    merge: Merge
    finish: tuple[FinishStep, ...]
    schema: Schema
    estimated_rows: int
    estimated_bytes: int
    input_rows: int
    title: str
    early_stop: int | None = None
    values: pa.Table | None = None
    more: tuple[Branch, ...] = ()
    subqueries: tuple[tuple[int, int], ...] = ()
    clustered: Clustered | None = None
    gathers: int | None = None

    @property
    def branches(self) -> tuple[Stage, ...]:
        """Return for each input the stage as if it were the only one."""
        return tuple(self.branch(index) for index in range(1 + len(self.more)))

    def branch(self, index: int) -> Stage:
        """Return the stage as if one input were the only one: 0 is ``pipeline``, others are in ``more``."""
        if not self.more:
            return self
        if index == 0:
            return replace(self, more=())
        other = self.more[index - 1]
        return replace(self, pipeline=other.pipeline, builds=other.builds, values=other.values, more=())

    @property
    def dependencies(self) -> tuple[int, ...]:
        """Return the ids of the stages that have to be done before this one."""
        return tuple(dict.fromkeys((*self.inputs, *self.split_inputs, *(stage for _, stage in self.subqueries))))

    @property
    def keeps_pieces(self) -> bool:
        """Tell whether the stage's output are the pieces of a split."""
        return isinstance(self.merge, KeepPieces)

    @property
    def keeps_runs(self) -> bool:
        """Tell whether these pieces are sorted runs: what reads them has to read them as they were planned with."""
        return self.keeps_pieces and isinstance(self.pipeline.sink, SortedRunSink)

    @property
    def split_inputs(self) -> tuple[int, ...]:
        """Return the ids of the stages whose pieces this one's tasks read, those of the probing side first."""
        found: list[int] = []
        for branch in self.branches:
            if isinstance(branch.pipeline.source, PartitionSource | RangeSource):
                found.append(branch.pipeline.source.stage)
            found += [build.stage for build in branch.builds if isinstance(build, PartitionedBuild)]
        return tuple(dict.fromkeys(found))

    @property
    def split_parts(self) -> frozenset[int]:
        """Return the ids of the joins, aggregates, windows and sorts for which this stage reads what was split."""
        found = {build.id for branch in self.branches for build in branch.builds if isinstance(build, PartitionedBuild)}
        sources = (branch.pipeline.source for branch in self.branches)
        return frozenset(found | {source.id for source in sources if isinstance(source, PartitionSource | RangeSource)})

    @property
    def inputs(self) -> tuple[int, ...]:
        """Return the ids of the stages whose output this one's tasks read whole."""
        if self.more:
            return tuple(dict.fromkeys(stage for branch in self.branches for stage in branch.inputs))
        found = [build.stage for build in self.builds if isinstance(build, BroadcastBuild)]
        if isinstance(self.pipeline.source, StageSource):
            found.insert(0, self.pipeline.source.stage)
        return tuple(dict.fromkeys(found))
