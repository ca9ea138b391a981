"""Whole queries on real GPUs beside CPU workers: modes, memory, death, and clusters that dask-cuda started."""

from __future__ import annotations

import os
import signal
import time

import pytest

from hybridq.session import connect
from hybridq.shipped import find_plan
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.reference import REFERENCES, duckdb_answer

CPU = {"kind": "cpu", "processes": 2, "threads": 1, "memory": "4GiB"}
GPU = {"kind": "gpu", "engine": "cuda", "processes": 1, "threads": 2, "memory": "8GiB", "device_memory": "8GiB"}
MODES = ("cpu", "gpu", "cop", "auto")


@pytest.fixture(scope="module")
def hybrid():
    with connect({"workers": [CPU, GPU]}) as session:
        yield session


def compare(answer, name, folder, schema):
    expected = duckdb_answer(REFERENCES[name].sql or find_plan(name).read_text(), folder, schema)
    assert_same_answer(answer, expected, order_by=REFERENCES[name].order_by)


def check(session, name, folder, mode):
    query = session.sql(find_plan(name).read_text())
    result = query.collect(mode=mode)
    compare(result.to_arrow(), name, folder, query.schema)
    return result


@pytest.mark.parametrize("chunk_units", [1, 7, 0])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", REFERENCES)
def test_the_answer_is_duckdbs(hybrid, tpch_folder, name, mode, chunk_units):
    with connect(hybrid.address, chunk_units=chunk_units) as session:
        session.register_folder(tpch_folder)
        result = check(session, name, tpch_folder, mode)
        kinds = {device.kind for stage in result.report.stages for device in stage.devices}
        if mode in ("cpu", "gpu"):
            assert kinds == {mode}
        for stage in result.report.stages:
            assert not stage.fallbacks
            for device in stage.devices:
                assert device.engine == device.kind
        if mode == "gpu":
            assert 0 < result.report.peak_device_bytes <= 8 * 2**30


def test_the_devices_are_listed(hybrid):
    devices = {device.worker: device for device in hybrid.devices()}
    assert devices["gpu-0"].engine == "gpu"
    assert devices["gpu-0"].device_memory == 8 * 2**30


def test_what_does_not_fit_the_device_is_halved_or_moved(tpch_folder):
    with connect({"workers": [CPU, {**GPU, "threads": 1, "device_memory": "2MiB"}]}, chunk_units=7) as session:
        session.register_folder(tpch_folder)
        result = check(session, "tpch/q01", tpch_folder, "gpu")
        (stage,) = result.report.stages
        assert stage.retries > 0 or stage.fallbacks
        assert result.report.peak_device_bytes <= 2 * 2**20


def test_a_gpu_worker_killed_in_mid_query_loses_nothing(tpch_folder):
    with connect({"workers": [CPU, GPU]}, chunk_units=1) as session:
        session.register_folder(tpch_folder)
        check(session, "tpch/q01", tpch_folder, "cop")
        pid = next(device.pid for device in session.devices() if device.kind == "gpu")
        query = session.sql(find_plan("tpch/q01").read_text())
        handle = query.submit(mode="cop")
        deadline = time.monotonic() + 30
        while not handle.progress().rows_done and time.monotonic() < deadline:
            time.sleep(0.001)
        os.kill(pid, signal.SIGKILL)
        compare(handle.result(timeout=120).to_arrow(), "tpch/q01", tpch_folder, query.schema)


def test_a_cluster_of_dask_cuda_with_cpu_workers_beside_it(tpch_folder):
    pytest.importorskip("dask_cuda")
    from dask_cuda import LocalCUDACluster
    from distributed import Nanny

    with LocalCUDACluster(
        n_workers=1,
        threads_per_worker=1,
        resources={"GPU": 1},
        device_memory_limit=0,
        dashboard_address=":0",
        preload=["hybridq.dispatch.worker"],
    ) as cluster:
        options = {
            "nthreads": 1,
            "resources": {"CPU": 1},
            "env": {"CUDA_VISIBLE_DEVICES": ""},
            "preload": ["hybridq.dispatch.worker"],
        }
        cluster.worker_spec["cpu-0"] = {"cls": Nanny, "options": options}
        cluster.sync(cluster._correct_state)
        with connect(cluster.scheduler_address) as session:
            deadline = time.monotonic() + 30
            while len(session.devices()) < 2 and time.monotonic() < deadline:
                time.sleep(0.1)
            assert {device.kind for device in session.devices()} == {"cpu", "gpu"}
            session.register_folder(tpch_folder)
            for mode in MODES:
                for name in ("tpch/q01", "tpch/q03"):
                    check(session, name, tpch_folder, mode)
