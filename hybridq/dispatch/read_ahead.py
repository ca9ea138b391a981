"""What chunks read, read before they can run.

While a build side is being made, a GPU has time to read: the chunks that will probe it are read then, and wait on the
device. All of this may be lost at any time (memory is needed for something else, a worker dies): the chunk then reads
for itself.
"""

from __future__ import annotations

import threading
import time
import weakref

from hybridq.engines.protocol import Frame


class ReadAhead:
    """The source rows of one chunk, on the worker that read them; empty, and of no use, anywhere else.

    Parameters
    ----------
    frame : Frame or None
        ``None``: nothing was read.
    seconds : float
        What reading took.
    read_again : int
        Times that files were read once more after an error.
    saved : int
        Bytes in files that were on the device already.

    Attributes
    ----------
    ended : float
        When it was read, on ``time.perf_counter``.
    used : bool
        Somebody has taken the rows to compute with.
    """

    def __init__(self, frame: Frame | None = None, seconds: float = 0.0, read_again: int = 0, saved: int = 0) -> None:
        self._lock = threading.Lock()
        self._frame = frame
        self.seconds = seconds
        self.read_again = read_again
        self.saved = saved
        self.used = False
        self.ended = time.perf_counter()
        if frame is not None:
            READ_AHEAD.add(self)

    def __reduce__(self) -> tuple[type[ReadAhead], tuple[()]]:
        """Leave the rows where they are, on a device: a copy elsewhere is empty."""
        return ReadAhead, ()

    @property
    def nbytes(self) -> int:
        """Return the bytes held."""
        frame = self._frame
        return 0 if frame is None else frame.nbytes

    def take(self) -> Frame | None:
        """Return the rows, if they are still there, and hold them no longer."""
        frame = self.drop()
        self.used = frame is not None
        return frame

    def drop(self) -> Frame | None:
        """Let the rows go, and return them if they were there: nobody will compute with them."""
        with self._lock:
            frame, self._frame = self._frame, None
        return frame


class _Waiting:
    """All that has been read ahead in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: weakref.WeakSet[ReadAhead] = weakref.WeakSet()

    def add(self, item: ReadAhead) -> None:
        with self._lock:
            self._all.add(item)

    def _items(self) -> list[ReadAhead]:
        with self._lock:
            return list(self._all)

    @property
    def nbytes(self) -> int:
        """Return the bytes that are held."""
        return sum(item.nbytes for item in self._items())

    def evict(self, wanted: int) -> int:
        """Drop rows that were read ahead until so many bytes are free; return how many there were."""
        freed = 0
        for item in self._items():
            if freed >= wanted:
                break
            frame = item.drop()
            if frame is not None:
                freed += frame.nbytes
        return freed


READ_AHEAD = _Waiting()
"""What this process has read ahead."""
