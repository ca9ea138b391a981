"""Which devices a cluster has: its workers, told apart by the Dask resources ``CPU`` and ``GPU``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hybridq.errors import DeviceUnavailable
from hybridq.topology import Kind

HOW_TO_START = (
    'start workers with "dask worker ADDRESS --nthreads N --resources CPU=N --preload hybridq.dispatch.worker" '
    "(GPU=N for a GPU worker), N being the same number"
)

RESOURCES: Mapping[Kind, str] = {"cpu": "CPU", "gpu": "GPU"}
"""The Dask resource of each kind of device."""


@dataclass(frozen=True, slots=True)
class Device:
    """What one worker drives.

    Attributes
    ----------
    worker : str
        Name of the worker.
    kind : str
        ``cpu`` or ``gpu``.
    engine : str
        ``cpu``, ``gpu`` or ``simulated gpu``.
    threads : int
        Chunks that it works on at the same time.
    memory : int
        Bytes of main memory that the worker may use; 0: no limit is set.
    device_memory : int or None
        Bytes of the GPU's memory that it may use.
    address, host : str
    pid : int
    pace : str
        How a simulated device keeps time: its speed, and whether it is steady; empty for others.
    paused : bool
        Dask has stopped giving it work, since its memory is nearly full.
    budget : int
        Bytes of ``memory`` that chunks, build sides and values may fill; 0: not known.
    """

    worker: str
    kind: Kind
    engine: str
    threads: int
    memory: int
    device_memory: int | None
    address: str
    host: str
    pid: int
    pace: str = ""
    paused: bool = False
    budget: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return asdict(self)


def slots(devices: Iterable[Device]) -> dict[Kind, int]:
    """Return how many chunks all devices of each kind work on at the same time; kinds with none are left out."""
    found: dict[Kind, int] = {}
    for device in devices:
        found[device.kind] = found.get(device.kind, 0) + device.threads
    return found


def require_devices(devices: list[Device], address: str, workers: int) -> None:
    """Check that there is something to run on.

    Raises
    ------
    DeviceUnavailable
        No usable worker; the message tells how to start some.
    """
    if not devices:
        what = "has no workers" if workers == 0 else f"has {workers} workers, none of which hybridq can use"
        raise DeviceUnavailable(f"the cluster at {address} {what}: {HOW_TO_START}")
