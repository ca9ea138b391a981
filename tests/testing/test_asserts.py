from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridq.testing.asserts import assert_same_answer, exact_quotient
from hybridq.testing.reference import conform, duckdb_answer, duckdb_connection


def table(**columns):
    return pa.table(columns)


def different(actual, expected, match, **options):
    with pytest.raises(AssertionError, match=match):
        assert_same_answer(actual, expected, **options)


def test_rows_may_come_in_any_order_without_order_by():
    assert_same_answer(table(a=[2, 1, None]), table(a=[None, 1, 2]))


def test_rows_count_as_often_as_they_occur():
    different(table(a=[1, 1, 2]), table(a=[1, 2, 2]), "column 'a'")


def test_row_counts_differ_and_the_message_shows_which_rows():
    different(table(a=[1, 2]), table(a=[1, 2, 3]), r"expected 3 rows, got 2\n  missing \(3,\)")


def test_order_is_checked_where_asked_for():
    different(table(a=[2, 1]), table(a=[1, 2]), "row 0 is out of order or wrong: column 'a' is 2", order_by=["a"])


def test_tied_rows_may_swap():
    expected = table(key=[1, 1, 2], other=["x", "y", "z"])
    assert_same_answer(table(key=[1, 1, 2], other=["y", "x", "z"]), expected, order_by=["key"])
    different(table(key=[1, 1, 2], other=["y", "y", "z"]), expected, "column 'other'", order_by=["key"])


def test_rows_tied_with_the_last_one_may_be_others_of_the_full_answer():
    unlimited = table(key=[1, 2, 2, 2, 3], other=["a", "b", "c", "d", "e"])
    expected = unlimited.slice(0, 3)
    assert_same_answer(table(key=[1, 2, 2], other=["a", "d", "b"]), expected, order_by=[0], unlimited=unlimited)
    for wrong in ("e", "a"):
        different(
            table(key=[1, 2, 2], other=["a", "d", wrong]), expected, "LIMIT may pick", order_by=[0], unlimited=unlimited
        )
    different(table(key=[1, 2, 2], other=["a", "d", "d"]), expected, "not so often", order_by=[0], unlimited=unlimited)


def test_a_limit_without_order_picks_any_rows():
    unlimited = table(a=[1, 2, 3])
    assert_same_answer(table(a=[3, 1]), table(a=[1, 2]), unlimited=unlimited)
    different(table(a=[3, 3]), table(a=[1, 2]), "LIMIT may pick", unlimited=unlimited)


def test_null_nan_and_zero_are_different_values():
    nan = float("nan")
    assert_same_answer(table(a=pa.array([nan, None])), table(a=pa.array([None, nan])))
    different(table(a=pa.array([nan])), table(a=pa.array([None], pa.float64())), "is nan, expected None")
    different(table(a=pa.array([None], pa.float64())), table(a=pa.array([0.0])), "is None, expected 0.0")


def test_floats_to_a_relative_tolerance_only():
    assert_same_answer(table(a=[1e6 * (1 + 1e-14)]), table(a=[1e6]))
    different(table(a=[1e6 * (1 + 1e-11)]), table(a=[1e6]), "column 'a'")


def test_floats_that_differ_in_the_last_bits_do_not_pair_wrong_rows():
    left = table(x=[0.1 + 0.2, 0.3], name=["a", "b"])
    right = table(x=[0.3, 0.1 + 0.2], name=["a", "b"])
    assert_same_answer(left, right)


def test_types_are_part_of_the_answer():
    different(table(a=pa.array([1], pa.int32())), table(a=pa.array([1], pa.int64())), "type int32, expected int64")
    different(
        table(a=pa.array([Decimal("1.0")], pa.decimal128(5, 1))),
        table(a=pa.array([Decimal("1.00")], pa.decimal128(5, 2))),
        "type decimal128",
    )
    assert_same_answer(table(a=pa.array(["x"], pa.large_string())), table(a=pa.array(["x"], pa.string_view())))


def test_column_names_may_repeat():
    names = ["id", "id"]
    left = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=names)
    assert_same_answer(left, left)
    different(left, pa.Table.from_arrays([pa.array([1]), pa.array([3])], names=names), "is 2, expected 3")


@given(st.integers(-(10**20), 10**20), st.integers(-(10**9), 10**9), st.integers(0, 10))
def test_exact_quotient_is_nearest_and_halves_go_away_from_zero(numerator, denominator, scale):
    found = exact_quotient(numerator, denominator, scale)
    if denominator == 0:
        assert found is None
        return
    assert -found.as_tuple().exponent == scale
    negative, digits, _ = found.as_tuple()  # arithmetic on Decimal would round to 28 digits
    unscaled = int("".join(map(str, digits))) * (-1 if negative else 1)
    error = abs(2 * (numerator * 10**scale - unscaled * denominator))
    assert error <= abs(denominator)
    if error == abs(denominator):
        assert abs(unscaled * denominator) > abs(numerator * 10**scale)


def test_duckdb_types_convert_only_without_loss():
    connection = duckdb_connection()
    schema = pa.schema([("total", pa.int64()), ("mean", pa.decimal128(9, 6))])
    found = duckdb_answer(
        "select sum(x::int) total, sum(x) mean__numerator, count(x) mean__denominator "
        "from (values (0.01::decimal(5,2)), (0.02), (null)) t(x)",
        connection,
        schema,
    )
    assert found.to_pylist() == [{"total": 0, "mean": Decimal("0.015000")}]
    with pytest.raises(AssertionError, match="DuckDB gives double"):
        duckdb_answer("select avg(1.5::decimal(5,2)) x", connection, pa.schema([("x", pa.decimal128(9, 6))]))
    with pytest.raises(AssertionError, match="column 'x'"):
        conform(table(x=pa.array([Decimal("1.25")])), pa.schema([("x", pa.decimal128(9, 1))]))
