"""Polars' streaming engine, and cudf-polars (the same lazy frames on a GPU) streaming and in memory.

A GPU engine that cannot run a query raises, instead of handing it to the CPU silently; what it warns of, such as an
operator that it runs in one piece, is recorded. The queries are in ``bench/peers/polars_queries``.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pathlib import Path

    from bench.peers import Setup

GPU_SETTINGS = {"KVIKIO_NTHREADS": "8", "KVIKIO_COMPAT_MODE": "ON", "RAPIDSMPF_NUM_STREAMING_THREADS": "8"}
"""As cudf-polars' own benchmarks have them, and as many reading threads as hybridq has; the environment goes first."""


class PolarsPeer:
    """One of the three engines."""

    must_be_exact = False

    def __init__(self, name: str, setup: Setup) -> None:
        self.name = name
        self.uses_gpu = name.startswith("cudf")
        self._streams = name.endswith("streaming")
        self._setup = setup
        self._engine: Any = None
        self._warnings: list[str] = []
        self.note = f"streaming engine, {setup.threads} threads, decimals as in the files"
        if self.uses_gpu:
            cap = f", device memory at most {setup.gpu_memory} bytes" if setup.gpu_memory else ""
            settings = ", ".join(f"{key}={os.environ.get(key, value)}" for key, value in GPU_SETTINGS.items())
            executor = "streaming" if self._streams else "in-memory"
            self.note = f"GPU engine, {executor} executor, one GPU{cap}, {settings}, decimals as in the files"

    def start(self, folder: Path) -> None:
        os.environ["POLARS_MAX_THREADS"] = str(self._setup.threads)  # read when Polars is first imported
        if self.uses_gpu:
            for key, value in GPU_SETTINGS.items():
                os.environ.setdefault(key, value)
        import polars as pl

        from bench.peers.polars_queries import QUERIES

        self._queries = QUERIES
        self._engine = self._gpu_engine() if self.uses_gpu else "streaming"
        self._tables = {
            path.stem: pl.scan_parquet(path / "*.parquet" if path.is_dir() else path)
            for path in sorted(folder.iterdir())
            if path.is_dir() or path.suffix == ".parquet"
        }

    def _gpu_engine(self) -> Any:
        import polars as pl

        if not self._setup.gpu_memory:
            return pl.GPUEngine(executor="streaming" if self._streams else "in-memory", raise_on_fail=True)
        import rmm.mr

        limit = self._setup.gpu_memory // 256 * 256
        if self._streams:
            raise ValueError("the streaming executor takes no memory cap here")
        pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), limit, limit)
        return pl.GPUEngine(executor="in-memory", raise_on_fail=True, memory_resource=pool)

    def run(self, query: str) -> pa.Table:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            frame = self._queries[query](**self._tables, scale_factor=self._setup.scale_factor)
            answer = frame.collect(engine=self._engine).to_arrow()
        self._warnings = [str(each.message).splitlines()[0] for each in caught]
        return answer

    def details(self) -> dict[str, object]:
        return {"warnings": sorted(set(self._warnings))[:5]} if self.uses_gpu else {}

    def worker_pids(self) -> list[int]:
        return []

    def close(self) -> None:
        self._tables = {}
