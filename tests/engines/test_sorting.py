from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from engine_helpers import DOUBLE, DUCK, LONG, TEXT, call, col, columns, duck, lit, money, ordered, rows, schema_of
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.engines.cpu import CpuEngine
from hybridq.plan.expressions import SortKey

NAN = float("nan")


def top(engine, table, count, *keys):
    found = columns(table)
    frame = engine.top_k(engine.from_arrow(table), [SortKey(found[name], *rest) for name, *rest in keys], count)
    return rows(engine.to_arrow(frame, schema_of(table)))


def test_nulls_go_where_they_are_told(engine):
    table = pa.table({"x": [2, None, 1]})
    assert ordered(engine, table, ("x",)) == [(1,), (2,), (None,)]
    assert ordered(engine, table, ("x", False, True)) == [(None,), (1,), (2,)]
    assert ordered(engine, table, ("x", True, True)) == [(None,), (2,), (1,)]
    assert ordered(engine, table, ("x", True, False)) == [(2,), (1,), (None,)]


def test_nan_is_above_all_numbers(engine):
    table = pa.table({"x": pa.array([1.0, NAN, float("inf"), None, float("-inf"), -0.0], DOUBLE)})
    found = [repr(x) for (x,) in ordered(engine, table, ("x",))]
    assert found == ["-inf", "-0.0", "1.0", "inf", "nan", "None"]
    found = [repr(x) for (x,) in ordered(engine, table, ("x", True, True))]
    assert found == ["None", "nan", "inf", "1.0", "-0.0", "-inf"]


def test_strings_go_by_code_point(engine):
    texts = ["z", "é", "", "a", "Z", "😀", "￿", "aa"]
    table = pa.table({"s": texts})
    assert [s for (s,) in ordered(engine, table, ("s",))] == sorted(texts)
    encoded = pa.table({"s": pa.array(texts).dictionary_encode()})
    assert [s for (s,) in ordered(engine, encoded, ("s", True))] == sorted(texts, reverse=True)


def test_ties_stay_in_order(engine):
    table = pa.table({"x": [1, 0, 1, 0, 1], "i": [0, 1, 2, 3, 4]})
    assert [i for _, i in ordered(engine, table, ("x", True))] == [0, 2, 4, 1, 3]
    assert [i for _, i in top(engine, table, 4, ("x", True))] == [0, 2, 4, 1]


def test_wide_decimals_and_extremes(engine):
    table = pa.table({"x": pa.array([Decimal(10**37), Decimal(-(10**37)), Decimal(1), None], pa.decimal128(38, 0))})
    assert [x for (x,) in ordered(engine, table, ("x", True))] == [
        Decimal(10**37),
        Decimal(1),
        Decimal(-(10**37)),
        None,
    ]
    longs = pa.table({"x": [2**63 - 1, -(2**63), 0, None]})
    assert [x for (x,) in ordered(engine, longs, ("x", True, True))] == [None, 2**63 - 1, 0, -(2**63)]
    unsigned = pa.table({"x": pa.array([2**64 - 1, 0, 2**63], pa.uint64())})
    assert [x for (x,) in ordered(engine, unsigned, ("x",))] == [0, 2**63, 2**64 - 1]


def test_order_by_an_expression(engine):
    table = pa.table({"x": [1, -3, 2]})
    key = SortKey(call("abs", col("x"), returns=LONG), True)
    frame = engine.sort(engine.from_arrow(table), [key])
    assert rows(engine.to_arrow(frame, schema_of(table))) == [(-3,), (2,), (1,)]


def test_edges_of_top_k(engine):
    table = pa.table({"x": [3, 1, 2]})
    assert top(engine, table, 0, ("x",)) == []
    assert top(engine, table, 2, ("x",)) == [(1,), (2,)]
    assert top(engine, table, 10, ("x",)) == [(1,), (2,), (3,)]
    assert top(engine, table.slice(0, 0), 2, ("x",)) == []
    assert top(engine, table, 2) == [(3,), (1,)]


def test_sort_of_a_filtered_frame(engine):
    table = pa.table({"x": [3, 1, 2, 5]})
    frame = engine.filter(engine.from_arrow(table), call("less", col("x"), lit(5)))
    keys = [SortKey(col("x"))]
    assert rows(engine.to_arrow(engine.sort(frame, keys), schema_of(table))) == [(1,), (2,), (3,)]
    assert rows(engine.to_arrow(engine.top_k(frame, keys, 1), schema_of(table))) == [(1,)]
    assert rows(engine.to_arrow(engine.slice(frame, 1, 1), schema_of(table))) == [(1,)]
    assert rows(engine.to_arrow(engine.slice(frame, 2, None), schema_of(table))) == [(2,)]
    assert rows(engine.to_arrow(engine.slice(frame, 7, 2), schema_of(table))) == []


VALUES = {
    "i": (LONG, st.none() | st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63)])),
    "s": (TEXT, st.none() | st.sampled_from(["", "a", "b", "é"])),
    "f": (DOUBLE, st.none() | st.sampled_from([NAN, 1.0, -1.0, float("inf")])),
    "m": (money(), st.none() | st.sampled_from([Decimal("0.10"), Decimal("-5.00")])),
}


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_orders_match_duckdb(data):
    size = data.draw(st.integers(0, 15))
    table = pa.table(
        {
            name: pa.array(data.draw(st.lists(source, min_size=size, max_size=size)), data_type)
            for name, (data_type, source) in VALUES.items()
        }
    ).append_column("id", pa.array(range(size), LONG))
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4, unique=True))
    keys = [(name, data.draw(st.booleans()), data.draw(st.booleans())) for name in names]
    text = ", ".join(
        f"{name} {'desc' if down else 'asc'} nulls {'first' if first else 'last'}" for name, down, first in keys
    )
    expected = [i for (i,) in duck(table, f"select id from t order by {text}, id").fetchall()]
    assert [row[-1] for row in ordered(CpuEngine(), table, *keys)] == expected
    limit = data.draw(st.integers(0, 16))
    assert [row[-1] for row in top(CpuEngine(), table, limit, *keys)] == expected[:limit]


@pytest.mark.parametrize("spread", [10, 10**6, 2**61])
def test_large_orders(engine, spread):
    generator = np.random.default_rng(11)
    table = pa.table({"x": generator.integers(-spread, spread, 50_000), "id": np.arange(50_000)})
    expected = np.argsort(table["x"].to_numpy(), kind="stable")
    assert [i for _, i in ordered(engine, table, ("x",))] == expected.tolist()
    assert [i for _, i in top(engine, table, 100, ("x",))] == expected[:100].tolist()
    DUCK.unregister("t")
