"""What Dask keeps of the keys of tasks: how it has split each of the last 100,000 into words.

The keys of queries are all different: nobody asks twice.
"""

from __future__ import annotations

from typing import Any

MOST_KEYS = 2_000
"""Keys up to which they are kept."""

FORGET_MILLISECONDS = 2_000
"""How often a worker looks whether there are more."""


def forget_keys() -> None:
    """Forget how keys were split, if there are many."""
    from dask.utils import key_split

    if key_split.cache_info().currsize > MOST_KEYS:
        key_split.cache_clear()


def forget_keys_of(worker: Any) -> None:
    """Have a worker's process look again and again whether it keeps many keys (a ``distributed.Worker``)."""
    from tornado.ioloop import PeriodicCallback

    worker.periodic_callbacks["hybridq-keys"] = PeriodicCallback(forget_keys, FORGET_MILLISECONDS)
