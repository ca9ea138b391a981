from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.dispatch import merging, stage_run
from hybridq.errors import DeviceUnavailable, DivisionByZero
from hybridq.testing.in_process import InProcessConnection, connect_in_process
from hybridq.testing.simulated import SimulatedGpuEngine


@pytest.fixture
def session(tmp_path):
    pq.write_table(pa.table({"k": ["a", "b", "a", None], "x": [1, 2, 3, 0]}), tmp_path / "t.parquet", row_group_size=1)
    with connect_in_process(chunk_units=1) as session:
        session.register_folder(tmp_path)
        yield session


@pytest.mark.parametrize("mode", ["auto", "cpu", "gpu", "cop"])
def test_every_mode_gives_the_answer_and_a_report(session, mode):
    result = session.sql("select k, sum(x) as s from t group by k order by k").collect(mode=mode)
    assert result.to_arrow().to_pylist() == [{"k": "a", "s": 4}, {"k": "b", "s": 2}, {"k": None, "s": 0}]
    devices = {device.kind: device.chunks for device in result.report.stages[0].devices}
    assert sum(devices.values()) == 4
    if mode in ("cpu", "gpu"):
        assert set(devices) == {mode}


def test_errors_of_tasks_are_raised(session):
    with pytest.raises(DivisionByZero):
        session.sql("select 1 / x as y from t").collect(mode="cop")


def test_a_gpu_that_is_too_small_hands_its_chunks_over(tmp_path):
    pq.write_table(pa.table({"x": list(range(100))}), tmp_path / "t.parquet", row_group_size=10)
    with connect_in_process(gpu=SimulatedGpuEngine(40), chunk_units=1) as session:
        session.register_folder(tmp_path)
        result = session.sql("select sum(x) as s from t").collect(mode="cop")
    assert result.to_arrow().to_pylist() == [{"s": 4950}]
    assert result.report.stages[0].fallbacks


def test_without_a_gpu_none_can_be_forced():
    from hybridq.config import Config
    from hybridq.engines.cpu import CpuEngine
    from hybridq.session import Session

    with Session("here", Config(), connection=InProcessConnection({"cpu": CpuEngine()})) as session:
        assert [device.kind for device in session.devices()] == ["cpu"]
        with pytest.raises(DeviceUnavailable):
            session.sql("select 1 as one").collect(mode="gpu")


@pytest.mark.parametrize("memory", [2**20, 3000])
def test_many_groups_are_merged_on_the_gpu_or_where_there_is_room(tmp_path, monkeypatch, memory):
    merged_on = []

    class Watched(SimulatedGpuEngine):
        def aggregate(self, frame, groups, aggregates):
            merged_on.append(frame.rows)
            return super().aggregate(frame, groups, aggregates)

    monkeypatch.setattr(merging, "GPU_MERGE_ROWS", 100)
    monkeypatch.setattr(stage_run, "MERGED_HERE_BYTES", 0)  # these groups are few enough to be merged without a task
    pq.write_table(pa.table({"x": list(range(200)) * 2}), tmp_path / "t.parquet", row_group_size=50)
    with connect_in_process(gpu=Watched(memory), chunk_units=1) as session:
        session.register_folder(tmp_path)
        result = session.sql("select x, count(*) as n from t group by x order by x").collect(mode="gpu")
    assert result.to_arrow().to_pylist() == [{"x": x, "n": 2} for x in range(200)]
    assert (400 in merged_on) == (memory > 3000)
