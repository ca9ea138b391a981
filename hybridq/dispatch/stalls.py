"""Notices when a query waits for workers that are not there."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from hybridq.dispatch.devices import Device
from hybridq.errors import WorkersLost
from hybridq.topology import Kind


class StallWatch:
    """Remembers since when each kind of worker has been missing.

    Parameters
    ----------
    timeout : float
        Seconds after which that is an error.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._since: dict[Kind, float] = {}

    def check(self, needed: Iterable[Kind], devices: Sequence[Device]) -> None:
        """Give up when a kind of worker that is needed has been missing, or full, for too long.

        Raises
        ------
        WorkersLost
            The message says which, and what to do.
        """
        now = time.monotonic()
        at_work = {device.kind for device in devices if not device.paused}
        self._since = {kind: self._since.get(kind, now) for kind in needed if kind not in at_work}
        for kind, since in self._since.items():
            if now - since < self._timeout:
                continue
            full = [device for device in devices if device.kind == kind]
            if full:
                names = ", ".join(f"{device.worker} ({device.memory:,} bytes)" for device in full)
                raise WorkersLost(
                    f"for {self._timeout:g} s no {kind.upper()} worker has had memory to go on: {names}: start workers "
                    "with more memory, or use smaller chunks (cpu_chunk_rows, gpu_chunk_rows)"
                )
            raise WorkersLost(
                f"no {kind.upper()} worker for {self._timeout:g} s, and the query needs one: start one again, or raise "
                "stall_timeout"
            )
