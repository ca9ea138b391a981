"""What an explanation says, and how it prints."""

from __future__ import annotations

import json

import pytest

from hybridq.explain import Explanation, StageExplanation, explain
from hybridq.report import Report
from hybridq.session import connect
from hybridq.shipped import find_plan


@pytest.fixture
def session(one_worker, tpch_folder):
    with connect(one_worker.address, broadcast_bytes=8_000, chunk_units=4) as attached:
        attached.register_folder(tpch_folder)
        yield attached


def stage(number, *dependencies):
    return StageExplanation(
        id=number,
        title=f"scan t{number}",
        mode="EXEC_CPU",
        engine="cpu",
        reason="there is no GPU",
        source=f"table t{number}",
        predicate=None,
        joins=(),
        input_rows=1,
        estimated_rows=1,
        estimated_bytes=2048,
        predicted_s=None,
        dependencies=dependencies,
    )


def test_stages_print_as_a_tree_from_the_answer_down():
    text = str(Explanation("auto", ("n int64",), (stage(0), stage(1), stage(2, 0, 1))))
    assert text.splitlines() == [
        "mode auto, 3 stages",
        "answer: n int64",
        "stage 2: scan t2",
        "│  EXEC_CPU (cpu): there is no GPU",
        "│  reads table t2, 1 row",
        "│  estimated 1 row, 2.0 KiB",
        "├─ stage 0: scan t0",
        "│     EXEC_CPU (cpu): there is no GPU",
        "│     reads table t0, 1 row",
        "│     estimated 1 row, 2.0 KiB",
        "└─ stage 1: scan t1",
        "      EXEC_CPU (cpu): there is no GPU",
        "      reads table t1, 1 row",
        "      estimated 1 row, 2.0 KiB",
    ]


def test_a_stage_that_two_others_read_prints_once():
    text = str(Explanation("auto", (), (stage(0), stage(1, 0), stage(2, 0, 1))))
    assert text.count("stage 0: scan t0") == 1
    assert text.count("stage 0 (see above)") == 1


def test_the_method_of_each_join_is_named(session):
    explanation = session.sql(find_plan("tpch/q03").read_text()).explain(mode="cpu")
    joins = {(join.build, join.method) for each in explanation.stages for join in each.joins}
    assert ("table orders", "aligned") in joins
    assert any(method == "broadcast" and build.startswith("stage ") for build, method in joins)
    assert "l_orderkey = orders.o_orderkey" in str(explanation)


def test_analyze_puts_what_happened_beside_the_estimate(nothing_learned, session):
    explanation = session.sql(find_plan("tpch/q01").read_text()).explain(mode="cop", analyze=True)
    (only,) = explanation.stages
    assert only.mode == "EXEC_COP"
    assert only.engine == "cpu + simulated gpu"
    assert only.actual["output_rows"] == 4
    assert sum(device["rows"] for device in only.actual["devices"]) == 60_175
    assert "actual 4 rows in " in str(explanation)
    assert json.loads(explanation.to_json())["stages"][0]["actual"]["output_rows"] == 4


def test_no_chunk_has_more_rows_than_the_table(session):
    query = session.sql("select count(*) as n from nation")
    for explanation in (query.explain(), query.explain(analyze=True)):
        predictions = [each for stage in explanation.stages for each in stage.predictions]
        assert {rows for each in predictions for rows in each.chunk_rows.values()} == {25}


def test_a_stage_without_a_decision_says_so(session):
    query = session.sql("select count(*) as n from region")
    explanation = explain(query._physical, Report("", "auto"))
    assert explanation.stages[0].mode == "not run"
    assert explanation.columns == ("n int64",)
