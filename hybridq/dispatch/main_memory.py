"""The account of a worker process's main memory: one budget, shared by its threads and by all queries."""

from __future__ import annotations

import contextlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from hybridq.engines.account import ADMISSION_SECONDS, DeviceAccount, Watch

BUDGET_SHARE = 0.7
"""Share of a worker's memory limit that chunks, build sides and values may fill: Dask pauses a worker at 0.8."""

GIVE_BACK_SHARE = 0.5
"""Share of a worker's memory limit from which it gives back what it does not use."""

OWN_BYTES = 150 * 2**20
"""Bytes that a worker process holds for itself once it has imported all that chunks use, as measured."""

LOOPS_BYTES = 110 * 2**20
"""Bytes that numba and the compiled loops take besides, as measured."""

LEAST_FOR_LOOPS = 2**30
"""A worker's memory limit below which it does without the compiled loops: chunks need the memory more."""

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""What makes Linux forget the process's peak (proc_pid_clear_refs(5))."""


class MainMemory(DeviceAccount):
    """Counts what the operating system says that this process holds.

    Parameters
    ----------
    memory_limit : int
        Bytes that the worker may use, with everything that it has before it runs a chunk.
    patience : float
        As for ``DeviceAccount``.
    """

    name = "the worker's memory"
    remedy = "start workers with more memory (memory: in the cluster file, --memory-limit), or lower cpu_chunk_rows"

    def __init__(self, memory_limit: int, patience: float = ADMISSION_SECONDS) -> None:
        self.memory_limit = memory_limit
        own = OWN_BYTES + (LOOPS_BYTES if memory_limit >= LEAST_FOR_LOOPS else 0)
        self.base = max(resident_bytes(), own)  # what is imported later is not the chunks' either
        super().__init__(max(int(memory_limit * BUDGET_SHARE) - self.base, 1), patience)

    @property
    def used(self) -> int:
        """Return the bytes that the process holds now."""
        return resident_bytes()

    def give_back(self) -> None:
        """Return to the system what the process has freed, once it holds much: Dask pauses workers that do."""
        if resident_bytes() > GIVE_BACK_SHARE * self.memory_limit:
            pa.default_memory_pool().release_unused()
            _trim()

    def relieve(self) -> None:
        """Make the process smaller, if need be by moving pieces of splits to files.

        For a worker that Dask has paused: it runs no chunk after which it would give back what it has freed.
        """
        self.give_back()
        excess = resident_bytes() - int(BUDGET_SHARE * self.memory_limit)
        if excess > 0 and self._make_room(excess):
            self.give_back()

    def restart_peak(self) -> int:
        """Return the most bytes held since this was last called, where the system can forget; else since its start."""
        peak = _from_status("VmHWM") or resident_bytes()
        _forget_peak()
        return peak


class Admission:
    """A chunk's share of main memory, which can grow once it is known what the chunk has to hold.

    Parameters
    ----------
    host : MainMemory
    factor : float
        The chunk's peak footprint over the bytes of what it reads, as an estimate.
    strict : bool
        It cannot do with less than that estimate says, and what it reads cannot be taken piece by piece.
    """

    def __init__(self, host: MainMemory, factor: float, strict: bool) -> None:
        self._host = host
        self._factor = factor
        self._strict = strict
        self._wanted = 0
        self._stack = contextlib.ExitStack()
        self._watches: list[Watch] = []

    def __enter__(self) -> Admission:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def peak(self) -> int:
        """Return the most bytes that the process held while the chunk was admitted."""
        return max((watch.peak for watch in self._watches), default=0)

    @property
    def predicted(self) -> int:
        """Return the bytes that all chunks then running were expected to need."""
        return max((watch.predicted for watch in self._watches), default=0)

    def admit(self, wanted: int) -> None:
        """Wait for so many bytes in place of those that the chunk has now.

        Raises
        ------
        DeviceOutOfMemory
            There is no room for a long time.
        """
        # What it has is given back first: two that wait for each other's would wait for ever.
        self._stack.close()
        self._watches.append(self._stack.enter_context(self._host.admitted(wanted)))
        self._wanted = wanted

    def grow(self, size: int) -> None:
        """Wait for what it takes to compute with so many bytes, if that is more than was expected."""
        if size * self._factor > self._wanted:
            self.admit(int(size * self._factor))

    def lacking(self, size: int) -> tuple[int, int] | None:
        """Return the bytes that computing with so many takes, and those that a worker has; ``None``: it has them."""
        wanted, there = int(size * self._factor), self._host.memory_limit
        if self._strict:  # what the process holds for itself stays beside it
            there = max(there - self._host.base, 0)
        return (wanted, there) if (wanted if self._strict else size) > there else None


def resident_bytes() -> int:
    """Return the bytes of main memory that this process holds."""
    found = _from_status("VmRSS")
    if found is None:
        from psutil import Process

        return int(Process().memory_info().rss)
    return found


def _from_status(name: str) -> int | None:
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _trim() -> None:
    """Let the C library return what NumPy has freed, where it is one that can."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _forget_peak() -> None:
    # On another system, or in a sandbox, the peak is the process's own, which is never less than the chunk's.
    with contextlib.suppress(OSError):
        _RESET.write_text(_RESET_PEAK)


_account: MainMemory | None = None


def start_account(worker: Any) -> None:
    """Make this process's account when a Dask worker starts; what Dask keeps for it counts."""
    global _account
    limit = worker.memory_manager.memory_limit
    _account = MainMemory(int(limit or _system_memory()))
    _account.keeps(lambda: _kept_by(worker))


def main_memory() -> MainMemory:
    """Return this process's account; made at the first use where no Dask worker has started."""
    global _account
    if _account is None:
        _account = MainMemory(_system_memory())
    return _account


def _kept_by(worker: Any) -> int:
    """Return the bytes of values that a Dask worker holds in memory, not those that it has moved to disk."""
    fast = getattr(worker.data, "fast", None)
    size = getattr(fast, "total_weight", None)
    return int(worker.state.nbytes if size is None else size)


@lru_cache(maxsize=1)
def _system_memory() -> int:
    from psutil import virtual_memory

    return int(virtual_memory().total)
