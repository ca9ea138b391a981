"""Queries on workers of little memory: right answers, and each worker's peak in the report beside the system's figure.

    python -m bench.worker_memory --data DIR --scale 10 --out bench/results/sf10-2gib [--queries q01,q02 ...]

Each call adds to (or replaces in) ``OUT.jsonl`` what it has run, and writes ``OUT.md`` anew.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import hybridq as hq
from bench.answers import RightAnswer
from bench.machine import describe
from bench.suites import SUITES, query_text
from hybridq.session import Session
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.reference import duckdb_answer

QUERIES = SUITES["tpch"].queries
SAMPLE_SECONDS = 0.005
MIB = 2**20

FURTHER = {
    "window": "select count(*) as n, sum(r) as r, max(s) as s, sum(l) as l from ("
    "select row_number() over (partition by l_orderkey order by l_linenumber) as r,"
    " sum(l_quantity) over (partition by l_orderkey) as s,"
    " lag(l_linenumber) over (partition by l_suppkey order by l_orderkey, l_linenumber) as l from lineitem) x",
    "median": "select median(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as m from lineitem",
    "ranks": "select count(*) as n, sum(r) as r, max(d) as d, sum(s) as s, sum(m) as m, max(c) as c from ("
    "select rank() over (order by l_shipdate) as r, dense_rank() over (order by l_shipdate) as d,"
    " sum(l_quantity) over (order by l_shipdate) as s,"
    " sum(l_quantity) over (order by l_shipdate range between interval '7' day preceding and current row) as m,"
    " count(*) over () as c from lineitem) x",
    "neighbours": "select count(*) as n, sum(r * l_linenumber) as r, sum(t) as t, sum(l) as l, sum(q) as q from ("
    "select l_linenumber, row_number() over (order by l_orderkey, l_linenumber) as r,"
    " ntile(1000) over (order by l_orderkey, l_linenumber) as t,"
    " lag(l_quantity) over (order by l_orderkey, l_linenumber) as l,"
    " sum(l_quantity) over (order by l_orderkey, l_linenumber rows between 10 preceding and current row) as q"
    " from lineitem) x",
    "medians": "select count(*) as n, sum(m) as m, max(m) as x from ("
    "select l_suppkey, median(cast(l_extendedprice as double)) as m from lineitem group by l_suppkey) x",
    "texts": "select count(*) as n, sum(length(t)) as t, max(t) as x, sum(p) as p, sum(s) as s from ("
    "select l_orderkey, string_agg(l_shipmode, ',' order by l_linenumber) as t, count(distinct l_partkey) as p,"
    " count(distinct l_suppkey) as s from lineitem group by l_orderkey) x",
    "large groups": "select l_returnflag, l_linestatus, count(distinct l_partkey) as p,"
    " median(cast(l_extendedprice as double)) as m from lineitem group by l_returnflag, l_linestatus",
}
"""Windows with and without PARTITION BY, and aggregates that need all values of a group, over all rows of the largest
table."""


class Samples:
    """The most bytes that processes held, as the operating system says, looked at again and again.

    Parameters
    ----------
    pids : dict of str to int
        Processes by name.
    """

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.peaks = dict.fromkeys(pids, 0)

    def __enter__(self) -> Samples:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            for name, pid in self._pids.items():
                try:
                    text = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                size = int(text.split("VmRSS:")[1].split()[0]) * 1024 if "VmRSS:" in text else 0
                self.peaks[name] = max(self.peaks[name], size)


def check(name: str, answer: pa.Table, folder: Path, scale: float) -> str:
    """Compare an answer with DuckDB's.

    Raises
    ------
    AssertionError
        It is wrong.
    """
    if name not in FURTHER:
        return str(RightAnswer(f"tpch/{name}", folder, scale).check(answer, must_be_exact=True))
    expected = duckdb_answer(FURTHER[name], folder, answer.schema)
    assert_same_answer(answer, expected)
    return "exact"


def measure(session: Session, name: str, folder: Path, scale: float) -> dict[str, Any]:
    """Run one query, and say what it took."""
    text = FURTHER[name] if name in FURTHER else query_text(f"tpch/{name}", scale)
    pids = {device.worker: device.pid for device in session.devices()}
    found: dict[str, Any] = {"query": name, "commit": str(describe()["commit"])[:12]}
    start = time.perf_counter()
    try:
        with Samples(pids) as samples:
            result = session.sql(text).collect(mode="cpu")
    except hq.HybridqError as error:
        return {**found, "error": str(error), "seconds": time.perf_counter() - start}
    found["seconds"] = time.perf_counter() - start
    report = result.report
    found["answer"] = check(name, result.to_arrow(), folder, scale)
    found["peaks"] = {worker: report.peak_worker_bytes.get(worker, 0) for worker in pids}
    found["system"] = samples.peaks
    found["spilled"] = sum(stage.spilled_bytes for stage in report.stages)
    found["retries"] = sum(stage.retries for stage in report.stages)
    found["restarted"] = sorted(set(pids.values()) - {device.pid for device in session.devices()})
    return found


def page(lines: list[dict[str, Any]], machine: dict[str, Any], workers: int, memory: str, scale: float) -> str:
    """Return the results as a page."""
    limit = pa_bytes(memory)
    names = [f"worker {number}" for number in range(workers)]
    out = [
        f"# Scale factor {scale:g} on {workers} workers of {memory} each",
        "",
        f"{machine['cores']} cores of {machine['cpu']}; made by `python -m bench.worker_memory`, at the commits in the"
        " table. Seconds also tell what else the machine did.",
        "",
        "Answers are compared with DuckDB's. Peaks are MiB that a worker's process held at most while it ran the"
        " query's tasks, by hybridq's report and, after the slash, by samples of `/proc` every 5 ms from the query's"
        " begin to its end.",
        "",
        f"| query | answer | seconds | {' | '.join(names)} | report / system | spilled, MiB | done again | commit |",
        f"| --- | --- | ---: | {' | '.join('---:' for _ in names)} | ---: | ---: | ---: | --- |",
    ]
    worst = 0.0
    for line in lines:
        if "error" in line:
            cells = " |" * (workers + 3)
            out.append(f"| {line['query']} | {line['error']} | {line['seconds']:.1f} |{cells} {line['commit']} |")
            continue
        cells, ratios = [], []
        for worker, system in line["system"].items():
            peak = line["peaks"][worker]
            worst = max(worst, peak, system)
            cells.append(f"{peak / MIB:.0f} / {system / MIB:.0f}")
            ratios.append(peak / system if system and peak else 1.0)
        ratio = f"{min(ratios):.2f} to {max(ratios):.2f}"
        out.append(
            f"| {line['query']} | {line['answer']} | {line['seconds']:.1f} | {' | '.join(cells)} | {ratio}"
            f" | {line['spilled'] / MIB:.0f} | {line['retries']} | {line['commit']} |"
        )
    right = sum("answer" in line for line in lines)
    out += [
        "",
        f"{right} of {len(lines)} answers are right. The most that a worker held is {worst / MIB:.0f} MiB of"
        f" {limit / MIB:.0f}; workers that were restarted: {sum(len(line.get('restarted', ())) for line in lines)}.",
        "",
    ]
    further = [f"    {line['query']}: {FURTHER[line['query']]}" for line in lines if line["query"] in FURTHER]
    if further:
        out += ["Those that are not TPC-H's go over all rows of lineitem:", "", *further, ""]
    return "\n".join(out)


def pa_bytes(text: str) -> int:
    """Return the bytes that a text such as ``2GiB`` says."""
    from dask.utils import parse_bytes

    return int(parse_bytes(text))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="2GiB")
    parser.add_argument("--queries", default=",".join([*QUERIES, *FURTHER]))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    path = given.out.with_suffix(".jsonl")
    known = {line["query"]: line for line in map(json.loads, path.read_text().splitlines())} if path.exists() else {}
    cluster = {"workers": [{"kind": "cpu", "processes": given.workers, "threads": 1, "memory": given.memory}]}
    with hq.connect(cluster) as session:
        session.register_folder(given.data)
        for name in given.queries.split(","):
            known[name] = measure(session, name, given.data, given.scale)
            print(json.dumps(known[name]), flush=True)
            order = [*QUERIES, *FURTHER]
            lines = sorted(known.values(), key=lambda line: order.index(line["query"]))
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            text = page(lines, describe(), given.workers, given.memory, given.scale)
            given.out.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
