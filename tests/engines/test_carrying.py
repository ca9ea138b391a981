"""Windows over rows that are cut into ranges give what they give over all rows, wherever the borders are."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.engines.cpu import CpuEngine
from hybridq.engines.ranges import numbered
from hybridq.physical.carried import by_order, can_be_carried, condensation, condensed_schema
from hybridq.physical.windows import decompose_windows
from hybridq.plan.expressions import AggregateCall, Column, Literal, NamedExpression, SortKey
from hybridq.plan.windows import CURRENT, END, START, WHOLE, Bound, Frame, WindowCall
from hybridq.types import Field

ENGINE = CpuEngine()
SCHEMA = (Field("k", pa.int64()), Field("v", pa.int64()), Field("f", pa.float64()), Field("s", pa.string()))
K, V, F, S = (Column(field.type, field.name) for field in SCHEMA)
RUNNING = Frame("range", START, CURRENT)
FRAMES = [
    RUNNING,
    WHOLE,
    Frame("rows", START, CURRENT),
    Frame("rows", Bound("preceding", 2), Bound("following", 1)),
    Frame("rows", START, Bound("preceding", 2)),
    Frame("rows", Bound("following", 2), END),
    Frame("rows", Bound("preceding", 3), Bound("preceding", 2)),
    Frame("range", CURRENT, END),
    Frame("range", CURRENT, CURRENT),
    Frame("range", Bound("preceding", 1), Bound("following", 2)),
    Frame("range", START, Bound("preceding", 1)),
    Frame("range", Bound("following", 1), Bound("following", 3)),
    Frame("groups", Bound("preceding", 1), Bound("following", 1)),
    Frame("groups", Bound("following", 2), END),
]
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 5),
        st.none() | st.integers(-3, 9),
        st.none() | st.sampled_from([0.5, -2.0, float("inf"), float("nan")]),
        st.none() | st.sampled_from(["a", "", "long text"]),
    ),
    min_size=1,
    max_size=24,
)
KEYS = [SortKey(K), SortKey(K, descending=True, nulls_first=True)]


def calls_of(order, frame):
    """Return one window function of each sort."""
    one, two = Literal(pa.int64(), 1), Literal(pa.int64(), 2)
    made = []

    def add(function, arguments, data_type, **further):
        made.append(WindowCall(f"w{len(made)}", function, arguments, data_type, (), order, **further))

    for function in ("row_number", "rank", "dense_rank"):
        add(function, (), pa.uint64())
    for function in ("percent_rank", "cume_dist"):
        add(function, (), pa.float64())
    for tiles in (1, 3, 100):
        add("ntile", (Literal(pa.int64(), tiles),), pa.uint64())
    for ignore_nulls in (False, True):
        add("lag", (V, one, Literal(pa.int64(), None)), pa.int64(), ignore_nulls=ignore_nulls)
        add("lead", (S, two, Literal(pa.string(), "none")), pa.string(), ignore_nulls=ignore_nulls)
        for function, arguments in (("first_value", (V,)), ("last_value", (S,)), ("nth_value", (V, two))):
            add(function, arguments, arguments[0].type, frame=frame, ignore_nulls=ignore_nulls)
    for function, argument, data_type in (
        ("sum", V, pa.int64()), ("count", None, pa.int64()), ("count", F, pa.int64()), ("min", S, pa.string()),
        ("max", F, pa.float64()), ("avg", V, pa.float64()),
    ):  # fmt: skip
        aggregate = AggregateCall("", function, argument, data_type)
        add("aggregate", (), data_type, frame=frame, aggregate=aggregate)
    return made


def whole(table, calls):
    """Compute windows over all rows at once."""
    partial, final = decompose_windows(calls)
    frame = ENGINE.window(ENGINE.from_arrow(table), partial)
    return projected(frame, final, calls)


def by_ranges(table, borders, calls, order):
    """Compute them range by range."""
    how, carried, final = condensation(calls, order)
    ranges = [numbered(table.slice(a, b - a), a, b) for a, b in itertools.pairwise(borders)]
    frames = [ENGINE.from_arrow(part) for part in ranges]
    condensed = [ENGINE.to_arrow(ENGINE.condense(frame, how), condensed_schema(how)) for frame in frames]
    build = ENGINE.build(ENGINE.from_arrow(pa.concat_tables(condensed[::-1])), ())
    made = [projected(ENGINE.carried_window(frame, build, how, carried), final, calls) for frame in frames]
    return pa.concat_tables(made)


def projected(frame, final, calls):
    rows = tuple(NamedExpression(field.name, Column(field.type, field.name)) for field in SCHEMA)
    schema = SCHEMA + tuple(Field(call.name, call.type) for call in calls)
    return ENGINE.to_arrow(ENGINE.project(frame, rows + final), schema)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_ranges_give_what_all_rows_give(data):
    rows, key, frame = data.draw(ROWS), data.draw(st.sampled_from(KEYS)), data.draw(st.sampled_from(FRAMES))
    cuts = data.draw(st.sets(st.integers(1, len(rows))))
    columns = zip(*rows, strict=True)
    table = pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], "kvfs")
    table = ENGINE.to_arrow(ENGINE.sort(ENGINE.from_arrow(table), [key]), SCHEMA)
    calls = calls_of((key,), frame)
    found = by_ranges(table, sorted({0, len(rows), *cuts}), calls, (key,))
    expected = whole(table, calls)
    for call in calls:
        pair = found[call.name].to_pylist(), expected[call.name].to_pylist()
        assert repr(pair[0]) == repr(pair[1]), call.text


@settings(max_examples=20, deadline=None)
@given(ROWS, st.sets(st.integers(1, 24)))
def test_rows_without_an_order_keep_that_of_the_table(rows, cuts):
    columns = zip(*rows, strict=True)
    table = pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], "kvfs")
    calls = calls_of((), Frame("rows", START, CURRENT))
    found = by_ranges(table, sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))}), calls, ())
    assert repr(found.to_pylist()) == repr(whole(table, calls).to_pylist())


def test_few_rows_are_left_of_a_range():
    count = 10_000
    table = numbered(pa.table({"k": list(range(count)), "v": [1] * count}), 0, count)
    sums = WindowCall(
        "sum", "aggregate", (), pa.int64(), (), KEYS[:1], RUNNING, aggregate=AggregateCall("", "sum", V, pa.int64())
    )
    how, _, _ = condensation([sums], tuple(KEYS[:1]))
    assert ENGINE.condense(ENGINE.from_arrow(table), how).rows == 3
    lag = WindowCall("lag", "lag", (V, Literal(pa.int64(), 5), V), pa.int64(), (), tuple(KEYS[:1]))
    how, _, _ = condensation([sums, lag], tuple(KEYS[:1]))
    assert ENGINE.condense(ENGINE.from_arrow(table), how).rows < 40


def rows_frame(offset):
    return Frame("rows", Bound("preceding", offset), CURRENT)


@pytest.mark.parametrize(
    ("function", "further", "carried"),
    [
        ("rank", {}, True),
        ("rank", {"partition": (V,)}, False),
        ("lag", {"arguments": (V, Literal(pa.int64(), 1000), V)}, True),
        ("lag", {"arguments": (V, Literal(pa.int64(), 1001), V)}, False),
        ("lag", {"arguments": (V, K, V)}, False),
        ("first_value", {"arguments": (V,), "frame": rows_frame(999)}, True),
        ("first_value", {"arguments": (V,), "frame": rows_frame(1000)}, False),
        ("first_value", {"arguments": (V,), "frame": Frame("range", Bound("preceding", 5000), CURRENT)}, True),
        ("aggregate", {"aggregate": AggregateCall("", "avg", V, pa.float64())}, True),
        ("aggregate", {"aggregate": AggregateCall("", "median", V, pa.float64())}, False),
        ("aggregate", {"aggregate": AggregateCall("", "count", V, pa.int64(), distinct=True)}, False),
    ],
)
def test_what_can_be_carried(function, further, carried):
    plain = {"arguments": (), "partition": (), "order": tuple(KEYS[:1]), "frame": RUNNING}
    call = WindowCall("w", function, type=pa.int64(), **{**plain, **further})
    assert can_be_carried(call, lambda key: 10.0, 100.0) is carried


def test_a_range_frame_over_many_keys_is_not_carried():
    frame = Frame("range", Bound("preceding", 5), CURRENT)
    call = WindowCall("w", "first_value", (V,), pa.int64(), (), tuple(KEYS[:1]), frame)
    assert not can_be_carried(call, lambda key: 1000.0, 100.0)


def test_an_aggregate_of_all_rows_needs_no_order_of_its_own():
    ordered = WindowCall("rank", "rank", (), pa.uint64(), (), tuple(KEYS[:1]))
    total = WindowCall("n", "aggregate", (), pa.int64(), (), (), aggregate=AggregateCall("", "count", None, pa.int64()))
    assert by_order([total, ordered]) == [(tuple(KEYS[:1]), (ordered, total))]
