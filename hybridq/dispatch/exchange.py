"""Pieces of splits between workers: each worker's store, what drops entries from it, and what others ask it for.

An entry lives as long as the Dask key that it is named after: when the client releases the key, cancels it or is gone,
Dask tells the worker's plugins so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from hybridq.dispatch.main_memory import main_memory
from hybridq.dispatch.pieces import BUDGET_SHARE, DEFAULT_MEMORY, MEMORY_SHARE, Fetch, PieceStore

CONNECT_SECONDS = 5.0
"""Time in which another worker has to take a connection."""

ANSWER_SECONDS = 60.0
"""Time in which it has to send the pieces of a few entries."""

PLUGIN = "hybridq-pieces"
OPERATION = "hybridq_pieces"


def exchange_of_this_worker() -> tuple[PieceStore, Fetch]:
    """Return the store of the worker that this task runs on, made at the first call, and what asks other workers."""
    from distributed import get_worker
    from distributed.utils import sync

    worker = get_worker()
    plugin: Any = worker.plugins.get(PLUGIN)
    if plugin is None:
        plugin = sync(worker.loop, _install, worker)

    def fetch(address: str, names: Sequence[str], partitions: Sequence[Sequence[int]]) -> list[list[pa.Buffer]]:
        wanted = [list(each) for each in partitions]
        answer: list[list[pa.Buffer]] = sync(worker.loop, _ask, worker, address, list(names), wanted)
        return answer

    return plugin.store, fetch


async def _install(worker: Any) -> Any:
    """Give a worker a store. This runs in its event loop, so two tasks cannot do it at the same time."""
    from distributed.diagnostics.plugin import WorkerPlugin

    known = worker.plugins.get(PLUGIN)
    if known is not None:
        return known
    limit = worker.memory_manager.memory_limit
    memory = int(min(limit * MEMORY_SHARE, main_memory().limit * BUDGET_SHARE)) if limit else DEFAULT_MEMORY

    class PiecePlugin(WorkerPlugin):
        """Holds the store, and drops the entries whose keys Dask lets go."""

        def __init__(self) -> None:
            self.store = PieceStore(Path(worker.local_directory), memory)

        def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
            """Hear of a key's change of state."""
            if finish in ("released", "forgotten") and key in self.store:
                self.store.drop(key)

        def teardown(self, worker: Any) -> None:
            """Leave nothing behind when the worker ends."""
            self.store.close()

    plugin = PiecePlugin()
    main_memory().keeps(lambda: plugin.store.nbytes, plugin.store.make_room)
    worker.plugins[PLUGIN] = plugin

    async def send(names: list[str], partitions: list[list[int]]) -> dict[str, Any]:
        return await _send(plugin.store, names, partitions)

    worker.handlers[OPERATION] = send
    return plugin


async def _send(store: PieceStore, names: list[str], partitions: list[list[int]]) -> dict[str, Any]:
    """Answer another worker."""
    from distributed.protocol.serialize import to_serialize

    serialize: Any = to_serialize
    found, missing = [], []
    for name, wanted in zip(names, partitions, strict=True):
        try:
            found.append(await asyncio.to_thread(store.messages, name, wanted))
        except (KeyError, OSError):
            missing.append(name)
    return {"missing": missing, "pieces": serialize([] if missing else found)}


async def _ask(worker: Any, address: str, names: list[str], partitions: list[list[int]]) -> list[list[pa.Buffer]]:
    from distributed.core import send_recv

    communication = await asyncio.wait_for(worker.rpc.connect(address), CONNECT_SECONDS)
    try:
        answer = await asyncio.wait_for(
            send_recv(communication, op=OPERATION, names=names, partitions=partitions, reply=True), ANSWER_SECONDS
        )
    except BaseException:
        communication.abort()
        raise
    finally:
        worker.rpc.reuse(address, communication)
    if answer is None:  # another process at the same address, which has no store yet
        raise KeyError(*names)
    if answer["missing"]:
        raise KeyError(*answer["missing"])
    pieces: list[list[pa.Buffer]] = answer["pieces"]
    return pieces
