"""Values of expressions that read no data, computed as columns are: a constant and a column never differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from hybridq.engines.column import from_arrow, to_arrow
from hybridq.engines.evaluate import Evaluator
from hybridq.engines.frame import CpuFrame, block_of
from hybridq.plan.expressions import Expression, Literal

INTERVAL = pa.month_day_nano_interval()

LONGEST = 2**16
"""Bytes of a text that is kept as a constant: plans are printed and sent."""


def constant_value(expression: Expression) -> Literal | None:
    """Compute an expression that reads no columns.

    Parameters
    ----------
    expression : Expression
        Of literals alone.

    Returns
    -------
    Literal or None
        Of the expression's type; ``None`` where no literal holds the value: a timestamp finer than a microsecond, a
        year outside 1 to 9999, a decimal of too many digits, a negative zero (equal to zero, but not the same), a list,
        a long text.

    Raises
    ------
    ExecutionError
        The value cannot be computed, as in a row of a column.
    Unsupported
        The engine lacks a function.

    >>> from hybridq.plan.expressions import Call
    >>> one = Literal(pa.int64(), 1)
    >>> print(constant_value(Call(pa.int64(), "add", (one, one))))
    2
    """
    if pa.types.is_nested(expression.type):
        return None
    column = Evaluator([expression]).evaluate(block_of(CpuFrame({}, 1)), 0)
    array = to_arrow(column.expand(1))
    if array.type != expression.type:
        array = array.cast(expression.type)
    return _literal(expression.type, array)


def values_for(expression: Expression, columns: Mapping[str, pa.Array]) -> pa.Array:
    """Compute an expression for a few values of its columns.

    Parameters
    ----------
    expression : Expression
    columns : mapping of str to pyarrow.Array
        The columns that it reads, of equal length.

    Raises
    ------
    ExecutionError, MemoryError
        It cannot be computed for one of them.
    Unsupported
        The engine lacks a function.

    >>> from hybridq.plan.expressions import Call, Column
    >>> is_null = Call(pa.bool_(), "is_null", (Column(pa.int64(), "x"),))
    >>> values_for(is_null, {"x": pa.array([1, None])}).to_pylist()
    [False, True]
    """
    rows = len(next(iter(columns.values())))
    frame = CpuFrame({name: from_arrow(array) for name, array in columns.items()}, rows)
    return to_arrow(Evaluator([expression]).evaluate(block_of(frame), 0).expand(rows))


def _literal(data_type: pa.DataType, array: Any) -> Literal | None:
    if array.null_count:
        return Literal(data_type, None)
    if pa.types.is_timestamp(data_type) and data_type.unit == "ns" and array.cast(pa.int64())[0].as_py() % 1000:
        return None
    if array.nbytes > LONGEST or pa.types.is_duration(data_type) or pa.types.is_time(data_type):
        return None
    try:
        value = array.cast(pa.timestamp("us", data_type.tz))[0].as_py() if _is_fine(data_type) else array[0].as_py()
    except (ValueError, OverflowError, pa.ArrowInvalid):
        return None  # a year that Python's dates do not reach
    if isinstance(value, Decimal) and len(value.as_tuple().digits) > data_type.precision:
        return None
    if isinstance(value, float) and value == 0 and math.copysign(1, value) < 0:
        return None
    return Literal(data_type, tuple(value) if data_type == INTERVAL else value)


def _is_fine(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(data_type)) and data_type.unit == "ns"
