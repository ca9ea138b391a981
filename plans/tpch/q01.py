"""TPC-H Q1 with the Python builder; the plan is the same as that of q01.sql."""

from __future__ import annotations

from datetime import date, timedelta

from hybridq import col, count, scan
from hybridq.frontend.builder import Frame


def query() -> Frame:
    """Return totals of all items shipped up to 90 days before December 1998, by return flag and status."""
    price = col("l_extendedprice") * (1 - col("l_discount"))
    return (
        scan("lineitem")
        .filter(col("l_shipdate") <= date(1998, 12, 1) - timedelta(days=90))
        .group_by("l_returnflag", "l_linestatus")
        .agg(
            sum_qty=col("l_quantity").sum(),
            sum_base_price=col("l_extendedprice").sum(),
            sum_disc_price=price.sum(),
            sum_charge=(price * (1 + col("l_tax"))).sum(),
            avg_qty=col("l_quantity").mean(),
            avg_price=col("l_extendedprice").mean(),
            avg_disc=col("l_discount").mean(),
            count_order=count(),
        )
        .sort("l_returnflag", "l_linestatus")
    )
