from __future__ import annotations

import gc
import time

import pyarrow as pa
import pytest

from hybridq.errors import DeviceOutOfMemory
from hybridq.plan.expressions import Column, Literal, SortKey
from hybridq.testing.simulated import SimulatedGpuEngine, simulated_gpu_engine, slowed_cpu_engine
from hybridq.testing.steady import ROW_S
from hybridq.types import Field

SCHEMA = (Field("x", pa.int64()),)
TRUE = Literal(pa.bool_(), True)


class Block:
    """A frame of so many bytes."""

    def __init__(self, nbytes: int) -> None:
        self.rows, self.nbytes = nbytes // 8, nbytes


class Inner:
    """An engine whose filter halves a frame."""

    name = "inner"

    def from_arrow(self, table):
        return Block(table.nbytes)

    def filter(self, frame, predicate):
        time.sleep(0.02)
        return Block(frame.nbytes // 2)

    def build(self, frame, keys, method="auto"):
        return Block(frame.nbytes)

    def sort(self, frame, keys):
        raise MemoryError("malloc of size 1 failed")

    def to_arrow(self, frame, schema):
        return pa.table({"x": pa.array(range(frame.rows), pa.int64())})


def table(rows: int) -> pa.Table:
    return pa.table({"x": pa.array(range(rows), pa.int64())})


def test_frames_count_while_they_live():
    engine = SimulatedGpuEngine(2000, inner=Inner())
    frame = engine.from_arrow(table(100))
    half = engine.filter(frame, TRUE)
    assert (half.rows, engine.memory.used, engine.memory.restart_peak()) == (50, 1200, 1200)


def test_limit_and_peak():
    engine = SimulatedGpuEngine(1000, inner=Inner())
    frame = engine.from_arrow(table(60))
    with pytest.raises(
        DeviceOutOfMemory, match="simulated GPU: copying a table to the device wants 560 bytes, 520 of 1000"
    ) as caught:
        engine.from_arrow(table(70))
    assert (caught.value.wanted, caught.value.free) == (560, 520)
    build = engine.build(frame, ["x"])
    assert (engine.memory.used, engine.memory.restart_peak()) == (960, 960)
    del frame
    gc.collect()
    assert engine.memory.used == 480
    assert [engine.memory.restart_peak(), engine.memory.restart_peak()] == [960, 480]
    del build
    gc.collect()
    assert engine.memory.used == 0


def test_memory_errors_of_the_host_become_the_devices():
    engine = SimulatedGpuEngine(1000, inner=Inner())
    with pytest.raises(DeviceOutOfMemory, match="in a sort"):
        engine.sort(engine.from_arrow(table(10)), ())


def test_speed_is_made_up_for_at_the_end_of_the_chunk():
    def seconds(speed: float) -> float:
        engine = SimulatedGpuEngine(10_000, speed, inner=Inner())
        start = time.perf_counter()
        engine.to_arrow(engine.filter(engine.from_arrow(table(10)), TRUE), SCHEMA)
        return time.perf_counter() - start

    assert seconds(0.25) > 0.075
    assert any(seconds(1) < 0.075 for _ in range(20))  # a busy machine may delay one, not all


def test_a_cpu_slowed_down_answers_as_before_but_later():
    slowed = slowed_cpu_engine(0.25, Inner())
    assert slowed.name == "simulated cpu"
    start = time.perf_counter()
    expected = Inner().to_arrow(Inner().filter(Inner().from_arrow(table(10)), TRUE), SCHEMA)
    plain = time.perf_counter() - start
    found = slowed.to_arrow(slowed.filter(slowed.from_arrow(table(10)), TRUE), SCHEMA)
    assert found.equals(expected)
    assert time.perf_counter() - start - plain > 3.5 * 0.02  # the filter takes that long


@pytest.mark.parametrize("speed", [0, -1, 1.5])
def test_impossible_speeds(speed):
    with pytest.raises(ValueError, match="speed"):
        SimulatedGpuEngine(1000, speed, inner=Inner())
    with pytest.raises(ValueError, match="speed"):
        slowed_cpu_engine(speed, Inner())


def test_it_says_that_it_is_simulated_and_takes_only_its_own_frames():
    engine = SimulatedGpuEngine(1000, inner=Inner())
    assert engine.name == "simulated gpu"
    with pytest.raises(TypeError, match="not on the simulated GPU"):
        engine.filter(Block(8), TRUE)


@pytest.mark.parametrize("speed", [1, 0.5])
def test_a_steady_device_takes_its_time_by_rows(speed):
    rows = 200_000
    expected = rows * ROW_S["sort"] / speed
    keys = [SortKey(Column(pa.int64(), "x"), descending=True)]
    answer = pa.table({"x": pa.array(range(rows), pa.int64())})
    for engine in (slowed_cpu_engine(speed, steady=True), simulated_gpu_engine(2**30, speed, steady=True)):
        for _ in range(2):
            start = time.perf_counter()
            found = engine.to_arrow(engine.sort(engine.from_arrow(answer), keys), SCHEMA)
            assert time.perf_counter() - start > 0.95 * expected
        assert found.num_rows == rows
        assert found.column("x").to_pylist() == sorted(range(rows), reverse=True)
    with pytest.raises(ValueError, match="speed"):
        slowed_cpu_engine(0, steady=True)
