"""Rules and unions, rules and windows."""

from __future__ import annotations

import pyarrow as pa

from hybridq.plan.expressions import AggregateCall, Call, Column, Literal, NamedExpression
from hybridq.plan.nodes import Filter, Project, Scan, ScanColumn, Union, Window, render
from hybridq.plan.rules.canonical_names import canonical_names
from hybridq.plan.rules.column_pruning import column_pruning
from hybridq.plan.rules.predicate_pushdown import predicate_pushdown
from hybridq.plan.windows import WindowCall

LONG = pa.int64()


def scan(table, *names):
    return Scan(table, tuple(ScanColumn(f"{table}.{name}", name, LONG) for name in names))


def col(name):
    return Column(LONG, name)


def above(name, value):
    return Call(pa.bool_(), "greater", (col(name), Literal(LONG, value)))


def total(name, argument, *partition):
    call = AggregateCall("", "sum", col(argument), LONG)
    return WindowCall(name, "aggregate", (), LONG, tuple(map(col, partition)), (), aggregate=call)


def test_a_predicate_goes_into_every_input_of_a_union():
    union = Union((scan("t", "a", "b"), scan("u", "c", "d")), ("x", "y"))
    assert render(predicate_pushdown(Filter(union, above("y", 3)))) == (
        "Union x, y\n  Scan t [a, b] WHERE (t.b > 3)\n  Scan u [c, d] WHERE (u.d > 3)"
    )


def test_a_union_reads_only_columns_that_are_used_by_position():
    union = Union((scan("t", "a", "b"), scan("u", "c", "d")), ("x", "y"))
    pruned = column_pruning(Project(union, (NamedExpression("y", col("y")),)))
    assert render(pruned) == "Project y\n  Union y\n    Scan t [b]\n    Scan u [d]"


def test_columns_that_only_a_filter_below_reads_are_dropped():
    union = Union((Filter(scan("t", "a", "b"), above("t.a", 0)), scan("u", "c", "d")), ("x", "y"))
    pruned = column_pruning(Project(union, (NamedExpression("y", col("y")),)))
    (inner,) = pruned.inputs
    assert [[field.name for field in part.schema] for part in inner.inputs] == [["t.b"], ["u.d"]]


def test_a_predicate_passes_windows_only_on_keys_that_all_are_partitioned_by():
    window = Window(scan("t", "a", "b", "c"), (total("x", "t.c", "t.a", "t.b"), total("y", "t.c", "t.a")))
    both = Call(pa.bool_(), "and", (above("t.a", 1), above("t.b", 2)))
    pushed = predicate_pushdown(Filter(window, both))
    assert isinstance(pushed, Filter)
    assert str(pushed.predicate) == "(t.b > 2)"
    assert pushed.input.input.label == "Scan t [a, b, c] WHERE (t.a > 1)"
    unpartitioned = Window(scan("t", "a"), (total("x", "t.a"),))
    assert predicate_pushdown(Filter(unpartitioned, above("t.a", 1))) == Filter(unpartitioned, above("t.a", 1))


def test_windows_that_nothing_reads_go_and_so_do_their_columns():
    window = Window(scan("t", "a", "b", "c"), (total("x", "t.b"), total("y", "t.c")))
    pruned = column_pruning(Project(window, (NamedExpression("x", col("x")),)))
    (inner,) = pruned.inputs
    assert [call.name for call in inner.calls] == ["x"]
    assert inner.input.label == "Scan t [b]"
    gone = column_pruning(Project(window, (NamedExpression("t.a", col("t.a")),)))
    assert render(gone) == "Project t.a\n  Scan t [a]"


def test_windows_are_named_by_their_text():
    named = canonical_names(Window(scan("t", "a"), (total("x", "t.a", "t.a"),)))
    assert [field.name for field in named.schema] == ["t.a", "sum(t.a) OVER (PARTITION BY t.a)"]
