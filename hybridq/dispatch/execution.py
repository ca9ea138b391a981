"""Runs a pipeline on one chunk: calls the engine's operators in order and measures each section."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pyarrow as pa

from hybridq.dispatch.blocks import BuildBlocks
from hybridq.dispatch.device_rows import DeviceRows, Rows, as_frame, as_table, may_stay
from hybridq.dispatch.memory import check_build
from hybridq.dispatch.merging import merge_tables
from hybridq.dispatch.pieces import PROBING, PieceReader
from hybridq.dispatch.read_ahead import ReadAhead
from hybridq.dispatch.reading import read_unchanged
from hybridq.dispatch.shared_columns import KeptColumns, kept_columns
from hybridq.dispatch.worker import BUILD_SIDES
from hybridq.engines.account import DeviceAccount
from hybridq.engines.protocol import BuildSide, Engine, FileConstant, Frame, ReadColumn, ReadRequest
from hybridq.engines.unnest import one_value_a_row
from hybridq.merge.grouping_sets import into_sets, nothing
from hybridq.physical.chunks import Chunk, MemoryUnits, ParquetUnits, PieceUnits, RangeUnits, Units
from hybridq.physical.merges import AggregateMerge
from hybridq.physical.pipeline import (
    AlignedBuild,
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
    SplitSink,
    Stage,
    StageSource,
    Step,
    TableSource,
    TopKSink,
    UnnestStep,
    WindowStep,
)
from hybridq.placement.passing_on import GPU_MERGE_ROWS
from hybridq.plan.expressions import Column, NamedExpression
from hybridq.types import declared, to_arrow_schema

MEMORY_PER_JOIN = 16 * 2**30
"""Bytes of a device's memory for each ``join_bytes`` (256 MiB, by default) of a join's output that is made at once."""

FEW_GROUPS = 1 << 16
"""Groups of all rounds of a chunk up to which these are merged before the chunk's result is handed over."""

Side: TypeAlias = BuildSide | BuildBlocks

SECTIONS = ("read", "build", "probe", "compute", "sink")


@dataclass(slots=True)
class Clock:
    """Seconds spent in each section.

    Attributes
    ----------
    current : str
        The section that was entered last.
    read_again : int
        Times that files were read once more after an error.
    saved : int
        Bytes in files that were not read again, for the chunk had their columns decoded.
    """

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SECTIONS, 0.0))
    current: str = ""
    read_again: int = 0
    saved: int = 0

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Add the time spent inside to one section; ``current`` keeps the section's name if an error leaves it."""
        self.current = name
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start


def run_stage(
    engine: Engine,
    stage: Stage,
    chunk: Chunk,
    inputs: Mapping[int, Rows],
    clock: Clock,
    hot: Mapping[str, frozenset[str]] | None = None,
    pieces: PieceReader | None = None,
    ahead: ReadAhead | None = None,
    stay: bool = False,
    complete: bool = False,
) -> Rows:
    """Run a stage's pipeline on one chunk.

    Parameters
    ----------
    engine : Engine
        What computes.
    stage : Stage
        Its pipeline and build sides are run.
    chunk : Chunk
        What the pipeline reads.
    inputs : mapping of int to pyarrow.Table or DeviceRows
        Outputs of the stages that this one depends on.
    clock : Clock
        Receives the seconds by section.
    hot : mapping of str to frozenset of str, optional
        Columns of tables that are to stay on the device.
    pieces : PieceReader, optional
        Reads partitions; only where the stage does.
    ahead : ReadAhead, optional
        What ``read_source`` gave for the chunk, if it has been read already and is still there.
    stay : bool
        The partial result is to stay on the device: rows of a ``CollectSink``, or groups, if they are many.
    complete : bool
        The chunk is all that the stage reads.

    Returns
    -------
    pyarrow.Table or DeviceRows
        The chunk's partial result, of the sink's schema; rows that are to be split are not yet.
    """
    stage = stage.branch(chunk.branch)
    partitions = _partitions(stage, chunk, pieces, clock) if isinstance(chunk.source, PieceUnits | RangeUnits) else {}
    builds: dict[int, Side] = {}
    aligned = dict(chunk.aligned)
    kept = kept_columns(engine, stage, hot)
    for build in _in_order(stage.builds):
        with clock.section("build"):
            if isinstance(build, BroadcastBuild):
                builds[build.id] = _broadcast(engine, build, inputs[build.stage])
                continue
            if isinstance(build, PartitionedBuild):
                builds[build.id] = _partitioned(engine, build, partitions.pop(build.id), chunk, pieces, clock)
                continue
        frames = list(_flow(engine, build.pipeline, aligned[build.id], inputs, builds, clock, kept))
        with clock.section("build"):
            frame = frames[0] if len(frames) == 1 else engine.concatenate(frames)
            builds[build.id] = engine.build(frame, build.keys, build.method)
    partials = []
    inputs = {**inputs, **partitions}  # the probing side is all that is left of them
    source = None if ahead is None else ahead.take()
    if source is None:
        frames_out = _flow(engine, stage.pipeline, chunk.source, inputs, builds, clock, kept)
    else:
        frames_out = _steps(engine, stage.pipeline.steps, source, builds, clock)
        del source  # the steps hold it as long as they need it
    clock.saved += kept.end()
    sink = stage.pipeline.sink
    if stay and isinstance(sink, CollectSink):
        frames = list(frames_out)
        with clock.section("sink"):
            whole = frames[0] if len(frames) == 1 else engine.concatenate(frames)
            if not may_stay(engine, whole.nbytes):
                return _to_table(engine, sink, whole)
            engine.settle()
            return DeviceRows(engine, whole, sink.schema)
    groups: list[Frame] = []
    for frame in frames_out:
        with clock.section("sink"):
            partials += [_to_table(engine, sink, part) for part in groups]
            groups = [_reduced(engine, sink, frame)]
            if chunk.private is None and not stay and not complete:
                partials.append(_to_table(engine, sink, groups.pop()))
    with clock.section("sink"):
        if (chunk.private is not None or complete) and not partials and isinstance(stage.merge, AggregateMerge):
            # All in one frame, groups are whole: what is dropped after the merge anyway need not leave the device.
            private = None if complete else chunk.private
            groups = [_without_dropped_groups(engine, stage, part, private) for part in groups]
        if stay and not partials and groups and groups[0].rows >= GPU_MERGE_ROWS and may_stay(engine, groups[0].nbytes):
            engine.settle()
            return DeviceRows(engine, groups[0], sink.schema)
        partials += [_to_table(engine, sink, part) for part in groups]
        return partials[0] if len(partials) == 1 else merge_tables(stage, partials, last=False)


def in_rounds(
    engine: Engine, stage: Stage, chunk: Chunk, inputs: Mapping[int, Rows], clock: Clock, complete: bool
) -> pa.Table:
    """Run a stage's pipeline on a chunk, one of its ``rounds`` after the other; see ``run_stage``.

    Unless the chunk is the stage's only one, groups that several rounds have are in the result more than once.
    """
    found = [
        as_table(run_stage(engine, stage, replace(each, branch=chunk.branch), inputs, clock)) for each in chunk.rounds
    ]
    with clock.section("sink"):
        many = sum(part.num_rows for part in found) > FEW_GROUPS
        if isinstance(stage.merge, AggregateMerge) and many and not complete:
            return pa.concat_tables(found)  # to merge them twice would take longer
        return merge_tables(stage, found, last=False)


def _without_dropped_groups(engine: Engine, stage: Stage, groups: Frame, private: tuple[int, int] | None) -> Frame:
    from hybridq.merge.private_groups import without_dropped_groups  # not by the client, which imports this module

    return without_dropped_groups(engine, stage, groups, private, gpu=engine.name != "cpu")


def read_source(
    engine: Engine, stage: Stage, chunk: Chunk, clock: Clock, hot: Mapping[str, frozenset[str]] | None = None
) -> Frame:
    """Read what a chunk of a table's row groups begins with.

    Parameters
    ----------
    engine, stage, chunk, clock, hot
        As for ``run_stage``.
    """
    if not isinstance(stage.pipeline.source, TableSource):
        raise TypeError("only a table is read ahead")
    with clock.section("read"):
        return _read(engine, stage.pipeline.source, chunk.source, KeptColumns(hot or {}), clock)


def _in_order(builds: tuple[Build, ...]) -> list[Build]:
    """Return broadcast build sides first: the pipelines of aligned ones may probe them."""
    return sorted(builds, key=lambda build: isinstance(build, AlignedBuild))


def _partitions(stage: Stage, chunk: Chunk, pieces: PieceReader | None, clock: Clock) -> dict[int, pa.Table | None]:
    """Read a chunk's partitions, by build side (``None``: it is to be taken in blocks); ``PROBING`` is the source."""
    source, units = stage.pipeline.source, chunk.source
    if pieces is not None and isinstance(units, RangeUnits) and isinstance(source, RangeSource):
        with clock.section("read"):
            rows = pieces.read_range(to_arrow_schema(source.schema), source.keys, units)
            if not source.numbered:
                return {PROBING: rows}
            from hybridq.engines.ranges import numbered  # not by the client, which imports this module as well

            return {PROBING: numbered(rows, units.start, units.stop)}
    if pieces is None or not isinstance(units, PieceUnits) or not isinstance(source, PartitionSource):
        raise TypeError("a chunk of partitions needs to be told where they are")
    with clock.section("read"):
        if not units.partitions:
            return {PROBING: _nothing(stage.pipeline.steps)}
        schema = to_arrow_schema(source.schema)
        found: dict[int, pa.Table | None] = {}
        found[PROBING] = pieces.read(PROBING, schema, source.keys, units, divisible=not source.whole)
        for build in stage.builds:
            if isinstance(build, PartitionedBuild):
                schema = to_arrow_schema(build.schema)
                if build.block_bytes is None:
                    found[build.id] = pieces.read(build.id, schema, build.split_keys, units, build.further)
                else:
                    block = pieces.read_whole(build.id, schema, build.split_keys, units, build.block_bytes)
                    found[build.id] = block
    return found


def _nothing(steps: Sequence[Step]) -> pa.Table:
    """Return the partial results that there are where no chunk has given any."""
    from hybridq.engines.cpu import CpuEngine

    (merge,) = [step.merge for step in steps if isinstance(step, GroupStep)]
    return pa.concat_tables(nothing(CpuEngine(), merge))


def _partitioned(
    engine: Engine,
    build: PartitionedBuild,
    rows: pa.Table | None,
    chunk: Chunk,
    pieces: PieceReader | None,
    clock: Clock,
) -> Side:
    """Make a build side of a chunk's partitions, if need be one that is taken in blocks."""
    if rows is not None:
        return engine.build(engine.from_arrow(rows), build.keys, build.method)
    units, most = chunk.source, build.block_bytes
    if pieces is None or most is None or not isinstance(units, PieceUnits):
        raise TypeError("only partitions are read in blocks")
    arguments = build.id, to_arrow_schema(build.schema), build.split_keys, units, most

    def read() -> Iterator[pa.Table]:
        blocks = pieces.read_blocks(*arguments)
        while True:
            with clock.section("read"):
                found = next(blocks, None)
            if found is None:
                return
            yield found[0]

    def make(table: pa.Table) -> BuildSide:
        with clock.section("build"):
            return engine.build(engine.from_arrow(table), build.keys, build.method)

    return BuildBlocks(read, make, frozenset(field.name for field in build.schema))


def _broadcast(engine: Engine, build: BroadcastBuild, rows: Rows) -> BuildSide:
    def make() -> BuildSide:
        check_build(getattr(engine, "memory", None), rows)
        side = engine.build(as_frame(engine, rows, names), build.keys, build.method)
        if isinstance(rows, DeviceRows):
            rows.lend()
        return side

    names = tuple(field.name for field in build.schema)
    return BUILD_SIDES.get(rows, f"{engine.name} {build.method} {build.keys} {names}", make)


def _flow(
    engine: Engine,
    pipeline: Pipeline,
    units: Units | None,
    inputs: Mapping[int, Rows],
    builds: Mapping[int, Side],
    clock: Clock,
    kept: KeptColumns,
) -> Iterator[Frame]:
    """Read the source and run all steps; more than one frame comes out where a join would make too many rows at once.

    The frames together are what one would have been, in order.
    """
    with clock.section("read"):
        if isinstance(pipeline.source, PartitionSource):
            frame = engine.from_arrow(as_table(inputs[PROBING]))
        elif isinstance(pipeline.source, RangeSource):
            frame = engine.from_arrow(as_table(inputs[PROBING]))
            if not pipeline.source.numbered:
                frame = engine.sort(frame, pipeline.source.keys)
        elif isinstance(pipeline.source, StageSource):
            rows = inputs[pipeline.source.stage]
            frame = as_frame(engine, rows, pipeline.source.names or rows.column_names)
        else:
            partners = _partners(pipeline.source, pipeline.steps, builds) if engine.name == "cpu" else ()
            frame = _read(engine, pipeline.source, units, kept, clock, partners)
    return _steps(engine, pipeline.steps, frame, builds, clock)


def _steps(
    engine: Engine, steps: Sequence[Step], frame: Frame, builds: Mapping[int, Side], clock: Clock
) -> Iterator[Frame]:
    for position, step in enumerate(steps):
        if isinstance(step, ProbeStep) and isinstance(builds[step.build], BuildBlocks):
            yield from _in_blocks(engine, step, steps[position + 1 :], frame, builds, clock)
            return
        if not isinstance(step, ProbeStep | UnnestStep):
            with clock.section("compute"):
                frame = _step(engine, step, frame, builds)
            continue
        section = "probe" if isinstance(step, ProbeStep) else "compute"
        with clock.section(section):
            pieces = _pieces(engine, step, frame, builds)
            if pieces == 1:
                frame = _step(engine, step, frame, builds)
                continue
        rows = frame.rows
        for piece in range(pieces):
            with clock.section(section):
                start, stop = rows * piece // pieces, rows * (piece + 1) // pieces
                part = _step(engine, step, engine.slice(frame, start, stop - start), builds)
            yield from _steps(engine, steps[position + 1 :], part, builds, clock)
        return
    yield frame


def _in_blocks(
    engine: Engine,
    step: ProbeStep,
    further: Sequence[Step],
    frame: Frame,
    builds: Mapping[int, Side],
    clock: Clock,
) -> Iterator[Frame]:
    """Join a frame with a build side block by block, and take further steps."""
    blocks = builds[step.build]
    assert isinstance(blocks, BuildBlocks)

    def joined(rows: Frame, step: ProbeStep, block: BuildSide) -> Iterator[Frame]:
        return _steps(engine, (step,), rows, {step.build: block}, clock)

    def together(frames: list[Frame]) -> Frame:
        return frames[0] if len(frames) == 1 else engine.concatenate(frames)

    for part in blocks.join(frame, step, joined, together):
        yield from _steps(engine, further, part, builds, clock)


def _pieces(engine: Engine, step: ProbeStep | UnnestStep, frame: Frame, builds: Mapping[int, Side]) -> int:
    """Return into how many pieces a frame has to be cut so that the result of a join, or of unnesting, fits."""
    if isinstance(step, UnnestStep):
        elements: int = _operator(engine, "count_elements")(frame, [source for source, _ in step.lists])
        return min(max(-(-elements // step.most_rows), 1), max(frame.rows, 1))
    build = _whole(builds, step)
    forms_pairs = step.kind in ("inner", "left") or step.residual is not None
    most = step.most_pairs * _times_larger(engine)
    if not forms_pairs or frame.rows * build.most_matches <= most:
        return 1
    pairs = engine.count_matches(frame, build, step.keys)
    return min(max(-(-pairs // most), 1), frame.rows)


def _whole(builds: Mapping[int, Side], step: ProbeStep | CarriedWindowStep) -> BuildSide:
    """Return the build side of a step, which is there as a whole."""
    found = builds[step.build]
    assert not isinstance(found, BuildBlocks)
    return found


def _times_larger(engine: Engine) -> int:
    """Return how many times what is joined at once on a CPU worker an engine's device has room for."""
    account: DeviceAccount | None = getattr(engine, "memory", None)
    return 1 if account is None else max(account.limit // MEMORY_PER_JOIN, 1)


def _partners(
    source: TableSource, steps: Sequence[Step], builds: Mapping[int, Side]
) -> tuple[tuple[str, BuildSide], ...]:
    """Return the columns, and their build sides, by which the first joins drop rows.

    Nothing may be computed before such a join that the rows which it drops could make fail.
    """
    found: list[tuple[str, BuildSide]] = []
    for step in steps:
        if not isinstance(step, ProbeStep) or step.kind not in ("inner", "semi") or step.null_aware:
            break
        if not all(isinstance(key, Column) for key in step.keys):
            break
        if len(step.keys) == 1 and (name := str(step.keys[0])) in source.output:
            found.append((name, _whole(builds, step)))
        if step.residual is not None:
            break
    return tuple(found)


def _read(
    engine: Engine,
    source: TableSource,
    units: Units | None,
    kept: KeptColumns,
    clock: Clock,
    partners: tuple[tuple[str, BuildSide], ...] = (),
) -> Frame:
    columns = tuple(ReadColumn(column.name, column.source, column.type) for column in source.columns)
    if isinstance(units, ParquetUnits) and units.files:
        values = dict(units.constants)
        constants = tuple(
            FileConstant(column.name, column.source, column.type, values[column.source])
            for column in columns
            if column.source in values
        )
        stored = tuple(column for column in columns if column.source not in values)
        staying, cache = kept.of(source.table)
        request = ReadRequest(
            units.files,
            stored,
            source.predicate,
            source.output,
            units.bounds,
            keep=tuple(column.source for column in stored if column.source in staying),
            cache=cache,
            partners=partners,
            constants=constants,
        )
        frame, again = read_unchanged(lambda: engine.read(request), units.stamps)
        clock.read_again += again
        return frame
    if isinstance(units, MemoryUnits):
        table = _renamed(units.table, columns)
    else:
        table = pa.schema([pa.field(column.name, column.type) for column in columns]).empty_table()
    if source.predicate is None:
        return engine.from_arrow(table.select(list(source.output)))
    frame = engine.filter(engine.from_arrow(table), source.predicate)
    if len(source.output) == len(columns):
        return frame
    types = {column.name: column.type for column in columns}
    return engine.project(frame, [NamedExpression(name, Column(types[name], name)) for name in source.output])


def _renamed(table: pa.Table, columns: tuple[ReadColumn, ...]) -> pa.Table:
    """Take a registered table's columns under their plan names and types."""
    table = table.select([column.source for column in columns]).rename_columns([column.name for column in columns])
    for position, column in enumerate(columns):
        data = table.column(position)
        if data.type != column.type and declared(data.type) == column.type:
            table = table.set_column(position, column.name, data.cast(column.type))
    return table


def _step(engine: Engine, step: Step, frame: Frame, builds: Mapping[int, Side]) -> Frame:
    if isinstance(step, FilterStep):
        return engine.filter(frame, step.predicate)
    if isinstance(step, ProjectStep):
        return engine.project(frame, step.expressions)
    if isinstance(step, GroupStep):
        from hybridq.merge.aggregate import merge_groups  # not by the client, which imports this module as well

        return merge_groups(engine, step.merge, frame)
    if isinstance(step, WindowStep):
        windowed: Frame = _operator(engine, "window")(frame, step.calls)
        return windowed
    if isinstance(step, CondenseStep):
        condensed: Frame = _operator(engine, "condense")(frame, step.how)
        return condensed
    if isinstance(step, CarriedWindowStep):
        carried: Frame = _operator(engine, "carried_window")(frame, _whole(builds, step), step.how, step.calls)
        return carried
    if isinstance(step, UnnestStep):
        arguments = step.lists, step.kind, step.ordinality, step.condition, step.output
        unnested: Frame = _operator(engine, "unnest")(frame, *arguments)
        return unnested
    if step.kind == "full":
        raise TypeError("a full join cannot be probed chunk by chunk")
    build = _whole(builds, step)
    return engine.probe(frame, build, step.kind, step.keys, step.residual, step.output, step.null_aware, step.mark)


def _operator(engine: Engine, name: str) -> Callable[..., Any]:
    """Return an operator that not every engine has."""
    found: Callable[..., Any] | None = getattr(engine, name, None)
    if found is None:
        raise TypeError(f"the {engine.name} engine has no {name}")
    return found


def _reduced(engine: Engine, sink: Sink, frame: Frame) -> Frame:
    """Do with a pipeline's rows what its sink does on the device."""
    if isinstance(sink, SplitSink) and sink.partial is not None:
        return _reduced(engine, sink.partial, frame)
    if isinstance(sink, PartialAggregateSink):
        frame = engine.aggregate(frame, sink.groups, sink.aggregates)
        return frame if sink.sets is None else into_sets(engine, frame, sink)
    if isinstance(sink, TopKSink):
        return engine.top_k(frame, sink.keys, sink.count)
    if isinstance(sink, SortedRunSink):
        return engine.sort(frame, sink.keys)
    if isinstance(sink, CollectSink) and sink.count is not None and sink.count < frame.rows:
        return engine.slice(frame, 0, sink.count)
    return frame


def _to_table(engine: Engine, sink: Sink, frame: Frame) -> pa.Table:
    """Take what a sink leaves from the device."""
    if isinstance(sink, SplitSink) and sink.partial is not None:
        table = _to_table(engine, sink.partial, frame)
        keys = [name for name in sink.keys if name in table.column_names]
        return one_value_a_row(table, keys, sink.lists, to_arrow_schema(sink.schema)) if sink.lists else table
    table = engine.to_arrow(frame, sink.schema)
    expected = to_arrow_schema(sink.schema)
    if table.schema.types != expected.types or table.schema.names != expected.names:
        raise TypeError(f"the {engine.name} engine gave {table.schema} where the plan says {expected}")
    return table
