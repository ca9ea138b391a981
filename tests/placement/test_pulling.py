"""Both kinds of device on one stage, in imagined time: how far from the ideal T_C * T_G / (T_C + T_G)."""

from __future__ import annotations

import itertools

import pytest
from simulation import simulate, steady

from hybridq.placement.cost import PullPolicy
from hybridq.placement.second_look import SecondLook

MILLION = 1_000_000
LIMITS = {"cpu": 2 * MILLION, "gpu": 48 * MILLION}
RATIOS = (1, 2, 3, 4, 6, 8)
SLOTS = ({"cpu": 1, "gpu": 1}, {"cpu": 2, "gpu": 1}, {"cpu": 6, "gpu": 2})


def seconds_a_row(fast, ratio, slots):
    slow = "cpu" if fast == "gpu" else "gpu"
    return {fast: 1e-7 * slots[fast], slow: 1e-7 * ratio * slots[slow]}


def ideal(rows, ratio):
    fast, slow = rows * 1e-7, rows * 1e-7 * ratio
    return fast * slow / (fast + slow)


@pytest.mark.parametrize("slots", SLOTS, ids=lambda slots: f"{slots['cpu']}:{slots['gpu']}")
@pytest.mark.parametrize("fast", ["gpu", "cpu"])
@pytest.mark.parametrize("ratio", RATIOS)
def test_nine_tenths_of_the_ideal_without_knowing_anything(ratio, fast, slots):
    rows, unit = 60 * MILLION, 115_000
    true = seconds_a_row(fast, ratio, slots)
    policy = PullPolicy(("gpu", "cpu"), slots, LIMITS, unit_rows=unit)
    outcome = simulate(policy, slots, rows, {kind: steady(value, 0.003) for kind, value in true.items()}, unit)
    assert outcome.makespan <= ideal(rows, ratio) / 0.9
    assert sum(size for _, size, _, _ in outcome.chunks) == rows


@pytest.mark.parametrize("slots", SLOTS, ids=lambda slots: f"{slots['cpu']}:{slots['gpu']}")
@pytest.mark.parametrize("fast", ["gpu", "cpu"])
@pytest.mark.parametrize("ratio", RATIOS)
def test_nine_tenths_of_the_ideal_for_a_small_stage_that_ran_before(ratio, fast, slots):
    rows, unit = 20 * MILLION, 115_000
    true = seconds_a_row(fast, ratio, slots)
    policy = PullPolicy(("gpu", "cpu"), slots, LIMITS, true, unit_rows=unit)
    outcome = simulate(policy, slots, rows, {kind: steady(value, 0.003) for kind, value in true.items()}, unit)
    assert outcome.makespan <= ideal(rows, ratio) / 0.9


@pytest.mark.parametrize(("ratio", "fast"), [(20, "gpu"), (20, "cpu"), (50, "gpu"), (50, "cpu")])
def test_a_device_that_would_hold_up_the_end_is_left_alone(ratio, fast):
    slots, rows = {"cpu": 2, "gpu": 1}, 60 * MILLION
    true = seconds_a_row(fast, ratio, slots)
    policy = PullPolicy(("gpu", "cpu"), slots, LIMITS, true, unit_rows=500_000)
    outcome = simulate(policy, slots, rows, {kind: steady(value, 0.003) for kind, value in true.items()}, 500_000)
    assert outcome.makespan <= rows * 1e-7 / 0.98


def test_a_device_far_too_slow_gets_nothing():
    slots, rows = {"cpu": 2, "gpu": 1}, 6 * MILLION
    true = {"cpu": 1e-4, "gpu": 1e-7}
    policy = PullPolicy(("gpu", "cpu"), slots, LIMITS, true, unit_rows=100_000)
    outcome = simulate(policy, slots, rows, {kind: steady(value) for kind, value in true.items()}, 100_000)
    assert outcome.rows("cpu") == 0


def test_cpu_chunks_shrink_towards_the_end_and_gpu_chunks_do_not():
    slots, rows = {"cpu": 4, "gpu": 1}, 200 * MILLION
    policy = PullPolicy(("gpu", "cpu"), slots, {"cpu": 2 * MILLION, "gpu": 16 * MILLION})
    outcome = simulate(policy, slots, rows, {"cpu": steady(4e-7), "gpu": steady(5e-8)})
    cpu = [size for kind, size, _, _ in outcome.chunks if kind == "cpu"]
    gpu = [size for kind, size, _, _ in outcome.chunks if kind == "gpu"]
    assert max(cpu[-4:]) < max(cpu) / 4
    large = [size for size in gpu if size > 2 * MILLION]
    assert len(large) > 5
    assert min(large) > max(large) / 3
    assert sum(large) > 0.8 * sum(gpu)
    assert outcome.idle_at_end() < 0.1


@pytest.mark.parametrize("when", [0.2, 0.5])
def test_a_device_slowed_down_in_mid_query_loses_its_share_and_gets_it_back(when):
    slots, rows = {"cpu": 1, "gpu": 1}, 400 * MILLION
    begin, end = when * 10, when * 10 + 8

    def gpu(now, size):
        return size * (5e-7 if begin <= now < end else 1e-7)

    policy = PullPolicy(("gpu", "cpu"), slots, {"cpu": MILLION, "gpu": MILLION})
    outcome = simulate(policy, slots, rows, {"cpu": steady(2e-7), "gpu": gpu})
    gpu_chunks = [(start, stop) for kind, _, start, stop in outcome.chunks if kind == "gpu"]

    def ratio_at(position):
        replay = PullPolicy(("gpu", "cpu"), slots, {"cpu": MILLION, "gpu": MILLION})
        for kind, size, start, stop in outcome.chunks[:position]:
            replay.observe(kind, size, stop - start)
        return replay.cost_ratio

    slow_from = next(i for i, chunk in enumerate(outcome.chunks) if chunk[0] == "gpu" and chunk[2] >= begin)
    fast_from = next(i for i, chunk in enumerate(outcome.chunks) if chunk[0] == "gpu" and chunk[2] >= end)
    assert ratio_at(slow_from) < 1
    assert ratio_at(slow_from + 20) > 1.5
    assert ratio_at(fast_from + 50) < 0.7
    # The GPU never stood still for long: what a slow device can finish in time costs nothing.
    assert max(later[0] - earlier[1] for earlier, later in itertools.pairwise(gpu_chunks)) < 0.5
    best = rows - (end - begin) * (2e6 + 5e6)  # rows left to a GPU at full speed, with the CPU
    assert outcome.makespan < ((end - begin) + best / (1e7 + 5e6)) * 1.05


def test_one_hiccup_does_not_move_the_rate():
    policy = PullPolicy(("gpu", "cpu"), {"cpu": 1, "gpu": 1}, LIMITS)
    for _ in range(8):
        policy.observe("gpu", MILLION, 0.1)
        policy.observe("cpu", MILLION, 0.2)
    policy.observe("gpu", MILLION, 5.0)
    assert policy.cost_ratio == pytest.approx(0.5)


def test_a_kind_that_is_not_used_gets_one_chunk_at_a_time_to_try_it():
    look = SecondLook("gpu", due=True)
    policy = PullPolicy(("cpu",), {"cpu": 2, "gpu": 1}, LIMITS, {"cpu": 1e-7}, look=look)
    assert policy.active == ("cpu",)
    assert policy.takers == ("gpu", "cpu")
    assert policy.window("gpu", 2) == 1
    assert policy.rows_for("gpu", 50 * MILLION, {}) == MILLION
    assert policy.rows_for("gpu", 49 * MILLION, {"gpu": MILLION}) is None
    assert policy.rows_for("gpu", 49 * MILLION, {}) is None
    policy.observe("gpu", MILLION, 0.1)
    assert policy.rows_for("gpu", 49 * MILLION, {}) == 4 * MILLION
    policy.observe("gpu", 4 * MILLION, 0.4)  # no faster for being larger: it shows all that there is to see
    assert policy.rows_for("gpu", 40 * MILLION, {}) is None


def test_fewer_cpu_slots_beside_the_gpu_and_all_without_it():
    policy = PullPolicy(("gpu", "cpu"), {"cpu": 8, "gpu": 2}, LIMITS, {"cpu": 1e-6, "gpu": 1e-7}, cpu_slots=3)
    assert policy.window("cpu", 2) == 6
    policy.withdraw("gpu", unless_last=True)
    assert policy.window("cpu", 2) == 16


def entering(seconds, per_row):
    """A device that has to be brought build sides before its first chunk."""
    begun = []

    def speed(begin, size):
        first = not begun
        begun.append(begin)
        return size * per_row + (seconds if first else 0.0)

    return speed


@pytest.mark.parametrize("entry", [0.05, 0.4, 1.5])
@pytest.mark.parametrize("home", ["cpu", "gpu"])
@pytest.mark.parametrize("gpu_ratio", [0.2, 1, 4, 20])
def test_bringing_build_sides_to_a_device_is_counted(gpu_ratio, home, entry):
    slots, rows = {"cpu": 4, "gpu": 1}, 20 * MILLION
    true = {"cpu": 1e-7 * gpu_ratio * 4, "gpu": 1e-7}
    other = "gpu" if home == "cpu" else "cpu"
    policy = PullPolicy(("gpu", "cpu"), slots, LIMITS, true, unit_rows=115_000)
    policy.charge({other: entry, home: 0.0})
    speeds = {home: steady(true[home], 0.003), other: entering(entry, true[other])}
    outcome = simulate(policy, slots, rows, speeds, 115_000)
    alone = {kind: rows * true[kind] / slots[kind] for kind in slots}
    alone[other] += entry
    assert outcome.makespan <= min(alone.values()) / 0.98 + 0.02
    assert sum(size for _, size, _, _ in outcome.chunks) == rows


def test_a_device_of_unknown_speed_is_brought_build_sides_only_where_that_may_pay():
    slots, rows = {"cpu": 1, "gpu": 1}, 10 * MILLION
    for entry, tried in ((0.1, True), (1.0, False)):
        policy = PullPolicy(("gpu", "cpu"), slots, LIMITS, unit_rows=115_000)
        policy.charge({"gpu": entry})
        speeds = {"cpu": steady(1e-7), "gpu": entering(entry, 1e-7)}  # a second on the CPU alone
        outcome = simulate(policy, slots, rows, speeds, 115_000)
        assert (outcome.rows("gpu") > 0) == tried
        assert outcome.makespan <= 1.02 + entry * tried


def test_what_all_devices_have_to_wait_for_makes_no_difference():
    plain, charged = (
        PullPolicy(("gpu", "cpu"), {"cpu": 1, "gpu": 1}, LIMITS, {"cpu": 1e-7, "gpu": 1e-7}) for _ in range(2)
    )
    charged.charge({"gpu": 5.0, "cpu": 5.0})
    for kind in ("gpu", "cpu"):
        assert charged.rows_for(kind, 50 * MILLION, {}) == plain.rows_for(kind, 50 * MILLION, {})


@pytest.mark.parametrize(("used", "other"), [("cpu", "gpu"), ("gpu", "cpu")])
@pytest.mark.parametrize("slower", [2, 5, 20, 50])
@pytest.mark.parametrize("believed", [0.04, 1, 25])
def test_looking_at_the_other_device_costs_little(used, other, slower, believed):
    """A chunk for a kind that is left out runs beside the others, whatever is believed: it may not hold up the end."""
    slots, rows, unit = {"cpu": 1, "gpu": 1}, 60 * MILLION, 115_000
    true = {used: 1e-7, other: slower * 1e-7}
    expected = {used: 1e-7, other: slower * 1e-7 * believed}
    outcomes = [
        simulate(
            PullPolicy((used,), slots, LIMITS, expected, look=look, unit_rows=unit),
            slots, rows, {kind: steady(value, 0.003) for kind, value in true.items()}, unit,
        )
        for look in (None, SecondLook(other, due=True))
    ]  # fmt: skip
    without, tried = outcomes
    assert tried.makespan <= without.makespan * 1.03
    if slower <= 5 and used == "cpu":  # whose chunks are small: both together are better, and the first chunks show it
        assert tried.makespan <= without.makespan * slower / (1 + slower) * 1.1


@pytest.mark.parametrize("believed", [0.04, 1.0, 25])
@pytest.mark.parametrize("faster", [3, 10, 60])
@pytest.mark.parametrize(("used", "slots"), [("cpu", {"cpu": 8, "gpu": 8}), ("gpu", {"cpu": 8, "gpu": 1})])
def test_a_stage_on_the_wrong_kind_of_device_goes_to_the_other_while_it_runs(used, slots, faster, believed):
    rows, unit = 180 * MILLION, MILLION
    other = "gpu" if used == "cpu" else "cpu"
    right = rows * 2e-8
    true = {used: 2e-8 * faster * slots[used], other: 2e-8 * slots[other]}
    expected = {used: true[used], other: true[other] * believed * (faster if believed > 1 else 1)}
    policy = PullPolicy((used,), slots, LIMITS, expected, look=SecondLook(other, due=True), unit_rows=unit)
    speeds = {used: steady(true[used], 0.003), other: steady(true[other], 0.02)}
    outcome = simulate(policy, slots, rows, speeds, unit)
    assert outcome.makespan <= 2 * right + 1.5
    assert sum(size for _, size, _, _ in outcome.chunks) == rows


def test_a_kind_is_called_in_where_the_one_that_is_used_is_far_slower_than_expected():
    slots, rows = {"cpu": 1, "gpu": 1}, 60 * MILLION
    expected = {"cpu": 1e-7, "gpu": 2e-8}
    limits = {"cpu": MILLION, "gpu": MILLION}
    for slower, share in ((1, 0.0), (2, 0.0), (50, 0.85)):
        policy = PullPolicy(("gpu",), slots, limits, expected, look=SecondLook("cpu", due=False))
        outcome = simulate(policy, slots, rows, {"cpu": steady(1e-7), "gpu": steady(2e-8 * slower)})
        assert outcome.rows("cpu") >= share * rows
        assert (outcome.rows("cpu") > 0) == (share > 0)


def test_a_late_chunk_is_one_that_the_other_kind_would_have_done_by_now():
    look = SecondLook("cpu", due=False)
    policy = PullPolicy(("gpu",), {"cpu": 4, "gpu": 1}, LIMITS, {"cpu": 4e-7, "gpu": 1e-8}, look=look)
    assert not policy.is_late("gpu", 10 * MILLION, 0.45)  # so little is not worth it
    assert not policy.is_late("gpu", 10 * MILLION, 1.0)  # the CPU would not be done either
    assert policy.is_late("gpu", 10 * MILLION, 1.1)
    assert not policy.is_late("gpu", 100 * MILLION, 10.0)
    assert not policy.is_late("gpu", 0, 60.0)  # of unknown size, with nothing expected
    assert policy.is_late("gpu", 0, 1.0, expected={"cpu": 0.9, "gpu": 0.1})
    assert not policy.is_late("gpu", 0, 1.0, expected={"cpu": 0.9, "gpu": 0.3})
    policy.give_up("gpu", 10 * MILLION, 1.1)
    assert policy.active == ("cpu",)  # the GPU's only slot is still at work on it
    policy.set_slots({"gpu": 1})  # the CPU workers are lost: it will be waited for
    assert policy.active == ("gpu",)
    alone = PullPolicy(("gpu",), {"cpu": 4, "gpu": 1}, LIMITS, {"cpu": 4e-7, "gpu": 1e-8})
    assert not alone.is_late("gpu", 10 * MILLION, 60.0)


def test_a_slow_spell_of_a_device_is_followed_within_twenty_chunks_and_its_end_within_fifty():
    """Shares of the rows, not rates: what the slowed device takes of each ten chunks."""
    slots, rows, limits = {"cpu": 1, "gpu": 1}, 600 * MILLION, {"cpu": MILLION, "gpu": MILLION}
    begin, end = 6.0, 16.0

    def gpu(now, size):
        return size * (5e-7 if begin <= now < end else 1e-7)

    policy = PullPolicy(("gpu", "cpu"), slots, limits)
    outcome = simulate(policy, slots, rows, {"cpu": steady(2e-7), "gpu": gpu})

    def gpu_share(first, count):
        chunks = outcome.chunks[first : first + count]
        return sum(size for kind, size, _, _ in chunks if kind == "gpu") / sum(size for _, size, _, _ in chunks)

    slow_from = next(i for i, chunk in enumerate(outcome.chunks) if chunk[3] >= begin)
    fast_from = next(i for i, chunk in enumerate(outcome.chunks) if chunk[3] >= end)
    assert gpu_share(slow_from - 30, 30) == pytest.approx(2 / 3, abs=0.07)  # twice as fast as the CPU
    assert gpu_share(slow_from + 20, 30) == pytest.approx(2 / 7, abs=0.1)  # 2.5 times as slow
    assert gpu_share(fast_from + 50, 30) == pytest.approx(2 / 3, abs=0.07)


@pytest.mark.parametrize(("total", "first"), [(60 * MILLION, 7_500_000), (15 * MILLION, 2_500_000), (MILLION, 500_000)])
def test_tasks_of_several_rounds_are_a_small_part_of_what_is_left(total: int, first: int) -> None:
    policy = PullPolicy(("cpu",), {"cpu": 2}, {"cpu": 2 * MILLION, "gpu": 8 * MILLION}, rounds=4)
    found = []
    while (left := total - sum(found)) > 0:
        rows = policy.rows_for("cpu", left, {})
        assert rows is not None
        assert rows <= max(2 * MILLION, left // 4)
        found.append(min(rows, left))
    assert found[0] == first
    assert len(found) <= 24
