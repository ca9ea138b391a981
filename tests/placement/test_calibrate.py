from __future__ import annotations

import json
import math
import threading
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from hybridq.dispatch.measurements import QUICK, SMALL, STRAIGHT, Measured, measure
from hybridq.engines.cpu import CpuEngine
from hybridq.placement.calibrate import (
    ClusterMeasurements,
    ProfileStore,
    assumed_profile,
    identity_of,
    make_profile,
)
from hybridq.placement.placer import PROBE_EVERY, Placer
from hybridq.placement.profile import OPERATORS, TYPE_CLASSES, Profile
from hybridq.placement.summary import describe
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.simulated import SimulatedGpuEngine


@dataclass(frozen=True)
class Machine:
    kind: str
    engine: str
    threads: int = 1
    device_memory: int | None = None
    host: str = "here"
    pace: str = ""


DEVICES = [Machine("cpu", "cpu"), Machine("cpu", "cpu"), Machine("gpu", "simulated gpu", device_memory=2**30)]


PATIENT = replace(QUICK, enough_s=math.inf, budget_s=math.inf)
"""Nothing is left out, however busy the machine."""


@pytest.fixture(scope="module")
def measured():
    workers = {"cpu": measure(CpuEngine(), PATIENT), "gpu": measure(SimulatedGpuEngine(2**30), PATIENT)}
    return ClusterMeasurements(workers, 1e-3, 5e-3, 1.0)


@pytest.fixture
def profile(measured):
    return make_profile(measured, DEVICES)


def test_every_operator_and_type_is_measured_on_each_engine(measured, profile):
    for kind, worker in measured.workers.items():
        assert set(worker.operators) == set(OPERATORS)
        assert {name.split("/")[1] for name in worker.read} == set(TYPE_CLASSES)
        assert worker.left_out == []
        assert all(len(samples) == len(PATIENT.sizes) for samples in worker.operators.values())
        assert profile.devices[kind].operating("sort", 1e6) > profile.devices[kind].operating("sort", 1e4) > 0
    assert profile.measured
    assert profile.devices["gpu"].engine == "simulated gpu"
    assert profile.merge.at(1e6) > profile.merge.at(1e3)
    text = describe(profile)
    assert "aggregate_many" in text
    assert "read snappy/decimal" in text
    table = [line for line in text.splitlines()[2:] if line.startswith(("ms for", "read", "sort"))]
    assert len({len(line) for line in table}) == 1  # columns are aligned


def test_a_profile_is_found_again_by_the_same_devices_only(profile, tmp_path):
    store = ProfileStore(tmp_path / "profiles")
    assert store.load(profile.identity) is None
    store.save(profile)
    assert store.load(profile.identity) == Profile.from_dict(profile.to_dict())
    assert store.load(identity_of(DEVICES[1:])) is None
    assert store.load(identity_of([Machine("cpu", "cpu", host="elsewhere")])) is None
    assert identity_of(DEVICES) == identity_of(DEVICES[::-1])
    slow, fast = ([replace(each, pace=pace) for each in DEVICES] for pace in ("0.2", "1 steady"))
    assert identity_of(slow) != identity_of(fast)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace('"task_s": 0.001', '"task_s": -1'),
        lambda text: text.replace('"task_s": 0.001', '"task_s": "fast"'),
        lambda text: text.replace('"format": 1', '"format": 99'),
        lambda text: text.replace('"here"', '"elsewhere"'),
        lambda text: json.dumps({**json.loads(text), "devices": {"tpu": {}}}),
        lambda text: json.dumps({**json.loads(text), "merge": [[10, 2.0], [20, 1.0]]}),
        lambda text: "\\x00",
    ],
)
def test_a_damaged_or_foreign_profile_is_set_aside(profile, tmp_path, damage):
    store = ProfileStore(tmp_path)
    path = store.save(profile)
    path.write_text(damage(path.read_text()))
    with pytest.warns(UserWarning, match="is not used"):
        assert store.load(profile.identity) is None
    assert not path.exists()
    assert path.with_suffix(".json.bad").exists()
    store.save(profile)
    assert store.load(profile.identity) is not None


def test_the_small_form_measures_everything_until_it_grows_with_its_size():
    found = measure(CpuEngine(), replace(SMALL, budget_s=math.inf))
    assert found.operators.keys() == set(OPERATORS)
    assert not found.left_out
    sizes = {rows for samples in found.read.values() for rows, _ in samples}
    assert sizes <= {*SMALL.read_sizes, SMALL.read_sizes[-1] * SMALL.copies}
    for name, samples in found.operators.items():
        for (before, earlier), (size, seconds) in pairwise(samples[:-1]):
            assert seconds / earlier < STRAIGHT * size / before, name


def test_what_was_learned_is_there_in_the_next_session(tmp_path):
    store = ProfileStore(tmp_path)
    first = Placer(DEVICES, store)
    for _ in range(3):
        first._observe("p", "gpu", 1000, 1.0)
    first.save()
    again = Placer(DEVICES, store)
    assert again._learned.model("p", "gpu").trusted
    store.path(identity_of(DEVICES), "learned").write_text("{")
    with pytest.warns(UserWarning, match="no JSON"):
        assert len(Placer(DEVICES, store)._learned) == 0


def test_sessions_that_run_at_the_same_time_learn_from_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr("hybridq.placement.placer.SHARE_EVERY_S", 0.0)
    store = ProfileStore(tmp_path)
    sessions = [Placer(DEVICES, store) for _ in range(3)]
    for turn in range(2):
        for number, session in enumerate(sessions):
            session._observe(f"p{number}", "cpu", 1000, 1.0 + turn)
            session._observe("all", "gpu", 1000, 1.0 + number)
    threads = [threading.Thread(target=session.save) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = Placer(DEVICES, store)._learned
    assert {number: kept.model(f"p{number}", "cpu").samples for number in range(3)} == {0: 2, 1: 2, 2: 2}
    assert kept.model("all", "gpu").samples == 6
    # One that goes on learns what the others have learned, and tells nothing twice.
    sessions[0]._observe("new", "cpu", 1000, 1.0)
    sessions[0].share()
    for thread in threading.enumerate():
        if thread.name == "hybridq-learned":
            thread.join()
    assert {*sessions[0]._learned._models} == {
        ("p0", "cpu"),
        ("p1", "cpu"),
        ("p2", "cpu"),
        ("all", "gpu"),
        ("new", "cpu"),
    }
    assert sessions[0]._learned.model("all", "gpu").samples == 6
    for session in sessions:
        session.save()
    assert Placer(DEVICES, store)._learned.model("all", "gpu").samples == 6


def test_while_another_session_writes_it_is_left_for_later(tmp_path):
    store = ProfileStore(tmp_path)
    session = Placer(DEVICES, store)
    session._observe("p", "cpu", 1000, 1.0)
    with store.locked(identity_of(DEVICES), 0.0) as locked:
        assert locked
        session._exchange(0.0)
        assert len(session._fresh) == 1
        assert not store.path(identity_of(DEVICES), "learned").exists()
    session._exchange(0.0)
    assert not session._fresh
    assert store.path(identity_of(DEVICES), "learned").exists()


def test_a_session_calibrates_and_uses_the_profile():
    with connect_in_process() as session:
        assert not session._know().profile.measured
        profile = session.calibrate(quick=True)
        assert profile.measured
        assert session._know().profile is profile


def test_handing_out_tasks_is_measured_without_a_default_client(one_worker, monkeypatch):
    monkeypatch.setattr("distributed.client._global_clients", {})
    assert one_worker._connection._run_empty_tasks("cpu", 3) > 0


def test_a_device_that_is_not_used_is_tried_now_and_then(tpch_folder):
    with connect_in_process(cpu_chunk_rows=5_000) as session:
        session.register_folder(tpch_folder)
        query = session.sql("select sum(l_quantity) as s from lineitem")
        slots = session._connection.slots()
        for _ in range(PROBE_EVERY):
            assert not query._predict(slots)[0].probe_due
            query.collect(mode="cpu")
        assert query._predict(slots)[0].probe_due
        query.collect(mode="cop")
        assert not query._predict(slots)[0].probe_due


REAL = [Machine("cpu", "cpu"), Machine("gpu", "gpu", threads=8, device_memory=2**36)]


def measured_gpu(rows, seconds_per_row, latency=1e-3):
    sizes = (rows // 64, rows // 8, rows)
    samples = [(size, latency + size * seconds_per_row) for size in sizes]
    gpu = Measured("gpu", 16)
    gpu.read = {f"snappy/{name}": samples for name in TYPE_CLASSES}
    gpu.operators = dict.fromkeys(OPERATORS, samples)
    gpu.to_device = gpu.from_device = [(8 * size, seconds) for size, seconds in samples]
    return make_profile(ClusterMeasurements({"gpu": gpu}, 1e-3, 5e-3, 1.0), REAL).devices["gpu"]


def test_a_real_gpu_is_not_judged_by_small_sizes():
    assumed = assumed_profile(REAL, 16).devices["gpu"]
    small = measured_gpu(2**21, 5e-9)
    assert small.reading("snappy", "integer", 1e8) == assumed.reading("snappy", "integer", 1e8)
    assert small.operating("probe", 1e8) == assumed.operating("probe", 1e8)
    assert small.to_device.bytes_per_s == assumed.to_device.bytes_per_s
    assert small.to_device.latency_s > assumed.to_device.latency_s
    faster = measured_gpu(2**21, 1e-12, latency=1e-5)
    assert faster.reading("snappy", "integer", 1e8) < assumed.reading("snappy", "integer", 1e8)
    assert faster.operating("probe", 1e8) < assumed.operating("probe", 1e8)
    large = measured_gpu(2**26, 5e-9)
    assert large.operating("probe", 1e8) == pytest.approx(1e-3 + 1e8 * 5e-9, rel=0.1)
    assert large.to_device.bytes_per_s < assumed.to_device.bytes_per_s
