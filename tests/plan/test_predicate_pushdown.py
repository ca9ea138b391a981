"""Predicates go as far down as they may and no further."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from plan_building import INTEGER, column, join, number, project, scan, test_of

from hybridq.plan.expressions import AggregateCall, Call, Expression, NamedExpression, SortKey
from hybridq.plan.nodes import Aggregate, Filter, Join, JoinKind, Limit, Node, Sort, Values, render
from hybridq.plan.rules import predicate_pushdown


def less(name: str, value: int = 5) -> Expression:
    return test_of("less", column(name), number(value))


def quotient(name: str) -> Expression:
    return test_of("less", Call(INTEGER, "divide", (number(1), column(name))), number(1))


def pushed(node: Node) -> str:
    return render(predicate_pushdown(node))


def test_into_scans_once() -> None:
    plan = Filter(Filter(scan("t", "ab", less("t.a")), less("t.a")), test_of("and", less("t.b"), less("t.a")))
    assert pushed(plan) == "Scan t [a, b] WHERE ((t.a < 5) AND (t.b < 5))"


def test_through_projects_and_sorts() -> None:
    ordered = Sort(project(scan("t", "a"), x=Call(INTEGER, "add", (column("t.a"), number(1)))), (SortKey(column("x")),))
    assert pushed(Filter(ordered, less("x"))) == (
        "Sort x ASC NULLS LAST\n  Project (t.a + 1) AS x\n    Scan t [a] WHERE ((t.a + 1) < 5)"
    )


def test_not_through_limits_or_values() -> None:
    assert pushed(Filter(Limit(scan("t", "a"), 0, 3), less("t.a"))).startswith("Filter (t.a < 5)\n  Limit")
    values = Filter(Values(pa.table({"x": [1]})), less("x"))
    assert predicate_pushdown(values) == values


def test_through_group_keys_only() -> None:
    calls = (AggregateCall("n", "count", None, INTEGER),)
    grouped = Aggregate(scan("t", "ab"), (NamedExpression("g", column("t.a")),), calls)
    assert pushed(Filter(grouped, test_of("and", less("g"), less("n")))) == (
        "Filter (n < 5)\n  Aggregate count(*) AS n BY t.a AS g\n    Scan t [a, b] WHERE (t.a < 5)"
    )
    never = Filter(Aggregate(scan("t", "a"), (), calls), test_of("less", number(2), number(1)))
    assert predicate_pushdown(never) == never, "no row in, still one row out"


@pytest.mark.parametrize(
    ("kind", "left", "right", "above"),
    [
        ("inner", "Scan t [a, b] WHERE (t.a < 5)", "Scan u [a, b] WHERE (u.a < 5)", None),
        ("left", "Scan t [a, b] WHERE (t.a < 5)", "Scan u [a, b]", "Filter (u.a < 5)"),
        ("full", "Scan t [a, b]", "Scan u [a, b]", "Filter ((t.a < 5) AND (u.a < 5))"),
    ],
)
def test_where_above_joins(kind: JoinKind, left: str, right: str, above: str | None) -> None:
    node = predicate_pushdown(
        Filter(join(scan("t"), scan("u"), "t.a", "u.a", kind), test_of("and", less("t.a"), less("u.a")))
    )
    if above is not None:
        assert node.label == above
        (node,) = node.inputs
    assert [render(side) for side in node.inputs] == [left, right]


@pytest.mark.parametrize(
    ("kind", "left", "right", "residual"),
    [
        ("inner", True, True, False),
        ("left", False, True, True),
        ("semi", True, True, False),
        ("anti", False, True, True),
    ],
)
def test_conditions_of_joins(kind: JoinKind, left: bool, right: bool, residual: bool) -> None:
    condition = test_of("and", less("t.a"), less("u.a"))
    node = predicate_pushdown(join(scan("t"), scan("u"), "t.a", "u.a", kind, residual=condition))
    assert isinstance(node, Join)
    assert ("WHERE" in node.left.label, "WHERE" in node.right.label) == (left, right)
    assert node.residual == (less("t.a") if residual else None)


def test_equalities_become_keys() -> None:
    cross = Join(scan("t"), scan("u"), "inner", (), ())
    same = test_of("equal", column("u.b"), column("t.a"))
    assert pushed(Filter(cross, same)).splitlines()[0] == "Join inner ON t.a = u.b"
    assert pushed(replace(cross, kind="left", residual=same)).splitlines()[0] == "Join left ON t.a = u.b"
    assert pushed(replace(cross, kind="anti", residual=same, null_aware=True)).splitlines()[0] == (
        "Join anti ON TRUE AND (u.b = t.a) NULL-AWARE"
    )
    mixed = test_of("less", column("u.b"), column("t.a"))
    assert pushed(Filter(cross, mixed)).splitlines()[0] == "Join inner ON TRUE AND (u.b < t.a)"


def test_what_may_fail_stays_above_what_guards_it() -> None:
    guarded = Filter(scan("t"), test_of("and", test_of("not_equal", column("t.a"), number(0)), quotient("t.a")))
    assert pushed(guarded) == "Filter ((1 / t.a) < 1)\n  Scan t [a, b] WHERE (t.a <> 0)"
    joined = Filter(join(scan("t"), scan("u"), "t.a", "u.a"), quotient("t.b"))
    assert predicate_pushdown(joined) == joined
    in_condition = join(scan("t"), scan("u"), "t.a", "u.a", residual=quotient("u.b"))
    assert predicate_pushdown(in_condition) == in_condition
    computed = Filter(project(scan("t"), x=Call(INTEGER, "divide", (number(1), column("t.a")))), less("x"))
    assert predicate_pushdown(computed) == computed
