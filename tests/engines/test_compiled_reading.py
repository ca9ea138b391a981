"""Reading with compiled loops gives what reading without them gives, and takes no harm from damaged files."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq import types
from hybridq.engines import cpu, joining, pages, read, selective
from hybridq.engines.compiled import KERNELS, Kernels
from hybridq.engines.cpu import CpuEngine
from hybridq.engines.protocol import FileConstant, ReadColumn, ReadRequest
from hybridq.errors import DataError, DivisionByZero
from hybridq.plan.expressions import Call, Column, Expression, In, Literal

LOOPS = KERNELS.load()

WRITERS: Mapping[str, Mapping[str, Any]] = {
    "dictionaries": {},
    "plain": {"use_dictionary": False},
    "dictionaries that overflow": {"dictionary_pagesize_limit": 1500},
    "pages of version 2": {"data_page_version": "2.0"},
    "pages of version 2, plain": {"data_page_version": "2.0", "use_dictionary": False},
    "pages of version 2, not compressed": {"data_page_version": "2.0", "compression": "none"},
    "not compressed": {"compression": "none"},
    "zstd": {"compression": "zstd"},
    "small pages": {"data_page_size": 400, "write_batch_size": 50},
    "decimals as integers": {"store_decimal_as_integer": True},
    "delta": {"use_dictionary": False, "column_encoding": {"key": "DELTA_BINARY_PACKED"}},
}

WORDS = ["", "MAIL", "SHIP", "AIR", "é" * 9, "TRUCK"]


def table(rows: int, seed: int = 0, nulls: float = 0.1) -> pa.Table:
    random = np.random.default_rng(seed)

    def holes(values: list[Any]) -> list[Any]:
        return [None if random.random() < nulls else value for value in values]

    def integers(low: int, high: int) -> list[int]:
        return random.integers(low, high, rows).tolist()

    day = datetime.date(1994, 1, 1)
    money = pa.decimal128(12, 2)
    return pa.table(
        {
            "key": pa.array(sorted(integers(0, 4 * rows + 1)), pa.int64()),
            "any": pa.array(holes(integers(-(2**63), 2**63 - 1)), pa.int64()),
            "short": pa.array(integers(-100, 100), pa.int16()),
            "few": pa.array(holes(integers(0, 5)), pa.int32()),
            "price": pa.array([Decimal(value) / 100 for value in integers(-(10**6), 10**6)], money),
            "discount": pa.array([Decimal(value) / 100 for value in integers(0, 11)], money),
            "ratio": pa.array(holes(random.normal(size=rows).round(1).tolist()), pa.float64()),
            "small": pa.array(random.normal(size=rows).round(1), pa.float32()),
            "day": pa.array([day + datetime.timedelta(days) for days in integers(0, 40)], pa.date32()),
            "mode": pa.array([WORDS[number] for number in integers(0, 6)], pa.string()),
            "maybe": pa.array(holes([WORDS[number] for number in integers(0, 6)]), pa.string()),
            "text": pa.array(holes([f"{WORDS[number % 6]} {number}" for number in integers(0, 10**6)]), pa.string()),
            "nothing": pa.nulls(rows, pa.int32()),
            "no_text": pa.nulls(rows, pa.string()),
            "flag": pa.array([value > 0 for value in integers(0, 2)], pa.bool_()),
        }
    )


SCHEMA = {field.name: types.normalize(field.type) for field in table(0).schema}


def column(name: str) -> Column:
    return Column(SCHEMA[name], name)


def literal(name: str, value: object) -> Literal:
    return Literal(SCHEMA[name], value)


def call(function: str, *arguments: Expression) -> Call:
    return Call(pa.bool_(), function, arguments)


def compared(name: str, function: str, value: object) -> Call:
    return call(function, column(name), literal(name, value))


def like(name: str, pattern: str) -> Call:
    return call("like", column(name), Literal(pa.string(), pattern))


PREDICATES: Mapping[str, Expression | None] = {
    "none": None,
    "one column": compared("day", "less", datetime.date(1994, 1, 20)),
    "nobody": compared("discount", "greater", Decimal("0.99")),
    "everybody": compared("discount", "less", Decimal("0.99")),
    "a column with NULLs": compared("few", "equal", 3),
    "is null": call("is_null", column("few")),
    "all are null": call("is_null", column("nothing")),
    "none is": call("is_not_null", column("no_text")),
    "a long dictionary": compared("key", "greater", 1000),
    "several": call(
        "and",
        compared("day", "greater_equal", datetime.date(1994, 1, 5)),
        compared("day", "less", datetime.date(1994, 1, 30)),
        compared("discount", "less", Decimal("0.07")),
        In(pa.bool_(), column("mode"), (literal("mode", "MAIL"), literal("mode", "é" * 9))),
    ),
    "two columns": call("and", call("less", column("short"), column("few")), compared("mode", "not_equal", "AIR")),
    "a column read otherwise": like("text", "%A%1%"),
    "both kinds": call("and", compared("day", "less", datetime.date(1994, 1, 9)), like("text", "%3")),
    "one condition of both kinds": call("or", compared("short", "less", 0), like("text", "%3")),
    "a flag": call("and", column("flag"), compared("ratio", "less", 0.5)),
    "texts with NULLs": call("or", compared("maybe", "equal", "SHIP"), call("is_null", column("maybe"))),
}


def request_of(path: Path, groups: tuple[int, ...], predicate: Expression | None, output: list[str]) -> ReadRequest:
    columns = tuple(ReadColumn(name, name, data_type) for name, data_type in SCHEMA.items())
    return ReadRequest(((str(path), groups),), columns, predicate, tuple(output))


def read_with(request: ReadRequest, monkeypatch: pytest.MonkeyPatch, compiled: bool) -> pa.Table:
    monkeypatch.setattr(read, "KERNELS", Kernels("always" if compiled else "never"))
    schema = types.Schema(tuple(types.Field(name, SCHEMA[name]) for name in request.output))
    engine = CpuEngine()
    return engine.to_arrow(engine.read(request), schema)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("compiled")
    found = {}
    for name, options in WRITERS.items():
        found[name] = folder / f"{name}.parquet"
        pq.write_table(table(3000), found[name], **{"row_group_size": 700, "compression": "snappy", **options})
    return found


@pytest.mark.parametrize("writer", WRITERS)
def test_every_kind_of_file(writer: str, files: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_of(files[writer], (0, 2, 4), PREDICATES["several"], list(SCHEMA))
    expected = read_with(request, monkeypatch, compiled=False)
    assert 0 < expected.num_rows < 1000
    assert read_with(request, monkeypatch, compiled=True).equals(expected)
    everything = request_of(files[writer], (1, 3), None, list(SCHEMA))
    assert read_with(everything, monkeypatch, True).equals(read_with(everything, monkeypatch, False))


@pytest.mark.parametrize("predicate", PREDICATES)
def test_every_kind_of_condition(predicate: str, files: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for writer in ("dictionaries", "dictionaries that overflow", "decimals as integers"):
        for output in (list(SCHEMA), ["price", "mode"], ["text"], ["few", "no_text", "day"]):
            request = request_of(files[writer], (0, 1, 3), PREDICATES[predicate], output)
            expected = read_with(request, monkeypatch, compiled=False)
            assert read_with(request, monkeypatch, compiled=True).equals(expected)


def test_what_is_decoded(files: Mapping[str, Path]) -> None:
    """The tests above would also pass if nothing were decoded by the loops."""
    asked = []

    def read_others(request: ReadRequest) -> Any:
        asked.append({each.name for each in request.columns})
        return read._read_all(request)

    request = request_of(files["decimals as integers"], (0, 1), PREDICATES["several"], list(SCHEMA))
    assert selective.read_selected(request, LOOPS, read_others) is not None
    assert asked == [{"text", "flag"}]


def test_other_columns_are_read_of_row_groups_with_rows_left(files: Mapping[str, Path]) -> None:
    asked = []

    def read_others(request: ReadRequest) -> Any:
        asked.append(request.files[0][1])
        return read._read_all(request)

    last = pq.read_table(files["dictionaries"], columns=["key"]).column("key")[2999].as_py()
    request = request_of(files["dictionaries"], (0, 1, 4), compared("key", "equal", last), ["text"])
    frame = selective.read_selected(request, LOOPS, read_others)
    assert frame is not None
    assert frame.rows >= 1
    assert asked == [(4,)]


@pytest.mark.parametrize("predicate", ["none", "one column", "nobody", "both kinds", "a long dictionary"])
@pytest.mark.parametrize(("key", "every", "dropped"), [("few", 6, None), ("key", 40, True), ("few", 1, False)])
def test_rows_that_find_no_partner(
    key: str,
    every: int,
    dropped: bool | None,
    predicate: str,
    files: Mapping[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A join gives the same, whether reading has left them out or not."""
    monkeypatch.setattr(joining, "KERNELS", Kernels("always"))
    engine = CpuEngine()
    partners = pa.table({"partner": pa.array(range(1, 20_000, every), SCHEMA[key])})
    output = ["price", "mode", "few", "key", "text"]
    schema = types.Schema(tuple(types.Field(name, SCHEMA[name]) for name in output))
    for writer in ("dictionaries", "dictionaries that overflow", "pages of version 2, plain"):
        request = request_of(files[writer], (0, 1, 3), PREDICATES[predicate], output)
        whole = read_with(request, monkeypatch, compiled=True)
        build = engine.build(engine.from_arrow(partners), ["partner"])
        joined = []
        for asked in (request, replace(request, partners=((key, build), (key, build)))):
            frame = engine.read(asked)
            joined.append(engine.to_arrow(engine.probe(frame, build, "semi", [column(key)], None, output), schema))
        assert joined[1].equals(joined[0])
        if predicate == "none" and dropped is not None and engine.name == "cpu":
            assert frame.rows == (joined[0] if dropped else whole).num_rows


KEYS = (
    FileConstant("year", "year", pa.int64(), (2020, None, 2021)),
    FileConstant("place", "place", pa.string(), ("here", "there", None)),
)
"""Columns that have one value in each of three files."""

ON_KEYS: Mapping[str, Expression | None] = {
    "none": None,
    "a key": Call(pa.bool_(), "equal", (Column(pa.int64(), "year"), Literal(pa.int64(), 2021))),
    "a text": Call(pa.bool_(), "not_equal", (Column(pa.string(), "place"), Literal(pa.string(), "here"))),
    "is null": Call(pa.bool_(), "is_null", (Column(pa.int64(), "year"),)),
    "a key and a column": Call(pa.bool_(), "greater", (Column(pa.int64(), "year"), column("few"))),
    "a key and a column read otherwise": Call(
        pa.bool_(),
        "or",
        (like("text", "%3"), Call(pa.bool_(), "equal", (Column(pa.string(), "place"), column("mode")))),
    ),
    "all of it": call(
        "and",
        Call(pa.bool_(), "less", (Column(pa.int64(), "year"), Literal(pa.int64(), 2021))),
        compared("day", "less", datetime.date(1994, 1, 20)),
        like("text", "%1%"),
    ),
}


@pytest.mark.parametrize("predicate", ON_KEYS)
@pytest.mark.parametrize("output", [["year", "place"], ["place", "key", "text"], ["few", "mode"], []])
def test_columns_that_have_one_value_a_file(
    predicate: str, output: list[str], files: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [files[name] for name in ("dictionaries", "plain", "zstd")]
    groups = ((str(paths[0]), (0, 3)), (str(paths[1]), (1,)), (str(paths[2]), (2, 4)))
    asked = ReadRequest(groups, (), ON_KEYS[predicate], tuple(output), constants=KEYS)
    names = {*output, "few", "mode", "text", "day"} & SCHEMA.keys() if predicate != "none" or output else {"key"}
    request = replace(asked, columns=tuple(ReadColumn(name, name, SCHEMA[name]) for name in sorted(names)))
    engine = CpuEngine()
    schema = types.Schema(tuple(types.Field(name, request.types[name]) for name in output))
    found = []
    for kernels in ("never", "always"):
        monkeypatch.setattr(read, "KERNELS", Kernels(kernels))
        frame = engine.read(request)
        found.append((frame.rows, engine.to_arrow(frame, schema)))
    assert found[0][0] == found[1][0] > 0
    assert found[1][1].equals(found[0][1])


def test_files_whose_key_has_no_partner_are_not_decoded(
    files: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = []
    whole = selective._Reading._decode

    def decode(self: Any, group: Any, name: str) -> Any:
        decoded.append((group.path, name))
        return whole(self, group, name)

    monkeypatch.setattr(selective._Reading, "_decode", decode)
    monkeypatch.setattr(joining, "KERNELS", Kernels("always"))
    engine = cpu.CpuEngine()  # a GPU's build side is of no use to this reader
    build = engine.build(engine.from_arrow(pa.table({"partner": pa.array([2020, 7], pa.int64())})), ["partner"])
    path, other = str(files["dictionaries"]), str(files["decimals as integers"])
    request = ReadRequest(
        ((path, (0,)), (other, (1, 2)), (path, (3,))),
        (ReadColumn("key", "key", SCHEMA["key"]),),
        None,
        ("key", "year"),
        partners=(("year", build),),
        constants=(FileConstant("year", "year", pa.int64(), (2020, 2019, None)),),
    )
    frame = selective.read_selected(request, LOOPS, read._read_all)
    assert frame is not None
    assert frame.rows == 700
    assert [each for each in decoded if each[1] == "key"] == [(path, "key")]


def test_a_value_that_no_row_needs_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    data = pa.table({"short": pa.array([0, 1, 2, 3] * 50, pa.int16()), "few": pa.array([9, 1, 2, 3] * 50, pa.int32())})
    pq.write_table(data, path)
    ratio = Call(
        pa.int32(), "divide", (Literal(pa.int32(), 6), Call(pa.int32(), "add", (column("few"), column("few"))))
    )
    least = call("greater_equal", ratio, Literal(pa.int32(), 1))
    tenth = Call(pa.int16(), "modulus", (Literal(pa.int16(), 10), column("short")))
    whole = call("equal", tenth, Literal(pa.int16(), 0))
    columns = tuple(ReadColumn(name, name, SCHEMA[name]) for name in ("short", "few"))

    def found(predicate: Expression) -> pa.Table:
        return read_with(ReadRequest(((str(path), (0,)),), columns, predicate, ("short",)), monkeypatch, True)

    assert found(call("and", compared("few", "less", 9), whole, least)).column(0).to_pylist() == [1, 2] * 50
    with pytest.raises(DivisionByZero):
        found(whole)


@settings(max_examples=8, deadline=None)
@given(rows=st.integers(0, 300), group=st.integers(1, 200), seed=st.integers(0, 9), nulls=st.sampled_from([0, 0.5, 1]))
def test_any_size(tmp_path_factory: pytest.TempPathFactory, rows: int, group: int, seed: int, nulls: float) -> None:
    path = tmp_path_factory.mktemp("sizes") / "t.parquet"
    pq.write_table(table(rows, seed, nulls), path, row_group_size=group, compression="snappy", data_page_size=300)
    groups = tuple(range(pq.read_metadata(path).num_row_groups))
    with pytest.MonkeyPatch.context() as monkeypatch:
        for predicate in (None, PREDICATES["several"], PREDICATES["two columns"]):
            request = request_of(path, groups, predicate, list(SCHEMA))
            expected = read_with(request, monkeypatch, compiled=False)
            assert read_with(request, monkeypatch, compiled=True).equals(expected)


@pytest.mark.parametrize("writer", ["dictionaries", "pages of version 2", "not compressed", "small pages"])
def test_damaged_files(writer: str, files: Mapping[str, Path], tmp_path: Path) -> None:
    """Whatever is in a page, the loops stay within it: the answer is pyarrow's then, or wrong rows, but no crash."""
    content = files[writer].read_bytes()
    end = int.from_bytes(content[-8:-4], "little") + 8
    random = np.random.default_rng(7)
    path = tmp_path / "damaged.parquet"
    outcomes = set()
    for _ in range(60):
        damaged = bytearray(content)
        for place in random.integers(4, len(content) - end, random.integers(1, 40)):
            damaged[place] = int(random.choice([0, 1, 127, 128, 255, random.integers(256)]))
        path.write_bytes(damaged)
        names = ["key", "any", "few", "ratio", "day", "mode", "maybe", "short"]
        predicate = PREDICATES["two columns" if random.random() < 0.5 else "none"]
        columns = tuple(ReadColumn(name, name, SCHEMA[name]) for name in names)
        request = ReadRequest(((str(path), (0, 1, 2, 3, 4)),), columns, predicate, tuple(names))
        outcomes.add(selective.read_selected(request, LOOPS, _nobody) is None)
    assert outcomes == {False, True}


def test_an_error_of_rows_that_another_condition_drops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Conditions on columns that are not decoded come later then, though they may be the cheaper ones."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"flag": [True, False] * 50, "few": pa.array([1, 0] * 50, pa.int32())}), path)
    quotient = Call(pa.int32(), "divide", (Literal(pa.int32(), 10), Column(pa.int32(), "few")))
    columns = (ReadColumn("flag", "flag", pa.bool_()), ReadColumn("few", "few", pa.int32()))
    predicate = call("and", Column(pa.bool_(), "flag"), call("greater", quotient, Literal(pa.int32(), 1)))
    request = ReadRequest(((str(path), (0,)),), columns, predicate, ("few",))
    assert read_with(request, monkeypatch, compiled=True).column("few").to_pylist() == [1] * 50


def test_numbers_in_headers_have_32_bits() -> None:
    header = bytes([0x15, *[0xFE] * 8, 0x7F, 0x00]) + bytes(40)
    found = np.zeros((4, LOOPS.HEADER_FIELDS), np.int64)
    assert LOOPS.page_headers(np.frombuffer(header, np.uint8).copy(), len(header), found) == -1


@pytest.mark.parametrize("snappy", [True, False])
def test_levels_larger_than_their_page(snappy: bool) -> None:
    header = [0] * LOOPS.HEADER_FIELDS
    header[LOOPS.KIND], header[LOOPS.COMPRESSED], header[LOOPS.SIZE] = pages.DATA_PAGE_V2, 16, 16
    header[LOOPS.VALUES], header[LOOPS.PLAIN_LEVELS], header[LOOPS.IS_COMPRESSED] = 4, 2**31, 1
    dtype = np.dtype("<i4")
    reader = pages._ChunkReader(LOOPS, np.zeros(64, np.uint8), snappy, 4, True, dtype, dtype)
    with pytest.raises(pages.CannotDecode, match="levels larger"):
        reader.page(header)


def test_runs_are_unpacked_within_the_padding() -> None:
    """A packed run may end with one number of 31 bits: what is read of the other seven lies in the padding."""
    data = np.zeros(5 + LOOPS.PADDING, np.uint8)
    data[0], data[1:5] = 3, [0xFF, 0xFF, 0xFF, 0x7F]
    out = np.zeros(1, np.int32)
    assert LOOPS.run_lengths(data, 0, 5, 31, 1, out, 0) == out[0] == 2**31 - 1
    assert 4 + LOOPS.PADDING >= 31 * 7 // 8 + 8


def _nobody(request: ReadRequest) -> Any:
    raise DataError("the others are not read in this test")


def test_a_file_cut_off_is_named(files: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    content = bytearray(files["dictionaries"].read_bytes())
    content[4:4000] = b"\xff" * 3996
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot read .*t\.parquet"):
        read_with(request_of(path, (0,), None, ["key"]), monkeypatch, compiled=True)


def test_loops_are_loaded_once_they_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = Kernels()
    monkeypatch.setattr("hybridq.engines.compiled.WORTHWHILE_ROWS", 100)
    kernels.did_without(99)
    assert kernels.loading is None
    kernels.did_without(1)
    assert kernels.loading is not None
    kernels.loading.join(60)
    assert kernels.module is LOOPS
    never = Kernels("never")
    never.did_without(1000)
    assert never.loading is None
    assert never.module is None


def test_without_numba(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    kernels = Kernels()
    monkeypatch.setattr("hybridq.engines.compiled._MODULE", "hybridq.engines.compiled.not_there")
    kernels.did_without(10**9)
    assert kernels.loading is not None
    kernels.loading.join(60)
    assert kernels.module is None
    assert "not_there" in caplog.text
