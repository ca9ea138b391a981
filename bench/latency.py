"""What a user waits for where there is little to compute: small queries of a warm session, and a cold start.

    python -m bench.latency WARM_FOLDER [--cold COLD_FOLDER] [--repeats 15]

Each folder holds one Parquet file or folder for each TPC-H table. Warm: aggregates over 0.8 and 1.5 million rows (at
scale factor 1), and TPC-H queries of several short stages; each as a text that is new every time, so that it has to be
planned, and as one that was asked before. Cold: ``hybridq run tpch/q03``, from the start of the process to its end, the
cluster included. Prints JSON lines of milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hybridq as hq
from bench.machine import describe
from hybridq.shipped import find_plan

AGGREGATES = {
    "0.8 million rows": "select sum(ps_supplycost) as s, count(*) as n from partsupp where ps_availqty > {}",
    "1.5 million rows": "select o_orderstatus, sum(o_totalprice) as s from orders where o_shippriority < {} group by 1",
}
SHORT_STAGES = ("tpch/q02", "tpch/q11", "tpch/q16", "tpch/q22")
START_RUNS = 10
"""Runs before any is measured: loops are loaded meanwhile."""


def milliseconds(run: Callable[[], object], repeats: int) -> dict[str, float]:
    """Return the least, the middle and the longest time of some runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return {"least": min(times), "median": statistics.median(times), "most": max(times)}


def warm(folder: Path, repeats: int) -> None:
    """Measure small queries on a session that has run for a while."""
    with hq.connect() as session:
        session.register_folder(folder)

        def ask(text: str) -> None:
            session.sql(text).collect(mode="cpu").to_arrow()

        for text in AGGREGATES.values():
            for number in range(START_RUNS):
                ask(text.format(number + 10**6))
        for name, text in AGGREGATES.items():
            numbers = iter(range(10**6))
            show(name, "planned", milliseconds(lambda: ask(text.format(next(numbers))), repeats))  # noqa: B023
            show(name, "asked before", milliseconds(lambda: ask(text.format(5)), repeats))  # noqa: B023
        for name in SHORT_STAGES:
            text = find_plan(name).read_text()
            numbers = iter(range(10**6))
            ask(text)
            show(name, "planned", milliseconds(lambda: ask(f"{text}\n-- {next(numbers)}"), repeats))  # noqa: B023
            show(name, "asked before", milliseconds(lambda: ask(text), repeats))  # noqa: B023


def cold(folder: Path, repeats: int) -> None:
    """Measure the command, from its start to its end."""
    main = "from hybridq.cli import main; main()"
    command = [sys.executable, "-c", main, "run", "tpch/q03", "--data", str(folder)]

    # An installed package is compiled; with this a checkout would be compiled anew by each process.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def run() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)

    run()

    show("hybridq run tpch/q03", "cold", milliseconds(run, repeats))


def show(name: str, how: str, figures: dict[str, float]) -> None:
    """Print one line."""
    print(json.dumps({"query": name, "how": how, **{key: round(value, 1) for key, value in figures.items()}}))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser: Any = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cold", type=Path)
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args(arguments)
    print(json.dumps(describe()))
    warm(given.folder, given.repeats)
    if given.cold is not None:
        cold(given.cold, 4)


if __name__ == "__main__":
    main()
