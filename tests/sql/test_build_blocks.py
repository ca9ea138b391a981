"""Build sides of partitioned joins most of whose rows have one key are taken in blocks, for every kind of join."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.dispatch.blocks import BuildBlocks
from hybridq.dispatch.pieces import PieceReader
from hybridq.session import connect
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import duckdb_answer

QUERIES = {
    "inner": "select l.x, l.n, r.m from l join r on l.x = r.x",
    "inner, residual": "select l.n, r.m from l join r on l.x = r.x and l.n < r.m",
    "inner, counted": "select count(*) from l join r on l.x = r.x",
    "left": "select l.x, l.n, r.m from l left join r on l.x = r.x",
    "left, residual": "select l.x, l.n, r.m from l left join r on l.x = r.x and r.m % 7 = l.n % 7",
    "left, no match": "select l.x, l.n, r.m from l left join r on l.x = r.x and r.m < 0",
    "right": "select r.m, l.n from r right join l on l.x = r.x",
    "full": "select l.x, r.x, l.n, r.m from l full join r on l.x = r.x and l.y = r.y",
    "semi": "select n from l where exists (select 1 from r where l.x = r.x)",
    "semi, residual": "select n, y from l where exists (select 1 from r where l.x = r.x and r.m = 3 * l.n)",
    "anti": "select n from l where not exists (select 1 from r where l.x = r.x)",
    "anti, residual": "select n from l where not exists (select 1 from r where l.x = r.x and r.m < 5 * l.n)",
    "mark": "select n from l where exists (select 1 from r where r.x = l.x) or y > 1",
    "mark, residual": "select n from l where exists (select 1 from r where r.x = l.x and r.m > 9 * l.n) or y > 1",
    "mark, in": "select n, (x in (select x from r) or n > 5) from l where x is not null",
    "not in": "select n from l where x not in (select x from r)",
    "not in, no NULL": "select n from l where x not in (select x from r where x is not null)",
    "two keys": "select l.n, r.m from l left join r on l.x = r.x and l.y = r.y",
    "two build sides": "select l.n, r.m, s.m o from l join r on l.x = r.x left join r s on s.x = l.x and s.m = r.m + 9",
    "of groups": "select t.x, t.c, count(r.m) from (select x, count(*) c from l group by x) t left join r on t.x = r.x"
    " group by t.x, t.c",
    "then groups": "select l.x, count(*), sum(r.m), median(r.m) from l left join r on l.x = r.x group by l.x",
    "of a union": "select t.n, r.m from (select x, n from l union all select y, n from l) t join r on t.x = r.x",
}


def write(folder, rows, seed=5, row_group_size=60):
    """Write table l, whose keys are few of a kind, and r, of whose rows nine of ten have key 5."""
    numbers = np.random.default_rng(seed)
    keys = numbers.integers(0, rows // 2, rows)
    keys[keys == 5] = 6
    keys[:: rows // 3] = 5
    left = {"x": pa.array(keys, mask=numbers.random(rows) < 0.1), "y": numbers.integers(0, 4, rows)}
    frequent = np.where(numbers.random(rows) < 0.9, 5, numbers.integers(0, rows // 2, rows))
    right = {"x": pa.array(frequent, mask=numbers.random(rows) < 0.02), "y": numbers.integers(0, 4, rows)}
    pq.write_table(pa.table({**left, "n": np.arange(rows)}), folder / "l.parquet", row_group_size=row_group_size)
    pq.write_table(pa.table({**right, "m": np.arange(rows)}), folder / "r.parquet", row_group_size=row_group_size)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("blocks")
    write(found, 300)
    return found


def blocks_read(monkeypatch):
    """Note the bytes of each block that is read while a test runs, and which joins are made so."""
    sizes, kinds = [], set()
    read_blocks, join = PieceReader.read_blocks, BuildBlocks.join

    def reading(self, *arguments):
        for table, last in read_blocks(self, *arguments):
            sizes.append(table.nbytes)
            yield table, last

    def joining(self, rows, step, *further):
        kinds.add(step.kind)
        return join(self, rows, step, *further)

    monkeypatch.setattr(PieceReader, "read_blocks", reading)
    monkeypatch.setattr(BuildBlocks, "join", joining)
    return sizes, kinds


@pytest.mark.parametrize("size", [100, 700])
def test_answers_are_duckdbs_and_no_block_is_larger_than_it_may_be(folder, monkeypatch, size):
    sizes, kinds = blocks_read(monkeypatch)
    options = {"chunk_units": 1, "partition_bytes": size, "split_memory_bytes": 1 if size == 700 else 0}
    with connect_in_process(broadcast_limit_bytes=0, **options) as session:
        session.register_folder(folder)
        for name, sql in QUERIES.items():
            if size == 100 and name not in ("inner", "left, residual", "semi", "anti", "mark"):
                continue
            query = session.sql(sql)
            expected = duckdb_answer(sql, folder, query.schema)
            for mode in ("cpu", "cop") if size == 700 else ("cpu",):
                assert_same_answer(query.collect(mode=mode).to_arrow(), expected)
    assert kinds == {"inner", "left", "semi", "anti", "mark"}
    assert max(sizes) <= size


KEYS = st.lists(st.none() | st.sampled_from([5, 5, 5, 5, 5, 1, 2]), max_size=30)


@given(left=KEYS, right=KEYS, name=st.sampled_from(sorted(QUERIES)), size=st.integers(1, 300), units=st.integers(1, 7))
@settings(max_examples=30, deadline=None)
def test_blocks_of_any_size(tmp_path_factory, left, right, name, size, units):
    folder = tmp_path_factory.mktemp("any")
    for table, keys, number in (("l", left, "n"), ("r", right, "m")):
        columns = {"x": pa.array(keys, pa.int64()), "y": pa.array([(k or 7) % 3 for k in keys], pa.int64())}
        columns[number] = np.arange(len(keys))
        pq.write_table(pa.table(columns), folder / f"{table}.parquet", row_group_size=units)
    with connect_in_process(broadcast_limit_bytes=0, chunk_units=1, partition_bytes=size) as session:
        session.register_folder(folder)
        query = session.sql(QUERIES[name])
        expected = duckdb_answer(QUERIES[name], folder, query.schema)
        assert_same_answer(query.collect(mode="cop").to_arrow(), expected)


def test_a_cluster_gives_the_same(two_workers, folder):
    with connect(two_workers.address, broadcast_limit_bytes=0, chunk_units=1, partition_bytes=500) as session:
        session.register_folder(folder)
        for name in ("left, residual", "two build sides"):
            query = session.sql(QUERIES[name])
            expected = duckdb_answer(QUERIES[name], folder, query.schema)
            assert_same_answer(query.collect(mode="cpu").to_arrow(), expected)
