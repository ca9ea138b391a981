from __future__ import annotations

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from hybridq.errors import ConfigurationError, ExecutionError
from hybridq.testing import ssb


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return ssb.generate(0.01, tmp_path_factory.mktemp("ssb") / "sf0.01", row_group_rows=10_000)


def column(folder, table, name):
    return pq.read_table(folder / f"{table}.parquet", columns=[name]).column(0)


def test_tables_have_their_sizes(folder):
    rows = {name: pq.read_metadata(folder / f"{name}.parquet").num_rows for name in ssb.TABLES}
    assert rows["date"] == 2557
    assert (rows["customer"], rows["supplier"], rows["part"]) == (300, 20, 2000)
    assert 55_000 < rows["lineorder"] < 65_000
    assert pq.read_metadata(folder / "lineorder.parquet").num_row_groups > 4
    assert ssb.sizes(1)["part"] == 200_000
    assert ssb.sizes(4)["part"] == 600_000


def test_every_key_is_found(folder):
    for key, table, target in (
        ("lo_custkey", "customer", "c_custkey"), ("lo_suppkey", "supplier", "s_suppkey"),
        ("lo_partkey", "part", "p_partkey"), ("lo_orderdate", "date", "d_datekey"),
        ("lo_commitdate", "date", "d_datekey"),
    ):  # fmt: skip
        assert pc.all(pc.is_in(column(folder, "lineorder", key), column(folder, table, target))).as_py(), key
        assert pc.count_distinct(column(folder, table, target)).as_py() == len(column(folder, table, target))


def test_values_are_in_their_ranges(folder):
    for name, low, high in (("lo_quantity", 1, 50), ("lo_discount", 0, 10), ("lo_tax", 0, 8), ("lo_linenumber", 1, 7)):
        assert pc.min_max(column(folder, "lineorder", name)).as_py() == {"min": low, "max": high}
    lines = pq.read_table(folder / "lineorder.parquet").to_pydict()
    rows = zip(*(lines[f"lo_{name}"] for name in ("extendedprice", "discount", "revenue")), strict=True)
    assert all(revenue == price * (100 - discount) // 100 for price, discount, revenue in rows)
    assert lines["lo_orderkey"] == sorted(lines["lo_orderkey"])
    cities = set(column(folder, "customer", "c_city").to_pylist())
    assert all(len(city) == 10 and city[-1].isdigit() for city in cities)
    assert set(column(folder, "part", "p_brand1").to_pylist()) <= {
        f"MFGR#{m}{c}{b}" for m in range(1, 6) for c in range(1, 6) for b in range(1, 41)
    }
    assert {"Dec1997"} <= set(column(folder, "date", "d_yearmonth").to_pylist())


def test_the_same_data_every_time(folder, tmp_path):
    other = ssb.generate(0.01, tmp_path / "again")
    for name in ssb.TABLES:
        assert pq.read_table(other / f"{name}.parquet").equals(pq.read_table(folder / f"{name}.parquet"))


def test_several_files_have_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(ssb, "ORDERS_OF_A_BLOCK", 1000)
    single = pq.read_table(ssb.generate(0.002, tmp_path / "single") / "lineorder.parquet")
    (tmp_path / "several").mkdir()
    (tmp_path / "several" / "lineorder.parquet").write_bytes(b"broken")
    folder = ssb.generate(0.002, tmp_path / "several", files=2)
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith("lineorder")) == ["lineorder"]
    names = [path.name for path in sorted((folder / "lineorder").iterdir())]
    assert names == ["lineorder.0001.parquet", "lineorder.0002.parquet"]
    assert pq.read_table(folder / "lineorder").equals(single)
    assert ssb.is_complete(folder, 0.002)
    (folder / "lineorder" / names[0]).unlink()
    assert not ssb.is_complete(folder, 0.002)
    ssb.generate(0.002, folder, files=3)
    assert pq.read_table(folder / "lineorder").equals(single)


def test_files_are_made_by_processes(tmp_path):
    folder = ssb.generate(0.2, tmp_path / "made", files=2, processes=2)
    rows = [pq.read_metadata(path).num_rows for path in sorted((folder / "lineorder").iterdir())]
    assert ssb.is_complete(folder, 0.2)
    assert rows[0] > rows[1] > 0


def test_complete_data_is_kept_and_incomplete_data_made_again(tmp_path):
    folder = ssb.generate(0.001, tmp_path / "made")
    stamps = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    ssb.generate(0.001, folder)
    assert stamps == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    (folder / "part.parquet").write_bytes(b"broken")
    (folder / "mine.txt").write_text("kept")
    ssb.generate(0.001, folder)
    assert pq.read_metadata(folder / "part.parquet").num_rows == 200
    assert (folder / "mine.txt").read_text() == "kept"


def test_what_cannot_be_made_is_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match="greater than 0"):
        ssb.generate(0, tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(ExecutionError, match="cannot make SSB data"):
        ssb.generate(0.001, tmp_path / "file" / "folder")
