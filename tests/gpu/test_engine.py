"""Random tables through every operator of the GPU engine and of the CPU engine: the answers are equal."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_helpers import (
    BOOL,
    DATE,
    DOUBLE,
    INT,
    LONG,
    TEXT,
    call,
    cast,
    columns,
    count,
    greatest,
    least,
    lit,
    money,
    rows,
    schema_of,
    total,
)

from hybridq.engines.cpu import CpuEngine
from hybridq.engines.protocol import ReadColumn, ReadRequest
from hybridq.errors import HybridqError
from hybridq.plan.expressions import AggregateCall, Case, In, Literal, NamedExpression, SortKey
from hybridq.plan.functions import result_type
from hybridq.types import Field, normalize, sum_type

WIDE = pa.decimal128(38, 4)
STAMP = pa.timestamp("us")
WORDS = ["", "a", "A", "ab", "b%", "é", "zé\u0301", "日本", "🙂x", "special deposits", "un_der", "ß", "~"]
FLOATS = [math.nan, -0.0, 0.0, math.inf, -math.inf]
ROWS = [0, 1, 7, 1000]
SEEDS = [1, 2]
TYPES = {
    "k": INT, "i": LONG, "small": LONG, "d": money(), "e": money(12, 3), "w": WIDE, "f": DOUBLE, "s": TEXT, "t": DATE,
    "u": STAMP, "b": BOOL,
}  # fmt: skip


def random_table(rows, seed, nulls=0.15):
    """A table of every type, with NULLs, extremes, NaN, -0.0 and non-ASCII text."""
    random = np.random.default_rng(seed)
    extremes = [2**63 - 1, -(2**63), 0, -1, 2**31]
    day, start = datetime.date(1970, 1, 1), datetime.datetime(1970, 1, 1)
    values = {
        "k": random.integers(0, 5, rows).tolist(),
        "i": [extremes[n % 5] if n % 11 == 0 else int(random.integers(-(2**62), 2**62)) for n in range(rows)],
        "small": random.integers(-1000, 1000, rows).tolist(),
        "d": [Decimal(n).scaleb(-2) for n in random.integers(-(10**15) + 1, 10**15, rows).tolist()],
        "e": [Decimal(n).scaleb(-3) for n in random.integers(-2000, 2000, rows).tolist()],
        "w": [Decimal(n * 10 ** (n % 15)).scaleb(-4) for n in random.integers(-(10**17), 10**17, rows).tolist()],
        "f": [FLOATS[n] if n < 5 else n / 7 - 3 for n in random.integers(0, 60, rows)],
        "s": [WORDS[n] for n in random.integers(0, len(WORDS), rows)],
        "t": [day + datetime.timedelta(int(n)) for n in random.integers(-40000, 40000, rows)],
        "u": [start + datetime.timedelta(microseconds=n) for n in random.integers(-(10**15), 10**15, rows).tolist()],
        "b": random.integers(0, 2, rows).astype(bool).tolist(),
    }  # fmt: skip
    arrays = {}
    for name, data_type in TYPES.items():
        hidden = random.random(rows) < nulls
        found = [None if gone else value for value, gone in zip(values[name], hidden, strict=True)]
        arrays[name] = pa.array(found, data_type)
    return pa.table(arrays)


@pytest.fixture(params=[(rows, seed) for rows in ROWS for seed in (SEEDS if rows > 1 else SEEDS[:1])], ids=str)
def table(request):
    return random_table(*request.param)


@pytest.fixture
def col():
    return {name: columns(random_table(0, 0))[name] for name in TYPES}


def key_of(value):
    return "NaN" if isinstance(value, float) and value != value else repr(value)


def same(found, expected, approximate=False):
    if isinstance(expected, float) and isinstance(found, float):
        if expected != expected or found != found:
            return expected != expected and found != found
        return math.isclose(found, expected, rel_tol=1e-12, abs_tol=1e-12) if approximate else found == expected
    return found == expected


def both(engine, operation, table, *, ordered=True, approximate=False, keys=None):
    """Run an operation on both engines: tables must be equal, or the errors of one kind."""
    outcomes = []
    for one in (CpuEngine(), engine):
        try:
            outcomes.append(operation(one, one.from_arrow(table)))
        except HybridqError as error:
            outcomes.append(error)
    expected, found = outcomes
    if isinstance(expected, HybridqError) or isinstance(found, HybridqError):
        assert type(found) is type(expected), (found, expected)
        return
    assert found.schema == expected.schema
    left, right = rows(found), rows(expected)
    if not ordered:
        width = len(found.column_names) if keys is None else keys
        left, right = (sorted(side, key=lambda row: [key_of(value) for value in row[:width]]) for side in (left, right))
    assert len(left) == len(right)
    for number, (a, b) in enumerate(zip(left, right, strict=True)):
        for name, x, y in zip(found.column_names, a, b, strict=True):
            assert same(x, y, approximate), (number, name, x, y)


def projected(engine, table, **expressions):
    named = [NamedExpression(name, expression) for name, expression in expressions.items()]
    schema = tuple(Field(item.name, item.expression.type) for item in named)
    both(engine, lambda one, frame: one.to_arrow(one.project(frame, named), schema), table)


def typed(function, *arguments):
    return call(function, *arguments, returns=result_type(function, tuple(argument.type for argument in arguments)))


def test_arrow_there_and_back(engine, table):
    schema = schema_of(table)
    both(engine, lambda one, frame: one.to_arrow(frame, schema), table)


@pytest.mark.parametrize("function", ["add", "subtract", "multiply"])
@pytest.mark.parametrize("pair", ["small small", "i i", "d d", "d e", "e e", "w e", "w w", "f f", "k k"])
def test_arithmetic(engine, table, col, function, pair):
    left, right = (col[name] for name in pair.split())
    projected(engine, table, x=typed(function, left, right), y=typed(function, right, left))


@pytest.mark.parametrize("function", ["divide", "modulus"])
@pytest.mark.parametrize("pair", ["small small", "i small", "d e", "e d", "w e", "f f"])
def test_divisions(engine, table, col, function, pair):
    left, right = (col[name] for name in pair.split())
    projected(engine, table, x=typed(function, left, right))
    never_zero = Case(
        right.type, ((call("equal", right, Literal(right.type, zero(right.type))), Literal(right.type, None)),), right
    )
    projected(engine, table, x=typed(function, left, never_zero))


def zero(data_type):
    return Decimal(0).scaleb(-data_type.scale) if pa.types.is_decimal(data_type) else 0.0 if data_type == DOUBLE else 0


def test_signs(engine, table, col):
    for name in ("small", "d", "w", "f", "i"):
        projected(engine, table, x=typed("negate", col[name]), y=typed("abs", col[name]))


@pytest.mark.parametrize("function", ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
def test_comparisons(engine, table, col, function):
    shifted = {
        name: data.take(pa.array(np.arange(len(data))[::-1]))
        for name, data in zip(table.column_names, table.columns, strict=True)
    }
    wide = pa.table(
        {**dict(zip(table.column_names, table.columns, strict=True)), **{f"{n}2": v for n, v in shifted.items()}}
    )
    other = columns(wide)
    constants = {
        "k": 2,
        "small": 10,
        "d": Decimal("0.00"),
        "w": Decimal("1.0000"),
        "f": 0.0,
        "s": "b",
        "t": datetime.date(1980, 1, 1),
    }
    expressions = {}
    for name in TYPES:
        expressions[name] = call(function, other[name], other[f"{name}2"])
        expressions[f"{name}-distinct"] = call("is_distinct_from", other[name], other[f"{name}2"])
        expressions[f"{name}-same"] = call("is_not_distinct_from", other[name], other[f"{name}2"])
    for name, value in constants.items():
        expressions[f"{name}-constant"] = call(function, other[name], Literal(TYPES[name], value))
        expressions[f"constant-{name}"] = call(function, Literal(TYPES[name], value), other[name])
        expressions[f"{name}-null"] = call(function, other[name], Literal(TYPES[name], None))
    expressions["nan"] = call(function, other["f"], lit(math.nan))
    expressions["scales"] = call(function, other["d"], other["e"])
    projected(engine, wide, **expressions)


def test_three_valued_logic(engine, table, col):
    p = col["b"]
    q = call("less", col["small"], lit(0))
    r = call("is_null", col["s"])
    expressions = {
        "and": call("and", p, q), "or": call("or", p, q), "and3": call("and", p, q, r), "or3": call("or", q, r, p),
        "not": call("not", call("and", p, q)), "with_null": call("and", p, Literal(BOOL, None)),
        "or_null": call("or", p, Literal(BOOL, None)), "and_true": call("and", p, lit(True)),
        "or_true": call("or", p, lit(True)),
    }  # fmt: skip
    for name in ("is_true", "is_false", "is_not_true", "is_not_false", "is_null", "is_not_null"):
        expressions[name] = call(name, p)
    projected(engine, table, **expressions)


def test_guards_keep_errors_away(engine, table, col):
    small = col["small"]
    inverse = call("divide", lit(100), small, returns=LONG)
    guarded = call("and", call("not_equal", small, lit(0)), call("greater", inverse, lit(3)))
    chosen = Case(LONG, ((call("equal", small, lit(0)), lit(-1)),), inverse)
    first = call("coalesce", call("divide", small, small, returns=LONG), lit(7), returns=LONG)
    projected(engine, table, guarded=guarded, chosen=chosen)
    projected(engine, table, first=first)


def test_choices(engine, table, col):
    condition = call("greater", col["small"], lit(0))
    expressions = {}
    for name, data_type in TYPES.items():
        expressions[f"case-{name}"] = Case(data_type, ((condition, col[name]),), Literal(data_type, None))
        expressions[f"cases-{name}"] = Case(
            data_type, ((col["b"], Literal(data_type, None)), (condition, col[name])), col[name]
        )
    expressions["coalesce"] = call("coalesce", col["d"], lit(Decimal("1.00"), money()), returns=money())
    expressions["coalesced"] = call("coalesce", col["s"], lit("none"), returns=TEXT)
    projected(engine, table, **expressions)


@pytest.mark.parametrize("count", [1, 3, 12])
@pytest.mark.parametrize("with_null", [False, True])
def test_membership(engine, table, col, count, with_null):
    day = datetime.date(1970, 1, 1)
    lists = {
        "k": list(range(count)), "small": list(range(0, 10 * count, 10)), "s": WORDS[:count],
        "e": [Decimal(n).scaleb(-3) for n in range(count)], "f": [0.0, math.nan, *range(3, count)],
        "t": [day + datetime.timedelta(n) for n in range(count)],
    }  # fmt: skip
    expressions = {}
    for name, found in lists.items():
        listed = [Literal(TYPES[name], float(v) if name == "f" else v) for v in found] + (
            [Literal(TYPES[name], None)] if with_null else []
        )
        expressions[name] = In(BOOL, col[name], tuple(listed))
    projected(engine, table, **expressions)


@pytest.mark.parametrize(
    "pattern", ["", "%", "a%", "%a", "%a%", "a", "_", "__", "%special%deposits%", "b\\%", "un\\_%", "%é%", "日_", "_%_"]
)
def test_like(engine, table, col, pattern):
    s = col["s"]
    projected(
        engine,
        table,
        x=call("like", s, lit(pattern)),
        y=call("not", call("like", s, lit(pattern))),
        z=call("ilike", s, lit(pattern)),
    )


def test_text(engine, table, col):
    s = col["s"]
    expressions = {
        "starts": call("starts_with", s, lit("a")), "upper": call("upper", s, returns=TEXT),
        "lower": call("lower", s, returns=TEXT),
        "length": call("length", s, returns=INT), "concat": call("concat", s, lit("-"), s, returns=TEXT),
        "varying": call("substring", s, col["k"], returns=TEXT), "starts_with_itself": call("starts_with", s, s),
    }  # fmt: skip
    for start in (-1, 0, 1, 2, 9):
        expressions[f"from{start}"] = call("substring", s, lit(start), returns=TEXT)
        for length in (0, 1, 3):
            expressions[f"from{start}for{length}"] = call("substring", s, lit(start), lit(length), returns=TEXT)
    projected(engine, table, **expressions)


def test_components_of_dates(engine, table, col):
    parts = ["year", "quarter", "month", "week", "day", "doy", "dow", "hour", "minute", "second", "epoch"]
    expressions = {}
    for part in parts:
        for name in ("t", "u"):
            expressions[f"{part}-{name}"] = call("extract", col[name], returns=LONG, options=(part,))
    projected(engine, table, **expressions)


@pytest.mark.parametrize("null_on_failure", [False, True])
def test_casts(engine, table, col, null_on_failure):
    targets = [
        INT,
        LONG,
        pa.int8(),
        DOUBLE,
        pa.float32(),
        TEXT,
        BOOL,
        money(),
        money(4, 1),
        pa.decimal128(38, 10),
        DATE,
        STAMP,
        pa.timestamp("s"),
    ]
    for name in TYPES:
        for target in targets:
            temporal = {DATE, STAMP, pa.timestamp("s")}
            if (TYPES[name] in temporal) != (target in temporal) and target != TEXT:
                continue
            projected(engine, table, x=cast(col[name], target, null_on_failure))


def test_filter(engine, table, col):
    schema = schema_of(table)
    for predicate in (
        col["b"],
        call("and", call("less", col["small"], lit(100)), call("is_not_null", col["s"])),
        call("like", col["s"], lit("%a%")),
        Literal(BOOL, None),
        lit(True),
    ):
        both(engine, lambda one, frame, p=predicate: one.to_arrow(one.filter(frame, p), schema), table)


GROUPS = [[], ["k"], ["s"], ["k", "s", "b"], ["f"], ["t"], ["d"], ["w"], ["i"]]


@pytest.mark.parametrize("names", GROUPS, ids="-".join)
def test_aggregates(engine, table, col, names):
    groups = [NamedExpression(f"g{name}", col[name]) for name in names]
    calls = [count("rows")]
    for name, data_type in TYPES.items():
        calls += [
            count(f"count-{name}", col[name]),
            least(f"min-{name}", col[name]),
            greatest(f"max-{name}", col[name]),
        ]
        if name in ("k", "small", "d", "e", "f"):
            calls.append(total(f"sum-{name}", col[name], sum_type(data_type)))
    calls.append(total("wide", col["i"], pa.decimal128(38, 0)))
    calls.append(total("sum-w", col["w"], pa.decimal128(38, 4)))
    schema = tuple(Field(item.name, item.expression.type) for item in groups) + tuple(
        Field(one.name, one.type) for one in calls
    )
    both(
        engine, lambda one, frame: one.to_arrow(one.aggregate(frame, groups, calls), schema), table,
        ordered=False, approximate=True, keys=max(len(groups), 1),
    )  # fmt: skip


@pytest.mark.parametrize("names", [[], ["k"], ["s", "b"]], ids="-".join)
@pytest.mark.parametrize("argument", ["k", "d", "w", "s", "t", "f"])
def test_distinct_lists_and_their_union(engine, table, col, names, argument):
    groups = [NamedExpression(f"g{name}", col[name]) for name in names]
    listed = pa.list_(TYPES[argument])
    distinct = AggregateCall("values", "distinct", col[argument], listed)
    schema = (*(Field(item.name, item.expression.type) for item in groups), Field("values", listed))

    def sets(one, frame):
        made = one.to_arrow(one.aggregate(frame, groups, [distinct]), schema)
        again = one.from_arrow(pa.concat_tables([made, made.slice(0, 1), made]))
        found = columns(made)
        merge = AggregateCall("values", "union", found["values"], listed)
        kept = [NamedExpression(item.name, found[item.name]) for item in groups]
        length = [AggregateCall("length", "sum", call("list_length", found["values"], returns=LONG), LONG)]
        lengths = one.aggregate(one.from_arrow(made), [], length)
        united = one.to_arrow(one.aggregate(again, kept, [merge]), schema)
        assert (
            one.to_arrow(lengths, (Field("length", LONG),))["length"].to_pylist()[0]
            == sum(map(len, made["values"].to_pylist()))
            or not made.num_rows
        )
        return pa.table(
            {
                name: united[name] if name != "values" else [sorted(map(key_of, v)) for v in united[name].to_pylist()]
                for name in united.column_names
            }
        )

    both(engine, sets, table, ordered=False)


@pytest.mark.parametrize("names", [["k"], ["s", "f"], ["d"], ["w", "k"], ["f"], ["t", "u"], ["b", "i"]], ids="-".join)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
def test_sorts(engine, table, col, names, descending, nulls_first):
    keys = [SortKey(col[name], descending != (index == 1), nulls_first) for index, name in enumerate(names)]
    schema = schema_of(table)
    both(engine, lambda one, frame: one.to_arrow(one.sort(frame, keys), schema), table)
    for limit in (0, 3, 10**6):
        both(engine, lambda one, frame, n=limit: one.to_arrow(one.top_k(frame, keys, n), schema), table)


def renamed(table, prefix):
    return table.rename_columns([f"{prefix}{name}" for name in table.column_names])


@pytest.mark.parametrize("kind", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("names", [["k"], ["s"], ["d"], ["w"], ["f"], ["t"], ["small", "b"], []], ids="-".join)
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("sizes", [(0, 7), (7, 0), (30, 1), (200, 60)], ids=str)
def test_joins(engine, kind, names, residual, sizes):
    left, right = renamed(random_table(sizes[0], 5), "l_"), renamed(random_table(sizes[1], 6), "r_")
    a, b = columns(left), columns(right)
    test = call("less", a["l_small"], b["r_small"]) if residual else None
    picked = (
        ["l_k", "l_s", "l_d"] if kind in ("semi", "anti") else ["l_k", "r_s", "l_small", "r_small", "r_w", "r_t", "l_f"]
    )
    types = {field.name: Field(field.name, normalize(field.type)) for field in (*left.schema, *right.schema)}
    keys = [a[f"l_{name}"] for name in names]

    def joined(one, frame):
        build = one.build(one.from_arrow(right), [f"r_{name}" for name in names])
        found = one.probe(frame, build, kind, keys, test, picked)
        if kind == "inner" and test is None:
            assert one.count_matches(frame, build, keys) == found.rows
        return one.to_arrow(found, tuple(types[name] for name in picked))

    both(engine, joined, left, ordered=False)


@pytest.mark.parametrize("kind", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("spread", [1, 7, 10**9])
def test_joins_with_distinct_keys_keep_the_order(engine, kind, spread):
    random = np.random.default_rng(3)
    keys = random.permutation(500) * spread - 1000
    right = pa.table({"r": pa.array([None, *keys.tolist()], LONG), "value": pa.array(range(501), INT)})
    left = pa.table({"l": pa.array([None, -(2**63), 2**63 - 1, *random.choice(keys, 800).tolist(), *range(50)], LONG)})
    picked = ["l"] if kind in ("semi", "anti") else ["l", "value"]
    schema = tuple(Field(name, {"l": LONG, "value": INT}[name]) for name in picked)
    key = [columns(left)["l"]]

    def joined(one, frame):
        build = one.build(one.from_arrow(right), ["r"])
        return one.to_arrow(one.probe(frame, build, kind, key, None, picked), schema)

    both(engine, joined, left)


def test_slices_and_concatenation(engine, table):
    schema = schema_of(table)
    both(engine, lambda one, frame: one.to_arrow(one.slice(frame, 2, 4), schema), table)
    both(engine, lambda one, frame: one.to_arrow(one.slice(frame, 5, None), schema), table)
    both(
        engine,
        lambda one, frame: one.to_arrow(
            one.concatenate([one.slice(frame, 1, 3), frame, one.slice(frame, 0, 0)]), schema
        ),
        table,
    )
    # Operators on a slice: its columns do not start where their memory does.
    found = columns(table)
    doubled = [NamedExpression("x", typed("add", found["d"], found["d"])), NamedExpression("s", found["s"])]
    types = (Field("x", doubled[0].expression.type), Field("s", TEXT))
    both(engine, lambda one, frame: one.to_arrow(one.project(one.slice(frame, 3, 50), doubled), types), table)


@pytest.mark.parametrize("as_integers", [False, True])
@pytest.mark.parametrize("with_bounds", [False, True])
def test_reading(engine, tmp_path, as_integers, with_bounds):
    table = random_table(1000, 4).append_column("v", pa.array([f"row {n % 3}" for n in range(1000)], pa.string_view()))
    paths = [tmp_path / f"{n}.parquet" for n in range(2)]
    for path in paths:
        pq.write_table(table, path, row_group_size=300, store_decimal_as_integer=as_integers)
    read = tuple(ReadColumn(f"t.{field.name}", field.name, normalize(field.type)) for field in table.schema)
    files = ((str(paths[0]), (0, 2)), (str(paths[1]), (3, 1)))
    bounds = (
        (("small", -1000, 999), ("e", Decimal(-2), Decimal(2)), ("w", Decimal(-(10**13)), Decimal(10**13)))
        if with_bounds
        else ()
    )
    found = {column.name: Field(column.name, column.type) for column in read}
    before = engine.host_evaluations
    for predicate in (None, call("less", columns(table)["small"].__class__(LONG, "t.small"), lit(0))):
        for output in (tuple(found), ("t.d", "t.s")):
            request = ReadRequest(files, read, predicate, output, bounds if "w" not in output else ())
            both(
                engine,
                lambda one, frame, r=request, o=output: one.to_arrow(one.read(r), tuple(found[n] for n in o)),
                table,
            )
    assert engine.host_evaluations == before


def test_common_expressions_stay_on_the_device(engine):
    table = random_table(1000, 9)
    found = columns(table)
    before = engine.host_evaluations
    one = Literal(money(), Decimal("1.00"))
    price = typed("multiply", found["e"], typed("subtract", one, found["e"]))
    taxed = typed("multiply", price, typed("add", one, found["e"]))
    projected_frame = engine.project(
        engine.filter(engine.from_arrow(table), call("less_equal", found["t"], lit(datetime.date(1998, 9, 2)))),
        [
            NamedExpression("g", found["s"]),
            NamedExpression("x", taxed),
            NamedExpression("y", call("extract", found["t"], returns=INT, options=("year",))),
        ],
    )
    result = engine.aggregate(
        projected_frame, [NamedExpression("g", found["s"].__class__(TEXT, "g"))],
        [total("x", found["d"].__class__(taxed.type, "x"), sum_type(taxed.type)), count("n")],
    )  # fmt: skip
    assert result.rows > 1
    assert engine.host_evaluations == before


def test_memory_is_counted(engine, device_memory):
    device_memory.restart_peak()
    before = device_memory.used
    frame = engine.from_arrow(pa.table({"x": np.arange(1 << 20)}))
    assert device_memory.used - before >= 8 << 20
    del frame
    assert device_memory.used == before
    assert device_memory.restart_peak() - before >= 8 << 20
    assert device_memory.restart_peak() == before


def test_out_of_memory_is_an_error_that_passes(engine, device_memory):
    frame = engine.from_arrow(pa.table({"x": np.zeros(1 << 24, np.int64)}))
    copies = device_memory.limit // frame.nbytes + 2
    if copies * (1 << 24) >= 2**31:
        pytest.skip("the pool is larger than one column may be")
    with pytest.raises(MemoryError):
        engine.concatenate([frame] * copies)
    summed = engine.aggregate(frame, [], [count("n")])
    assert engine.to_arrow(summed, (Field("n", LONG),))["n"].to_pylist() == [1 << 24]
