"""Every function with odd values, as constants and in columns: an answer, or an error of hybridq's that names them."""

from __future__ import annotations

import datetime
import random
import re
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from hybridq.engines import evaluate
from hybridq.errors import ExecutionError, HybridqError, Unsupported
from hybridq.plan.functions import FUNCTIONS
from hybridq.testing.in_process import connect_in_process

CONSTANTS = {
    "text": ["''", "'a'", "'['", "'%'", "'12'", "'hex'", "'year'", "'2020-01-01'", "'é😀'", "null"],
    "whole": ["-9223372036854775808", "-1", "0", "1", "3", "100", "9223372036854775807", "cast(null as bigint)"],
    "number": ["0.5", "-1.25", "1e308", "cast('nan' as double)", "cast('-inf' as double)", "cast(1 as decimal(38,38))",
               "99999999999999999999999999999999999999", "arrow_cast(200, 'UInt8')", "cast(1.5 as real)"],
    "time": ["date '0001-01-01'", "date '9999-12-31'", "timestamp '1969-12-31 23:59:59.999999999'",
             "timestamp '2262-04-11 23:47:16'", "timestamp '9999-12-31 00:00:00'"],
    "step": ["interval '1 day'", "interval '-3 days 1 hour'", "interval '1000000 years'"],
    "list": ["[1, 2, 3]", "[null]", "make_array()", "['a', 'b']", "[[1], [2]]"],
    "other": ["true", "null", "x'00ff'"],
}  # fmt: skip
COLUMNS = {
    "text": ["s"], "whole": ["i", "l", "u"], "number": ["d", "f", "w"], "time": ["dt", "ts", "tn"],
    "step": ["interval '1 day'"], "list": ["li", "ls"], "other": ["b", "bin", "st"],
}  # fmt: skip
ODD = pa.table(
    {
        "i": pa.array([0, -1, 2**31 - 1], pa.int32()),
        "l": pa.array([2**63 - 1, -(2**63), None], pa.int64()),
        "u": pa.array([200, 0, None], pa.uint8()),
        "d": pa.array([float("nan"), float("inf"), 1e308]),
        "f": pa.array([0.0, -0.0, 3e38], pa.float32()),
        "w": pa.array([Decimal("9" * 38), Decimal(-1), None], pa.decimal128(38, 0)),
        "s": pa.array(["", "é😀%", "(["]),
        "dt": pa.array([0, -719162, 2932896], pa.int32()).cast(pa.date32()),
        "ts": pa.array([0, -62135596800000000, 253402300799999999], pa.int64()).cast(pa.timestamp("us")),
        "tn": pa.array([0, -(2**63) + 1, 2**63 - 1], pa.int64()).cast(pa.timestamp("ns")),
        "b": pa.array([True, False, None]),
        "bin": pa.array([b"\xff", b"", None]),
        "li": pa.array([[1, None], [], None], pa.list_(pa.int64())),
        "ls": pa.array([["a"], [None, "b"], []], pa.list_(pa.string())),
        "st": pa.array([{"a": 1}, {"a": None}, None]),
    }
)
OF_LIBRARIES = re.compile(r"Arrow\w*Error|ArrowInvalid|cannot be (computed|planned)|\w+Error:")


@pytest.fixture(scope="module")
def session():
    with connect_in_process() as opened:
        opened.register("t", ODD)
        wide = pa.array([Decimal("12345678901234567890.5"), None], pa.decimal128(30, 1))
        opened.register("wide", pa.table({"w": wide, "n": [1, 2]}))
        yield opened


def failure(session, text):
    """Run a query; return what fails, if it is not for a reason that hybridq knows."""
    try:
        session.sql(text).collect(mode="cpu")
    except HybridqError as error:
        first = str(error).splitlines()[0]
        return f"{text}: {first}" if OF_LIBRARIES.search(first) else None
    except Exception as error:
        return f"{text}: {type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("source", ["", " from t"])
def test_every_function(session, source):
    chance = random.Random(7)
    values, found = COLUMNS if source else CONSTANTS, []
    for function in FUNCTIONS.values():
        for name in (function.aliases or (function.name,))[:1]:
            for _ in range(3):
                count = chance.randint(function.minimum, min(function.maximum, 3))
                kinds = [chance.choice(list(values)) for _ in range(count)]
                arguments = ", ".join(chance.choice(values[kind]) for kind in kinds)
                found.append(failure(session, f"select {name}({arguments}) as x{source}"))
    assert [text for text in found if text is not None] == []


@pytest.mark.parametrize(
    ("expression", "source"),
    [
        ("extract(epoch from timestamp '2262-04-11 23:47:16')", ""),
        ("least(0.5, 9223372036854775807)", ""),
        ("greatest(w, n)", "from wide"),
        ("coalesce(w, n)", "from wide"),
        ("case n when 1 then w else 0.5 end", "from wide"),
        ("99999999999999999999999999999999999999 between n and 5", "from wide"),
    ],
)
def test_values(session, expression, source):
    connection = duckdb.connect()
    connection.register("wide", session.sql("select w, n from wide").collect().to_arrow())
    text = f"select {expression} as x {source}"
    assert session.sql(text).collect().to_arrow()["x"].to_pylist() == [
        row[0] for row in connection.sql(text).fetchall()
    ]


def test_epoch_of_a_column(session):
    answer = session.sql("select extract(epoch from ts) as x from t").collect().to_arrow()["x"].to_pylist()
    last = datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, datetime.UTC)
    assert answer == [0.0, -62135596800.0, last.timestamp()]


@pytest.mark.parametrize("text", ["{0} < {0}", "{0} = {0}", "{0} in ({0}, {0})", "greatest({0}, {0})"])
def test_intervals_are_not_compared(session, text):
    with pytest.raises(Unsupported, match=r"^interval '1 days' is of type month_day_nano_interval, which cannot be"):
        session.sql("select " + text.format("interval '1 day'"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("with w as (select cast(s as int) as x from t) select v.x from w v join w on v.x = w.x", "cast(t.s as int32)"),
        (f"select avg(cast(n as decimal(38, 2)) * {'9' * 35}) + 1 as x from wide", "of avg((cast(wide.n as decimal128"),
    ],
)
def test_a_message_names_what_was_written(session, text, named):
    with pytest.raises(ExecutionError) as caught:
        session.sql(text).collect(mode="cpu")
    first = str(caught.value).splitlines()[0]
    assert named in first
    assert not re.search(r"#\d|\w:\d", first)


def test_an_error_of_a_kernel_names_the_expression(session, monkeypatch):
    def failing(call, arguments):
        raise pa.ArrowNotImplementedError("no kernel\nof that kind")

    monkeypatch.setitem(evaluate.KERNELS, "reverse", failing)
    query = session.sql("select reverse(s) as x, reverse('ab') as y from t")
    with pytest.raises(ExecutionError, match=r"reverse\(.*\) cannot be computed: ArrowNotImplementedError: no kernel$"):
        query.collect(mode="cpu")


def test_texts_past_2_gib_are_an_error_that_names_the_expression(session, monkeypatch):
    def failing(call, arguments):
        raise pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes")

    monkeypatch.setitem(evaluate.KERNELS, "reverse", failing)
    with pytest.raises(ExecutionError, match=r"the texts or lists of reverse\('ab'\) are more than 2 GiB together"):
        session.sql("select reverse('ab') as y").collect(mode="cpu")


def test_a_long_text_is_no_constant_of_the_plan(session):
    query = session.sql("select length(repeat('xy', 1000000)) as n, repeat('xy', 1000000) as s")
    assert len(str(query.explain())) < 10_000
    assert query.collect().to_arrow()["n"].to_pylist() == [2_000_000]


def test_an_error_of_a_library_while_planning(session, monkeypatch):
    def failing(*arguments):
        raise TypeError("'NoneType' object\nis none")

    monkeypatch.setattr("hybridq.plan.rules.optimize", failing)
    with pytest.raises(Unsupported, match=r"^the query cannot be planned: TypeError: 'NoneType' object$"):
        session.sql("select 1 as x")
