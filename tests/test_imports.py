"""Who may import whom: each part of the package knows only what it needs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "hybridq"

EVERYWHERE = {"", "errors", "config", "types", "topology"}
"""What any part may import: the package itself (its version), and modules of plain data."""

ALLOWED = {
    "plan": {"engines.constant_values"},  # constants are computed by what computes columns
    "frontend": {"plan"},
    "engines": {"plan.expressions", "plan.functions", "plan.aggregates", "plan.windows", "storage"},
    "merge": {"engines", "physical.merges", "physical.pipeline", "plan.expressions", "plan.nodes"},
    "physical": {"plan", "catalog", "storage"},
    "placement": {
        "physical",
        "report",
        "engines.support",
        "plan.expressions",
        "plan.nodes",
        "plan.cardinality",
        "plan.parts",
        "plan.statistics",
        "plan.windows",
    },
    "dispatch": {
        "physical",
        "engines",
        "merge",
        "placement",
        "catalog",
        "plan.expressions",
        "plan.naming",
        "plan.nodes",
        "pandas_later",
        "report",
        "security",
        "storage",
        "topology",
        "testing.simulated",
    },
}
"""What each folder may import from the package, itself aside."""

ONLY_IN = {
    "datafusion": ["frontend/sql.py"],
    "distributed": ["dispatch/", "deploy.py"],
    "dask": ["dispatch/", "deploy.py"],
    "cudf": ["engines/gpu.py", "engines/gpu/"],
    "pylibcudf": ["engines/gpu.py", "engines/gpu/"],
    "rmm": ["engines/gpu.py", "engines/gpu/"],
    "dask_cuda": ["dispatch/", "deploy.py"],
    "duckdb": ["testing/reference.py"],
    "numba": ["engines/compiled/"],
    "llvmlite": ["engines/compiled/"],
}
"""Libraries that only these files may import."""


def imported(path):
    """Return the absolute names that a file imports, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                inside = PACKAGE.parent / Path(*name.split("."))
                yield name if inside.is_dir() or inside.with_suffix(".py").is_file() else str(node.module)


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_part_imports_only_what_it_may(path):
    here = path.relative_to(PACKAGE).as_posix()
    part = here.split("/")[0]
    for name in imported(path):
        top, _, rest = name.partition(".")
        if top in ONLY_IN:
            assert any(here == place or (place.endswith("/") and here.startswith(place)) for place in ONLY_IN[top]), (
                f"{here} imports {name}, which only {ONLY_IN[top]} may"
            )
        if top == "hybridq" and part in ALLOWED:
            allowed = ALLOWED[part] | EVERYWHERE | {part}
            assert any(rest == place or rest.startswith(f"{place}.") for place in allowed), f"{here} imports {name}"


def test_importing_hybridq_is_light():
    """Nothing heavy is loaded until it is needed."""
    program = (
        "import sys, hybridq;"
        "print(sorted({'datafusion', 'distributed', 'dask', 'duckdb', 'pandas', 'numba', 'cudf'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_pandas_is_imported_when_it_is_needed():
    program = (
        "import sys; from hybridq.pandas_later import leave_pandas_for_later; leave_pandas_for_later();"
        "import pyarrow as pa; table = pa.table({'x': [1, 2]}); assert 'pandas' not in sys.modules;"
        "import datafusion; assert 'pandas' not in sys.modules;"
        "print(table.to_pandas().x.tolist(), pa.Table.from_pandas(table.to_pandas()).equals(table))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[1, 2] True"


def test_the_command_starts_without_arrow_or_dask():
    program = (
        "import sys; from hybridq import cli;"
        "print(sorted({'pyarrow', 'datafusion', 'distributed', 'duckdb', 'pandas'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
