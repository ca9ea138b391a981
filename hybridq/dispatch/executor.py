"""The driver's view of a cluster: submit a task, forget it, hear when it is done. Behind it is Dask's client.

The driver's logic is in ``hybridq.dispatch.driver`` and knows nothing of Dask; its unit tests put a fake in this place.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from hybridq.dispatch.asking import tell
from hybridq.dispatch.devices import RESOURCES, Device
from hybridq.dispatch.memory import compact
from hybridq.dispatch.roster import Roster
from hybridq.dispatch.tasks import ChunkTask, MergeTask, merge_parts, read_ahead, run_chunk
from hybridq.errors import ClusterUnreachable, HybridqError, QueryCancelled, WorkersLost
from hybridq.topology import Kind

logger = logging.getLogger(__name__)

SHARE_TIMEOUT = 30.0
"""Seconds after which a query goes on without having copied build sides to all workers."""

SCATTER_SECONDS = 120.0
"""Seconds that handing a table over to a worker may take."""

CANCEL_SECONDS = 5.0
"""Seconds that the scheduler may take to confirm that tasks are given up."""

RELEASED_AGAIN_SECONDS = (5.0, 20.0, 60.0)
"""Seconds after which the scheduler has made all tasks that it was sent before a connection was lost: the first as a
rule, the others where the machine has far more to do than it can."""

FETCH_POLL_SECONDS = 0.5
"""How often, while a value is fetched, it is looked after the workers, and whether somebody wants to stop."""

MANY_WORKERS, CHOICE = 64, 8
"""Workers of a kind past which Dask chooses among a few for each task, and how many."""

INLINE_BYTES = 64 * 1024
"""A table up to this size travels inside its task; a larger one is handed to the workers first."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A task has a value."""

    key: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A task raised an error, or its workers died."""

    key: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class Vanished:
    """The scheduler no longer knows a task that it was given."""

    key: str


@dataclass(frozen=True, slots=True)
class Event:
    """What a task reported about itself."""

    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody wants the query to stop."""


Message = Finished | Failed | Vanished | Event | CancelRequested


class Executor(Protocol):
    """What the driver needs of a cluster."""

    messages: queue.SimpleQueue[Message]
    topic: str

    def devices(self) -> list[Device]:
        """Return the usable devices that are there now."""

    def run_chunk(
        self,
        task: ChunkTask,
        memory: Sequence[pa.Table],
        inputs: Sequence[str],
        kind: Kind,
        priority: int,
        worker: str = "",
    ) -> None:
        """Start a chunk on a device of a kind: on a certain worker if it is there.

        ``inputs`` are keys of earlier tasks.
        """

    def read_ahead(self, task: ChunkTask, kind: Kind, priority: int) -> None:
        """Start to read what a chunk will need, on some device of a kind."""

    def merge(self, task: MergeTask, parts: Sequence[str], kind: Kind, priority: int) -> None:
        """Start a merge of earlier tasks' values."""

    def share(self, keys: Sequence[str], devices: Sequence[Device]) -> None:
        """Copy earlier tasks' values to devices, so that any of them is as near as another to work that needs them."""

    def fetch(self, key: str, stop: Callable[[], bool] = lambda: False) -> pa.Table:
        """Return a task's value; raise ``QueryCancelled`` once ``stop`` says so."""

    def release(self, keys: Sequence[str]) -> None:
        """Forget values that are no longer needed."""

    def cancel(self, keys: Sequence[str]) -> None:
        """Give tasks up, whatever state they are in."""


class EventRouter:
    """Passes the events of a session's tasks to the query that each belongs to.

    Parameters
    ----------
    client : distributed.Client
    topic : str
        Dask topic of the session.
    """

    def __init__(self, client: Any, topic: str) -> None:
        self.topic = topic
        self._queues: dict[str, queue.SimpleQueue[Message]] = {}
        self._lock = threading.Lock()
        client.subscribe_topic(topic, self._receive)

    def open(self, query: str) -> queue.SimpleQueue[Message]:
        """Return the queue that a query's events will go to."""
        with self._lock:
            return self._queues.setdefault(query, queue.SimpleQueue())

    def close(self, query: str) -> None:
        """Drop what still comes for a query."""
        with self._lock:
            self._queues.pop(query, None)

    def _receive(self, event: tuple[float, Mapping[str, Any]]) -> None:
        _, content = event
        with self._lock:
            target = self._queues.get(content.get("query", ""))
        if target is not None:
            target.put(Event(content))


class DaskExecutor:
    """Runs one query's tasks through a Dask client.

    Parameters
    ----------
    client : distributed.Client
    roster : Roster
    router : EventRouter
    query : str
    direct : bool
        The client can reach workers' addresses, so large tables need not pass through the scheduler.
    """

    def __init__(self, client: Any, roster: Roster, router: EventRouter, query: str, direct: bool) -> None:
        self._client = client
        self._roster = roster
        self._direct = direct
        self._futures: dict[str, Any] = {}
        self._scattered: dict[str, list[Any]] = {}
        self._addresses: dict[Kind, list[str]] = {}
        self._turn = 0
        self.topic = router.topic
        self.messages = router.open(query)

    def devices(self) -> list[Device]:
        """Return the usable devices that are there now; one that has just joined may come a little later."""
        found = self._roster.refresh(wait=False)
        self._addresses = {kind: [each.address for each in found if each.kind == kind] for kind in RESOURCES}
        return found

    def run_chunk(
        self,
        task: ChunkTask,
        memory: Sequence[pa.Table],
        inputs: Sequence[str],
        kind: Kind,
        priority: int,
        worker: str = "",
    ) -> None:
        """Start a chunk on a device of a kind: on a certain worker if it is there."""
        tables = [self._handed_over(task.key, table) for table in memory]
        tables += [self._input(key) for key in inputs]
        workers = [worker] if worker else self._some_workers(kind)
        self._submit(run_chunk, task.key, [task, *tables], kind, priority, workers)

    def read_ahead(self, task: ChunkTask, kind: Kind, priority: int) -> None:
        """Start to read what a chunk will need, on some device of a kind."""
        self._submit(read_ahead, task.key, [task], kind, priority)

    def merge(self, task: MergeTask, parts: Sequence[str], kind: Kind, priority: int) -> None:
        """Start a merge of earlier tasks' values."""
        self._submit(merge_parts, task.key, [task, *(self._input(key) for key in parts)], kind, priority)

    def share(self, keys: Sequence[str], devices: Sequence[Device]) -> None:
        """Copy earlier tasks' values to devices.

        Left to itself, Dask gives tasks to the worker that already has their inputs, and lets the others idle.
        """
        addresses = {device.address for device in devices}
        if len(addresses) < 2:
            return
        futures = [self._futures[key] for key in keys]
        try:
            self._client.replicate(futures, workers=list(addresses), callback_timeout=SHARE_TIMEOUT)
        except Exception as error:  # a worker has died meanwhile, say; the tasks find their inputs without this, later
            logger.info("could not copy %s to %d workers: %r", ", ".join(keys), len(addresses), error)

    def _input(self, key: str) -> Any:
        """Return an earlier task's future.

        Raises
        ------
        ClusterUnreachable
            Its value is not the client's any more, which has lost its connection since.
        """
        future = self._futures[key]
        if future.cancelled():
            raise ClusterUnreachable(
                "the connection to the scheduler was lost for a while, and with it results that the query needs: run it"
                " again"
            )
        return future

    def _some_workers(self, kind: Kind) -> list[str] | None:
        """Return a few workers of which one is to run the next task, in turns; ``None``: any may.

        Dask looks at each worker that might run a task, which with a thousand of them takes longer than all else.
        """
        addresses = self._addresses.get(kind, [])
        if len(addresses) <= MANY_WORKERS:
            return None
        # Far apart, so that not all are of one host: if all were gone, Dask would take one of whatever kind.
        self._turn += 1
        return [addresses[(self._turn + place * len(addresses) // CHOICE) % len(addresses)] for place in range(CHOICE)]

    def _submit(
        self,
        function: Any,
        key: str,
        arguments: list[Any],
        kind: Kind,
        priority: int,
        workers: list[str] | None = None,
    ) -> None:
        # Where one of these workers is gone, any other will do.
        choice: dict[str, Any] = {} if workers is None else {"workers": workers, "allow_other_workers": True}
        future = self._client.submit(
            function, *arguments, key=key, pure=False, resources={RESOURCES[kind]: 1}, priority=priority, **choice
        )
        self._futures[key] = future
        future.add_done_callback(lambda done: self._done(key, done))

    def _handed_over(self, key: str, table: pa.Table) -> Any:
        if table.nbytes <= INLINE_BYTES:
            return compact(table)
        try:
            future = self._client.sync(
                self._client._scatter, table, direct=self._direct, hash=False, callback_timeout=SCATTER_SECONDS
            )
        except TimeoutError:
            raise WorkersLost(f"no worker took a table of {table.nbytes} bytes within {SCATTER_SECONDS:g} s") from None
        except OSError as error:
            raise WorkersLost(f"no worker took a table of {table.nbytes} bytes: {error}") from error
        self._scattered.setdefault(key, []).append(future)
        return future

    def _done(self, key: str, future: Any) -> None:
        status = future.status
        if status == "error":
            self.messages.put(_failure(key, future.exception()))
        elif status == "cancelled":
            self.messages.put(Vanished(key))
        else:
            self.messages.put(Finished(key))

    def fetch(self, key: str, stop: Callable[[], bool] = lambda: False) -> pa.Table:
        """Return a task's value, however often workers that have it are lost.

        Raises
        ------
        QueryCancelled
            ``stop`` says so.
        ClusterUnreachable
            The scheduler, or the connection to it, is lost.
        """
        while True:
            given_up = self._roster.given_up
            pending = asyncio.run_coroutine_threadsafe(
                self._client._gather(self._futures[key], direct=self._direct), self._client.loop.asyncio_loop
            )
            try:
                # A worker that is given up may keep its connection open without ever answering.
                while self._roster.given_up <= given_up:
                    if stop():
                        raise QueryCancelled("the query was cancelled")
                    done, _ = concurrent.futures.wait([pending], FETCH_POLL_SECONDS)
                    if done:
                        break
                    self._roster.refresh(wait=False)
                else:
                    continue
                return pending.result()
            except (OSError, concurrent.futures.CancelledError, asyncio.CancelledError) as error:
                self._roster.refresh(wait=False)  # raises if the scheduler is gone
                if self._futures[key].cancelled():
                    raise ClusterUnreachable(
                        "the connection to the scheduler was lost, and a result with it"
                    ) from error
                logger.info("fetching %s once more: %r", key, error)
            except HybridqError:
                raise
            except Exception as error:  # it was lost, computed again, and that failed
                failure = _failure(key, error)
                raise failure.error if isinstance(failure, Failed) else error from error
            finally:
                pending.cancel()

    def release(self, keys: Sequence[str]) -> None:
        """Forget values that are no longer needed."""
        for key in keys:
            future = self._futures.pop(key, None)
            if future is not None:
                self._let_go(future, key)
            for table in self._scattered.pop(key, ()):
                self._let_go(table, table.key)

    def _let_go(self, future: Any, key: str) -> None:
        """Release a future, and tell the scheduler if the client has forgotten it, as what it lost with its connection.

        A scheduler that has not noticed that the connection was lost keeps what was wanted through it as wanted by the
        client, and does not know of what the client wants any more. So the client wants it once more, and then no more;
        and again later, for a task that was on its way to the scheduler is made after all of this.
        """
        if future.cancelled():
            loop = self._client.loop
            self._want_no_more(key)
            for seconds in RELEASED_AGAIN_SECONDS:
                loop.add_callback(loop.call_later, seconds, self._want_no_more, key)
        future.release()

    def _want_no_more(self, key: str) -> None:
        with contextlib.suppress(Exception):  # a client that has ended is told so elsewhere
            for operation in ("client-desires-keys", "client-releases-keys"):
                self._client._send_to_scheduler({"op": operation, "keys": [key], "client": self._client.id})

    def cancel(self, keys: Sequence[str]) -> None:
        """Give tasks up, whatever state they are in."""
        futures = [self._futures[key] for key in keys if key in self._futures]
        futures += [table for key in keys for table in self._scattered.get(key, ())]
        if futures:
            tell(self._client, self._client._cancel, futures, force=True, timeout=CANCEL_SECONDS)
        self.release(keys)


def _failure(key: str, error: BaseException) -> Message:
    """Tell apart errors that a task raised from those that Dask has about it."""
    from concurrent.futures import CancelledError

    from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError

    if isinstance(error, KilledWorker):
        deaths = error.allowed_failures + 1
        remedy = "if for want of memory, start workers with more (memory: in the cluster file) or lower cpu_chunk_rows"
        return Failed(key, WorkersLost(f"{deaths} workers died one after the other while they ran it; {remedy}"))
    if isinstance(error, (NoValidWorkerError, NoWorkerError)):
        return Failed(key, WorkersLost("no worker of the kind that it needs was there for too long"))
    return Vanished(key) if isinstance(error, CancelledError) else Failed(key, error)
