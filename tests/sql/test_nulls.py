"""NULL and NaN as SQL has them, in groups, joins, aggregates and across chunks."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from hybridq.errors import RequestError, Unsupported

from .conftest import in_order, rows

INT = pa.int64()


def ints(*values, kind=INT):
    return pa.array(values, kind)


def test_null_is_a_group(ask):
    t = pa.table({"c1": ints(0, 3, None, 1, 3)})
    answer = ask("select c1, count(*) as n from t group by c1", t=t)
    assert rows(answer) == rows(pa.table({"c1": ints(None, 0, 1, 3), "n": ints(1, 1, 1, 2)}))


def test_null_is_a_group_among_two_keys(ask):
    t = pa.table({"a": ints(None, None, 1), "b": ints(1, 1, None)})
    assert rows(ask("select a, b, count(*) as n from t group by a, b", t=t)) == [(1, None, 1), (None, 1, 2)]


@pytest.mark.parametrize("kind", [pa.string(), pa.date32(), pa.decimal128(9, 2), pa.float64(), pa.bool_()])
def test_null_is_a_group_of_every_type(ask, kind):
    t = pa.table({"k": pa.nulls(3, kind), "x": ints(1, 2, 3)})
    assert rows(ask("select k, sum(x) as total from t group by k", t=t)) == [(None, 6)]


def test_null_keys_do_not_join(ask):
    left, right = pa.table({"a": ints(1, None)}), pa.table({"b": ints(1, None)})
    tables = {"l": left, "r": right}
    assert rows(ask("select a, b from l join r on a = b", **tables)) == [(1, 1)]
    assert rows(ask("select a, b from l left join r on a = b", **tables)) == [(1, 1), (None, None)]


def test_null_keys_in_semi_and_anti_joins(ask):
    tables = {"l": pa.table({"a": ints(1, 2, None)}), "r": pa.table({"b": ints(1, 1, None)})}
    assert rows(ask("select a from l where exists (select 1 from r where b = a)", **tables)) == [(1,)]
    assert rows(ask("select a from l where not exists (select 1 from r where b = a)", **tables)) == [(2,), (None,)]


def test_aggregates_of_nothing_but_null(ask):
    t = pa.table({"x": ints(None, None), "k": ints(1, 1)})
    select = "select sum(x) as s, avg(x) as a, min(x) as lo, max(x) as hi, count(x) as n, count(*) as r from t"
    assert in_order(ask(select, t=t)) == [(None, None, None, None, 0, 2)]
    assert in_order(ask(f"{select} group by k", t=t)) == [(None, None, None, None, 0, 2)]


def test_aggregates_of_an_empty_table(ask):
    t = pa.table({"x": ints(), "k": ints()})
    select = (
        "select sum(x) as s, avg(x) as a, min(x) as lo, count(x) as n, count(distinct x) as d, count(*) as r from t"
    )
    assert in_order(ask(select, t=t)) == [(None, None, None, 0, 0, 0)]
    assert in_order(ask(f"{select} group by k", t=t)) == []
    full = pa.table({"x": ints(1, 2), "k": ints(1, 2)})
    assert in_order(ask(f"{select} where x > 5", t=full)) == [(None, None, None, 0, 0, 0)]


def test_a_sum_over_some_null(ask):
    t = pa.table({"k": ints(1, 1, 2, 2), "x": ints(None, 5, None, None)})
    assert rows(ask("select k, sum(x) as s, count(x) as n from t group by k", t=t)) == [(1, 5, 1), (2, None, 0)]


def test_nan_is_a_value(ask):
    t = pa.table({"x": pa.array([1.0, math.nan, None])})
    ((count_all, count, total),) = in_order(ask("select count(*) as a, count(x) as b, sum(x) as c from t", t=t))
    assert (count_all, count) == (3, 2)
    assert math.isnan(total)
    assert in_order(ask("select count(*) as n from t where x is null", t=t)) == [(1,)]


def test_nan_is_one_group_and_null_another(ask):
    t = pa.table({"x": pa.array([math.nan, None, math.nan, 1.0, None, None])})
    answer = ask("select x, count(*) as n from t group by x order by n", t=t)
    found = [("nan" if x is not None and math.isnan(x) else x, n) for x, n in in_order(answer)]
    assert found == [(1.0, 1), ("nan", 2), (None, 3)]


def test_nan_is_above_all_numbers_in_order(ask):
    t = pa.table({"x": pa.array([math.nan, math.inf, -1.0, 2.0])})
    assert [str(x) for (x,) in in_order(ask("select x from t order by x", order_by=("x",), t=t))] == [
        "-1.0",
        "2.0",
        "inf",
        "nan",
    ]
    assert [str(x) for (x,) in in_order(ask("select x from t order by x desc limit 2", t=t))] == ["nan", "inf"]


def test_count_distinct_merges_values_not_counts(ask):
    t = pa.table({"x": ints(1, 1, None, 2, 1, 2), "k": ints(1, 1, 1, 1, 2, 2)})
    assert in_order(ask("select count(distinct x) as n from t", t=t)) == [(2,)]
    assert rows(ask("select k, count(distinct x) as n, sum(x) as s from t group by k", t=t)) == [(1, 2, 4), (2, 2, 3)]


def test_count_distinct_of_two_columns_is_right_or_refused(ask):
    t = pa.table({"a": ints(1, 1, 1), "b": ints(1, 1, None)})
    try:
        answer = ask("select count(distinct (a, b)) as n from t", t=t)
    except RequestError:
        return
    assert in_order(answer) == [(1,)]


def test_three_valued_logic_in_where(ask):
    t = pa.table({"a": ints(1, None, 3), "b": pa.array([True, None, False])})
    assert rows(ask("select a from t where a <> 1 or b", t=t)) == [(1,), (3,)]
    assert rows(ask("select a from t where not (a = 1 and b)", t=t)) == [(3,)]
    assert rows(ask("select a from t where a in (1, null)", t=t)) == [(1,)]
    assert rows(ask("select a from t where a not in (1, null)", t=t)) == []
    assert rows(ask("select a from t where a is distinct from 1", t=t)) == [(3,), (None,)]


def test_not_in_with_null_is_right_or_refused(ask):
    t = pa.table({"a": ints(1, 2, None)})
    for values, expected in (((2, None), []), ((2, 3), [(1,)]), ((), [(1,), (2,), (None,)])):
        try:
            answer = ask("select a from t where a not in (select b from u)", t=t, u=pa.table({"b": ints(*values)}))
        except Unsupported:
            continue
        assert rows(answer) == expected
