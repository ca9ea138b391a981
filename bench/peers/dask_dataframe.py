"""dask.dataframe with a worker process a thread, in its usual tuned form.

Plain ``dd.read_parquet`` keeps decimals as Arrow decimals, whose products overflow in Q1. As people do in practice,
decimals are read as float64 here and strings as categories, only the needed columns are read, several row groups make a
partition, filters come before joins, and small join sides are a single partition, so that nothing is shuffled. Answers
are floats.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from bench.peers import Setup

PARTITION_ROWS = 1_000_000


def read_part(part: tuple[str, tuple[int, ...]], columns: tuple[str, ...]) -> pd.DataFrame:
    """Read row groups of a file as one pandas frame: floats for decimals, timestamps for dates."""
    path, groups = part
    file = pq.ParquetFile(path)
    schema = file.schema_arrow
    table = file.read_row_groups(list(groups), columns=list(columns), use_threads=False)
    for position, name in enumerate(table.column_names):
        kind = schema.field(name).type
        if pa.types.is_decimal(kind):
            table = table.set_column(position, name, table.column(name).cast(pa.float64()))
        elif pa.types.is_date(kind):
            table = table.set_column(position, name, table.column(name).cast(pa.timestamp("s")))
        elif kind == pa.string_view():
            table = table.set_column(position, name, table.column(name).cast(pa.string()).dictionary_encode())
    return table.to_pandas()


def day(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


class DaskDataframePeer:
    """Workers of one thread each."""

    name = "dask.dataframe"
    must_be_exact = False
    uses_gpu = False

    def __init__(self, setup: Setup) -> None:
        self.note = f"{setup.threads} worker processes of 1 thread, float64 instead of decimals, small join sides whole"
        self._workers = setup.threads
        self._client: Any = None
        self._folder: Path | None = None

    def start(self, folder: Path) -> None:
        from distributed import Client, LocalCluster

        cluster = LocalCluster(
            n_workers=self._workers, threads_per_worker=1, dashboard_address=None, silence_logs="ERROR"
        )
        self._client = Client(cluster)
        self._folder = folder

    def table(self, name: str, *columns: str) -> Any:
        import dask.dataframe as dd

        if self._folder is None:
            raise RuntimeError("start has not been called")
        single = self._folder / f"{name}.parquet"
        paths = [single] if single.exists() else sorted((self._folder / name).glob("*.parquet"))
        parts: list[tuple[str, tuple[int, ...]]] = []
        for path in paths:
            metadata = pq.read_metadata(path)
            groups: list[int] = []
            rows = 0
            for number in range(metadata.num_row_groups):
                groups.append(number)
                rows += metadata.row_group(number).num_rows
                if rows >= PARTITION_ROWS or number == metadata.num_row_groups - 1:
                    parts.append((str(path), tuple(groups)))
                    groups, rows = [], 0
        meta = read_part((str(paths[0]), ()), columns)
        return dd.from_map(read_part, parts, columns=columns, meta=meta)

    def run(self, query: str) -> pa.Table:
        frame = getattr(self, query.replace("tpch/", ""))()
        return pa.Table.from_pandas(frame, preserve_index=False)

    def q01(self) -> pd.DataFrame:
        t = self.table(
            "lineitem",
            "l_quantity",
            "l_extendedprice",
            "l_discount",
            "l_tax",
            "l_returnflag",
            "l_linestatus",
            "l_shipdate",
        )
        t = t[t.l_shipdate <= day("1998-09-02")]
        t["disc_price"] = t.l_extendedprice * (1 - t.l_discount)
        t["charge"] = t.disc_price * (1 + t.l_tax)
        grouped = t.groupby(["l_returnflag", "l_linestatus"], observed=True).agg(
            sum_qty=("l_quantity", "sum"),
            sum_base_price=("l_extendedprice", "sum"),
            sum_disc_price=("disc_price", "sum"),
            sum_charge=("charge", "sum"),
            avg_qty=("l_quantity", "mean"),
            avg_price=("l_extendedprice", "mean"),
            avg_disc=("l_discount", "mean"),
            count_order=("l_quantity", "count"),
        )
        found = grouped.compute().reset_index()
        found["l_returnflag"], found["l_linestatus"] = found.l_returnflag.astype(str), found.l_linestatus.astype(str)
        return found.sort_values(["l_returnflag", "l_linestatus"])

    def q03(self) -> pd.DataFrame:
        c = self.table("customer", "c_custkey", "c_mktsegment")
        c = c[c.c_mktsegment == "BUILDING"][["c_custkey"]].repartition(npartitions=1)
        o = self.table("orders", "o_orderkey", "o_custkey", "o_orderdate", "o_shippriority")
        o = o[o.o_orderdate < day("1995-03-15")]
        o = o.merge(c, left_on="o_custkey", right_on="c_custkey")[["o_orderkey", "o_orderdate", "o_shippriority"]]
        o = o.repartition(npartitions=1)
        t = self.table("lineitem", "l_orderkey", "l_extendedprice", "l_discount", "l_shipdate")
        t = t[t.l_shipdate > day("1995-03-15")]
        t["revenue"] = t.l_extendedprice * (1 - t.l_discount)
        t = t[["l_orderkey", "revenue"]].merge(o, left_on="l_orderkey", right_on="o_orderkey")
        found = t.groupby(["l_orderkey", "o_orderdate", "o_shippriority"]).revenue.sum().compute().reset_index()
        found = found.sort_values(["revenue", "o_orderdate"], ascending=[False, True]).head(10)
        return found[["l_orderkey", "revenue", "o_orderdate", "o_shippriority"]]

    def q04(self) -> pd.DataFrame:
        o = self.table("orders", "o_orderkey", "o_orderdate", "o_orderpriority")
        o = o[(o.o_orderdate >= day("1993-07-01")) & (o.o_orderdate < day("1993-10-01"))]
        o = o[["o_orderkey", "o_orderpriority"]].repartition(npartitions=1)
        t = self.table("lineitem", "l_orderkey", "l_commitdate", "l_receiptdate")
        t = t[t.l_commitdate < t.l_receiptdate][["l_orderkey"]]
        found = t.merge(o, left_on="l_orderkey", right_on="o_orderkey").drop_duplicates()[["o_orderpriority"]]
        found = found.groupby("o_orderpriority", observed=True).size().compute().rename("order_count").reset_index()
        found["o_orderpriority"] = found.o_orderpriority.astype(str)
        return found.sort_values("o_orderpriority")

    def q06(self) -> pd.DataFrame:
        import pandas as pd

        t = self.table("lineitem", "l_quantity", "l_extendedprice", "l_discount", "l_shipdate")
        t = t[
            (t.l_shipdate >= day("1994-01-01"))
            & (t.l_shipdate < day("1995-01-01"))
            & (t.l_discount >= 0.05)
            & (t.l_discount <= 0.07)
            & (t.l_quantity < 24)
        ]
        return pd.DataFrame({"revenue": [(t.l_extendedprice * t.l_discount).sum().compute()]})

    def q12(self) -> pd.DataFrame:
        t = self.table("lineitem", "l_orderkey", "l_shipmode", "l_shipdate", "l_commitdate", "l_receiptdate")
        t = t[
            t.l_shipmode.isin(["MAIL", "SHIP"])
            & (t.l_commitdate < t.l_receiptdate)
            & (t.l_shipdate < t.l_commitdate)
            & (t.l_receiptdate >= day("1994-01-01"))
            & (t.l_receiptdate < day("1995-01-01"))
        ]
        t = t[["l_orderkey", "l_shipmode"]].repartition(npartitions=1)
        o = self.table("orders", "o_orderkey", "o_orderpriority")
        joined = o.merge(t, left_on="o_orderkey", right_on="l_orderkey")
        joined["high"] = joined.o_orderpriority.isin(["1-URGENT", "2-HIGH"]).astype("int64")
        joined["low"] = 1 - joined.high
        found = joined.groupby("l_shipmode", observed=True)[["high", "low"]].sum().compute().reset_index()
        found["l_shipmode"] = found.l_shipmode.astype(str)
        return found.sort_values("l_shipmode").rename(columns={"high": "high_line_count", "low": "low_line_count"})

    def q14(self) -> pd.DataFrame:
        import pandas as pd

        t = self.table("lineitem", "l_partkey", "l_extendedprice", "l_discount", "l_shipdate")
        t = t[(t.l_shipdate >= day("1995-09-01")) & (t.l_shipdate < day("1995-10-01"))]
        t["revenue"] = t.l_extendedprice * (1 - t.l_discount)
        p = self.table("part", "p_partkey", "p_type")
        p["promo"] = p.p_type.astype(str).str.startswith("PROMO")
        p = p[["p_partkey", "promo"]].repartition(npartitions=1)
        joined = t[["l_partkey", "revenue"]].merge(p, left_on="l_partkey", right_on="p_partkey")
        sums = joined.groupby("promo").revenue.sum().compute()
        return pd.DataFrame({"promo_revenue": [100 * sums.get(True, 0.0) / sums.sum()]})

    def details(self) -> dict[str, object]:
        return {}

    def worker_pids(self) -> list[int]:
        import os

        return list(self._client.run(os.getpid).values())

    def close(self) -> None:
        if self._client is not None:
            cluster = self._client.cluster
            self._client.close()
            cluster.close()
