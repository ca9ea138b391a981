"""How close both kinds of device together come to the ideal, on simulated devices that keep time by rows.

    python -m bench.sharing --data DIR [--ratios 1 2 4 8] [--speed 1] [--plans tpch/q01 ...] [-o FILE]

For each ratio a cluster of one CPU worker and one simulated GPU, so many times as fast, runs each plan in ``cpu``,
``gpu`` and ``cop``. The ideal is T_C * T_G / (T_C + T_G). Seconds say nothing about real devices.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from hybridq.placement.review import idle_at_end
from hybridq.placement.stage_times import entry_of, stage_seconds
from hybridq.query import Query
from hybridq.report import Report
from hybridq.session import connect
from hybridq.shipped import find_plan

RUNS = {"cpu": 1, "gpu": 2, "cop": 5}
"""Runs that count in each mode, after two in ``cop`` that only teach; the CPU's are long, and steady."""


def cluster(ratio: float, speed: float) -> dict[str, Any]:
    """Describe one CPU worker and a simulated GPU, of some speed, that is so many times as fast."""
    steady = {"engine": "simulated", "steady": True, "processes": 1, "threads": 1}
    cpu = {"kind": "cpu", "speed": speed / ratio, "memory": "3GiB", **steady}
    gpu = {"kind": "gpu", "speed": speed, "memory": "4GiB", "device_memory": "2GiB", **steady}
    return {"workers": [cpu, gpu]}


def timed(query: Query, mode: str) -> tuple[float, Report]:
    """Run a query once."""
    start = time.perf_counter()
    report = query.collect(mode=mode).report
    return time.perf_counter() - start, report


def measure(query: Query, name: str, ratio: float) -> dict[str, Any]:
    """Run one plan in all modes, and compare."""
    for mode in ("gpu", "cop", "cop"):
        timed(query, mode)
    runs = {mode: [timed(query, mode) for _ in range(count)] for mode, count in RUNS.items()}
    seconds = {mode: statistics.median(taken for taken, _ in each) for mode, each in runs.items()}
    found: dict[str, Any] = {"plan": name, "ratio": ratio, "seconds": seconds, **share_of(seconds)}
    stages = [stage.id for stage in query._physical.stages]

    def of(mode: str, stage: int) -> float:
        return statistics.median(stage_seconds(report, stage) for _, report in runs[mode])

    longest = max(stages, key=lambda stage: of("cop", stage))
    own = {mode: of(mode, longest) for mode in RUNS}
    idle = [idle_at_end(entry_of(report, longest).spans) for _, report in runs["cop"]]
    chunks = [each[1] for each in idle if each is not None]
    found["stage"] = {"id": longest, "seconds": own, **share_of(own)}
    found["stage"]["idle_chunks"] = statistics.median(chunks) if chunks else None
    return found


def share_of(seconds: dict[str, float]) -> dict[str, float]:
    """Return the ideal, what ``cop`` reaches of it, and how much faster it is than the better device alone."""
    ideal = seconds["cpu"] * seconds["gpu"] / (seconds["cpu"] + seconds["gpu"])
    better = min(seconds["cpu"], seconds["gpu"])
    return {"ideal": ideal, "of_ideal": ideal / seconds["cop"], "of_better": better / seconds["cop"]}


def row(found: dict[str, Any]) -> str:
    """Return a line of the table."""
    seconds, stage = found["seconds"], found["stage"]
    idle = "-" if stage["idle_chunks"] is None else f"{stage['idle_chunks']:.2f}"
    cells = [f"1:{found['ratio']:g}", found["plan"], *(f"{seconds[mode]:.3f}" for mode in RUNS)]
    cells += [f"{found['ideal']:.3f}", f"{found['of_ideal']:.0%}", f"{stage['of_ideal']:.0%}", idle]
    return f"| {' | '.join([*cells, format(found['of_better'], '.2f')])} |"


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--ratios", type=float, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--speed", type=float, default=1.0, help="The GPU's; the slower, the less other load matters.")
    parser.add_argument("--plans", nargs="+", default=["tpch/q01", "tpch/q03", "tpch/q09", "tpch/q18"])
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    header = ["CPU : GPU", "plan", *RUNS, "ideal", "cop of ideal", "of its longest stage", "idle, chunks", "of better"]
    print(f"| {' | '.join(header)} |\n|{' --- |' * len(header)}")
    for ratio in arguments.ratios:
        with connect(cluster(ratio, arguments.speed), calibrate=0) as session:
            session.register_folder(arguments.data)
            session.calibrate(quick=True)
            session._placer = session._know().untrained()
            for name in arguments.plans:
                found = measure(session.sql(find_plan(name).read_text(encoding="utf-8")), name, ratio)
                print(row(found), flush=True)
                if arguments.output is not None:
                    with arguments.output.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
