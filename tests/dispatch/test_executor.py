"""The executor's dealings with Dask's client when connections and workers are lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError
from types import SimpleNamespace

import pyarrow as pa
import pytest

from hybridq.dispatch import executor as executor_module
from hybridq.dispatch.devices import Device
from hybridq.dispatch.executor import CHOICE, MANY_WORKERS, DaskExecutor
from hybridq.dispatch.roster import Roster as RealRoster
from hybridq.errors import ClusterUnreachable, QueryCancelled, WorkersLost


class Future:
    """A Dask future in some state."""

    def __init__(self, status="finished"):
        self.status, self.released = status, False

    def cancelled(self):
        return self.status == "cancelled"

    def release(self):
        self.released = True


class Roster:
    given_up = 0

    def refresh(self, wait):
        assert not wait
        return []


class Client:
    """A client whose gathers answer as a test says, one after the other."""

    id = "client-1"
    status = "running"

    def __init__(self, answers=()):
        self.answers, self.sent, self.late = list(answers), [], []
        self._loop = asyncio.new_event_loop()
        self.loop = SimpleNamespace(
            asyncio_loop=self._loop,
            add_callback=lambda function, *arguments: function(*arguments),
            call_later=lambda delay, function, *arguments: self.late.append((function, arguments)),
        )
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    async def _gather(self, future, direct):
        answer = self.answers.pop(0) if self.answers else "hang"
        if answer == "hang":
            await asyncio.sleep(60)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _send_to_scheduler(self, message):
        self.sent.append(message)


@pytest.fixture
def make(monkeypatch):
    monkeypatch.setattr(executor_module, "FETCH_POLL_SECONDS", 0.02)
    clients = []

    def make(answers=(), **futures):
        client = Client(answers)
        clients.append(client)
        router = SimpleNamespace(topic="topic", open=lambda query: None)
        made = DaskExecutor(client, Roster(), router, "q", direct=True)
        made._futures.update(futures)
        return made

    yield make
    for client in clients:
        client._loop.call_soon_threadsafe(client._loop.stop)


TABLE = pa.table({"x": [1]})


def test_a_value_that_a_lost_worker_had_is_fetched_again(make):
    executor = make([OSError("connection reset"), CancelledError(), TABLE], a=Future())
    assert executor.fetch("a") is TABLE


def test_a_value_whose_worker_is_given_up_is_fetched_again(make):
    executor = make(["hang", TABLE], a=Future())
    threading.Timer(0.1, setattr, (executor._roster, "given_up", 1)).start()
    assert executor.fetch("a") is TABLE


def test_a_fetch_stops_when_the_query_is_cancelled(make):
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(QueryCancelled):
        make(["hang"], a=Future()).fetch("a", stop.is_set)


def test_a_value_lost_with_the_connection_is_an_error_that_says_so(make):
    with pytest.raises(ClusterUnreachable, match="connection to the scheduler was lost"):
        make([CancelledError()], a=Future("cancelled")).fetch("a")


def test_a_value_that_cannot_be_computed_again_is_an_error_of_ours(make):
    from distributed.scheduler import KilledWorker

    error = KilledWorker("a", SimpleNamespace(address="tcp://x"), 3)
    with pytest.raises(WorkersLost, match="4 workers died"):
        make([error], a=Future()).fetch("a")


def test_tasks_do_not_start_on_inputs_that_are_lost(make):
    executor = make(a=Future("cancelled"), b=Future())
    with pytest.raises(ClusterUnreachable, match="run it again"):
        executor.merge(SimpleNamespace(key="m"), ["b", "a"], "cpu", 0)


def test_the_scheduler_is_told_of_tasks_that_the_client_has_forgotten(make):
    lost, kept = Future("cancelled"), Future()
    executor = make(a=lost, b=kept)
    executor.release(["a", "b", "c"])
    assert lost.released
    assert kept.released
    said = {"keys": ["a"], "client": "client-1"}
    told = [{"op": "client-desires-keys", **said}, {"op": "client-releases-keys", **said}]
    assert executor._client.sent == told
    for function, arguments in executor._client.late:  # for a task that the scheduler was just about to make
        function(*arguments)
    assert executor._client.sent == told * 4
    assert executor._futures == {}


def test_a_scheduler_that_has_not_noticed_the_lost_connection_frees_what_was_wanted(two_workers):
    client, key = two_workers._connection._client, "wanted-through-a-lost-connection"
    future = client.submit(pow, 2, 3, key=key, pure=False)
    assert future.result() == 8

    def connect_again(dask_scheduler, client, key):
        from distributed.scheduler import ClientState

        before = dask_scheduler.clients[client]
        dask_scheduler.clients[client] = ClientState(client)
        dask_scheduler.clients[client].wants_what |= before.wants_what - {dask_scheduler.tasks[key]}

    client.run_on_scheduler(connect_again, client=client.id, key=key)
    client.futures[key].cancel()  # as the client does with all of them
    del client.futures[key]
    executor = DaskExecutor(client, Roster(), SimpleNamespace(topic="", open=lambda query: None), "q", direct=True)
    executor._futures[key] = future
    executor.release([key])
    deadline = time.monotonic() + 10
    while client.run_on_scheduler(lambda dask_scheduler: key in dask_scheduler.tasks) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not client.run_on_scheduler(lambda dask_scheduler: key in dask_scheduler.tasks)


class Submitting:
    """Notes which workers Dask may choose from."""

    def __init__(self):
        self.choices = []

    def submit(self, function, *arguments, workers=None, allow_other_workers=False, **options):
        assert allow_other_workers is (workers is not None)
        self.choices.append(workers)
        return SimpleNamespace(add_done_callback=lambda callback: None)


@pytest.mark.parametrize("count", [MANY_WORKERS, MANY_WORKERS + 1, 1000])
def test_dask_chooses_among_a_few_of_many_workers(monkeypatch, count):
    devices = [Device(f"w{i}", "cpu", "cpu", 1, 0, None, f"tcp://w{i}", "h", i) for i in range(count)]
    devices.append(Device("g", "gpu", "cuda", 1, 0, None, "tcp://g", "h", 0))
    roster, client = Roster(), Submitting()
    monkeypatch.setattr(roster, "refresh", lambda wait: devices)
    router = SimpleNamespace(topic="topic", open=lambda query: None)
    executor = DaskExecutor(client, roster, router, "query", direct=True)
    assert executor.devices() == devices
    for number in range(count):
        executor.run_chunk(SimpleNamespace(key=f"chunk-{number}"), (), (), "cpu", 0)
    executor.run_chunk(SimpleNamespace(key="chunk-on-gpu"), (), (), "gpu", 0)
    executor.run_chunk(SimpleNamespace(key="named"), (), (), "cpu", 0, "tcp://w3")
    *on_cpu, on_gpu, named = client.choices
    assert named == ["tcp://w3"]
    assert on_gpu is None
    if count == MANY_WORKERS:
        assert set(on_cpu) == {None}
        return
    assert {len(set(choice)) for choice in on_cpu} == {CHOICE}
    times = Counter(address for choice in on_cpu for address in choice)
    assert times.keys() == {device.address for device in devices[:-1]}
    assert set(times.values()) <= {CHOICE - 1, CHOICE, CHOICE + 1}


def test_the_scheduler_is_not_asked_again_where_it_has_just_answered(monkeypatch):
    asked = []
    monkeypatch.setattr("hybridq.dispatch.roster.workers_of", lambda *_: asked.append(time.monotonic()) or {})
    roster = RealRoster(SimpleNamespace(status="running"))
    roster.refresh()
    assert roster.refresh(wait=False) == []
    assert len(asked) == 1
    monkeypatch.setattr("hybridq.dispatch.roster.FRESH_SECONDS", 0.0)
    roster.refresh(wait=False)
    roster.refresh()
    assert len(asked) == 3
