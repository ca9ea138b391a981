"""Cases that users of other engines have filed as faults, with the values that are right in SQL.

The smaller ones are beside their like in the other files of this folder; here are those that need many rows, many
chunks or many runs.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import duckdb_answer

MODES = ("cpu", "gpu", "cop")


@pytest.fixture
def session(tmp_path):
    with connect_in_process(chunk_units=1) as session:
        yield session


def store(session, folder, row_group_size, **tables):
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=row_group_size)
        session.register(name, folder / f"{name}.parquet")


def same_as_duckdb(session, folder, sql, order_by=()):
    query = session.sql(sql)
    expected = duckdb_answer(sql, folder, query.schema)
    for mode in MODES:
        assert_same_answer(query.collect(mode=mode).to_arrow(), expected, order_by=order_by)
    return expected


def test_pairs_with_a_null_are_not_counted_as_distinct(session, tmp_path):
    t = pa.table({"a": pa.array([1, 1, None, 2, 1]), "b": pa.array([1, 1, 1, None, 2])})
    store(session, tmp_path, 1, t=t)
    for mode in MODES:
        counted = session.sql("select count(distinct a, b) as n from t").collect(mode=mode).to_arrow()
        assert counted.column(0).to_pylist() == [2]


def test_sums_of_wide_decimals_are_the_same_every_time(session, tmp_path):
    random = np.random.default_rng(1)
    rows = 200_000
    keys = pa.array(random.integers(0, 4, rows))
    digits = random.integers(-(10**17), 10**17, (3, rows))
    columns = {
        f"d{n}": pa.array([Decimal(int(v)).scaleb(-2) for v in digits[n]], pa.decimal128(38, 2)) for n in range(3)
    }
    store(session, tmp_path, 25_000, t=pa.table({"k": keys, **columns}))
    query = session.sql("select k, sum(d0) as a, sum(d1) as b, sum(d2) as c from t group by k order by k")
    first = query.collect(mode="cpu").to_arrow()
    right = [sum(int(v) for v, k in zip(digits[0], keys.to_pylist(), strict=True) if k == key) for key in range(4)]
    assert first.column("a").to_pylist() == [Decimal(value).scaleb(-2) for value in right]
    for _ in range(3):
        for mode in MODES:
            assert query.collect(mode=mode).to_arrow().equals(first)


def test_a_key_with_most_of_the_rows_joins_right(session, tmp_path):
    random = np.random.default_rng(2)
    skewed = np.where(random.random(20_000) < 0.9, 7, random.integers(0, 1000, 20_000))
    probe = pa.table({"k": skewed, "x": np.arange(20_000)})
    build = pa.table({"k": np.concatenate([np.full(20, 7), np.arange(1000)]), "y": np.arange(1020)})
    store(session, tmp_path, 3_000, probe=probe, build=build)
    answer = same_as_duckdb(
        session,
        tmp_path,
        "select p.k, count(*) as n, sum(x + y) as s from probe p join build b on p.k = b.k group by p.k order by p.k",
        order_by=("k",),
    )
    assert max(answer.column("n").to_pylist()) > 300_000
    same_as_duckdb(
        session, tmp_path, "select count(*) as n, count(b.k) as m from probe p left join build b on p.k = b.k + 500"
    )


@pytest.mark.parametrize("row_group_size", [3, 5_000], ids=["many small row groups", "one large row group"])
def test_row_groups_of_any_size(tmp_path, row_group_size):
    t = pa.table({"k": np.arange(5_000) % 7, "x": np.arange(5_000)})
    pq.write_table(t, tmp_path / "t.parquet", row_group_size=row_group_size)
    with connect_in_process() as session:
        session.register("t", tmp_path / "t.parquet")
        query = session.sql("select k, sum(x) as s, count(*) as n from t where x >= 10 group by k order by k")
        for mode in MODES:
            result = query.collect(mode=mode)
            answer = result.to_arrow()
            assert sum(answer.column("n").to_pylist()) == 4_990
            assert sum(answer.column("s").to_pylist()) == sum(range(10, 5_000))
            # Small row groups are read together.
            assert sum(device.chunks for device in result.report.stages[0].devices) <= 64


def test_the_same_query_many_times_with_other_placements(session, tmp_path):
    t = pa.table({"k": [n % 5 for n in range(60)], "f": [n / 8 for n in range(60)]})
    store(session, tmp_path, 4, t=t)
    query = session.sql("select k, sum(f) as s, avg(f) as a from t group by k order by k")
    first = query.collect(mode="cpu")
    for number in range(20):
        mode = MODES[number % 3]
        again = query.collect(mode=mode)
        assert again.to_arrow().equals(first.to_arrow())
        assert again.report is not first.report
        stage = again.report.stages[0]
        assert stage.mode == f"EXEC_{mode.upper()}"
        assert sum(device.rows for device in stage.devices) == 60


def test_more_files_of_other_sizes_and_an_empty_one(tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    for number, rows in enumerate((0, 1, 100, 0, 7)):
        table = pa.table(
            {"k": pa.array(range(rows), pa.int64()), "s": pa.array([f"v{n % 3}" for n in range(rows)], pa.string())}
        )
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=16)
    with connect_in_process(chunk_units=1) as session:
        session.register("t", folder)
        query = session.sql("select s, count(*) as n, sum(k) as total from t group by s order by s")
        for mode in MODES:
            rows = query.collect(mode=mode).to_arrow().to_pylist()
            assert [(row["s"], row["n"]) for row in rows] == [("v0", 38), ("v1", 35), ("v2", 35)]
            assert sum(row["total"] for row in rows) == sum(range(100)) + sum(range(7))


def test_exists_with_another_key(session, tmp_path):
    ids = {"x": pa.table({"id": pa.array([1, 2, 3, 3])}), "y": pa.table({"id": pa.array([1, 2, 2])})}
    store(session, tmp_path, 1, **ids)
    found = same_as_duckdb(session, tmp_path, "select id from x where exists (select 1 from y where y.id <> x.id)")
    assert sorted(found.column(0).to_pylist()) == [1, 2, 3, 3]
    one = "select id from x where exists (select 1 from y where y.id <> x.id and y.id > 1)"
    assert sorted(same_as_duckdb(session, tmp_path, one).column(0).to_pylist()) == [1, 3, 3]
