"""The wheel holds what the package needs when it runs, and its plans are found there as well as in a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import hybridq
from hybridq import shipped
from hybridq.errors import RequestError

ROOT = Path(__file__).parent.parent

TPCH = {f"tpch/q{number:02d}" for number in (1, 3, 4, 6, 12, 14)}


@pytest.fixture(scope="module")
def unpacked_wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def test_the_wheel_has_the_plans_and_the_cluster_files(unpacked_wheel):
    for folder in ("plans", "cluster"):
        in_checkout = {p.relative_to(ROOT) for p in (ROOT / folder).rglob("*") if p.is_file()}
        in_wheel = {
            p.relative_to(unpacked_wheel / "hybridq")
            for p in (unpacked_wheel / "hybridq" / folder).rglob("*")
            if p.is_file()
        }
        assert in_wheel == in_checkout
    assert not (unpacked_wheel / "tests").exists()


def test_the_wheel_finds_its_plans_and_cluster_files_from_any_folder(unpacked_wheel, tmp_path):
    program = (
        "import hybridq; from hybridq.shipped import find_plan, plan_names; from hybridq.topology import load_topology;"
        "print(hybridq.__file__); print(find_plan('tpch/q03')); print(len(plan_names()));"
        "print(load_topology('cluster/simulated.yaml').workers[1].engine)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(unpacked_wheel)},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    module, plan, count, engine = run.stdout.splitlines()
    assert Path(module).is_relative_to(unpacked_wheel)
    assert Path(plan) == unpacked_wheel / "hybridq/plans/tpch/q03.sql"
    assert int(count) == len(shipped.plan_names())
    assert engine == "simulated"


def test_plans_are_found_by_name_in_a_checkout():
    assert set(shipped.plan_names()) >= TPCH
    assert shipped.find_plan("tpch/q01") == ROOT / "plans/tpch/q01.sql"
    assert shipped.find_plan("tpch/q01.json") == ROOT / "plans/tpch/q01.json"


def test_a_file_is_taken_before_a_shipped_plan(tmp_path, monkeypatch):
    (tmp_path / "mine.sql").write_text("select 1")
    monkeypatch.chdir(tmp_path)
    assert shipped.find_plan("mine.sql") == Path("mine.sql")
    (tmp_path / "plan.txt").write_text("select 1")
    with pytest.raises(RequestError, match=r"plan\.txt must be a \.sql file"):
        shipped.find_plan("plan.txt")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tpch/q3", "the shipped plan is tpch/q03"),
        ("tpch", "nearest: tpch/"),
        ("../pyproject.toml", "there are ssb/"),
        ("", "there are ssb/"),
        ("nothing.sql", "there are ssb/"),
    ],
)
def test_an_unknown_plan_offers_shipped_names(name, words):
    with pytest.raises(RequestError, match=words):
        shipped.find_plan(name)


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == hybridq.__version__
    assert f"## {hybridq.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_gpu_extra_pins_what_rapids_pins():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"dask==2026.7.1", "distributed==2026.7.1"} <= set(extras["gpu"])
    assert any(item.startswith("dask-cuda~=26.10") for item in extras["gpu"])
