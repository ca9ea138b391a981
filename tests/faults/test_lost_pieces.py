"""Pieces of splits that are lost with their worker are made again, whenever that happens; nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

import hybridq.dispatch.driver
from hybridq.config import Config
from hybridq.dispatch.devices import Device
from hybridq.engines.cpu import CpuEngine
from hybridq.errors import DivisionByZero, ExecutionError, QueryCancelled
from hybridq.session import Session, connect
from hybridq.shipped import find_plan
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import InProcessConnection, InProcessExecutor, connect_in_process
from hybridq.testing.reference import REFERENCES, duckdb_answer

QUERY = "tpch/q18"
FAILING = "select sum(1 / (l_linenumber - 1 + o_shippriority)) from lineitem, orders where l_orderkey = o_orderkey"
OPTIONS = {
    "broadcast_limit_bytes": 0,
    "gather_limit_bytes": 0,
    "chunk_units": 4,
    "partition_bytes": 400_000,
    "cpu_chunk_rows": 12_000,
}


class LosingExecutor(InProcessExecutor):
    """Two workers, the second of which dies at some task, and takes its pieces along.

    With ``forever``, no piece is there any more whenever a task wants to read some.
    """

    def __init__(self, lose_at: int, forever: bool = False) -> None:
        super().__init__({"cpu": CpuEngine()})
        self.tasks = 0
        self.lost: set[int] = set()
        self._lose_at = lose_at
        self._forever = forever
        self._second = 1
        self._made: dict[str, int] = {}

    def devices(self):
        numbers = [0] if self.lost else [0, self._second]
        return [Device(f"cpu-{i}", "cpu", "cpu", 1, 0, None, f"here/{i}", "here", 0) for i in numbers]

    def run_chunk(self, task, memory, inputs, kind, priority, worker=""):
        self.tasks += 1
        if self.tasks == self._lose_at:
            self.lose()
        if self._forever and task.pieces:
            for key in self._made:
                self._pieces.drop(key)
        self._made[task.key] = self.tasks % 2 * self._second if len(self.devices()) == 2 else 0
        super().run_chunk(task, memory, inputs, kind, priority, worker)

    def lose(self):
        for key, number in self._made.items():
            if number == self._second:
                self._pieces.drop(key)
        self.lost.add(self._second)
        self._second += 1

    def _finish(self, query, key, kind, value, event):
        number = self._made.get(key, 0)
        before = self.messages
        collected = self.messages = type(before)()
        super()._finish(query, key, kind, value, event)
        self.messages = before
        while not collected.empty():
            message = collected.get()
            if hasattr(message, "content"):
                message = type(message)({**message.content, "address": f"here/{number}", "device": f"cpu-{number}"})
            before.put(message)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(hybridq.dispatch.driver, "POLL_SECONDS", 0.02)


@pytest.fixture(scope="module")
def expected(tpch_folder):
    with connect_in_process() as session:
        session.register_folder(tpch_folder)
        schema = session.sql(find_plan(QUERY).read_text()).schema
    return duckdb_answer(find_plan(QUERY).read_text(), tpch_folder, schema)


def run(tpch_folder, executor, text=None, path=None):
    connection = InProcessConnection({"cpu": CpuEngine()})
    connection.executor = lambda query: executor  # type: ignore[method-assign]
    with Session("in process", Config.load(**OPTIONS), connection=connection) as session:
        session.register_folder(tpch_folder)
        query = session.sql(text or find_plan(QUERY).read_text())
        return query.collect(mode="cpu") if path is None else query.write(path, mode="cpu")


def test_a_worker_that_dies_at_any_task_loses_no_row(tpch_folder, expected):
    whole = LosingExecutor(0)
    result = run(tpch_folder, whole)
    assert_same_answer(result.to_arrow(), expected, order_by=REFERENCES[QUERY].order_by)
    again = 0
    for lose_at in range(2, whole.tasks + 1):
        executor = LosingExecutor(lose_at)
        result = run(tpch_folder, executor)
        assert_same_answer(result.to_arrow(), expected, order_by=REFERENCES[QUERY].order_by)
        again += sum(stage.retries for stage in result.report.stages)
        assert len(executor._pieces) == 0
        assert executor._values == {}
    assert again > whole.tasks / 2


SPLIT = {
    "groups": "select o_custkey, count(*) n, sum(o_totalprice) s from orders group by o_custkey",
    "distinct": "select o_orderpriority, count(distinct o_custkey) n, count(distinct o_clerk) m from orders"
    " group by o_orderpriority",
    "sort": "select o_clerk, o_orderkey from orders order by o_clerk desc",
    "windows": "select o_orderkey, row_number() over (order by o_clerk) n, sum(o_totalprice) over (order by o_clerk) s"
    " from orders where o_orderkey < 9000",
    "sort of groups": "select o_custkey, count(*) n from orders group by o_custkey order by n desc, o_custkey",
}


@pytest.mark.parametrize("name", SPLIT)
def test_a_worker_that_dies_at_any_task_of_a_split_aggregate_or_sort(tpch_folder, name):
    with connect_in_process(chunk_units=OPTIONS["chunk_units"]) as session:
        session.register_folder(tpch_folder)
        expected = session.sql(SPLIT[name]).collect(mode="cpu").to_arrow()
    whole = LosingExecutor(0)
    run(tpch_folder, whole, SPLIT[name])
    for lose_at in range(2, whole.tasks + 1):
        executor = LosingExecutor(lose_at)
        found = run(tpch_folder, executor, SPLIT[name]).to_arrow()
        if "sort" in name:
            assert found.equals(expected)
        else:
            assert_same_answer(found, expected)
        assert len(executor._pieces) == 0
        assert executor._values == {}


def test_a_worker_that_dies_while_the_answer_is_written(tpch_folder, tmp_path):
    path = tmp_path / "answer.csv"
    with connect_in_process(chunk_units=OPTIONS["chunk_units"]) as session:
        session.register_folder(tpch_folder)
        session.sql(SPLIT["sort"]).write(path, mode="cpu")
    expected = path.read_text()
    whole = LosingExecutor(0)
    run(tpch_folder, whole, SPLIT["sort"], path)
    for lose_at in range(2, whole.tasks + 1):
        executor = LosingExecutor(lose_at)
        run(tpch_folder, executor, SPLIT["sort"], path)
        assert path.read_text() == expected
        assert len(executor._pieces) == 0
        assert executor._values == {}


def test_pieces_that_are_lost_over_and_over_are_one_clear_error(tpch_folder):
    executor = LosingExecutor(0, forever=True)
    with pytest.raises(ExecutionError, match=r"stage \d+ .* lost .* times"):
        run(tpch_folder, executor)
    assert len(executor._pieces) == 0


def spill_files(session):
    def look(dask_worker):
        folder = Path(dask_worker.local_directory)
        plugin = dask_worker.plugins.get("hybridq-pieces")
        files = list(folder.glob("hybridq-split-*/*"))
        return len(files), 0 if plugin is None else len(plugin.store)

    return session._connection._client.run(look)


def nothing_left(session):
    deadline = time.monotonic() + 120
    while any(found != (0, 0) for found in spill_files(session).values()):
        assert time.monotonic() < deadline, spill_files(session)
        time.sleep(0.05)
    return True


def victim(session, killed):
    """Return the process of a worker, once both are there; one that has been killed may be listed for a while."""
    deadline = time.monotonic() + 120
    while len(devices := session.devices()) < 2 or any(device.pid in killed for device in devices):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return next(device.pid for device in devices if device.worker == "cpu-1")


def test_a_process_that_is_killed_in_mid_query(tpch_folder, expected):
    workers = [{"kind": "cpu", "processes": 2, "threads": 1, "memory": "2GiB"}]
    with connect({"workers": workers}, split_memory_bytes=1, **OPTIONS) as session:
        session.register_folder(tpch_folder)
        query = session.sql(find_plan(QUERY).read_text())
        killed = set()
        for stages_done in (1, 3, 5):
            killed.add(pid := victim(session, killed))
            handle = query.submit(mode="cpu")
            while (progress := handle.progress()).stages_done < stages_done and not progress.finished:
                time.sleep(0.001)
            with contextlib.suppress(ProcessLookupError):  # it has been started anew meanwhile, on a busy machine
                os.kill(pid, signal.SIGKILL)
            result = handle.result(timeout=200)
            assert_same_answer(result.to_arrow(), expected, order_by=REFERENCES[QUERY].order_by)
            assert nothing_left(session)


def test_nothing_is_left_of_queries_that_end_early(tpch_folder, two_workers):
    with connect(two_workers.address, split_memory_bytes=1, **OPTIONS) as session:
        session.register_folder(tpch_folder)
        handle = session.sql(find_plan(QUERY).read_text()).submit(mode="cpu")
        while not any(files for files, _ in spill_files(session).values()) and not handle.progress().finished:
            time.sleep(0.001)
        handle.cancel()
        with contextlib.suppress(QueryCancelled):  # it may have been done
            handle.result(timeout=60)
        assert nothing_left(session)
        with pytest.raises(DivisionByZero):
            session.sql(FAILING).collect(mode="cpu")
        assert nothing_left(session)
