"""A worker's main memory: one budget for its threads and queries, and a peak that is the operating system's."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hybridq as hq
from hybridq.dispatch.main_memory import (
    BUDGET_SHARE,
    LOOPS_BYTES,
    OWN_BYTES,
    Admission,
    MainMemory,
    resident_bytes,
)
from hybridq.dispatch.memory import check_chunk, host_footprint, range_bytes, rows_that_fit, waiting_bytes
from hybridq.errors import DeviceOutOfMemory, ExecutionError
from hybridq.physical.chunks import Chunk, ParquetUnits

MIB = 2**20


def chunk(decoded):
    return Chunk(0, (0,), ParquetUnits((), 10, decoded // 2), (), 10, decoded // 2, decoded)


def test_the_peak_of_a_chunk_is_what_it_held_and_is_forgotten_afterwards():
    account = MainMemory(4 * 2**30)
    before = resident_bytes()
    with account.admitted(1) as first:
        held = np.ones(100 * MIB, np.uint8)
        assert len(held) == 100 * MIB
        del held
    assert before + 95 * MIB < first.peak < before + 130 * MIB
    with account.admitted(1) as second:
        pass
    assert second.peak < before + 40 * MIB


def test_a_chunk_that_no_worker_can_hold_is_refused_with_figures():
    account = MainMemory(100 * MIB)
    with pytest.raises(DeviceOutOfMemory, match=r"take 209715200 bytes, and the worker may use 104857600.*memory: in"):
        check_chunk(account, chunk(200 * MIB))
    check_chunk(account, chunk(50 * MIB))


def test_tables_count_and_a_real_gpu_needs_only_what_files_have():
    table = pa.table({"x": pa.array(range(1000), pa.int64())})
    assert host_footprint(chunk(1000), [table, "no table"], False) == 8000 + 3000
    assert host_footprint(chunk(1000), [table], True) == 8000 + 500


def test_cpu_chunks_are_sized_by_the_smallest_worker():
    import dataclasses

    from fakes import device

    small = dataclasses.replace(device("cpu", threads=2), memory=1000)
    large = dataclasses.replace(device("cpu", 1), memory=9000)
    assert rows_that_fit([small, large, device("gpu")], 1.0, "cpu") == int(1000 * 0.6 / 2 * 0.9 / 3)
    assert rows_that_fit([device("cpu")], 1.0, "cpu") is None
    # Of a worker that needs most of its memory for itself, they get what is left.
    tight = dataclasses.replace(small, budget=120)
    assert rows_that_fit([tight, large], 1.0, "cpu") == int(120 / 2 * 0.9 / 3)
    assert range_bytes([tight]) == 3
    assert waiting_bytes([tight]) == 25


def test_rows_that_must_fit_leave_room_for_the_process_itself():
    """A list of values was let in that left nothing for the process: its worker died, and so did the next."""
    account = MainMemory(4 * 2**30)
    assert account.base >= OWN_BYTES
    size = account.memory_limit // 6 - MIB
    assert Admission(account, 6, strict=True).lacking(size) == (6 * size, account.memory_limit - account.base)
    assert Admission(account, 6, strict=True).lacking(size - account.base // 6) is None
    assert Admission(account, 6, strict=False).lacking(size) is None


def test_what_a_process_will_import_is_not_the_chunks():
    assert MainMemory(512 * MIB).limit <= 512 * MIB * BUDGET_SHARE - OWN_BYTES
    assert MainMemory(2048 * MIB).limit <= 2048 * MIB * BUDGET_SHARE - OWN_BYTES - LOOPS_BYTES


def test_a_paused_worker_moves_pieces_to_files():
    account = MainMemory(resident_bytes())  # all of it is in use
    moved = []
    account.keeps(lambda: 0, lambda wanted: moved.append(wanted) or wanted)
    account.relieve()
    assert len(moved) == 1
    assert moved[0] >= 0.2 * account.memory_limit
    account.memory_limit *= 2
    account.relieve()
    assert len(moved) == 1


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    random = np.random.default_rng(1)
    columns = {name: random.random(3_000_000) for name in "abcd"}
    pq.write_table(pa.table(columns), folder / "t.parquet", row_group_size=3_000_000, use_dictionary=False)
    return folder


@pytest.fixture(scope="module")
def session(data):
    with hq.connect({"workers": [{"kind": "cpu", "processes": 1, "threads": 1, "memory": "2GiB"}]}) as opened:
        opened.register_folder(data)
        yield opened


def test_the_peak_in_the_report_is_the_operating_systems(session):
    query = session.sql("select sum(a * b + c * d) as s, count(*) as n from t where a < b")
    query.collect()
    pid = session.devices()[0].pid
    seen, stop = [0], threading.Event()

    def sample():
        while not stop.wait(0.001):
            text = Path(f"/proc/{pid}/status").read_text()
            seen[0] = max(seen[0], int(text.split("VmRSS:")[1].split()[0]) * 1024)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        report = query.collect().report
    finally:
        stop.set()
        thread.join()
    assert list(report.peak_worker_bytes) == ["cpu-0"]
    peak = report.peak_worker_bytes["cpu-0"]
    assert 0.8 * seen[0] <= peak <= 1.2 * seen[0]
    device = report.stages[0].devices[0]
    assert device.worker_peak_bytes <= peak
    assert device.worker_predicted_bytes >= 3_000_000 * 32


def test_a_chunk_that_does_not_fit_the_worker_fails_with_what_to_do(session, data):
    """The smallest chunk is a row group of 96 MB of columns; a worker of 80 MB cannot have it."""

    def shrink(limit):
        from hybridq.dispatch.main_memory import main_memory

        main_memory().memory_limit = limit

    client = session._connection._client
    client.run(shrink, 80 * MIB)
    try:
        with pytest.raises(
            ExecutionError, match=r"smallest piece.* bytes, and the worker may use .*start workers with"
        ):
            session.sql("select sum(a + b + c + d) as s from t").collect()
    finally:
        client.run(shrink, 2**31)
    assert len(session.sql("select count(*) as n from t").collect()) == 1


def test_two_queries_wait_for_each_other_and_both_come_out(session, data):
    """The budget is smaller than two chunks; whichever comes second waits."""

    def tighten(limit):
        from hybridq.dispatch.main_memory import main_memory

        main_memory().limit = limit

    with hq.connect({"workers": [{"kind": "cpu", "processes": 1, "threads": 2, "memory": "2GiB"}]}) as shared:
        shared.register_folder(data)
        shared._connection._client.run(tighten, 400 * MIB)
        queries = [shared.sql(f"select sum(a + b + c + d) + {i} as s from t") for i in range(2)]
        start = time.monotonic()
        handles = [query.submit() for query in queries]
        reports = [handle.result(60).report for handle in handles]
        assert time.monotonic() - start < 60
    assert all(report.stages[0].devices[0].worker_predicted_bytes <= 400 * MIB for report in reports)
