"""What Dask and the driver take for each chunk on a cluster of many workers, which are real but do nothing.

    python -m bench.rack [--workers 8 64 256 1000] [--chunks 10000]

A real scheduler, a real session, and as many Dask workers (two threads each, several in one process) as wanted. The
query is that of ``bench.driver_cost``: each process computes its first chunk, and gives the same for every other, so
that messages, events and results are the real ones. Counted are processor seconds of the client's process and of the
scheduler's, which on a rack are the two that there is one of. Where Dask is given a few workers to choose from for each
task, the query runs once more without that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

import hybridq as hq
from bench.driver_cost import ROWS, SQL, check, write
from bench.machine import describe
from hybridq.dispatch import executor, tasks
from hybridq.dispatch.tasks import ChunkTask

PROCESSES = 4
"""Processes that the workers are spread over."""

WARM_CHUNKS = 200
"""Of a first query, which is not measured."""

START_SECONDS = 300.0

_FIRST: dict[bytes, tuple[Any, dict[str, Any]]] = {}
_LOCK = threading.Lock()


def instant_chunk(task: ChunkTask, *tables: Any) -> Any:
    """Give what the first chunk of the stage in this process gave, in place of ``tasks.run_chunk``."""
    with _LOCK:
        if task.stage not in _FIRST:
            exchange = tasks.exchange_of_this_worker()
            _FIRST[task.stage] = tasks.compute_chunk(task, tasks.engine_for_worker(task.kind), tables, *exchange)
    value, event = _FIRST[task.stage]
    tasks._report(task.topic, task.query, task.key, event)
    return value


async def serve_scheduler(place: Path) -> None:
    """Be the scheduler, and write its address to a file."""
    from distributed import Scheduler

    make: Any = Scheduler
    async with make(port=0, dashboard=False, host="127.0.0.1") as scheduler:
        place.write_text(scheduler.address)
        await scheduler.finished()


async def serve_workers(address: str, count: int, number: int) -> None:
    """Be some workers."""
    from distributed import Worker

    make: Any = Worker
    workers = [
        make(
            address, nthreads=2, resources={"CPU": 2}, name=f"cpu-{number}-{i}", dashboard=False, memory_limit=0,
            host="127.0.0.1",
        )
        for i in range(count)
    ]  # fmt: skip
    for worker in workers:
        await worker
    await asyncio.gather(*(worker.finished() for worker in workers))


@contextmanager
def cluster(workers: int) -> Iterator[tuple[str, psutil.Process]]:
    """Start a cluster; give the scheduler's address and process."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = Path(folder) / "address"

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen([sys.executable, "-m", "bench.rack", *arguments], stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        scheduler = start("--be-scheduler", str(place))
        wait_for(place.exists)
        address = place.read_text()
        processes = min(PROCESSES, workers)
        for number in range(processes):
            share = workers // processes + (number < workers % processes)
            start("--be-workers", address, str(share), str(number))
        yield address, psutil.Process(scheduler.pid)


def wait_for(condition: Any) -> None:
    """Wait until something has come about.

    Raises
    ------
    TimeoutError
        It has not.
    """
    end = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the cluster did not start")
        time.sleep(0.2)


def used(process: psutil.Process) -> float:
    """Return the processor seconds of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def number_of_workers(address: str) -> int:
    """Ask the scheduler how many workers there are."""
    from distributed import Client

    make: Any = Client
    with make(address, set_as_default=False) as client:
        return len(client.scheduler_info(n_workers=-1)["workers"])


def measure(workers: int, path: Path, chunks: int) -> Iterator[dict[str, Any]]:
    """Run the query on a cluster after a shorter one, and say what it took, and what doing nothing takes.

    Where Dask is given a few workers to choose from for each task, once more with all of them.
    """
    from bench import rack  # not ``__main__``, which workers do not have

    original, many = executor.run_chunk, executor.MANY_WORKERS
    begun = time.perf_counter()
    with cluster(workers) as (address, scheduler):
        wait_for(lambda: number_of_workers(address) == workers)
        executor.run_chunk = rack.instant_chunk
        try:
            with hq.connect(address, chunk_units=1, cpu_chunk_rows=ROWS, calibrate=False) as session:
                processes = psutil.Process(), scheduler
                with tempfile.TemporaryDirectory() as folder:
                    session.register("t", write(Path(folder), WARM_CHUNKS))
                    session.sql(SQL).collect()
                session.register("t", path)
                start_s = time.perf_counter() - begun
                before = [used(process) for process in processes]
                time.sleep(5)
                idle = [(used(process) - earlier) / 5 for process, earlier in zip(processes, before, strict=True)]
                for choice in (many, workers) if workers > many else (many,):
                    executor.MANY_WORKERS = choice
                    before = [used(process) for process in processes]
                    start = time.perf_counter()
                    result = session.sql(SQL).collect()
                    seconds = time.perf_counter() - start
                    took = [used(process) - earlier for process, earlier in zip(processes, before, strict=True)]
                    check(result, chunks)
                    yield {
                        "workers": workers,
                        "chunks": chunks,
                        "choice": executor.CHOICE if workers > choice else workers,
                        "seconds": seconds,
                        "client_ms_per_chunk": took[0] / chunks * 1e3,
                        "scheduler_ms_per_chunk": took[1] / chunks * 1e3,
                        "client_idle_share": idle[0],
                        "scheduler_idle_share": idle[1],
                        "start_s": start_s,
                    }
        finally:
            executor.run_chunk, executor.MANY_WORKERS = original, many


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[8, 64, 256, 1000])
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--be-scheduler", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--be-workers", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.be_scheduler:
        asyncio.run(serve_scheduler(given.be_scheduler))
    elif given.be_workers:
        address, count, number = given.be_workers
        asyncio.run(serve_workers(address, int(count), int(number)))
    else:
        print(json.dumps(describe()), flush=True)
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder), given.chunks)
            for workers in given.workers:
                for line in measure(workers, path, given.chunks):
                    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
