"""The kinds of fault: when each is made, what it does, and which errors it allows."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hybridq as hq
from hybridq.errors import (
    ClusterUnreachable,
    DataError,
    DeviceOutOfMemory,
    ExecutionError,
    HybridqError,
    QueryCancelled,
    ResultTooLarge,
    WorkersLost,
)

from . import inside
from .cluster import DEADLINE, STALL, Broken


@dataclass
class Situation:
    """What a fault may use."""

    broken: Broken
    random: random.Random
    marker: Path
    handle: Any = None

    def mark(self) -> None:
        self.marker.touch()

    def wait_for_progress(self) -> None:
        """Wait until a random share of the query is done, or some of its stages, or some time has passed."""
        share = self.random.random()
        stages = self.random.choice([0, 0, 1, 2])
        deadline = time.monotonic() + self.random.choice([0.0, 0.05, 0.3, 1.0])
        while time.monotonic() < deadline:
            now = self.handle.progress()
            if now.finished or (now.stages_done >= stages and now.rows and now.rows_done >= share * now.rows):
                return
            time.sleep(0.003)


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes
    ----------
    name : str
    errors : tuple of exception types
        Errors of hybridq's that may come of it; none: the answer must come.
    before, during, after : callable or None
        What is done before the query, in its midst, and when it has ended.
    options : dict
        Settings of the session.
    fatal : bool
        The cluster does not survive it.
    """

    name: str
    errors: tuple[type[HybridqError], ...] = ()
    before: Callable[[Situation], None] | None = None
    during: Callable[[Situation], None] | None = None
    after: Callable[[Situation], None] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    fatal: bool = False


def armed(name: str, place: str, action: str, *errors: type[HybridqError], once: bool = True, most: int = 4) -> Fault:
    def before(situation: Situation) -> None:
        nth = situation.random.randint(1, most) if once else 1
        situation.broken.arm(situation.marker, place, action, nth, once)

    return Fault(name, errors, before)


def signalled(name: str, kind: str, number: int, resume: float | None = None) -> Fault:
    def during(situation: Situation) -> None:
        pids = situation.broken.pids(kind)
        situation.wait_for_progress()
        pid = situation.random.choice(pids)
        situation.mark()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if resume is not None:
            time.sleep(situation.random.uniform(0, resume))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    return Fault(name, (), lambda situation: situation.broken.arm(situation.marker), during)


def changed_file(name: str, change: Callable[[Path], None]) -> Fault:
    def during(situation: Situation) -> None:
        situation.wait_for_progress()
        situation.mark()
        for table in ("lineitem", "orders", "customer"):
            change(situation.broken.data / f"{table}.parquet")

    def after(situation: Situation) -> None:
        situation.broken.restore()
        assert situation.broken.session is not None
        situation.broken.session.register_folder(situation.broken.data)

    return Fault(name, (DataError,), lambda situation: situation.broken.arm(situation.marker), during, after)


def _cancel(situation: Situation) -> None:
    situation.wait_for_progress()
    situation.mark()
    situation.handle.cancel()


def _interrupt(situation: Situation) -> None:
    """Press Ctrl-C in another process that runs a query on the same cluster."""
    assert situation.broken.session is not None
    program = (
        "import os, signal, sys, threading\nimport hybridq as hq\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "threading.Timer(float(sys.argv[3]), os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "try:\n"
        "    with hq.connect(sys.argv[1], chunk_units=1) as session:\n"
        "        session.register_folder(sys.argv[2])\n"
        "        while True:\n"
        "            session.sql('select l_orderkey, count(*) from lineitem group by 1').collect()\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    arguments = [situation.broken.session.address, str(situation.broken.data), str(situation.random.uniform(0.5, 4))]
    root = str(Path(hq.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=DEADLINE, env=environment
    )
    situation.mark()
    assert "interrupted" in done.stdout, f"the interrupted client said {done.stdout!r} {done.stderr[-500:]!r}"


def _second_client(situation: Situation) -> None:
    """Another client runs a query at the same time, and goes away in the midst of a second one."""
    broken = situation.broken
    assert broken.session is not None
    with hq.connect(broken.session.address, chunk_units=1, stall_timeout=STALL) as other:
        other.register_folder(broken.data)
        query = other.sql(broken.text("tpch/q12"))
        situation.mark()
        broken.check("tpch/q12", query.collect().to_arrow(), query.schema)
        query.submit(mode="cpu" if situation.broken.cpus_only else "cop")


def _client_cut_off(situation: Situation) -> None:
    """The client's connection breaks; Dask's client makes a new one, and has forgotten everything."""
    situation.wait_for_progress()
    situation.mark()
    client = situation.broken.client
    while client.status == "connecting":  # still, since the last time
        time.sleep(0.01)
    client.loop.add_callback(client.scheduler_comm.comm.abort)


def _worker_cut_off(situation: Situation) -> None:
    situation.wait_for_progress()
    assert situation.broken.session is not None
    victim = situation.random.choice(situation.broken.session.devices()).address
    situation.mark()
    with contextlib.suppress(Exception):  # it answers, or not
        situation.broken.client.sync(
            situation.broken.client._run, inside.cut_off, workers=[victim], on_error="return", callback_timeout=2
        )


def _kill_scheduler(situation: Situation) -> None:
    main = situation.broken.main_process
    situation.wait_for_progress()
    situation.mark()
    main.kill()


def _pause_scheduler(situation: Situation) -> None:
    main = situation.broken.main_process
    situation.wait_for_progress()
    situation.mark()
    main.suspend()
    time.sleep(situation.random.uniform(0.2, 3.0))
    main.resume()


def _no_file(path: Path) -> None:
    path.unlink()


def _half_a_file(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _another_file(path: Path) -> None:
    path.write_bytes(path.with_name("region.parquet").read_bytes())


def _written_again(path: Path) -> None:
    fresh = path.with_suffix(".new")
    shutil.copyfile(path, fresh)
    fresh.replace(path)


def _just_arm(situation: Situation) -> None:
    situation.broken.arm(situation.marker)
    situation.mark()


FAULTS = (
    armed("CPU or GPU worker dies in a chunk", "chunk", "kill"),
    armed("worker dies with a finished chunk", "chunk end", "kill"),
    armed("worker dies in a merge", "merge", "kill", most=2),
    armed("worker exits in a read", "read", "exit"),
    armed("every worker that runs it dies", "chunk", "kill", WorkersLost, once=False),
    armed("worker stops in a chunk, for good", "chunk", "stop"),
    armed("a task raises", "chunk", "raise", ExecutionError),
    armed("a merge raises", "merge", "raise", ExecutionError, most=2),
    armed("no memory for a chunk", "read", "memory", ExecutionError),
    armed("no memory for any chunk", "read", "memory", ExecutionError, DeviceOutOfMemory, once=False),
    armed("no memory for a merge", "merge", "memory", ExecutionError, most=2),
    armed("a read fails once", "read", "io"),
    armed("a read fails once, bare", "read", "bare io"),
    armed("every read fails", "read", "io", DataError, once=False),
    armed("a task's report is lost", "report", ""),
    armed("the disk is full once", "spill", "full", ExecutionError),
    armed("the disk is full", "spill", "full", ExecutionError, once=False),
    armed("a chunk takes long", "chunk", "sleep"),
    signalled("CPU worker killed", "cpu", signal.SIGKILL),
    signalled("GPU worker killed", "gpu", signal.SIGKILL),
    signalled("CPU worker asked to end", "cpu", signal.SIGTERM),
    signalled("CPU worker paused, then resumed", "cpu", signal.SIGSTOP, resume=2.0),
    signalled("GPU worker paused, then resumed", "gpu", signal.SIGSTOP, resume=2.0),
    signalled("CPU worker paused for good", "cpu", signal.SIGSTOP),
    Fault("worker cut off", (), lambda situation: situation.broken.arm(situation.marker), _worker_cut_off),
    Fault("client cut off", (ClusterUnreachable,), lambda s: s.broken.arm(s.marker), _client_cut_off),
    changed_file("file removed", _no_file),
    changed_file("file truncated", _half_a_file),
    changed_file("file replaced by another", _another_file),
    changed_file("file written again", _written_again),
    Fault("answer too large for the client", (ResultTooLarge,), _just_arm, options={"result_bytes": 1}),
    Fault("cancelled", (QueryCancelled,), lambda situation: situation.broken.arm(situation.marker), _cancel),
    Fault("Ctrl-C in another client", (), lambda situation: situation.broken.arm(situation.marker), _interrupt),
    Fault("second client comes and goes", (), lambda s: s.broken.arm(s.marker), _second_client),
    Fault("scheduler paused, then resumed", (), lambda s: s.broken.arm(s.marker), _pause_scheduler),
    Fault(
        "scheduler killed", (ClusterUnreachable, WorkersLost), lambda s: s.broken.arm(s.marker), _kill_scheduler,
        fatal=True,
    ),
)  # fmt: skip
