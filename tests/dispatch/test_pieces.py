"""A worker's store of pieces: what is put there comes back, from memory or from files, until it is dropped."""

from __future__ import annotations

import os
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from hybridq.dispatch.main_memory import Admission, MainMemory
from hybridq.dispatch.pieces import PieceList, PieceReader, PieceStore, entry_name, split_pieces, table_of
from hybridq.engines.split import split
from hybridq.errors import DeviceOutOfMemory, ExecutionError, PiecesLost
from hybridq.physical.chunks import PieceUnits
from hybridq.physical.pipeline import SplitSink
from hybridq.types import Field

PARTITIONS = 16
TABLE = pa.table(
    {
        "k": pa.array([None if i % 7 == 0 else i for i in range(1000)], pa.int64()),
        "s": [None if i % 11 == 0 else f"text {i}" for i in range(1000)],
        "d": pa.array([Decimal(i) / 100 for i in range(1000)], pa.decimal128(15, 2)),
    }
)
SINK = SplitSink(("k",), PARTITIONS, tuple(Field(field.name, field.type) for field in TABLE.schema))
NAME = entry_name("cpu", "q-0-0", 0, 0)
BUDGETS = pytest.mark.parametrize("budget", [1 << 30, 1], ids=["memory", "file"])


def nobody(address, names, partitions):
    raise AssertionError("nothing is elsewhere")


def in_order(table):
    return table.sort_by([("s", "ascending"), ("d", "ascending")])


def reader(store, fetch=nobody, entries=(("cpu", 0, 0, 0),), room=None):
    return PieceReader(store, fetch, {-1: PieceList(-1, 0, "q-0-0", ("tcp://there", "tcp://here"), entries)}, room)


@BUDGETS
def test_pieces_come_back(tmp_path, budget):
    store = PieceStore(tmp_path)
    written = store.put(NAME, split_pieces(TABLE, SINK), budget)
    assert (written > 0) == (budget == 1)
    assert store.nbytes == (0 if budget == 1 else TABLE.nbytes)
    expected = split(TABLE, ["k"], PARTITIONS)
    for number in range(PARTITIONS):
        assert pa.concat_tables(store.tables(NAME, [number])).equals(expected.piece(number))
        messages = [table_of(message, TABLE.schema) for message in store.messages(NAME, [number])]
        assert pa.concat_tables(messages).equals(expected.piece(number))
    units = PieceUnits(tuple(range(PARTITIONS)))
    assert in_order(reader(store).read(-1, TABLE.schema, ["k"], units)).equals(in_order(TABLE).combine_chunks())
    parts = [reader(store).read(-1, TABLE.schema, ["k"], PieceUnits((3, 5), part, 4)) for part in range(4)]
    assert sum(part.num_rows for part in parts) == expected.piece(3).num_rows + expected.piece(5).num_rows
    assert len([part for part in parts if part.num_rows]) > 1


@BUDGETS
def test_what_is_dropped_leaves_nothing(tmp_path, budget):
    store = PieceStore(tmp_path)
    for number in range(3):
        store.put(entry_name("cpu", "q-0-0", number, number), split_pieces(TABLE, SINK), budget)
    files = [path for folder in tmp_path.iterdir() for path in folder.iterdir()]
    assert len(files) == (3 if budget == 1 else 0)  # one for each chunk, however many partitions there are
    store.drop(NAME)
    store.drop(NAME)
    assert NAME not in store
    assert len(store) == 2
    store.close()
    assert list(tmp_path.iterdir()) == []
    assert store.nbytes == 0


def test_the_budget_counts_all_entries(tmp_path):
    store = PieceStore(tmp_path, memory=int(2.5 * TABLE.nbytes))
    names = [entry_name("cpu", "q-0-0", number, number) for number in range(4)]
    assert [store.put(name, split_pieces(TABLE, SINK)) > 0 for name in names] == [False, False, True, True]
    store.drop(names[0])
    assert store.put("another", split_pieces(TABLE, SINK)) == 0


def test_an_empty_chunk_has_pieces(tmp_path):
    store = PieceStore(tmp_path)
    assert store.put(NAME, split_pieces(TABLE.slice(0, 0), SINK), 1) >= 0
    read = reader(store).read(-1, TABLE.schema, ["k"], PieceUnits((0, 1)))
    assert read.num_rows == 0
    assert read.schema == TABLE.schema


def test_a_table_is_split_in_steps(monkeypatch, tmp_path):
    monkeypatch.setattr("hybridq.dispatch.pieces.SPLIT_BYTES", TABLE.nbytes // 3)
    splits = split_pieces(TABLE, SINK)
    assert len(splits) == 4
    for budget in (1, 1 << 30):
        store = PieceStore(tmp_path)
        store.put(NAME, splits, budget)
        read = reader(store).read(-1, TABLE.schema, ["k"], PieceUnits(tuple(range(PARTITIONS))))
        assert in_order(read).combine_chunks().equals(in_order(TABLE).combine_chunks())


@pytest.mark.parametrize(
    ("keys", "found"), [([1, None, 2], {1, None}), ([None, None], {None}), ([3, 4], {3}), ([], set())]
)
@BUDGETS
def test_witnesses_are_a_row_and_a_row_whose_key_is_null(tmp_path, keys, found, budget):
    table = pa.table({"k": pa.array(keys, pa.int64())})
    sink = SplitSink(("k",), PARTITIONS, (Field("k", pa.int64()),), witness="k")
    store = PieceStore(tmp_path)
    store.put(NAME, split_pieces(table, sink), budget)
    read = reader(store).read(-1, table.schema, ["k"], PieceUnits((), 1, 2), further=(PARTITIONS,))
    assert len(read) == len(found)
    assert {key if key is None else 1 for key in read["k"].to_pylist()} == {key if key is None else 1 for key in found}


def test_entries_of_others_are_asked_for_in_the_order_of_chunks(tmp_path):
    here, there = PieceStore(tmp_path / "here"), PieceStore()
    (tmp_path / "here").mkdir()
    asked = []

    def fetch(address, names, partitions):
        asked.append((address, len(names)))
        return [there.messages(name, wanted) for name, wanted in zip(names, partitions, strict=True)]

    entries = []
    for number in range(20):
        store = here if number % 3 == 0 else there
        one = pa.table({"k": np.array([number])})
        store.put(entry_name("cpu", "q-0-0", number, number), [split(one, ["k"], 1)], 1)
        entries.append(("cpu", number, number, int(store is here)))
    units = PieceUnits((0,))
    read = reader(here, fetch, tuple(entries)).read(-1, pa.schema([("k", pa.int64())]), ["k"], units)
    assert read["k"].to_pylist() == list(range(20))
    assert asked == [("tcp://there", 10), ("tcp://there", 3)]
    there.drop(entry_name("cpu", "q-0-0", 4, 4))

    def miss(address, names, partitions):
        missing = [name for name in names if name not in there]
        if missing:
            raise KeyError(*missing)
        return fetch(address, names, partitions)

    with pytest.raises(PiecesLost, match="does not have them") as caught:
        reader(here, miss, tuple(entries)).read(-1, pa.schema([("k", pa.int64())]), ["k"], units)
    assert (caught.value.stage, caught.value.serials) == (0, (4,))

    def silent(address, names, partitions):
        raise TimeoutError

    with pytest.raises(PiecesLost, match="does not answer") as caught:
        reader(here, silent, tuple(entries)).read(-1, pa.schema([("k", pa.int64())]), ["k"], units)
    assert set(caught.value.serials) == {number for number in range(20) if number % 3}  # all that it had


def test_a_file_that_was_cut_or_removed_is_a_loss(tmp_path):
    for damage in (lambda path: os.truncate(path, 700), os.remove):
        store = PieceStore(tmp_path)
        store.put(NAME, split_pieces(TABLE, SINK), 1)
        (path,) = [path for folder in tmp_path.iterdir() for path in folder.iterdir()]
        damage(path)
        with pytest.raises(PiecesLost) as caught:
            reader(store).read(-1, TABLE.schema, ["k"], PieceUnits(tuple(range(PARTITIONS))))
        assert caught.value.serials == (0,)
        store.close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    store = PieceStore(tmp_path)
    store.put(NAME, split_pieces(TABLE, SINK), 1)
    (folder,) = tmp_path.iterdir()
    store._files += 1
    (folder / f"{store._files + 1}.arrows").mkdir()  # in the way of the next file
    with pytest.raises(ExecutionError, match=r"cannot write \d+ bytes.*hybridq-split-.*--local-directory"):
        store.put("another", split_pieces(TABLE, SINK), 1)
    assert "another" not in store


def test_rows_that_outgrow_a_worker_are_halved_or_named(tmp_path):
    """Window functions need all rows of a key in one place: of several keys some can go elsewhere, one cannot."""
    store = PieceStore(tmp_path)
    table = pa.table({"k": pa.array([1] * 900 + list(range(100)), pa.int64()), "v": range(1000)})
    sink = SplitSink(("k",), 4, tuple(Field(field.name, field.type) for field in table.schema))
    (found,) = split_pieces(table, sink)
    store.put(NAME, [found])
    number = int(np.argmax(np.diff(found.starts)))
    part = next(
        part
        for part in range(64)
        if 1 in reader(store).read(-1, table.schema, ["k"], PieceUnits((number,), part, 64)).column("k").to_pylist()
    )
    host = MainMemory(50_000)
    with Admission(host, 7, strict=True) as room:
        room.admit(1)
        with pytest.raises(DeviceOutOfMemory, match="of a partition take"):
            reader(store, room=room).read(-1, table.schema, ["k"], PieceUnits((number,)))
        with pytest.raises(ExecutionError, match=r"all rows of k = 1 are needed in one place: .*more memory"):
            reader(store, room=room).read(-1, table.schema, ["k"], PieceUnits((number,), part, 64))
        assert host.promised == 1
    with Admission(host, 7, strict=False) as room:
        room.admit(1)
        read = reader(store, room=room).read(-1, table.schema, ["k"], PieceUnits((number,)))
        assert host.promised == 7 * read.nbytes
        assert room.predicted == host.promised
    assert host.promised == 0
