"""Columns that stay decoded on a device from query to query, within a limit of bytes.

They are kept in segments: what one read brought of one column. A later read, however its chunks are cut, takes the row
groups that it needs from whatever segments have them, and reads the others. The segments used longest ago go first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from hybridq.engines.gpu.footer import footer_of
from hybridq.storage import FileStamp, stamp

Data = TypeVar("Data")

Files = Sequence[tuple[str, Sequence[int]]]
"""Paths, and row groups of each."""

Load = Callable[[Files, Sequence[str]], Mapping[str, Data]]
"""Reads row groups of files and returns the columns by name."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """A row group."""

    stamp: FileStamp
    group: int
    rows: int


@dataclass(slots=True, eq=False)
class _Segment(Generic[Data]):
    """Neighbouring row groups of one column."""

    column: str
    units: list[_Unit]
    data: Data
    nbytes: int


class Operations(Protocol[Data]):
    """What an engine does with its columns."""

    def rows(self, data: Data) -> int:
        """Return the number of rows."""

    def nbytes(self, data: Data) -> int:
        """Return the bytes held."""

    def slice(self, data: Data, start: int, stop: int) -> Data:
        """Return rows ``start`` to ``stop``, without copying if possible."""

    def concatenate(self, parts: Sequence[Data]) -> Data:
        """Put two or more columns one below the other."""

    def finish(self) -> None:
        """Wait until what this thread has loaded can be used by others."""


class ColumnCache(Generic[Data]):
    """Decoded columns of one device, shared by its threads.

    Parameters
    ----------
    operations : Operations
    limit : int
        Bytes to keep at most.

    Notes
    -----
    A segment that a thread uses is pinned for that thread until it calls ``release``: kernels that read it may still be
    running after Python has let go of it.
    """

    def __init__(self, operations: Operations[Data], limit: int = 0) -> None:
        self._operations = operations
        self._limit = limit
        self._lock = threading.Lock()
        self._segments: OrderedDict[int, _Segment[Data]] = OrderedDict()
        self._places: dict[tuple[str, FileStamp, int], tuple[_Segment[Data], int]] = {}
        self._bytes = 0
        self._thread = threading.local()

    @property
    def nbytes(self) -> int:
        """Return the bytes kept."""
        return self._bytes

    @property
    def limit(self) -> int:
        """Return the most bytes to keep."""
        return self._limit

    def set_limit(self, limit: int) -> None:
        """Change the limit; what is above it is dropped."""
        self._limit = limit
        self.evict(self._bytes - limit)

    def evict(self, wanted: int) -> int:
        """Drop the segments used longest ago, of ``wanted`` bytes together or a little more; return their bytes."""
        freed = 0
        with self._lock:
            while freed < wanted and self._segments:
                freed += self._drop()
        return freed

    def release(self) -> int:
        """Unpin what this thread has used; return the bytes in files that it did not have to read for it."""
        self._thread.pinned = []
        saved: int = getattr(self._thread, "saved", 0)
        self._thread.saved = 0
        return saved

    def read(self, files: Files, columns: Sequence[str], keep: Sequence[str], load: Load[Data]) -> Mapping[str, Data]:
        """Return columns of row groups, as ``load`` would; what is kept is not loaded, and what is loaded is kept.

        Parameters
        ----------
        files : sequence of (path, row group numbers)
        columns : sequence of str
            What to return.
        keep : sequence of str
            Which of them to keep.
        load : callable
            Reads what is missing.
        """
        units = [_Unit(stamp(path), group, footer_of(path).rows(group)) for path, groups in files for group in groups]
        kept = [column for column in columns if column in keep]
        others = [column for column in columns if column not in keep]
        found = self._find(units, kept)
        missing = [unit for unit in units if not all((column, unit) in found for column in kept)]
        result: dict[str, Data] = {}
        if len(missing) == len(units):
            loaded = load(files, columns)
            result = dict(loaded)
            self._keep(missing, {column: loaded[column] for column in kept})
            return result
        if others:
            result.update(load(files, others))
        if missing:
            fresh = load(_grouped(missing), kept)
            for segment in self._keep(missing, fresh):
                found.update(_places_of(segment))
        self._thread.saved = getattr(self._thread, "saved", 0) + sum(
            footer_of(unit.stamp.path).column_bytes(unit.group, column)
            for unit in set(units).difference(missing)
            for column in kept
        )
        for column in kept:
            result[column] = self._assembled([found[column, unit] for unit in units], units)
        return result

    def _find(
        self, units: Sequence[_Unit], columns: Sequence[str]
    ) -> dict[tuple[str, _Unit], tuple[_Segment[Data], int]]:
        """Look up row groups, and pin their segments."""
        found: dict[tuple[str, _Unit], tuple[_Segment[Data], int]] = {}
        with self._lock:
            for column in columns:
                for unit in units:
                    place = self._places.get((column, unit.stamp, unit.group))
                    if place is not None:
                        found[column, unit] = place
            used = {id(segment): segment for segment, _ in found.values()}
            for key in used:
                self._segments.move_to_end(key)
        self._pin(used.values())
        return found

    def _keep(self, units: Sequence[_Unit], loaded: Mapping[str, Data]) -> list[_Segment[Data]]:
        """Keep what was loaded, as far as the limit allows; return it as segments in any case."""
        self._operations.finish()
        segments = [
            _Segment(column, list(units), data, self._operations.nbytes(data)) for column, data in loaded.items()
        ]
        with self._lock:
            for segment in segments:
                self._store(segment)
        self._pin(segments)
        return segments

    def _pin(self, segments: Iterable[_Segment[Data]]) -> None:
        pinned: list[_Segment[Data]] = getattr(self._thread, "pinned", [])
        self._thread.pinned = [*pinned, *segments]

    def _store(self, segment: _Segment[Data]) -> None:
        places = {(column, unit.stamp, unit.group): place for (column, unit), place in _places_of(segment).items()}
        # Another thread may have loaded the same in the meantime.
        if segment.nbytes > self._limit or any(key in self._places for key in places):
            return
        while self._bytes + segment.nbytes > self._limit:
            self._drop()
        self._segments[id(segment)] = segment
        self._places.update(places)
        self._bytes += segment.nbytes

    def _drop(self) -> int:
        _, segment = self._segments.popitem(last=False)
        for unit in segment.units:
            del self._places[segment.column, unit.stamp, unit.group]
        self._bytes -= segment.nbytes
        return segment.nbytes

    def _assembled(self, places: Sequence[tuple[_Segment[Data], int]], units: Sequence[_Unit]) -> Data:
        """Put the row groups of one column together, neighbours of one segment in one piece."""
        pieces: list[tuple[_Segment[Data], int, int]] = []
        for (segment, start), unit in zip(places, units, strict=True):
            stop = start + unit.rows
            if pieces and pieces[-1][0] is segment and pieces[-1][2] == start:
                pieces[-1] = (segment, pieces[-1][1], stop)
            else:
                pieces.append((segment, start, stop))
        parts = [self._part(*piece) for piece in pieces]
        return parts[0] if len(parts) == 1 else self._operations.concatenate(parts)

    def _part(self, segment: _Segment[Data], start: int, stop: int) -> Data:
        if start == 0 and stop == self._operations.rows(segment.data):
            return segment.data
        return self._operations.slice(segment.data, start, stop)


def _places_of(segment: _Segment[Data]) -> dict[tuple[str, _Unit], tuple[_Segment[Data], int]]:
    """Return where each row group starts in a segment."""
    found, start = {}, 0
    for unit in segment.units:
        found[segment.column, unit] = (segment, start)
        start += unit.rows
    return found


def _grouped(units: Sequence[_Unit]) -> Files:
    """Return row groups by file, in order."""
    found: list[tuple[str, list[int]]] = []
    for unit in units:
        if not found or found[-1][0] != unit.stamp.path:
            found.append((unit.stamp.path, []))
        found[-1][1].append(unit.group)
    return found
