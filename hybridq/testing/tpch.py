"""TPC-H data, made by ``tpchgen-cli`` and kept for the next time."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from hybridq.config import cache_folder
from hybridq.errors import ConfigurationError, ExecutionError
from hybridq.shipped import find_plan

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")

ROWS_AT_SCALE_1 = {"supplier": 10_000, "customer": 150_000, "part": 200_000, "partsupp": 800_000, "orders": 1_500_000}
"""Rows of the tables that grow in exact proportion to the scale factor."""


def cached(scale_factor: float) -> Path:
    """Return the folder with TPC-H data of a scale factor in the user's cache, made now if it is not there yet.

    Raises
    ------
    ConfigurationError
        ``tpchgen-cli`` is needed and not installed.
    ExecutionError
        The data cannot be made.
    """
    return generate(scale_factor, cache_folder() / "tpch" / f"sf{scale_factor:g}")


def generate(
    scale_factor: float,
    folder: str | Path,
    *,
    tables: Sequence[str] = TABLES,
    row_group_bytes: int | None = None,
) -> Path:
    """Make TPC-H tables as ``<table>.parquet`` in a folder; a complete earlier result is kept as it is.

    Files appear in ``folder`` only when all of them are whole: they are made in a temporary folder beside it and
    renamed.

    Parameters
    ----------
    scale_factor : float
        1 makes about 6 million rows of ``lineitem`` (0.35 GB of Parquet in all).
    folder : str or Path
        Made when it does not exist; other files in it are left alone.
    tables : sequence of str
        Which tables to make.
    row_group_bytes : int, optional
        Uncompressed bytes of a row group; ``tpchgen-cli``'s default (7 MiB) if not given.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ConfigurationError
        ``tpchgen-cli`` is not installed, the scale factor is not positive, or a table is unknown.
    ExecutionError
        ``tpchgen-cli`` failed (no space, no permission).
    """
    folder = Path(folder)
    if not scale_factor > 0:
        raise ConfigurationError(f"the scale factor must be greater than 0, not {scale_factor:g}")
    if unknown := sorted(set(tables) - set(TABLES)):
        raise ConfigurationError(f"TPC-H has no table {unknown[0]!r}: its tables are {', '.join(TABLES)}")
    if is_complete(folder, scale_factor, tables):
        return folder
    program = find_generator()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as made:
            command = [program, "parquet", "-s", f"{scale_factor:g}", f"--output-dir={made}", "--quiet"]
            command.append(f"--tables={','.join(tables)}")
            if row_group_bytes is not None:
                command.append(f"--row-group-bytes={row_group_bytes}")
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode != 0 or not is_complete(Path(made), scale_factor, tables):
                detail = (run.stderr.strip() or run.stdout.strip() or f"exit code {run.returncode}").splitlines()[-1]
                raise ExecutionError(f"tpchgen-cli could not make TPC-H data in {folder}: {detail}")
            move_into_place(Path(made), folder)
    except OSError as error:
        raise ExecutionError(f"cannot make TPC-H data in {folder}: {error.strerror or error}") from error
    return folder


def is_complete(folder: Path, scale_factor: float, tables: Sequence[str] = TABLES) -> bool:
    """Tell whether every table is there, readable to its footer, and of the right size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for table in tables:
        path = folder / f"{table}.parquet"
        try:
            rows = pq.read_metadata(path).num_rows
        except (OSError, pa.ArrowException):
            return False
        wanted = ROWS_AT_SCALE_1.get(table)
        if wanted is not None and abs(rows - wanted * scale_factor) > 1:
            return False
    return True


def find_generator() -> str:
    """Return the path of ``tpchgen-cli``: beside this Python, else on the PATH.

    Raises
    ------
    ConfigurationError
        It is not installed.
    """
    beside = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("tpchgen-cli")
    if found is None:
        raise ConfigurationError("TPC-H data needs tpchgen-cli: install it with  pip install 'hybridq[tpch]'")
    return found


def query_text(number: int, scale_factor: float = 1) -> str:
    r"""Return one of the shipped queries, 1 to 22, for data of a scale factor: Q11's fraction depends on it.

    >>> "* 0.01\n" in query_text(11, 0.01), "* 0.0001\n" in query_text(11)
    (True, True)
    """
    text = find_plan(f"tpch/q{number:02}").read_text()
    if number != 11 or scale_factor == 1:
        return text
    return text.replace("* 0.0001\n", f"* {q11_fraction(scale_factor):f}\n")


def q11_fraction(scale_factor: float) -> Decimal:
    """Return the fraction of the stock's value that Q11 asks for: 0.0001 / scale factor, to twelve decimal places.

    >>> f"{q11_fraction(100):f}", f"{q11_fraction(30):f}"
    ('0.000001', '0.000003333333')
    """
    return round(Decimal("0.0001") / Decimal(str(scale_factor)), 12).normalize()


def move_into_place(made: Path, folder: Path) -> None:
    """Move whole files from a temporary folder beside ``folder`` into it."""
    # A new folder appears in one step. Where it exists already (a broken attempt, or a folder of the user's), each file
    # is replaced in one step, and nothing else in it is touched.
    if not folder.exists():
        with contextlib.suppress(OSError):
            made.rename(folder)
            folder.chmod(0o755)
            made.mkdir()  # for the temporary folder's own clean-up
            return
    folder.mkdir(exist_ok=True)
    for path in sorted(made.iterdir()):
        path.replace(folder / path.name)
