from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.placement.cost import SMALLEST_CHUNK_ROWS, SMALLEST_CPU_CHUNK_ROWS, PullPolicy
from hybridq.placement.rates import Rate

MILLION = 1_000_000


def policy(kinds=("gpu", "cpu"), slots=None, cpu=2 * MILLION, gpu=16 * MILLION) -> PullPolicy:
    return PullPolicy(kinds, slots or {"cpu": 2, "gpu": 1}, {"cpu": cpu, "gpu": gpu})


def test_first_chunk_counts_only_until_there_is_another():
    rate = Rate()
    assert not rate.known
    rate.observe(100, 10.0)
    assert rate.seconds_per_row == pytest.approx(0.1)
    rate.observe(100, 1.0)
    assert rate.seconds_per_row == pytest.approx(0.01)
    rate.observe(300, 1.0)
    assert rate.seconds_per_row == pytest.approx(0.005)


def test_one_kind_divides_the_rest_evenly():
    only = policy(("cpu",))
    assert only.rows_for("cpu", 6 * MILLION, {}) == 1_500_000
    assert only.rows_for("cpu", 60 * MILLION, {}) == 2 * MILLION
    assert only.rows_for("cpu", MILLION, {}) == 500_000
    assert only.rows_for("cpu", 500_000, {"cpu": 500_000}) == 500_000
    assert only.rows_for("cpu", 10, {}) == SMALLEST_CPU_CHUNK_ROWS
    assert only.rows_for("gpu", 60 * MILLION, {}) is None


def test_a_gpu_alone_gets_equal_chunks():
    only = policy(("gpu",), {"gpu": 2}, gpu=48 * MILLION)
    assert only.rows_for("gpu", 180 * MILLION, {}) == 45 * MILLION
    assert only.rows_for("gpu", 90 * MILLION, {"gpu": 90 * MILLION}) == 45 * MILLION
    assert only.rows_for("gpu", 46 * MILLION, {"gpu": 134 * MILLION}) == 46 * MILLION
    assert only.rows_for("gpu", 30 * MILLION, {}) == 15 * MILLION
    assert only.rows_for("gpu", 5 * MILLION, {}) == 5 * MILLION
    only.limit("gpu", MILLION)
    assert only.rows_for("gpu", 30 * MILLION, {}) == MILLION


def test_chunks_of_an_aligned_stage_stay_equal():
    gpu = policy(("gpu",), slots={"gpu": 2}, gpu=48 * MILLION)
    gpu.narrow(5.0)  # four rows of build sides for each of its own
    remaining, sizes = 45 * MILLION, []
    while remaining:
        sizes.append(min(gpu.rows_for("gpu", remaining, {"gpu": sum(sizes[-2:])}), remaining))
        remaining -= sizes[-1]
    assert 5 <= len(sizes) <= 6
    assert max(sizes) <= 48 * MILLION / 5


def test_first_chunks_are_equal_and_the_window_is_one_until_measured():
    both = policy()
    assert both.rows_for("cpu", 100 * MILLION, {}) == both.rows_for("gpu", 100 * MILLION, {})
    assert (both.window("cpu", 2), both.window("gpu", 2)) == (2, 1)
    both.observe("cpu", MILLION, 1.0)
    both.observe("gpu", MILLION, 0.1)
    assert (both.window("cpu", 2), both.window("gpu", 2)) == (4, 2)
    assert both.cost_ratio == pytest.approx(0.1)


def test_very_short_chunks_are_queued_deeper():
    only = policy(("cpu",))
    only.observe("cpu", 10, 0.5)
    assert only.window("cpu", 2) == 4
    only.observe("cpu", 10, 0.005)
    assert only.window("cpu", 2) == 12
    for _ in range(100):
        only.observe("cpu", 10, 0.0001)
    assert only.window("cpu", 2) == 32


def test_cpu_chunk_is_c0_times_p():
    both = policy(gpu=10 * MILLION)
    both.observe("cpu", MILLION, 1.0)
    both.observe("gpu", MILLION, 0.1)
    remaining = 1000 * MILLION
    assert both.rows_for("gpu", remaining, {}) == pytest.approx(10 * MILLION, rel=0.01)
    assert both.rows_for("cpu", remaining, {}) == MILLION


def test_cpu_takes_nothing_that_the_gpu_would_finish_sooner():
    both = policy(gpu=10 * MILLION)
    both.observe("cpu", MILLION, 1.0)
    both.observe("gpu", MILLION, 0.01)
    assert both.rows_for("cpu", 5 * MILLION, {}) is None
    assert both.rows_for("gpu", 5 * MILLION, {}) == 5 * MILLION


def test_a_stage_of_no_rows_has_a_chunk_all_the_same():
    both = policy(slots={"cpu": 1, "gpu": 1})
    both.observe("cpu", MILLION, 0.1)
    both.observe("gpu", MILLION, 0.1)
    assert both.rows_for("gpu", 0, {}) == 0
    assert both.rows_for("cpu", 0, {}) == 0


def test_cpu_chunks_shrink_near_the_end():
    both = policy(slots={"cpu": 1, "gpu": 1}, gpu=4 * MILLION)
    both.observe("cpu", MILLION, 1.0)
    both.observe("gpu", MILLION, 0.5)
    sizes = [both.rows_for("cpu", rows * MILLION, {"gpu": MILLION // 2}) or 0 for rows in (40, 4, 2, 1)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 2 * MILLION
    assert 0 < sizes[-1] < MILLION


def test_a_cold_start_is_not_held_against_a_device():
    both = policy(slots={"cpu": 2, "gpu": 1})
    both.observe("cpu", MILLION, 1.0)
    both.observe("gpu", MILLION, 1000.0)
    assert both.rows_for("gpu", 60 * MILLION, {"cpu": MILLION}) == MILLION
    assert both.rows_for("gpu", 60 * MILLION, {"cpu": MILLION, "gpu": MILLION}) is None
    assert both.rows_for("gpu", 3 * MILLION, {"cpu": MILLION}) is None
    both.observe("gpu", MILLION, 0.1)
    assert both.rows_for("gpu", 60 * MILLION, {"cpu": MILLION}) > 10 * MILLION


def test_what_was_measured_before_counts_from_the_start():
    known = {"cpu": 1e-7, "gpu": 2e-9}
    both = PullPolicy(("gpu", "cpu"), {"cpu": 8, "gpu": 2}, {"cpu": 2 * MILLION, "gpu": 48 * MILLION}, before=known)
    assert both.measured
    # The CPU would save 0.014 s of 0.18: less than it costs.
    assert both.rows_for("cpu", 180 * MILLION, {}) is None
    assert both.rows_for("gpu", 180 * MILLION, {}) == 45 * MILLION
    assert both.rows_for("cpu", 1800 * MILLION, {}) is not None
    assert both.rows_for("gpu", 1800 * MILLION, {}) < 48 * MILLION
    both.observe("gpu", 45 * MILLION, 90.0)
    assert both.cost_ratio == pytest.approx(0.02)
    both.observe("gpu", 45 * MILLION, 45.0)
    assert both.cost_ratio == pytest.approx(10)


def test_a_slow_gpu_does_not_hold_up_the_end():
    both = policy(slots={"cpu": 2, "gpu": 1})
    both.observe("cpu", MILLION, 0.1)
    for _ in range(2):
        both.observe("gpu", MILLION, 100.0)
    assert both.rows_for("gpu", 20 * MILLION, {"cpu": 2 * MILLION}) is None
    assert both.rows_for("cpu", 20 * MILLION, {"cpu": 2 * MILLION}) is not None


def test_limit_and_withdraw():
    both = policy()
    both.limit("gpu", 1000)
    both.observe("cpu", MILLION, 1.0)
    both.observe("gpu", MILLION, 0.01)
    assert both.rows_for("gpu", 100 * MILLION, {}) == 1000
    both.withdraw("gpu", unless_last=True)
    assert both.active == ("cpu",)
    both.withdraw("cpu", unless_last=True)
    assert both.active == ("cpu",)


@given(
    rows=st.integers(1, 200 * MILLION),
    cpu_speed=st.floats(1e4, 1e8),
    gpu_speed=st.floats(1e4, 1e9),
    cpus=st.integers(1, 16),
    gpus=st.integers(1, 4),
)
@settings(max_examples=200, deadline=None)
def test_pulling_always_ends_and_beats_one_kind_alone(rows, cpu_speed, gpu_speed, cpus, gpus):
    """Simulate devices that pull: every row is taken, and the time is not much worse than that of the better kind."""
    slots = {"cpu": cpus, "gpu": gpus}
    speed = {"cpu": cpu_speed, "gpu": gpu_speed}
    both = policy(slots=slots)
    remaining, now, steps = rows, 0.0, 0
    running: list[tuple[float, str, int]] = []
    while remaining or running:
        steps += 1
        assert steps < 100_000
        took = True
        while took and remaining:
            took = False
            for kind in both.active:
                if sum(each[1] == kind for each in running) >= slots[kind]:
                    continue
                in_flight = {each: sum(item[2] for item in running if item[1] == each) for each in slots}
                wanted = both.rows_for(kind, remaining, in_flight)
                if wanted is not None and remaining:
                    assert wanted > 0
                    size = min(wanted, remaining)
                    remaining -= size
                    running.append((now + size / speed[kind], kind, size))
                    took = True
        running.sort()
        now, kind, size = running.pop(0)
        both.observe(kind, size, size / speed[kind])
    alone = min(rows / (speed[kind] * slots[kind]) for kind in slots)
    # What the comparison costs: two chunks a slot on the slower kind, of the size both start with.
    first = 2 * min(2 * MILLION, -(-rows // (cpus + gpus)) + SMALLEST_CHUNK_ROWS) / min(speed.values())
    one_chunk = max(2 * MILLION / cpu_speed, 16 * MILLION / gpu_speed) if rows > 2 * MILLION else first
    assert now <= alone * 1.1 + first + one_chunk
