"""A cluster that is going to be broken, the sessions on it, and what must be left of it afterwards."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pyarrow as pa

import hybridq as hq
from hybridq.errors import (
    HybridqError,
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

SETTLE = 90.0
"""Seconds in which a cluster must have freed everything, and have its workers back."""

CPUS = {"kind": "cpu", "processes": 2, "threads": 1, "memory": "2GiB"}

CLUSTER = {
    "workers": [
        CPUS,
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

CLUSTER_OF_CPUS = {"workers": [{**CPUS, "processes": 3}]}
"""Where all are CPUs, chunks are given to certain workers, and outputs stay in parts."""

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


def cluster_of(worker: int) -> psutil.Process:
    """Return the main process of a worker's cluster."""
    return next(each for each in psutil.Process(worker).parents() if "hybridq.deploy" in each.cmdline())


def is_helper(process: psutil.Process, main: psutil.Process) -> bool:
    """Tell whether a process is one of multiprocessing's own; what is forked from its server has the same command."""
    command = " ".join(process.cmdline())
    return process.ppid() == main.pid and ("resource_tracker" in command or "forkserver" in command)


def shared_memory(main: psutil.Process) -> set[str]:
    """Return the files in /dev/shm that a cluster's processes use; others may belong to anybody."""
    found = set()
    for process in (main, *main.children(recursive=True)):
        with contextlib.suppress(OSError):
            maps = Path(f"/proc/{process.pid}/maps").read_text()
            found |= {line.split()[5] for line in maps.splitlines() if "/dev/shm/" in line and "deleted" not in line}
    return found


class Broken:
    """A cluster, sessions on it, and the right answers."""

    def __init__(self, data: Path, folder: Path, pause: float = 0.01, cpus_only: bool = False) -> None:
        self.cpus_only = cpus_only
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
            cluster = CLUSTER_OF_CPUS if self.cpus_only else CLUSTER
            self.session = hq.connect(cluster, stall_timeout=STALL, chunk_units=2, cpu_chunk_rows=4000)
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
        return cluster_of(self.pids()[0])

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
            wanted = {"cpu-0", "cpu-1", "cpu-2" if self.cpus_only else "gpu-0"}
            if {each.worker for each in devices} != wanted:
                return [f"workers: {sorted(each.worker for each in devices)}"]
            keys = self.client.run_on_scheduler(inside.keys_left)
            if keys:
                found.append(f"tasks on the scheduler: {keys[:5]}")
            for address, state in self.client.run(inside.held).items():
                if state["values"] or state["build sides"] or state["files"]:
                    found.append(f"{address}: {state}")
            main = self.main_process
            workers = [each for each in main.children(recursive=True) if not is_helper(each, main)]
            if len(workers) != len(wanted):
                found.append(f"{len(workers)} worker processes")
        except (HybridqError, OSError, psutil.Error, IndexError, AttributeError) as error:
            found.append(f"{type(error).__name__}: {error}")
        return found


@contextlib.contextmanager
def broken_cluster(data: Path, pause: float = 0.01, cpus_only: bool = False) -> Iterator[Broken]:
    """Provide a cluster to break; afterwards nothing of it may be left."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        broken = Broken(data, Path(folder), pause, cpus_only)
        try:
            yield broken
        finally:
            broken.stop()
