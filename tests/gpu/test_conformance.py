"""Every test of the engines' suite (tests/engines), on the GPU engine."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

NAMES = sorted(path.stem for path in (Path(__file__).parent.parent / "engines").glob("test_*.py"))
MODULES = [importlib.import_module(name) for name in NAMES]


@pytest.fixture(scope="module", autouse=True)
def _gpu_in_place_of_cpu(request):
    """Tests that make their own CPU engine (those on random data) get the GPU engine instead."""
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            if hasattr(module, "CpuEngine"):
                patch.setattr(module, "CpuEngine", lambda: request.getfixturevalue("engine"))
        yield


def _take_over():
    fixture_type = type(_gpu_in_place_of_cpu)
    for module in MODULES:
        for name, value in vars(module).items():
            if name.startswith("test_"):
                globals()[f"{name}__{module.__name__.removeprefix('test_')}"] = value
            elif isinstance(value, fixture_type):
                globals()[name] = value


_take_over()
