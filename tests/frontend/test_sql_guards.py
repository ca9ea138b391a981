from __future__ import annotations

import datafusion
import pyarrow as pa
import pytest

from hybridq.catalog import Catalog
from hybridq.frontend import sql
from hybridq.frontend.sql_guards import (
    has_constant_conditions_beside_aggregates,
    moves_conditions_below_aggregates,
)
from hybridq.shipped import find_plan, plan_names


def is_guarded(text):
    context = datafusion.SessionContext(datafusion.SessionConfig(sql._SETTINGS))
    context.remove_optimizer_rule("simplify_expressions")
    schema = pa.schema([("x", pa.int64()), ("s", pa.string())])
    context.register_record_batches("t", [[pa.RecordBatch.from_pylist([], schema=schema)]])
    return moves_conditions_below_aggregates(context.sql(text).optimized_logical_plan().display_indent())


@pytest.mark.parametrize(
    "text",
    ["select sum(x) from t having NULL and count(*) > 1", "select sum(x) from t having 1 = 2",
     "select sum(a.x) from t a left join t b on a.x = b.x having 'a' not like '_'",
     "select sum(x) from t having 1 between 2 and 3 and count(*) > 0",
     "select sum(x) from t having (select max(x) from t) > 1",
     "select x, sum(x) from t group by cube (x) having NULL and x is null",
     "select y from (select sum(x) as y from t) d where (select max(x) from t) > 1"],
)  # fmt: skip
def test_conditions_that_would_fall_through_an_aggregate(text):
    assert is_guarded(text)


@pytest.mark.parametrize(
    "text",
    ["select sum(x) from t having sum(x) > 1", "select sum(x) from t where x between 1 and 2 and s = 'a AND b'",
     "select sum(x) from t where x > 1 having count(*) > 0",
     "select x, sum(x) from t group by x having (select max(x) from t) > 1"],
)  # fmt: skip
def test_conditions_that_are_safe(text):
    assert not is_guarded(text)


@pytest.mark.parametrize("name", [name for name in plan_names() if name.startswith("tpch/")])
def test_no_benchmark_query_loses_a_rule(name, tpch_folder, monkeypatch):
    found = []

    def noted(*plans):
        found.append(moves_conditions_below_aggregates(*plans))
        return found[-1]

    def noted_too(*plans):
        found.append(has_constant_conditions_beside_aggregates(*plans))
        return found[-1]

    monkeypatch.setattr(sql, "moves_conditions_below_aggregates", noted)
    monkeypatch.setattr(sql, "has_constant_conditions_beside_aggregates", noted_too)
    catalog = Catalog()
    catalog.register_folder(tpch_folder)
    sql.plan_sql(find_plan(name).read_text(), catalog.schemas())
    assert found == [False, False]
