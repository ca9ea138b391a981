from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridq.placement.curves import Curve, break_even
from hybridq.placement.profile import Transfer

SAMPLES = st.lists(st.tuples(st.floats(1, 1e9), st.floats(1e-9, 1e5)), min_size=1, max_size=20)


@given(SAMPLES, st.lists(st.floats(1e-3, 1e12), min_size=2, max_size=20))
def test_a_curve_never_falls_and_is_never_negative(samples, sizes):
    curve = Curve.fit(samples)
    seconds = [curve.at(size) for size in sorted(sizes)]
    assert all(value > 0 for value in seconds)
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in itertools.pairwise(seconds))


def test_it_goes_through_points_that_rise():
    points = [(10.0, 1.0), (100.0, 2.0), (1000.0, 30.0)]
    curve = Curve.fit(points)
    assert [curve.at(size) for size, _ in points] == pytest.approx([1, 2, 30])
    assert curve.at(2000) == pytest.approx(30 + 1000 * 28 / 900)
    assert curve.at(1) == pytest.approx(1 - 9 * 1 / 90)  # latency and slope


def test_samples_that_fall_are_pooled():
    curve = Curve.fit([(10, 4.0), (20, 1.0)])
    assert curve.at(10) == curve.at(20) == pytest.approx(2.0)


def test_no_sample_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        Curve.fit([(0, 1.0)])


def test_break_even():
    sizes = [10.0**power for power in range(3, 9)]
    cpu = [(size, size * 1e-7) for size in sizes]
    gpu = [(size, 0.01 + size * 1e-8) for size in sizes]
    assert break_even(cpu, gpu) == pytest.approx(0.01 / 9e-8, rel=0.01)
    assert break_even(gpu, cpu) is None
    assert break_even(cpu, cpu) == sizes[0]


def test_transfer_is_a_latency_and_a_bandwidth():
    transfer = Transfer.fit([(size, 1.5e-5 + size / 3.1e9) for size in (1e3, 1e5, 1e7, 1e8)])
    assert transfer.seconds(1e6) == pytest.approx(1.5e-5 + 1e6 / 3.1e9, rel=0.05)
    assert transfer.seconds(0) == 0
    free = Transfer.fit([(1e3, 2e-5), (1e4, 9e-5), (1e6, 2e-5), (1e9, 3e-5)])  # nothing is moved, but noise is measured
    assert free.bytes_per_s > 1e13
    assert transfer.saturation_bytes == pytest.approx(9 * 1.5e-5 * 3.1e9, rel=0.1)
