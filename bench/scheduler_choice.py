"""What Dask's scheduler takes to choose a worker for one task, by how many workers there are: none of them is real.

    python -m bench.scheduler_choice [--workers 8 64 256 1000]

A task that names a resource, as hybridq's do, and no input. Once any worker may be chosen, and once one of the few that
``hybridq.dispatch.executor`` names where there are many. Prints JSON lines of processor milliseconds (medians of 60).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from distributed import Scheduler
from distributed.scheduler import Status, WorkerState, decide_worker

from bench.machine import describe
from hybridq.dispatch.executor import CHOICE


def milliseconds(run: Callable[[], object]) -> float:
    """Return the processor time of a call."""
    times = []
    for _ in range(60):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return statistics.median(times) * 1e3


async def measure(counts: Sequence[int]) -> None:
    """Print a line for each number of workers."""
    make: Any = Scheduler
    async with make(port=0, dashboard=False, host="127.0.0.1") as scheduler:
        for count in counts:
            scheduler.resources["CPU"] = {}
            for number in range(count):
                address = f"tcp://10.0.{number // 250}.{number % 250}:1"
                worker: Any = WorkerState(
                    address=address, status=Status.running, pid=1, name=number, nthreads=2, memory_limit=0,
                    local_directory="", nanny="", server_id=str(number), services={}, versions={}, extra={},
                    scheduler=scheduler,
                )  # fmt: skip
                scheduler.workers[address] = worker
                scheduler.running.add(worker)
                scheduler.resources["CPU"][address] = 2
            task = scheduler.new_task(f"task-{count}", None, "released")
            task.resource_restrictions = {"CPU": 1}

            def choose(task: Any = task) -> object:
                valid = scheduler.valid_workers(task)
                return decide_worker(task, scheduler.running, valid, partial(scheduler.worker_objective, task))

            of_all = milliseconds(choose)
            task.worker_restrictions, task.loose_restrictions = set(list(scheduler.workers)[:CHOICE]), True
            line = {"workers": count, "any_ms": of_all, f"of_{CHOICE}_ms": milliseconds(choose)}
            print(json.dumps(line | {"list_all_ms": milliseconds(lambda: scheduler.identity(n_workers=-1))}))
            scheduler.workers.clear()
            scheduler.running.clear()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[8, 64, 256, 1000])
    given = parser.parse_args()
    print(json.dumps(describe()))
    asyncio.run(measure(given.workers))


if __name__ == "__main__":
    main()
