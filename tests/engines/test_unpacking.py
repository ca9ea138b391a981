"""Decompressing pages ahead of pyarrow changes nothing in what is read."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
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
from hybridq.engines import read, thrift, unpack
from hybridq.engines.footer import FileFooter
from hybridq.engines.protocol import ReadColumn, ReadRequest
from hybridq.errors import DataError

WRITERS: Mapping[str, Mapping[str, Any]] = {
    "plain": {"use_dictionary": False},
    "dictionary": {"use_dictionary": True},
    "a dictionary that overflows": {"dictionary_pagesize_limit": 2000},
    "pages of version 2": {"data_page_version": "2.0"},
    "pages of version 2, plain": {"data_page_version": "2.0", "use_dictionary": False},
    "checksums": {"write_page_checksum": True, "use_dictionary": False},
    "small pages": {"data_page_size": 500, "use_dictionary": False},
    "decimals as integers": {"store_decimal_as_integer": True, "use_dictionary": False},
    "no statistics": {"write_statistics": False},
    "some columns of another codec": {"compression": {"integer": "zstd", "text": "snappy", "amount": "snappy"}},
    "old types": {"version": "1.0"},
}


@pytest.fixture(autouse=True)
def _every_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "WORTHWHILE_BYTES", 1)


def table(rows: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)

    def holes(values: list[Any]) -> list[Any]:
        return [None if random.random() < 0.2 else value for value in values]

    day = datetime.date(1990, 1, 1)
    return pa.table(
        {
            "integer": pa.array(holes(random.integers(-(2**62), 2**62, rows).tolist()), pa.int64()),
            "short": pa.array(random.integers(-100, 100, rows), pa.int16()),
            "amount": pa.array(
                [Decimal(int(v)) / 100 for v in random.integers(-(10**9), 10**9, rows)], pa.decimal128(15, 2)
            ),
            "cents": pa.array(
                holes([Decimal(int(v)) / 100 for v in random.integers(0, 10**6, rows)]), pa.decimal128(9, 2)
            ),
            "long_amount": pa.array(
                holes([Decimal(int(v)) for v in random.integers(0, 9, rows)]), pa.decimal128(38, 4)
            ),
            "ratio": pa.array(holes(random.normal(size=rows).tolist()), pa.float64()),
            "flag": pa.array(holes((random.random(rows) < 0.5).tolist()), pa.bool_()),
            "day": pa.array(
                holes([day + datetime.timedelta(int(d)) for d in random.integers(0, 9999, rows)]), pa.date32()
            ),
            "text": pa.array(holes(["é" * int(n) for n in random.integers(0, 30, rows)]), pa.string()),
            "view": pa.array(holes([f"word {n}" for n in random.integers(0, 9, rows)]), pa.string_view()),
        }
    )


def columns_of(schema: pa.Schema) -> tuple[ReadColumn, ...]:
    return tuple(ReadColumn(field.name, field.name, types.normalize(field.type)) for field in schema)


@pytest.mark.parametrize("writer", WRITERS)
def test_same_table(writer: str, tmp_path: Path) -> None:
    expected = table(3000)
    path = tmp_path / "t.parquet"
    pq.write_table(expected, path, **{"row_group_size": 700, "compression": "snappy", **WRITERS[writer]})
    with pq.ParquetFile(path) as file:
        groups = (0, 2, 4)
        found = pq.ParquetFile(pa.BufferReader(unpack.unpack(FileFooter(str(path)), groups, file.schema.names)))
        assert found.read().cast(file.schema_arrow).equals(file.read_row_groups(groups))
        codecs = {found.metadata.row_group(0).column(i).compression for i in range(found.metadata.num_columns)}
    assert "SNAPPY" not in codecs


@pytest.mark.parametrize("writer", WRITERS)
def test_same_frame(writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table(3000), path, **{"row_group_size": 700, "compression": "snappy", **WRITERS[writer]})
    schema = pq.read_schema(path)
    request = ReadRequest(((str(path), (1, 3)),), columns_of(schema), None, tuple(schema.names))
    wanted = tuple((name, types.normalize(schema.field(name).type)) for name in schema.names)
    unpacked = to_table(request, wanted)
    monkeypatch.setattr(read, "worth_unpacking", lambda *_: False)
    assert unpacked.equals(to_table(request, wanted))


def to_table(request: ReadRequest, wanted: tuple[tuple[str, pa.DataType], ...]) -> pa.Table:
    from hybridq.engines.cpu import CpuEngine

    schema = types.Schema(tuple(types.Field(name, data_type) for name, data_type in wanted))
    engine = CpuEngine()
    return engine.to_arrow(engine.read(request), schema)


def test_decimals_of_files_that_store_them_differently(tmp_path: Path) -> None:
    data = table(500).select(["amount"])
    paths = [str(tmp_path / name) for name in ("integer.parquet", "bytes.parquet", "zstd.parquet")]
    pq.write_table(data, paths[0], store_decimal_as_integer=True)
    pq.write_table(data, paths[1], compression="snappy")
    pq.write_table(data, paths[2], store_decimal_as_integer=True, compression="zstd")
    request = ReadRequest(tuple((path, (0,)) for path in paths), columns_of(data.schema), None, ("amount",))
    found = to_table(request, (("amount", pa.decimal128(15, 2)),))
    assert found.equals(pa.concat_tables([data, data, data]).combine_chunks())


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(0, 400),
    group=st.integers(1, 200),
    seed=st.integers(0, 10),
    version=st.sampled_from(["1.0", "2.0"]),
)
def test_any_size(tmp_path_factory: pytest.TempPathFactory, rows: int, group: int, seed: int, version: str) -> None:
    path = tmp_path_factory.mktemp("unpack") / "t.parquet"
    pq.write_table(table(rows, seed), path, row_group_size=group, data_page_size=300, data_page_version=version)
    with pq.ParquetFile(path) as file:
        groups = tuple(range(file.metadata.num_row_groups))
        buffer = unpack.unpack(FileFooter(str(path)), groups, ["text", "amount", "integer"])
        found = pq.read_table(pa.BufferReader(buffer))
        assert found.select(["text", "amount", "integer"]).equals(file.read(["text", "amount", "integer"]))


def test_a_damaged_page_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    data = table(5000).select(["integer"])
    pq.write_table(data, path, compression="snappy", use_dictionary=False)
    request = ReadRequest(((str(path), (0,)),), columns_of(data.schema), None, ("integer",))
    content = bytearray(path.read_bytes())
    content[60:2000] = b"\xff" * 1940
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot read .*t\.parquet"):
        read.read_frame(request)


def test_nested_columns_are_left_to_pyarrow(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"number": list(range(1000)), "list": [[1, 2]] * 1000}), path)
    with pytest.raises(unpack.CannotUnpack, match="nested"):
        unpack.unpack(FileFooter(str(path)), (0,), ["list"])
    request = ReadRequest(((str(path), (0,)),), (ReadColumn("number", "number", pa.int64()),), None, ("number",))
    assert read.read_frame(request).rows == 1000
    assert to_table(request, (("number", pa.int64()),)).column(0).to_pylist() == list(range(1000))


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers(value: int) -> None:
    written = thrift.write_integer(value)
    assert thrift.integer(written, 0) == (value, len(written))
    assert thrift.skip(written, 0, thrift.I64) == len(written)


@given(st.lists(st.tuples(st.integers(1, 40), st.binary(max_size=20)), max_size=10, unique_by=lambda item: item[0]))
def test_structs(values: list[tuple[int, bytes]]) -> None:
    fields = [(number, thrift.BINARY, thrift.write_binary(text)) for number, text in sorted(values)]
    written = thrift.write_struct(fields)
    found, place, number = [], 0, 0
    while True:
        number, kind, place = thrift.field(written, place, number)
        if kind == thrift.STOP:
            break
        end = thrift.skip(written, place, kind)
        found.append((number, kind, written[place:end]))
        place = end
    assert found == fields
    assert place == len(written) == thrift.skip(written, 0, thrift.STRUCT)
