from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from engine_helpers import BOOL, DATE, DOUBLE, INT, LONG, TEXT, call, col, lit, money, rows, total

from hybridq.engines.protocol import FileConstant, ReadColumn, ReadRequest
from hybridq.errors import DataError
from hybridq.plan.expressions import NamedExpression
from hybridq.types import Field, normalize


def request(files, schema, predicate=None, output=None, bounds=()):
    read = tuple(ReadColumn(f"t.{field.name}", field.name, normalize(field.type)) for field in schema)
    names = tuple(f"t.{name}" for name in (schema.names if output is None else output))
    return ReadRequest(tuple((str(path), groups) for path, groups in files), read, predicate, names, bounds)


def read(engine, wanted):
    return engine.to_arrow(engine.read(wanted), tuple(Field(name, wanted.types[name]) for name in wanted.output))


@pytest.fixture
def everything():
    return pa.table(
        {
            "i": pa.array([1, None, 3, 4], INT),
            "l": pa.array([2**40, -1, None, 0], LONG),
            "f": pa.array([1.5, None, float("nan"), 0.0], DOUBLE),
            "b": pa.array([True, None, False, True], BOOL),
            "s": pa.array(["a", "b", None, "a"]),
            "v": pa.array(["x", "", None, "y"], pa.string_view()),
            "d": pa.array(
                [datetime.date(1995, 3, 15), None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)], DATE
            ),
            "m": pa.array([Decimal("1.50"), None, Decimal("-9999999999999.99"), Decimal("0")], money()),
            "w": pa.array([Decimal(10**35), None, Decimal(-1), Decimal(7)], pa.decimal128(38, 2)),
            "t": pa.array([datetime.datetime(2000, 1, 1, 12), None, None, None], pa.timestamp("us")),
        }
    )


@pytest.mark.parametrize("dictionary", [True, False])
def test_every_type_comes_back(engine, tmp_path, everything, dictionary):
    path = tmp_path / "all.parquet"
    pq.write_table(everything, path, row_group_size=3, use_dictionary=dictionary)
    result = read(engine, request([(path, (0, 1))], everything.schema))
    assert result.schema.types == [normalize(data_type) for data_type in everything.schema.types]
    plain = everything.set_column(5, "v", everything["v"].cast(pa.string()))
    for name in plain.column_names:
        found = result[f"t.{name}"].combine_chunks()
        assert (
            found.equals(
                plain[name].combine_chunks(),
            )
            or name == "f"
        ), name
    assert pc.is_nan(result["t.f"]).to_pylist() == [False, None, True, False]


def test_row_groups_and_files_in_order(engine, tmp_path):
    tables = [
        pa.table({"x": range(start, start + 10), "s": [f"{start}-{i % 2}" for i in range(10)]}) for start in (0, 100)
    ]
    paths = []
    for index, table in enumerate(tables):
        paths.append(tmp_path / f"{index}.parquet")
        pq.write_table(table, paths[-1], row_group_size=4)
    wanted = request([(paths[1], (2, 0)), (paths[0], (1,))], tables[0].schema)
    expected = [(f"{x}", s) for x, s in [(108, "100-0"), (109, "100-1"), *[(100 + i, f"100-{i % 2}") for i in range(4)],
                                         *[(4 + i, f"0-{i % 2}") for i in range(4)]]]  # fmt: skip
    assert [(f"{x}", s) for x, s in rows(read(engine, wanted))] == expected


def test_predicate_columns_are_dropped(engine, tmp_path):
    path = tmp_path / "t.parquet"
    table = pa.table({"x": [1, 2, None, 4], "s": ["a", "b", "b", None]})
    pq.write_table(table, path)
    wanted = request([(path, (0,))], table.schema, call("equal", col("t.s", TEXT), lit("b")), ["x"])
    assert rows(read(engine, wanted)) == [(2,), (None,)]
    nothing = request([(path, (0,))], table.schema, call("equal", col("t.s", TEXT), lit("zzz")), ["x"])
    empty = read(engine, nothing)
    assert empty.num_rows == 0
    assert empty.schema.types == [LONG]


def test_rows_are_counted_without_columns(engine, tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": range(10)}), path, row_group_size=4)
    frame = engine.read(request([(path, (0, 2))], pa.schema([])))
    assert frame.rows == 6


@pytest.mark.parametrize("stored", [True, False])
def test_columns_that_have_one_value_a_file(engine, tmp_path, stored):
    for number in range(3):
        pq.write_table(
            pa.table({"x": range(10 * number, 10 * number + 5)}), tmp_path / f"{number}.parquet", row_group_size=2
        )
    files = [(tmp_path / "0.parquet", (0, 2)), (tmp_path / "1.parquet", (1,)), (tmp_path / "2.parquet", (0, 1))]
    day = datetime.date(2020, 2, 29)
    constants = (
        FileConstant("t.year", "year", LONG, (2020, None, -1)),
        FileConstant("t.day", "day", DATE, (None, day, datetime.date(1, 1, 1))),
        FileConstant("t.place", "place", TEXT, ("é", "", None)),
        FileConstant("t.nothing", "nothing", TEXT, (None, None, None)),
    )
    names = [constant.name for constant in constants]
    wanted = replace(
        request(files, pa.schema([("x", LONG)] if stored else [])),
        constants=constants,
        output=("t.x", *names) if stored else tuple(names),
        bounds=(("year", -1, 2020),),
    )
    values = (
        [(2020, None, "é", None)] * 3 + [(None, day, "", None)] * 2 + [(-1, datetime.date(1, 1, 1), None, None)] * 4
    )
    if stored:
        values = [(x, *rest) for x, rest in zip([0, 1, 4, 12, 13, 20, 21, 22, 23], values, strict=True)]
    assert rows(read(engine, wanted)) == values
    some = replace(wanted, predicate=call("less", col("t.year"), lit(2020)), output=wanted.output[:2])
    assert rows(read(engine, some)) == [row[:2] for row in values[5:]]
    texts = replace(wanted, predicate=call("equal", col("t.place", TEXT), lit("")))
    assert rows(read(engine, texts)) == values[3:5]
    first = tuple(replace(constant, values=constant.values[:1]) for constant in constants)
    nobody = replace(wanted, predicate=call("is_null", col("t.year")), files=wanted.files[:1], constants=first)
    assert read(engine, nobody).num_rows == 0
    assert engine.read(replace(wanted, output=())).rows == 9


def test_dictionaries_that_differ_between_row_groups(engine, tmp_path):
    path = tmp_path / "t.parquet"
    table = pa.table({"s": ["a", "b"] * 500 + ["b", "c"] * 500})
    pq.write_table(table, path, row_group_size=1000)
    frame = engine.read(request([(path, (0, 1))], table.schema))
    from hybridq.plan.expressions import AggregateCall

    result = engine.aggregate(
        frame, [NamedExpression("s", col("t.s", TEXT))], [AggregateCall("n", "count", None, LONG)]
    )
    found = engine.to_arrow(result, (Field("s", TEXT), Field("n", LONG)))
    assert sorted(rows(found)) == [("a", 500), ("b", 1000), ("c", 500)]


STRING_FORMS = {
    "string": pa.string(),
    "large": pa.large_string(),
    "view": pa.string_view(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "large dictionary": pa.dictionary(pa.int32(), pa.large_string()),
}


@pytest.mark.parametrize("second", STRING_FORMS)
@pytest.mark.parametrize("first", STRING_FORMS)
def test_files_that_store_strings_in_other_forms_are_read_as_one_chunk(engine, tmp_path, first, second):
    values = pa.array(["x", "é", None, ""])
    files = []
    for number, form in enumerate((STRING_FORMS[first], STRING_FORMS[second])):
        encoded = values.dictionary_encode() if pa.types.is_dictionary(form) else values
        pq.write_table(pa.table({"s": encoded.cast(form)}), tmp_path / f"{number}.parquet")
        files.append((tmp_path / f"{number}.parquet", (0,)))
    found = read(engine, request(files, pa.schema([("s", pa.string())])))
    assert rows(found) == [(value,) for value in values.to_pylist() * 2]


def test_bounds_prove_sums_safe(engine, tmp_path):
    path = tmp_path / "t.parquet"
    table = pa.table(
        {
            "m": pa.array([Decimal("9999999999999.99"), Decimal("0.01")], money()),
            "d": pa.array([datetime.date(2000, 1, 1)] * 2, DATE),
        }
    )
    pq.write_table(table, path)
    bounds = (
        ("m", Decimal("0.01"), Decimal("9999999999999.99")),
        ("d", datetime.date(2000, 1, 1), datetime.date(2000, 1, 1)),
    )
    frame = engine.read(request([(path, (0,))], table.schema, None, None, bounds))
    square = call("multiply", col("t.m", money()), col("t.m", money()), returns=pa.decimal128(31, 4))
    result = engine.aggregate(frame, [], [total("s", square, pa.decimal128(38, 4))])
    expected = Decimal("9999999999999.99") * Decimal("9999999999999.99") + Decimal("0.0001")
    import decimal

    with decimal.localcontext(prec=40):
        expected = Decimal("9999999999999.99") ** 2 + Decimal("0.0001")
    assert rows(engine.to_arrow(result, (Field("s", pa.decimal128(38, 4)),))) == [(expected,)]


def test_bad_files_are_named(engine, tmp_path):
    table = pa.table({"x": range(100_000)})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path)
    with pytest.raises(DataError, match=r"missing\.parquet"):
        engine.read(request([(tmp_path / "missing.parquet", (0,))], table.schema))
    with pytest.raises(DataError, match=r"t\.parquet has changed"):
        engine.read(request([(path, (5,))], table.schema))
    with pytest.raises(DataError, match=r"t\.parquet has no column y"):
        engine.read(request([(path, (0,))], pa.schema([("y", LONG)])))
    whole = path.read_bytes()
    short = tmp_path / "short.parquet"
    short.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"short\.parquet"):
        engine.read(request([(short, (0,))], table.schema))
    damaged = tmp_path / "damaged.parquet"
    middle = len(whole) // 3
    damaged.write_bytes(whole[:4] + b"\xff" * middle + whole[4 + middle :])
    with pytest.raises(DataError, match=r"damaged\.parquet"):
        engine.read(request([(damaged, (0,))], table.schema))
    text = tmp_path / "text.parquet"
    text.write_text("no parquet")
    with pytest.raises(DataError, match=r"text\.parquet"):
        engine.read(request([(text, (0,))], table.schema))


def test_a_rewritten_file_is_read_anew(engine, tmp_path):
    path = tmp_path / "t.parquet"
    for size in (3, 5):
        table = pa.table({"x": range(size)})
        pq.write_table(table, path)
        assert read(engine, request([(path, (0,))], table.schema)).num_rows == size
