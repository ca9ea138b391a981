"""Bringing expressions to common types, as SQL does without being asked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa

from hybridq.errors import Unsupported
from hybridq.plan.exact_values import exact
from hybridq.plan.expressions import Call, Cast, Expression, In, Literal
from hybridq.plan.functions import common_type
from hybridq.types import is_decimal, is_floating, is_integer, is_interval, is_nested, is_string, is_time


def cast_to(expression: Expression, data_type: pa.DataType) -> Expression:
    """Return the expression as that type; a literal that is exactly representable is converted here."""
    if expression.type == data_type:
        return expression
    if isinstance(expression, Literal):
        converted = exact(expression.value, data_type)
        if converted is not None or expression.value is None:
            return Literal(data_type, converted)
    return Cast(data_type, expression)


def is_convertible(source: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether SQL has a conversion between two types; single values may still not be convertible.

    >>> is_convertible(pa.string(), pa.date32()), is_convertible(pa.bool_(), pa.date32())
    (True, False)
    """
    if source == target or pa.types.is_null(source):
        return True
    if pa.types.is_list(source) and pa.types.is_list(target):
        return is_convertible(source.value_type, target.value_type)
    if is_nested(source) or is_nested(target):
        return False
    if is_string(source):
        return not (pa.types.is_duration(target) or is_interval(target))
    if is_string(target):
        return not (pa.types.is_duration(source) or is_interval(source))
    if _is_number(source):
        # DataFusion adds days to a date as a duration.
        return _is_number(target) or (is_integer(source) and pa.types.is_duration(target))
    if is_time(source):
        return is_time(target)
    return pa.types.is_duration(source) and (is_interval(target) or pa.types.is_duration(target))


def _is_number(data_type: pa.DataType) -> bool:
    return is_integer(data_type) or is_floating(data_type) or is_decimal(data_type) or pa.types.is_boolean(data_type)


def common_type_of(expressions: Sequence[Expression], purpose: str) -> list[Expression]:
    """Bring all expressions to one type.

    Raises
    ------
    Unsupported
        If they have none in common; the message names ``purpose``.
    """

    def widest(left: pa.DataType | None, right: pa.DataType) -> pa.DataType | None:
        return None if left is None else common_type(left, right)

    data_type = reduce(widest, [expression.type for expression in expressions])
    if data_type is None:
        kinds = ", ".join(dict.fromkeys(str(expression.type) for expression in expressions))
        raise Unsupported(f"{purpose} of values of types {kinds} is not supported: cast them to one type")
    return [cast_to(expression, data_type) for expression in expressions]


def membership(operand: Expression, options: Sequence[Expression]) -> Expression:
    """Return ``operand IN (options)``: an ``In`` over constants, else a chain of OR."""
    if not options:
        return Literal(pa.bool_(), False)
    operand, *items = common_type_of([operand, *options], "IN")
    literals = [item for item in items if isinstance(item, Literal)]
    if len(literals) == len(items):
        return In(pa.bool_(), operand, tuple(dict.fromkeys(literals)))
    tests = tuple(Call(pa.bool_(), "equal", (operand, item)) for item in items)
    return tests[0] if len(tests) == 1 else Call(pa.bool_(), "or", tests)
