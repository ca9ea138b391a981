"""TPC-H Q12 to Q22."""

from __future__ import annotations

from datetime import date
from typing import Any

from polars import LazyFrame, col, lit, when
from polars import len as rows

DISCOUNTED = col("l_extendedprice") * (1 - col("l_discount"))


def q12(orders: LazyFrame, lineitem: LazyFrame, **_: Any) -> LazyFrame:
    urgent = col("o_orderpriority").is_in(["1-URGENT", "2-HIGH"])
    return (
        orders.join(lineitem, left_on="o_orderkey", right_on="l_orderkey")
        .filter(
            col("l_shipmode").is_in(["MAIL", "SHIP"]),
            col("l_commitdate") < col("l_receiptdate"),
            col("l_shipdate") < col("l_commitdate"),
            col("l_receiptdate") >= date(1994, 1, 1),
            col("l_receiptdate") < date(1995, 1, 1),
        )
        .group_by("l_shipmode")
        .agg(high_line_count=urgent.sum(), low_line_count=(~urgent).sum())
        .sort("l_shipmode")
    )


def q13(customer: LazyFrame, orders: LazyFrame, **_: Any) -> LazyFrame:
    plain = orders.filter(~col("o_comment").str.contains("special.*requests"))
    return (
        customer.join(plain, left_on="c_custkey", right_on="o_custkey", how="left")
        .group_by("c_custkey")
        .agg(c_count=col("o_orderkey").count())
        .group_by("c_count")
        .agg(custdist=rows())
        .sort("custdist", "c_count", descending=[True, True])
    )


def q14(lineitem: LazyFrame, part: LazyFrame, **_: Any) -> LazyFrame:
    promoted = when(col("p_type").str.starts_with("PROMO")).then(DISCOUNTED).otherwise(lit(0))
    return (
        lineitem.join(part, left_on="l_partkey", right_on="p_partkey")
        .filter(col("l_shipdate") >= date(1995, 9, 1), col("l_shipdate") < date(1995, 10, 1))
        .select(promo_revenue=100 * promoted.sum().cast(float) / DISCOUNTED.sum().cast(float))
    )


def q15(supplier: LazyFrame, lineitem: LazyFrame, **_: Any) -> LazyFrame:
    revenue = (
        lineitem.filter(col("l_shipdate") >= date(1996, 1, 1), col("l_shipdate") < date(1996, 4, 1))
        .group_by("l_suppkey")
        .agg(total_revenue=DISCOUNTED.sum())
    )
    return (
        supplier.join(revenue, left_on="s_suppkey", right_on="l_suppkey")
        .join(revenue.select(largest=col("total_revenue").max()), how="cross")
        .filter(col("total_revenue") == col("largest"))
        .select("s_suppkey", "s_name", "s_address", "s_phone", "total_revenue")
        .sort("s_suppkey")
    )


def q16(partsupp: LazyFrame, part: LazyFrame, supplier: LazyFrame, **_: Any) -> LazyFrame:
    complained_of = supplier.filter(col("s_comment").str.contains("Customer.*Complaints"))
    return (
        partsupp.join(part, left_on="ps_partkey", right_on="p_partkey")
        .filter(
            col("p_brand") != "Brand#45",
            ~col("p_type").str.starts_with("MEDIUM POLISHED"),
            col("p_size").is_in([49, 14, 23, 45, 19, 3, 36, 9]),
        )
        .join(complained_of, left_on="ps_suppkey", right_on="s_suppkey", how="anti")
        .group_by("p_brand", "p_type", "p_size")
        .agg(supplier_cnt=col("ps_suppkey").n_unique())
        .sort("supplier_cnt", "p_brand", "p_type", "p_size", descending=[True, False, False, False])
    )


def q17(lineitem: LazyFrame, part: LazyFrame, **_: Any) -> LazyFrame:
    bought = lineitem.join(part, left_on="l_partkey", right_on="p_partkey").filter(
        col("p_brand") == "Brand#23", col("p_container") == "MED BOX"
    )
    usual = bought.group_by("l_partkey").agg(small=0.2 * col("l_quantity").cast(float).mean())
    return (
        bought.join(usual, on="l_partkey")
        .filter(col("l_quantity").cast(float) < col("small"))
        .select(avg_yearly=col("l_extendedprice").sum().cast(float) / 7.0)
    )


def q18(customer: LazyFrame, orders: LazyFrame, lineitem: LazyFrame, **_: Any) -> LazyFrame:
    large = lineitem.group_by("l_orderkey").agg(pieces=col("l_quantity").sum()).filter(col("pieces") > 300)
    return (
        customer.join(orders, left_on="c_custkey", right_on="o_custkey")
        .join(large, left_on="o_orderkey", right_on="l_orderkey", how="semi")
        .join(lineitem, left_on="o_orderkey", right_on="l_orderkey")
        .group_by("c_name", "c_custkey", "o_orderkey", "o_orderdate", "o_totalprice")
        .agg(sum_quantity=col("l_quantity").sum())
        .sort("o_totalprice", "o_orderdate", descending=[True, False])
        .head(100)
    )


def q19(lineitem: LazyFrame, part: LazyFrame, **_: Any) -> LazyFrame:
    # What all three branches ask is asked once, as published forms of this query have it.
    kinds = [("Brand#12", "SM CASE|BOX|PACK|PKG", 1, 5), ("Brand#23", "MED BAG|BOX|PKG|PACK", 10, 10)]
    kinds.append(("Brand#34", "LG CASE|BOX|PACK|PKG", 20, 15))
    wanted = lit(False)
    for brand, containers, least, largest in kinds:
        size, _, forms = containers.partition(" ")
        wanted = wanted | (
            (col("p_brand") == brand)
            & col("p_container").is_in([f"{size} {form}" for form in forms.split("|")])
            & (col("l_quantity") >= least)
            & (col("l_quantity") <= least + 10)
            & (col("p_size") >= 1)
            & (col("p_size") <= largest)
        )
    return (
        lineitem.join(part, left_on="l_partkey", right_on="p_partkey")
        .filter(
            col("l_shipmode").is_in(["AIR", "AIR REG"]),
            col("l_shipinstruct") == "DELIVER IN PERSON",
            wanted,
        )
        .select(revenue=DISCOUNTED.sum())
    )


def q20(
    supplier: LazyFrame, nation: LazyFrame, partsupp: LazyFrame, part: LazyFrame, lineitem: LazyFrame, **_: Any
) -> LazyFrame:
    forest = part.filter(col("p_name").str.starts_with("forest"))
    sold = (
        lineitem.filter(col("l_shipdate") >= date(1994, 1, 1), col("l_shipdate") < date(1995, 1, 1))
        .group_by("l_partkey", "l_suppkey")
        .agg(sold=col("l_quantity").sum())
    )
    ample = (
        partsupp.join(forest, left_on="ps_partkey", right_on="p_partkey", how="semi")
        .join(sold, left_on=["ps_partkey", "ps_suppkey"], right_on=["l_partkey", "l_suppkey"])
        .filter(col("ps_availqty") > 0.5 * col("sold").cast(float))
    )
    return (
        supplier.join(ample, left_on="s_suppkey", right_on="ps_suppkey", how="semi")
        .join(nation, left_on="s_nationkey", right_on="n_nationkey")
        .filter(col("n_name") == "CANADA")
        .select("s_name", "s_address")
        .sort("s_name")
    )


def q21(supplier: LazyFrame, lineitem: LazyFrame, orders: LazyFrame, nation: LazyFrame, **_: Any) -> LazyFrame:
    # An order has another supplier where its suppliers are not all the same, and no other late one where the late are.
    late = lineitem.filter(col("l_receiptdate") > col("l_commitdate"))
    first, last = col("l_suppkey").min(), col("l_suppkey").max()
    several = lineitem.group_by("l_orderkey").agg(first=first, last=last).filter(col("first") != col("last"))
    one_late = late.group_by("l_orderkey").agg(first=first, last=last).filter(col("first") == col("last"))
    return (
        supplier.join(late, left_on="s_suppkey", right_on="l_suppkey")
        .join(orders, left_on="l_orderkey", right_on="o_orderkey")
        .filter(col("o_orderstatus") == "F")
        .join(several, on="l_orderkey", how="semi")
        .join(one_late, on="l_orderkey", how="semi")
        .join(nation, left_on="s_nationkey", right_on="n_nationkey")
        .filter(col("n_name") == "SAUDI ARABIA")
        .group_by("s_name")
        .agg(numwait=rows())
        .sort("numwait", "s_name", descending=[True, False])
        .head(100)
    )


def q22(customer: LazyFrame, orders: LazyFrame, **_: Any) -> LazyFrame:
    people = customer.with_columns(cntrycode=col("c_phone").str.slice(0, 2)).filter(
        col("cntrycode").is_in(["13", "31", "23", "29", "30", "18", "17"])
    )
    average = people.filter(col("c_acctbal") > 0).select(average=col("c_acctbal").cast(float).mean())
    return (
        people.join(average, how="cross")
        .filter(col("c_acctbal").cast(float) > col("average"))
        .join(orders, left_on="c_custkey", right_on="o_custkey", how="anti")
        .group_by("cntrycode")
        .agg(numcust=rows(), totacctbal=col("c_acctbal").sum())
        .sort("cntrycode")
    )


QUERIES = {query.__name__: query for query in (q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22)}
