"""Optimised plans have the rows of the plans they were made from."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_generator import TABLES, Generator
from plan_interpreter import PlanError, Row, check, run

from hybridq.catalog import Catalog
from hybridq.plan.nodes import Limit, Node, Plan, Project, Sort, TopK
from hybridq.plan.rules import optimize


def as_tuples(rows: list[Row], node: Node) -> list[tuple[Any, ...]]:
    return [tuple(row[item.name] for item in node.schema) for row in rows]


def is_ordered(node: Node) -> bool:
    while isinstance(node, Project | Limit):
        node = node.input
    return isinstance(node, Sort | TopK)


def compare(root: Node, tables: dict[str, pa.Table]) -> None:
    """Check that optimize() gives an equivalent plan that it would not change again."""
    check(root)
    catalog = Catalog()
    for name, table in tables.items():
        catalog.register(name, table)
    names = tuple(str(i) for i in range(len(root.schema)))
    plan = optimize(Plan(root, names), catalog.table)
    check(plan.root)
    assert plan.names == names
    assert [item.type for item in plan.root.schema] == [item.type for item in root.schema]
    assert optimize(plan, catalog.table) == plan

    rows = {name: table.to_pylist() for name, table in tables.items()}
    try:
        expected = as_tuples(run(root, rows), root)
    except PlanError:
        # Which rows an expression that fails sees is free, so the optimised plan may do better.
        return
    actual = as_tuples(run(plan.root, rows), plan.root)
    if is_ordered(root):
        assert actual == expected
    else:
        assert Counter(actual) == Counter(expected)


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), depth=st.integers(2, 5))
def test_random_plans_keep_their_rows(seed: int, depth: int) -> None:
    generator = Generator(Random(seed))
    tables = {name: generator.table(name) for name in TABLES}
    compare(generator.plan(depth), tables)
