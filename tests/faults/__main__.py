"""Breaks things while queries run: ``python -m tests.faults --count 500 --seed 1 --data DIR``."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from hybridq.testing import tpch

from .campaign import Run, run_one, table
from .cluster import broken_cluster
from .kinds import FAULTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="runs; each injects one fault, if it comes to it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="number of the first run: --start N --count 1 repeats one")
    parser.add_argument("--data", type=Path, help="TPC-H folder; made at scale factor 0.01 if left out")
    parser.add_argument("--fault", help="only faults whose name contains this")
    parser.add_argument("--cpus-only", action="store_true", help="on clusters without a GPU")
    parser.add_argument("--log", type=Path, help="append each run to this file, as a line of JSON")
    parser.add_argument("--table", type=Path, nargs="*", help="print the table of these logs, and run nothing")
    arguments = parser.parse_args()
    if arguments.table:
        lines = [line for path in arguments.table for line in path.read_text().splitlines()]
        print(table([Run(**json.loads(line)) for line in lines]))
        return 0
    chosen = tuple(fault for fault in FAULTS if not arguments.fault or arguments.fault in fault.name)
    if arguments.cpus_only:
        chosen = tuple(fault for fault in chosen if not fault.name.startswith("GPU"))
    runs = []
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.data or tpch.generate(0.01, Path(folder) / "sf0.01", row_group_bytes=64 * 1024)
        with broken_cluster(data, cpus_only=arguments.cpus_only) as broken:
            for number in range(arguments.start, arguments.start + arguments.count):
                run = run_one(broken, number, arguments.seed, chosen)
                runs.append(run)
                if arguments.log is not None:
                    with arguments.log.open("a") as log:
                        log.write(json.dumps(asdict(run)) + "\n")
                for wrong in run.wrong:
                    print(f"WRONG {run.number}: {run.fault}, {run.query}, {run.mode}: {wrong}", flush=True)
            starts = broken.starts
    print(table(runs))
    print(f"{len(runs)} runs in {time.monotonic() - start:.0f} s, {starts} clusters")
    return 1 if any(run.wrong for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
