"""Every type: read, filtered, grouped, joined, ordered, cast and written, in every mode, beside DuckDB."""

from __future__ import annotations

import datetime as dt
import sys
from decimal import Decimal

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.errors import CastFailed, NumericOverflow, RequestError, Unsupported
from hybridq.output import write_answer
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import conform
from hybridq.types import declared

MOMENTS = [dt.datetime(1970, 1, 1), dt.datetime(2024, 2, 29, 23, 59, 59), dt.datetime(1901, 1, 1, 12), None]
FINE = [dt.datetime(1970, 1, 1), dt.datetime(2024, 2, 29, 23, 59, 59, 123456), dt.datetime(1901, 1, 1, 12), None]


def limits(bits, signed=True):
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return [low, high, 0, 1, None, high]


TYPES = {
    **{f"int{bits}": (getattr(pa, f"int{bits}")(), limits(bits)) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (getattr(pa, f"uint{bits}")(), limits(bits, False)) for bits in (8, 16, 32, 64)},
    "float32": (pa.float32(), [0.0, -1.5, 3.4e38, 0.1, None, float("inf"), float("nan"), 0.1]),
    "float64": (pa.float64(), [0.0, -1.5, 1.7e308, 0.1, None, float("-inf"), float("nan"), 0.1]),
    "decimal9": (pa.decimal128(9, 2), [Decimal("9999999.99"), Decimal("-9999999.99"), Decimal("0.00"), None]),
    "decimal18": (pa.decimal128(18, 6), [Decimal("999999999999.999999"), Decimal("-0.000001"), None, Decimal("1.5")]),
    "decimal38": (pa.decimal128(38, 10), [Decimal("9" * 28 + "." + "9" * 10), Decimal("-1e-10"), None, Decimal("1.5")]),
    "integral38": (pa.decimal128(38, 0), [Decimal("9" * 38), Decimal("-" + "9" * 38), None, Decimal(0)]),
    "bool": (pa.bool_(), [True, False, None, True]),
    "string": (pa.string(), ["", "a", "Straße", "日本語", None, "a", "\0", "zzz"]),
    "large_string": (pa.large_string(), ["", "b", None, "b", "é"]),
    "string_view": (pa.string_view(), ["", "b", None, "b", "longer than twelve bytes"]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["x", "y", None, "x", ""]),
    "dictionary_of_integers": (pa.dictionary(pa.int16(), pa.int64()), [7, 8, None, 7]),
    "binary": (pa.binary(), [b"", b"\x00\xff", None, b"abc", b"\x00\xff"]),
    "large_binary": (pa.large_binary(), [b"", b"\x01", None, b"abc", b"abc"]),
    "date": (pa.date32(), [dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(1970, 1, 1)]),
    **{f"timestamp_{unit}": (pa.timestamp(unit), MOMENTS if unit == "s" else FINE) for unit in ("us", "ns")},
    "timestamp_ms": (pa.timestamp("ms"), [*MOMENTS, dt.datetime(2000, 1, 1, 0, 0, 0, 123000)]),
    "timestamp_s": (pa.timestamp("s"), MOMENTS),
    "timestamp_us_utc": (pa.timestamp("us", "UTC"), FINE),
    "timestamp_ns_utc": (pa.timestamp("ns", "UTC"), FINE),
    "timestamp_us_paris": (pa.timestamp("us", "Europe/Paris"), FINE),
}
"""Type and values by name; extremes, a repeated value and NULL among them."""


def table_of(name):
    data_type, values = TYPES[name]
    if pa.types.is_dictionary(data_type):
        array = pa.array(values, data_type.value_type).dictionary_encode().cast(data_type)
    else:
        array = pa.array(values, data_type)
    return pa.table({"id": pa.array(range(len(values)), pa.int64()), "x": array})


@pytest.fixture(scope="module")
def duck():
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    return connection


@pytest.fixture(scope="module")
def session():
    with connect_in_process(chunk_units=1) as found:
        yield found


def ask(session, text):
    query = session.sql(text)
    first, *others = (query.collect(mode=mode).to_arrow() for mode in ("cpu", "gpu", "cop"))
    for other in others:
        assert_same_answer(other, first)
    assert first.schema.types == query.schema.types
    return first


def as_declared(found, schema):
    """DuckDB's answer in the declared types: its columns of bytes, zones and other units are the same values."""
    columns = []
    for column, field in zip(found.columns, schema, strict=True):
        if column.type != field.type and (pa.types.is_timestamp(field.type) or pa.types.is_floating(field.type)):
            column = column.cast(field.type)
        columns.append(column)
    return conform(pa.table(columns, names=found.column_names), schema)


QUERIES = {
    "project": "select id, x from {t}",
    "null": "select id, x is null as n, x is not null as k from {t}",
    "equal": "select a.id from {t} a where a.x = (select max(x) from {t})",
    "ordered": "select id, x from {t} order by x nulls first, id",
    "descending": "select id, x from {t} order by x desc nulls last, id limit 3",
    "grouped": "select x, count(*) as n, min(id) as i from {t} group by x",
    "distinct": "select distinct x from {t}",
    "extremes": "select min(x) as low, max(x) as high, count(x) as n, count(distinct x) as d from {t}",
    "joined": "select a.id, b.id as other, b.x from {t} a join {t} b on a.x = b.x",
    "left": "select a.id, b.x from {t} a left join (select * from {t} where id > 1) b on a.x = b.x",
    "chosen": "select id, case when id < 2 then x end as y, coalesce(x, x) as z, nullif(x, x) as w from {t}",
    "extreme_of_two": "select id, greatest(x, x) as g, least(x, null) as l from {t}",
    "compared": (
        "select a.id, b.id as other, a.x < b.x as lt, a.x >= b.x as ge, a.x <> b.x as ne"
        " from {t} a, {t} b where a.id = b.id"
    ),
    "distinct_from": "select id, x is distinct from x as d, x is not distinct from null as s from {t}",
    "united": "select x from {t} union select x from {t}",
}


@pytest.mark.parametrize("stored", ["memory", "parquet"])
@pytest.mark.parametrize("name", TYPES)
def test_a_type_goes_through_every_operator(session, duck, name, stored, tmp_path):
    table = table_of(name)
    duck.register("t", table)
    if stored == "parquet":
        pq.write_table(table, tmp_path / "t.parquet", row_group_size=2)
        session.register("t", tmp_path / "t.parquet")
    else:
        session.register("t", table)
    for label, text in QUERIES.items():
        if name == "bool" and label in ("extremes", "equal"):
            continue  # booleans have no MIN and MAX
        sql = text.format(t="t")
        found = ask(session, sql)
        assert_same_answer(found, as_declared(duck.execute(sql).to_arrow_table(), found.schema))
    read = declared(table.schema.field("x").type)
    assert found.schema.field("x").type == (in_parquet(read) if stored == "parquet" else read)


def in_parquet(data_type):
    """Parquet has no timestamps in seconds."""
    return pa.timestamp("ms") if data_type == pa.timestamp("s") else data_type


@pytest.mark.parametrize("name", TYPES)
def test_an_answer_keeps_its_type_in_parquet(session, name, tmp_path):
    session.register("t", table_of(name))
    found = ask(session, "select id, x from t")
    write_answer(found, "parquet", tmp_path / "answer.parquet", sys.stdout)
    back = pq.read_table(tmp_path / "answer.parquet")
    assert back.schema.types == [in_parquet(data_type) for data_type in found.schema.types]
    assert back.to_pylist() == found.to_pylist() or name.startswith("float")
    assert_same_answer(back.cast(found.schema), found)


# --- types that are passed through ---------------------------------------------------------------------------------


def test_a_column_of_nulls_only_is_one_of_integers(session, duck, tmp_path):
    table = pa.table({"id": [0, 1, 2], "x": pa.nulls(3)})
    pq.write_table(table, tmp_path / "t.parquet")
    duck.register("t", table)
    for source in (table, tmp_path / "t.parquet"):
        session.register("t", source)
        for sql in (
            "select id, x from t", "select count(x) as n, sum(x) as s, min(x) as m from t",
            "select x from t where x = 1",
            "select x, count(*) as n from t group by x", "select a.id from t a join t b on a.x = b.x",
            "select coalesce(x, 7) as y from t", "select id, x is null as n from t order by x, id",
        ):  # fmt: skip
            found = ask(session, sql)
            assert_same_answer(found, conform(duck.execute(sql).to_arrow_table(), found.schema))
    assert ask(session, "select x from t").schema.field("x").type == pa.int32()


LISTS = pa.table({"id": range(5), "x": pa.array([[1, 2], [], None, [3], [None]], pa.list_(pa.int64()))})
TEXT_LISTS = pa.table({"id": range(3), "x": pa.array([["é", ""], None, []], pa.large_list(pa.large_string()))})


@pytest.mark.parametrize("table", [LISTS, TEXT_LISTS], ids=["integers", "texts"])
def test_lists_are_read_and_passed_through(session, duck, table, tmp_path):
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    duck.register("t", table)
    for source in (table, tmp_path / "t.parquet"):
        session.register("t", source)
        for sql in (
            "select id, x from t", "select x from t where x is not null", "select count(x) as n from t",
            "select a.id, b.x from t a left join t b on a.id = b.id and b.id > 0",
            "select id, x from t order by id desc limit 2",
            "select case when id > 0 then x end as y from t", "select x from t union all select x from t",
        ):  # fmt: skip
            found = ask(session, sql)
            expected = duck.execute(sql).to_arrow_table().cast(found.schema)
            assert_same_answer(found, expected)
        for sql in (
            "select distinct x from t", "select x, count(*) from t group by x", "select id from t order by x",
            "select a.id from t a join t b on a.x = b.x", "select max(x) from t",
        ):  # fmt: skip
            with pytest.raises(RequestError, match=r"list"):
                session.sql(sql).collect()


@pytest.mark.parametrize(
    ("data_type", "values"),
    [(pa.struct([("a", pa.time64("us"))]), [{"a": dt.time(1)}, None]),
     (pa.map_(pa.string(), pa.time64("us")), [[("k", dt.time(1))], None]),
     (pa.time64("us"), [dt.time(1, 2), None])],
)  # fmt: skip
def test_types_that_queries_cannot_use_are_named(session, data_type, values):
    session.register("t", pa.table({"id": [0, 1], "x": pa.array(values, data_type)}))
    assert ask(session, "select id from t").num_rows == 2
    with pytest.raises(Unsupported, match=r"column t\.x has the type"):
        session.sql("select x from t")


def test_storage_types_become_the_type_that_holds_their_values(session, tmp_path):
    table = pa.table(
        {
            "h": pa.array([1.5, None, -0.25], pa.float16()),
            "d": pa.array([dt.date(2020, 1, 1), None, dt.date(1960, 1, 1)], pa.date64()),
            "b": pa.array([b"ab", None, b"cd"], pa.binary(2)),
            "m": pa.array([Decimal("1.00"), None, Decimal("-2.50")], pa.decimal256(50, 2)),
        }
    )
    pq.write_table(table.drop(["h"]), tmp_path / "t.parquet")
    wanted = {"h": pa.float32(), "d": pa.date32(), "b": pa.binary(), "m": pa.decimal128(38, 2)}
    session.register("t", table)
    found = ask(session, "select * from t")
    assert dict(zip(found.schema.names, found.schema.types, strict=True)) == wanted
    assert found.to_pylist() == table.to_pylist()
    session.register("t", tmp_path / "t.parquet")
    assert ask(session, "select * from t").to_pylist() == table.drop(["h"]).to_pylist()


def test_categories_of_pandas(session):
    frame = pd.DataFrame({"x": pd.Categorical(["b", "a", None, "b"]), "n": pd.Categorical([3, 1, 3, 3])})
    session.register("t", frame)
    found = ask(session, "select x, sum(n) as s, count(*) as c from t group by x order by x")
    assert found.to_pydict() == {"x": ["a", "b", None], "s": [1, 6, 3], "c": [1, 2, 1]}


def test_intervals_and_durations(session):
    table = pa.table(
        {
            "t": pa.array([dt.datetime(2024, 1, 31), dt.datetime(2024, 1, 31), None], pa.timestamp("us")),
            "i": pa.array([(1, 2, 3_000_000_000), None, (0, 1, 0)], pa.month_day_nano_interval()),
            "p": pa.array([dt.timedelta(days=1), dt.timedelta(seconds=-1), None], pa.duration("us")),
        }
    )
    session.register("t", table)
    assert ask(session, "select i, p from t")["i"].to_pylist() == table["i"].to_pylist()
    found = ask(session, "select t + i as a, t - i as b, t + p as c from t").to_pydict()
    assert found["a"] == [dt.datetime(2024, 3, 2, 0, 0, 3), None, None]
    assert found["b"] == [dt.datetime(2023, 12, 28, 23, 59, 57), None, None]
    assert found["c"] == [dt.datetime(2024, 2, 1), dt.datetime(2024, 1, 30, 23, 59, 59), None]
    assert ask(session, "select max(p) as m, min(p) as n from t").to_pylist() == [
        {"m": dt.timedelta(days=1), "n": dt.timedelta(seconds=-1)}
    ]
    with pytest.raises(Unsupported, match="interval"):
        session.sql("select i from t order by i")


# --- conversions ---------------------------------------------------------------------------------------------------

NUMBERS = {
    "tiny": pa.array([-128, 127, 0, 1, None], pa.int8()),
    "large": pa.array([-(2**63), 2**63 - 1, 0, 1, None], pa.int64()),
    "byte": pa.array([0, 255, 1, None, 2], pa.uint8()),
    "huge": pa.array([0, 2**64 - 1, 1, None, 2], pa.uint64()),
    "single": pa.array([0.1, -1.5, 3.4e38, None, 2.5], pa.float32()),
    "real": pa.array([0.1, -1.5, 1e300, None, 2.5], pa.float64()),
    "money": pa.array(
        [Decimal("1.25"), Decimal("-1.25"), Decimal("99999999.99"), None, Decimal("2.50")], pa.decimal128(10, 2)),
    "wide": pa.array([Decimal("9" * 38), Decimal(-1), Decimal(0), None, Decimal(300)], pa.decimal128(38, 0)),
    "truth": pa.array([True, False, None, True, False], pa.bool_()),
}  # fmt: skip
OTHERS = {
    "word": pa.array(["12", "-7", "abc", None, " 3 "], pa.string()),
    "fraction": pa.array(["1.005", "-7.5", "1e2", None, ""], pa.string()),
    "day_text": pa.array(["2024-02-29", "1970-01-01", "2024-02-30", None, "2024-02-29 01:02:03"], pa.string()),
    "time_text": pa.array(["2024-02-29 12:34:56.789", "1970-01-01 00:00:00", "bad", None, "2024-02-29"], pa.string()),
    "truth_text": pa.array(["true", "f", "maybe", None, "1"], pa.string()),
    "day": pa.array([dt.date(2024, 2, 29), dt.date(1960, 1, 1), dt.date(2200, 12, 31), None, dt.date(1970, 1, 1)]),
    "time": pa.array(
        [dt.datetime(2024, 2, 29, 12, 34, 56, 789000), dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
         dt.datetime(2000, 1, 1), None, dt.datetime(2020, 1, 1, 10, 20)], pa.timestamp("us")),
    "bytes": pa.array([b"abc", b"", None, b"z", b"yes"], pa.binary()),
}  # fmt: skip
TARGETS = {
    "tinyint": "tinyint", "smallint": "smallint", "integer": "integer", "bigint": "bigint",
    "tinyint unsigned": "utinyint", "integer unsigned": "uinteger", "bigint unsigned": "ubigint", "real": "float",
    "double precision": "double", "decimal(10,2)": "decimal(10,2)", "decimal(38,0)": "decimal(38,0)",
    "boolean": "boolean", "varchar": "varchar",
}  # fmt: skip
CONVERSIONS = [(source, target) for source in NUMBERS for target in TARGETS]
CONVERSIONS += [("word", target) for target in TARGETS if target not in ("boolean",)]
CONVERSIONS += [("fraction", target) for target in ("real", "double precision", "decimal(10,2)", "varchar")]
CONVERSIONS += [("day_text", "date"), ("time_text", "timestamp"), ("truth_text", "boolean"), ("word", "bytea")]
CONVERSIONS += [("day", "varchar"), ("day", "timestamp"), ("time", "date"), ("time", "varchar"), ("time", "timestamp")]
CONVERSIONS += [("bytes", "varchar"), ("day_text", "timestamptz"), ("time", "timestamptz"), ("time", "timestamp(3)")]
NOT_AS_DUCKDB = {
    ("word", "boolean"),
    ("time", "timestamp(3)"),
}
"""A number in a text is no truth value in PostgreSQL; digits that are lost are an error."""


@pytest.fixture(scope="module")
def converting(duck):
    table = pa.table({"id": range(5), **NUMBERS, **OTHERS})
    duck.register("c", table)
    with connect_in_process() as found:
        found.register("c", table)
        yield found


@pytest.mark.parametrize(("source", "target"), [pair for pair in CONVERSIONS if pair not in NOT_AS_DUCKDB])
def test_conversions(converting, duck, source, target):
    """TRY_CAST gives the same values and the same NULLs, and CAST fails on just the rows where it gives NULL."""
    wanted_type = {"bytea": "blob"}.get(target, TARGETS.get(target, target))
    found = ask(converting, f"select id, try_cast({source} as {target}) as x from c")
    expected = duck.execute(f"select id, try_cast({source} as {wanted_type}) as x from c").to_arrow_table()
    assert_same_answer(found, as_declared(expected, found.schema))
    missing = [row for row, value in enumerate(found["x"]) if not value.is_valid]
    nulls = ask(converting, f"select id from c where {source} is null")["id"].to_pylist()
    for row in set(missing) - set(nulls):
        with pytest.raises(CastFailed, match="cast"):
            converting.sql(f"select cast({source} as {target}) from c where id = {row}").collect()
    good = ask(
        converting, f"select cast({source} as {target}) as x from c where id not in ({', '.join(map(str, missing))})"
    )
    assert good["x"].to_pylist() == [value for value in found["x"].to_pylist() if value is not None]


@pytest.mark.parametrize(
    ("source", "target"),
    [("truth", "date"), ("day", "integer"), ("real", "timestamp"), ("bytes", "bigint"), ("time", "real")],
)
def test_conversions_that_sql_does_not_have(converting, source, target):
    with pytest.raises(Unsupported, match="cast"):
        converting.sql(f"select try_cast({source} as {target}) from c")


def test_digits_that_are_lost_are_an_error(converting):
    with pytest.raises(CastFailed, match="timestamp"):
        converting.sql("select cast(time as timestamp(3)) from c").collect()


@pytest.mark.parametrize(
    ("expression", "where"),
    [
        ("tiny + tiny", "tiny = 127"), ("tiny * tiny", "tiny = -128"), ("-tiny", "tiny = -128"),
        ("abs(large)", "large < 0"), ("large + 1", "large > 1"), ("large * 2", "large > 1"), ("large - 1", "large < 0"),
        ("huge + huge", "huge > 255"), ("byte - arrow_cast(1, 'UInt8')", "byte = 0"), ("wide + 1", "id = 0"),
        ("wide * wide", "id = 0"), ("sum(large)", "large > 0"), ("sum(wide * 10)", "wide > 0"),
        ("sum(huge)", "huge > 0"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_an_error_that_names_it(converting, expression, where):
    """A result wraps nowhere: it is right, in a wider type, or an error."""
    plain = expression.replace("arrow_cast(1, 'UInt8')", "1").removeprefix("sum")
    rows = converting.sql(f"select tiny, large, huge, byte, wide from c where {where}").collect().to_arrow().to_pylist()
    exact = [eval(plain, {"abs": abs}, row) for row in rows]
    exact = [sum(exact)] if expression.startswith("sum") else exact
    name = next(word for word in ("tiny", "large", "huge", "byte", "wide") if word in expression)
    for mode in ("cpu", "gpu"):
        found, error = outcome(converting.sql(f"select {expression} as x from c where {where}"), mode)
        assert found == exact or name in str(error)


def outcome(query, mode):
    """Return the values, or the error for results that do not fit."""
    try:
        return query.collect(mode=mode).to_arrow()["x"].to_pylist(), None
    except NumericOverflow as error:
        return None, error


def test_timestamps_without_a_precision_have_microseconds():
    first, last = dt.date(1, 1, 1), dt.date(9999, 12, 31)
    moments = pa.array([dt.datetime(2020, 1, 1), None], pa.timestamp("us"))
    with connect_in_process() as session:
        session.register("t", pa.table({"d": pa.array([first, last]), "m": moments, "timestamp": pa.array([1, 2])}))

        def answer(text):
            return session.sql(f"select {text} as x from t").collect().to_arrow().column(0)

        found = answer("cast(d as timestamp)")
        assert found.type == pa.timestamp("us")
        assert found.to_pylist() == [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)]
        assert answer("d::timestamptz").type == pa.timestamp("us", "UTC")
        assert answer("timestamp '0001-01-01' < m").to_pylist() == [True, None]
        assert answer("m > d").to_pylist() == [True, None]
        assert answer("d < timestamp with time zone '2020-01-01' or d > now()").to_pylist() == [True, True]
        # What is only called so stays as it is.
        assert answer("timestamp").type == pa.int64()
        assert answer("cast(m as timestamp(9))").type == pa.timestamp("ns")
