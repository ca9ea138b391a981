"""What whole stages took before counts more than what their chunks add up to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hybridq.placement.learned import Learned, Model
from hybridq.placement.placer import Placer
from hybridq.placement.predict import CostModel, Resources
from hybridq.placement.profile import assumed
from hybridq.placement.stage_times import mode_that_ran, ran_alone
from hybridq.placement.work import Item, Work
from hybridq.report import Fallback, Report, Span, StageReport
from hybridq.shipped import find_plan
from hybridq.testing.in_process import connect_in_process

MILLION = 1_000_000
ENGINES = {"cpu": "cpu", "gpu": "simulated gpu"}


def span(kind, rows=100, seconds=0.1):
    return Span("chunk", 0, kind, kind, rows, 0.0, seconds)


def predict(learned, rows=10 * MILLION):
    items = (Item("read", "read", 1.0, codec="snappy", type_class="integer", column=("t", "x")),)
    work = Work(rows, True, 8.0, 100_000.0, items, 0, 0.0, False, (), planned_rows=rows)
    resources = Resources({"cpu": 1, "gpu": 1}, {"cpu": 2 * MILLION, "gpu": 2 * MILLION})
    return CostModel(assumed(ENGINES, 2), learned).predict(work, "p", resources)


def test_only_the_same_size_is_recalled_and_its_median():
    model = Model()
    model.observe(1000, 1.0)
    assert model.recall(1000) is None  # one may be an outlier
    for seconds in (1.2, 9.0, 1.1, 1.3):
        model.observe(1000, seconds)
    assert model.recall(1000) == pytest.approx(1.2)
    assert model.recall(1100) == pytest.approx(1.32)
    assert model.recall(2000) is None
    assert model.recall(500) is None


def test_a_mode_that_was_run_takes_what_it_took_and_others_what_is_expected():
    learned = Learned()
    before = predict(learned)
    for _ in range(2):
        learned.observe("p", "EXEC_COP", 10 * MILLION, 5.0)
    found = predict(learned)
    assert found.modes["EXEC_COP"].seconds == pytest.approx(5.0)
    assert found.modes["EXEC_CPU"] == before.modes["EXEC_CPU"]
    assert [mode for mode, each in found.modes.items() if each.seen] == ["EXEC_COP"]
    assert found.basis == "earlier runs and assumptions"
    assert not predict(learned, 20 * MILLION).modes["EXEC_COP"].seen


def test_whole_stages_are_forgotten_when_their_device_has_changed():
    learned = Learned()
    for _ in range(3):
        for mode in ("EXEC_CPU", "EXEC_GPU", "EXEC_COP"):
            learned.observe("p", mode, 10 * MILLION, 5.0)
        learned.observe("p", "gpu", MILLION, 0.1)
    for _ in range(3):
        learned.observe("p", "gpu", MILLION, 0.5)
    assert [mode for mode, each in predict(learned).modes.items() if each.seen] == ["EXEC_CPU"]


def test_what_a_whole_stage_took_is_learned_without_fetching_its_inputs(tpch_folder):
    with connect_in_process(broadcast_bytes=2**30, one_chunk_rows=0) as session:
        session.register_folder(tpch_folder)
        query = session.sql("select count(*) from lineitem, orders where o_custkey < 9 and l_partkey = o_orderkey")
        build, join = query._physical.stages
        reports = {mode: query.collect(mode="cpu").report for mode in ("near", "far")}
        own = {}
        for where, report in reports.items():
            for entry in report.stages:
                entry.started_s, entry.actual_s = (0.0, 1.0) if entry.id == build.id else (1.0, 2.0)
                entry.spans = [Span("chunk", 0, "cpu-0", "cpu", 10, entry.started_s, entry.actual_s)]
            if where == "far":
                report.stages[0].spans[0].kind, report.stages[0].mode = "gpu", "EXEC_GPU"
            placer = Placer(session.devices(), None)
            placer._seen.add("cpu-0")
            placer.learn([replace(build, estimated_bytes=500_000_000), join], report)
            pipeline = placer._pipeline(join)
            own[where] = placer._learned.model(pipeline, "EXEC_CPU").to_list()[0][1]
        assert own["near"] == pytest.approx(2.0)
        assert own["far"] == pytest.approx(2.0 - 1.0, abs=0.01)  # half a gigabyte a second


def test_a_stage_that_ran_partly_elsewhere_is_none_of_its_mode():
    entry = StageReport(0, "s", "EXEC_GPU", "because", spans=[span("gpu")])
    assert mode_that_ran(entry) == "EXEC_GPU"
    entry.spans.append(span("cpu"))  # a probe
    assert mode_that_ran(entry) is None
    entry.mode = "EXEC_COP"
    assert mode_that_ran(entry) == "EXEC_COP"
    entry.fallbacks.append(Fallback(0, "too large", "halved"))
    assert mode_that_ran(entry) is None


def test_runs_teach_what_whole_stages_take(tpch_folder):
    with connect_in_process(one_chunk_rows=0) as session:
        session.register_folder(tpch_folder)
        session._placer = Placer(session.devices(), None)
        query = session.sql(find_plan("tpch/q03").read_text())
        for _ in range(3):  # a worker's first chunk does not count
            report = query.collect(mode="cpu").report
        found = query._predict(session._connection.slots())
        for entry in report.stages:
            expected = found[entry.id].modes["EXEC_CPU"]
            assert expected.seen
            assert expected.seconds < 10 * entry.actual_s
        assert not any(each.modes["EXEC_GPU"].seen for each in found.values())


def test_a_stage_that_ran_beside_another_teaches_nothing():
    first = StageReport(0, "s", "EXEC_CPU", "because", started_s=0.0, actual_s=1.0)
    second = StageReport(1, "t", "EXEC_CPU", "because", started_s=0.0, actual_s=2.0)
    first.spans = [span("cpu", seconds=1.0)]
    second.spans = [Span("chunk", 0, "cpu", "cpu", 1, 1.0, 1.0, {})]
    found = Report("q", "cpu", stages=[first, second])
    assert (ran_alone(found, 0), ran_alone(found, 1)) == (True, True)  # one after the other
    second.spans[0].start_s = 0.5
    assert (ran_alone(found, 0), ran_alone(found, 1)) == (False, False)


def test_a_stage_teaches_beside_what_runs_on_other_devices_and_beside_what_is_read_ahead():
    first = StageReport(0, "s", "EXEC_CPU", "because", started_s=0.0, actual_s=1.0)
    second = StageReport(1, "t", "EXEC_GPU", "because", started_s=0.0, actual_s=2.0)
    first.spans = [span("cpu", seconds=1.0)]
    second.spans = [
        Span("read ahead", 0, "gpu", "gpu", 1, 0.0, 1.0, {}), Span("chunk", 0, "gpu", "gpu", 1, 1.0, 1.0, {}),
    ]  # fmt: skip
    found = Report("q", "auto", stages=[first, second])
    assert (ran_alone(found, 0), ran_alone(found, 1)) == (True, True)
    first.spans[0].kind = "gpu"
    assert ran_alone(found, 0)
    second.spans[0].what = "chunk"
    assert not ran_alone(found, 0)
