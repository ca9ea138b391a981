"""The record of where each piece of a query ran, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

MOST_SPANS = 5000
"""Tasks of a stage that its report lists one by one."""


@dataclass(slots=True)
class DeviceReport:
    """What one worker did in one stage.

    Attributes
    ----------
    worker : str
        Name of the worker.
    kind : str
        ``cpu`` or ``gpu``.
    engine : str
        ``cpu``, ``gpu`` or ``simulated gpu``.
    chunks, rows, bytes_read : int
        Uncompressed bytes of what was read from files; columns that were in the device's cache do not count.
    predicted_bytes, peak_bytes : int
        Device memory: the most that the chunks running at a time were expected to need, and the most that was
        allocated, both with what the device keeps from chunk to chunk (build sides, cached columns).
    cached_bytes : int
        Columns in the device's cache after the worker's last chunk.
    worker_predicted_bytes, worker_peak_bytes : int
        Main memory of the worker's process: what the chunks running at a time and what it keeps were expected to need
        beyond what an idle worker holds, and the most that it held, as the operating system counts it.
    seconds : dict of str to float
        Seconds by section: ``read``, ``build``, ``probe``, ``compute``, ``sink``, ``total``; and
        ``wait``, for other chunks to make room, before the others begin.
    """

    worker: str
    kind: str
    engine: str
    chunks: int = 0
    rows: int = 0
    bytes_read: int = 0
    predicted_bytes: int = 0
    peak_bytes: int = 0
    cached_bytes: int = 0
    worker_predicted_bytes: int = 0
    worker_peak_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Fallback:
    """A chunk that did not run where it was first sent, or a stage that does not run in the mode asked for.

    Attributes
    ----------
    chunk : int or None
        ``None``: the whole stage.
    cause, action : str
        What prevented it, and what was done instead.
    """

    chunk: int | None
    cause: str
    action: str


@dataclass(slots=True)
class ModePrediction:
    """What a stage was expected to take in one mode.

    Attributes
    ----------
    mode : str
    seconds : float
    sections : dict of str to float
        Where the seconds go: ``read``, ``in``, ``build``, ``probe``, ``compute``, ``out``, ``queue``, ``merge``. A
        device that reads one chunk while it computes another needs less than their sum.
    chunk_rows : dict of str to int
        Rows of a chunk by kind of device: c0 for the GPU, c0 * p for the CPU where both work.
    cpu_slots : int
        Chunks that CPU workers work on at the same time.
    """

    mode: str
    seconds: float
    sections: dict[str, float] = field(default_factory=dict)
    chunk_rows: dict[str, int] = field(default_factory=dict)
    cpu_slots: int = 0


READ_AHEAD = "read ahead"
"""What a ``Span`` is called that reads for a chunk before it can run."""

GIVEN_UP = "given up"
"""What a ``Span`` is called of a chunk that took too long, until it was handed to another kind of device."""


@dataclass(slots=True)
class Span:
    """A task: what it was, where and when.

    Attributes
    ----------
    what : str
        ``chunk``, ``merge``, ``read ahead`` (what a chunk reads, read before it could run) or ``given up`` (a chunk
        that was not done in time, and then went to another kind of device).
    number : int
        Of the chunk.
    worker, kind : str
    rows : int
        Source rows of a chunk; of a merge, those of its result.
    start_s, seconds : float
        From the query's beginning, as the client saw it.
    sections : dict of str to float
        As in ``DeviceReport``.
    """

    what: str
    number: int
    worker: str
    kind: str
    rows: int
    start_s: float
    seconds: float
    sections: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class StageReport:
    """One stage: predicted and actual.

    Attributes
    ----------
    mode : str
        ``EXEC_CPU``, ``EXEC_GPU`` or ``EXEC_COP``.
    reason : str
        One sentence.
    predicted_s : float or None
        Seconds, where there was ground for a prediction.
    basis : str
        What the predictions come from: ``earlier chunks``, ``calibration`` or ``assumptions``.
    predictions : list of ModePrediction
        Every mode that the cluster allows.
    break_even_rows : float or None
        Input rows from which the GPU is expected to be faster than the CPU; ``None``: it never is, or there is no GPU.
    started_s : float
        When it began, from the query's beginning.
    retries : int
        Times that a chunk was handed out again: it did not fit, or was lost with its worker.
    read_again : int
        Times that a chunk's files were read again after an input/output error.
    spilled_bytes : int
        Written to workers' files because the pieces of a split were more than fits their budget of memory.
    spans : list of Span
        Its tasks, at most ``MOST_SPANS``.
    """

    id: int
    title: str
    mode: str
    reason: str
    predicted_s: float | None = None
    basis: str = ""
    predictions: list[ModePrediction] = field(default_factory=list)
    break_even_rows: float | None = None
    started_s: float = 0.0
    actual_s: float = 0.0
    merge_s: float = 0.0
    output_rows: int = 0
    cost_ratio: float | None = None
    devices: list[DeviceReport] = field(default_factory=list)
    retries: int = 0
    read_again: int = 0
    fallbacks: list[Fallback] = field(default_factory=list)
    spilled_bytes: int = 0
    spans: list[Span] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """A whole query.

    Attributes
    ----------
    peak_device_bytes : int
        The most that was allocated on any GPU, by whatever query.
    peak_worker_bytes : dict of str to int
        The most main memory that each worker's process held while it ran a task of this query, as the operating system
        counts it, everything included: the libraries, other queries, values that it keeps.
    """

    query: str
    mode: str
    seconds: dict[str, float] = field(default_factory=dict)
    stages: list[StageReport] = field(default_factory=list)
    peak_device_bytes: int = 0
    peak_worker_bytes: dict[str, int] = field(default_factory=dict)

    def note_peaks(self, event: Mapping[str, Any]) -> None:
        """Take in what a task saw of its worker's and its device's memory."""
        self.peak_device_bytes = max(self.peak_device_bytes, int(event.get("peak_bytes", 0)))
        peak = int(event.get("worker_peak_bytes", 0))
        if peak:
            worker = str(event["device"])
            self.peak_worker_bytes[worker] = max(self.peak_worker_bytes.get(worker, 0), peak)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return asdict(self)

    def to_json(self) -> str:
        """Return indented JSON."""
        return json.dumps(self.to_dict(), indent=2)
