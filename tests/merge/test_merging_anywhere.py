"""Partial aggregates of any pieces of a table, merged in any nesting, are the aggregates of the table."""

from __future__ import annotations

import itertools
import math
import statistics
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.engines.cpu import CpuEngine
from hybridq.merge.aggregate import finalize, merge_partials
from hybridq.physical.decompose import decompose
from hybridq.physical.merges import AggregateMerge
from hybridq.plan.aggregates import AGGREGATES, aggregate_type
from hybridq.plan.expressions import AggregateCall, Call, Column, Literal, NamedExpression, SortKey
from hybridq.testing.asserts import assert_same_answer
from hybridq.types import Field

NAN = float("nan")
TYPES = {
    "g": pa.int64(), "i": pa.int32(), "x": pa.float64(), "y": pa.float64(), "d": pa.decimal128(15, 2),
    "w": pa.decimal128(38, 3), "b": pa.bool_(), "s": pa.string(), "r": pa.int64(),
}  # fmt: skip


def col(name):
    return Column(TYPES[name], name)


def call(function, *arguments, distinct=False, order=(), condition=None):
    columns = tuple(col(argument) if isinstance(argument, str) else argument for argument in arguments)
    data_type = aggregate_type(function, tuple(column.type for column in columns))
    name = f"{function} {len(str(arguments))} {arguments} {distinct} {order}"
    return AggregateCall(name, function, columns[0], data_type, distinct, columns[1:], order, condition)


ROW = SortKey(col("r"))
HALF, TENTH = Literal(pa.float64(), 0.5), Literal(pa.float64(), 0.1)
COMMA = Literal(pa.string(), ",")
POSITIVE = Call(pa.bool_(), "greater", (col("i"), Literal(pa.int32(), 0)))
CALLS = [
    *(call(f"{kind}_{of}", name) for kind in ("var", "stddev") for of in ("samp", "pop") for name in "xi"),
    *(call(name, "y", "x") for name in AGGREGATES if name.startswith(("corr", "covar", "regr"))),
    *(call("median", name) for name in "xidw"),
    *(call("quantile_cont", "x", fraction) for fraction in (HALF, TENTH)),
    *(call("quantile_disc", name, TENTH) for name in "xidsw"),
    *(call("approx_distinct", name) for name in "xidswb"),
    *(call(f"bool_{name}", "b") for name in ("and", "or")),
    *(call(f"bit_{name}", "i") for name in ("and", "or", "xor")),
    *(call(name, "d", distinct=True) for name in ("sum", "avg", "count", "median")),
    *(call(name, "i", distinct=True) for name in ("sum", "avg", "bit_xor", "var_samp")),
    call("count", "i", "s", distinct=True),
    call("array_agg", "i", order=(SortKey(col("x"), True, True), ROW)),
    call("array_agg", "s"),
    call("array_agg", "s", distinct=True),
    call("array_agg", "x", distinct=True, order=(SortKey(col("x"), True, True),)),
    call("array_agg", "d", order=(ROW,), condition=POSITIVE),
    call("string_agg", "s", COMMA, order=(SortKey(col("s")), ROW)),
    call("string_agg", "s", COMMA, distinct=True),
    *(call(f"{end}_value", "s", order=(SortKey(col("x")), ROW)) for end in ("first", "last")),
    *(call(f"{end}_value", "w", order=(SortKey(col("i"), True),)) for end in ("first", "last")),
    call("first_value", "i"),
    call("any_value", "s"),
]

values = {
    "g": st.sampled_from([None, 0, 1]),
    "i": st.none() | st.integers(-3, 3) | st.sampled_from([-(2**31), 2**31 - 1]),
    "x": st.none() | st.integers(-4, 4).map(float) | st.sampled_from([NAN, 1e9 + 0.25, 1e9 + 0.5, 1e-9, -0.0]),
    "y": st.none() | st.floats(-10, 10),
    "d": st.none() | st.decimals(-10, 10, places=2),
    "w": st.none() | st.decimals(-10, 10, places=3) | st.decimals(-(10**33), 10**33, places=3),
    "b": st.none() | st.booleans(),
    "s": st.none() | st.sampled_from(["", "a", "ä", "b\x00", "abcdefgh", "abcdefghi", "𝄞"]),
}
records = st.lists(st.fixed_dictionaries(values), max_size=14)


def table_of(rows):
    numbered = [{**row, "r": number} for number, row in enumerate(rows)]
    return pa.Table.from_pylist(numbered, schema=pa.schema(list(TYPES.items())))


def merge_of(calls, groups):
    parts = decompose(calls)
    keys = tuple(Field(name, TYPES[name]) for name in groups)
    final = tuple(NamedExpression(key.name, Column(key.type, key.name)) for key in keys) + parts.final
    schema = keys + tuple(Field(partial.name, partial.type) for partial in parts.partial)
    return AggregateMerge(tuple(groups), parts.merge, final, schema), parts.partial


def partial(table, calls, groups, merge):
    engine = CpuEngine()
    keys = [NamedExpression(name, col(name)) for name in groups]
    return engine.to_arrow(engine.aggregate(engine.from_arrow(table), keys, calls), merge.partial_schema)


def aggregated(pieces, calls, groups, pairwise=False):
    merge, partials = merge_of(calls, groups)
    tables = [partial(piece, partials, groups, merge) for piece in pieces]
    while pairwise and len(tables) > 1:
        tables = [merge_partials(merge, tables[i : i + 2]) for i in range(0, len(tables), 2)]
    return finalize(merge, merge_partials(merge, tables))


@settings(max_examples=60, deadline=None)
@given(records, st.lists(st.integers(0, 14), max_size=5), st.booleans(), st.booleans())
def test_any_cut_gives_the_same(rows, cuts, grouped, pairwise):
    table = table_of(rows)
    groups = ("g",) if grouped else ()
    ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    pieces = [table.slice(start, stop - start) for start, stop in itertools.pairwise(ends)]
    # An intercept is a difference that may cancel to nothing but rounding.
    assert_same_answer(
        aggregated(pieces, CALLS, groups, pairwise),
        aggregated([table], CALLS, groups),
        relative_tolerance=1e-9,
        absolute_tolerance=1e-12,
    )


def test_nothing_at_all():
    answer = aggregated([], CALLS, ()).to_pylist()[0]
    for each in CALLS:
        nothing = 0 if each.function in ("count", "approx_distinct", "regr_count") else None
        assert answer[each.name] == nothing, each.name
    assert aggregated([], CALLS, ("g",)).num_rows == 0


finite = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


@settings(max_examples=60, deadline=None)
@given(st.lists(finite, min_size=2, max_size=40), st.sampled_from([0.0, 1e9, -1e12]), st.integers(1, 39))
def test_variances_far_from_zero(numbers, offset, cut):
    """What sums of squares would lose entirely: the spread of values that are all large."""
    shifted = [offset + number for number in numbers]
    exact = statistics.pvariance([Fraction(number) for number in shifted])
    table = table_of([dict.fromkeys(values) | {"x": number} for number in shifted])
    pieces = [table.slice(0, cut), table.slice(cut)]
    (answer,) = aggregated(pieces, [call("var_pop", "x")], ()).to_pylist()
    (found,) = answer.values()
    assert math.isclose(found, float(exact), rel_tol=1e-12, abs_tol=0.0)


def test_a_constant_has_no_variance():
    table = table_of([dict.fromkeys(values) | {"x": 0.1, "y": 0.3}] * 7)
    calls = [call("var_pop", "x"), call("stddev_samp", "y"), call("corr", "y", "x"), call("regr_slope", "y", "x")]
    pieces = [table.slice(0, 3), table.slice(3)]
    assert list(aggregated(pieces, calls, ()).to_pylist()[0].values()) == [0.0, 0.0, None, None]


@pytest.mark.parametrize("name", ["i", "d", "s"])
def test_the_error_of_an_estimate(name):
    count = 200_000
    by_name = {
        "i": pa.array(range(count), pa.int32()),
        "d": pa.array(range(count), pa.int32()).cast(pa.decimal128(13, 2)).cast(TYPES["d"]),
        "s": pa.array([f"value {number}" for number in range(count)]),
    }
    whole = pa.table({key: by_name.get(key, pa.nulls(count, kind)) for key, kind in TYPES.items()})
    pieces = [whole.slice(start, 30_000) for start in range(0, count, 25_000)]
    (answer,) = aggregated(pieces, [call("approx_distinct", name)], ()).to_pylist()
    (estimate,) = answer.values()
    assert abs(estimate - count) < 4 * count / math.sqrt(4094)
    assert aggregated([whole], [call("approx_distinct", name)], ()).to_pylist() == [answer]
