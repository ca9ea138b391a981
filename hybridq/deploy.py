"""Starts a hybrid cluster on this machine: a scheduler and CPU and GPU workers, in processes of their own.

``start`` launches ``python -m hybridq.deploy``, which starts Dask's scheduler and a nanny for each worker. That process
has a guarded main module, so nothing here depends on how the caller was started: a script without a ``__main__`` guard,
a REPL, a notebook, or a program on standard input. (Dask's workers import their parent's main module.)

Where there are no GPUs, workers are forked from one more process, which has imported what they need.

The two processes talk over pipes: the description goes in as one line of JSON, the scheduler's address comes out as one
line of JSON, and the cluster lives until its standard input closes. So it never outlives the process that asked for it,
however that one ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from hybridq.dispatch.key_names import forget_keys
from hybridq.errors import ClusterUnreachable, ConfigurationError
from hybridq.leftovers import Scratch, sweep
from hybridq.topology import Topology, WorkerGroup, available_cores, find_gpus

START_TIMEOUT = 60.0
"""Seconds that a cluster may take to start."""

PROCESSES_PER_CORE = 32
"""Worker processes of one group up to which a machine can be expected to start them all in time."""

CLOSE_TIMEOUT = 10.0
"""Seconds that a cluster may take to close before its process is ended."""

LOG_TAIL_BYTES = 64 * 1024
"""Bytes at the end of the cluster's log in which its last lines are looked for."""

KEEP_SECONDS = 2.0
"""How often a cluster looks whether a worker has closed, after losing its connection, and starts it anew."""

KEPT_FOR_LOOKING = 20
"""Messages, transitions, samples and the like that each process keeps for nobody but who looks into Dask itself."""

MEMORY_SHARE = 0.75
"""Share of the machine's memory that workers with ``memory: auto`` divide among them."""

WORKER_MODULE = "hybridq.dispatch.worker"
"""Imported by every worker as it starts; prepares the process and its engine."""

LONGEST_FOLDER = 60
"""Characters of a folder's name in which a socket can be: its own takes 40 of 107 at most."""

PRELOADED_MODULE = "hybridq.dispatch.preloaded"
"""Imported by the process that workers are forked from."""

SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Chunks are the parallelism: numerical libraries start no threads of their own."""

KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(512 * 2**20),
    "MIMALLOC_PURGE_DELAY": "2000",
}
"""Chunks free and ask for the same large buffers again and again. Giving them back to the system in between, as Dask
sets malloc and as Arrow's allocator does after 10 ms, costs a page fault for every 4 KiB (Q1 at SF10: 570,000 of them,
a quarter of its processor time)."""

ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
"""So that a task's threads share what they free. Not beside a GPU: dozens of threads read for it, and waiting for each
other's turn to allocate costs a fifth of the time (a process's environment is set before Dask starts it, and then is
the same for all workers)."""


class LocalCluster:
    """A cluster that this process started.

    Attributes
    ----------
    address : str
        Address of the scheduler.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        self._process = process
        self._log = log
        self.address = ""

    @property
    def pid(self) -> int:
        """Return the process id of the cluster's main process."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any]) -> None:
        """Tell the process what to start."""
        if self._process.stdin is None:
            raise RuntimeError("the cluster process has no pipe for its description")
        with contextlib.suppress(BrokenPipeError):  # it died at once: wait_until_ready says why
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def abandon(self) -> None:
        """End the process, which was not asked to start anything."""
        self._process.terminate()
        self.close()

    def wait_until_ready(self, timeout: float = START_TIMEOUT) -> None:
        """Wait until every worker has joined.

        Raises
        ------
        ClusterUnreachable
            The cluster did not start; the message ends with the last lines of its log.
        """
        line: deque[bytes] = deque(maxlen=1)
        stdout = self._process.stdout
        if stdout is None:
            raise RuntimeError("the cluster process has no pipe for its answer")
        reader = threading.Thread(target=lambda: line.append(stdout.readline()), daemon=True)
        reader.start()
        reader.join(timeout)
        answer: dict[str, Any] = {}
        if line and line[0]:
            with contextlib.suppress(ValueError):
                answer = json.loads(line[0])
        if "address" not in answer:
            cause = answer.get("error") or (
                f"it was not ready after {timeout:g} s" if reader.is_alive() else "it ended"
            )
            tail = self.log_tail()
            self.close()
            raise ClusterUnreachable(f"the local cluster did not start: {cause}" + (f"\n{tail}" if tail else ""))
        self.address = answer["address"]

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines that the scheduler and the workers have logged."""
        # The cluster process writes where the shared file offset is: read without moving it.
        descriptor = self._log.fileno()
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, LOG_TAIL_BYTES, max(size - LOG_TAIL_BYTES, 0))
        return "\n".join(tail.decode(errors="replace").splitlines()[-lines:])

    def close(self) -> None:
        """Stop the scheduler and all workers; return when they are gone. May be called twice."""
        process = self._process
        if process.stdin is not None and not process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for insist in (None, signal.SIGTERM, signal.SIGKILL):
            if insist == signal.SIGKILL:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, insist)  # its fork server and workers with it
            elif insist is not None:
                process.send_signal(insist)
            try:
                process.wait(CLOSE_TIMEOUT)
                break
            except subprocess.TimeoutExpired:
                continue
        if process.stdout is not None:
            process.stdout.close()
        self._log.close()


def start(topology: Topology, stall_timeout: float) -> LocalCluster:
    """Start a cluster; ``LocalCluster.wait_until_ready`` waits for it, so that the caller can do other work meanwhile.

    Parameters
    ----------
    topology : Topology
        What to start.
    stall_timeout : float
        Seconds after which a task that no worker can run fails.

    Raises
    ------
    ConfigurationError
        The description asks for GPUs that are not there, or for an engine that this version does not have.
    """
    groups = [concrete for group in topology.workers if (concrete := _with_processes(group)) is not None]
    request = {"topology": replace(topology, workers=tuple(groups)).to_dict(), "stall_timeout": stall_timeout}
    cluster = _PREPARED.pop() if _PREPARED else _launched()
    cluster.ask(request)
    return cluster


_PREPARED: list[LocalCluster] = []
"""Processes that wait to be told what to start."""


def prepare() -> None:
    """Begin to import what the next cluster needs, in its process, where ``start`` is likely to follow.

    Nothing is started yet. ``give_up_prepared`` ends that process.
    """
    _PREPARED.append(_launched())


def give_up_prepared() -> None:
    """End processes that no cluster was asked of."""
    while _PREPARED:
        _PREPARED.pop().abandon()


def _launched() -> LocalCluster:
    log = tempfile.TemporaryFile(prefix="hybridq-cluster-")  # noqa: SIM115 -- lives as long as the cluster
    process = subprocess.Popen(
        # -P: a file in the current folder must not shadow a module of the standard library.
        [sys.executable, "-P", "-m", "hybridq.deploy"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=_environment(),
        start_new_session=True,  # Ctrl-C at the terminal is for the client, which then cancels its query
    )
    return LocalCluster(process, log)


def _with_processes(group: WorkerGroup) -> WorkerGroup | None:
    """Fill in how many processes a group has."""
    if group.engine == "cuda":
        gpus = find_gpus()
        processes = len(gpus) if group.processes is None else group.processes
        if not gpus or processes > len(gpus):
            found = f"{len(gpus)} GPU{'s' if len(gpus) != 1 else ''} found"
            raise ConfigurationError(
                f"{max(processes, 1)} GPU workers need as many NVIDIA GPUs ({found}): use engine: simulated, or leave "
                "them out"
            )
        return replace(group, processes=processes)
    cores = available_cores()
    if group.processes is None:
        return replace(group, processes=max(cores // group.threads, 1))
    if group.processes > (most := PROCESSES_PER_CORE * cores):
        raise ConfigurationError(
            f"{group.processes} {group.kind} worker processes are more than this machine can start ({cores} cores, at"
            f" most {most}): lower processes: in the cluster file, or write auto"
        )
    return group


def _environment() -> dict[str, str]:
    """Return the cluster process's environment, in which hybridq can be imported wherever it was imported from here."""
    environment = dict(os.environ)
    root = str(Path(__file__).parent.parent)
    if root not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        inherited = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([root, inherited] if inherited else [root])
    # One thread for each task is the parallelism: no library may start a pool of its own.
    environment.update(SINGLE_THREADED)
    return environment


# --- in the cluster process ----------------------------------------------------------------------------------------


def main() -> None:
    """Run a cluster until standard input closes or SIGTERM arrives."""
    parent = os.getppid()
    answer_pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints goes to the log
    scratch = Scratch()
    signal.signal(signal.SIGTERM, lambda *_: _end_at_once(scratch))
    gc.disable()  # what is imported stays: to look through it again and again takes a tenth of a second
    try:
        forking = _start_fork_server(scratch.folder)
        import distributed  # noqa: F401 -- while the request is still being made

        line = sys.stdin.buffer.readline()
        if not line:
            return  # nothing is wanted after all
        request = json.loads(line)
        # What clusters left that were killed; while this one starts, for it may be much.
        threading.Thread(target=sweep, daemon=True).start()
        asyncio.run(_serve(request, answer_pipe, parent, scratch, forking))
    finally:
        scratch.close()
        gc.freeze()  # nor through all of it at the end


def _start_fork_server(folder: Path) -> bool:
    """Start a process that imports what workers need, while this one imports Dask; tell whether there is one.

    Workers are forked from it: each would otherwise take most of a second to import the same. It is a plain process
    without threads, and has the environment that workers are to have from their start. Not where there are GPUs, whose
    workers do not have that environment.

    Parameters
    ----------
    folder : path
        Where its socket is to be, which is to go with the cluster however that ends.
    """
    # Before 3.11.1 any user of the machine could have it run code (CVE-2022-42919).
    if sys.platform != "linux" or sys.version_info < (3, 11, 1) or find_gpus():
        return False
    from multiprocessing import forkserver

    if len(str(folder)) > LONGEST_FOLDER:
        return False
    os.environ.update({**KEEP_MEMORY, **ONE_ARENA, **SINGLE_THREADED})
    forkserver.set_forkserver_preload([PRELOADED_MODULE])
    usual, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        forkserver.ensure_running()
    finally:
        tempfile.tempdir = usual
    return True


def _end_at_once(scratch: Scratch) -> None:
    """End this process, whose cluster nobody waits for, the fork server and the workers there are, busy or not."""
    scratch.close()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


async def _serve(request: dict[str, Any], answer_pipe: IO[str], parent: int, scratch: Scratch, forking: bool) -> None:
    import dask
    from distributed.deploy.spec import SpecCluster

    topology = Topology.from_plain(request["topology"])
    dask.config.set(_dask_settings(topology, request["stall_timeout"]))
    if forking:
        _fork_workers()
    ended, started = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        if not started.is_set():
            _end_at_once(scratch)  # however many workers are still to be started
        with contextlib.suppress(RuntimeError):  # the loop has closed
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=_watch_parent, args=(parent, end), daemon=True).start()
    scheduler, workers = specification(topology, str(scratch.folder))
    cluster: Any = None
    make: Any = SpecCluster
    try:
        security = scheduler["options"].get("security")
        cluster = await make(workers=workers, scheduler=scheduler, asynchronous=True, security=security)
        answer = {"address": cluster.scheduler_address}
    except Exception as error:
        root: BaseException = error
        while (cause := root.__cause__ or root.__context__) is not None:
            root = cause
        answer = {"error": f"{type(root).__name__}: {root}"}
    started.set()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    gc.freeze()
    gc.enable()
    # A client that is already gone closes the pipe; then standard input is closed as well.
    with contextlib.suppress(BrokenPipeError):
        answer_pipe.write(json.dumps(answer) + "\n")
        answer_pipe.flush()
    if cluster is None:
        return
    keeper = asyncio.create_task(_keep_workers(cluster))
    await ended.wait()
    keeper.cancel()
    # Nobody is left who could want an answer: end the workers without waiting for what they run.
    threading.Thread(target=_end_late, daemon=True).start()
    await cluster.close(timeout=2)


def _fork_workers() -> None:
    """Have Dask's nannies fork workers from the fork server."""
    import dask
    from distributed import utils

    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    # Dask would import pandas here, among others, and have a fork server that is started anew import that as well.
    utils._forkserver_preload_set = True


async def _keep_workers(cluster: Any) -> None:
    """Start workers anew that have closed by themselves (those that die are their nannies' business), and tidy up."""
    while True:
        await asyncio.sleep(KEEP_SECONDS)
        forget_keys()
        wanted = len(cluster.worker_spec)
        if len(cluster.workers) < wanted:
            cluster.scale(wanted)


def _watch_parent(parent: int, end: Callable[[], None]) -> None:
    """Call ``end`` when standard input closes, or when the parent is gone while someone else holds the pipe open."""
    import select

    descriptor = sys.stdin.fileno()
    while os.getppid() == parent:
        readable, _, _ = select.select([descriptor], [], [], 1.0)
        if readable and not os.read(descriptor, 4096):
            break
    end()


def _end_late() -> None:
    """End this process if closing the cluster hangs; its workers notice and end too."""
    time.sleep(CLOSE_TIMEOUT - 2)
    os._exit(1)  # its folder is swept at the next start


def _dask_settings(topology: Topology, stall_timeout: float) -> dict[str, Any]:
    gpus = any(group.engine == "cuda" for group in topology.workers)
    return {
        "distributed.nanny.pre-spawn-environ": {**KEEP_MEMORY, **({} if gpus else ONE_ARENA), **SINGLE_THREADED},
        "distributed.scheduler.no-workers-timeout": f"{stall_timeout} s",
        # One that loses its connection closes, nanny and all: it is started anew (_keep_workers).
        "distributed.deploy.lost-worker-timeout": "6 s",
        # A worker that is paused or cut off is restarted, and its tasks go to others.
        "distributed.scheduler.worker-ttl": f"{max(stall_timeout, 10)} s",
        # Sampling every thread's stack costs time, and nobody reads it.
        "distributed.worker.profile.enabled": False,
        # It would drop the broadcast build sides that workers keep for their next chunks.
        "distributed.scheduler.active-memory-manager.start": False,
        "distributed.diagnostics.nvml": False,
        "distributed.admin.system-monitor.gil.enabled": False,
        # Every scheduler, nanny and worker would look 50 times a second whether its event loop is late, and twice a
        # second at the whole machine: 9 % of a core for nothing but a line in a log.
        "distributed.admin.tick.interval": "1 s",
        "distributed.admin.system-monitor.interval": "2 s",
        # What Dask keeps for those who look into it: tasks among the thousand last messages to each worker.
        "distributed.admin.system-monitor.log-length": KEPT_FOR_LOOKING,
        "distributed.admin.low-level-log-length": KEPT_FOR_LOOKING,
        "distributed.diagnostics.computations.max-history": KEPT_FOR_LOOKING,
    }


def specification(topology: Topology, scratch: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return Dask's descriptions of the scheduler and of each worker, by name."""
    from distributed import Nanny, Scheduler
    from distributed.system import MEMORY_LIMIT

    from hybridq.dispatch.messages import prompt_scheduler
    from hybridq.dispatch.spans import scheduler_extensions

    tls: dict[str, Any] = {}
    if topology.security is not None:
        from hybridq.dispatch.connection import dask_security

        tls = {"protocol": "tls://", "security": dask_security(topology.security)}
    scheduler = {
        "cls": Scheduler,
        "options": {
            **tls,
            "host": topology.host,
            "port": topology.port,
            "dashboard": topology.dashboard,
            "dashboard_address": ":8787" if topology.dashboard else ":0",
            "plugins": [prompt_scheduler()],
            "extensions": None if topology.dashboard else scheduler_extensions(),
        },
    }
    shared = MEMORY_LIMIT * MEMORY_SHARE - sum(
        group.memory * (group.processes or 0) for group in topology.workers if group.memory
    )
    sharers = sum(group.processes or 0 for group in topology.workers if group.memory is None)
    workers: dict[str, Any] = {}
    for group in topology.workers:
        first = sum(name.startswith(f"{group.kind}-") for name in workers)
        for number in range(first, first + (group.processes or 0)):
            name = f"{group.kind}-{number}"
            environment = {
                "HYBRIDQ_ENGINE": group.engine,
                "HYBRIDQ_DEVICE_MEMORY": group.device_memory or "",
                "HYBRIDQ_SIMULATED_SPEED": group.speed,
                "HYBRIDQ_SIMULATED_STEADY": "1" if group.steady else "",
            }
            if group.engine == "cuda":
                environment["CUDA_VISIBLE_DEVICES"] = find_gpus()[number].removeprefix("nvidia")
                # Read when cuDF is first imported: each thread gets a stream, so one reads while another computes.
                environment["CUDF_PER_THREAD_STREAM"] = "1"
            else:
                environment["CUDA_VISIBLE_DEVICES"] = ""
            workers[name] = {
                "cls": Nanny,
                "options": {
                    **tls,
                    "name": name,
                    "nthreads": group.threads,
                    "memory_limit": int(group.memory or max(shared / max(sharers, 1), 2**28)),
                    "resources": {group.kind.upper(): group.threads},
                    "env": environment,
                    "preload": [WORKER_MODULE],
                    "local_directory": scratch,
                },
            }
    return scheduler, workers


if __name__ == "__main__":
    main()
