"""The usable devices of a cluster, as its workers come, go, fall silent and fill up."""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hybridq.dispatch.asking import ask, tell
from hybridq.dispatch.devices import RESOURCES, Device
from hybridq.dispatch.worker import describe
from hybridq.errors import ClusterUnreachable, DeviceUnavailable
from hybridq.topology import Kind

logger = logging.getLogger(__name__)

EXAMINE_SECONDS = 60.0
"""Seconds that a new worker may take to tell what it is: a GPU worker imports its engine first."""

RESTART_SECONDS = 40.0
"""Seconds that restarting a worker may take."""

SILENCE_SECONDS = 3.0
"""Seconds of silence that mean nothing, however impatient the settings: workers report every half second or two."""

FRESH_SECONDS = 0.1
"""Seconds for which the scheduler's answer is still good where the moment does not matter: a query that follows
another, or that has just been placed, need not ask again as it begins."""

Workers = Mapping[str, Mapping[str, Any]]


class Roster:
    """Knows the usable devices. Threads may share it.

    Parameters
    ----------
    client : distributed.Client
    patience : float
        Seconds without a sign of life, or with a full memory and nothing to do, after which a worker is given up; also
        those that the scheduler may take to answer.
    """

    def __init__(self, client: Any, patience: float = 30.0) -> None:
        self._client = client
        self._patience = patience
        self._lock = threading.Lock()
        self._known: dict[str, Device | None] = {}
        self._asked: set[str] = set()
        self._well_since: dict[str, tuple[Any, float]] = {}
        self._given_up: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._connecting_since: float | None = None
        self._told: tuple[Workers, float] = {}, -math.inf

    def refresh(self, wait: bool = True, recent: bool = False) -> list[Device]:
        """Ask the scheduler which workers there are; examine those not seen before.

        Workers without a CPU or GPU resource, or that cannot run hybridq, are left out, with a warning the first time.
        So are those that have fallen silent, which the scheduler is asked to restart.

        Parameters
        ----------
        wait : bool
            Wait for what new workers tell of themselves; otherwise they are there the next time.
        recent : bool
            What the scheduler said a moment ago will do; it always will where ``wait`` is false.

        Returns
        -------
        list of Device
            CPU workers first, each kind by name.

        Raises
        ------
        ClusterUnreachable
            The scheduler does not answer.
        """
        self._check_connection()
        told, when = self._told
        if (wait and not recent) or time.monotonic() - when > FRESH_SECONDS:
            told = workers_of(self._client, self._patience)
            self._told = told, time.monotonic()
        workers = told
        self._give_up_silent(workers)
        with self._lock:
            new = [each for each in workers if each not in self._known and each not in self._asked]
            self._asked.update(new)
        threads = [threading.Thread(target=self._examine, args=(each, workers[each]), daemon=True) for each in new]
        for thread in threads:
            thread.start()
        if wait:
            for thread in threads:
                thread.join()
        found = []
        for address, info in workers.items():
            device = self._known.get(address)
            if device is not None and address not in self._given_up:
                found.append(replace(device, paused=info.get("status") == "paused"))
        if wait:
            self._warn(workers)
        return sorted(found, key=lambda device: (device.kind, device.worker))

    def _check_connection(self) -> None:
        """Give up where Dask's client has tried to connect again for too long: it may have failed without a word."""
        now = time.monotonic()
        if getattr(self._client, "status", "running") != "connecting":
            self._connecting_since = None
        elif self._connecting_since is None:
            self._connecting_since = now
        elif now - self._connecting_since > self._patience:
            raise ClusterUnreachable(
                f"the connection to the scheduler was lost, and not made again in {self._patience:g} s: connect anew"
            )

    def _give_up_silent(self, workers: Workers) -> None:
        """Have workers restarted that give no sign of life, or are full and idle, so that others get their work.

        What counts is how long this process has seen no change: clocks of other machines may be wrong.
        """
        now = time.monotonic()
        # The more workers there are, the less often Dask lets each of them report.
        patience = max(self._patience, SILENCE_SECONDS + len(workers) / 20)
        with self._lock:
            for address, info in workers.items():
                sign = None if _stuck(info) else info.get("last_seen", now)
                before = self._well_since.get(address)
                if before is None or (sign is not None and sign != before[0]):
                    self._well_since[address] = (sign, now)
            gone = [each for each in self._well_since if each not in workers]
            for address in gone:
                del self._well_since[address]
                self._given_up.discard(address)
                self._known.pop(address, None)
            lost = [
                address
                for address, (_, since) in self._well_since.items()
                if now - since > patience and address not in self._given_up
            ]
            self._given_up.update(lost)
        for address in lost:
            name = workers[address].get("name", address)
            logger.warning("worker %s is given up: no sign of life, or no free memory, for %g s", name, patience)
            threading.Thread(target=self._restart, args=(address,), daemon=True).start()

    @property
    def given_up(self) -> int:
        """Return how many workers have been given up and are still listed by the scheduler."""
        return len(self._given_up)

    def _restart(self, address: str) -> None:
        tell(
            self._client,
            self._client.scheduler.restart_workers,
            workers=[address],
            timeout=RESTART_SECONDS,
            wait_for_workers=False,
            on_error="return",
            stimulus_id=f"hybridq-{uuid.uuid4().hex}",
        )

    def _examine(self, address: str, info: Mapping[str, Any]) -> None:
        try:
            answers = self._client.sync(
                self._client._run, describe, workers=[address], on_error="return", callback_timeout=EXAMINE_SECONDS
            )
            answer = answers.get(address)
        except Exception as error:  # it, or the whole cluster, has just gone
            answer = error if isinstance(error, OSError) else OSError(str(error))
        with self._lock:
            self._asked.discard(address)
            kind = _kind(info.get("resources") or {})
            if kind is not None and (answer is None or isinstance(answer, OSError)):
                return  # it has just gone; it is asked again if it comes back
            self._known[address] = None
            if kind is not None and isinstance(answer, Mapping):
                self._known[address] = Device(
                    worker=str(info.get("name", address)),
                    kind=kind,
                    engine=answer["engine"],
                    threads=min(int(info["nthreads"]), int(info["resources"][RESOURCES[kind]])),
                    memory=int(info.get("memory_limit") or 0),
                    device_memory=answer["device_memory"],
                    address=address,
                    host=answer["host"],
                    pid=answer["pid"],
                    budget=answer["budget"],
                    pace=answer["pace"],
                )
            else:
                self._reasons[address] = "" if kind is None else _reason(answer)

    def _warn(self, workers: Workers) -> None:
        """Say, once, which workers cannot be used, and why."""
        with self._lock:
            told, self._reasons = self._reasons, {}
        names = {address: str(workers[address].get("name", address)) for address in told if address in workers}
        plain = [name for address, name in names.items() if not told[address]]
        failed = [f"{name} ({told[address]})" for address, name in names.items() if told[address]]
        if plain:
            warnings.warn(f"workers without a CPU or GPU resource are not used: {', '.join(plain)}", stacklevel=4)
        if failed:
            warnings.warn(f"workers that cannot run hybridq are not used: {', '.join(failed)}", stacklevel=4)


def workers_of(client: Any, timeout: float) -> Workers:
    """Ask the scheduler for its workers, by address.

    ``Client.scheduler_info`` may return none: it reads a field that the client's own timer overwrites with totals.

    Raises
    ------
    ClusterUnreachable
        It does not answer within ``timeout`` seconds.
    """
    found: Workers = ask(client, _identity, client, timeout=timeout)["workers"]
    return found


def _identity(client: Any) -> Any:
    return client.scheduler.identity(n_workers=-1)


def _stuck(info: Mapping[str, Any]) -> bool:
    """Tell whether a worker is full and has nothing to do, so that it will not get any emptier by itself."""
    counts = (info.get("metrics") or {}).get("task_counts") or {}
    return info.get("status") == "paused" and not counts.get("executing")


def _reason(answer: Any) -> str:
    """Say why a worker cannot be used."""
    if isinstance(answer, ModuleNotFoundError) and (answer.name or "").startswith("hybridq"):
        return f"no module {answer.name}: install hybridq, of this version, where workers run"
    if isinstance(answer, DeviceUnavailable):
        return str(answer)
    return f"{type(answer).__name__}: {answer}"


def _kind(resources: Mapping[str, float]) -> Kind | None:
    if resources.get("GPU", 0) >= 1:
        return "gpu"
    return "cpu" if resources.get("CPU", 0) >= 1 else None
