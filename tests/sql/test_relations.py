"""Joins, subqueries, HAVING, CASE, names, ORDER BY and LIMIT, merged from chunks of single rows."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from hybridq.errors import AmbiguousColumn

from .conftest import in_order, rows

INT = pa.int64()


def ints(*values):
    return pa.array(values, INT)


# --- empty chunks ----------------------------------------------------------------------------------------------------


def test_a_chunk_that_a_filter_empties(ask):
    t = pa.table({"x": ints(1, 5, 6), "s": ["a", "b", "c"]})
    answer = ask("select x, s from t where x > 4", t=t)
    assert rows(answer) == [(5, "b"), (6, "c")]
    assert answer.schema.types == [INT, pa.string()]


def test_no_rows_left_keeps_the_types(ask):
    t = pa.table({"x": ints(1, 2), "s": ["a", "b"], "d": pa.array([Decimal("1.50")] * 2, pa.decimal128(5, 2))})
    for sql in ("select x, s, d from t where x > 9", "select x, s, d from t where x > 9 order by x limit 3"):
        answer = ask(sql, t=t)
        assert answer.num_rows == 0
        assert answer.schema.types == [INT, pa.string(), pa.decimal128(5, 2)]


def test_an_empty_build_side(ask):
    tables = {"l": pa.table({"a": ints(1, 2, None)}), "r": pa.table({"b": ints(), "c": pa.array([], pa.string())})}
    assert rows(ask("select a, c from l join r on a = b", **tables)) == []
    assert rows(ask("select a, c from l left join r on a = b", **tables)) == [(1, None), (2, None), (None, None)]
    anti = ask("select a from l where not exists (select 1 from r where b = a)", **tables)
    assert rows(anti) == [(1,), (2,), (None,)]


# --- joins -----------------------------------------------------------------------------------------------------------


def test_a_left_join_counts_matches_not_rows(ask):
    tables = {
        "customer": pa.table({"c": ints(1, 2, 3)}),
        "orders": pa.table({"o": ints(10, 11, 12, 13), "oc": ints(1, 1, 2, None), "note": ["x", "special", "y", "z"]}),
    }
    answer = ask("select c, count(o) as n, count(*) as r from customer left join orders on c = oc group by c", **tables)
    assert rows(answer) == [(1, 2, 2), (2, 1, 1), (3, 0, 1)]
    answer = ask(
        "select c, count(o) as n from customer left join orders on c = oc and note not like '%special%' group by c",
        **tables,
    )
    assert rows(answer) == [(1, 1), (2, 1), (3, 0)]


def test_a_semi_join_does_not_multiply(ask):
    tables = {"l": pa.table({"a": ints(1, 2)}), "r": pa.table({"b": ints(1, 1, 1)})}
    assert rows(ask("select a from l where a in (select b from r)", **tables)) == [(1,)]


def test_keys_of_other_widths_meet(ask):
    tables = {"l": pa.table({"a": pa.array([1, 2], pa.int32())}), "r": pa.table({"b": ints(2, 3)})}
    assert rows(ask("select a, b from l join r on a = b", **tables)) == [(2, 2)]


def test_joins_on_two_keys_with_duplicates(ask):
    left = pa.table({"a": ints(1, 1, 1, 2), "b": ["x", "x", "y", None]})
    right = pa.table({"c": ints(1, 1, 2), "d": ["x", "x", None], "v": ints(7, 8, 9)})
    answer = ask("select a, b, v from l join r on a = c and b = d", l=left, r=right)
    assert rows(answer) == [(1, "x", 7), (1, "x", 7), (1, "x", 8), (1, "x", 8)]


def test_correlated_aggregates(ask):
    tables = {
        "t": pa.table({"k": ints(1, 2, 3), "x": ints(5, 5, 5)}),
        "u": pa.table({"k": ints(1, 1, 2), "y": ints(1, 3, 9)}),
    }
    answer = ask("select k from t where x > (select avg(y) from u where u.k = t.k)", **tables)
    assert rows(answer) == [(1,)], "no match is NULL, and the comparison drops the row"
    answer = ask("select k, (select count(*) from u where u.k = t.k) as n from t", **tables)
    assert rows(answer) == [(1, 2), (2, 1), (3, 0)], "the count of no match is 0, not NULL"


# --- HAVING and CASE -------------------------------------------------------------------------------------------------


def test_having_applies_after_the_merge(ask):
    t = pa.table({"k": ints(1, 2, 1, 2), "x": ints(200, 100, 150, 100)})
    assert rows(ask("select k from t group by k having sum(x) > 300", t=t)) == [(1,)]
    assert rows(ask("select k, count(*) as n from t group by k having max(x) < 150", t=t)) == [(2, 2)]


def test_having_without_group_by(ask):
    assert in_order(ask("select 1 as one from t having count(*) > 0", t=pa.table({"x": ints(4, 5)}))) == [(1,)]
    assert in_order(ask("select 1 as one from t having count(*) > 0", t=pa.table({"x": ints()}))) == []


def test_case_without_a_branch_that_holds_is_null(ask):
    t = pa.table({"x": ints(1, 2, None)})
    answer = ask("select x, case when x = 1 then 'one' end as w from t", t=t)
    assert rows(answer) == [(1, "one"), (2, None), (None, None)]
    answer = ask("select x, case when x > 1 then 'more' else 'else' end as w from t", t=t)
    assert rows(answer) == [(1, "else"), (2, "more"), (None, "else")], "a NULL condition falls to ELSE"


def test_case_guards_a_division(ask):
    t = pa.table({"a": ints(6, 7), "b": ints(3, 0)})
    assert rows(ask("select a, case when b <> 0 then a / b end as q from t", t=t)) == [(6, 2), (7, None)]


def test_case_takes_the_common_type(ask):
    t = pa.table({"x": ints(1, 2), "d": pa.array([Decimal("1.50"), Decimal("2.50")], pa.decimal128(5, 2))})
    answer = ask("select case when x = 1 then d else 0 end as v from t", t=t)
    assert rows(answer) == [(Decimal("0.00"),), (Decimal("1.50"),)]


def test_sums_of_case_over_chunks_and_nothing(ask):
    t = pa.table({"p": ["1-URGENT", "5-LOW", "2-HIGH"], "x": ints(1, 2, 3)})
    high = "sum(case when p in ('1-URGENT', '2-HIGH') then 1 else 0 end)"
    assert in_order(ask(f"select {high} as high from t", t=t)) == [(2,)]
    assert in_order(ask(f"select {high} as high from t where x > 9", t=t)) == [(None,)]


# --- names -----------------------------------------------------------------------------------------------------------


def test_both_sides_have_the_same_names(ask):
    tables = {
        "a": pa.table({"id": ints(1, 2), "name": ["x", "y"]}),
        "b": pa.table({"id": ints(1, 2), "name": ["p", "q"]}),
    }
    answer = ask("select a.id, a.name, b.name from a join b on a.id = b.id", **tables)
    assert answer.schema.names == ["id", "name", "name"]
    assert rows(answer) == [(1, "x", "p"), (2, "y", "q")]
    assert ask("select * from a join b on a.id = b.id", **tables).schema.names == ["id", "name", "id", "name"]
    with pytest.raises(AmbiguousColumn) as caught:
        ask("select name from a join b on a.id = b.id", **tables)
    assert "name" in str(caught.value)


def test_a_table_joined_with_itself_twice(ask):
    nation = pa.table({"n": ints(1, 2, 3), "name": ["fr", "de", "us"]})
    pairs = pa.table({"s": ints(1, 2, 3), "c": ints(2, 1, 3)})
    answer = ask(
        "select n1.name as supplier, n2.name as customer"
        " from pairs join nation n1 on s = n1.n join nation n2 on c = n2.n where n1.name = 'fr' or n2.name = 'fr'",
        nation=nation,
        pairs=pairs,
    )
    assert rows(answer) == [("de", "fr"), ("fr", "de")]


def test_column_names_are_as_written(ask):
    answer = ask('select x as "A b", x + 1 as "select" from t', t=pa.table({"x": ints(1)}))
    assert answer.schema.names == ["A b", "select"]


# --- ORDER BY and LIMIT ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("x asc nulls first", [None, 1, 2, 3]),
        ("x asc nulls last", [1, 2, 3, None]),
        ("x desc nulls first", [None, 3, 2, 1]),
        ("x desc nulls last", [3, 2, 1, None]),
        ("x", [1, 2, 3, None]),
    ],
)
def test_nulls_are_ordered_as_asked(ask, order, expected):
    t = pa.table({"x": ints(2, None, 3, 1)})
    assert [x for (x,) in in_order(ask(f"select x from t order by {order}", t=t))] == expected
    assert [x for (x,) in in_order(ask(f"select x from t order by {order} limit 2", t=t))] == expected[:2]
    assert [x for (x,) in in_order(ask(f"select x from t order by {order} limit 2 offset 1", t=t))] == expected[1:3]


def test_limit_and_offset_after_the_merge(ask):
    t = pa.table({"x": ints(*reversed(range(20)))})
    assert in_order(ask("select x from t order by x limit 3 offset 17", t=t)) == [(17,), (18,), (19,)]
    assert in_order(ask("select x from t order by x limit 3 offset 19", t=t)) == [(19,)]
    assert in_order(ask("select x from t order by x limit 3 offset 99", t=t)) == []
    assert in_order(ask("select x from t order by x limit 0", t=t)) == []
    assert in_order(ask("select x from t order by x desc offset 18", t=t)) == [(1,), (0,)]


def test_a_limit_without_order_gives_that_many_rows(in_place, tmp_path):
    in_place.register("some", pa.table({"x": list(range(50))}))
    answer = in_place.sql("select x from some limit 7").collect(mode="cop").to_arrow()
    assert answer.num_rows == 7
    assert len({x for (x,) in in_order(answer)} & set(range(50))) == 7


def test_ties_are_cut_anywhere_but_not_invented(ask):
    t = pa.table({"k": ints(1, 2, 2, 2, 3), "v": ints(10, 20, 21, 22, 30)})
    answer = ask("select k from t order by k limit 3", t=t)
    assert in_order(answer) == [(1,), (2,), (2,)]


def test_order_by_several_keys_and_expressions(ask):
    t = pa.table({"a": ints(1, 1, 2), "b": ["x", "y", "z"]})
    assert in_order(ask("select a, b from t order by a desc, b desc", t=t)) == [(2, "z"), (1, "y"), (1, "x")]
    assert in_order(ask("select b from t order by -a, b", t=t)) == [("z",), ("x",), ("y",)]


def test_order_of_groups_and_distinct(ask):
    t = pa.table({"k": ["b", "a", "b", "c"]})
    assert in_order(ask("select k, count(*) as n from t group by k order by n desc, k", t=t)) == [
        ("b", 2),
        ("a", 1),
        ("c", 1),
    ]
    assert in_order(ask("select distinct k from t order by k", t=t)) == [("a",), ("b",), ("c",)]
