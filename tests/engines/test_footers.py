"""Footers cut down to some row groups and columns: Arrow reads the same rows with them."""

from __future__ import annotations

import datetime
import io
import random
import struct
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.engines import thrift
from hybridq.engines.footer import MAGIC, FileFooter


def parsed(footer):
    """Let Arrow parse a footer, as the end of a file that has nothing else."""
    return pq.read_metadata(io.BytesIO(MAGIC + footer + struct.pack("<I", len(footer)) + MAGIC))


def read(path, row_groups, columns):
    """Read with the cut footer."""
    footer = FileFooter(str(path)).cut(row_groups, columns)
    assert footer is not None
    metadata = parsed(footer)
    assert metadata.num_row_groups == len(row_groups)
    return pq.ParquetFile(path, metadata=metadata).read()


@pytest.fixture(scope="module")
def table():
    random.seed(1)
    days = [datetime.date(1992, 1, 1) + datetime.timedelta(n) for n in range(100)]
    rows = range(1000)
    return pa.table(
        {
            "number": pa.array(rows, pa.int64()),
            "part": pa.array([{"x": n, "y": [n, 1]} for n in rows]),
            "text": pa.array([random.choice([None, "", "é", "long text " * 9]) for _ in rows]),
            "money": pa.array([Decimal(n) / 100 for n in rows], pa.decimal128(15, 2)),
            "wide": pa.array([Decimal(-n) for n in rows], pa.decimal128(38, 0)),
            "real": pa.array([n / 7 for n in rows], pa.float64()),
            "flag": pa.array([n % 3 == 0 for n in rows]),
            "day": pa.array([days[n % 100] for n in rows]),
            "moment": pa.array([datetime.datetime(2020, 1, 1, 0, n % 60) for n in rows], pa.timestamp("us")),
            "list": pa.array([[n] for n in rows]),
            "last": pa.array([n % 5 for n in rows], pa.int32()),
        }
    )


FLAT = ["number", "text", "money", "wide", "real", "flag", "day", "moment", "last"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "zstd", "use_dictionary": False, "version": "1.0"},
        {"compression": "none", "write_statistics": False, "data_page_version": "2.0"},
        {"compression": "gzip", "write_page_index": True, "store_decimal_as_integer": True},
        {"use_dictionary": False, "column_encoding": {"number": "DELTA_BINARY_PACKED", "real": "BYTE_STREAM_SPLIT"}},
    ],
)
def test_arrow_reads_the_same_rows(tmp_path, table, options):
    path = tmp_path / "table.parquet"
    pq.write_table(table, path, row_group_size=100, **options)
    for row_groups, columns in [(list(range(10)), FLAT), ([3], ["last"]), ([7, 2, 9], ["day", "number", "text"])]:
        expected = pq.ParquetFile(path).read_row_groups(row_groups, columns=columns).select(columns)
        assert read(path, row_groups, columns).cast(expected.schema).equals(expected)


def test_a_footer_of_many_row_groups(tmp_path):
    table = pa.table({f"c{n}": pa.array(range(400), pa.int32()) for n in range(40)})
    path = tmp_path / "many.parquet"
    pq.write_table(table, path, row_group_size=1)
    footer = FileFooter(str(path))
    cut = footer.cut(range(100, 110), ["c39"])
    assert len(cut) < 1000 < len(footer.cut(range(400), [f"c{n}" for n in range(40)]))
    assert read(path, range(100, 110), ["c39"]).column("c39").to_pylist() == list(range(100, 110))


def test_what_cannot_be_cut(tmp_path, table):
    path = tmp_path / "table.parquet"
    pq.write_table(table, path)
    footer = FileFooter(str(path))
    for columns in (["part"], ["list"], ["number", "part"], ["missing"]):
        assert footer.cut([0], columns) is None
    pq.write_table(table, path, compression="lz4")
    assert FileFooter(str(path)).cut([0], ["number"]) is None


def test_files_of_tpch(tpch_folder):
    path = tpch_folder / "lineitem.parquet"
    columns = ["l_shipdate", "l_extendedprice", "l_comment"]
    groups = range(pq.read_metadata(path).num_row_groups)
    expected = pq.ParquetFile(path).read_row_groups(list(groups), columns=columns).select(columns)
    assert read(path, list(groups), columns).cast(expected.schema).equals(expected)


def test_no_parquet_file(tmp_path):
    path = tmp_path / "text.parquet"
    path.write_bytes(b"this is not Parquet" * 10)
    with pytest.raises((OSError, ValueError)):
        FileFooter(str(path))
    with pytest.raises(FileNotFoundError):
        FileFooter(str(tmp_path / "missing.parquet"))


def test_columns_in_file_order(tmp_path, table):
    path = tmp_path / "table.parquet"
    pq.write_table(table, path)
    assert FileFooter(str(path)).in_file_order(["last", "missing", "text", "number"]) == [
        "number",
        "text",
        "last",
        "missing",
    ]


@pytest.mark.parametrize("kind", ["list", "map"])
def test_a_list_longer_than_its_footer(kind):
    count = bytes([0x80] * 8 + [0x40])
    data = bytes([0xF3]) + count if kind == "list" else count + bytes([0x33])
    with pytest.raises(ValueError, match="longer than what it is in"):
        thrift.skip(data + bytes(20), 0, thrift.LIST if kind == "list" else thrift.MAP)
