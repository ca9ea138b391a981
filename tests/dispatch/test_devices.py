from __future__ import annotations

import pytest

from hybridq.dispatch.devices import Roster, require_devices, slots
from hybridq.errors import ClusterUnreachable, DeviceUnavailable


class Client:
    """A Dask client that knows some workers."""

    def __init__(self, workers, answers):
        self.workers, self.answers, self.asked = workers, answers, []

    @property
    def scheduler(self):
        return self

    def sync(self, function, **arguments):
        return function(**arguments)

    def identity(self, n_workers):
        assert n_workers == -1
        if self.workers is None:
            raise OSError("connection lost")
        return {"workers": self.workers}

    def run(self, function, workers, on_error):
        self.asked += workers
        return {address: self.answers[address] for address in workers if address in self.answers}


def info(name, **resources):
    return {"name": name, "nthreads": 2, "memory_limit": 100, "resources": resources}


def answer(engine="cpu", device_memory=None):
    return {"version": "0", "engine": engine, "device_memory": device_memory, "host": "h", "pid": 1}


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
    assert client.asked == ["a", "b", "c"]


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


def test_no_scheduler_and_no_workers():
    with pytest.raises(ClusterUnreachable, match="connection lost"):
        Roster(Client(None, {})).refresh()
    with pytest.raises(DeviceUnavailable, match="has no workers: start workers with"):
        require_devices([], "tcp://a", 0)
