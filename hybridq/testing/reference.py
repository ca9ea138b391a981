"""Right answers from DuckDB, in the types that a plan declares.

DuckDB gives AVG and division of decimals as DOUBLE, which is not exact. A reference query therefore returns both parts
of such a quotient, as ``NAME__numerator`` and ``NAME__denominator``; column ``NAME`` is computed from them exactly and
rounded half away from zero to the scale of its declared type.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from hybridq.errors import ConfigurationError
from hybridq.testing.asserts import exact_quotient
from hybridq.types import is_decimal, is_integer, normalize

NUMERATOR, DENOMINATOR = "__numerator", "__denominator"


@dataclass(frozen=True, slots=True)
class Reference:
    """What DuckDB runs to check a shipped query, and how its answer is ordered.

    Attributes
    ----------
    order_by : tuple of int
        Positions of the ORDER BY columns in the answer.
    sql : str or None
        DuckDB's text where it differs from the shipped one (exact quotients).
    limit : int or None
        The LIMIT at the end of the text, where there is one.
    """

    order_by: tuple[int, ...] = ()
    sql: str | None = None
    limit: int | None = None


REFERENCES = {
    "tpch/q01": Reference(
        order_by=(0, 1),
        sql="""
            select l_returnflag, l_linestatus,
                sum(l_quantity) as sum_qty,
                sum(l_extendedprice) as sum_base_price,
                sum(l_extendedprice * (1 - l_discount)) as sum_disc_price,
                sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge,
                sum(l_quantity) as avg_qty__numerator, count(l_quantity) as avg_qty__denominator,
                sum(l_extendedprice) as avg_price__numerator, count(l_extendedprice) as avg_price__denominator,
                sum(l_discount) as avg_disc__numerator, count(l_discount) as avg_disc__denominator,
                count(*) as count_order
            from lineitem
            where l_shipdate <= date '1998-12-01' - interval '90' day
            group by l_returnflag, l_linestatus
            order by l_returnflag, l_linestatus""",
    ),
    "tpch/q02": Reference(order_by=(0, 2, 1, 3), limit=100),
    "tpch/q03": Reference(order_by=(1, 2), limit=10),
    "tpch/q04": Reference(order_by=(0,)),
    "tpch/q05": Reference(order_by=(1,)),
    "tpch/q06": Reference(),
    "tpch/q07": Reference(order_by=(0, 1, 2)),
    "tpch/q08": Reference(
        order_by=(0,),
        sql="""
            select extract(year from o_orderdate) as o_year,
                sum(case when n2.n_name = 'BRAZIL' then l_extendedprice * (1 - l_discount) else 0 end)
                    as mkt_share__numerator,
                sum(l_extendedprice * (1 - l_discount)) as mkt_share__denominator
            from part, supplier, lineitem, orders, customer, nation n1, nation n2, region
            where p_partkey = l_partkey and s_suppkey = l_suppkey and l_orderkey = o_orderkey
                and o_custkey = c_custkey and c_nationkey = n1.n_nationkey and n1.n_regionkey = r_regionkey
                and r_name = 'AMERICA' and s_nationkey = n2.n_nationkey and p_type = 'ECONOMY ANODIZED STEEL'
                and o_orderdate between date '1995-01-01' and date '1996-12-31'
            group by o_year
            order by o_year""",
    ),
    "tpch/q09": Reference(order_by=(0, 1)),
    "tpch/q10": Reference(order_by=(2,), limit=20),
    "tpch/q11": Reference(order_by=(1,)),
    "tpch/q12": Reference(order_by=(0,)),
    "tpch/q13": Reference(order_by=(1, 0)),
    "tpch/q14": Reference(
        sql="""
            select 100 * sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount) else 0 end)
                    as promo_revenue__numerator,
                sum(l_extendedprice * (1 - l_discount)) as promo_revenue__denominator
            from lineitem, part
            where l_partkey = p_partkey
                and l_shipdate >= date '1995-09-01' and l_shipdate < date '1995-09-01' + interval '1' month""",
    ),
    "tpch/q15": Reference(order_by=(0,)),
    "tpch/q16": Reference(order_by=(3, 0, 1, 2)),
    "tpch/q17": Reference(
        sql="""
            select sum(l_extendedprice) as avg_yearly__numerator, 7 as avg_yearly__denominator
            from lineitem, part
            where p_partkey = l_partkey and p_brand = 'Brand#23' and p_container = 'MED BOX'
                and 5 * l_quantity * (select count(*) from lineitem where l_partkey = p_partkey)
                    < (select sum(l_quantity) from lineitem where l_partkey = p_partkey)""",
    ),
    "tpch/q18": Reference(order_by=(4, 3), limit=100),
    "tpch/q19": Reference(),
    "tpch/q20": Reference(order_by=(0,)),
    "tpch/q21": Reference(order_by=(1, 0), limit=100),
    "tpch/q22": Reference(order_by=(0,)),
}
"""References of the shipped TPC-H queries, by name."""

SSB_REFERENCES = {
    **{f"ssb/q1_{number}": Reference() for number in (1, 2, 3)},
    **{f"ssb/q2_{number}": Reference(order_by=(1, 2)) for number in (1, 2, 3)},
    **{f"ssb/q3_{number}": Reference(order_by=(2, 3)) for number in (1, 2, 3, 4)},
    "ssb/q4_1": Reference(order_by=(0, 1)),
    "ssb/q4_2": Reference(order_by=(0, 1, 2)),
    "ssb/q4_3": Reference(order_by=(0, 1, 2)),
}
"""References of the shipped queries of the Star Schema Benchmark, by name."""


def duckdb_connection(folder: str | Path | None = None, threads: int | None = None) -> Any:
    """Open an in-memory DuckDB with a view for each ``NAME.parquet`` and each folder ``NAME/`` of a folder.

    Raises
    ------
    ConfigurationError
        DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError:
        raise ConfigurationError("checking answers needs DuckDB: install it with  pip install duckdb") from None
    connection = duckdb.connect()
    connection.execute(f"SET threads = {threads or os.cpu_count() or 1}")
    if folder is not None:
        for path in sorted(Path(folder).iterdir()):
            source = f"{path}/*.parquet" if path.is_dir() else str(path)
            if path.is_dir() or path.suffix == ".parquet":
                text = source.replace("'", "''")
                connection.execute(f"CREATE VIEW \"{path.stem}\" AS SELECT * FROM read_parquet('{text}')")
    return connection


def duckdb_answer(sql: str, source: str | Path | Any, schema: pa.Schema | None = None) -> pa.Table:
    """Answer a query with DuckDB.

    Parameters
    ----------
    sql : str
        DuckDB's SQL; exact quotients as described at the top of this module.
    source : str, Path or DuckDB connection
        A folder of Parquet files, or a connection that has the tables.
    schema : pyarrow.Schema, optional
        The types that the plan declares; DuckDB's are taken as they are if not given.

    Raises
    ------
    AssertionError
        A column's type does not convert to the declared one without loss.
    """
    connection = duckdb_connection(source) if isinstance(source, (str, Path)) else source
    found = connection.sql(sql).to_arrow_table()
    return found if schema is None else conform(found, schema)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert DuckDB's columns to the declared types: exact conversions only.

    Integers and HUGEINT sums to declared integers, decimals to decimals of another precision (no digit may be lost),
    storage forms of strings, and quotients computed from their two parts. A DOUBLE never becomes a decimal.
    """
    names = [name for name in table.schema.names if not name.endswith(DENOMINATOR)]
    if len(names) != len(schema):
        raise AssertionError(f"the reference gives {len(names)} columns {names}, the answer has {schema.names}")
    columns = []
    for name, field in zip(names, schema, strict=True):
        position = table.schema.names.index(name) if name.endswith(NUMERATOR) else None
        if position is not None:
            scale = field.type.scale
            parts = (table.column(position).to_pylist(), table.column(position + 1).to_pylist())
            values = [exact_quotient(above, below, scale) for above, below in zip(*parts, strict=True)]
            columns.append(pa.array(values, field.type))
        else:
            columns.append(_convert(table.column(_position(table, names, len(columns))), field))
    return pa.Table.from_arrays(columns, schema=schema)


def _position(table: pa.Table, names: list[str], number: int) -> int:
    # Position in the table of the column that is number ``number`` once denominators are left out.
    return number + sum(name.endswith(NUMERATOR) for name in names[:number])


def _convert(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    have, want = normalize(column.type), normalize(field.type)
    exact = (
        have == want
        or pa.types.is_null(have)
        or (is_integer(have) and is_integer(want))
        or (is_decimal(have) and have.scale == 0 and is_integer(want))
        or (is_decimal(have) and is_decimal(want))
        or (pa.types.is_timestamp(have) and pa.types.is_timestamp(want))
    )
    if not exact:
        raise AssertionError(f"column {field.name!r}: DuckDB gives {have}, the plan declares {want}")
    try:
        return column.cast(field.type)  # a safe cast: it raises when digits or range would be lost
    except pa.ArrowInvalid as error:
        raise AssertionError(f"column {field.name!r}: {error}") from None
