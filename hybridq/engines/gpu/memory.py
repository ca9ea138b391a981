"""The device's memory: a pool with a maximum, and an account of it."""

from __future__ import annotations

import os
import threading

import rmm.mr

from hybridq.engines.account import DeviceAccount
from hybridq.errors import ConfigurationError, DeviceOutOfMemory

ALIGNMENT = 256
READER_THREADS = 8
"""Threads that read files for a device: fewer starve it, more gain nothing (measured on 16 cores)."""

ARENAS_FROM = 4 << 30
"""Bytes of memory from which each thread allocates from an arena of its own. From one pool for all, a thread waits for
the streams of those whose freed blocks it gets; but arenas hold on to blocks of which little is in use."""


class DeviceMemory(DeviceAccount):
    """The account of the memory pool of this process's device.

    Parameters
    ----------
    limit : int
        Bytes of the pool.
    counters : rmm.mr.StatisticsResourceAdaptor
        Counts what the pool gives out.
    """

    def __init__(self, limit: int, counters: rmm.mr.StatisticsResourceAdaptor) -> None:
        super().__init__(limit)
        self._counters = counters
        self._lock = threading.Lock()
        self._base = 0
        self._pushed = False

    @property
    def used(self) -> int:
        """Return the bytes allocated now."""
        with self._lock:
            return self._base + int(self._counters.allocation_counts.current_bytes)

    def restart_peak(self) -> int:
        """Return the most bytes allocated since this was last called."""
        with self._lock:
            peak = self._base + int(self._counters.allocation_counts.peak_bytes)
            # A pushed counter starts from 0: what was allocated before is added to it.
            if self._pushed:
                self._counters.pop_counters()
            self._base = int(self._counters.allocation_counts.current_bytes)
            self._counters.push_counters()
            self._pushed = True
            return peak


_lock = threading.Lock()
_started: DeviceMemory | None = None


def start_device(memory: int | float = 0.8, reader_threads: int = READER_THREADS) -> DeviceMemory:
    """Prepare this process's device: make its memory pool, once. Call it before anything is put on the device.

    Parameters
    ----------
    memory : int or float
        Bytes of the pool, or (up to 1.0) a share of the device's memory.
    reader_threads : int
        Threads that read files, unless the environment says otherwise (``KVIKIO_NTHREADS``).

    Raises
    ------
    ConfigurationError
        The size makes no sense for the device.
    DeviceOutOfMemory
        So much memory is not free, for another process has it.
    """
    global _started
    with _lock:
        if _started is not None:
            return _started
        os.environ.setdefault("KVIKIO_NTHREADS", str(reader_threads))
        free, total = rmm.mr.available_device_memory()
        wanted = int(total * memory) if isinstance(memory, float) and memory <= 1 else int(memory)
        limit = wanted // ALIGNMENT * ALIGNMENT
        if not 0 < limit <= total:
            raise ConfigurationError(f"the device memory must be above 0 and at most {total} bytes, not {memory}")
        try:
            # All at once: a pool that grows piece by piece cannot serve an allocation that spans pieces.
            device = rmm.mr.CudaMemoryResource()
            arenas = limit >= ARENAS_FROM
            pool = (
                rmm.mr.ArenaMemoryResource(device, limit) if arenas else rmm.mr.PoolMemoryResource(device, limit, limit)
            )
        except MemoryError as error:
            raise DeviceOutOfMemory(
                f"cannot reserve {limit} bytes on the GPU: {free} of {total} are free; lower the memory setting, or "
                "end the process that holds the rest",
                limit,
                free,
            ) from error
        counters = rmm.mr.StatisticsResourceAdaptor(pool)
        rmm.mr.set_current_device_resource(counters)
        _started = DeviceMemory(limit, counters)
        return _started
