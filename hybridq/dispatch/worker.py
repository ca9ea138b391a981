"""What a worker process has: its engine, its thread pools, and the build sides that its threads share."""

from __future__ import annotations

import os
import socket
import sys
import threading
import weakref
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from hybridq.dispatch.device_rows import DEVICE_ROWS, Rows, copied_bytes
from hybridq.dispatch.key_names import forget_keys_of
from hybridq.dispatch.messages import send_promptly
from hybridq.dispatch.read_ahead import READ_AHEAD
from hybridq.engines.account import DeviceAccount
from hybridq.engines.protocol import BuildSide, Engine
from hybridq.errors import ConfigurationError, DeviceUnavailable
from hybridq.pandas_later import leave_pandas_for_later

RELIEF_MILLISECONDS = 500
"""How often a worker looks whether Dask has paused it for want of memory."""

MAX_BUILD_SIDES = 64
"""Build sides that a worker process keeps at most; the least recently used one goes first."""

SWITCH_SECONDS = 0.0005
"""After how long a thread that runs Python lets another one. A GPU's threads give the interpreter up for each call of
libcudf, of which most take less than the 5 ms that they would wait to get it back."""


def dask_setup(worker: Any) -> None:
    """Prepare the process (Dask calls it, since workers are started with ``--preload hybridq.dispatch.worker``)."""
    import hybridq.dispatch.tasks
    import hybridq.engines.cpu  # noqa: F401 -- here, so that the first task need not wait for them

    prepare_process()
    send_promptly(getattr(worker, "batched_stream", None))
    from hybridq.dispatch.main_memory import LEAST_FOR_LOOPS, main_memory, start_account
    from hybridq.engines.compiled import KERNELS

    limit = worker.memory_manager.memory_limit
    if limit and limit < LEAST_FOR_LOOPS:
        KERNELS.unload()
    start_account(worker)
    if worker.state.total_resources.get("GPU"):  # whose build sides are on the device
        main_memory().keeps(copied_bytes)
    else:
        main_memory().keeps(lambda: BUILD_SIDES.nbytes)
    _relieve_while_paused(worker)
    forget_keys_of(worker)
    if os.environ.get("HYBRIDQ_ENGINE") == "cpu":  # it was started by hybridq, and runs nothing else
        leave_pandas_for_later()
    else:
        # Arrow imports pandas as it first converts a list, which takes a third of a second; not in a query's time.
        threading.Thread(target=pa.array, args=([1],), daemon=True).start()


def _relieve_while_paused(worker: Any) -> None:
    """Look every half second whether Dask has paused the worker, whose memory then gets smaller by nobody else."""
    from distributed.core import Status
    from tornado.ioloop import PeriodicCallback

    from hybridq.dispatch.main_memory import main_memory

    at_work = threading.Lock()

    def relieve() -> None:
        with at_work:
            main_memory().relieve()

    def look() -> None:
        if worker.status == Status.paused and not at_work.locked():
            threading.Thread(target=relieve, daemon=True).start()

    worker.periodic_callbacks["hybridq-memory"] = PeriodicCallback(look, RELIEF_MILLISECONDS)


@lru_cache(maxsize=1)
def prepare_process() -> None:
    """Set Arrow's pools to one thread: the tasks that run side by side are the parallelism."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(2)


@lru_cache(maxsize=2)
def engine_for_worker(kind: str) -> Engine:
    """Return this process's engine for chunks of one kind of device.

    A GPU worker's engine is what ``HYBRIDQ_ENGINE`` says: ``cuda`` (the default) or ``simulated``, with
    ``HYBRIDQ_DEVICE_MEMORY`` bytes of device memory (a share of it is the default of a real GPU) and, for the simulated
    one, ``HYBRIDQ_SIMULATED_SPEED``. A CPU worker that is ``simulated`` is slowed down to that speed. With
    ``HYBRIDQ_SIMULATED_STEADY`` simulated devices keep time by rows.

    Raises
    ------
    DeviceUnavailable
        The worker has no such device, or lacks the packages to use it.
    """
    prepare_process()
    name = os.environ.get("HYBRIDQ_ENGINE", "cuda")
    speed = float(os.environ.get("HYBRIDQ_SIMULATED_SPEED") or 1)
    steady = bool(os.environ.get("HYBRIDQ_SIMULATED_STEADY"))
    if kind == "cpu":
        if name == "simulated":
            from hybridq.testing.simulated import slowed_cpu_engine

            return slowed_cpu_engine(speed, steady=steady)
        from hybridq.engines.cpu import CpuEngine

        return CpuEngine()
    if name == "simulated":
        from hybridq.testing.simulated import simulated_gpu_engine

        limit = int(os.environ.get("HYBRIDQ_DEVICE_MEMORY") or 2 * 2**30)
        simulated = simulated_gpu_engine(limit, speed, steady)
        _count_kept(simulated.memory)
        return simulated
    if name == "cuda":
        return _gpu_engine(os.environ.get("HYBRIDQ_DEVICE_MEMORY"))
    raise ConfigurationError(f"HYBRIDQ_ENGINE must be cuda or simulated on a GPU worker, not {name!r}")


def _gpu_engine(memory: str | None) -> Engine:
    """Take this process's GPU: its first visible one."""
    try:
        from hybridq.engines.gpu.engine import GpuEngine
        from hybridq.engines.gpu.memory import start_device
    except ImportError as error:
        raise DeviceUnavailable(
            f"this worker cannot use its GPU, for a package is missing ({error}): pip install 'hybridq[gpu]' there"
        ) from error
    account = start_device(int(memory)) if memory else start_device()
    _count_kept(account)
    sys.setswitchinterval(SWITCH_SECONDS)
    return GpuEngine(account)


def _count_kept(account: DeviceAccount) -> None:
    """Have a device's account count what stays there from chunk to chunk."""
    account.keeps(lambda: BUILD_SIDES.nbytes)
    account.keeps(lambda: READ_AHEAD.nbytes, READ_AHEAD.evict)
    account.keeps(lambda: DEVICE_ROWS.nbytes, DEVICE_ROWS.evict)


def pace_of(engine: Engine) -> str:
    """Say how a simulated device keeps time; empty for others."""
    if not engine.name.startswith("simulated"):
        return ""
    steady = " steady" if os.environ.get("HYBRIDQ_SIMULATED_STEADY") else ""
    return f"{float(os.environ.get('HYBRIDQ_SIMULATED_SPEED') or 1):g}{steady}"


def describe(dask_worker: Any) -> dict[str, Any]:
    """Tell what hybridq finds on this worker, and make its engine ready.

    Raises
    ------
    Exception
        The engine cannot be used; whatever its import or its start raised.
    """
    from hybridq import __version__
    from hybridq.dispatch.main_memory import main_memory

    kind = "gpu" if dask_worker.state.total_resources.get("GPU") else "cpu"
    engine = engine_for_worker(kind)
    return {
        "version": __version__,
        "engine": engine.name,
        "pace": pace_of(engine),
        "device_memory": getattr(getattr(engine, "memory", None), "limit", None),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "budget": main_memory().limit,
    }


class _Entry:
    """A build side, or the place where one thread is making it."""

    __slots__ = ("build", "lock", "table")

    def __init__(self, table: weakref.ref[Rows]) -> None:
        self.table = table
        self.lock = threading.Lock()
        self.build: BuildSide | None = None


class BuildCache:
    """Build sides by the table they are made from, one for all threads.

    A build side lives as long as its table: Dask drops the table once the query has released it (or has moved it to
    disk), and the build side goes with it.

    Parameters
    ----------
    capacity : int
        Build sides to keep at most.
    """

    def __init__(self, capacity: int = MAX_BUILD_SIDES) -> None:
        self._capacity = capacity
        self._lock = threading.RLock()  # a table may be collected, and its entry dropped, while the lock is held
        self._entries: dict[tuple[int, str], _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the build sides that are made."""
        with self._lock:
            return sum(entry.build.nbytes for entry in self._entries.values() if entry.build is not None)

    def get(self, table: Rows, label: str, make: Callable[[], BuildSide]) -> BuildSide:
        """Return the build side of ``table``; ``make`` is called by the first thread that asks, the others wait for it.

        Parameters
        ----------
        table : pyarrow.Table or DeviceRows
            What the build side is made from.
        label : str
            Tells apart build sides of one table (other keys, another engine).
        make : callable
            Makes the build side.
        """
        key = (id(table), label)
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is None or entry.table() is not table:
                entry = _Entry(weakref.ref(table, lambda _: self._drop(key)))
            self._entries[key] = entry  # at the end: the most recently used
            while len(self._entries) > self._capacity:
                del self._entries[next(iter(self._entries))]
        with entry.lock:
            if entry.build is None:
                entry.build = make()
            return entry.build

    def _drop(self, key: tuple[int, str]) -> None:
        with self._lock:
            self._entries.pop(key, None)


BUILD_SIDES = BuildCache()
"""The build sides of this process."""
