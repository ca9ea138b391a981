"""Joins are ordered by size, and built from their smaller sides."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from plan_building import FakeTable, column, estimator, join, number, project, scan, statistics, test_of

from hybridq.catalog import Catalog
from hybridq.frontend.sql import plan_sql
from hybridq.plan.expressions import Call, NamedExpression
from hybridq.plan.nodes import Aggregate, Filter, Join, Node, Plan, Scan, ScanColumn, render, walk
from hybridq.plan.rules import join_order, optimize

STAR = {
    "fact": FakeTable(100_000, {"a": 100.0, "b": 1000.0, "c": 10.0}),
    "one": FakeTable(100),
    "two": FakeTable(1000, {"b": 10.0}),
    "six": FakeTable(10),
}


def tables(node: Node) -> list[str]:
    return [part.table for part in walk(node) if isinstance(part, Scan)]


def shape(node: Node) -> Any:
    """Return the order of joins: nested (probe, build) pairs of table names."""
    if isinstance(node, Join):
        return shape(node.left), shape(node.right)
    if isinstance(node, Scan):
        return node.table
    (child,) = node.inputs
    return shape(child)


def test_smaller_side_is_built() -> None:
    estimate = estimator(**STAR)
    assert shape(join_order(join(scan("one"), scan("fact", "a"), "one.a", "fact.a"), estimate)) == ("fact", "one")
    given = join(scan("fact", "a"), scan("one"), "fact.a", "one.a")
    assert join_order(given, estimate) == given


def test_columns_keep_their_order() -> None:
    given = join(scan("one"), scan("fact", "a"), "one.a", "fact.a")
    assert join_order(given, estimator(**STAR)).schema == given.schema


def test_other_joins_keep_their_sides() -> None:
    for kind in ("left", "semi", "anti", "full"):
        given = join(scan("one"), scan("fact", "a"), "one.a", "fact.a", kind)  # type: ignore[arg-type]
        assert join_order(given, estimator(**STAR)) is given


def test_filtered_dimension_comes_first() -> None:
    fact = scan("fact", "ab")
    few = scan("two", "ab", test_of("equal", column("two.b"), number(3)))
    given = join(join(few, fact, "two.a", "fact.b"), scan("one", "a"), "fact.a", "one.a")
    assert shape(join_order(given, estimator(**STAR))) == (("fact", "two"), "one")


def test_conditions_are_checked_as_soon_as_they_can_be() -> None:
    fact, one, two = scan("fact", "ab"), scan("one", "a"), scan("two", "ab")
    sum_is = test_of("less", Call(column("x").type, "add", (column("one.a"), column("two.b"))), column("fact.a"))
    cross = Join(Join(one, two, "inner", (), ()), fact, "inner", (), ())
    predicate = test_of(
        "and",
        test_of("equal", column("one.a"), column("fact.a")),
        test_of("equal", column("fact.b"), column("two.a")),
        sum_is,
        test_of("less", column("two.b"), number(3)),
        test_of("equal", number(1), number(2)),
    )
    result = join_order(Filter(cross, predicate), estimator(**STAR))
    assert shape(result) == shape(join_order(result, estimator(**STAR)))
    labels = [node.label for node in walk(result)]
    assert "Filter (1 = 2)" in labels
    assert "Filter (two.b < 3)" in labels
    assert sum("AND ((one.a + two.b) < fact.a)" in label for label in labels) == 1
    assert not any("TRUE" in label for label in labels), "nothing is cross joined"


def test_what_nothing_connects_is_cross_joined_last() -> None:
    given = Join(join(scan("six", "a"), scan("two", "ab"), "six.a", "two.a"), scan("one", "a"), "inner", (), ())
    cross = Join(Join(scan("six", "a"), scan("one", "a"), "inner", (), ()), scan("two", "ab"), "inner", (), ())
    connected = Filter(cross, test_of("equal", column("six.a"), column("two.a")))
    assert shape(join_order(connected, estimator(**STAR))) == ("one", ("two", "six"))
    assert set(tables(join_order(given, estimator(**STAR)))) == {"one", "two", "six"}


def test_projects_and_aggregates_are_relations() -> None:
    grouped = Aggregate(
        join(scan("one"), scan("fact", "a"), "one.a", "fact.a"), (NamedExpression("g", column("one.b")),), ()
    )
    computed = project(scan("two"), x=Call(column("x").type, "add", (column("two.a"), number(1))))
    result = join_order(join(computed, grouped, "x", "g"), estimator(**STAR))
    assert shape(result) == ("two", ("fact", "one"))


@pytest.mark.parametrize("count", [8, 10, 14])
def test_long_chains_and_cliques_are_planned_quickly(count: int) -> None:
    sizes = [(7 * i) % 11 + 1 for i in range(count)]
    known = {f"t{i}": FakeTable(1000 * size) for i, size in enumerate(sizes)}
    chain: Node = scan("t0")
    predicates = []
    for i in range(1, count):
        chain = join(chain, scan(f"t{i}"), f"t{i - 1}.b", f"t{i}.a")
        predicates += [test_of("equal", column(f"t{j}.a"), column(f"t{i}.a")) for j in range(i)]
    start = time.thread_time()
    result = join_order(chain, estimator(**known))
    assert sorted(tables(result)) == sorted(known)
    clique = join_order(Filter(chain, test_of("and", *predicates)), estimator(**known))
    assert sorted(tables(clique)) == sorted(known)
    assert time.thread_time() - start < 5


def test_every_order_of_the_text_gives_the_same_plan() -> None:
    edges = {("fact", "one"): "a", ("fact", "two"): "b", ("fact", "six"): "c"}
    filters = [test_of("equal", column(f"{name}.b"), number(3)) for name in ("one", "two")]
    orders = [("fact", "one", "two", "six"), ("six", "two", "one", "fact"), ("one", "fact", "six", "two")]
    plans = set()
    for order in orders:
        node: Node = scan(order[0], "abc")
        for name in order[1:]:
            node = Join(node, scan(name, "abc"), "inner", (), ())
        equalities = [test_of("equal", column(f"{f}.{k}"), column(f"{d}.a")) for (f, d), k in edges.items()]
        predicate = test_of("and", *filters, *equalities)
        items = {"x": column("fact.a")}
        plan = optimize(Plan(project(Filter(node, predicate), **items), ("x",)), statistics(**STAR))
        plans.add(render(plan.root))
    assert len(plans) == 1


Q3 = """
select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, o_shippriority
from customer, orders, lineitem
where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
  and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
group by l_orderkey, o_orderdate, o_shippriority order by revenue desc, o_orderdate limit 10
"""
Q14 = """
select 100.00 * sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount) else 0 end)
  / sum(l_extendedprice * (1 - l_discount)) as promo_revenue
from lineitem, part
where l_partkey = p_partkey and l_shipdate >= date '1995-09-01' and l_shipdate < date '1995-10-01'
"""
Q5 = """
select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
from customer, orders, lineitem, supplier, nation, region
where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey and c_nationkey = s_nationkey
  and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'ASIA'
  and o_orderdate >= date '1994-01-01' and o_orderdate < date '1995-01-01'
group by n_name order by revenue desc
"""


@pytest.fixture(scope="module")
def tpch(tpch_folder: Path) -> Catalog:
    catalog = Catalog()
    catalog.register_folder(tpch_folder)
    return catalog


def planned(text: str, catalog: Catalog) -> Plan:
    plan = plan_sql(text, catalog.schemas())
    result = optimize(plan, catalog.table)
    assert result.names == plan.names
    assert [item.type for item in result.root.schema] == [item.type for item in plan.root.schema]
    assert optimize(result, catalog.table) == result
    return result


def test_lineitem_probes_orders_of_customers(tpch: Catalog) -> None:
    plan = planned(Q3, tpch)
    assert shape(plan.root) == ("lineitem", ("orders", "customer"))
    labels = [node.label for node in walk(plan.root)]
    assert labels[1].startswith("TopK 10 OFFSET 0 BY sum(")
    assert not any(label.startswith(("Filter", "Sort", "Limit")) for label in labels)


def test_lineitem_probes_part(tpch: Catalog) -> None:
    assert shape(planned(Q14, tpch).root) == ("lineitem", "part")


def test_nation_and_region_come_before_supplier(tpch: Catalog) -> None:
    plan = planned(Q5, tpch)
    assert tables(plan.root)[0] == "lineitem"
    inner = [shape(node) for node in walk(plan.root) if isinstance(node, Join)]
    assert ("nation", "region") in inner
    assert ("supplier", ("nation", "region")) in inner


@pytest.mark.parametrize(("length", "order"), [(20, ("narrow", "wide")), (400, ("wide", "narrow"))])
def test_many_wide_rows_are_probed_from(length: int, order: Any) -> None:
    """What is built from goes to every worker: rather more narrow rows than a few wide ones."""
    wide = FakeTable(1_000_000, {"a": 1_000_000.0}, {"b": ("a" * length, "b" * length)})
    narrow = FakeTable(2_000_000, {"a": 1_000_000.0})
    columns = (ScanColumn("wide.a", "a", pa.int64()), ScanColumn("wide.b", "b", pa.string()))
    given = join(scan("narrow", "a"), Scan("wide", columns), "narrow.a", "wide.a")
    assert shape(join_order(given, estimator(wide=wide, narrow=narrow))) == order
