"""What a whole stage took, from the report of a run."""

from __future__ import annotations

from collections.abc import Mapping

from hybridq.placement.choice import StageMode
from hybridq.report import Report, StageReport
from hybridq.topology import Kind

KINDS: Mapping[StageMode, tuple[Kind, ...]] = {
    "EXEC_CPU": ("cpu",),
    "EXEC_GPU": ("gpu",),
    "EXEC_COP": ("gpu", "cpu"),
}
"""Kinds of device that work on a stage in each mode."""


def entry_of(report: Report, number: int) -> StageReport:
    """Return the report of one stage."""
    return next(entry for entry in report.stages if entry.id == number)


def stage_seconds(report: Report, number: int) -> float:
    """Return the seconds of a stage; where it had to wait for devices behind another stage, from its first chunk on."""
    entry = entry_of(report, number)
    first = min((span.start_s for span in entry.spans if span.what == "chunk"), default=entry.started_s)
    waited = any(
        other is not entry and other.started_s < first and other.started_s + other.actual_s > entry.started_s
        for other in report.stages
    )
    return entry.actual_s - (max(first - entry.started_s, 0.0) if waited else 0.0)


ALONE_SHARE = 0.1
"""A stage had the devices for itself if other stages' tasks took at most this part of its time."""


def ran_alone(report: Report, number: int) -> bool:
    """Tell whether a stage had the kinds of device that it ran on for itself from its first chunk to its end.

    Stages that do not wait for each other may run at the same time, and then each takes longer. What GPUs read ahead
    for later stages does not count: they do so whenever others follow, so it belongs to what this one takes.
    """
    entry = entry_of(report, number)
    kinds = {span.kind for span in entry.spans if span.what == "chunk"}
    end = entry.started_s + entry.actual_s
    begin = end - stage_seconds(report, number)
    shared = sum(
        max(min(span.start_s + span.seconds, end) - max(span.start_s, begin), 0.0)
        for other in report.stages
        if other is not entry
        for span in other.spans
        if span.kind in kinds and span.what != "read ahead"
    )
    return shared <= ALONE_SHARE * (end - begin)


def mode_that_ran(entry: StageReport) -> StageMode | None:
    """Return the mode that a stage ran in from beginning to end; ``None``: some of it ran elsewhere, or again."""
    ran = {span.kind for span in entry.spans if span.what == "chunk"}
    if not ran or entry.fallbacks or entry.retries:
        return None
    return next((mode for mode, kinds in KINDS.items() if mode == entry.mode and ran.issubset(kinds)), None)
