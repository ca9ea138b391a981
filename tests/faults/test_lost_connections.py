"""Connections that break, and processes that are stopped: found by the campaign."""

from __future__ import annotations

import os
import signal
import threading
import time

import cloudpickle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hybridq as hq
from faults import inside
from hybridq.dispatch.connection import Connection, connect_again_with_care
from hybridq.errors import ClusterUnreachable

cloudpickle.register_pickle_by_value(inside)

CPU = {"kind": "cpu", "processes": 2, "threads": 1, "memory": "1GiB"}
TOTAL = "select g, count(*) as n from t group by g order by g"
ROWS = 20_000


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    pq.write_table(pa.table({"g": [i % 3 for i in range(ROWS)]}), folder / "t.parquet", row_group_size=100)
    return folder


def answer():
    return [{"g": g, "n": len(range(g, ROWS, 3))} for g in range(3)]


def wait_until(true, seconds=120):
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert true()


@pytest.mark.slow
def test_workers_that_are_cut_off_or_stopped_lose_their_work_to_others_and_come_back(data):
    """One worker loses its connection, which closes it, nanny and all; the other is stopped for good."""
    with hq.connect({"workers": [CPU]}, chunk_units=1, stall_timeout=8) as session:
        session.register_folder(data)
        query = session.sql(TOTAL)
        before = {each.address for each in session.devices()}
        session._connection._client.sync(
            session._connection._client._run, inside.cut_off, workers=[min(before)], on_error="return",
            callback_timeout=5,
        )  # fmt: skip
        assert query.collect().to_arrow().to_pylist() == answer()
        wait_until(lambda: len({each.address for each in session.devices()}) == 2)
        handle = query.submit()
        while handle.progress().rows_done < ROWS // 10:
            time.sleep(0.005)
        os.kill(session.devices()[0].pid, signal.SIGSTOP)
        assert handle.result(60).to_arrow().to_pylist() == answer()
        wait_until(lambda: len(session.devices()) == 2)


def test_a_scheduler_that_dies_ends_the_query_with_one_error_and_the_session_closes(data):
    session = hq.connect({"workers": [CPU]}, chunk_units=1, connect_timeout=2, stall_timeout=5)
    session.register_folder(data)
    query = session.sql(TOTAL)
    pids = [each.pid for each in session.devices()]
    handle = query.submit()
    threading.Timer(0.1, os.kill, (session._finalizer.peek()[2][1].pid, signal.SIGKILL)).start()
    start = time.monotonic()
    try:
        handle.result(timeout=120)
    except ClusterUnreachable:
        assert time.monotonic() - start < 100
    with pytest.raises(ClusterUnreachable, match=r"does not answer|has not answered|connection"):
        query.collect()
    session.close()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))  # noqa: PTH110


def test_a_client_connects_again_though_reports_come_with_the_greeting():
    import asyncio

    class Client:
        tries = 0

        async def _ensure_connected(self, timeout=None):
            self.tries += 1
            assert self.tries > 1, "two messages came"

    client = Client()
    connect_again_with_care(client)
    with pytest.raises(OSError, match="greeting"):  # which Dask's client takes as a reason to try again
        asyncio.run(client._ensure_connected(timeout=1))
    asyncio.run(client._ensure_connected(timeout=1))
    assert client.tries == 2


def test_a_client_waits_before_it_connects_again_and_longer_after_a_short_connection(monkeypatch):
    import asyncio
    from types import SimpleNamespace

    from hybridq.dispatch import connection

    class Client:
        async def _ensure_connected(self, timeout=None):
            pass

    async def sleep(seconds):
        pauses.append(seconds)

    now, pauses, client = [0.0], [], Client()
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(connection.asyncio, "sleep", sleep)
    connect_again_with_care(client)
    for after in (60, 1, 1, 60):
        now[0] += after
        asyncio.run(client._ensure_connected())
    # A scheduler that notices only later that the old connection is gone closes the new one in its place.
    assert pauses == [0.1, 0.2, 0.4, 0.1]


def test_closing_a_client_that_failed_to_connect_again_is_no_error():
    class Failed:
        def close(self, timeout):
            raise AssertionError("Dask's own")

    connection = Connection.__new__(Connection)
    connection._client = Failed()
    connection.close()


def test_a_worker_that_joins_in_mid_query_is_used(data):
    import subprocess
    import sys
    from pathlib import Path

    with hq.connect({"workers": [CPU | {"processes": 1}]}, chunk_units=1) as session:
        session.register_folder(data)
        client, slow = session._connection._client, ("", "", 1, str(data / "marker"), True)
        client.run(inside.arm, *slow, 0.3)
        handle = session.sql(TOTAL).submit()
        root = str(Path(hq.__file__).parent.parent)
        joining = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", session.address, "--nthreads", "1", "--no-nanny",
             "--no-dashboard", "--name", "late", "--resources", "CPU=1", "--preload", "hybridq.dispatch.worker"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])},
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_until(lambda: "late" in {each.worker for each in session.devices()})
            before = handle.progress().rows_done
            wait_until(lambda: handle.progress().rows_done >= before + 600)  # of six chunks it has its share
            client.run(inside.arm, *slow, 0.0)
            result = handle.result(200)
        finally:
            joining.kill()  # asked to end just now, Dask's worker sometimes waits for itself
            joining.wait(20)
        assert result.to_arrow().to_pylist() == answer()
        assert "late" in {each.worker for each in result.report.stages[0].devices}


def test_an_answer_too_large_for_the_client_is_not_fetched(data):
    from hybridq.errors import ResultTooLarge
    from hybridq.testing.in_process import connect_in_process

    with connect_in_process(result_bytes=1000) as session:
        session.register_folder(data)
        with pytest.raises(ResultTooLarge, match=r"20,000 rows takes \d+,\d+ bytes, .* 1,000: .*HYBRIDQ_RESULT_BYTES"):
            session.sql("select g from t").collect()
        assert len(session.sql(TOTAL).collect()) == 3
