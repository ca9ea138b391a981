"""Constants in DataFusion's names and messages, as SQL writes them."""

from __future__ import annotations

import re
from decimal import Context, Decimal

_TYPES = "Boolean|U?Int(?:8|16|32|64)|Float(?:32|64)|Decimal128|Date32|Utf8|LargeUtf8|Utf8View|None"
_CONSTANT = re.compile(
    rf"""(?<![\w.'"])(?:{_TYPES})\((?P<value>-?[\d.]+(?:[eE][+-]?\d+)?|NULL|true|false|"[^"']*")(?:,\d+,-?\d+)?\)"""
)
_DECIMAL = re.compile(r"""(?<![\w.'"])Decimal128\(Some\((?P<digits>-?\d+)\),\d+,(?P<scale>\d+)\)""")
_INTERVAL = re.compile(
    r'IntervalMonthDayNano\("IntervalMonthDayNano \{ months: (?P<months>-?\d+), days: (?P<days>-?\d+), '
    r'nanoseconds: (?P<nanoseconds>-?\d+) \}"\)'
)
_EXACT = Context(prec=76)


def with_constants(text: str) -> str:
    """Return a name or message with its constants as SQL writes them.

    >>> with_constants('max(Int64(1)) + Decimal128(Some(15),2,1) || Utf8("a")')
    "max(1) + 1.5 || 'a'"
    """
    text = _DECIMAL.sub(_decimal, text)
    text = _INTERVAL.sub(_interval, text)
    return _CONSTANT.sub(lambda found: found["value"].replace('"', "'"), text)


def _decimal(found: re.Match[str]) -> str:
    return format(Decimal(found["digits"]).scaleb(-int(found["scale"]), _EXACT), "f")


def _interval(found: re.Match[str]) -> str:
    parts = [f"{count} {unit}" for unit, count in found.groupdict().items() if count != "0"]
    return f"interval '{' '.join(parts) or '0 days'}'"
