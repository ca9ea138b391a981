"""hybridq: SQL over Parquet on a Dask cluster, on CPUs and GPUs at the same time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hybridq.errors import (
        AmbiguousColumn,
        CastFailed,
        ClusterUnreachable,
        ConfigurationError,
        DataError,
        DeviceOutOfMemory,
        DeviceUnavailable,
        DivisionByZero,
        ExecutionError,
        FallbackForbidden,
        HybridqError,
        NumericOverflow,
        PlanFormatError,
        QueryCancelled,
        RequestError,
        SqlError,
        UnknownColumn,
        UnknownTable,
        Unsupported,
        WorkersLost,
    )
    from hybridq.frontend.builder import Frame, col, count, lit, scan, when
    from hybridq.session import Session, connect

__version__ = "0.1.0"

_EXPORTS = {
    "hybridq.session": ("Session", "connect"),
    "hybridq.frontend.builder": ("Frame", "col", "count", "lit", "scan", "when"),
    "hybridq.errors": (
        "AmbiguousColumn", "CastFailed", "ClusterUnreachable", "ConfigurationError", "DataError", "DeviceOutOfMemory",
        "DeviceUnavailable", "DivisionByZero", "ExecutionError", "FallbackForbidden", "HybridqError", "NumericOverflow",
        "PlanFormatError", "QueryCancelled", "RequestError", "SqlError", "UnknownColumn", "UnknownTable", "Unsupported",
        "WorkersLost",
    ),
}  # fmt: skip
_MODULES = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = [
    "AmbiguousColumn",
    "CastFailed",
    "ClusterUnreachable",
    "ConfigurationError",
    "DataError",
    "DeviceOutOfMemory",
    "DeviceUnavailable",
    "DivisionByZero",
    "ExecutionError",
    "FallbackForbidden",
    "Frame",
    "HybridqError",
    "NumericOverflow",
    "PlanFormatError",
    "QueryCancelled",
    "RequestError",
    "Session",
    "SqlError",
    "UnknownColumn",
    "UnknownTable",
    "Unsupported",
    "WorkersLost",
    "__version__",
    "col",
    "connect",
    "count",
    "lit",
    "scan",
    "when",
]


def __getattr__(name: str) -> Any:
    # Imported when first used, so that `import hybridq` takes no time and needs none of the libraries behind.
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
