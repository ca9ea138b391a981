"""What a session knows of its cluster's speed: predicts stages, and learns from what they took."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from hybridq.config import Config
from hybridq.physical.pipeline import Stage
from hybridq.placement.calibrate import (
    ClusterMeasurements,
    DeviceDescription,
    ProfileStore,
    assumed_profile,
    identity_of,
    make_profile,
)
from hybridq.placement.choice import StageMode
from hybridq.placement.learned import MOST_MODELS, Learned, fingerprint, merging_of
from hybridq.placement.modes import expected_fetching
from hybridq.placement.predict import CostModel, Resources, StagePrediction
from hybridq.placement.profile import Profile
from hybridq.placement.stage_times import entry_of, mode_that_ran, ran_alone, stage_seconds
from hybridq.placement.work import Tables, works
from hybridq.report import GIVEN_UP, READ_AHEAD, Report, StageReport
from hybridq.topology import Kind, available_cores

FIRST_TRIES = 2
"""Runs of a pipeline in which a kind of device that is not used gets chunks although nothing is known of it."""

OWN_REASONS = 3.0
"""Up to this factor a prediction may be wrong for reasons of its own: how many rows pass a filter, say."""

NEWS = 1.5
"""If what stages show of the profile changes by this factor, they are predicted anew."""

LEAST_OWN_SHARE = 0.2
"""Part of a stage's time at least that is its own, and not for fetching what it reads."""

SHARE_EVERY_S = 5.0
"""Sessions that run at the same time exchange what they learn so often."""

SAVE_PATIENCE_S = 1.0
"""Seconds to wait for another session that is writing, when this one ends."""

MOST_FRESH = 20_000
"""Observations that wait to be shared; older ones stay this session's."""

PROBE_EVERY = 10
"""Runs of a pipeline on one kind of device after which another gets a chunk, to see what it would take now."""


class Placer:
    """A profile and what was learned, for one cluster.

    Parameters
    ----------
    devices : sequence of DeviceDescription
    store : ProfileStore or None
        Where both are kept; ``None``: nowhere.
    """

    def __init__(self, devices: Sequence[DeviceDescription], store: ProfileStore | None) -> None:
        self._devices = tuple(devices)
        self._store = store
        self._identity = identity_of(devices)
        self._lock = threading.Lock()
        self._fresh: deque[tuple[str, Kind | StageMode, float, float]] = deque(maxlen=MOST_FRESH)
        self._shared = time.monotonic()
        self._seen: set[str] = set()
        self._kinds_seen: set[Kind] = set()
        self._pipelines: dict[int, tuple[Stage, str]] = {}
        self._runs: dict[str, int] = {}
        self._tries: dict[str, int] = {}
        self._shown: dict[Kind, dict[str, float]] = {"cpu": {}, "gpu": {}}
        profile = None if store is None else store.load(self._identity)
        self.profile: Profile = profile or assumed_profile(devices, available_cores())
        self._learned = self._read_learned(self._identity) or Learned()

    def untrained(self, with_profile: bool = True) -> Placer:
        """Return one that has learned nothing, and keeps nothing: to see what learning brings.

        Parameters
        ----------
        with_profile : bool
            It goes by the same profile; otherwise by what is assumed where nothing was measured.
        """
        found = Placer(self._devices, None)
        if with_profile:
            found.profile = self.profile
        return found

    def _read_learned(self, identity: Mapping[str, Any]) -> Learned | None:
        """Return what is kept, if there is anything that can be used."""
        content = None if self._store is None else self._store.read(identity, "learned")
        if content is not None:
            with contextlib.suppress(KeyError, TypeError, ValueError):
                return Learned(content)
        return None

    def predict(
        self,
        stages: Sequence[Stage],
        tables: Tables,
        slots: Mapping[Kind, int],
        config: Config,
        gpu_fits: Callable[[float], int | None],
        resident: AbstractSet[tuple[str, str]] = frozenset(),
        with_break_even: bool = False,
    ) -> dict[int, StagePrediction]:
        """Predict all stages of a plan.

        Parameters
        ----------
        stages : sequence of Stage
        tables : Tables
        slots : mapping of kind to int
        config : Config
        gpu_fits, resident
            See ``Resources``.
        with_break_even : bool
            See ``CostModel.predict``.

        Returns
        -------
        dict of stage to StagePrediction
        """
        chunk_rows: dict[Kind, int] = {"cpu": config.cpu_chunk_rows, "gpu": config.gpu_chunk_rows}
        threads = max((device.threads for device in self._devices if device.kind == "gpu"), default=2)
        resources = Resources(slots, chunk_rows, gpu_fits, resident, max(threads, 2))
        work = works(stages, tables)
        with self._lock:
            pipelines = {stage.id: self._pipeline(stage) for stage in stages}
            wrong, found = self._wrong(), dict[int, StagePrediction]()
            for _ in range(2):
                model = CostModel(self.profile, self._learned, wrong)
                for stage in stages:
                    pipeline = pipelines[stage.id]
                    prediction = model.predict(work[stage.id], pipeline, resources, with_break_even)
                    new = self._tries.get(pipeline, 0) < FIRST_TRIES
                    due = self._runs.get(pipeline, 0) >= PROBE_EVERY
                    found[stage.id] = replace(prediction, probe_due=due, untried=new)
                    self._note_shown(pipeline, prediction)
                before, wrong = wrong, self._wrong()
                if all(1 / NEWS < wrong[kind] / before[kind] < NEWS for kind in wrong):
                    break
            return found

    def _note_shown(self, pipeline: str, prediction: StagePrediction) -> None:
        for kind, ratio in prediction.shown.items():
            known = self._shown[kind]
            known[pipeline] = ratio
            while len(known) > MOST_MODELS:
                del known[next(iter(known))]

    def _wrong(self) -> dict[Kind, float]:
        """Return by what factor the profile is wrong about each kind of device, as all pipelines together show.

        A single pipeline's prediction may be wrong for its own reasons: so much is left out.
        """
        found: dict[Kind, float] = {}
        for kind, ratios in self._shown.items():
            ratio = statistics.median(ratios.values()) if ratios else 1.0
            found[kind] = max(ratio / OWN_REASONS, 1.0) if ratio > 1 else min(ratio * OWN_REASONS, 1.0)
        return found

    def _pipeline(self, stage: Stage) -> str:
        """Return a stage's fingerprint, made once for all runs of its query."""
        known = self._pipelines.get(id(stage))
        if known is None or known[0] is not stage:
            known = self._pipelines[id(stage)] = (stage, fingerprint(stage))
            while len(self._pipelines) > MOST_MODELS:
                del self._pipelines[next(iter(self._pipelines))]
        return known[1]

    def learn(self, stages: Sequence[Stage], report: Report) -> None:
        """Take in what the chunks of a finished query took.

        A worker's first chunk does not count: it pays for imports, and for what the first use of a device costs.
        """
        by_id = {stage.id: stage for stage in stages}
        with self._lock:
            pipelines = {stage.id: self._pipeline(stage) for stage in stages}
            fetched = _fetching(stages, report)
            for entry in report.stages:
                stage = by_id.get(entry.id)
                if stage is None:
                    continue
                pipeline = pipelines[stage.id]
                self._learn_whole(pipeline, stage, report, fetched.get(stage.id, 0.0))
                ahead = {span.number: span.seconds for span in entry.spans if span.what == READ_AHEAD}
                kinds = {span.kind for span in entry.spans if span.what in ("chunk", GIVEN_UP)}
                self._runs[pipeline] = 0 if len(kinds) > 1 else self._runs.get(pipeline, 0) + 1
                self._tries[pipeline] = self._tries.get(pipeline, 0) + (len(kinds) > 1)
                for counts in (self._runs, self._tries):
                    while len(counts) > MOST_MODELS:
                        del counts[next(iter(counts))]
                self._learn_merge(pipeline, entry)
                for span in entry.spans:
                    kind = _kind(span.kind)
                    rows = span.rows or _input_rows(stage, report)
                    if span.what == GIVEN_UP and kind in self._kinds_seen:
                        # It would have taken longer still: enough to expect no wonders of that kind again.
                        self._observe(pipeline, kind, rows, span.seconds)
                    if span.what != "chunk":
                        continue
                    self._kinds_seen.add(kind)
                    if span.worker not in self._seen:
                        self._seen.add(span.worker)
                        continue
                    self._observe(pipeline, kind, rows, span.seconds + ahead.get(span.number, 0.0))

    def _learn_whole(self, pipeline: str, stage: Stage, report: Report, fetched: float) -> None:
        """Learn what the stage took from beginning to end: with what it costs to hand out its chunks and to wait.

        Without what fetching its inputs is expected to take from where they were: they may be elsewhere another time.
        """
        entry = entry_of(report, stage.id)
        mode = mode_that_ran(entry)
        seen = all(span.worker in self._seen for span in entry.spans if span.what == "chunk")
        if mode is not None and seen and ran_alone(report, stage.id):
            taken = stage_seconds(report, stage.id)
            own = max(taken - fetched, taken * LEAST_OWN_SHARE)
            self._observe(pipeline, mode, max(float(stage.input_rows), 1.0), own)

    def _learn_merge(self, pipeline: str, entry: StageReport) -> None:
        merges = [span for span in entry.spans if span.what == "merge"]
        chunks = sum(span.what == "chunk" for span in entry.spans)
        if merges and chunks > 1:
            kind = _kind(merges[-1].kind)
            self._observe(merging_of(pipeline), kind, chunks, sum(span.seconds for span in merges))

    def calibrate(self, measured: ClusterMeasurements, devices: Sequence[DeviceDescription]) -> Profile:
        """Make a profile of measurements, use it from now on, and store it.

        Raises
        ------
        OSError
            It cannot be stored.
        """
        profile = make_profile(measured, devices)
        with self._lock:
            self.profile = profile
            self._identity = dict(profile.identity)
        if self._store is not None:
            self._store.save(profile)
        return profile

    # --- what sessions share ---------------------------------------------------------------------------------------

    def _observe(self, pipeline: str, kind: Kind | StageMode, rows: float, seconds: float) -> None:
        self._learned.observe(pipeline, kind, rows, seconds)
        if self._store is not None:
            self._fresh.append((pipeline, kind, rows, seconds))

    def share(self) -> None:
        """Exchange what was learned with other sessions on such a cluster, in the background, if it is time to."""
        now = time.monotonic()
        with self._lock:
            if self._store is None or not self._fresh or now < self._shared + SHARE_EVERY_S:
                return
            self._shared = now
        threading.Thread(target=self._exchange, args=(0.0,), name="hybridq-learned", daemon=True).start()

    def save(self) -> None:
        """Store what was learned, if anything was; that it cannot be is no error."""
        self._exchange(SAVE_PATIENCE_S)

    def _exchange(self, patience: float) -> None:
        """Add what was observed since the last time to the file, and go on with what is there then.

        Observations are repeated there one by one, so that those of several sessions make one history.
        """
        if self._store is None:
            return
        with self._lock:
            fresh, self._fresh = list(self._fresh), deque(maxlen=MOST_FRESH)
            identity, own = self._identity, self._learned.to_dict() if fresh else None
        if own is None:
            return
        with contextlib.suppress(OSError), self._store.locked(identity, patience) as locked:
            if not locked and not patience:  # somebody else is at it: another time
                with self._lock:
                    self._fresh = deque([*fresh, *self._fresh], MOST_FRESH)
                return
            there = self._read_learned(identity)
            merged = Learned(own) if there is None else there
            for each in fresh if there is not None else ():
                merged.observe(*each)
            self._store.write(identity, "learned", merged.to_dict())
            with self._lock:
                for each in self._fresh:
                    merged.observe(*each)
                self._learned = merged


def _fetching(stages: Sequence[Stage], report: Report) -> dict[int, float]:
    """Return the seconds in which the stages of a finished query are expected to have fetched what they read."""
    modes, places = {}, {}
    for entry in report.stages:
        mode = mode_that_ran(entry)
        if mode is not None:
            modes[entry.id] = mode
        spans = [span for span in entry.spans if span.what in ("chunk", "merge")]
        if spans:
            last = max(spans, key=lambda span: span.start_s + span.seconds)
            places[entry.id] = _kind(last.kind)
    there = {stage.id for stage in stages}
    return expected_fetching(stages, {number: mode for number, mode in modes.items() if number in there}, places)


def _kind(name: str) -> Kind:
    return "gpu" if name == "gpu" else "cpu"


def _input_rows(stage: Stage, report: Report) -> int:
    """Return the rows of the earlier stage that a stage reads whole."""
    inputs = {entry.id: entry.output_rows for entry in report.stages}
    return sum(inputs.get(number, 0) for number in stage.dependencies[:1])
