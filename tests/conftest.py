"""Fixtures that all tests share."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from hybridq.session import Session, connect
from hybridq.testing import tpch

if TYPE_CHECKING:
    from collections.abc import Iterator

# The same examples every time, so that a change is judged by what it changes; HYPOTHESIS_PROFILE=explore looks further.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", print_blob=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def simulated_cluster(cpu_workers: int, gpu_workers: int) -> dict[str, Any]:
    """Describe a cluster of single-threaded CPU workers and simulated GPUs."""
    groups: list[dict[str, Any]] = [{"kind": "cpu", "processes": cpu_workers, "threads": 1, "memory": "2GiB"}]
    if gpu_workers:
        simulated = {"kind": "gpu", "engine": "simulated", "processes": gpu_workers, "threads": 1, "memory": "3GiB"}
        groups.append({**simulated, "device_memory": "512MiB"})
    return {"workers": groups}


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that a test learns or makes is left to the user, nor taken from there; no session measures by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HYBRIDQ_CALIBRATE", "0")
        patch.setenv("HYBRIDQ_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module", autouse=True)
def nothing_taught_by_other_modules(cache_of_its_own: None) -> None:
    """Where queries run must not depend on which tests came before."""
    shutil.rmtree(Path(os.environ["HYBRIDQ_CACHE"]) / "profiles", ignore_errors=True)


@pytest.fixture
def nothing_learned(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What earlier tests taught about the cluster is not known, so that placement goes by its rules."""
    monkeypatch.setenv("HYBRIDQ_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def tpch_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TPC-H at scale factor 0.01, all eight tables as ``<table>.parquet``, several row groups in the larger ones."""
    return tpch.generate(0.01, tmp_path_factory.mktemp("tpch") / "sf0.01", row_group_bytes=256 * 1024)


@pytest.fixture(scope="session")
def one_worker() -> Iterator[Session]:
    """A session with one CPU worker and one simulated GPU; others attach to its address."""
    with connect(simulated_cluster(1, 1)) as session:
        yield session


@pytest.fixture(scope="session")
def two_workers() -> Iterator[Session]:
    """A session with two CPU workers and two simulated GPUs; others attach to its address."""
    with connect(simulated_cluster(2, 2)) as session:
        yield session


@pytest.fixture(scope="session")
def without_gpu() -> Iterator[Session]:
    """A session with one CPU worker and no GPU."""
    with connect(simulated_cluster(1, 0)) as session:
        yield session
