"""Peers in processes of their own: one that hangs or dies is a failed measurement and not the end of the run."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench import machine
from bench.peers import HYBRIDQ, Peer, Setup, make_peers

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import pyarrow as pa

MakePeers = Callable[[tuple[str, ...], Setup], list[Peer]]

START_TIMEOUT = 120.0
"""Seconds that a peer may take to start."""

CLOSE_TIMEOUT = 20.0
"""Seconds that a peer may take to close before its processes are ended."""


MOST_FAILED_STARTS = 2
"""Times in a row that a peer may fail to start; after that it is not started again, and each query fails at once."""


class PeerFailed(Exception):
    """A peer raised, ran out of time, or died; the message is one line."""


@dataclass
class Run:
    """One query answered.

    Attributes
    ----------
    seconds : float
        From the query's text or code to an Arrow table in the peer's process.
    first : bool
        Whether the peer had not run this query before since its process started.
    peak_bytes : int or None
        Peak resident memory of the largest of the peer's processes.
    resident_bytes : int
        Resident memory of the peer's processes together, after the run.
    disk_bytes : int or None
        What the whole machine read from disk meanwhile.
    """

    seconds: float
    answer: pa.Table
    first: bool
    peak_bytes: int | None
    resident_bytes: int
    disk_bytes: int | None
    details: dict[str, Any] = field(default_factory=dict)


class PeerProcess:
    """The process of one peer, or of hybridq's modes together. It starts when first needed, and again when it died.

    Parameters
    ----------
    names : tuple of str
    setup : Setup
    make : callable
        Makes the peers, in the new process.
    """

    def __init__(self, names: tuple[str, ...], setup: Setup, make: MakePeers = make_peers) -> None:
        self.names = names
        self.notes: dict[str, str] = {}
        self._setup = setup
        self._make = make
        self._process: Any = None
        self._connection: Connection | None = None
        self._family: list[psutil.Process] = []
        self._seen: set[tuple[str, str]] = set()
        self._failed_starts: list[str] = []
        self._log = Path(tempfile.mkstemp(prefix="bench-peer-", suffix=".log")[1])

    def start(self, timeout: float = START_TIMEOUT) -> None:
        """Start the process, unless it runs.

        Raises
        ------
        PeerFailed
            The peer cannot start, or could not ``MOST_FAILED_STARTS`` times in a row.
        """
        if self._connection is not None:
            return
        if len(self._failed_starts) >= MOST_FAILED_STARTS:
            raise PeerFailed(f"not started again: {self._failed_starts[-1]}")
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(
            target=serve, args=(theirs, self.names, self._setup, str(self._log), self._make)
        )
        self._process.start()
        theirs.close()
        self._connection = ours
        self._seen.clear()
        try:
            self.notes = self._receive(timeout, "starting")
        except PeerFailed as error:
            self._failed_starts.append(str(error))
            raise
        self._failed_starts.clear()

    def run(self, name: str, query: str, timeout: float) -> Run:
        """Have a peer answer a query.

        Raises
        ------
        PeerFailed
            It did not.
        """
        self.start()
        self._note_family()
        self._send((name, query))
        found: dict[str, Any] = self._receive(timeout, query)
        first = (name, query) not in self._seen
        self._seen.add((name, query))
        return Run(first=first, **found)

    def close(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._note_family()
            with contextlib.suppress(OSError):
                self._connection.send(None)
            self._process.join(CLOSE_TIMEOUT)
            self._end()
        self._log.unlink(missing_ok=True)

    def _send(self, request: tuple[str, str]) -> None:
        if self._connection is None:
            raise RuntimeError("the process has not been started")
        try:
            self._connection.send(request)
        except OSError:
            raise PeerFailed(self._died()) from None

    def _receive(self, timeout: float, what: str) -> Any:
        if self._connection is None:
            raise RuntimeError("the process has not been started")
        try:
            if not self._connection.poll(timeout):
                self._end()
                raise PeerFailed(f"no answer after {timeout:g} s ({what})")
            kind, value = self._connection.recv()
        except (EOFError, OSError):
            raise PeerFailed(self._died()) from None
        if kind == "error":
            if what == "starting":
                self._end()
            raise PeerFailed(value)
        return value

    def _died(self) -> str:
        self._process.join(CLOSE_TIMEOUT)
        code = self._process.exitcode
        self._end()
        if code is not None and code < 0:
            reason = f"killed by {signal.Signals(-code).name}"
            return f"{reason} (out of memory?)" if -code == signal.SIGKILL else reason
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"the process ended with code {code}" + (f": {lines[-1].strip()}" if lines else "")

    def _note_family(self) -> None:
        # While it lives: the children of a dead process are no longer known as its own.
        with contextlib.suppress(psutil.Error):
            self._family = psutil.Process(self._process.pid).children(recursive=True)

    def _end(self) -> None:
        """End what is left of the process and its children, and wait until they are gone with what they hold."""
        self._note_family()
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        # A cluster notices that its owner is gone, and ends in good order; who does not is ended.
        _, left = psutil.wait_procs(self._family, timeout=CLOSE_TIMEOUT / 2)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=CLOSE_TIMEOUT / 2)
        self._family = []
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def shared(names: list[str]) -> list[tuple[str, ...]]:
    """Tell which peers share a process: hybridq's modes, for they share a cluster.

    >>> shared(["duckdb", "hybridq cpu", "hybridq gpu"])
    [('hybridq cpu', 'hybridq gpu'), ('duckdb',)]
    """
    modes = tuple(name for name in names if name in HYBRIDQ)
    return ([modes] if modes else []) + [(name,) for name in names if name not in HYBRIDQ]


# --- in the peer's process -----------------------------------------------------------------------------------------


def serve(connection: Connection, names: tuple[str, ...], setup: Setup, log: str, make: MakePeers) -> None:
    """Start peers and answer what is asked, until ``None`` comes or the other side is gone."""
    prepare(log)
    try:
        peers = {peer.name: peer for peer in make(names, setup)}
        if not any(peer.uses_gpu for peer in peers.values()):
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        for peer in peers.values():
            peer.start(setup.folder)
    except BaseException as error:
        connection.send(("error", one_line(error)))
        return
    connection.send(("ready", {peer.name: peer.note for peer in peers.values()}))
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while (request := connection.recv()) is not None:
            try:
                reply = ("run", measure(peers[request[0]], request[1]))
            except Exception as error:
                reply = ("error", one_line(error))
            connection.send(reply)
    for peer in reversed(peers.values()):
        peer.close()


def prepare(log: str) -> None:
    """Send what is printed to a file, leave Ctrl-C to the parent, and be the first to go when memory runs out."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("800")


def measure(peer: Any, query: str) -> dict[str, Any]:
    """Time one run of a peer, and its memory."""
    pids = [os.getpid(), *peer.worker_pids()]
    machine.reset_peak_memory(pids)
    disk_before = machine.disk_read_bytes()
    start = time.perf_counter()
    answer = peer.run(query)
    seconds = time.perf_counter() - start
    disk_after = machine.disk_read_bytes()
    return {
        "seconds": seconds,
        "answer": answer,
        "peak_bytes": machine.peak_memory(pids),
        "resident_bytes": machine.resident_memory(pids),
        "disk_bytes": None if disk_before is None or disk_after is None else disk_after - disk_before,
        "details": peer.details(),
    }


def one_line(error: BaseException) -> str:
    """Return an error's type and the first line of its message."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
