"""Build sides that a GPU made and will probe do not pass through main memory (the simulated GPU)."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from hybridq.dispatch.device_rows import (
    DEVICE_ROWS,
    DeviceRows,
    all_in_use,
    as_frame,
    as_table,
    finishes_on_device,
    together,
)
from hybridq.engines.cpu import CpuEngine
from hybridq.errors import DeviceOutOfMemory
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.simulated import SimulatedGpuEngine
from hybridq.types import Field

SCHEMA = (Field("a", pa.int64()), Field("b", pa.string()))
TABLE = pa.table({"a": [1, 2, None], "b": ["x", None, "z"]})

JOIN = "select f.k, d.name, f.v from f join d on f.k = d.k where d.name <> 'n3' order by f.v"


@pytest.fixture
def gpu():
    return SimulatedGpuEngine(2**26)


def rows_of(gpu, table=TABLE):
    return DeviceRows(gpu, gpu.from_arrow(table), SCHEMA)


def test_another_process_gets_a_table(gpu):
    rows = rows_of(gpu)
    again = pickle.loads(pickle.dumps(rows))
    assert isinstance(again, pa.Table)
    assert again.equals(TABLE)


def test_the_same_engine_gets_the_frame_under_other_names(gpu):
    frame = as_frame(gpu, rows_of(gpu), ["x", "y"])
    assert gpu.to_arrow(frame, (Field("x", pa.int64()), Field("y", pa.string()))).column("x").to_pylist() == [
        1,
        2,
        None,
    ]


def test_another_engine_gets_a_copy(gpu):
    cpu = CpuEngine()
    assert cpu.to_arrow(as_frame(cpu, rows_of(gpu), ["a", "b"]), SCHEMA).equals(TABLE)


def test_rows_leave_the_device_and_stay_the_same(gpu):
    rows = rows_of(gpu)
    before, size = gpu.memory.used, rows.nbytes
    assert DEVICE_ROWS.nbytes >= size > 0
    assert DEVICE_ROWS.evict(2**40) >= size
    assert rows.held == 0
    assert rows.frame(gpu, ["a", "b"]) is None
    assert gpu.memory.used <= before - size
    assert as_table(rows).equals(TABLE)
    assert gpu.to_arrow(as_frame(gpu, rows, ["a", "b"]), SCHEMA).equals(TABLE)


def test_rows_in_use_stay(gpu):
    rows = rows_of(gpu)
    with all_in_use([TABLE, rows, rows]):
        assert rows.leave() == 0
        assert rows.frame(gpu, ["a", "b"]) is not None
    assert rows.host_nbytes == 0
    assert rows.leave() == rows.nbytes
    assert rows.host_nbytes == TABLE.nbytes


def test_who_keeps_the_rows_answers_for_their_memory(gpu):
    rows = rows_of(gpu)
    frame = as_frame(gpu, rows, ["a", "b"])
    assert rows.held > 0
    rows.lend()
    assert rows.held == 0
    assert rows.leave() == 0
    assert frame.rows == 3


@pytest.mark.parametrize("failures", [1, 2])
def test_rows_leave_a_full_device_piece_by_piece(gpu, monkeypatch, failures):
    rows, left, original = rows_of(gpu), [MemoryError()] * failures, SimulatedGpuEngine.to_arrow

    def to_arrow(self, frame, schema):
        if left:
            raise left.pop()
        return original(self, frame, schema)

    monkeypatch.setattr(SimulatedGpuEngine, "to_arrow", to_arrow)
    assert rows.table().equals(TABLE)


def test_rows_that_cannot_leave_stay(gpu, monkeypatch):
    rows = rows_of(gpu)
    monkeypatch.setattr(SimulatedGpuEngine, "to_arrow", no_room)
    with pytest.raises(DeviceOutOfMemory):
        rows.table()
    assert DEVICE_ROWS.evict(2**40) == 0
    assert rows.frame(gpu, ["a", "b"]) is not None


def test_parts_from_anywhere_are_put_together(gpu):
    whole = together(gpu, [rows_of(gpu), TABLE, rows_of(gpu, TABLE.slice(0, 0))], SCHEMA)
    assert as_table(whole).equals(pa.concat_tables([TABLE, TABLE]))
    alone = rows_of(gpu)
    assert together(gpu, [alone], SCHEMA) is alone


@pytest.fixture
def copies(monkeypatch):
    """Count rows that go to the device from main memory."""
    counted = []
    original = SimulatedGpuEngine.from_arrow

    def from_arrow(self, table):
        counted.append(table.num_rows)
        return original(self, table)

    monkeypatch.setattr(SimulatedGpuEngine, "from_arrow", from_arrow)
    return counted


@pytest.fixture
def session(tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"k": [i % 50 for i in range(1000)], "v": list(range(1000))}),
        tmp_path / "f.parquet",
        row_group_size=90,
    )
    names = pa.table({"k": list(range(40)), "name": [f"n{i}" for i in range(40)]})
    pq.write_table(names, tmp_path / "d.parquet", row_group_size=7)
    with connect_in_process(chunk_units=1) as found:
        found.register_folder(tmp_path)
        # Tables of few rows are read by the chunks that join them; this one is to be a stage of its own.
        monkeypatch.setattr("hybridq.physical.stages.INLINED_ROWS", 0)
        yield found


@pytest.mark.parametrize("mode", ["gpu", "cop", "cpu"])
def test_build_sides_stay_on_the_device(session, copies, mode):
    result = session.sql(JOIN).collect(mode=mode)
    expected = [(i % 50, f"n{i % 50}", i) for i in range(1000) if i % 50 < 40 and i % 50 != 3]
    assert [tuple(row.values()) for row in result.to_arrow().to_pylist()] == expected
    assert next(stage.title.rpartition(" ")[2] for stage in result.report.stages) == "collect"
    assert mode == "cop" or not copies


def test_a_full_device_gives_them_up(session, monkeypatch):
    monkeypatch.setattr("hybridq.dispatch.tasks.together", no_room)
    assert session.sql(JOIN).collect(mode="gpu").to_arrow().num_rows == 780


def no_room(*arguments):
    raise DeviceOutOfMemory("full", 1, 0)


@pytest.mark.parametrize("sql", [JOIN, "select k, sum(v) s from f group by k order by k"])
def test_a_small_device_keeps_nothing(session, monkeypatch, sql):
    for module in ("execution", "merging"):
        monkeypatch.setattr(f"hybridq.dispatch.{module}.GPU_MERGE_ROWS", 1)
    expected = session.sql(sql).collect(mode="cpu").to_arrow()
    monkeypatch.setattr("hybridq.dispatch.device_rows.STAY_SHARE", 0)
    monkeypatch.setattr(DeviceRows, "__init__", no_room)
    assert session.sql(sql).collect(mode="gpu").to_arrow().equals(expected)


@pytest.mark.parametrize("room", [True, False])
def test_groups_stay_until_they_are_merged(session, copies, monkeypatch, room):
    for module in ("execution", "merging"):
        monkeypatch.setattr(f"hybridq.dispatch.{module}.GPU_MERGE_ROWS", 1)
    if not room:
        monkeypatch.setattr("hybridq.dispatch.merging.as_frame", no_room)
    result = session.sql("select k, sum(v) s, count(*) n, min(v) m from f group by k order by k").collect(mode="gpu")
    expected = [(k, sum(range(k, 1000, 50)), 20, k) for k in range(50)]
    assert [tuple(row.values()) for row in result.to_arrow().to_pylist()] == expected
    assert sum(device.chunks for stage in result.report.stages for device in stage.devices) > 1
    assert not copies


GROUPED = "select c, count(*) as n from (select k, count(v) as c from f group by k having count(*) > 1) g group by c"
JOINED = "select d.name, g.s from (select k, sum(v) as s from f group by k) g join d on g.k = d.k where d.name <> 'n3'"
DECIMALS = "select max(s) as m from (select k, avg(cast(v as decimal(9, 2))) as s from f group by k) g"


@pytest.mark.parametrize("units", [1, 100])
@pytest.mark.parametrize(("sql", "stays"), [(GROUPED, True), (JOINED, True), (DECIMALS, False)])
def test_what_is_made_of_groups_stays(session, copies, monkeypatch, tmp_path, sql, stays, units):
    assert finishes_on_device(session.sql(sql)._physical.stages[0]) == stays
    for module in ("execution", "merging"):
        monkeypatch.setattr(f"hybridq.dispatch.{module}.GPU_MERGE_ROWS", 1)
    with connect_in_process(chunk_units=units) as session:
        session.register_folder(tmp_path)
        answers = {}
        for mode in ("gpu", "cop", "cpu"):
            answers[mode] = sorted(session.sql(sql).collect(mode=mode).to_arrow().to_pylist(), key=str)
            if mode == "gpu" and stays:
                assert not copies
    assert answers["gpu"] == answers["cpu"] == answers["cop"] != []
