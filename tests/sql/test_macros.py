"""Functions of other databases, against DuckDB, or against what they stand for where it has them not."""

from __future__ import annotations

import datetime

import duckdb
import pyarrow as pa
import pytest

from hybridq.errors import UnknownColumn
from hybridq.frontend.sql import plan_sql
from hybridq.testing.in_process import connect_in_process

MOMENT = datetime.datetime(2020, 5, 31, 23, 59, 59)
TABLE = pa.table(
    {
        "a": [1, -7, 8, None],
        "b": [3, 3, None, 2],
        "s": ["ab", "c", None, "ab"],
        "d": [datetime.date(2020, 2, 29), datetime.date(1969, 12, 31), None, datetime.date(2021, 1, 3)],
        "m": [MOMENT, datetime.datetime(1999, 1, 1), None, datetime.datetime(2024, 7, 4, 12)],
    }
)  # fmt: skip

VALUES = {
    "year(d)": None,
    "quarter(m)": None,
    "month(m) + day(d)": None,
    "hour(m) * 3600 + minute(m) * 60": None,
    "dayofyear(m)": None,
    "weekofyear(d)": None,
    "mod(a, b)": None,
    "mod(a + 1, b - 1 + 2)": None,
    "if(a > 1, 'big', s)": None,
    "iff(a > 1, b, a)": "case when a > 1 then b else a end",
    "mod(year(d), if(a > 0, 10, 7))": None,
    "date_diff('day', d, m)": None,
    "datediff('month', d, m)": None,
    "date_diff('quarter', m, d)": None,
    "datediff('year', m, d)": None,
    "datediff(day, d, m)": "date_diff('day', d, m)",
    "date_diff(m, d, month)": "date_diff('month', d, m)",
    "datediff(m, d)": "date_diff('day', d, m)",
    "dateadd(month, 1, m)": "m + interval '1 month'",
    "date_add('day', -3, m)": "m - interval '3 days'",
    "date_add(m, interval '2 hours')": None,
    "d + 3 * interval '2 days'": "cast(d + interval '6 days' as date)",
    "m - interval '1' month * 4 + 2 * interval '1 hour'": None,
    "last_day(d)": None,
    "last_day(m)": None,
    "strftime(m, '%Y-%m')": None,
    "len(s)": None,
    "ucase(s)": None,
    "charindex('b', s)": "strpos(s, 'b')",
    "zeroifnull(a)": "coalesce(a, 0)",
}

AGGREGATES = {
    "count_if(a > 0)": None,
    "countif(a is null)": "count_if(a is null)",
    "variance(a)": None,
    "every(b > 2)": "bool_and(b > 2)",
    "listagg(s, '; ') within group (order by a desc nulls last)": "string_agg(s, '; ' order by a desc nulls last)",
    "group_concat(s order by a)": None,
    "sum(mod(a, 5)) filter (where mod(b, 2) = 1)": None,
}


@pytest.fixture(scope="module")
def session():
    with connect_in_process(chunk_units=1) as opened:
        opened.register("t", TABLE)
        yield opened


def asked(session, written, meant):
    with duckdb.connect() as peer:
        peer.execute("set timezone = 'UTC'")
        peer.register("t", TABLE)
        expected = peer.sql(f"select {meant or written} as x from t").fetchall()
    found = session.sql(f"select {written} as x from t").collect().to_arrow()["x"].to_pylist()
    return found, [value for (value,) in expected]


@pytest.mark.parametrize("written", VALUES)
def test_functions_mean_what_they_do_elsewhere(session, written):
    found, expected = asked(session, written, VALUES[written])
    assert found == expected


@pytest.mark.parametrize("written", AGGREGATES)
def test_aggregates_mean_what_they_do_elsewhere(session, written):
    found, expected = asked(session, written, AGGREGATES[written])
    assert found == [pytest.approx(value) for value in expected]


def test_their_names_are_names_like_others(session):
    text = (
        'with year (mod) as (select a from t), "if" as (select 1 as len) select mod, len from year, "if" order by 2, 1'
    )
    assert session.sql(text).collect().to_arrow()["mod"].to_pylist() == [-7, 1, 8, None]


def test_places_are_those_of_the_text():
    with pytest.raises(UnknownColumn, match=r"there is no column nope \(line 1, column 22\)"):
        plan_sql("select year(d) as y, nope from t", {"t": TABLE.schema})
