from __future__ import annotations

import dataclasses

import pytest

from hybridq.config import Config
from hybridq.placement.curves import Curve
from hybridq.placement.learned import Learned, fingerprint
from hybridq.placement.modes import decide
from hybridq.placement.predict import CostModel, Resources
from hybridq.placement.profile import DeviceProfile, Profile, Transfer, assumed
from hybridq.placement.work import Item, Work, works
from hybridq.shipped import find_plan
from hybridq.testing.in_process import connect_in_process

MILLION = 1_000_000
MERGE = Curve.fit([(1e3, 1e-4), (1e6, 1e-1)])
FREE = Transfer(1e-9, 1e15)


def linear(per_row, latency=0.0):
    return Curve.fit([(rows, latency + rows * per_row) for rows in (10.0**power for power in range(3, 10))])


def device(read, compute, overlaps=False, engine="cpu"):
    return DeviceProfile(
        engine, {"snappy/integer": linear(read)}, {"filter": linear(compute)}, FREE, FREE, overlaps
    )  # fmt: skip


def profile_of(cpu, gpu, cores=16):
    return Profile({}, {"cpu": cpu, "gpu": gpu}, 1e-4, 1e-3, MERGE, 1e9, cores)


def work_of(rows, from_table=True, unit=100_000.0):
    items = (
        Item("read", "read", 1.0, codec="snappy", type_class="integer", column=("t", "x")),
        Item("compute", "filter", 1.0),
    )
    return Work(rows, from_table, 8.0, unit, items, 0, 0.0, False, ())


def predict(profile, work, slots=None, learned=None, **more):
    resources = Resources(slots or {"cpu": 2, "gpu": 1}, {"cpu": 2 * MILLION, "gpu": 48 * MILLION}, **more)
    return CostModel(profile, learned or Learned()).predict(work, "p", resources, with_break_even=True)


def test_where_reading_and_computing_overlap_the_larger_counts():
    cpu = device(1e-8, 1e-8)
    serial = predict(profile_of(cpu, device(2e-9, 1e-9)), work_of(400 * MILLION), {"cpu": 2, "gpu": 2})
    both = predict(profile_of(cpu, device(2e-9, 1e-9, overlaps=True)), work_of(400 * MILLION), {"cpu": 2, "gpu": 2})
    assert serial.modes["EXEC_GPU"].seconds == pytest.approx(0.6, rel=0.2)
    assert both.modes["EXEC_GPU"].seconds == pytest.approx(0.8, rel=0.2)  # one device of two slots: max(2, 1) ns a row
    assert both.modes["EXEC_CPU"].seconds == pytest.approx(4.0, rel=0.05)


def test_columns_on_the_device_cost_no_reading():
    profile = profile_of(device(1e-8, 1e-8), device(5e-8, 1e-9))
    cold = predict(profile, work_of(100 * MILLION))
    warm = predict(profile, work_of(100 * MILLION), resident=frozenset({("t", "x")}))
    assert cold.modes["EXEC_GPU"].seconds > cold.modes["EXEC_CPU"].seconds
    assert warm.modes["EXEC_GPU"].seconds < warm.modes["EXEC_CPU"].seconds
    assert warm.modes["EXEC_CPU"].seconds == cold.modes["EXEC_CPU"].seconds


def test_what_does_not_fit_the_gpu_is_not_considered_there():
    profile = profile_of(device(1e-8, 1e-8), device(1e-9, 1e-9))
    found = predict(profile, work_of(100 * MILLION, unit=MILLION), gpu_fits=lambda size: 500_000)
    assert set(found.modes) == {"EXEC_CPU"}
    assert "1,000,000 rows does not fit the GPU" in found.infeasible
    smaller = predict(profile, work_of(100 * MILLION), gpu_fits=lambda size: 500_000)
    assert smaller.modes["EXEC_GPU"].chunk_rows["gpu"] == 500_000


def test_both_together_are_close_to_the_ideal_and_the_chunks_in_the_cost_ratio():
    profile = profile_of(device(1e-8, 1e-8), device(5e-9, 5e-9))
    found = predict(profile, work_of(1000 * MILLION), {"cpu": 2, "gpu": 1})
    cpu, gpu, both = (found.modes[mode].seconds for mode in ("EXEC_CPU", "EXEC_GPU", "EXEC_COP"))
    assert both == pytest.approx(cpu * gpu / (cpu + gpu), rel=0.05)
    assert found.cost_ratio == pytest.approx(0.5)
    assert found.modes["EXEC_COP"].chunk_rows == {"gpu": 48 * MILLION, "cpu": 2 * MILLION}


def test_about_six_of_sixteen_cores_work_beside_a_gpu():
    """Measured for Q1: the GPU 180 M rows in 0.373 s, a CPU worker 15 M rows/s; six are worth 1.15x, twelve 1.07x."""
    profile = profile_of(device(5e-8, 1.6e-8), device(180e-2 / 180 / MILLION, 1e-10, engine="gpu"))
    gpu = device(0.373 / 180e6, 0.0 + 1e-12, overlaps=True, engine="gpu")
    profile = dataclasses.replace(profile, devices={**profile.devices, "gpu": gpu})
    found = predict(profile, work_of(600 * MILLION), {"cpu": 14, "gpu": 2})
    both = found.modes["EXEC_COP"]
    assert 4 <= both.cpu_slots <= 9
    assert found.modes["EXEC_GPU"].seconds / both.seconds == pytest.approx(1.15, abs=0.08)


def test_a_kind_whose_smallest_chunk_takes_longer_than_the_other_needs_is_left_out():
    profile = profile_of(device(1e-6, 1e-6), device(1e-9, 1e-9))
    found = predict(profile, work_of(10 * MILLION))
    assert "EXEC_COP" not in found.modes


def test_chunks_that_have_run_count_more_than_the_profile():
    profile = profile_of(device(1e-8, 1e-8), device(1e-9, 1e-9))
    learned = Learned()
    for _ in range(4):
        learned.observe("p", "gpu", 10 * MILLION, 10.0)
        learned.observe("p", "cpu", 2 * MILLION, 0.02)
    found = predict(profile, work_of(100 * MILLION), learned=learned)
    assert found.trusted == {"cpu", "gpu"}
    assert found.basis == "earlier chunks"
    assert found.modes["EXEC_GPU"].seconds > 50
    assert found.modes["EXEC_CPU"].seconds == pytest.approx(0.5, rel=0.1)


def test_break_even():
    gpu = DeviceProfile("gpu", {"snappy/integer": linear(1e-9, 0.05)}, {"filter": linear(1e-9)}, FREE, FREE)
    found = predict(profile_of(device(1e-8, 1e-8), gpu), work_of(100 * MILLION), {"cpu": 1, "gpu": 1})
    assert found.break_even_rows == pytest.approx(0.05 / 1.8e-8, rel=0.3)
    never = predict(profile_of(device(1e-8, 1e-8), device(1e-6, 1e-6)), work_of(100 * MILLION))
    assert never.break_even_rows is None


# --- on real plans -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def session(tpch_folder):
    with connect_in_process() as found:
        found.register_folder(tpch_folder)
        yield found


@pytest.mark.parametrize("number", range(1, 23))
def test_each_tpch_query_is_predicted_and_placed_quickly(session, number):
    import time

    query = session.sql(find_plan(f"tpch/q{number:02}").read_text())
    query._predict(session._connection.slots())
    best = float("inf")
    for _ in range(3):
        start = time.process_time()  # of this process, for the machine may be busy
        predictions = query._predict(session._connection.slots())
        decisions = decide(query._physical.stages, "auto", {"cpu": 2, "gpu": 1}, Config(), False, predictions)
        best = min(best, time.process_time() - start)
    assert best < 0.05
    again = decide(
        query._physical.stages,
        "auto",
        {"cpu": 2, "gpu": 1},
        Config(),
        False,
        query._predict(session._connection.slots()),
    )
    assert [each.mode for each in again] == [each.mode for each in decisions]
    for prediction in predictions.values():
        assert all(0 < each.seconds < 60 for each in prediction.modes.values())


def test_work_of_a_stage(session):
    query = session.sql(find_plan("tpch/q01").read_text())
    (work,) = works(query._physical.stages, session._catalog).values()
    assert work.rows == 60_175
    classes = {item.column[1]: item.type_class for item in work.items if item.what == "read"}
    assert set(classes.values()) == {"decimal", "repeating_decimal", "dictionary", "date"}
    assert (classes["l_extendedprice"], classes["l_tax"]) == ("decimal", "repeating_decimal")
    assert work.merges
    assert work.result_rows <= 10
    q3 = session.sql(find_plan("tpch/q03").read_text())
    whats = {item.what for each in works(q3._physical.stages, session._catalog).values() for item in each.items}
    assert {"read", "build", "probe", "filter", "from_device"} <= whats


def test_a_fingerprint_forgets_constants_and_nothing_else(session):
    def of(text):
        return fingerprint(session.sql(text)._physical.stages[-1])

    base = of("select sum(l_quantity) from lineitem where l_tax > 0.01")
    assert of("select sum(l_quantity) from lineitem where l_tax > 0.05") == base
    assert of("select sum(l_quantity) from lineitem where l_tax < 0.01") != base
    assert of("select max(l_quantity) from lineitem where l_tax > 0.01") != base
    assert of("select sum(l_discount) from lineitem where l_tax > 0.01") != base


def test_auto_goes_by_what_has_run_and_says_so(session):
    query = session.sql(find_plan("tpch/q01").read_text())
    stages = query._physical.stages
    slots = {"cpu": 2, "gpu": 1}
    config = Config(cpu_chunk_rows=10_000)
    profile = assumed({"cpu": "cpu", "gpu": "simulated gpu"}, 2)
    work = works(stages, session._catalog)

    def decided(learned):
        resources = Resources(slots, {"cpu": 10_000, "gpu": 50_000})
        model = CostModel(profile, learned)
        found = {each.id: model.predict(work[each.id], fingerprint(each), resources) for each in stages}
        return decide(stages, "auto", slots, config, False, found)[0]

    unknown = decided(Learned())
    assert unknown.mode == "EXEC_COP"
    assert unknown.seconds_per_row == {}
    slow_gpu, fast_gpu = Learned(), Learned()
    for learned, seconds in ((slow_gpu, 5.0), (fast_gpu, 1e-4)):
        for rows in (5_000, 10_000, 50_000):
            for _ in range(3):
                learned.observe(fingerprint(stages[0]), "cpu", rows, rows * 1e-6)
                learned.observe(fingerprint(stages[0]), "gpu", rows, seconds)
    slow = decided(slow_gpu)
    assert slow.mode == "EXEC_CPU"
    assert "s expected on the CPU" in slow.reason
    assert "on the GPU" in slow.reason
    assert "from earlier chunks" in slow.reason
    assert set(slow.seconds_per_row) == {"cpu", "gpu"}
    assert decided(fast_gpu).mode in ("EXEC_GPU", "EXEC_COP")
    assert slow.report("q").predictions
