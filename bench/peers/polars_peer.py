"""Polars' streaming engine, and cudf-polars (the same lazy frames on a GPU) streaming and in memory.

Joins come in the order of the SQL's text, filters where the text has them: what moves is Polars' optimiser's doing. The
columns are taken as the files have them, decimals included. A GPU engine that cannot run a query raises, instead of
handing it to the CPU silently; what it warns of, such as an operator that it runs in one piece, is recorded.
"""

from __future__ import annotations

import datetime
import os
import warnings
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pathlib import Path

    from bench.peers import Setup

GPU_SETTINGS = {"KVIKIO_NTHREADS": "8", "KVIKIO_COMPAT_MODE": "ON", "RAPIDSMPF_NUM_STREAMING_THREADS": "8"}
"""As cudf-polars' own benchmarks have them, and as many reading threads as hybridq has; the environment goes first."""


class PolarsPeer:
    """One of the three engines."""

    must_be_exact = False

    def __init__(self, name: str, setup: Setup) -> None:
        self.name = name
        self.uses_gpu = name.startswith("cudf")
        self._streams = name.endswith("streaming")
        self._setup = setup
        self._engine: Any = None
        self._warnings: list[str] = []
        self.note = f"streaming engine, {setup.threads} threads, decimals as in the files"
        if self.uses_gpu:
            cap = f", device memory at most {setup.gpu_memory} bytes" if setup.gpu_memory else ""
            settings = ", ".join(f"{key}={os.environ.get(key, value)}" for key, value in GPU_SETTINGS.items())
            executor = "streaming" if self._streams else "in-memory"
            self.note = f"GPU engine, {executor} executor, one GPU{cap}, {settings}, decimals as in the files"

    def start(self, folder: Path) -> None:
        os.environ["POLARS_MAX_THREADS"] = str(self._setup.threads)  # read when Polars is first imported
        if self.uses_gpu:
            for key, value in GPU_SETTINGS.items():
                os.environ.setdefault(key, value)
        import polars as pl

        self._engine = self._gpu_engine() if self.uses_gpu else "streaming"
        self._tables = {
            path.stem: pl.scan_parquet(path / "*.parquet" if path.is_dir() else path)
            for path in sorted(folder.iterdir())
            if path.is_dir() or path.suffix == ".parquet"
        }

    def _gpu_engine(self) -> Any:
        import polars as pl

        if not self._setup.gpu_memory:
            return pl.GPUEngine(executor="streaming" if self._streams else "in-memory", raise_on_fail=True)
        import rmm.mr

        limit = self._setup.gpu_memory // 256 * 256
        if self._streams:
            raise ValueError("the streaming executor takes no memory cap here")
        pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), limit, limit)
        return pl.GPUEngine(executor="in-memory", raise_on_fail=True, memory_resource=pool)

    def run(self, query: str) -> pa.Table:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            frame = QUERIES[query](**self._tables)
            answer = frame.collect(engine=self._engine).to_arrow()
        self._warnings = [str(each.message).splitlines()[0] for each in caught]
        return answer

    def details(self) -> dict[str, object]:
        return {"warnings": sorted(set(self._warnings))[:5]} if self.uses_gpu else {}

    def worker_pids(self) -> list[int]:
        return []

    def close(self) -> None:
        self._tables = {}


def day(text: str) -> datetime.date:
    return datetime.date.fromisoformat(text)


def q01(lineitem: Any, **_: Any) -> Any:
    from polars import col
    from polars import len as rows

    discounted = col("l_extendedprice") * (1 - col("l_discount"))
    return (
        lineitem.filter(col("l_shipdate") <= day("1998-09-02"))
        .group_by("l_returnflag", "l_linestatus")
        .agg(
            sum_qty=col("l_quantity").sum(),
            sum_base_price=col("l_extendedprice").sum(),
            sum_disc_price=discounted.sum(),
            sum_charge=(discounted * (1 + col("l_tax"))).sum(),
            avg_qty=col("l_quantity").mean(),
            avg_price=col("l_extendedprice").mean(),
            avg_disc=col("l_discount").mean(),
            count_order=rows(),
        )
        .sort("l_returnflag", "l_linestatus")
    )


def q03(customer: Any, orders: Any, lineitem: Any, **_: Any) -> Any:
    from polars import col

    return (
        customer.join(orders, left_on="c_custkey", right_on="o_custkey")
        .join(lineitem, left_on="o_orderkey", right_on="l_orderkey")
        .filter(
            col("c_mktsegment") == "BUILDING",
            col("o_orderdate") < day("1995-03-15"),
            col("l_shipdate") > day("1995-03-15"),
        )
        .group_by(col("o_orderkey").alias("l_orderkey"), "o_orderdate", "o_shippriority")
        .agg(revenue=(col("l_extendedprice") * (1 - col("l_discount"))).sum())
        .select("l_orderkey", "revenue", "o_orderdate", "o_shippriority")
        .sort("revenue", "o_orderdate", descending=[True, False])
        .head(10)
    )


def q04(orders: Any, lineitem: Any, **_: Any) -> Any:
    from polars import col
    from polars import len as rows

    late = lineitem.filter(col("l_commitdate") < col("l_receiptdate"))
    return (
        orders.filter(col("o_orderdate") >= day("1993-07-01"), col("o_orderdate") < day("1993-10-01"))
        .join(late, left_on="o_orderkey", right_on="l_orderkey", how="semi")
        .group_by("o_orderpriority")
        .agg(order_count=rows())
        .sort("o_orderpriority")
    )


def q06(lineitem: Any, **_: Any) -> Any:
    from decimal import Decimal

    from polars import col

    return lineitem.filter(
        col("l_shipdate") >= day("1994-01-01"),
        col("l_shipdate") < day("1995-01-01"),
        col("l_discount") >= Decimal("0.05"),
        col("l_discount") <= Decimal("0.07"),
        col("l_quantity") < 24,
    ).select(revenue=(col("l_extendedprice") * col("l_discount")).sum())


def q12(orders: Any, lineitem: Any, **_: Any) -> Any:
    from polars import col

    urgent = col("o_orderpriority").is_in(["1-URGENT", "2-HIGH"])
    return (
        orders.join(lineitem, left_on="o_orderkey", right_on="l_orderkey")
        .filter(
            col("l_shipmode").is_in(["MAIL", "SHIP"]),
            col("l_commitdate") < col("l_receiptdate"),
            col("l_shipdate") < col("l_commitdate"),
            col("l_receiptdate") >= day("1994-01-01"),
            col("l_receiptdate") < day("1995-01-01"),
        )
        .group_by("l_shipmode")
        .agg(high_line_count=urgent.sum(), low_line_count=(~urgent).sum())
        .sort("l_shipmode")
    )


def q14(lineitem: Any, part: Any, **_: Any) -> Any:
    from polars import col, lit, when

    discounted = col("l_extendedprice") * (1 - col("l_discount"))
    promoted = when(col("p_type").str.starts_with("PROMO")).then(discounted).otherwise(lit(0))
    return (
        lineitem.filter(col("l_shipdate") >= day("1995-09-01"), col("l_shipdate") < day("1995-10-01"))
        .join(part, left_on="l_partkey", right_on="p_partkey")
        # Sums as floats: Polars' division of decimals keeps two digits.
        .select(promo_revenue=100 * promoted.sum().cast(float) / discounted.sum().cast(float))
    )


QUERIES = {f"tpch/{function.__name__}": function for function in (q01, q03, q04, q06, q12, q14)}
