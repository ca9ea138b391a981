from __future__ import annotations

import importlib.util
import json

import pytest

from hybridq.catalog import Catalog
from hybridq.frontend.sql import export_substrait, plan_sql
from hybridq.frontend.substrait import load_substrait, plan_substrait
from hybridq.plan.nodes import walk
from hybridq.plan.rules import optimize
from hybridq.shipped import plans_folder

QUERIES = {number: (plans_folder() / "tpch" / f"q{number:02}.sql").read_text() for number in range(1, 23)}


@pytest.mark.parametrize("number", QUERIES)
def test_each_query_is_planned(number, tables):
    plan = plan_sql(QUERIES[number], tables)
    assert len(plan.names) == len(plan.root.schema)
    assert len(plan.subqueries) == (number in (11, 15, 22))
    for root in (plan.root, *plan.subqueries):
        for node in walk(root):
            names = [field.name for field in node.schema]
            assert len(set(names)) == len(names)


def test_not_in_of_query_16_minds_nulls(tables):
    plan = plan_sql(QUERIES[16], tables)
    assert "NULL-AWARE" in str(plan)


def shipped_query(name):
    path = plans_folder() / "tpch" / f"{name}.py"
    specification = importlib.util.spec_from_file_location(f"shipped_{name}", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.query()


@pytest.fixture(scope="module")
def catalog(tpch_folder):
    catalog = Catalog()
    catalog.register_folder(tpch_folder)
    return catalog


@pytest.mark.parametrize("name", ["q01", "q03"])
def test_sql_substrait_and_builder_give_the_same_plan(name, catalog):
    tables = catalog.schemas()
    folder = plans_folder() / "tpch"
    from_sql = plan_sql((folder / f"{name}.sql").read_text(), tables)
    from_substrait = plan_substrait(load_substrait(folder / f"{name}.json"), tables)
    from_builder = shipped_query(name).to_plan(tables)
    expected = optimize(from_sql, catalog.table)
    assert optimize(from_substrait, catalog.table) == expected
    assert optimize(from_builder, catalog.table) == expected


@pytest.mark.parametrize("name", ["q01", "q03"])
def test_shipped_substrait_is_what_the_sql_exports(name, catalog):
    folder = plans_folder() / "tpch"
    shipped = json.loads((folder / f"{name}.json").read_text())
    exported = json.loads(export_substrait((folder / f"{name}.sql").read_text(), catalog.schemas()))
    for plan in (shipped, exported):
        plan.pop("version")
    assert shipped == exported
