"""Chooses, for each stage, the devices that may run it: EXEC_CPU, EXEC_GPU or EXEC_COP (both at the same time)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from hybridq.config import Config
from hybridq.errors import ConfigurationError, DeviceUnavailable, FallbackForbidden
from hybridq.physical.pipeline import BroadcastBuild, PartitionSource, RangeSource, Stage, TableSource
from hybridq.placement.choice import Choice, Option, StageMode, choose, fetching_seconds, total_seconds
from hybridq.placement.passing_on import FETCH_S, NETWORK_BYTES_PER_S
from hybridq.placement.predict import StagePrediction
from hybridq.placement.stage_times import KINDS
from hybridq.placement.support import unsupported
from hybridq.report import Fallback, ModePrediction, StageReport
from hybridq.topology import Kind

Mode = Literal["auto", "cpu", "gpu", "cop"]
MODES: tuple[Mode, ...] = ("auto", "cpu", "gpu", "cop")

_OTHER: Mapping[tuple[Kind, ...], tuple[Kind, ...]] = {("cpu",): ("gpu",), ("gpu",): ("cpu",), ("gpu", "cpu"): ()}
_FORCED: Mapping[Mode, StageMode] = {"cpu": "EXEC_CPU", "gpu": "EXEC_GPU", "cop": "EXEC_COP"}

WORTH_SPLITTING = 0.98
"""Both kinds of device work on a stage together only if that is expected to take at most this part of the better."""

WORTH_MOVING = 0.8
"""A stage leaves the CPU, where its input is or where it is a single chunk, only for this part of the time."""

WORTH_MOVING_S = 0.005
"""... and for at least so many seconds."""

WORTH_SHARING_S = 0.01
"""A stage that is a single CPU chunk is shared only if that saves so many seconds."""

MAY_BE_LOST_S = 0.04
"""A stage is shared because that was asked for although it is expected to take so many seconds longer."""

SECTION_WORDS: Mapping[str, str] = {
    "read": "reading", "in": "moving data to it", "build": "making build sides", "probe": "joining",
    "compute": "computing", "out": "moving results back", "queue": "handing out chunks", "merge": "merging",
}  # fmt: skip

SINGLE: tuple[tuple[Kind, StageMode], ...] = (("cpu", "EXEC_CPU"), ("gpu", "EXEC_GPU"))

WORDS: Mapping[StageMode, str] = {
    "EXEC_CPU": "on the CPU",
    "EXEC_GPU": "on the GPU",
    "EXEC_COP": "on both",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a stage runs, and why.

    Attributes
    ----------
    stage : int
    mode : str
        ``EXEC_CPU``, ``EXEC_GPU`` or ``EXEC_COP``.
    reason : str
        One sentence.
    forced : bool
        The user asked for this mode; it is not left because another looks better.
    predicted_s : float or None
        Seconds, where there is ground for a prediction before the stage has started.
    fallback : str or None
        Why the stage does not run in the mode that was asked for.
    prediction : StagePrediction or None
        What each mode is expected to take.
    seconds_per_row : mapping of kind to float
        Of one slot, where that is known well enough to size chunks by.
    cpu_slots : int
        CPU slots to work beside the GPU; 0: all.
    reserve : str or None
        A kind that the stage does not use, but may while it runs, if the choice turns out to be wrong.
    try_reserve : bool
        Too little is known of that kind: it is to be tried.
    unit_rows : float
        Rows of the smallest piece of its input.
    """

    stage: int
    mode: StageMode
    reason: str
    forced: bool = False
    predicted_s: float | None = None
    fallback: str | None = None
    prediction: StagePrediction | None = None
    seconds_per_row: Mapping[Kind, float] = field(default_factory=dict)
    cpu_slots: int = 0
    reserve: Kind | None = None
    try_reserve: bool = False
    unit_rows: float = 1.0

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds of device that may run the stage's chunks."""
        return KINDS[self.mode]

    def report(self, title: str, input_rows: int = 0) -> StageReport:
        """Begin the report of the stage.

        Parameters
        ----------
        title : str
        input_rows : int
            Of the tables that it reads, which no chunk has more than; 0: it reads earlier stages.
        """
        found = StageReport(self.stage, title, self.mode, self.reason, self.predicted_s)
        if self.prediction is not None:
            found.basis = self.prediction.basis
            found.break_even_rows = self.prediction.break_even_rows
            found.predictions = [
                ModePrediction(
                    mode,
                    each.seconds,
                    dict(each.sections),
                    {str(kind): min(rows, input_rows or rows) for kind, rows in each.chunk_rows.items()},
                    each.cpu_slots,
                )
                for mode, each in self.prediction.modes.items()
            ]
        if self.fallback is not None:
            found.fallbacks.append(Fallback(None, self.fallback, f"the stage runs as {self.mode}"))
        return found


def check_mode(mode: str) -> Mode:
    """Return the mode if it is one.

    Raises
    ------
    ConfigurationError
        There is no such mode.
    """
    for known in MODES:
        if mode == known:
            return known
    raise ConfigurationError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")


def decide(
    stages: Sequence[Stage],
    mode: Mode,
    slots: Mapping[Kind, int],
    config: Config,
    strict: bool = False,
    predictions: Mapping[int, StagePrediction] | None = None,
) -> tuple[Decision, ...]:
    """Choose a mode for each stage.

    A stage with something that one kind of device cannot do runs on the other kind.

    Parameters
    ----------
    stages : sequence of Stage
        The query's stages.
    mode : str
        ``auto``, or a mode that every stage is forced to.
    slots : mapping of kind to int
        Chunks that the devices of each kind work on at the same time; kinds that the cluster lacks are left out.
    config : Config
        Gives the size of a CPU chunk.
    strict : bool
        A stage that cannot run in the mode asked for is an error.
    predictions : mapping of stage to StagePrediction, optional
        What each mode is expected to take.

    Raises
    ------
    DeviceUnavailable
        The mode, or what a stage computes, needs a kind of device that the cluster does not have.
    FallbackForbidden
        A stage cannot run in the mode asked for, and ``strict`` forbids another.
    """
    _require(mode, slots)
    known = predictions or {}
    if mode == "auto":
        found = _automatic(stages, slots, config, known)
    else:
        reason = f"asked for by mode={mode}"
        found = [Decision(stage.id, _FORCED[mode], reason, forced=True) for stage in stages]
        if mode == "cop":
            found = _worth_sharing(found, stages, known)
    possible = [
        _possible(decision, stage, slots, strict, known.get(stage.id))
        for decision, stage in zip(found, stages, strict=True)
    ]
    return tuple(
        _with_prediction(decision, stage, known.get(decision.stage))
        for decision, stage in zip(possible, stages, strict=True)
    )


def _with_prediction(decision: Decision, stage: Stage, prediction: StagePrediction | None) -> Decision:
    """Put what is expected into a decision, where it helps to hand out chunks."""
    if prediction is None:
        return decision
    expected = prediction.modes.get(decision.mode)
    reserve = _reserve(decision, stage, prediction)
    return replace(
        decision,
        prediction=prediction,
        predicted_s=None if expected is None else expected.seconds,
        seconds_per_row=prediction.seconds_per_row if prediction.confident else {},
        cpu_slots=expected.cpu_slots if expected is not None and decision.mode == "EXEC_COP" else 0,
        reserve=reserve,
        try_reserve=prediction.probe_due or (prediction.untried and reserve not in prediction.trusted),
        unit_rows=prediction.unit_rows,
    )


def _reserve(decision: Decision, stage: Stage, prediction: StagePrediction) -> Kind | None:
    """Return the kind that a stage leaves out because it is expected to be slower, not because it cannot be used."""
    if decision.forced or decision.mode == "EXEC_COP" or not prediction.confident:
        return None
    other: Kind = "gpu" if decision.mode == "EXEC_CPU" else "cpu"
    return other if other in prediction.seconds_per_row and unsupported(stage, other) is None else None


def _possible(
    decision: Decision, stage: Stage, slots: Mapping[Kind, int], strict: bool, prediction: StagePrediction | None
) -> Decision:
    """Leave out the kinds of device that cannot run the stage."""
    lacking = {kind: reason for kind in decision.kinds if (reason := unsupported(stage, kind)) is not None}
    if not lacking:
        return decision
    cause = "; ".join(lacking.values())
    able: tuple[Kind, ...] = tuple(kind for kind in decision.kinds if kind not in lacking)
    if not able:
        able = tuple(kind for kind in _OTHER[decision.kinds] if slots.get(kind) and unsupported(stage, kind) is None)
    if not able:
        raise DeviceUnavailable(f"stage {stage.id} ({stage.title}) cannot run on the devices that are there: {cause}")
    if strict and decision.forced:
        raise FallbackForbidden(
            f"stage {stage.id} ({stage.title}) cannot run as {decision.mode}, and strict forbids another way: {cause}"
        )
    mode: StageMode = "EXEC_GPU" if able == ("gpu",) else "EXEC_CPU"
    expected = None if prediction is None else prediction.modes.get(mode)
    seconds = "" if expected is None else f"; {expected.seconds:.3g} s expected {WORDS[mode]}"
    reason = f"{cause}{seconds}"
    return replace(decision, mode=mode, reason=reason, forced=False, fallback=cause if decision.forced else None)


def _require(mode: Mode, slots: Mapping[Kind, int]) -> None:
    wanted: Mapping[Mode, tuple[Kind, ...]] = {"auto": (), "cpu": ("cpu",), "gpu": ("gpu",), "cop": ("cpu", "gpu")}
    missing = [kind for kind in wanted[mode] if not slots.get(kind)]
    if not missing:
        if not any(slots.values()):
            raise DeviceUnavailable("the cluster has no usable workers")
        return
    there = ", ".join(f"{kind.upper()} workers" for kind in slots) or "no usable workers"
    advice = (
        "; cluster/simulated.yaml starts a simulated GPU, and no worker that declares the resource GPU has joined"
        if "gpu" in missing
        else "; start one with --resources CPU=N"
    )
    kinds = " and no ".join(f"{kind.upper()} worker" for kind in missing)
    raise DeviceUnavailable(f"mode={mode} needs what the cluster does not have: no {kinds} (it has {there}){advice}")


def _automatic(
    stages: Sequence[Stage], slots: Mapping[Kind, int], config: Config, predictions: Mapping[int, StagePrediction]
) -> list[Decision]:
    """Choose for all stages: by what is expected where there is ground for it, else by rules that are safe."""
    by_id = {stage.id: stage for stage in stages}
    found = [_by_rule(stage, by_id, slots, config) for stage in stages]
    confident = {number: each for number, each in predictions.items() if each.confident}
    if not confident or not (slots.get("cpu") and slots.get("gpu")):
        return found
    rules = {rule.stage: rule for rule in found}
    plan = [
        _choice(stage, stages, _options(stage, rules[stage.id], confident.get(stage.id), config)) for stage in stages
    ]
    modes = choose(plan)
    for position, stage in enumerate(stages):
        prediction, mode = confident.get(stage.id), modes[stage.id]
        if prediction is not None and mode in prediction.modes:
            small = rules[stage.id].mode == "EXEC_CPU"
            reason = _reason(mode, prediction) + _why_not_faster(stage, plan, modes, prediction, small)
            found[position] = Decision(stage.id, mode, reason)
    return found


def _choice(stage: Stage, stages: Sequence[Stage], options: Mapping[StageMode, Option]) -> Choice:
    whole = {build.stage for branch in stage.branches for build in branch.builds if isinstance(build, BroadcastBuild)}
    is_read = any(stage.id in other.dependencies for other in stages)  # an answer goes to the client in any case
    moving = is_read * FETCH_S + stage.estimated_bytes / NETWORK_BYTES_PER_S
    return Choice(stage.id, stage.dependencies, options, moving, tuple(sorted(whole)))


def expected_fetching(
    stages: Sequence[Stage], modes: Mapping[int, StageMode], places: Mapping[int, Kind]
) -> dict[int, float]:
    """Return the seconds in which stages that run in some mode are expected to fetch what they read.

    Parameters
    ----------
    stages : sequence of Stage
    modes : mapping of stage to mode
    places : mapping of stage to kind
        Where their outputs are.
    """
    plan = {stage.id: _choice(stage, stages, {}) for stage in stages}
    single: dict[StageMode, Kind] = {mode: kind for kind, mode in SINGLE}
    return {number: fetching_seconds(plan[number], single.get(mode), plan, places) for number, mode in modes.items()}


def _worth_sharing(
    asked: Sequence[Decision], stages: Sequence[Stage], predictions: Mapping[int, StagePrediction]
) -> list[Decision]:
    """Leave a kind of device out of the stages that both together are expected to take longer over.

    That they are asked to work together is no reason to let one hold up the other: what it costs to bring build sides
    to both, and to merge what lies on both, counts. A few milliseconds do not.
    """
    confident = {number: each for number, each in predictions.items() if each.confident}
    if not confident:
        return list(asked)
    plan = []
    for stage in stages:
        options: dict[StageMode, Option] = {"EXEC_COP": Option(0.0, None, "cpu")}
        prediction = confident.get(stage.id)
        if prediction is not None:
            options = _all_options(stage, prediction)
            alone = [option for mode, option in options.items() if mode != "EXEC_COP"]
            both = options.get("EXEC_COP") or min(
                alone, key=lambda option: option.seconds, default=Option(0, None, "cpu")
            )
            margin = max(MAY_BE_LOST_S, both.seconds * (1 - WORTH_SPLITTING))
            options["EXEC_COP"] = replace(both, seconds=both.seconds - margin)
        plan.append(_choice(stage, stages, options))
    modes = choose(plan)
    found = []
    for decision in asked:
        mode = modes[decision.stage]
        if mode != "EXEC_COP":
            left_out = "GPU" if mode == "EXEC_CPU" else "CPU"
            reason = f"{decision.reason}, but the {left_out} is left out: {_reason(mode, confident[decision.stage])}"
            decision = Decision(decision.stage, mode, reason)
        found.append(decision)
    return found


def _all_options(stage: Stage, prediction: StagePrediction) -> dict[StageMode, Option]:
    """Return the modes that a stage can run in, with their seconds."""
    possible = {kind for kind, _ in SINGLE if unsupported(stage, kind) is None}
    places: dict[StageMode, Kind] = {single: kind for kind, single in SINGLE}
    return {
        mode: Option(each.seconds, places.get(mode), places.get(mode, each.leaves_at))
        for mode, each in prediction.modes.items()
        if possible.issuperset(KINDS[mode])
    }


def _options(
    stage: Stage, rule: Decision, prediction: StagePrediction | None, config: Config
) -> Mapping[StageMode, Option]:
    """Return the modes that a stage may be given, with their seconds."""
    if prediction is None or "EXEC_CPU" not in prediction.modes:
        return {rule.mode: Option(rule.predicted_s or 0.0, None, "gpu" if rule.mode == "EXEC_GPU" else "cpu")}
    options = _all_options(stage, prediction)
    seconds = {mode: each.seconds for mode, each in options.items()}
    better = min((seconds[mode] for mode in ("EXEC_CPU", "EXEC_GPU") if mode in seconds), default=0.0)
    small = rule.mode == "EXEC_CPU"
    limit = better * WORTH_SPLITTING - (WORTH_SHARING_S if small else 0.0)
    if seconds.get("EXEC_COP", 0.0) > limit:
        options.pop("EXEC_COP", None)
    cpu = seconds.get("EXEC_CPU")
    if small and cpu is not None and not (
        seconds.get("EXEC_GPU", cpu) < min(cpu * WORTH_MOVING, cpu - WORTH_MOVING_S)
    ):  # fmt: skip
        options.pop("EXEC_GPU", None)
    return options or {rule.mode: Option(0.0, None, "cpu")}


def _reason(mode: StageMode, prediction: StagePrediction) -> str:
    """Say in one sentence, with numbers, why a mode was chosen."""
    chosen = prediction.modes[mode]
    others = [f"{each.seconds:.3g} s {WORDS[other]}" for other, each in prediction.modes.items() if other != mode]
    text = f"{chosen.seconds:.3g} s expected {WORDS[mode]}"
    if others:
        text += f", {' and '.join(others)}"
    elif prediction.infeasible is not None:
        text += f"; {prediction.infeasible}"
    if mode == "EXEC_CPU" and "EXEC_GPU" in prediction.modes:
        gpu = prediction.modes["EXEC_GPU"].sections
        part = max(gpu, key=lambda name: gpu[name])
        text += f" (there {gpu[part]:.3g} s of {SECTION_WORDS[part]})"
    if prediction.undivided is not None:
        text += f", not to be shared as {prediction.undivided}"
    return f"{text}, from {prediction.basis}"


def _why_not_faster(
    stage: Stage, plan: Sequence[Choice], modes: Mapping[int, StageMode], prediction: StagePrediction, small: bool
) -> str:
    """Say why a stage does not run in the mode that would take it least time, with numbers; empty: it does."""
    mode, choice = modes[stage.id], next(each for each in plan if each.id == stage.id)
    seconds = {other: option.seconds for other, option in _all_options(stage, prediction).items()}
    fastest = min(seconds, key=lambda other: seconds[other])
    saved = seconds[mode] - seconds[fastest]
    if saved <= 0:
        return ""
    if fastest in choice.options:
        more = total_seconds(plan, {**modes, stage.id: fastest}) - total_seconds(plan, modes)
        return f"; {WORDS[fastest]} the whole query would take {more:.3g} s more, for what has to be brought there"
    least = f"{1 - WORTH_SPLITTING:.0%}"
    if small:
        shared = fastest == "EXEC_COP"
        part, floor = (WORTH_SPLITTING, WORTH_SHARING_S) if shared else (WORTH_MOVING, WORTH_MOVING_S)
        least = f"{1 - part:.0%} and {floor:g} s, for a stage of one CPU chunk,"
    return f"; {WORDS[fastest]} it would save {saved:.3g} s, and less than {least} is not enough"


def _by_rule(stage: Stage, stages: Mapping[int, Stage], slots: Mapping[Kind, int], config: Config) -> Decision:
    """Choose without knowing what anything takes."""
    if not slots.get("gpu"):
        return Decision(stage.id, "EXEC_CPU", f"the cluster has {slots.get('cpu', 0)} CPU slots and no GPU worker")
    if not slots.get("cpu"):
        return Decision(stage.id, "EXEC_GPU", f"the cluster has {slots.get('gpu', 0)} GPU slots and no CPU worker")
    cut = TableSource | PartitionSource | RangeSource
    if not any(isinstance(branch.pipeline.source, cut) for branch in stage.branches):
        rows = sum(stages[number].estimated_rows for number in stage.dependencies)
        reason = f"its input, some {rows:,} rows of earlier stages, is one chunk on a CPU worker"
        return Decision(stage.id, "EXEC_CPU", reason)
    if stage.input_rows <= config.cpu_chunk_rows:
        return Decision(
            stage.id,
            "EXEC_CPU",
            f"its input of {stage.input_rows:,} rows is a single CPU chunk (up to {config.cpu_chunk_rows:,} rows)",
        )
    return Decision(
        stage.id,
        "EXEC_COP",
        f"its {stage.input_rows:,} rows are pulled by both kinds of device, in chunks sized by the cost ratio that the "
        "first ones show",
    )
