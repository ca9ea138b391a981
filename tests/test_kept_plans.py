from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hybridq as hq
from hybridq import planning
from hybridq.errors import DataError, UnknownColumn, UnknownTable
from hybridq.testing.in_process import connect_in_process


@pytest.fixture
def planned(monkeypatch):
    """The texts that were planned, one after the other."""
    texts = []
    original = planning.logical_plan

    def noted(source, catalog):
        texts.append(source)
        return original(source, catalog)

    monkeypatch.setattr(planning, "logical_plan", noted)
    return texts


def rows(query):
    return query.collect().to_arrow().to_pylist()


def test_a_text_is_planned_once(planned):
    with connect_in_process() as session:
        session.register("t", pa.table({"x": [1, 2, 3]}))
        for _ in range(3):
            assert rows(session.sql("select sum(x) as s from t")) == [{"s": 6}]
        assert len(planned) == 1
        assert rows(session.sql("select sum(x) as s from t where x > 1")) == [{"s": 5}]
        assert len(planned) == 2


def test_no_plan_is_kept_where_none_is_to_be(planned):
    with connect_in_process(kept_plans=0) as session:
        session.register("t", pa.table({"x": [1, 2, 3]}))
        for _ in range(2):
            assert rows(session.sql("select sum(x) as s from t")) == [{"s": 6}]
        assert len(planned) == 2


def test_the_plan_asked_for_longest_ago_goes_first(planned):
    with connect_in_process(kept_plans=2) as session:
        texts = [f"select {number} as x" for number in range(3)]
        for number in (0, 1, 0, 2, 0, 1):
            assert rows(session.sql(texts[number])) == [{"x": number}]
        assert planned == [texts[0], texts[1], texts[2], texts[1]]
        assert len(session._plans) == 2


def test_a_table_registered_anew_is_planned_anew():
    text = "select * from t where x > 1 order by x"
    with connect_in_process() as session:
        session.register("t", pa.table({"x": [1, 2]}))
        assert rows(session.sql(text)) == [{"x": 2}]
        session.register("t", pa.table({"y": ["a", "b"], "x": [1.5, 0.5]}))
        assert rows(session.sql(text)) == [{"y": "a", "x": 1.5}]
        session.register("t", pa.table({"y": [1]}))
        with pytest.raises(UnknownColumn):
            session.sql(text)


def test_a_table_that_joins_others_changes_what_a_text_means():
    """A name without a table is taken for one as soon as there is one."""
    text = "select count(*) as n from t"
    with connect_in_process() as session:
        with pytest.raises(UnknownTable):
            session.sql(text)
        session.register("t", pa.table({"x": [1, 2]}))
        assert rows(session.sql(text)) == [{"n": 2}]


def test_a_query_is_planned_anew_where_its_table_was_registered_since():
    with connect_in_process() as session:
        session.register("t", pa.table({"x": [1, 2], "g": [0, 0]}))
        queries = [session.sql("select * from t order by x"), session.query(hq.scan("t"))]
        assert rows(queries[0]) == rows(queries[1]) == [{"x": 1, "g": 0}, {"x": 2, "g": 0}]
        session.register("t", pa.table({"g": ["a"], "x": [3]}))
        for query in queries:
            assert query.schema.types == [pa.string(), pa.int64()]
            assert rows(query) == [{"g": "a", "x": 3}]


def test_files_that_change_are_noticed(tmp_path):
    text = "select sum(x) as s from t"
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": [1, 2]}), path)
    with connect_in_process() as session:
        session.register("t", path)
        assert rows(session.sql(text)) == [{"s": 3}]
        pq.write_table(pa.table({"x": [10, 20, 30]}), path)
        with pytest.raises(DataError, match="changed"):
            session.sql(text).collect()
        session.register("t", path)
        assert rows(session.sql(text)) == [{"s": 60}]


def test_a_folder_registered_anew_has_its_new_files(tmp_path):
    text = "select count(*) as n from t"
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "t" / "a.parquet")
    with connect_in_process() as session:
        session.register_folder(tmp_path)
        assert rows(session.sql(text)) == [{"n": 2}]
        pq.write_table(pa.table({"x": [3]}), tmp_path / "t" / "b.parquet")
        session.register_folder(tmp_path)
        assert rows(session.sql(text)) == [{"n": 3}]


@pytest.mark.parametrize("text", ["select now() as n", "select x from (select cast(current_timestamp as text) as x)"])
def test_the_moment_of_a_query_is_its_own(text):
    with connect_in_process() as session:
        first = rows(session.sql(text))
        assert rows(session.sql(text)) != first
        assert len(session._plans) == 0


def test_today_is_no_part_of_a_kept_plan():
    with connect_in_process() as session:
        session.register("t", pa.table({"d": [datetime.date(2000, 1, 1)]}))
        session.sql("select (select max(d) from t where d < current_date) as d").collect()
        assert len(session._plans) == 0


def test_recursion_is_planned_anew_each_time():
    steps = "select 1 as x union all select x + 1 from r where x < (select max(n) from t)"
    text = f"with recursive r as ({steps}) select max(x) as m from r"
    with connect_in_process() as session:
        for most in (3, 5):
            session.register("t", pa.table({"n": [most]}))
            for _ in range(2):
                assert rows(session.sql(text)) == [{"m": most}]
        assert len(session._plans) == 0


def test_a_long_text_is_not_kept():
    with connect_in_process() as session:
        session.sql(f"select 1 as x -- {'x' * 70_000}")
        assert len(session._plans) == 0
