"""Joins whose sides are split by key give what joins give whose build side is broadcast, and what DuckDB gives."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import duckdb_answer

NAN = float("nan")

QUERIES = {
    "inner": "select l.x, l.n, r.m from l join r on l.x = r.x",
    "two keys": "select l.x, l.n, r.m from l join r on l.x = r.x and l.y = r.y",
    "left": "select l.x, l.n, r.m from l left join r on l.x = r.x and l.n < r.m",
    "right": "select r.x, l.n, r.m from l right join r on l.x = r.x",
    "full": "select l.x, r.x, l.n, r.m from l full join r on l.x = r.x and l.y = r.y",
    "semi": "select n from l where exists (select 1 from r where l.x = r.x and r.m <> l.n)",
    "anti": "select n from l where not exists (select 1 from r where l.x = r.x)",
    "in": "select n from l where x in (select x from r)",
    "not in": "select n from l where x not in (select x from r)",
    "not in, filtered": "select n from l where x not in (select x from r where x is not null)",
    "not in, no row": "select n from l where x not in (select x from r where m < -5)",
    "not in, other key": "select n from l where x not in (select x from r where r.y = l.y)",
    "mark": "select n, (x in (select x from r) or n > 5) from l where x is not null",
    "mark, exists": "select n from l where exists (select 1 from r where r.x = l.x) or y > 1",
    "aggregate": "select l.x, count(*), sum(r.m) from l join r on l.x = r.x group by l.x",
    "again": "select count(*), sum(r.m), sum(s.n) from l join r on l.x = r.x join l s on s.x = r.x and s.y = l.y",
    "then by another": "select l.n, r.m, s.n from l join r on l.x = r.x left join l s on s.y = r.y",
    "union": "select t.x, r.m from (select x from l union all select x from l) t join r on t.x = r.x",
    "over groups": "select t.x, t.c, r.m from (select x, count(*) c from l group by x) t join r on t.x = r.x",
    "top": "select l.n, r.m from l join r on l.x = r.x order by l.n, r.m limit 3",
}

TYPES = {
    "int64": (pa.int64(), [1, 2, 3, -(2**62), 2**62]),
    "int32": (pa.int32(), [0, 1, -1, 2**31 - 1]),
    "text": (pa.string(), ["", "a", "b", "a much longer text", "ü"]),
    "date": (pa.date32(), [datetime.date(1992, 1, 1), datetime.date(2024, 2, 29)]),
    "time": (pa.timestamp("us"), [datetime.datetime(2000, 1, 1), datetime.datetime(1969, 12, 31, 23, 59)]),
    "decimal": (pa.decimal128(15, 2), [Decimal("1.00"), Decimal("-0.01"), Decimal("123456789.99")]),
    "wide decimal": (pa.decimal128(38, 4), [Decimal("1.0000"), Decimal(10**33) + Decimal("0.0001")]),
    "float": (pa.float64(), [0.0, -0.0, NAN, 1.5, float("inf")]),
    "boolean": (pa.bool_(), [True, False]),
}


@pytest.fixture(scope="module", params=["whole", "cut", "in files"])
def session(request):
    options = {
        "whole": {},
        "cut": {"partition_bytes": 60, "cpu_chunk_rows": 2},
        "in files": {"split_memory_bytes": 1, "partition_bytes": 50},
    }
    with connect_in_process(broadcast_limit_bytes=0, chunk_units=1, **options[request.param]) as session:
        yield session


def check(session, folder, sql, modes=("cpu", "gpu", "cop"), order_by=()):
    query = session.sql(sql)
    expected = duckdb_answer(sql, folder, query.schema)
    for mode in modes:
        assert_same_answer(query.collect(mode=mode).to_arrow(), expected, order_by=order_by)
    return query


def write(folder, session, **tables):
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=3)
        session.register(name, folder / f"{name}.parquet")


def make_tables(session, made, type_name):
    """Make tables l and r whose keys repeat, are NULL, and meet now and then."""
    data_type, values = TYPES[type_name]
    numbers = np.random.default_rng(11)

    def side(rows, name):
        chosen = numbers.integers(0, len(values) + 1, rows).tolist()
        keys = pa.array([values[i] if i < len(values) else None for i in chosen], data_type)
        other = pa.array([None if i == 3 else int(i) for i in numbers.integers(0, 4, rows)], pa.int32())
        return pa.table({"x": keys, "y": other, name: np.arange(rows)})

    write(made, session, l=side(14, "n"), r=side(9, "m"))


def test_every_kind_of_join(session, tmp_path):
    make_tables(session, tmp_path, "int64")
    for name, sql in QUERIES.items():
        query = check(session, tmp_path, sql, ("cpu", "cop"), order_by=(0, 1) if name == "top" else ())
        assert any(join.method == "partitioned" for stage in query.explain().stages for join in stage.joins)


@pytest.mark.parametrize("type_name", TYPES)
def test_every_type_of_key(session, tmp_path, type_name):
    make_tables(session, tmp_path, type_name)
    for name in ("full", "not in, filtered", "mark, exists"):
        check(session, tmp_path, QUERIES[name], ("gpu",))


@pytest.mark.parametrize("method", ["hash", "merge", "index"])
@pytest.mark.parametrize("limit", [0, 2**30], ids=["partitioned", "broadcast"])
def test_every_method_that_is_asked_for_gives_the_same(tmp_path, method, limit):
    with connect_in_process(join_method=method, broadcast_limit_bytes=limit, chunk_units=1) as session:
        for type_name in ("int64", "text", "float"):
            make_tables(session, tmp_path, type_name)
            for name in ("two keys", "left", "full", "semi", "not in", "mark"):
                query = check(session, tmp_path, QUERIES[name], ("cpu", "cop"))
        assert f", by {method}" in str(query.explain())
        stages = query.collect(mode="cop").report.stages
        lacking = f"the GPU engine has no {method} joins"
        assert any(lacking in stage.reason for stage in stages) == (method != "hash")


KEYS = st.lists(st.none() | st.integers(0, 4), max_size=12)


@given(left=KEYS, right=KEYS, name=st.sampled_from(sorted(set(QUERIES) - {"top"})))
@settings(max_examples=40, deadline=None)
def test_joins_of_any_rows(tmp_path_factory, left, right, name):
    folder = tmp_path_factory.mktemp("any")
    with connect_in_process(broadcast_limit_bytes=0, chunk_units=1, partition_bytes=30, cpu_chunk_rows=3) as session:
        sides = {"l": (left, "n"), "r": (right, "m")}
        for table, (keys, number) in sides.items():
            columns = {"x": pa.array(keys, pa.int64()), "y": pa.array([(k or 7) % 3 for k in keys], pa.int64())}
            write(folder, session, **{table: pa.table({**columns, number: np.arange(len(keys))})})
        check(session, folder, QUERIES[name], modes=("cop",))


def zipf(rows, seed):
    return np.minimum(np.random.default_rng(seed).zipf(1.2, rows), 10**6)


@pytest.mark.parametrize("skew", ["zipf", "one key"])
def test_frequent_keys_are_cut_by_chunks(tmp_path, skew):
    rows = 40_000
    keys = zipf(rows, 1) if skew == "zipf" else np.where(np.arange(rows) % 10 > 0, 5, np.arange(rows))
    large = pa.table({"x": keys, "n": np.arange(rows)})
    small = pa.table({"x": np.arange(3000), "m": np.arange(3000) % 17})
    for name, table in (("l", large), ("r", small)):
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=500)
    options = {"partition_bytes": 16_000, "cpu_chunk_rows": 1000, "chunk_units": 2}
    with connect_in_process(broadcast_limit_bytes=0, **options) as session:
        session.register_folder(tmp_path)
        query = check(session, tmp_path, "select r.m, count(*), sum(l.n) from l join r on l.x = r.x group by r.m")
        report = query.collect(mode="cpu").report
    join = next(stage for stage in report.stages if "partitioned" in stage.title)
    assert max(span.rows for span in join.spans if span.what == "chunk") <= 2 * options["cpu_chunk_rows"]


def test_the_report_and_explain_name_the_method_and_what_was_spilled(tmp_path):
    with connect_in_process(broadcast_limit_bytes=0, split_memory_bytes=1) as session:
        write(tmp_path, session, l=pa.table({"x": [1, 2]}), r=pa.table({"x": [2, 3]}))
        query = session.sql("select count(*) from l join r on l.x = r.x")
        assert "inner join with stage 0 on l.x = r.x: partitioned" in str(query.explain())
        text = str(query.explain(analyze=True))
        assert "split by" in text
        assert "of pieces written to workers' files" in text
        stages = query.collect().report.to_dict()["stages"]
        assert [stage["spilled_bytes"] > 0 for stage in stages] == [True, True, False]


def test_decimal_keys_of_different_scale_meet(tmp_path):
    with connect_in_process(broadcast_limit_bytes=0) as session:
        one = pa.array([Decimal("1.50"), Decimal("2.25"), None], pa.decimal128(10, 2))
        other = pa.array([Decimal("1.5000"), Decimal("2.2501"), None], pa.decimal128(12, 4))
        write(tmp_path, session, l=pa.table({"x": one}), r=pa.table({"x": other}))
        check(session, tmp_path, "select l.x, r.x from l join r on l.x = r.x")
        write(tmp_path, session, l=pa.table({"x": pa.array([1, 2], pa.int32())}), r=pa.table({"x": [2, 3]}))
        check(session, tmp_path, "select l.x, r.x from l join r on l.x = r.x")
