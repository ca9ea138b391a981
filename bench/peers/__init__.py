"""One file a peer, each with a class that has ``start``, ``run``, ``worker_pids`` and ``close``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


class Peer(Protocol):
    """Something that answers the shipped TPC-H queries.

    Attributes
    ----------
    name : str
        As results call it.
    note : str
        How it was set up, in one line.
    """

    name: str
    note: str

    def start(self, folder: Path) -> None:
        """Get ready to answer queries over a folder of ``<table>.parquet`` files."""

    def run(self, query: str) -> pa.Table:
        """Answer a query from its text or code to an Arrow table in this process."""

    def details(self) -> dict[str, object]:
        """Return what is worth recording about the last run."""

    def worker_pids(self) -> list[int]:
        """Return the processes whose memory counts, this one not included."""

    def close(self) -> None:
        """Give everything back."""
