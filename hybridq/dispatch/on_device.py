"""What waits on a device for somebody to use it, and gives way when the memory is needed."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Generic, Protocol, TypeVar

logger = logging.getLogger(__name__)


class GivesWay(Protocol):
    """Something on a device that need not stay there."""

    @property
    def held(self) -> int:
        """Return the bytes on the device that nobody else answers for."""

    def leave(self) -> int:
        """Leave the device, if possible; return the bytes that this frees."""


Item = TypeVar("Item", bound=GivesWay)


class OnDevice(Generic[Item]):
    """All that there is of one kind, as long as somebody refers to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: weakref.WeakSet[Item] = weakref.WeakSet()

    def add(self, item: Item) -> None:
        """Take note of another one."""
        with self._lock:
            self._all.add(item)

    def items(self) -> list[Item]:
        """Return what there is."""
        with self._lock:
            return list(self._all)

    @property
    def nbytes(self) -> int:
        """Return the bytes that are held."""
        return sum(item.held for item in self.items())

    def evict(self, wanted: int) -> int:
        """Let some leave until so many bytes are free; return how many there were."""
        freed = 0
        for item in self.items():
            if freed >= wanted:
                break
            try:
                freed += item.leave()
            except Exception as error:  # no memory on either side: others may still leave
                logger.warning("%d bytes could not leave the device: %r", item.held, error)
        return freed
