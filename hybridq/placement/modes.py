"""Chooses, for each stage, the devices that may run it: EXEC_CPU, EXEC_GPU or EXEC_COP (both at the same time)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hybridq.config import Config
from hybridq.errors import ConfigurationError, DeviceUnavailable
from hybridq.physical.pipeline import Stage, TableSource
from hybridq.topology import Kind

Mode = Literal["auto", "cpu", "gpu", "cop"]
StageMode = Literal["EXEC_CPU", "EXEC_GPU", "EXEC_COP"]

MODES: tuple[Mode, ...] = ("auto", "cpu", "gpu", "cop")

_KINDS: Mapping[StageMode, tuple[Kind, ...]] = {
    "EXEC_CPU": ("cpu",),
    "EXEC_GPU": ("gpu",),
    "EXEC_COP": ("gpu", "cpu"),
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
    """

    stage: int
    mode: StageMode
    reason: str
    forced: bool = False
    predicted_s: float | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds of device that may run the stage's chunks."""
        return _KINDS[self.mode]


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


def decide(stages: Sequence[Stage], mode: Mode, slots: Mapping[Kind, int], config: Config) -> tuple[Decision, ...]:
    """Choose a mode for each stage.

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

    Raises
    ------
    DeviceUnavailable
        The mode needs a kind of device that the cluster does not have.
    """
    _require(mode, slots)
    if mode == "auto":
        return tuple(_automatic(stage, slots, config) for stage in stages)
    forced: Mapping[str, StageMode] = {"cpu": "EXEC_CPU", "gpu": "EXEC_GPU", "cop": "EXEC_COP"}
    return tuple(Decision(stage.id, forced[mode], f"asked for by mode={mode}", forced=True) for stage in stages)


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
    if not isinstance(stage.pipeline.source, TableSource):
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
