"""The public face: connect to a cluster, register data, run queries."""

from __future__ import annotations

import os
import time
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hybridq.answers import Handle, Result
from hybridq.config import Config, HotColumns, cache_folder
from hybridq.errors import ClusterUnreachable, ConfigurationError, ExecutionError, QueryCancelled, RequestError
from hybridq.first_calibration import FirstCalibration, is_wanted
from hybridq.query import Query

if TYPE_CHECKING:
    from hybridq.deploy import LocalCluster
    from hybridq.dispatch.connection import ConnectionProtocol
    from hybridq.dispatch.devices import Device
    from hybridq.placement.placer import Placer
    from hybridq.placement.profile import Profile
    from hybridq.security import TlsFiles


def connect(
    cluster: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    security: Mapping[str, Any] | None = None,
    **options: Any,
) -> Session:
    """Start a cluster on this machine, or attach to one that runs.

    Parameters
    ----------
    cluster : str, path, dict or None
        ``None``: start workers for all cores of this machine. A scheduler's address (``tcp://host:8786``): attach to
        it. A cluster file (``cluster/local.yaml``) or a dict of the same form: start what it describes.
    security : dict, optional
        Paths of PEM files, as ``ca``, ``certificate`` and ``key``: all connections are encrypted, and both ends show
        certificates. A scheduler's address then begins with ``tls://``. A cluster file may have the same.
    **options
        Settings by name (see ``hybridq.config.Config``), such as ``cpu_chunk_rows=500_000``.

    Returns
    -------
    Session
        To be closed, or used as a context manager; a cluster that was started here ends with it.

    Raises
    ------
    ConfigurationError
        An option or the cluster's description makes no sense.
    ClusterUnreachable
        No scheduler answers at the address within ``connect_timeout`` seconds, or the cluster did not start.
    DeviceUnavailable
        The cluster has no worker that hybridq can use; the message tells how to start some.
    """
    from hybridq import deploy
    from hybridq.security import tls_files
    from hybridq.topology import default_topology, find_gpus, has_gpu_packages, load_topology

    config = Config.load(**options)
    files = None if security is None else tls_files(security, "security")
    if isinstance(cluster, str) and "://" in cluster:
        _check_address(cluster, files is not None)
        return Session(cluster, config, security=files)
    topology = default_topology() if cluster is None else load_topology(cluster)
    if files is not None:
        topology = replace(topology, security=files)
    if topology.address:
        _check_address(topology.address, topology.security is not None)
        return Session(topology.address, config, security=topology.security)
    if cluster is None and not has_gpu_packages() and (gpus := find_gpus()):
        warnings.warn(f"GPUs are not used: {len(gpus)} found, but not cuDF: pip install 'hybridq[gpu]'", stacklevel=2)
    local = deploy.start(topology, config.stall_timeout)
    try:
        from hybridq.dispatch import connection

        connection.preload()  # takes half a second, in which the cluster starts
        local.wait_until_ready()
        return Session(local.address, config, local, security=topology.security)
    except BaseException:
        local.close()
        raise


_SCHEMES = frozenset({"tcp", "tls", "ws", "wss", "ucx", "ucxx", "inproc"})
"""What a scheduler's address may begin with."""


def _check_address(address: str, secured: bool) -> None:
    """Check what Dask would only complain of after its timeout."""
    scheme, _, place = address.partition("://")
    if scheme not in _SCHEMES:
        page = " (at http:// is its dashboard)" if scheme in ("http", "https") else ""
        raise ConfigurationError(
            f"{address} is no scheduler's address{page}: one begins with tcp:// or tls://, as in tcp://HOST:8786"
        )
    if scheme in ("tcp", "tls", "ws", "wss") and not place.rpartition(":")[2].isdigit():
        raise ConfigurationError(f"the address {address} has no port: a scheduler's is {scheme}://HOST:8786, say")
    if scheme in ("tls", "wss") and not secured:
        raise ConfigurationError(f"connecting to {address} needs certificates: give security={{ca, certificate, key}}")
    if scheme in ("tcp", "ws") and secured:
        raise ConfigurationError(
            f"{address} is not encrypted, and security is asked for: use tls:// in place of tcp://"
        )


class Session:
    """A connection to a cluster, and the tables registered with it. Made by ``connect``.

    Attributes
    ----------
    address : str
        Address of the scheduler.
    config : Config
    """

    def __init__(
        self,
        address: str,
        config: Config,
        cluster: LocalCluster | None = None,
        connection: ConnectionProtocol | None = None,
        security: TlsFiles | None = None,
    ) -> None:
        from hybridq.catalog import Catalog
        from hybridq.kept_plans import KeptPlans

        self.address = address
        if connection is None:
            from hybridq.dispatch.connection import Connection

            connection = Connection(
                address, config.connect_timeout, cluster is not None, config.stall_timeout, security
            )
        devices = connection.devices()
        self.config = config.suited_to(
            min((device.memory for device in devices if device.kind == "cpu"), default=0),
            min((device.device_memory or 0 for device in devices if device.kind == "gpu"), default=0),
        )
        self._connection = connection
        self._catalog = Catalog()
        self._plans = KeptPlans(config.kept_plans)
        self._hot: HotColumns | None = None
        self._placer: Placer | None = None
        self._learnt: list[Placer] = []
        self._calibration = FirstCalibration()
        # Also when the session is forgotten, and at the interpreter's end.
        self._finalizer = weakref.finalize(self, _close, self._connection, cluster, self._learnt)
        if is_wanted(connection, config) and not self._know().profile.measured:
            self._calibration.begin(connection, self._know())

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        tables = f"tables: {', '.join(self._catalog.schemas()) or 'none'}"
        if self._catalog.unreadable:
            tables += f", cannot be read: {', '.join(self._catalog.unreadable)}"
        return f"<Session {self.address} {state}, {tables}>"

    def close(self) -> None:
        """Disconnect; stop the cluster if this session started it. It may be called again; nothing else may."""
        self._finalizer()

    @property
    def closed(self) -> bool:
        """Tell whether the session has been closed, or is just being closed."""
        return not self._finalizer.alive

    def _check_open(self) -> None:
        if self.closed:
            raise ExecutionError("the session is closed")

    # --- data ------------------------------------------------------------------------------------------------------

    def register(self, name: str, source: Any) -> None:
        """Make data known as a table.

        Parameters
        ----------
        name : str
            What queries call it.
        source : str, path, list, pyarrow.Table or pandas.DataFrame
            A Parquet file, a folder of them, a glob, a list of files, an fsspec URL, or a table in memory. Workers must
            see files under the same paths. Keys of folders ``key=value`` below that place are columns as well, after
            those of the files: int64, date32 or string (``hybridq.partitioning``).

        Raises
        ------
        DataError
            The data is missing, is not Parquet, or its files have different schemas or keys.
        """
        self._check_open()
        self._catalog.register(name, source)

    def register_folder(self, directory: str | os.PathLike[str], follow_links: bool = False) -> tuple[str, ...]:
        """Register each ``NAME.parquet`` and each folder ``NAME/`` of Parquet files as table NAME; return the names.

        Parameters
        ----------
        directory : str or os.PathLike
        follow_links : bool
            Links may lead out of the folder; otherwise one that does is an error.

        Raises
        ------
        DataError
            The folder does not exist or has no table, none of its tables can be read, or a link leads out of it. One
            that cannot be read beside others is an error of the queries that ask for it.
        """
        self._check_open()
        return self._catalog.register_folder(directory, follow_links)

    def cache(
        self, table: str, columns: Sequence[str] | None = None, device: str = "gpu", limit: int | None = None
    ) -> None:
        """Keep columns decoded on the GPUs from query to query: the first query that reads them puts them there.

        Within the limit those used longest ago make way, as they do for a chunk that needs the memory. Each GPU worker
        keeps what it has read itself. Another call for the same table replaces its columns.

        Parameters
        ----------
        table : str
            A registered table of local Parquet files.
        columns : sequence of str, optional
            By default all columns; an empty list gives the table's up.
        device : str
            ``gpu``.
        limit : int, optional
            Bytes that all cached columns may take on each GPU; by default what was given before, or else half of the
            device's memory.

        Raises
        ------
        UnknownTable, UnknownColumn
            There is no such table or column.
        RequestError
            The device is no GPU, the limit is not positive, or the table is in memory or remote.
        """
        from hybridq.caching import with_columns

        self._check_open()
        self._hot = with_columns(self._hot, self._catalog.table(table), columns, device, limit)

    def devices(self) -> list[Device]:
        """Return the devices that the cluster has now."""
        self._check_open()
        return self._connection.devices()

    def calibrate(self, quick: bool = False) -> Profile:
        """Measure one worker of each kind of device, and keep the result for this and later sessions.

        Parameters
        ----------
        quick : bool
            Fewer sizes, and one codec: seconds instead of most of a minute.

        Returns
        -------
        Profile
            Kept in the user's cache folder, by hosts, devices and library versions.

        Raises
        ------
        WorkersLost
            A worker did not answer.
        ExecutionError
            The profile cannot be written.
        """
        self._check_open()
        self._calibration.wait()
        devices = self._connection.devices()
        try:
            return self._know().calibrate(self._connection.measure("quick" if quick else "full"), devices)
        except OSError as error:
            raise ExecutionError(f"cannot keep the profile: {error}") from error

    def _know(self) -> Placer:
        """Return what is known of the cluster's speed, read at the first use."""
        if self._placer is None:
            from hybridq.placement.calibrate import ProfileStore
            from hybridq.placement.placer import Placer

            store = ProfileStore(cache_folder() / "profiles") if self._connection.keeps_profiles else None
            self._placer = Placer(self._connection.devices(), store)
            self._learnt.append(self._placer)
        return self._placer

    # --- queries ---------------------------------------------------------------------------------------------------

    def sql(self, text: str) -> Query:
        """Plan a SQL query; it runs when it is collected or submitted.

        Raises
        ------
        SqlError, UnknownTable, UnknownColumn, AmbiguousColumn, Unsupported
            The text cannot be planned.
        RequestError
            It is no text.
        """
        if not isinstance(text, str):
            raise RequestError(f"sql takes text, not {type(text).__name__}; hybridq.scan(...) goes to query()")
        return self._planned(text, text, time.perf_counter())

    def substrait(self, plan: str | os.PathLike[str] | bytes | Mapping[str, Any]) -> Query:
        """Take a Substrait plan: a file (JSON or binary), or its content as bytes or a dict.

        Raises
        ------
        PlanFormatError
            It is not Substrait.
        UnknownTable, UnknownColumn, Unsupported
            It cannot be planned.
        """
        from hybridq.frontend.substrait import load_substrait

        start = time.perf_counter()
        text = "substrait"
        if isinstance(plan, (str, os.PathLike)):
            text = os.fspath(plan)
            plan = load_substrait(text)
        return self._planned(plan, text, start)

    def query(self, frame: Any) -> Query:
        """Take a query made with the builder (``hybridq.scan(...)``)."""
        if not hasattr(frame, "to_plan"):
            raise RequestError(
                f"query takes what hybridq.scan(...) makes, not {type(frame).__name__}; SQL goes to sql()"
            )
        return self._planned(frame, "builder", time.perf_counter())

    def _planned(self, source: Any, text: str, start: float) -> Query:
        from hybridq.planning import logical_plan, physical_plan
        from hybridq.recursion import recursion_of

        self._check_open()
        # Of the tables as they are now: what is registered while the query is planned, or runs, does not change it.
        catalog = self._catalog.snapshot()
        version = catalog.version
        kept = self._plans.find(source, catalog) if isinstance(source, str) else None
        if kept is not None:
            return Query(self, *kept, text, start, catalog, source=source, version=version)
        recursion = recursion_of(source, catalog) if isinstance(source, str) else None
        if recursion is not None:
            catalog = recursion.catalog
        plan = logical_plan(source if recursion is None else recursion.parts.rest, catalog)
        physical = physical_plan(plan, catalog, self.config)
        if recursion is None and isinstance(source, str):
            self._plans.keep(source, version, plan, physical)
        return Query(self, plan, physical, text, start, catalog, recursion, source, version)


def _close(connection: Any, cluster: LocalCluster | None, learnt: Sequence[Placer]) -> None:
    try:
        for placer in learnt:
            placer.save()
        connection.close()
    finally:
        if cluster is not None:
            cluster.close()


__all__ = [
    "ClusterUnreachable",
    "ConfigurationError",
    "Handle",
    "Query",
    "QueryCancelled",
    "Result",
    "Session",
    "connect",
]
