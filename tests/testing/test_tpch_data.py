from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from hybridq.errors import ConfigurationError, ExecutionError
from hybridq.testing import tpch


def test_generate_makes_the_tables_asked_for(tmp_path):
    folder = tpch.generate(0.001, tmp_path / "made", tables=("nation", "customer"))
    assert sorted(path.name for path in folder.iterdir()) == ["customer.parquet", "nation.parquet"]
    assert pq.read_metadata(folder / "customer.parquet").num_rows == 150
    assert [path.name for path in tmp_path.iterdir()] == ["made"], "no temporary folder is left"


def test_a_complete_result_is_kept(tmp_path, monkeypatch):
    folder = tpch.generate(0.001, tmp_path / "made", tables=("region",))
    monkeypatch.setattr(tpch, "find_generator", lambda: pytest.fail("made again"))
    assert tpch.generate(0.001, folder, tables=("region",)) == folder


def test_a_broken_attempt_is_made_again_and_other_files_stay(tmp_path):
    folder = tpch.generate(0.001, tmp_path / "made", tables=("region", "customer"))
    (folder / "notes.txt").write_text("mine")
    whole = (folder / "customer.parquet").read_bytes()
    (folder / "customer.parquet").write_bytes(whole[: len(whole) // 2])
    tpch.generate(0.001, folder, tables=("region", "customer"))
    assert (folder / "customer.parquet").read_bytes() == whole
    assert (folder / "notes.txt").read_text() == "mine"


def test_another_scale_factor_is_made_again(tmp_path):
    folder = tpch.generate(0.001, tmp_path / "made", tables=("supplier",))
    tpch.generate(0.002, folder, tables=("supplier",))
    assert pq.read_metadata(folder / "supplier.parquet").num_rows == 20


def test_requests_that_make_no_sense(tmp_path):
    with pytest.raises(ConfigurationError, match="greater than 0"):
        tpch.generate(0, tmp_path / "made")
    with pytest.raises(ConfigurationError, match="no table 'orderz'"):
        tpch.generate(1, tmp_path / "made", tables=("orderz",))


def test_a_generator_that_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tpch, "find_generator", lambda: "false")
    with pytest.raises(ExecutionError, match="tpchgen-cli could not make TPC-H data"):
        tpch.generate(0.001, tmp_path / "made")
    assert list(tmp_path.iterdir()) == []


def test_no_generator_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(tpch.shutil, "which", lambda *_, **__: None)
    with pytest.raises(ConfigurationError, match=r"hybridq\[tpch\]"):
        tpch.generate(0.001, tmp_path / "made")


def test_the_cache_folder_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("HYBRIDQ_CACHE", str(tmp_path / "here"))
    assert tpch.cache_folder() == tmp_path / "here"
    monkeypatch.delenv("HYBRIDQ_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tpch.cache_folder() == tmp_path / "hybridq"
