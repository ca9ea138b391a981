"""Decimals to the last digit and integers that never wrap, whatever the chunks and devices."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.errors import CastFailed, DivisionByZero, ExecutionError, NumericOverflow
from hybridq.testing.in_process import connect_in_process

from .conftest import MODES, in_order, rows


def decimals(*values, precision=15, scale=2):
    return pa.array([None if value is None else Decimal(value) for value in values], pa.decimal128(precision, scale))


def ints(*values, kind=None):
    return pa.array(values, kind or pa.int64())


def scaled(value):
    """Return hundredths as a decimal, whatever the current context's precision."""
    return Decimal((value < 0, tuple(map(int, str(abs(value)))), -2))


def test_products_of_decimals(ask):
    t = pa.table({"price": decimals("100.00"), "discount": decimals("0.10"), "tax": decimals("0.05")})
    answer = ask("select price * (1 - discount) * (1 + tax) as charge from t", t=t)
    assert in_order(answer) == [(Decimal("94.5"),)]
    assert pa.types.is_decimal(answer.schema.types[0])
    assert 4 <= answer.schema.types[0].scale <= 6


def test_sums_of_products_over_chunks(ask):
    t = pa.table({"price": decimals("100.01", "0.01", "99999999.99"), "rate": decimals("0.07", "0.33", "0.99")})
    answer = ask("select sum(price * (1 - rate) * (1 + rate)) as s from t", t=t)
    exact = sum(p * (1 - r) * (1 + r) for p, r in zip(*(c.to_pylist() for c in t.columns), strict=True))
    assert in_order(answer) == [(exact,)]


def test_a_sum_past_the_columns_precision(ask):
    t = pa.table({"x": decimals("9999999999999.99", "9999999999999.99")})
    answer = ask("select sum(x) as s from t", t=t)
    assert in_order(answer) == [(Decimal("19999999999999.98"),)]
    assert answer.schema.types == [pa.decimal128(38, 2)]


def test_a_decimal_sum_past_38_digits_is_an_error(ask):
    t = pa.table({"x": decimals("9" * 38, "9" * 38, precision=38, scale=0)})
    with pytest.raises(NumericOverflow):
        ask("select sum(x) as s from t", t=t)


def test_averages_of_decimals_are_exact_quotients(ask):
    t = pa.table({"x": decimals("0.01", "0.02", precision=5)})
    answer = ask("select avg(x) as a from t", t=t)
    assert answer.schema.types == [pa.decimal128(9, 6)]
    assert in_order(answer) == [(Decimal("0.015000"),)]
    thirds = pa.table({"x": decimals("0.01", "0.01", "0.03", None), "y": decimals("-0.01", "-0.01", "-0.03", None)})
    assert in_order(ask("select avg(x) as a, avg(y) as b from t", t=thirds)) == [
        (Decimal("0.016667"), Decimal("-0.016667"))
    ]


def test_averages_merge_sums_and_counts(ask):
    t = pa.table({"x": ints(1, 2, 3)})
    path_rows = in_order(ask("select avg(x) as a from t", t=t))
    assert path_rows == [(2.0,)]


def test_averages_of_uneven_chunks(single_units, tmp_path):
    pq.write_table(pa.table({"x": ints(1)}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": ints(2, 3)}), tmp_path / "b.parquet")
    single_units.register("uneven", [tmp_path / "a.parquet", tmp_path / "b.parquet"])
    for mode in MODES:
        assert in_order(single_units.sql("select avg(x) as a from uneven").collect(mode=mode).to_arrow()) == [(2.0,)]


def test_small_integers_add_up_to_large_ones(ask):
    top = 2**31 - 1
    answer = ask("select sum(x) as s from t", t=pa.table({"x": ints(top, top, kind=pa.int32())}))
    assert in_order(answer) == [(2 * top,)]
    answer = ask("select sum(x) as s from t", t=pa.table({"x": ints(*[127] * 4, kind=pa.int8())}))
    assert in_order(answer) == [(508,)]


@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_sum_never_wraps(ask, sign):
    t = pa.table({"big": ints(sign * (2**63 - 1), sign * (2**63 - 1), sign * 5)})
    with pytest.raises(NumericOverflow, match="big"):
        ask("select sum(big) as s from t", t=t)


def test_an_integer_sum_may_pass_through_large_partials(ask):
    t = pa.table({"big": ints(2**63 - 1, 1, -2)})
    assert in_order(ask("select sum(big) as s from t", t=t)) == [(2**63 - 2,)]


def test_integer_arithmetic_never_wraps(ask):
    with pytest.raises(ExecutionError):
        ask("select x + 1 as y from t", t=pa.table({"x": ints(2**63 - 1)}))


def test_large_integers_survive_beside_null(ask):
    t = pa.table({"k": ints(1, 2, 3), "x": ints(2**53 + 1, None, 2**53 + 3)})
    assert in_order(ask("select x from t order by k", order_by=(), t=t)) == [(2**53 + 1,), (None,), (2**53 + 3,)]
    answer = ask("select max(x) as hi, min(x) as lo, sum(x) as s from t", t=t)
    assert in_order(answer) == [(2**53 + 3, 2**53 + 1, 2**54 + 4)]


def test_decimal_sums_are_exact_and_the_same_every_time(single_units, tmp_path):
    random.seed(5)
    count = 40_000
    columns = {name: [random.randrange(-(10**30), 10**30) for _ in range(count)] for name in "xyz"}
    keys = [random.randrange(4) for _ in range(count)]
    kind = pa.decimal128(38, 2)
    arrays = {name: pa.array([scaled(value) for value in values], kind) for name, values in columns.items()}
    pq.write_table(pa.table({"k": keys, **arrays}), tmp_path / "wide.parquet", row_group_size=count // 5)
    single_units.register("wide", tmp_path / "wide.parquet")
    query = single_units.sql("select k, sum(x) as x, sum(y) as y, sum(z) as z from wide group by k")
    expected = []
    for key in range(4):
        sums = (sum(v for k, v in zip(keys, columns[name], strict=True) if k == key) for name in "xyz")
        expected.append((key, *map(scaled, sums)))
    for mode in (*MODES, *MODES):
        assert rows(query.collect(mode=mode).to_arrow()) == expected


def test_division_truncates_integers_and_keeps_decimals(ask):
    t = pa.table({"a": ints(7, -7), "d": decimals("7.00", "-7.00")})
    answer = ask("select a / 2 as q, a % 2 as r, d / 2 as e from t order by a desc", t=t)
    assert in_order(answer) == [(3, 1, Decimal("3.5")), (-3, -1, Decimal("-3.5"))]


@pytest.mark.parametrize("column", ["a", "d"])
def test_division_by_zero_is_an_error(ask, column):
    t = pa.table({"a": ints(1, 0), "d": decimals("1.00", "0.00")})
    with pytest.raises(DivisionByZero):
        ask(f"select 1 / {column} as q from t", t=t)


def test_a_cast_that_fails_is_an_error(ask):
    t = pa.table({"s": pa.array(["1", "x"])})
    with pytest.raises(CastFailed):
        ask("select cast(s as int) as i from t", t=t)


def test_a_forced_wrong_type_is_refused_before_running(ask):
    t = pa.table({"s": pa.array(["1", "x"])})
    assert rows(ask("select s from t where s = '1'", t=t)) == [("1",)]


def test_dates_keep_their_type(ask):
    day = datetime.date(1998, 9, 2)
    t = pa.table({"d": pa.array([day, day + datetime.timedelta(1), None, datetime.date(1969, 12, 31)], pa.date32())})
    answer = ask("select d from t where d <= date '1998-09-02' order by d", t=t)
    assert answer.schema.types == [pa.date32()]
    assert in_order(answer) == [(datetime.date(1969, 12, 31),), (day,)]
    answer = ask("select min(d) as lo, max(d) as hi, count(d) as n from t", t=t)
    assert in_order(answer) == [(datetime.date(1969, 12, 31), day + datetime.timedelta(1), 3)]


def test_parts_of_dates(ask):
    t = pa.table({"d": pa.array([datetime.date(1995, 3, 15), datetime.date(2000, 2, 29)], pa.date32())})
    answer = ask("select extract(year from d) as y, extract(month from d) as m, extract(day from d) as x from t", t=t)
    assert rows(answer) == [(1995, 3, 15), (2000, 2, 29)]
    assert len(set(answer.schema.types)) == 1


def test_timestamps_and_dates_compare_by_instant(ask):
    moments = [datetime.datetime(1998, 9, 2), datetime.datetime(1998, 9, 2, 0, 0, 1)]
    t = pa.table({"at": pa.array(moments, pa.timestamp("us"))})
    assert in_order(ask("select at from t where at <= date '1998-09-02'", t=t)) == [(moments[0],)]


# --- constants are computed as columns are ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constant", "over_a_column", "expected"),
    [
        ("0.5 / 3.00", "d / 3.00", Decimal("0.16667")),
        ("cast(0.5 as bigint)", "cast(d as bigint)", 1),
        ("cast(-2.5 as bigint)", "cast(d - 3.0 as bigint)", -3),
        ("upper('ß')", "upper(s)", "ẞ"),
        ("-7 / 2", "(i - 8) / 2", -3),
        ("round(2.5)", "round(d + 2.0)", Decimal("3.0")),
        ("date '1998-12-01' - interval '90' day", "day - interval '90' day", datetime.date(1998, 9, 2)),
        ("extract(year from date '1998-12-01')", "extract(year from day)", 1998),
        ("1 in (2, NULL)", "i in (2, NULL)", None),
        ("case when 1 = 2 then 1 / 0 else 5 end", "case when i = 2 then 1 / (i - 1) else 5 end", 5),
        ("coalesce(cast(NULL as int), 7)", "coalesce(nullif(i, 1), 7)", 7),
    ],
)
def test_a_constant_is_what_a_column_is(constant, over_a_column, expected):
    row = {
        "i": pa.array([1], pa.int64()), "d": pa.array([Decimal("0.5")], pa.decimal128(1, 1)), "s": pa.array(["ß"]),
        "day": pa.array([datetime.date(1998, 12, 1)]),
    }  # fmt: skip
    with connect_in_process() as session:
        session.register("t", pa.table(row))
        answers = [session.sql(f"select {text} as x from t").collect().to_arrow() for text in (constant, over_a_column)]
    assert [answer.column(0).to_pylist() for answer in answers] == [[expected]] * 2


@pytest.mark.parametrize(
    ("constant", "over_a_column", "error"),
    [
        ("9223372036854775807 + 1", "9223372036854775806 + i + 1", NumericOverflow),
        ("9223372036854775807 * 2", "9223372036854775807 * (i + 1)", NumericOverflow),
        ("-9223372036854775807 - 2", "-9223372036854775807 - i - 1", NumericOverflow),
        ("1 / 0", "1 / (i - 1)", DivisionByZero),
        ("cast(300 as tinyint)", "cast(i + 299 as tinyint)", CastFailed),
    ],
)
def test_a_constant_fails_as_a_column_does(constant, over_a_column, error):
    with connect_in_process() as session:
        session.register("t", pa.table({"i": pa.array([1], pa.int64())}))
        for text in (f"select {constant} as x", f"select {over_a_column} as x from t"):
            with pytest.raises(error):
                session.sql(text).collect()
        # What no row needs does not fail.
        guarded = session.sql(f"select case when i = 2 then {constant} else 0 end as x from t")
        assert guarded.collect().to_arrow().column(0).to_pylist() == [0]


def test_now_is_one_moment_of_the_query():
    with connect_in_process() as session:
        session.register("t", pa.table({"i": [1, 2, 3]}))
        text = "select distinct now() = current_timestamp as a, current_date = cast(now() as date) as b from t"
        query = session.sql(text)
        assert query.collect().to_arrow().to_pylist() == [{"a": True, "b": True}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ceil(d)", ["10.0", None, "-9.0"]),
        ("floor(d)", ["9.0", None, "-10.0"]),
        ("round(d)", ["10.0", None, "-10.0"]),
        ("ceil(d) + 1", ["11.0", None, "-8.0"]),
        ("coalesce(ceil(d), d)", ["10.0", None, "-9.0"]),
        ("case when d > 0 then ceil(d) else d end", ["10.0", None, "-9.9"]),
        ("max(ceil(d)) over ()", ["10.0"] * 3),
        ("ceil(0.5)", ["1.0"] * 3),
    ],
)
def test_rounding_a_decimal_may_give_one_more_digit(ask, text, expected):
    answer = ask(
        f"select n, {text} as x from t",
        t=pa.table({"n": ints(0, 1, 2), "d": decimals("9.9", None, "-9.9", precision=2, scale=1)}),
    )
    found = [value for _, value in in_order(answer)]
    assert found == [None if value is None else Decimal(value) for value in expected]
    answer.validate(full=True)


@pytest.mark.parametrize(
    "condition",
    [
        "x < 1.5", "0.3 <= x", "x = 0.1", "x <> 0.3", "x in (0.1, 0.3)", "x not in (0.1, 1.5)", "x between 0.1 and 1.5",
        "x + x > 0.6", "x is distinct from 0.1", "x > d", "d = x", "case when x >= 0.25 then x < 2.5 else x = 0.1 end",
        "y = 0.1", "y > 0.25", "y in (0.1, 1.5)",
    ],
)  # fmt: skip
def test_floating_point_numbers_compare_with_decimals_as_such(ask, condition):
    """A decimal has no room for these: 1e300, infinity, and what lies between two of its digits."""
    x = [0.1, 0.3, 0.1 + 0.2, 1e300, float("nan"), float("inf"), -float("inf"), None, 1.5]
    d = decimals("0.1", "0.1", "0.3", "0", "0", "0", "0", "0", None)
    y = pa.array([value if value != 1e300 else 3e38 for value in x], pa.float32())
    t = pa.table({"i": ints(*range(len(x))), "x": pa.array(x, pa.float64()), "d": d, "y": y})
    query = f"select i from t where {condition}"
    with duckdb.connect() as duck:
        duck.register("t", t)
        expected = duck.execute(query).fetchall()
    assert rows(ask(query, t=t)) == sorted(expected)


def test_a_cast_to_a_decimal_that_a_query_writes_stays(ask):
    t = pa.table({"x": pa.array([0.1 + 0.2])})
    assert in_order(ask("select cast(x as decimal(30, 15)) = 0.3 as same, x = 0.3 as other from t", t=t)) == [
        (True, True)
    ]
    assert in_order(ask("select x = 0.3 as other from t", t=t)) == [(False,)]
