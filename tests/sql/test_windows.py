"""Window functions beside DuckDB's: random tables, windows and frames, in every mode, cut into odd chunks."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hybridq.errors import NumericOverflow, SqlError, Unsupported
from hybridq.frontend.sql import export_substrait
from hybridq.testing.in_process import connect_in_process
from hybridq.types import Field

MODES = ("cpu", "gpu", "cop")


OPTIONS = {
    "in one place": {"chunk_units": 1},
    "split": {"chunk_units": 4, "gather_limit_bytes": 0},
}


@pytest.fixture(scope="module", params=OPTIONS)
def session(request):
    with connect_in_process(**OPTIONS[request.param]) as opened:
        yield opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("windows")


def plain(value):
    """Values of either system as one kind."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return value


def close(left, right):
    left, right = plain(left), plain(right)
    if left is None or right is None or isinstance(left, str) or isinstance(right, str):
        return left == right
    if isinstance(left, float) or isinstance(right, float):
        return left == right or math.isclose(float(left), float(right), rel_tol=1e-12, abs_tol=1e-300)
    return left == right


def register(session, folder, table, row_group_size=1):
    pq.write_table(table, folder / "t.parquet", row_group_size=row_group_size)
    session.register("t", folder / "t.parquet")


def check(session, folder, table, sql, duck_sql=None, row_group_size=1):
    """Ask both about table ``t``; the last column that the text orders by has no ties."""
    register(session, folder, table, row_group_size)
    with duckdb.connect() as duck:
        duck.sql("SET TimeZone = 'UTC'; SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
        duck.register("t", table)
        expected = duck.sql(duck_sql or sql).fetchall()
    for mode in MODES:
        answer = session.sql(sql).collect(mode=mode).to_arrow()
        found = list(zip(*(column.to_pylist() for column in answer.columns), strict=True)) if len(answer) else []
        assert len(found) == len(expected), (mode, sql)
        for ours, theirs in zip(found, expected, strict=True):
            assert all(map(close, ours, theirs)), f"{mode}: {sql}\n ours   {ours}\n theirs {theirs}"
    return found


SAMPLE = pa.table(
    {
        "id": list(range(12)),
        "p": ["x", "x", "y", None, "x", "y", None, "x", "", "x", "y", "x"],
        "k": pa.array([3, 1, None, 5, 3, 2, 5, None, 1, 3, 2, 9], pa.int32()),
        "v": pa.array([10, None, 30, -4, 5, 6, 7, None, 9, 1, 2, 3], pa.int64()),
        "d": pa.array([Decimal(n) / 4 if n != 3 else None for n in range(12)], pa.decimal128(15, 2)),
        "f": [0.5, math.nan, None, 1e300, -1e300, 2.5, -0.0, 0.0, 7.25, math.inf, 1.0, 2.0],
        "s": ["b", None, "ä", "a", "", "zz", "b", None, "c", "a", "b", "Z"],
        "t": pa.array([datetime.date(2024, 1, 31) + datetime.timedelta(days=11 * n % 60) for n in range(12)]),
        "b": [True, None, False, True, True, False, None, True, False, True, True, False],
    }
)


@pytest.mark.parametrize(
    "call",
    [
        "row_number() over (partition by p order by k, id)",
        "row_number() over (order by k desc nulls last, id desc)",
        "rank() over (partition by p order by k)",
        "dense_rank() over (order by k desc)",
        "percent_rank() over (partition by p order by k)",
        "cume_dist() over (partition by p order by k nulls first)",
        "ntile(5) over (order by k, id)",
        "ntile(3) over (partition by p order by id)",
        "ntile(100) over (partition by p order by id)",
        "lag(v) over (order by id)",
        "lag(s, 2) over (partition by p order by id)",
        "lead(s, 1, 'none') over (partition by p order by id)",
        "lead(d, 3, 0.5) over (order by id)",
        "lag(v, -2) over (order by id)",
        "lag(v, 0) over (order by id)",
        "lag(v, 9223372036854775807) over (order by id)",
        "lead(v, k) over (order by id)",
        "lag(v, 1, id) over (partition by p order by id)",
        "lag(v ignore nulls) over (order by id)",
        "lead(s, 2 ignore nulls) over (partition by p order by id)",
        "lag(v, 3, -1 ignore nulls) over (order by id)",
        "first_value(v) over (partition by p order by id)",
        "last_value(s) over (partition by p order by k)",
        "last_value(s) over (partition by p order by id rows between unbounded preceding and unbounded following)",
        "nth_value(d, 2) over (partition by p order by id)",
        "nth_value(v, 3) over (order by id rows between 2 preceding and 2 following)",
        "first_value(v ignore nulls) over (order by id rows between 1 preceding and 1 following)",
        "last_value(v ignore nulls) over (order by id)",
        "nth_value(v, 2 ignore nulls) over (order by id rows between 3 preceding and current row)",
        "sum(v) over ()",
        "count(*) over (partition by p)",
        "count(v) over (partition by p order by k)",
        "avg(v) over (order by id rows between 3 preceding and 1 preceding)",
        "sum(d) over (partition by p order by id)",
        "avg(d) over (order by id rows 2 preceding)",
        "min(s) over (order by id rows between 2 preceding and 2 following)",
        "max(s) over (partition by p)",
        "min(b) over (order by id rows between 1 following and 2 following)",
        "max(t) over (partition by p order by id)",
        "min(d) over (order by id rows between current row and unbounded following)",
        "sum(f) over (partition by k order by id rows between 1 preceding and current row)",
        "max(f) over (order by id rows between 2 preceding and current row)",
        "min(f) over (order by id rows between 1 preceding and current row)",
        "sum(v) over (order by k)",
        "sum(v) over (order by k range between current row and unbounded following)",
        "sum(v) over (order by k range between 2 preceding and 1 following)",
        "sum(v) over (order by k desc range between 2 preceding and 1 following)",
        "sum(v) over (order by k nulls first range between 1 following and 3 following)",
        "count(*) over (partition by p order by k desc nulls last range between unbounded preceding and 1 preceding)",
        "sum(v) over (order by d range between 0.5 preceding and 0.25 following)",
        "sum(v) over (order by d desc range between 1 preceding and current row)",
        "count(*) over (order by f range between 1.5 preceding and 0.5 following)",
        "sum(v) over (order by t range between interval '7 days' preceding and interval '3 days' following)",
        "count(*) over (order by t desc range between interval '1 month' preceding and current row)",
        "sum(v) over (partition by p order by k groups between 1 preceding and current row)",
        "count(*) over (order by k groups between 1 following and 2 following)",
        "sum(v) over (order by k desc groups between current row and 1 following)",
        "sum(v) filter (where k > 1) over (partition by p order by id)",
        "count(*) filter (where b) over (order by id rows 4 preceding)",
        "count(distinct k) over (partition by p)",
        "count(distinct v) over (order by id)",
        "count(distinct s) over (order by id rows between 3 preceding and 1 preceding)",
        "rank() over (partition by k % 2, b order by p nulls first)",
        "stddev(v) over (partition by p)",
        "var_pop(v) over (order by id rows between 4 preceding and current row)",
        "median(v) over (order by id rows between 3 preceding and 3 following)",
        "bool_and(b) over (partition by p order by id)",
        "bool_or(b) over (order by id rows between 1 preceding and 1 following)",
        "string_agg(s, ',') over (order by id rows between 2 preceding and current row)",
        "covar_pop(v, k) over (partition by p)",
    ],
)
def test_a_window_function_gives_what_duckdb_gives(session, folder, call):
    ours = call
    if "ignore nulls)" in call:
        # DuckDB puts it into the parentheses, the standard behind them.
        ours = call.replace(" ignore nulls)", ") ignore nulls")
    check(
        session,
        folder,
        SAMPLE,
        f"select id, {ours} as w from t order by id",
        f"select id, {call} as w from t order by id",
    )


def test_several_windows_in_one_query(session, folder):
    check(
        session,
        folder,
        SAMPLE,
        "select id, sum(v) over w as a, rank() over (w order by k) as b, lag(id) over (order by id) as c,"
        " sum(v) over w * 2 + count(*) over () as d, row_number() over (partition by s order by id) as e"
        " from t window w as (partition by p) order by id",
    )


def test_qualify_and_filters_above_windows(session, folder):
    check(
        session,
        folder,
        SAMPLE,
        "select id, p from t qualify row_number() over (partition by p order by id) = 1 order by id",
    )
    check(
        session,
        folder,
        SAMPLE,
        "select id, r from (select id, p, b, rank() over (partition by p order by k, id) as r from t) x"
        " where p = 'x' and b and r > 1 order by id",
    )


def test_windows_over_groups_joins_and_unions(session, folder):
    check(
        session,
        folder,
        SAMPLE,
        "select p, sum(v) as total, sum(sum(v)) over (order by p nulls first) as running,"
        " rank() over (order by sum(v) desc nulls last) as place from t group by p order by p nulls first",
    )
    check(
        session,
        folder,
        SAMPLE,
        "select a.id, sum(b.v) over (partition by a.p order by a.id) as w from t a join t b on a.id = b.id"
        " order by a.id",
    )
    check(
        session,
        folder,
        SAMPLE,
        "select id, n from (select id, count(*) over (partition by k) as n from"
        " (select id, k from t union all select id + 100, k from t where k > 2) u) x order by id",
    )
    check(
        session,
        folder,
        SAMPLE,
        "select p, max(r) as top from (select p, row_number() over (partition by p order by id) as r from t) x"
        " group by p order by p nulls first",
    )


def test_order_and_limit_below_and_above_windows(session, folder):
    check(
        session,
        folder,
        SAMPLE,
        "select id, w from (select id, sum(id) over (order by id) as w from"
        " (select id from t order by id desc limit 5) x) y order by w desc limit 2 offset 1",
    )


def test_no_rows_and_one_row(session, folder):
    calls = "row_number() over (order by id), sum(v) over (order by id), lag(v) over (order by id), max(s) over (),"
    calls += " percent_rank() over (order by k), ntile(3) over (order by id), first_value(s) over (order by id)"
    empty = SAMPLE.slice(0, 0)
    check(session, folder, empty, f"select id, {calls} from t order by id")
    check(session, folder, SAMPLE.slice(3, 1), f"select id, {calls} from t order by id")
    check(session, folder, empty, "select id, count(distinct v) over (order by id) from t")


def test_extremes_do_not_wrap(session, folder):
    low, high = -(2**63), 2**63 - 1
    table = pa.table({"id": [0, 1, 2, 3], "x": pa.array([high, low, high, None], pa.int64())})
    check(session, folder, table, "select id, sum(x) over (order by id rows 1 preceding) as w from t order by id")
    # DuckDB raises here; the standard has no limit to what a bound may be.
    for frame, ascending, descending in (
        ("1 preceding and 1 following", [2, 1, 2, 1], [2, 1, 2, 1]),
        ("9223372036854775807 preceding and current row", [2, 1, 2, 1], [2, 1, 2, 1]),
        ("9223372036854775807 following and 9223372036854775807 following", [0, 0, 0, 1], [0, 0, 0, 1]),
    ):
        for direction, expected in (("asc", ascending), ("desc", descending)):
            sql = f"select count(*) over (order by x {direction} range between {frame}) as w from t order by id"
            assert session.sql(sql).collect().to_arrow()["w"].to_pylist() == expected
    with pytest.raises(NumericOverflow, match="sum"):
        session.sql("select sum(x) over (order by id rows 2 preceding) as w from t where id <> 1").collect()
    big = Decimal(10) ** 37
    wide = pa.table({"id": [0, 1, 2], "x": pa.array([big, -big, big * 9], pa.decimal128(38, 0))})
    check(session, folder, wide, "select id, sum(x) over (order by id rows 1 preceding) as w from t order by id")
    with pytest.raises(NumericOverflow):
        session.sql("select sum(x) over () + sum(x) over () as w from t").collect()


def test_unsigned_keys_and_values(session, folder):
    top = 2**64 - 1
    table = pa.table({"id": [0, 1, 2, 3], "x": pa.array([0, 5, top, top - 1], pa.uint64())})
    check(session, folder, table, "select id, max(x) over (order by id rows 1 preceding) as w from t order by id")
    sql = "select count(*) over (order by x range between 2 preceding and 1 following) as w from t order by id"
    assert session.sql(sql).collect().to_arrow()["w"].to_pylist() == [1, 1, 2, 2]


def test_rows_outside_a_frame_do_not_disturb_sums_of_floats(session, folder):
    table = pa.table({"id": [0, 1, 2, 3, 4], "x": [1e300, math.nan, math.inf, 1.0, 2.0]})
    found = check(
        session, folder, table, "select id, sum(x) over (order by id rows 1 preceding) as w from t order by id"
    )
    assert found[-1][1] == 3.0


def test_types_are_those_of_the_plan(session, folder):
    sql = (
        "select row_number() over (order by id) as a, cume_dist() over (order by id) as b, sum(d) over () as c,"
        " avg(d) over () as e, count(*) over () as g, lag(s) over (order by id) as h from t"
    )
    register(session, folder, SAMPLE)
    types = session.sql(sql).collect().to_arrow().schema.types
    assert types == [
        pa.uint64(), pa.float64(), pa.decimal128(38, 2), pa.decimal128(19, 6), pa.int64(), pa.string(),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ("sum(v) over (order by t range between 3 preceding and current row)", Unsupported, "INTERVAL"),
        ("ntile(0) over (order by id)", Unsupported, "ntile"),
        ("nth_value(v, 0) over (order by id)", Unsupported, "nth_value"),
        ("sum(v) over (order by s range between 1 preceding and current row)", (SqlError, Unsupported), "."),
    ],
)
def test_what_is_not_supported_is_named(session, folder, call, error, words):
    register(session, folder, SAMPLE)
    with pytest.raises(error, match=words):
        session.sql(f"select {call} from t").collect()


def test_what_substrait_cannot_say_is_not_exported():
    tables = {"t": tuple(Field(field.name, field.type) for field in SAMPLE.schema)}
    assert "windowFunction" in export_substrait("select sum(v) over (order by k) from t", tables)
    for call in (
        "lag(v) ignore nulls over (order by k)",
        "count(distinct v) over ()",
        "sum(v) over (order by t range between interval '1 day' preceding and current row)",
        "sum(v) over (order by k groups 1 preceding)",
    ):
        with pytest.raises(Unsupported, match="cannot be written as Substrait"):
            export_substrait(f"select {call} from t", tables)


def test_windows_within_scalar_subqueries(session, folder):
    sql = (
        "select id, (select max(r) from (select row_number() over (order by id) as r from t) x) as w from t order by id"
    )
    check(session, folder, SAMPLE, sql)
    with pytest.raises(Unsupported, match="scalar subquery"):
        session.sql(sql.replace("row_number()", "lag(id) ignore nulls"))


def test_windows_on_a_cluster(ask):
    answer = ask(
        "select id, sum(v) over (partition by p order by id) as a, count(*) over () as b from t order by id",
        order_by=("id",),
        t=SAMPLE,
    )
    assert answer["a"].to_pylist() == [10, 10, 30, -4, 15, 36, 3, 15, 9, 16, 38, 19]
    assert answer["b"].to_pylist() == [12] * 12


# --- random windows --------------------------------------------------------------------------------------------------

DAY = datetime.date(2024, 2, 27)
KEYS = {
    "int": (pa.int32(), st.integers(-4, 4), st.integers(0, 3).map(str)),
    "long": (pa.int64(), st.sampled_from([-(2**61), -1, 0, 2, 2**61]), st.sampled_from(["0", "2", str(2**61)])),
    "decimal": (
        pa.decimal128(9, 2),
        st.integers(-8, 8).map(lambda n: Decimal(n) / 4),
        st.sampled_from(["0", "0.25", "1", "1.5"]),
    ),
    "float": (
        pa.float64(),
        st.sampled_from([-1.5, -0.0, 0.0, 0.5, 1.0, 2.25, math.inf, -math.inf]),
        st.sampled_from(["0", "0.5", "1.75"]),
    ),
    "date": (
        pa.date32(),
        st.integers(0, 70).map(lambda n: DAY + datetime.timedelta(days=n)),
        st.sampled_from(["interval '1 day'", "interval '2 weeks'", "interval '1 month'"]),
    ),
    "time": (
        pa.timestamp("us"),
        st.integers(0, 100).map(lambda n: datetime.datetime(2024, 1, 30) + datetime.timedelta(hours=7 * n)),
        st.sampled_from(["interval '1 hour'", "interval '36 hours'", "interval '1 month 1 day'"]),
    ),
}  # fmt: skip
AGGREGATES = [
    "sum(v)", "count(*)", "count(v)", "avg(v)", "min(v)", "max(v)", "min(s)", "max(s)", "sum(m)", "min(m)",
    "count(distinct v)", "first_value(v)", "last_value(s)", "nth_value(v, 2)",
]  # fmt: skip
LAST = "unbounded following"


@st.composite
def frames(draw, unit, offset):
    """Bounds in an order that is allowed."""
    ranks = {
        0: st.just("unbounded preceding"),
        1: offset.map("{} preceding".format),
        2: st.just("current row"),
        3: offset.map("{} following".format),
        4: st.just(LAST),
    }
    start = draw(st.integers(0, 3))
    end = draw(st.integers(max(start, 1), 4))
    return f"{unit} between {draw(ranks[start])} and {draw(ranks[end])}"


@st.composite
def cases(draw):
    kind = draw(st.sampled_from(sorted(KEYS)))
    data_type, values, offsets = KEYS[kind]
    count = draw(st.integers(0, 24))

    def column(strategy):
        return draw(st.lists(st.none() | strategy, min_size=count, max_size=count))

    table = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "p": pa.array(column(st.sampled_from(["a", "b", ""])), pa.string()),
            "k": pa.array(column(values), data_type),
            "v": pa.array(column(st.integers(-5, 5)), pa.int64()),
            "s": pa.array(column(st.sampled_from(["", "a", "B", "é", "zz"])), pa.string()),
            "m": pa.array(column(st.integers(-300, 300).map(lambda n: Decimal(n) / 100)), pa.decimal128(12, 2)),
        }
    )
    unit = draw(st.sampled_from(["rows", "range", "groups"]))
    frame = draw(frames(unit, offsets if unit == "range" else st.integers(0, 5).map(str)))
    direction = draw(st.sampled_from(["asc", "desc"])) + draw(st.sampled_from([" nulls first", " nulls last"]))
    partition = draw(st.sampled_from(["", "partition by p", "partition by p, v % 2"]))
    # What depends on the order of ties needs an order without them; RANGE with an offset allows one key only.
    function = draw(st.sampled_from(AGGREGATES))
    picks = function.startswith(("first", "last", "nth"))
    tie = ", id" if unit == "rows" or (picks and unit == "groups") else ""
    if picks and unit == "range":
        function = "count(v)"
    window = f"({partition} order by k {direction}{tie} {frame})"
    return table, f"select id, {function} over {window} as w from t order by id", draw(st.integers(1, 30))


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(cases())
def test_random_frames(session, folder, case):
    table, sql, row_group_size = case
    check(session, folder, table, sql, row_group_size=row_group_size)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(st.data())
def test_random_shifts_and_ranks(session, folder, data):
    count = data.draw(st.integers(0, 20))

    def column(strategy):
        return data.draw(st.lists(st.none() | strategy, min_size=count, max_size=count))

    table = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "p": pa.array(column(st.integers(0, 2)), pa.int8()),
            "k": pa.array(column(st.sampled_from([-1.0, 0.0, -0.0, math.nan, math.inf])), pa.float64()),
            "v": pa.array(column(st.integers(0, 9)), pa.int16()),
        }
    )
    distance = data.draw(st.integers(-3, 4))
    nulls = data.draw(st.sampled_from(["", " ignore nulls"])) if distance else ""
    shift = data.draw(st.sampled_from(["lag", "lead"]))
    direction = data.draw(st.sampled_from(["asc nulls first", "desc nulls last"]))
    tiles = data.draw(st.integers(1, 9))
    text = (
        f"select id, {shift}(v, {distance}{{inner}}){{outer}} over (partition by p order by k {direction}, id) as a,"
        f" rank() over (order by k {direction}) as b, dense_rank() over (partition by p order by k {direction}) as c,"
        f" percent_rank() over (order by k {direction}) as d,"
        f" cume_dist() over (partition by p order by k {direction}) as e,"
        f" ntile({tiles}) over (partition by p order by id) as f from t order by id"
    )
    check(
        session, folder, table, text.format(inner="", outer=nulls), text.format(inner=nulls, outer=""),
        data.draw(st.integers(1, 30)),
    )  # fmt: skip
