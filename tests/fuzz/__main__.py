"""Compares random queries with DuckDB: ``python -m tests.fuzz --count 5000 --seed 1``."""

from __future__ import annotations

import argparse
import os
import sys

from hybridq.dispatch.worker import engine_for_worker

from .check import Outcome
from .features import find_features
from .runner import Case, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="queries")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--start", type=int, default=0, help="number of the first query: --start N --count 1 repeats one"
    )
    parser.add_argument("--shrink", type=float, default=20.0, help="seconds to look for a smaller form of a difference")
    parser.add_argument("--cuda", action="store_true", help="GPU chunks run on this machine's GPU, not a simulated one")
    parser.add_argument("--show", action="store_true", help="print every query before it runs")
    arguments = parser.parse_args()
    gpu = None
    if arguments.cuda:
        os.environ["HYBRIDQ_ENGINE"] = "cuda"
        gpu = engine_for_worker("gpu")
    features = find_features()
    for name, reason in features.missing.items():
        print(f"not generated: {name} ({reason})")

    def tell(case: Case, outcome: Outcome) -> None:
        print(f"\nDIFFERENT: {case}\n  {outcome.detail}\n", flush=True)

    if arguments.show:
        from .runner import cases

        for case, _ in cases(arguments.seed, arguments.start, arguments.count, features):
            print(f"{case.number}: {case.query.sql('hybridq')}")
    tally = run(
        arguments.seed,
        arguments.count,
        features,
        start=arguments.start,
        gpu=gpu,
        shrink_seconds=arguments.shrink,
        on_difference=tell,
    )
    print(tally)
    return 1 if tally.differences else 0


if __name__ == "__main__":
    sys.exit(main())
