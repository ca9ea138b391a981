"""The split loses no row, and sends equal values to the same partition whatever form they are stored in."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.engines.split import LONG_TEXT, hash_rows, partition_numbers, select, split
from hybridq.types import is_splittable

COUNTS = (1, 127, 128, 129, 255, 256, 32767, 32768)

NAN = float("nan")
WHOLE = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
VALUES = {
    pa.int8(): st.integers(-128, 127),
    pa.uint8(): st.integers(0, 255),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): WHOLE,
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats() | st.sampled_from([0.0, -0.0, NAN]),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.time64("us"): st.times(),
    pa.decimal128(15, 2): st.decimals(-(10**12), 10**12, places=2),
    pa.decimal128(38, 0): st.integers(-(10**37), 10**37).map(Decimal),
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.binary(): st.binary(max_size=20),
    pa.binary(5): st.binary(min_size=5, max_size=5),
    pa.null(): st.none(),
}


def numbers(values, data_type, partitions=1000):
    return partition_numbers(pa.table({"k": pa.array(values, data_type)}), ["k"], partitions).tolist()


@st.composite
def tables(draw):
    """Tables of one to three keys of any types, in several pieces, some of which begin in the middle of a buffer."""
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    rows = draw(st.integers(0, 60))
    columns = {}
    for position, data_type in enumerate(types):
        values = draw(st.lists(st.none() | VALUES[data_type], min_size=rows, max_size=rows))
        column = pa.array(values, data_type)
        if data_type in (pa.string(), pa.int32(), pa.decimal128(15, 2)) and draw(st.booleans()):
            column = column.dictionary_encode()
        columns[f"k{position}"] = column
    table = pa.table({**columns, "row": pa.array(range(rows), pa.int64())})
    cut = draw(st.integers(0, rows))
    if draw(st.booleans()):
        table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    return table, list(columns)


@pytest.mark.parametrize("partitions", COUNTS)
@given(made=tables())
@settings(max_examples=12, deadline=None)
def test_no_row_is_lost_and_equal_keys_meet(made, partitions):
    table, keys = made
    found = split(table, keys, partitions)
    assert len(found.starts) == partitions + 1
    assert found.starts[0] == 0
    assert found.starts[-1] == table.num_rows
    assert (np.diff(found.starts) >= 0).all()
    assert sorted(found.table["row"].to_pylist()) == list(range(table.num_rows))
    place = {}
    numbered = partition_numbers(table, keys, partitions)
    for number in np.unique(numbered).tolist():
        piece = found.piece(number)
        assert piece["row"].to_pylist() == np.flatnonzero(numbered == number).tolist()  # and in their order
        for row in piece.select(keys).to_pylist():
            key = tuple(repr(value + 0.0 if isinstance(value, float) else value) for value in row.values())
            assert place.setdefault(key, number) == number


@pytest.mark.parametrize("partitions", COUNTS)
def test_many_rows_spread_evenly(partitions):
    rows = 300_000
    table = pa.table({"k": np.arange(rows), "t": pa.array([f"text {i}" for i in range(rows)])})
    for key in ("k", "t"):
        found = split(table, [key], partitions)
        sizes = np.diff(found.starts)
        assert sizes.sum() == rows
        even = rows / partitions
        assert sizes.max() <= even + 7 * even**0.5 + 1


@given(values=st.lists(st.none() | st.integers(-128, 127), max_size=50))
@settings(deadline=None)
def test_integers_of_any_width_meet(values):
    wide = numbers(values, pa.int64())
    assert numbers(values, pa.int8()) == numbers(values, pa.int16()) == numbers(values, pa.int32()) == wide
    positive = [None if value is None else abs(value) % 128 for value in values]
    assert numbers(positive, pa.uint8()) == numbers(positive, pa.uint64()) == numbers(positive, pa.int32())


@given(values=st.lists(st.none() | TEXTS, max_size=50))
@settings(deadline=None)
def test_texts_in_any_form_meet(values):
    plain = numbers(values, pa.string())
    assert numbers(values, pa.large_string()) == numbers(values, pa.string_view()) == plain
    assert numbers(values, pa.dictionary(pa.int8(), pa.string())) == plain


def test_texts_differ_by_any_byte_and_by_length():
    texts = [b"", b"\0", b"\0\0", b"a", b"a\0", b"abcdefgh", b"abcdefgh\0", b"abcdefghi", b"bbcdefgh", b"abcdefgi"]
    texts += [b"x" * (LONG_TEXT - 1), b"x" * LONG_TEXT, b"x" * (LONG_TEXT + 1), b"x" * LONG_TEXT + b"y"]
    found = hash_rows([pa.chunked_array([pa.array(texts, pa.large_binary())])])
    assert len(set(found.tolist())) == len(texts)
    again = hash_rows([pa.chunked_array([pa.array([b"before", *texts, b"after"]).slice(1, len(texts))])])
    assert again.tolist() == found.tolist()


def test_floats_that_are_equal_meet():
    other_nan = np.frombuffer(np.uint64(0xFFF0000000000001).tobytes(), np.float64)[0]
    assert len(set(numbers([0.0, -0.0], pa.float64()))) == 1
    assert len(set(numbers(np.array([NAN, other_nan, -NAN]), pa.float64()))) == 1
    assert numbers([1.5, -0.0, NAN], pa.float32()) == numbers([1.5, 0.0, NAN], pa.float64())


def test_null_is_one_key_and_none_of_the_others():
    table = pa.table({"a": pa.array([None, None, 0, 0]), "b": pa.array([1, 1, 1, None])})
    assert len(set(hash_rows([table["a"], table["b"]]).tolist())) == 3


def test_another_round_splits_a_partition():
    table = pa.table({"k": np.arange(100_000)})
    piece = split(table, ["k"], 16).piece(3)
    parts = [select(piece, ["k"], 4, number, 1) for number in range(4)]
    assert sum(part.num_rows for part in parts) == piece.num_rows
    assert max(part.num_rows for part in parts) < piece.num_rows * 0.3
    # Twice as many parts are halves of these.
    eighths = [select(piece, ["k"], 8, number, 1).num_rows for number in range(8)]
    assert [eighths[2 * i] + eighths[2 * i + 1] for i in range(4)] == [part.num_rows for part in parts]


def test_types_that_cannot_be_keys():
    assert is_splittable(pa.date32())
    assert not is_splittable(pa.list_(pa.int8()))
    assert not is_splittable(pa.month_day_nano_interval())
    with pytest.raises(TypeError, match="list"):
        split(pa.table({"k": pa.array([[1]])}), ["k"], 2)
    with pytest.raises(ValueError, match="partitions"):
        split(pa.table({"k": pa.array([1])}), ["k"], 2**16 + 1)


def test_dates_and_times_are_told_apart():
    day = datetime.date(2024, 2, 29)
    assert numbers([day, None, day], pa.date32())[0] == numbers([day, None, day], pa.date32())[2]
