"""Where semi and anti joins look at rows: before or after these are joined."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from hybridq.catalog import Catalog
from hybridq.frontend.sql import plan_sql
from hybridq.plan.nodes import Join, walk
from hybridq.plan.rules import optimize
from hybridq.testing.tpch import query_text


def above_inner_joins(sql: str, catalog: Catalog) -> bool:
    """Tell whether the only semi or anti join chooses among the rows of an inner join."""
    plan = optimize(plan_sql(sql, catalog.schemas()), catalog.table)
    assert optimize(plan, catalog.table) == plan
    (chooser,) = [node for node in walk(plan.root) if isinstance(node, Join) and node.kind in ("semi", "anti")]
    return any(isinstance(node, Join) and node.kind == "inner" for node in walk(chooser.left))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    catalog = Catalog()
    catalog.register("facts", pa.table({"k": [number % 100 for number in range(10_000)], "v": range(10_000)}))
    catalog.register("dimension", pa.table({"id": range(100), "c": [number % 10 for number in range(100)]}))
    catalog.register("chosen", pa.table({"c": range(5), "k": range(5)}))
    return catalog


@pytest.mark.parametrize(
    ("sql", "above"),
    [
        ("select sum(v) from facts join dimension on k = id where dimension.c in (select c from chosen)", False),
        ("select sum(v) from facts join dimension on k = id where dimension.c not in (select c from chosen)", False),
        (
            "select sum(v) from facts join dimension on k = id where exists "
            "(select 1 from chosen where chosen.c = dimension.c and chosen.k < dimension.id)",
            False,
        ),
        # The join leaves few facts to look at.
        ("select sum(v) from facts join dimension on k = id where id = 3 and v in (select c from chosen)", True),
        # What decides needs both sides.
        (
            "select sum(v) from facts join dimension on k = id where exists "
            "(select 1 from chosen where chosen.c = dimension.c and chosen.k < facts.v)",
            True,
        ),
    ],
)
def test_rows_are_chosen_where_they_are_fewest(catalog: Catalog, sql: str, above: bool) -> None:
    assert above_inner_joins(sql, catalog) == above


def test_q18_chooses_orders_before_it_joins_them(tpch_folder: Path) -> None:
    catalog = Catalog()
    catalog.register_folder(tpch_folder)
    assert not above_inner_joins(query_text(18), catalog)
