"""What it costs to pass results on from one worker to another, and where they are put together."""

from __future__ import annotations

from collections.abc import Mapping

from hybridq.topology import Kind

FETCH_S = 0.003
"""What it takes until a worker gets what another one has, besides the bytes."""

NETWORK_BYTES_PER_S = 5e8
"""Passing a table from one worker to another through Dask."""

GPU_MERGE_ROWS = 50_000
"""Rows of partial results from which a GPU merges them; fewer are done before a GPU has them."""


def merging_kind(part_bytes: Mapping[Kind, int | float], rows: float) -> Kind:
    """Return the kind of worker that partial results are to be merged on.

    All of one kind stay there. Of both, those of the GPU stay there if they are the larger part and many: a GPU merges
    those faster, and fewer bytes have to be passed on.

    >>> merging_kind({"cpu": 10, "gpu": 90}, 1e6), merging_kind({"cpu": 10, "gpu": 90}, 4)
    ('gpu', 'cpu')
    """
    cpu, gpu = part_bytes.get("cpu", 0), part_bytes.get("gpu", 0)
    if "cpu" not in part_bytes and "gpu" in part_bytes:
        return "gpu"
    return "gpu" if gpu > cpu and rows >= GPU_MERGE_ROWS else "cpu"
