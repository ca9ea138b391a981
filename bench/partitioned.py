"""All 22 TPC-H queries with every join, aggregate and sort split by key, in every mode, compared with DuckDB.

    python -m bench.partitioned FOLDER [--scale 1]

FOLDER holds one Parquet file or folder for each TPC-H table. The GPU is simulated. Prints a line a run; the exit code
is 1 if an answer was not DuckDB's.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import get_args

import hybridq as hq
from bench.answers import RightAnswer
from bench.suites import SUITES, query_text
from hybridq.placement.modes import Mode


def main() -> None:
    """Run them all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, default=1, help="scale factor of the data (default 1)")
    arguments = parser.parse_args()
    right = wrong = 0
    with hq.connect("cluster/simulated.yaml", broadcast_limit_bytes=0, gather_limit_bytes=0) as session:
        session.register_folder(arguments.folder)
        for name in (f"tpch/{query}" for query in SUITES["tpch"].queries):
            answer = RightAnswer(name, arguments.folder, arguments.scale)
            query = session.sql(query_text(name, arguments.scale))
            for mode in get_args(Mode):
                start = time.perf_counter()
                result = query.collect(mode=mode)
                seconds = time.perf_counter() - start
                try:
                    answer.check(result.to_arrow(), must_be_exact=True)
                    right += 1
                    end = "right"
                except AssertionError as error:
                    wrong += 1
                    end = f"WRONG: {error}"
                print(f"{name} {mode}: {end}, {seconds:.1f} s", flush=True)
    print(f"{right} right, {wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
