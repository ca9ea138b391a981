"""Runs queries on a cluster, breaks something in each, and looks at what came of it.

A run ends well if it gives the right answer or one clear error of hybridq's within its time, and leaves nothing: no
task on the scheduler, no value, build side or file on a worker, no shared memory, no process. Which of both is allowed
depends on the fault: a worker that dies must not cost the answer.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import hybridq as hq
from hybridq.errors import (
    HybridqError,
    WorkersLost,
)
from hybridq.session import Session

from .cluster import DEADLINE, OTHERS, PARTITIONED, STALL, Broken
from .kinds import FAULTS, Fault, Situation


@dataclass
class Run:
    """One query, one fault, and what came of it."""

    number: int
    fault: str
    query: str
    mode: str
    happened: bool = False
    outcome: str = ""
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


QUERIES = (*(f"tpch/q{number:02}" for number in range(1, 23)), *OTHERS)


def run_one(broken: Broken, number: int, seed: int, faults: tuple[Fault, ...] = FAULTS) -> Run:
    """Run one query with one fault."""
    chosen = random.Random(f"{seed} {number}")
    fault = chosen.choice(faults)
    query = chosen.choice(QUERIES)
    mode = chosen.choice(["cpu", "auto"] if broken.cpus_only else ["cpu", "gpu", "cop", "auto"])
    run = Run(number, fault.name, query, mode)
    session = broken.start()
    broken.note()
    # A worker whose chunk goes on beyond the query's end may just be writing its marker.
    with tempfile.TemporaryDirectory(dir=broken.folder, ignore_cleanup_errors=True) as folder:
        situation = Situation(broken, chosen, Path(folder) / "marker")
        attached = None
        try:
            if fault.before is not None:
                fault.before(situation)
            # Joins of both sides split by key, which small tables would not have.
            partitioned = chosen.random() < 0.25 or "disk" in fault.name
            options = fault.options | (PARTITIONED if partitioned else {})
            if options:
                attached = hq.connect(
                    session.address, stall_timeout=STALL, chunk_units=2, cpu_chunk_rows=4000, **options
                )
                attached.register_folder(broken.data)
                session = attached
            _run(run, broken, session, fault, situation)
        finally:
            run.happened = situation.marker.exists()
            if attached is not None:
                attached.close()
            if fault.after is not None:
                fault.after(situation)
    if not fault.fatal:
        run.wrong += [f"left behind: {each}" for each in broken.leftovers()]
    if fault.fatal or run.wrong:
        run.wrong += [f"left when the cluster had ended: {each}" for each in broken.stop()]
    return run


def _run(run: Run, broken: Broken, session: Session, fault: Fault, situation: Situation) -> None:
    start = time.monotonic()
    trouble: list[BaseException] = []
    try:
        query = session.sql(broken.text(run.query))
        situation.handle = query.submit(mode=run.mode)  # type: ignore[arg-type]
        helper = None
        if fault.during is not None:

            def during() -> None:
                try:
                    fault.during(situation)  # type: ignore[misc]
                except BaseException as error:
                    trouble.append(error)

            helper = threading.Thread(target=during, daemon=True)
            helper.start()
        try:
            result = situation.handle.result(timeout=DEADLINE)
        finally:
            run.seconds = time.monotonic() - start
            if helper is not None:
                helper.join(DEADLINE)
        run.outcome = "answer"
        broken.check(run.query, result.to_arrow(), query.schema)
    except HybridqError as error:
        run.outcome = type(error).__name__
        first = str(error).splitlines()[0] if str(error) else ""
        # Where the only GPU has to be used, a query may wait in vain for its restart.
        allowed = fault.errors + ((WorkersLost,) if run.mode == "gpu" else ())
        if not isinstance(error, allowed):
            run.wrong.append(f"{type(error).__name__} where the answer should have come: {error}")
        elif not first.strip() or "Traceback" in str(error):
            run.wrong.append(f"an unclear error: {error!r}")
    except TimeoutError:
        run.outcome = "hang"
        run.wrong.append(f"no end within {DEADLINE:g} s: {situation.handle.progress()}")
        situation.handle.cancel()
    except AssertionError as error:
        run.outcome = "wrong answer"
        run.wrong.append(f"wrong answer: {str(error)[:500]}")
    except Exception as error:
        run.outcome = type(error).__name__
        run.wrong.append("an error that is not hybridq's: " + "".join(traceback.format_exception(error))[-1500:])
    run.wrong += [f"the fault itself failed: {error!r}" for error in trouble]


def table(runs: list[Run]) -> str:
    """Return what came of each kind of fault, as Markdown."""
    lines = [
        "| fault | injected | answers | errors | seconds, median | longest | wrong |",
        "|---|---:|---:|---|---:|---:|---:|",
    ]
    total: Counter[str] = Counter()
    for fault in FAULTS:
        mine = [run for run in runs if run.fault == fault.name and run.happened]
        if not mine:
            continue
        errors = Counter(run.outcome for run in mine if run.outcome != "answer")
        listed = ", ".join(f"{count} {name}" for name, count in sorted(errors.items())) or "none"
        seconds = sorted(run.seconds for run in mine)
        answers = sum(run.outcome == "answer" for run in mine)
        wrong = sum(bool(run.wrong) for run in mine)
        total.update(injected=len(mine), answers=answers, errors=sum(errors.values()), wrong=wrong)
        times = f"{seconds[len(seconds) // 2]:.1f} | {seconds[-1]:.1f}"
        lines.append(f"| {fault.name} | {len(mine)} | {answers} | {listed} | {times} | {wrong} |")
    sums = " | ".join(f"**{total[name]}**" for name in ("injected", "answers", "errors"))
    lines.append(f"| **all** | {sums} | | | **{total['wrong']}** |")
    return "\n".join(lines)
