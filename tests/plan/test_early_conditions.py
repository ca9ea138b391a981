"""Conditions on texts of build sides are computed below joins, where that saves the texts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from hybridq.plan.expressions import AggregateCall, Call, Case, Cast, Column, Literal, NamedExpression
from hybridq.plan.nodes import Aggregate, Join, Project, Scan, ScanColumn, render
from hybridq.plan.rules.early_conditions import early_conditions

TEXT, LONG = pa.string(), pa.int64()
ITEMS = Scan("items", (ScanColumn("items.part", "part", LONG), ScanColumn("items.note", "note", TEXT)))
PARTS = Scan("parts", tuple(ScanColumn(f"parts.{name}", name, TEXT if name != "key" else LONG) for name in
                            ("key", "type", "brand")))  # fmt: skip
KEYS = (Column(LONG, "items.part"),), (Column(LONG, "parts.key"),)
OTHERS = Scan("others", (ScanColumn("others.key", "key", LONG),))
OTHER_KEYS = (Column(LONG, "items.part"),), (Column(LONG, "others.key"),)
TYPE, BRAND, NOTE = (Column(TEXT, name) for name in ("parts.type", "parts.brand", "items.note"))


def like(column: Column, pattern: str) -> Call:
    return Call(pa.bool_(), "like", (column, Literal(TEXT, pattern)))


def joined(kind: str = "inner", **more: object) -> Join:
    return Join(ITEMS, PARTS, kind, *KEYS, **more)  # type: ignore[arg-type]


def over(join: Join, *expressions: object) -> Project:
    return Project(join, tuple(NamedExpression(f"c{n}", each) for n, each in enumerate(expressions)))  # type: ignore[arg-type]


def test_the_largest_parts_that_read_one_side_are_taken_below() -> None:
    both = Call(pa.bool_(), "or", (like(TYPE, "A%"), like(BRAND, "B%")))
    case = Case(LONG, ((both, Column(LONG, "items.part")),), Literal(LONG, 0))
    call = AggregateCall("s", "sum", case, LONG)
    changed = early_conditions(Aggregate(joined(), (), (call,)))
    assert isinstance(changed, Aggregate)
    below = changed.input
    assert isinstance(below, Join)
    assert render(below.right).splitlines()[0] == f"Project parts.key, parts.type, parts.brand, {both}"
    assert str(changed.aggregates[0].argument) == f"CASE WHEN {both} THEN items.part ELSE 0 END"
    assert early_conditions(changed) == changed


@pytest.mark.parametrize(
    "plan",
    [
        over(joined(), like(TYPE, "A%"), TYPE),
        over(joined("left"), like(TYPE, "A%")),
        over(Join(joined(), OTHERS, "full", *OTHER_KEYS), like(TYPE, "A%")),
        over(joined(residual=like(TYPE, "%x")), like(TYPE, "A%")),
        over(joined(), like(NOTE, "A%")),
        over(joined(), Call(pa.bool_(), "equal", (TYPE, NOTE))),
        over(joined(), Cast(LONG, TYPE)),
        over(joined(), Call(TEXT, "upper", (TYPE,))),
    ],
    ids=[
        "also shown",
        "outer join",
        "full join above",
        "read by the join",
        "probing side",
        "both sides",
        "may fail",
        "a text again",
    ],
)
def test_other_conditions_stay(plan: Project) -> None:
    assert early_conditions(plan) is plan
