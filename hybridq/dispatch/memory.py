"""What happens to a chunk that does not fit into memory, and how large a GPU chunk may be in the first place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from hybridq.dispatch.device_rows import Rows
from hybridq.dispatch.devices import Device
from hybridq.dispatch.main_memory import MainMemory
from hybridq.engines.account import DeviceAccount
from hybridq.errors import DeviceOutOfMemory, ExecutionError, ResultTooLarge
from hybridq.physical.chunks import Chunk
from hybridq.physical.merges import FinishWindow
from hybridq.physical.pipeline import CarriedWindowStep, CondenseStep, GroupStep, Stage, WindowStep
from hybridq.topology import Kind

FOOTPRINT_FACTOR = 3.0
"""A chunk's peak footprint on a device over the decoded bytes of the columns that it reads, as an estimate."""

PIECES_FACTOR = 4.0
"""The same in a worker's main memory where all rows are put in order and kept, as measured with texts among them."""

GROUPS_FACTOR = 4.5
"""The same where groups are merged, as measured with rows of two short texts and a number."""

LISTS_FACTOR = 6.0
"""The same where lists of values are merged that are counted or put in order, as measured: 5.2 to 5.7."""

MERGE_FACTOR = 2.0
"""A merge's peak in main memory over the bytes of what it merges, as an estimate."""

BUILD_FACTOR = 2.0
"""A build side's bytes on a device, hash table included, over those of its Arrow table, as an estimate."""

RANGE_SHARE = 1 / 32
"""Share of a CPU worker's memory that a range of sorted rows may take: beside it are what it is merged from, pieces,
and ranges that wait to be handed over."""

WAITING_SHARE = 1 / 8
"""Share of the workers' memory that results may take that are being made or wait to be handed over."""

CHUNK_SHARE = 0.6
"""Share of a CPU worker's memory that the chunks of its threads are planned to fill together."""

DEVICE_SHARE = 0.9
"""Share of a device's memory that chunks are planned to fill."""

DEVICE_CHUNKS = 3
"""Chunks that a device has memory for at once, at least: with more threads the others wait where memory is short, for
few large chunks take less time than many small ones."""

SMALL_BYTES = 16 * 1024
"""Bytes that are not worth saving."""

SMALL_ANSWER_BYTES = 64 * 1024
"""Bytes that a process always has room for: asking the system how much there is takes longer than most of it needs."""

GIVE_UP_AFTER = 3
"""Chunks of one unit that did not fit a device, none having fitted, after which the stage sends it no more."""


WINDOW_FACTOR = 7
"""Peak memory of window functions over the bytes of their input, as measured with up to three over 3 million rows."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do with a chunk that did not fit.

    Attributes
    ----------
    action : str
        ``halve``, ``move`` (to the other kind of device) or ``fail``.
    """

    action: Literal["halve", "move", "fail"]


def remedy(kind: Kind, section: str, can_halve: bool, cpu_there: bool) -> Remedy:
    """Choose what to do with a chunk that ran out of memory.

    Parameters
    ----------
    kind : str
        Where it ran.
    section : str
        What it was doing: a build side that is shared by all chunks does not get smaller by halving one of them.
    can_halve : bool
        It has more than one unit.
    cpu_there : bool
        The cluster has a CPU worker.
    """
    if can_halve and not (kind == "gpu" and section == "build" and cpu_there):
        return Remedy("halve")
    if kind == "gpu" and cpu_there:
        return Remedy("move")
    return Remedy("fail")


def _room(device: Device) -> float:
    """Return the bytes that shares of a worker's memory are of: not all where the process itself needs much of them."""
    return min(device.memory, device.budget / CHUNK_SHARE) if device.budget else device.memory


def range_bytes(devices: Iterable[Device]) -> int | None:
    """Return the bytes that a range of sorted rows may have; ``None`` where no limit is known."""
    limits = [_room(device) / device.threads for device in devices if device.memory]
    return int(min(limits) * RANGE_SHARE) if limits else None


def waiting_bytes(devices: Iterable[Device]) -> int | None:
    """Return the bytes of results that may be waiting to be handed over; ``None`` where no limit is known."""
    limits = [_room(device) for device in devices if device.memory]
    return int(sum(limits) * WAITING_SHARE) if limits else None


def check_window(stage: Stage, size: int, devices: Iterable[Device]) -> None:
    """Check that one worker can hold all rows of a stage that has window functions.

    Parameters
    ----------
    stage : Stage
    size : int
        Bytes of its partial results together.
    devices : iterable of Device
        The workers that may get them.

    Raises
    ------
    ExecutionError
        It cannot: it would be killed on the way.
    """
    limits = [device.memory for device in devices if device.memory]
    if not limits or not any(isinstance(step, FinishWindow) for step in stage.finish):
        return
    needed = size * WINDOW_FACTOR
    if needed > min(limits):
        raise ExecutionError(
            f"stage {stage.id} ({stage.title}): window functions need all {size / 2**20:.0f} MiB of their input on one"
            f" worker, about {needed / 2**20:.0f} MiB with what they compute, one has {min(limits) / 2**20:.0f} MiB:"
            " filter or aggregate first, select fewer columns, or start workers with more memory"
        )


def check_answer(rows: int, size: int, limit: int) -> None:
    """Check that the client can hold an answer before it is sent.

    Parameters
    ----------
    rows, size : int
        Of the answer; bytes.
    limit : int
        Bytes that it may have; 0: as much as this process can still get.

    Raises
    ------
    ResultTooLarge
        It cannot.
    """
    if not limit:
        if size <= SMALL_ANSWER_BYTES:
            return
        from distributed.system import MEMORY_LIMIT
        from psutil import Process, virtual_memory

        limit = max(min(virtual_memory().available, MEMORY_LIMIT - Process().memory_info().rss), 0)
    if size > limit:
        raise ResultTooLarge(
            f"the answer of {rows:,} rows takes {size:,} bytes, and the client may hold {limit:,}: select fewer rows "
            "or columns, aggregate, add LIMIT, or raise result_bytes (HYBRIDQ_RESULT_BYTES) if there is memory for it",
            size,
            limit,
        )


def compact(table: pa.Table) -> pa.Table:
    """Return the same rows in buffers of their own, where the table is a small part of what it holds in memory.

    A slice keeps all of its parent's buffers alive, and pickles them all.
    """
    if table.get_total_buffer_size() <= 2 * table.nbytes + SMALL_BYTES:
        return table
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def footprint(chunk: Chunk, factor: float = FOOTPRINT_FACTOR) -> int:
    """Return the bytes of device memory that a chunk is expected to need, besides what is kept from chunk to chunk.

    Of a chunk in rounds it is what the largest of them needs, and what the others may leave.
    """
    largest = max((each.decoded_bytes for each in chunk.rounds), default=chunk.decoded_bytes)
    return int(largest * factor + max(chunk.decoded_bytes - largest, 0))


def host_footprint(chunk: Chunk, tables: Iterable[Any], on_device: bool, factor: float = FOOTPRINT_FACTOR) -> int:
    """Return the bytes of a worker's main memory that a chunk is expected to need.

    Parameters
    ----------
    chunk : Chunk
    tables : iterable of pyarrow.Table
        What it reads besides files.
    on_device : bool
        A real GPU computes; main memory only holds what files have on its way there.
    factor : float
        ``factor_of`` its stage.
    """
    given = sum(int(table.nbytes) for table in tables if isinstance(table, pa.Table))
    return given + (chunk.bytes if on_device else footprint(chunk, factor))


def has_windows(stage: Stage) -> bool:
    """Tell whether chunks of a stage compute window functions."""
    kinds = WindowStep | CondenseStep | CarriedWindowStep
    return any(isinstance(step, kinds) for branch in stage.branches for step in branch.pipeline.steps)


def merges_lists(stage: Stage) -> bool:
    """Tell whether chunks of a stage merge lists of the values of groups, each of which has to be there as a whole."""
    merges = (step.merge for step in _group_steps(stage))
    return any(pa.types.is_list(call.type) for merge in merges for call in merge.aggregates)


def _group_steps(stage: Stage) -> list[GroupStep]:
    steps = (step for branch in stage.branches for step in branch.pipeline.steps)
    return [step for step in steps if isinstance(step, GroupStep)]


def factor_of(stage: Stage) -> float:
    """Return a chunk's peak footprint over the decoded bytes of what it reads, as an estimate."""
    if has_windows(stage):
        return WINDOW_FACTOR
    if merges_lists(stage):
        return LISTS_FACTOR
    if _group_steps(stage):
        return GROUPS_FACTOR
    return PIECES_FACTOR if stage.keeps_pieces else FOOTPRINT_FACTOR


def check_chunk(host: MainMemory, chunk: Chunk) -> None:
    """Check that a worker can hold a chunk's columns at all.

    Raises
    ------
    DeviceOutOfMemory
        It cannot; half of the chunk may fit.
    """
    if chunk.decoded_bytes > host.memory_limit:
        raise DeviceOutOfMemory(
            f"the chunk's columns take {chunk.decoded_bytes} bytes, and the worker may use {host.memory_limit}, of "
            f"which {max(host.memory_limit - host.used, 0)} are free: {host.remedy}; one row group is the least that "
            "a chunk can have",
            chunk.decoded_bytes,
            max(host.memory_limit - host.used, 0),
        )


def check_build(account: DeviceAccount | None, table: Rows) -> None:
    """Check that a build side made of rows can stay on the device and leave room for chunks.

    Raises
    ------
    DeviceOutOfMemory
        It cannot; halving chunks would not help.
    """
    wanted = int(table.nbytes * BUILD_FACTOR)
    if account is not None and wanted > account.limit:
        raise DeviceOutOfMemory(
            f"the build side of {table.num_rows} rows is expected to need {wanted} bytes on the GPU, which may use "
            f"{account.limit}",
            wanted,
            account.limit,
        )


def tightest(devices: Iterable[Device]) -> list[Device]:
    """Return of each kind the device that has the least memory for a chunk, of those with a known limit.

    That is what ``rows_that_fit`` looks for, which is asked for each chunk, and there may be a thousand devices.
    """
    found: dict[Kind, Device] = {}
    for device in devices:
        share = memory_for_a_chunk(device)
        known = found.get(device.kind)
        if share and (known is None or share < memory_for_a_chunk(known)):
            found[device.kind] = device
    return list(found.values())


def memory_for_a_chunk(device: Device) -> float:
    """Return the bytes that each of the chunks that a device works on may take; 0: no limit is known."""
    if device.kind == "gpu":
        return (device.device_memory or 0) / min(device.threads, DEVICE_CHUNKS)
    return int(_room(device) * CHUNK_SHARE) / device.threads


def rows_that_fit(
    devices: Iterable[Device], bytes_per_row: float, kind: Kind = "gpu", factor: float = FOOTPRINT_FACTOR
) -> int | None:
    """Return the rows of a chunk whose estimated footprint fits the smallest device of a kind.

    ``None`` where no limit is known. A CPU worker's device is its own main memory. ``factor`` is that of
    the stage (``factor_of``).
    """
    limits = [share for device in devices if device.kind == kind and (share := memory_for_a_chunk(device))]
    if not limits or bytes_per_row <= 0:
        return None
    return max(int(min(limits) * DEVICE_SHARE / (bytes_per_row * factor)), 1)
