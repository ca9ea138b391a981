"""Columns of structs: read, passed through every kind of stage, and their fields."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.errors import HybridqError, SqlError, Unsupported
from hybridq.session import Session
from hybridq.testing.in_process import connect_in_process

POINT = pa.struct({"x": pa.int64(), "y": pa.large_string(), "in": pa.struct({"z": pa.float64()})})
TABLE = pa.table({
    "k": pa.array([1, 2, 3, 4, 5], pa.int32()),
    "p": pa.array([{"x": 1, "y": "a", "in": {"z": 0.5}}, {"x": None, "y": "b", "in": None}, None,
                   {"x": 4, "y": None, "in": {"z": None}}, {"x": 1, "y": "ü", "in": {"z": 2.0}}], POINT),
    "l": pa.array([[{"u": 1}, {"u": None}], [], None, [None], [{"u": 7}]], pa.list_(pa.struct({"u": pa.int8()}))),
})  # fmt: skip

QUERIES = [
    "select k, p from t",
    "select p['x'] as x, p.y as y, t.p['in']['z'] as z from t",
    "select p.x + 1 as x from t where p['y'] <> 'b' or p.\"in\".z is null",
    "select k from t where p is null",
    "select p, l from t order by k desc limit 2",
    "select p from t order by p['x'] nulls first, k",
    "select p['x'] as x, count(*) as n, max(p['y']) as y, sum(p['in']['z']) as z from t group by p['x']",
    "select a.p, b.k, b.l from t a left join t b on a.k = b.k + 1 and b.k < 4",
    "select a.p from t a join t b on a.p['x'] = b.p['x'] where a.k <> b.k",
    "select p from t where k in (select p['x'] from t)",
    "select p from t union all select p from t where k > 2",
    "select case when k > 2 then p end as v, coalesce(p, p) as w from t",
    "select k, lag(p) over (order by k) as v, row_number() over (order by p['x'], k) as n from t",
    "select l[1] as v, l[1]['u'] as u, array_length(l) as n from t",
    "select count(p) as n, count(p.x) as m from t",
    "select any_value(p) as p from t where k = 5",
    "select (array_agg(p order by k))[1] as v from t",
]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    path = tmp_path_factory.mktemp("structs") / "t.parquet"
    pq.write_table(TABLE, path, row_group_size=2)
    with connect_in_process(chunk_units=1) as opened:
        opened.register("t", str(path))
        yield opened


@pytest.mark.parametrize("sql", QUERIES)
def test_as_duckdb(session: Session, sql: str) -> None:
    with duckdb.connect() as connection:
        connection.register("t", TABLE)
        expected = connection.sql(sql).to_arrow_table().to_pylist()
    for mode in ("cpu", "gpu", "cop"):
        found = session.sql(sql).collect(mode=mode).to_arrow().to_pylist()
        assert sorted(map(str, found)) == sorted(map(str, expected))


def test_a_stage_with_structs_runs_on_the_cpu(session: Session) -> None:
    report = session.sql("select p from t").collect(mode="gpu").report
    assert "the GPU engine has no columns of type struct" in str(report)
    with pytest.raises(HybridqError, match="struct"):
        session.sql("select p from t").collect(mode="gpu", strict=True)


def test_an_answer_with_structs_is_written(session: Session, tmp_path: Path) -> None:
    session.sql("select k, p from t order by k").write(tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet")["p"].to_pylist() == TABLE["p"].to_pylist()


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("select k from t order by p", Unsupported, "t.p is of type struct"),
        ("select distinct p from t", Unsupported, "t.p is of type struct"),
        ("select max(p) from t", Unsupported, "t.p is of type struct"),
        ("select a.k from t a join t b on a.p = b.p", Unsupported, "t.p, of type struct"),
        ("select p['q'] from t", SqlError, "Field q not found"),
        ("select struct(k, k) from t", Unsupported, "a row of values"),
        ("select coalesce(p, (select p from t where k = 1)) from t", Unsupported, "join it instead"),
        ("select array_agg(k)[3] from t", Unsupported, "the first and the last value"),
    ],
)
def test_what_is_refused_is_named(session: Session, sql: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        session.sql(sql).collect()
