"""What a stage's report gets from tasks that have finished."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hybridq.report import MOST_SPANS, READ_AHEAD, DeviceReport, Span, StageReport
from hybridq.topology import Kind


def record_chunk(report: StageReport, kind: Kind, rows: int, event: Mapping[str, Any]) -> None:
    """Add a finished chunk to its device's figures.

    Parameters
    ----------
    report : StageReport
    kind : str
    rows : int
        Of the chunk's source.
    event : mapping
        What its task reported.
    """
    device = next((each for each in report.devices if each.worker == event["device"]), None)
    if device is None:
        device = DeviceReport(event["device"], kind, event["engine"])
        report.devices.append(device)
    device.chunks += 1
    device.rows += rows
    device.bytes_read += int(event["bytes_read"])
    report.read_again += int(event.get("read_again", 0))
    for name in ("predicted_bytes", "peak_bytes", "worker_predicted_bytes", "worker_peak_bytes"):
        setattr(device, name, max(getattr(device, name), int(event.get(name, 0))))
    device.cached_bytes = int(event.get("cached_bytes", 0))
    for section, value in event["seconds"].items():
        device.seconds[section] = device.seconds.get(section, 0.0) + value


def add_span(
    report: StageReport, origin: float, what: str, number: int, kind: str, rows: int, event: Mapping[str, Any]
) -> None:
    """List a task that has just finished, and the reading ahead that was done for it.

    Parameters
    ----------
    report : StageReport
    origin : float
        When the query began, on ``time.perf_counter``.
    what, number, kind, rows
        As in ``Span``.
    event : mapping
        What the task reported.
    """
    if len(report.spans) >= MOST_SPANS:
        return
    seconds = dict(event["seconds"])
    total = seconds.pop("total")
    ended = event.get("received", time.perf_counter()) - origin
    worker = str(event.get("device", kind))
    ahead = event.get("ahead")
    if ahead is not None:
        total, seconds["read"] = total - ahead["seconds"], seconds["read"] - ahead["seconds"]
        begun = max(ended - total - ahead["before"] - ahead["seconds"], 0.0)
        read = {"read": ahead["seconds"]}
        report.spans.append(Span(READ_AHEAD, number, worker, kind, rows, begun, ahead["seconds"], read))
    report.spans.append(Span(what, number, worker, kind, rows, max(ended - total, 0.0), total, seconds))
