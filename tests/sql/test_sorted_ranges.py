"""Sorts whose runs stay on the workers give, range by range, what a sort in one place gives, and what DuckDB gives."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.session import connect
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import duckdb_answer

NAN = float("nan")
ROWS = 1500

QUERIES = {
    "several keys": ("select * from t order by a, b desc nulls first, c, s", (0, 1, 2, 3)),
    "nulls last": ("select b, k from t order by b desc nulls last", (0,)),
    "texts": ("select s, k from t order by s nulls first, k", (0, 1)),
    "floats": ("select c, k from t order by c desc nulls last", (0,)),
    "few values": ("select a, k from t order by a", (0,)),
    "one value": ("select k from t order by k - k", ()),
    "key not selected": ("select k from t order by c nulls first, b, a", ()),
    "expression": ("select k, a from t order by k % 7 desc, abs(k - 500)", ()),
    "nothing": ("select b from t where k < 0 order by b", (0,)),
    "union": ("select k from t union all select b from t order by 1 desc nulls last", (0,)),
    "of groups": ("select b, sum(k) x from t group by b order by x desc, b", (1, 0)),
    "of a join": ("select t.k, u.a from t join t u on t.k = u.b order by t.k desc, u.a, u.k", (0,)),
    "long limit": ("select k, s from t order by k desc limit 1000 offset 10", (0,)),
}

OPTIONS = {
    "one range": {},
    "many ranges": {"partition_bytes": 4000},
    "few rows, in files": {"cpu_chunk_rows": 60, "gpu_chunk_rows": 130, "split_memory_bytes": 1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("sorted")
    numbers = np.random.default_rng(7)

    def column(made):
        return pa.array(made, mask=numbers.random(ROWS) < 0.1)

    reals = numbers.integers(-9, 50, ROWS) * 1.0
    reals[numbers.random(ROWS) < 0.1] = NAN
    table = {
        "a": column(numbers.integers(0, 3, ROWS)),
        "b": column(numbers.integers(0, 300, ROWS)),
        "c": pa.array(reals, mask=numbers.random(ROWS) < 0.1),
        "s": column([f"text {i % 97}" for i in range(ROWS)]),
        "k": numbers.permutation(ROWS),
    }
    pq.write_table(pa.table(table), found / "t.parquet", row_group_size=100)
    return found


@pytest.fixture(scope="module")
def plain(folder):
    with connect_in_process(chunk_units=2) as session:
        session.register_folder(folder)
        yield session


@pytest.fixture(scope="module", params=OPTIONS)
def session(request, folder):
    with connect_in_process(gather_limit_bytes=0, chunk_units=2, **OPTIONS[request.param]) as session:
        session.register_folder(folder)
        yield session


@pytest.mark.parametrize("name", sorted(set(QUERIES) - {"long limit"}))
def test_the_order_is_that_of_a_sort_in_one_place(session, plain, folder, name):
    text, order_by = QUERIES[name]
    query = session.sql(text)
    assert "in order (ranges)" in str(query.explain())
    expected = plain.sql(text).collect(mode="cpu").to_arrow()
    against = duckdb_answer(text, folder, query.schema)
    for mode in ("cpu", "gpu", "cop"):
        found = query.collect(mode=mode).to_arrow()
        assert repr(found.to_pylist()) == repr(expected.to_pylist())  # also of rows that tie
        assert_same_answer(found, against, order_by=order_by)


def test_a_long_limit_is_a_sort(plain, folder):
    text, order_by = QUERIES["long limit"]
    options = {"cpu_chunk_rows": 200, "partition_bytes": 1500}
    with connect_in_process(gather_limit_bytes=2000, chunk_units=1, **options) as session:
        session.register_folder(folder)
        query = session.sql(text)
        assert "in order (ranges)" in str(query.explain())
        for mode in ("cpu", "cop"):
            assert_same_answer(
                query.collect(mode=mode).to_arrow(), duckdb_answer(text, folder, query.schema), order_by=order_by
            )


def test_a_sort_of_more_than_was_estimated_is_cut_while_the_query_runs(tmp_path):
    numbers = np.random.default_rng(3).permutation(40_000)
    pq.write_table(pa.table({"k": numbers, "v": numbers * 30}), tmp_path / "t.parquet", row_group_size=1000)
    with connect_in_process(gather_limit_bytes=100_000, cpu_chunk_rows=2000) as session:
        session.register_folder(tmp_path)
        query = session.sql("select k from t where v % 2 = 0 and v % 3 = 0 and v % 5 = 0 order by k")
        assert "ranges" not in str(query.explain())
        result = query.collect(mode="cpu")
        assert result.to_arrow()["k"].to_pylist() == list(range(40_000))
        assert any("gather_limit_bytes" in stage.reason for stage in result.report.stages)


def test_a_cluster_gives_the_same(two_workers, plain, folder):
    options = {"chunk_units": 2, "partition_bytes": 4000, "split_memory_bytes": 1}
    with connect(two_workers.address, gather_limit_bytes=0, **options) as session:
        session.register_folder(folder)
        for name in ("several keys", "few values", "texts"):
            text, _ = QUERIES[name]
            expected = plain.sql(text).collect(mode="cpu").to_arrow()
            for mode in ("cpu", "cop"):
                result = session.sql(text).collect(mode=mode)
                assert repr(result.to_arrow().to_pylist()) == repr(expected.to_pylist())
                assert result.report.stages[0].spilled_bytes > 0
        text = str(session.sql(text).explain(analyze=True))
        assert "sort in runs" in text
        assert "of pieces written to workers' files" in text


TYPES = {
    "text": (pa.string(), ["", "a", "a much longer text", "ü"]),
    "date": (pa.date32(), [datetime.date(1992, 1, 1), datetime.date(2024, 2, 29)]),
    "time": (pa.timestamp("us"), [datetime.datetime(2000, 1, 1), datetime.datetime(1969, 12, 31, 23, 59)]),
    "decimal": (pa.decimal128(38, 4), [Decimal("-1.0000"), Decimal(10**33) + Decimal("0.0001")]),
    "float": (pa.float64(), [0.0, -0.0, NAN, -1.5, float("inf")]),
    "boolean": (pa.bool_(), [True, False]),
    "integer": (pa.int64(), [1, 2, -(2**62), 2**62]),
}
CELLS = st.lists(st.tuples(st.none() | st.integers(0, 4), st.none() | st.integers(0, 3)), max_size=20)
DIRECTIONS = st.tuples(st.sampled_from(["asc", "desc"]), st.sampled_from(["nulls first", "nulls last"]))


@given(
    rows=CELLS,
    type_name=st.sampled_from(sorted(TYPES)),
    units=st.integers(1, 4),
    size=st.sampled_from([1, 40, 10_000]),
    first=DIRECTIONS,
    second=st.none() | DIRECTIONS,
)
@settings(max_examples=15, deadline=None)
def test_any_rows_types_and_directions(tmp_path_factory, rows, type_name, units, size, first, second):
    folder = tmp_path_factory.mktemp("any")
    data_type, made = TYPES[type_name]
    keys = pa.array([None if a is None else made[a % len(made)] for a, _ in rows], data_type)
    table = pa.table({"x": keys, "n": pa.array([n for _, n in rows], pa.int64()), "m": np.arange(len(rows))})
    pq.write_table(table, folder / "t.parquet", row_group_size=units)
    also = "" if second is None else f", n {' '.join(second)}"
    text = f"select x, n, m from t order by x {' '.join(first)}{also}"
    answers = []
    for options in ({"gather_limit_bytes": 0, "partition_bytes": size}, {}):
        with connect_in_process(chunk_units=1, **options) as session:
            session.register_folder(folder)
            answers.append(session.sql(text).collect(mode="cop" if options else "cpu").to_arrow().to_pylist())
    assert repr(answers[0]) == repr(answers[1])
