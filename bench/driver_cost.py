"""What the driver itself takes for each chunk, with as many workers as wanted: none is there, and nothing is computed.

    python -m bench.driver_cost [--chunks 1000 10000] [--workers 2 16 128 1000]

One query, a grouped sum, over a file of as many row groups as there are chunks. The first chunk is computed, and every
other is said to have given the same as soon as the driver asks; partial results are merged for real, which is not
counted. Chunks are done one by one and in any order, so that the driver looks for more to do after each, and finds few
neighbours among what is done: the most that this can cost.
Counted are processor seconds of the client's process, of which Dask takes more when it has to send the tasks
(``bench.rack``).
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.machine import describe
from hybridq.config import Config
from hybridq.dispatch.devices import Device
from hybridq.dispatch.executor import Event, Finished, Message
from hybridq.dispatch.tasks import ChunkTask, MergeTask
from hybridq.engines.cpu import CpuEngine
from hybridq.session import Result, Session
from hybridq.testing.in_process import InProcessConnection, InProcessExecutor
from hybridq.topology import Kind

ROWS = 200
"""Rows of a row group."""

SQL = "select g, sum(x) as s, count(*) as n from t group by g order by g"


class Instant(InProcessExecutor):
    """Ends one of the tasks whenever it is asked what has happened."""

    def __init__(self, devices: list[Device]) -> None:
        super().__init__({"cpu": CpuEngine()})
        self._devices = devices
        self._tasks: deque[tuple[ChunkTask, Sequence[pa.Table], Sequence[str], Kind]] = deque()
        self._random = random.Random(1)
        self._first: tuple[Any, dict[str, Any]] | None = None
        self._told: deque[Message] = deque()
        self._computed: queue.SimpleQueue[Message] = self.messages
        self.elsewhere = 0.0
        """Processor seconds of what workers would do."""
        self.most = 0
        """Chunks that were out at the same time."""
        self.messages = self  # type: ignore[assignment] -- the driver only gets and puts

    def devices(self) -> list[Device]:
        """Return the devices that are said to be there."""
        return self._devices

    def run_chunk(
        self,
        task: ChunkTask,
        memory: Sequence[pa.Table],
        inputs: Sequence[str],
        kind: Kind,
        priority: int,
        worker: str = "",
    ) -> None:
        """Take a chunk."""
        self._tasks.append((task, memory, inputs, kind))
        self.most = max(self.most, len(self._tasks))

    def merge(self, task: MergeTask, parts: Sequence[str], kind: Kind, priority: int) -> None:
        """Merge at once."""
        start = time.process_time()
        super().merge(task, parts, kind, priority)
        self.elsewhere += time.process_time() - start

    def put(self, message: Message) -> None:
        """Take what a task has to say."""
        self._told.append(message)

    def get(self, timeout: float | None = None) -> Message:
        """Return what has happened, and let something happen."""
        if not self._told and self._tasks:
            start = time.process_time()
            if self._first is not None:
                self._tasks.rotate(self._random.randrange(len(self._tasks)))
            self._end(*self._tasks.popleft())
            self.elsewhere += time.process_time() - start
        return self.get_nowait()

    def empty(self) -> bool:
        """Tell whether nothing has happened yet."""
        return not self._told

    def get_nowait(self) -> Message:
        """Return what has happened."""
        if not self._told:
            raise queue.Empty
        return self._told.popleft()

    def _end(self, task: ChunkTask, memory: Sequence[pa.Table], inputs: Sequence[str], kind: Kind) -> None:
        if self._first is None:
            super().run_chunk(task, memory, inputs, kind, 0)
            self._first = self._values[task.key], dict(self._told[0].content)  # type: ignore[union-attr]
            return
        value, event = self._first
        self._values[task.key] = value
        address = self._devices[task.chunk.id % len(self._devices)].address
        self._told.append(Event({**event, "key": task.key, "address": address}))
        self._told.append(Finished(task.key))


class InstantConnection(InProcessConnection):
    """Gives out ``Instant`` executors, and keeps the last one."""

    def __init__(self, workers: int) -> None:
        super().__init__({"cpu": CpuEngine()})
        self._devices = [
            Device(f"w{i}", "cpu", "cpu", 2, 0, None, f"tcp://10.0.{i // 250}.{i % 250}:1", f"h{i}", i)
            for i in range(workers)
        ]
        self.last: Instant | None = None

    def devices(self) -> list[Device]:
        """Return the devices that are said to be there."""
        return self._devices

    def executor(self, query: str) -> Instant:
        """Return what runs one query's tasks."""
        self.last = Instant(self._devices)
        return self.last


def write(folder: Path, chunks: int) -> Path:
    """Write a table of so many row groups, all alike."""
    path = folder / f"t{chunks}.parquet"
    part = pa.table({"g": np.arange(ROWS, dtype=np.int64) % 4, "x": np.arange(ROWS, dtype=np.int64)})
    with pq.ParquetWriter(path, part.schema) as writer:
        for _ in range(chunks):
            writer.write_table(part)
    return path


def check(result: Result, chunks: int) -> None:
    """Check the query's answer, and that it came of so many chunks.

    Raises
    ------
    AssertionError
        It is wrong.
    """
    handed_out = sum(device.chunks for device in result.report.stages[0].devices)
    one = (ROWS // 4 * (ROWS - 4) // 2) * chunks
    expected = [{"g": g, "s": one + ROWS // 4 * g * chunks, "n": ROWS // 4 * chunks} for g in range(4)]
    if result.to_arrow().to_pylist() != expected or handed_out != chunks:
        raise AssertionError(f"{handed_out} chunks gave {result.to_arrow().to_pylist()}")


def measure(path: Path, chunks: int, workers: int) -> dict[str, Any]:
    """Run the query once, and say what it took."""
    connection = InstantConnection(workers)
    config = Config.load(chunk_units=1, cpu_chunk_rows=ROWS)
    with Session("instant", config, connection=connection) as session:
        session.register("t", path)
        start = time.process_time()
        query = session.sql(SQL)
        planned = time.process_time()
        result = query.collect()
        took = time.process_time() - planned
        executor = connection.last
    assert executor is not None
    check(result, chunks)
    return {
        "chunks": chunks,
        "workers": workers,
        "most_out": executor.most,
        "plan_s": planned - start,
        "driver_s": took - executor.elsewhere,
        "ms_per_chunk": (took - executor.elsewhere) / chunks * 1e3,
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 16, 128, 1000])
    given = parser.parse_args()
    print(json.dumps(describe()))
    with tempfile.TemporaryDirectory() as folder:
        for chunks in given.chunks:
            path = write(Path(folder), chunks)
            for workers in given.workers:
                print(json.dumps(measure(path, chunks, workers)), flush=True)


if __name__ == "__main__":
    main()
