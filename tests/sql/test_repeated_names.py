"""Answers with several columns of one name."""

from __future__ import annotations

import json

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.errors import AmbiguousColumn, SqlError
from hybridq.testing.in_process import connect_in_process

TABLES = {
    "l": pa.table({"a": [10, 20, 30], "k": [1, 2, None], "id": [1, 2, 3]}),
    "r": pa.table({"b": [200, 300, 400], "id": [1, 5, 7], "k": [2, 3, None]}),
}


@pytest.fixture(scope="module")
def session():
    with connect_in_process() as opened:
        for name, table in TABLES.items():
            opened.register(name, table)
        yield opened


@pytest.fixture(scope="module")
def peer():
    connection = duckdb.connect()
    for name, table in TABLES.items():
        connection.register(name, table)
    return connection


def rows(table):
    """Return rows as lists: as dicts they would lose what repeats."""
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=str)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("select * from (select * from l, r) t", ("a", "k", "id", "b", "id", "k")),
        ("with t as (select l.id, r.id from l, r) select * from t, (select 1 as id) u", ("id", "id", "id")),
        ('select "id:1" from (select id as "id:1", id from l) t', ("id:1",)),
    ],
)
def test_names_of_subqueries_are_as_they_were_written(session, peer, text, names):
    query = session.sql(text)
    assert query.collect().to_arrow().column_names == list(names)
    assert rows(query.collect().to_arrow()) == sorted(peer.sql(text).fetchall(), key=str)


@pytest.mark.parametrize(
    "text",
    [
        "select a as x, k as x from l",
        'select a "X y", (k) "X y", id as "X y" from l -- three',
        "select a, a /* again */ from l",
        "select *, a from l",
        "select a, *, k as a from l",
        "select l.*, r.* from l, r",
        "select distinct l.*, r.*, l.id from l, r",
        "select case when a > 10 then a end as id, l.id, r.id from l, r",
        "select r.id, l.id + 1 as id, l.id from l, r",
        "with w as (select a, k from l) select w.*, a from w order by 1 limit 2",
        "select a, sum(id) as n, sum(id) over () as n, a from l group by a, id",
        "select a as x, k as x from l group by a, k having a > 10",
        "select a, k from l union all select a, a from l",
        "select a as x, k as y from l union all select a as u, k as u from l",
        "select a as x, k as x from l union all select id as y, k as y from l",
        "select unnest([1, 2]) as x, a as x from l",
        "select k, coalesce(l.k, r.k) as k from l full join r using (k)",
        "select a, a from l order by a desc limit 1",
    ],
)
def test_columns_and_their_names(text, session, peer):
    found, expected = session.sql(text).collect().to_arrow(), peer.sql(text).to_arrow_table()
    assert found.column_names == expected.column_names
    assert rows(found) == rows(expected)


def test_of_expressions(session):
    answer = session.sql("select sum(a), sum(a), count(*), count(*), 1 as n, 2 as n from l").collect().to_arrow()
    assert answer.column_names == ["sum(l.a)", "sum(l.a)", "count(*)", "count(*)", "n", "n"]
    assert rows(answer) == [(60, 60, 3, 3, 1, 2)]


def test_none_is_lost_on_the_way_out(session, tmp_path):
    query = session.sql("select a as x, k as x from l where a < 30 order by 1")
    assert query.collect().to_pandas().values.tolist() == [[10, 1], [20, 2]]
    query.write(tmp_path / "answer.parquet")
    assert pq.read_table(tmp_path / "answer.parquet").to_pylist() == [{"x": 10, "x_2": 1}, {"x": 20, "x_2": 2}]
    query.write(tmp_path / "answer.json")
    assert json.loads((tmp_path / "answer.json").read_text()) == [{"x": 10, "x_2": 1}, {"x": 20, "x_2": 2}]
    query.write(tmp_path / "answer.csv")
    assert (tmp_path / "answer.csv").read_text() == "x,x\n10,1\n20,2\n"


@pytest.mark.parametrize("order", ["x", "x desc nulls last", "a, x"])
def test_order_by_one_of_several(order, session):
    with pytest.raises(AmbiguousColumn, match=r"ORDER BY x: 2 columns of SELECT have that name: .* ORDER BY 1"):
        session.sql(f"select a as x, k as x from l order by {order}")


@pytest.mark.parametrize(
    "text",
    [
        "select x from (select a as x, k as x from l) t",
        "select l.*, l.* from l as l",
        "select x from (select a + 1 as x, t.x from (select a as x, a from l) t) u",
    ],
)
def test_where_they_are_refused(text, session):
    with pytest.raises(
        SqlError, match=r"two columns of a subquery \(or of \* twice\) are named [ax]: give one another"
    ):
        session.sql(text)
