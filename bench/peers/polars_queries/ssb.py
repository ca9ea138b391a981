"""The 13 queries of the Star Schema Benchmark."""

from __future__ import annotations

from functools import partial
from typing import Any

from polars import Expr, Int64, LazyFrame, col

# SUM of 32-bit integers is a 64-bit one in SQL, and stays a 32-bit one, that overflows, in Polars.
DISCOUNT = (col("lo_extendedprice") * col("lo_discount")).cast(Int64).sum()
REVENUE = col("lo_revenue").cast(Int64).sum()
PROFIT = (col("lo_revenue") - col("lo_supplycost")).cast(Int64).sum()


def flight_1(conditions: list[Expr], *, lineorder: LazyFrame, date: LazyFrame, **_: Any) -> LazyFrame:
    """Ask for the revenue of discounts in a time."""
    joined = lineorder.join(date, left_on="lo_orderdate", right_on="d_datekey")
    return joined.filter(*conditions).select(revenue=DISCOUNT)


def flight_2(
    conditions: list[Expr],
    *,
    lineorder: LazyFrame,
    date: LazyFrame,
    part: LazyFrame,
    supplier: LazyFrame,
    **_: Any,
) -> LazyFrame:
    """Ask for revenue by year and brand."""
    return (
        lineorder.join(date, left_on="lo_orderdate", right_on="d_datekey")
        .join(part, left_on="lo_partkey", right_on="p_partkey")
        .join(supplier, left_on="lo_suppkey", right_on="s_suppkey")
        .filter(*conditions)
        .group_by("d_year", "p_brand1")
        .agg(lo_revenue=REVENUE)
        .select("lo_revenue", "d_year", "p_brand1")
        .sort("d_year", "p_brand1")
    )


def flight_3(
    buyer: str,
    seller: str,
    conditions: list[Expr],
    *,
    customer: LazyFrame,
    lineorder: LazyFrame,
    supplier: LazyFrame,
    date: LazyFrame,
    **_: Any,
) -> LazyFrame:
    """Ask for revenue by year and places of customer and supplier."""
    return (
        customer.join(lineorder, left_on="c_custkey", right_on="lo_custkey")
        .join(supplier, left_on="lo_suppkey", right_on="s_suppkey")
        .join(date, left_on="lo_orderdate", right_on="d_datekey")
        .filter(*conditions)
        .group_by(buyer, seller, "d_year")
        .agg(revenue=REVENUE)
        .sort("d_year", "revenue", descending=[False, True])
    )


def flight_4(
    groups: list[str],
    conditions: list[Expr],
    *,
    date: LazyFrame,
    lineorder: LazyFrame,
    customer: LazyFrame,
    supplier: LazyFrame,
    part: LazyFrame,
    **_: Any,
) -> LazyFrame:
    """Ask for profit by year and other columns."""
    return (
        date.join(lineorder, left_on="d_datekey", right_on="lo_orderdate")
        .join(customer, left_on="lo_custkey", right_on="c_custkey")
        .join(supplier, left_on="lo_suppkey", right_on="s_suppkey")
        .join(part, left_on="lo_partkey", right_on="p_partkey")
        .filter(*conditions)
        .group_by(groups)
        .agg(profit=PROFIT)
        .sort(groups)
    )


def between(name: str, low: Any, high: Any) -> Expr:
    return (col(name) >= low) & (col(name) <= high)


YEARS = [col("d_year") >= 1992, col("d_year") <= 1997]
LAST_YEARS = (col("d_year") == 1997) | (col("d_year") == 1998)
FIRST_MAKERS = (col("p_mfgr") == "MFGR#1") | (col("p_mfgr") == "MFGR#2")
CITIES = [
    (col("c_city") == "UNITED KI1") | (col("c_city") == "UNITED KI5"),
    (col("s_city") == "UNITED KI1") | (col("s_city") == "UNITED KI5"),
]
AMERICA = [col("c_region") == "AMERICA", col("s_region") == "AMERICA"]

QUERIES = {
    "q1_1": partial(flight_1, [col("d_year") == 1993, between("lo_discount", 1, 3), col("lo_quantity") < 25]),
    "q1_2": partial(
        flight_1,
        [col("d_yearmonthnum") == 199401, between("lo_discount", 4, 6), between("lo_quantity", 26, 35)],
    ),
    "q1_3": partial(
        flight_1,
        [
            col("d_weeknuminyear") == 6,
            col("d_year") == 1994,
            between("lo_discount", 5, 7),
            between("lo_quantity", 26, 35),
        ],
    ),
    "q2_1": partial(flight_2, [col("p_category") == "MFGR#12", col("s_region") == "AMERICA"]),
    "q2_2": partial(flight_2, [between("p_brand1", "MFGR#2221", "MFGR#2228"), col("s_region") == "ASIA"]),
    "q2_3": partial(flight_2, [col("p_brand1") == "MFGR#2221", col("s_region") == "EUROPE"]),
    "q3_1": partial(flight_3, "c_nation", "s_nation", [col("c_region") == "ASIA", col("s_region") == "ASIA", *YEARS]),
    "q3_2": partial(
        flight_3,
        "c_city",
        "s_city",
        [col("c_nation") == "UNITED STATES", col("s_nation") == "UNITED STATES", *YEARS],
    ),
    "q3_3": partial(flight_3, "c_city", "s_city", [*CITIES, *YEARS]),
    "q3_4": partial(flight_3, "c_city", "s_city", [*CITIES, col("d_yearmonth") == "Dec1997"]),
    "q4_1": partial(flight_4, ["d_year", "c_nation"], [*AMERICA, FIRST_MAKERS]),
    "q4_2": partial(flight_4, ["d_year", "s_nation", "p_category"], [*AMERICA, LAST_YEARS, FIRST_MAKERS]),
    "q4_3": partial(
        flight_4,
        ["d_year", "s_city", "p_brand1"],
        [
            col("c_region") == "AMERICA",
            col("s_nation") == "UNITED STATES",
            LAST_YEARS,
            col("p_category") == "MFGR#14",
        ],
    ),
}
