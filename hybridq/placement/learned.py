"""What chunks have taken before: one model for each pipeline and kind of device, and one for whole stages in each mode.

After HyPE (a device's algorithm is a black box; its times are learned from runs), with what that leaves open: the model
is monotone and positive, reaches beyond its samples by latency and slope, forgets when a device has changed, and is
kept for the next session.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from hybridq.physical.pipeline import Stage, TableSource
from hybridq.placement.choice import StageMode
from hybridq.placement.curves import LEAST_SECONDS, Curve
from hybridq.placement.stage_times import KINDS
from hybridq.plan.expressions import Call, In, Literal
from hybridq.plan.parts import field_names
from hybridq.topology import Kind

KEPT_PER_SIZE = 9
"""Samples kept for chunks of about one size (within a factor of two): the median of so many ignores four outliers."""

MOST_SIZES = 24
"""Sizes kept for each model; the one seen longest ago goes first."""

MOST_MODELS = 2000
"""Models kept; the one used longest ago goes first."""

TRUSTED_SAMPLES = 2
"""Samples from which a model says more than the profile."""

CHANGE_FACTOR = 1.5
"""A sample this far from what the model expects speaks for a change."""

CHANGE_SAMPLES = 3
"""So many of them in a row, all to the same side, are one: it takes more than an outlier."""

SAME_SIZE = 1.25
"""A whole stage is taken to last as it did before if its rows are within this factor."""

FAR_FACTOR = 4.0
"""This far outside of the sampled sizes the profile's curve is followed, where there is one."""


class Model:
    """Seconds of a chunk by rows, for one pipeline on one kind of device.

    Parameters
    ----------
    samples : iterable of (rows, seconds)
        What ``to_list`` of an earlier one returned.
    """

    def __init__(self, samples: Iterable[tuple[float, float]] = ()) -> None:
        self._sizes: dict[int, list[tuple[float, float]]] = {}
        self._surprises: list[tuple[float, float, float]] = []
        self._curve: Curve | None = None
        for rows, seconds in samples:
            if not (0 < rows < math.inf and 0 < seconds < math.inf):
                raise ValueError(f"no chunk has {rows} rows and takes {seconds} s")
            self._keep(rows, seconds)

    @property
    def samples(self) -> int:
        """Return how many samples are kept."""
        return sum(len(kept) for kept in self._sizes.values())

    @property
    def trusted(self) -> bool:
        """Tell whether there are enough samples to go by."""
        return self.samples >= TRUSTED_SAMPLES

    def observe(self, rows: float, seconds: float) -> bool:
        """Take note of a finished chunk (not of a worker's first: that pays for imports and cold caches).

        Returns
        -------
        bool
            It is the last of several that say that the device has changed: what was known before is forgotten.
        """
        if rows <= 0 or not math.isfinite(seconds) or seconds < 0:
            return False
        seconds = max(seconds, LEAST_SECONDS)
        changed = self._look_for_change(rows, seconds)
        self._keep(rows, seconds)
        return changed

    def _keep(self, rows: float, seconds: float) -> None:
        size = round(math.log2(rows))
        kept = self._sizes.pop(size, [])
        self._sizes[size] = [*kept, (float(rows), seconds)][-KEPT_PER_SIZE:]  # at the end: the most recently seen
        while len(self._sizes) > MOST_SIZES:
            del self._sizes[next(iter(self._sizes))]
        self._curve = None

    def predict(self, rows: float, prior: Callable[[float], float] | None = None) -> float | None:
        """Return the seconds of a chunk; ``None`` without samples.

        Parameters
        ----------
        rows : float
        prior : callable, optional
            What the profile says; followed, at the level of the nearest samples, far from all of them.
        """
        if not self._sizes or rows <= 0:
            return None
        curve = self._fitted()
        low, high = curve.points[0][0], curve.points[-1][0]
        nearest = min(max(rows, low), high)
        if prior is not None and (rows < low / FAR_FACTOR or rows > high * FAR_FACTOR):
            return curve.at(nearest) * prior(rows) / max(prior(nearest), LEAST_SECONDS)
        return curve.at(rows)

    def recall(self, rows: float) -> float | None:
        """Return the median of what this size took before; ``None``: too few samples to go by."""
        same = [
            seconds * rows / size
            for kept in self._sizes.values()
            for size, seconds in kept
            if rows / SAME_SIZE <= size <= rows * SAME_SIZE
        ]
        return statistics.median(same) if len(same) >= TRUSTED_SAMPLES else None

    def to_list(self) -> list[list[float]]:
        """Return all samples as plain data."""
        return [[rows, seconds] for kept in self._sizes.values() for rows, seconds in kept]

    def _fitted(self) -> Curve:
        if self._curve is None:
            medians = [
                (statistics.median(rows for rows, _ in kept), _median_seconds(kept)) for kept in self._sizes.values()
            ]
            self._curve = Curve.fit(medians)
        return self._curve

    def _look_for_change(self, rows: float, seconds: float) -> bool:
        """Forget everything before several samples in a row that all say the same else; tell whether there were.

        Other sizes are forgotten as well, not moved to the new level: it may have been this size that was measured
        wrongly, with cold caches say, and theirs that is right. What is left is read at other sizes by its slope.
        """
        if not self.trusted:
            return False
        ratio = seconds / self._fitted().at(rows)
        if 1 / CHANGE_FACTOR < ratio < CHANGE_FACTOR:
            self._surprises.clear()
            return False
        if self._surprises and (ratio > 1) != (self._surprises[-1][0] > 1):
            self._surprises.clear()
        self._surprises.append((ratio, rows, seconds))
        if len(self._surprises) < CHANGE_SAMPLES:
            return False
        kept, self._surprises, self._sizes = self._surprises[:-1], [], {}
        for _, size, taken in kept:  # the last one is kept by ``observe``
            self._keep(size, taken)
        return True


def _median_seconds(kept: Iterable[tuple[float, float]]) -> float:
    """Return the seconds of the middle sample by seconds a row, at the median size."""
    samples = list(kept)
    per_row = statistics.median(seconds / rows for rows, seconds in samples)
    return per_row * statistics.median(rows for rows, _ in samples)


class Learned:
    """All models.

    Parameters
    ----------
    content : mapping, optional
        What ``to_dict`` returned.
    """

    def __init__(self, content: Mapping[str, Any] | None = None) -> None:
        self._models: dict[tuple[str, str], Model] = {}
        for entry in [] if content is None else content["models"]:
            self._models[str(entry["pipeline"]), str(entry["kind"])] = Model(entry["samples"])

    def __len__(self) -> int:
        return len(self._models)

    def model(self, pipeline: str, kind: Kind | StageMode) -> Model | None:
        """Return the model of a pipeline's chunks on a kind of device, or of whole stages in a mode, if any."""
        return self._models.get((pipeline, kind))

    def observe(self, pipeline: str, kind: Kind | StageMode, rows: float, seconds: float) -> None:
        """Take note of a finished chunk, or of a whole stage; what that took counts no more once a device changes."""
        model = self._models.pop((pipeline, kind), None) or Model()
        self._models[pipeline, kind] = model  # at the end: the most recently used
        if model.observe(rows, seconds):
            for mode, kinds in KINDS.items():
                if kind in kinds:
                    self._models.pop((pipeline, mode), None)
        while len(self._models) > MOST_MODELS:
            del self._models[next(iter(self._models))]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {
            "models": [
                {"pipeline": pipeline, "kind": kind, "samples": model.to_list()}
                for (pipeline, kind), model in self._models.items()
            ]
        }


def merging_of(pipeline: str) -> str:
    """Return the name of a pipeline's merges, which are learned by how many chunks' results are merged."""
    return f"{pipeline} merge"


def fingerprint(stage: Stage) -> str:
    """Return what identifies the pipelines of a stage: operators, functions, types and columns, but no constants."""
    text = repr([(_shape(branch.pipeline), _shape(branch.builds)) for branch in stage.branches])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _shape(value: Any) -> Any:
    if isinstance(value, Literal):
        return str(value.type)
    if isinstance(value, In):
        return ["in", _shape(value.operand), len(value.values).bit_length()]
    if isinstance(value, Call):
        return [value.function, [_shape(argument) for argument in value.arguments], value.options]
    if isinstance(value, TableSource):
        columns = [(column.source, str(column.type)) for column in value.columns]
        return ["table", value.table, columns, _shape(value.predicate)]
    if isinstance(value, tuple):
        return [_shape(item) for item in value]
    if (names := field_names(type(value))) is not None:
        content = [_shape(getattr(value, name)) for name in names if name not in ("id", "stage", "build")]
        return [type(value).__name__, content]
    if isinstance(value, pa.DataType):
        return str(value)
    return value if isinstance(value, (str, bool, int, float)) or value is None else type(value).__name__
