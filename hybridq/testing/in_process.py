"""Queries without a cluster: the same plans, stages, driver, engines and merges, with every task run at once in place.

Nothing is sent anywhere and no worker process is started, so thousands of small queries take seconds. What a cluster
adds (processes, messages, lost workers) is not exercised.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from hybridq.config import Config
from hybridq.dispatch.device_rows import as_table
from hybridq.dispatch.devices import Device, slots
from hybridq.dispatch.executor import Event, Failed, Finished, Message
from hybridq.dispatch.measurements import EFFORTS, measure
from hybridq.dispatch.pieces import PieceStore
from hybridq.dispatch.tasks import ChunkTask, MergeTask, compute_chunk, compute_merge, compute_read_ahead
from hybridq.engines.protocol import Engine
from hybridq.errors import HybridqError
from hybridq.placement.calibrate import ClusterMeasurements, EffortName
from hybridq.session import Session
from hybridq.testing.simulated import SimulatedGpuEngine
from hybridq.topology import Kind

DEVICE_MEMORY = 512 * 2**20
"""Bytes of the simulated GPU."""


class InProcessExecutor:
    """Runs one query's tasks in the driver's thread.

    Parameters
    ----------
    engines : dict of str to Engine
        The engine of each kind of device; a kind without one has no device.
    """

    def __init__(self, engines: dict[Kind, Engine]) -> None:
        self.messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.topic = "in process"
        self._engines = engines
        self._values: dict[str, Any] = {}
        self._pieces = PieceStore()

    def devices(self) -> list[Device]:
        """Return one device of each kind."""
        return devices_of(self._engines)

    def run_chunk(
        self,
        task: ChunkTask,
        memory: Sequence[pa.Table],
        inputs: Sequence[str],
        kind: Kind,
        priority: int,
        worker: str = "",
    ) -> None:
        """Run a chunk."""
        try:
            tables = [*memory, *(self._values[key] for key in inputs)]
            ahead = tables.pop() if task.ahead else None
            value, event = compute_chunk(task, self._engines[kind], tables, self._pieces, _nobody, ahead=ahead)
        except HybridqError as error:
            self.messages.put(Failed(task.key, error))
            return
        self._finish(task.query, task.key, kind, value, event)

    def merge(self, task: MergeTask, parts: Sequence[str], kind: Kind, priority: int) -> None:
        """Merge earlier tasks' values."""
        try:
            gpu = self._engines["gpu"] if kind == "gpu" else None
            value, event = compute_merge(task, [self._values[key] for key in parts], gpu)
        except HybridqError as error:
            self.messages.put(Failed(task.key, error))
            return
        self._finish(task.query, task.key, kind, value, event)

    def read_ahead(self, task: ChunkTask, kind: Kind, priority: int) -> None:
        """Read what a chunk will need."""
        self._values[task.key] = compute_read_ahead(task, self._engines[kind])
        self.messages.put(Finished(task.key))

    def share(self, keys: Sequence[str], devices: Sequence[Device]) -> None:
        """Do nothing: everything is in one process."""

    def _finish(self, query: str, key: str, kind: Kind, value: Any, event: dict[str, Any]) -> None:
        self._values[key] = value
        self.messages.put(Event({**event, "query": query, "key": key, "device": kind, "address": f"here/{kind}"}))
        self.messages.put(Finished(key))

    def fetch(self, key: str, stop: Callable[[], bool] = lambda: False) -> pa.Table:
        """Return a task's value."""
        return as_table(self._values[key])

    def release(self, keys: Sequence[str]) -> None:
        """Forget values that are no longer needed."""
        for key in keys:
            self._values.pop(key, None)
            self._pieces.drop(key)

    def cancel(self, keys: Sequence[str]) -> None:
        """Forget values of tasks that are given up; all have ended."""
        self.release(keys)


class InProcessConnection:
    """Stands where a session has its connection to a scheduler.

    Parameters
    ----------
    engines : dict of str to Engine
        As for ``InProcessExecutor``.
    """

    keeps_profiles = False

    def __init__(self, engines: dict[Kind, Engine]) -> None:
        self._engines = engines

    def devices(self) -> list[Device]:
        """Return one device of each kind."""
        return devices_of(self._engines)

    def slots(self) -> dict[Kind, int]:
        """Return how many chunks the devices of each kind work on at the same time."""
        return slots(self.devices())

    def executor(self, query: str) -> InProcessExecutor:
        """Return what runs one query's tasks."""
        return InProcessExecutor(self._engines)

    def forget(self, query: str) -> None:
        """Do nothing: nothing comes late."""

    def measure(self, effort: EffortName) -> ClusterMeasurements:
        """Measure each engine; tasks cost nothing here."""
        start = time.perf_counter()
        workers = {kind: measure(engine, EFFORTS[effort]) for kind, engine in self._engines.items()}
        return ClusterMeasurements(workers, 1e-6, 1e-6, time.perf_counter() - start, effort)

    def close(self) -> None:
        """Do nothing: nothing was opened."""


def _nobody(address: str, names: Sequence[str], partitions: Sequence[Sequence[int]]) -> list[list[pa.Buffer]]:
    """Stand for other workers: there are none."""
    raise KeyError(*names)


def devices_of(engines: dict[Kind, Engine]) -> list[Device]:
    """Describe one device for each engine; the GPU has a thread to read ahead with."""
    return [
        Device(
            worker=kind,
            kind=kind,
            engine=engine.name,
            threads=2 if kind == "gpu" else 1,
            memory=0,
            device_memory=getattr(getattr(engine, "memory", None), "limit", None),
            address=f"here/{kind}",
            host="here",
            pid=0,
        )
        for kind, engine in sorted(engines.items())
    ]


def connect_in_process(gpu: Engine | None = None, **options: Any) -> Session:
    """Return a session that runs queries in this process, with the CPU engine and a GPU engine.

    Parameters
    ----------
    gpu : Engine, optional
        What runs GPU chunks; a simulated GPU if left out.
    **options
        Settings by name (see ``hybridq.config.Config``).
    """
    from hybridq.engines.cpu import CpuEngine

    engines: dict[Kind, Engine] = {"cpu": CpuEngine(), "gpu": gpu or SimulatedGpuEngine(DEVICE_MEMORY)}
    return Session("in process", Config.load(**options), connection=InProcessConnection(engines))
