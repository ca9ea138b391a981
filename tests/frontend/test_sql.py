from __future__ import annotations

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from hybridq.errors import AmbiguousColumn, Unsupported
from hybridq.frontend.sql import export_substrait, plan_sql
from hybridq.plan.expressions import Call, Case, In, Literal
from hybridq.plan.nodes import Aggregate, Filter, Join, Limit, Project, Scan, Sort, Union, Values, walk


def nodes(plan, kind):
    return [node for node in walk(plan.root) if isinstance(node, kind)]


def output(text, tables):
    """The expression of a query's only computed column."""
    plan = plan_sql(f"select {text} as answer from types", tables)
    (item,) = nodes(plan, Project)[0].expressions
    return item.expression


def test_a_scan_reads_only_the_columns_that_the_query_uses(tables):
    plan = plan_sql("select o_clerk from orders where o_totalprice > 5", tables)
    (scan,) = nodes(plan, Scan)
    assert {column.source for column in scan.columns} == {"o_clerk", "o_totalprice"}
    assert {column.name for column in scan.columns} == {"orders.o_clerk", "orders.o_totalprice"}


def test_scans_of_one_table_are_numbered(tables):
    plan = plan_sql("select a.n_name, b.n_name from nation a join nation b on a.n_nationkey = b.n_regionkey", tables)
    assert plan.names == ("n_name", "n_name")
    assert [field.name for field in plan.root.schema] == ["nation.n_name", "nation#2.n_name"]
    (join,) = nodes(plan, Join)
    assert [str(key) for key in (*join.left_keys, *join.right_keys)] == ["nation.n_nationkey", "nation#2.n_regionkey"]


@pytest.mark.parametrize("kind", ["", "left", "right", "full"])
@pytest.mark.parametrize(("first", "second"), [("a", "z"), ("z", "a")])
def test_a_merged_column_is_where_its_first_table_has_it(tables, kind, first, second):
    pairs = "(select n_name, n_nationkey from nation)", "(select n_regionkey, n_nationkey from nation)"
    text = f"select * from {pairs[0]} {first} {kind} join {pairs[1]} {second} using (n_nationkey)"
    assert plan_sql(text, tables).names == ("n_name", "n_nationkey", "n_regionkey")


def test_a_merged_column_is_ambiguous_where_another_table_has_its_name(tables):
    text = "select n_nationkey from nation a full join nation b using (n_nationkey) cross join nation c"
    with pytest.raises(AmbiguousColumn, match=r"write a\.n_nationkey or b\.n_nationkey or c\.n_nationkey"):
        plan_sql(text, tables)


def test_names_in_quotes(tables):
    plan = plan_sql('select "A", "b c", "q""x" as "Q", "order", "dotted.name" from "Odd Table"', tables)
    assert plan.names == ("A", "b c", "Q", "order", "dotted.name")
    (scan,) = nodes(plan, Scan)
    assert scan.table == "Odd Table"
    assert {column.source for column in scan.columns} == {"A", "b c", 'q"x', "order", "dotted.name"}


def test_columns_without_a_name_are_called_as_they_are_written(tables):
    text = """select n_nationkey + 1, n_name || 'b', 2.50, interval '1 day', 1e3, "Int64(1)"
    from (select *, 1 as "Int64(1)" from nation) nation"""
    assert plan_sql(text, tables).names == (
        "nation.n_nationkey + 1", "nation.n_name || 'b'", "2.50", "interval '1 days'", "1e3", "Int64(1)",
    )  # fmt: skip


def test_plain_names_are_folded_to_lower_case(tables):
    assert plan_sql("SELECT N_NAME FROM Nation", tables).names == ("n_name",)


def test_decimal_literals_are_exact(tables):
    plan = plan_sql("select 1 from lineitem where l_discount between 0.06 - 0.01 and 0.06 + 0.01", tables)
    (node,) = nodes(plan, Filter)
    values = [part.arguments[1].value for part in node.predicate.arguments]
    assert values == [Decimal("0.05"), Decimal("0.07")]


def test_date_arithmetic_of_constants_is_done(tables):
    plan = plan_sql("select 1 from lineitem where l_shipdate <= date '1998-12-01' - interval '90' day", tables)
    (node,) = nodes(plan, Filter)
    assert node.predicate.arguments[1] == Literal(pa.date32(), date(1998, 9, 2))


def test_sums_of_decimals_have_38_digits_and_so_has_what_is_computed_from_them(tables):
    plan = plan_sql("select sum(p15) as s, sum(p15) * 0.5 as half, avg(p15) as mean from types", tables)
    assert [field.type for field in plan.root.schema] == [
        pa.decimal128(38, 2),
        pa.decimal128(38, 3),
        pa.decimal128(19, 6),
    ]
    compared = plan_sql("select i8 from types group by i8 having sum(p15) > 300", tables)
    (node,) = nodes(compared, Filter)
    assert [argument.type for argument in node.predicate.arguments] == [pa.decimal128(38, 2)] * 2


def test_sums_stay_wide_through_joined_subqueries(tables):
    plan = plan_sql(
        "select x.s + y.s as total from (select i8, sum(p15) s, count(*) n from types group by 1) x "
        "full join (select i8, sum(p15) s, count(*) n from types group by 1) y on x.i8 = y.i8 and x.n = y.n",
        tables,
    )
    assert plan.root.schema[-1].type == pa.decimal128(38, 2)
    names = [field.name for field in nodes(plan, Join)[0].schema]
    assert len(set(names)) == len(names)


def test_repeated_aggregates_are_computed_once(tables):
    plan = plan_sql("select sum(i64) as a, sum(i64) as b from types", tables)
    (aggregate,) = nodes(plan, Aggregate)
    assert len(aggregate.aggregates) == 1
    assert plan.names == ("a", "b")
    assert len(plan.root.schema) == 2


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("count(*)", "count(*)"),
        ("count(1)", "count(*)"),
        ("count(i64)", "count(types.i64)"),
        ("count(distinct s)", "count(DISTINCT types.s)"),
        ("min(s)", "min(types.s)"),
        ("max(distinct d)", "max(types.d)"),
        ("avg(i64)", "avg(cast(types.i64 as double))"),
        ("sum(i8) filter (where b)", "sum(CASE WHEN types.b THEN cast(types.i8 as int64) ELSE NULL END)"),
        ("count(*) filter (where b)", "count(CASE WHEN types.b THEN 1 ELSE NULL END)"),
        (
            "count(i8, s)",
            "count(CASE WHEN (is_not_null(types.i8) AND is_not_null(types.s)) THEN 1 ELSE NULL END)",
        ),
    ],
)
def test_aggregates(text, call, tables):
    plan = plan_sql(f"select {text} as answer, avg(p15) as other from types", tables)
    calls = [str(item) for item in nodes(plan, Aggregate)[0].aggregates]
    assert call in calls


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s like 'a%'", "(types.s LIKE 'a%')"),
        ("s not like 'a%'", "not((types.s LIKE 'a%'))"),
        ("s like '!%a' escape '!'", "(types.s LIKE '!%a')"),
        ("s ilike 'a%'", "ilike(types.s, 'a%')"),
        ("s is null", "is_null(types.s)"),
        ("b is unknown", "is_null(types.b)"),
        ("b is not true", "is_not_true(types.b)"),
        ("i8 is distinct from i64", "is_distinct_from(cast(types.i8 as int64), types.i64)"),
        ("-i64", "negate(types.i64)"),
        ("abs(p15)", "abs(types.p15)"),
        ("i64 / 2", "(types.i64 / 2)"),
        ("i64 % 2", "(types.i64 % 2)"),
        ("7 / 2", "3"),
        ("extract(year from d)", "extract(year, types.d)"),
        ("date_part('dow', d)", "extract(dow, types.d)"),
        ("substring(s from 2 for 3)", "substring(types.s, 2, 3)"),
        ("s || 'x'", "concat(types.s, 'x')"),
        ("concat(s, 'x')", "concat(coalesce(types.s, ''), 'x')"),
        ("upper(s)", "upper(types.s)"),
        ("char_length(s)", "length(types.s)"),
        ("starts_with(s, lower(s))", "starts_with(types.s, lower(types.s))"),
        ("nullif(i64, 3)", "CASE WHEN (types.i64 = 3) THEN NULL ELSE types.i64 END"),
        ("cast(s as int)", "cast(types.s as int32)"),
        ("try_cast(s as date)", "try_cast(types.s as date32[day])"),
        ("i64 in (1, 2, 3, 4, null)", "types.i64 IN (1, 2, 3, 4, NULL)"),
        ("i64 = 1 or 2 = i64 or i64 in (7, 8)", "types.i64 IN (1, 2, 7, 8)"),
        ("case i64 when 1 then 'x' end", "CASE WHEN (types.i64 = 1) THEN 'x' ELSE NULL END"),
        ("case when b then 1 else 2.5 end", "CASE WHEN types.b THEN 1.0 ELSE 2.5 END"),
        ("b and i8 = 1 and (i16 = 2 or i32 = 3 or i64 = 4)", None),
    ],
)
def test_expressions(text, expected, tables):
    expression = output(text, tables)
    if expected is not None:
        assert str(expression) == expected
        return
    assert expression.function == "and"
    assert len(expression.arguments) == 3
    assert [part.function for part in expression.arguments[2].arguments] == ["equal"] * 3


def test_like_keeps_its_escape_character(tables):
    expression = output("s like '!%a' escape '!'", tables)
    assert isinstance(expression, Call)
    assert expression.options == ("escape", "!")


def test_types_of_expressions(tables):
    assert output("extract(year from d)", tables).type == pa.int32()
    assert isinstance(output("i64 in (1, 2, 3, 4, 5)", tables), In)
    case = output("case when b then 1 else 2.5 end", tables)
    assert isinstance(case, Case)
    assert {case.type, *(value.type for _, value in case.branches), case.default.type} == {pa.decimal128(21, 1)}


def test_timestamps_keep_the_zone_of_their_table(tables):
    plan = plan_sql("select tz from types", tables)
    assert plan.root.schema[0].type == pa.timestamp("ns", "Europe/Zurich")


def test_joins(tables):
    both = "from orders {} join customer on o_custkey = c_custkey"
    kinds = {"": "inner", "left": "left", "right": "left", "full": "full"}
    for text, kind in kinds.items():
        plan = plan_sql(f"select o_clerk, c_name {both.format(text)}", tables)
        (join,) = nodes(plan, Join)
        assert join.kind == kind
        assert [field.name for field in plan.root.schema] == ["orders.o_clerk", "customer.c_name"]
        assert nodes(Plan_of(join.left), Scan)[0].table == ("customer" if text == "right" else "orders")


def Plan_of(node):  # noqa: N802 - reads as a constructor
    from hybridq.plan.nodes import Plan

    return Plan(node, ())


def test_a_condition_that_is_no_equality_stays_in_the_join(tables):
    plan = plan_sql("select 1 from orders left join customer on o_custkey = c_custkey and o_clerk < c_name", tables)
    (join,) = nodes(plan, Join)
    assert str(join.residual) == "(orders.o_clerk < customer.c_name)"
    assert len(join.left_keys) == 1


def test_keys_of_different_types_are_cast(tables):
    plan = plan_sql("select 1 from types join orders on i32 = o_orderkey", tables)
    (join,) = nodes(plan, Join)
    assert [key.type for key in (*join.left_keys, *join.right_keys)] == [pa.int64(), pa.int64()]


def test_a_cross_join_has_no_keys(tables):
    (join,) = nodes(plan_sql("select n_name, r_name from nation, region", tables), Join)
    assert (join.kind, join.left_keys, join.residual) == ("inner", (), None)


def test_not_in_is_told_from_not_exists(tables):
    not_in = "c_custkey not in (select o_custkey from orders)"
    not_exists = "not exists (select 1 from nation where n_nationkey = c_nationkey)"
    text = f"select c_name from customer where {not_exists} and {not_in}"
    found = {join.right_keys[0].name: join.null_aware for join in nodes(plan_sql(text, tables), Join)}
    assert found == {"orders.o_custkey": True, "nation.n_nationkey": False}


def test_nested_not_in(tables):
    text = """select c_name from customer where c_custkey not in (
        select o_custkey from orders where not exists (select 1 from region where r_regionkey = o_orderkey)
        and o_orderkey not in (select l_orderkey from lineitem))"""
    found = {join.right_keys[0].name: join.null_aware for join in nodes(plan_sql(text, tables), Join)}
    assert found == {"orders.o_custkey": True, "lineitem.l_orderkey": True, "region.r_regionkey": False}


def test_not_in_beside_a_name_that_looks_like_its_mark_is_refused(tables):
    text = 'select c_custkey as "x null_aware" from customer where c_custkey not in (select o_custkey from orders)'
    with pytest.raises(Unsupported, match="null_aware"):
        plan_sql(text, tables)


def test_except_keeps_nulls_equal(tables):
    (join,) = nodes(plan_sql("select i64 from types except select o_orderkey from orders", tables), Join)
    assert (join.kind, join.null_aware, join.residual) == ("anti", False, None)
    assert [str(key) for key in join.left_keys] == ["is_null(types.i64)", "coalesce(types.i64, 0)"]
    assert [str(key) for key in join.right_keys] == ["is_null(orders.o_orderkey)", "coalesce(orders.o_orderkey, 0)"]


def test_unions_nest_into_one(tables):
    (union,) = nodes(
        plan_sql("select i32 from types union all select o_orderkey from orders union all select 7", tables), Union
    )
    assert len(union.parts) == 3
    assert {part.schema[0].type for part in union.parts} == {pa.int64()}


def test_order_and_limit(tables):
    plan = plan_sql("select n_name from nation order by n_name desc, n_nationkey limit 5 offset 3", tables)
    (sort,) = nodes(plan, Sort)
    assert [(key.descending, key.nulls_first) for key in sort.keys] == [(True, True), (False, False)]
    (limit,) = nodes(plan, Limit)
    assert (limit.offset, limit.count) == (3, 5)
    explicit = plan_sql("select n_name from nation order by n_name desc nulls last offset 2", tables)
    assert nodes(explicit, Sort)[0].keys[0].nulls_first is False
    assert (nodes(explicit, Limit)[0].offset, nodes(explicit, Limit)[0].count) == (2, None)


def test_constant_tables(tables):
    one = plan_sql("select 1 as one, 'x' as text", tables)
    assert nodes(one, Values)[0].table.num_rows == 1
    assert one.names == ("one", "text")
    (values,) = nodes(plan_sql("values (1, 2.5, date '2020-02-29'), (2, null, null)", tables), Values)
    assert values.table.to_pydict() == {
        "values.column1": [1, 2],
        "values.column2": [Decimal("2.5"), None],
        "values.column3": [date(2020, 2, 29), None],
    }
    (empty,) = nodes(plan_sql("select n_name from nation where false", tables), Values)
    assert empty.table.num_rows == 0


def test_distinct_is_an_aggregate_without_calls(tables):
    (node,) = nodes(plan_sql("select distinct n_name, n_regionkey from nation", tables), Aggregate)
    assert (len(node.groups), node.aggregates) == (2, ())


def test_count_of_rows_reads_no_column(tables):
    (scan,) = nodes(plan_sql("select count(*) from types", tables), Scan)
    assert scan.columns == ()


def test_long_lists_and_long_chains_of_or(tables):
    many = ", ".join(map(str, range(3000)))
    (node,) = nodes(plan_sql(f"select s from types where i64 in ({many})", tables), Filter)
    assert len(node.predicate.values) == 3000
    chain = " or ".join(f"(i64 = {number} and i32 = {number})" for number in range(60))
    (node,) = nodes(plan_sql(f"select s from types where {chain}", tables), Filter)
    assert len(node.predicate.arguments) == 60


def test_export_refuses_what_substrait_cannot_say(tables):
    with pytest.raises(Unsupported, match="NOT IN"):
        export_substrait("select 1 from customer where c_custkey not in (select o_custkey from orders)", tables)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("select sum(i64) as a, sum(cast(i64 as double)) as b from types", ("a", "b")),
        ("select i64, cast(i64 as double), count(*) from types group by i64, cast(i64 as double)", None),
        ("select i64, i64::double, i64::int from types", ("i64", "types.i64", "types.i64")),
        ("select types.i64::int, (i8 + i16)::int, (i8 + i16)::bigint, types.i64 from types", None),
        ("select cast(upper(s) as int), upper(s), upper(s)::double from types", None),
    ],
)
def test_expressions_that_differ_in_casts_only(text, names, tables):
    plan = plan_sql(text, tables)
    assert names is None or plan.names == names
    assert not any("coalesce" in name for name in plan.names)
    assert len({field.name for field in plan.root.schema}) == len(plan.root.schema)
