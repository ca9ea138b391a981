"""Random tables: few different values, so that rows meet, among them the values that code forgets."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

NAN, INFINITY = float("nan"), float("inf")

INTEGERS = {
    "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "uint8": pa.uint8(), "uint16": pa.uint16(), "uint32": pa.uint32(), "uint64": pa.uint64(),
}  # fmt: skip

TEXTS = (
    "", "a", "b", "ab", "abc", "B", "Z", "é", "É", "ß", "日本", "🂡", "a%b", "a_b", " a ", "NULL", "12", "-3", "a\nb",
    "\uffff", "abcabcabc", "z" * 40,
)  # fmt: skip

DAYS = tuple(
    datetime.date.fromisoformat(text)
    for text in ("1970-01-01", "1969-12-31", "2000-02-29", "1999-12-31", "2024-02-29", "2024-03-01", "1900-03-01",
                 "2038-01-19", "1995-06-17", "1998-09-02", "0001-01-01", "9999-12-31")
)  # fmt: skip

MOMENTS = tuple(
    datetime.datetime.fromisoformat(text)
    for text in ("1970-01-01T00:00:00", "1969-12-31T23:59:59.999999", "2000-02-29T12:30:15.5", "2024-02-29T23:59:59",
                 "1995-06-17T00:00:00.000001", "2038-01-19T03:14:08", "1999-12-31T23:59:59.999999")
)  # fmt: skip


@dataclass(frozen=True)
class ColumnSpec:
    """A column of a random table.

    Attributes
    ----------
    name : str
    kind : str
        What expressions may do with it: ``int``, ``unsigned``, ``float``, ``decimal``, ``bool``, ``text``, ``date`` or
        ``moment``.
    wild : bool
        It may have extremes, with which arithmetic overflows.
    type : pyarrow.DataType
    """

    name: str
    kind: str
    wild: bool
    type: pa.DataType


@dataclass(frozen=True)
class TableSpec:
    """A random table, and how it is stored.

    Attributes
    ----------
    row_group : int
        Rows of a row group; 0: the table stays in memory.
    """

    name: str
    columns: tuple[ColumnSpec, ...]
    table: pa.Table = field(repr=False)
    row_group: int = 1


def random_tables(choose: random.Random) -> tuple[TableSpec, ...]:
    """Make one to three tables."""
    return tuple(_table(choose, f"t{number}") for number in range(choose.choice((1, 2, 2, 3))))


def _table(choose: random.Random, name: str) -> TableSpec:
    rows = choose.choice((0, 1, 2, 5, 8, 8, 13, 13, 21, 21, 34, 55))
    # Every table can be joined, summed, compared and matched with every other.
    makers = [_integer, _integer, _text, *choose.choices(MAKERS, k=choose.randint(1, 5))]
    specs, arrays = [], []
    for number, make in enumerate(makers):
        kind, wild, data_type, pool = make(choose)
        nulls = choose.choice((0.0, 0.0, 0.15, 0.4, 1.0 if choose.random() < 0.15 else 0.3))
        values = [None if choose.random() < nulls else choose.choice(pool) for _ in range(rows)]
        array = pa.array(values, data_type)
        if kind == "text":
            array = array.cast(choose.choice((pa.string(), pa.large_string(), pa.string_view())))
            if choose.random() < 0.4:
                array = array.cast(pa.string()).dictionary_encode()
        specs.append(ColumnSpec(f"{'iiufdbstmx'[min(number, 9)]}{number}", kind, wild, data_type))
        arrays.append(array)
    table = pa.Table.from_arrays(arrays, names=[spec.name for spec in specs])
    row_group = choose.choice((0, 1, 2, 3, 7, 100))
    return TableSpec(name, tuple(specs), table, row_group)


def _integer(choose: random.Random) -> tuple[str, bool, pa.DataType, Sequence[Any]]:
    name = choose.choice(("int8", "int16", "int32", "int64", "int64", "int32"))
    return "int", False, INTEGERS[name], range(-3, choose.choice((1, 4, 10)))


def _wild_integer(choose: random.Random) -> tuple[str, bool, pa.DataType, Sequence[Any]]:
    bits = choose.choice((8, 16, 32, 64))
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return "int", True, INTEGERS[f"int{bits}"], (low, low + 1, -1, 0, 1, 2, high - 1, high)


def _unsigned(choose: random.Random) -> tuple[str, bool, pa.DataType, Sequence[Any]]:
    bits = choose.choice((8, 16, 32, 64))
    return "unsigned", True, INTEGERS[f"uint{bits}"], (0, 1, 2, 3, 2 ** (bits - 1), 2**bits - 1)


def _float(choose: random.Random) -> tuple[str, bool, pa.DataType, Sequence[Any]]:
    # Sums of these are exact in any order.
    pool = [0.0, 1.0, -1.0, 0.5, -2.25, 3.75, 100.0]
    if choose.random() < 0.5:
        pool += [NAN, INFINITY, -INFINITY, -0.0]
    return "float", False, choose.choice((pa.float64(), pa.float64(), pa.float32())), pool


def _wild_float(choose: random.Random) -> tuple[str, bool, pa.DataType, Sequence[Any]]:
    return "float", True, pa.float64(), (0.1, 1e308, -1e308, 5e-324, 1e-300, 1 / 3, NAN, INFINITY, -0.0, 0.0, 2.0**53)


def _decimal(choose: random.Random) -> tuple[str, bool, pa.DataType, Sequence[Any]]:
    precision, scale = choose.choice(((4, 1), (9, 2), (15, 2), (18, 4)))
    unit = Decimal(1).scaleb(-scale)
    return "decimal", False, pa.decimal128(precision, scale), [unit * n for n in (0, 1, -1, 5, 10, 15, -25, 100, 999)]


def _wild_decimal(choose: random.Random) -> tuple[str, bool, pa.DataType, Sequence[Any]]:
    precision, scale = choose.choice(((18, 0), (18, 18), (19, 2), (38, 0), (38, 10), (38, 38)))
    top = 10**precision - 1
    numbers = (0, 1, -1, 7, top, -top, top - 1, 10 ** (precision - 1), 2**63 % top, top // 3)
    return "decimal", True, pa.decimal128(precision, scale), [_unscaled(n, scale) for n in numbers]


def _unscaled(number: int, scale: int) -> Decimal:
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _bool(choose: random.Random) -> tuple[str, bool, pa.DataType, Sequence[Any]]:
    return "bool", False, pa.bool_(), (True, False)


def _text(choose: random.Random) -> tuple[str, bool, pa.DataType, Sequence[Any]]:
    return "text", False, pa.string(), choose.choice((TEXTS[:4], TEXTS[:8], TEXTS[4:12], TEXTS))


def _date(choose: random.Random) -> tuple[str, bool, pa.DataType, Sequence[Any]]:
    return "date", False, pa.date32(), DAYS if choose.random() < 0.2 else DAYS[:10]


def _moment(choose: random.Random) -> tuple[str, bool, pa.DataType, Sequence[Any]]:
    return "moment", False, pa.timestamp("us"), MOMENTS


MAKERS = (
    _integer, _wild_integer, _unsigned, _float, _float, _wild_float, _decimal, _decimal, _wild_decimal, _bool, _text,
    _date, _moment,
)  # fmt: skip
