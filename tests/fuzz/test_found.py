"""Faults that random queries have found, each as small as it could be made."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.errors import DivisionByZero, NumericOverflow
from hybridq.testing.in_process import connect_in_process

MODES = ("cpu", "gpu", "cop")


@pytest.fixture
def ask(tmp_path):
    """Answer SQL over tables given by keyword, in every mode, one row group a chunk; rows sorted by their text."""

    def answer(sql, row_group_size=1, **tables):
        found = []
        with connect_in_process(chunk_units=1, broadcast_bytes=1) as session:
            for name, table in tables.items():
                pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=row_group_size)
                session.register(name, tmp_path / f"{name}.parquet")
            query = session.sql(sql)
            for mode in MODES:
                columns = query.collect(mode=mode).to_arrow().columns
                found.append(sorted(zip(*(column.to_pylist() for column in columns), strict=True), key=str))
        assert found[1:] == found[:-1]
        return found[0]

    return answer


def ints(*values, kind=None):
    return pa.array(values, kind or pa.int64())


X = pa.table({"x": ints(0, 1, None, 3)})


def test_the_largest_unsigned_integers_are_groups(ask):
    top = 2**64 - 1
    t = pa.table({"u": ints(top, top, 1, None, kind=pa.uint64())})
    assert ask("select u, count(*) as n from t group by u", t=t) == [(1, 1), (top, 2), (None, 1)]
    assert ask("select u, count(*) as n from t group by u having count(*) is distinct from 3", t=t) == [
        (1, 1), (top, 2), (None, 1),
    ]  # fmt: skip
    assert ask("select count(distinct u) as n from t", t=t) == [(2,)]
    assert ask("select count(distinct cast(NULL as bigint unsigned)) as n from t", t=t) == [(0,)]


def test_a_key_that_comes_from_a_build_side(ask):
    t = pa.table({"a": ints(1, 2), "s": ["x", "y"]})
    sql = (
        "select q.a, r.x from t p left join (select u.s as k, v.a from (select s, a + 1 as b from t) u"
        " join t v on u.b = v.a) q on p.s = q.k left join t2 r on r.x = q.a"
    )
    assert ask(sql, t=t, t2=pa.table({"x": ints(2)})) == [(2, 2), (None, None)]


def test_wide_decimals_of_which_only_null_is_left(ask):
    t = pa.table({"d": pa.array([Decimal(10**30), Decimal(-(10**30)), None], pa.decimal128(38, 0))})
    assert ask("select distinct nullif(d, d) as x from t", t=t) == [(None,)]


def test_a_cross_join_of_single_rows(ask):
    assert ask("select p.x, q.x as y from t p cross join t q", t=pa.table({"x": ints(7)})) == [(7, 7)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("x not in (1) or x not in (3)", [(0,), (1,), (3,)]),
        ("x not in (1, NULL) or x not in (1, 0)", [(3,)]),
        ("not (x in (0, 1) and x in (3, 4))", [(0,), (1,), (3,)]),
        ("(x in (0, 1) and x not in (0, 1)) is null", [(None,)]),
        ("x in (1, NULL) or x in (3)", [(1,), (3,)]),
        ("x not in (1, NULL) and x not in (1)", []),
    ],
)
def test_several_lists_and_null(ask, condition, expected):
    assert ask(f"select x from t where {condition}", t=X) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("n between n and cast(NULL as bigint)", []),
        ("NULL", []),
        ("false", []),
        ("(select count(*) from t) > 100", []),
        ("(select count(*) from t) > 1", [(4,)]),
        ("1 = 0", []),
        ("'a' not like '_'", []),
    ],
)
def test_conditions_without_columns_over_an_aggregate_of_all_rows(ask, condition, expected):
    having = condition.replace("n between n", "count(*) between count(*)")
    assert ask(f"select sum(x) as s from t having {having}", t=X) == expected
    assert ask(f"select s from (select sum(x) as s, count(*) as n from t) d where {condition}", t=X) == expected


def test_a_constant_condition_over_an_aggregate_of_a_join(ask):
    join = "from t p left join t q on p.x = q.x"
    assert ask(f"select sum(p.x) as s {join} having 'a' not like '_'", t=X) == []
    assert ask(f"select sum(p.x) as s {join} having 'a' like '_'", t=X) == [(4,)]


def test_where_without_columns_below_an_aggregate_of_all_rows(ask):
    assert ask("select count(*) as n from t where (select count(*) from t) > 100", t=X) == [(0,)]
    assert ask("select count(*) as n from t where false", t=X) == [(0,)]
    assert ask("select x, count(*) as n from t group by rollup (x) having x is null and NULL", t=X) == []


def test_functions_that_skip_null_over_a_dictionary(ask):
    t = pa.table({"s": pa.array([None, "b", None]).dictionary_encode()})
    select = "select greatest('a', s) as g, least(s, 'a') as l, concat('a', s) as c, concat_ws('-', 'a', s) as w"
    expected = [("a", "a", "a", "a"), ("a", "a", "a", "a"), ("b", "a", "ab", "a-b")]
    assert ask(f"{select} from t", row_group_size=3, t=t) == expected
    assert ask("select count(distinct greatest('a', s)) as n from t", row_group_size=3, t=t) == [(2,)]


def test_a_join_with_constants(ask):
    sql = "select v.a, x from (values (1), (5)) v(a) left join t on t.x = v.a"
    assert ask(sql, t=X) == [(1, 1), (5, None)]
    sql = "select v.a, x from t left join (values (1), (5)) v(a) on t.x = v.a"
    assert ask(sql, t=X) == [(1, 1), (None, 0), (None, 3), (None, None)]


def test_except_all_counts_the_rows_of_a_join(ask):
    t = pa.table({"x": ints(1, 1, 1, 2)})
    u = pa.table({"k": ints(1, 2), "v": ints(7, 8)})
    joined = "select u.k from u join t on t.x = u.k"
    assert ask(f"select x from t except all ({joined})", t=t, u=u) == []
    assert ask(f"{joined} except all select k from u", t=t, u=u) == [(1,), (1,)]
    assert ask(f"select x from t intersect all ({joined})", t=t, u=u) == [(1,), (1,), (1,), (2,)]


def test_groups_of_no_rows_with_many_possible_keys(ask):
    numbers = pa.array([0, 2**15, 2**16 - 1], pa.uint16())
    t = pa.table({"a": pa.array([1.5, None, 2.5]), "b": numbers, "x": ints(1, 2, 3)})
    assert ask("select a, b, sum(x) as s from t where b <> b group by a, b", row_group_size=3, t=t) == []


def test_keys_of_a_rollup_that_are_one_column(ask):
    t = pa.table({"a": ints(1, 1, 2), "s": ["x", "y", "z"]})
    q = "from (select a as c1, a as c2, s from t) q"
    sql = f"select string_agg(s, ',' order by s) as s {q} group by rollup(c2, c1)"
    assert ask(sql, t=t) == [("x,y",), ("x,y",), ("x,y,z",), ("z",), ("z",)]
    sql = f"select c1, c2, count(*) as n {q} group by rollup(c2, c1)"
    assert ask(sql, t=t) == [(1, 1, 2), (2, 2, 1), (None, 1, 2), (None, 2, 1), (None, None, 3)]
    sql = f"select c1, c2, grouping(c1, c2) as g, count(*) as n {q} group by grouping sets ((c1), (c2), (c1, c2))"
    assert ask(sql, t=t) == [
        (1, 1, 0, 2), (1, None, 1, 2), (2, 2, 0, 1), (2, None, 1, 1), (None, 1, 2, 2), (None, 2, 2, 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        # DataFusion concludes that q.i0 / q.i1 is not null, and would check that of all rows of q.
        ("select q.i0 from t1 q join t1 r on q.f3 = r.i0 and q.i1 = r.i0 where (q.i0 / r.i0) is not null", [1, 2]),
        ("select q.i0 from t1 q join t1 r on q.i0 = r.i0 and r.i1 > 0 and q.i1 <= 2 where 6 / q.i0 >= 3", [1, 2]),
        ("select i0 from t1 where i0 in (select i1 from t1 where i1 > 0) and 6 / i0 > 0", [1, 2]),
        ("select r.i0 from t1 q left join t1 r on q.i1 = r.i0 and r.i0 > 0 where 6 / r.i0 > 0", [1, 2]),
    ],
)  # fmt: skip
def test_conditions_that_fail_for_rows_which_a_join_drops(ask, sql, expected):
    t1 = pa.table({
        "i0": ints(0, 1, 2, 3, kind=pa.int32()), "i1": ints(5, 1, 2, 0, kind=pa.int32()),
        "f3": [0.0, 1.0, 2.0, 3.0],
    })  # fmt: skip
    assert [row[0] for row in ask(sql, t1=t1)] == expected


def test_such_a_condition_fails_for_a_row_that_is_joined(ask):
    t = pa.table({"a": ints(0, 1), "b": ints(0, 1)})
    with pytest.raises(DivisionByZero):
        ask("select t.a from t join u on t.a = u.b where 6 / t.a > 0", t=t, u=t)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        # DataFusion moves the condition below the aggregate, and then drops both, for nobody needs its value.
        ("select count(*) from (select count(x) a from t) r0 cross join t r3 where 1 = 2", [0]),
        ("select count(*) from (select count(x) a from t) r0 cross join t r3 group by r3.x having 1.5 in (2, 3)", []),
        ("select count(*) from (select count(x) a from t) r0 cross join t r3 where (select max(x) from t) > 5", [0]),
        ("select count(*) from (select count(x) a from t) a, t b where exists (select 1 from t where x > 5)", [0]),
        ("select count(*) from (select count(x) a from t) r0 cross join t r3 where 1 = 1 and r3.x > 1", [1]),
    ],
)  # fmt: skip
def test_constant_conditions_beside_an_aggregate_that_nobody_reads(ask, sql, expected):
    assert [row[0] for row in ask(sql, t=pa.table({"x": ints(1, 2)}))] == expected


@pytest.mark.parametrize("argument", ["x / 0", "1 / 0", "cast(x || 'a' as integer)", "x + 9223372036854775807"])
def test_what_fails_for_any_row_is_not_computed_of_none(ask, argument):
    join = "from t right join (select sum(x) as s from t where x > 5 having sum(x) is not null) q on t.x <= q.s"
    t = pa.table({"x": ints(1, 2)})
    assert ask(f"select covar_pop({argument}, x) as c, sum({argument}) as s {join}", t=t) == [(None, None)]
    assert ask(f"select x, max({argument}) as m {join} group by x", t=t) == []


def test_a_sum_too_large_for_its_type_is_an_error_where_only_null_is_asked_for(ask):
    t = pa.table({"a": ints(-128, 1, kind=pa.int8()), "b": ints(-3, 1, kind=pa.int8())})
    with pytest.raises(NumericOverflow):
        ask("select sum(distinct 10.0 * 3.00) as s from t where (a + b) is not null", t=t)
    assert ask("select a from t where a > 0 and (a + b) is not null", t=t) == [(1,)]


def test_a_condition_that_overflows_for_rows_which_a_join_drops(ask):
    # DataFusion concludes that q.x * q.y = q.y, and would check that of all rows of q.
    p = pa.table({"y": ints(1, 2, kind=pa.int32())})
    q = pa.table({"x": ints(1, -3, kind=pa.int32()), "y": ints(1, 2147483646, kind=pa.int32())})
    assert ask("select p.y from p left join q on p.y = q.y where (q.x * p.y) = p.y", p=p, q=q) == [(1,)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("(x + 1, coalesce(x, 0)) in ((1, 0), (2, 2))", [True, False, None, False]),
        ("(nullif(x, 3), 1) <> (1, 1)", [True, False, None, None]),
        ("(case when x > 0 then x end, - x) = (1, -1)", [False, True, None, False]),
        ("(x, 2) not in ((x + 1, 2), (0, 2))", [False, True, None, True]),
    ],
)
def test_rows_of_expressions(ask, condition, expected):
    assert ask(f"select x, {condition} as y from t", t=X) == list(
        zip([0, 1, 3, None], [*expected[:2], expected[3], expected[2]], strict=True)
    )


def test_rows_of_expressions_beside_unnest(ask):
    assert ask("select x, y from t, unnest([x, 1]) as v(y) where (x + y, x) = (2, 1)", t=X) == [(1, 1), (1, 1)]
