"""Time planning: from a query's text to stages with their modes, without a cluster.

    python -m bench.planning DATA_FOLDER [--repeats 5] [--prefix tpch/]

DATA_FOLDER holds one Parquet file or folder for each table. Prints milliseconds for each shipped SQL query: the first
time in this process and the best of the repetitions, of which ``placing`` is what choosing each stage's mode takes.
"""

from __future__ import annotations

import argparse
import time

from hybridq.shipped import find_plan, plan_names
from hybridq.testing.in_process import connect_in_process


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("data")
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--prefix", default="tpch/")
    options = arguments.parse_args()
    session = connect_in_process(kept_plans=0)
    session.register_folder(options.data)
    session.sql("select 1").explain()  # imports what planning needs, and measures the engines once
    names = sorted(
        name for name in plan_names() if name.startswith(options.prefix) and find_plan(name).suffix == ".sql"
    )
    print(f"{'query':<12}{'first ms':>10}{'best ms':>10}{'placing ms':>12}")
    worst = 0.0
    for name in names:
        text = find_plan(name).read_text()
        times = []
        for _ in range(options.repeats + 1):
            start = time.perf_counter()
            query = session.sql(text)
            planned = time.perf_counter()
            query.explain()
            times.append((time.perf_counter() - start, time.perf_counter() - planned))
        best = min(times[1:])
        worst = max(worst, best[0])
        print(f"{name:<12}{times[0][0] * 1e3:>10.1f}{best[0] * 1e3:>10.1f}{best[1] * 1e3:>12.1f}")
    print(f"slowest of {len(names)}: {worst * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
