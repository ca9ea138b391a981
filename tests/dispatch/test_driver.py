from __future__ import annotations

import dataclasses
import threading
import time

import pyarrow as pa
import pytest
from fakes import SCHEMA, FakeExecutor, device, follow_up, make_driver, out_of_memory, scan_stage
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridq.catalog
import hybridq.dispatch.driver
import hybridq.dispatch.fault_handling
from hybridq.dispatch.sending import opened, packed
from hybridq.dispatch.stage_run import StageRun
from hybridq.errors import (
    DeviceOutOfMemory,
    ExecutionError,
    FallbackForbidden,
    NumericOverflow,
    QueryCancelled,
    WorkersLost,
)
from hybridq.physical.merges import FinishWindow
from hybridq.physical.pipeline import BroadcastBuild
from hybridq.placement.cost import PullPolicy

BOTH = [device("cpu"), device("gpu")]


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hybridq.catalog, "MEMORY_UNIT_ROWS", 10)
    monkeypatch.setattr(hybridq.dispatch.driver, "POLL_SECONDS", 0.02)


def values(table: pa.Table) -> list[int]:
    return table.column(0).to_pylist()


@pytest.mark.parametrize("mode", ["cpu", "gpu", "cop", "auto"])
@pytest.mark.parametrize("units", [1, 3, 1000])
def test_all_rows_in_order_exactly_once(mode, units):
    executor = FakeExecutor(BOTH)
    driver, report = make_driver(executor, 205, mode, chunk_units=units)
    assert values(driver.run()) == list(range(205))
    assert sum(each.rows for each in report.stages[0].devices) == 205
    assert report.stages[0].output_rows == 205
    assert set(executor.values) == executor.released


def test_window_bounds_what_is_in_flight():
    counts = []

    def hang(executor, task):
        counts.append(len(executor.tasks))
        return "hang"

    executor = FakeExecutor([device("cpu", threads=2)], hang)
    driver, _ = make_driver(executor, 1000, "cpu", chunk_units=1, window=3)
    threading.Timer(0.3, driver.cancel).start()
    with pytest.raises(QueryCancelled):
        driver.run()
    assert max(counts) == 6
    assert executor.cancelled == {task.key for task in executor.tasks}


def test_single_chunk_makes_the_output_itself():
    executor = FakeExecutor(BOTH)
    driver, report = make_driver(executor, 50, "cpu")
    assert len(driver.run()) == 50
    assert [task.complete for task in executor.tasks] == [True]
    assert executor.merges == []
    assert report.stages[0].mode == "EXEC_CPU"


def test_empty_table_merges_nothing():
    executor = FakeExecutor(BOTH)
    driver, _ = make_driver(executor, 0, "cpu")
    assert len(driver.run()) == 0
    assert executor.tasks == executor.merges == []


class Sending(FakeExecutor):
    """Has reports hold partial results and outputs, as those of real tasks do where these are small."""

    def run_chunk(self, task, memory, inputs, kind, priority, worker=""):
        given = [opened(sent) for _, sent in task.given]
        table = (memory[0] if memory else (given or [self.values[key] for key in inputs])[0]).rename_columns(["t.x"])
        behave, sent = self.behave, {"answer": packed(table), "bytes": table.nbytes}
        if table.nbytes <= (800 if task.complete else min(task.send, 800)):
            self.behave = lambda executor, task: sent if (found := behave(executor, task)) is None else found
        super().run_chunk(task, memory, inputs, kind, priority, worker)
        self.behave = behave


def test_few_rows_are_merged_without_a_task():
    executor = Sending(BOTH)
    driver, report = make_driver(executor, 205, "cpu", chunk_units=1)
    assert values(driver.run()) == list(range(205))
    assert executor.merges == []
    assert report.stages[0].output_rows == 205
    assert [span.worker for span in report.stages[0].spans if span.what == "merge"] == ["client"]
    assert set(executor.values) <= executor.released


@pytest.mark.parametrize("large", ["part", "sum"])
def test_parts_that_are_not_few_rows_are_merged_by_a_worker(large, monkeypatch):
    if large == "sum":
        monkeypatch.setattr("hybridq.dispatch.stage_run.MERGED_HERE_BYTES", 1000)
    executor = Sending(BOTH)
    driver, _ = make_driver(executor, 210, "cpu", chunk_units=1 if large == "sum" else 20)
    assert values(driver.run()) == list(range(210))
    assert len(executor.merges) == 1


def test_few_rows_that_tasks_read_are_merged_without_a_task_as_well_and_travel_with_these():
    executor = Sending(BOTH)
    stages = [scan_stage(100), follow_up(1, 0), follow_up(2, 1)]
    driver, report = make_driver(executor, 100, "cpu", stages=stages, chunk_units=1)
    assert values(driver.run()) == list(range(100))
    assert executor.merges == []
    assert [stage.output_rows for stage in report.stages] == [100, 100, 100]
    *scans, second, third = executor.tasks
    assert [(task.inputs, task.given) for task in scans] == [((), ())] * 10
    assert [(task.inputs, [stage for stage, _ in task.given]) for task in (second, third)] == [((), [0]), ((), [1])]
    assert executor.inputs[-2:] == [[], []]


def test_partial_results_of_many_chunks_that_tasks_read_stay_where_they_are(monkeypatch):
    monkeypatch.setattr("hybridq.dispatch.stage_run.MERGED_HERE_BYTES", 1000)
    executor = Sending(BOTH)
    driver, _ = make_driver(executor, 1000, "cpu", stages=[scan_stage(1000), follow_up(1, 0)], chunk_units=1, window=50)
    assert values(driver.run()) == list(range(1000))
    assert len(executor.merges) == 1
    assert [task.send for task in executor.tasks[32:100]] == [10] * 68


def test_an_output_that_the_client_has_is_not_made_again_when_its_worker_is_lost():
    def die(executor, task):
        if not task.given or len(executor.there) == 1:
            return None
        executor.there = [device("cpu")]
        return "vanish"

    executor = Sending(BOTH, die)
    driver, report = make_driver(executor, 10, "cop", stages=[scan_stage(10), follow_up(1, 0), follow_up(2, 1)])
    for decision, run in zip(("gpu", "cpu", "cpu"), driver._runs.values(), strict=True):
        run.policy = PullPolicy((decision,), {"cpu": 1, "gpu": 1}, {"cpu": 100, "gpu": 100})
    assert values(driver.run()) == list(range(10))
    assert [task.kind for task in executor.tasks] == ["gpu", "cpu", "cpu", "cpu"]
    assert [stage.retries for stage in report.stages] == [0, 1, 0]


CPUS = [device("cpu"), device("cpu", 1)]


@pytest.mark.parametrize(("devices", "units", "merges"), [(CPUS, 1, 0), (CPUS[:1], 1, 0), (BOTH, 1, 1), (CPUS, 20, 0)])
def test_rows_that_only_stand_below_each_other_stay_in_parts(devices, units, merges):
    executor = FakeExecutor(devices)
    stages = [scan_stage(100), follow_up(1, 0), follow_up(2, 0)]
    driver, report = make_driver(executor, 100, "cpu", stages=stages, chunk_units=units)
    assert values(driver.run()) == list(range(100))
    assert len(executor.merges) == merges
    assert [stage.output_rows for stage in report.stages] == [100, 100, 100]
    scans = [task.key for task in executor.tasks if "-q-0-" in task.key]
    if not merges:
        assert [inputs for task, inputs in zip(executor.tasks, executor.inputs, strict=True) if task.inputs] == [
            scans
        ] * 2
    assert set(executor.values) == executor.released


def test_many_parts_are_merged():
    executor = FakeExecutor(CPUS)
    stages = [scan_stage(170), follow_up(1, 0)]
    driver, _ = make_driver(executor, 170, "cpu", stages=stages, chunk_units=1)
    assert values(driver.run()) == list(range(170))
    assert len(executor.merges) == 1


def test_a_reader_of_parts_that_is_lost_reads_them_again():
    def lose_one(executor, task):
        if not task.inputs or len(executor.there) == 1:
            return None
        executor.there = CPUS[:1]
        return "vanish"

    executor = FakeExecutor(CPUS, lose_one)
    driver, report = make_driver(executor, 100, "cpu", stages=[scan_stage(100), follow_up(1, 0)], chunk_units=1)
    assert values(driver.run()) == list(range(100))
    assert executor.inputs[-1] == executor.inputs[-2]
    assert [stage.retries for stage in report.stages] == [0, 1]
    assert set(executor.values) == executor.released - {executor.tasks[-2].key}


def test_chunks_that_read_a_build_side_go_to_different_workers():
    build = dataclasses.replace(scan_stage(20), id=0)
    probe = dataclasses.replace(scan_stage(60), id=1, builds=(BroadcastBuild(0, 0, ("t.x",), SCHEMA),))
    executor = FakeExecutor([device("cpu"), dataclasses.replace(device("cpu", 1), paused=True), device("cpu", 2)])
    driver, _ = make_driver(executor, 60, "cpu", stages=[build, probe], chunk_units=1, window=1)
    driver.run()
    named = [worker for task, worker in zip(executor.tasks, executor.named, strict=True) if task.inputs]
    assert set(named) == {"tcp://cpu-0", "tcp://cpu-2"}
    assert executor.shared == []
    assert [worker for task, worker in zip(executor.tasks, executor.named, strict=True) if not task.inputs] == [""] * 6


def test_an_error_of_a_merge_in_the_client_says_where(monkeypatch):
    def overflow(stage, parts, last):
        raise NumericOverflow("sum of x")

    monkeypatch.setattr("hybridq.dispatch.tasks.merge_tables", overflow)
    executor = Sending(BOTH)
    driver, _ = make_driver(executor, 100, "cpu", chunk_units=1)
    with pytest.raises(NumericOverflow, match="sum of x") as raised:
        driver.run()
    assert raised.value.__notes__ == ["in stage 0 (scan t)"]
    assert executor.cancelled >= set(executor.values)


def test_both_kinds_work_in_cop_and_the_ratio_is_measured():
    executor = FakeExecutor(BOTH)
    driver, report = make_driver(executor, 4000, "cop", cpu_chunk_rows=100, gpu_chunk_rows=100, chunk_units=1)
    driver.run()
    by_kind = {each.kind: each for each in report.stages[0].devices}
    assert by_kind["gpu"].rows > 0
    assert by_kind["cpu"].rows > 0
    assert report.stages[0].cost_ratio == pytest.approx(0.1)
    assert report.stages[0].predicted_s is not None
    assert report.peak_device_bytes == 7


def test_stages_run_in_order_and_inputs_are_released():
    executor = FakeExecutor(BOTH)
    stages = [scan_stage(100), follow_up(1, 0), follow_up(2, 1)]
    driver, report = make_driver(executor, 100, "auto", stages=stages, chunk_units=2)
    assert values(driver.run()) == list(range(100))
    assert [stage.mode for stage in report.stages] == ["EXEC_CPU"] * 3
    assert "earlier stage" in report.stages[1].reason
    assert executor.inputs[-1] == [task.key for task in executor.tasks if "-q-1-0-" in task.key][-1:]


@pytest.mark.parametrize("rows", [100, 10])
def test_build_sides_are_copied_to_many_devices_that_will_run_several_chunks(rows, monkeypatch):
    monkeypatch.setattr("hybridq.dispatch.driver.MOST_NAMED", 1)
    monkeypatch.setattr("hybridq.dispatch.spreading.MOST_NAMED", 1)
    build = dataclasses.replace(scan_stage(20), id=0)
    probe = dataclasses.replace(scan_stage(rows), id=1, builds=(BroadcastBuild(0, 0, ("t.x",), SCHEMA),))
    executor = FakeExecutor([device("cpu"), device("cpu", 1), device("gpu")])
    driver, _ = make_driver(executor, rows, "cpu", stages=[build, probe], cpu_chunk_rows=30)
    driver.run()
    made = executor.inputs[-1][0]
    assert set(executor.named) == {""}
    assert executor.shared == ([((made,), ("cpu-0", "cpu-1"))] if rows == 100 else [])


@pytest.mark.parametrize("others", [0, 1])
def test_chunks_are_given_to_certain_workers_only_where_all_are_cpus(others):
    build = dataclasses.replace(scan_stage(20), id=0)
    probe = dataclasses.replace(scan_stage(100), id=1, builds=(BroadcastBuild(0, 0, ("t.x",), SCHEMA),))
    executor = FakeExecutor([device("cpu"), device("cpu", 1), *[device("gpu")][:others]])
    driver, _ = make_driver(executor, 100, "cpu", stages=[build, probe], cpu_chunk_rows=30)
    driver.run()
    addresses = {each.address for each in executor.there if each.kind == "cpu"}
    # Where its worker is gone, Dask gives a chunk to any other: a GPU's would not know what a CPU is.
    assert {name for name in executor.named if name} == (set() if others else addresses)
    assert len(executor.shared) == others


@pytest.mark.parametrize("large", [0, 1000])
def test_large_build_sides_are_copied_for_few_chunks_as_well(large, monkeypatch):
    monkeypatch.setattr("hybridq.dispatch.driver.LARGE_INPUT_BYTES", large)
    monkeypatch.setattr("hybridq.dispatch.driver.MOST_NAMED", 1)
    monkeypatch.setattr("hybridq.placement.cost.SMALLEST_CPU_CHUNK_ROWS", 1)
    build = dataclasses.replace(scan_stage(20), id=0)
    probe = dataclasses.replace(scan_stage(10), id=1, builds=(BroadcastBuild(0, 0, ("t.x",), SCHEMA),))
    executor = FakeExecutor([device("cpu"), device("cpu", 1)])
    driver, _ = make_driver(executor, 10, "cpu", stages=[build, probe], cpu_chunk_rows=30)
    driver.run()
    assert len(executor.shared) == (0 if large else 1)


@given(refused=st.sets(st.integers(0, 19), max_size=20))
@settings(max_examples=25, deadline=None)
def test_out_of_memory_halves_then_moves_to_the_cpu(refused):
    """A GPU refuses every chunk of more than one unit, and some single units."""

    def behave(executor, task):
        unit = task.chunk.source.table.num_rows if task.chunk.source.rows else 0
        del unit
        table = executor.sizes[task.key]
        if task.kind == "gpu" and (len(table) > 10 or table[0] // 10 in refused):
            return out_of_memory()
        return None

    class Sized(FakeExecutor):
        sizes: dict[str, list[int]]

        def run_chunk(self, task, memory, inputs, kind, priority, worker=""):
            self.sizes = {**getattr(self, "sizes", {}), task.key: memory[0].column(0).to_pylist()}
            super().run_chunk(task, memory, inputs, kind, priority, worker)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hybridq.catalog, "MEMORY_UNIT_ROWS", 10)
        executor = Sized(BOTH, behave)
        driver, report = make_driver(executor, 200, "gpu", chunk_units=7)
        assert values(driver.run()) == list(range(200))
    stage = report.stages[0]
    assert len(stage.fallbacks) == len(refused)
    assert stage.retries >= len(refused)
    assert all(each.action == "moved to the CPU" and each.cause == "no room" for each in stage.fallbacks)


def test_strict_forbids_moving_but_not_halving():
    executor = FakeExecutor(BOTH, lambda executor, task: out_of_memory() if task.kind == "gpu" else None)
    driver, _ = make_driver(executor, 40, "gpu", strict=True, chunk_units=1)
    with pytest.raises(FallbackForbidden, match="100 bytes wanted, 60 free"):
        driver.run()
    first = []

    def once(executor, task):
        first.append(task)
        return out_of_memory() if len(first) == 1 else None

    driver, report = make_driver(FakeExecutor(BOTH, once), 40, "gpu", strict=True, chunk_units=4)
    assert values(driver.run()) == list(range(40))
    assert report.stages[0].retries == 1
    assert report.stages[0].fallbacks == []


def test_a_shared_build_side_that_does_not_fit_goes_straight_to_the_cpu():
    executor = FakeExecutor(BOTH, lambda executor, task: out_of_memory("build") if task.kind == "gpu" else None)
    driver, report = make_driver(executor, 80, "gpu", chunk_units=4)
    assert values(driver.run()) == list(range(80))
    assert len(report.stages[0].fallbacks) == 2


def test_a_shared_build_side_that_does_not_fit_is_not_tried_again_in_gpu_mode():
    executor = FakeExecutor(BOTH, lambda executor, task: out_of_memory("build") if task.kind == "gpu" else None)
    build = dataclasses.replace(scan_stage(20), id=0)
    probe = dataclasses.replace(scan_stage(2000), id=1, builds=(BroadcastBuild(0, 0, ("t.x",), SCHEMA),))
    driver, report = make_driver(executor, 2000, "gpu", stages=[build, probe], chunk_units=4)
    assert len(driver.run()) == 2000
    assert len(report.stages[1].fallbacks) <= 4  # those that were queued when the first one failed


def test_gpu_that_takes_nothing_gets_no_more_chunks_in_cop():
    executor = FakeExecutor(BOTH, lambda executor, task: out_of_memory() if task.kind == "gpu" else None)
    driver, report = make_driver(executor, 1000, "cop", chunk_units=1)
    assert values(driver.run()) == list(range(1000))
    assert len(report.stages[0].fallbacks) == 3


def test_nothing_left_to_halve_or_move_to():
    executor = FakeExecutor([device("gpu")], lambda executor, task: out_of_memory())
    driver, _ = make_driver(executor, 40, "gpu", chunk_units=1)
    with pytest.raises(DeviceOutOfMemory, match="no CPU worker"):
        driver.run()
    executor = FakeExecutor([device("cpu")], lambda executor, task: out_of_memory())
    driver, _ = make_driver(executor, 40, "cpu", chunk_units=1)
    with pytest.raises(ExecutionError, match="smallest piece"):
        driver.run()


def test_errors_keep_their_class_and_name_the_place():
    executor = FakeExecutor(BOTH, lambda executor, task: NumericOverflow("sum(x) does not fit"))
    driver, _ = make_driver(executor, 40, "cpu", chunk_units=1)
    with pytest.raises(NumericOverflow, match=r"^sum\(x\) does not fit") as caught:
        driver.run()
    assert "in stage 0 (scan t), chunk 0" in caught.value.__notes__[0]
    executor = FakeExecutor(BOTH, lambda executor, task: ValueError("odd"))
    driver, _ = make_driver(executor, 40, "cpu", chunk_units=1)
    with pytest.raises(ExecutionError, match=r"stage 0 \(scan t\), chunk 0 of 10 rows: odd"):
        driver.run()
    assert executor.cancelled


def test_vanished_and_silent_tasks_run_again(monkeypatch):
    monkeypatch.setattr(hybridq.dispatch.fault_handling, "EVENT_TIMEOUT", 0.05)
    troubles = ["vanish", "silent"]
    executor = FakeExecutor(BOTH, lambda executor, task: troubles.pop() if troubles else None)
    driver, report = make_driver(executor, 100, "cpu", chunk_units=1)
    assert values(driver.run()) == list(range(100))
    assert report.stages[0].retries == 2


def test_a_chunk_that_always_vanishes_is_an_error():
    executor = FakeExecutor(BOTH, lambda executor, task: "vanish")
    driver, _ = make_driver(executor, 30, "cpu")
    with pytest.raises(ExecutionError, match="was lost 4 times"):
        driver.run()


def test_dying_workers_move_gpu_chunks_and_fail_cpu_chunks():
    executor = FakeExecutor(BOTH, lambda executor, task: WorkersLost("4 died") if task.kind == "gpu" else None)
    driver, report = make_driver(executor, 100, "cop", chunk_units=1)
    assert values(driver.run()) == list(range(100))
    assert report.stages[0].fallbacks
    executor = FakeExecutor(BOTH, lambda executor, task: WorkersLost("4 died"))
    driver, _ = make_driver(executor, 100, "cpu", chunk_units=1)
    with pytest.raises(WorkersLost, match="chunk 0 of 10 rows: 4 died"):
        driver.run()


@pytest.mark.parametrize("strict", [False, True])
def test_last_gpu_lost_redoes_its_chunks_on_the_cpu(strict):
    def behave(executor, task):
        gpu_tasks = [each for each in executor.tasks if each.kind == "gpu"]
        if task.kind == "gpu" and len(gpu_tasks) == 3:
            executor.there = [device("cpu")]
        return "hang" if task.kind == "gpu" and len(gpu_tasks) >= 3 else None

    executor = FakeExecutor(BOTH, behave)
    driver, report = make_driver(executor, 400, "cop", chunk_units=1, strict=strict)
    if strict:
        with pytest.raises(FallbackForbidden, match="last GPU worker"):
            driver.run()
        return
    assert values(driver.run()) == list(range(400))
    assert len(report.stages[0].fallbacks) >= 3
    assert {each.kind for each in report.stages[0].devices} == {"cpu", "gpu"}


def test_forced_gpu_waits_for_the_gpu_then_gives_up():
    def behave(executor, task):
        executor.there = [device("cpu")]
        return "hang"

    driver, _ = make_driver(FakeExecutor(BOTH, behave), 400, "gpu", chunk_units=1, stall_timeout=0.1)
    with pytest.raises(WorkersLost, match=r"no GPU worker for 0\.1 s"):
        driver.run()


def test_output_lost_with_the_last_gpu_is_made_again():
    def behave(executor, task):
        if "-q-1-0-" in task.key:  # the second stage starts: now its input disappears
            executor.there = [device("cpu")]
            return "hang"
        return None

    executor = FakeExecutor(BOTH, behave)
    driver, report = make_driver(executor, 30, "cop", stages=[scan_stage(30), follow_up(1, 0)])
    assert values(driver.run()) == list(range(30))
    assert [task.kind for task in executor.tasks] == ["gpu", "cpu", "cpu", "cpu"]
    assert report.stages[0].mode == "EXEC_CPU"
    assert "lost" in report.stages[0].reason
    assert report.stages[0].retries == 1


def test_what_a_lost_output_was_made_of_is_made_again_if_it_has_been_let_go():
    def behave(executor, task):
        if "-q-2-0-" in task.key:  # the third stage starts: now its input disappears, whose own input is let go
            executor.there = [device("cpu")]
            return "hang"
        return None

    executor = FakeExecutor(BOTH, behave)
    driver, report = make_driver(executor, 30, "cop", stages=[scan_stage(30), follow_up(1, 0), follow_up(2, 1)])
    second = driver._runs[1]  # what is small is read on the CPU, where it comes from: not here
    decision = dataclasses.replace(second.decision, mode="EXEC_GPU", forced=False)
    driver._runs[1] = driver._run_of(second.stage, decision, report.stages[1])
    assert values(driver.run()) == list(range(30))
    assert [task.kind for task in executor.tasks][:3] == ["gpu", "gpu", "cpu"]
    assert report.stages[1].mode == "EXEC_CPU"
    assert [stage.retries for stage in report.stages] == [1, 1, 1]


@pytest.mark.parametrize("last", [True, False])
def test_what_a_gpu_has_merged_is_made_again_when_the_last_one_is_lost(last, monkeypatch):
    """The merge that makes a stage's output, or one of neighbours on the way to it."""
    # What reads the output waits for it as long as it is to be made on a GPU.
    lost = ["hybridq_merge-q-0-0-"] if last else []
    executor = FakeExecutor(
        BOTH, lambda executor, task: "hang" if any(key in one for key in lost for one in executor.inputs[-1]) else None
    )
    monkeypatch.setattr(hybridq.dispatch.driver, "merging_kind", lambda size, rows: "gpu")
    if not last:
        monkeypatch.setattr(StageRun, "ready_to_fold", two_of_four)
    merge = executor.merge

    def lose(task, parts, kind, priority):
        merge(task, parts, kind, priority)
        if task.last == last:
            executor.there = [device("cpu")]
            time.sleep(0.03)  # so that the driver looks for workers next

    executor.merge = lose
    driver, report = make_driver(executor, 60, "cop", stages=[scan_stage(60), follow_up(1, 0)], chunk_units=1)
    assert values(driver.run()) == list(range(60))
    assert report.stages[0].mode == "EXEC_CPU"
    assert "lost with the last GPU" in report.stages[0].reason


def two_of_four(run):
    """Have the first two of four results merged, once."""
    return run.parts[:2] if len(run.parts) == 4 and not run.merging else None


def test_early_stop_takes_no_more_chunks_than_needed():
    executor = FakeExecutor([device("cpu")])
    driver, _ = make_driver(executor, 10_000, "cpu", stages=[scan_stage(10_000, early_stop=15)], chunk_units=1)
    assert values(driver.run())[:15] == list(range(15))
    assert len(executor.tasks) < 10


def test_cancel_from_another_thread():
    executor = FakeExecutor(BOTH, lambda executor, task: "hang")
    driver, _ = make_driver(executor, 1000, "cpu", chunk_units=1)
    threading.Timer(0.1, driver.cancel).start()
    with pytest.raises(QueryCancelled):
        driver.run()
    assert driver.progress().stages_done == 0


def test_progress_counts_chunks_and_rows():
    executor = FakeExecutor([device("cpu")])
    driver, _ = make_driver(executor, 205, "cpu", chunk_units=1)
    assert driver.progress().finished is False
    driver.run()
    progress = driver.progress()
    assert (progress.rows_done, progress.rows, progress.finished) == (205, 205, True)
    assert progress.kinds["cpu"].chunks == 21


def test_a_query_whose_windows_do_not_fit_fails_before_they_are_merged():
    stage = dataclasses.replace(scan_stage(100), finish=(FinishWindow(()),))
    executor = FakeExecutor([dataclasses.replace(device("cpu"), memory=100)])
    driver, _ = make_driver(executor, 100, "cpu", stages=[stage], chunk_units=1, cpu_chunk_rows=10)
    with pytest.raises(ExecutionError, match="window functions"):
        driver.run()
    assert executor.merges == []


def test_a_stage_that_auto_put_on_the_gpu_goes_on_without_it():
    """Nothing of it was on the GPU when that was lost, and no other kind was planned."""

    def behave(executor, task):
        if task.kind == "gpu":
            executor.there = [device("cpu")]
        return "hang" if task.kind == "gpu" else None

    executor = FakeExecutor(BOTH, behave)
    driver, report = make_driver(executor, 4000, "gpu", chunk_units=1, stall_timeout=0.2, window=1)
    run = driver._runs[0]
    run.decision = dataclasses.replace(run.decision, forced=False)
    assert values(driver.run()) == list(range(4000))
    assert {each.kind for each in report.stages[0].devices} == {"cpu"}


@pytest.mark.parametrize(("gpu_bytes", "rows", "place"), [(9, 200_000, "gpu"), (7, 200_000, "cpu"), (9, 4000, "cpu")])
def test_results_of_both_kinds_are_merged_where_most_of_them_are(gpu_bytes, rows, place, monkeypatch):
    monkeypatch.setattr(hybridq.catalog, "MEMORY_UNIT_ROWS", rows // 400)
    executor = FakeExecutor(
        [device("cpu"), device("gpu")], lambda executor, task: {"bytes": gpu_bytes} if task.kind == "gpu" else None
    )
    executor.seconds_per_row["gpu"] = executor.seconds_per_row["cpu"]
    size = rows // 10
    driver, report = make_driver(executor, rows, "cop", cpu_chunk_rows=size, gpu_chunk_rows=size, chunk_units=1)
    driver.run()
    kinds = [each.kind for each in report.stages[0].devices for _ in range(each.chunks)]
    assert kinds.count("cpu") == kinds.count("gpu")
    assert [kind for _, _, kind in executor.merges] == [place]


@pytest.mark.parametrize(("size", "used"), [(10**9, False), (8, True)])
def test_a_build_side_that_is_dear_to_copy_keeps_the_other_kind_out(size, used):
    """Two seconds of copying a gigabyte for four milliseconds of work."""
    build = dataclasses.replace(scan_stage(20), id=0)
    probe = dataclasses.replace(scan_stage(4000), id=1, builds=(BroadcastBuild(0, 0, ("t.x",), SCHEMA),))
    executor = FakeExecutor(BOTH)
    executor.merge_bytes = size
    options = {"cpu_chunk_rows": 100, "gpu_chunk_rows": 100, "broadcast_limit_bytes": 2 * 10**9}
    driver, report = make_driver(executor, 4000, "cop", stages=[build, probe], **options)
    driver.run()
    home = executor.merges[0][2]
    kinds = {each.kind for each in report.stages[1].devices}
    assert kinds == ({"cpu", "gpu"} if used else {home})
