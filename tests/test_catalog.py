"""Registering tables: where their files are found, what is read of them, and what is said when they cannot be used."""

from __future__ import annotations

import datetime
import os
import re
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq import footers, storage
from hybridq.catalog import MEMORY_UNIT_ROWS, Catalog, MemoryUnit, ParquetUnit
from hybridq.engines.footer import digest_at
from hybridq.errors import DataError, UnknownTable
from hybridq.testing.in_process import connect_in_process
from hybridq.types import Field

NUMBERS = pa.table({"n": pa.array([1, 2, None, 4], pa.int64()), "s": ["a", "b", "c", None]})


def write(path: Path, table: pa.Table = NUMBERS, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def paths(table: Any) -> list[str]:
    return [Path(unit.path).name for unit in table.units]


# --- where files are found -------------------------------------------------------------------------------------------


def test_one_file(tmp_path: Path) -> None:
    table = Catalog().register("numbers", write(tmp_path / "numbers.parquet", row_group_size=3))
    assert table.schema == (Field("n", pa.int64()), Field("s", pa.string()))
    assert table.rows == 4
    assert [(unit.row_group, unit.rows) for unit in table.units] == [(0, 3), (1, 1)]  # type: ignore[attr-defined]


def test_a_file_may_be_called_anything(tmp_path: Path) -> None:
    assert Catalog().register("numbers", str(write(tmp_path / "_numbers.data"))).rows == 4


def test_a_folder_is_read_in_natural_order_without_hidden_files(tmp_path: Path) -> None:
    for name in ("part-10.parquet", "part-2.PARQUET"):
        write(tmp_path / name)
    for name in ("_metadata.parquet", ".part.parquet.crc", "notes.txt", "other/b.parquet", "_tmp=1/c.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("not data")
    table = Catalog().register("numbers", tmp_path)
    assert paths(table) == ["part-2.PARQUET", "part-10.parquet"]
    assert table.rows == 8


def test_globs_and_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a1.parquet", "a2.parquet", "b1.parquet", "sub/c1.parquet"):
        write(tmp_path / name)
    catalog = Catalog()
    assert paths(catalog.register("t", str(tmp_path / "a*.parquet"))) == ["a1.parquet", "a2.parquet"]
    assert paths(catalog.register("t", f"{tmp_path}/**/*1.parquet")) == ["a1.parquet", "b1.parquet", "c1.parquet"]
    both = [tmp_path / "b1.parquet", str(tmp_path / "a?.parquet"), tmp_path / "b1.parquet"]
    assert paths(catalog.register("t", both)) == ["b1.parquet", "a1.parquet", "a2.parquet"]
    monkeypatch.chdir(tmp_path)
    assert all(Path(unit.path).is_absolute() for unit in catalog.register("t", "a1.parquet").units)  # type: ignore[attr-defined]


def test_a_file_whose_name_looks_like_a_glob(tmp_path: Path) -> None:
    assert Catalog().register("t", write(tmp_path / "part[1].parquet")).rows == 4


def test_urls(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for name in ("x1.parquet", "x2.parquet", "_x3.parquet"):
        memory.pipe(f"/bucket/{name}", write(tmp_path / name).read_bytes())
    catalog = Catalog()
    assert paths(catalog.register("t", "memory://bucket/x2.parquet")) == ["x2.parquet"]
    assert paths(catalog.register("t", "memory://bucket/x*.parquet")) == ["x1.parquet", "x2.parquet"]
    table = catalog.register("t", "memory://bucket")
    assert paths(table) == ["x1.parquet", "x2.parquet"]
    assert pq.ParquetFile(storage.open_source(table.units[0].path)).read().equals(NUMBERS)  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="no Parquet file at memory://bucket/nowhere"):
        catalog.register("t", "memory://bucket/nowhere")
    with pytest.raises(DataError, match="nosuch://x"):
        catalog.register("t", "nosuch://x/y.parquet")
    assert catalog.register("t", f"file://{tmp_path}/x1.parquet").rows == 4


def test_register_folder(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    write(tmp_path / "b" / "1.parquet")
    write(tmp_path / "b" / "2.parquet")
    write(tmp_path / "c.parquet" / "part-0.parquet")
    write(tmp_path / "_d.parquet")
    (tmp_path / "empty").mkdir()
    (tmp_path / "readme.md").write_text("")
    catalog = Catalog()
    assert catalog.register_folder(tmp_path) == ("a", "b", "c")
    assert [catalog.table(name).rows for name in "abc"] == [4, 8, 4]
    assert catalog.schemas()["b"] == catalog.table("a").schema


def test_register_folder_complains(tmp_path: Path) -> None:
    catalog = Catalog()
    with pytest.raises(DataError, match="no such folder"):
        catalog.register_folder(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no Parquet file and no folder"):
        catalog.register_folder(tmp_path)
    with pytest.raises(DataError, match="not a folder"):
        catalog.register_folder(write(tmp_path / "a.parquet"))
    write(tmp_path / "a" / "1.parquet")
    with pytest.raises(DataError, match="would be table 'a'"):
        catalog.register_folder(tmp_path)


def test_what_cannot_be_read_is_an_error_of_its_own_queries(tmp_path: Path) -> None:
    path = tmp_path / "Bad.parquet"
    write(path)
    write(tmp_path / "good.parquet")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "1.parquet").write_text("text")
    catalog = Catalog()
    assert catalog.register_folder(tmp_path) == ("Bad", "good")
    assert "1.parquet is not a Parquet file" in catalog.unreadable["other"]
    path.write_text("no longer")
    assert catalog.register_folder(tmp_path) == ("good",)
    assert sorted(catalog.unreadable) == ["Bad", "other"]
    assert list(catalog.schemas()) == ["good"]
    catalog.check_readable("good")
    catalog.check_readable("nowhere")
    with pytest.raises(DataError, match=r"^table 'Bad': .*Bad\.parquet is not a Parquet file"):
        catalog.check_readable("bad")
    write(path)
    catalog.register("Bad", path)
    assert list(catalog.unreadable) == ["other"]
    write(tmp_path / "other" / "1.parquet")
    assert catalog.register_folder(tmp_path) == ("Bad", "good", "other")
    assert catalog.unreadable == {}


# --- what cannot be used ---------------------------------------------------------------------------------------------


def first_line(catalog_source: Any) -> str:
    with pytest.raises(DataError) as caught:
        Catalog().register("t", catalog_source)
    return str(caught.value).splitlines()[0]


def test_missing_and_empty_sources(tmp_path: Path) -> None:
    assert first_line(tmp_path / "no.parquet") == f"table 't': no such file or folder: {tmp_path}/no.parquet"
    assert "no .parquet file in the folder" in first_line(tmp_path)
    assert "no file matches" in first_line(f"{tmp_path}/*.parquet")
    assert "empty list" in first_line([])
    assert "not int" in first_line(5)
    assert "not Table" in first_line([NUMBERS])
    with pytest.raises(DataError, match="name"):
        Catalog().register("", NUMBERS)


def test_files_that_are_not_whole_parquet(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.parquet").write_text("a,b\n1,2\n")
    (tmp_path / "nothing.parquet").write_bytes(b"")
    (tmp_path / "short.parquet").write_bytes(b"PAR1")
    for name, words in {
        "cut": "truncated or damaged",
        "short": "truncated or damaged",
        "text": "not a Parquet file",
        "nothing": "empty",
    }.items():
        message = first_line(tmp_path / f"{name}.parquet")
        assert words in message
        assert f"{name}.parquet" in message


def test_schemas_that_differ_name_files_and_column(tmp_path: Path) -> None:
    a, b = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write(a)
    write(b, NUMBERS.set_column(0, "n", pa.array([1, 2, 3, 4], pa.int32())))
    message = first_line([a, b])
    assert f"column 'n' is int64 in {a} and int32 in {b}" in message
    write(b, NUMBERS.select(["n"]))
    assert f"{a} has a column 's' that {b} has not" in first_line([a, b])
    assert f"{a} has a column 's' that {b} has not" in first_line([b, a])


def test_column_order_and_storage_type_may_differ(tmp_path: Path) -> None:
    dictionary = NUMBERS.set_column(1, "s", NUMBERS["s"].dictionary_encode())
    large = NUMBERS.set_column(1, "s", NUMBERS["s"].cast(pa.large_string())).select(["s", "n"])
    files = [
        write(tmp_path / "a.parquet"),
        write(tmp_path / "b.parquet", dictionary),
        write(tmp_path / "c.parquet", large),
    ]
    assert Catalog().register("t", files).schema == (Field("n", pa.int64()), Field("s", pa.string()))


def test_duplicate_columns_are_refused() -> None:
    assert "several columns 'x'" in first_line(pa.table([[1], [2]], names=["x", "x"]))


def test_unknown_table_names_near_ones() -> None:
    catalog = Catalog()
    with pytest.raises(UnknownTable, match="no table is registered"):
        catalog.table("orders")
    catalog.register("orders", NUMBERS)
    with pytest.raises(UnknownTable, match="no table 'ordrs': did you mean 'orders'"):
        catalog.table("ordrs")
    with pytest.raises(UnknownTable, match="the tables are 'orders'"):
        catalog.table("xyz")


# --- footers ---------------------------------------------------------------------------------------------------------


def test_footers_are_read_once_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet")
    read: list[Any] = []
    original = pq.read_metadata
    monkeypatch.setattr(footers.pq, "read_metadata", lambda source: read.append(source) or original(source))
    first = Catalog().register("t", path)
    Catalog().register("other", path)
    assert len(read) == 1
    stamp = first.units[0].stamp  # type: ignore[attr-defined]
    storage.check_unchanged(stamp, digest_at)
    write(path, NUMBERS.slice(0, 1))
    os.utime(path, ns=(time.time_ns(), stamp.mtime_ns + 1_000_000))
    assert Catalog().register("t", path).rows == 1
    assert len(read) == 2
    with pytest.raises(DataError, match="has changed since it was registered"):
        storage.check_unchanged(stamp, digest_at)
    path.unlink()
    with pytest.raises(DataError, match="has been removed since it was registered"):
        storage.check_unchanged(stamp, digest_at)


def put_a_twin(path: Path, values: list[int], by: str) -> None:
    """Put other values in the place of a file's, without a change of its size or its time of writing."""
    before = path.stat()
    twin = write(path.with_name("twin"), pa.table({"n": pa.array(values, pa.int64())}))
    if by == "renaming":
        os.utime(twin, ns=(0, before.st_mtime_ns))
        twin.replace(path)
    else:
        path.write_bytes(twin.read_bytes())
        os.utime(path, ns=(0, before.st_mtime_ns))
    now = path.stat()
    assert (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.mark.parametrize("by", ["renaming", "writing"])
def test_a_file_of_the_same_size_and_time_is_another(tmp_path: Path, by: str) -> None:
    path = write(tmp_path / "t.parquet", pa.table({"n": pa.array([1, 2, 3], pa.int64())}))
    with connect_in_process() as session:
        session.register("t", path)
        query = session.sql("select max(n) as n from t where n < 6")
        assert query.collect(mode="cpu").to_arrow()["n"].to_pylist() == [3]
        time.sleep(0.02)  # the clock of file systems has ticks
        put_a_twin(path, [7, 5, 6], by)
        with pytest.raises(DataError, match=r"t\.parquet has changed since it was registered \(written again since\)"):
            query.collect(mode="cpu")
        session.register("t", path)
        path.chmod(0o600)
        path.with_name("link").hardlink_to(path)
        assert session.sql("select n from t").collect().to_arrow()["n"].to_pylist() == [7, 5, 6]
        assert session.sql("select max(n) as n from t where n < 6").collect().to_arrow()["n"].to_pylist() == [5]


@pytest.mark.parametrize("hint", [{"inode": 7}, {"ctime_ns": 7}, {"inode": 7, "ctime_ns": 7}])
def test_what_another_mount_may_say_differently_is_left_to_the_footer(tmp_path: Path, hint: dict[str, Any]) -> None:
    path = write(tmp_path / "t.parquet")
    seen = replace(Catalog().register("t", path).units[0].stamp, **hint)  # type: ignore[attr-defined]
    storage.check_unchanged(seen, digest_at)
    with pytest.raises(DataError, match="has changed since it was registered"):
        storage.check_unchanged(replace(seen, footer="of another"), digest_at)


@pytest.mark.parametrize("name", ["ETag", "VersionId", "generation", "ino"])
def test_a_remote_file_is_told_from_another_by_what_its_store_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    with store.open("/twins/t.parquet", "wb") as file:
        pq.write_table(NUMBERS, file)
    said: dict[str, Any] = {"name": "/twins/t.parquet", "size": 700, "type": "file", name: 1}
    monkeypatch.setattr(type(store), "info", lambda self, path, **options: said)
    seen = storage.stamp("memory://twins/t.parquet")
    storage.check_unchanged(seen, lambda _: "another")
    said[name] = 2
    with pytest.raises(DataError, match="has changed since it was registered"):
        storage.check_unchanged(seen, lambda _: "another")


def test_empty_files(tmp_path: Path) -> None:
    empty = NUMBERS.schema.empty_table()
    table = Catalog().register("t", write(tmp_path / "empty.parquet", empty))
    assert (table.rows, table.units) == (0, ())
    with pq.ParquetWriter(tmp_path / "groupless.parquet", NUMBERS.schema):
        pass
    both = Catalog().register("t", [tmp_path / "groupless.parquet", write(tmp_path / "a.parquet")])
    assert both.rows == 4
    summary = table.summary("n")
    assert summary is not None
    assert (summary.minimum, summary.distinct) == (None, 0.0)


def test_nested_columns_are_kept_without_statistics(tmp_path: Path) -> None:
    nested = pa.table({"k.x": [1, 2], "list": [[1], [2, 3]], "struct": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]})
    table = Catalog().register("t", write(tmp_path / "a.parquet", nested))
    assert [item.name for item in table.schema] == ["k.x", "list", "struct"]
    (unit,) = table.units
    assert unit.statistics("list") is None
    assert unit.statistics("struct") is None
    known = unit.statistics("k.x")
    assert known is not None
    assert (known.minimum, known.maximum) == (1, 2)
    assert unit.column_bytes("struct") > 0
    assert table.summary("struct") is not None


# --- statistics ------------------------------------------------------------------------------------------------------

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int32(), [3, None, -1]),
    "u": (pa.uint64(), [2**64 - 1, 5, 7]),
    "d": (pa.decimal128(15, 2), [Decimal("1.50"), Decimal("-2.25"), None]),
    "w": (pa.decimal128(38, 4), [Decimal("1.5000"), Decimal("99999999999999999999.0000"), None]),
    "date": (pa.date32(), [datetime.date(2020, 1, 2), datetime.date(1969, 1, 1), None]),
    "time": (pa.timestamp("us"), [datetime.datetime(2020, 1, 2, 3), datetime.datetime(1969, 1, 1), None]),
    "s": (pa.string(), ["é", "a", ""]),
    "b": (pa.bool_(), [True, False, None]),
    "f": (pa.float64(), [1.5, float("nan"), -2.0]),
    "none": (pa.int64(), [None, None, None]),
}


@pytest.mark.parametrize("in_memory", [True, False])
def test_statistics_are_python_values(tmp_path: Path, in_memory: bool) -> None:
    data = pa.table({name: pa.array(values, data_type) for name, (data_type, values) in VALUES.items()})
    table = Catalog().register("t", data if in_memory else write(tmp_path / "a.parquet", data))
    (unit,) = table.units
    for name, (_, values) in VALUES.items():
        present = [value for value in values if value is not None and value == value]
        found = unit.statistics(name)
        assert found is not None, name
        assert (found.minimum, found.maximum) == (min(present, default=None), max(present, default=None)), name
        assert found.null_count == values.count(None), name
        assert found.rows == 3
        assert found.all_null == (name == "none")
        assert type(found.minimum) is (type(min(present)) if present else type(None)), name


def test_nan_alone_bounds_nothing(tmp_path: Path) -> None:
    table = Catalog().register("t", write(tmp_path / "a.parquet", pa.table({"x": [float("nan"), float("nan")]})))
    found = table.units[0].statistics("x")
    assert found is None or (found.minimum, found.maximum) == (None, None)


def test_files_without_statistics(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", write_statistics=False)
    table = Catalog().register("t", [path, write(tmp_path / "b.parquet")])
    assert table.units[0].statistics("n") is None
    summary = table.summary("n")
    assert summary is not None
    assert (summary.minimum, summary.maximum, summary.null_count) == (None, None, None)
    bounds = table.bounds("n")
    assert bounds.low.tolist() == [None, 1]
    assert bounds.null.tolist() == [True, True]


def test_summary_spans_units(tmp_path: Path) -> None:
    numbers = pa.table({"n": pa.array([None, None, 5, 7, 3, None], pa.int64())})
    table = Catalog().register("t", write(tmp_path / "a.parquet", numbers, row_group_size=2))
    summary = table.summary("n")
    assert summary is not None
    assert (summary.minimum, summary.maximum, summary.null_count) == (3, 7, 3)
    assert summary.distinct == 3.0
    assert table.summary("nothing") is None
    assert table.column_bytes("n") > 0


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([i % 7 for i in range(20_000)], 6, 10),  # few values in every row group
        ([i * 100 for i in range(20_000)], 18_000, 20_000),  # a key
        ([i // 4 * 100 for i in range(20_000)], 4_000, 6_500),  # a clustered foreign key
        ([f"name {i % 5}" for i in range(20_000)], 4, 9),
        ([f"name {i}" for i in range(20_000)], 15_000, 20_000),
    ],
)
def test_distinct_values_are_guessed_from_dictionaries(tmp_path: Path, values: list[Any], low: int, high: int) -> None:
    table = Catalog().register("t", write(tmp_path / "a.parquet", pa.table({"x": values}), row_group_size=5_000))
    summary = table.summary("x")
    assert summary is not None
    assert summary.distinct is not None
    assert low <= summary.distinct <= high


# --- data in memory --------------------------------------------------------------------------------------------------


def test_memory_tables_are_cut_into_units() -> None:
    rows = MEMORY_UNIT_ROWS + 5
    table = Catalog().register("t", pa.table({"x": pa.array(range(rows), pa.int32())}))
    assert [unit.rows for unit in table.units] == [MEMORY_UNIT_ROWS, 5]
    last = table.units[1].statistics("x")
    assert last is not None
    assert (last.minimum, last.maximum, last.null_count) == (MEMORY_UNIT_ROWS, rows - 1, 0)
    assert table.units[1].column_bytes("x") == 20


def test_memory_types_are_normalised() -> None:
    strings = pa.array(["a", "b", None])
    data = pa.table(
        {"d": strings.dictionary_encode(), "l": strings.cast(pa.large_string()), "v": strings.cast(pa.string_view())}
    )
    table = Catalog().register("t", data)
    assert {item.type for item in table.schema} == {pa.string()}
    (unit,) = table.units
    assert isinstance(unit, MemoryUnit)
    assert unit.table.column("d").to_pylist() == ["a", "b", None]
    assert set(unit.table.schema.types) == {pa.string()}


def test_data_frames() -> None:
    frame = pd.DataFrame({"x": [1, 2], "s": ["a", None]}, index=[5, 6])
    table = Catalog().register("t", frame)
    assert [item.name for item in table.schema] == ["x", "s"]
    assert table.rows == 2
    assert Catalog().register("t", pa.record_batch({"x": [1]})).rows == 1
    with pytest.raises(DataError, match="does not convert"):
        Catalog().register("t", pd.DataFrame({"x": [1, "a"]}))
    with pytest.raises(DataError, match=r"Duplicate column names.*'a'"):
        Catalog().register("t", pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_empty_memory_table() -> None:
    table = Catalog().register("t", NUMBERS.slice(0, 0))
    assert (table.rows, table.units) == (0, ())
    assert [item.name for item in table.schema] == ["n", "s"]


def test_tpch_folder(tpch_folder: Path) -> None:
    catalog = Catalog()
    names = catalog.register_folder(tpch_folder)
    assert set(names) == {"customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"}
    lineitem = catalog.table("lineitem")
    assert lineitem.rows == 60_175
    assert all(isinstance(unit, ParquetUnit) for unit in lineitem.units)
    discount = lineitem.summary("l_discount")
    assert discount is not None
    assert (discount.minimum, discount.maximum, discount.distinct) == (Decimal("0.00"), Decimal("0.10"), 11.0)


def test_links_that_lead_out_of_a_folder_are_refused_unless_asked_for(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "data"
    for path in (outside, folder / "inner", outside / "parted" / "k=1"):
        path.mkdir(parents=True)
    for path in (outside / "secret.parquet", folder / "inner" / "a.parquet", outside / "parted" / "k=1" / "b.parquet"):
        pq.write_table(pa.table({"x": [1]}), path)
    (folder / "again.parquet").symlink_to(folder / "inner" / "a.parquet")
    assert Catalog().register_folder(folder) == ("again", "inner")
    (tmp_path / "link").symlink_to(folder)
    assert Catalog().register_folder(tmp_path / "link") == ("again", "inner")
    for link, target in (
        (folder / "found.parquet", outside / "secret.parquet"),
        (folder / "parted", outside / "parted"),
        (folder / "inner" / "k=2", outside / "parted"),
        (folder / "inner" / "more.parquet", Path("../../outside/secret.parquet")),
    ):
        link.symlink_to(target)
        catalog = Catalog()
        names = catalog.register_folder(folder)
        ((table, why),) = catalog.unreadable.items()
        assert table not in names
        assert set(names) | {table} == {"again", "inner", table}
        assert re.search(rf"{link.name} is a link that leads out of .*outside.*--follow-links", why)
        with pytest.raises(DataError, match="is a link that leads out of"):
            catalog.check_readable(table)
        assert Catalog().register_folder(folder, follow_links=True)
        link.unlink()
    catalog = Catalog()
    catalog.register("t", outside / "secret.parquet")  # by its own name, wherever it is


def test_links_to_nothing_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "good.parquet")
    (tmp_path / "gone.parquet").symlink_to(tmp_path / "old" / "gone.parquet")
    (tmp_path / "folder").symlink_to("elsewhere")
    (tmp_path / "round.parquet").symlink_to("round.parquet")
    (tmp_path / "README.md").symlink_to("nowhere")  # no table's name
    for follow in (False, True):
        catalog = Catalog()
        assert catalog.register_folder(tmp_path, follow) == ("good",)
        assert set(catalog.unreadable) == {"gone", "folder", "round"}
        assert "gone.parquet is a link to" in catalog.unreadable["gone"]
        assert "elsewhere, where nothing can be found" in catalog.unreadable["folder"]
    (tmp_path / "good.parquet").unlink()
    with pytest.raises(DataError, match="where nothing can be found"):
        Catalog().register_folder(tmp_path)


@pytest.mark.parametrize("path", ["x" * 5000, "x" * 5000 + "/*.parquet"])
def test_paths_that_no_file_system_takes(path: str) -> None:
    catalog = Catalog()
    with pytest.raises(DataError, match=r"cannot be looked for|no file"):
        catalog.register("t", path)
    with pytest.raises(DataError, match="File name too long"):
        catalog.register_folder(path)
