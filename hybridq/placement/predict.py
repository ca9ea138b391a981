"""How long a stage will take in each mode: T = read + in + compute + out + queue, on one device or on both.

After He et al. (ACM TODS 2009, sections 4 and 5), with what a chunk takes on each kind of device from the profile,
corrected by what chunks of the same pipeline have taken before. Where a device reads one chunk while it computes
another, the larger of the two counts, not the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from hybridq.placement.choice import StageMode
from hybridq.placement.cost import SMALLEST_CHUNK_ROWS
from hybridq.placement.curves import LEAST_SECONDS, break_even
from hybridq.placement.learned import Learned, merging_of
from hybridq.placement.passing_on import GPU_MERGE_ROWS, NETWORK_BYTES_PER_S, merging_kind
from hybridq.placement.profile import Profile
from hybridq.placement.work import Work
from hybridq.topology import Kind

CONTENTION = 1.25
"""How much the CPU's work slows a GPU's feed: 1 + CONTENTION * share ** 3, share being that of the cores at work on
chunks of their own. With 6 of 16 cores a GPU's reading took 1.08 times as long, with 12 of 16 1.5 times."""

SHARING_S = 0.02
"""What it costs that both kinds of device work on a stage: its first chunks wait for a question to the scheduler, and
each device some milliseconds between two of its chunks."""

MOST_CORRECTION = 2.0
"""What one kind of device shows of a pipeline corrects the other's prediction by at most this factor, either way: a CPU
that is slow while its loops are compiled says nothing about a GPU."""

MODES: tuple[StageMode, ...] = ("EXEC_CPU", "EXEC_GPU", "EXEC_COP")

BREAK_EVEN_SIZES = tuple(float(2**power) for power in range(10, 31, 2))


@dataclass(frozen=True, slots=True)
class Resources:
    """What a cluster has for a stage.

    Attributes
    ----------
    slots : mapping of kind to int
        Chunks that all devices of a kind work on at the same time.
    chunk_rows : mapping of kind to int
        Rows that a chunk of each kind aims at; the GPU's is c0.
    gpu_fits : callable
        Rows that fit a GPU, given the decoded bytes of a row; ``None``: no bound is known.
    resident : set of (table, column)
        Columns that are decoded in the GPU's memory.
    gpu_threads : int
        Chunks that one GPU works on at the same time: they share it.
    """

    slots: Mapping[Kind, int]
    chunk_rows: Mapping[Kind, int]
    gpu_fits: Callable[[float], int | None] = lambda row_bytes: None
    resident: AbstractSet[tuple[str, str]] = frozenset()
    gpu_threads: int = 2


@dataclass(frozen=True, slots=True)
class Prediction:
    """A stage in one mode.

    Attributes
    ----------
    mode : str
    seconds : float
    sections : mapping of str to float
        Parts of the seconds: ``read``, ``in``, ``build``, ``probe``, ``compute``, ``out``, ``queue``, ``merge``. With
        overlap they add up to more.
    chunk_rows : mapping of kind to int
        Of a chunk: c0 on the GPU and c0 * p on the CPU, where both work.
    cpu_slots : int
        CPU slots at work.
    leaves_at : str
        Kind of worker that its output is then on.
    seen : bool
        The seconds are what the whole stage has taken in this mode before, without fetching what it reads.
    """

    mode: StageMode
    seconds: float
    sections: Mapping[str, float]
    chunk_rows: Mapping[Kind, int]
    cpu_slots: int = 0
    leaves_at: Kind = "cpu"
    seen: bool = False


@dataclass(frozen=True, slots=True)
class StagePrediction:
    """A stage in all modes that the cluster and its memory allow.

    Attributes
    ----------
    modes : mapping of mode to Prediction
    trusted : frozenset of kind
        Kinds whose seconds come from chunks of this pipeline that have run.
    measured : bool
        The others come from a measured profile, not from assumptions.
    seconds_per_row : mapping of kind to float
        Of one slot, in chunks of the usual size.
    break_even_rows : float or None
        Rows from which the GPU is faster than the CPU, if that was asked for.
    infeasible : str or None
        Why the GPU cannot run it.
    undivided : str or None
        Why both kinds cannot share it.
    rows, unit_rows : float
        Of the input if it is a table, and of its smallest piece; else 0.
    probe_due : bool
        A kind that the stage does not use has not been tried for a while.
    untried : bool
        ... has hardly been tried yet.
    shown : mapping of kind to float
        What chunks of this pipeline take on each trusted kind, over what the profile says.
    """

    modes: Mapping[StageMode, Prediction]
    trusted: frozenset[Kind] = frozenset()
    measured: bool = False
    seconds_per_row: Mapping[Kind, float] = field(default_factory=dict)
    break_even_rows: float | None = None
    infeasible: str | None = None
    undivided: str | None = None
    rows: float = 0.0
    unit_rows: float = 1.0
    probe_due: bool = False
    untried: bool = True
    shown: Mapping[Kind, float] = field(default_factory=dict)

    @property
    def confident(self) -> bool:
        """Tell whether there is ground for choosing by these seconds."""
        return self.measured or (bool(self.seconds_per_row) and self.trusted == self.seconds_per_row.keys())

    @property
    def seconds_alone(self) -> dict[Kind, float]:
        """Return what the stage is expected to take on each kind of device alone."""
        single: tuple[tuple[Kind, StageMode], ...] = (("cpu", "EXEC_CPU"), ("gpu", "EXEC_GPU"))
        return {kind: self.modes[mode].seconds for kind, mode in single if mode in self.modes}

    @property
    def basis(self) -> str:
        """Say what the seconds come from."""
        seen = sum(each.seen for each in self.modes.values())
        if seen:
            return "earlier runs" if seen == len(self.modes) else f"earlier runs and {self._ground}"
        return self._ground

    @property
    def _ground(self) -> str:
        if self.seconds_per_row and self.trusted == self.seconds_per_row.keys():
            return "earlier chunks"
        other = "calibration" if self.measured else "assumptions"
        return f"earlier chunks and {other}" if self.trusted else other

    @property
    def cost_ratio(self) -> float | None:
        """Return p = T_GPU(c0) / T_CPU(c0), of a slot each."""
        gpu, cpu = self.seconds_per_row.get("gpu"), self.seconds_per_row.get("cpu")
        return gpu / cpu if gpu and cpu else None


class CostModel:
    """Predicts stages.

    Parameters
    ----------
    profile : Profile
    learned : Learned
    wrong : mapping of kind to float, optional
        By what factor chunks of other pipelines show the profile to be wrong.
    """

    def __init__(self, profile: Profile, learned: Learned, wrong: Mapping[Kind, float] | None = None) -> None:
        self._profile = profile
        self._learned = learned
        self._wrong = wrong or {}

    def predict(
        self, work: Work, pipeline: str, resources: Resources, with_break_even: bool = False
    ) -> StagePrediction:
        """Predict one stage.

        Parameters
        ----------
        work : Work
            What it has to do.
        pipeline : str
            Its fingerprint.
        resources : Resources
        with_break_even : bool
            Also look for the size from which the GPU is faster, which takes longer than all the rest.
        """
        stage = _Stage(self._profile, self._learned, work, pipeline, resources, self._wrong)
        kinds: list[Kind] = [kind for kind in ("cpu", "gpu") if resources.slots.get(kind) and stage.knows(kind)]
        infeasible = stage.why_not_on_gpu() if "gpu" in kinds else None
        if infeasible is not None:
            kinds.remove("gpu")
        modes: dict[StageMode, Prediction] = {}
        if "cpu" in kinds:
            modes["EXEC_CPU"] = stage.alone("cpu")
        if "gpu" in kinds:
            modes["EXEC_GPU"] = stage.alone("gpu")
        undivided = stage.why_undivided() if len(kinds) == 2 else None
        if len(kinds) == 2 and undivided is None:
            modes["EXEC_COP"] = stage.together()
        return StagePrediction(
            modes={mode: stage.as_seen(prediction) for mode, prediction in modes.items()},
            trusted=frozenset(kind for kind in kinds if stage.trusted(kind)),
            measured=self._profile.measured,
            seconds_per_row={kind: stage.seconds_per_row(kind) for kind in kinds},
            break_even_rows=stage.break_even() if with_break_even and len(kinds) == 2 else None,
            infeasible=infeasible,
            undivided=undivided,
            rows=work.rows if work.from_table else 0.0,
            unit_rows=work.unit_rows,
            shown={kind: stage.shown(kind) for kind in kinds if stage.trusted(kind)},
        )


class _Stage:
    """One stage on one cluster."""

    def __init__(
        self,
        profile: Profile,
        learned: Learned,
        work: Work,
        pipeline: str,
        resources: Resources,
        wrong: Mapping[Kind, float] | None = None,
    ) -> None:
        self._profile = profile
        self._wrong = wrong or {}
        self._work = work
        self._resources = resources
        self._slots = resources.slots
        self._priors: dict[tuple[Kind, float], float] = {}
        kinds: tuple[Kind, ...] = ("cpu", "gpu")
        self._models = {kind: learned.model(pipeline, kind) for kind in kinds}
        self._merges = {kind: learned.model(merging_of(pipeline), kind) for kind in kinds}
        self._whole = {mode: learned.model(pipeline, mode) for mode in MODES}

    def knows(self, kind: Kind) -> bool:
        return kind in self._profile.devices

    def trusted(self, kind: Kind) -> bool:
        model = self._models[kind]
        return model is not None and model.trusted

    def why_not_on_gpu(self) -> str | None:
        """Tell why not even the smallest piece fits the GPU's memory; ``None``: it does."""
        fits = self._resources.gpu_fits(self._work.row_bytes)
        least = self._work.unit_rows if self._work.from_table else self._work.rows
        if fits is None or least <= fits:
            return None
        return f"its smallest piece of {least:,.0f} rows does not fit the GPU, which takes {fits:,} rows at a time"

    def as_seen(self, prediction: Prediction) -> Prediction:
        """Return a prediction with the seconds that whole runs of the stage have taken, if there are enough."""
        model = self._whole[prediction.mode]
        seen = None if model is None else model.recall(self._work.planned_rows)
        return prediction if seen is None else replace(prediction, seconds=seen, seen=True)

    # --- one chunk -------------------------------------------------------------------------------------------------

    def sections(self, kind: Kind, rows: float) -> dict[str, float]:
        """Return a chunk's seconds by section, corrected as a whole by what was learned."""
        resident = self._resources.resident if kind == "gpu" else frozenset()
        found = self._work.sections(self._profile.devices[kind], rows, resident)
        expected = self._slot_seconds(kind, found)
        factor = self.slot_seconds(kind, rows) / expected if expected > 0 else 1.0
        return {name: seconds * factor for name, seconds in found.items()}

    def slot_seconds(self, kind: Kind, rows: float) -> float:
        """Return the seconds for which a chunk keeps one slot busy while the other slots work as well."""
        model = self._models[kind]
        if model is not None and model.trusted:
            learned = model.predict(rows, lambda size: self._prior(kind, size))
            if learned is not None:
                return max(learned, LEAST_SECONDS)
        return max(self._prior(kind, rows) * self._correction(kind), LEAST_SECONDS)

    def _correction(self, kind: Kind) -> float:
        """Return by how much the profile is wrong about this pipeline, as far as the other kind of device shows.

        Much of what makes a prediction wrong is the same for both: how many rows pass a filter, how columns are stored.
        """
        other: Kind = "cpu" if kind == "gpu" else "gpu"
        if not (self.trusted(other) and self.knows(other) and self._slots.get(other)):
            return 1.0
        rows = self.usual_rows(other)
        wrong = self.slot_seconds(other, rows) / max(self._prior(other, rows), LEAST_SECONDS)
        return min(max(wrong, 1 / MOST_CORRECTION), MOST_CORRECTION)

    def _prior(self, kind: Kind, rows: float) -> float:
        known = self._priors.get((kind, rows))
        if known is None:
            resident = self._resources.resident if kind == "gpu" else frozenset()
            known = self._slot_seconds(kind, self._work.sections(self._profile.devices[kind], rows, resident))
            known *= self._wrong.get(kind, 1.0)
            self._priors[kind, rows] = known
        return known

    def _slot_seconds(self, kind: Kind, sections: Mapping[str, float]) -> float:
        feeding = sections["read"] + sections["in"]
        rest = sum(sections.values()) - feeding
        if not self._profile.devices[kind].overlaps:
            return feeding + rest
        # Slots share a device: while some feed, others compute. Each chunk waits for the slower of the two.
        return self._resources.gpu_threads * max(feeding, rest)

    def _one_chunk(self, kind: Kind, rows: float) -> float:
        """Return the seconds of a chunk that has the device for itself."""
        busy = self.slot_seconds(kind, rows)
        if not self._profile.devices[kind].overlaps:
            return busy
        resident = self._resources.resident
        sections = self._work.sections(self._profile.devices[kind], rows, resident)
        return busy * sum(sections.values()) / max(self._slot_seconds(kind, sections), 1e-12)

    def _chunks(self, kind: Kind, rows: float, chunks: int) -> float:
        """Return the seconds of equal chunks on all slots of a kind: the first ones, then the others behind them."""
        slots = max(self._slots[kind], 1)
        # Of the slots of a device some feed while another computes: its first chunk is behind no other.
        first = max(slots // 2, 1) if self._profile.devices[kind].overlaps else slots
        return self._one_chunk(kind, rows) + self.slot_seconds(kind, rows) * max(chunks - first, 0) / slots

    def usual_rows(self, kind: Kind) -> int:
        """Return the rows of a chunk: what is aimed at, what fits, and no more than a slot's share."""
        limit = self._resources.chunk_rows[kind]
        if kind == "gpu":
            fits = self._resources.gpu_fits(self._work.row_bytes)
            limit = limit if fits is None else min(limit, fits)
        share = math.ceil(self._work.rows / max(self._slots.get(kind, 1), 1))
        return max(min(limit, max(share, SMALLEST_CHUNK_ROWS), math.ceil(self._work.rows)), 1)

    def seconds_per_row(self, kind: Kind) -> float:
        rows = self.usual_rows(kind)
        return self.slot_seconds(kind, rows) / rows

    # --- all chunks ------------------------------------------------------------------------------------------------

    def alone(self, kind: Kind) -> Prediction:
        """Predict the stage on one kind of device."""
        rows = self.usual_rows(kind) if self._work.from_table else max(round(self._work.rows), 1)
        slots = max(self._slots[kind], 1)
        chunks = max(math.ceil(self._work.rows / rows), 1)
        rows = max(math.ceil(self._work.rows / chunks), 1)
        working = self._chunks(kind, rows, chunks)
        return self._finished(
            "EXEC_CPU" if kind == "cpu" else "EXEC_GPU", working, chunks, {kind: rows},
            self._scaled(self.sections(kind, rows), chunks / slots), {kind: 1.0}, slots if kind == "cpu" else 0,
        )  # fmt: skip

    def why_undivided(self) -> str | None:
        """Tell why one kind would only hold up the other; ``None``: it would not.

        It does where its smallest chunk takes longer than the other needs for everything.
        """
        if not self._work.from_table:
            return "its input is one chunk"
        kinds: tuple[tuple[Kind, Kind], ...] = (("cpu", "gpu"), ("gpu", "cpu"))
        for kind, other in kinds:
            seconds = self._one_chunk(kind, self._least_rows)
            if seconds >= self.alone(other).seconds:
                return f"the {kind.upper()}'s smallest chunk would take {seconds:.3g} s"
        return None

    @property
    def _least_rows(self) -> float:
        """Return the rows of the smallest chunk."""
        return min(max(self._work.unit_rows, SMALLEST_CHUNK_ROWS), self._work.rows)

    def together(self) -> Prediction:
        """Predict the stage on both kinds, with as many CPU slots as pay."""
        found = [self._with_cpu_slots(count) for count in range(1, self._slots["cpu"] + 1)]
        return min(found, key=lambda prediction: prediction.seconds)

    def _with_cpu_slots(self, count: int) -> Prediction:
        ratio = self.seconds_per_row("gpu") / self.seconds_per_row("cpu")
        # The GPU's part of the rows: all slots of a kind get through 1 / seconds a row.
        gpu_part = self._slots["gpu"] / (self._slots["gpu"] + count * ratio)
        share = math.ceil(self._work.rows * gpu_part / self._slots["gpu"])
        gpu_rows = min(self.usual_rows("gpu"), max(share, SMALLEST_CHUNK_ROWS))
        cpu_rows = max(min(int(gpu_rows * ratio), self._resources.chunk_rows["cpu"]), SMALLEST_CHUNK_ROWS)
        cpu_busy = self.slot_seconds("cpu", cpu_rows)
        gpu_busy = self.slot_seconds("gpu", gpu_rows)
        if self._profile.devices["gpu"].engine == "gpu":
            gpu_busy *= 1 + CONTENTION * min(count / max(self._profile.cores, 1), 1.0) ** 3
        cpu_speed, gpu_speed = count * cpu_rows / cpu_busy, self._slots["gpu"] * gpu_rows / gpu_busy
        pulling = self._until_both_are_done(count, cpu_busy / cpu_rows, gpu_busy / gpu_rows)
        cpu_share = cpu_speed / (cpu_speed + gpu_speed)
        chunks = math.ceil(self._work.rows * cpu_share / cpu_rows) + math.ceil(
            self._work.rows * (1 - cpu_share) / gpu_rows
        )
        sections = self._scaled(self.sections("gpu", gpu_rows), pulling / gpu_busy) | {"queue": SHARING_S}
        shares: dict[Kind, float] = {"cpu": cpu_share, "gpu": 1 - cpu_share}
        return self._finished("EXEC_COP", pulling, chunks, {"cpu": cpu_rows, "gpu": gpu_rows}, sections, shares, count)

    def _until_both_are_done(self, cpu_slots: int, cpu_per_row: float, gpu_per_row: float) -> float:
        """Return the seconds until all pieces are done, none of which is divided between both kinds.

        It matters where they are few, or one kind is much slower than the other.
        """
        gpu_slots = self._slots["gpu"]
        pieces = self._work.rows / self._least_rows
        cpu_speed, gpu_speed = cpu_slots / cpu_per_row, gpu_slots / gpu_per_row

        def seconds(on_cpu: float) -> float:
            cpu = math.ceil(on_cpu / cpu_slots) * self._least_rows * cpu_per_row
            gpu = math.ceil((pieces - on_cpu) / gpu_slots) * self._least_rows * gpu_per_row
            return max(cpu, gpu)

        even = math.floor(pieces * cpu_speed / (cpu_speed + gpu_speed))
        return max(min(seconds(even), seconds(even + 1)), self._work.rows / (cpu_speed + gpu_speed))

    def _finished(
        self,
        mode: StageMode,
        working: float,
        chunks: int,
        chunk_rows: Mapping[Kind, int],
        sections: Mapping[str, float],
        shares: Mapping[Kind, float],
        cpu_slots: int,
    ) -> Prediction:
        """Add what is not a device's: handing out, build sides made once, and the merge.

        Parameters
        ----------
        shares : mapping of kind to float
            Part of the rows that each kind takes.
        """
        once = max(self._once(each) for each in shares)
        queue = sections.get("queue", 0.0) + self._profile.round_trip_s
        queue += max(chunks * self._profile.task_s - working, 0.0)
        merge, leaves_at = self._merging(chunks, shares)
        total = working + once + queue + merge
        parts = {**sections, "build": sections["build"] + once, "queue": queue, "merge": merge}
        return Prediction(mode, total, parts, chunk_rows, cpu_slots, leaves_at)

    def shown(self, kind: Kind) -> float:
        """Return what chunks on a trusted kind take over what the profile says."""
        rows = self.usual_rows(kind)
        prior = max(self._prior(kind, rows) / self._wrong.get(kind, 1.0), LEAST_SECONDS)
        return self.slot_seconds(kind, rows) / prior

    def _once(self, kind: Kind) -> float:
        """Return the seconds of what is done before a kind's first chunk, as wrong as its chunks show the profile."""
        wrong = min(self.shown(kind), MOST_CORRECTION) if self.trusted(kind) else self._wrong.get(kind, 1.0)
        return self._work.once(self._profile.devices[kind]) * wrong

    def _merging(self, chunks: int, shares: Mapping[Kind, float]) -> tuple[float, Kind]:
        """Return the seconds of the merge, passing partial results on included, and the kind of worker that does it."""
        rows = self._work.partial_rows(chunks)
        size = rows * self._work.result_bytes
        kind = merging_kind({each: share * size for each, share in shares.items()}, rows)
        if chunks <= 1:
            return 0.0, kind
        passed_on = size * (1 - shares.get(kind, 0.0))
        seconds = self._profile.round_trip_s + passed_on / NETWORK_BYTES_PER_S
        model = self._merges[kind]
        if model is not None and model.trusted:
            return seconds + (model.predict(chunks) or 0.0), kind
        if self._work.merges and rows > 0:
            merging = self._profile.merge.at(rows)
            if kind == "gpu" and rows >= GPU_MERGE_ROWS:
                gpu = self._profile.devices["gpu"]
                moving = gpu.to_device.seconds(size) + gpu.from_device.seconds(size)
                merging = min(merging, moving + gpu.operating("aggregate_many", rows))
            seconds += merging
        return seconds, kind

    @staticmethod
    def _scaled(sections: Mapping[str, float], factor: float) -> dict[str, float]:
        return {name: seconds * factor for name, seconds in sections.items()}

    def break_even(self) -> float | None:
        """Return the rows from which the GPU alone is faster than the CPU alone."""
        series: dict[Kind, list[tuple[float, float]]] = {"cpu": [], "gpu": []}
        for size in BREAK_EVEN_SIZES:
            for kind, found in series.items():
                limit = self._resources.chunk_rows[kind]
                slots = max(self._slots[kind], 1)
                chunks = math.ceil(size / min(limit, max(size / slots, min(size, SMALLEST_CHUNK_ROWS))))
                rows = size / chunks
                found.append((size, self._chunks(kind, rows, chunks) + self._work.once(self._profile.devices[kind])))
        return break_even(series["cpu"], series["gpu"])
