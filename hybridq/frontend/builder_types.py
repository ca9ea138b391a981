"""Types of the Python builder's expressions: Python values as literals, and SQL's implicit conversions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from hybridq.errors import CastFailed, Unsupported
from hybridq.frontend.coercion import cast_to, common_type_of
from hybridq.plan.exact_values import exact
from hybridq.plan.expressions import Call, Expression, Literal
from hybridq.plan.functions import arithmetic_types
from hybridq.types import is_decimal, is_floating, is_integer, normalize


def constant(value: Any) -> Literal:
    """Return a Python value as a literal of the type that SQL gives it."""
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()  # a NumPy scalar
    if value is None:
        return Literal(pa.null(), None)
    if isinstance(value, bool):
        return Literal(pa.bool_(), value)
    if isinstance(value, int):
        if -(1 << 63) <= value < 1 << 63:
            return Literal(pa.int64(), value)
        value = Decimal(value)
    if isinstance(value, float):
        return Literal(pa.float64(), value)
    if isinstance(value, Decimal):
        return _decimal_literal(value)
    if isinstance(value, str):
        return Literal(pa.string(), value)
    if isinstance(value, bytes):
        return Literal(pa.binary(), value)
    if isinstance(value, datetime):
        return Literal(pa.timestamp("us", "UTC" if value.tzinfo else None), value)
    if isinstance(value, date):
        return Literal(pa.date32(), value)
    raise TypeError(f"a value of type {type(value).__name__} cannot be part of a query")


def _decimal_literal(value: Decimal) -> Literal:
    if not value.is_finite():
        raise CastFailed(f"{value} is no decimal value")
    digits, exponent = value.as_tuple().digits, int(value.as_tuple().exponent)
    scale = max(-exponent, 0)
    precision = max(len(str(int("".join(map(str, digits))))) + max(exponent, 0), scale, 1)
    if precision > 38:
        raise CastFailed(f"{value} has {precision} digits, and decimals have at most 38")
    data_type = pa.decimal128(precision, scale)
    return Literal(data_type, exact(value, data_type))


def named_type(data_type: pa.DataType | str) -> pa.DataType:
    """Return an Arrow type given as such or by name."""
    if isinstance(data_type, pa.DataType):
        return normalize(data_type)
    decimal = re.fullmatch(r"\s*decimal(?:128)?\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)\s*", data_type)
    try:
        if decimal:
            return pa.decimal128(int(decimal[1]), int(decimal[2] or 0))
        return {"date": pa.date32(), "timestamp": pa.timestamp("us")}.get(data_type) or pa.type_for_alias(data_type)
    except ValueError:
        raise Unsupported(f"there is no type {data_type}") from None


def flattened(function: str, argument: Expression) -> tuple[Expression, ...]:
    """Return the terms of a chain of AND or of OR."""
    if isinstance(argument, Call) and argument.function == function:
        return argument.arguments
    return (argument,)


def retyped(arguments: Sequence[Expression]) -> list[Expression]:
    """Give constants the type of the first other argument, if it holds exactly their values."""
    wanted = next((argument.type for argument in arguments if not isinstance(argument, Literal)), None)
    return [_as_type(argument, wanted) for argument in arguments]


def _as_type(argument: Expression, wanted: pa.DataType | None) -> Expression:
    if wanted is None or not isinstance(argument, Literal) or argument.type == wanted:
        return argument
    if isinstance(argument.value, str):
        return _parsed_time(argument, wanted)
    converted = exact(argument.value, wanted)
    return argument if converted is None else Literal(wanted, converted)


def _parsed_time(argument: Literal, wanted: pa.DataType) -> Expression:
    """Read a string that meets a date or a timestamp as one, as SQL does."""
    try:
        if pa.types.is_date(wanted):
            return Literal(wanted, date.fromisoformat(argument.value))
        if pa.types.is_timestamp(wanted):
            return Literal(wanted, datetime.fromisoformat(argument.value))
    except ValueError:
        raise CastFailed(f"'{argument.value}' is not a value of type {wanted}") from None
    return argument


def comparable(arguments: list[Expression]) -> list[Expression]:
    """Bring the operands of a comparison to one type."""
    return common_type_of(retyped(arguments), "comparison")


def computable(function: str, arguments: list[Expression]) -> list[Expression]:
    """Bring the operands of an arithmetic operator to types that it takes."""
    left, right = arguments
    types = arithmetic_types(left.type, right.type)
    if types is None:
        raise Unsupported(f"{function}({left.type}, {right.type}) is not supported")
    return [cast_to(left, types[0]), cast_to(right, types[1])]


def aggregable(function: str, argument: Expression) -> Expression:
    """Widen numbers before they are added up, as SQL does."""
    if is_decimal(argument.type) or function not in ("sum", "avg"):
        return argument
    if function == "avg" or is_floating(argument.type):
        return cast_to(argument, pa.float64()) if _is_number(argument.type) else argument
    if not is_integer(argument.type):
        return argument
    return cast_to(argument, pa.uint64() if pa.types.is_unsigned_integer(argument.type) else pa.int64())


def _is_number(data_type: pa.DataType) -> bool:
    return is_integer(data_type) or is_floating(data_type)
