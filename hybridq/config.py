"""Settings, each with an environment variable ``HYBRIDQ_<NAME IN CAPITALS>``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from hybridq.errors import ConfigurationError

JoinMethod = Literal["auto", "hash", "merge", "index"]
"""How rows with equal keys find each other on a worker, see ``Config.join_method``."""

MAY_BE_ZERO = frozenset(
    {
        "calibrate",
        "kept_plans",
        "one_chunk_rows",
        "chunk_units",
        "broadcast_limit_bytes",
        "gather_limit_bytes",
        "split_memory_bytes",
        "result_bytes",
        "read_ahead",
    }
)
"""Settings for which zero has a meaning of its own."""

BROADCAST_PART = 6
"""A worker's memory over the size of the largest build side that every worker may get."""

GATHER_PART = 64
"""A GPU's memory over that which groups may take that meet there."""

MOST_GATHERED_BYTES = 4 * 2**30


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of a session.

    Attributes
    ----------
    cpu_chunk_rows : int
        Rows that a CPU chunk aims at (build-side rows of aligned joins included).
    gpu_chunk_rows : int
        Rows that a GPU chunk aims at before the cost ratio is known.
    one_chunk_rows : int
        Rows of tables up to which joins between them are made in one task, where that may be one chunk; 0: never.
    chunk_units : int
        Units in every chunk, whatever the device; 0: by rows.
    window : int
        Chunks kept in flight for each slot (thread) of a device; very short chunks are queued deeper.
    read_ahead : int
        Chunks of a stage that GPUs read, when they have nothing else to do, while the stages before it still run.
    broadcast_bytes : int
        Estimated size up to which a build side is broadcast without looking for another way.
    broadcast_limit_bytes : int
        Size past which a build side is never broadcast: both sides of the join are split by key instead; if left as it
        is, at most a sixth of the smallest CPU worker's memory. 0: every join is done so that has keys to split by.
    gather_limit_bytes : int
        Size past which partial results of an aggregate, sorted rows, or rows that windows are over, do not meet on one
        worker: they are split by key, or by ranges, and worked on piece by piece; if left as it is, at least a 64th of
        the smallest GPU's memory (up to 4 GiB). 0: wherever that is possible.
    partition_bytes : int
        Size that a partition of a split aims at; one with more on its build side is split again.
    split_memory_bytes : int
        Memory that the pieces of splits may take on a worker, further ones go to files; 0: a quarter of the worker's.
    join_bytes : int
        Estimated size of a join's output past which a chunk's rows are joined piece by piece.
    join_method : str
        How a build side's keys are found on CPU workers. ``auto``: by whatever suits them. ``hash``: in a hash table.
        ``merge``: both sides are put in order, unless they are, and merged (sort-merge join). ``index``: each probing
        key is looked for in the build side's sorted keys (index nested-loop join). The answers are the same.
    result_bytes : int
        Size past which an answer is not fetched; 0: what this process can still get.
    calibrate : int
        1: where CPU and GPU workers were never measured, that is done in a small form while the session begins; the
        first query waits for it, some two seconds. 0: never without being asked to.
    kept_plans : int
        Texts whose plans a session keeps, for the next time that they are asked; 0: each is planned anew every time.
    connect_timeout : float
        Seconds to wait for a scheduler and its workers.
    stall_timeout : float
        Seconds without any worker of a needed kind after which a query fails; also seconds without a sign of life
        after which a worker, or the scheduler, is given up.
    """

    cpu_chunk_rows: int = 2_000_000
    gpu_chunk_rows: int = 48_000_000
    one_chunk_rows: int = 256 * 1024
    chunk_units: int = 0
    window: int = 2
    read_ahead: int = 10
    broadcast_bytes: int = 64 * 2**20
    broadcast_limit_bytes: int = 1024 * 2**20
    gather_limit_bytes: int = 256 * 2**20
    partition_bytes: int = 128 * 2**20
    split_memory_bytes: int = 0
    join_bytes: int = 256 * 2**20
    join_method: JoinMethod = "auto"
    result_bytes: int = 0
    calibrate: int = 1
    kept_plans: int = 100
    connect_timeout: float = 8.0
    stall_timeout: float = 30.0

    def suited_to(self, cpu_memory: int, gpu_memory: int) -> Config:
        """Return what suits a cluster's devices, as far as settings were left as they are by default.

        A build side that is broadcast takes, with the index of its keys, several times its size on every worker. Groups
        that may meet on a GPU are merged there, which takes milliseconds; to split them they would have to leave it.

        Parameters
        ----------
        cpu_memory, gpu_memory : int
            Bytes of the smallest CPU worker's main memory, and of the smallest GPU's; 0: none, or not known.

        >>> Config().suited_to(3 * 2**30, 128 * 2**30).broadcast_limit_bytes // 2**20
        512
        >>> Config().suited_to(3 * 2**30, 128 * 2**30).gather_limit_bytes // 2**20
        2048
        >>> Config(gather_limit_bytes=1000).suited_to(0, 128 * 2**30).gather_limit_bytes
        1000
        """
        default, found = Config(), self
        if cpu_memory and self.broadcast_limit_bytes == default.broadcast_limit_bytes:
            limit = min(self.broadcast_limit_bytes, cpu_memory // BROADCAST_PART)
            found = replace(found, broadcast_limit_bytes=limit)
        if gpu_memory and self.gather_limit_bytes == default.gather_limit_bytes:
            limit = max(self.gather_limit_bytes, min(gpu_memory // GATHER_PART, MOST_GATHERED_BYTES))
            found = replace(found, gather_limit_bytes=limit)
        return found

    @classmethod
    def load(cls, **options: Any) -> Config:
        """Take defaults, then the environment, then ``options``.

        Raises
        ------
        ConfigurationError
            An option is unknown, or a value is not a positive number (zero is allowed for those in ``MAY_BE_ZERO``), or
            no method of joining.
        """
        known: dict[str, Callable[[Any], Any]] = {field.name: type(field.default) for field in fields(cls)}
        for name in options:
            if name not in known:
                raise ConfigurationError(f"unknown option {name!r}: the options are {', '.join(known)}")
        values: dict[str, Any] = {}
        for name, kind in known.items():
            variable = f"HYBRIDQ_{name.upper()}"
            raw = options.get(name, os.environ.get(variable))
            if raw is None:
                continue
            if kind is str:
                values[name] = raw
                if raw not in get_args(JoinMethod):
                    allowed = ", ".join(get_args(JoinMethod))
                    raise ConfigurationError(f"option {name} ({variable}) must be one of {allowed}, not {raw!r}")
                continue
            try:
                values[name] = kind(raw)
            except (TypeError, ValueError):
                raise ConfigurationError(f"option {name} ({variable}) must be a number, not {raw!r}") from None
            if not (values[name] > 0 or (values[name] == 0 and name in MAY_BE_ZERO)):
                least = "0 or more" if name in MAY_BE_ZERO else "positive"
                raise ConfigurationError(f"option {name} ({variable}) must be {least}, not {raw!r}")
        return cls(**values)


CACHE_SHARE = 0.5
"""Share of a GPU's memory that hot columns may take, unless a number of bytes is given."""


@dataclass(frozen=True, slots=True)
class HotColumns:
    """Columns that stay decoded on GPUs from query to query.

    Attributes
    ----------
    columns : mapping of str to frozenset of str
        Column names by table.
    limit : int or None
        Bytes that they may take on each GPU; ``None``: a share of its memory.
    """

    columns: Mapping[str, frozenset[str]] = field(default_factory=dict)
    limit: int | None = None

    def bytes_within(self, device_memory: int) -> int:
        """Return the bytes that they may take on a GPU of so much memory."""
        if not self.columns:
            return 0
        return int(device_memory * CACHE_SHARE) if self.limit is None else min(self.limit, device_memory)


def cache_folder() -> Path:
    """Return where made data and profiles are kept: ``$HYBRIDQ_CACHE``, else ``hybridq`` in the user's cache folder."""
    chosen = os.environ.get("HYBRIDQ_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hybridq"
