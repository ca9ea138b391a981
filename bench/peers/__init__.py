"""One file a peer, each with a class that has ``start``, ``run``, ``worker_pids`` and ``close``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

MODES = ("cpu", "gpu", "cop", "auto")

HYBRIDQ = tuple(f"hybridq {mode}" for mode in MODES)

OTHERS = ("duckdb", "polars streaming", "dask.dataframe", "cudf-polars streaming", "cudf-polars in-memory")

NAMES = HYBRIDQ + OTHERS
"""Every peer, hybridq's modes first."""

WRITTEN = {"dask.dataframe": ("tpch/q01", "tpch/q03", "tpch/q04", "tpch/q06", "tpch/q12", "tpch/q14")}
"""The queries of a peer that does not have all."""


def has_query(name: str, query: str) -> bool:
    """Tell whether a peer can be asked a query, such as ``tpch/q03``.

    >>> has_query("polars streaming", "tpch/q21"), has_query("dask.dataframe", "tpch/q21")
    (True, False)
    """
    return name not in WRITTEN or query in WRITTEN[name]


@dataclass(frozen=True)
class Setup:
    """What all peers are given.

    Attributes
    ----------
    folder : Path
        ``<table>.parquet`` files, or folders ``<table>/`` of Parquet files.
    threads : int
        Of DuckDB, Polars, and dask.dataframe's workers together.
    cluster : str, dict or None
        hybridq's cluster, as ``hybridq.connect`` takes it.
    gpu_memory : int or None
        Cap of cudf-polars in-memory, in bytes; hybridq's stands in its cluster's description.
    scale_factor : float
        Of the data: TPC-H's Q11 asks for a fraction that depends on it.
    """

    folder: Path
    threads: int
    cluster: str | dict[str, Any] | None = None
    gpu_memory: int | None = None
    scale_factor: float = 1


class Peer(Protocol):
    """Something that answers the shipped queries.

    Attributes
    ----------
    name : str
        As results call it.
    note : str
        How it was set up, in one line.
    must_be_exact : bool
        Whether an answer in other types than the plan's, or rounded, is wrong.
    uses_gpu : bool
        Whether it may hold a GPU; those that do run one after the other.
    """

    name: str
    note: str
    must_be_exact: bool
    uses_gpu: bool

    def start(self, folder: Path) -> None:
        """Get ready to answer queries over a folder of ``<table>.parquet`` files or ``<table>/`` folders."""

    def run(self, query: str) -> pa.Table:
        """Answer a query from its text or code to an Arrow table in this process."""

    def details(self) -> dict[str, object]:
        """Return what is worth recording about the last run."""

    def worker_pids(self) -> list[int]:
        """Return the processes whose memory counts, this one not included."""

    def close(self) -> None:
        """Give everything back."""


def make_peers(names: tuple[str, ...], setup: Setup) -> list[Peer]:
    """Make the peers that share a process: hybridq's modes share a cluster."""
    from bench.peers.dask_dataframe import DaskDataframePeer
    from bench.peers.duckdb_peer import DuckdbPeer
    from bench.peers.hybridq_peer import HybridqPeer
    from bench.peers.polars_peer import PolarsPeer

    peers: list[Peer] = []
    first: HybridqPeer | None = None
    for name in names:
        if name in HYBRIDQ:
            peer = HybridqPeer(name.removeprefix("hybridq "), setup, first)
            first = first or peer
            peers.append(peer)
        elif name == DuckdbPeer.name:
            peers.append(DuckdbPeer(setup))
        elif name == DaskDataframePeer.name:
            peers.append(DaskDataframePeer(setup))
        else:
            peers.append(PolarsPeer(name, setup))
    return peers
