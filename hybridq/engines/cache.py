"""Columns that stay decoded on a device from query to query, within a limit of bytes.

They are kept in segments: what one read brought of one column. A later read, however its chunks are cut, takes the row
groups that it needs from whatever segments have them, and reads the others. The segments used longest ago go first.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, groupby
from typing import Generic, Protocol, TypeVar

from hybridq.engines.footer import footer_at
from hybridq.storage import FileStamp, stamp

Data = TypeVar("Data")

Files = Sequence[tuple[str, Sequence[int]]]
"""Paths, and row groups of each."""

Load = Callable[[Files, Sequence[str]], Mapping[str, Data]]
"""Reads row groups of files and returns the columns by name."""


@dataclass(slots=True, eq=False)
class _Segment(Generic[Data]):
    """What one read brought of one column: ``groups`` of files, and the row at which each of them starts."""

    column: str
    groups: list[tuple[FileStamp, int]]
    starts: list[int]
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
        self._places: dict[tuple[str, FileStamp], dict[int, _Place[Data]]] = {}
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
        seen = [(stamp(path), groups) for path, groups in files]
        units = [(file, group) for file, groups in seen for group in groups]
        found = self._find(seen, [column for column in columns if column in keep])
        whole = [column for column, places in found.items() if all(places)]
        parts = [column for column in found if column not in whole]
        cached = [all(places) for places in zip(*(found[column] for column in parts), strict=True)]
        missing = [unit for unit, there in zip(units, cached, strict=bool(parts)) if not there]
        at_once = parts if len(missing) == len(units) else []
        fresh = [column for column in columns if column not in found or column in at_once]
        result: dict[str, Data] = dict(load(files, fresh)) if fresh else {}
        if at_once:
            self._keep(units, {column: result[column] for column in at_once})
        elif missing:
            loaded = load([(file.path, groups) for file, groups in _by_file(missing)], parts)
            for segment in self._keep(missing, loaded):
                starts = iter(segment.starts)
                places = found[segment.column]
                found[segment.column] = [
                    place if there else (segment, next(starts)) for place, there in zip(places, cached, strict=True)
                ]
        rows = [rows for file, groups in seen for rows in _picked(footer_at(file).rows, groups)]
        for column, places in found.items():
            if column in at_once:
                continue
            result[column] = self._assembled(places, rows)
            sizes = [size for file, groups in seen for size in _picked(footer_at(file).column_bytes(column), groups)]
            saved = sum(sizes if column in whole else compress(sizes, cached))
            self._thread.saved = getattr(self._thread, "saved", 0) + saved
        return result

    def private(self) -> ColumnCache[Data]:
        """Return an empty cache of the same device, without a limit, for one chunk alone."""
        return ColumnCache(self._operations, sys.maxsize)

    def _find(
        self, seen: Sequence[tuple[FileStamp, Sequence[int]]], columns: Sequence[str]
    ) -> dict[str, list[_Place[Data] | None]]:
        """Look up the row groups of each column, and pin their segments."""
        found: dict[str, list[_Place[Data] | None]] = {}
        with self._lock:
            for column in columns:
                places = found[column] = []
                for file, groups in seen:
                    known = self._places.get((column, file), {})
                    places.extend(map(known.get, groups))
            used = {id(place[0]): place[0] for places in found.values() for place in places if place is not None}
            for key in used:
                self._segments.move_to_end(key)
        self._pin(used.values())
        return found

    def _keep(self, units: Sequence[tuple[FileStamp, int]], loaded: Mapping[str, Data]) -> list[_Segment[Data]]:
        """Keep what was loaded, as far as the limit allows; return it as segments in any case."""
        self._operations.finish()
        sizes = [rows for file, groups in _by_file(units) for rows in _picked(footer_at(file).rows, groups)]
        starts = list(accumulate(sizes, initial=0))[:-1]
        segments = [
            _Segment(column, list(units), starts, data, self._operations.nbytes(data))
            for column, data in loaded.items()
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
        # Another thread may have loaded the same in the meantime.
        known = any(group in self._places.get((segment.column, file), ()) for file, group in segment.groups)
        if known or segment.nbytes > self._limit:
            return
        while self._bytes + segment.nbytes > self._limit:
            self._drop()
        self._segments[id(segment)] = segment
        self._bytes += segment.nbytes
        for (file, group), start in zip(segment.groups, segment.starts, strict=True):
            self._places.setdefault((segment.column, file), {})[group] = (segment, start)

    def _drop(self) -> int:
        _, segment = self._segments.popitem(last=False)
        self._bytes -= segment.nbytes
        for file, group in segment.groups:
            places = self._places[segment.column, file]
            del places[group]
            if not places:
                del self._places[segment.column, file]
        return segment.nbytes

    def _assembled(self, places: Sequence[_Place[Data] | None], rows: Sequence[int]) -> Data:
        """Put the row groups of one column together, neighbours of one segment in one piece."""
        pieces: list[tuple[_Segment[Data], int, int]] = []
        for place, count in zip(places, rows, strict=True):
            assert place is not None
            segment, start = place
            if pieces and pieces[-1][0] is segment and pieces[-1][2] == start:
                pieces[-1] = (segment, pieces[-1][1], start + count)
            else:
                pieces.append((segment, start, start + count))
        parts = [self._part(*piece) for piece in pieces]
        return parts[0] if len(parts) == 1 else self._operations.concatenate(parts)

    def _part(self, segment: _Segment[Data], start: int, stop: int) -> Data:
        if start == 0 and stop == self._operations.rows(segment.data):
            return segment.data
        return self._operations.slice(segment.data, start, stop)


_Place = tuple[_Segment[Data], int]
"""Where a row group of a column is: a segment, and the row there."""


def _picked(values: Sequence[int], groups: Sequence[int]) -> list[int]:
    return [values[group] for group in groups]


def _by_file(units: Sequence[tuple[FileStamp, int]]) -> list[tuple[FileStamp, list[int]]]:
    """Return row groups by file, in order."""
    return [(file, [group for _, group in some]) for file, some in groupby(units, key=lambda unit: unit[0])]
