"""What each engine computes, told without importing it: asked before a stage is sent to a device.

Scalar and aggregate functions are in the tables of ``hybridq.plan.functions``; what depends on types or arguments on
the GPU is in ``hybridq.engines.gpu.support``.
"""

from __future__ import annotations

import pyarrow as pa

from hybridq.engines.gpu import support as gpu
from hybridq.plan.aggregates import FINAL_FUNCTIONS, PARTIALS
from hybridq.plan.expressions import AggregateCall, Call, Expression
from hybridq.plan.functions import FUNCTIONS
from hybridq.topology import Kind

NAMES = {"cpu": "the CPU engine", "gpu": "the GPU engine"}


def expression_lacking(kind: Kind, expression: Expression) -> str | None:
    """Tell why an engine does not compute an expression's topmost node; ``None``: it does.

    >>> from hybridq.plan.expressions import Column
    >>> expression_lacking("cpu", Call(pa.string(), "soundex", (Column(pa.string(), "t.x"),)))
    'the CPU engine has no function soundex'
    """
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
    return gpu.aggregate_lacking(call) if kind == "gpu" else None


def type_lacking(kind: Kind, data_type: pa.DataType) -> str | None:
    """Tell why an engine has no columns of a type; ``None``: it has them."""
    return gpu.type_lacking(data_type) if kind == "gpu" else None


def operator_lacking(kind: Kind, operator: str) -> str | None:
    """Tell why an engine does not run a step or sink (named by its class) or a join (its kind); ``None``: it does."""
    return gpu.OPERATORS_LACKING.get(operator) if kind == "gpu" else None
