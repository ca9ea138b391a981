"""What a measurement ran on and with."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "hybridq",
    "dask",
    "distributed",
    "pandas",
    "pyarrow",
    "numpy",
    "datafusion",
    "duckdb",
    "polars",
    "pylibcudf-cu13",
    "rmm-cu13",
    "cudf-polars-cu13",
    "tpchgen-cli",
)

ROOT = Path(__file__).parent.parent


def describe() -> dict[str, object]:
    """Return the machine, the versions and the commit."""
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {
        "cpu": cpu_model(),
        "gpus": gpus(),
        "cores": cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
        "commit": commit(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def cpu_model() -> str:
    """Return the processor's name."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def gpus() -> list[dict[str, object]]:
    """Return name, memory in bytes, and driver of each NVIDIA GPU; none where ``nvidia-smi`` finds none."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    found: list[dict[str, object]] = []
    with contextlib.suppress(OSError, subprocess.CalledProcessError, ValueError):
        for line in subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines():
            name, mebibytes, driver = (part.strip() for part in line.split(","))
            found.append({"name": name, "memory_bytes": int(mebibytes) * 2**20, "driver": driver})
    return found


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commit() -> str:
    """Return the commit of the checkout, with a plus sign when files differ from it.

    ``HYBRIDQ_COMMIT`` says it where the files came without their history.
    """
    if given := os.environ.get("HYBRIDQ_COMMIT"):
        return given
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        found = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        return found + ("+" if changed else "")
    return "unknown"


def disk_read_bytes() -> int | None:
    """Return the bytes that the machine has read from disk since it started; ``None`` where it cannot be known."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("pgpgin "):
                return int(line.split()[1]) * 1024
    return None


def reset_peak_memory(pids: list[int]) -> None:
    """Start measuring the processes' peak resident memory anew (Linux)."""
    for pid in pids:
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def evict(folder: Path) -> None:
    """Ask the system to drop a folder's files from the page cache (it may keep them)."""
    for path in folder.rglob("*.parquet"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def peak_memory(pids: list[int]) -> int | None:
    """Return the largest peak resident memory among processes, in bytes; ``None`` where it cannot be known."""
    return max(_status_bytes(pids, "VmHWM"), default=None)


def resident_memory(pids: list[int]) -> int:
    """Return the resident memory of processes together, in bytes."""
    return sum(_status_bytes(pids, "VmRSS"))


def _status_bytes(pids: list[int], key: str) -> list[int]:
    found: list[int] = []
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            found += [int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:")]
    return found
