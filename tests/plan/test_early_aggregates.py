"""Large build sides are aggregated before they are joined, with the same answers."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from hybridq.frontend.sql import plan_sql
from hybridq.plan.nodes import Aggregate, Join, walk
from hybridq.plan.rules import optimize
from hybridq.session import Session
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process

rule = importlib.import_module("hybridq.plan.rules.early_aggregates")


def tables() -> dict[str, pa.Table]:
    generator = np.random.default_rng(8)
    size = 3000

    def nullable(values: np.ndarray, data_type: pa.DataType) -> pa.Array:
        return pa.array(values, pa.int64(), mask=generator.random(len(values)) < 0.1).cast(data_type)

    many = pa.table({
        "k": nullable(generator.integers(0, 60, size), pa.int32()),
        "j": nullable(generator.integers(0, 3, size), pa.int64()),
        "v": nullable(generator.integers(-50, 50, size), pa.int64()),
        "d": nullable(generator.integers(-50, 50, size), pa.decimal128(21, 2)),
        "x": pa.array(generator.integers(0, 8, size) / 4.0),
    })  # fmt: skip
    few = pa.table({
        "k": pa.array([*range(20, 90), 25, 25, None], pa.int32()), "j": pa.array([0, 1, 2] * 24 + [None], pa.int64()),
        "g": pa.array(["a", "b", None, "ü"] * 18 + ["a"]),
    })  # fmt: skip
    return {"many": many, "few": few}


DATA = tables()

EARLY = [
    "select few.k, count(many.v) as n from few left join many on few.k = many.k group by few.k",
    "select g, count(many.v) as n, count(*) as c, min(v) as low, max(v) as high, sum(d) as s, sum(x) as x"
    " from few left join many on few.k = many.k group by g",
    "select few.k, g, count(*) as n, sum(d) as s from few left join many on few.k = many.k and few.j = many.j"
    " group by few.k, g having count(*) > 10",
    "select g, count(*) as n, sum(d) as s from few join many on few.k = many.k group by g",
    "select many.k, g, count(v) as n from few join many on few.k = many.k group by many.k, g",
    "select n, count(*) as c from (select few.k, count(many.v) as n from few left join many on few.k = many.k"
    " group by few.k) q group by n",
]

LATE = [
    "select g, sum(many.v) as s from few left join many on few.k = many.k group by g",  # may not fit
    "select g, avg(d) as s from few left join many on few.k = many.k group by g",
    "select g, count(distinct v) as n from few left join many on few.k = many.k group by g",
    "select count(v) as n from few left join many on few.k = many.k",
    "select g, v, count(x) as n from few left join many on few.k = many.k group by g, v",
    "select g, count(v) as n from few left join many on few.k = many.k and few.j < many.j group by g",
    "select g, count(7 / (v + 100)) as n from few left join many on few.k = many.k group by g",
    "select g, count(few.j) as n from few left join many on few.k = many.k group by g",
    # What is computed of a row without a partner is not NULL.
    "select g, count(coalesce(v, 1)) as n from few left join many on few.k = many.k group by g",
    "select g, max(case when v is null then 1000 else v end) as m from few left join many on few.k = many.k group by g",
    "select g, sum(case when v is null then 1.5 else 0.5 end) s from few left join many on few.k = many.k group by g",
]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setattr(rule, "LARGE_BYTES", 0.0)
    monkeypatch.setattr(rule, "FEWER_ROWS", 1.0)
    monkeypatch.setattr(rule, "MATCHED", 0.0)
    # The few rows stay the probe side of inner joins, whatever is cheaper, so that the many are built from.
    monkeypatch.setattr(importlib.import_module("hybridq.plan.rules.join_order"), "CLEARLY_CHEAPER", 0.0)
    with connect_in_process(chunk_units=1) as opened:
        for name, table in DATA.items():
            opened.register(name, table)
        yield opened


def aggregates_below_joins(session: Session, sql: str) -> int:
    """Count the aggregates on the right of a join."""
    plan = optimize(plan_sql(sql, session._catalog.schemas()), session._catalog.table)
    assert optimize(plan, session._catalog.table) == plan
    joins = [node for node in walk(plan.root) if isinstance(node, Join)]
    return sum(isinstance(part, Aggregate) for node in joins for part in walk(node.right))


@pytest.mark.parametrize("sql", EARLY)
def test_groups_are_joined_and_the_answer_is_duckdbs(session: Session, sql: str) -> None:
    assert aggregates_below_joins(session, sql) == 1
    with duckdb.connect() as connection:
        for name, table in DATA.items():
            connection.register(name, table)
        expected = connection.sql(sql).to_arrow_table()
    for mode in ("cpu", "gpu"):
        answer = session.sql(sql).collect(mode=mode).to_arrow()
        assert_same_answer(answer, expected.cast(answer.schema))


@pytest.mark.parametrize("sql", LATE)
def test_rows_are_joined_where_groups_would_not_do(session: Session, sql: str) -> None:
    assert aggregates_below_joins(session, sql) == 0


def test_a_small_build_side_is_joined_as_it_is(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "LARGE_BYTES", 1e6)
    assert aggregates_below_joins(session, EARLY[0]) == 0
