"""The account of a device's memory: what chunks are expected to need, are admitted with, and are seen to take.

A worker process has one account for its device, and one for its own main memory. Threads and queries share them.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hybridq.errors import DeviceOutOfMemory

ADMISSION_SECONDS = 600.0
"""Seconds that a chunk waits for others to make room before it is refused."""

LOOK_AGAIN_SECONDS = 0.5
"""How often a chunk that waits looks whether what is kept has become less, of which nobody tells."""

Evict = Callable[[int], int]
"""Frees about so many bytes, and returns how many it freed."""


@dataclass(slots=True)
class Watch:
    """What the device's memory was used for while one chunk ran.

    Attributes
    ----------
    predicted : int
        Bytes that all chunks then running were expected to need, with what is kept from chunk to chunk.
    peak : int
        The most bytes that were allocated, by whomever.
    """

    predicted: int = 0
    peak: int = 0


class DeviceAccount(ABC):
    """Admits chunks to a device, and watches what they take.

    Parameters
    ----------
    limit : int
        Bytes of the device that may be used.
    patience : float
        Seconds that a chunk waits to be admitted.
    """

    name = "the device"
    remedy = "use smaller chunks (gpu_chunk_rows), or give the worker more device_memory"

    def __init__(self, limit: int, patience: float = ADMISSION_SECONDS) -> None:
        self.limit = limit
        self._patience = patience
        self._waiting: deque[object] = deque()
        self._turn = threading.Condition()
        self._admitted = 0
        self._watches: list[Watch] = []
        self._kept: list[Callable[[], int]] = []
        self._evict: list[Evict] = []

    @property
    @abstractmethod
    def used(self) -> int:
        """Return the bytes allocated now."""

    @abstractmethod
    def restart_peak(self) -> int:
        """Return the most bytes allocated since this was last called."""

    @property
    def kept(self) -> int:
        """Return the bytes that stay allocated from chunk to chunk: build sides and cached columns."""
        return sum(size() for size in self._kept)

    @property
    def promised(self) -> int:
        """Return the bytes that chunks were admitted with, and those kept from chunk to chunk."""
        return self._admitted + self.kept

    def keeps(self, size: Callable[[], int], evict: Evict | None = None) -> None:
        """Name something that stays allocated from chunk to chunk, and how it can be made smaller."""
        self._kept.append(size)
        if evict is not None:
            self._evict.append(evict)

    @contextmanager
    def admitted(self, wanted: int) -> Iterator[Watch]:
        """Wait until a chunk fits beside those that run, and watch the memory while it does.

        Chunks are admitted in the order in which they come, of whatever query. One that does not fit by itself is let
        in all the same once no other runs: the prediction may be too high, and a device out of memory says so.

        Parameters
        ----------
        wanted : int
            Bytes that the chunk is expected to need.

        Raises
        ------
        DeviceOutOfMemory
            The others have not made room in time.
        """
        with self._turn:
            self._wait(wanted)
            self._admitted += wanted
            watch = Watch(predicted=self._admitted + self.kept)
            self._note_peak()
            self._watches.append(watch)
        try:
            yield watch
        finally:
            with self._turn:
                self._note_peak()
                self._watches = [other for other in self._watches if other is not watch]
                self._admitted -= wanted
                self._turn.notify_all()

    def _wait(self, wanted: int) -> None:
        """Wait for one's turn, and for the room."""
        ticket = object()
        self._waiting.append(ticket)
        deadline = time.monotonic() + self._patience
        try:
            while not (self._waiting[0] is ticket and self._has_room(wanted)):
                left = deadline - time.monotonic()
                if left <= 0:
                    free = max(self.limit - self._admitted - self.kept, 0)
                    raise DeviceOutOfMemory(
                        f"a chunk wants {wanted} bytes of {self.name}, and for {self._patience:g} s no more than "
                        f"{free} of {self.limit} have been free: {self.remedy}",
                        wanted,
                        free,
                    )
                self._turn.wait(min(left, LOOK_AGAIN_SECONDS))
        finally:
            self._waiting.remove(ticket)
            self._turn.notify_all()

    def _has_room(self, wanted: int) -> bool:
        """Tell whether a chunk may run now: it fits, if need be after giving something up, or it would run alone."""
        while (excess := self._admitted + wanted + self.kept - self.limit) > 0:
            if not self._make_room(excess):
                return not self._admitted
        return True

    def _make_room(self, wanted: int) -> bool:
        """Give up cached columns; tells whether any were freed."""
        return any(evict(wanted) > 0 for evict in self._evict)

    def _note_peak(self) -> None:
        """Credit all chunks that run with the peak so far."""
        peak = self.restart_peak()
        for watch in self._watches:
            watch.peak = max(watch.peak, peak)
