"""What chunks read, read before they can run.

While a build side is being made, a GPU has time to read: the chunks that will probe it are read then, and wait on the
device. All of this may be lost at any time (memory is needed for something else, a worker dies): the chunk then reads
for itself.
"""

from __future__ import annotations

import threading
import time

from hybridq.dispatch.on_device import OnDevice
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
    def held(self) -> int:
        """Return the bytes on the device."""
        frame = self._frame
        return 0 if frame is None else frame.nbytes

    def take(self) -> Frame | None:
        """Return the rows, if they are still there, and hold them no longer."""
        frame = self.drop()
        self.used = frame is not None
        return frame

    def leave(self) -> int:
        """Let the rows go; return the bytes that this frees."""
        frame = self.drop()
        return 0 if frame is None else frame.nbytes

    def drop(self) -> Frame | None:
        """Let the rows go, and return them if they were there: nobody will compute with them."""
        with self._lock:
            frame, self._frame = self._frame, None
        return frame


READ_AHEAD: OnDevice[ReadAhead] = OnDevice()
"""What this process has read ahead."""
