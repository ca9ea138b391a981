"""Building expressions, and running one operator of an engine on Arrow tables."""

from __future__ import annotations

import datetime
from decimal import Decimal

import duckdb
import pyarrow as pa

from hybridq.engines.cpu import CpuEngine
from hybridq.plan.expressions import AggregateCall, Call, Cast, Column, Literal, NamedExpression, SortKey
from hybridq.types import Field, normalize

ENGINES = {"cpu": CpuEngine}

BOOL, INT, LONG, DOUBLE, TEXT, DATE = pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.date32()


def money(precision=15, scale=2):
    return pa.decimal128(precision, scale)


def col(name, data_type=LONG):
    return Column(data_type, name)


def lit(value, data_type=None):
    if data_type is None:
        if isinstance(value, bool):
            data_type = BOOL
        elif isinstance(value, int):
            data_type = LONG
        elif isinstance(value, float):
            data_type = DOUBLE
        elif isinstance(value, str):
            data_type = TEXT
        elif isinstance(value, Decimal):
            scale = max(-value.as_tuple().exponent, 0)
            data_type = pa.decimal128(max(len(value.as_tuple().digits), scale, 1), scale)
        elif isinstance(value, datetime.date):
            data_type = DATE
    return Literal(data_type, value)


def call(function, *arguments, returns=BOOL, options=()):
    return Call(returns, function, tuple(arguments), tuple(options))


def cast(operand, data_type, null_on_failure=False):
    return Cast(data_type, operand, null_on_failure)


def columns(table):
    """Columns of a table as expressions, by name."""
    return {field.name: Column(normalize(field.type), field.name) for field in table.schema}


def schema_of(table):
    return tuple(Field(field.name, normalize(field.type)) for field in table.schema)


def project(engine, table, **expressions):
    """Compute expressions; returns an Arrow table."""
    named = [NamedExpression(name, expression) for name, expression in expressions.items()]
    frame = engine.project(engine.from_arrow(table), named)
    return engine.to_arrow(frame, tuple(Field(item.name, item.expression.type) for item in named))


def values(engine, expression, table=None):
    """Compute one expression; returns a list of Python values."""
    table = pa.table({"rows": [0]}) if table is None else table
    return project(engine, table, result=expression)["result"].to_pylist()


def matching(engine, table, predicate):
    """Filter; returns a list of rows."""
    return rows(engine.to_arrow(engine.filter(engine.from_arrow(table), predicate), schema_of(table)))


def aggregate(engine, table, groups, calls):
    """Group by expressions (by name) and aggregate; returns an Arrow table."""
    named = [NamedExpression(name, expression) for name, expression in groups.items()]
    schema = tuple(Field(item.name, item.expression.type) for item in named)
    schema += tuple(Field(item.name, item.type) for item in calls)
    return engine.to_arrow(engine.aggregate(engine.from_arrow(table), named, calls), schema)


def total(name, argument, returns):
    return AggregateCall(name, "sum", argument, returns)


def count(name, argument=None):
    return AggregateCall(name, "count", argument, LONG)


def least(name, argument):
    return AggregateCall(name, "min", argument, argument.type)


def greatest(name, argument):
    return AggregateCall(name, "max", argument, argument.type)


def join(engine, left, right, kind, left_keys, right_keys, residual=None, output=None):
    """Probe a build side made of ``right``; returns an Arrow table."""
    build = engine.build(engine.from_arrow(right), right_keys)
    if output is None:
        output = left.column_names if kind in ("semi", "anti") else left.column_names + right.column_names
    keys = [columns(left)[name] for name in left_keys]
    frame = engine.probe(engine.from_arrow(left), build, kind, keys, residual, output)
    found = {field.name: field for field in (*schema_of(left), *schema_of(right))}
    return engine.to_arrow(frame, tuple(found[name] for name in output))


def ordered(engine, table, *keys):
    """Sort by ``(name, descending, nulls_first)``; returns a list of rows."""
    found = columns(table)
    frame = engine.sort(engine.from_arrow(table), [SortKey(found[name], *rest) for name, *rest in keys])
    return rows(engine.to_arrow(frame, schema_of(table)))


def rows(table):
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def in_any_order(found):
    """Rows in an order of their own, NaN as text, so that equal bags compare equal."""
    plain = [tuple("NaN" if isinstance(v, float) and v != v else v for v in row) for row in found]
    return sorted(plain, key=lambda row: tuple((v is not None, repr(v)) for v in row))


DUCK = duckdb.connect()


def duck(table, query, parameters=None):
    """Ask DuckDB; the table is ``t``."""
    DUCK.register("t", table)
    return DUCK.sql(query, params=parameters)
