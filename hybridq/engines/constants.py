"""Literals as constant columns."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from hybridq import types
from hybridq.engines.column import INT64, Column, storage_dtype, unscaled, within
from hybridq.errors import NumericOverflow
from hybridq.plan.expressions import Literal


def literal_column(literal: Literal) -> Column:
    """Return a literal as a constant column."""
    return constant(literal.type, literal.value)


def constant(data_type: pa.DataType, value: Any) -> Column:
    """Return a constant column.

    Parameters
    ----------
    data_type : pyarrow.DataType
    value : bool, int, float, decimal.Decimal, str, bytes, datetime.date, datetime.datetime or None

    Raises
    ------
    NumericOverflow
        A decimal has more digits than 38.
    """
    dtype = storage_dtype(data_type)
    if value is None:
        if dtype is None:
            return Column(data_type, array=pa.nulls(1, data_type), constant=True)
        return Column(data_type, np.zeros((), dtype), np.zeros((), np.bool_), bounds=(0, 0), constant=True)
    if dtype is None:
        return Column(data_type, array=pa.array([value], data_type), constant=True)
    number = stored(data_type, value)
    if types.is_decimal(data_type):
        return decimal_constant(data_type, number)
    bounds = (int(number), int(number)) if dtype.kind != "f" else None
    return Column(data_type, np.asarray(number, dtype), bounds=bounds, constant=True)


def decimal_constant(data_type: pa.DataType, number: int) -> Column:
    """Return a decimal constant from its digits (the value times ten to the scale)."""
    bounds = (number, number)
    if within(bounds, INT64):
        return Column(data_type, np.asarray(number, np.int64), bounds=bounds, constant=True)
    if abs(number) >= 10**types.MAX_DECIMAL_DIGITS:
        raise NumericOverflow(f"the constant {number}e-{data_type.scale} has more than 38 digits")
    wide = pa.decimal128(types.MAX_DECIMAL_DIGITS, data_type.scale)
    array = pa.array([scaled(number, data_type.scale)], wide)
    return Column(data_type, array=array, bounds=bounds, constant=True)


def scaled(number: int, scale: int) -> Decimal:
    """Return ``number * 10**-scale``, exactly."""
    sign, digits, _ = Decimal(number).as_tuple()
    return Decimal((sign, digits, -scale))


def stored(data_type: pa.DataType, value: Any) -> Any:
    """Return a Python value as the number that columns of the type hold (see ``column.storage_dtype``)."""
    if types.is_decimal(data_type):
        return unscaled(Decimal(value), data_type.scale)
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        integer = pa.int32() if data_type.bit_width == 32 else pa.int64()
        return pa.scalar(value, data_type).cast(integer).as_py()
    return value


def column_bounds(data_type: pa.DataType, low: object, high: object) -> tuple[int, int] | None:
    """Return a value range given as Python values as a range of stored numbers, where the type has such ranges."""
    dtype = storage_dtype(data_type)
    if dtype is None or dtype.kind not in "iu" or low is None or high is None:
        return None
    return int(stored(data_type, low)), int(stored(data_type, high))
