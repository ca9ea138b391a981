from __future__ import annotations

import datafusion
import pyarrow as pa
import pytest

from hybridq.catalog import Catalog
from hybridq.frontend import sql
from hybridq.frontend.sql_guards import rules_to_leave_out
from hybridq.shipped import find_plan, plan_names


def left_out(text):
    context = datafusion.SessionContext(datafusion.SessionConfig(sql._SETTINGS))
    schema = pa.schema([("x", pa.int64()), ("s", pa.string())])
    context.register_record_batches("t", [[pa.RecordBatch.from_pylist([], schema=schema)]])
    frame = context.sql(text)
    return rules_to_leave_out(frame.logical_plan().display_indent(), frame.optimized_logical_plan().display_indent())


@pytest.mark.parametrize(
    "condition",
    ["x not in (1, 2) or x not in (3, 4)", "x in (1, NULL) and x in (2, 3)", "not (x in (1, 2) and x in (3, 4))",
     "s not in ('a', 'b') or x in (1, 2)"],
)  # fmt: skip
def test_lists_that_would_be_joined(condition):
    assert left_out(f"select x from t where {condition}") == ("simplify_expressions",)


@pytest.mark.parametrize(
    "condition",
    ["x not in (1, 2)", "x in (1, NULL)", "x in (1, 2) or x in (3, 4)", "x in (1, 2) and s in ('NULL', 'a NOT b')",
     "x in (1, 2) and s not like 'a%' and s in ('a', 'b') and s is not null", "not x = 1"],
)  # fmt: skip
def test_lists_that_are_safe(condition):
    assert left_out(f"select x from t where {condition}") == ()


@pytest.mark.parametrize(
    "text",
    ["select sum(x) from t having NULL and count(*) > 1", "select sum(x) from t having (select max(x) from t) > 1",
     "select x, sum(x) from t group by cube (x) having NULL and x is null",
     "select y from (select sum(x) as y from t) d where (select max(x) from t) > 1"],
)  # fmt: skip
def test_conditions_that_would_fall_through_an_aggregate(text):
    assert left_out(text) == ("push_down_filter",)


@pytest.mark.parametrize(
    "text",
    ["select sum(x) from t having sum(x) > 1", "select sum(x) from t where x > 1 having count(*) > 0",
     "select x, sum(x) from t group by x having (select max(x) from t) > 1"],
)  # fmt: skip
def test_conditions_that_are_safe(text):
    assert left_out(text) == ()


@pytest.mark.parametrize("name", [name for name in plan_names() if name.startswith("tpch/")])
def test_no_benchmark_query_loses_a_rule(name, tpch_folder, monkeypatch):
    found = []

    def noted(*plans):
        found.append(rules_to_leave_out(*plans))
        return found[-1]

    monkeypatch.setattr(sql, "rules_to_leave_out", noted)
    catalog = Catalog()
    catalog.register_folder(tpch_folder)
    sql.plan_sql(find_plan(name).read_text(), catalog.schemas())
    assert found == [()]
