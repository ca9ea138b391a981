from __future__ import annotations

import datetime
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import hybridq as hq
from hybridq import col, lit, scan, when
from hybridq.errors import AmbiguousColumn, CastFailed, UnknownColumn, UnknownTable, Unsupported
from hybridq.frontend.sql import plan_sql
from hybridq.plan.nodes import Aggregate, Filter, Join, Limit, Project, Scan, Sort, Values, walk


def nodes(plan, kind):
    return [node for node in walk(plan.root) if isinstance(node, kind)]


def bound(expression, tables):
    plan = scan("types").select(answer=expression).to_plan(tables)
    return nodes(plan, Project)[0].expressions[0].expression


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (col("i64") + 1, "i64 + 1"),
        (1 - col("p15"), "1 - p15"),
        (col("p15") * (1 - col("p15")) * (1 + col("p5")), "p15 * (1 - p15) * (1 + p5)"),
        (col("p15") / col("i32"), "p15 / i32"),
        (col("i32") / 2, "i32 / 2"),
        (7 % col("i64"), "7 % i64"),
        (col("p15") * Decimal("0.20"), "p15 * 0.20"),
        (col("p15") * 0.5, "p15 * cast(0.5 as double)"),
        (col("f32") + col("i64"), "f32 + i64"),
        (-col("i32"), "-i32"),
        (col("p15").abs(), "abs(p15)"),
        (col("s").substring(2, 3), "substring(s from 2 for 3)"),
        (col("s").concat("x"), "s || 'x'"),
        (col("s").upper().lower(), "lower(upper(s))"),
        (col("s").length(), "char_length(s)"),
        (col("d").extract("year"), "extract(year from d)"),
        (col("ts").extract("epoch"), "date_part('epoch', ts)"),
        (when(col("b")).then(1).otherwise(Decimal("2.5")), "case when b then 1 else 2.5 end"),
        (when(col("b")).then("x"), "case when b then 'x' end"),
        (
            when(col("b")).then(col("p15")).when(col("i8") > 3).then(0).otherwise(None),
            "case when b then p15 when i8 > 3 then 0 else null end",
        ),
        (col("s").cast("int32"), "cast(s as int)"),
        (col("p15").cast("decimal(20, 3)"), "cast(p15 as decimal(20, 3))"),
        (col("s").cast(pa.date32()), "cast(s as date)"),
    ],
)
def test_expressions_are_typed_as_in_sql(expression, text, tables):
    sql = plan_sql(f"select {text} as answer from types", tables)
    expected = nodes(sql, Project)[0].expressions[0].expression
    made = bound(expression, tables)
    assert made.type == expected.type
    assert str(made) == str(expected) or "0.5" in text


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (col("p15") < 24, "p15 < 24"),
        (col("p15") > Decimal("1.555"), "p15 > 1.555"),
        (col("d") <= date(1998, 9, 2), "d <= date '1998-09-02'"),
        (col("d") <= "1998-09-02", "d <= date '1998-09-02'"),
        (col("i8") == 3, "i8 = 3"),
        (col("i8") != col("i64"), "i8 <> i64"),
        (col("i64").is_in([1, 2, 3, 4]), "i64 in (1, 2, 3, 4)"),
        (~col("s").is_in(["a", "b", "c", "d"]), "s not in ('a', 'b', 'c', 'd')"),
        (col("s").like("a%") & ~col("s").like("%b"), "s like 'a%' and s not like '%b'"),
        (col("s").like("a!%", escape="!"), "s like 'a!%' escape '!'"),
        (col("s").ilike("a%"), "s ilike 'a%'"),
        (col("s").is_null() | (col("i8") >= 2), "s is null or i8 >= 2"),
        (col("s").is_not_null(), "s is not null"),
        (col("p15").between(1, Decimal("2.5")), "p15 between 1 and 2.5"),
        ((col("i8") == 1) | (col("i16") == 2) | (col("i32") == 3), "i8 = 1 or i16 = 2 or i32 = 3"),
    ],
)
def test_predicates_are_those_of_sql(predicate, text, tables):
    sql = plan_sql(f"select x from types where {text}", tables)
    made = scan("types").filter(predicate).select("x").to_plan(tables)
    assert nodes(made, Filter)[0].predicate == nodes(sql, Filter)[0].predicate


def test_literals(tables):
    cases = [
        (lit(3), pa.int64(), 3),
        (lit(2**70), pa.decimal128(22, 0), Decimal(2**70)),
        (lit(0.5), pa.float64(), 0.5),
        (lit(Decimal("0.06")), pa.decimal128(2, 2), Decimal("0.06")),
        (lit(Decimal("1E+3")), pa.decimal128(4, 0), Decimal(1000)),
        (lit(Decimal("-100.00")), pa.decimal128(5, 2), Decimal("-100.00")),
        (lit("x"), pa.string(), "x"),
        (lit(b"x"), pa.binary(), b"x"),
        (lit(True), pa.bool_(), True),
        (lit(np.int32(3)), pa.int64(), 3),
        (lit(np.float32(0.5)), pa.float64(), 0.5),
        (lit(datetime.datetime(2020, 1, 2, 3)), pa.timestamp("us"), datetime.datetime(2020, 1, 2, 3)),
        (lit(3, "decimal(15, 2)"), pa.decimal128(15, 2), Decimal("3.00")),
        (lit(3, pa.int8()), pa.int8(), 3),
        (lit(None, "date"), pa.date32(), None),
    ]
    for expression, data_type, value in cases:
        literal = bound(expression, tables)
        assert (literal.type, literal.value) == (data_type, value)


def test_literals_that_cannot_be():
    with pytest.raises(CastFailed):
        lit(300, "int8")
    with pytest.raises(CastFailed):
        lit(Decimal("1.555"), "decimal(15, 2)")
    with pytest.raises(CastFailed):
        lit(Decimal("NaN"))
    with pytest.raises(CastFailed):
        lit(Decimal(1).scaleb(40))
    with pytest.raises(TypeError, match="object"):
        lit(object())
    with pytest.raises(Unsupported, match="no type nosuch"):
        lit(1, "nosuch")


def test_and_or_and_chained_comparisons_of_python_are_refused():
    with pytest.raises(TypeError, match=r"use & \| ~"):
        bool(col("a") == 1)
    with pytest.raises(TypeError):
        1 < col("a") < 3  # noqa: B015


def test_aggregates_are_those_of_sql(tables):
    made = (
        scan("types")
        .group_by("s", year=col("d").extract("year"))
        .agg(
            a=col("i8").sum(),
            b=col("f32").sum(),
            c=col("i64").mean(),
            d=col("p15").mean(),
            e=col("d").min(),
            f=col("s").max(),
            g=hq.count(),
            h=col("i16").count(),
            i=col("i32").n_unique(),
            j=col("p15").sum() / col("i8").sum(),
        )
        .to_plan(tables)
    )
    assert made.names == ("s", "year", *"abcdefghij")
    sql = plan_sql(
        "select s, extract(year from d) as year, sum(i8) as a, sum(f32) as b, avg(i64) as c, avg(p15) as d, "
        "min(d) as e, max(s) as f, count(*) as g, count(i16) as h, count(distinct i32) as i, "
        "sum(p15) / sum(i8) as j from types group by 1, 2",
        tables,
    )
    ours, theirs = nodes(made, Aggregate)[0], nodes(sql, Aggregate)[0]
    assert {str(call): call.type for call in ours.aggregates} == {str(call): call.type for call in theirs.aggregates}
    assert [field.type for field in made.root.schema] == [field.type for field in sql.root.schema]


def test_aggregates_of_all_rows(tables):
    made = scan("types").agg(rows=hq.count(), most=col("i8").max() + 1).to_plan(tables)
    assert made.names == ("rows", "most")
    assert nodes(made, Aggregate)[0].groups == ()


def test_a_group_and_a_count_of_the_same_name(tables):
    counted = scan("types").group_by("s").agg(n=hq.count())
    made = counted.group_by("n").agg(groups=hq.count()).to_plan(tables)
    names = [field.name for field in made.root.schema]
    assert len(set(names)) == 2
    assert made.names == ("n", "groups")


def test_an_aggregate_in_the_wrong_place(tables):
    with pytest.raises(Unsupported, match="outside of agg"):
        scan("types").filter(col("i8").sum() > 3).to_plan(tables)
    with pytest.raises(Unsupported, match="within an aggregate"):
        scan("types").agg(x=col("i8").sum().max()).to_plan(tables)
    with pytest.raises(Unsupported, match=r"types\.i8 in agg\(\) is neither a key"):
        scan("types").group_by("s").agg(x=col("i8")).to_plan(tables)
    with pytest.raises(Unsupported, match=r"sum of values of type string"):
        scan("types").agg(x=col("s").sum()).to_plan(tables)


def test_select_and_with_columns(tables):
    made = scan("nation").select("n_name", double=col("n_nationkey") * 2).to_plan(tables)
    assert made.names == ("n_name", "double")
    renamed = scan("nation").select(col("n_name").alias("name"), "nation.n_regionkey").to_plan(tables)
    assert renamed.names == ("name", "n_regionkey")
    assert [field.name for field in renamed.root.schema] == ["nation.n_name", "nation.n_regionkey"]
    more = scan("region").with_columns(col("r_name").upper().alias("r_name"), one=lit(1)).to_plan(tables)
    assert more.names == ("r_regionkey", "r_name", "r_comment", "one")
    assert str(nodes(more, Project)[-1].expressions[1].expression) == "upper(region.r_name)"


def test_joins_on_names_show_the_key_once(tables):
    left = scan("nation").select(key=col("n_regionkey"), name=col("n_name"))
    right = scan("region").select(key=col("r_regionkey"), region=col("r_name"))
    for how, kind in {"inner": "inner", "left": "left", "right": "left"}.items():
        made = left.join(right, on="key", how=how).to_plan(tables)
        assert nodes(made, Join)[0].kind == kind
        assert sorted(made.names) == ["key", "name", "region"]
    right_join = left.join(right, on="key", how="right").to_plan(tables)
    assert right_join.root.schema[right_join.names.index("key")].name == "region.r_regionkey"
    with pytest.raises(Unsupported, match="full join"):
        left.join(right, on="key", how="full").to_plan(tables)


def test_other_joins(tables):
    nation, region = scan("nation"), scan("region")
    keys = {"left_on": "n_regionkey", "right_on": "r_regionkey"}
    assert nodes(nation.join(region, **keys, how="semi").to_plan(tables), Join)[0].kind == "semi"
    anti = nation.join(region, **keys, how="anti").to_plan(tables)
    assert (nodes(anti, Join)[0].kind, nodes(anti, Join)[0].null_aware) == ("anti", False)
    assert len(anti.names) == 4
    assert nodes(nation.join(region, **keys, how="full").to_plan(tables), Join)[0].kind == "full"
    cross = nation.join(region, how="cross").to_plan(tables)
    assert nodes(cross, Join)[0].left_keys == ()
    condition = (col("n_regionkey") == col("r_regionkey")) & (col("n_name") < col("r_name"))
    (join,) = nodes(nation.join(region, on=condition).to_plan(tables), Join)
    assert (len(join.left_keys), str(join.residual)) == (1, "(nation.n_name < region.r_name)")
    mixed = scan("types").join(scan("orders"), left_on=col("i32"), right_on="o_orderkey").agg(n=hq.count())
    mixed = mixed.to_plan(tables)
    assert [key.type for key in nodes(mixed, Join)[0].left_keys] == [pa.int64()]


def test_a_table_joined_with_itself(tables):
    first, second = scan("nation", alias="a"), scan("nation", alias="b")
    joined = first.join(second, left_on="n_nationkey", right_on="n_regionkey")
    made = joined.select(col("a.n_name").alias("x"), col("b.n_name").alias("y")).to_plan(tables)
    assert [field.name for field in made.root.schema] == ["nation.n_name", "nation#2.n_name"]
    with pytest.raises(AmbiguousColumn, match=r"n_name is in a and b: write a\.n_name or b\.n_name"):
        joined.select("n_name").to_plan(tables)


def test_aggregates_joined_with_themselves(tables):
    counted = scan("nation").group_by("n_regionkey").agg(n=hq.count())
    made = counted.join(counted, on="n_regionkey").to_plan(tables)
    (join,) = nodes(made, Join)
    names = [field.name for field in join.schema]
    assert len(set(names)) == len(names) == 4
    assert made.names == ("n_regionkey", "n", "n")


def test_wrong_joins():
    nation, region = scan("nation"), scan("region")
    with pytest.raises(ValueError, match="how='outer'"):
        nation.join(region, on="x", how="outer")
    with pytest.raises(ValueError, match="either on="):
        nation.join(region)
    with pytest.raises(ValueError, match="either on="):
        nation.join(region, on="x", left_on="y", right_on="z")
    with pytest.raises(ValueError, match="2 keys and right_on 1"):
        nation.join(region, left_on=["a", "b"], right_on="c")
    with pytest.raises(ValueError, match="no keys"):
        nation.join(region, on="x", how="cross")


def test_sort_limit_and_distinct(tables):
    frame = scan("nation").sort("n_name", col("n_regionkey").desc(nulls_first=False), descending=[True, False])
    made = frame.limit(5, offset=2).limit(4).to_plan(tables)
    (sort,) = nodes(made, Sort)
    assert [(key.descending, key.nulls_first) for key in sort.keys] == [(True, True), (True, False)]
    (limit,) = nodes(made, Limit)
    assert (limit.offset, limit.count) == (2, 4)
    distinct = scan("nation").select("n_regionkey").distinct().to_plan(tables)
    (aggregate,) = nodes(distinct, Aggregate)
    assert (len(aggregate.groups), aggregate.aggregates) == (1, ())
    with pytest.raises(ValueError, match="2 values for 1 keys"):
        scan("nation").sort("n_name", descending=[True, False])
    with pytest.raises(ValueError, match="not negative"):
        scan("nation").limit(-1)


def test_errors_of_names(tables):
    with pytest.raises(UnknownTable, match="no table ordrs; did you mean orders"):
        scan("ordrs").to_plan(tables)
    with pytest.raises(UnknownColumn, match="no column n_nme; did you mean n_name"):
        scan("nation").filter(col("n_nme") == "x").to_plan(tables)
    with pytest.raises(UnknownColumn, match=r"no column region\.n_name"):
        scan("nation").select("region.n_name").to_plan(tables)
    with pytest.raises(Unsupported, match=r"types\.lists has the type list"):
        scan("types").to_plan(tables)
    assert scan("types").select("i8").to_plan(tables).names == ("i8",)


def test_errors_of_types(tables):
    for expression in (col("s") + 1, col("s") > 1, col("d") - col("d"), ~col("i8"), col("i8").like("x")):
        with pytest.raises(Unsupported, match="not supported"):
            bound(expression, tables)
    with pytest.raises(CastFailed, match="'yesterday' is not a value of type date32"):
        bound(col("d") < "yesterday", tables)
    with pytest.raises(Unsupported, match="EXTRACT of fortnight"):
        bound(col("d").extract("fortnight"), tables)
    with pytest.raises(Unsupported, match="filter by"):
        scan("types").filter(col("i8")).to_plan(tables)


def test_frames_are_not_changed_by_what_is_made_of_them(tables):
    base = scan("nation")
    base.filter(col("n_name") == "x").limit(1)
    assert isinstance(base.to_plan(tables).root, Scan)
    assert not nodes(base.to_plan(tables), Values)


def test_columns_with_dots_and_odd_names(tables):
    made = scan("Odd Table").select("dotted.name", "b c", col("A") + 1).to_plan(tables)
    assert made.names == ("dotted.name", "b c", "(Odd Table.A + 1)")


def test_exports():
    assert set(hq.__all__) <= set(dir(hq))
    for name in ("scan", "col", "lit", "count", "when", "HybridqError", "UnknownTable", "Unsupported"):
        assert getattr(hq, name) is not None
    with pytest.raises(AttributeError, match="nosuch"):
        _ = hq.nosuch
