from __future__ import annotations

import pytest
from fakes import device

from hybridq.dispatch.memory import remedy, rows_that_fit


@pytest.mark.parametrize(
    ("kind", "section", "can_halve", "cpu_there", "action"),
    [
        ("gpu", "read", True, True, "halve"),
        ("gpu", "read", False, True, "move"),
        ("gpu", "build", True, True, "move"),
        ("gpu", "build", True, False, "halve"),
        ("gpu", "read", False, False, "fail"),
        ("cpu", "read", True, True, "halve"),
        ("cpu", "read", False, True, "fail"),
    ],
)
def test_remedy(kind, section, can_halve, cpu_there, action):
    assert remedy(kind, section, can_halve, cpu_there).action == action


def test_rows_that_fit_looks_at_the_smallest_gpu():
    devices = [device("cpu"), device("gpu", 0, device_memory=3000), device("gpu", 1, device_memory=300)]
    assert rows_that_fit(devices, 10.0) == 9
    assert rows_that_fit([device("cpu")], 10.0) is None
    assert rows_that_fit(devices, 0.0) is None
