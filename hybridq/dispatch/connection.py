"""A session's connection to a Dask scheduler."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from hybridq.dispatch.devices import RESOURCES, Device, require_devices, slots
from hybridq.dispatch.executor import DaskExecutor, EventRouter, Executor
from hybridq.dispatch.messages import send_promptly
from hybridq.dispatch.roster import Roster, workers_of
from hybridq.errors import ClusterUnreachable, DeviceUnavailable, WorkersLost
from hybridq.placement.calibrate import ClusterMeasurements, EffortName
from hybridq.security import TlsFiles
from hybridq.topology import Kind

if TYPE_CHECKING:
    from hybridq.dispatch.measurements import Measured

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 2.0
"""Seconds that disconnecting may take."""

REFUSED_SECONDS = 1.0
"""Seconds for which an address where nothing listens is tried at first: a scheduler may be starting just now."""

RECONNECT_SECONDS, MOST_RECONNECT_SECONDS, STEADY_SECONDS = 0.1, 2.0, 5.0
"""Before a client connects again it waits so long, twice as long where its last connection was not steady for some
seconds, and at most."""

MEASURE_TIMEOUT = 300.0
"""Seconds after which measuring a worker is given up."""


def preload() -> None:
    """Import Dask now, so that a later ``Connection`` need not wait for it."""
    import distributed  # noqa: F401


def dask_security(files: TlsFiles) -> Any:
    """Return Dask's form of TLS files: each party of a cluster shows the same certificate."""
    from distributed import Security

    make: Any = Security
    parties = {}
    for party in ("client", "scheduler", "worker"):
        parties[f"tls_{party}_cert"], parties[f"tls_{party}_key"] = files.certificate, files.key
    return make(tls_ca_file=files.ca, require_encryption=True, **parties)


class ConnectionProtocol(Protocol):
    """What a session needs of the place where its queries run.

    Attributes
    ----------
    keeps_profiles : bool
        What is measured here is worth keeping for later sessions.
    """

    keeps_profiles: bool

    def devices(self) -> list[Device]:
        """Return the usable devices that are there now."""

    def slots(self) -> dict[Kind, int]:
        """Return how many chunks the devices of each kind work on at the same time."""

    def executor(self, query: str) -> Executor:
        """Return what runs one query's tasks."""

    def forget(self, query: str) -> None:
        """Drop what tasks of a query still report."""

    def measure(self, effort: EffortName) -> ClusterMeasurements:
        """Measure one worker of each kind, and what handing out tasks costs."""

    def close(self) -> None:
        """Disconnect."""


class Connection:
    """Holds the Dask client, the list of devices, and the channel for what tasks report.

    Parameters
    ----------
    address : str
        The scheduler's.
    timeout : float
        Seconds to wait for an answer.
    direct : bool
        Workers' addresses can be reached from here.
    patience : float
        Seconds without a sign of life after which a worker, or the scheduler, is given up.
    security : TlsFiles or None
        For an address that begins with ``tls://``.

    Raises
    ------
    ClusterUnreachable
        Nobody answers, or it is no Dask scheduler.
    DeviceUnavailable
        There is no worker that hybridq can use.
    """

    keeps_profiles = True

    def __init__(
        self, address: str, timeout: float, direct: bool, patience: float = 30.0, security: TlsFiles | None = None
    ) -> None:
        import distributed

        make: Any = distributed.Client
        self.address = address
        check_scheduler(address, timeout, security)
        self._direct = direct
        try:
            self._client: Any = make(
                address, timeout=timeout, set_as_default=False, asynchronous=False, direct_to_workers=direct,
                security=None if security is None else dask_security(security),
            )  # fmt: skip
        except Exception as error:
            detail = " ".join(str(error).split())
            raise ClusterUnreachable(f"no scheduler answered at {address} within {timeout:g} s: {detail}") from error
        send_promptly(getattr(self._client, "scheduler_comm", None))
        connect_again_with_care(self._client)
        try:
            self._roster = Roster(self._client, patience)
            require_devices(self._roster.refresh(), address, len(workers_of(self._client, patience)))
            self._router = EventRouter(self._client, f"hybridq-{uuid.uuid4().hex}")
        except BaseException:
            self.close()
            raise

    def devices(self) -> list[Device]:
        """Return the usable devices that are there now."""
        return self._roster.refresh()

    def slots(self) -> dict[Kind, int]:
        """Return how many chunks the devices of each kind work on at the same time."""
        found = slots(self._roster.refresh(recent=True)) or slots(self.devices())
        if not found:
            raise DeviceUnavailable(f"the cluster at {self.address} has lost all workers that hybridq can use")
        return found

    def executor(self, query: str) -> DaskExecutor:
        """Return what runs one query's tasks."""
        return DaskExecutor(self._client, self._roster, self._router, query, self._direct)

    def forget(self, query: str) -> None:
        """Drop what tasks of a query still report."""
        self._router.close(query)

    def measure(self, effort: EffortName) -> ClusterMeasurements:
        """Measure one worker of each kind, and what handing out tasks costs.

        Raises
        ------
        WorkersLost
            A worker did not answer in time.
        """
        from hybridq.dispatch.measurements import EFFORTS

        start = time.perf_counter()
        workers: dict[Kind, Measured] = {}
        chosen = {device.kind: device for device in reversed(self.devices())}
        groups = [chosen] if EFFORTS[effort].together else [{kind: device} for kind, device in chosen.items()]
        for group in groups:
            workers |= self._measure_workers(group, effort)
        kind: Kind = "cpu" if "cpu" in chosen else "gpu"
        round_trip = min(self._run_empty_tasks(kind, 1) for _ in range(5))
        count = EFFORTS[effort].empty_tasks
        task = self._run_empty_tasks(kind, count) / count
        return ClusterMeasurements(workers, task, round_trip, time.perf_counter() - start, effort)

    def _measure_workers(self, chosen: Mapping[Kind, Device], effort: EffortName) -> dict[Kind, Measured]:
        """Measure one worker of each of some kinds at the same time."""
        from hybridq.dispatch.measurements import measure_worker

        futures = {
            kind: self._client.submit(
                measure_worker, kind, effort, key=f"hybridq_calibrate-{uuid.uuid4().hex}", workers=[device.address],
                resources={RESOURCES[kind]: 1},
            )
            for kind, device in chosen.items()
        }  # fmt: skip
        found: dict[Kind, Measured] = {}
        for kind, future in futures.items():
            try:
                found[kind] = future.result(timeout=MEASURE_TIMEOUT)
            except TimeoutError:
                raise WorkersLost(f"worker {chosen[kind].worker} was not measured in {MEASURE_TIMEOUT:g} s") from None
        return found

    def _run_empty_tasks(self, kind: Kind, count: int) -> float:
        """Return the seconds until the client has heard of so many tasks' ends."""
        import distributed

        name = uuid.uuid4().hex
        start = time.perf_counter()
        futures = [
            self._client.submit(_nothing, number, key=f"hybridq_empty-{name}-{number}", resources={RESOURCES[kind]: 1})
            for number in range(count)
        ]
        wait: Any = distributed.wait
        with self._client.as_current():  # it asks for the default client, and this one is not made that
            wait(futures, timeout=MEASURE_TIMEOUT)
        return time.perf_counter() - start

    def close(self) -> None:
        """Disconnect."""
        try:
            self._client.close(timeout=CLOSE_SECONDS)
        except Exception as error:  # nothing more can be done; a client that failed to connect again ends like this
            logger.info("closing the client: %s: %s", type(error).__name__, error)


def connect_again_with_care(client: Any) -> None:
    """Let a Dask client that has lost its connection wait before it connects again, and again if it is greeted badly.

    A scheduler that has the new connection before it notices that the old one is gone takes the one for the other: it
    closes the new one, the client connects again, and so on. So there is a pause, a longer one if the last connection
    was short.

    What tasks report meanwhile may come together with the scheduler's greeting. The client asserts that it does not,
    and would be connecting for ever after.
    """
    ensure = client._ensure_connected
    pause, since = RECONNECT_SECONDS, time.monotonic()

    async def ensure_connected(timeout: float | None = None) -> None:
        nonlocal pause, since
        steady = time.monotonic() - since >= STEADY_SECONDS
        pause = RECONNECT_SECONDS if steady else min(2 * pause, MOST_RECONNECT_SECONDS)
        await asyncio.sleep(pause)
        try:
            await ensure(timeout=timeout)
        except AssertionError as error:
            raise OSError("the scheduler's greeting did not come alone") from error
        send_promptly(getattr(client, "scheduler_comm", None))  # a new one
        since = time.monotonic()

    client._ensure_connected = ensure_connected


def check_scheduler(address: str, timeout: float, security: TlsFiles | None) -> None:
    """Ask what answers at an address who it is: a Dask client would wait, complain in the background, and not say.

    Raises
    ------
    ClusterUnreachable
        Nobody answers in time, or it is no Dask scheduler.
    """
    from concurrent.futures import ThreadPoolExecutor

    # In a thread of its own: a notebook has a running event loop in this one.
    with ThreadPoolExecutor(1, "hybridq-probe") as pool:
        try:
            kind = pool.submit(
                lambda: asyncio.run(asyncio.wait_for(_kind_of(address, timeout, security), timeout))
            ).result()
        except Exception as error:
            if (nobody := _nobody_there(error)) is not None:
                raise ClusterUnreachable(f"no scheduler answered at {address}: {nobody}") from error
            detail = _why(error)
            raise ClusterUnreachable(f"no scheduler answered at {address} within {timeout:g} s: {detail}") from error
    if kind != "Scheduler":
        raise ClusterUnreachable(f"at {address} is no Dask scheduler, but a {kind.lower()}")


def _nobody_there(error: BaseException) -> str | None:
    """Say why there is nobody to wait for; ``None`` where it is something else that failed."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "nothing listens there (connection refused)"
        if isinstance(cause, socket.gaierror):
            return f"the name of the host is not known ({cause.strerror})"
        cause = cause.__cause__ or cause.__context__
    return None


def _why(error: BaseException) -> str:
    """Say in one line why a connection did not come about."""
    text = " ".join(str(error).split())
    # What another protocol sends is taken for the length of a message, which may be any.
    other = not text or "handshake" in text or isinstance(error, MemoryError)
    return "what listens there does not speak Dask's protocol" if other else text


async def _kind_of(address: str, timeout: float, files: TlsFiles | None) -> str:
    import distributed
    from distributed.comm.core import connect
    from distributed.core import send_recv

    make_security, open_connection, ask = (cast("Any", part) for part in (distributed.Security, connect, send_recv))
    security = make_security() if files is None else dask_security(files)
    arguments = security.get_connection_args("client")
    # It tries again and again, and says only at the end why it did not succeed, which must come before the end of what
    # waits for it. Where nobody listens it is not to take long; a busy machine may need more than one try to find out.
    end, patience = time.monotonic() + 0.75 * timeout, REFUSED_SECONDS
    while True:
        try:
            comm = await open_connection(address, timeout=min(patience, end - time.monotonic()), **arguments)
            break
        except OSError as error:
            if time.monotonic() >= end or _nobody_there(error) is not None:
                raise
            patience *= 2
    try:
        identity = await ask(comm, op="identity")
    finally:
        comm.abort()
    return str(identity.get("type", "something else"))


def _nothing(number: int) -> int:
    """Be a task that does nothing."""
    return number
