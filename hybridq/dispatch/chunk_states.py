"""Where a stage's chunks are: waiting, handed out, come back as partial results, being merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hybridq.physical.chunks import Chunk
from hybridq.topology import Kind


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
    """

    chunk: Chunk
    kind: Kind
    key: str
    complete: bool
    event: Mapping[str, Any] | None = None
    began: float = 0.0
    serial: int = 0
    ahead: str = ""


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
    """

    order: tuple[int, ...]
    key: str
    rows: int
    source_rows: int
    bytes: int = 0
    state: ChunkState | None = None
    address: str = ""


@dataclass(slots=True)
class Merging:
    """A merge in flight."""

    parts: list[Part]
    kind: Kind
    last: bool


def source_rows(chunk: Chunk) -> int:
    """Return the rows of a chunk's source, without those of aligned build sides."""
    return chunk.source.rows if chunk.source is not None else 0
