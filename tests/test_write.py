"""Answers written to files part by part: the same as those that are collected, whole or not there at all."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq import answer_file as files
from hybridq.answer_file import answer_file, file_format
from hybridq.errors import DivisionByZero, ExecutionError, QueryCancelled, RequestError
from hybridq.output import write_answer
from hybridq.session import connect
from hybridq.testing.in_process import InProcessExecutor, connect_in_process

ROWS = 3000

QUERIES = {
    "sort": "select k, s, a from t order by k desc",
    "rows": "select * from t where a is not null",
    "groups": "select k % 500 g, count(*) n, min(s) from t group by k % 500",
    "join": "select t.k, u.s from t join t u on t.k = u.a",
    "nothing": "select * from t where k < 0",
    "sort of nothing": "select * from t where k < 0 order by k",
    "first": "select k from t limit 700 offset 20",
    "long limit": "select k from (select k from t order by k limit 2000 offset 100) order by k",
    "window": "select k, row_number() over (order by k) n from t",
    "union": "select a, k from t union all select k, a from t",
    "same names": "select t.k, u.k from t join t u on t.k = u.k order by t.k",
    "one row": "select count(*), sum(k) from t",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("written")
    numbers = np.random.default_rng(7)
    table = {
        "a": pa.array(numbers.integers(0, 5, ROWS), mask=numbers.random(ROWS) < 0.1),
        "k": numbers.permutation(ROWS),
        "s": [None if i % 11 == 0 else f'text, "{i}"' if i % 7 else "" for i in range(ROWS)],
    }
    pq.write_table(pa.table(table), found / "t.parquet", row_group_size=100)
    return found


@pytest.fixture(scope="module", params=["as it is", "split"])
def session(request, folder):
    split = {"gather_limit_bytes": 0, "partition_bytes": 8000, "split_memory_bytes": 1}
    with connect_in_process(chunk_units=3, **(split if request.param == "split" else {})) as session:
        session.register_folder(folder)
        yield session


@pytest.mark.parametrize("name", QUERIES)
def test_what_is_written_is_what_is_collected(session, tmp_path, name):
    query = session.sql(QUERIES[name])
    expected = query.collect(mode="cpu").to_arrow()
    for form in ("parquet", "csv", "json"):
        path = tmp_path / f"answer.{form}"
        report = query.write(path, mode="cpu")
        assert report.stages[-1].output_rows == expected.num_rows
        whole = tmp_path / "whole"
        write_answer(expected, form, whole, None)
        if form == "parquet":
            assert pq.read_table(path).combine_chunks().equals(pq.read_table(whole).combine_chunks())
        else:
            assert path.read_text() == whole.read_text()
    for mode in ("gpu", "cop"):
        query.write(path, mode=mode)
        assert sorted(map(repr, json.loads(path.read_text()))) == sorted(map(repr, json.loads(whole.read_text())))
    assert {each.name for each in tmp_path.iterdir()} == {"answer.parquet", "answer.csv", "answer.json", "whole"}


def test_a_cluster_writes_the_same(two_workers, folder, tmp_path):
    with connect(two_workers.address, gather_limit_bytes=0, chunk_units=2, partition_bytes=4000) as session:
        session.register_folder(folder)
        for mode in ("cpu", "cop"):
            session.sql(QUERIES["sort"]).write(tmp_path / "answer.parquet", mode=mode)
            assert pq.read_table(tmp_path / "answer.parquet")["k"].to_pylist() == list(range(ROWS))[::-1]


def test_parts_are_written_in_order_and_no_more_than_a_few_wait(folder, tmp_path, monkeypatch):
    kept = []
    release = InProcessExecutor.release

    def watched(self, keys):
        kept.append(sum(value.num_rows for value in self._values.values() if isinstance(value, pa.Table)))
        release(self, keys)

    monkeypatch.setattr(InProcessExecutor, "release", watched)
    monkeypatch.setattr("hybridq.dispatch.delivery.waiting_bytes", lambda devices: 5000)
    with connect_in_process(chunk_units=1) as session:
        session.register_folder(folder)
        session.sql(QUERIES["rows"]).write(tmp_path / "answer.csv", mode="cpu")
    assert len(kept) > 20
    assert max(kept) < ROWS / 4


def test_result_bytes_is_no_limit(folder, tmp_path):
    with connect_in_process(chunk_units=1, result_bytes=1000, gather_limit_bytes=0) as session:
        session.register_folder(folder)
        for name in ("sort", "rows", "groups", "window"):
            session.sql(QUERIES[name]).write(tmp_path / "answer.csv")
            with pytest.raises(ExecutionError, match="result_bytes"):
                session.sql(QUERIES[name]).collect()


def test_a_query_that_fails_leaves_the_file_that_was_there(session, tmp_path):
    path = tmp_path / "answer.csv"
    path.write_text("before")
    with pytest.raises(DivisionByZero):
        session.sql("select 1 / (k - 2000) from t").write(path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_disk_that_is_full_is_one_clear_error(session, tmp_path, monkeypatch, form):
    def full(self, table):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files._WRITERS[form], "write", full)
    with pytest.raises(ExecutionError, match=r"cannot write .*answer.*No space left"):
        session.sql(QUERIES["sort"]).write(tmp_path / f"answer.{form}")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_one_clear_error(session, tmp_path):
    with pytest.raises(ExecutionError, match="cannot write"):
        session.sql(QUERIES["sort"]).write(tmp_path / "none" / "answer.csv")


def test_a_format_has_to_be_known(session, tmp_path):
    with pytest.raises(RequestError, match=r"format 'xml' is not one of csv, json, parquet"):
        session.sql(QUERIES["sort"]).write(tmp_path / "answer.csv", format="xml")
    with pytest.raises(RequestError, match="format="):
        session.sql(QUERIES["sort"]).write(tmp_path / "answer")
    assert file_format(Path("answer"), "csv") == file_format(Path("a.CSV"), None) == "csv"


def test_an_answer_that_begins_again_is_written_anew(tmp_path):
    schema = pa.schema([("k", pa.int64())])
    for form in ("csv", "json", "parquet"):
        path = tmp_path / f"answer.{form}"
        with answer_file(path, form, schema) as file:
            file.begin()
            file.take(pa.table({"k": [1, 2]}))
            file.begin()
            file.take(pa.table({"k": [3]}))
        found = pq.read_table(path)["k"].to_pylist() if form == "parquet" else path.read_text()
        assert found == {"csv": "k\n3\n", "json": '[\n{"k": 3}\n]\n', "parquet": [3]}[form]


def test_small_parts_are_one_row_group(session, tmp_path):
    session.sql(QUERIES["sort"]).write(tmp_path / "answer.parquet", mode="cpu")
    assert pq.ParquetFile(tmp_path / "answer.parquet").metadata.num_row_groups == 1


def test_a_query_that_is_cancelled_leaves_nothing(two_workers, folder, tmp_path):
    with connect(two_workers.address, chunk_units=1) as session:
        session.register_folder(folder)
        query = session.sql(QUERIES["rows"])
        stop = threading.Event()

        class Slow:
            def begin(self):
                pass

            def take(self, table):
                stop.set()
                threading.Event().wait(0.05)

        handle = query._submit("cpu", False, Slow())
        assert stop.wait(60)
        handle.cancel()
        with pytest.raises(QueryCancelled):
            handle.finish()
