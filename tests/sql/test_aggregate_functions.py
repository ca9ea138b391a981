"""Aggregate functions and grouping sets in SQL: in every mode and chunking, and beside DuckDB."""

from __future__ import annotations

import math
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.errors import NumericOverflow, Unsupported
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import conform

MODES = ("cpu", "gpu", "cop")
ROWS = 45


def made_table():
    random = np.random.default_rng(5)

    def some(items, share=0.15):
        return pa.array(items, mask=random.random(ROWS) < share)

    cents = some(random.integers(-999, 999, ROWS).astype(np.int32)).cast(pa.decimal128(12, 2))
    return pa.table(
        {
            "g": some(random.integers(0, 4, ROWS)),
            "h": some(np.array(["a", "b", "ç"])[random.integers(0, 3, ROWS)]),
            "i": some(random.integers(-50, 50, ROWS).astype(np.int32)),
            "x": some(random.normal(size=ROWS) * 100),
            "y": some(random.normal(size=ROWS)),
            "f": some(random.normal(size=ROWS).astype(np.float32)),
            "d": cents.cast(pa.decimal128(15, 2)),
            "b": some(random.random(ROWS) < 0.5),
            "s": some(np.array([f"k{number}" for number in random.integers(0, 30, ROWS)])),
            "n": pa.nulls(ROWS, pa.int64()),
            "r": pa.array(range(ROWS)),
        }
    )


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Return a function that answers SQL over t, having compared all modes and chunkings, and DuckDB's connection."""
    folder = tmp_path_factory.mktemp("aggregates")
    table = made_table()
    sessions = []
    for rows in (1, 7, ROWS):
        path = folder / f"{rows}.parquet"
        pq.write_table(table, path, row_group_size=rows)
        session = connect_in_process(chunk_units=1)
        session.register("t", path)
        session.register("empty", table.slice(0, 0))
        sessions.append(session)
    connection = duckdb.connect()
    connection.register("t", table)
    connection.register("empty", table.slice(0, 0))

    def answer(sql):
        single, several, whole = sessions
        found = [session.sql(sql).collect(mode="cpu").to_arrow() for session in (single, whole)]
        found += [several.sql(sql).collect(mode=mode).to_arrow() for mode in MODES]
        for other in found[1:]:
            assert_same_answer(other, found[0])
        assert found[0].schema.types == sessions[0].sql(sql).schema.types
        return found[0]

    yield answer, connection
    for session in sessions:
        session.close()


MEASURES = {
    "statistics": "stddev(x) a, stddev_pop(x) b, var_samp(i) c, var_pop(d) e, covar_samp(x, y) f, covar_pop(i, y) g1",
    "regression": "regr_count(y, x) a, regr_avgx(y, x) b, regr_avgy(y, x) c, regr_sxx(y, x) d1, regr_sxy(y, x) e",
    "medians": "median(x) a, median(i) b, median(f) c, median(distinct i) e",
    "bits": "bool_and(b) a, bool_or(b) b1, bit_and(i) c, bit_or(i) d1, bit_xor(i) e, bit_xor(distinct i) f1",
    "distinct": "sum(distinct i) a, avg(distinct i) b1, sum(distinct d) c, avg(distinct x) e, count(distinct s) f1",
    "filter": "count(*) filter (where b) a, sum(x) filter (where i > 3) b1, count(distinct i) filter (where b) c",
    "lists": "string_agg(s, ',' order by r) a, array_agg(i order by r) b1, array_agg(distinct h order by h) c",
    "filtered lists": "array_agg(s order by r) filter (where i > 10) a, string_agg(h, '') filter (where false) b1",
    "nothing but NULL": "stddev(n) a, median(n) b1, bit_or(n) c, sum(distinct n) e, count(distinct n) f1",
}
SHAPES = {
    "all": "select {} from t",
    "grouped": "select g, {} from t group by g",
    "two keys": "select h, b as k, {} from t where i < 0 group by h, b",
    "no rows": "select {} from t where r < 0",
    "empty": "select g, {} from empty group by g",
    "rollup": "select g, h, {} from t group by rollup (g, h)",
    "sets": "select g, h, {} from t group by grouping sets ((h), (g, h), (), (h))",
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("measures", MEASURES)
def test_as_duckdb_answers(answers, measures, shape):
    answer, connection = answers
    sql = SHAPES[shape].format(MEASURES[measures])
    found = answer(sql)
    expected = connection.sql(sql).to_arrow_table()
    assert_same_answer(found, conform(expected, found.schema), relative_tolerance=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_ends_and_quantiles(answers, shape):
    """What DuckDB writes in another way."""
    answer, connection = answers
    ours = (
        "first_value(s order by r) a, last_value(i order by x nulls first, r) b1, any_value(s) is null c, "
        "percentile_cont(0.3) within group (order by x) e, quantile_cont(i, 0.75) f1, median(d) g1, "
        "approx_distinct(i) h1"
    )
    theirs = (
        "first(s order by r) a, last(i order by x nulls first, r) b1, any_value(s) is null c, "
        "quantile_cont(x, 0.3) e, quantile_cont(i::double, 0.75) f1, median(d::decimal(16, 3)) g1, "
        "count(distinct i)::ubigint h1"
    )
    found = answer(SHAPES[shape].format(ours))
    expected = connection.sql(SHAPES[shape].format(theirs)).to_arrow_table()
    assert_same_answer(found, conform(expected, found.schema))


def values(answer, sql):
    return list(zip(*answer(sql).to_pydict().values(), strict=True))


def test_null_groups_and_groups_left_out(answers):
    """A group whose key is NULL and the total beside it are two rows."""
    answer, _ = answers
    rows = values(answer, "select g, count(*) as c from t where g is null or g = 1 group by rollup (g)")
    assert len(rows) == 3
    assert sorted(g is None for g, _ in rows) == [False, True, True]
    assert max(count for _, count in rows) == sum(count for _, count in rows) / 2


def test_filters_above_grouping_sets_stay_there(answers):
    answer, _ = answers
    total = "select * from (select g, h, count(*) as c from t group by rollup (g, h)) where {}"
    assert values(answer, total.format("g = 1 and h is null and c > 1"))
    rows = values(answer, total.format("h = 'a'"))
    assert all(h == "a" for _, h, _ in rows)
    assert len(rows) == 5


def test_sets_of_an_empty_table(answers):
    answer, _ = answers
    rows = values(answer, "select g, count(*) as c, sum(i) as s from empty group by grouping sets ((), (g), ())")
    assert rows == [(None, 0, None)] * 2
    assert values(answer, "select g, h from empty group by cube (g, h)") == [(None, None)]


def test_medians_of_decimals_are_exact():
    table = pa.table({"d": pa.array([Decimal("1.01"), Decimal("1.02")], pa.decimal128(15, 2))})
    with connect_in_process() as session:
        session.register("t", table)
        answer = session.sql("select median(d) as m, median(d) + 1 as n from t").collect().to_arrow()
    assert answer.column("m").to_pylist() == [Decimal("1.015")]
    assert answer.schema.field("m").type == pa.decimal128(16, 3)
    assert answer.column("n").to_pylist() == [Decimal("2.015")]


def test_statistics_that_do_not_exist_are_null(answers):
    answer, _ = answers
    select = "select corr(y, x), regr_slope(y, x), regr_r2(x, y), var_samp(x), covar_samp(x, y), var_pop(x) from t"
    ((corr, slope, r2, var, covar, pop),) = values(answer, f"{select} where r = (select min(r) from t where x * y > 0)")
    assert (corr, slope, r2, var, covar, pop) == (None, None, None, None, None, 0.0)


def test_nan_among_numbers(answers):
    answer, _ = answers
    nan = "case when r = 3 then cast('NaN' as double) else cast(1 as double) end"
    ((deviation, median, highest, kinds, items),) = values(
        answer,
        f"select stddev({nan}), median({nan}), percentile_cont(1.0) within group (order by {nan}), "
        f"approx_distinct({nan}), array_agg(distinct {nan} order by {nan}) from t",
    )
    assert math.isnan(deviation)
    assert (median, kinds) == (1.0, 2)
    assert math.isnan(highest)
    assert items[0] == 1.0
    assert math.isnan(items[1])


def test_sums_of_distinct_values_do_not_wrap():
    with connect_in_process() as session:
        session.register("t", pa.table({"x": [2**63 - 1, 2**63 - 1, 1]}))
        with pytest.raises(NumericOverflow, match="sum"):
            session.sql("select sum(distinct x), count(distinct x), avg(x) from t").collect()


def test_distinct_pairs(answers):
    answer, connection = answers
    pairs = "select distinct g, h from t where g is not null and h is not null"
    expected = connection.sql(f"select count(*) from ({pairs})").fetchall()
    assert values(answer, "select count(distinct g, h) from t") == expected


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select first_value(s order by r) ignore nulls from t", "IGNORE NULLS"),
        ("select g, sum(i) from t group by grouping sets ((g))", "single set"),
        ("select nth_value(s, 2 order by r) from t", "NTH_VALUE"),
        ("select array_agg(distinct s order by r) from t", "DISTINCT"),
        ("select string_agg(s, h) from t", "separator"),
    ],
)
def test_what_is_refused(answers, sql, words):
    answer, _ = answers
    with pytest.raises(Unsupported, match=words):
        answer(sql)


def test_the_report_says_why_a_stage_is_on_the_cpu():
    with connect_in_process() as session:
        session.register("t", made_table())
        report = session.sql("select stddev(x) from t").collect(mode="gpu").report
        assert "moments" in report.stages[0].fallbacks[0].cause
        report = session.sql("select g, bool_and(b), sum(i) from t group by rollup (g)").collect(mode="gpu").report
        assert not report.stages[0].fallbacks
