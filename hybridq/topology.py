"""What a cluster consists of: groups of CPU and GPU workers, read from YAML or a dict and checked strictly.

``hybridq.deploy`` starts what is described here. Nothing in this module talks to Dask.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hybridq.errors import ConfigurationError
from hybridq.security import TlsFiles, tls_files

Kind = Literal["cpu", "gpu"]
EngineName = Literal["cpu", "cuda", "simulated"]

DEFAULT_DEVICE_MEMORY = 2 * 2**30
"""Bytes of a simulated GPU's memory where the description does not say."""

LEAST_MEMORY = 100 * 2**20
"""Bytes of main memory without which a worker process does not start: its libraries alone take tens of MiB."""

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """Worker processes that are alike.

    Attributes
    ----------
    kind : str
        ``cpu`` or ``gpu``.
    engine : str
        ``cpu`` or ``simulated`` (slowed down); for GPU workers ``cuda`` (a real GPU) or ``simulated`` (a stand-in that
        computes on the CPU).
    processes : int or None
        ``None``: as many as the machine has room for (CPU), or one for each GPU found.
    threads : int
        Tasks that one process runs at the same time; also its amount of the Dask resource ``CPU`` or ``GPU``.
    memory : int or None
        Bytes of main memory for each process; ``None``: an equal share of three quarters of the machine's memory.
    device_memory : int or None
        Bytes of device memory that a GPU worker may use.
    speed : float
        Of a simulated device, relative to a thread of a CPU worker that is not simulated; at most 1: it is slowed down
        by sleeping.
    steady : bool
        A simulated device takes a fixed time for each row, whatever the machine does meanwhile.
    """

    kind: Kind
    engine: EngineName
    processes: int | None
    threads: int
    memory: int | None = None
    device_memory: int | None = None
    speed: float = 1.0
    steady: bool = False


@dataclass(frozen=True, slots=True)
class Topology:
    """A whole cluster on one machine.

    Attributes
    ----------
    workers : tuple of WorkerGroup
    host : str
        Address that the scheduler listens on.
    port : int
        0: any free port.
    dashboard : bool
        Serve Dask's dashboard (needs bokeh).
    security : TlsFiles or None
        Makes all connections encrypted and authenticated; ``None``: plain TCP.
    address : str
        Of a scheduler that runs already: nothing is started then.
    """

    workers: tuple[WorkerGroup, ...]
    host: str = "127.0.0.1"
    port: int = 0
    dashboard: bool = False
    security: TlsFiles | None = None
    address: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Topology:
        """Rebuild from what ``to_dict`` returned."""
        security = TlsFiles(**data["security"]) if data.get("security") else None
        groups = tuple(WorkerGroup(**group) for group in data["workers"])
        return cls(**{**data, "workers": groups, "security": security})


MOST_CHARACTERS = 256 * 1024
MOST_BRACKETS = 1000
"""A cluster file with more is refused."""

MOST_GPU_THREADS = 8
"""Threads of a worker that has a GPU, where nothing else is said and there are cores enough."""


def default_topology() -> Topology:
    """Return CPU workers and, where cuDF is installed, a worker for each GPU.

    CPU workers have one thread each on up to four cores, two on more, where sharing build sides saves memory. Threads
    of one process wait for Python's lock: on two cores, two processes of one thread ran TPC-H Q1 and Q6 1.3 times as
    fast as one of two. Without a GPU they take all cores; beside GPUs half of them, for the other half feeds the GPUs.
    A GPU worker has up to eight threads: while one chunk computes, others are read (TPC-H Q3 at scale factor 100 took
    three threads 0.81 s, four 0.74, six 0.65 and eight 0.61, on one H200 and 16 cores).

    >>> default_topology().workers[0].threads in (1, 2)
    True
    """
    cores = available_cores()
    gpus = find_gpus() if has_gpu_packages() else []
    shared = max(cores // 2, 1) if gpus else cores
    threads = cpu_threads(shared)
    groups = [WorkerGroup("cpu", "cpu", shared // threads, threads)]
    if gpus:
        groups.append(WorkerGroup("gpu", "cuda", len(gpus), gpu_threads(cores, len(gpus))))
    return Topology(tuple(groups))


def cpu_threads(cores: int) -> int:
    """Return how many threads a CPU worker process has where nothing else is said."""
    return 1 if cores <= 4 else 2


def gpu_threads(cores: int, gpus: int) -> int:
    """Return how many threads a GPU's worker has where nothing else is said: half of a GPU's share of the cores.

    >>> gpu_threads(16, 1), gpu_threads(32, 2), gpu_threads(8, 1), gpu_threads(2, 1)
    (8, 8, 4, 2)
    """
    return min(max(cores // (2 * gpus), 2), MOST_GPU_THREADS)


def has_gpu_packages() -> bool:
    """Tell whether the GPU engine's packages are installed, without importing them."""
    return importlib.util.find_spec("pylibcudf") is not None


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find_gpus() -> list[str]:
    """Return the names or numbers of the NVIDIA GPUs that this process may use, as the driver lists them."""
    found = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return found
    return [name for name in visible.split(",") if name.strip() not in ("", "-1")] if found else []


def load_topology(source: str | os.PathLike[str] | Mapping[str, Any]) -> Topology:
    """Read a cluster description from a YAML file or a dict.

    Raises
    ------
    ConfigurationError
        The file is missing or no YAML, or a key or value makes no sense; the message names it.
    """
    if isinstance(source, Mapping):
        return _parse(source, "cluster description")
    if not isinstance(source, str | os.PathLike):
        raise ConfigurationError(
            f"a cluster is an address, a cluster file or a description, not {type(source).__name__}"
        )
    path = _resolve(Path(source))
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(f"cluster file {path} is not UTF-8 text") from None
    except OSError as error:
        hint = f" (a scheduler's address begins with tcp://: tcp://{source})" if _is_address(source) else ""
        raise ConfigurationError(f"cannot read cluster file {path}: {error.strerror}{hint}") from None
    return _parse(_parsed_yaml(text, path), f"cluster file {path}", path.parent)


def _parsed_yaml(text: str, path: Path) -> Any:
    """Return the content of a cluster file, which anybody may have written."""
    import yaml

    # The parser's time grows with the square of what is nested, and of what is open in one line.
    if len(text) > MOST_CHARACTERS or text.count("{") + text.count("[") > MOST_BRACKETS:
        raise ConfigurationError(
            f"cluster file {path} is too large: {MOST_CHARACTERS} characters and {MOST_BRACKETS} brackets are read"
        )
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        detail = " ".join(str(error).split())
        raise ConfigurationError(f"cluster file {path} is not valid YAML: {detail}") from None
    except RecursionError:
        raise ConfigurationError(f"cluster file {path} is nested too deeply") from None


def _is_address(source: str | os.PathLike[str]) -> bool:
    """Tell whether a missing file's name is rather HOST:PORT."""
    return re.fullmatch(r"[\w.-]+:\d+", os.fspath(source)) is not None


def _resolve(path: Path) -> Path:
    """Return the file meant by ``cluster/NAME.yaml``: one that exists, else the one that comes with the package."""
    package = Path(__file__).parent
    candidates = [path]
    if not path.is_absolute():
        candidates += [package / path, package.parent / path]
    return next((candidate for candidate in candidates if candidate.is_file()), path)


def _parse(data: Any, where: str, folder: Path | str = ".") -> Topology:
    root = _mapping(data, where, {"scheduler", "workers", "security"})
    keys = {"host", "port", "dashboard", "address"}
    scheduler = _mapping(root.get("scheduler") or {}, f"{where}, scheduler", keys)
    security = None
    if root.get("security") is not None:
        security = tls_files(root["security"], f"{where}, security", folder)
    address = scheduler.get("address", "")
    if not isinstance(address, str) or (address and "://" not in address):
        raise ConfigurationError(f"{where}, scheduler: address must be like tcp://HOST:8786, not {address!r}")
    groups = root.get("workers")
    if address:
        if groups is not None or len(scheduler) > 1:
            raise ConfigurationError(
                f"{where}: a scheduler with an address runs already: nothing else can be described"
            )
        return Topology((), security=security, address=address)
    if not isinstance(groups, list) or not groups:
        raise ConfigurationError(f"{where}: workers must be a list with at least one group")
    topology = Topology(tuple(_group(group, f"{where}, workers[{i}]") for i, group in enumerate(groups)))
    host = scheduler.get("host", topology.host)
    if not isinstance(host, str) or not host:
        raise ConfigurationError(f"{where}, scheduler: host must be a name or an address, not {host!r}")
    dashboard = scheduler.get("dashboard", False)
    if not isinstance(dashboard, bool):
        raise ConfigurationError(f"{where}, scheduler: dashboard must be true or false, not {dashboard!r}")
    port = _integer(scheduler.get("port", 0), f"{where}, scheduler: port", minimum=0, maximum=65535)
    _check_listening(host, port, f"{where}, scheduler")
    return replace(topology, host=host, port=port, dashboard=dashboard, security=security)


def _check_listening(host: str, port: int, where: str) -> None:
    """Check that a scheduler can listen at a place: Dask would say so in its log only, after the cluster has begun.

    Raises
    ------
    ConfigurationError
        There is no such host, it is another machine, or the port is taken.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:  # UnicodeError: no name at all
        detail = error.strerror if isinstance(error, OSError) else "it is no name"
        raise ConfigurationError(
            f"{where}: host {host!r} is not known ({detail}): give an address of this machine, such as 127.0.0.1, or "
            "0.0.0.0 for all of them"
        ) from None
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                problem = f"host {host!r} is no address of this machine: 127.0.0.1 is one, and 0.0.0.0 means all"
            elif error.errno == errno.EADDRINUSE:
                problem = f"port {port} is in use: give another, or 0 for any that is free"
            else:
                problem = f"nothing can listen at host {host!r}, port {port}: {error.strerror}"
            raise ConfigurationError(f"{where}: {problem}") from None


def _group(data: Any, where: str) -> WorkerGroup:
    kind = data.get("kind") if isinstance(data, Mapping) else None
    allowed = {"kind", "engine", "processes", "threads", "memory"}
    if kind == "gpu":
        allowed |= {"device_memory", "speed", "steady"}
    elif isinstance(data, Mapping) and data.get("engine") == "simulated":
        allowed |= {"speed", "steady"}
    group = _mapping(data, where, allowed)
    if kind not in ("cpu", "gpu"):
        raise ConfigurationError(f"{where}: kind must be cpu or gpu, not {kind!r}")
    usual: EngineName = "cuda" if kind == "gpu" else "cpu"
    engine: EngineName = group.get("engine", usual)
    if engine not in (usual, "simulated"):
        raise ConfigurationError(f"{where}: engine must be {usual} or simulated, not {engine!r}")
    threads = group.get("threads", "auto")
    if threads == "auto":
        if engine == "cuda":
            threads = gpu_threads(available_cores(), max(len(find_gpus()), 1))
        else:
            threads = cpu_threads(available_cores()) if kind == "cpu" else 1
    threads = _integer(threads, f"{where}: threads")
    processes = group.get("processes", "auto")
    device_memory = _size(group.get("device_memory", "auto"), f"{where}: device_memory")
    if engine == "simulated" and kind == "gpu":
        device_memory = device_memory or DEFAULT_DEVICE_MEMORY
        processes = 1 if processes == "auto" else processes
    speed = group.get("speed", 1.0)
    if isinstance(speed, bool) or not isinstance(speed, (int, float)) or not 0 < speed <= 1:
        raise ConfigurationError(
            f"{where}: speed must be above 0 and at most 1 (a simulated device computes on the CPU and can only be "
            f"slowed down), not {speed!r}"
        )
    steady = group.get("steady", False)
    if not isinstance(steady, bool):
        raise ConfigurationError(f"{where}: steady must be true or false, not {steady!r}")
    return WorkerGroup(
        kind=kind,
        engine=engine,
        processes=None if processes == "auto" else _integer(processes, f"{where}: processes"),
        threads=threads,
        memory=_main_memory(group.get("memory", "auto"), f"{where}: memory"),
        device_memory=device_memory,
        speed=float(speed),
        steady=steady,
    )


def _mapping(data: Any, where: str, allowed: set[str]) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise ConfigurationError(f"{where}: expected keys {', '.join(sorted(allowed))}, not {data!r}")
    for key in data:
        if key not in allowed:
            raise ConfigurationError(f"{where}: unknown key {key!r}: the keys are {', '.join(sorted(allowed))}")
    return data


def _integer(value: Any, where: str, minimum: int = 1, maximum: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigurationError(f"{where} must be a whole number of at least {minimum}, not {value!r}")
    if maximum is not None and value > maximum:
        raise ConfigurationError(f"{where} must be at most {maximum}, not {value!r}")
    return value


def _main_memory(value: Any, where: str) -> int | None:
    """Read the main memory of a worker, which its process has to fit."""
    size = _size(value, where)
    if size is not None and size < LEAST_MEMORY:
        unit = " (a number alone is bytes)" if isinstance(value, int) else ""
        raise ConfigurationError(
            f"{where} must be at least {LEAST_MEMORY // 2**20}MiB for a worker to start, not {value!r}{unit}"
        )
    return size


def _size(value: Any, where: str) -> int | None:
    """Read bytes from a number, a text such as ``2GiB`` or ``512 MB``, or ``auto``."""
    if value == "auto":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or float(match[1]) <= 0:
        raise ConfigurationError(f"{where} must be auto or a size such as 2GiB, not {value!r}")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** _POWER[match[2].lower()])
