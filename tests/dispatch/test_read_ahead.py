"""GPUs read for stages that wait; what they have read may be lost at any time."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fakes import SCHEMA, FakeExecutor, device, make_driver, out_of_memory, scan_stage

import hybridq.dispatch.driver
from hybridq.dispatch.read_ahead import READ_AHEAD, ReadAhead
from hybridq.dispatch.tasks import compute_read_ahead
from hybridq.engines.cpu import CpuEngine
from hybridq.physical.pipeline import BroadcastBuild
from hybridq.session import Result, Session, connect
from hybridq.shipped import find_plan
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import REFERENCES, duckdb_answer
from hybridq.testing.simulated import SimulatedGpuEngine

BOTH = [device("cpu"), device("gpu", threads=3, device_memory=2**30)]


@pytest.fixture(autouse=True)
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hybridq.dispatch.driver, "POLL_SECONDS", 0.02)


def stages(rows: int) -> list[Any]:
    build = dataclasses.replace(scan_stage(rows), id=0)
    return [build, dataclasses.replace(scan_stage(rows), id=1, builds=(BroadcastBuild(0, 0, ("t.x",), SCHEMA),))]


def run(executor: FakeExecutor, folder: Path, mode: Any = "gpu", **options: Any) -> tuple[list[int], Any]:
    options = {"chunk_units": 2, **options}
    driver, report = make_driver(executor, 200, mode, stages=stages(200), file=folder / "t.parquet", **options)
    return driver.run().column(0).to_pylist(), report


def test_chunks_are_read_while_the_build_side_is_made(tmp_path: Path) -> None:
    executor = FakeExecutor(BOTH)
    assert run(executor, tmp_path)[0] == list(range(200))
    assert [task.chunk.id for task in executor.read] == [0, 1, 2, 3]
    for task in executor.read:
        assert task.key.startswith("hybridq_ahead-q-1-")
    probing = [inputs for task, inputs in zip(executor.tasks, executor.inputs, strict=True) if task.ahead]
    assert [inputs[-1] for inputs in probing] == [task.key for task in executor.read]
    assert len([task for task in executor.tasks if "-q-1-" in task.key]) == 10
    assert set(executor.values) == executor.released


@pytest.mark.parametrize(("mode", "options"), [("cpu", {}), ("gpu", {"read_ahead": 0})])
def test_nothing_is_read_ahead_on_cpus_or_where_nobody_wants_it(tmp_path: Path, mode: str, options: Any) -> None:
    executor = FakeExecutor(BOTH)
    assert run(executor, tmp_path, mode, **options)[0] == list(range(200))
    assert executor.read == []


def test_a_chunk_that_was_read_ahead_may_not_fit_all_the_same(tmp_path: Path) -> None:
    executor = FakeExecutor(BOTH, lambda _, task: out_of_memory() if task.ahead else None)
    answer, report = run(executor, tmp_path)
    assert answer == list(range(200))
    assert report.stages[1].retries == 4
    assert set(executor.values) == executor.released


def test_a_gpu_that_is_lost_leaves_what_it_was_to_read_to_the_cpu(tmp_path: Path) -> None:
    executor = FakeExecutor(BOTH)
    executor_run, executor_read = executor.run_chunk, executor.read_ahead

    def on_what_is_there(task: Any, memory: Any, inputs: Any, kind: Any, priority: int, worker: str = "") -> None:
        if kind == "gpu" and len(executor.there) == 1:
            return  # such a task is never run
        executor_run(task, memory, inputs, kind, priority)

    def then_it_is_gone(task: Any, kind: Any, priority: int) -> None:
        executor_read(task, kind, priority)
        if len(executor.read) == 4:
            executor.there = BOTH[:1]

    executor.run_chunk = on_what_is_there  # type: ignore[method-assign]
    executor.read_ahead = then_it_is_gone  # type: ignore[method-assign]
    file = tmp_path / "t.parquet"
    driver, report = make_driver(executor, 200, "gpu", stages=stages(200), file=file, chunk_units=2)
    for each in driver._runs.values():
        each.decision = dataclasses.replace(each.decision, forced=False)  # the GPU was chosen, not asked for
    assert driver.run().column(0).to_pylist() == list(range(200))
    assert {device.kind for device in report.stages[1].devices} == {"cpu"}


def test_a_gpu_reads_ahead_only_when_it_has_nothing_else_to_do(tmp_path: Path) -> None:
    executor = FakeExecutor(BOTH)
    executor_read, before = executor.read_ahead, []

    def seen(task: Any, kind: Any, priority: int) -> None:
        before.append(sum("-q-0-" in each.key for each in executor.tasks))
        executor_read(task, kind, priority)

    executor.read_ahead = seen  # type: ignore[method-assign]
    assert run(executor, tmp_path)[0] == list(range(200))
    assert before == [10] * 4  # all chunks of the stage before have been handed out


def test_what_was_read_is_there_once_and_not_elsewhere() -> None:
    frame = CpuEngine().from_arrow(pa.table({"x": [1, 2, 3]}))
    ahead = ReadAhead(frame, 0.5)
    assert ahead.held == READ_AHEAD.nbytes == frame.nbytes > 0
    copy = pickle.loads(pickle.dumps(ahead))
    assert copy.take() is None
    assert ahead.take() is frame
    assert ahead.take() is None
    assert READ_AHEAD.nbytes == 0


def test_what_was_read_gives_way() -> None:
    kept = [ReadAhead(CpuEngine().from_arrow(pa.table({"x": [1, 2, 3]}))) for _ in range(3)]
    one = kept[0].held
    assert READ_AHEAD.evict(one + 1) == 2 * one
    assert READ_AHEAD.nbytes == one
    assert READ_AHEAD.evict(10 * one) == one
    assert sum(item.take() is None for item in kept) == 3


def check(session: Session, name: str, folder: Path) -> Result:
    session.register_folder(folder)
    text = find_plan(name).read_text()
    result = session.sql(text).collect(mode="gpu")
    expected = duckdb_answer(text, folder, result.to_arrow().schema)
    assert_same_answer(result.to_arrow(), expected, order_by=REFERENCES[name].order_by)
    return result


@pytest.mark.parametrize("name", ["tpch/q03", "tpch/q04", "tpch/q05", "tpch/q18"])
def test_answers_are_duckdbs_and_the_report_says_what_was_read_ahead(name: str, tpch_folder: Path) -> None:
    with connect_in_process(gpu_chunk_rows=9000) as session:
        result = check(session, name, tpch_folder)
    spans = [(stage, span) for stage in result.report.stages for span in stage.spans]
    ahead = [span for _, span in spans if span.what == "read ahead"]
    assert ahead
    for span in ahead:
        assert span.seconds == span.sections["read"] > 0
    total = sum(span.seconds for stage, span in spans if span.what != "merge" and span.kind == "gpu")
    gpus = [device for stage in result.report.stages for device in stage.devices]
    assert total == pytest.approx(sum(device.seconds["total"] for device in gpus))


@pytest.mark.parametrize(("threads", "reads"), [(3, True), (1, False)])
def test_workers_with_threads_to_spare_read_ahead(threads: int, reads: bool, tpch_folder: Path) -> None:
    cpu = {"kind": "cpu", "processes": 1, "threads": 1, "memory": "1GiB"}
    gpu = {"kind": "gpu", "engine": "simulated", "processes": 1, "threads": threads, "memory": "1GiB"}
    with connect({"workers": [cpu, gpu]}, gpu_chunk_rows=9000) as session:
        for name in ("tpch/q03", "tpch/q05"):
            result = check(session, name, tpch_folder)
            spans = [span for stage in result.report.stages for span in stage.spans if span.what == "read ahead"]
            assert bool(spans) == reads


def test_files_that_cannot_be_read_are_left_to_the_chunk(tmp_path: Path) -> None:
    executor = FakeExecutor(BOTH)
    run(executor, tmp_path)
    engine = SimulatedGpuEngine(2**20, 1)
    assert compute_read_ahead(executor.read[0], engine).held > 0
    small = SimulatedGpuEngine(64, 1)
    assert compute_read_ahead(executor.read[0], small).held == 0
    (tmp_path / "t.parquet").write_bytes(b"no longer one")
    assert compute_read_ahead(executor.read[0], engine).held == 0
