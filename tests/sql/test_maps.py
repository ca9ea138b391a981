"""Columns of maps: read, passed through every kind of stage, and taken apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.errors import CastFailed, Unsupported
from hybridq.session import Session
from hybridq.testing.in_process import connect_in_process

POINT = pa.struct({"x": pa.int64(), "y": pa.large_string()})
TABLE = pa.table({
    "k": pa.array([1, 2, 3, 4, 5], pa.int32()),
    "s": pa.array(["a", "b", "a", "ü", None]),
    "m": pa.array([[("a", 1)], [], None, [("b", None), ("ü", 7)], [("a", 1)]], pa.map_(pa.large_string(), pa.int64())),
    "n": pa.array([[(1, [1.5])], None, [(2, []), (1, None)], [], [(1, [2.0, None])]],
                  pa.map_(pa.int32(), pa.list_(pa.float64()))),
    "p": pa.array([[("q", {"x": 1, "y": "z"})], [("q", None)], None, [], []], pa.map_(pa.string(), POINT)),
})  # fmt: skip

QUERIES = [
    "select k, m, n, p from t",
    "select k, m['a'] as x, m['b'] is null as y, m['none'] as z from t",
    "select m[s] as x from t",
    "select n[1] as x, n[1][1] as y, n[2] as z from t",
    "select p['q'] as x, p['q']['y'] as y from t",
    "select map_keys(m) as x, map_values(m) as y, cardinality(m) as z, map_values(n) as v, map_keys(p)[1] as w from t",
    "select k from t where m['a'] = 1 or m is null",
    "select m, n from t order by k desc limit 2",
    "select m['a'] as x, count(*) as n, max(m['ü']) as y from t group by m['a']",
    "select a.m, b.k, b.n from t a left join t b on a.k = b.k + 1 and b.k < 4",
    "select a.k, b.m from t a join t b on a.m['a'] = b.m['a']",
    "select m from t where k in (select m['a'] from t)",
    "select m from t union all select m from t where k > 2",
    "select case when k > 2 then m end as v, coalesce(m, m) as w from t",
    "select k, lag(m) over (order by k) as v from t",
    "select count(m) as n, count(m['a']) as x from t",
    "select any_value(n) as x from t where k = 5",
    "select (array_agg(m order by k))[1] as x from t",
    "select k, x from t, unnest(map_keys(m)) as v(x)",
]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    path = tmp_path_factory.mktemp("maps") / "t.parquet"
    pq.write_table(TABLE, path, row_group_size=2)
    with connect_in_process(chunk_units=1) as opened:
        opened.register("t", str(path))
        opened.register("in_memory", TABLE)
        yield opened


@pytest.mark.parametrize("sql", QUERIES)
def test_as_duckdb(session: Session, sql: str) -> None:
    with duckdb.connect() as connection:
        connection.register("t", TABLE)
        expected = connection.sql(sql).to_arrow_table().to_pylist()
    for mode in ("cpu", "gpu", "cop"):
        found = session.sql(sql).collect(mode=mode).to_arrow().to_pylist()
        assert sorted(map(str, found)) == sorted(map(str, expected))


def test_a_table_in_memory(session: Session) -> None:
    answer = session.sql("select m, m['a'] as x from in_memory where k > 3 order by k").collect().to_arrow()
    assert answer.schema.types == [pa.map_(pa.string(), pa.int64()), pa.int64()]
    assert answer.to_pydict() == {"m": TABLE["m"].to_pylist()[3:], "x": [None, 1]}


def test_of_several_equal_keys_the_last_counts(session: Session) -> None:
    twice = pa.array([[("a", 1), ("a", 2), ("b", 3)]], pa.map_(pa.string(), pa.int8()))
    session.register("twice", pa.table({"m": twice}))
    assert session.sql("select m['a'] as x, m['b'] as y from twice").collect().to_arrow().to_pylist() == [
        {"x": 2, "y": 3}
    ]


def test_a_stage_with_maps_runs_on_the_cpu(session: Session) -> None:
    report = session.sql("select m from t").collect(mode="gpu").report
    assert "the GPU engine has no columns of type map" in str(report)


def test_an_answer_with_maps_is_written(session: Session, tmp_path: Path) -> None:
    session.sql("select k, m from t order by k").write(tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet")["m"].to_pylist() == TABLE["m"].to_pylist()


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("select k from t order by m", Unsupported, "t.m is of type map"),
        ("select distinct m from t", Unsupported, "t.m is of type map"),
        ("select max(m) from t", Unsupported, "t.m is of type map"),
        ("select a.k from t a join t b on a.m = b.m", Unsupported, "t.m, of type map"),
        ("select map_entries(m) from t", Unsupported, "map_entries of t.m"),
        ("select n['x'] from t", CastFailed, "cannot cast 'x' to int32"),
    ],
)
def test_what_is_refused_is_named(session: Session, sql: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        session.sql(sql).collect()
