"""Folders for files of no lasting worth, and the removal of those whose owner has died without removing them.

The owner holds a lock on a file in its folder as long as it lives. The system drops the lock with the process, however
that ends, so a folder whose lock can be had is nobody's any more. No process id is remembered that could be another's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

try:
    import fcntl
except ImportError:  # another system: nothing is swept there
    fcntl = None  # type: ignore[assignment]

PREFIX = "hybridq-run-"
OWNER = "owner.lock"

YOUNG_SECONDS = 60.0
"""Age up to which a folder without a lock may still be about to get one."""


class Scratch:
    """A folder that this process owns.

    Parameters
    ----------
    parent : path or None
        Where it is made; the system's folder for temporary files by default. Only its owner may enter it.
    """

    def __init__(self, parent: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        self._lock = os.open(self.folder / OWNER, os.O_RDWR | os.O_CREAT, 0o600)
        if fcntl is not None:
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove the folder with all that is in it. May be called twice."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(parent: str | os.PathLike[str] | None = None) -> list[Path]:
    """Remove the folders that dead processes of this user have left.

    Parameters
    ----------
    parent : path or None
        As for ``Scratch``.

    Returns
    -------
    list of Path
        What was removed. That something cannot be removed is no error: the next start tries again.
    """
    removed = []
    for folder in Path(parent or tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            mine = not hasattr(os, "getuid") or status.st_uid == os.getuid()
            # Not a link: whoever may write to the parent could point one at anything.
            if mine and folder.is_dir() and not folder.is_symlink() and _abandoned(folder, status.st_mtime):
                shutil.rmtree(folder)
                removed.append(folder)
    return removed


def _abandoned(folder: Path, changed: float) -> bool:
    if fcntl is None:
        return False
    try:
        lock = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - changed > YOUNG_SECONDS
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
