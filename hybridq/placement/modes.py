"""Chooses, for each stage, the devices that may run it: EXEC_CPU, EXEC_GPU or EXEC_COP (both at the same time)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hybridq.config import Config
from hybridq.errors import ConfigurationError, DeviceUnavailable, FallbackForbidden
from hybridq.physical.pipeline import Stage, TableSource
from hybridq.placement.support import unsupported
from hybridq.report import Fallback, StageReport
from hybridq.topology import Kind

Mode = Literal["auto", "cpu", "gpu", "cop"]
StageMode = Literal["EXEC_CPU", "EXEC_GPU", "EXEC_COP"]

MODES: tuple[Mode, ...] = ("auto", "cpu", "gpu", "cop")

_KINDS: Mapping[StageMode, tuple[Kind, ...]] = {
    "EXEC_CPU": ("cpu",),
    "EXEC_GPU": ("gpu",),
    "EXEC_COP": ("gpu", "cpu"),
}
_OTHER: Mapping[tuple[Kind, ...], tuple[Kind, ...]] = {("cpu",): ("gpu",), ("gpu",): ("cpu",), ("gpu", "cpu"): ()}
_FORCED: Mapping[Mode, StageMode] = {"cpu": "EXEC_CPU", "gpu": "EXEC_GPU", "cop": "EXEC_COP"}


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
    """

    stage: int
    mode: StageMode
    reason: str
    forced: bool = False
    predicted_s: float | None = None
    fallback: str | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds of device that may run the stage's chunks."""
        return _KINDS[self.mode]

    def report(self, title: str) -> StageReport:
        """Begin the report of the stage."""
        found = StageReport(self.stage, title, self.mode, self.reason, self.predicted_s)
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
    stages: Sequence[Stage], mode: Mode, slots: Mapping[Kind, int], config: Config, strict: bool = False
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

    Raises
    ------
    DeviceUnavailable
        The mode, or what a stage computes, needs a kind of device that the cluster does not have.
    FallbackForbidden
        A stage cannot run in the mode asked for, and ``strict`` forbids another.
    """
    _require(mode, slots)
    if mode == "auto":
        found = [_automatic(stage, slots, config) for stage in stages]
    else:
        reason = f"asked for by mode={mode}"
        found = [Decision(stage.id, _FORCED[mode], reason, forced=True) for stage in stages]
    return tuple(_possible(decision, stage, slots, strict) for decision, stage in zip(found, stages, strict=True))


def _possible(decision: Decision, stage: Stage, slots: Mapping[Kind, int], strict: bool) -> Decision:
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
    return replace(decision, mode=mode, reason=cause, forced=False, fallback=cause if decision.forced else None)


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


def _automatic(stage: Stage, slots: Mapping[Kind, int], config: Config) -> Decision:
    if not slots.get("gpu"):
        return Decision(stage.id, "EXEC_CPU", "the cluster has no GPU worker")
    if not slots.get("cpu"):
        return Decision(stage.id, "EXEC_GPU", "the cluster has no CPU worker")
    if not any(isinstance(branch.pipeline.source, TableSource) for branch in stage.branches):
        return Decision(stage.id, "EXEC_CPU", "its input is the result of an earlier stage, one chunk on a CPU worker")
    if stage.input_rows <= config.cpu_chunk_rows:
        return Decision(
            stage.id,
            "EXEC_CPU",
            f"its input of {stage.input_rows} rows is a single CPU chunk (up to {config.cpu_chunk_rows} rows)",
        )
    return Decision(
        stage.id,
        "EXEC_COP",
        f"its {stage.input_rows} rows are pulled by both kinds of device, in chunks sized by the cost ratio that the "
        "first ones show",
    )
