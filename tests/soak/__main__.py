"""Runs mixed queries for a while: ``python -m tests.soak --minutes 60 --submitters 8 --data DIR``.

Half of the submitters are threads that share a session, the others have one each, as other programs would. All go
through the same queries, each from another place on. Every answer is compared with DuckDB's.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

import hybridq as hq
from hybridq.shipped import find_plan
from hybridq.testing import tpch
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.reference import REFERENCES, duckdb_answer

CLUSTER = {
    "workers": [
        {"kind": "cpu", "processes": 2, "threads": 1, "memory": "2GiB"},
        {"kind": "gpu", "engine": "simulated", "processes": 1, "memory": "2GiB", "device_memory": "512MiB"},
    ]
}
MODES = ("auto", "cpu", "cop", "gpu")
SAMPLE_SECONDS = 2.0
GROWTH = 0.10
"""Share by which a process may hold more in the last third than in the middle one: allocators keep what was freed."""


@dataclass
class Submitter:
    """What one submitter has done."""

    number: int
    queries: int = 0
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Soak:
    """One cluster, its submitters, and samples of memory by process."""

    def __init__(self, data: Path, submitters: int) -> None:
        self.data = data
        self.submitters = [Submitter(number) for number in range(submitters)]
        self.samples: dict[str, list[int]] = {}
        self.names = [name for name in REFERENCES if name.startswith("tpch/")]
        self._answers: dict[str, pa.Table] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def answer(self, name: str, schema: pa.Schema) -> pa.Table:
        with self._lock:
            if name not in self._answers:
                text = REFERENCES[name].sql or find_plan(name).read_text()
                self._answers[name] = duckdb_answer(text, self.data, schema)
            return self._answers[name]

    def submit(self, submitter: Submitter, session: Any) -> None:
        """Run queries, one after the other, until it is time to stop."""
        start = submitter.number * len(self.names) // len(self.submitters)
        rotation = itertools.cycle(self.names[start:] + self.names[:start])
        modes = itertools.cycle(MODES[submitter.number % len(MODES) :] + MODES[: submitter.number % len(MODES)])
        while not self._stop.is_set():
            name, mode = next(rotation), next(modes)
            begun = time.monotonic()
            try:
                query = session.sql(find_plan(name).read_text())
                table = query.collect(mode=mode).to_arrow()
                submitter.seconds.append(time.monotonic() - begun)
                assert_same_answer(table, self.answer(name, query.schema), order_by=REFERENCES[name].order_by)
                submitter.queries += 1
            except (Exception, AssertionError) as error:
                submitter.wrong.append(f"{name}, {mode}: {type(error).__name__}: {str(error)[:300]}")

    def sample(self, processes: dict[str, psutil.Process]) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            for name, process in processes.items():
                self.samples.setdefault(name, []).append(process.memory_info().rss)

    def run(self, minutes: float) -> float:
        """Run for a while; return the seconds that it took."""
        with hq.connect(CLUSTER, chunk_units=4) as shared:
            others = [hq.connect(shared.address, chunk_units=4) for _ in self.submitters[1::2]]
            for session in (shared, *others):
                session.register_folder(self.data)
            devices = shared.devices()
            processes = {device.worker: psutil.Process(device.pid) for device in devices}
            main = next(each for each in processes["cpu-0"].parents() if "hybridq.deploy" in each.cmdline())
            processes |= {"scheduler": main, "client": psutil.Process()}
            own = iter(others)
            threads = [
                threading.Thread(target=self.submit, args=(each, next(own) if each.number % 2 else shared))
                for each in self.submitters
            ]
            threads.append(threading.Thread(target=self.sample, args=(processes,)))
            start = time.monotonic()
            for thread in threads:
                thread.start()
            time.sleep(minutes * 60)
            self._stop.set()
            for thread in threads:
                thread.join(120)
            seconds = time.monotonic() - start
            if any(thread.is_alive() for thread in threads):
                self.submitters[0].wrong.append("a query has not ended within two minutes")
            if {device.pid for device in shared.devices()} != {device.pid for device in devices}:
                self.submitters[0].wrong.append("a worker was lost")
            for session in others:
                session.close()
        return seconds

    def report(self, seconds: float) -> tuple[str, bool]:
        """Return what came of it as Markdown, and whether all is well."""
        wrong = [each for submitter in self.submitters for each in submitter.wrong]
        counts = [submitter.queries for submitter in self.submitters]
        lines = [
            f"{len(counts)} submitters, {seconds / 60:.1f} minutes, {sum(counts)} queries with the right answer, "
            f"{len(wrong)} without.",
            "",
            "| submitter | session | queries | median s | longest s |",
            "|---:|---|---:|---:|---:|",
        ]
        for each in self.submitters:
            times = each.seconds or [0.0]
            session = "its own" if each.number % 2 else "shared"
            lines.append(
                f"| {each.number} | {session} | {each.queries} | {statistics.median(times):.2f} | {max(times):.2f} |"
            )
        lines += ["", f"Fairness: the least served got {min(counts) / max(max(counts), 1):.2f} of the best served.", ""]
        lines += [
            "| process | first third MiB | middle third | last third | growth from middle to last |",
            "|---|" + "---:|" * 4,
        ]
        grown = False
        for name, values in sorted(self.samples.items()):
            thirds = [statistics.median(part) / 2**20 for part in _thirds(values)]
            growth = thirds[2] / thirds[1] - 1
            grown |= growth > GROWTH
            lines.append(f"| {name} | {thirds[0]:.0f} | {thirds[1]:.0f} | {thirds[2]:.0f} | {growth:+.1%} |")
        lines += ["", *(f"- wrong: {each}" for each in wrong[:20])]
        return "\n".join(lines), not wrong and not grown


def _thirds(values: Sequence[int]) -> list[Sequence[int]]:
    size = max(len(values) // 3, 1)
    return [values[:size], values[size : 2 * size] or values, values[-size:]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--submitters", type=int, default=8)
    parser.add_argument("--data", type=Path, help="TPC-H folder; made at scale factor 0.1 if left out")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.data or tpch.generate(0.1, Path(folder) / "sf0.1")
        soak = Soak(data, arguments.submitters)
        text, well = soak.report(soak.run(arguments.minutes))
    print(text)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
