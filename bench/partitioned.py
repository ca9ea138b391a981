"""All 22 TPC-H queries with every join, aggregate and sort split by key, in every mode, compared with DuckDB.

    python -m bench.partitioned FOLDER

FOLDER holds one Parquet file or folder for each TPC-H table. The GPU is simulated. Prints a line a run; the exit code
is 1 if an answer was not DuckDB's.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import get_args

import hybridq as hq
from hybridq.placement.modes import Mode
from hybridq.shipped import find_plan
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.reference import REFERENCES, duckdb_answer, duckdb_connection

CLUSTER = Path(__file__).parent.parent / "cluster" / "simulated.yaml"


def main() -> None:
    """Run them all."""
    folder = Path(sys.argv[1])
    right = wrong = 0
    with hq.connect(CLUSTER, broadcast_limit_bytes=0, gather_limit_bytes=0) as session:
        session.register_folder(folder)
        connection = duckdb_connection(folder)
        for name in (each for each in REFERENCES if each.startswith("tpch/")):
            text, reference = find_plan(name).read_text(), REFERENCES[name]
            query = session.sql(text)
            expected = duckdb_answer(reference.sql or text, connection, query.schema)
            for mode in get_args(Mode):
                start = time.perf_counter()
                result = query.collect(mode=mode)
                seconds = time.perf_counter() - start
                try:
                    assert_same_answer(result.to_arrow(), expected, order_by=reference.order_by)
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
