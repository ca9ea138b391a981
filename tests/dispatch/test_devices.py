from __future__ import annotations

import itertools
import time

import pytest

from hybridq.dispatch import asking
from hybridq.dispatch import roster as roster_module
from hybridq.dispatch.devices import require_devices, slots
from hybridq.dispatch.roster import Roster
from hybridq.errors import ClusterUnreachable, DeviceUnavailable


class Client:
    """A Dask client that knows some workers."""

    def __init__(self, workers, answers):
        self.workers, self.answers, self.asked, self.restarted = workers, answers, [], []

    @property
    def scheduler(self):
        return self

    def sync(self, function, *arguments, callback_timeout, **keywords):
        assert callback_timeout > 0, "nothing may wait for ever"
        return function(*arguments, **keywords)

    def identity(self, n_workers):
        assert n_workers == -1
        if self.workers is None:
            raise OSError("connection lost")
        return {"workers": self.workers}

    def restart_workers(self, workers, wait_for_workers, on_error, stimulus_id):
        self.restarted += workers

    def _run(self, function, workers, on_error):
        self.asked += workers
        return {address: self.answers[address] for address in workers if address in self.answers}


def info(name, **resources):
    return {"name": name, "nthreads": 2, "memory_limit": 100, "resources": resources}


def answer(engine="cpu", device_memory=None):
    return {
        "version": "0",
        "engine": engine,
        "device_memory": device_memory,
        "host": "h",
        "pid": 1,
        "pace": "",
        "budget": 0,
    }


def test_a_query_that_follows_another_does_not_ask_the_scheduler_again(monkeypatch):
    client = Client({"b": info("cpu-0", CPU=2)}, {"b": answer()})
    roster, questions, identity = Roster(client), [], client.identity
    monkeypatch.setattr(client, "identity", lambda n_workers: questions.append(1) or identity(n_workers))
    assert slots(roster.refresh(recent=True)) == slots(roster.refresh(recent=True)) == {"cpu": 2}
    assert len(questions) == 1
    roster.refresh()
    assert len(questions) == 2
    monkeypatch.setattr("hybridq.dispatch.roster.FRESH_SECONDS", 0.0)
    roster.refresh(recent=True)
    assert len(questions) == 3


def test_workers_are_told_apart_and_asked_once():
    workers = {"a": info("gpu-0", GPU=1), "b": info("cpu-0", CPU=2)}
    client = Client(workers, {"a": answer("simulated gpu", 7), "b": answer()})
    roster = Roster(client)
    devices = roster.refresh()
    assert [(each.worker, each.kind, each.engine, each.threads) for each in devices] == [
        ("cpu-0", "cpu", "cpu", 2),
        ("gpu-0", "gpu", "simulated gpu", 1),
    ]
    assert slots(devices) == {"cpu": 2, "gpu": 1}
    del workers["a"]
    workers["c"] = info("cpu-1", CPU=1)
    client.answers["c"] = answer()
    assert [each.worker for each in roster.refresh()] == ["cpu-0", "cpu-1"]
    assert sorted(client.asked) == ["a", "b", "c"]


def test_workers_that_cannot_be_used_are_named():
    workers = {"a": info("plain"), "b": info("bare", CPU=1), "c": info("real", GPU=1), "d": info("odd", CPU=1)}
    missing = ModuleNotFoundError("No module named 'hybridq'", name="hybridq")
    client = Client(
        workers,
        {"a": missing, "b": missing, "c": DeviceUnavailable("the engine cuda is not here"), "d": RuntimeError("odd")},
    )
    with pytest.warns(UserWarning, match="are not used") as caught:
        assert Roster(client).refresh() == []
    text = " ".join(str(each.message) for each in caught)
    assert "without a CPU or GPU resource are not used: plain" in text
    assert "bare (no module hybridq: install hybridq, of this version, where workers run)" in text
    assert "real (the engine cuda is not here)" in text
    assert "odd (RuntimeError: odd)" in text


def test_a_worker_that_has_just_gone_is_asked_again():
    client = Client({"a": info("cpu-0", CPU=1)}, {"a": OSError("gone")})
    roster = Roster(client)
    assert roster.refresh() == []
    client.answers["a"] = answer()
    assert [each.worker for each in roster.refresh()] == ["cpu-0"]


def test_a_worker_that_joins_is_there_the_next_time_where_nobody_waits():
    client = Client({"a": info("cpu-0", CPU=1)}, {"a": answer()})
    roster = Roster(client)
    deadline = time.monotonic() + 60
    while not (found := roster.refresh(wait=False)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [each.worker for each in found] == ["cpu-0"]
    assert client.asked == ["a"]


@pytest.mark.parametrize("trouble", [{}, {"status": "paused", "last_seen": None}])
def test_a_worker_without_a_sign_of_life_is_given_up_and_restarted(trouble, monkeypatch):
    monkeypatch.setattr(roster_module, "SILENCE_SECONDS", 0.5)
    clock = itertools.count()
    workers = {"a": info("cpu-0", CPU=1) | {"last_seen": 7.0} | trouble, "b": info("cpu-1", CPU=1)}
    client = Client(workers, {"a": answer(), "b": answer()})
    roster = Roster(client, patience=0.5)
    for _ in range(2):
        workers["a"]["last_seen"] = next(clock)  # full and idle is no sign of life
        workers["b"]["last_seen"] = next(clock)
        if not trouble:
            workers["a"]["last_seen"] = 7.0
        assert [each.worker for each in roster.refresh()] == ["cpu-0", "cpu-1"]
    time.sleep(0.6)
    workers["b"]["last_seen"] = next(clock)
    assert [each.worker for each in roster.refresh()] == ["cpu-1"]
    roster.refresh()
    deadline = time.monotonic() + 60
    while not client.restarted and time.monotonic() < deadline:
        time.sleep(0.01)
    assert client.restarted == ["a"]
    del workers["a"]  # the scheduler has dropped it
    roster.refresh()
    assert roster.given_up == 0


def test_a_scheduler_that_is_paused_is_asked_again_and_then_given_up(monkeypatch):
    monkeypatch.setattr(asking, "ATTEMPT_SECONDS", 0.02)
    client = Client({"a": info("cpu-0", CPU=1)}, {"a": answer()})
    asked = []

    def sync(function, *arguments, callback_timeout, **keywords):
        asked.append(callback_timeout)
        time.sleep(callback_timeout)
        raise TimeoutError

    monkeypatch.setattr(client, "sync", sync)
    with pytest.raises(ClusterUnreachable, match=r"has not answered for 0\.5 s"):
        Roster(client, patience=0.5).refresh()
    assert 2 <= len(asked) <= 40
    client.status = "connecting"
    monkeypatch.undo()
    roster = Roster(client, patience=0.5)
    assert len(roster.refresh()) == 1  # it may come back
    time.sleep(0.6)
    with pytest.raises(ClusterUnreachable, match="connect anew"):
        roster.refresh()
    client.status = "closed"
    with pytest.raises(ClusterUnreachable, match="connection is lost"):
        Roster(client, patience=10).refresh()


def test_no_scheduler_and_no_workers():
    with pytest.raises(ClusterUnreachable, match="connection lost"):
        Roster(Client(None, {})).refresh()
    with pytest.raises(DeviceUnavailable, match="has no workers: start workers with"):
        require_devices([], "tcp://a", 0)
