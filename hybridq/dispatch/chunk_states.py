"""Where a stage's chunks are: waiting, handed out, come back as partial results, being merged."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hybridq.physical.chunks import Chunk
from hybridq.placement.cost import PullPolicy
from hybridq.topology import Kind

LOOK_SECONDS = 50e-6
"""For each chunk that is out, the age at which an estimate of how far they are is made anew: to make it takes a
twentieth of that."""


@dataclass(slots=True)
class ChunkState:
    """A chunk that has been handed out.

    Attributes
    ----------
    chunk : Chunk
    kind : str
    key : str
        Of its Dask task.
    complete : bool
        Its task makes the stage's output.
    event : mapping or None
        What its task reported.
    began : float
        When a worker has begun with it, as far as can be told from when others have finished; 0: it is queued.
    serial : int
        Of its task among those of the stage.
    ahead : str
        Key of the task that reads ahead for it, if there is one.
    left : int
        Source rows that are not done yet, as last estimated.
    worker : str
        Address of the worker that it was given to; empty: Dask chose.
    """

    chunk: Chunk
    kind: Kind
    key: str
    complete: bool
    event: Mapping[str, Any] | None = None
    began: float = 0.0
    serial: int = 0
    ahead: str = ""
    left: int = 0
    worker: str = ""


class ChunksOut(dict[str, ChunkState]):
    """A stage's chunks that are out, by their tasks' keys.

    How many there are of each kind of device, and how many rows of them are left, is asked for each that is handed
    out, and on a large cluster thousands are out: neither may take a look at all of them each time.

    Attributes
    ----------
    count : dict of kind to int
        Chunks of each kind.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count: dict[Kind, int] = {}
        self._left: dict[Kind, int] = {}
        self._looked = 0.0

    def rows_left(self, policy: PullPolicy) -> dict[Kind, int]:
        """Return the source rows that are not done yet, by kind of device.

        Each slot of a kind works on one chunk, the oldest ones first; the others are queued. What running chunks have
        done meanwhile is estimated anew once the last estimate is ``LOOK_SECONDS`` old for each of them.
        """
        now = time.perf_counter()
        if now - self._looked >= LOOK_SECONDS * len(self):
            self._looked, self._left = now, {}
            busy: dict[Kind, int] = {}
            for state in self.values():
                busy[state.kind] = busy.get(state.kind, 0) + 1
                state.left = source_rows(state.chunk)
                if busy[state.kind] <= policy.working(state.kind):
                    state.began = state.began or now
                    state.left = policy.rows_left(state.kind, state.left, now - state.began)
                self._left[state.kind] = self._left.get(state.kind, 0) + state.left
        return {kind: rows for kind, rows in self._left.items() if self.count.get(kind)}

    def __setitem__(self, key: str, state: ChunkState) -> None:
        super().__setitem__(key, state)
        state.left = source_rows(state.chunk)
        self.count[state.kind] = self.count.get(state.kind, 0) + 1
        self._left[state.kind] = self._left.get(state.kind, 0) + state.left

    def __delitem__(self, key: str) -> None:
        state = self[key]
        super().__delitem__(key)
        self.count[state.kind] -= 1
        self._left[state.kind] -= state.left

    def pop(self, key: str, default: Any = None) -> Any:
        """Take a chunk out; return it, or ``default`` if it is not there."""
        state = self.get(key)
        if state is None:
            return default
        del self[key]
        return state

    def clear(self) -> None:
        """Take all out."""
        super().clear()
        self.count, self._left = {}, {}


@dataclass(slots=True)
class Waiting:
    """A chunk that has to be handed out, again or after what it reads has been read ahead (by the task ``ahead``)."""

    chunk: Chunk
    kind: Kind
    attempt: int
    ahead: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A partial result: of one chunk, or of several neighbours that have been merged.

    Attributes
    ----------
    order : tuple of int
        ``Chunk.order`` of its first chunk.
    key : str
    rows : int
        Rows of the partial result.
    source_rows : int
        Source rows that went into it.
    bytes : int
        Size in memory.
    state : ChunkState or None
        The chunk, if it is a single one.
    address : str
        The worker that made it.
    kind : str
        Of that worker.
    """

    order: tuple[int, ...]
    key: str
    rows: int
    source_rows: int
    bytes: int = 0
    state: ChunkState | None = None
    address: str = ""
    kind: Kind = "cpu"


@dataclass(slots=True)
class Merging:
    """A merge in flight."""

    parts: list[Part]
    kind: Kind
    last: bool


def source_rows(chunk: Chunk) -> int:
    """Return the rows of a chunk's source, without those of aligned build sides."""
    return chunk.source.rows if chunk.source is not None else 0


def sent_with(part: Part) -> bytes | None:
    """Return a partial result in Arrow's stream format, if it came with its task's report."""
    return None if part.state is None or part.state.event is None else part.state.event.get("answer")
