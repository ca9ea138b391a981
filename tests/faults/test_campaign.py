"""A few faults of the campaign; ``python -m tests.faults`` has more."""

from __future__ import annotations

import random

import pytest

from faults.campaign import run_one
from faults.cluster import broken_cluster
from faults.kinds import FAULTS
from hybridq.testing import tpch

SOME = ("a read fails once", "CPU worker killed", "file truncated", "cancelled")


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    data = tpch.generate(0.01, tmp_path_factory.mktemp("faults") / "sf0.01", row_group_bytes=64 * 1024)
    with broken_cluster(data) as cluster:
        yield cluster


@pytest.mark.parametrize("name", SOME)
def test_the_right_answer_or_one_clear_error_and_nothing_left(broken, name):
    (fault,) = [each for each in FAULTS if each.name == name]
    run = run_one(broken, random.Random(name).randrange(1000), 1, (fault,))
    assert run.wrong == []
