"""UNION, INTERSECT, EXCEPT and VALUES, merged from chunks of single rows."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from hybridq.errors import Unsupported
from hybridq.frontend.sql import export_substrait
from hybridq.types import Field

from .conftest import in_order, rows

INT = pa.int64()
SCHEMA = (Field("a", INT),)


def ints(*values):
    return pa.array(values, INT)


@pytest.fixture
def tables():
    return {
        "t": pa.table({"a": ints(1, 2, 2, None, None, 5), "s": ["x", "y", "y", None, None, ""]}),
        "u": pa.table({"a": ints(2, None, 7), "s": ["y", None, "z"]}),
    }


def test_union_all_keeps_every_row(ask, tables):
    answer = ask("select a, s from t union all select a, s from u", **tables)
    expected = [
        *zip(*tables["t"].to_pydict().values(), strict=True),
        *zip(*tables["u"].to_pydict().values(), strict=True),
    ]
    assert rows(answer) == sorted(expected, key=str)
    assert answer.schema.names == ["a", "s"]


def test_union_drops_repeated_rows_and_null_equals_null(ask, tables):
    answer = ask("select a, s from t union select a, s from u", **tables)
    assert rows(answer) == sorted([(1, "x"), (2, "y"), (None, None), (5, ""), (7, "z")], key=str)


def test_intersect_and_except_take_null_as_equal_to_null(ask, tables):
    answer = ask("select a, s from t intersect select a, s from u", **tables)
    assert rows(answer) == sorted([(2, "y"), (None, None)], key=str)
    answer = ask("select a, s from t except select a, s from u", **tables)
    assert rows(answer) == sorted([(1, "x"), (5, "")], key=str)
    answer = ask("select a from u except select a from t", **tables)
    assert rows(answer) == [(7,)]


def test_null_is_not_the_value_that_stands_for_it(ask):
    left = pa.table({"a": ints(0, None), "s": ["", None], "d": pa.array([Decimal("0.00"), None], pa.decimal128(9, 2))})
    right = pa.table({"a": ints(None, 0), "s": ["", None], "d": pa.array([None, Decimal("0.00")], pa.decimal128(9, 2))})
    assert rows(ask("select a, s from l intersect select a, s from r", l=left, r=right)) == []
    assert rows(ask("select d, a from l intersect select d, a from r", l=left, r=right)) == sorted(
        [(None, None), (Decimal("0.00"), 0)], key=str
    )


def test_types_of_unions_meet(ask):
    left = pa.table({"x": pa.array([1, None], pa.int32())})
    right = pa.table({"y": pa.array([Decimal("2.50")], pa.decimal128(5, 2))})
    answer = ask("select x from l union all select y from r", l=left, r=right)
    assert rows(answer) == sorted([(Decimal("1.00"),), (None,), (Decimal("2.50"),)], key=str)


def test_aggregates_over_a_union(ask, tables):
    answer = ask("select count(*) from (select a from t union all select a from u)", **tables)
    assert in_order(answer) == [(9,)]
    answer = ask(
        "select s, sum(a) as total, count(*) as n from (select a, s from t where a > 1 union all select a, s from u) x"
        " group by s order by s nulls first",
        **tables,
    )
    assert in_order(answer) == [(None, None, 1), ("", 5, 1), ("y", 6, 3), ("z", 7, 1)]


def test_predicates_pass_through_unions(ask, tables):
    answer = ask("select a from (select a from t union all select a from u) x where a > 2", **tables)
    assert rows(answer) == [(5,), (7,)]
    answer = ask("select a + 1 as b from (select a from t union all select a * 2 from u) x where a % 2 = 0", **tables)
    assert rows(answer) == sorted([(3,), (3,), (5,), (15,)], key=str)


def test_order_and_limit_of_a_union(ask, tables):
    sql = "select a from t union all select a from u order by a desc nulls last limit 3 offset 1"
    assert in_order(ask(sql, order_by=("a",), **tables)) == [(5,), (2,), (2,)]
    sql = (
        "(select a from t order by a limit 2) union all (select a from u order by a desc nulls last limit 1) order by 1"
    )
    assert in_order(ask(sql, **tables)) == [(1,), (2,), (7,)]


def test_limit_without_order_over_a_union(in_place, tables):
    in_place.register("t", tables["t"])
    in_place.register("u", tables["u"])
    for mode in ("cpu", "gpu", "cop"):
        answer = in_place.sql("select a from t union all select a from u limit 8").collect(mode=mode).to_arrow()
        assert answer.num_rows == 8


def test_unions_of_joins_and_joins_of_unions(ask, tables):
    answer = ask("select t.a from t join u on t.a = u.a union all select u.a from u left join t on t.a = u.a", **tables)
    assert rows(answer) == sorted([(2,), (2,), (2,), (2,), (None,), (7,)], key=str)
    answer = ask(
        "select x.a, t.s from (select a from t union all select a from u) x join t on x.a = t.a where t.s <> 'x'",
        **tables,
    )
    assert rows(answer) == sorted([(2, "y")] * 6 + [(5, "")], key=str)
    answer = ask("select t.a from t join (select a from t union select a from u) x on x.a = t.a", **tables)
    assert rows(answer) == [(1,), (2,), (2,), (5,)]


def test_unions_nest_and_mix(ask, tables):
    answer = ask("select a from t union select a from u except select 2 intersect select a from u", **tables)
    assert rows(answer) == sorted([(1,), (5,), (7,), (None,)], key=str)
    answer = ask("select a from t union all (select a from u union select a from u) union all select 9", **tables)
    assert answer.num_rows == 10


def test_unions_of_constants_and_empty_inputs(ask):
    assert rows(ask("select 1 as x union all select 2 union all select null")) == sorted([(1,), (2,), (None,)], key=str)
    t = pa.table({"x": ints()})
    assert rows(ask("select x from t union all select 3", t=t)) == [(3,)]
    assert rows(ask("select x from t union all select x from t", t=t)) == []
    assert in_order(ask("select count(*) as n, sum(x) as s from (select x from t union all select x from t)", t=t)) == [
        (0, None)
    ]


def test_repeated_columns_in_a_union(ask, tables):
    answer = ask("select a, a as b from t union all select a, a + 1 from u", **tables)
    assert (7, 8) in rows(answer)
    assert answer.num_rows == 9


def test_values(ask):
    answer = ask("values (1, 'x'), (2, null), (3.5, 'z')")
    assert rows(answer) == sorted([(Decimal("1.0"), "x"), (Decimal("2.0"), None), (Decimal("3.5"), "z")], key=str)
    t = pa.table({"a": ints(1, 2, 3)})
    answer = ask("select t.a, v.s from (values (1, 'x'), (2, null), (9, 'q')) v(n, s) join t on n = a", t=t)
    assert rows(answer) == sorted([(1, "x"), (2, None)], key=str)
    answer = ask("select a from t where a in (2, 3) union all values (7), (8)", t=t)
    assert rows(answer) == [(2,), (3,), (7,), (8,)]
    answer = ask("select n, count(*) as c from (values (1), (1), (null)) v(n) group by n order by n nulls first")
    assert in_order(answer) == [(None, 1), (1, 2)]


def test_a_union_reads_one_table_in_one_stage(in_place, tables):
    in_place.register("t", tables["t"])
    in_place.register("u", tables["u"])
    query = in_place.sql("select s, count(*) from (select s from t union all select s from u) group by s")
    result = query.collect(mode="cpu")
    assert len(result.report.stages) == 1
    assert sum(device.rows for device in result.report.stages[0].devices) == 9


def test_a_table_in_memory_keeps_its_rows_where_no_column_is_read(in_place):
    in_place.register("t", pa.table({"a": ints(1, 2, 3)}))
    for sql, expected in {
        "select 2 as x": [(2,)],
        "select count(*) from t": [(3,)],
        "select 7 from t": [(7,)] * 3,
        "select count(*) from (select 1 from t union all select 2 from t)": [(6,)],
    }.items():
        for mode in ("cpu", "gpu", "cop"):
            assert in_order(in_place.sql(sql).collect(mode=mode).to_arrow()) == expected


def test_all_counts_repeated_rows(ask, tables):
    answer = ask("select a, s from t except all select a, s from u", **tables)
    assert rows(answer) == sorted([(1, "x"), (2, "y"), (None, None), (5, "")], key=str)
    answer = ask("select a from t intersect all (select a from u union all select a from u where a = 2)", **tables)
    assert rows(answer) == sorted([(2,), (2,), (None,)], key=str)


def test_all_beside_comparisons_that_take_null_as_equal_to_null(ask, tables):
    answer = ask("select a from t where a is distinct from 1 except all select a from u", **tables)
    assert rows(answer) == sorted([(2,), (None,), (5,)], key=str)
    joined = "select t.a from t join u on t.a is not distinct from u.a"
    assert rows(ask(f"{joined} intersect all select a from t", **tables)) == sorted(
        [(2,), (2,), (None,), (None,)], key=str
    )
    assert rows(ask(f"select a from t except all ({joined})", **tables)) == [(1,), (5,)]
    part = "select a from t where exists (select 1 from u where u.s = t.s and u.a is distinct from 7)"
    assert rows(ask(f"select a from t except all ({part})", **tables)) == sorted(
        [(1,), (None,), (None,), (5,)], key=str
    )


def test_all_beside_what_the_plan_cannot_tell_from_it(in_place, tables):
    in_place.register("t", tables["t"])
    in_place.register("u", tables["u"])
    inner = "select a from t where exists (select 1 from u where u.a is not distinct from t.a)"
    with pytest.raises(Unsupported, match="DISTINCT FROM"):
        in_place.sql(f"{inner} except all select a from u")
    with pytest.raises(Unsupported, match="cannot be written"):
        export_substrait("select a from t except all select a from u", {"t": SCHEMA, "u": SCHEMA})
