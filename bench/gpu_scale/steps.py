"""The measurements. Each writes its lines as it goes and stops starting new runs when its time is up."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import data, machine
from bench.answers import RightAnswer
from bench.gpu_scale.lines import Lines
from bench.peers import Setup
from bench.processes import PeerFailed, PeerProcess
from bench.run import Comparison, Effort, Outcome
from hybridq.topology import default_topology

SIMULATED_MEMORY = 2**30
"""Bytes of a simulated GPU, for trying the steps on a machine without one."""


@dataclass(frozen=True)
class Task:
    """What all steps are given.

    Attributes
    ----------
    folder : Path
        The data.
    queries, modes : tuple of str
        Such as ``tpch/q01`` and ``gpu``.
    simulated : bool
        Simulated GPUs instead of real ones: the step can be tried, its times say nothing.
    """

    folder: Path
    queries: tuple[str, ...]
    modes: tuple[str, ...]
    effort: Effort
    simulated: bool = False

    @property
    def names(self) -> list[str]:
        return [f"hybridq {mode}" for mode in self.modes]

    def setup(self, gpus: int = 1, gpu_memory: int | None = None) -> Setup:
        """Describe hybridq's cluster: CPU workers as by default on this machine, and so many GPUs."""
        groups = default_topology().workers
        cpu = {"kind": "cpu", "processes": groups[0].processes, "threads": groups[0].threads}
        gpu: dict[str, Any] = {"kind": "gpu", "engine": "cuda", "processes": gpus, "threads": groups[-1].threads}
        if self.simulated:
            gpu |= {"engine": "simulated", "threads": 1, "device_memory": gpu_memory or SIMULATED_MEMORY}
        elif gpu_memory:
            gpu["device_memory"] = gpu_memory
        return Setup(self.folder, machine.cores(), cluster={"workers": [cpu, gpu]}, gpu_memory=gpu_memory)

    def compare(self, lines: Lines, names: Sequence[str], setup: Setup, **values: Any) -> list[Outcome]:
        """Measure; write a line for each query and peer as soon as it is there."""
        written: set[tuple[str, str]] = set()

        def write(outcomes: list[Outcome]) -> None:
            for outcome in outcomes:
                if (outcome.query, outcome.peer) not in written:
                    written.add((outcome.query, outcome.peer))
                    by_query = {key: value[outcome.query] for key, value in values.items() if isinstance(value, dict)}
                    # What the peer found itself, such as its limit of device memory, goes before what it was given.
                    lines.write(**{**values, **by_query, **outcome.to_line(), "note": outcome.note})

        return Comparison(names, self.queries, setup, self.effort, write).run()


def beyond(task: Task, lines: Lines) -> None:
    """Queries over data whose needed columns, decoded, are larger than the card's memory."""
    found = data.describe(task.folder, [query.removeprefix("tpch/") for query in task.queries])
    decoded: Any = found["decoded_bytes"]
    card = min((int(str(gpu["memory_bytes"])) for gpu in machine.gpus()), default=SIMULATED_MEMORY)
    sizes = {query: decoded[query.removeprefix("tpch/")] for query in task.queries}
    task.compare(
        lines,
        [*task.names, "duckdb"],
        task.setup(),
        decoded_bytes=sizes,
        card_bytes=card,
        larger_than_card={query: size > card for query, size in sizes.items()},
        file_bytes=found["bytes"],
        rows=dict.fromkeys(task.queries, found["rows"]),
    )


def capped(task: Task, lines: Lines, cap: int) -> None:
    """A cap on device memory: hybridq under it and without it, cudf-polars in memory under the same cap."""
    outcomes: dict[str, list[Outcome]] = {}
    for name, limit in (("capped", cap), ("uncapped", None)):
        setup = task.setup(gpu_memory=limit)
        limits = {"device_limit_bytes": limit} if limit else {}
        outcomes[name] = task.compare(lines, task.names, setup, configuration=name, **limits)
    free = {(item.query, item.peer): item.median_s for item in outcomes["uncapped"]}
    for item in outcomes["capped"]:
        alone, peak = free.get((item.query, item.peer)), item.details.get("peak_device_bytes")
        lines.write(
            configuration="capped against uncapped",
            query=item.query,
            peer=item.peer,
            answer=None if item.verdict is None else str(item.verdict),
            error=item.error,
            against_uncapped=item.median_s / alone if item.median_s and alone else None,
            within_cap=isinstance(peak, int) and 0 < peak <= cap,
        )
    rival = Setup(task.folder, machine.cores(), gpu_memory=cap)
    task.compare(lines, ["cudf-polars in-memory"], rival, configuration="capped", device_limit_bytes=cap)


def soak(task: Task, lines: Lines, runs: int) -> None:
    """The same queries again and again on one session: identical answers, and whether memory grows."""
    (name,) = task.names
    process = PeerProcess((name,), task.setup())
    first: dict[str, Any] = {}
    kept: dict[str, list[dict[str, Any]]] = {query: [] for query in task.queries}
    error: str | None = None
    try:
        rights = {query: RightAnswer(query, task.folder) for query in task.queries}
        for number in range(runs):
            for query in task.queries:
                if task.effort.over():
                    break
                run = process.run(name, query, task.effort.timeout)
                if query not in first:
                    rights[query].check(run.answer, must_be_exact=True)
                    first[query] = run.answer
                line = {
                    "seconds": round(run.seconds, 4),
                    "same": first[query].equals(run.answer),
                    "resident_bytes": run.resident_bytes,
                    "device_bytes": sum(run.details["device_bytes_in_use"]),
                    "peak_device_bytes": run.details["peak_device_bytes"],
                }
                kept[query].append(line)
                lines.write(detail=True, query=query, peer=name, run=number, **line)
    except (PeerFailed, AssertionError) as failure:
        error = str(failure).splitlines()[0]
    finally:
        process.close()
    for query, found in kept.items():
        lines.write(
            query=query,
            peer=name,
            runs=len(found),
            error=error,
            ended=None if error or len(found) == runs else "the time was up",
            median_s=statistics.median(line["seconds"] for line in found) if found else None,
            same_answers=all(line["same"] for line in found),
            host_growth_bytes=growth([line["resident_bytes"] for line in found]),
            device_growth_bytes=growth([line["device_bytes"] for line in found]),
            peak_device_bytes=max((line["peak_device_bytes"] for line in found), default=None),
        )


def growth(values: Sequence[int]) -> int | None:
    """Return how much the last tenth's median is above the second tenth's; the first tenth is warming up.

    >>> growth([0] * 10 + [5] * 80 + [7] * 10)
    2
    """
    tenth = len(values) // 10
    if not tenth:
        return None
    return round(statistics.median(values[-tenth:]) - statistics.median(values[tenth : 2 * tenth]))


def several(task: Task, lines: Lines, counts: Sequence[int]) -> None:
    """The same queries on 1, 2, ... GPUs, and the scaling efficiency against the first count."""
    medians: dict[tuple[int, str, str], float | None] = {}
    for count in counts:
        for item in task.compare(lines, task.names, task.setup(gpus=count), configuration=f"{count} GPUs", gpus=count):
            medians[count, item.query, item.peer] = item.median_s
            base, now = medians.get((counts[0], item.query, item.peer)), item.median_s
            lines.write(
                configuration=f"{count} GPUs against {counts[0]}",
                query=item.query,
                peer=item.peer,
                error=item.error,
                efficiency=base * counts[0] / (now * count) if base and now else None,
            )
