"""What each engine computes, told without importing it: asked before a stage is sent to a device.

Scalar and aggregate functions are in the tables of ``hybridq.plan.functions``; what depends on types or arguments on
the GPU is in ``hybridq.engines.gpu.support``.
"""

from __future__ import annotations

import pyarrow as pa

from hybridq.engines.gpu import support as gpu
from hybridq.plan.aggregates import FINAL_FUNCTIONS, PARTIALS
from hybridq.plan.expressions import AggregateCall, Call, Expression, In
from hybridq.plan.functions import COMPARISONS, FUNCTIONS
from hybridq.topology import Kind
from hybridq.types import is_interval, is_nested

NAMES = {"cpu": "the CPU engine", "gpu": "the GPU engine"}

_COMPARING = COMPARISONS | {"greatest", "least"}
_ORDERING = frozenset({"min", "max", "distinct", "tally", "summary", "hashes"})
"""Aggregates that compare values."""


def expression_lacking(kind: Kind, expression: Expression) -> str | None:
    """Tell why an engine does not compute an expression's topmost node; ``None``: it does.

    >>> from hybridq.plan.expressions import Column
    >>> expression_lacking("cpu", Call(pa.string(), "soundex", (Column(pa.string(), "t.x"),)))
    'the CPU engine has no function soundex'
    """
    if isinstance(expression, Call) and expression.function in _COMPARING:
        reasons = (comparison_lacking(argument) for argument in expression.arguments)
        if (reason := next((reason for reason in reasons if reason is not None), None)) is not None:
            return reason
    if isinstance(expression, In) and (reason := comparison_lacking(expression.operand)) is not None:
        return reason
    if isinstance(expression, Call) and not (kind == "cpu" and expression.function in FINAL_FUNCTIONS):
        function = FUNCTIONS.get(expression.function)
        if function is None or not (function.cpu if kind == "cpu" else function.gpu):
            return f"{NAMES[kind]} has no function {expression.function}"
    return gpu.expression_lacking(expression) if kind == "gpu" else None


def aggregate_lacking(kind: Kind, call: AggregateCall) -> str | None:
    """Tell why an engine does not compute an aggregate, in its partial form; ``None``: it does."""
    aggregate = PARTIALS.get(call.function)
    if aggregate is None or (kind == "gpu" and not aggregate.gpu):
        return f"{NAMES[kind]} has no aggregate {call.function}"
    if call.argument is not None and call.function in _ORDERING:
        reason = comparison_lacking(call.argument)
        if reason is not None:
            return reason
    return gpu.aggregate_lacking(call) if kind == "gpu" else None


def comparison_lacking(expression: Expression) -> str | None:
    """Tell why values are not compared, ordered, grouped or joined by any engine; ``None``: they are."""
    if is_nested(expression.type) or is_interval(expression.type):
        return f"{expression} is of type {expression.type}, which cannot be compared, ordered, grouped or joined"
    return None


def type_lacking(kind: Kind, data_type: pa.DataType) -> str | None:
    """Tell why an engine has no columns of a type; ``None``: it has them."""
    return gpu.type_lacking(data_type) if kind == "gpu" else None


def join_lacking(kind: Kind, method: str) -> str | None:
    """Tell why an engine does not join by a method; ``None``: it does."""
    return f"{NAMES[kind]} has no {method} joins" if kind == "gpu" and method in gpu.HOST_ONLY_METHODS else None


def operator_lacking(kind: Kind, operator: str) -> str | None:
    """Tell why an engine does not run a step or sink (named by its class) or a join (its kind); ``None``: it does."""
    return gpu.OPERATORS_LACKING.get(operator) if kind == "gpu" else None
