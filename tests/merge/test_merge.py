from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.engines.cpu import CpuEngine
from hybridq.errors import NumericOverflow
from hybridq.merge.aggregate import finalize, merge_partials
from hybridq.merge.finish import finish
from hybridq.merge.join import concatenate
from hybridq.merge.sort import merge_sorted
from hybridq.physical.decompose import decompose
from hybridq.physical.merges import AggregateMerge, ConcatenateMerge, FinishLimit, FinishSort, SortMerge
from hybridq.physical.pipeline import FilterStep, ProjectStep
from hybridq.plan.expressions import AggregateCall, Call, Column, Literal, NamedExpression, SortKey
from hybridq.types import Field, average_type, sum_type

LONG, DOUBLE, TEXT, BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()
MONEY = pa.decimal128(15, 2)
MAX = 2**63 - 1


def column(name, data_type):
    return Column(data_type, name)


def plan(calls, groups):
    """Return (partial calls, merge) of aggregates over groups (name: type)."""
    split = decompose(calls)
    keys = tuple(NamedExpression(name, column(name, data_type)) for name, data_type in groups.items())
    schema = tuple(Field(name, data_type) for name, data_type in groups.items())
    schema += tuple(Field(call.name, call.type) for call in split.partial)
    return split.partial, AggregateMerge(tuple(groups), split.merge, (*keys, *split.final), schema)


def in_chunks(table, cuts, calls, groups):
    """Aggregate chunk by chunk, then merge."""
    engine = CpuEngine()
    partial, merge = plan(calls, groups)
    keys = [NamedExpression(name, column(name, data_type)) for name, data_type in groups.items()]
    edges = [0, *sorted(cuts), table.num_rows]
    partials = []
    for start, stop in pairwise(edges):
        frame = engine.from_arrow(table.slice(start, stop - start))
        partials.append(engine.to_arrow(engine.aggregate(frame, keys, partial), merge.partial_schema))
    return finalize(merge, merge_partials(merge, partials))


def bag(table):
    rows = zip(*(item.to_pylist() for item in table.columns), strict=True)
    plain = [tuple("NaN" if isinstance(v, float) and v != v else v for v in row) for row in rows]
    return sorted(plain, key=repr)


def every_call():
    i, m, s, f = column("i", LONG), column("m", MONEY), column("s", TEXT), column("f", DOUBLE)
    return [
        AggregateCall("rows", "count", None, LONG), AggregateCall("known", "count", i, LONG),
        AggregateCall("sum i", "sum", i, LONG), AggregateCall("sum m", "sum", m, sum_type(MONEY)),
        AggregateCall("avg i", "avg", i, DOUBLE), AggregateCall("avg m", "avg", m, average_type(MONEY)),
        AggregateCall("min s", "min", s, TEXT), AggregateCall("max s", "max", s, TEXT),
        AggregateCall("max f", "max", f, DOUBLE), AggregateCall("min f", "min", f, DOUBLE),
        AggregateCall("distinct i", "count", i, LONG, True), AggregateCall("distinct s", "count", s, LONG, True),
        AggregateCall("distinct f", "count", f, LONG, True),
    ]  # fmt: skip


ROWS = st.tuples(
    st.none() | st.integers(-2, 2),
    st.none() | st.integers(-3, 3) | st.sampled_from([2**53 + 1, -(2**53) - 1]),
    st.none() | st.integers(-(10**15) + 1, 10**15 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    st.none() | st.sampled_from(["", "a", "b", "é"]),
    st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]),
)


def table_of(rows):
    types = {"g": LONG, "i": LONG, "m": MONEY, "s": TEXT, "f": DOUBLE}
    return pa.table(
        {name: pa.array([row[n] for row in rows], data_type) for n, (name, data_type) in enumerate(types.items())}
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ROWS, max_size=12), st.data(), st.sampled_from([{}, {"g": LONG}, {"g": LONG, "s": TEXT}, {"f": DOUBLE}])
)
def test_any_split_gives_the_same_answer(rows, data, groups):
    table = table_of(rows)
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=4))
    whole, split = in_chunks(table, [], every_call(), groups), in_chunks(table, cuts, every_call(), groups)
    assert whole.schema.equals(split.schema)
    zero = {"-0.0": 0.0}
    normal = [[tuple(zero.get(repr(value), value) for value in row) for row in bag(found)] for found in (whole, split)]
    assert sorted(normal[0], key=repr) == sorted(normal[1], key=repr)
    if not groups:
        assert whole.num_rows == 1


def test_averages_are_not_averaged():
    table = pa.table({"x": pa.array([Decimal(1), Decimal(2), Decimal(3)], MONEY)})
    result = in_chunks(table, [1], [AggregateCall("a", "avg", column("x", MONEY), average_type(MONEY))], {})
    assert result["a"].to_pylist() == [Decimal("2.000000")]


def test_distinct_counts_are_not_added():
    table = pa.table({"x": pa.array([1, 1, None, 2], LONG)})
    result = in_chunks(table, [1, 2], [AggregateCall("n", "count", column("x", LONG), LONG, True)], {})
    assert result["n"].to_pylist() == [2]


def test_an_overflowing_sum_is_named():
    table = pa.table({"x": [MAX, MAX]})
    call = AggregateCall("sum(t.x)", "sum", column("x", LONG), LONG)
    with pytest.raises(NumericOverflow, match=r"sum\(t\.x\) does not fit int64"):
        in_chunks(table, [1], [call], {})
    assert in_chunks(pa.table({"x": [MAX, MAX, -MAX]}), [2], [call], {})["sum(t.x)"].to_pylist() == [MAX]


@pytest.mark.parametrize("groups", [{}, {"g": LONG}])
def test_no_partials(groups):
    _, merge = plan(every_call(), groups)
    merged = merge_partials(merge, [])
    assert merged.schema.names == [field.name for field in merge.partial_schema]
    result = finalize(merge, merged)
    assert result.num_rows == (0 if groups else 1)
    if not groups:
        found = result.to_pylist()[0]
        assert {found[name] for name in ("rows", "known", "distinct i", "distinct s")} == {0}
        assert found["sum m"] is None
        assert found["avg i"] is None


def test_partials_with_other_dictionaries():
    call = AggregateCall("n", "count", None, LONG)
    partial, merge = plan([call], {"s": TEXT})
    engine = CpuEngine()
    tables = []
    for texts in (["a", "b"], ["b", "c"]):
        table = pa.table({"s": pa.array(texts).dictionary_encode()})
        keys = [NamedExpression("s", column("s", TEXT))]
        tables.append(engine.to_arrow(engine.aggregate(engine.from_arrow(table), keys, partial), merge.partial_schema))
    assert bag(finalize(merge, merge_partials(merge, tables))) == [("a", 1), ("b", 2), ("c", 1)]


SORTED = (Field("x", LONG), Field("s", TEXT))


def sort_merge(offset=0, count=None, descending=False, nulls_first=False):
    return SortMerge((SortKey(column("x", LONG), descending, nulls_first),), SORTED, offset, count)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.none() | st.integers(-3, 3), max_size=6), max_size=4), st.booleans(), st.booleans(),
    st.integers(0, 4), st.none() | st.integers(0, 6),
)  # fmt: skip
def test_merging_runs_is_sorting_them(parts, descending, nulls_first, offset, count):
    engine = CpuEngine()
    merge = sort_merge(offset, count, descending, nulls_first)
    tables = [pa.table({"x": pa.array(part, LONG), "s": [f"{n}.{i}" for i in range(len(part))]},
                       schema=pa.schema([("x", LONG), ("s", TEXT)])) for n, part in enumerate(parts)]  # fmt: skip
    runs = [engine.to_arrow(engine.sort(engine.from_arrow(table), merge.keys), SORTED) for table in tables]
    everything = [row for run in runs for row in run.to_pylist()]

    def place(row):
        none = row["x"] is None
        return (none != nulls_first, 0 if none else -row["x"] if descending else row["x"])

    expected = sorted(everything, key=place)[offset:]
    assert merge_sorted(merge, runs).to_pylist() == (expected if count is None else expected[:count])


def test_no_runs():
    result = merge_sorted(sort_merge(count=5), [])
    assert result.num_rows == 0
    assert result.schema.types == [LONG, TEXT]


def test_concatenation():
    tables = [pa.table({"x": [1, 2], "s": ["a", None]}), pa.table({"x": pa.array([], LONG), "s": pa.array([], TEXT)}),
              pa.table({"x": [3], "s": ["c"]})]  # fmt: skip
    assert concatenate(ConcatenateMerge(SORTED), tables)["x"].to_pylist() == [1, 2, 3]
    assert concatenate(ConcatenateMerge(SORTED, 2), tables)["s"].to_pylist() == ["a", None]
    assert concatenate(ConcatenateMerge(SORTED), []).schema.types == [LONG, TEXT]
    bare = [table.select([]) for table in tables]
    assert concatenate(ConcatenateMerge(()), bare).num_rows == 3
    assert concatenate(ConcatenateMerge((), 2), bare).num_rows == 2


def test_finishing_steps():
    table = pa.table({"x": [3, 1, None, 2], "s": ["c", "a", "n", "b"]})
    above = FilterStep(Call(BOOL, "greater", (column("x", LONG), Literal(LONG, 1))))
    double = ProjectStep((NamedExpression("y", Call(LONG, "add", (column("x", LONG), column("x", LONG)))),))
    order = FinishSort((SortKey(column("x", LONG), True, True),))
    assert finish((), table) is table
    assert finish((above, order), table)["x"].to_pylist() == [3, 2]
    assert finish((order, FinishLimit(1, 2)), table)["s"].to_pylist() == ["c", "b"]
    assert finish((order, FinishLimit(1, None)), table)["s"].to_pylist() == ["c", "b", "a"]
    assert finish((above, double), table).to_pydict() == {"y": [6, 4]}
    assert finish((FinishLimit(10, 5),), table).num_rows == 0


def test_having_without_groups():
    call = AggregateCall("n", "count", None, LONG)
    partial, merge = plan([call], {})
    having = FilterStep(Call(BOOL, "greater", (column("n", LONG), Literal(LONG, 0))))
    engine = CpuEngine()
    for table, expected in ((pa.table({"x": [1]}), 1), (pa.table({"x": pa.array([], LONG)}), 0)):
        partials = [engine.to_arrow(engine.aggregate(engine.from_arrow(table), [], partial), merge.partial_schema)]
        assert finish((having,), finalize(merge, merge_partials(merge, partials))).num_rows == expected
