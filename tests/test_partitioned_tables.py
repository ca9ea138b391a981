"""Tables whose files lie in folders ``key=value``: the keys are columns, in every mode, and rule files out."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hybridq.catalog import Catalog
from hybridq.errors import DataError
from hybridq.partitioning import NULL, partition_columns
from hybridq.physical.chunks import ParquetUnits
from hybridq.physical.pipeline import TableSource
from hybridq.physical.units import group_units
from hybridq.plan.nodes import ScanColumn
from hybridq.session import Session
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process

MODES = ("cpu", "gpu", "cop")
YEARS = ("2020", "-5", NULL)
DAYS = ("2021-12-31", "2020-02-29")
PLACES = ("it's", "a%20b", "ü%2Fx", "", NULL)


def write(path: Path, table: pa.Table, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 folders of three keys, in each a file of one or two row groups; in some another one."""
    folder = tmp_path_factory.mktemp("data") / "sales"
    start = 0
    for number, (year, day, place) in enumerate((y, d, p) for y in YEARS for d in DAYS for p in PLACES):
        for part in range(1 + number % 3 // 2):
            rows = 7 + number % 5 * 6
            table = pa.table(
                {
                    "x": pa.array(range(start, start + rows), pa.int64()),
                    "near": pa.array([2015 + (start + i) % 9 for i in range(rows)], pa.int32()),
                    "word": pa.array([f"w{i % 3}" if i % 4 else None for i in range(rows)]),
                }
            )
            write(
                folder / f"Year={year}" / f"day={day}" / f"place={place}" / f"{part}.parquet", table, row_group_size=20
            )
            start += rows
    return folder


@pytest.fixture(scope="module", params=[1, 4, None], ids=["a unit a chunk", "four", "as it comes"])
def chunk_units(request: pytest.FixtureRequest) -> int | None:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def session(chunk_units: int | None, sales: Path) -> Iterator[Session]:
    with connect_in_process(chunk_units=chunk_units) as session:
        session.register_folder(sales.parent)
        years = pa.table({"number": pa.array([2020, 2021, 1], pa.int64()), "title": ["first", "second", "none"]})
        session.register("years", years)
        yield session


@pytest.fixture(scope="module")
def reference(sales: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    # DuckDB has the keys in the order of their names.
    connection.execute(
        'create view sales as select x, near, word, "Year", day, place'
        f" from read_parquet('{sales}/**/*.parquet', hive_partitioning=true)"
    )
    connection.execute(
        "create table years as select * from (values (2020, 'first'), (2021, 'second'), (1, 'none')) t(number, title)"
    )
    return connection


QUERIES = {
    "everything": "select * from sales",
    "a key alone": 'select distinct "Year" from sales',
    "counts by a key": 'select "Year", count(*) as n from sales group by 1',
    "counts by all keys": 'select place, day, "Year", count(*) as n from sales group by 1, 2, 3',
    "extremes": 'select max("Year") as a, min(day) as b, min(place) as c, count(place) as d, count(*) as e from sales',
    "one year": 'select sum(x) as x, count(word) as n from sales where "Year" = 2020',
    "nobody": 'select sum(x) as x, count(*) as n from sales where "Year" = 2019',
    "no year": 'select sum(x) as x from sales where "Year" is null and place is not null',
    "a day": "select place, sum(x) as x from sales where day >= date '2021-01-01' group by place",
    "a place": "select x, place from sales where place = 'it''s' and x % 2 = 0",
    "a text like": "select place, x from sales where place like '% %' or place = ''",
    "keys and columns": 'select x, "Year" - near as d from sales where "Year" > near and word <> \'w1\'',
    "computed of keys": "select extract(year from day) * 10 + length(place) as k, sum(x) as x from sales group by 1",
    "join by a key": 'select title, sum(x) as x from sales join years on "Year" = number group by title',
    "join with itself": """select a.place, count(*) as n from sales a join sales b on a."Year" = b."Year" and a.x = b.x
        where b.day = date '2020-02-29' group by 1""",
    "no partner": "select x, title from sales left join years on \"Year\" = number where place = 'a b'",
    "not in": 'select count(*) as n from sales where "Year" not in (select number from years)',
    "top": 'select "Year", place, x from sales order by "Year" desc nulls last, place nulls first, x limit 11',
    "window": "select x, row_number() over (partition by day order by x) as r from sales where place is null",
    "median by key": "select place, median(x) as m from sales group by place",
}


@pytest.mark.parametrize("query", QUERIES)
def test_keys_are_columns_like_others(
    session: Session, chunk_units: int | None, reference: duckdb.DuckDBPyConnection, query: str
) -> None:
    sql = QUERIES[query]
    expected = reference.sql(sql).to_arrow_table()
    for mode in {1: ("cop",), 4: MODES, None: ("cpu",)}[chunk_units]:
        answer = session.sql(sql).collect(mode=mode).to_arrow()
        wanted = pa.table([column.cast(t) for column, t in zip(expected.columns, answer.schema.types, strict=True)],
                          names=expected.column_names)  # fmt: skip
        assert_same_answer(answer, wanted, order_by=["Year", "place", "x"] if query == "top" else ())


def test_on_a_cluster_and_split_by_key(sales: Path, one_worker: Session, reference: duckdb.DuckDBPyConnection) -> None:
    from hybridq.session import connect

    sql = QUERIES["join with itself"]
    expected = reference.sql(sql).to_arrow_table()
    with connect(one_worker.address, broadcast_limit_bytes=0, gather_limit_bytes=0, chunk_units=5) as session:
        session.register("sales", sales)
        for mode in MODES:
            assert_same_answer(session.sql(sql).collect(mode=mode).to_arrow(), expected)


def test_columns_that_gpus_keep(sales: Path, reference: duckdb.DuckDBPyConnection) -> None:
    sql = 'select "Year", place, sum(x) as x from sales where near > 2017 or place is null group by 1, 2'
    expected = reference.sql(sql.replace("sum(x)", "sum(x)::bigint")).to_arrow_table()
    with connect_in_process(chunk_units=11) as session:
        session.register("sales", sales)
        session.cache("sales")
        for _ in range(2):
            result = session.sql(sql).collect(mode="gpu")
            answer = result.to_arrow()
            assert_same_answer(answer.set_column(2, "x", answer["x"].cast(pa.int64())), expected)
        assert bytes_read(result) == 0


# --- what is read ----------------------------------------------------------------------------------------------------


def bytes_read(result: Any) -> int:
    return sum(device.bytes_read for stage in result.report.stages for device in stage.devices)


def test_files_that_keys_rule_out_are_not_looked_at(sales: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sales"
    shutil.copytree(sales, folder)
    others = (
        '"Year" = -5',
        "day < date '2021-06-01' and \"Year\" > 2000",
        '"Year" is null',
        "place = 'a b' and \"Year\" in (-5, 2019)",
        "\"Year\" = 2020 and day between date '2020-01-01' and date '2020-12-31' or \"Year\" < 2000",
        'abs("Year") < 10 or "Year" is null and x > 3',
        'not ("Year" + 0 = 2020 and extract(year from day) = 2021) and x > 3',
        "case when \"Year\" = 2020 then day < date '2021-01-01' else place like '%s' end",
        '"Year" = (select min(x) - 5 from sales where "Year" is null and x < 0 or day < date \'2020-06-01\') - 5',
        "extract(month from day) = 2 and x / (length(place) - 2) > 0",
    )
    with connect_in_process(chunk_units=3) as session:
        session.register("sales", folder)
        queries = [session.sql(f"select sum(x) as x, count(*) as n from sales where {kept}") for kept in others]
        expected = [query.collect(mode="cpu").to_arrow() for query in queries]
        shutil.rmtree(folder / "Year=2020" / "day=2021-12-31")
        for mode in MODES:
            assert [query.collect(mode=mode).to_arrow() for query in queries] == expected
        with pytest.raises(DataError, match="removed since"):
            session.sql('select sum(x) as x from sales where "Year" > 2019').collect(mode="cpu")


def test_keys_take_no_bytes_of_files(session: Session) -> None:
    one = "select sum(x) as x from sales where \"Year\" = 2020 and day < date '2021-01-01'"
    for mode in ("cpu", "gpu"):
        whole = session.sql("select sum(x) as x from sales").collect(mode=mode)
        year = session.sql(one).collect(mode=mode)
        keys = session.sql('select "Year", place, count(*) as n from sales group by 1, 2').collect(mode=mode)
        assert 0 < bytes_read(year) < bytes_read(whole) / 3
        assert bytes_read(keys) == 0


def test_the_plan_has_the_values_as_data(sales: Path) -> None:
    table = Catalog().register("sales", sales)
    columns = tuple(ScanColumn(f"s.{name}", name, data_type) for name, data_type in
                    (("x", pa.int64()), ("Year", pa.int64()), ("place", pa.string())))  # fmt: skip
    units = group_units(table.units[:9], TableSource("sales", columns, None, ("s.x",)))
    assert isinstance(units, ParquetUnits)
    constants = dict(units.constants)
    assert list(constants) == ["Year", "place"]
    assert {len(values) for values in constants.values()} == {len(units.files)}
    assert set(constants["Year"]) == {2020}
    summary = table.summary("place")
    assert summary is not None
    assert (summary.distinct, summary.minimum, summary.maximum) == (4.0, "", "ü/x")


# --- types and names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "data_type", "values"),
    [
        (["2020", "-3", "01", NULL], pa.int64(), [2020, -3, 1, None]),
        (["9223372036854775807"], pa.int64(), [2**63 - 1]),
        (["1", "9223372036854775808"], pa.string(), ["1", "9223372036854775808"]),
        (["2020-02-29", NULL], pa.date32(), [datetime.date(2020, 2, 29), None]),
        (["2020-02-29", "2021-02-29"], pa.string(), ["2020-02-29", "2021-02-29"]),
        (["2020-02-29", "7"], pa.string(), ["2020-02-29", "7"]),
        ([NULL], pa.string(), [None]),
        (["", "7"], pa.string(), ["", "7"]),
        (["1.5", "1_0", "+1", "1e3", " 1", "٣"], pa.string(), ["1.5", "1_0", "+1", "1e3", " 1", "٣"]),
        (["a=b", "100%", "%zz", "%C3%A9", "a+b", "%41"], pa.string(), ["a=b", "100%", "%zz", "é", "a+b", "A"]),
        (["null", "true"], pa.string(), ["null", "true"]),
    ],
)
def test_types_of_keys(texts: list[str], data_type: pa.DataType, values: list[Any]) -> None:
    schema, found = partition_columns({str(n): ["plain", f"k={text}"] for n, text in enumerate(texts)})
    assert [(item.name, item.type) for item in schema] == [("k", data_type)]
    assert [each["k"] for each in found.values()] == values


@settings(max_examples=12)
@example(values=["x", "'", '"', "%20", "a b", "", "ä", "a/b", "\\", "\x00", "\n", "=", "*", ".", "NULL", None])
@given(values=st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=6))
def test_any_text_is_found_again(tmp_path_factory: pytest.TempPathFactory, values: list[str | None]) -> None:
    folder = tmp_path_factory.mktemp("texts")
    values = list(dict.fromkeys(["not a number", *(value for value in values if value != NULL)]))
    for number, value in enumerate(values):
        name = NULL if value is None else quote(value, safe="")
        write(folder / f"k={name}" / "1.parquet", pa.table({"x": [number]}))
    with connect_in_process() as session:
        session.register("t", folder)
        answer = session.sql("select k, x from t").collect(mode="cop").to_arrow()
        assert dict(zip(answer["x"].to_pylist(), answer["k"].to_pylist(), strict=True)) == dict(enumerate(values))
        for number, value in enumerate(values):
            if value is None or "\x00" not in value:
                literal = "is null" if value is None else "= '" + value.replace("'", "''") + "'"
                assert session.sql(f"select x from t where k {literal}").collect(mode="cpu").to_arrow()[
                    "x"
                ].to_pylist() == [number]


def test_a_key_that_files_have_as_well_is_what_the_folders_say(tmp_path: Path) -> None:
    """As DuckDB has it: the files' column is not looked at, and its place is that of the key."""
    for number, year in enumerate((2020, 2021)):
        own = pa.table({"x": [number], "year": pa.array([1], pa.int32()), "z": [5]})
        write(tmp_path / "t" / f"year={year}" / "1.parquet", own)
    write(tmp_path / "t" / "year=2022" / "1.parquet", pa.table({"x": [2], "z": [5]}))
    expected = duckdb.sql(
        f"from read_parquet(['{tmp_path}/t/year=2020/1.parquet', '{tmp_path}/t/year=2021/1.parquet'],"
        " hive_partitioning=true)"
    ).to_arrow_table()
    with connect_in_process() as session:
        session.register("t", tmp_path / "t")
        for mode in MODES:
            assert_same_answer(session.sql("select * from t where x < 2").collect(mode=mode).to_arrow(), expected)


def test_the_types_that_literals_are_compared_in(tmp_path: Path) -> None:
    for month in ("01", "02", "12"):
        write(tmp_path / "t" / f"month={month}" / "1.parquet", pa.table({"x": [int(month)]}))
    with connect_in_process() as session:
        session.register("t", tmp_path / "t")
        for wanted in ("1", "'1'", "'01'"):
            assert session.sql(f"select x from t where month = {wanted}").collect(mode="cpu").to_arrow()[
                "x"
            ].to_pylist() == [1]


# --- where keys are looked for ---------------------------------------------------------------------------------------


def keys_of(source: Any) -> tuple[str, ...]:
    return Catalog().register("t", source).keys


def test_folders_that_the_path_names_are_no_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for year in (2020, 2021):
        write(tmp_path / "at=home" / "sales" / f"year={year}" / "month=1" / "1.parquet", pa.table({"x": [year]}))
    monkeypatch.chdir(tmp_path / "at=home")
    both = ("year", "month")
    assert (
        keys_of("sales")
        == keys_of(tmp_path / "at=home" / "sales")
        == keys_of(f"file://{tmp_path}/at=home/sales")
        == both
    )
    assert keys_of("sales/*/*/1.parquet") == keys_of("sales/year=*") == keys_of("./sales/../sales/**/*.parquet") == both
    assert keys_of("sales/year=2021") == keys_of(["sales/year=2020", "sales/year=2021"]) == ("month",)
    assert keys_of("sales/year=2020/*/1.parquet") == ("month",)
    assert keys_of("sales/year=2020/month=1/1.parquet") == ()
    assert keys_of(["sales/year=2020/month=1/1.parquet", "sales"]) == both
    with pytest.raises(
        DataError, match=r"2020/month=1/1\.parquet by 'year', 'month', .*2021/month=1/1\.parquet by 'month'"
    ):
        keys_of(["sales/year=2020*", "sales/year=2021"])


def test_keys_in_urls(tmp_path: Path) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    for year in (2020, 2021):
        write(tmp_path / "1.parquet", pa.table({"x": [year]}))
        memory.pipe(f"/at=home/sales/year={year}/1.parquet", (tmp_path / "1.parquet").read_bytes())
    assert keys_of("memory://at=home/sales") == keys_of("memory:///at=home/sales/*/1.parquet") == ("year",)
    assert keys_of("memory://at=home/sales/year=2020/1.parquet") == ()
    with connect_in_process() as session:
        session.register("t", "memory://at=home/sales")
        for mode in MODES:
            answer = session.sql("select x, year from t where year > 2020").collect(mode=mode).to_arrow()
            assert answer.to_pylist() == [{"x": 2021, "year": 2021}]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["y=1/1", "2"], r"partitioned differently: \S*t/2\.parquet by nothing, \S*t/y=1/1\.parquet by 'y'"),
        (["y=1/1", "y=2/z=1/2"], r"partitioned differently: .*1\.parquet by 'y', .*2\.parquet by 'y', 'z'"),
        (["y=1/z=1/1", "z=1/y=1/2"], r"by 'y', 'z', .*2\.parquet by 'z', 'y'"),
        (["y=1/1", "Y=2/2"], "partitioned differently"),
        (["y=1/Y=2/1"], r"1\.parquet is partitioned by 'y' and 'Y', whose names differ in case alone"),
        (["y=1/y=2/1"], r"1\.parquet is in two folders y="),
        (["=1/1"], r"=1/1\.parquet: the folder '=1' has no name before the ="),
        (["y=%FF/1"], r"1\.parquet': the folder 'y=%FF' is no text of UTF-8"),
        (["X=1/1"], "the folders' key 'X' and the files' column 'x' differ in case alone: rename one"),
    ],
)
def test_what_is_refused(files: list[str], words: str, tmp_path: Path) -> None:
    for file in files:
        write(tmp_path / "t" / f"{file}.parquet", pa.table({"x": [1]}))
    with pytest.raises(DataError, match=words):
        Catalog().register("t", tmp_path / "t")
    with pytest.raises(DataError, match=words):
        Catalog().register_folder(tmp_path)
