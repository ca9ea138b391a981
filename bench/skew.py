"""Partitioned joins of skewed keys: answers, the largest piece of work, and times beside keys that are even.

    python -m bench.skew --out bench/results/skew.md [--rows 6000000] [--rounds 3]

Every case joins as many rows to as many, and gives as many: each row of the larger side has one partner.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import hybridq as hq
from bench.machine import describe
from hybridq.physical.chunks import Chunk
from hybridq.physical.partitions import PartitionChunks
from hybridq.session import Session
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.reference import duckdb_answer

MIB = 2**20
PARTITION_BYTES = 16 * MIB
KEYS = 1_500_000
ROW_GROUP = 250_000
MEASURED = ("seconds", "processor")
CASES = ("even", "zipf", "one key")
FORMS = {
    "join": "select count(*) as n, sum(p.v * b.w) as s from {case} p join build b on p.k = b.k",
    "left join, filter": (
        "select count(*) as n, count(b.w) as m, sum(p.v) as s from {case} p left join build b on p.k = b.k and b.w > 3"
    ),
    "skewed side built": "select count(*) as n, sum(p.v * b.w) as s from build b left join {case} p on p.k = b.k",
    "groups": "select count(*) as n, sum(s) as s, max(c) as c from"
    " (select k, sum(v) as s, count(*) as c from {case} group by k) g",
}


def keys(case: str, rows: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the keys of the larger side."""
    if case == "even":
        return random.integers(0, KEYS, rows)
    if case == "one key":
        return np.where(random.random(rows) < 0.9, 7, random.integers(0, KEYS, rows))
    # Zipf(1.2) over all keys, each of which may be the most frequent one.
    weights = np.arange(1, KEYS + 1) ** -1.2
    drawn = np.searchsorted(np.cumsum(weights / weights.sum()), random.random(rows))
    found: npt.NDArray[np.int64] = random.permutation(KEYS)[np.minimum(drawn, KEYS - 1)]
    return found


def make(folder: Path, rows: int) -> None:
    """Write the tables."""
    random = np.random.default_rng(1)
    build = pa.table({"k": random.permutation(KEYS), "w": random.integers(0, 10, KEYS)})
    pq.write_table(build, folder / "build.parquet", row_group_size=ROW_GROUP)
    for case in CASES:
        table = pa.table({"k": keys(case, rows, random), "v": random.integers(0, 100, rows)})
        pq.write_table(table, folder / f"{case.replace(' ', '_')}.parquet", row_group_size=ROW_GROUP)


class Watched:
    """Notes what partitions are handed out, as the driver of this process does it."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self._take = PartitionChunks.take

    def __enter__(self) -> Watched:
        take, chunks = self._take, self.chunks

        def noting(self: PartitionChunks, rows: int, largest: bool = False) -> Chunk | None:
            chunk = take(self, rows, largest)
            if chunk is not None:
                chunks.append(chunk)
            return chunk

        PartitionChunks.take = noting  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        PartitionChunks.take = self._take  # type: ignore[method-assign]

    @property
    def largest(self) -> int:
        """Return the bytes of the largest chunk, both sides."""
        return max(chunk.decoded_bytes for chunk in self.chunks)


def processor_seconds(pids: list[int]) -> float:
    """Return the processor seconds that processes have used."""
    found = 0
    for pid in pids:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found += int(words[11]) + int(words[12])
    return found / os.sysconf("SC_CLK_TCK")


def measure(session: Session, folder: Path, form: str, case: str) -> dict[str, Any]:
    """Run a query once."""
    text = FORMS[form].format(case=case.replace(" ", "_"))
    query = session.sql(text)
    pids = [device.pid for device in session.devices()]
    processor, start = processor_seconds(pids), time.perf_counter()
    with Watched() as watched:
        result = query.collect(mode="cpu")
    seconds = time.perf_counter() - start
    processor = processor_seconds(pids) - processor
    assert_same_answer(result.to_arrow(), duckdb_answer(text, folder, query.schema))
    return {
        "seconds": seconds,
        "processor": processor,
        "largest": watched.largest,
        "chunks": len(watched.chunks),
        "peak": max(result.report.peak_worker_bytes.values()),
        "retries": sum(stage.retries for stage in result.report.stages),
    }


def page(found: dict[tuple[str, str], list[dict[str, Any]]], rows: int, rounds: int) -> str:
    """Return the results as a page."""
    machine = describe()
    out = [
        "# Joins and groups of skewed keys",
        "",
        f"Commit {str(machine['commit'])[:12]}, {machine['cores']} cores of {machine['cpu']}, load before"
        f" {machine['load_before']}; made by `python -m bench.skew`. {rows:,} rows are joined to {KEYS:,}, all by"
        " splitting both sides (`broadcast_limit_bytes=0`, `gather_limit_bytes=0`), on two workers of one thread and"
        f" 2 GiB each; `partition_bytes` is {PARTITION_BYTES // MIB} MiB. Medians of {rounds} runs in turn, after one"
        " that is not counted; processor seconds are the workers'. Every answer is DuckDB's.",
        "",
        "`zipf`: Zipf(1.2) over all keys, so that the most frequent one has about a fifth of the rows; `one key`: nine"
        " rows of ten have one key. The largest chunk is the most bytes of both sides that one task was given.",
        "",
        "The cap of a chunk is twice `partition_bytes` on its probing side, beside a build side of `partition_bytes`."
        " Rows of one key on a build side (`skewed side built`, `one key`) are taken in blocks of that size, one after"
        " the other, by the task that has their partition: only one is in memory at a time.",
        "",
        "| query | keys | seconds | to even | processor seconds | to even | chunks | largest chunk, MiB"
        " | worker's peak, MiB | done again |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for form in FORMS:
        if any((form, case) not in found for case in CASES):
            continue
        base, used = (statistics.median(each[what] for each in found[form, "even"]) for what in MEASURED)
        for case in CASES:
            runs = found[form, case]
            seconds, processor = (statistics.median(each[what] for each in runs) for what in MEASURED)
            out.append(
                f"| {form} | {case} | {seconds:.2f} | {seconds / base:.2f}x | {processor:.2f} | {processor / used:.2f}x"
                f" | {runs[-1]['chunks']}"
                f" | {max(each['largest'] for each in runs) / MIB:.1f} | {max(each['peak'] for each in runs) / MIB:.0f}"
                f" | {max(each['retries'] for each in runs)} |"
            )
    return "\n".join([*out, "", "The queries:", "", *(f"    {text}" for text in FORMS.values()), ""])


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    cluster = {"workers": [{"kind": "cpu", "processes": 2, "threads": 1, "memory": "2GiB"}]}
    options: dict[str, Any] = {"broadcast_limit_bytes": 0, "gather_limit_bytes": 0, "partition_bytes": PARTITION_BYTES}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        make(folder, given.rows)
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        with hq.connect(cluster, **options) as session:
            session.register_folder(folder)
            for turn in range(given.rounds + 1):
                for form in FORMS:
                    for case in CASES:
                        run = measure(session, folder, form, case)
                        print(turn, form, case, run, flush=True)
                        if turn:
                            found.setdefault((form, case), []).append(run)
                    given.out.write_text(page(found, given.rows, given.rounds))


if __name__ == "__main__":
    main()
