"""From measurements to a profile, and the profile's file in the user's cache folder."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from hybridq.placement.curves import Curve
from hybridq.placement.profile import DeviceProfile, Profile, Transfer, assumed
from hybridq.topology import Kind

LIBRARIES = ("hybridq", "pyarrow", "pandas", "numpy", "distributed", "pylibcudf-cu13", "pylibcudf-cu12")
"""Libraries whose versions a profile depends on."""

EffortName = Literal["full", "quick", "small"]
"""How much is measured: most of a minute, some seconds, or as little as a first query can wait for."""

Samples = list[tuple[float, float]]

GPU_ENGINE = "gpu"
"""What a real GPU's engine calls itself; a simulated one computes as a CPU does."""

LOCK_POLL_S = 0.02
"""How often a session looks whether another one is done with the file of what was learned."""

TELLING_ROWS = 2**24
TELLING_BYTES = 64 * 2**20
"""Sizes from which what a GPU takes shows its speed, and not what it takes to start."""


class WorkerMeasurements(Protocol):
    """What one worker measured; see ``hybridq.dispatch.measurements.Measured``."""

    engine: str
    cores: int
    read: dict[str, Samples]
    operators: dict[str, Samples]
    to_device: Samples
    from_device: Samples
    merge: Samples
    page_cache: Samples
    left_out: list[str]


class DeviceDescription(Protocol):
    """What a profile depends on of a device; see ``hybridq.dispatch.devices.Device``."""

    @property
    def kind(self) -> Kind: ...

    @property
    def engine(self) -> str: ...

    @property
    def threads(self) -> int: ...

    @property
    def device_memory(self) -> int | None: ...

    @property
    def host(self) -> str: ...

    @property
    def pace(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ClusterMeasurements:
    """What was measured of a cluster.

    Attributes
    ----------
    workers : mapping of kind to WorkerMeasurements
        One worker of each kind.
    task_s, round_trip_s : float
        As in ``Profile``.
    seconds : float
        What measuring took.
    effort : str
        ``full``, ``quick`` or ``small``.
    """

    workers: Mapping[Kind, WorkerMeasurements]
    task_s: float
    round_trip_s: float
    seconds: float
    effort: EffortName = "full"


def identity_of(devices: Sequence[DeviceDescription]) -> dict[str, Any]:
    """Return what a profile of these devices depends on, as plain data."""
    keys = ("host", "kind", "engine", "threads", "device_memory", "pace")
    found = [(each.host, each.kind, each.engine, each.threads, each.device_memory or 0, each.pace) for each in devices]
    counts = sorted(Counter(found).items())
    described = [dict(zip(keys, group, strict=True)) | {"count": count} for group, count in counts]
    return {"devices": described, "versions": _versions()}


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def assumed_profile(devices: Sequence[DeviceDescription], cores: int) -> Profile:
    """Return what is assumed of devices that were never measured."""
    engines: dict[Kind, str] = {each.kind: each.engine for each in devices}
    return replace(assumed(engines, cores), identity=identity_of(devices))


def make_profile(measured: ClusterMeasurements, devices: Sequence[DeviceDescription]) -> Profile:
    """Turn measurements into a profile; what could not be measured keeps its assumed value."""
    cores = max(worker.cores for worker in measured.workers.values())
    fallback = assumed_profile(devices, cores)
    found: dict[Kind, DeviceProfile] = {}
    for kind, worker in measured.workers.items():
        known = fallback.devices[kind]
        found[kind] = DeviceProfile(
            engine=worker.engine,
            read=_curves(worker.engine, known.read, worker.read),
            operators=_curves(worker.engine, known.operators, worker.operators),
            to_device=_transfer(worker.engine, known.to_device, worker.to_device),
            from_device=_transfer(worker.engine, known.from_device, worker.from_device),
            overlaps=known.overlaps,
        )
    # Merges run on CPU workers where there are any.
    merging = measured.workers.get("cpu") or next(iter(measured.workers.values()))
    cached = [size / seconds for size, seconds in merging.page_cache if seconds > 0]
    return Profile(
        identity=fallback.identity,
        devices=found,
        task_s=max(measured.task_s, 1e-6),
        round_trip_s=max(measured.round_trip_s, 1e-6),
        merge=Curve.fit(merging.merge) if merging.merge else fallback.merge,
        page_cache_bytes_per_s=max(cached, default=fallback.page_cache_bytes_per_s),
        cores=cores,
        details={
            "measured_in_s": round(measured.seconds, 3),
            "effort": measured.effort,
            "left_out": [f"{kind}: {what}" for kind, worker in measured.workers.items() for what in worker.left_out],
        },
    )


def _curves(
    engine: str, assumed: Mapping[str, Curve], samples: Mapping[str, Sequence[tuple[float, float]]]
) -> dict[str, Curve]:
    """Return measured curves, and assumed ones of what was not measured, or not at sizes that tell.

    What a GPU takes for a million rows is mostly launching kernels: its speed shows at sizes that take long to make.
    Where the line through smaller ones makes it look slower than is assumed, that is no news.
    """
    found = dict(assumed)
    for name, measured in samples.items():
        if not measured:
            continue
        curve = Curve.fit(measured)
        known = assumed.get(name)
        tells = engine != GPU_ENGINE or curve.points[-1][0] >= TELLING_ROWS
        if tells or known is None or curve.at(TELLING_ROWS) < known.at(TELLING_ROWS):
            found[name] = curve
    return found


def _transfer(engine: str, assumed: Transfer, samples: Sequence[tuple[float, float]]) -> Transfer:
    """Return a measured transfer; of a GPU at least with the bandwidth that is assumed, if only little was moved."""
    if not samples:
        return assumed
    found = Transfer.fit(samples)
    if engine != GPU_ENGINE or max(size for size, _ in samples) >= TELLING_BYTES:
        return found
    bandwidth = max(found.bytes_per_s, assumed.bytes_per_s)
    return Transfer(found.latency_s, bandwidth, 9 * found.latency_s * bandwidth)


class ProfileStore:
    """Profiles, and what was learned, as files: one pair for each combination of hosts, devices and versions.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, identity: Mapping[str, Any], what: str = "profile") -> Path:
        """Return the file for an identity; ``what`` is ``profile`` or ``learned``."""
        text = json.dumps(identity, sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.{what}.json"

    def load(self, identity: Mapping[str, Any]) -> Profile | None:
        """Return the stored profile; ``None`` if there is none that can be used.

        A damaged file, or one that was made on another machine, is set aside with a warning.
        """
        data = self.read(identity, "profile")
        if data is None:
            return None
        try:
            return Profile.from_dict(data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._set_aside(self.path(identity), f"it is damaged ({error})")
            return None

    def save(self, profile: Profile) -> Path:
        """Store a profile, and return its file.

        Raises
        ------
        OSError
            It cannot be written.
        """
        path = self.path(profile.identity)
        write_atomically(path, json.dumps(profile.to_dict(), indent=1))
        return path

    def read(self, identity: Mapping[str, Any], what: str) -> dict[str, Any] | None:
        """Return a file's content; ``None`` if it is missing, or damaged or foreign and now set aside."""
        path = self.path(identity, what)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            self._set_aside(path, f"it cannot be read ({error})")
            return None
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            self._set_aside(path, f"it is no JSON ({error})")
            return None
        if not isinstance(data, dict) or data.get("identity") != json.loads(json.dumps(identity)):
            self._set_aside(path, "it describes other devices or versions")
            return None
        return data

    @contextlib.contextmanager
    def locked(self, identity: Mapping[str, Any], patience: float) -> Iterator[bool]:
        """Keep other sessions from reading and writing what was learned meanwhile.

        Parameters
        ----------
        identity : mapping
        patience : float
            Seconds to wait for one that is at it.

        Yields
        ------
        bool
            Whether it is so: another one may take longer, or the folder cannot be written.
        """
        path = self.path(identity, "learned").with_suffix(".lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = path.open("a")
        except OSError:
            yield False
            return
        with handle:
            yield _take_lock(handle, patience)  # closing it lets the lock go

    def write(self, identity: Mapping[str, Any], what: str, content: Mapping[str, Any]) -> None:
        """Store a file that ``read`` returns.

        Raises
        ------
        OSError
            It cannot be written.
        """
        write_atomically(self.path(identity, what), json.dumps({"identity": identity, **content}))

    @staticmethod
    def _set_aside(path: Path, why: str) -> None:
        aside = path.with_suffix(".json.bad")
        try:
            path.replace(aside)
        except OSError:
            aside = path
        warnings.warn(f"{path} is not used: {why}; it is kept as {aside.name}", stacklevel=4)


def _take_lock(handle: IO[str], patience: float) -> bool:
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(LOCK_POLL_S)
        except OSError:  # the file system has no locks
            return False
        else:
            return True


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old content or the new, never a part.

    Raises
    ------
    OSError
        It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
