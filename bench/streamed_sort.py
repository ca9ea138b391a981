"""Sorts many times a worker's memory into a file: whether it gets through, and what memory and disk it takes.

    python -m bench.streamed_sort --mebibytes 384 --times 10 [--folder DIR]

Rows of a number and a text of 1,000 random characters, as many as take that many times the memory of the only worker
(one thread), are written in order of the number. Disk is what spill folder and answer's file took together at most.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import hybridq as hq
from bench.machine import describe

ROWS, WIDTH, MIB = 8000, 1000, 2**20
LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-", np.uint8)


def write(path: Path, size: int) -> tuple[int, int]:
    """Write a table of at least so many bytes; return its rows and bytes."""
    numbers = np.random.default_rng(1)
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("t", pa.string())])
    ends = pa.py_buffer(np.arange(0, (ROWS + 1) * WIDTH, WIDTH, dtype=np.int32))
    rows = written = 0
    with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
        while written < size:
            letters = LETTERS[numbers.integers(0, len(LETTERS), ROWS * WIDTH, dtype=np.uint8)]
            texts = pa.StringArray.from_buffers(ROWS, ends, pa.py_buffer(letters.tobytes()))
            order = numbers.integers(0, 2**62, ROWS)
            table = pa.table([order, np.arange(rows, rows + ROWS), texts], schema=schema)
            writer.write_table(table)
            rows, written = rows + ROWS, written + table.nbytes
    return rows, written


def check(path: Path, rows: int) -> None:
    """Check that a file has every row once, in order."""
    before, found, total = -1, 0, 0
    for batch in pq.ParquetFile(path).iter_batches(columns=["k", "n"]):
        keys = batch.column(0).to_numpy()
        assert keys[0] >= before
        assert (np.diff(keys) >= 0).all()
        before, found, total = keys[-1], found + len(keys), total + int(batch.column(1).to_numpy().sum())
    assert (found, total) == (rows, rows * (rows - 1) // 2)


class Watch(threading.Thread):
    """Looks every 0.3 s at what processes hold and folders take.

    Parameters
    ----------
    pids : dict of str to int
    folders : list of path
    """

    def __init__(self, pids: dict[str, int], folders: list[Path]) -> None:
        super().__init__(daemon=True)
        self._pids, self._folders = pids, folders
        self.done = threading.Event()
        self.peaks = dict.fromkeys([*pids, "disk", "files"], 0)

    def run(self) -> None:
        while not self.done.wait(0.3):
            sizes = []
            for path in (path for folder in self._folders for path in folder.rglob("*")):
                try:
                    sizes.append(path.stat().st_size if path.is_file() else 0)
                except OSError:  # it has just gone
                    continue
            self._note("disk", sum(sizes))
            self._note("files", len(sizes))
            for name, pid in self._pids.items():
                self._note(name, psutil.Process(pid).memory_info().rss if psutil.pid_exists(pid) else 0)

    def _note(self, name: str, value: int) -> None:
        self.peaks[name] = max(self.peaks[name], value)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.streamed_sort", description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=384, help="memory of the worker")
    parser.add_argument("--times", type=float, default=10.0)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as made:
        folder = Path(made)
        (folder / "out").mkdir()
        (folder / "spill").mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "spill")
        rows, size = write(folder / "wide.parquet", int(arguments.times * arguments.mebibytes * MIB))
        cluster = {"workers": [{"kind": "cpu", "processes": 1, "threads": 1, "memory": f"{arguments.mebibytes}MiB"}]}
        with hq.connect(cluster) as session:
            session.register("wide", folder / "wide.parquet")
            (worker,) = session.devices()
            watch = Watch({"worker": worker.pid, "client": os.getpid()}, [folder / "out", folder / "spill"])
            watch.start()
            start = time.monotonic()
            report = session.sql("select k, n, t from wide order by k, n").write(folder / "out" / "sorted.parquet")
            seconds = time.monotonic() - start
            watch.done.set()
        check(folder / "out" / "sorted.parquet", rows)
    machine, peaks = describe(), watch.peaks
    spilled = sum(stage.spilled_bytes for stage in report.stages)
    in_mib = {name: f"{peaks[name] / MIB:.0f}" for name in ("worker", "client", "disk")}
    print(f"commit {str(machine['commit'])[:12]}, load before {machine['load_before']}")
    print(f"{rows:,} rows, {size / MIB:.0f} MiB, sorted in {seconds:.0f} s by a worker of {arguments.mebibytes} MiB")
    print(
        f"held at most: worker {in_mib['worker']} MiB, client {in_mib['client']} MiB; spilled {spilled / MIB:.0f} MiB"
    )
    print(f"on disk at most {in_mib['disk']} MiB, {peaks['disk'] / size:.2f} of the data; {peaks['files']} files")


if __name__ == "__main__":
    main()
