"""Arrow's types by the names that DataFusion's plans print."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

_PLAIN = {
    "Null": pa.null(), "Boolean": pa.bool_(), "Int8": pa.int8(), "Int16": pa.int16(), "Int32": pa.int32(),
    "Int64": pa.int64(), "UInt8": pa.uint8(), "UInt16": pa.uint16(), "UInt32": pa.uint32(), "UInt64": pa.uint64(),
    "Float16": pa.float16(), "Float32": pa.float32(), "Float64": pa.float64(), "Utf8": pa.string(),
    "LargeUtf8": pa.string(), "Utf8View": pa.string(), "Binary": pa.binary(), "LargeBinary": pa.binary(),
    "BinaryView": pa.binary(), "Date32": pa.date32(), "Interval(MonthDayNano)": pa.month_day_nano_interval(),
}  # fmt: skip
_UNITS = {"s": "s", "ms": "ms", "µs": "us", "μs": "us", "ns": "ns"}
_WORD = re.compile(r"[A-Za-z0-9]+")
_DECIMAL = re.compile(r"Decimal(?:32|64|128|256)\((\d+), (-?\d+)\)")
_TIME = re.compile(r'(Timestamp|Duration)\((\w+)(?:, "([^"]*)")?\)')
_FIELD = re.compile(r'"((?:[^"\\]|\\.)*)": (?:non-null )?')
_LIST = re.compile(r"(?:Large)?List(?:View)?\((?:non-null )?")
_ENDING = re.compile(r", field: '[^']*'|, metadata: \{[^}]*\}")


def type_at(text: str, start: int) -> tuple[pa.DataType, int] | None:
    """Read the name of a type.

    Parameters
    ----------
    text : str
    start : int
        Where the name begins.

    Returns
    -------
    (pyarrow.DataType, int) or None
        The type, and where its name ends; ``None``: it is no name of a type that is known here.

    >>> type_at('x:List(Struct("a b": Int64, "c": Decimal128(9, 2)));N', 2)
    (ListType(list<item: struct<a b: int64, c: decimal128(9, 2)>>), 51)
    """
    if (match := _LIST.match(text, start)) is not None:
        return _closed(text, type_at(text, match.end()), pa.list_)
    if text.startswith("Struct(", start):
        return _struct(text, start + len("Struct("))
    if (match := _DECIMAL.match(text, start)) is not None:
        return pa.decimal128(int(match[1]), int(match[2])), match.end()
    if (match := _TIME.match(text, start)) is not None and match[2] in _UNITS:
        unit = _UNITS[match[2]]
        return (pa.timestamp(unit, match[3]) if match[1] == "Timestamp" else pa.duration(unit)), match.end()
    for name in ("Interval(MonthDayNano)", *([] if (word := _WORD.match(text, start)) is None else [word[0]])):
        if name in _PLAIN and text.startswith(name, start):
            return _PLAIN[name], start + len(name)
    return None


def _closed(
    text: str, inner: tuple[pa.DataType, int] | None, made: Callable[[pa.DataType], pa.DataType]
) -> tuple[pa.DataType, int] | None:
    if inner is None:
        return None
    data_type, end = inner
    while (ending := _ENDING.match(text, end)) is not None:
        end = ending.end()
    return (made(data_type), end + 1) if text.startswith(")", end) else None


def _struct(text: str, start: int) -> tuple[pa.DataType, int] | None:
    fields: list[pa.Field] = []
    while (match := _FIELD.match(text, start)) is not None:
        found = type_at(text, match.end())
        if found is None:
            return None
        fields.append(pa.field(match[1], found[0]))
        start = found[1]
        if text.startswith(")", start):
            return pa.struct(fields), start + 1
        if not text.startswith(", ", start):
            return None
        start += 2
    return None
