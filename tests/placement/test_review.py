"""The model report's figures, from made-up runs with known answers."""

from __future__ import annotations

import pytest

from hybridq.placement.review import Runs, idle_at_end, model_improvement, operator_of, review, summarize
from hybridq.placement.stage_times import stage_seconds
from hybridq.report import ModePrediction, Report, Span, StageReport

STAGE_MODES = {"cpu": "EXEC_CPU", "gpu": "EXEC_GPU", "cop": "EXEC_COP"}


def chunk(worker, kind, start, seconds, what="chunk"):
    return Span(what, 0, worker, kind, 10, start, seconds)


SHARED = [chunk("c", "cpu", 0.0, 0.3), chunk("g", "gpu", 0.0, 0.1), chunk("g", "gpu", 0.1, 0.15)]
"""Ends at 0.3 on the CPU and 0.25 on the GPU."""


def report(mode, stages, spans=()):
    """Stages as (mode that it ran in, seconds, predicted seconds by mode)."""
    found = Report("q", mode)
    for number, (ran, seconds, predicted) in enumerate(stages):
        entry = StageReport(number, f"stage {number}", STAGE_MODES[ran], "because", actual_s=seconds)
        entry.predictions = [ModePrediction(STAGE_MODES[name], value) for name, value in predicted.items()]
        entry.spans = list(spans)
        found.stages.append(entry)
    return found


def runs_of(forced, auto, first_s=1.0, predicted=None, chosen="cpu"):
    """One stage: seconds of each forced mode, those of auto, and what was predicted."""
    predicted = predicted or {}
    found = Runs("q", {0: "aggregate"}, (first_s, report("auto", [(chosen, first_s, predicted)])))
    found.auto = [(seconds, report("auto", [(chosen, seconds, predicted)])) for seconds in auto]
    for mode, seconds in forced.items():
        spans = SHARED if mode == "cop" else ()
        found.forced[mode] = [(value, report(mode, [(mode, value, predicted)], spans)) for value in seconds]
        found.trained[mode] = [each for _, each in found.forced[mode]]
    return found


def test_regret_is_against_the_best_forced_mode():
    found = review(runs_of({"cpu": [2.0, 2.0, 9.0], "gpu": [1.0], "cop": [0.8]}, [1.0, 1.2, 1.1], first_s=0.85))
    assert found.seconds == {"cpu": 2.0, "gpu": 1.0, "cop": 0.8, "auto": 1.1}
    assert found.best == "cop"
    assert found.regret_s == pytest.approx(0.3)
    assert found.regret == pytest.approx(0.375)
    assert not found.close
    assert found.first_close  # 6 %, where 10 % are allowed
    near = review(runs_of({"cpu": [0.1], "gpu": [0.5], "cop": [0.5]}, [0.119]))
    assert near.close  # 19 % too much, but 19 ms
    assert review(runs_of({"cpu": [10.0], "gpu": [20.0], "cop": [20.0]}, [10.29])).close  # 290 ms, but 2.9 %


def test_both_together_against_the_ideal():
    found = review(runs_of({"cpu": [2.0], "gpu": [2.0], "cop": [1.25]}, [1.3])).cop
    assert found.ideal_s == pytest.approx(1.0)
    assert found.of_ideal == pytest.approx(0.8)
    assert found.of_better == pytest.approx(1.6)
    assert found.stage_of_ideal == pytest.approx(0.8)
    assert found.idle_s == pytest.approx(0.05)
    assert found.idle_chunks == pytest.approx(0.05 / 0.3)


def test_idle_time_needs_both_kinds():
    assert idle_at_end([chunk("a", "cpu", 0, 1), chunk("b", "cpu", 0, 2)]) is None
    assert idle_at_end([chunk("a", "cpu", 0, 1), chunk("g", "gpu", 0, 2, "merge")]) is None
    seconds, chunks = idle_at_end([chunk("a", "cpu", 0, 1), chunk("b", "cpu", 0, 3), chunk("g", "gpu", 1, 4)])
    assert (seconds, chunks) == (4.0, 1.0)


def test_a_wrong_choice_counts_with_the_seconds_that_it_loses():
    wrong = review(runs_of({"cpu": [2.0], "gpu": [1.0], "cop": [1.5]}, [2.1]))
    (stage,) = wrong.stages
    assert (stage.auto_mode, stage.best_mode, stage.lost_s) == ("cpu", "gpu", 1.0)
    assert wrong.oracle_lost_s == pytest.approx(1.1)
    right = review(runs_of({"cpu": [1.0], "gpu": [0.98], "cop": [5.0]}, [1.0]))
    assert right.stages[0].lost_s == 0.0  # two hundredths are no choice to be wrong about
    found = summarize([wrong, right])
    assert (found.wrong, found.stages) == (1, 2)
    assert found.wrong_share == pytest.approx(1.0 / 1.98)
    assert (found.plans, found.close) == (2, 1)


def test_a_difference_that_may_be_chance_is_no_wrong_choice():
    forced = {"cpu": [2.0, 2.0, 0.9], "gpu": [1.0, 1.1, 1.0], "cop": [1.5]}
    assert review(runs_of(forced, [2.1])).stages[0].lost_s == 0.0
    assert review(runs_of({**forced, "cpu": [2.0, 2.0, 1.1]}, [2.1])).stages[0].lost_s == 1.0


def test_a_single_run_is_not_compared_with_medians_of_several():
    runs = runs_of({"cpu": [1.0] * 4, "gpu": [2.0] * 4, "cop": [2.0] * 4}, [3.0])  # what else the machine did
    runs.training = [(seconds, report("auto", [(mode, seconds, {})])) for mode, seconds in
                     [("cpu", 9.0), ("cpu", 1.0), ("gpu", 2.0), ("cpu", 1.01)]]  # fmt: skip
    assert review(runs).seconds["auto"] == 1.01  # of 1, 1.01 and 3: those in other modes do not count
    assert review(runs).stages[0].auto_s == 1.01
    runs.auto *= 3
    assert review(runs).seconds["auto"] == 3.0  # enough of them


def test_model_improvement_is_over_all_queries_together():
    first = review(runs_of({"cpu": [4.0], "gpu": [1.0], "cop": [4.0]}, [1.0]))
    second = review(runs_of({"cpu": [1.0], "gpu": [4.0], "cop": [4.0]}, [1.0]))
    found = summarize([first, second])
    assert found.improvement == {"cpu": pytest.approx(0.6), "gpu": pytest.approx(0.6)}
    assert found.improvement_per_plan["cpu"] == {"q": 0.0}
    assert model_improvement(2.0, 3.0) == -0.5


def test_errors_and_order_of_predictions():
    untrained = {"cpu": 3.0, "gpu": 1.0, "cop": 0.9}
    runs = runs_of({"cpu": [2.0], "gpu": [4.0], "cop": [1.0]}, [1.0], predicted=untrained, chosen="cop")
    for mode, value in {"cpu": 2.2, "gpu": 4.4, "cop": 1.1}.items():
        for entry in runs.trained[mode]:
            entry.stages[0].predictions = [ModePrediction(STAGE_MODES[mode], value)]
    found = summarize([review(runs)])
    assert found.errors["aggregate"]["untrained"] == pytest.approx(0.5)  # 50 %, 75 %, 10 %
    assert found.errors["all"]["trained"] == pytest.approx(0.1)
    assert found.errors["all"]["stages"] == 3
    # Right untrained: cpu over cop, gpu over cop; wrong: gpu, which is slower, was expected to be faster than cpu.
    assert found.ordered == {"untrained": pytest.approx(2 / 3), "trained": 1.0, "pairs": 3}


def test_short_stages_and_modes_that_did_not_run_are_not_judged():
    short = review(runs_of({"cpu": [0.002], "gpu": [0.01], "cop": [0.01]}, [0.002], predicted={"cpu": 1.0}))
    assert summarize([short]).errors["all"] == {}
    assert summarize([short]).ordered == {}
    moved = runs_of({"cpu": [1.0], "gpu": [1.0], "cop": [1.0]}, [1.0], predicted={"cpu": 1.0, "gpu": 9.0})
    moved.forced["gpu"][0][1].stages[0].mode = "EXEC_CPU"  # the GPU lacks what the stage needs
    assert review(moved).stages[0].untrained_s == {"cpu": 1.0}


def test_a_stage_that_waits_behind_another_counts_from_its_first_chunk():
    found = report("cpu", [("cpu", 1.0, {}), ("cpu", 1.2, {}), ("cpu", 0.5, {})])
    found.stages[0].spans = [chunk("c", "cpu", 0.1, 0.9)]
    found.stages[1].spans = [chunk("c", "cpu", 1.0, 0.2), chunk("c", "cpu", 1.2, 0.0, "merge")]
    found.stages[2].started_s, found.stages[2].spans = 1.3, [chunk("c", "cpu", 1.5, 0.3)]
    assert [stage_seconds(found, number) for number in range(3)] == [
        pytest.approx(0.9),  # beside stage 1, which waits for it
        pytest.approx(0.2),
        pytest.approx(0.5),  # nothing else is running: what it waits for is its own
    ]


def test_operators_have_names(one_worker, tpch_folder):
    one_worker.register_folder(tpch_folder)

    def operators(text):
        return [operator_of(stage) for stage in one_worker.sql(text)._physical.stages]

    assert operators("select l_orderkey from lineitem") == ["collect"]
    assert operators("select sum(l_tax) as s from lineitem") == ["aggregate"]
    assert operators("select l_tax from lineitem order by l_tax") == ["sort"]
    assert operators("select l_tax from lineitem order by l_tax limit 3") == ["top-k"]
    assert operators("select count(*) as n from lineitem join orders on l_orderkey = o_orderkey")[-1] == (
        "join, aggregate"
    )
