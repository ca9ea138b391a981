"""Stages that were given to the wrong kind of device: the driver notices while they run, whatever was expected."""

from __future__ import annotations

import threading

import pytest
from fakes import FakeExecutor, device, follow_up, make_driver, scan_stage

import hybridq.catalog
from hybridq.errors import QueryCancelled
from hybridq.placement import cost, modes, second_look
from hybridq.placement.placer import Placer
from hybridq.placement.predict import Prediction, StagePrediction
from hybridq.report import GIVEN_UP

BOTH = [device("cpu", threads=2), device("gpu")]
ROWS = 2000


@pytest.fixture(autouse=True)
def small_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hybridq.catalog, "MEMORY_UNIT_ROWS", 10)
    monkeypatch.setattr(modes, "WORTH_MOVING_S", 0.0)
    monkeypatch.setattr(cost, "SMALLEST_CHUNK_ROWS", 10)
    monkeypatch.setattr(cost, "LATE_SECONDS", 0.1)
    monkeypatch.setattr(second_look, "LEAST_LEFT_S", 0.0)


def expected(cpu: float, gpu: float, trusted: bool = True, rows: float = ROWS) -> StagePrediction:
    """Return a prediction of so many seconds on each kind of device."""
    alone = {
        "EXEC_CPU": Prediction("EXEC_CPU", cpu, {}, {}),
        "EXEC_GPU": Prediction("EXEC_GPU", gpu, {"read": gpu}, {}),
    }
    per_row = {"cpu": 2 * cpu / rows, "gpu": gpu / rows}
    kinds = frozenset(per_row) if trusted else frozenset()
    return StagePrediction(alone, kinds, True, per_row, rows=rows, unit_rows=10)


def hanging(kind):
    return lambda executor, task: "hang" if task.kind == kind else None


@pytest.mark.parametrize(
    ("prediction", "hangs"), [(expected(0.05, 0.01), "gpu"), (expected(0.01, 0.05), "cpu")], ids=["gpu", "cpu"]
)
def test_a_device_that_does_not_get_on_loses_its_chunks_to_the_other(prediction, hangs):
    executor = FakeExecutor(BOTH, hanging(hangs))
    driver, report = make_driver(executor, ROWS, predictions={0: prediction})
    (stage,) = report.stages
    assert stage.mode == f"EXEC_{hangs.upper()}"
    other = "cpu" if hangs == "gpu" else "gpu"
    assert driver.run().column(0).to_pylist() == list(range(ROWS))
    assert {each.kind for each in stage.devices} == {other}
    assert f"moved to the {other.upper()}" in {each.action for each in stage.fallbacks}
    late = [span for span in stage.spans if span.what == GIVEN_UP]
    assert {span.kind for span in late} == {hangs}
    assert all(span.seconds >= 0.1 for span in late)
    # It is learned that the device takes long, which nothing has shown that came back.
    placer = Placer(BOTH, None)
    placer._kinds_seen.add(hangs)
    placer.learn([scan_stage(ROWS)], report)
    model = placer._learned.model(next(iter(placer._learned._models))[0], hangs)
    assert model.predict(late[0].rows) >= 0.1


@pytest.mark.parametrize("hangs", ["cpu", "gpu"])
def test_a_stage_of_one_chunk_moves_as_a_whole(hangs):
    seconds = {"cpu": 0.05, "gpu": 0.05, hangs: 0.01}
    stages = [scan_stage(ROWS), follow_up(1, 0)]

    def behave(executor, task):
        return "hang" if task.kind == hangs and task.inputs else None

    executor = FakeExecutor(BOTH, behave)
    driver, report = make_driver(
        executor, ROWS, stages=stages,
        predictions={0: expected(0.01, 0.02), 1: expected(**seconds, rows=ROWS)},
    )  # fmt: skip
    assert report.stages[1].mode == f"EXEC_{hangs.upper()}"
    assert driver.run().column(0).to_pylist() == list(range(ROWS))
    assert [each.action for each in report.stages[1].fallbacks] == [
        f"moved to the {'CPU' if hangs == 'gpu' else 'GPU'}"
    ]


@pytest.mark.parametrize(("mode", "strict"), [("gpu", False), ("auto", True)])
def test_what_was_asked_for_is_not_given_up(mode, strict):
    executor = FakeExecutor(BOTH, hanging("gpu"))
    driver, report = make_driver(executor, ROWS, mode, strict, predictions={0: expected(0.05, 0.01)})
    threading.Timer(0.4, driver.cancel).start()
    with pytest.raises(QueryCancelled):
        driver.run()
    assert report.stages[0].fallbacks == []


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_kind_of_which_little_is_known_is_tried_and_waited_for_in_vain_only_for_a_moment(comes_back):
    executor = FakeExecutor(BOTH, None if comes_back else hanging("gpu"))
    executor.seconds_per_row = {"cpu": 1e-5, "gpu": 1e-7}
    prediction = expected(0.01, 10.0, trusted=False)
    driver, report = make_driver(executor, ROWS, predictions={0: prediction}, cpu_chunk_rows=50)
    (stage,) = report.stages
    assert stage.mode == "EXEC_CPU"
    assert driver.run().column(0).to_pylist() == list(range(ROWS))
    tried = [span for span in stage.spans if span.kind == "gpu"]
    if comes_back:
        assert [span.rows for span in tried[:2]] == [40, 160]
        assert stage.fallbacks == []
    else:
        assert [(span.what, span.rows) for span in tried] == [(GIVEN_UP, 40)]
        assert len(stage.fallbacks) == 1


def test_a_kind_that_shows_itself_far_better_gets_the_rest(monkeypatch):
    monkeypatch.setattr(cost, "TOGETHER_SECONDS", 0.0)
    executor = FakeExecutor(BOTH)
    executor.seconds_per_row = {"cpu": 1e-4, "gpu": 1e-7}
    prediction = expected(0.1, 10.0, trusted=False)
    driver, report = make_driver(executor, ROWS, predictions={0: prediction}, cpu_chunk_rows=50)
    assert driver.run().column(0).to_pylist() == list(range(ROWS))
    (stage,) = report.stages
    assert {each.kind: each.rows for each in stage.devices}["gpu"] > 0.8 * ROWS
    assert "both were put to work: a chunk on the GPU has shown that it pays there" in stage.reason
