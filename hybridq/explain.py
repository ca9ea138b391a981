"""What a query will do, stage by stage, and with ``analyze`` what it did.

An ``Explanation`` prints as a tree, the stage that gives the answer first and the stages that it reads below it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hybridq.physical.pipeline import (
    AlignedBuild,
    BroadcastBuild,
    PartitionSource,
    ProbeStep,
    RangeSource,
    Stage,
    TableSource,
)

if TYPE_CHECKING:
    from hybridq.physical.pipeline import Pipeline, Source
    from hybridq.physical.stages import PhysicalPlan
    from hybridq.report import ModePrediction, Report, StageReport

ENGINES = {"cpu": "cpu", "gpu": "gpu"}
"""What the engine of each device kind is called when the cluster does not say."""

LEAST_SHOWN = 0.0005
"""Sections of fewer seconds are left out."""

KINDS = {"EXEC_CPU": ("cpu",), "EXEC_GPU": ("gpu",), "EXEC_COP": ("cpu", "gpu")}
"""Device kinds that each mode uses."""


@dataclass(frozen=True, slots=True)
class JoinExplanation:
    """How one join of a stage runs.

    Attributes
    ----------
    kind : str
        ``inner``, ``left``, ``semi`` or ``anti``.
    method : str
        ``broadcast`` (the build side is made once and kept by every worker), ``aligned`` (each chunk reads just the
        build row groups whose key range overlaps its own), ``inlined`` (each chunk reads all of a very small table) or
        ``partitioned`` (both sides were split by key, and each chunk joins some partitions); then ``by hash``,
        ``merge`` or ``index``, if that was asked for.
    build : str
        The build side: ``stage N`` or ``table NAME``.
    keys : tuple of str
    residual : str or None
        Further condition on each pair.
    """

    kind: str
    method: str
    build: str
    keys: tuple[str, ...]
    residual: str | None = None

    def __str__(self) -> str:
        residual = f" and {self.residual}" if self.residual else ""
        return f"{self.kind} join with {self.build} on {', '.join(self.keys)}{residual}: {self.method}"


@dataclass(frozen=True, slots=True)
class StageExplanation:
    """One stage.

    Attributes
    ----------
    mode, engine, reason : str
        Where it runs and why; the engine is ``cpu``, ``gpu``, ``simulated gpu`` or ``cpu + ...``.
    source, predicate : str, str or None
        What it reads, and the rows that it keeps of it.
    input_rows : int
        Rows of the row groups that statistics do not exclude; 0 when it reads an earlier stage.
    estimated_rows, estimated_bytes : int
        Of the output.
    predicted_s : float or None
        Seconds, where there is ground for a prediction.
    predictions : tuple of ModePrediction
        What each mode is expected to take, and where the seconds go.
    basis : str
        What they come from.
    break_even_rows : float or None
        Input rows from which the GPU is expected to be faster than the CPU.
    dependencies : tuple of int
        Stages that it reads.
    actual : dict or None
        The stage's report, where the query ran.
    """

    id: int
    title: str
    mode: str
    engine: str
    reason: str
    source: str
    predicate: str | None
    joins: tuple[JoinExplanation, ...]
    input_rows: int
    estimated_rows: int
    estimated_bytes: int
    predicted_s: float | None
    dependencies: tuple[int, ...]
    actual: dict[str, Any] | None = None
    predictions: tuple[ModePrediction, ...] = ()
    basis: str = ""
    break_even_rows: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """A whole query; ``print`` shows it as a tree.

    Attributes
    ----------
    mode : str
        The mode asked for: ``auto``, ``cpu``, ``gpu`` or ``cop``.
    columns : tuple of str
        Names and types of the answer's columns, as text.
    seconds : dict of str to float
        Of the whole query, where it ran.
    """

    mode: str
    columns: tuple[str, ...]
    stages: tuple[StageExplanation, ...]
    seconds: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return render(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return asdict(self)

    def to_json(self) -> str:
        """Return indented JSON."""
        return json.dumps(self.to_dict(), indent=2, default=str)

    def to_html(self) -> str:
        """Return one self-contained page: the stages as a picture and, where the query ran, when what ran where."""
        from hybridq.picture import page

        return page(self)


def explain(
    physical: PhysicalPlan, report: Report, *, engines: Mapping[str, str] = ENGINES, analyzed: bool = False
) -> Explanation:
    """Describe a physical plan.

    Parameters
    ----------
    physical : PhysicalPlan
        The stages.
    report : Report
        With one entry a stage: its mode and reason and, if the query ran, what happened.
    engines : mapping of device kind to engine name
        What the cluster's workers run (``{"cpu": "cpu", "gpu": "simulated gpu"}``).
    analyzed : bool
        The query ran: put what happened beside what was expected.
    """
    reports = {stage.id: stage for stage in report.stages}
    stages = tuple(_explain_stage(stage, reports.get(stage.id), engines, analyzed) for stage in physical.stages)
    columns = tuple(f"{name} {item.type}" for name, item in zip(physical.names, physical.schema, strict=True))
    return Explanation(report.mode, columns, stages, dict(report.seconds) if analyzed else {})


def _explain_stage(
    stage: Stage, report: StageReport | None, engines: Mapping[str, str], analyzed: bool
) -> StageExplanation:
    branches = stage.branches
    sources = [branch.pipeline.source for branch in branches]
    predicates = [source.predicate for source in sources if isinstance(source, TableSource)]
    mode = report.mode if report is not None else "not run"
    return StageExplanation(
        id=stage.id,
        title=stage.title,
        mode=mode,
        engine=" + ".join(engines.get(kind, kind) for kind in KINDS.get(mode, ())),
        reason=report.reason if report is not None else "",
        source=" and ".join(map(_source, sources)),
        predicate="; ".join(str(predicate) for predicate in predicates if predicate is not None) or None,
        joins=tuple(join for branch in branches for join in _joins(branch, branch.pipeline)),
        input_rows=stage.input_rows,
        estimated_rows=stage.estimated_rows,
        estimated_bytes=stage.estimated_bytes,
        predicted_s=report.predicted_s if report is not None else None,
        dependencies=stage.dependencies,
        actual=asdict(report) if report is not None and analyzed else None,
        predictions=tuple(report.predictions) if report is not None else (),
        basis=report.basis if report is not None else "",
        break_even_rows=report.break_even_rows if report is not None else None,
    )


def _source(source: Source) -> str:
    if isinstance(source, TableSource):
        return f"table {source.table}"
    what = {PartitionSource: "partitions of ", RangeSource: "ranges, in order, of "}.get(type(source), "")
    return f"{what}stage {source.stage}"


def _joins(stage: Stage, pipeline: Pipeline) -> list[JoinExplanation]:
    builds = {build.id: build for build in stage.builds}
    found: list[JoinExplanation] = []
    for step in pipeline.steps:
        if not isinstance(step, ProbeStep):
            continue
        build = builds[step.build]
        if isinstance(build, AlignedBuild):
            # What an aligned build side itself joins with comes first: that is the order of the work.
            found += _joins(stage, build.pipeline)
        keys = tuple(f"{probe} = {key}" for probe, key in zip(step.keys, build.keys, strict=True))
        residual = None if step.residual is None else str(step.residual)
        if isinstance(build, AlignedBuild):
            inner = build.pipeline.source
            name = f"table {inner.table}" if isinstance(inner, TableSource) else f"stage {inner.stage}"
            how = "aligned" if build.build_column is not None else "inlined"
        else:
            name = f"stage {build.stage}"
            how = "broadcast" if isinstance(build, BroadcastBuild) else "partitioned"
        if build.method != "auto" and build.keys:
            how += f", by {build.method}"
        found.append(JoinExplanation(step.kind, how, name, keys, residual))
    return found


# --- text ----------------------------------------------------------------------------------------------------------


def render(explanation: Explanation) -> str:
    """Return the tree as text."""
    stages = {stage.id: stage for stage in explanation.stages}
    count = len(stages)
    lines = [f"mode {explanation.mode}, {count} stage{'s' if count != 1 else ''}"]
    lines.append(f"answer: {', '.join(explanation.columns)}")
    if explanation.seconds:
        lines.append("took " + ", ".join(f"{name} {value:.3f} s" for name, value in explanation.seconds.items()))
    shown: set[int] = set()
    if explanation.stages:
        lines += _tree(explanation.stages[-1], stages, shown)
    for stage in explanation.stages:  # a stage that no other one reads, such as a scalar subquery's
        if stage.id not in shown:
            lines += _tree(stage, stages, shown)
    return "\n".join(lines)


def _tree(stage: StageExplanation, stages: Mapping[int, StageExplanation], shown: set[int]) -> list[str]:
    if stage.id in shown:
        return [f"stage {stage.id} (see above)"]
    shown.add(stage.id)
    children = [_tree(stages[number], stages, shown) for number in stage.dependencies if number in stages]
    bar = "│  " if children else "   "
    head, *details = _describe(stage)
    lines = [head, *(bar + line for line in details)]
    for position, child in enumerate(children):
        last = position == len(children) - 1
        lines.append(("└─ " if last else "├─ ") + child[0])
        lines += [("   " if last else "│  ") + line for line in child[1:]]
    return lines


def _describe(stage: StageExplanation) -> list[str]:
    lines = [f"stage {stage.id}: {stage.title}"]
    engine = f" ({stage.engine})" if stage.engine else ""
    lines.append(f"{stage.mode}{engine}" + (f": {stage.reason}" if stage.reason else ""))
    rows = f", {_rows(stage.input_rows)}" if stage.input_rows else ""
    where = f" where {stage.predicate}" if stage.predicate else ""
    lines.append(f"reads {stage.source}{rows}{where}")
    lines += [str(join) for join in stage.joins]
    predicted = "" if stage.predicted_s is None else f" in {stage.predicted_s:.3f} s"
    lines.append(f"estimated {_rows(stage.estimated_rows)}, {_size(stage.estimated_bytes)}{predicted}")
    lines += _describe_predictions(stage)
    if stage.actual is not None:
        lines += _describe_actual(stage.actual)
    return lines


def _describe_predictions(stage: StageExplanation) -> list[str]:
    lines = []
    for each in stage.predictions:
        sections = ", ".join(f"{name} {value:.3f}" for name, value in each.sections.items() if value >= LEAST_SHOWN)
        chunks = " and ".join(f"{rows:,} rows on the {kind.upper()}" for kind, rows in each.chunk_rows.items())
        beside = f", {each.cpu_slots} CPU slots" if each.mode == "EXEC_COP" else ""
        mark = "*" if each.mode == stage.mode else " "
        lines.append(f"{mark} {each.mode} {each.seconds:.3f} s ({sections}; chunks of {chunks}{beside})")
    if len(stage.predictions) > 1:
        faster = (
            "the GPU is faster at no size"
            if stage.break_even_rows is None
            else f"the GPU is faster from {stage.break_even_rows:,.0f} rows on"
        )
        lines.append(f"  from {stage.basis}; {faster}")
    return lines


def _describe_actual(actual: Mapping[str, Any]) -> list[str]:
    merge = f" (merge {actual['merge_s']:.3f} s)" if actual["merge_s"] else ""
    predicted = actual["predicted_s"]
    beside = f", {actual['actual_s'] / predicted:.2f} times what was expected" if predicted else ""
    lines = [f"actual {_rows(actual['output_rows'])} in {actual['actual_s']:.3f} s{merge}{beside}"]
    for device in actual["devices"]:
        sections = ", ".join(f"{name} {value:.3f} s" for name, value in device["seconds"].items() if value)
        chunks = f"{device['chunks']} chunk{'s' if device['chunks'] != 1 else ''}"
        lines.append(
            f"  {device['worker']} ({device['engine']}): {chunks}, {_rows(device['rows'])}, "
            f"{_size(device['bytes_read'])}" + (f", {sections}" if sections else "")
        )
    if actual["spilled_bytes"]:
        lines.append(f"  {_size(actual['spilled_bytes'])} of pieces written to workers' files")
    if actual["retries"]:
        lines.append(f"  {actual['retries']} retried")
    for item in actual["fallbacks"]:
        place = "whole stage" if item["chunk"] is None else f"chunk {item['chunk']}"
        lines.append(f"  {place}: {item['cause']}, {item['action']}")
    return lines


def _rows(count: int) -> str:
    return f"{count:,} row{'s' if count != 1 else ''}"


def _size(count: float) -> str:
    """Write bytes for people.

    >>> _size(1536)
    '1.5 KiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
