"""Types of the results of functions of lists, from the types of their arguments; ``None``: they do not take such."""

from __future__ import annotations

import pyarrow as pa

from hybridq.plan.type_rules import TypeRule, Types
from hybridq.types import is_integer, is_interval, is_nested, is_string


def _is_list(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(data_type))


def _is_flat(data_type: pa.DataType) -> bool:
    """Tell whether a type is of lists of values that can be compared."""
    return _is_list(data_type) and not is_nested(data_type.value_type) and not is_interval(data_type.value_type)


def lengths(types: Types) -> pa.DataType | None:
    """A list; the result is an unsigned integer."""
    return pa.uint64() if _is_list(types[0]) else None


def element(types: Types) -> pa.DataType | None:
    """A list and an integer; the result is of the list's values."""
    values, position = types
    return values.value_type if _is_list(values) and is_integer(position) else None


def has(types: Types) -> pa.DataType | None:
    """A list, and one of its values."""
    values, value = types
    return pa.bool_() if _is_flat(values) and values.value_type == value else None


def has_several(types: Types) -> pa.DataType | None:
    """Two lists of one type."""
    left, right = types
    return pa.bool_() if left == right and _is_flat(left) else None


def position(types: Types) -> pa.DataType | None:
    """A list, one of its values, and perhaps a place."""
    values, value, *rest = types
    fits = _is_flat(values) and values.value_type == value and all(map(is_integer, rest))
    return pa.uint64() if fits else None


def positions(types: Types) -> pa.DataType | None:
    """A list and one of its values; the result is a list of places."""
    return pa.list_(pa.uint64()) if has(types) else None


def extreme(types: Types) -> pa.DataType | None:
    """A list; the result is one of its values."""
    return types[0].value_type if _is_flat(types[0]) else None


def written(types: Types) -> pa.DataType | None:
    """A list of anything that has a text, and texts."""
    values, *texts = types
    plain = _is_flat(values) and not pa.types.is_duration(values.value_type)
    return pa.string() if plain and all(map(is_string, texts)) else None


def of_values(types: Types) -> pa.DataType | None:
    """Values of one type; the result is a list of them, and without any one of integers."""
    if not types:
        return pa.list_(pa.int64())
    return pa.list_(types[0]) if all(each == types[0] for each in types) else None


def repeated(types: Types) -> pa.DataType | None:
    """A value and a number of times."""
    return pa.list_(types[0]) if is_integer(types[1]) else None


def series(types: Types) -> pa.DataType | None:
    """Whole numbers; the result is a list of such."""
    return pa.list_(pa.int64()) if all(map(is_integer, types)) and pa.uint64() not in types else None


def joined(types: Types) -> pa.DataType | None:
    """Lists of one type, which the result has."""
    return types[0] if _is_list(types[0]) and all(each == types[0] for each in types) else None


def same(types: Types) -> pa.DataType | None:
    """A list, whose type the result has."""
    return types[0] if _is_list(types[0]) else None


def flat(types: Types) -> pa.DataType | None:
    """Lists of one type, of values that can be compared; the result has their type."""
    return types[0] if _is_flat(types[0]) and all(each == types[0] for each in types) else None


def flattened(types: Types) -> pa.DataType | None:
    """A list of lists; the result is one of these."""
    return types[0].value_type if _is_list(types[0]) and _is_list(types[0].value_type) else None


def cut(types: Types) -> pa.DataType | None:
    """A list and integers; the result has the list's type."""
    return types[0] if _is_list(types[0]) and all(map(is_integer, types[1:])) else None


def resized(types: Types) -> pa.DataType | None:
    """A list, an integer, and perhaps a value; the result has the list's type."""
    values, length, *fill = types
    fits = _is_list(values) and is_integer(length) and all(each == values.value_type for each in fill)
    return values if fits else None


def changed(count: int) -> TypeRule:
    """A list, so many of its values, and perhaps an integer; the result has the list's type."""

    def rule(types: Types) -> pa.DataType | None:
        values, *rest = types
        fits = _is_flat(values) and all(each == values.value_type for each in rest[:count])
        return values if fits and all(map(is_integer, rest[count:])) else None

    return rule


def parts(types: Types) -> pa.DataType | None:
    """Texts; the result is a list of such."""
    return pa.list_(pa.string()) if all(map(is_string, types)) else None


def field(types: Types) -> pa.DataType | None:
    """A struct; which of its fields' types the result has, the name tells."""
    return pa.null() if pa.types.is_struct(types[0]) else None


def map_element(types: Types) -> pa.DataType | None:
    """A map and a key; the result is one of its values."""
    values, key = types
    return values.item_type if pa.types.is_map(values) and values.key_type == key else None


def map_keys(types: Types) -> pa.DataType | None:
    """A map; the result is a list."""
    return pa.list_(types[0].key_type) if pa.types.is_map(types[0]) else None


def map_values(types: Types) -> pa.DataType | None:
    """A map; the result is a list."""
    return pa.list_(types[0].item_type) if pa.types.is_map(types[0]) else None


def map_length(types: Types) -> pa.DataType | None:
    """A map; the result is an unsigned integer."""
    return pa.uint64() if pa.types.is_map(types[0]) else None
