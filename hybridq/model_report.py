"""``hybridq bench placement``: runs queries in every mode, in turn, and reports how well ``auto`` places them.

Each query is first run in ``cpu`` and ``gpu`` and forgotten, so that files and workers are warm. Then ``auto`` begins
with nothing learned. Rounds follow, each with a run in every mode, in an order that changes. ``auto`` learns from its
own runs alone, as it would where nobody forces anything; what forced runs show is kept apart and used to judge the
predictions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridq.errors import DeviceUnavailable, RequestError
from hybridq.placement.review import FORCED, PlanReview, Runs, operator_of, review, summarize
from hybridq.shipped import find_plan, plan_names

if TYPE_CHECKING:
    from hybridq.placement.placer import Placer
    from hybridq.query import Query
    from hybridq.report import Report
    from hybridq.session import Session

TRAINING_ROUNDS = 3
"""Rounds after which predictions count as trained."""

SUITES = ("tpch/", "ssb/")
"""Shipped plans that are run unless others are named."""

WRONG = (
    "Stages in a mode that is not the best, by what each mode took when it was forced (medians; where a single run was "
    "as fast as the best mode mostly is, it is no wrong choice). The last column is what auto's own runs took, which "
    "the query's regret is made of, with what lies between stages and what else the machine did then."
)

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is run.

    Attributes
    ----------
    repeats : int
        Rounds after those that train.
    calibrated : str
        Where predictions start from: ``kept`` (the profile that is stored, or a quick calibration where there is none),
        ``now`` (a quick calibration) or ``none`` (assumptions, as in a fresh installation).
    time_limit : float or None
        Seconds after which no further query is begun.
    """

    repeats: int = 3
    calibrated: str = "kept"
    time_limit: float | None = None


def plans_over(session: Session, names: Sequence[str] = ()) -> dict[str, str]:
    """Return the SQL of plans by name: those named, or all shipped ones that the session's tables allow.

    Raises
    ------
    RequestError
        A plan is not there or not SQL, cannot be planned, or none is left.
    """
    if names:
        return {name: _text(name) for name in names}
    found = {}
    for name in plan_names():
        if name.startswith(SUITES) and find_plan(name).suffix == ".sql":
            text = _text(name)
            try:
                session.sql(text)
            except RequestError:
                continue  # other data
            found[name] = text
    if not found:
        raise RequestError("no shipped plan can run over this data: name some, or give TPC-H or SSB data")
    return found


def _text(name: str) -> str:
    path = find_plan(name)
    if path.suffix != ".sql":
        raise RequestError(f"plan {name} must be SQL")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read {path}: {error}") from None


def run(
    session: Session, plans: dict[str, str], effort: Effort, tell: Callable[[str], None] = lambda text: None
) -> Iterator[Line]:
    """Run plans and yield the lines of the report: the cluster, each plan as it is done, a summary.

    Parameters
    ----------
    session : Session
        Its cluster has CPU and GPU workers. What it has learned before is neither used nor changed.
    plans : dict of str to str
        SQL by name.
    effort : Effort
    tell : callable
        Called with a line about each plan, for a person who waits.

    Raises
    ------
    DeviceUnavailable
        The cluster lacks a kind of device: there is nothing to choose.
    """
    slots = session._connection.slots()
    if not (slots.get("cpu") and slots.get("gpu")):
        raise DeviceUnavailable(
            "placement can be judged only where there are CPU and GPU workers; see cluster/README.md"
        )
    known = session._know()
    session._calibration.wait()
    if effort.calibrated == "now" or (effort.calibrated == "kept" and not known.profile.measured):
        session.calibrate(quick=True)
    yield _cluster(session, effort)
    started = time.monotonic()
    reviews: list[PlanReview] = []
    try:
        for name, text in plans.items():
            if effort.time_limit is not None and time.monotonic() - started > effort.time_limit:
                tell(f"the time is up: {len(plans) - len(reviews)} plans not run")
                break
            found = review(_runs(session, known, name, text, effort))
            reviews.append(found)
            tell(f"{name}: auto {found.seconds['auto']:.3f} s, {found.best} {found.seconds[found.best]:.3f} s")
            yield {"line": "plan", **found.to_dict()}
    finally:
        session._placer = known
    if reviews:
        yield {"line": "summary", **summarize(reviews).to_dict()}


def _cluster(session: Session, effort: Effort) -> Line:
    from hybridq import __version__

    devices = session.devices()
    return {
        "line": "cluster",
        "version": __version__,
        "simulated": any(device.engine.startswith("simulated") for device in devices),
        "devices": [
            {"worker": device.worker, "engine": device.engine, "threads": device.threads} for device in devices
        ],
        "calibrated": effort.calibrated,
        "rounds": TRAINING_ROUNDS + effort.repeats,
    }


def _runs(session: Session, known: Placer, name: str, text: str, effort: Effort) -> Runs:
    """Run one plan in all modes."""

    def timed(query: Query, mode: str, placer: Placer) -> tuple[float, Report]:
        session._placer = placer
        start = time.perf_counter()
        report = query.collect(mode=mode).report
        return time.perf_counter() - start, report

    with_profile = effort.calibrated != "none"
    query = session.sql(text)
    for mode in ("cpu", "gpu"):
        timed(query, mode, known.untrained())
    alone, forcing = known.untrained(with_profile), known.untrained(with_profile)
    operators = {stage.id: operator_of(stage) for stage in query._physical.stages}
    runs = Runs(name, operators, timed(query, "auto", alone))
    order = [*FORCED, "auto"]
    for number in range(TRAINING_ROUNDS + effort.repeats):
        for mode in order[number % len(order) :] + order[: number % len(order)]:
            taken, report = timed(query, mode, alone if mode == "auto" else forcing)
            if mode != "auto":
                runs.forced[mode].append((taken, report))
            if mode == "auto":
                (runs.auto if number >= TRAINING_ROUNDS else runs.training).append((taken, report))
            elif number >= TRAINING_ROUNDS:
                runs.trained[mode].append(report)
    return runs


def append(path: Path, line: Line) -> None:
    """Add a line to a file of JSON lines."""
    import json

    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


# --- the page ------------------------------------------------------------------------------------------------------


def markdown(lines: Sequence[Line]) -> str:
    """Return the report of one run as a page of Markdown."""
    cluster = next(line for line in lines if line["line"] == "cluster")
    plans = [line for line in lines if line["line"] == "plan"]
    summary = next((line for line in lines if line["line"] == "summary"), None)
    engines = ", ".join(f"{each['worker']} ({each['engine']}, {each['threads']})" for each in cluster["devices"])
    simulated = " **Simulated devices: seconds say nothing about real ones.**" if cluster["simulated"] else ""
    text = [
        f"Workers (engine, threads): {engines}.{simulated}",
        "",
        f"{cluster['rounds']} runs in each mode, in turn; profile: {cluster['calibrated']}. Seconds are medians of "
        "warm runs; auto's are those after three that train, and where these are fewer than three earlier ones in the "
        "same modes as well. Regret: auto less the best forced mode. Ideal of cop: T_C * T_G / (T_C + T_G); "
        "its share for the whole query and for the longest stage that both worked on, whose idle time is from the end "
        "of the first worker to the end of the last.",
        "",
        *_plan_table(plans),
    ]
    if summary is not None:
        text += ["", *_summary(summary), "", *_error_table(summary["errors"])]
    wrong = [(plan["plan"], stage) for plan in plans for stage in plan["stages"] if stage["lost_s"] > 0]
    if wrong:
        rows = [
            [
                plan,
                f"{stage['id']} {stage['operator']}",
                stage["auto_mode"],
                stage["best_mode"],
                *(f"{stage['seconds'][stage[mode]]:.3f}" for mode in ("auto_mode", "best_mode")),
                f"{stage['lost_s']:.3f}",
                f"{stage['auto_s']:.3f}",
            ]
            for plan, stage in sorted(wrong, key=lambda item: -item[1]["lost_s"])
        ]
        text += ["", WRONG, ""]
        text += _table(["plan", "stage", "chosen", "best", "s", "best s", "lost s", "auto s"], rows)
    return "\n".join(text)


def _plan_table(plans: Sequence[Line]) -> list[str]:
    header = ["plan", "cpu", "gpu", "cop", "auto", "auto, first", "regret ms", "regret", "close", "first close"]
    header += ["against oracle ms", "cop of ideal", "of its stage", "idle, chunks", "cop of better"]
    rows = []
    for plan in plans:
        seconds, cop = plan["seconds"], plan["cop"]
        shared = cop["stage_of_ideal"]
        rows.append(
            [
                plan["plan"],
                *(f"{seconds[mode]:.3f}" for mode in ("cpu", "gpu", "cop", "auto")),
                f"{plan['first_s']:.3f}",
                f"{plan['regret_s'] * 1e3:.0f}",
                f"{plan['regret']:.1%}",
                _yes(plan["close"]),
                _yes(plan["first_close"]),
                f"{plan['oracle_lost_s'] * 1e3:.0f}",
                f"{cop['of_ideal']:.0%}",
                "-" if shared is None else f"{shared:.0%}",
                "-" if shared is None else f"{cop['idle_chunks']:.2f}",
                f"{cop['of_better']:.2f}",
            ]
        )
    return _table(header, rows)


def _summary(summary: Line) -> list[str]:
    ordered, improvement = summary["ordered"], summary["improvement"]
    shares = ", ".join(f"{name} {ordered[name]:.0%}" for name in ("untrained", "trained") if name in ordered)
    return [
        f"- auto within 3 % or 20 ms of the best forced mode: {summary['close']} of {summary['plans']}; at its first "
        f"run within 10 % or 20 ms: {summary['first_close']}.",
        f"- Model improvement (HyPE, eq. 6.5) of auto over always CPU: {improvement['cpu']:.1%}; over always GPU: "
        f"{improvement['gpu']:.1%}.",
        f"- Stages in a wrong mode: {summary['wrong']} of {summary['stages']}; the seconds lost by that: "
        f"{summary['wrong_share']:.1%}.",
        f"- Order of modes predicted right where they differ by more than 20 %: {shares or 'no such pair'}"
        + (f" ({ordered['pairs']:.0f} pairs)." if "pairs" in ordered else "."),
    ]


def _error_table(errors: dict[str, dict[str, float]]) -> list[str]:
    rows = [
        [name, f"{each.get('stages', 0):.0f}", *(_share(each.get(part)) for part in ("untrained", "trained"))]
        for name, each in errors.items()
        if each
    ]
    return [
        "Median error of predicted stage times, of stages of 20 ms and more:",
        "",
        *_table(["operator", "times", "untrained", "after three runs"], rows),
    ]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _yes(value: bool) -> str:
    return "yes" if value else "**no**"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
