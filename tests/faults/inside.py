"""What runs inside worker processes and the scheduler: sent there by value, so it imports all that it uses itself.

A worker is armed with one fault: at the Nth time that it comes by some place (a chunk, a merge, a read, a report) it
does something bad. A marker file says that it has happened; a fault that is to happen once on a whole cluster happens
where the marker is made first.
"""

from __future__ import annotations

from typing import Any


def arm(place: str, action: str, nth: int, marker: str, once: bool, pause: float) -> int:
    """Arm this process, and slow its chunks down by ``pause`` seconds; return its process id."""
    import os
    import signal
    import threading
    import time

    from hybridq.dispatch import pieces, tasks
    from hybridq.engines.cpu import CpuEngine
    from hybridq.errors import DataError

    if not hasattr(tasks, "unarmed"):
        tasks.unarmed = (tasks.compute_chunk, tasks.compute_merge, tasks._report, CpuEngine.read)
        pieces.unarmed = (pieces._InFile.__init__, pieces.PieceStore.put)
    chunk, merge, report, read = tasks.unarmed
    write, put = pieces.unarmed
    lock, count = threading.Lock(), [0]

    def due() -> bool:
        with lock:
            count[0] += 1
            if count[0] < nth:
                return False
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return not once
        return True

    def happen() -> Any:
        if action == "raise":
            raise ValueError("a fault of this test's")
        if action == "memory":
            raise MemoryError("a fault of this test's")
        if action == "io":
            error = DataError("cannot read: a fault of this test's")
            error.__cause__ = OSError(5, "Input/output error")
            raise error
        if action == "full":
            raise OSError(28, "No space left on device")
        if action == "bare io":
            raise OSError(5, "Input/output error, a fault of this test's")
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "exit":
            os._exit(3)
        if action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if action == "sleep":
            time.sleep(1.0)
        return None

    def compute_chunk(*arguments: Any, **named: Any) -> Any:
        time.sleep(pause)
        if place == "chunk" and due():
            happen()
        result = chunk(*arguments, **named)
        if place == "chunk end" and due():
            happen()
        return result

    def compute_merge(*arguments: Any, **named: Any) -> Any:
        if place == "merge" and due():
            happen()
        return merge(*arguments, **named)

    def _report(*arguments: Any) -> None:
        if place == "report" and due():
            return  # the report is lost
        report(*arguments)

    def read_rows(*arguments: Any) -> Any:
        if place == "read" and due():
            happen()
        return read(*arguments)

    def write_pieces(*arguments: Any) -> None:
        if place == "spill" and due():
            happen()
        write(*arguments)

    def put_pieces(store: Any, name: Any, splits: Any, budget: int = 0) -> int:
        return put(store, name, splits, 1 if place == "spill" else budget)  # one byte: all goes to files

    pieces._InFile.__init__, pieces.PieceStore.put = write_pieces, put_pieces
    tasks.compute_chunk, tasks.compute_merge, tasks._report = compute_chunk, compute_merge, _report
    CpuEngine.read = read_rows
    return os.getpid()


def cut_off(dask_worker: Any) -> None:
    """Break the worker's connection to the scheduler, without a goodbye."""
    stream = dask_worker.batched_stream
    if stream is not None and stream.comm is not None:
        stream.comm.abort()


def keys_left(dask_scheduler: Any) -> list[str]:
    """Return what the scheduler still has of any query."""
    return [str(key) for key in dask_scheduler.tasks if "hybridq" in str(key) or "Table" in str(key)]


def held(dask_worker: Any) -> dict[str, Any]:
    """Return what a worker still holds: values, build sides, files in its folder."""
    import gc
    from pathlib import Path

    from hybridq.dispatch.worker import BUILD_SIDES

    gc.collect()
    folder = Path(dask_worker.local_directory)
    files = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {"values": len(dask_worker.data), "build sides": len(BUILD_SIDES), "files": files}
