"""What is known of a cluster's speed: how long reading, moving and computing take on each kind of device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hybridq.placement.curves import Curve
from hybridq.topology import Kind

FORMAT = 1
"""Version of the file's form; files of another one are made anew."""

REPEATING = "repeating_"
"""Begins the names of numbers of which few differ: they are stored as a dictionary, and read several times as fast."""

TYPE_CLASSES = (
    "integer", "decimal", "floating", "date", "dictionary", "string", f"{REPEATING}integer", f"{REPEATING}decimal",
)  # fmt: skip
"""Kinds of values whose reading is measured: strings that repeat are ``dictionary``."""

OPERATORS = ("filter", "project", "build", "probe", "aggregate_few", "aggregate_many", "sort", "top_k")
"""What is measured of an engine besides reading and moving; sizes are rows, seconds are for one expression or key."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Moving bytes in one direction: T0 + bytes / bandwidth.

    Attributes
    ----------
    latency_s : float
        T0.
    bytes_per_s : float
    saturation_bytes : float
        Size at which nine tenths of the bandwidth are reached.
    """

    latency_s: float
    bytes_per_s: float
    saturation_bytes: float = 0.0

    def seconds(self, size: float) -> float:
        """Return the seconds that moving so many bytes takes; nothing for none."""
        return self.latency_s + size / self.bytes_per_s if size > 0 else 0.0

    @classmethod
    def fit(cls, samples: Iterable[tuple[float, float]]) -> Transfer:
        """Fit samples of (bytes, seconds): the smallest gives the latency, the fastest the bandwidth.

        Raises
        ------
        ValueError
            There is no sample.
        """
        found = sorted((size, seconds) for size, seconds in samples if size > 0 and seconds > 0)
        if not found:
            raise ValueError("no sample")
        latency = min(seconds for _, seconds in found)
        # Of a small transfer, which is mostly latency, no more than half is taken to be that.
        bandwidth = max(size / max(seconds - latency, seconds / 2) for size, seconds in found)
        return cls(latency, bandwidth, 9 * latency * bandwidth)


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One kind of device.

    Attributes
    ----------
    engine : str
        ``cpu``, ``gpu`` or ``simulated gpu``.
    read : mapping of ``codec/type class`` to Curve
        Reading one column from Parquet in the page cache, decoding included, by rows. ``snappy`` is what stands in for
        other codecs.
    operators : mapping of operator to Curve
        By rows.
    to_device, from_device : Transfer
        Taking over an Arrow table and giving one back.
    overlaps : bool
        A chunk is read while another computes.
    """

    engine: str
    read: Mapping[str, Curve]
    operators: Mapping[str, Curve]
    to_device: Transfer
    from_device: Transfer
    overlaps: bool = False

    def reading(self, codec: str, type_class: str, rows: float) -> float:
        """Return the seconds that reading one column takes."""
        names = (type_class, type_class.removeprefix(REPEATING))  # a profile may be older than the distinction
        places = [f"{place}/{name}" for name in names for place in (codec, "snappy")]
        curve = next((self.read[place] for place in places if place in self.read), None)
        return 0.0 if curve is None else curve.at(rows)

    def operating(self, operator: str, rows: float) -> float:
        """Return the seconds of one operator."""
        curve = self.operators.get(operator)
        return 0.0 if curve is None or rows <= 0 else curve.at(rows)


@dataclass(frozen=True, slots=True)
class Profile:
    """A cluster.

    Attributes
    ----------
    identity : mapping of str to object
        Hosts, devices and library versions that it was measured with.
    devices : mapping of kind to DeviceProfile
    task_s : float
        What Dask takes for each task.
    round_trip_s : float
        From handing out a lone task to having heard of its end.
    merge : Curve
        Merging partial results, by rows.
    page_cache_bytes_per_s : float
    cores : int
        Of the machine with the most.
    measured : bool
        Else it is a guess.
    """

    identity: Mapping[str, Any]
    devices: Mapping[Kind, DeviceProfile]
    task_s: float
    round_trip_s: float
    merge: Curve
    page_cache_bytes_per_s: float
    cores: int
    measured: bool = True
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {
            "format": FORMAT,
            "identity": dict(self.identity),
            "task_s": self.task_s,
            "round_trip_s": self.round_trip_s,
            "merge": _plain(self.merge),
            "page_cache_bytes_per_s": self.page_cache_bytes_per_s,
            "cores": self.cores,
            "details": dict(self.details),
            "devices": {
                kind: {
                    "engine": device.engine,
                    "overlaps": device.overlaps,
                    "read": {name: _plain(curve) for name, curve in device.read.items()},
                    "operators": {name: _plain(curve) for name, curve in device.operators.items()},
                    "to_device": _plain_transfer(device.to_device),
                    "from_device": _plain_transfer(device.from_device),
                }
                for kind, device in self.devices.items()
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Profile:
        """Rebuild from what ``to_dict`` returned, checking every number.

        Raises
        ------
        ValueError, KeyError, TypeError, AttributeError
            It is something else, or damaged.
        """
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {data['format']!r}, not {FORMAT}")
        devices: dict[Kind, DeviceProfile] = {}
        for kind, found in data["devices"].items():
            if kind not in ("cpu", "gpu"):
                raise ValueError(f"no kind of device is called {kind!r}")
            devices[kind] = DeviceProfile(
                engine=str(found["engine"]),
                read={name: _curve(points) for name, points in found["read"].items()},
                operators={name: _curve(points) for name, points in found["operators"].items()},
                to_device=_transfer(found["to_device"]),
                from_device=_transfer(found["from_device"]),
                overlaps=bool(found["overlaps"]),
            )
        return cls(
            identity=dict(data["identity"]),
            devices=devices,
            task_s=_positive(data["task_s"]),
            round_trip_s=_positive(data["round_trip_s"]),
            merge=_curve(data["merge"]),
            page_cache_bytes_per_s=_positive(data["page_cache_bytes_per_s"]),
            cores=int(_positive(data["cores"])),
            details=dict(data["details"]),
        )


def _plain(curve: Curve) -> list[list[float]]:
    return [[size, seconds] for size, seconds in curve.points]


def _curve(points: Any) -> Curve:
    pairs = tuple((_positive(size), _positive(seconds)) for size, seconds in points)
    sizes, seconds = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if not pairs or sizes != sorted(set(sizes)) or seconds != sorted(seconds):
        raise ValueError("a curve's points must rise")
    return Curve(pairs)


def _plain_transfer(transfer: Transfer) -> list[float]:
    return [transfer.latency_s, transfer.bytes_per_s, transfer.saturation_bytes]


def _transfer(values: Any) -> Transfer:
    latency, bandwidth, saturation = values
    return Transfer(_positive(latency), _positive(bandwidth), _positive(saturation))


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{value!r} is no positive number")
    return float(value)


# --- what is assumed where nothing was measured ----------------------------------------------------------------------


def _line(latency: float, per_row: float) -> Curve:
    """Return a curve of a latency and a slope."""
    sizes = (1e3, 1e6, 1e8)
    return Curve(tuple((size, latency + size * per_row) for size in sizes))


def _device(engine: str, scale: Mapping[str, float], latency: float, read: Mapping[str, float]) -> DeviceProfile:
    return DeviceProfile(
        engine=engine,
        read={f"snappy/{name}": _line(latency, seconds) for name, seconds in read.items()},
        operators={name: _line(latency, seconds) for name, seconds in scale.items()},
        to_device=Transfer(latency, 6e9, 9 * latency * 6e9),
        from_device=Transfer(latency, 6e9, 9 * latency * 6e9),
        overlaps=engine == "gpu",
    )


_CPU_READ = {
    "integer": 9e-9, "decimal": 14e-9, "floating": 9e-9, "date": 4e-9, "dictionary": 4e-9, "string": 24e-9,
    "repeating_integer": 4e-9, "repeating_decimal": 5e-9,
}  # fmt: skip
_CPU_OPERATORS = {
    "filter": 4e-9, "project": 3e-9, "build": 30e-9, "probe": 30e-9, "aggregate_few": 8e-9, "aggregate_many": 60e-9,
    "sort": 120e-9, "top_k": 10e-9,
}  # fmt: skip
_GPU_READ = {
    "integer": 0.2e-9, "decimal": 0.25e-9, "floating": 0.2e-9, "date": 0.12e-9, "dictionary": 0.15e-9, "string": 0.6e-9,
    "repeating_integer": 0.12e-9, "repeating_decimal": 0.15e-9,
}  # fmt: skip
_GPU_OPERATORS = {
    "filter": 0.08e-9, "project": 0.03e-9, "build": 1e-9, "probe": 0.6e-9, "aggregate_few": 0.08e-9,
    "aggregate_many": 1e-9, "sort": 2e-9, "top_k": 0.5e-9,
}  # fmt: skip


def assumed(engines: Mapping[Kind, str], cores: int) -> Profile:
    """Return a profile for a cluster that was never measured: round figures of one server CPU's core and one GPU.

    Parameters
    ----------
    engines : mapping of kind to str
        ``cpu``, ``gpu``, or ``simulated gpu``, which computes as fast as the CPU that it runs on.
    cores : int
    """
    devices = {
        kind: _device(engine, _GPU_OPERATORS, 3e-4, _GPU_READ)
        if engine == "gpu"
        else _device(engine, _CPU_OPERATORS, 2e-5, _CPU_READ)
        for kind, engine in engines.items()
    }
    return Profile({}, devices, 2e-3, 6e-3, _line(1e-3, 100e-9), 5e9, cores, measured=False)
