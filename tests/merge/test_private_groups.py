"""HAVING is applied in the chunk to groups that no other chunk has, and only to those."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.config import Config
from hybridq.dispatch import tasks
from hybridq.dispatch.pieces import PieceStore
from hybridq.dispatch.tasks import ChunkTask, compute_chunk
from hybridq.engines.cpu import CpuEngine
from hybridq.physical.units import ChunkSource, KeyRanges
from hybridq.session import Session
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process

GROUP_ROWS = 100


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(5)
    size = 1000
    key = np.sort(generator.integers(-40, 40, size))
    table = pa.table({
        "k": pa.array(key, mask=generator.random(size) < 0.02), "v": generator.integers(-5, 10, size),
        "shuffled": generator.permutation(key),
    })  # fmt: skip
    path = tmp_path_factory.mktemp("clustered") / "t.parquet"
    pq.write_table(table, path, row_group_size=GROUP_ROWS)
    return path


@pytest.fixture(scope="module")
def session(file: Path) -> Iterator[Session]:
    with connect_in_process(chunk_units=2) as session:
        session.register("t", file)
        yield session


@pytest.fixture(scope="module")
def one_chunk(file: Path) -> Iterator[Session]:
    with connect_in_process(chunk_units=100) as session:
        session.register("t", file)
        yield session


@pytest.mark.parametrize(
    "sql",
    [
        "select k, sum(v) as s from t group by k having sum(v) > 40",
        "select k, sum(v) as s, avg(v) as a from t group by k having avg(v) > 2.5 and count(*) > 10 order by s limit 5",
        "select k + 1 as k, sum(v) as s from t group by k having k > 0 and sum(v) <> 7",
        "select k, shuffled, max(v) as m from t group by k, shuffled having max(v) < 2",
        "select shuffled, sum(v) as s from t group by shuffled having sum(v) > 40",
        "select k, sum(v) as s from t group by k having sum(v) > (select avg(v) * 12 from t)",
        "select k, sum(v) as s from t where v > 3 group by k having sum(v) > 1000",
        "select k, sum(v) as s from t group by k order by s desc, k limit 7",
        "select k, avg(v) as a, count(*) n from t group by k order by a, n desc, k desc nulls first limit 3 offset 2",
        "select k, min(v) as m from t group by k having count(*) > 9 order by m desc, k limit 4",
        "select sum(v) + 1 as s from t group by k order by k desc nulls last limit 5",
    ],
)
@pytest.mark.parametrize("mode", ["cpu", "gpu", "cop"])
@pytest.mark.parametrize("chunks", ["several", "one"])
def test_the_answer_is_duckdbs(
    session: Session, one_chunk: Session, file: Path, sql: str, mode: str, chunks: str
) -> None:
    session = session if chunks == "several" else one_chunk
    with duckdb.connect() as connection:
        connection.sql(f"create view t as select * from '{file}'")
        expected = connection.sql(sql).to_arrow_table()
    answer = session.sql(sql).collect(mode=mode).to_arrow()
    expected = expected.cast(answer.schema)
    assert_same_answer(answer, expected)


@pytest.mark.parametrize(("sql", "most"), [
    # At most the first and the last key, which the neighbours may have too, and NULL.
    ("select k from t group by k having sum(v) > 1000", 3),
    ("select k from t group by k order by sum(v) limit 1 offset 1", 5),
    ("select k from t group by k having sum(v) < 1000 order by sum(v) limit 1", 4),
])  # fmt: skip
def test_few_groups_are_left_to_merge(session: Session, sql: str, most: int) -> None:
    (stage,) = session.sql(sql)._physical.stages
    source = ChunkSource(stage, session._catalog, Config(chunk_units=2))
    while (chunk := source.take(1)) is not None:
        task = ChunkTask("q", "t", "k", pickle.dumps(stage), chunk, "cpu", False)
        table, _ = compute_chunk(task, CpuEngine(), [], PieceStore(), no_pieces)
        assert isinstance(table, pa.Table)
        assert table.num_rows <= most
        for half in source.halve(chunk) or ():
            assert half.private is not None
            assert half.private != chunk.private


@pytest.mark.parametrize(("sql", "most"), [
    ("select k from t group by k having sum(v) > 1000", 0),
    ("select shuffled from t group by shuffled order by sum(v), shuffled limit 1 offset 1", 2),
])  # fmt: skip
def test_a_chunk_that_is_all_leaves_fewer(session: Session, sql: str, most: int, monkeypatch) -> None:
    (stage,) = session.sql(sql)._physical.stages
    chunk = ChunkSource(stage, session._catalog, Config(chunk_units=100)).take(10**9)
    assert chunk is not None
    merged = []
    original = tasks.merge_tables
    monkeypatch.setattr(
        tasks, "merge_tables", lambda stage, parts, last: merged.extend(parts) or original(stage, parts, last)
    )
    task = ChunkTask("q", "t", "k", pickle.dumps(stage), chunk, "cpu", True)
    table, _ = compute_chunk(task, CpuEngine(), [], PieceStore(), no_pieces)
    assert [part.num_rows for part in merged] == [most]
    assert isinstance(table, pa.Table)
    assert table.num_rows <= most


def no_pieces(*arguments: object) -> list[list[pa.Buffer]]:
    raise AssertionError("nothing was split")


def test_keys_that_no_other_unit_has() -> None:
    low, high = np.array([0, 10, 20, 15]), np.array([10, 20, 30, 18])
    ranges = KeyRanges(low, high)
    assert ranges.private(0, 1) == (np.iinfo(np.int64).min, 10)
    assert ranges.private(1, 2) == (10, 15)
    assert ranges.private(2, 4) == (20, np.iinfo(np.int64).max)
    assert ranges.private(3, 4) == (30, np.iinfo(np.int64).max)
