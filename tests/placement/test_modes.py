from __future__ import annotations

import pyarrow as pa
import pytest

from hybridq.config import Config
from hybridq.errors import ConfigurationError, DeviceUnavailable
from hybridq.physical.merges import ConcatenateMerge
from hybridq.physical.pipeline import CollectSink, Pipeline, Stage, StageSource, TableSource
from hybridq.placement.modes import check_mode, decide
from hybridq.plan.nodes import ScanColumn
from hybridq.types import Field

SCHEMA = (Field("t.x", pa.int64()),)
CONFIG = Config()


def stage(rows: int, reads: int | None = None) -> Stage:
    source = (
        TableSource("t", (ScanColumn("t.x", "x", pa.int64()),), None, ("t.x",))
        if reads is None
        else StageSource(reads, SCHEMA)
    )
    pipeline = Pipeline(source, (), CollectSink(SCHEMA))
    return Stage(0, pipeline, (), ConcatenateMerge(SCHEMA), (), SCHEMA, 1, 8, rows, "scan t")


def test_auto():
    both = {"cpu": 2, "gpu": 1}
    large, small, follow_up = stage(100_000_000), stage(1000), stage(0, reads=0)
    assert decide([large], "auto", {"cpu": 2}, CONFIG)[0].mode == "EXEC_CPU"
    assert decide([large], "auto", {"gpu": 1}, CONFIG)[0].mode == "EXEC_GPU"
    assert [each.mode for each in decide([small, follow_up, large], "auto", both, CONFIG)] == [
        "EXEC_CPU",
        "EXEC_CPU",
        "EXEC_COP",
    ]
    assert all(each.reason for each in decide([small, follow_up, large], "auto", both, CONFIG))


@pytest.mark.parametrize(("mode", "expected"), [("cpu", "EXEC_CPU"), ("gpu", "EXEC_GPU"), ("cop", "EXEC_COP")])
def test_forced(mode, expected):
    decisions = decide([stage(10), stage(0, reads=0)], mode, {"cpu": 2, "gpu": 1}, CONFIG)
    assert {each.mode for each in decisions} == {expected}
    assert all(each.forced and mode in each.reason for each in decisions)


@pytest.mark.parametrize(
    ("mode", "slots", "missing"),
    [("gpu", {"cpu": 2}, "no GPU worker"), ("cop", {"cpu": 2}, "no GPU worker"), ("cop", {"gpu": 1}, "no CPU worker"),
     ("cpu", {"gpu": 1}, "no CPU worker"), ("auto", {}, "no usable workers")],
)  # fmt: skip
def test_what_is_missing_is_said(mode, slots, missing):
    with pytest.raises(DeviceUnavailable, match=missing):
        decide([stage(10)], mode, slots, CONFIG)


def test_unknown_mode():
    with pytest.raises(ConfigurationError, match="auto, cpu, gpu, cop, not 'tpu'"):
        check_mode("tpu")
