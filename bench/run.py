"""Measure hybridq beside its peers: the same queries, files and machine, every answer checked.

    python -m bench.run --sf 10 --repeats 5
    python -m bench.run --suite ssb --sf 10

Each peer has a process of its own (hybridq's modes share one, for they share a cluster). Peers that can be up together
take turns, so that a busy machine slows all alike; peers that hold a GPU come one after the other, in as many rounds as
``--rounds`` says. Times go from the query's text or code to an Arrow table in the peer's process. The first run of a
query in a process is kept apart.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench import machine
from bench.answers import RightAnswer, Verdict
from bench.peers import HYBRIDQ, MODES, NAMES, OTHERS, Setup, has_query
from bench.processes import PeerFailed, PeerProcess, Run, shared
from bench.suites import SUITES
from bench.table import markdown

RESULTS = Path(__file__).parent / "results"

DEFAULT_PEERS = ("hybridq cpu", "hybridq auto", "duckdb", "dask.dataframe")

SLOW = ("dask.dataframe",)


@dataclass
class Outcome:
    """One peer on one query."""

    peer: str
    query: str
    first_s: float | None = None
    first_disk_read_bytes: int | None = None
    seconds: list[float] = field(default_factory=list)
    verdict: Verdict | None = None
    peak_process_bytes: int | None = None
    disk_read_bytes: list[int] = field(default_factory=list)
    details: dict[str, object] = field(default_factory=dict)
    error: str | None = None
    note: str = ""

    @property
    def median_s(self) -> float | None:
        """Return the median of the warm runs, or the first run where there was no other; ``None`` after a failure."""
        if self.error:
            return None
        return statistics.median(self.seconds) if self.seconds else self.first_s

    def add(self, run: Run) -> None:
        """Take in a run."""
        if not run.first:
            self.seconds.append(run.seconds)
            if run.disk_bytes is not None:
                self.disk_read_bytes.append(run.disk_bytes)
        elif self.first_s is None:
            self.first_s, self.first_disk_read_bytes = run.seconds, run.disk_bytes
        if run.peak_bytes is not None:
            self.peak_process_bytes = max(run.peak_bytes, self.peak_process_bytes or 0)
        peaks = (self.details.get("peak_device_bytes"), run.details.get("peak_device_bytes"))
        self.details = run.details
        if known := [peak for peak in peaks if isinstance(peak, int)]:
            self.details["peak_device_bytes"] = max(known)

    def to_line(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "query": self.query,
            "peer": self.peer,
            "median_s": self.median_s,
            "first_s": self.first_s,
            "first_disk_read_bytes": self.first_disk_read_bytes,
            "seconds": [round(value, 4) for value in self.seconds],
            "same_answer": self.error is None and self.verdict is not None,
            "answer": None if self.error or self.verdict is None else str(self.verdict),
            "peak_process_bytes": self.peak_process_bytes,
            "disk_read_bytes": self.disk_read_bytes,
            "error": self.error,
            **self.details,
        }


@dataclass(frozen=True)
class Effort:
    """How often, and how long.

    Attributes
    ----------
    repeats, slow_repeats : int
        Warm runs of a query, of most peers and of slow ones.
    slow : tuple of str
        The slow ones.
    rounds : int
        Times that the processes are started anew; the repeats are divided among them.
    timeout : float
        Seconds for one run.
    deadline : float
        Time (of ``time.monotonic``) past which nothing new is started.
    cold : bool
        Ask the system to forget the files before the first run in each process.
    """

    repeats: int = 5
    slow_repeats: int = 1
    slow: tuple[str, ...] = SLOW
    rounds: int = 1
    timeout: float = 120.0
    deadline: float = float("inf")
    cold: bool = False

    def turns(self, peer: str, round_number: int) -> int:
        """Return the runs in a round: the first one, and the warm ones.

        >>> [Effort(repeats=5, rounds=2).turns("duckdb", number) for number in range(2)]
        [4, 3]
        """
        repeats = self.slow_repeats if peer in self.slow else self.repeats
        return 1 + repeats // self.rounds + (round_number < repeats % self.rounds)

    def over(self) -> bool:
        """Tell whether the time is up."""
        return time.monotonic() >= self.deadline


class Comparison:
    """Runs peers on queries and keeps what came of it.

    Parameters
    ----------
    names : sequence of str
        Peers.
    queries : sequence of str
        Such as ``tpch/q01``.
    setup : Setup
    effort : Effort
    changed : callable
        Called when a query has been measured in a group, so that a run that is cut off keeps what it had.
    """

    def __init__(
        self,
        names: Sequence[str],
        queries: Sequence[str],
        setup: Setup,
        effort: Effort,
        changed: Callable[[list[Outcome]], None] = lambda outcomes: None,
    ) -> None:
        self._names = list(names)
        self._queries = list(queries)
        self._setup = setup
        self._effort = effort
        self._changed = changed
        self._right: dict[str, RightAnswer] = {}
        self._checked: dict[tuple[str, str], pa.Table] = {}
        self._outcomes: dict[tuple[str, str], Outcome] = {}
        self._until = effort.deadline
        self.cut_short = False

    @property
    def outcomes(self) -> list[Outcome]:
        """Return what was measured so far, query by query, peers in the order given."""
        keys = [(query, name) for query in self._queries for name in self._names]
        return [self._outcomes[key] for key in keys if key in self._outcomes]

    def run(self) -> list[Outcome]:
        """Measure everything that there is time for."""
        turns = [(number, group) for number in range(self._effort.rounds) for group in together(self._names)]
        peers = [sum(map(len, group)) for _, group in turns]
        for place, (number, group) in enumerate(turns):
            # Each group has its part of the time that is left, lest the last ones have none.
            now = time.monotonic()
            self._until = now + (self._effort.deadline - now) * peers[place] / sum(peers[place:])
            processes = [PeerProcess(names, self._setup) for names in group]
            try:
                for query in self._queries:
                    self._measure(query, processes, number)
                    self._changed(self.outcomes)
            finally:
                for process in processes:
                    process.close()
        return self.outcomes

    def _over(self) -> bool:
        if time.monotonic() < self._until:
            return False
        self.cut_short = True
        return True

    def _measure(self, query: str, processes: list[PeerProcess], round_number: int) -> None:
        peers = [(name, process) for process in processes for name in process.names if has_query(name, query)]
        most = max((self._effort.turns(name, round_number) for name, _ in peers), default=0)
        if query not in self._right and peers and not self._over():
            # Before any of them, so that none is the first to read the files.
            self._right[query] = RightAnswer(query, self._setup.folder, self._setup.scale_factor)
        for turn in range(most):
            for name, process in peers:
                if self._over():
                    return
                outcome = self._outcomes.setdefault((query, name), Outcome(name, query))
                if outcome.error is None and turn < self._effort.turns(name, round_number):
                    self._once(outcome, process, cold=self._effort.cold and turn == 0)
        for outcome in (self._outcomes[query, name] for name, _ in peers):
            median = outcome.median_s
            shown = f"FAIL {outcome.error}" if median is None else f"{median:.3f} s, {outcome.verdict}"
            print(f"  {query} {outcome.peer}: {shown}", flush=True)

    def _once(self, outcome: Outcome, process: PeerProcess, cold: bool) -> None:
        try:
            process.start()
            outcome.note = process.notes[outcome.peer]
            if cold:
                machine.evict(self._setup.folder)
            run = process.run(outcome.peer, outcome.query, self._effort.timeout)
            outcome.verdict = self._check(outcome, run.answer)
            outcome.add(run)
        except PeerFailed as error:
            outcome.error = str(error)
        except (AssertionError, pa.ArrowException) as error:  # the latter: of types that cannot be compared
            outcome.error = f"wrong answer: {str(error).splitlines()[0]}"

    def _check(self, outcome: Outcome, answer: pa.Table) -> Verdict:
        # An answer equal to one that was checked needs no second check.
        key = (outcome.query, outcome.peer)
        known = self._checked.get(key)
        if outcome.verdict is not None and known is not None and known.equals(answer):
            return outcome.verdict
        verdict = self._right[outcome.query].check(answer, must_be_exact=outcome.peer in HYBRIDQ)
        self._checked[key] = answer
        if outcome.verdict is not None and not outcome.verdict.exact and not verdict.exact:
            return max(verdict, outcome.verdict, key=lambda item: item.difference)
        return verdict


def together(names: Sequence[str]) -> list[list[tuple[str, ...]]]:
    """Return groups of processes that can be up at the same time: at most one in each may hold a GPU.

    >>> together(["hybridq gpu", "duckdb", "cudf-polars streaming", "cudf-polars in-memory"])
    [[('hybridq gpu',), ('duckdb',)], [('cudf-polars streaming',)], [('cudf-polars in-memory',)]]
    """
    processes = shared(list(names))
    alone = [[process] for process in processes if process[0].startswith("cudf")]
    rest = [process for process in processes if not process[0].startswith("cudf")]
    return ([rest] if rest else []) + alone


def main() -> int:
    """Measure, print a table, and write both forms of the result."""
    options = parse()
    suite = SUITES[options.suite]
    folder = options.data or suite.folder(options.sf, options.queries)
    names = list(dict.fromkeys(name for name in options.peers if name not in options.without))
    setup = Setup(folder, options.threads, cluster=options.cluster, scale_factor=options.sf)
    effort = Effort(
        repeats=options.repeats,
        slow_repeats=options.slow_repeats,
        slow=tuple(options.slow),
        rounds=options.rounds,
        timeout=options.timeout,
        deadline=time.monotonic() + options.time_limit,
        cold=options.cold,
    )
    config = {
        "suite": suite.name,
        "scale_factor": options.sf,
        "repeats": options.repeats,
        "slow_repeats": options.slow_repeats,
        "slow": [name for name in options.slow if name in names],
        "rounds": options.rounds,
        "cold": options.cold,
        "folder": folder.name,
    }
    info = machine.describe()
    path = options.output or RESULTS / f"{suite.name}-sf{options.sf:g}"
    print(f"{suite.title} at scale factor {options.sf:g} in {folder}")
    queries = [f"{suite.name}/{name}" for name in options.queries]
    write = Writer(path, config, info)
    comparison = Comparison(names, queries, setup, effort, write)
    outcomes = comparison.run()
    if not outcomes:
        print("the time was up before anything was measured")
        return 1
    print(f"\n{path.with_name(path.name + '.md').read_text()}\nwritten to {path}.jsonl and {path}.md")
    return 1 if any(outcome.error for outcome in outcomes) or comparison.cut_short else 0


class Writer:
    """Writes JSON lines and a table, anew at each call.

    Parameters
    ----------
    path : Path
        Without suffix.
    config, info : dict
        Go into each line, with the peers' notes.
    """

    def __init__(self, path: Path, config: dict[str, Any], info: dict[str, Any]) -> None:
        self._path, self._config, self._info = path, config, info
        self._time = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, outcomes: list[Outcome]) -> None:
        if not outcomes:
            return
        notes = {outcome.peer: outcome.note for outcome in outcomes}
        shared_part = {"time": self._time, "config": {**self._config, "peers": notes}, "machine": self._info}
        lines = [{**outcome.to_line(), **shared_part} for outcome in outcomes]
        replace(self._path.with_name(self._path.name + ".jsonl"), "".join(json.dumps(line) + "\n" for line in lines))
        replace(self._path.with_name(self._path.name + ".md"), markdown(lines))


def replace(path: Path, text: str) -> None:
    """Write a file in one step: a reader, or one who cuts this off, never sees half of it."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suite", choices=SUITES, default="tpch", help="which queries and data (default tpch)")
    parser.add_argument("--sf", type=float, default=1, help="scale factor of the data (default 1)")
    parser.add_argument("--data", type=Path, help="folder with that data, instead of the one in the user's cache")
    parser.add_argument(
        "--queries",
        nargs="+",
        help=f"such as q05 or q2_1, or all (default of tpch {' '.join(SUITES['tpch'].usual)}, which alone "
        "dask.dataframe has; of ssb all)",
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        type=peer_names,
        action="extend",
        help=f"of {', '.join(NAMES)}, or all (default {', '.join(DEFAULT_PEERS)})",
    )
    parser.add_argument("--without", nargs="*", default=[], choices=OTHERS)
    parser.add_argument("--modes", nargs="+", choices=MODES, help="hybridq's modes, instead of those among --peers")
    parser.add_argument("--cluster", help="cluster file or address for hybridq (default: local)")
    parser.add_argument("--threads", type=int, default=machine.cores(), help="of the CPU peers (default: all cores)")
    parser.add_argument("--repeats", type=int, default=5, help="warm runs of each query (default 5)")
    parser.add_argument("--slow-repeats", type=int, default=1, help="the same for --slow peers (default 1)")
    parser.add_argument(
        "--slow", nargs="+", type=peer_names, default=[list(SLOW)], help=f"peers (default {' '.join(SLOW)})"
    )
    parser.add_argument("--rounds", type=int, default=1, help="times that all processes start anew (default 1)")
    parser.add_argument("--cold", action="store_true", help="drop the files from the page cache before first runs")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run (default 120)")
    parser.add_argument(
        "--time-limit", type=float, default=float("inf"), help="seconds, after which nothing is started"
    )
    parser.add_argument("--output", type=Path, help="path without suffix (default bench/results/<suite>-sf<SF>)")
    options = parser.parse_args()
    suite = SUITES[options.suite]
    options.queries = list(suite.queries if options.queries == ["all"] else options.queries or suite.usual)
    if unknown := sorted(set(options.queries) - set(suite.queries)):
        parser.error(f"{suite.title} has no query {unknown[0]!r}: its queries are {', '.join(suite.queries)}")
    peers = [name for names in options.peers or [list(DEFAULT_PEERS)] for name in names]
    if options.modes:
        peers = [f"hybridq {mode}" for mode in options.modes] + [name for name in peers if name not in HYBRIDQ]
    options.peers = peers
    options.slow = [name for names in options.slow for name in names]
    return options


def peer_names(text: str) -> list[str]:
    """Read a peer's name from the command line, with hyphens for blanks if that is easier.

    >>> peer_names("polars-streaming"), peer_names("hybridq cpu")
    (['polars streaming'], ['hybridq cpu'])
    """
    if text == "all":
        return list(NAMES)
    plain = {name.replace(" ", "-"): name for name in NAMES}
    if text.replace(" ", "-") not in plain:
        raise argparse.ArgumentTypeError(f"no peer {text!r}: the peers are {', '.join(plain)}")
    return [plain[text.replace(" ", "-")]]


if __name__ == "__main__":
    sys.exit(main())
