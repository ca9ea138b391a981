from __future__ import annotations

import itertools
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridq.placement.learned import KEPT_PER_SIZE, MOST_MODELS, MOST_SIZES, Learned, Model

HRISTOV = {
    # Rows -> (GPU, CPU) in ns a row: GeForce 9600M GT with transfer, one core of a Core 2 Duo.
    "selection": {1e3: (7965, 13), 1e4: (1307.3, 11.5), 1e5: (268.87, 22.05), 1e6: (146.475, 24.559)},
    "join": {1e3: (15369, 447), 1e4: (5249.9, 180.3), 1e5: (3389.11, 562.46), 1e6: (3845.978, 523.562)},
    "combined": {1e3: (20717, 333), 1e4: (3452.9, 59.8), 1e5: (679.6, 78.35), 1e6: (326.175, 76.022)},
    "aggregation": {1e3: (4545, 15), 1e4: (970.2, 13.7), 1e5: (223.61, 18.37), 1e6: (101.183, 18.427)},
    "projection": {1e3: (1430, 6), 1e4: (298, 9.1), 1e5: (150.7, 19.17), 1e6: (86.2, 18.73)},
}


@pytest.mark.parametrize("operator", HRISTOV)
def test_four_points_of_a_slow_gpu_give_the_cpu_at_every_size(operator):
    gpu, cpu = Model(), Model()
    for rows, (on_gpu, on_cpu) in HRISTOV[operator].items():
        gpu.observe(rows, rows * on_gpu * 1e-9)
        cpu.observe(rows, rows * on_cpu * 1e-9)
    for power in range(4, 37):  # up to 1e9 rows
        rows = 10 ** (power / 4)
        assert cpu.predict(rows) < gpu.predict(rows), rows


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(1e-6, 1e4)), min_size=1, max_size=60))
def test_a_model_is_monotone_and_positive(samples):
    model = Model()
    for rows, seconds in samples:
        model.observe(rows, seconds)
    predicted = [model.predict(10.0**power) for power in range(12)]
    assert all(value > 0 for value in predicted)
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in itertools.pairwise(predicted))


def test_outliers_do_not_count():
    chance = random.Random(1)
    model = Model()
    for number in range(100):
        seconds = 1.0 * chance.uniform(0.95, 1.05)
        model.observe(1_000_000, seconds * (50 if number % 10 == 9 else 1))
    assert model.predict(1_000_000) == pytest.approx(1.0, rel=0.05)


def test_a_change_is_followed_within_a_few_samples_at_every_size():
    model = Model()
    for rows in (100_000, 1_000_000, 10_000_000):
        for _ in range(KEPT_PER_SIZE):
            model.observe(rows, rows * 1e-6)
    for _ in range(3):
        model.observe(1_000_000, 5.0)
    assert model.predict(1_000_000) == pytest.approx(5.0, rel=0.05)
    assert model.predict(10_000_000) == pytest.approx(50.0, rel=0.05)
    for _ in range(3):
        model.observe(1_000_000, 1.0)
    assert model.predict(10_000_000) == pytest.approx(10.0, rel=0.05)


def test_far_outside_the_profile_is_followed_at_the_learned_level():
    model = Model()
    for _ in range(3):
        model.observe(1_000_000, 2.0)

    def profile(rows):
        return 0.5 + rows * 1e-7

    assert model.predict(1_000_000, profile) == pytest.approx(2.0)
    assert model.predict(100_000_000, profile) == pytest.approx(2.0 * 10.5 / 0.6)
    assert model.predict(1000, profile) == pytest.approx(2.0 * 0.5001 / 0.6)


def test_memory_is_bounded():
    learned = Learned()
    for number in range(MOST_MODELS + 50):
        learned.observe(f"pipeline {number}", "cpu", 1000, 1.0)
    assert len(learned) == MOST_MODELS
    assert learned.model("pipeline 0", "cpu") is None
    model = Model()
    for power in range(60):
        for _ in range(20):
            model.observe(2.0**power, 1.0 + power)
    assert model.samples <= MOST_SIZES * KEPT_PER_SIZE


def test_what_was_learned_can_be_kept():
    learned = Learned()
    for rows in (1000, 2000, 4000):
        learned.observe("p", "gpu", rows, rows * 1e-6)
    again = Learned(json.loads(json.dumps(learned.to_dict())))
    assert again.model("p", "gpu").predict(3000) == learned.model("p", "gpu").predict(3000)
    assert again.model("p", "cpu") is None
    with pytest.raises(ValueError, match="no chunk"):
        Learned({"models": [{"pipeline": "p", "kind": "cpu", "samples": [[10, -1]]}]})


def test_a_size_that_was_measured_cold_does_not_spoil_the_others():
    model = Model()
    for _ in range(3):
        model.observe(300_000, 1.0)  # ten times too slow
    for _ in range(3):
        model.observe(8_000_000, 0.3e-6 * 8_000_000)
    for _ in range(4):
        model.observe(300_000, 0.3e-6 * 300_000)
    assert model.predict(8_000_000) == pytest.approx(2.4, rel=0.3)
