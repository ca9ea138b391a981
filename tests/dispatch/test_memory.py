from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest
from fakes import device, scan_stage

from hybridq.dispatch.memory import (
    WINDOW_FACTOR,
    check_window,
    compact,
    factor_of,
    merges_lists,
    remedy,
    rows_that_fit,
)
from hybridq.errors import ExecutionError
from hybridq.physical.merges import AggregateMerge, FinishWindow
from hybridq.physical.pipeline import GroupStep
from hybridq.plan.expressions import AggregateCall


@pytest.mark.parametrize(
    ("kind", "section", "can_halve", "cpu_there", "action"),
    [
        ("gpu", "read", True, True, "halve"),
        ("gpu", "read", False, True, "move"),
        ("gpu", "build", True, True, "move"),
        ("gpu", "build", True, False, "halve"),
        ("gpu", "read", False, False, "fail"),
        ("cpu", "read", True, True, "halve"),
        ("cpu", "read", False, True, "fail"),
    ],
)
def test_remedy(kind, section, can_halve, cpu_there, action):
    assert remedy(kind, section, can_halve, cpu_there).action == action


def test_rows_that_fit_looks_at_the_smallest_gpu():
    devices = [device("cpu"), device("gpu", 0, device_memory=3000), device("gpu", 1, device_memory=300)]
    assert rows_that_fit(devices, 10.0) == 9
    assert rows_that_fit([device("cpu")], 10.0) is None
    assert rows_that_fit(devices, 0.0) is None


def test_groups_are_expected_to_take_more_than_rows():
    def reading(*calls):
        step = GroupStep(AggregateMerge(("k",), calls, (), ()))
        return dataclasses.replace(scan_stage(10), pipeline=dataclasses.replace(scan_stage(10).pipeline, steps=(step,)))

    tallies = reading(AggregateCall("t", "merge_tallies", None, pa.list_(pa.int64())))
    sums = reading(AggregateCall("s", "sum", None, pa.int64()))
    assert [factor_of(stage) for stage in (scan_stage(10), sums, tallies)] == [3.0, 4.5, 6.0]
    assert [merges_lists(stage) for stage in (scan_stage(10), sums, tallies)] == [False, False, True]


def test_compact_lets_go_of_what_a_slice_keeps_alive():
    whole = pa.table({"x": pa.array(range(100_000), pa.int64()), "s": pa.array(["a"] * 100_000).dictionary_encode()})
    piece = compact(whole.slice(70_000, 10))
    assert piece.equals(whole.slice(70_000, 10))
    assert piece.get_total_buffer_size() < 10_000
    assert compact(whole) is whole
    no_columns = compact(whole.slice(0, 3).select([]))
    assert no_columns.num_rows == 3


def test_windows_over_more_than_a_worker_holds_are_refused():
    stage = dataclasses.replace(scan_stage(10), finish=(FinishWindow(()),))
    worker = dataclasses.replace(device("cpu"), memory=100)
    check_window(stage, 100 // WINDOW_FACTOR, [worker])
    check_window(stage, 10**9, [device("cpu")])  # no limit is known
    check_window(scan_stage(10), 10**9, [worker])  # no window
    with pytest.raises(ExecutionError, match="window functions need all"):
        check_window(stage, 100, [device("cpu"), worker])
