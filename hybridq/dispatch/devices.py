"""Which devices a cluster has: its workers, told apart by the Dask resources ``CPU`` and ``GPU``."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hybridq.dispatch.worker import describe
from hybridq.errors import ClusterUnreachable, DeviceUnavailable
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

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return asdict(self)


class Roster:
    """The usable devices of a cluster, as its workers come and go.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._known: dict[str, Device | None] = {}

    def refresh(self) -> list[Device]:
        """Ask the scheduler which workers there are; examine those not seen before.

        Workers without a CPU or GPU resource, or that cannot run hybridq, are left out, with a warning the first time.

        Returns
        -------
        list of Device
            CPU workers first, each kind by name.
        """
        try:
            workers = workers_of(self._client)
        except (OSError, KeyError) as error:
            raise ClusterUnreachable(f"the scheduler does not answer any more: {error}") from error
        new = [address for address in workers if address not in self._known]
        if new:
            self._examine({address: workers[address] for address in new})
        found = [device for address in workers if (device := self._known.get(address)) is not None]
        return sorted(found, key=lambda device: (device.kind, device.worker))

    def _examine(self, workers: Mapping[str, Mapping[str, Any]]) -> None:
        answers = self._client.run(describe, workers=list(workers), on_error="return")
        plain, failed = [], []
        for address, info in workers.items():
            name = str(info.get("name", address))
            answer = answers.get(address)
            kind = _kind(info.get("resources") or {})
            self._known[address] = None
            if kind is None:
                plain.append(name)
            elif isinstance(answer, Mapping):
                self._known[address] = Device(
                    worker=name,
                    kind=kind,
                    engine=answer["engine"],
                    threads=min(int(info["nthreads"]), int(info["resources"][RESOURCES[kind]])),
                    memory=int(info.get("memory_limit") or 0),
                    device_memory=answer["device_memory"],
                    address=address,
                    host=answer["host"],
                    pid=answer["pid"],
                )
            elif isinstance(answer, ModuleNotFoundError) and (answer.name or "").startswith("hybridq"):
                failed.append(f"{name} (no module {answer.name}: install hybridq, of this version, where workers run)")
            elif answer is None or isinstance(answer, OSError):
                del self._known[address]  # it has just gone; ask again if it comes back
            elif isinstance(answer, DeviceUnavailable):
                failed.append(f"{name} ({answer})")
            else:
                failed.append(f"{name} ({type(answer).__name__}: {answer})")
        if plain:
            warnings.warn(f"workers without a CPU or GPU resource are not used: {', '.join(plain)}", stacklevel=4)
        if failed:
            warnings.warn(f"workers that cannot run hybridq are not used: {', '.join(failed)}", stacklevel=4)


def workers_of(client: Any) -> Mapping[str, Mapping[str, Any]]:
    """Ask the scheduler for its workers, by address.

    ``Client.scheduler_info`` may return none: it reads a field that the client's own timer overwrites with totals.
    """
    found: Mapping[str, Mapping[str, Any]] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return found


def _kind(resources: Mapping[str, float]) -> Kind | None:
    if resources.get("GPU", 0) >= 1:
        return "gpu"
    return "cpu" if resources.get("CPU", 0) >= 1 else None


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
