"""Runs queries on a cluster, breaks something in each, and looks at what came of it.

A run ends well if it gives the right answer or one clear error of hybridq's within its time, and leaves nothing: no
task on the scheduler, no value, build side or file on a worker, no shared memory, no process. Which of both is allowed
depends on the fault: a worker that dies must not cost the answer.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pyarrow as pa

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
from hybridq.session import Session
from hybridq.shipped import find_plan
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.reference import REFERENCES, duckdb_answer

from . import inside

cloudpickle.register_pickle_by_value(inside)

STALL = 15.0
"""``stall_timeout`` of the sessions under test, in seconds."""

DEADLINE = 120.0
"""Seconds in which every run must have ended."""

SETTLE = 45.0
"""Seconds in which a cluster must have freed everything, and have its workers back."""

CLUSTER = {
    "workers": [
        {"kind": "cpu", "processes": 2, "threads": 1, "memory": "2GiB"},
        {
            "kind": "gpu",
            "engine": "simulated",
            "processes": 1,
            "threads": 1,
            "memory": "2GiB",
            "device_memory": "512MiB",
        },
    ]
}

PARTITIONED = {"broadcast_bytes": 1, "broadcast_limit_bytes": 1, "partition_bytes": 64 * 1024}
"""Settings with which no build side is broadcast."""

OTHERS = {
    "sort": (
        "select l_orderkey, l_linenumber, l_comment from lineitem order by l_comment, l_orderkey, l_linenumber",
        (2,),
    ),
    "wide": ("select * from orders", ()),
    "many groups": ("select l_orderkey, count(*) as n, max(l_shipdate) as d from lineitem group by l_orderkey", ()),
    "distinct": ("select l_returnflag, count(distinct l_suppkey) as n from lineitem group by l_returnflag", ()),
    "full join": (
        "select c_custkey, o_orderkey from customer full join orders on c_custkey = o_custkey and o_totalprice > 99999",
        (),
    ),
    "window": (
        "select o_orderkey, row_number() over (partition by o_custkey order by o_orderkey) as r from orders",
        (),
    ),
    "limit": ("select count(*) as n from (select * from lineitem limit 5000) t", ()),
    "except": ("select c_custkey from customer except select o_custkey from orders", ()),
    "grouping sets": (
        "select o_orderstatus, o_orderpriority, count(*) from orders group by rollup(o_orderstatus, o_orderpriority)",
        (),
    ),
}


@dataclass
class Run:
    """One query, one fault, and what came of it."""

    number: int
    fault: str
    query: str
    mode: str
    happened: bool = False
    outcome: str = ""
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Broken:
    """A cluster, sessions on it, and the right answers."""

    def __init__(self, data: Path, folder: Path, pause: float = 0.01) -> None:
        self.source = data
        self.folder = folder
        self.pause = pause
        self.data = folder / "data"
        self.restore()
        self._answers: dict[str, pa.Table] = {}
        self.session: Session | None = None
        self.starts = 0
        self._processes: dict[int, psutil.Process] = {}
        self._shared: set[str] = set()

    def start(self) -> Session:
        """Return a session on a cluster that works, started anew where the last one is gone."""
        if self.session is None:
            self.session = hq.connect(CLUSTER, stall_timeout=STALL, chunk_units=2, cpu_chunk_rows=4000)
            self.session.register_folder(self.data)
            self.starts += 1
        return self.session

    def stop(self) -> list[str]:
        """End the cluster; return what is left of it in spite of that."""
        if self.session is None:
            return []
        cluster, self.session = self.session, None
        cluster.close()
        deadline = time.monotonic() + SETTLE
        while (found := self._remains()) and time.monotonic() < deadline:
            time.sleep(0.2)
        self._processes = {}
        return found

    def note(self) -> None:
        """Note which processes and shared memory the cluster has now."""
        with contextlib.suppress(psutil.Error, HybridqError, IndexError):
            main = self.main_process
            self._processes = {each.pid: each for each in (main, *main.children(recursive=True))}
            self._shared = shared_memory(main)

    def _remains(self) -> list[str]:
        running = [each for each in self._processes.values() if each.is_running() and each.status() != "zombie"]
        found = [f"process {each.pid}" for each in running]
        return found + [f"shared memory {path}" for path in self._shared if Path(path).exists()]

    @property
    def client(self) -> Any:
        assert self.session is not None
        return self.session._connection._client  # type: ignore[attr-defined]

    @property
    def main_process(self) -> psutil.Process:
        """Return the process that has the scheduler and the nannies."""
        return psutil.Process(psutil.Process(self.pids()[0]).ppid())

    def pids(self, kind: str | None = None) -> list[int]:
        assert self.session is not None
        return [each.pid for each in self.session.devices() if kind in (None, each.kind)]

    def restore(self) -> None:
        """Put the data back as it was."""
        if self.data.exists():
            shutil.rmtree(self.data)
        shutil.copytree(self.source, self.data)

    def text(self, query: str) -> str:
        return OTHERS[query][0] if query in OTHERS else find_plan(query).read_text()

    def check(self, query: str, answer: pa.Table, schema: pa.Schema) -> None:
        """Raise AssertionError unless the answer is DuckDB's."""
        reference = REFERENCES.get(query)
        if query not in self._answers:
            text = reference.sql if reference is not None and reference.sql else self.text(query)
            self._answers[query] = duckdb_answer(text, self.source, schema)
        order = reference.order_by if reference is not None else OTHERS[query][1]
        assert_same_answer(answer, self._answers[query], order_by=order)

    def arm(self, marker: Path, place: str = "", action: str = "", nth: int = 1, once: bool = True) -> None:
        arguments = (place, action, nth, str(marker), once, self.pause)
        self.client.run(inside.arm, *arguments, workers=[each.address for each in self.session.devices()])  # type: ignore[union-attr]

    # --- afterwards --------------------------------------------------------------------------------------------------

    def leftovers(self) -> list[str]:
        """Return what is left on the cluster once it had time to settle; none of it should be."""
        deadline = time.monotonic() + SETTLE
        while True:
            found = self._leftovers()
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.2)

    def _leftovers(self) -> list[str]:
        assert self.session is not None
        found = []
        try:
            devices = self.session.devices()
            wanted = {"cpu-0", "cpu-1", "gpu-0"}
            if {each.worker for each in devices} != wanted:
                return [f"workers: {sorted(each.worker for each in devices)}"]
            keys = self.client.run_on_scheduler(inside.keys_left)
            if keys:
                found.append(f"tasks on the scheduler: {keys[:5]}")
            for address, state in self.client.run(inside.held).items():
                if state["values"] or state["build sides"] or state["files"]:
                    found.append(f"{address}: {state}")
            children = [
                each for each in self.main_process.children() if "resource_tracker" not in " ".join(each.cmdline())
            ]
            if len(children) != len(wanted):
                found.append(f"{len(children)} worker processes")
        except (HybridqError, OSError, psutil.Error, IndexError, AttributeError) as error:
            found.append(f"{type(error).__name__}: {error}")
        return found


# --- faults ----------------------------------------------------------------------------------------------------------


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
        query.submit(mode="cop")


def _client_cut_off(situation: Situation) -> None:
    """The client's connection breaks; Dask's client makes a new one, and has forgotten everything."""
    situation.wait_for_progress()
    situation.mark()
    client = situation.broken.client
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


# --- running ---------------------------------------------------------------------------------------------------------


QUERIES = (*(f"tpch/q{number:02}" for number in range(1, 23)), *OTHERS)


def shared_memory(main: psutil.Process) -> set[str]:
    """Return the files in /dev/shm that a cluster's processes use; others may belong to anybody."""
    found = set()
    for process in (main, *main.children(recursive=True)):
        with contextlib.suppress(OSError):
            maps = Path(f"/proc/{process.pid}/maps").read_text()
            found |= {line.split()[5] for line in maps.splitlines() if "/dev/shm/" in line and "deleted" not in line}
    return found


def run_one(broken: Broken, number: int, seed: int, faults: tuple[Fault, ...] = FAULTS) -> Run:
    """Run one query with one fault."""
    chosen = random.Random(f"{seed} {number}")
    fault = chosen.choice(faults)
    query = chosen.choice(QUERIES)
    mode = chosen.choice(["cpu", "gpu", "cop", "auto"])
    run = Run(number, fault.name, query, mode)
    session = broken.start()
    broken.note()
    with tempfile.TemporaryDirectory(dir=broken.folder) as folder:
        situation = Situation(broken, chosen, Path(folder) / "marker")
        attached = None
        try:
            if fault.before is not None:
                fault.before(situation)
            # Joins of both sides split by key, which small tables would not have.
            partitioned = chosen.random() < 0.25 or "disk" in fault.name
            options = fault.options | (PARTITIONED if partitioned else {})
            if options:
                attached = hq.connect(
                    session.address, stall_timeout=STALL, chunk_units=2, cpu_chunk_rows=4000, **options
                )
                attached.register_folder(broken.data)
                session = attached
            _run(run, broken, session, fault, situation)
        finally:
            run.happened = situation.marker.exists()
            if attached is not None:
                attached.close()
            if fault.after is not None:
                fault.after(situation)
    if not fault.fatal:
        run.wrong += [f"left behind: {each}" for each in broken.leftovers()]
    if fault.fatal or run.wrong:
        run.wrong += [f"left when the cluster had ended: {each}" for each in broken.stop()]
    return run


def _run(run: Run, broken: Broken, session: Session, fault: Fault, situation: Situation) -> None:
    start = time.monotonic()
    trouble: list[BaseException] = []
    try:
        query = session.sql(broken.text(run.query))
        situation.handle = query.submit(mode=run.mode)  # type: ignore[arg-type]
        helper = None
        if fault.during is not None:

            def during() -> None:
                try:
                    fault.during(situation)  # type: ignore[misc]
                except BaseException as error:
                    trouble.append(error)

            helper = threading.Thread(target=during, daemon=True)
            helper.start()
        try:
            result = situation.handle.result(timeout=DEADLINE)
        finally:
            run.seconds = time.monotonic() - start
            if helper is not None:
                helper.join(DEADLINE)
        run.outcome = "answer"
        broken.check(run.query, result.to_arrow(), query.schema)
    except HybridqError as error:
        run.outcome = type(error).__name__
        first = str(error).splitlines()[0] if str(error) else ""
        # Where the only GPU has to be used, a query may wait in vain for its restart.
        allowed = fault.errors + ((WorkersLost,) if run.mode == "gpu" else ())
        if not isinstance(error, allowed):
            run.wrong.append(f"{type(error).__name__} where the answer should have come: {error}")
        elif not first.strip() or "Traceback" in str(error):
            run.wrong.append(f"an unclear error: {error!r}")
    except TimeoutError:
        run.outcome = "hang"
        run.wrong.append(f"no end within {DEADLINE:g} s: {situation.handle.progress()}")
        situation.handle.cancel()
    except AssertionError as error:
        run.outcome = "wrong answer"
        run.wrong.append(f"wrong answer: {str(error)[:500]}")
    except Exception as error:
        run.outcome = type(error).__name__
        run.wrong.append("an error that is not hybridq's: " + "".join(traceback.format_exception(error))[-1500:])
    run.wrong += [f"the fault itself failed: {error!r}" for error in trouble]


@contextlib.contextmanager
def broken_cluster(data: Path, pause: float = 0.01) -> Iterator[Broken]:
    """Provide a cluster to break; afterwards nothing of it may be left."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        broken = Broken(data, Path(folder), pause)
        try:
            yield broken
        finally:
            broken.stop()


def table(runs: list[Run]) -> str:
    """Return what came of each kind of fault, as Markdown."""
    lines = [
        "| fault | injected | answers | errors | seconds, median | longest | wrong |",
        "|---|---:|---:|---|---:|---:|---:|",
    ]
    total: Counter[str] = Counter()
    for fault in FAULTS:
        mine = [run for run in runs if run.fault == fault.name and run.happened]
        if not mine:
            continue
        errors = Counter(run.outcome for run in mine if run.outcome != "answer")
        listed = ", ".join(f"{count} {name}" for name, count in sorted(errors.items())) or "none"
        seconds = sorted(run.seconds for run in mine)
        answers = sum(run.outcome == "answer" for run in mine)
        wrong = sum(bool(run.wrong) for run in mine)
        total.update(injected=len(mine), answers=answers, errors=sum(errors.values()), wrong=wrong)
        times = f"{seconds[len(seconds) // 2]:.1f} | {seconds[-1]:.1f}"
        lines.append(f"| {fault.name} | {len(mine)} | {answers} | {listed} | {times} | {wrong} |")
    sums = " | ".join(f"**{total[name]}**" for name in ("injected", "answers", "errors"))
    lines.append(f"| **all** | {sums} | | | **{total['wrong']}** |")
    return "\n".join(lines)
