"""The scalar functions of a plan: their names, their names in Substrait, and the types of their results.

Decimal results follow DataFusion (and Arrow): sums gain a digit, products add digits and scales, quotients gain four
digits of scale; all are capped at 38 digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from hybridq.errors import Unsupported
from hybridq.types import MAX_DECIMAL_DIGITS, average_type, is_decimal, is_floating, is_integer, is_string

TypeRule = Callable[[tuple[pa.DataType, ...]], pa.DataType | None]

DATE_PARTS = frozenset({"year", "quarter", "month", "week", "day", "doy", "dow", "hour", "minute", "second", "epoch"})
"""Components that ``extract`` knows. ``dow`` is 0 on Sundays, ``week`` is the ISO week."""

EXACT_DIGITS = MappingProxyType(
    {
        pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20,
        pa.uint8(): 3, pa.uint16(): 5, pa.uint32(): 10, pa.uint64(): 20,
    }
)  # fmt: skip
"""Decimal digits that DataFusion gives an integer type where it meets a decimal."""


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function.

    Attributes
    ----------
    name : str
        Name in plans.
    aliases : tuple of str
        Names in Substrait plans, without a signature (``lte`` of ``lte:any_any``).
    minimum, maximum : int
        Number of arguments.
    rule : callable
        Type of the result from the types of the arguments; ``None`` when it does not take such arguments.
    cpu, gpu : bool
        Which engines have it. A stage that calls a function which an engine lacks runs on the other one.
    """

    name: str
    aliases: tuple[str, ...]
    minimum: int
    maximum: int
    rule: TypeRule
    cpu: bool = True
    gpu: bool = True


def decimal(precision: int, scale: int) -> pa.DataType:
    """Return a decimal type, its digits capped at 38.

    >>> decimal(45, 4)
    Decimal128Type(decimal128(38, 4))
    """
    return pa.decimal128(min(precision, MAX_DECIMAL_DIGITS), scale)


def _add(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    left, right = types
    if is_decimal(left) and is_decimal(right):
        scale = max(left.scale, right.scale)
        return decimal(max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale)
    return _same_number(types)


def _multiply(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    left, right = types
    if is_decimal(left) and is_decimal(right):
        scale = left.scale + right.scale
        return decimal(left.precision + right.precision + 1, scale) if scale <= MAX_DECIMAL_DIGITS else None
    return _same_number(types)


def _divide(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    left, right = types
    if is_decimal(left) and is_decimal(right):
        scale = min(left.scale + 4, MAX_DECIMAL_DIGITS)
        return decimal(left.precision - left.scale + right.scale + scale, scale)
    return _same_number(types)


def _modulus(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    left, right = types
    if is_decimal(left) and is_decimal(right):
        scale = max(left.scale, right.scale)
        return decimal(min(left.precision - left.scale, right.precision - right.scale) + scale, scale)
    return _same_number(types)


def _same_number(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    first = types[0]
    same = all(data_type == first for data_type in types)
    return first if same and (is_integer(first) or is_floating(first)) else None


def _number(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    (operand,) = types
    return operand if is_decimal(operand) or is_integer(operand) or is_floating(operand) else None


def _negate(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return None if pa.types.is_unsigned_integer(types[0]) else _number(types)


def _comparison(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    left, right = types
    return pa.bool_() if left == right or (is_decimal(left) and is_decimal(right)) else None


def _logical(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return pa.bool_() if all(pa.types.is_boolean(data_type) for data_type in types) else None


def _test(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return pa.bool_()


def _match(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return pa.bool_() if all(map(is_string, types)) else None


def _text(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return pa.string() if all(map(is_string, types)) else None


def _substring(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return pa.string() if is_string(types[0]) and all(map(is_integer, types[1:])) else None


def _length(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return pa.int32() if is_string(types[0]) else None


def _extract(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return pa.int32() if pa.types.is_date(types[0]) or pa.types.is_timestamp(types[0]) else None


def _coalesce(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return types[0] if all(data_type == types[0] for data_type in types) else None


def _average(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    total, count = types
    return average_type(total) if _number((total,)) is not None and is_integer(count) else None


def _list_length(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return pa.int64() if pa.types.is_list(types[0]) else None


_MANY = 1 << 20

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        function.name: function
        for function in (
            Function("add", ("add", "plus"), 2, 2, _add),
            Function("subtract", ("subtract", "minus"), 2, 2, _add),
            Function("multiply", ("multiply",), 2, 2, _multiply),
            Function("divide", ("divide",), 2, 2, _divide),
            Function("modulus", ("modulus", "modulo", "mod"), 2, 2, _modulus),
            Function("negate", ("negate", "negative"), 1, 1, _negate),
            Function("abs", ("abs",), 1, 1, _number),
            Function("equal", ("equal", "eq"), 2, 2, _comparison),
            Function("not_equal", ("not_equal", "ne", "neq"), 2, 2, _comparison),
            Function("less", ("lt",), 2, 2, _comparison),
            Function("less_equal", ("lte",), 2, 2, _comparison),
            Function("greater", ("gt",), 2, 2, _comparison),
            Function("greater_equal", ("gte",), 2, 2, _comparison),
            Function("is_distinct_from", ("is_distinct_from",), 2, 2, _comparison),
            Function("is_not_distinct_from", ("is_not_distinct_from",), 2, 2, _comparison),
            Function("and", ("and",), 1, _MANY, _logical),
            Function("or", ("or",), 1, _MANY, _logical),
            Function("not", ("not",), 1, 1, _logical),
            Function("is_null", ("is_null", "is_unknown"), 1, 1, _test),
            Function("is_not_null", ("is_not_null", "is_not_unknown"), 1, 1, _test),
            Function("is_true", ("is_true",), 1, 1, _logical),
            Function("is_false", ("is_false",), 1, 1, _logical),
            Function("is_not_true", ("is_not_true",), 1, 1, _logical),
            Function("is_not_false", ("is_not_false",), 1, 1, _logical),
            Function("like", ("like",), 2, 2, _match),
            Function("ilike", ("ilike",), 2, 2, _match),
            Function("starts_with", ("starts_with",), 2, 2, _match),
            Function("substring", ("substring", "substr"), 2, 3, _substring),
            Function("upper", ("upper",), 1, 1, _text),
            Function("lower", ("lower",), 1, 1, _text),
            Function("length", ("char_length", "character_length", "length"), 1, 1, _length),
            Function("concat", ("concat", "str_concat"), 1, _MANY, _text),
            Function("extract", ("extract", "date_part"), 1, 1, _extract),
            Function("coalesce", ("coalesce",), 1, _MANY, _coalesce),
            Function("average", (), 2, 2, _average),
            Function("list_length", (), 1, 1, _list_length),
        )
    }
)
"""Every scalar function that a plan may call, by its name in plans."""

BY_SUBSTRAIT_NAME: Mapping[str, str] = MappingProxyType(
    {alias: function.name for function in FUNCTIONS.values() for alias in function.aliases}
)
"""Names in plans by names in Substrait."""

COMPARISONS = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}) | frozenset(
    {"is_distinct_from", "is_not_distinct_from"}
)
ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide", "modulus"})


def result_type(name: str, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """Return the type of a call's result.

    Parameters
    ----------
    name : str
        A key of ``FUNCTIONS``.
    types : tuple of pyarrow.DataType
        Types of the arguments, already brought to a common type where the function needs one.

    Raises
    ------
    Unsupported
        If there is no such function, or it does not take such arguments.

    >>> result_type("multiply", (pa.decimal128(15, 2), pa.decimal128(15, 2)))
    Decimal128Type(decimal128(31, 4))
    """
    function = FUNCTIONS.get(name)
    if function is None:
        raise Unsupported(f"the function {name} is not supported")
    if not function.minimum <= len(types) <= function.maximum:
        raise Unsupported(f"{name} with {len(types)} arguments is not supported")
    result = function.rule(types)
    if result is None:
        raise Unsupported(f"{name}({', '.join(map(str, types))}) is not supported")
    return result


def arithmetic_types(left: pa.DataType, right: pa.DataType) -> tuple[pa.DataType, pa.DataType] | None:
    """Return the types that the operands of an arithmetic operator are cast to, or ``None`` if there are none.

    >>> arithmetic_types(pa.int64(), pa.decimal128(15, 2))
    (Decimal128Type(decimal128(20, 0)), Decimal128Type(decimal128(15, 2)))
    """
    if is_decimal(left) and is_decimal(right):
        return left, right
    if is_decimal(left) and right in EXACT_DIGITS:
        return left, pa.decimal128(EXACT_DIGITS[right], 0)
    if is_decimal(right) and left in EXACT_DIGITS:
        return pa.decimal128(EXACT_DIGITS[left], 0), right
    common = _common_number(left, right)
    return None if common is None else (common, common)


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type in which two values are compared or joined, or ``None`` if they cannot be.

    >>> common_type(pa.decimal128(15, 2), pa.int64())
    Decimal128Type(decimal128(22, 2))
    """
    if left == right:
        return left
    if pa.types.is_null(left) or pa.types.is_null(right):
        return right if pa.types.is_null(left) else left
    if is_decimal(left) or is_decimal(right):
        left_digits, right_digits = _as_decimal(left), _as_decimal(right)
        if left_digits is None or right_digits is None:
            return None
        scale = max(left_digits[1], right_digits[1])
        return decimal(max(left_digits[0] - left_digits[1], right_digits[0] - right_digits[1]) + scale, scale)
    if _temporal(left) and _temporal(right):
        return _common_time(left, right)
    return _common_number(left, right)


def _as_decimal(data_type: pa.DataType) -> tuple[int, int] | None:
    """Return the digits and scale that DataFusion gives a number that is compared with a decimal."""
    if is_decimal(data_type):
        return data_type.precision, data_type.scale
    if data_type in EXACT_DIGITS:
        return EXACT_DIGITS[data_type], 0
    if data_type == pa.float32():
        return 14, 7
    if data_type == pa.float64():
        return 30, 15
    return None


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if left == right:
        return left if is_integer(left) or is_floating(left) else None
    numbers = (is_integer(left) or is_floating(left) or is_decimal(left)) and (
        is_integer(right) or is_floating(right) or is_decimal(right)
    )
    if not numbers:
        return None
    if is_floating(left) or is_floating(right):
        return pa.float64() if pa.float64() in (left, right) else pa.float32()
    if pa.types.is_signed_integer(left) == pa.types.is_signed_integer(right):
        return left if left.bit_width >= right.bit_width else right
    signed, unsigned = (left, right) if pa.types.is_signed_integer(left) else (right, left)
    if unsigned == pa.uint64():
        return pa.decimal128(20, 0)
    wide = {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}[unsigned.bit_width]
    return signed if signed.bit_width >= wide.bit_width else wide


def _temporal(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_date(data_type) or pa.types.is_timestamp(data_type))


def _common_time(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the finer timestamp; a date counts as its midnight."""
    if pa.types.is_date(left) or pa.types.is_date(right):
        return right if pa.types.is_date(left) else left
    if (left.tz is None) != (right.tz is None):
        return None
    order = ("s", "ms", "us", "ns")
    unit = max(left.unit, right.unit, key=order.index)
    return pa.timestamp(unit, left.tz)
