"""A cluster that was never measured is measured once, in the background, without being asked to."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from hybridq import first_calibration
from hybridq.first_calibration import FirstCalibration
from hybridq.placement.placer import Placer
from hybridq.session import connect
from hybridq.testing.in_process import connect_in_process


def test_a_session_measures_new_devices_by_itself_and_only_once(one_worker, tpch_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HYBRIDQ_CACHE", str(tmp_path))
    with connect(one_worker.address, calibrate=0) as session:
        assert not session._know().profile.measured
    assert not list(tmp_path.rglob("*.profile.json"))
    monkeypatch.setattr(first_calibration, "PATIENCE_S", 60.0)  # on a busy machine it takes longer
    with connect(one_worker.address, calibrate=1) as session:
        session.register_folder(tpch_folder)
        report = session.sql("select sum(l_quantity) as s from lineitem").collect().report
        assert report.stages[0].basis == "calibration"
        profile = session._know().profile
        assert profile.measured
        assert profile.details["effort"] == "small"
        assert set(profile.devices) == {"cpu", "gpu"}
    stored = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.profile.json")}
    assert len(stored) == 1
    with connect(one_worker.address, calibrate=1) as session:
        assert session._calibration._done.is_set()
        assert session._know().profile.to_dict() == profile.to_dict()
    assert stored == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.profile.json")}


def test_where_there_is_no_choice_nothing_is_measured(without_gpu, tmp_path, monkeypatch):
    monkeypatch.setenv("HYBRIDQ_CACHE", str(tmp_path))
    with connect(without_gpu.address, calibrate=1) as session:
        assert session._calibration._done.is_set()
        assert not session._know().profile.measured


class Broken:
    """A connection whose workers cannot be measured, or not soon."""

    def __init__(self, devices, error=None, ready=None):
        self._devices, self._error, self._ready = devices, error, ready

    def devices(self):
        return self._devices

    def measure(self, effort):
        assert effort == "small"
        if self._ready is not None:
            self._ready.wait(10)
        raise self._error


@pytest.fixture(scope="module")
def devices():
    with connect_in_process() as session:
        return session.devices()


def test_devices_that_cannot_be_measured_are_assumed(devices, caplog):
    placer, calibration = Placer(devices, None), FirstCalibration()
    with caplog.at_level(logging.INFO):
        calibration.begin(Broken(devices, RuntimeError("no kernel")), placer)
        calibration.wait()
    assert "no kernel" in caplog.text
    assert not placer.profile.measured


def test_a_query_does_not_wait_for_ever(devices, caplog, monkeypatch):
    monkeypatch.setattr(first_calibration, "PATIENCE_S", 0.05)
    ready = threading.Event()
    calibration = FirstCalibration()
    calibration.begin(Broken(devices, RuntimeError("late"), ready), Placer(devices, None))
    start = time.perf_counter()
    calibration.wait()
    assert time.perf_counter() - start < 5
    assert "not measured after" in caplog.text
    ready.set()
