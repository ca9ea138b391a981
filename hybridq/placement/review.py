"""How well a query was placed: what ``auto`` took against every forced mode, and the predictions against the clock.

From the reports of runs alone. HyPE's model improvement is its equation 6.5, (T_old - T_new) / T_old: what a decision
rule saves of the time that another one takes; the rules replaced are "always the CPU" and "always the GPU".
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hybridq.physical.pipeline import (
    CollectSink,
    PartialAggregateSink,
    ProbeStep,
    SortedRunSink,
    SplitSink,
    Stage,
    TopKSink,
)
from hybridq.placement.stage_times import entry_of, stage_seconds
from hybridq.report import Report, Span, StageReport

FORCED: Mapping[str, str] = {"cpu": "EXEC_CPU", "gpu": "EXEC_GPU", "cop": "EXEC_COP"}
"""Modes that a whole query can be forced to, and what its stages then run as."""

CLOSE_SHARE = 0.03
CLOSE_S = 0.02
"""``auto`` is as good as the best forced mode within this share of its time, or so many seconds."""

LEAST_RUNS = 3
"""Runs of ``auto`` that it is judged by, if there are so many."""

FIRST_SHARE = 0.1
"""The first run of a query that nothing is known of may take this share longer."""

DIFFERENT = 0.2
"""Modes whose times differ by more than this share should be predicted in the right order."""

LEAST_STAGE_S = 0.02
"""Shorter stages count for seconds lost, but not for relative errors: most of them is the news of a task travelling."""

SINKS: Mapping[type, str] = {
    PartialAggregateSink: "aggregate",
    TopKSink: "top-k",
    SortedRunSink: "sort",
    CollectSink: "collect",
    SplitSink: "split",
}


@dataclass(slots=True)
class Runs:
    """All runs of one query, warm.

    Attributes
    ----------
    plan : str
        Its name.
    operators : mapping of stage to str
        What each stage does, in a word (``operator_of``).
    first : tuple of (seconds, Report)
        The first run in ``auto``, when nothing had been learned.
    auto : list of (seconds, Report)
        Later runs in ``auto``, once it has learned from its own runs.
    training : list of (seconds, Report)
        Its runs before those.
    forced : dict of mode to list of (seconds, Report)
        Runs in ``cpu``, ``gpu`` and ``cop``.
    trained : dict of mode to list of Report
        Those of them whose predictions come from at least three rounds of runs.
    """

    plan: str
    operators: Mapping[int, str]
    first: tuple[float, Report]
    auto: list[tuple[float, Report]] = field(default_factory=list)
    training: list[tuple[float, Report]] = field(default_factory=list)
    forced: dict[str, list[tuple[float, Report]]] = field(default_factory=lambda: {mode: [] for mode in FORCED})
    trained: dict[str, list[Report]] = field(default_factory=lambda: {mode: [] for mode in FORCED})

    @property
    def settled(self) -> list[tuple[float, Report]]:
        """Return the runs that ``auto`` is judged by.

        Where there are few once it has learned, the latest earlier ones in the same modes count as well: a single run
        against the medians of several would mostly show chance.
        """
        modes = [entry.mode for entry in self.auto[-1][1].stages]
        same = [run for run in self.training if [entry.mode for entry in run[1].stages] == modes]
        lacking = max(LEAST_RUNS - len(self.auto), 0)
        return [*same[max(len(same) - lacking, 0) :], *self.auto]


@dataclass(slots=True)
class StageReview:
    """One stage of a query.

    Attributes
    ----------
    seconds : dict of mode to float
        Median over the runs in each forced mode (``stage_seconds``).
    auto_mode : str
        What ``auto`` chose (most often), once it had learned.
    auto_s : float
    best_mode : str
        The fastest of the forced ones.
    lost_s : float
        What the mode chosen took in forced runs, less the fastest; 0 where that is within ``CLOSE_SHARE``, or where one
        of its runs was as fast as the fastest mode mostly is: then the difference is chance.
    untrained_s, trained_s : dict of mode to float
        What was predicted before any run, and after three.
    reason : str
        ``auto``'s.
    """

    id: int
    title: str
    operator: str
    seconds: dict[str, float]
    auto_mode: str
    auto_s: float
    best_mode: str
    lost_s: float
    untrained_s: dict[str, float]
    trained_s: dict[str, float]
    reason: str


@dataclass(slots=True)
class CopReview:
    """How both kinds of device shared a query in forced ``cop``.

    Attributes
    ----------
    ideal_s : float
        T_C * T_G / (T_C + T_G) of the whole query.
    of_ideal : float
        That over what ``cop`` took.
    of_better : float
        The better of ``cpu`` and ``gpu`` over what ``cop`` took: below 1, sharing lost.
    stage_of_ideal : float or None
        As ``of_ideal``, of the stage that takes most time and was really shared.
    idle_s : float
        Between the end of the first slot to finish that stage's chunks, and the last.
    idle_chunks : float
        ``idle_s`` in chunks of the last to finish.
    """

    ideal_s: float
    of_ideal: float
    of_better: float
    stage_of_ideal: float | None = None
    idle_s: float = 0.0
    idle_chunks: float = 0.0


@dataclass(slots=True)
class PlanReview:
    """One query.

    Attributes
    ----------
    seconds : dict of mode to float
        Medians: ``cpu``, ``gpu``, ``cop`` and ``auto``.
    first_s : float
        The first run in ``auto``.
    best : str
        The fastest forced mode.
    regret_s, regret : float
        What ``auto`` took longer than that, in seconds and as a share of it; negative: it was faster.
    close : bool
        Within ``CLOSE_SHARE`` or ``CLOSE_S``.
    first_close : bool
        The first run was within ``FIRST_SHARE`` or ``CLOSE_S``.
    oracle_lost_s : float
        Sum over the stages of what ``auto`` took longer than the fastest forced mode of each stage.
    """

    plan: str
    seconds: dict[str, float]
    first_s: float
    best: str
    regret_s: float
    regret: float
    close: bool
    first_close: bool
    oracle_lost_s: float
    cop: CopReview
    stages: list[StageReview]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return asdict(self)


@dataclass(slots=True)
class Summary:
    """All queries together.

    Attributes
    ----------
    plans, close, first_close : int
        Queries, and those of which ``auto`` is as good as the best forced mode (later, and at its first run).
    improvement : dict of mode to float
        HyPE's model improvement of ``auto`` over always ``cpu`` and always ``gpu``, over all queries.
    improvement_per_plan : dict of mode to dict of plan to float
    wrong : int
        Stages in a mode that is not the best.
    stages : int
    wrong_share : float
        The seconds that wrong choices lose, of the seconds of all stages in their best modes.
    errors : dict of str to dict of str to float
        Median relative error of predicted stage times by operator (and ``all``): ``untrained``, ``trained``, and
        ``stages``, the number of times compared when untrained.
    ordered : dict of str to float
        Of the pairs of modes that differ by more than ``DIFFERENT``, the share predicted in the right order:
        ``untrained``, ``trained``, and ``pairs``.
    """

    plans: int
    close: int
    first_close: int
    improvement: dict[str, float]
    improvement_per_plan: dict[str, dict[str, float]]
    wrong: int
    stages: int
    wrong_share: float
    errors: dict[str, dict[str, float]]
    ordered: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return asdict(self)


def operator_of(stage: Stage) -> str:
    """Return what a stage does, in a word or two: ``join, aggregate``."""
    joins = any(isinstance(step, ProbeStep) for branch in stage.branches for step in branch.pipeline.steps)
    return ("join, " if joins else "") + SINKS.get(type(stage.pipeline.sink), "other")


def review(runs: Runs) -> PlanReview:
    """Judge one query's runs; each mode must have at least one."""
    seconds = {mode: statistics.median(taken for taken, _ in each) for mode, each in runs.forced.items()}
    best = min(seconds, key=lambda mode: seconds[mode])
    better = min(seconds["cpu"], seconds["gpu"])
    auto = statistics.median(taken for taken, _ in runs.settled)
    stages = [_review_stage(runs, stage) for stage in runs.operators]
    return PlanReview(
        plan=runs.plan,
        seconds={**seconds, "auto": auto},
        first_s=runs.first[0],
        best=best,
        regret_s=auto - seconds[best],
        regret=auto / seconds[best] - 1,
        close=auto - seconds[best] <= max(CLOSE_S, CLOSE_SHARE * seconds[best]),
        first_close=runs.first[0] - seconds[best] <= max(CLOSE_S, FIRST_SHARE * seconds[best]),
        oracle_lost_s=sum(stage.auto_s - min(stage.seconds.values()) for stage in stages),
        cop=_review_cop(runs, seconds, better, stages),
        stages=stages,
    )


def _review_stage(runs: Runs, number: int) -> StageReview:
    seconds = {mode: _actual([report for _, report in each], number) for mode, each in runs.forced.items()}
    best = min(seconds, key=lambda mode: seconds[mode])
    entries = [entry_of(report, number) for _, report in runs.settled]
    chosen, _ = Counter(entry.mode for entry in entries).most_common(1)[0]
    name = next(mode for mode, stage_mode in FORCED.items() if stage_mode == chosen)
    lost = seconds[name] - seconds[best]
    luckiest = min(stage_seconds(report, number) for _, report in runs.forced[name])
    is_wrong = lost > CLOSE_SHARE * seconds[best] and luckiest > seconds[best]
    first = entry_of(runs.first[1], number)
    # What a device cannot do ran on the other, whatever was asked for: no prediction of it can be judged.
    able = [mode for mode, each in runs.forced.items() if entry_of(each[0][1], number).mode == FORCED[mode]]
    trained: dict[str, float] = {}
    for mode in able:
        predicted = [_predicted(entry_of(report, number)).get(mode) for report in runs.trained[mode]]
        known = [value for value in predicted if value is not None]
        if known:
            trained[mode] = statistics.median(known)
    return StageReview(
        id=number,
        title=first.title,
        operator=runs.operators[number],
        seconds=seconds,
        auto_mode=name,
        auto_s=_actual([report for _, report in runs.settled], number),
        best_mode=best,
        lost_s=lost if is_wrong else 0.0,
        untrained_s={mode: value for mode, value in _predicted(first).items() if mode in able},
        trained_s=trained,
        reason=next(entry.reason for entry in entries if entry.mode == chosen),
    )


def _actual(reports: Sequence[Report], number: int) -> float:
    return statistics.median(stage_seconds(report, number) for report in reports)


def _predicted(entry: StageReport) -> dict[str, float]:
    by_mode = {each.mode: each.seconds for each in entry.predictions}
    return {mode: by_mode[stage_mode] for mode, stage_mode in FORCED.items() if stage_mode in by_mode}


def _review_cop(runs: Runs, seconds: Mapping[str, float], better: float, stages: Sequence[StageReview]) -> CopReview:
    ideal = seconds["cpu"] * seconds["gpu"] / (seconds["cpu"] + seconds["gpu"])
    found = CopReview(ideal, ideal / seconds["cop"], better / seconds["cop"])
    reports = [report for _, report in runs.forced["cop"]]
    for stage in sorted(stages, key=lambda each: each.seconds["cop"], reverse=True):
        idle = [idle_at_end(entry_of(report, stage.id).spans) for report in reports]
        known = [each for each in idle if each is not None]
        if known:
            cpu, gpu = stage.seconds["cpu"], stage.seconds["gpu"]
            found.stage_of_ideal = cpu * gpu / (cpu + gpu) / stage.seconds["cop"]
            found.idle_s = statistics.median(seconds for seconds, _ in known)
            found.idle_chunks = statistics.median(chunks for _, chunks in known)
            break
    return found


def idle_at_end(spans: Sequence[Span]) -> tuple[float, float] | None:
    """Return how long the first worker to finish waits for the last, in seconds and in chunks of the last.

    ``None``: not both kinds of device worked on the stage.
    """
    chunks = [span for span in spans if span.what == "chunk"]
    if len({span.kind for span in chunks}) < 2:
        return None
    last: dict[str, Span] = {}
    for span in chunks:
        known = last.get(span.worker)
        if known is None or _end(span) > _end(known):
            last[span.worker] = span
    slowest = max(last.values(), key=_end)
    idle = _end(slowest) - min(_end(span) for span in last.values())
    return idle, idle / max(slowest.seconds, 1e-9)


def _end(span: Span) -> float:
    return span.start_s + span.seconds


def summarize(reviews: Sequence[PlanReview]) -> Summary:
    """Judge all queries together; there must be at least one."""
    stages = [stage for each in reviews for stage in each.stages]
    operators = sorted({stage.operator for stage in stages})
    errors = {name: _errors([stage for stage in stages if stage.operator == name]) for name in operators}
    best = sum(min(stage.seconds.values()) for stage in stages)
    improvement, per_plan = {}, {}
    for mode in ("cpu", "gpu"):
        old = sum(each.seconds[mode] for each in reviews)
        improvement[mode] = model_improvement(old, sum(each.seconds["auto"] for each in reviews))
        per_plan[mode] = {
            each.plan: model_improvement(each.seconds[mode], each.seconds["auto"]) for each in reviews
        }  # fmt: skip
    return Summary(
        plans=len(reviews),
        close=sum(each.close for each in reviews),
        first_close=sum(each.first_close for each in reviews),
        improvement=improvement,
        improvement_per_plan=per_plan,
        wrong=sum(stage.lost_s > 0 for stage in stages),
        stages=len(stages),
        wrong_share=sum(stage.lost_s for stage in stages) / max(best, 1e-9),
        errors={**errors, "all": _errors(stages)},
        ordered=_ordered(stages),
    )


def model_improvement(old_s: float, new_s: float) -> float:
    """Return the share of ``old_s`` that a rule saves which takes ``new_s`` (HyPE, equation 6.5).

    >>> model_improvement(4.0, 1.0), model_improvement(1.0, 1.5)
    (0.75, -0.5)
    """
    return (old_s - new_s) / old_s


def _errors(stages: Sequence[StageReview]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in ("untrained", "trained"):
        errors = [
            abs(predicted - stage.seconds[mode]) / stage.seconds[mode]
            for stage in stages
            for mode, predicted in getattr(stage, f"{name}_s").items()
            if stage.seconds[mode] >= LEAST_STAGE_S
        ]
        if errors:
            found[name] = statistics.median(errors)
            found.setdefault("stages", len(errors))
    return found


def _ordered(stages: Sequence[StageReview]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in ("untrained", "trained"):
        right = pairs = 0
        for stage in stages:
            predicted: Mapping[str, float] = getattr(stage, f"{name}_s")
            for first, second in (("cpu", "gpu"), ("cpu", "cop"), ("gpu", "cop")):
                if first not in predicted or second not in predicted:
                    continue
                low, high = sorted((stage.seconds[first], stage.seconds[second]))
                if high < LEAST_STAGE_S or high - low <= DIFFERENT * low:
                    continue
                pairs += 1
                slower = stage.seconds[first] > stage.seconds[second]
                right += (predicted[first] > predicted[second]) == slower
        if pairs:
            found[name] = right / pairs
            found.setdefault("pairs", pairs)
    return found
