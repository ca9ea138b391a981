"""Compute at planning time what does not depend on data."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from hybridq.errors import ExecutionError, Unsupported
from hybridq.plan.expressions import Call, Case, Cast, Expression, In, Literal
from hybridq.plan.expressions import transform as transform_expression
from hybridq.plan.nodes import Filter, Join, Node, Scan, transform
from hybridq.plan.rules.helpers import can_fail, map_expressions
from hybridq.plan.unnesting import Unnest

TRUE = Literal(pa.bool_(), True)
FALSE = Literal(pa.bool_(), False)


def constant_folding(root: Node) -> Node:
    """Fold constants in all expressions, and drop predicates that are always true.

    The CPU engine computes them, as it computes columns, so that both give the same answers. Whatever fails stays as it
    is, so that it fails when it runs, and nothing that may fail is dropped. AND, OR, NOT, IN and CASE are simplified as
    far as SQL's three-valued logic allows.

    >>> from hybridq.plan.expressions import Column
    >>> from hybridq.plan.nodes import ScanColumn, render
    >>> scan = Scan("t", (ScanColumn("t.a", "a", pa.int64()),))
    >>> three = Call(pa.int64(), "add", (Literal(pa.int64(), 1), Literal(pa.int64(), 2)))
    >>> print(render(constant_folding(Filter(scan, Call(pa.bool_(), "less", (Column(pa.int64(), "t.a"), three))))))
    Filter (t.a < 3)
      Scan t [a]
    """
    return transform(root, _fold_node)


def _fold_node(node: Node) -> Node:
    node = map_expressions(node, fold)
    if isinstance(node, Filter) and node.predicate == TRUE:
        return node.input
    if isinstance(node, Scan) and node.predicate == TRUE:
        return replace(node, predicate=None)
    if isinstance(node, Join) and node.residual == TRUE:
        return replace(node, residual=None)
    if isinstance(node, Unnest) and node.condition == TRUE:
        return replace(node, condition=None)
    return node


def fold(expression: Expression) -> Expression:
    """Fold constants in an expression."""
    return transform_expression(expression, _fold_one)


def computed(expression: Expression) -> Expression:
    """Return the value of an expression whose operands are literals; the expression itself where there is none.

    >>> print(computed(Cast(pa.date32(), Literal(pa.string(), "1998-12-01"))))
    1998-12-01
    """
    try:
        return value_of(expression) or expression
    except (ExecutionError, Unsupported, MemoryError):
        return expression  # it fails when it runs, if it does run


def value_of(expression: Expression) -> Literal | None:
    """Return the value of an expression whose operands are literals; ``None`` if one is not, or no literal holds it.

    Raises
    ------
    ExecutionError
        It has no value.
    """
    if isinstance(expression, Literal):
        return expression
    operands = expression.children
    if not all(isinstance(each, Literal) for each in operands) or not isinstance(expression, Call | Case | Cast | In):
        return None
    # The engine is the one place that knows what a function does; it is not loaded before there is something to do.
    from hybridq.engines.constant_values import constant_value

    return constant_value(expression)


def _fold_one(expression: Expression) -> Expression:
    if isinstance(expression, Call):
        if expression.function in ("and", "or"):
            return _fold_logical(expression)
        return _fold_call(expression)
    if isinstance(expression, Case):
        return _fold_case(expression)
    if isinstance(expression, Cast):
        return _fold_cast(expression)
    if isinstance(expression, In):
        return _fold_in(expression)
    return expression


def _null(data_type: pa.DataType) -> Literal:
    return Literal(data_type, None)


# --- boolean logic ---------------------------------------------------------------------------------------------------


def _fold_logical(call: Call) -> Expression:
    """Simplify AND and OR: flat, each operand once, without operands that change nothing."""
    neutral, deciding = (TRUE, FALSE) if call.function == "and" else (FALSE, TRUE)
    operands: list[Expression] = []
    for argument in call.arguments:
        nested = isinstance(argument, Call) and argument.function == call.function
        operands += argument.children if nested else (argument,)
    operands = [operand for operand in dict.fromkeys(operands) if operand != neutral]
    if deciding in operands and not any(can_fail(operand, overflow=True) for operand in operands):
        return deciding
    if not operands:
        return neutral
    if len(operands) == 1:
        return operands[0]
    arguments = tuple(operands)
    return call if arguments == call.arguments else replace(call, arguments=arguments)


def _fold_case(case: Case) -> Expression:
    branches: list[tuple[Expression, Expression]] = []
    default = case.default
    for condition, value in case.branches:
        if isinstance(condition, Literal):
            if condition.value is not True:
                continue
            default = value
            break
        branches.append((condition, value))
    if not branches:
        return default if default.type == case.type else case
    kept = tuple(branches)
    return case if kept == case.branches and default is case.default else replace(case, branches=kept, default=default)


def _fold_in(expression: In) -> Expression:
    operand = expression.operand
    if isinstance(operand, Literal):
        return computed(expression)
    values = tuple(dict.fromkeys(expression.values))
    return expression if len(values) == len(expression.values) else replace(expression, values=values)


# --- scalar functions ------------------------------------------------------------------------------------------------

STRICT = frozenset(
    {
        "add", "subtract", "multiply", "divide", "modulus", "negate", "abs", "not", "like", "ilike", "starts_with",
        "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "extract", "substring", "upper",
        "lower", "length",
    }
)  # fmt: skip
"""Functions that are NULL as soon as one argument is."""


def _fold_call(call: Call) -> Expression:
    literals = [argument for argument in call.arguments if isinstance(argument, Literal)]
    if call.function in STRICT and any(literal.value is None for literal in literals):
        others = [argument for argument in call.arguments if not isinstance(argument, Literal)]
        return call if any(can_fail(other, overflow=True) for other in others) else _null(call.type)
    if call.function == "coalesce":
        return _fold_coalesce(call)
    return computed(call)


def _fold_coalesce(call: Call) -> Expression:
    arguments: list[Expression] = []
    for argument in call.arguments:
        if isinstance(argument, Literal):
            if argument.value is None:
                continue
            arguments.append(argument)
            break  # what follows is never reached
        arguments.append(argument)
    if not arguments:
        return _null(call.type)
    if len(arguments) == 1 and arguments[0].type == call.type:
        return arguments[0]  # also what the front end writes to tell casts apart
    return call if len(arguments) == len(call.arguments) else replace(call, arguments=tuple(arguments))


def _fold_cast(cast: Cast) -> Expression:
    return cast.operand if cast.operand.type == cast.type else computed(cast)
