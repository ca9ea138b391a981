"""Types of the results of scalar functions, from the types of their arguments.

A rule gives ``None`` where the function does not take such arguments. Decimal results follow DataFusion (and Arrow):
sums gain a digit, products add digits and scales, quotients gain four digits of scale; all are capped at 38 digits.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from hybridq.types import (
    MAX_DECIMAL_DIGITS,
    average_type,
    is_decimal,
    is_floating,
    is_integer,
    is_interval,
    is_string,
    is_time,
)

Types = tuple[pa.DataType, ...]
TypeRule = Callable[[Types], pa.DataType | None]


def decimal(precision: int, scale: int) -> pa.DataType:
    """Return a decimal type, its digits capped at 38.

    >>> decimal(45, 4)
    Decimal128Type(decimal128(38, 4))
    """
    return pa.decimal128(min(precision, MAX_DECIMAL_DIGITS), scale)


def sum_of(types: Types) -> pa.DataType | None:
    """A sum or difference of numbers."""
    left, right = types
    if is_decimal(left) and is_decimal(right):
        scale = max(left.scale, right.scale)
        return decimal(max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale)
    return same_number(types)


def product(types: Types) -> pa.DataType | None:
    """A product."""
    left, right = types
    if is_decimal(left) and is_decimal(right):
        scale = left.scale + right.scale
        return decimal(left.precision + right.precision + 1, scale) if scale <= MAX_DECIMAL_DIGITS else None
    return same_number(types)


def quotient(types: Types) -> pa.DataType | None:
    """A quotient."""
    left, right = types
    if is_decimal(left) and is_decimal(right):
        scale = min(left.scale + 4, MAX_DECIMAL_DIGITS)
        return decimal(left.precision - left.scale + right.scale + scale, scale)
    return same_number(types)


def remainder(types: Types) -> pa.DataType | None:
    """A remainder."""
    left, right = types
    if is_decimal(left) and is_decimal(right):
        scale = max(left.scale, right.scale)
        return decimal(min(left.precision - left.scale, right.precision - right.scale) + scale, scale)
    return same_number(types)


def same_number(types: Types) -> pa.DataType | None:
    """Numbers of one type, and no decimals."""
    first = types[0]
    same = all(data_type == first for data_type in types)
    return first if same and (is_integer(first) or is_floating(first)) else None


def number(types: Types) -> pa.DataType | None:
    """Any number; the result has its type."""
    (operand,) = types
    return operand if is_decimal(operand) or is_integer(operand) or is_floating(operand) else None


def negated(types: Types) -> pa.DataType | None:
    """A number with a sign."""
    return None if pa.types.is_unsigned_integer(types[0]) else number(types)


def comparison(types: Types) -> pa.DataType | None:
    """Two values of one type."""
    left, right = types
    return pa.bool_() if left == right or (is_decimal(left) and is_decimal(right)) else None


def logical(types: Types) -> pa.DataType | None:
    """Booleans."""
    return pa.bool_() if all(pa.types.is_boolean(data_type) for data_type in types) else None


def truth(types: Types) -> pa.DataType | None:
    """Anything; the result is true or false."""
    return pa.bool_()


def match(types: Types) -> pa.DataType | None:
    """Strings; the result is true or false."""
    return pa.bool_() if all(map(is_string, types)) else None


def text(types: Types) -> pa.DataType | None:
    """Strings; the result is one."""
    return pa.string() if all(map(is_string, types)) else None


def substring(types: Types) -> pa.DataType | None:
    """A string and integers."""
    return pa.string() if is_string(types[0]) and all(map(is_integer, types[1:])) else None


def length(types: Types) -> pa.DataType | None:
    """A string; the result is an integer."""
    return pa.int32() if is_string(types[0]) else None


def component(types: Types) -> pa.DataType | None:
    """A date, a time or a duration; the result is an integer."""
    return pa.int32() if is_time(types[0]) or pa.types.is_duration(types[0]) else None


def common(types: Types) -> pa.DataType | None:
    """Values of one type, which the result has."""
    return types[0] if all(data_type == types[0] for data_type in types) else None


def average(types: Types) -> pa.DataType | None:
    """A sum and a count."""
    total, count = types
    return average_type(total) if number((total,)) is not None and is_integer(count) else None


def list_length(types: Types) -> pa.DataType | None:
    """A list."""
    return pa.int64() if pa.types.is_list(types[0]) else None


def texts_and_numbers(types: Types) -> pa.DataType | None:
    """A string first, then strings and integers; the result is a string."""
    return pa.string() if is_string(types[0]) and all(is_string(t) or is_integer(t) for t in types) else None


def position(types: Types) -> pa.DataType | None:
    """Strings; the result is an integer."""
    return pa.int32() if all(map(is_string, types)) else None


def count(types: Types) -> pa.DataType | None:
    """Strings; the result is a large integer."""
    return pa.int64() if all(map(is_string, types)) else None


def character(types: Types) -> pa.DataType | None:
    """An integer; the result is a string."""
    return pa.string() if is_integer(types[0]) else None


def real(types: Types) -> pa.DataType | None:
    """Numbers; the result is a double, or a float where all arguments are."""
    if not all(number((each,)) is not None for each in types):
        return None
    return pa.float32() if all(each == pa.float32() for each in types) else pa.float64()


def cut_off(types: Types) -> pa.DataType | None:
    """A number, and perhaps a number of digits; the result has the number's type."""
    return number(types[:1]) if all(map(is_integer, types[1:])) else None


def rounded(types: Types) -> pa.DataType | None:
    """A number, and perhaps a number of digits; a decimal gains a digit: 9.9 may become 10.0."""
    found = cut_off(types)
    return decimal(found.precision + 1, found.scale) if found is not None and is_decimal(found) else found


def nan_test(types: Types) -> pa.DataType | None:
    """A float; the result is true or false."""
    return pa.bool_() if is_floating(types[0]) else None


def whole(types: Types) -> pa.DataType | None:
    """Integers of one type."""
    return types[0] if is_integer(types[0]) and all(each == types[0] for each in types) else None


def moved(types: Types) -> pa.DataType | None:
    """A date or timestamp, and an interval or duration."""
    time, step = types
    return time if is_time(time) and (is_interval(step) or pa.types.is_duration(step)) else None


def difference(types: Types) -> pa.DataType | None:
    """Two dates (the result is a number of days) or two timestamps (a duration)."""
    left, right = types
    if pa.types.is_date(left) and pa.types.is_date(right):
        return pa.int64()
    same = pa.types.is_timestamp(left) and pa.types.is_timestamp(right) and left == right
    return pa.duration(left.unit) if same else None


def written_time(types: Types) -> pa.DataType | None:
    """A date or timestamp; the result is a string."""
    return pa.string() if is_time(types[0]) else None


def truncated(types: Types) -> pa.DataType | None:
    """A date or timestamp; the result is a timestamp."""
    if pa.types.is_timestamp(types[0]):
        return types[0]
    return pa.timestamp("ns") if pa.types.is_date(types[0]) else None


def date_of(types: Types) -> pa.DataType | None:
    """Integers; the result is a date."""
    return pa.date32() if all(map(is_integer, types)) else None


def binned(types: Types) -> pa.DataType | None:
    """An interval or duration, a timestamp, and perhaps another one; the result has the first timestamp's type."""
    step, *times = types
    steps = is_interval(step) or pa.types.is_duration(step)
    return times[0] if steps and all(pa.types.is_timestamp(each) for each in times) else None


def digest(types: Types) -> pa.DataType | None:
    """Text or bytes; the result is bytes."""
    return pa.binary() if is_text_or_bytes(types) else None


def coded(types: Types) -> pa.DataType | None:
    """Text or bytes; the result is text."""
    return pa.string() if is_text_or_bytes(types) else None


def is_text_or_bytes(types: Types) -> bool:
    """Tell whether all types are of text or bytes."""
    return all(is_string(each) or pa.types.is_binary(each) for each in types)
