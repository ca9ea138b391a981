"""Processor seconds of TPC-H queries beside DuckDB's, on one thread each, without a cluster.

    python -m bench.processor_time DATA_FOLDER [--queries q01 q18] [--stages] [--repeats 2]

Tells what the operators cost, apart from handing out chunks and from how busy the machine is; ``bench.run`` measures
what a user waits for. The best of the repetitions counts.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa

from hybridq.answers import Result
from hybridq.session import Session
from hybridq.shipped import find_plan
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import duckdb_connection

Value = TypeVar("Value")


def least(work: Callable[[], Value], repeats: int) -> tuple[float, Value]:
    """Return the fewest processor seconds of some calls, and what that call returned."""
    found: tuple[float, Value] | None = None
    for _ in range(repeats):
        start = time.process_time()
        value = work()
        seconds = time.process_time() - start
        if found is None or seconds < found[0]:
            found = seconds, value
    assert found is not None
    return found


def collected(session: Session, text: str) -> Result:
    """Plan and run a query."""
    return session.sql(text).collect(mode="cpu")


def answered(connection: duckdb.DuckDBPyConnection, text: str) -> pa.Table:
    """Have DuckDB plan and run a query."""
    return connection.sql(text).to_arrow_table()


def main() -> None:
    """Measure and print one line a query, and the geometric mean of the ratios."""
    parser = argparse.ArgumentParser(prog="python -m bench.processor_time", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--queries", nargs="+", default=[f"q{number:02}" for number in range(1, 23)])
    parser.add_argument("--stages", action="store_true", help="also rows and seconds of each stage (by the clock)")
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    ratios = []
    with connect_in_process(kept_plans=0) as session, duckdb_connection(options.folder, 1) as connection:
        session.register_folder(options.folder)
        for name in options.queries:
            text = find_plan(f"tpch/{name}").read_text()
            own, result = least(partial(collected, session, text), options.repeats)
            other, _ = least(partial(answered, connection, text), options.repeats)
            ratios.append(own / other)
            print(f"{name} hybridq {own:7.3f} duckdb {other:7.3f} ratio {own / other:.2f}", flush=True)
            for stage in result.report.stages if options.stages else ():
                seconds = sum(device.seconds["total"] for device in stage.devices) + stage.merge_s
                print(f"    {seconds:7.3f} s, {stage.output_rows} rows: {stage.title}")
    print(f"geometric mean of the ratios: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")


if __name__ == "__main__":
    main()
