"""Times the ways in which rows of a chunk find those with equal keys: hash tables, merging, search in sorted keys.

    python -m bench.join_methods [--rows 2000000] [--repeat 3] [--out bench/results/join-methods.md]

One thread of the CPU engine joins ROWS probing rows to build sides of several sizes, without planner or Dask. Processor
seconds, of making the build side and of probing, the best of the repetitions. The answers are compared.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa

from bench.machine import describe
from hybridq.config import JoinMethod
from hybridq.engines.cpu import CpuEngine
from hybridq.engines.protocol import Frame
from hybridq.plan.expressions import Column
from hybridq.types import Field

BUILD_ROWS = (1_000, 100_000, 1_000_000)
SPREAD = {"dense": 2, "sparse": 10**9}
"""Keys are even over so many times the build side's rows: half of a dense range is there, little of a sparse one."""

METHODS: tuple[JoinMethod, ...] = get_args(JoinMethod)


def keys_of(build_rows: int, probe_rows: int, spread: int, in_order: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct build keys, and probing keys of which half are among them; both sorted or both shuffled."""
    numbers = np.random.default_rng(7)
    build = numbers.choice(np.unique(numbers.integers(0, build_rows * spread, 3 * build_rows)), build_rows, False)
    probe = numbers.choice(build, probe_rows)
    misses = numbers.random(probe_rows) < 0.5
    probe[misses] = numbers.integers(0, build_rows * spread, int(misses.sum()))
    return (np.sort(build), np.sort(probe)) if in_order else (build, probe)


def timed(build: np.ndarray, probe: np.ndarray, method: JoinMethod, repeat: int) -> tuple[float, float, Frame]:
    """Return the processor seconds to make the build side, and to probe it, and the result."""
    engine = CpuEngine()
    right = pa.table({"b": build, "w": np.arange(len(build))})
    left = pa.table({"a": probe, "v": np.arange(len(probe))})
    keys = [Column(pa.int64(), "a")]
    best = [float("inf")] * 2
    for _ in range(repeat):
        start = time.process_time()
        side = engine.build(engine.from_arrow(right), ["b"], method)
        engine.count_matches(engine.from_arrow(left.slice(0, 1)), side, keys)  # makes what is made when first asked for
        made = time.process_time()
        found = engine.probe(engine.from_arrow(left), side, "inner", keys, None, ["v", "w"])
        best = [min(best[0], made - start), min(best[1], time.process_time() - made)]
    return best[0], best[1], found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.join_methods", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    engine = CpuEngine()
    schema = (Field("v", pa.int64()), Field("w", pa.int64()))
    names = " | ".join(METHODS)
    lines = [f"| keys | order | build rows | {names} |", "|---|---|---:|" + "---:|" * len(METHODS)]
    for spread, factor in SPREAD.items():
        for in_order in (True, False):
            for rows in BUILD_ROWS:
                build, probe = keys_of(rows, arguments.rows, factor, in_order)
                cells, answers = [], []
                for method in METHODS:
                    made, probed, found = timed(build, probe, method, arguments.repeat)
                    cells.append(f"{made:.3f} + {probed:.3f}")
                    answers.append(engine.to_arrow(found, schema))
                assert all(answer.equals(answers[0]) for answer in answers[1:])
                order = "sorted" if in_order else "shuffled"
                lines.append(f"| {spread} | {order} | {rows:,} | {' | '.join(cells)} |")
    machine = describe()
    text = "\n".join(
        [
            "# Ways to join a chunk's rows",
            "",
            f"Commit {str(machine['commit'])[:12]}, {machine['cpu']}; made by `python -m bench.join_methods`,"
            f" {arguments.rows:,} probing rows.",
            "Processor seconds of one thread to make the build side + to probe it; `auto` chooses by the keys' range.",
            "",
            *lines,
            "",
        ]
    )
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
