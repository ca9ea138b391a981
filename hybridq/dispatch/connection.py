"""A session's connection to a Dask scheduler."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any, Protocol

from hybridq.dispatch.devices import Device, Roster, require_devices, slots, workers_of
from hybridq.dispatch.executor import DaskExecutor, EventRouter, Executor
from hybridq.errors import ClusterUnreachable, DeviceUnavailable
from hybridq.topology import Kind

SEND_INTERVAL = 0.001
"""Seconds for which messages to the scheduler are collected."""


def preload() -> None:
    """Import Dask now, so that a later ``Connection`` need not wait for it."""
    import distributed  # noqa: F401


class ConnectionProtocol(Protocol):
    """What a session needs of the place where its queries run."""

    def devices(self) -> list[Device]:
        """Return the usable devices that are there now."""

    def slots(self) -> dict[Kind, int]:
        """Return how many chunks the devices of each kind work on at the same time."""

    def executor(self, query: str) -> Executor:
        """Return what runs one query's tasks."""

    def forget(self, query: str) -> None:
        """Drop what tasks of a query still report."""

    def close(self) -> None:
        """Disconnect."""


class Connection:
    """Holds the Dask client, the list of devices, and the channel for what tasks report.

    Parameters
    ----------
    address : str
        The scheduler's.
    timeout : float
        Seconds to wait for an answer.
    direct : bool
        Workers' addresses can be reached from here.

    Raises
    ------
    ClusterUnreachable
        Nobody answers, or it is no Dask scheduler.
    DeviceUnavailable
        There is no worker that hybridq can use.
    """

    def __init__(self, address: str, timeout: float, direct: bool) -> None:
        import distributed

        make: Any = distributed.Client
        self.address = address
        self._direct = direct
        try:
            self._client: Any = make(
                address, timeout=timeout, set_as_default=False, asynchronous=False, direct_to_workers=direct
            )
        except Exception as error:
            detail = " ".join(str(error).split())
            raise ClusterUnreachable(f"no scheduler answered at {address} within {timeout:g} s: {detail}") from error
        # Dask holds messages back for 10 ms to send several at once; a chunk should not wait that long.
        sender: Any = getattr(self._client, "scheduler_comm", None)
        if hasattr(sender, "interval"):
            sender.interval = SEND_INTERVAL
        try:
            self._roster = Roster(self._client)
            require_devices(self._roster.refresh(), address, len(workers_of(self._client)))
            self._router = EventRouter(self._client, f"hybridq-{uuid.uuid4().hex}")
        except BaseException:
            self.close()
            raise

    def devices(self) -> list[Device]:
        """Return the usable devices that are there now."""
        return self._roster.refresh()

    def slots(self) -> dict[Kind, int]:
        """Return how many chunks the devices of each kind work on at the same time."""
        found = slots(self.devices())
        if not found:
            raise DeviceUnavailable(f"the cluster at {self.address} has lost all workers that hybridq can use")
        return found

    def executor(self, query: str) -> DaskExecutor:
        """Return what runs one query's tasks."""
        return DaskExecutor(self._client, self._roster, self._router, query, self._direct)

    def forget(self, query: str) -> None:
        """Drop what tasks of a query still report."""
        self._router.close(query)

    def close(self) -> None:
        """Disconnect."""
        with contextlib.suppress(OSError, TimeoutError):
            self._client.close(timeout=2)
