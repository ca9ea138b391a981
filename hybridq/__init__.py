"""hybridq: SQL over Parquet on a Dask cluster, on CPUs and GPUs at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hybridq.session import Handle, Query, Result, Session, connect

__version__ = "0.1.0"

__all__ = ["Handle", "Query", "Result", "Session", "connect"]

_HOME = dict.fromkeys(("Handle", "Query", "Result", "Session", "connect"), "hybridq.session")
"""Where each public name is, to be imported when it is first used: ``import hybridq`` alone loads nothing."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hybridq' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
