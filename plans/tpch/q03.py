"""TPC-H Q3 with the Python builder; the plan is the same as that of q03.sql."""

from __future__ import annotations

from datetime import date

from hybridq import col, scan
from hybridq.frontend.builder import Frame


def query() -> Frame:
    """Return the ten unshipped orders of one market segment that are worth most."""
    return (
        scan("customer")
        .filter(col("c_mktsegment") == "BUILDING")
        .join(scan("orders"), left_on="c_custkey", right_on="o_custkey")
        .join(scan("lineitem"), left_on="o_orderkey", right_on="l_orderkey")
        .filter(col("o_orderdate") < date(1995, 3, 15), col("l_shipdate") > date(1995, 3, 15))
        .group_by("l_orderkey", "o_orderdate", "o_shippriority")
        .agg(revenue=(col("l_extendedprice") * (1 - col("l_discount"))).sum())
        .sort(col("revenue").desc(), "o_orderdate")
        .limit(10)
        .select("l_orderkey", "revenue", "o_orderdate", "o_shippriority")
    )
