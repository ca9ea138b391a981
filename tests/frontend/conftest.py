"""Schemas that the front end's tests plan against; no data is needed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from hybridq.types import Field, Schema

MONEY = pa.decimal128(15, 2)
TPCH = {
    "lineitem": {
        "l_orderkey": pa.int64(),
        "l_partkey": pa.int64(),
        "l_suppkey": pa.int64(),
        "l_linenumber": pa.int32(),
        "l_quantity": MONEY,
        "l_extendedprice": MONEY,
        "l_discount": MONEY,
        "l_tax": MONEY,
        "l_returnflag": pa.string(),
        "l_linestatus": pa.string(),
        "l_shipdate": pa.date32(),
        "l_commitdate": pa.date32(),
        "l_receiptdate": pa.date32(),
        "l_shipinstruct": pa.string(),
        "l_shipmode": pa.string(),
        "l_comment": pa.string(),
    },
    "orders": {
        "o_orderkey": pa.int64(),
        "o_custkey": pa.int64(),
        "o_orderstatus": pa.string(),
        "o_totalprice": MONEY,
        "o_orderdate": pa.date32(),
        "o_orderpriority": pa.string(),
        "o_clerk": pa.string(),
        "o_shippriority": pa.int32(),
        "o_comment": pa.string(),
    },
    "customer": {
        "c_custkey": pa.int64(),
        "c_name": pa.string(),
        "c_address": pa.string(),
        "c_nationkey": pa.int64(),
        "c_phone": pa.string(),
        "c_acctbal": MONEY,
        "c_mktsegment": pa.string(),
        "c_comment": pa.string(),
    },
    "part": {
        "p_partkey": pa.int64(),
        "p_name": pa.string(),
        "p_mfgr": pa.string(),
        "p_brand": pa.string(),
        "p_type": pa.string(),
        "p_size": pa.int32(),
        "p_container": pa.string(),
        "p_retailprice": MONEY,
        "p_comment": pa.string(),
    },
    "supplier": {
        "s_suppkey": pa.int64(),
        "s_name": pa.string(),
        "s_address": pa.string(),
        "s_nationkey": pa.int64(),
        "s_phone": pa.string(),
        "s_acctbal": MONEY,
        "s_comment": pa.string(),
    },
    "partsupp": {
        "ps_partkey": pa.int64(),
        "ps_suppkey": pa.int64(),
        "ps_availqty": pa.int32(),
        "ps_supplycost": MONEY,
        "ps_comment": pa.string(),
    },
    "nation": {
        "n_nationkey": pa.int64(),
        "n_name": pa.string(),
        "n_regionkey": pa.int64(),
        "n_comment": pa.string(),
    },
    "region": {"r_regionkey": pa.int64(), "r_name": pa.string(), "r_comment": pa.string()},
}
TYPES = {
    "i8": pa.int8(),
    "i16": pa.int16(),
    "i32": pa.int32(),
    "i64": pa.int64(),
    "u8": pa.uint8(),
    "u16": pa.uint16(),
    "u32": pa.uint32(),
    "u64": pa.uint64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "p5": pa.decimal128(5, 5),
    "p15": MONEY,
    "p38": pa.decimal128(38, 4),
    "s": pa.string(),
    "d": pa.date32(),
    "ts": pa.timestamp("us"),
    "tz": pa.timestamp("ns", "Europe/Zurich"),
    "b": pa.bool_(),
    "x": pa.binary(),
    "lists": pa.list_(pa.map_(pa.string(), pa.time64("us"))),
}


def schema(columns: dict[str, pa.DataType]) -> Schema:
    return tuple(Field(name, data_type) for name, data_type in columns.items())


@pytest.fixture(scope="session")
def tables() -> dict[str, Schema]:
    """The TPC-H tables, a table of one column of each type, and one whose names need quotes."""
    odd = {"A": pa.int64(), "b c": pa.int32(), 'q"x': pa.string(), "order": pa.int64(), "dotted.name": pa.int64()}
    return {
        **{name: schema(columns) for name, columns in TPCH.items()},
        "types": schema(TYPES),
        "Odd Table": schema(odd),
    }
