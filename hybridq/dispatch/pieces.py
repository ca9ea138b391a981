"""Where a worker keeps the pieces of splits: in memory within a budget, beyond it in files; and how tasks read them.

A chunk's pieces are one entry, whose name is the key of the Dask task that made it. The entry goes when Dask lets the
key go, for whatever reason (``hybridq.dispatch.exchange``).
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from hybridq.dispatch.main_memory import Admission
from hybridq.engines.split import Split, select, split
from hybridq.errors import DeviceOutOfMemory, ExecutionError, PiecesLost
from hybridq.physical.chunks import Cut, PieceUnits, RangeUnits
from hybridq.physical.pipeline import SortedRunSink, SplitSink
from hybridq.plan.expressions import SortKey
from hybridq.topology import Kind

SPLIT_BYTES = 2**30
"""Bytes of a table that are split at a time: texts of more than 2 GiB do not fit an Arrow column."""

READ_TOGETHER = 16
"""Entries that are asked for at a time: what comes is in memory before rows are chosen from it."""

DEFAULT_MEMORY = 512 * 2**20
"""Budget, in bytes, of a worker without a memory limit."""

MEMORY_SHARE = 0.25
"""Share of a worker's memory that is its budget otherwise."""

BUDGET_SHARE = 0.5
"""Share that it is at most of what the worker has for chunks, where its memory is small."""

PROBING = -1
"""Stands for the pipeline's source in ``PieceList.reader``; other values are ids of build sides."""

_IN_FILES = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class PieceList:
    """Which entries have rows of the partitions that a chunk reads of one stage.

    Attributes
    ----------
    reader : int
        The build side that they are for; ``PROBING``: the pipeline's source.
    stage : int
    prefix : str
        Of the stage's run, see ``entry_name``.
    addresses : tuple of str
        Of workers.
    entries : tuple of (kind, chunk, serial number, position in ``addresses``)
        In chunk order.
    cuts : tuple of Cut
        Of sorted runs: what each entry has of the range.
    """

    reader: int
    stage: int
    prefix: str
    addresses: tuple[str, ...] = ()
    entries: tuple[tuple[Kind, int, int, int], ...] = ()
    cuts: tuple[Cut, ...] = ()


def entry_name(kind: Kind, prefix: str, chunk: int, serial: int) -> str:
    """Return the key of a chunk's task, which is also the name of its pieces."""
    return f"hybridq_{kind}_chunk-{prefix}-{chunk}-{serial}"


class _InMemory:
    """An entry in memory."""

    def __init__(self, splits: Sequence[Split]) -> None:
        self.splits = splits
        self.nbytes = sum(each.table.nbytes for each in splits)

    def tables(self, partitions: Sequence[int]) -> list[pa.Table]:
        return [each.piece(number) for number in partitions for each in self.splits]

    def messages(self, partitions: Sequence[int]) -> list[pa.Buffer]:
        return [batch.serialize() for table in self.tables(partitions) for batch in _batches(table)]

    def close(self) -> None:
        pass


class _InFile:
    """An entry in a file: an Arrow IPC stream, with at least one message for each partition that has rows."""

    nbytes = 0

    def __init__(self, path: Path, splits: Sequence[Split]) -> None:
        self._path = path
        self.schema = splits[0].table.schema
        self._places: list[list[tuple[int, int]]] = []
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, self.schema, options=_IN_FILES) as writer:
            writer.write_batch(pa.RecordBatch.from_pylist([], self.schema))  # with it goes the schema
            for number in range(len(splits[0].starts) - 1):
                places = []
                for batch in (batch for each in splits for batch in _batches(each.piece(number))):
                    start = file.tell()
                    writer.write_batch(batch)
                    places.append((start, file.tell() - start))
                self._places.append(places)
            self.file_bytes = int(file.tell())

    def tables(self, partitions: Sequence[int]) -> list[pa.Table]:
        return [table_of(message, self.schema) for message in self.messages(partitions)]

    def messages(self, partitions: Sequence[int]) -> list[pa.Buffer]:
        found = []
        with self._path.open("rb") as file:
            for number in partitions:
                for start, size in self._places[number]:
                    file.seek(start)
                    content = file.read(size)
                    if len(content) != size:
                        raise OSError(f"{self._path} is shorter than it was")
                    found.append(pa.py_buffer(content))
        return found

    def close(self) -> None:
        self._path.unlink(missing_ok=True)


class PieceStore:
    """The entries of one worker process.

    Parameters
    ----------
    parent : path, optional
        Folder in which the folder of spill files is made when it is first needed; by default the system's for temporary
        files.
    memory : int
        Budget in bytes, where a task gives none.
    """

    def __init__(self, parent: Path | None = None, memory: int = DEFAULT_MEMORY) -> None:
        self._parent = parent
        self._memory = memory
        self._lock = threading.Lock()
        self._entries: dict[str, _InMemory | _InFile] = {}
        self._folder: Path | None = None
        self._files = 0
        self._moved = 0

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Return the bytes that are held in memory."""
        with self._lock:
            return sum(entry.nbytes for entry in self._entries.values())

    def put(self, name: str, splits: Sequence[Split], budget: int = 0) -> int:
        """Keep a chunk's pieces.

        Returns
        -------
        int
            Bytes written to a file; 0: they are in memory.

        Raises
        ------
        ExecutionError
            The file cannot be written.
        """
        kept = _InMemory(splits)
        with self._lock:
            used = sum(entry.nbytes for entry in self._entries.values())
            if used + kept.nbytes <= (budget or self._memory):
                self._entries[name] = kept
                return 0
            path = self._next_path()
        try:
            written = _InFile(path, splits)
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            raise ExecutionError(
                f"cannot write {kept.nbytes} bytes of a split to the worker's folder {path.parent}"
                f" ({error.strerror or error}): free some space there, or start workers with another --local-directory"
            ) from error
        with self._lock:
            self._entries[name] = written
        return written.file_bytes

    def make_room(self, wanted: int) -> int:
        """Move entries from memory to files, the oldest first, until so many bytes are free.

        Returns
        -------
        int
            Bytes that are free now; 0: there is nothing in memory, or the files cannot be written.
        """
        with self._lock:
            names = [name for name, entry in self._entries.items() if isinstance(entry, _InMemory)]
        freed = 0
        for name in names:
            if freed >= wanted:
                break
            entry = self._entries.get(name)
            if not isinstance(entry, _InMemory):
                continue
            with self._lock:
                path = self._next_path()
            try:
                written = _InFile(path, entry.splits)
            except OSError:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                break
            with self._lock:
                there = name in self._entries
                if there:
                    self._entries[name] = written
                    self._moved += written.file_bytes
            if not there:  # it was dropped meanwhile
                written.close()
            freed += entry.nbytes
        return freed

    def moved(self) -> int:
        """Return the bytes that ``make_room`` has written since this was last asked."""
        with self._lock:
            found, self._moved = self._moved, 0
        return found

    def tables(self, name: str, partitions: Sequence[int]) -> list[pa.Table]:
        """Return an entry's rows of some partitions.

        Raises
        ------
        KeyError, OSError
            They are not there, or no longer.
        """
        return self._entries[name].tables(partitions)

    def messages(self, name: str, partitions: Sequence[int]) -> list[pa.Buffer]:
        """Return an entry's rows of some partitions as Arrow IPC messages, compressed where they are from a file.

        Raises
        ------
        KeyError, OSError
            They are not there, or no longer.
        """
        return self._entries[name].messages(partitions)

    def drop(self, name: str) -> None:
        """Forget an entry, if it is there."""
        with self._lock:
            entry = self._entries.pop(name, None)
        if entry is not None:
            with contextlib.suppress(OSError):
                entry.close()

    def close(self) -> None:
        """Forget everything."""
        for name in list(self._entries):
            self.drop(name)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _next_path(self) -> Path:
        if self._folder is None or not self._folder.is_dir():
            self._folder = Path(tempfile.mkdtemp(prefix="hybridq-split-", dir=self._parent))
        self._files += 1
        return self._folder / f"{self._files}.arrows"


class Fetch(Protocol):
    """Reads entries of another worker."""

    def __call__(
        self, address: str, names: Sequence[str], partitions: Sequence[Sequence[int]]
    ) -> list[list[pa.Buffer]]:
        """Return the messages of each entry, of the partitions that are wanted of it.

        Raises
        ------
        KeyError
            The worker does not have one of them (the argument).
        OSError, TimeoutError
            It does not answer.
        """


class PieceReader:
    """Reads what one task needs.

    Parameters
    ----------
    store : PieceStore
        This worker's own entries.
    fetch : callable
        Gets other workers'.
    lists : mapping of int to PieceList
        By what reads them.
    room : Admission or None
        The task's share of main memory, which grows where partitions, or parts of them, are larger than was expected.
    """

    def __init__(
        self, store: PieceStore, fetch: Fetch, lists: Mapping[int, PieceList], room: Admission | None = None
    ) -> None:
        self._store = store
        self._fetch = fetch
        self._lists = lists
        self._room = room
        self._bytes = 0

    def read(
        self,
        reader: int,
        schema: pa.Schema,
        keys: Sequence[str],
        units: PieceUnits,
        further: Sequence[int] = (),
        divisible: bool = False,
    ) -> pa.Table:
        """Return the rows of a chunk's partitions.

        Parameters
        ----------
        reader : int
            As in ``PieceList``.
        schema : pyarrow.Schema
            Of the rows; the stage that was split may have called the columns otherwise.
        keys : sequence of str
            What they were split by.
        units : PieceUnits
        further : sequence of int
            Pieces to be read besides, of which all rows are taken.
        divisible : bool
            Rows with equal keys may be in several chunks.

        Raises
        ------
        PiecesLost
            Some are not there any more.
        DeviceOutOfMemory, ExecutionError
            They take more memory than the worker has; half of the partitions, or parts, might do, or not: they all have
            the same keys.
        """
        found = [schema.empty_table()]
        size = 0
        for tables in self._tables(reader, schema, itertools.repeat(units.partitions)):
            chosen = [select(table, keys, units.parts, units.part, round_number=1) for table in tables]
            found += chosen
            size += sum(table.nbytes for table in chosen)
            if self._room is not None and (lacking := self._room.lacking(size)) is not None:
                raise _too_much(found, keys, size, *lacking, divisible)
        if further:
            for tables in self._tables(reader, schema, itertools.repeat(further)):
                found += tables
        self._bytes += size
        if self._room is not None:
            self._room.grow(self._bytes)
        return _together(found)

    def read_whole(
        self, reader: int, schema: pa.Schema, keys: Sequence[str], units: PieceUnits, most: int
    ) -> pa.Table | None:
        """Return the rows of a chunk's partitions if they are one block; ``None``: they are more (``read_blocks``)."""
        for table, last in self.read_blocks(reader, schema, keys, units, most):
            if last:
                self._bytes += table.nbytes
                return table
            break
        return None

    def read_blocks(
        self, reader: int, schema: pa.Schema, keys: Sequence[str], units: PieceUnits, most: int
    ) -> Iterator[tuple[pa.Table, bool]]:
        """Yield the rows of a chunk's partitions in blocks, each with whether it is the last.

        Parameters
        ----------
        reader, schema, keys, units
            As for ``read``.
        most : int
            Bytes of a block.

        Raises
        ------
        PiecesLost
            Some are not there any more.
        """
        held, size = [schema.empty_table()], 0
        for tables in self._tables(reader, schema, itertools.repeat(units.partitions), most):
            for table in tables:
                chosen = select(table, keys, units.parts, units.part, round_number=1)
                step = max(int(chosen.num_rows * most / max(chosen.nbytes, 1)), 1)
                for part in (chosen.slice(start, step) for start in range(0, chosen.num_rows, step)):
                    if size and size + part.nbytes > most:
                        yield self._block(held, size), False
                        held, size = [schema.empty_table()], 0
                    held.append(part)
                    size += part.nbytes
        yield self._block(held, size), True

    def _block(self, held: Sequence[pa.Table], size: int) -> pa.Table:
        if self._room is not None:
            self._room.grow(self._bytes + size)
        return _together(held)

    def read_range(self, schema: pa.Schema, keys: Sequence[SortKey], units: RangeUnits) -> pa.Table:
        """Return the rows of a range, those of each run in order, the runs one after the other.

        Parameters
        ----------
        schema : pyarrow.Schema
            As for ``read``.
        keys : sequence of SortKey
            What the runs are sorted by.
        units : RangeUnits

        Raises
        ------
        PiecesLost
            Some of the runs are not there any more.
        """
        cuts = self._lists[PROBING].cuts
        found = [schema.empty_table()]
        blocks = (range(cut.first, cut.stop) for cut in cuts)
        for cut, tables in zip(cuts, self._tables(PROBING, schema, blocks), strict=True):
            found.append(_within(pa.concat_tables(tables), cut, units, keys))
        return _together(found)

    def _tables(
        self, reader: int, schema: pa.Schema, partitions: Iterable[Sequence[int]], most: int | None = None
    ) -> Iterator[list[pa.Table]]:
        """Yield the rows of each entry, of the partitions that are wanted of it.

        With ``most``, so many entries are read at a time as have about these bytes: first one, which shows what they
        take.
        """
        pieces, wanted_of_all = self._lists[reader], iter(partitions)
        start, count = 0, READ_TOGETHER if most is None else 1
        while start < len(pieces.entries):
            entries = pieces.entries[start : start + count]
            start += count
            wanted = list(itertools.islice(wanted_of_all, len(entries)))
            found: list[list[pa.Table]] = [[] for _ in entries]
            elsewhere: dict[int, list[int]] = {}
            lost: dict[int, str] = {}
            for position, (kind, chunk, serial, place) in enumerate(entries):
                name = entry_name(kind, pieces.prefix, chunk, serial)
                if name not in self._store:
                    elsewhere.setdefault(place, []).append(position)
                    continue
                try:
                    tables = self._store.tables(name, wanted[position])
                    found[position] = [table.rename_columns(schema.names) for table in tables]
                except KeyError:
                    lost[serial] = "they were let go meanwhile"
                except OSError as error:
                    lost[serial] = str(error)
            for place, positions in elsewhere.items():
                names = [entry_name(entries[i][0], pieces.prefix, entries[i][1], entries[i][2]) for i in positions]
                try:
                    answers = self._fetch(pieces.addresses[place], names, [wanted[i] for i in positions])
                except KeyError as error:
                    gone = [entries[i][2] for i, name in zip(positions, names, strict=True) if name in error.args]
                    lost |= dict.fromkeys(gone, f"{pieces.addresses[place]} does not have them any more")
                except (OSError, TimeoutError):
                    gone = [entry[2] for entry in pieces.entries if entry[3] == place]
                    lost |= dict.fromkeys(gone, f"{pieces.addresses[place]} does not answer")
                else:
                    for position, messages in zip(positions, answers, strict=True):
                        found[position] = [table_of(message, schema) for message in messages]
            if lost:
                raise PiecesLost(pieces.stage, tuple(lost), next(iter(lost.values())))
            if most is not None:
                size = sum(table.nbytes for tables in found for table in tables)
                count = min(max(most * count // max(size, 1), 1), READ_TOGETHER)
            yield from found


def _too_much(
    found: Sequence[pa.Table], keys: Sequence[str], size: int, wanted: int, limit: int, divisible: bool
) -> Exception:
    """Return what to say of rows that take more memory than a worker has."""
    rows = pa.concat_tables([table.select(list(keys)) for table in found])
    what = f"{size / 2**20:.0f} MiB or more, about {wanted / 2**20:.0f} MiB with what is computed of them"
    if divisible or len(rows.group_by(list(keys)).aggregate([])) > 1:
        return DeviceOutOfMemory(f"the rows of a partition take {what}", wanted, limit)
    values = ", ".join(f"{name} = {rows.column(name)[0].as_py()!r}" for name in keys)
    return ExecutionError(
        f"all rows of {values} are needed in one place: they take {what}, and one worker has {limit / 2**20:.0f} MiB"
        " for that: filter or aggregate first, select fewer columns, or start workers with more memory"
    )


def _together(tables: Sequence[pa.Table]) -> pa.Table:
    table = pa.concat_tables(tables)
    return table.combine_chunks() if table.nbytes < SPLIT_BYTES else table


def _within(table: pa.Table, cut: Cut, units: RangeUnits, keys: Sequence[SortKey]) -> pa.Table:
    """Return the rows of a run's blocks that are in a range."""
    if cut.high is not None and units.high is not None:
        table = table.slice(0, _rows_before(table, units.high, keys, cut.high))
    if cut.low is not None and units.low is not None:
        table = table.slice(_rows_before(table, units.low, keys, cut.low))
    return table


def _rows_before(table: pa.Table, border: pa.Table, keys: Sequence[SortKey], ties: bool) -> int:
    from hybridq.engines.ranges import rows_before  # not by the client, which imports this module as well

    return rows_before(table, border, keys, ties)


def cut_run(table: pa.Table, sink: SortedRunSink) -> Split:
    """Cut a chunk's sorted rows into blocks, each of which has a row at least."""
    blocks = max(min(sink.blocks, table.num_rows), 1)
    return Split(table.combine_chunks(), np.arange(blocks + 1) * table.num_rows // blocks)


def samples_of(run: Split, sink: SortedRunSink) -> bytes:
    """Return the columns of the sort keys, of the first row of each block, as an Arrow IPC stream."""
    from hybridq.engines.ranges import key_columns

    table = run.table.select(key_columns(run.table.column_names, sink.keys))
    if table.num_rows:
        table = table.take(pa.array(run.starts[:-1]))
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    content: bytes = buffer.getvalue().to_pybytes()
    return content


def split_pieces(table: pa.Table, sink: SplitSink) -> list[Split]:
    """Split a chunk's rows as its sink says; where there are witnesses, they are one more piece of the first split."""
    step = max(int(table.num_rows * SPLIT_BYTES / max(table.nbytes, 1)), 1)
    parts = [table.slice(start, step) for start in range(0, max(table.num_rows, 1), step)]
    splits = [split(part.combine_chunks(), sink.keys, sink.partitions) for part in parts]
    if sink.witness is None:
        return splits
    return [_with_witnesses(each, sink.witness) for each in splits]


def _with_witnesses(found: Split, key: str) -> Split:
    valid = np.asarray(found.table.column(key).is_valid())
    rows = sorted({int(np.argmax(valid == kind)) for kind in (True, False) if (valid == kind).any()})
    table = pa.concat_tables([found.table, *(found.table.slice(row, 1) for row in rows)])
    return Split(table, np.append(found.starts, table.num_rows))


def table_of(message: pa.Buffer, schema: pa.Schema) -> pa.Table:
    """Return the rows of an Arrow IPC message."""
    return pa.Table.from_batches([pa.ipc.read_record_batch(message, schema)])


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    return [batch for batch in table.to_batches() if batch.num_rows]
