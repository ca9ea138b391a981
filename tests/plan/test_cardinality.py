"""Estimates of rows, distinct values and bytes."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_building import BOOLEAN, INTEGER, TEXT, FakeTable, column, estimator, join, number, project, scan, test_of
from plan_generator import TABLES, Generator

from hybridq.catalog import Catalog
from hybridq.plan.cardinality import Estimator
from hybridq.plan.expressions import AggregateCall, Call, Cast, Expression, In, Literal, NamedExpression
from hybridq.plan.nodes import Aggregate, Filter, Join, Limit, Scan, ScanColumn, Sort, TopK, Values, walk

T = FakeTable(1000, {"a": 50.0, "b": 1000.0}, {"a": (1, 50), "b": (0, 9999)})
A, B = column("t.a"), column("t.b")


def rows_where(predicate: Expression, table: FakeTable = T) -> float:
    return estimator(t=table).rows(Filter(scan("t"), predicate))


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        (test_of("equal", A, number(7)), 20),
        (test_of("equal", number(7), A), 20),
        (test_of("equal", A, number(70)), 1),
        (test_of("not_equal", A, number(7)), 980),
        (test_of("less", B, number(1000)), 100),
        (test_of("greater_equal", B, number(1000)), 900),
        (test_of("greater", number(1000), B), 100),
        (test_of("and", test_of("greater_equal", B, number(1000)), test_of("less", B, number(2000))), 100),
        (test_of("and", test_of("less", B, number(1000)), test_of("equal", A, number(7))), 2),
        (test_of("or", test_of("less", B, number(1000)), test_of("equal", A, number(7))), 118),
        (test_of("less", B, number(-5)), 1),
        (test_of("less", B, number(100_000)), 1000),
        (test_of("not", test_of("less", B, number(1000))), 900),
        (In(BOOLEAN, A, (number(1), number(2), number(None), number(99))), 40),
        (test_of("equal", A, B), 1),
        (test_of("less", A, B), 500),
        (test_of("is_null", A), 1),
        (test_of("is_not_null", A), 1000),
        (test_of("less", Cast(pa.float64(), B), Literal(pa.float64(), 1000.0)), 100),
        (Literal(BOOLEAN, False), 1),
        (Literal(BOOLEAN, None), 1),
        (Literal(BOOLEAN, True), 1000),
    ],
    ids=str,
)
def test_filters(predicate: Expression, rows: float) -> None:
    assert rows_where(predicate) == pytest.approx(rows)
    assert estimator(t=T).rows(Scan("t", scan("t").columns, predicate)) == pytest.approx(rows)


@pytest.mark.parametrize(
    ("data_type", "low", "high", "middle"),
    [
        (pa.decimal128(15, 2), Decimal("0.00"), Decimal("9.99"), Decimal("5.00")),
        (pa.date32(), datetime.date(2000, 1, 1), datetime.date(2019, 12, 31), datetime.date(2010, 1, 1)),
        (
            pa.timestamp("us"),
            datetime.datetime(2000, 1, 1),
            datetime.datetime(2020, 1, 1),
            datetime.datetime(2010, 1, 1),
        ),
        (pa.float64(), -1.0, 1.0, 0.0),
        (TEXT, "item 0", "item 9", "item 4~"),
    ],
    ids=str,
)
def test_ranges_of_every_type(data_type: pa.DataType, low: Any, high: Any, middle: Any) -> None:
    table = FakeTable(1000, {"x": 500.0}, {"x": (low, high)})
    node = Scan("t", (ScanColumn("t.x", "x", data_type),))
    below = test_of("less", column("t.x", data_type), Literal(data_type, middle))
    assert estimator(t=table).rows(Filter(node, below)) == pytest.approx(500, rel=0.12)
    unknown = FakeTable(1000)
    assert 1 <= estimator(t=unknown).rows(Filter(node, below)) <= 1000


def test_texts() -> None:
    table = FakeTable(1000, {"x": 10.0}, {"x": ("a", "m")})
    node = Scan("t", (ScanColumn("t.x", "x", TEXT),))
    text = column("t.x", TEXT)

    def rows(pattern: str) -> float:
        return estimator(t=table).rows(Filter(node, test_of("like", text, Literal(TEXT, pattern))))

    assert rows("%x%") == pytest.approx(100)
    assert rows("b%") == pytest.approx(100)
    assert rows("z%") == 1
    assert rows("b") == pytest.approx(100)
    assert rows("%") == 1000


def test_values_that_do_not_compare_with_the_bounds() -> None:
    assert 1 <= rows_where(test_of("less", A, Literal(TEXT, "x"))) <= 1000
    assert 1 <= rows_where(test_of("equal", A, Literal(TEXT, "x"))) <= 1000
    infinite = FakeTable(1000, {}, {"a": (-math.inf, math.inf)})
    assert 1 <= rows_where(test_of("less", A, number(3)), infinite) <= 1000


def test_foreign_key_join_has_the_rows_of_its_referring_side() -> None:
    orders = FakeTable(100, {"k": 100.0}, {"k": (1, 400)})
    items = FakeTable(1000, {"k": 100.0, "v": 1000.0}, {"k": (1, 400), "v": (0, 999)})
    estimate = estimator(orders=orders, items=items)
    both = join(scan("items", "kv"), scan("orders", "k"), "items.k", "orders.k")
    assert estimate.rows(both) == pytest.approx(1000)
    few = Filter(scan("items", "kv"), test_of("less", column("items.v"), number(10)))
    assert estimate.rows(join(few, scan("orders", "k"), "items.k", "orders.k")) == pytest.approx(10)
    half = Filter(scan("orders", "k"), test_of("less", column("orders.k"), number(201)))
    assert estimate.rows(join(scan("items", "kv"), half, "items.k", "orders.k")) == pytest.approx(500)
    assert estimate.rows(join(half, scan("items", "kv"), "orders.k", "items.k", "left")) == pytest.approx(500)
    assert estimate.rows(join(scan("items", "kv"), half, "items.k", "orders.k", "left")) == pytest.approx(1000)
    assert estimate.rows(join(scan("items", "kv"), half, "items.k", "orders.k", "semi")) == pytest.approx(500)
    assert estimate.rows(join(scan("items", "kv"), half, "items.k", "orders.k", "anti")) == pytest.approx(500)
    assert estimate.rows(Join(few, half, "inner", (), ())) == pytest.approx(500)


def test_keys_of_several_columns_have_no_more_values_than_rows() -> None:
    stock = FakeTable(800, {"p": 200.0, "s": 100.0})
    items = FakeTable(6000, {"p": 200.0, "s": 100.0})
    keys = ((column("items.p"), column("items.s")), (column("stock.p"), column("stock.s")))
    node = Join(scan("items", "ps"), scan("stock", "ps"), "inner", *keys)
    assert estimator(stock=stock, items=items).rows(node) == pytest.approx(6000)


def test_groups() -> None:
    def grouped(*items: Expression) -> float:
        groups = tuple(NamedExpression(str(i), item) for i, item in enumerate(items))
        return estimator(t=T).rows(Aggregate(scan("t"), groups, ()))

    assert grouped() == 1
    assert grouped(A) == pytest.approx(50)
    assert grouped(A, B) == 1000
    year = FakeTable(1000, {"a": 900.0}, {"a": (datetime.date(1992, 1, 1), datetime.date(1998, 12, 31))})
    node = Scan("t", (ScanColumn("t.a", "a", pa.date32()),))
    extract = Call(pa.int32(), "extract", (column("t.a", pa.date32()),), ("year",))
    by_year = Aggregate(node, (NamedExpression("y", extract),), ())
    assert estimator(t=year).rows(by_year) == 7


def test_other_nodes() -> None:
    estimate = estimator(t=T)
    ordered = Sort(scan("t"), ())
    assert estimate.rows(ordered) == 1000
    assert estimate.rows(Limit(ordered, 10, 5)) == 5
    assert estimate.rows(Limit(ordered, 990, None)) == 10
    assert estimate.rows(Limit(ordered, 2000, 5)) == 1
    assert estimate.rows(TopK(ordered, (), 998, 5)) == 2
    assert estimate.rows(project(scan("t"), x=A)) == 1000
    assert estimate.rows(Values(pa.table({"x": [1, 2, 3]}))) == 3


def test_distinct_values_fall_with_rows() -> None:
    estimate = estimator(t=T)
    node = Filter(scan("t"), test_of("less", B, number(1000)))
    assert estimate.distinct(scan("t"), "t.a") == 50
    assert 40 < estimate.distinct(node, "t.a") < 50
    assert estimate.distinct(node, "t.b") == pytest.approx(100, rel=0.01)
    assert estimate.distinct(Filter(scan("t"), test_of("equal", A, number(7))), "t.a") == 1
    assert estimate.distinct(project(scan("t"), x=A), "x") == 50


def test_bytes_follow_types() -> None:
    types = {"i": pa.int64(), "n": pa.decimal128(15, 2), "d": pa.date32(), "s": TEXT}
    node = Scan("t", tuple(ScanColumn(f"t.{name}", name, data_type) for name, data_type in types.items()))
    table = FakeTable(1000, {}, {"s": ("ab", "abcdef")})
    assert estimator(t=table).bytes(node) == pytest.approx(1000 * (8 + 16 + 4 + 8))
    assert estimator(t=table).bytes(Scan("t", ())) > 0


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_estimates_are_finite_and_positive(seed: int) -> None:
    generator = Generator(Random(seed))
    catalog = Catalog()
    for name in TABLES:
        catalog.register(name, generator.table(name))
    estimate = Estimator(catalog.table)
    for node in walk(generator.plan(5)):
        assert 1 <= estimate.rows(node) <= 1e18
        assert math.isfinite(estimate.bytes(node))
        for item in node.schema:
            assert 1 <= estimate.distinct(node, item.name) <= max(estimate.rows(node), 1)


def test_huge_joins_stay_finite() -> None:
    node: Any = scan("t0", "a")
    tables = {f"t{i}": FakeTable(10**12) for i in range(30)}
    for i in range(1, 30):
        node = Join(node, scan(f"t{i}", "a"), "inner", (), ())
    assert math.isfinite(estimator(**tables).rows(node))


def test_estimates_on_tpch(tpch_folder: Path) -> None:
    catalog = Catalog()
    catalog.register_folder(tpch_folder)
    estimate = Estimator(catalog.table)

    def table(name: str, *sources: str) -> Scan:
        types = {item.name: item.type for item in catalog.table(name).schema}
        return Scan(name, tuple(ScanColumn(f"{name}.{source}", source, types[source]) for source in sources))

    shipped = column("lineitem.l_shipdate", pa.date32())
    late = test_of("greater", shipped, Literal(pa.date32(), datetime.date(1995, 3, 15)))
    lineitem = Filter(table("lineitem", "l_orderkey", "l_shipdate"), late)
    assert estimate.rows(lineitem) == pytest.approx(32_000, rel=0.1)
    orders = table("orders", "o_orderkey")
    assert estimate.rows(join(lineitem, orders, "lineitem.l_orderkey", "orders.o_orderkey")) == pytest.approx(
        32_000, rel=0.3
    )
    by_flag = Aggregate(
        table("lineitem", "l_returnflag", "l_linestatus"),
        (
            NamedExpression("f", column("lineitem.l_returnflag", TEXT)),
            NamedExpression("s", column("lineitem.l_linestatus", TEXT)),
        ),
        (AggregateCall("n", "count", None, INTEGER),),
    )
    assert 2 <= estimate.rows(by_flag) <= 12
