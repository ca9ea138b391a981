"""Projects are merged, columns pruned, orders cut short and names made canonical."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from plan_building import BOOLEAN, INTEGER, FakeTable, column, join, number, project, scan, statistics, test_of

from hybridq.plan.expressions import AggregateCall, Call, Column, Expression, NamedExpression, SortKey
from hybridq.plan.nodes import Aggregate, Filter, Join, Limit, Node, Plan, Scan, ScanColumn, Sort, TopK, Values, render
from hybridq.plan.rules import canonical_names, column_pruning, merge_projections, optimize, top_k
from hybridq.plan.rules.helpers import LARGEST_INLINED, can_fail, size

COUNT = AggregateCall("n", "count", None, INTEGER)


def plus(one: Expression, other: Expression) -> Expression:
    return Call(INTEGER, "add", (one, other))


def total(name: str, of: str) -> AggregateCall:
    return AggregateCall(name, "sum", column(of), INTEGER)


def key(name: str) -> SortKey:
    return SortKey(column(name))


# --- merge_projections -----------------------------------------------------------------------------------------------


def test_projects_merge_into_aggregates() -> None:
    common = project(scan("t"), x=plus(column("t.a"), column("t.b")), g=column("t.a"))
    node = Aggregate(common, (NamedExpression("g", column("g")),), (total("s", "x"), total("r", "g")))
    assert render(merge_projections(node)) == (
        "Aggregate sum((t.a + t.b)) AS s, sum(t.a) AS r BY t.a AS g\n  Scan t [a, b]"
    )


def test_projects_that_pass_everything_go_away() -> None:
    same = project(scan("t"), **{"t.a": column("t.a"), "t.b": column("t.b")})
    assert merge_projections(same) == scan("t")
    other_order = project(scan("t"), **{"t.b": column("t.b"), "t.a": column("t.a")})
    assert merge_projections(other_order) == other_order


def test_projects_are_lifted_above_joins() -> None:
    left = project(scan("t", "abc"), k=column("t.a"), v=column("t.b"))
    node = merge_projections(join(left, scan("u"), "k", "u.a", residual=test_of("less", column("v"), column("u.b"))))
    assert render(node) == (
        "Project t.a AS k, t.b AS v, u.a, u.b\n"
        "  Join inner ON t.a = u.a AND (t.b < u.b)\n    Scan t [a, b, c]\n    Scan u [a, b]"
    )
    semi = merge_projections(join(scan("u"), left, "u.a", "k", "semi"))
    assert render(semi) == "Join semi ON u.a = t.a\n  Scan u [a, b]\n  Scan t [a, b, c]"
    computed = join(project(scan("t"), k=plus(column("t.a"), number(1))), scan("u"), "k", "u.a")
    assert merge_projections(computed) == computed


def test_projects_stay_where_names_would_clash() -> None:
    twice = join(project(scan("t"), k=column("t.a")), scan("t"), "k", "t.a")
    assert merge_projections(twice) == twice


def test_expressions_do_not_grow_without_bound() -> None:
    node: Node = project(scan("t"), x0=column("t.a"))
    for i in range(30):
        node = project(node, **{f"x{i + 1}": plus(column(f"x{i}"), column(f"x{i}"))})
    merged = merge_projections(node)
    assert merged.schema == node.schema
    while merged.inputs:
        assert all(size(item.expression) <= LARGEST_INLINED for item in merged.expressions)  # type: ignore[attr-defined]
        (merged,) = merged.inputs
    optimized = optimize(Plan(node, ("x",)), statistics(t=FakeTable(10)))
    assert optimize(optimized, statistics(t=FakeTable(10))) == optimized


# --- column_pruning --------------------------------------------------------------------------------------------------


def test_scans_read_what_is_used() -> None:
    node = project(Filter(scan("t", "abcd"), test_of("less", column("t.c"), number(1))), x=column("t.a"))
    assert render(column_pruning(node)) == "Project t.a AS x\n  Filter (t.c < 1)\n    Scan t [a, c]"


def test_counting_reads_nothing() -> None:
    node = Aggregate(project(scan("t", "ab"), x=column("t.a")), (), (COUNT,))
    assert render(column_pruning(node)) == "Aggregate count(*) AS n\n  Scan t []"


def test_unused_aggregates_are_dropped() -> None:
    groups = (NamedExpression("g", column("t.a")),)
    node = project(Aggregate(scan("t", "abc"), groups, (total("s", "t.b"), total("r", "t.c"))), x=column("r"))
    assert render(column_pruning(node)) == "Project r AS x\n  Aggregate sum(t.c) AS r BY t.a AS g\n    Scan t [a, c]"
    unused = project(Aggregate(scan("t", "abc"), (), (total("s", "t.b"), total("r", "t.c"))), x=number(1))
    assert render(column_pruning(unused)) == "Project 1 AS x\n  Aggregate sum(t.b) AS s\n    Scan t [b]"


def test_columns_of_a_predicate_alone_are_dropped_from_build_sides() -> None:
    build = scan("u", "abc", test_of("less", column("u.c"), number(1)))
    node = project(join(scan("t", "abc"), build, "t.a", "u.a"), x=column("t.b"))
    assert render(column_pruning(node)) == (
        "Project t.b AS x\n  Join inner ON t.a = u.a\n    Scan t [a, b]\n"
        "    Project u.a\n      Scan u [a, c] WHERE (u.c < 1)"
    )


def test_root_columns_stay() -> None:
    node = Filter(scan("t", "ab"), test_of("less", column("t.a"), number(1)))
    assert column_pruning(node) is node


# --- top_k -----------------------------------------------------------------------------------------------------------


def test_limits_of_orders() -> None:
    ordered = Sort(scan("t"), (key("t.a"),))
    assert top_k(Limit(ordered, 2, 5)) == TopK(scan("t"), (key("t.a"),), 2, 5)
    endless = Limit(ordered, 2, None)
    assert top_k(endless) == endless
    assert top_k(Limit(project(ordered, x=column("t.b")), 0, 5)) == project(
        TopK(scan("t"), (key("t.a"),), 0, 5), x=column("t.b")
    )
    assert top_k(Limit(Limit(ordered, 2, 5), 1, 2)) == TopK(scan("t"), (key("t.a"),), 3, 2)
    assert top_k(Limit(Limit(ordered, 2, 5), 4, None)) == TopK(scan("t"), (key("t.a"),), 6, 1)
    assert top_k(Limit(Limit(ordered, 2, 5), 9, None)) == TopK(scan("t"), (key("t.a"),), 11, 0)
    plain = Limit(scan("t"), 0, 5)
    assert top_k(plain) == plain


# --- canonical_names -------------------------------------------------------------------------------------------------


def named(prefix: str, table: str) -> Scan:
    return Scan(table, tuple(ScanColumn(f"{prefix}{name}", name, INTEGER) for name in "ab"))


def test_names_say_what_columns_are() -> None:
    joined = join(named("l", "t"), named("r", "t"), "la", "ra", residual=test_of("less", column("lb"), column("rb")))
    node = Aggregate(joined, (NamedExpression("g", column("ra")),), (total("s", "lb"), total("z", "lb"), COUNT))
    top = project(node, p=plus(column("s"), number(1)), q=column("s"), r=column("s"))
    assert render(canonical_names(top)) == (
        "Project (sum(t.b) + 1), sum(t.b), sum(t.b) AS sum(t.b)#2\n"
        "  Aggregate sum(t.b), sum(t.b) AS sum(t.b)#2, count(*) BY t#2.a\n"
        "    Join inner ON t.a = t#2.a AND (t.b < t#2.b)\n"
        "      Scan t [a, b]\n      Scan t [a, b]"
    )


def test_names_of_both_sides_of_a_join_differ() -> None:
    sides = []
    for prefix, table in (("x", "t"), ("y", "u")):
        groups = (NamedExpression(f"{prefix}g", column(f"{prefix}a")),)
        sides.append(Aggregate(named(prefix, table), groups, (replace(COUNT, name=f"{prefix}n"),)))
    node = canonical_names(Join(sides[0], sides[1], "inner", (column("xn"),), (column("yn"),)))
    assert [item.name for item in node.schema] == ["t.a", "count(*)", "u.a", "count(*)#2"]
    assert node.label == "Join inner ON count(*) = count(*)#2"


def test_keys_are_ordered() -> None:
    def joined(*order: str) -> Node:
        left, right = (tuple(Column(INTEGER, f"{t}.{name}") for name in order) for t in "tu")
        return canonical_names(Join(scan("t"), scan("u"), "inner", left, right))

    assert joined("a", "b") == joined("b", "a")


def test_constant_tables() -> None:
    one, other = Values(pa.table({"x": [1]})), Values(pa.table({"y": [2], "z": [3]}))
    node = canonical_names(Join(one, other, "inner", (), ()))
    assert [item.name for item in node.schema] == ["values.1", "values#2.1", "values#2.2"]


def test_names_given_by_the_writer_do_not_matter() -> None:
    plans = set()
    for prefix in ("l", "other."):
        node = Filter(named(prefix, "t"), test_of("less", column(f"{prefix}a"), number(1)))
        plan = Plan(Aggregate(node, (), (total(f"{prefix}s", f"{prefix}b"),)), ("answer",))
        plans.add(optimize(plan, statistics(t=FakeTable(10))))
    assert len(plans) == 1


# --- what may fail ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "fails", "overflows"),
    [
        (column("a"), False, False),
        (plus(column("a"), number(1)), False, True),
        (Call(INTEGER, "divide", (column("a"), number(2))), False, True),
        (Call(INTEGER, "divide", (column("a"), number(0))), True, True),
        (Call(INTEGER, "modulus", (column("a"), number(2))), False, False),
        (Call(INTEGER, "modulus", (number(2), column("a"))), True, True),
        (Call(pa.float64(), "divide", (column("x", pa.float64()), column("x", pa.float64()))), False, False),
        (test_of("less", plus(column("a"), number(1)), number(2)), False, True),
        (Column(BOOLEAN, "flag"), False, False),
    ],
    ids=str,
)
def test_expressions_that_may_fail(expression: Expression, fails: bool, overflows: bool) -> None:
    assert can_fail(expression) is fails
    assert can_fail(expression, overflow=True) is overflows
