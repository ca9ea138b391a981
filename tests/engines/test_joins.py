from __future__ import annotations

import datetime
import threading
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from engine_helpers import (
    DATE,
    DOUBLE,
    DUCK,
    INT,
    LONG,
    TEXT,
    aggregate,
    call,
    col,
    columns,
    count,
    in_any_order,
    join,
    lit,
    money,
    rows,
    schema_of,
)  # fmt: skip
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.engines import joining
from hybridq.engines.compiled import Kernels
from hybridq.engines.cpu import CpuEngine
from hybridq.plan.expressions import NamedExpression
from hybridq.types import Field

NAN = float("nan")
KINDS = ["inner", "left", "semi", "anti"]


def expected_join(left, right, kind, condition):
    """Ask DuckDB."""
    DUCK.register("l", left)
    DUCK.register("r", right)
    if kind in ("semi", "anti"):
        word = "exists" if kind == "semi" else "not exists"
        query = f"select * from l where {word} (select 1 from r where {condition})"
    else:
        query = f"select * from l {kind} join r on {condition}"
    return DUCK.execute(query).fetchall()


def test_null_keys_never_join(engine):
    left, right = pa.table({"a": [1, None]}), pa.table({"b": [1, None]})
    assert rows(join(engine, left, right, "inner", ["a"], ["b"])) == [(1, 1)]
    assert rows(join(engine, left, right, "left", ["a"], ["b"])) == [(1, 1), (None, None)]
    assert rows(join(engine, left, right, "semi", ["a"], ["b"])) == [(1,)]
    assert rows(join(engine, left, right, "anti", ["a"], ["b"])) == [(None,)]


def test_nan_and_zeros_join(engine):
    left = pa.table({"a": pa.array([NAN, 0.0, -0.0, None], DOUBLE)})
    right = pa.table({"b": pa.array([NAN, -0.0], DOUBLE)})
    assert len(rows(join(engine, left, right, "inner", ["a"], ["b"]))) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_side(engine, kind):
    left, right = pa.table({"a": [1, 2], "x": ["p", "q"]}), pa.table({"b": pa.array([], LONG), "y": pa.array([], TEXT)})
    expected = {
        "inner": [],
        "semi": [],
        "left": [(1, "p", None, None), (2, "q", None, None)],
        "anti": [(1, "p"), (2, "q")],
    }
    result = join(engine, left, right, kind, ["a"], ["b"])
    assert rows(result) == expected[kind]
    assert result.schema.types == ([LONG, TEXT] if kind in ("semi", "anti") else [LONG, TEXT, LONG, TEXT])
    assert rows(join(engine, left.slice(0, 0), right, kind, ["a"], ["b"])) == []
    full = pa.table({"b": [1], "y": ["z"]})
    assert rows(join(engine, left.slice(0, 0), full, kind, ["a"], ["b"])) == []


def test_semi_join_never_multiplies(engine):
    left, right = pa.table({"a": [1, 1, 2]}), pa.table({"b": [1, 1, 1, 3]})
    assert rows(join(engine, left, right, "semi", ["a"], ["b"])) == [(1,), (1,)]
    assert len(rows(join(engine, left, right, "inner", ["a"], ["b"]))) == 6


def test_exists_with_unequal(engine):
    left, right = pa.table({"a": [1, 2, 3]}), pa.table({"b": [1, 2]})
    unequal = call("not_equal", col("a"), col("b"))
    assert rows(join(engine, left, right, "semi", [], [], unequal)) == [(1,), (2,), (3,)]
    assert rows(join(engine, left, pa.table({"b": [1]}), "anti", [], [], unequal)) == [(1,)]
    assert len(rows(join(engine, left, right, "inner", [], []))) == 6


def test_left_join_and_counts(engine):
    customers = pa.table({"c": [1, 2, 3]})
    orders = pa.table({"o": [10, 11, 12], "o_c": [1, 1, 2], "comment": ["a special request", "x", "special"]})
    unlike = call("not", call("like", col("comment", TEXT), lit("%special%")))
    joined = join(engine, customers, orders, "left", ["c"], ["o_c"], unlike, ["c", "o"])
    result = aggregate(engine, joined, {"c": col("c")}, [count("orders", col("o")), count("rows")])
    assert in_any_order(rows(result)) == [(1, 1, 1), (2, 0, 1), (3, 0, 1)]


@pytest.mark.parametrize(
    "data_type", [pa.int8(), INT, pa.uint64(), DATE, money(), pa.decimal128(38, 2), TEXT, pa.timestamp("us")]
)
def test_keys_of_every_type(engine, data_type):
    if pa.types.is_decimal(data_type):
        keys = [Decimal("1.50"), Decimal("-2.00"), None, Decimal("1.50")]
        keys += [Decimal(10**30)] if data_type.precision == 38 else [Decimal("9999999999999.99")]
    elif data_type == TEXT:
        keys = ["a", "", None, "a", "é"]
    elif data_type == DATE:
        keys = [datetime.date(1995, 3, day) for day in (1, 2)] + [
            None,
            datetime.date(1995, 3, 1),
            datetime.date(9999, 12, 31),
        ]
    elif pa.types.is_timestamp(data_type):
        keys = [datetime.datetime(1995, 3, day) for day in (1, 2)] + [
            None,
            datetime.datetime(1995, 3, 1),
            datetime.datetime(1, 1, 1),
        ]
    else:
        keys = [1, 2, None, 1, 100 if data_type == pa.int8() else 2**31 - 1]
        keys[-1] = 2**64 - 1 if data_type == pa.uint64() else keys[-1]
    left = pa.table({"a": pa.array(keys, data_type), "i": list(range(len(keys)))})
    right = pa.table({"b": pa.array(keys[1:], data_type), "j": list(range(len(keys) - 1))})
    pairs = [(i, j) for i, a in enumerate(keys) for j, b in enumerate(keys[1:]) if a == b and a is not None]
    assert rows(join(engine, left, right, "inner", ["a"], ["b"], None, ["i", "j"])) == pairs


def test_forms_of_one_type_join(engine):
    texts, others = ["a", "b", "é", None, "zz"], ["é", "a", "q", None]
    for left_type in (pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()):
        for right_type in (pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.large_string()):
            left, right = (
                pa.table({"a": pa.array(texts).cast(left_type)}),
                pa.table({"b": pa.array(others).cast(right_type)}),
            )
            assert rows(join(engine, left, right, "inner", ["a"], ["b"])) == [("a", "a"), ("é", "é")]
    wide = pa.decimal128(38, 2)
    small, large = [Decimal("1.00"), Decimal("2.00")], [Decimal("2.00"), Decimal(10**30)]
    for a, b in ((small, large), (large, small)):
        left, right = pa.table({"a": pa.array(a, wide)}), pa.table({"b": pa.array(b, wide)})
        assert rows(join(engine, left, right, "inner", ["a"], ["b"], None, ["a"])) == [(Decimal("2.00"),)]


def test_matches_are_counted_before_they_are_made(engine):
    left, right = pa.table({"a": [1, 1, 2, None, 9]}), pa.table({"b": [1, 1, 2, None]})
    build = engine.build(engine.from_arrow(right), ["b"])
    assert engine.count_matches(engine.from_arrow(left), build, [col("a")]) == 5
    assert build.rows == 4
    assert build.nbytes > 0
    filtered = engine.filter(engine.from_arrow(left), call("equal", col("a"), lit(2)))
    assert engine.count_matches(filtered, build, [col("a")]) == 1


def test_same_names_on_both_sides_by_qualification(engine):
    nation = pa.table({"nation.key": [1, 2], "nation.name": ["FRANCE", "GERMANY"]})
    again = nation.rename_columns(["nation#2.key", "nation#2.name"])
    output = ["nation.name", "nation#2.name"]
    residual = call("not_equal", col("nation.name", TEXT), col("nation#2.name", TEXT))
    result = join(engine, nation, again, "inner", [], [], residual, output)
    assert rows(result) == [("FRANCE", "GERMANY"), ("GERMANY", "FRANCE")]


def test_probing_a_filtered_frame(engine):
    left = pa.table({"a": list(range(1000)), "x": [i % 3 for i in range(1000)]})
    right = pa.table({"b": [5, 6, 7, 7, 2000], "y": ["five", "six", "seven", "sieben", "never"]})
    build = engine.build(engine.from_arrow(right), ["b"])
    frame = engine.filter(engine.from_arrow(left), call("not_equal", col("x"), lit(0)))
    schema = (Field("a", LONG), Field("y", TEXT))
    inner = engine.probe(frame, build, "inner", [col("a")], None, ["a", "y"])
    assert rows(engine.to_arrow(inner, schema)) == [(5, "five"), (7, "seven"), (7, "sieben")]
    assert engine.probe(frame, build, "semi", [col("a")], None, ["a"]).rows == 2
    assert engine.probe(frame, build, "anti", [col("a")], None, ["a"]).rows == 666 - 2
    outer = engine.probe(frame, build, "left", [col("a")], None, ["a", "y"])
    assert outer.rows == 667
    computed = engine.probe(frame, build, "inner", [call("add", col("a"), lit(1), returns=LONG)], None, ["a", "y"])
    assert rows(engine.to_arrow(computed, schema)) == [(4, "five"), (5, "six")]


KEYS = {
    "small": (LONG, st.none() | st.integers(-2, 2)),
    "sparse": (LONG, st.none() | st.sampled_from([0, 1, 10**12, -(10**12), 2**63 - 1, -(2**63)])),
    "text": (TEXT, st.none() | st.sampled_from(["", "a", "b"])),
    "double": (DOUBLE, st.none() | st.sampled_from([0.0, 1.5, float("inf")])),
}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_joins_match_duckdb(data):
    names = data.draw(st.lists(st.sampled_from(sorted(KEYS)), max_size=3, unique=True))
    sides = []
    for prefix in ("l", "r"):
        size = data.draw(st.integers(0, 8))
        side = {f"{prefix}_{name}": pa.array(data.draw(st.lists(source, min_size=size, max_size=size)), data_type)
                for name, (data_type, source) in KEYS.items()}  # fmt: skip
        sides.append(pa.table({**side, f"{prefix}_id": list(range(size))}))
    left, right = sides
    kind = data.draw(st.sampled_from(KINDS))
    residual, text = None, ""
    if data.draw(st.booleans()):
        residual, text = call("less", col("l_id"), col("r_id")), " and l_id < r_id"
    condition = " and ".join(f"l_{name} = r_{name}" for name in names) or "true"
    expected = expected_join(left, right, kind, condition + text)
    result = join(CpuEngine(), left, right, kind, [f"l_{n}" for n in names], [f"r_{n}" for n in names], residual)
    assert in_any_order(rows(result)) == in_any_order(expected)


@pytest.mark.parametrize("spread", [1, 100, 1000, 10**6, 10**13])
@pytest.mark.parametrize("repeats", [1, 3])
def test_lookups_of_every_density(engine, spread, repeats):
    generator = np.random.default_rng(3)
    distinct = generator.permutation(60_000)[:30_000] * spread - 10**6
    build_keys = np.repeat(distinct, repeats)
    probe_keys = generator.integers(0, 60_000, 50_000) * spread - 10**6
    left = pa.table({"a": probe_keys, "i": np.arange(len(probe_keys))})
    right = pa.table({"b": generator.permutation(build_keys)})
    hits = np.isin(probe_keys, distinct)
    assert join(engine, left, right, "inner", ["a"], ["b"]).num_rows == int(hits.sum()) * repeats
    semi = join(engine, left, right, "semi", ["a"], ["b"])
    assert semi["i"].to_pylist() == np.flatnonzero(hits).tolist()
    joined = join(engine, left, right, "inner", ["a"], ["b"])
    assert joined["a"].equals(joined["b"])


def test_threads_share_a_build_side(engine):
    keys = np.arange(100_000) * 10**9
    build = engine.build(engine.from_arrow(pa.table({"b": keys})), ["b"])
    probe = pa.table({"a": np.concatenate([keys, keys + 1])})
    found = []

    def work():
        frame = engine.probe(engine.from_arrow(probe), build, "semi", [col("a")], None, ["a"])
        found.append(frame.rows)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [100_000] * 8


def test_a_filtered_frame_as_build_side(engine):
    right = pa.table({"b": [1, 2, 3], "y": ["a", "b", "c"]})
    frame = engine.filter(engine.from_arrow(right), call("greater", col("b"), lit(1)))
    build = engine.build(
        engine.project(frame, [NamedExpression("k", col("b")), NamedExpression("y", col("y", TEXT))]), ["k"]
    )
    assert build.rows == 2
    result = engine.probe(engine.from_arrow(pa.table({"a": [1, 2]})), build, "inner", [col("a")], None, ["y"])
    assert rows(engine.to_arrow(result, (Field("y", TEXT),))) == [("b",)]
    assert columns(right)["b"].type == LONG


# --- IN, marks, and joins without keys -------------------------------------------------------------------------------


def small_sides():
    left = pa.table({"a": pa.array([1, 2, None, 4, 2], LONG), "b": pa.array([1, 2, 3, None, 5], LONG)})
    right = pa.table({"c": pa.array([2, None, 2, 7], LONG), "d": pa.array([2, 3, None, 5], LONG)})
    return left, right


SMALL_SIDES = {
    "as they are": lambda left, right: (left, right),
    "no NULL on the right": lambda left, right: (left, right.filter(pc.is_valid(right["c"]))),
    "nothing on the right": lambda left, right: (left, right.slice(0, 0)),
    "nothing on the left": lambda left, right: (left.slice(0, 0), right),
    "only NULL on the right": lambda left, right: (left, right.filter(pc.is_null(right["c"]))),
}


@pytest.mark.parametrize("change", SMALL_SIDES.values(), ids=SMALL_SIDES)
@pytest.mark.parametrize(
    ("more_keys", "residual", "where"),
    [
        ([], None, "true"),
        (["b"], None, "d = b"),
        ([], call("less", col("b"), col("d")), "b < d"),
        (["b"], call("not_equal", col("c"), lit(7)), "d = b and c <> 7"),
    ],
)
def test_in_and_not_in_with_nulls(engine, change, more_keys, residual, where):
    left, right = change(*small_sides())
    DUCK.register("l", left)
    DUCK.register("r", right)
    build = engine.build(engine.from_arrow(right), ["c", "d"][: 1 + len(more_keys)])
    keys = [col("a"), *map(col, more_keys)]
    frame = engine.from_arrow(left)
    anti = engine.probe(frame, build, "anti", keys, residual, ["a", "b"], null_aware=True)
    expected = DUCK.execute(f"select * from l where a not in (select c from r where {where})").fetchall()
    fields = (Field("a", LONG), Field("b", LONG))
    assert in_any_order(rows(engine.to_arrow(anti, fields))) == in_any_order(expected)
    marked = engine.probe(frame, build, "mark", keys, residual, ["a", "b", "x"], null_aware=True, mark="x")
    expected = DUCK.execute(f"select *, a in (select c from r where {where}) from l").fetchall()
    assert rows(engine.to_arrow(marked, (*fields, Field("x", pa.bool_())))) == expected


@pytest.mark.parametrize("change", SMALL_SIDES.values(), ids=SMALL_SIDES)
def test_marks_of_exists_are_never_null(engine, change):
    left, right = change(*small_sides())
    DUCK.register("l", left)
    DUCK.register("r", right)
    build = engine.build(engine.from_arrow(right), ["c"])
    marked = engine.probe(engine.from_arrow(left), build, "mark", [col("a")], None, ["a", "x"], mark="x")
    expected = DUCK.execute("select a, exists (select 1 from r where c = a) from l").fetchall()
    assert rows(engine.to_arrow(marked, (Field("a", LONG), Field("x", pa.bool_())))) == expected


@pytest.mark.parametrize("change", SMALL_SIDES.values(), ids=SMALL_SIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_joins_without_keys(engine, change, kind):
    left, right = change(*small_sides())
    for residual, condition in ((None, "true"), (call("less", col("b"), col("d")), "b < d")):
        found = rows(join(engine, left, right, kind, [], [], residual))
        assert in_any_order(found) == in_any_order(expected_join(left, right, kind, condition))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data_type", [pa.int32(), LONG, DATE, pa.decimal128(12, 2)])
def test_keys_that_compiled_loops_look_at(kind, data_type, monkeypatch):
    """They find what is found without them: keys outside the build side's range, NULLs, rows that a filter has left."""
    random = np.random.default_rng(5)

    def numbers(low, high, rows, nulls):
        found = pa.array(random.integers(low, high, rows), pa.int32() if data_type in (pa.int32(), DATE) else LONG)
        found = found.cast(pa.decimal128(20, 0)).cast(data_type) if data_type not in (pa.int32(), LONG, DATE) else found
        return pc.if_else(pa.array(random.random(rows) < nulls), None, found.cast(data_type))

    left = pa.table({"a": numbers(-500, 900, 3000, 0.1), "x": pa.array(range(3000))})
    engine = CpuEngine()
    for low, high, rows_there, nulls in ((-50, 300, 200, 0.1), (0, 64, 500, 0.0), (0, 10**5, 50, 0.0), (5, 6, 0, 0.0)):
        right = pa.table({"b": numbers(low, high, rows_there, nulls), "y": pa.array(range(rows_there))})
        schema = {field.name: field for field in (*schema_of(left), *schema_of(right))}
        output = ["x"] if kind in ("semi", "anti") else ["x", "y"]
        found = []
        for loops in ("never", "always"):
            monkeypatch.setattr(joining, "KERNELS", Kernels(loops))
            build = engine.build(engine.from_arrow(right), ["b"])
            if engine.name == "cpu":
                assert (build.present(engine.from_arrow(left), [columns(left)["a"]]) is None) == (loops == "never")
            for frame in (
                engine.from_arrow(left),
                engine.filter(engine.from_arrow(left), call("greater", col("x"), lit(1500))),
            ):
                joined = engine.probe(frame, build, kind, [columns(left)["a"]], None, output)
                found.append(rows(engine.to_arrow(joined, tuple(schema[name] for name in output))))
        assert found[:2] == found[2:]


def test_most_matches(engine):
    def most(values, keys=("b",)):
        table = pa.table({"b": pa.array(values, LONG), "c": pa.array(range(len(values)), LONG)})
        return engine.build(engine.from_arrow(table), list(keys)).most_matches

    assert most([1, 5, 3]) == 1
    assert most([1, 5, 1, None, None, None]) == 2
    assert most([1, 1, 1], keys=("b", "c")) == 1
    assert most([1, 2, 3], keys=()) == 3
    assert most([]) == 0
