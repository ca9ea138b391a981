"""Numbers with an exponent, written in another way before the text is planned: 1e3 is a DOUBLE, and 1000.0 a decimal.

DataFusion reads both as decimals, or both as DOUBLE.
"""

from __future__ import annotations

import math
import re

from hybridq.errors import NumericOverflow
from hybridq.frontend.sql_text import place, tokens

_APPROXIMATE = re.compile(r"(?:\d[\d_]*\.?\d*|\.\d+)[eE][+-]?\d+(?!\w)(?!\s+(?:preceding|following)\b)", re.IGNORECASE)
"""Offsets of frames are no expressions."""

_NAMED = re.compile(r'Utf8\("((?:\d[\d_]*\.?\d*|\.\d+)[eE][+-]?\d+) "\)')


def with_doubles(text: str) -> str:
    """Return the text with numbers that have an exponent as casts of their digits, and a blank, to DOUBLE.

    Raises
    ------
    NumericOverflow
        A number is too large.

    >>> with_doubles("select 1e3, -2.5E-3 * x, .5e1, 0x1e5, 1.5, 'a 1e3' from t")
    "select cast('1e3 ' as double), -cast('2.5E-3 ' as double) * x, cast('.5e1 ' as double), 0x1e5, 1.5, 'a 1e3' from t"
    """
    places: list[tuple[int, int]] = []
    point = -1  # where a point stands that no name or number is before
    end = 0
    for token in tokens(text):
        if token.kind == "number":
            start = point if point == token.offset - 1 and point >= 0 else token.offset
            match = _APPROXIMATE.match(text, start)
            if match is not None and start >= end:
                if math.isinf(float(match[0].replace("_", ""))):
                    line, column = place(text, start)
                    raise NumericOverflow(f"line {line}, column {column}: {match[0]} does not fit DOUBLE")
                places.append((start, match.end()))
                end = match.end()
        qualifies = token.offset > 0 and (text[token.offset - 1].isalnum() or text[token.offset - 1] in '_")`]')
        point = token.offset if token.kind == "sign" and token.value == "." and not qualifies else -1
    for start, stop in reversed(places):
        text = f"{text[:start]}cast('{text[start:stop].replace('_', '')} ' as double){text[stop:]}"
    return text


def with_numbers(name: str) -> str:
    """Return a column's name with the numbers that ``with_doubles`` has made texts of.

    >>> with_numbers('Utf8("1e3 ") * t.x')
    'Float64(1e3) * t.x'
    """
    return _NAMED.sub(r"Float64(\1)", name)
