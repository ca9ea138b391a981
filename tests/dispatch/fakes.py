"""A cluster that is none: runs tasks at once in the driver's thread, and fails as a test wishes."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hybridq.catalog import Catalog
from hybridq.config import Config
from hybridq.dispatch.devices import Device
from hybridq.dispatch.driver import Driver
from hybridq.dispatch.executor import Event, Failed, Finished, Message, Vanished
from hybridq.dispatch.sending import opened
from hybridq.dispatch.tasks import ChunkTask, MergeTask
from hybridq.physical.chunks import ParquetUnits
from hybridq.physical.merges import ConcatenateMerge
from hybridq.physical.pipeline import CollectSink, Pipeline, Stage, StageSource, TableSource
from hybridq.physical.stages import PhysicalPlan
from hybridq.placement.modes import Mode, decide
from hybridq.placement.predict import StagePrediction
from hybridq.plan.nodes import ScanColumn
from hybridq.report import Report
from hybridq.topology import Kind
from hybridq.types import Field

SCHEMA = (Field("t.x", pa.int64()),)


def device(kind: Kind, number: int = 0, threads: int = 1, device_memory: int | None = None) -> Device:
    name = f"{kind}-{number}"
    return Device(
        name, kind, "cpu" if kind == "cpu" else "simulated gpu", threads, 0, device_memory, f"tcp://{name}", "h", 1
    )


def scan_stage(rows: int, early_stop: int | None = None) -> Stage:
    source = TableSource("t", (ScanColumn("t.x", "x", pa.int64()),), None, ("t.x",))
    pipeline = Pipeline(source, (), CollectSink(SCHEMA))
    merge = ConcatenateMerge(SCHEMA, early_stop)
    return Stage(0, pipeline, (), merge, (), SCHEMA, rows, 8 * rows, rows, "scan t", early_stop)


def follow_up(stage_id: int, reads: int) -> Stage:
    pipeline = Pipeline(StageSource(reads, SCHEMA), (), CollectSink(SCHEMA))
    return Stage(stage_id, pipeline, (), ConcatenateMerge(SCHEMA), (), SCHEMA, 1, 8, 0, f"read stage {reads}")


Behaviour = Callable[["FakeExecutor", ChunkTask], "dict[str, Any] | BaseException | str | None"]


class FakeExecutor:
    """Answers each chunk at once.

    ``behave`` may return, for a chunk: changes to its event (such as an outcome), an error to raise, ``"vanish"``,
    ``"silent"`` (finished, but its event is lost), ``"hang"`` (nothing ever comes), or None for success.
    """

    def __init__(self, devices: Sequence[Device], behave: Behaviour | None = None) -> None:
        self.messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.topic = "topic"
        self.there = list(devices)
        self.behave = behave or (lambda executor, task: None)
        self.values: dict[str, pa.Table] = {}
        self.tasks: list[ChunkTask] = []
        self.inputs: list[list[str]] = []
        self.named: list[str] = []
        self.merges: list[tuple[MergeTask, list[str], Kind]] = []
        self.released: set[str] = set()
        self.cancelled: set[str] = set()
        self.seconds_per_row: dict[Kind, float] = {"cpu": 1e-6, "gpu": 1e-7}
        self.read: list[ChunkTask] = []
        self.merge_bytes = 8
        self.shared: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        self._names = itertools.count()

    def devices(self) -> list[Device]:
        return list(self.there)

    def share(self, keys: Sequence[str], devices: Sequence[Device]) -> None:
        """Note which values were copied to which devices."""
        self.shared.append((tuple(keys), tuple(device.worker for device in devices)))

    def read_ahead(self, task: ChunkTask, kind: Kind, priority: int) -> None:
        self.values[task.key] = pa.table({})
        self.read.append(task)
        self.messages.put(Finished(task.key))

    def run_chunk(
        self,
        task: ChunkTask,
        memory: Sequence[pa.Table],
        inputs: Sequence[str],
        kind: Kind,
        priority: int,
        worker: str = "",
    ) -> None:
        assert task.kind == kind
        assert task.key not in self.values, "a key was used twice"
        assert not set(inputs) & (self.released | self.cancelled), "reads what had been given up"
        self.tasks.append(task)
        self.inputs.append(list(inputs))
        self.named.append(worker)
        answer = self.behave(self, task)
        if isinstance(answer, BaseException):
            self.messages.put(Failed(task.key, answer))
            return
        if answer == "vanish":
            self.messages.put(Vanished(task.key))
            return
        if answer == "hang":
            return
        if isinstance(task.chunk.source, ParquetUnits):
            files = [pq.ParquetFile(path).read_row_groups(list(groups)) for path, groups in task.chunk.source.files]
            source = pa.concat_tables(files).rename_columns(["t.x"])
        else:
            own = [key for key, number in zip(inputs, task.inputs, strict=False) if number == task.inputs[0]]
            given = [opened(sent) for _, sent in task.given]
            read = memory[:1] or given[:1] or [self.values[key] for key in own]
            source = pa.concat_tables(read).rename_columns(["t.x"])
        self.values[task.key] = source
        workers = [each for each in self.there if each.kind == kind]
        worker = workers[next(self._names) % len(workers)]
        event = {
            "what": "chunk", "kind": kind, "engine": worker.engine, "device": worker.worker, "address": worker.address,
            "bytes_read": 8 * source.num_rows, "outcome": "done", "rows": source.num_rows, "bytes": 8, "peak_bytes": 7,
            "seconds": {"total": source.num_rows * self.seconds_per_row[kind]}, "query": task.query, "key": task.key,
        }  # fmt: skip
        if isinstance(answer, dict):
            event |= answer
        if answer != "silent":
            self.messages.put(Event(event))
        self.messages.put(Finished(task.key))

    def merge(self, task: MergeTask, parts: Sequence[str], kind: Kind, priority: int) -> None:
        self.merges.append((task, list(parts), kind))
        assert not set(parts) & (self.released | self.cancelled), "merged what had been given up"
        tables = [self.values[part] for part in parts] or [pa.schema([("t.x", pa.int64())]).empty_table()]
        self.values[task.key] = pa.concat_tables(tables)
        event = {
            "what": "merge",
            "outcome": "done",
            "rows": self.values[task.key].num_rows,
            "seconds": {"total": 0.001},
            "bytes": self.merge_bytes,
            "address": next((each.address for each in self.there if each.kind == kind), ""),
        }
        self.messages.put(Event({**event, "query": task.query, "key": task.key}))
        self.messages.put(Finished(task.key))

    def fetch(self, key: str, stop: Callable[[], bool] = lambda: False) -> pa.Table:
        assert key not in self.released
        return self.values[key]

    def release(self, keys: Sequence[str]) -> None:
        self.released |= set(keys)

    def cancel(self, keys: Sequence[str]) -> None:
        self.cancelled |= set(keys)
        self.released |= set(keys)


def out_of_memory(section: str = "read") -> dict[str, Any]:
    return {"outcome": "out of memory", "wanted": 100, "free": 60, "message": "no room", "section": section}


def make_driver(
    executor: FakeExecutor,
    rows: int,
    mode: Mode = "auto",
    strict: bool = False,
    stages: Sequence[Stage] = (),
    file: Path | None = None,
    predictions: Mapping[int, StagePrediction] | None = None,
    **options: Any,
) -> tuple[Driver, Report]:
    """Make a driver over table t, whose column x counts from 0; in a file of row groups of ten, if one is named."""
    config = Config.load(**options)
    catalog = Catalog()
    table = pa.table({"x": pa.array(range(rows), pa.int64())})
    if file is not None:
        pq.write_table(table, file, row_group_size=10)
    catalog.register("t", table if file is None else file)
    chosen = tuple(stages) or (scan_stage(rows),)
    slots: dict[Kind, int] = {}
    for each in executor.there:
        slots[each.kind] = slots.get(each.kind, 0) + each.threads
    report = Report("test", mode)
    plan = PhysicalPlan(chosen, SCHEMA, ("x",))
    decisions = decide(chosen, mode, slots, config, strict, predictions)
    return Driver(executor, plan, catalog, config, decisions, "q", report, strict), report
