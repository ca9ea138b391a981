from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from engine_helpers import (
    BOOL,
    DATE,
    DOUBLE,
    INT,
    LONG,
    TEXT,
    aggregate,
    call,
    col,
    columns,
    count,
    duck,
    greatest,
    in_any_order,
    least,
    lit,
    money,
    rows,
    total,
)  # fmt: skip
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.engines import grouping
from hybridq.engines.column import from_arrow
from hybridq.engines.cpu import CpuEngine
from hybridq.errors import NumericOverflow
from hybridq.plan.expressions import AggregateCall, Case, NamedExpression
from hybridq.types import Field

NAN = float("nan")
MAX = 2**63 - 1
WIDE = pa.decimal128(38, 0)


def test_null_keys_are_a_group(engine):
    table = pa.table({"c1": [0, 3, None, 1, 3]})
    result = aggregate(engine, table, {"c1": col("c1")}, [count("n")])
    assert in_any_order(rows(result)) == [(None, 1), (0, 1), (1, 1), (3, 2)]


def test_null_in_either_of_two_keys(engine):
    table = pa.table({"a": [None, None, 1, 1], "b": [1, 1, None, 1]})
    result = aggregate(engine, table, {"a": col("a"), "b": col("b")}, [count("n")])
    assert in_any_order(rows(result)) == [(None, 1, 2), (1, None, 1), (1, 1, 1)]


def test_nothing_to_aggregate(engine):
    empty = pa.table({"x": pa.array([], LONG), "s": pa.array([], TEXT)})
    nulls = pa.table({"x": pa.array([None, None], LONG), "s": pa.array([None, None], TEXT)})
    calls = [total("sum", col("x"), LONG), least("min", col("x")), greatest("max", col("s", TEXT)),
             count("known", col("x")), count("rows")]  # fmt: skip
    assert rows(aggregate(engine, empty, {}, calls)) == [(None, None, None, 0, 0)]
    assert rows(aggregate(engine, nulls, {}, calls)) == [(None, None, None, 0, 2)]
    assert rows(aggregate(engine, empty, {"x": col("x")}, calls)) == []
    assert rows(aggregate(engine, nulls, {"x": col("x")}, calls)) == [(None, None, None, None, 0, 2)]


def test_distinct_rows_without_aggregates(engine):
    table = pa.table({"a": [1, 1, None, 2, None]})
    assert in_any_order(rows(aggregate(engine, table, {"a": col("a")}, []))) == [(None,), (1,), (2,)]


def test_nan_is_a_value(engine):
    table = pa.table({"x": pa.array([1.0, NAN, None], DOUBLE)})
    x = col("x", DOUBLE)
    ((n, known, summed, low, high),) = rows(
        aggregate(
            engine, table, {}, [count("n"), count("k", x), total("s", x, DOUBLE), least("l", x), greatest("h", x)]
        )
    )
    assert (n, known, low) == (3, 2, 1.0)
    assert summed != summed
    assert high != high
    groups = pa.table({"x": pa.array([NAN, -NAN, None, 0.0, -0.0, None], DOUBLE)})
    result = aggregate(engine, groups, {"x": x}, [count("n")])
    assert in_any_order(rows(result)) == in_any_order([(None, 2), (0.0, 2), (NAN, 2)])


def test_least_of_nothing_but_nan(engine):
    table = pa.table({"g": [1, 1, 2], "x": pa.array([NAN, None, 5.0], DOUBLE)})
    result = aggregate(engine, table, {"g": col("g")}, [least("l", col("x", DOUBLE))])
    assert in_any_order(rows(result)) == in_any_order([(1, NAN), (2, 5.0)])


def test_sums_of_integers_never_wrap(engine):
    small = pa.table({"x": pa.array([2**31 - 1] * 2, INT)})
    assert rows(aggregate(engine, small, {}, [total("s", col("x", INT), LONG)])) == [(2**32 - 2,)]
    big = pa.table({"g": [1, 1, 2], "x": [MAX, MAX, -5]})
    for groups in ({}, {"g": col("g")}):
        with pytest.raises(NumericOverflow, match=r"sum\(x\)"):
            aggregate(engine, big, groups, [total("s", col("x"), LONG)])
    assert in_any_order(rows(aggregate(engine, big, {"g": col("g")}, [total("s", col("x"), WIDE)]))) == [
        (1, Decimal(2 * MAX)), (2, Decimal(-5)),
    ]  # fmt: skip
    # The parts of a sum may pass 64 bits where the sum does not.
    back = pa.table({"x": [MAX, MAX, -MAX]})
    assert rows(aggregate(engine, back, {}, [total("s", col("x"), LONG)])) == [(MAX,)]


def test_sums_of_unsigned_integers(engine):
    table = pa.table({"g": [1, 1, 2], "x": pa.array([2**63, 2**63 - 1, None], pa.uint64())})
    x = col("x", pa.uint64())
    assert in_any_order(rows(aggregate(engine, table, {"g": col("g")}, [total("s", x, pa.uint64())]))) == [
        (1, 2**64 - 1), (2, None),
    ]  # fmt: skip
    with pytest.raises(NumericOverflow):
        aggregate(engine, pa.table({"x": pa.array([2**63] * 2, pa.uint64())}), {}, [total("s", x, pa.uint64())])


def test_sums_past_38_digits_are_errors(engine):
    limit = Decimal(10**38 - 1)
    table = pa.table({"x": pa.array([limit, 1], pa.decimal128(38, 0))})
    with pytest.raises(NumericOverflow, match="sum"):
        aggregate(engine, table, {}, [total("s", col("x", WIDE), WIDE)])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.none() | st.integers(-(10**30), 10**30) | st.sampled_from([MAX, -(2**63), 10**36, -(10**36), 1]),
        ),
        max_size=20,
    )
)
def test_decimal_sums_are_exact(pairs):
    table = pa.table({"g": pa.array([g for g, _ in pairs], LONG), "x": pa.array([x for _, x in pairs], WIDE)})
    expected = {}
    for g, x in pairs:
        known = [value for value in (expected.get(g), x) if value is not None]
        expected[g] = sum(known) if known else None
    result = aggregate(CpuEngine(), table, {"g": col("g")}, [total("s", col("x", WIDE), WIDE)])
    assert dict(rows(result)) == {g: None if x is None else Decimal(x) for g, x in expected.items()}


def test_extremes_of_every_type(engine):
    moments = [datetime.datetime(2000, 1, day) for day in (3, 1)]
    table = pa.table(
        {
            "g": [1, 1, 1],
            "s": ["b", "é", None],
            "d": pa.array([datetime.date(2000, 1, 2), datetime.date(1999, 1, 1), None], DATE),
            "b": [True, False, None],
            "t": pa.array([*moments, None], pa.timestamp("us")),
            "m": pa.array([Decimal("1.5"), Decimal("-2"), None], money()),
            "w": pa.array([Decimal(10**30), Decimal(-(10**30)), None], pa.decimal128(38, 0)),
            "i": pa.array([1, -7, None], pa.int8()),
        }
    )
    found = columns(table)
    calls = [least(f"min {name}", found[name]) for name in "sdbtmwi"] + [
        greatest(f"max {name}", found[name]) for name in "sdbtmwi"
    ]
    expected = (
        "b",
        datetime.date(1999, 1, 1),
        False,
        moments[1],
        Decimal("-2.00"),
        Decimal(-(10**30)),
        -7,
        "é",
        datetime.date(2000, 1, 2),
        True,
        moments[0],
        Decimal("1.50"),
        Decimal(10**30),
        1,
    )
    assert rows(aggregate(engine, table, {}, calls)) == [expected]
    assert rows(aggregate(engine, table, {"g": col("g")}, calls)) == [(1, *expected)]


def test_distinct_values_and_their_union(engine):
    table = pa.table({"g": [1, 1, 1, 2, 2, 3], "x": [1, 1, 2, None, 5, None], "s": ["a", "b", "a", None, "a", None]})
    lists = {name: pa.list_(data_type) for name, data_type in (("x", LONG), ("s", TEXT))}
    calls = [AggregateCall(name, "distinct", col(name, lists[name].value_type), lists[name]) for name in lists]
    result = aggregate(engine, table, {"g": col("g")}, calls)
    assert result.schema.types == [LONG, lists["x"], lists["s"]]
    found = {g: (sorted(x or []), sorted(s or [])) for g, x, s in rows(result)}
    assert found == {1: ([1, 2], ["a", "b"]), 2: ([5], ["a"]), 3: ([], [])}
    doubled = pa.concat_tables([result, result])
    unions = [AggregateCall(name, "union", col(name, lists[name]), lists[name]) for name in lists]
    merged = aggregate(engine, doubled, {"g": col("g")}, unions)
    assert {g: (sorted(x or []), sorted(s or [])) for g, x, s in rows(merged)} == found
    ((everything, _),) = rows(aggregate(engine, doubled, {}, unions))
    assert sorted(everything) == [1, 2, 5]


def test_distinct_floats(engine):
    table = pa.table({"x": pa.array([NAN, NAN, 0.0, -0.0, None], DOUBLE)})
    call_ = AggregateCall("d", "distinct", col("x", DOUBLE), pa.list_(DOUBLE))
    ((found,),) = rows(aggregate(engine, table, {}, [call_]))
    assert len(found) == 2


def test_rows_without_columns_are_counted(engine):
    table = pa.table({"x": [1, 2, 3]}).select([])
    assert rows(aggregate(engine, table, {}, [count("n")])) == [(3,)]


def test_sum_of_case_over_an_empty_chunk(engine):
    table = pa.table({"x": pa.array([], LONG), "s": pa.array([], TEXT)})
    case = Case(LONG, ((call("equal", col("s", TEXT), lit("a")), lit(1)),), lit(0))
    assert rows(aggregate(engine, table, {}, [total("n", case, LONG), count("k", case)])) == [(None, 0)]
    assert rows(aggregate(engine, table, {"s": col("s", TEXT)}, [total("n", case, LONG)])) == []


def test_large_integers_beside_null_survive(engine):
    table = pa.table({"g": [2**53 + 1, None, 2**53 + 1, 2**53], "x": [2**53 + 1, None, None, 1]})
    result = aggregate(engine, table, {"g": col("g")}, [greatest("m", col("x"))])
    assert in_any_order(rows(result)) == in_any_order([(2**53 + 1, 2**53 + 1), (None, None), (2**53, 1)])


KEY_TYPES = {
    "small": st.none() | st.integers(-3, 3),
    "large": st.none() | st.sampled_from([-(2**63), MAX, 0, 1, 2**40, -(2**40)]),
    "text": st.none() | st.sampled_from(["", "a", "b", "é"]),
    "double": st.none() | st.sampled_from([NAN, 0.0, -0.0, 1.5, float("inf")]),
    "flag": st.none() | st.booleans(),
    "amount": st.none() | st.sampled_from([Decimal("0.10"), Decimal("-0.10"), Decimal("9999999999999.99")]),
}
ARROW_TYPES = {"small": pa.int8(), "large": LONG, "text": TEXT, "double": DOUBLE, "flag": BOOL, "amount": money()}


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_groups_match_duckdb(data):
    names = data.draw(st.lists(st.sampled_from(sorted(KEY_TYPES)), min_size=1, max_size=3, unique=True))
    size = data.draw(st.integers(0, 20))
    table = pa.table(
        {
            name: pa.array(data.draw(st.lists(KEY_TYPES[name], min_size=size, max_size=size)), ARROW_TYPES[name])
            for name in KEY_TYPES
        }
    )
    if data.draw(st.booleans()):
        table = table.set_column(2, "text", table["text"].combine_chunks().dictionary_encode())
    keys = ", ".join(names)
    expected = duck(
        table,
        f"select {keys}, count(*), count(small), sum(small), min(large), max(text), min(text), max(double), "
        f"sum(amount), min(double) from t group by {keys}",
    ).fetchall()
    found = columns(table)
    calls = [
        count("n"),
        count("k", found["small"]),
        total("s", found["small"], LONG),
        least("l", found["large"]),
        greatest("t", found["text"]),
        least("u", found["text"]),
        greatest("d", found["double"]),
        total("a", found["amount"], pa.decimal128(38, 2)),
        least("e", found["double"]),
    ]
    result = aggregate(CpuEngine(), table, {name: found[name] for name in names}, calls)

    def normal(table_rows):
        # DuckDB may give either zero.
        return in_any_order(
            tuple(0.0 if value == 0 and isinstance(value, float) else value for value in row) for row in table_rows
        )

    assert normal(rows(result)) == normal(expected)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_deselected_rows_do_not_count(engine, share):
    size = 100_000
    table = pa.table({"x": list(range(size)), "g": [f"g{i % 7}" for i in range(size)]})
    frame = engine.filter(engine.from_arrow(table), call("less", col("x"), lit(int(size * share))))
    from hybridq.plan.expressions import NamedExpression
    from hybridq.types import Field

    calls = [count("n"), total("s", col("x"), LONG), least("lo", col("x")), greatest("hi", col("g", TEXT))]
    expected = duck(
        table, f"select g, count(*), sum(x)::bigint, min(x), max(g) from t where x < {int(size * share)} group by g"
    )
    result = engine.aggregate(frame, [NamedExpression("g", col("g", TEXT))], calls)
    schema = (Field("g", TEXT), *(Field(item.name, item.type) for item in calls))
    assert in_any_order(rows(engine.to_arrow(result, schema))) == in_any_order(expected.fetchall())


def test_many_groups_of_any_density(engine):
    import numpy as np

    generator = np.random.default_rng(7)
    size = 200_000
    table = pa.table({
        "sorted": np.sort(generator.integers(0, 50_000, size)), "dense": generator.integers(0, 100_000, size),
        "sparse": generator.integers(0, 50_000, size) * 10**9, "huge": generator.integers(-(2**62), 2**62, size) * 2,
        "value": generator.integers(-1000, 1000, size),
    })  # fmt: skip
    for keys in (["sorted"], ["dense"], ["sparse"], ["huge"], ["dense", "sparse"], ["huge", "sparse", "sorted"]):
        names = ", ".join(keys)
        expected = duck(
            table, f"select {names}, sum(value)::bigint s, count(*) n from t group by {names} order by {names}"
        )
        result = aggregate(
            engine, table, {name: col(name) for name in keys}, [total("s", col("value"), LONG), count("n")]
        )
        assert result.sort_by([(name, "ascending") for name in keys]).equals(
            expected.to_arrow_table().cast(result.schema)
        ), keys


@pytest.mark.parametrize("sample", [1, 64, 4096])
@pytest.mark.parametrize("odd", [None, "another", "", "missing"])
def test_texts_that_depend_on_another_key(engine, odd, sample, monkeypatch):
    monkeypatch.setattr(grouping, "SAMPLE_ROWS", sample)
    size = 10_000
    ids = [number * 7 % 3000 for number in range(size)]
    names = [None if number % 5 == 0 else f"name {number}" for number in ids]
    codes = [f"code {number % 11}" for number in ids]
    if odd != "missing":
        names[size - 2] = odd  # one row alone, past those that are looked at first
    table = pa.table({"id": ids, "name": pa.array(names, TEXT), "code": codes, "value": range(size)})
    expected = duck(table, "select id, name, code, sum(value)::bigint s, count(*) n from t group by all").fetchall()
    for order in (["id", "name", "code"], ["name", "code", "id"]):
        keys = {name: col(name, LONG if name == "id" else TEXT) for name in order}
        result = aggregate(engine, table, keys, [total("s", col("value"), LONG), count("n")])
        assert in_any_order(rows(result.select(["id", "name", "code", "s", "n"]))) == in_any_order(expected)


def test_a_sample_shows_which_texts_do_not_depend_on_the_other_keys():
    size = 60_000
    numbers = np.arange(size) * 7919 % 5000
    table = pa.table({
        "id": numbers,
        "null": pa.array(numbers, mask=numbers % 3 == 0),
        "name": [f"name {number}" for number in numbers.tolist()],
        "other": [f"other {number % 13}" for number in range(size)],
    })  # fmt: skip
    id_, null, name, other = (from_arrow(table.column(index)) for index in range(4))
    assert grouping._perhaps_dependent([id_, name, other], [1, 2], [0], size) == [1]
    assert grouping._perhaps_dependent([other, id_, null, name], [0, 3], [1, 2], size) == [3]
    assert grouping._perhaps_dependent([null, name], [1], [0], size) == []  # NULL is one group of many names


def test_large_unsigned_keys(engine):
    top = 2**64 - 1
    for keys in ([top, top, top - 1], [top, None, top], [2**63, 2**63 + 1, 2**63]):
        table = pa.table({"g": pa.array(keys, pa.uint64()), "h": [1, 1, 1]})
        g = col("g", pa.uint64())
        for groups in ({"g": g, "h": col("h")}, {"h": col("h"), "g": g}):
            result = aggregate(engine, table, groups, [count("n")]).select(["g", "h", "n"])
            assert in_any_order(rows(result)) == in_any_order((key, 1, keys.count(key)) for key in set(keys))
        distinct = AggregateCall("d", "distinct", g, pa.list_(pa.uint64()))
        ((_, found),) = rows(aggregate(engine, table, {"h": col("h")}, [distinct]))
        assert set(found) == set(keys) - {None}


def test_bounds_that_no_value_reaches_any_more(engine):
    wide = pa.decimal128(38, 0)
    table = pa.table({"x": pa.array([Decimal(10**30), Decimal(3), None, Decimal(-(10**30))], wide)})
    x = col("x", wide)
    small = Case(wide, ((call("less", call("abs", x, returns=wide), lit(Decimal(10))), x),), lit(None, wide))
    frame = engine.project(engine.from_arrow(table), [NamedExpression("y", small)])
    result = engine.aggregate(frame, [NamedExpression("y", col("y", wide))], [count("n")])
    schema = (Field("y", wide), Field("n", LONG))
    assert in_any_order(rows(engine.to_arrow(result, schema))) == [(None, 3), (Decimal(3), 1)]
