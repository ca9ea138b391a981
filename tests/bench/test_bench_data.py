"""Data made part by part: the same rows and the same files, only fewer columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import data
from hybridq.catalog import Catalog
from hybridq.frontend.sql import plan_sql
from hybridq.plan.nodes import Scan
from hybridq.plan.rules import optimize
from hybridq.shipped import find_plan
from hybridq.testing import tpch
from hybridq.testing.reference import duckdb_answer


@pytest.fixture(scope="module")
def kept_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SF0.01 in files of about 30,000 rows, with what Q1 and Q3 read."""
    folder = tmp_path_factory.mktemp("parts")
    columns = data.columns_of(["q01", "q03"])
    assert data.make(0.01, folder, list(columns), columns=columns, rows_per_file=30_000, threads=2)
    return folder


def scans(node: object) -> list[Scan]:
    inputs = [getattr(node, name) for name in ("input", "left", "right") if hasattr(node, name)]
    return ([node] if isinstance(node, Scan) else []) + [scan for item in inputs for scan in scans(item)]


@pytest.mark.parametrize("query", sorted(data.QUERY_COLUMNS))
def test_columns_are_those_that_the_plan_reads(query: str, tpch_folder: Path) -> None:
    catalog = Catalog()
    catalog.register_folder(tpch_folder)
    plan = plan_sql(find_plan(f"tpch/{query}").read_text(), catalog.schemas())
    found = {
        scan.table: {column.source for column in scan.columns} for scan in scans(optimize(plan, catalog.table).root)
    }
    assert found == {table: set(names) for table, names in data.QUERY_COLUMNS[query].items()}


@pytest.mark.parametrize("query", ["tpch/q01", "tpch/q03"])
def test_answers_are_those_of_the_whole_data(query: str, kept_folder: Path, tpch_folder: Path) -> None:
    text = find_plan(query).read_text()
    found, expected = duckdb_answer(text, kept_folder), duckdb_answer(text, tpch_folder)
    exact = [field.name for field in expected.schema if not pa.types.is_floating(field.type)]
    assert found.select(exact).equals(expected.select(exact))


def test_files_are_cut_by_rows(kept_folder: Path) -> None:
    found = data.describe(kept_folder, ["q01", "q03"])
    assert found["files"] == {"customer": 1, "lineitem": 2, "orders": 1}
    assert found["rows"]["orders"] == 15_000
    assert found["decoded_bytes"]["q01"] == found["rows"]["lineitem"] * (4 * 8 + 2 * 5 + 4)


def test_what_is_there_stays(kept_folder: Path) -> None:
    columns = data.columns_of(["q01", "q03"])
    before = {path: path.stat().st_mtime_ns for path in kept_folder.rglob("*.parquet")}
    assert data.make(0.01, kept_folder, list(columns), columns=columns, rows_per_file=30_000)
    assert {path: path.stat().st_mtime_ns for path in kept_folder.rglob("*.parquet")} == before


def test_no_file_is_begun_once_the_time_is_up(tmp_path: Path) -> None:
    assert not data.make(0.01, tmp_path, ["customer"], deadline=0.0)
    assert list((tmp_path / "customer").iterdir()) == []


def test_rewriting_keeps_groups_codec_types_and_encodings(tmp_path: Path, tpch_folder: Path) -> None:
    source, names = tpch_folder / "lineitem.parquet", ["l_orderkey", "l_extendedprice", "l_returnflag", "l_shipdate"]
    data.keep_columns(source, tmp_path / "kept.parquet", names)
    old, new = pq.ParquetFile(source), pq.ParquetFile(tmp_path / "kept.parquet")
    assert new.num_row_groups == old.num_row_groups > 1
    assert [new.schema_arrow.field(name) for name in names] == [old.schema_arrow.field(name) for name in names]
    assert new.read().equals(old.read(columns=names))
    for number in range(old.num_row_groups):
        before, after = (
            {
                column.path_in_schema: column
                for column in map(file.metadata.row_group(number).column, range(file.metadata.num_columns))
            }
            for file in (old, new)
        )
        for name in names:
            for key in ("num_values", "compression", "physical_type", "encodings", "has_dictionary_page"):
                assert getattr(after[name], key) == getattr(before[name], key), (number, name, key)
            assert (after[name].statistics.min, after[name].statistics.max) == (
                before[name].statistics.min,
                before[name].statistics.max,
            )


def test_a_column_that_is_not_there_is_an_error(tmp_path: Path, tpch_folder: Path) -> None:
    with pytest.raises(ValueError, match="not all of"):
        data.keep_columns(tpch_folder / "customer.parquet", tmp_path / "kept.parquet", ["c_custkey", "c_typo"])


def test_the_generator_knows_every_table_of_data() -> None:
    assert set(data.ROWS) <= set(tpch.TABLES)
