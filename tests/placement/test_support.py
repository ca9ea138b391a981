"""A function that one engine lacks sends its stage to the other one, and the report says why."""

from __future__ import annotations

from types import MappingProxyType

import pyarrow as pa
import pytest

from hybridq.config import Config
from hybridq.engines import support
from hybridq.engines.evaluate import KERNELS
from hybridq.engines.finals import FINAL_VALUES
from hybridq.errors import DeviceUnavailable, FallbackForbidden, Unsupported
from hybridq.physical.merges import ConcatenateMerge
from hybridq.physical.pipeline import CollectSink, FilterStep, Pipeline, ProjectStep, Stage, TableSource
from hybridq.placement.modes import decide
from hybridq.placement.support import check_supported, unsupported
from hybridq.plan.aggregates import FINAL_FUNCTIONS
from hybridq.plan.expressions import Call, Column, Literal, NamedExpression
from hybridq.plan.functions import FUNCTIONS, Function
from hybridq.plan.nodes import ScanColumn
from hybridq.testing.in_process import connect_in_process
from hybridq.types import Field

BOTH = {"cpu": 1, "gpu": 1}
CONFIG = Config()
TEXT = Column(pa.string(), "t.s")
TABLE = pa.table({"s": [f"row {i}" for i in range(100)], "x": range(100)})


def function(name: str, cpu: bool, gpu: bool) -> Function:
    return Function(name, (), 1, 1, lambda types: pa.bool_(), cpu, gpu)


@pytest.fixture(autouse=True)
def three_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {each.name: each for each in (function("on_cpu", True, False), function("on_gpu", False, True))}
    monkeypatch.setattr(support, "FUNCTIONS", MappingProxyType({**FUNCTIONS, **more}))


def stage(name: str, finish: bool = False, rows: int = 100_000_000) -> Stage:
    condition = Call(pa.bool_(), "and", (Literal(pa.bool_(), True), Call(pa.bool_(), name, (TEXT,))))
    source = TableSource("t", (ScanColumn("t.s", "s", pa.string()),), None, ("t.s",))
    schema = (Field("t.s", pa.string()),)
    step = FilterStep(condition)
    pipeline = Pipeline(source, () if finish else (step,), CollectSink(schema))
    return Stage(0, pipeline, (), ConcatenateMerge(schema), (step,) if finish else (), schema, 1, 8, rows, "scan t")


def test_the_reason_names_the_function():
    assert unsupported(stage("on_cpu"), "cpu") is None
    assert unsupported(stage("on_cpu"), "gpu") == "the GPU engine has no function on_cpu"
    assert unsupported(stage("on_gpu"), "cpu") == "the CPU engine has no function on_gpu"
    assert unsupported(stage("is_null"), "gpu") is None
    assert unsupported(stage("nosuch"), "cpu") == "the CPU engine has no function nosuch"


@pytest.mark.parametrize(
    ("name", "mode", "expected", "fell_back"),
    [("on_cpu", "auto", "EXEC_CPU", False), ("on_cpu", "cop", "EXEC_CPU", True), ("on_cpu", "gpu", "EXEC_CPU", True),
     ("on_cpu", "cpu", "EXEC_CPU", False), ("on_gpu", "auto", "EXEC_GPU", False), ("on_gpu", "cop", "EXEC_GPU", True),
     ("on_gpu", "cpu", "EXEC_GPU", True), ("on_gpu", "gpu", "EXEC_GPU", False)],
)  # fmt: skip
def test_the_stage_runs_where_it_can(name, mode, expected, fell_back):
    (decision,) = decide([stage(name)], mode, BOTH, CONFIG)
    assert decision.mode == expected
    fallbacks = decision.report("scan t").fallbacks
    assert [each.chunk for each in fallbacks] == ([None] if fell_back else [])
    assert all(name in each.cause and expected in each.action for each in fallbacks)
    if fell_back:
        assert name in decision.reason
        with pytest.raises(FallbackForbidden, match=name):
            decide([stage(name)], mode, BOTH, CONFIG, strict=True)
    else:
        assert decide([stage(name)], mode, BOTH, CONFIG, strict=True) == (decision,)


def test_devices_that_cannot_are_not_enough():
    with pytest.raises(DeviceUnavailable, match="on_cpu"):
        decide([stage("on_cpu")], "gpu", {"gpu": 1}, CONFIG)
    with pytest.raises(DeviceUnavailable, match="on_gpu"):
        decide([stage("on_gpu")], "auto", {"cpu": 1}, CONFIG)


def test_what_no_engine_has_is_refused_at_planning():
    check_supported([stage("on_cpu"), stage("on_gpu"), stage("on_cpu", finish=True)])
    with pytest.raises(Unsupported, match=r"function nosuch.*stage 0"):
        check_supported([stage("nosuch")])
    with pytest.raises(Unsupported, match="function on_gpu, which merges"):
        check_supported([stage("on_gpu", finish=True)])


@pytest.mark.parametrize(
    "data_type", [pa.binary(), pa.month_day_nano_interval(), pa.list_(pa.int64()), pa.time64("us")]
)
def test_types_that_the_gpu_engine_lacks(data_type):
    source = TableSource("t", (ScanColumn("t.s", "s", data_type),), None, ("t.s",))
    schema = (Field("t.s", data_type),)
    found = Stage(
        0, Pipeline(source, (), CollectSink(schema)), (), ConcatenateMerge(schema), (), schema, 1, 8, 10, "scan t"
    )
    assert str(data_type) in (unsupported(found, "gpu") or "")
    assert unsupported(found, "cpu") is None


def test_the_table_says_what_the_cpu_engine_has():
    lazy = {"and", "or", "coalesce"}
    assert {name for name, each in FUNCTIONS.items() if each.cpu} == set(KERNELS) - FINAL_FUNCTIONS | lazy
    assert set(FINAL_VALUES) == FINAL_FUNCTIONS


@pytest.mark.parametrize("mode", ["auto", "cop", "gpu", "cpu"])
def test_a_whole_query_falls_back(mode, monkeypatch):
    changed = {**FUNCTIONS, "upper": Function("upper", ("upper",), 1, 1, FUNCTIONS["upper"].rule, True, False)}
    monkeypatch.setattr(support, "FUNCTIONS", MappingProxyType(changed))
    with connect_in_process(cpu_chunk_rows=10) as session:
        session.register("t", TABLE)
        query = session.sql("select upper(s) as u, x from t where x < 7 order by x")
        result = query.collect(mode=mode)
        assert result.to_arrow().column("u").to_pylist() == [f"ROW {i}" for i in range(7)]
        modes = {each.mode for each in result.report.stages}
        assert modes == {"EXEC_CPU"}
        assert len(result.report.stages[0].fallbacks) == (mode in ("gpu", "cop"))
        if mode in ("gpu", "cop"):
            with pytest.raises(FallbackForbidden, match="upper"):
                query.collect(mode=mode, strict=True)


@pytest.mark.parametrize("mode", ["cop", "gpu"])
def test_a_refusal_inside_a_chunk_moves_the_stage_to_the_cpu(mode, monkeypatch):
    """The GPU engine may find out late, for example from values."""
    from hybridq.testing import simulated

    monkeypatch.setattr(simulated, "expression_lacking", lambda kind, part: f"the GPU engine has no {part}")
    with connect_in_process(cpu_chunk_rows=10, chunk_units=1) as session:
        session.register("t", TABLE)
        query = session.sql("select x + 1 as y from t where s <> 'row 5'")
        result = query.collect(mode=mode)
        assert sorted(result.to_arrow().column("y").to_pylist()) == [x + 1 for x in range(100) if x != 5]
        assert {each.kind for each in result.report.stages[0].devices} == {"cpu"}
        assert "the GPU engine has no" in result.report.stages[0].fallbacks[0].cause
        with pytest.raises(FallbackForbidden, match="the GPU engine has no"):
            query.collect(mode=mode, strict=True)


def test_projections_are_looked_into():
    schema = (Field("u", pa.bool_()),)
    base = stage("is_null")
    step = ProjectStep((NamedExpression("u", Call(pa.bool_(), "on_cpu", (TEXT,))),))
    pipeline = Pipeline(base.pipeline.source, (step,), CollectSink(schema))
    found = Stage(0, pipeline, (), ConcatenateMerge(schema), (), schema, 1, 8, 10, "scan t")
    assert unsupported(found, "gpu") == "the GPU engine has no function on_cpu"
