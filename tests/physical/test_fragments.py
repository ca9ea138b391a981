from __future__ import annotations

import pyarrow as pa

from hybridq.physical.fragments import OpenPipeline, prune_steps
from hybridq.physical.pipeline import FilterStep, ProbeStep, ProjectStep, TableSource
from hybridq.plan.expressions import Call, Cast, Column, Literal, NamedExpression
from hybridq.plan.nodes import ScanColumn
from hybridq.types import Field

I64 = pa.int64()
A, B, C, K = (Column(I64, name) for name in "abck")
POSITIVE = Call(pa.bool_(), "greater", (B, Literal(I64, 0)))


def test_pruning_keeps_what_later_steps_need() -> None:
    steps = [
        ProjectStep((NamedExpression("a", A), NamedExpression("b", B), NamedExpression("c", Call(I64, "add", (C, C))))),
        FilterStep(POSITIVE),
        ProbeStep(0, "inner", (A,), None, ("a", "b", "c", "k", "v")),
    ]
    kept, needed, from_builds = prune_steps(
        steps, frozenset({"v"}), {0: (Field("k", I64), Field("v", I64), Field("w", I64))}
    )
    assert needed == {"a", "b"}
    assert from_builds == {0: {"v"}}
    assert kept == (FilterStep(POSITIVE), ProbeStep(0, "inner", (A,), None, ("v",)))


def test_a_residual_needs_its_columns_on_both_sides() -> None:
    residual = Call(pa.bool_(), "less", (B, Column(I64, "v")))
    steps = [ProbeStep(0, "left", (A,), residual, ("a", "b", "k", "v"))]
    kept, needed, from_builds = prune_steps(steps, frozenset({"k"}), {0: (Field("k", I64), Field("v", I64))})
    assert needed == {"a", "b"}
    assert from_builds == {0: {"k", "v"}}
    assert isinstance(kept[0], ProbeStep)
    assert kept[0].output == ("k",)


def test_a_key_is_traced_through_renames_and_integer_casts_only() -> None:
    source = TableSource("t", (ScanColumn("t.a", "a", pa.int32()),), None, ("t.a",))
    column = Column(pa.int32(), "t.a")
    pipeline = OpenPipeline(source, (), 0, 0)
    pipeline.steps.append(ProjectStep((NamedExpression("x", Cast(I64, column)),)))
    assert pipeline.source_column(Column(I64, "x")) == "a"
    pipeline.steps[0] = ProjectStep((NamedExpression("x", Call(I64, "add", (column, column))),))
    assert pipeline.source_column(Column(I64, "x")) is None


def test_a_key_from_a_build_side_is_not_looked_for_in_earlier_projections() -> None:
    source = TableSource("t", (ScanColumn("t.a", "a", I64),), None, ("t.a",))
    pipeline = OpenPipeline(source, (), 0, 0)
    pipeline.steps.append(ProjectStep((NamedExpression("x", Column(I64, "t.a")),)))
    pipeline.steps.append(ProbeStep(0, "inner", (Column(I64, "x"),), None, ("x", "k")))
    assert pipeline.source_column(Column(I64, "x")) == "a"
    assert pipeline.source_column(Column(I64, "k")) is None
