"""Measure hybridq beside its peers: the same queries, files and machine, taken in turn, every answer checked.

    python -m bench.run --sf 10 --repeats 5

Every peer runs once first (the first run of its process, noted apart), then all take turns, so that a busy machine
slows all alike. Times go from the query's text to an Arrow table in this process. The first turn brings the files into
the page cache; what the machine reads from disk during the later ones is recorded, since a system may drop them again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from bench import machine
from bench.peers.dask_dataframe import DaskDataframePeer
from bench.peers.duckdb_peer import DuckdbPeer
from bench.peers.hybridq_peer import HybridqPeer
from bench.table import markdown
from hybridq.catalog import Catalog
from hybridq.frontend.sql import plan_sql
from hybridq.shipped import find_plan
from hybridq.testing import tpch
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.reference import DENOMINATOR, NUMERATOR, REFERENCES, conform, duckdb_answer

if TYPE_CHECKING:
    from bench.peers import Peer

RESULTS = Path(__file__).parent / "results"

TABLES = ("lineitem", "orders", "customer", "part")
"""What the measured queries read."""

FLOAT_TOLERANCE = 1e-9
"""Relative difference allowed to peers that compute with floating-point numbers."""


@dataclass
class Outcome:
    """One peer on one query."""

    peer: str
    query: str
    first_s: float | None = None
    seconds: list[float] = field(default_factory=list)
    exact: bool = True
    peak_worker_bytes: int | None = None
    disk_read_bytes: list[int] = field(default_factory=list)
    details: dict[str, object] = field(default_factory=dict)
    error: str | None = None

    @property
    def median_s(self) -> float | None:
        return statistics.median(self.seconds) if self.seconds else self.first_s


def main() -> int:
    """Measure, print a table, and write both forms of the result."""
    options = parse()
    folder = options.data or tpch.generate(
        options.sf, tpch.cache_folder() / "tpch" / f"sf{options.sf:g}", tables=TABLES
    )
    queries = [f"tpch/{name}" for name in options.queries]
    peers = start_peers(options, folder)
    print(f"TPC-H at scale factor {options.sf:g} in {folder}")
    for peer in peers:
        print(f"  {peer.name}: {peer.note}")
    info = machine.describe()
    outcomes: list[Outcome] = []
    try:
        for query in queries:
            outcomes += measure(query, peers, folder, options)
    finally:
        for peer in reversed(peers):
            peer.close()
    write(outcomes, peers, info, options)
    return 1 if any(outcome.error for outcome in outcomes) else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sf", type=float, default=1, help="TPC-H scale factor (default 1)")
    parser.add_argument("--data", type=Path, help="folder with that data, instead of the one in the user's cache")
    parser.add_argument("--queries", nargs="+", default=["q01", "q03", "q04", "q06", "q12", "q14"])
    parser.add_argument("--modes", nargs="+", default=["cpu", "auto"], help="hybridq modes (default cpu auto)")
    parser.add_argument("--cluster", help="cluster file or address for hybridq (default: local)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each after the first (default 5)")
    parser.add_argument("--slow-repeats", type=int, default=1, help="the same for dask.dataframe (default 1)")
    parser.add_argument("--without", nargs="*", default=[], choices=["duckdb", "dask.dataframe"])
    parser.add_argument("--output", type=Path, help="path without suffix (default bench/results/tpch-sf<SF>)")
    return parser.parse_args()


def start_peers(options: argparse.Namespace, folder: Path) -> list[Peer]:
    peers: list[Peer] = []
    first: HybridqPeer | None = None
    for mode in options.modes:
        peer = HybridqPeer(mode, options.cluster, first)
        first = first or peer
        peers.append(peer)
    others: list[Peer] = [DuckdbPeer(), DaskDataframePeer()]
    peers += [peer for peer in others if peer.name not in options.without]
    for peer in peers:
        peer.start(folder)
    return peers


def measure(query: str, peers: list[Peer], folder: Path, options: argparse.Namespace) -> list[Outcome]:
    outcomes = {peer.name: Outcome(peer.name, query) for peer in peers}
    expected: dict[str, tuple[pa.Schema, pa.Table, pa.Table]] = {}
    for turn in range(options.repeats + 1):
        for peer in peers:
            outcome = outcomes[peer.name]
            if outcome.error or (peer.name == DaskDataframePeer.name and turn > options.slow_repeats):
                continue
            pids = peer.worker_pids()
            machine.reset_peak_memory(pids)
            disk_before = machine.disk_read_bytes()
            start = time.perf_counter()
            try:
                answer = peer.run(query)
                elapsed = time.perf_counter() - start
                outcome.exact = check(query, answer, folder, expected)
            except Exception as error:
                outcome.error = f"{type(error).__name__}: {error}".splitlines()[0]
                print(f"  {query} {peer.name}: FAIL {outcome.error}", file=sys.stderr)
                continue
            if turn == 0:
                outcome.first_s = elapsed
            else:
                outcome.seconds.append(elapsed)
                disk_after = machine.disk_read_bytes()
                if disk_before is not None and disk_after is not None:
                    outcome.disk_read_bytes.append(disk_after - disk_before)
            peak = machine.peak_memory(pids)
            if peak is not None:
                outcome.peak_worker_bytes = max(peak, outcome.peak_worker_bytes or 0)
            outcome.details = peer.details()
    for outcome in outcomes.values():
        median = "FAIL" if outcome.error or outcome.median_s is None else f"{outcome.median_s:.3f} s"
        print(f"  {query} {outcome.peer}: {median}", flush=True)
    return list(outcomes.values())


def check(query: str, answer: pa.Table, folder: Path, cache: dict[str, tuple[pa.Schema, pa.Table, pa.Table]]) -> bool:
    """Compare an answer with DuckDB's; return whether it is exact (no decimal came back as a float).

    Raises
    ------
    AssertionError
        The answer is wrong.
    """
    reference = REFERENCES[query]
    text = reference.sql or find_plan(query).read_text()
    if query not in cache:
        whole = text if reference.limit is None else text.rsplit("limit", 1)[0]
        cache[query] = (declared_schema(query, folder), duckdb_answer(text, folder), duckdb_answer(whole, folder))
    schema, expected, unlimited = cache[query]
    exact = answer.schema.types == schema.types
    expected, unlimited = (conform(table, schema) if exact else loosen(table) for table in (expected, unlimited))
    assert_same_answer(
        answer if exact else loosen(answer),
        expected,
        order_by=reference.order_by,
        unlimited=unlimited if reference.limit is not None else None,
        relative_tolerance=1e-12 if exact else FLOAT_TOLERANCE,
    )
    return exact


def declared_schema(query: str, folder: Path) -> pa.Schema:
    """Return the names and types that hybridq's plan declares."""
    catalog = Catalog()
    catalog.register_folder(folder)
    plan = plan_sql(find_plan(query).read_text(), catalog.schemas())
    return pa.schema([pa.field(name, item.type) for name, item in zip(plan.names, plan.root.schema, strict=True)])


def loosen(table: pa.Table) -> pa.Table:
    """Turn numbers to floats, dates and strings to one form each, for peers with types of their own."""
    columns: list[pa.ChunkedArray] = []
    names: list[str] = []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        kind = column.type
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            column = column.cast(pa.date32())
        elif pa.types.is_decimal(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            column = column.cast(pa.float64())
        else:
            column = column.cast(pa.string())
        if name.endswith(DENOMINATOR):
            columns[-1] = pc.divide(columns[-1], column)
        else:
            columns.append(column)
            names.append(name.removesuffix(NUMERATOR))
    return pa.Table.from_arrays(columns, names=names)


def write(outcomes: list[Outcome], peers: list[Peer], info: dict[str, object], options: argparse.Namespace) -> None:
    config = {
        "scale_factor": options.sf,
        "repeats": options.repeats,
        "slow_repeats": options.slow_repeats,
        "peers": {peer.name: peer.note for peer in peers},
    }
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    lines = []
    for outcome in outcomes:
        line = {
            "query": outcome.query,
            "peer": outcome.peer,
            "median_s": None if outcome.error else outcome.median_s,
            "first_s": outcome.first_s,
            "seconds": [round(value, 4) for value in outcome.seconds],
            "same_answer": outcome.error is None,
            "exact_types": outcome.exact,
            "peak_worker_bytes": outcome.peak_worker_bytes,
            "disk_read_bytes": outcome.disk_read_bytes,
            "error": outcome.error,
            **outcome.details,
        }
        lines.append(json.dumps({**line, "time": now, "config": config, "machine": info}))
    path = options.output or RESULTS / f"tpch-sf{options.sf:g}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(path.name + ".jsonl").write_text("\n".join(lines) + "\n")
    text = markdown([json.loads(line) for line in lines])
    path.with_name(path.name + ".md").write_text(text)
    print(f"\n{text}\nwritten to {path}.jsonl and {path}.md")


if __name__ == "__main__":
    sys.exit(main())
