"""Tests that need a GPU and cuDF; elsewhere they are skipped, with the reason."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ENGINE_TESTS = HERE.parent / "engines"

sys.path.insert(0, str(ENGINE_TESTS))
pytest.register_assert_rewrite(*(path.stem for path in ENGINE_TESTS.glob("test_*.py")))

MEMORY = int(os.environ.get("HYBRIDQ_TEST_DEVICE_MEMORY", 4 * 2**30))
"""Bytes of the device that the tests take."""


def missing() -> str | None:
    """Tell what is missing to run on a GPU; ``None``: nothing."""
    for library in ("pylibcudf", "rmm"):
        if importlib.util.find_spec(library) is None:
            return f"{library} is not installed (pip install hybridq[gpu])"
    try:
        import rmm.mr

        rmm.mr.available_device_memory()
    except Exception as error:
        return f"no GPU can be used: {type(error).__name__}: {error}"
    return None


def pytest_collection_modifyitems(config, items):
    own = [item for item in items if HERE in item.path.parents]
    for item in own:
        item.add_marker(pytest.mark.gpu)
    reason = missing() if own else None
    if reason is None:
        return
    # One of each file is skipped and says so for all: reporting two thousand of them takes its time.
    files = Counter(item.path for item in own)
    shown = {item.path: item for item in reversed(own)}
    for path, item in shown.items():
        item.add_marker(pytest.mark.skip(reason=f"{reason}: none of the {files[path]} tests of this file can run"))
    dropped = set(own) - set(shown.values())
    config.hook.pytest_deselected(items=list(dropped))
    items[:] = [item for item in items if item not in dropped]


@pytest.fixture(scope="session")
def device_memory():
    """The account of the device's memory pool."""
    from hybridq.engines.gpu.memory import start_device

    return start_device(MEMORY)


@pytest.fixture(scope="session")
def engine(device_memory):
    """The GPU engine."""
    from hybridq.engines.gpu.engine import GpuEngine

    return GpuEngine(device_memory)
