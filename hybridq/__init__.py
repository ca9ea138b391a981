"""hybridq: SQL over Parquet on a Dask cluster, on CPUs and GPUs at the same time."""

from __future__ import annotations

__version__ = "0.1.0"
