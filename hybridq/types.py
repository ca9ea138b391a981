"""The type system: Arrow's data types, normalised, and SQL's rules about them.

A plan's types are ``pyarrow.DataType`` objects. Storage forms of one logical type (``string_view``, ``large_string``,
dictionaries) are normalised away where data enters the plan, so that two columns have the same logical type exactly
when their normalised types are equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

MAX_DECIMAL_DIGITS = 38
"""Decimal digits of the widest decimal type, decimal128(38, s)."""

NARROW_DECIMAL_DIGITS = 18
"""Decimal digits that always fit a scaled signed 64-bit integer."""


@dataclass(frozen=True, slots=True)
class Field:
    """A named, typed column of a schema.

    Attributes
    ----------
    name : str
        Column name, unique within its schema.
    type : pyarrow.DataType
        Normalised logical type.
    """

    name: str
    type: pa.DataType


Schema = tuple[Field, ...]


def normalize(data_type: pa.DataType) -> pa.DataType:
    """Return the logical type behind a storage type.

    >>> normalize(pa.dictionary(pa.int32(), pa.large_string()))
    DataType(string)
    """
    if pa.types.is_dictionary(data_type):
        return normalize(data_type.value_type)
    if pa.types.is_large_string(data_type) or data_type == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(data_type) or data_type == pa.binary_view():
        return pa.binary()
    if pa.types.is_decimal(data_type):
        return pa.decimal128(min(data_type.precision, MAX_DECIMAL_DIGITS), data_type.scale)
    if pa.types.is_large_list(data_type) or pa.types.is_list(data_type):
        return pa.list_(normalize(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(field.name, normalize(field.type)) for field in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(normalize(data_type.key_type), normalize(data_type.item_type))
    return _EQUIVALENT.get(data_type, pa.binary() if pa.types.is_fixed_size_binary(data_type) else data_type)


_EQUIVALENT = {pa.float16(): pa.float32(), pa.date64(): pa.date32()}
"""Storage types whose values all are values of another type."""


def declared(data_type: pa.DataType) -> pa.DataType:
    """Return the logical type of a table's column: that of a column of NULLs only, which has none, is int32.

    >>> declared(pa.null())
    DataType(int32)
    """
    return pa.int32() if pa.types.is_null(data_type) else normalize(data_type)


def is_decimal(data_type: pa.DataType) -> bool:
    """Tell whether the type is a decimal."""
    return bool(pa.types.is_decimal(data_type))


def is_integer(data_type: pa.DataType) -> bool:
    """Tell whether the type is an integer of any width."""
    return bool(pa.types.is_integer(data_type))


def is_floating(data_type: pa.DataType) -> bool:
    """Tell whether the type is a floating-point number."""
    return bool(pa.types.is_floating(data_type))


def is_string(data_type: pa.DataType) -> bool:
    """Tell whether the (normalised) type is a string."""
    return bool(pa.types.is_string(data_type))


def is_time(data_type: pa.DataType) -> bool:
    """Tell whether the type is a date or a timestamp."""
    return bool(pa.types.is_date(data_type) or pa.types.is_timestamp(data_type))


def is_interval(data_type: pa.DataType) -> bool:
    """Tell whether the type is an interval of months, days and nanoseconds."""
    return bool(pa.types.is_interval(data_type))


def is_nested(data_type: pa.DataType) -> bool:
    """Tell whether the type is a list, a struct or a map."""
    return bool(pa.types.is_nested(data_type))


def same_shape(left: pa.DataType, right: pa.DataType) -> bool:
    """Tell whether two types differ in nothing but the names of structs' fields.

    >>> same_shape(pa.list_(pa.struct({"a": pa.int8()})), pa.list_(pa.struct({"b": pa.int8()})))
    True
    """
    if pa.types.is_list(left) and pa.types.is_list(right):
        return same_shape(left.value_type, right.value_type)
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        pairs = zip(left.fields, right.fields, strict=False)
        return left.num_fields == right.num_fields and all(same_shape(a.type, b.type) for a, b in pairs)
    if pa.types.is_map(left) and pa.types.is_map(right):
        return same_shape(left.key_type, right.key_type) and same_shape(left.item_type, right.item_type)
    return bool(left == right)


def is_fixed_width(data_type: pa.DataType) -> bool:
    """Tell whether values of the type have the same number of bytes each (bits, of booleans, do not count)."""
    return bool(pa.types.is_primitive(data_type) or is_decimal(data_type)) and not pa.types.is_boolean(data_type)


def is_text(data_type: pa.DataType) -> bool:
    """Tell whether values of the type, whatever its form in storage, are characters or bytes."""
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_fixed_size_binary(data_type)
        or data_type in (pa.string_view(), pa.binary_view())
    )


def is_splittable(data_type: pa.DataType) -> bool:
    """Tell whether rows can be split by columns of a type (``hybridq.engines.split``)."""
    if pa.types.is_dictionary(data_type):
        return is_splittable(data_type.value_type)
    whole = is_integer(data_type) or pa.types.is_temporal(data_type) or pa.types.is_boolean(data_type)
    number = whole or is_floating(data_type) or pa.types.is_decimal128(data_type) or pa.types.is_null(data_type)
    return bool(number or is_text(data_type)) and not is_interval(data_type)


def to_arrow_schema(schema: Schema) -> pa.Schema:
    """Convert to an Arrow schema, all fields nullable."""
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def sum_type(argument: pa.DataType) -> pa.DataType:
    """Return the type of SUM over a column: decimal(38, s), int64, uint64 or float64."""
    if is_decimal(argument):
        return pa.decimal128(MAX_DECIMAL_DIGITS, argument.scale)
    if pa.types.is_unsigned_integer(argument):
        return pa.uint64()
    if is_integer(argument):
        return pa.int64()
    return pa.float64()


def average_type(argument: pa.DataType) -> pa.DataType:
    """Return the type of AVG over a column: four more digits of scale for decimals, float64 for other numbers.

    >>> average_type(pa.decimal128(15, 2))
    Decimal128Type(decimal128(19, 6))
    """
    if is_decimal(argument):
        scale = min(argument.scale + 4, MAX_DECIMAL_DIGITS)
        return pa.decimal128(min(argument.precision + 4, MAX_DECIMAL_DIGITS), scale)
    return pa.float64()
