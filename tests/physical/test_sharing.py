"""Stages that compute the same run once, whatever their columns are called."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from hybridq.catalog import Catalog
from hybridq.config import Config
from hybridq.frontend.sql import plan_sql
from hybridq.physical.pipeline import StageSource
from hybridq.physical.stages import PhysicalPlan, plan_stages
from hybridq.plan.rules import optimize
from hybridq.session import Session
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.tpch import query_text

FACTS = pa.table({"k": [1, 1, 2, 2, 3, None], "v": [1, 2, 3, 4, 5, 6], "x": [0.5, 1.5, -2.5, 3.0, 0.0, 9.0]})
NAMES = pa.table({"id": [1, 2, 3, 4], "name": ["one", "two", "three", "four"]})


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with connect_in_process(chunk_units=1) as session:
        session.register("facts", FACTS)
        session.register("names", NAMES)
        yield session


def physical(sql: str, catalog: Catalog) -> PhysicalPlan:
    return plan_stages(optimize(plan_sql(sql, catalog.schemas()), catalog.table), catalog, Config())


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    catalog = Catalog()
    catalog.register("facts", FACTS)
    catalog.register("names", NAMES)
    return catalog


def scans(plan: PhysicalPlan) -> list[str]:
    return [stage.pipeline.source.table for stage in plan.stages if not isinstance(stage.pipeline.source, StageSource)]


TWICE = ["facts", "facts"]
TOTALS = "with t as (select k, sum(v) as total from facts group by k) "


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        (TOTALS + "select a.k, a.total, b.total from t a join t b on a.k = b.k + 1", ["facts"]),
        (TOTALS + "select k from t where total = (select max(total) from t)", ["facts"]),
        (
            TOTALS + "select id, (select min(total) from t) as a, (select min(total) from t) as b from names",
            ["facts", "names"],
        ),
        # Something else is computed: a filter, a function, a constant, a direction.
        ("select a.s, b.s from (select sum(v) s from facts where v > 1) a, (select sum(v) s from facts) b", TWICE),
        ("select a.s, b.s from (select min(v) s from facts) a, (select max(v) s from facts) b", TWICE),
        ("select a.s, b.s from (select sum(x + 0.5) s from facts) a, (select sum(x - 0.5) s from facts) b", TWICE),
        (
            "select a.v, b.v from (select v from facts order by v limit 1) a, "
            "(select v from facts order by v desc limit 1) b",
            TWICE,
        ),
    ],
)  # fmt: skip
def test_equal_stages_run_once(session: Session, catalog: Catalog, sql: str, read: list[str]) -> None:
    assert scans(physical(sql, catalog)) == read
    with duckdb.connect() as connection:
        connection.register("facts", FACTS)
        connection.register("names", NAMES)
        expected = connection.sql(sql).to_arrow_table()
    answer = session.sql(sql).collect(mode="cpu").to_arrow()
    assert_same_answer(answer, expected.cast(pa.schema(zip(expected.column_names, answer.schema.types, strict=True))))


def test_a_shared_build_side_has_both_names(session: Session) -> None:
    sql = """
        select facts.v, a.name as first, b.name as second from facts
        join (select id, name from names where id < 3) a on facts.k = a.id
        join (select id, name from names where id < 3) b on facts.v = b.id
    """
    rows = session.sql(sql).collect(mode="cpu").to_arrow().to_pydict()
    assert sorted(zip(*rows.values(), strict=True)) == [(1, "one", "one"), (2, "one", "two")]


def test_the_expression_of_q15_is_computed_once(tpch_folder: Path) -> None:
    catalog = Catalog()
    catalog.register_folder(tpch_folder)
    plan = physical(query_text(15), catalog)
    assert scans(plan) == ["lineitem", "supplier"]
    assert [stage.id for stage in plan.stages] == list(range(len(plan.stages)))
