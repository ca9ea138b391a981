"""Which worker gets a chunk that reads earlier stages' outputs.

Dask gives such a task to a worker that has what it reads, and lets the others idle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hybridq.dispatch.devices import Device

MOST_NAMED = 8
"""Workers up to which each chunk is given to one of them, which then asks for what it reads. To more of them that is
copied first, for each that has it passes it on."""


def least_busy(devices: Sequence[Device], busy: Mapping[str, int], home: str) -> str:
    """Return the address of the worker to get the next chunk, among few; an empty text: Dask may choose.

    Parameters
    ----------
    devices : sequence of Device
        Those of the chunk's kind.
    busy : mapping of str to int
        Chunks that each worker has, by address.
    home : str
        Address of the worker that has what the chunk reads: the first of those that have least to do.
    """
    able = [device for device in devices if not device.paused]
    if not 2 <= len(able) <= MOST_NAMED:
        return ""
    return min(able, key=lambda each: (busy.get(each.address, 0) / each.threads, each.address != home)).address
