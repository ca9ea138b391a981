"""Which aggregates are computed only for the groups that a join asks for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from hybridq.catalog import Catalog
from hybridq.frontend.sql import plan_sql
from hybridq.plan.nodes import Aggregate, Join, walk
from hybridq.plan.rules import optimize
from hybridq.testing.tpch import query_text


def reduced(sql: str, catalog: Catalog) -> list[str]:
    """Return the tables that the input of some aggregate is semi joined with."""
    plan = optimize(plan_sql(sql, catalog.schemas()), catalog.table)
    assert optimize(plan, catalog.table) == plan
    found = []
    for node in walk(plan.root):
        if isinstance(node, Aggregate):
            joins = [part for part in walk(node.input) if isinstance(part, Join) and part.kind == "semi"]
            found += [str(join.right_keys[0]).partition(".")[0].partition("#")[0] for join in joins]
    return found


@pytest.fixture(scope="module")
def tpch_catalog(tpch_folder: Path) -> Catalog:
    catalog = Catalog()
    catalog.register_folder(tpch_folder)
    return catalog


@pytest.mark.parametrize(("number", "tables"), [(2, ["part"]), (20, ["part"])])
def test_the_subquery_is_computed_for_the_parts_that_are_asked_for(
    tpch_catalog: Catalog, number: int, tables: list[str]
) -> None:
    assert reduced(query_text(number), tpch_catalog) == tables


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    catalog = Catalog()
    catalog.register("many", pa.table({"k": list(range(1000)) * 20, "v": [1] * 20_000}))
    catalog.register("few", pa.table({"k": range(100), "c": [number % 50 for number in range(100)]}))
    return catalog


TOTALS = "(select k as g, sum(v) as total from many group by k) as t"


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        (f"select total from few join {TOTALS} on k = g where c = 1", ["few"]),
        (f"select total from few left join {TOTALS} on k = g where c = 1", ["few"]),
        (f"select k from few where c = 1 and not exists (select 1 from {TOTALS} where k = g and total > c)", ["few"]),
        # Nothing says that few keys are asked for.
        (f"select total from few join {TOTALS} on k = g", []),
        # All totals come out, or all are looked at.
        (f"select total from few right join {TOTALS} on k = g and c = 1", []),
        (f"select total from few full join {TOTALS} on k = g", []),
        (f"select k from few where c = 1 and k not in (select g from {TOTALS})", []),
        # Not by the group's key.
        (f"select total from few join {TOTALS} on k = total where c = 1", []),
    ],
)
def test_only_where_the_other_groups_do_not_matter(catalog: Catalog, sql: str, tables: list[str]) -> None:
    assert reduced(sql, catalog) == tables
