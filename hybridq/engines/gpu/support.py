"""What the GPU engine does not compute, as far as it depends on more than a function's name. Needs no GPU package.

A stage with any of it runs on the CPU, and its report says why.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from hybridq.plan.expressions import AggregateCall, Expression
from hybridq.types import is_decimal, is_floating, is_integer, is_string

OPERATORS_LACKING: Mapping[str, str] = {
    **dict.fromkeys(("WindowStep", "CondenseStep", "CarriedWindowStep"), "the GPU engine has no window functions"),
    "UnnestStep": "the GPU engine does not take lists apart",
}
"""What the GPU engine lacks of steps and sinks (by the names of their classes) and of joins (by their kinds), each with
the reason that reports give."""

HOST_ONLY_METHODS = frozenset({"merge", "index"})
"""Methods of joining (``hybridq.config.Config.join_method``) that the engine does not have: its joins hash."""


def type_lacking(data_type: pa.DataType) -> str | None:
    """Tell why the engine has no columns of a type that a query reads; ``None``: it has them.

    >>> type_lacking(pa.binary())
    'the GPU engine has no columns of type binary'
    """
    if is_integer(data_type) or is_decimal(data_type) or is_string(data_type) or pa.types.is_boolean(data_type):
        return None
    if (is_floating(data_type) and data_type != pa.float16()) or pa.types.is_null(data_type):
        return None
    if pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type):
        return None
    return f"the GPU engine has no columns of type {data_type}"


def expression_lacking(expression: Expression) -> str | None:
    """Tell why the engine does not compute an expression's topmost node; ``None``: it does."""
    return type_lacking(expression.type)


def aggregate_lacking(call: AggregateCall) -> str | None:
    """Tell why the engine does not compute an aggregate of such arguments; ``None``: it does."""
    if call.further:
        return f"the GPU engine has no {call.function} of several arguments"
    return None if call.argument is None else type_lacking(call.argument.type)
