"""Measurements on GPUs at scale, one subcommand each; ``bench/README.md`` tells how they are run.

python -m bench.gpu_scale beyond --data /tmp/sf300 --output out.jsonl
python -m bench.gpu_scale capped --data /tmp/sf30 --cap 1GiB
python -m bench.gpu_scale soak --data /tmp/sf30 --runs 100
python -m bench.gpu_scale several --data /tmp/sf100 --gpus 1 2 4
python -m bench.gpu_scale table out.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from bench import machine
from bench.gpu_scale import steps
from bench.gpu_scale.lines import Lines, markdown
from bench.peers import HYBRIDQ, MODES
from bench.run import Effort

TIME_LIMIT = 500.0
"""Seconds after which a step starts no new run, if not said otherwise."""

MODES_OF = {"beyond": ["gpu", "cop", "auto"], "capped": ["gpu", "auto"], "soak": ["gpu"], "several": ["gpu", "auto"]}


def main() -> int:
    options = parse()
    if options.step == "table":
        print(markdown([json.loads(line) for line in options.file.read_text().splitlines()]))
        return 0
    effort = Effort(repeats=options.repeats, timeout=options.timeout, deadline=time.monotonic() + options.time_limit)
    queries = tuple(f"tpch/{name}" for name in options.queries)
    task = steps.Task(options.data, queries, tuple(options.modes), effort, options.simulated)
    config = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    lines = Lines(options.output, options.step, config)
    if options.step == "beyond":
        steps.beyond(task, lines)
    elif options.step == "capped":
        steps.capped(task, lines, options.cap)
    elif options.step == "soak":
        steps.soak(task, lines, options.runs)
    else:
        most = len(machine.gpus())
        steps.several(task, lines, [n for n in options.gpus if n <= most or options.simulated])
    print(markdown(lines.all))
    failed = any(line.get("error") for line in lines.all if line["peer"] in HYBRIDQ)
    return 1 if failed or effort.over() else 0


def size(text: str) -> int:
    """Read bytes: a number, or one with ``MiB`` or ``GiB``.

    >>> size("1GiB"), size("512MiB"), size("4096")
    (1073741824, 536870912, 4096)
    """
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * factor)
    return int(text)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_scale", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="step", required=True)
    for name, modes in MODES_OF.items():
        command = commands.add_parser(name, help=(getattr(steps, name).__doc__ or "").splitlines()[0])
        command.add_argument("--data", type=Path, required=True)
        command.add_argument("--queries", nargs="+", default=["q01", "q03"])
        command.add_argument("--modes", nargs="+", choices=MODES, default=modes)
        command.add_argument("--repeats", type=int, default=5, help="warm runs (default 5)")
        command.add_argument("--timeout", type=float, default=120, help="seconds for one run (default 120)")
        command.add_argument("--time-limit", type=float, default=TIME_LIMIT, help=f"seconds (default {TIME_LIMIT:g})")
        command.add_argument("--output", type=Path, help="JSON lines are appended here")
        command.add_argument("--simulated", action="store_true", help="simulated GPUs: to try the step without one")
    commands.choices["capped"].add_argument("--cap", type=size, default=2**30, help="device memory (default 1GiB)")
    commands.choices["soak"].add_argument("--runs", type=int, default=100, help="of each query (default 100)")
    commands.choices["several"].add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4])
    commands.add_parser("table", help="print the table of a result").add_argument("file", type=Path)
    options = parser.parse_args()
    if options.step == "soak" and len(options.modes) != 1:
        parser.error("soak takes one mode")
    return options


if __name__ == "__main__":
    sys.exit(main())
