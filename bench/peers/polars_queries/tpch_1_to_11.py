"""TPC-H Q1 to Q11."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from polars import LazyFrame, col, lit, when
from polars import len as rows

from hybridq.testing.tpch import q11_fraction

DISCOUNTED = col("l_extendedprice") * (1 - col("l_discount"))


def q01(lineitem: LazyFrame, **_: Any) -> LazyFrame:
    return (
        lineitem.filter(col("l_shipdate") <= date(1998, 9, 2))
        .group_by("l_returnflag", "l_linestatus")
        .agg(
            sum_qty=col("l_quantity").sum(),
            sum_base_price=col("l_extendedprice").sum(),
            sum_disc_price=DISCOUNTED.sum(),
            sum_charge=(DISCOUNTED * (1 + col("l_tax"))).sum(),
            avg_qty=col("l_quantity").mean(),
            avg_price=col("l_extendedprice").mean(),
            avg_disc=col("l_discount").mean(),
            count_order=rows(),
        )
        .sort("l_returnflag", "l_linestatus")
    )


def q02(
    part: LazyFrame, supplier: LazyFrame, partsupp: LazyFrame, nation: LazyFrame, region: LazyFrame, **_: Any
) -> LazyFrame:
    offers = (
        part.join(partsupp, left_on="p_partkey", right_on="ps_partkey")
        .join(supplier, left_on="ps_suppkey", right_on="s_suppkey")
        .join(nation, left_on="s_nationkey", right_on="n_nationkey")
        .join(region, left_on="n_regionkey", right_on="r_regionkey")
        .filter(col("p_size") == 15, col("p_type").str.ends_with("BRASS"), col("r_name") == "EUROPE")
    )
    cheapest = offers.group_by("p_partkey").agg(cheapest=col("ps_supplycost").min())
    return (
        offers.join(cheapest, on="p_partkey")
        .filter(col("ps_supplycost") == col("cheapest"))
        .select("s_acctbal", "s_name", "n_name", "p_partkey", "p_mfgr", "s_address", "s_phone", "s_comment")
        .sort("s_acctbal", "n_name", "s_name", "p_partkey", descending=[True, False, False, False])
        .head(100)
    )


def q03(customer: LazyFrame, orders: LazyFrame, lineitem: LazyFrame, **_: Any) -> LazyFrame:
    return (
        customer.join(orders, left_on="c_custkey", right_on="o_custkey")
        .join(lineitem, left_on="o_orderkey", right_on="l_orderkey")
        .filter(
            col("c_mktsegment") == "BUILDING",
            col("o_orderdate") < date(1995, 3, 15),
            col("l_shipdate") > date(1995, 3, 15),
        )
        .group_by(col("o_orderkey").alias("l_orderkey"), "o_orderdate", "o_shippriority")
        .agg(revenue=DISCOUNTED.sum())
        .select("l_orderkey", "revenue", "o_orderdate", "o_shippriority")
        .sort("revenue", "o_orderdate", descending=[True, False])
        .head(10)
    )


def q04(orders: LazyFrame, lineitem: LazyFrame, **_: Any) -> LazyFrame:
    late = lineitem.filter(col("l_commitdate") < col("l_receiptdate"))
    return (
        orders.filter(col("o_orderdate") >= date(1993, 7, 1), col("o_orderdate") < date(1993, 10, 1))
        .join(late, left_on="o_orderkey", right_on="l_orderkey", how="semi")
        .group_by("o_orderpriority")
        .agg(order_count=rows())
        .sort("o_orderpriority")
    )


def q05(
    customer: LazyFrame,
    orders: LazyFrame,
    lineitem: LazyFrame,
    supplier: LazyFrame,
    nation: LazyFrame,
    region: LazyFrame,
    **_: Any,
) -> LazyFrame:
    return (
        customer.join(orders, left_on="c_custkey", right_on="o_custkey")
        .join(lineitem, left_on="o_orderkey", right_on="l_orderkey")
        .join(supplier, left_on=["l_suppkey", "c_nationkey"], right_on=["s_suppkey", "s_nationkey"])
        .join(nation, left_on="c_nationkey", right_on="n_nationkey")
        .join(region, left_on="n_regionkey", right_on="r_regionkey")
        .filter(col("r_name") == "ASIA", col("o_orderdate") >= date(1994, 1, 1), col("o_orderdate") < date(1995, 1, 1))
        .group_by("n_name")
        .agg(revenue=DISCOUNTED.sum())
        .sort("revenue", descending=True)
    )


def q06(lineitem: LazyFrame, **_: Any) -> LazyFrame:
    return lineitem.filter(
        col("l_shipdate") >= date(1994, 1, 1),
        col("l_shipdate") < date(1995, 1, 1),
        col("l_discount") >= Decimal("0.05"),
        col("l_discount") <= Decimal("0.07"),
        col("l_quantity") < 24,
    ).select(revenue=(col("l_extendedprice") * col("l_discount")).sum())


def q07(
    supplier: LazyFrame, lineitem: LazyFrame, orders: LazyFrame, customer: LazyFrame, nation: LazyFrame, **_: Any
) -> LazyFrame:
    seller = nation.select(s_nationkey=col("n_nationkey"), supp_nation=col("n_name"))
    buyer = nation.select(c_nationkey=col("n_nationkey"), cust_nation=col("n_name"))
    return (
        supplier.join(lineitem, left_on="s_suppkey", right_on="l_suppkey")
        .join(orders, left_on="l_orderkey", right_on="o_orderkey")
        .join(customer, left_on="o_custkey", right_on="c_custkey")
        .join(seller, on="s_nationkey")
        .join(buyer, on="c_nationkey")
        .filter(
            ((col("supp_nation") == "FRANCE") & (col("cust_nation") == "GERMANY"))
            | ((col("supp_nation") == "GERMANY") & (col("cust_nation") == "FRANCE")),
            col("l_shipdate") >= date(1995, 1, 1),
            col("l_shipdate") <= date(1996, 12, 31),
        )
        .group_by("supp_nation", "cust_nation", col("l_shipdate").dt.year().alias("l_year"))
        .agg(revenue=DISCOUNTED.sum())
        .sort("supp_nation", "cust_nation", "l_year")
    )


def q08(
    part: LazyFrame,
    supplier: LazyFrame,
    lineitem: LazyFrame,
    orders: LazyFrame,
    customer: LazyFrame,
    nation: LazyFrame,
    region: LazyFrame,
    **_: Any,
) -> LazyFrame:
    seller = nation.select(s_nationkey=col("n_nationkey"), nation=col("n_name"))
    brazilian = when(col("nation") == "BRAZIL").then(DISCOUNTED).otherwise(lit(0))
    return (
        part.join(lineitem, left_on="p_partkey", right_on="l_partkey")
        .join(supplier, left_on="l_suppkey", right_on="s_suppkey")
        .join(orders, left_on="l_orderkey", right_on="o_orderkey")
        .join(customer, left_on="o_custkey", right_on="c_custkey")
        .join(nation, left_on="c_nationkey", right_on="n_nationkey")
        .join(seller, on="s_nationkey")
        .join(region, left_on="n_regionkey", right_on="r_regionkey")
        .filter(
            col("r_name") == "AMERICA",
            col("o_orderdate") >= date(1995, 1, 1),
            col("o_orderdate") <= date(1996, 12, 31),
            col("p_type") == "ECONOMY ANODIZED STEEL",
        )
        .group_by(col("o_orderdate").dt.year().alias("o_year"))
        .agg(brazilian=brazilian.sum(), volume=DISCOUNTED.sum())
        .select("o_year", mkt_share=col("brazilian").cast(float) / col("volume").cast(float))
        .sort("o_year")
    )


def q09(
    part: LazyFrame,
    supplier: LazyFrame,
    lineitem: LazyFrame,
    partsupp: LazyFrame,
    orders: LazyFrame,
    nation: LazyFrame,
    **_: Any,
) -> LazyFrame:
    return (
        part.join(lineitem, left_on="p_partkey", right_on="l_partkey")
        .join(supplier, left_on="l_suppkey", right_on="s_suppkey")
        .join(partsupp, left_on=["l_suppkey", "p_partkey"], right_on=["ps_suppkey", "ps_partkey"])
        .join(orders, left_on="l_orderkey", right_on="o_orderkey")
        .join(nation, left_on="s_nationkey", right_on="n_nationkey")
        .filter(col("p_name").str.contains("green", literal=True))
        .group_by(col("n_name").alias("nation"), col("o_orderdate").dt.year().alias("o_year"))
        .agg(sum_profit=(DISCOUNTED - col("ps_supplycost") * col("l_quantity")).sum())
        .sort("nation", "o_year", descending=[False, True])
    )


def q10(customer: LazyFrame, orders: LazyFrame, lineitem: LazyFrame, nation: LazyFrame, **_: Any) -> LazyFrame:
    return (
        customer.join(orders, left_on="c_custkey", right_on="o_custkey")
        .join(lineitem, left_on="o_orderkey", right_on="l_orderkey")
        .join(nation, left_on="c_nationkey", right_on="n_nationkey")
        .filter(
            col("o_orderdate") >= date(1993, 10, 1),
            col("o_orderdate") < date(1994, 1, 1),
            col("l_returnflag") == "R",
        )
        .group_by("c_custkey", "c_name", "c_acctbal", "c_phone", "n_name", "c_address", "c_comment")
        .agg(revenue=DISCOUNTED.sum())
        .select("c_custkey", "c_name", "revenue", "c_acctbal", "n_name", "c_address", "c_phone", "c_comment")
        .sort("revenue", descending=True)
        .head(20)
    )


def q11(partsupp: LazyFrame, supplier: LazyFrame, nation: LazyFrame, *, scale_factor: float = 1, **_: Any) -> LazyFrame:
    stock = (
        partsupp.join(supplier, left_on="ps_suppkey", right_on="s_suppkey")
        .join(nation, left_on="s_nationkey", right_on="n_nationkey")
        .filter(col("n_name") == "GERMANY")
    )
    worth = (col("ps_supplycost") * col("ps_availqty")).sum()
    return (
        stock.group_by("ps_partkey")
        .agg(value=worth)
        .join(stock.select(least=worth * q11_fraction(scale_factor)), how="cross")
        .filter(col("value") > col("least"))
        .select("ps_partkey", "value")
        .sort("value", descending=True)
    )


QUERIES = {query.__name__: query for query in (q01, q02, q03, q04, q05, q06, q07, q08, q09, q10, q11)}
