"""The command in this process, on a cluster that is up already, and data for it."""

from __future__ import annotations

import datetime
import io
import sys
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq import cli


@pytest.fixture
def call(capsys):
    """Run the command in this process: ``call(*arguments) -> (exit code, stdout, stderr)``."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def query(call, one_worker, monkeypatch):
    """Run SQL given as text on a cluster that is up already."""

    def run(sql, data, *options):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(sql.encode())))
        return call("run", "-", "--data", data, "--cluster", one_worker.address, *options)

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two small tables, one of them a folder of files."""
    path = tmp_path_factory.mktemp("data")
    day = datetime.date(2020, 2, 29)
    t = pa.table(
        {
            "k": pa.array([1, 2, 3], pa.int64()),
            "d": pa.array([Decimal("0.10"), Decimal("12345678901234567890.12"), None], pa.decimal128(30, 2)),
            "s": pa.array(["", 'say "hi", you', None]),
            "day": pa.array([day, None, day], pa.date32()),
            "x": pa.array([0.1, float("nan"), None]),
        }
    )
    pq.write_table(t, path / "t.parquet", row_group_size=2)
    (path / "u").mkdir()
    for number in range(2):
        pq.write_table(pa.table({"k": [number], "word": ["no"]}), path / "u" / f"{number}.parquet")
    return path
