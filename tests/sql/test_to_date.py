"""TO_DATE and TO_TIMESTAMP with a format, against DuckDB's strptime."""

from __future__ import annotations

import datetime

import duckdb
import pyarrow as pa
import pytest

from hybridq.errors import CastFailed, Unsupported
from hybridq.testing.in_process import connect_in_process

FORMATS = {
    "%Y-%m-%d": ["2021-02-28", "2021-2-8", " 2020-02-29", "1960-12-31 "],
    "%d/%m/%Y": ["31/12/1999", "1/2/2003"],
    "%d.%m.%Y %H:%M:%S": ["5.6.2020 3:4:5", "05.06.2020 23:59:59"],
    "%Y%m%d": ["20200105", "2020105"],
    "%Y%m%dT%H%M": ["20200105T0304"],
    "%Y-%m": ["2020-06", "2020-6"],
    "%Y": ["2020"],
    "on %m/%d/%Y (100%%)": ["on 12/31/2020 (100%)"],
}
WRONG = {
    "%Y-%m-%d": [
        "2021-02-30",
        "2021-02-28x",
        "2021-13-01",
        "2021-00-01",
        "28-02-2021",
        "",
        "2021/02/28",
        "+2021-02-28",
    ],
    "%d.%m.%Y": ["5x6x2020", "2020-06-05"],
    "%Y-%m-%d %H:%M:%S": ["2020-01-05 24:00:00", "2020-01-05 23:59:60", "2020-01-05"],
}


@pytest.fixture(scope="module")
def session():
    with connect_in_process(chunk_units=1) as opened:
        yield opened


@pytest.mark.parametrize("form", FORMATS)
def test_values_are_duckdbs(session, form):
    texts = FORMATS[form]
    session.register("t", pa.table({"s": [*texts, None]}))
    query = session.sql(f"select to_timestamp(s, '{form}')::timestamp as x, to_date(s, '{form}') as y from t")
    expected = [duckdb.execute("select strptime(?, ?)", [text, form]).fetchone()[0] for text in texts]
    for mode in ("cpu", "gpu", "cop"):
        found = query.collect(mode=mode).to_arrow()
        assert found["x"].to_pylist() == [*expected, None]
        assert found["y"].to_pylist() == [*(each.date() for each in expected), None]


@pytest.mark.parametrize(("form", "text"), [(form, text) for form, texts in WRONG.items() for text in texts])
def test_what_duckdb_does_not_read_is_an_error(session, form, text):
    assert duckdb.execute("select try_strptime(?, ?)", [text, form]).fetchone() == (None,)
    session.register("t", pa.table({"s": [FORMATS.get(form, [None])[0], text]}))
    with pytest.raises(CastFailed, match=r"cannot cast '.*' to date32"):
        session.sql(f"select to_date(s, '{form}') as x from t").collect()


def test_items_of_postgresql(session):
    session.register("t", pa.table({"s": ["31.12.2020 23:05:09"]}))
    found = session.sql("select to_timestamp(s, 'DD.MM.YYYY HH24:MI:SS')::timestamp as x from t").collect()
    assert found.to_arrow()["x"].to_pylist() == [datetime.datetime(2020, 12, 31, 23, 5, 9)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("to_date(s, '%d %b %Y')", "%b in the format '%d %b %Y' of to_date"),
        ("to_date(s, 'DD Mon YYYY')", "Mon in the format 'DD Mon YYYY' of to_date"),
        ("to_date(s, '%d.%m')", "needs each item once, and a year"),
        ("to_date(s, s)", "not a constant"),
        ("to_date(s, '%Y', '%Y-%m')", "several formats"),
    ],
)
def test_formats_that_are_not_read_are_refused(session, call, words):
    session.register("t", pa.table({"s": ["x"]}))
    with pytest.raises(Unsupported, match=words):
        session.sql(f"select {call} as x from t")
