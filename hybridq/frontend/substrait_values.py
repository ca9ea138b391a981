"""Types and literals of Substrait as Arrow types and plan literals."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from hybridq.errors import PlanFormatError, Unsupported
from hybridq.plan.expressions import Cast, Expression, Literal
from hybridq.types import MAX_DECIMAL_DIGITS, declared

UNSIGNED = 1
"""Type variation that DataFusion gives unsigned integers."""

DURATION = 1
"""Type variation that DataFusion gives durations, which are intervals of a fixed length."""

INTERVAL = pa.month_day_nano_interval()
"""How plans hold intervals."""

_SIMPLE = {
    "bool": pa.bool_(), "i8": pa.int8(), "i16": pa.int16(), "i32": pa.int32(), "i64": pa.int64(),
    "fp32": pa.float32(), "fp64": pa.float64(), "string": pa.string(), "fixed_char": pa.string(),
    "varchar": pa.string(), "binary": pa.binary(), "date": pa.date32(),
}  # fmt: skip
_UNSIGNED = {"i8": pa.uint8(), "i16": pa.uint16(), "i32": pa.uint32(), "i64": pa.uint64()}
_PLAIN_NAMES = {
    "precision_time": "time of day", "uuid": "UUID", "user_defined": "user-defined",
}  # fmt: skip
_UNITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_EPOCH = date(1970, 1, 1)
_EPOCH_TIME = datetime(1970, 1, 1)


def arrow_type(message: Any) -> pa.DataType:
    """Convert a ``substrait.Type``.

    Raises
    ------
    Unsupported
        For types that hybridq does not compute with (times of day and so on).
    PlanFormatError
        If the type is missing or impossible.
    """
    kind = message.WhichOneof("kind")
    if kind is None:
        raise PlanFormatError("the plan has a type of no kind")
    body = getattr(message, kind)
    if kind in _UNSIGNED and body.type_variation_reference == UNSIGNED:
        return _UNSIGNED[kind]
    if kind == "date" and body.type_variation_reference:
        raise Unsupported("dates with a time of day (date64) are not supported")
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind == "decimal":
        return decimal_type(body.precision, body.scale)
    if kind in ("precision_timestamp", "precision_timestamp_tz"):
        return _timestamp_type(body.precision, "UTC" if kind.endswith("_tz") else None)
    if kind == "interval_day" and body.type_variation_reference == DURATION:
        if body.precision not in _UNITS:
            raise Unsupported(f"durations of {body.precision} digits of a second are not supported")
        return pa.duration(_UNITS[body.precision])
    if kind in ("interval_year", "interval_day", "interval_compound"):
        return INTERVAL
    if kind == "list":
        return pa.list_(arrow_type(body.type))
    if kind == "user_defined" and not body.type_reference:
        return declared(pa.null())  # how DataFusion writes the type of a NULL that nothing decides
    if kind == "struct":
        # Names of fields are not part of Substrait's types; types of columns, which have them, take the place of these.
        return pa.struct([pa.field(str(place), arrow_type(item)) for place, item in enumerate(body.types)])
    if kind == "map":
        return pa.map_(arrow_type(body.key), arrow_type(body.value))
    raise Unsupported(f"values of type {_PLAIN_NAMES.get(kind, kind)} are not supported")


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """Return a decimal type, or say why there is none of so many digits."""
    if scale < 0:
        raise Unsupported(f"the type decimal({precision}, {scale}) is not supported: its scale is below 0")
    if not 1 <= precision <= MAX_DECIMAL_DIGITS or scale > MAX_DECIMAL_DIGITS:
        raise Unsupported(f"the type decimal({precision}, {scale}) is not supported: at most 38 digits are")
    return pa.decimal128(precision, scale)


def _timestamp_type(precision: int, zone: str | None) -> pa.DataType:
    if precision not in _UNITS:
        raise Unsupported(f"timestamps of {precision} digits of a second are not supported: 0, 3, 6 and 9 are")
    return pa.timestamp(_UNITS[precision], zone)


def name_count(message: Any) -> int:
    """Return how many names a type takes in ``NamedStruct.names``, beside its own: those of nested fields."""
    pending, count = [message], 0
    while pending:
        kind = (current := pending.pop()).WhichOneof("kind")
        if kind == "struct":
            count += len(current.struct.types)
            pending.extend(current.struct.types)
        elif kind == "list":
            pending.append(current.list.type)
        elif kind == "map":
            pending.extend((current.map.key, current.map.value))
    return count


def names_below(data_type: pa.DataType) -> int:
    """Return how many names of nested fields Substrait writes after the name of a column of that type.

    >>> names_below(pa.list_(pa.struct({"a": pa.int8(), "b": pa.struct({"c": pa.int8()})})))
    3
    """
    if pa.types.is_list(data_type):
        return names_below(data_type.value_type)
    if pa.types.is_struct(data_type):
        return sum(1 + names_below(field.type) for field in data_type)
    if pa.types.is_map(data_type):
        return names_below(data_type.key_type) + names_below(data_type.item_type)
    return 0


def literal(message: Any) -> Literal:
    """Convert a ``substrait.Expression.Literal``.

    Raises
    ------
    Unsupported
        For literals of types that hybridq does not compute with.
    PlanFormatError
        If the value does not fit its type.
    """
    kind = message.WhichOneof("literal_type")
    if kind is None:
        raise PlanFormatError("the plan has a literal of no type")
    value = getattr(message, kind)
    if kind == "boolean":
        return Literal(pa.bool_(), bool(value))
    if kind in _UNSIGNED:
        return _integer(kind, value, message.type_variation_reference == UNSIGNED)
    if kind in ("fp32", "fp64"):
        return Literal(_SIMPLE[kind], float(value))
    if kind in ("string", "fixed_char"):
        return Literal(pa.string(), value)
    if kind == "var_char":
        return Literal(pa.string(), value.value)
    if kind == "binary":
        return Literal(pa.binary(), value)
    if kind == "date":
        return Literal(pa.date32(), _date(value))
    if kind == "decimal":
        return _decimal(value)
    if kind in ("precision_timestamp", "precision_timestamp_tz"):
        return _timestamp(value, "UTC" if kind.endswith("_tz") else None)
    if kind == "null":
        return Literal(arrow_type(value), None)
    if kind.startswith("interval"):
        return _interval(kind, value)
    raise Unsupported(f"a constant of type {kind.replace('_', ' ')} is not supported here")


def constant(message: Any) -> Expression:
    """Convert a literal, also one that no Python value stands for: a timestamp finer than a microsecond."""
    kind = message.WhichOneof("literal_type")
    if kind in ("precision_timestamp", "precision_timestamp_tz"):
        value = getattr(message, kind)
        if value.precision > 6 and value.value % 10 ** (value.precision - 6):
            data_type = _timestamp_type(value.precision, "UTC" if kind.endswith("_tz") else None)
            return Cast(data_type, Literal(pa.int64(), value.value))
    return literal(message)


def _interval(kind: str, value: Any) -> Literal:
    """Convert an interval to months, days and nanoseconds."""
    years = value if kind == "interval_year_to_month" else getattr(value, "interval_year_to_month", None)
    days = value if kind == "interval_day_to_second" else getattr(value, "interval_day_to_second", None)
    months = 0 if years is None else 12 * years.years + years.months
    if days is None:
        return Literal(INTERVAL, (months, 0, 0))
    below = days.subseconds * 10 ** (9 - days.precision)
    return Literal(INTERVAL, (months, days.days, days.seconds * 10**9 + below))


def _integer(kind: str, value: int, unsigned: bool) -> Literal:
    bits = int(kind[1:])
    if unsigned:
        return Literal(_UNSIGNED[kind], value % (1 << bits))
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise PlanFormatError(f"the literal {value} does not fit its type {kind}")
    return Literal(_SIMPLE[kind], value)


def _date(days: int) -> date:
    try:
        return _EPOCH + timedelta(days=days)
    except OverflowError:
        raise Unsupported(f"a date {days} days from 1970 is not supported: years 1 to 9999 are") from None


def _decimal(message: Any) -> Literal:
    data_type = decimal_type(message.precision, message.scale)
    if len(message.value) != 16:
        raise PlanFormatError(f"a decimal literal has {len(message.value)} bytes instead of 16")
    unscaled = int.from_bytes(message.value, "little", signed=True)
    if abs(unscaled) >= 10**MAX_DECIMAL_DIGITS:
        raise PlanFormatError(f"a decimal literal does not fit decimal({message.precision}, {message.scale})")
    return Literal(data_type, scaled(unscaled, message.scale))


def scaled(unscaled: int, scale: int) -> Decimal:
    """Return ``unscaled / 10**scale`` exactly, with ``scale`` digits after the point.

    >>> scaled(2400, 2)
    Decimal('24.00')
    """
    return Decimal((1 if unscaled < 0 else 0, tuple(map(int, str(abs(unscaled)))), -scale))


def _timestamp(message: Any, zone: str | None) -> Literal:
    data_type = _timestamp_type(message.precision, zone)
    nanoseconds = message.value * 10 ** (9 - message.precision)
    if nanoseconds % 1000:
        raise Unsupported("constant timestamps finer than a microsecond are not supported")
    try:
        value = _EPOCH_TIME + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        raise Unsupported("a constant timestamp outside the years 1 to 9999 is not supported") from None
    return Literal(data_type, value.replace(tzinfo=UTC) if zone else value)
