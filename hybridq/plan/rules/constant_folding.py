"""Compute at planning time what does not depend on data."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from hybridq.plan.expressions import Call, Case, Cast, Expression, In, Literal
from hybridq.plan.expressions import transform as transform_expression
from hybridq.plan.nodes import Filter, Join, Node, Scan, transform
from hybridq.plan.rules.helpers import can_fail, map_expressions
from hybridq.types import is_decimal, is_integer, is_string

TRUE = Literal(pa.bool_(), True)
FALSE = Literal(pa.bool_(), False)

_EXACT = decimal.Context(prec=200, Emin=-999999, Emax=999999)


def constant_folding(root: Node) -> Node:
    """Fold constants in all expressions, and drop predicates that are always true.

    Integers and decimals are computed exactly, in the types that the plan declares. Whatever would fail or round stays
    as it is, so that it fails or rounds when it runs, and nothing that may fail is dropped. AND, OR, NOT, IN and CASE
    are simplified as far as SQL's three-valued logic allows.

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
    return node


def fold(expression: Expression) -> Expression:
    """Fold constants in an expression."""
    return transform_expression(expression, _fold_one)


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
        if operand.value is None:
            return _null(pa.bool_())
        tests = tuple(_compare("equal", operand, value) for value in expression.values)
        if any(test is None for test in tests):
            return expression
        return _fold_logical(Call(pa.bool_(), "or", tuple(test for test in tests if test is not None)))
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
    if not literals or len(literals) != len(call.arguments):
        return call
    folded: Expression | None = None
    if call.function in _COMPARISONS:
        folded = _compare(call.function, *literals)
    elif call.function in _TESTS:
        folded = Literal(pa.bool_(), _TESTS[call.function](literals[0].value))
    elif call.function in _ARITHMETIC:
        folded = _compute(call, [literal.value for literal in literals])
    elif call.function == "not":
        folded = Literal(pa.bool_(), not literals[0].value)
    return call if folded is None else folded


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
        return arguments[0]
    return call if len(arguments) == len(call.arguments) else replace(call, arguments=tuple(arguments))


_COMPARISONS: dict[str, Callable[[int], bool]] = {
    "equal": lambda order: order == 0,
    "not_equal": lambda order: order != 0,
    "less": lambda order: order < 0,
    "less_equal": lambda order: order <= 0,
    "greater": lambda order: order > 0,
    "greater_equal": lambda order: order >= 0,
}


def _compare(function: str, left: Literal, right: Literal) -> Literal | None:
    """Compare two constants of one type whose order Python and SQL agree on."""
    if left.value is None or right.value is None:
        return _null(pa.bool_())
    data_type = left.type
    known = is_integer(data_type) or is_decimal(data_type) or is_string(data_type) or pa.types.is_date(data_type)
    comparable = data_type == right.type or (is_decimal(data_type) and is_decimal(right.type))
    if not comparable or not (known or pa.types.is_boolean(data_type)):
        return None
    order = (left.value > right.value) - (left.value < right.value)
    return Literal(pa.bool_(), _COMPARISONS[function](order))


_TESTS: dict[str, Callable[[Any], bool]] = {
    "is_null": lambda value: value is None,
    "is_not_null": lambda value: value is not None,
    "is_true": lambda value: value is True,
    "is_false": lambda value: value is False,
    "is_not_true": lambda value: value is not True,
    "is_not_false": lambda value: value is not False,
}


def _truncated(left: Any, right: Any) -> Any:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: Any, right: Any) -> Any:
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


_ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide", "modulus", "negate", "abs"})


def _compute(call: Call, values: list[Any]) -> Literal | None:
    """Compute exactly; ``None`` where that is not possible in the declared type."""
    if not is_integer(call.type) and not is_decimal(call.type):
        return None
    if any(isinstance(value, bool) or not isinstance(value, int | Decimal) for value in values):
        return None
    if call.function in ("divide", "modulus") and values[1] == 0:
        return None
    with decimal.localcontext(_EXACT):
        result: Any
        match call.function:
            case "add":
                result = values[0] + values[1]
            case "subtract":
                result = values[0] - values[1]
            case "multiply":
                result = values[0] * values[1]
            case "negate":
                result = -values[0]
            case "abs":
                result = abs(values[0])
            case "modulus":
                result = _remainder(*values)
            case _:
                result = Decimal(values[0]) / Decimal(values[1]) if is_decimal(call.type) else _truncated(*values)
        return _typed(call.type, result)


def _typed(data_type: pa.DataType, value: Any) -> Literal | None:
    """Make a constant of a type; ``None`` where the value does not fit it exactly."""
    if is_integer(data_type):
        if value != int(value):
            return None
        number = int(value)
        signed = pa.types.is_signed_integer(data_type)
        low, high = (-(2 ** (data_type.bit_width - 1)) if signed else 0), 2 ** (data_type.bit_width - signed) - 1
        return Literal(data_type, number) if low <= number <= high else None
    if is_decimal(data_type):
        with decimal.localcontext(_EXACT):
            exact = Decimal(value) + 0  # there is no negative zero in SQL
            unit = Decimal(1).scaleb(-data_type.scale)
            try:
                fitted = exact.quantize(unit)
            except decimal.InvalidOperation:
                return None
            fits = fitted == exact and abs(fitted) < Decimal(10) ** (data_type.precision - data_type.scale)
        return Literal(data_type, fitted) if fits else None
    return None


def _fold_cast(cast: Cast) -> Expression:
    operand = cast.operand
    if operand.type == cast.type:
        return operand
    if not isinstance(operand, Literal):
        return cast
    if operand.value is None:
        return _null(cast.type)
    numeric = is_integer(operand.type) or is_decimal(operand.type)
    if not numeric or isinstance(operand.value, bool) or not isinstance(operand.value, int | Decimal):
        return cast
    return _typed(cast.type, operand.value) or cast
