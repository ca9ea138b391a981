"""``hybridq bench placement`` in process, and on a simulated cluster."""

from __future__ import annotations

import json

import pytest

from hybridq import cli, model_report
from hybridq.errors import DeviceUnavailable, RequestError
from hybridq.testing import ssb
from hybridq.testing.in_process import connect_in_process


@pytest.fixture(scope="module")
def session(tpch_folder):
    with connect_in_process(one_chunk_rows=0) as found:
        found.register_folder(tpch_folder)
        yield found


def test_a_report_of_some_queries(session):
    before, told = session._know(), []
    learned = len(before._learned)
    plans = model_report.plans_over(session, ["tpch/q01", "tpch/q03"])
    lines = list(model_report.run(session, plans, model_report.Effort(1, "none"), told.append))
    assert [line["line"] for line in lines] == ["cluster", "plan", "plan", "summary"]
    assert lines == json.loads(json.dumps(lines))
    cluster, q1, q3, summary = lines
    assert cluster["simulated"]
    assert cluster["rounds"] == model_report.TRAINING_ROUNDS + 1
    assert (q1["plan"], q3["plan"]) == ("tpch/q01", "tpch/q03")
    for plan in (q1, q3):
        assert set(plan["seconds"]) == {"cpu", "gpu", "cop", "auto"}
        assert plan["best"] in ("cpu", "gpu", "cop")
        assert plan["seconds"][plan["best"]] == min(plan["seconds"][mode] for mode in ("cpu", "gpu", "cop"))
        assert plan["regret_s"] == pytest.approx(plan["seconds"]["auto"] - plan["seconds"][plan["best"]])
        for stage in plan["stages"]:
            assert stage["untrained_s"]["cpu"] > 0
            assert stage["trained_s"]["gpu"] > 0
            assert stage["reason"]
    assert len(q3["stages"]) > 1
    assert summary["plans"] == 2
    assert len(told) == 2
    # Neither used nor changed: what the session knew.
    assert session._know() is before
    assert len(before._learned) == learned
    page = model_report.markdown(lines)
    assert "Simulated devices" in page
    assert "| tpch/q03 |" in page
    assert "Model improvement (HyPE, eq. 6.5) of auto over always CPU" in page


def test_time_that_is_up_leaves_plans_out(session):
    told = []
    plans = model_report.plans_over(session, ["tpch/q06", "tpch/q01"])
    lines = list(model_report.run(session, plans, model_report.Effort(1, "none", 0.0), told.append))
    assert [line["line"] for line in lines] == ["cluster"]
    assert told == ["the time is up: 2 plans not run"]
    assert "tpch/q06" not in model_report.markdown(lines)


def test_plans_are_those_that_the_data_allows(session, tmp_path_factory):
    assert list(model_report.plans_over(session)) == [f"tpch/q{number:02}" for number in range(1, 23)]
    with connect_in_process() as other:
        other.register_folder(ssb.generate(0.001, tmp_path_factory.mktemp("ssb")))
        found = model_report.plans_over(other)
    assert len(found) == 13
    assert all(name.startswith("ssb/") for name in found)
    with pytest.raises(RequestError, match="must be SQL"):
        model_report.plans_over(session, ["tpch/q01.json"])


def test_without_a_choice_there_is_nothing_to_report(without_gpu):
    with pytest.raises(DeviceUnavailable, match="CPU and GPU workers"):
        next(model_report.run(without_gpu, {}, model_report.Effort()))


def test_the_command(capsys, one_worker, tpch_folder, tmp_path):
    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    output = tmp_path / "lines.jsonl"
    arguments = ["bench", "placement", "tpch/q06", "--data", tpch_folder, "--cluster", one_worker.address]
    code, out, err = call(*arguments, "--repeats", 1, "--profile", "none", "-o", output)
    assert code == 0, err
    assert "| tpch/q06 |" in out
    assert "tpch/q06: auto" in err
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["line"] for line in lines] == ["cluster", "plan", "summary"]
    code, out, _ = call("bench")
    assert code == 0
    assert "placement" in out
    code, _, err = call("bench", "placement", "tpch/q99", *arguments[3:])
    assert code == 2
    assert "no plan 'tpch/q99'" in err
