"""Casts, written in another way before the text is planned.

DataFusion counts nanoseconds in TIMESTAMP; elsewhere it has microseconds, which reach all years that people use. And it
names ``cast(x AS type)`` as ``x``, so that two expressions that differ in casts only have one name, which it refuses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hybridq.frontend.sql_text import Token, tokens

MOST_CASTS = 100
"""Casts that are told apart."""

_TIMESTAMPS = frozenset({"timestamp", "timestamptz"})
_CASTS = frozenset({"cast", "try_cast"})
_NO_CALLS = frozenset(
    {"select", "distinct", "and", "or", "not", "by", "then", "else", "when", "case", "where", "having", "on", "in"}
)
_MARK = "coalesce("


def with_microseconds(text: str) -> str:
    """Return the text with TIMESTAMP(6) where a type is written as TIMESTAMP.

    >>> with_microseconds("select cast(a as timestamp), b::timestamptz, timestamp '2020-01-01' as timestamp from t")
    "select cast(a as timestamp(6)), b::timestamptz(6), timestamp(6) '2020-01-01' as timestamp from t"
    """
    found = tokens(text)
    ends = []
    callers: list[str] = []  # for each open parenthesis, the word before it
    for position, token in enumerate(found):
        if token.value == "(" and token.kind == "sign":
            callers.append(_value(found, position - 1))
        elif token.value == ")" and token.kind == "sign" and callers:
            callers.pop()
        elif token.kind == "word" and token.value in _TIMESTAMPS and _value(found, position + 1) != "(":
            cast = bool(callers) and callers[-1] in _CASTS and _value(found, position - 1) == "as"
            if cast or _after_colons(found, position) or _is_typed_text(found, position):
                ends.append(token.offset + len(token.value))
    for end in reversed(ends):
        text = f"{text[:end]}(6){text[end:]}"
    return text


def _is_typed_text(found: Sequence[Token], position: int) -> bool:
    """Tell whether a type stands before a text: TIMESTAMP '2020-01-01', perhaps WITH TIME ZONE between them."""
    following = position + 1
    words = [_value(found, number) for number in range(following, following + 3)]
    if words in (["with", "time", "zone"], ["without", "time", "zone"]):
        following += 3
    return following < len(found) and found[following].kind == "text"


def with_casts_told_apart(text: str) -> str:
    """Return the text with the operands of casts in COALESCE, as often as tells casts to different types apart.

    COALESCE of one value is that value. ``without_marks`` takes it out of names again.

    >>> with_casts_told_apart("select sum(x), sum(cast(x as double)), x::int from t")
    'select sum(x), sum(cast(coalesce(x) as double)), coalesce(coalesce(x))::int from t'
    """
    found = tokens(text)
    kinds: list[str] = []
    inserts: list[tuple[int, str]] = []
    for position, token in enumerate(found[:-1]):
        if token.kind == "word" and token.value in _CASTS and _value(found, position + 1) == "(":
            start: int | None = position + 2
            end = _as_of_cast(found, position + 1)
            target = None if end is None else _type_text(text, found, end + 1)
        elif token.value == ":" and _value(found, position + 1) == ":":
            start, end = _start_of_operand(found, position), position
            target = _type_text(text, found, position + 2)
        else:
            continue
        if end is None or start is None or target is None or found[start].value == "null":
            continue
        if target not in kinds:
            kinds.append(target)
        count = kinds.index(target) + 1
        before = found[end - 1]
        stop = before.offset + _length(text, found, end - 1)
        inserts += [(found[start].offset, _MARK * count), (stop, ")" * count)]
        if len(inserts) > 2 * MOST_CASTS:
            return text
    for offset, added in sorted(inserts, key=lambda each: each[0], reverse=True):
        text = text[:offset] + added + text[offset:]
    return text


def without_marks(name: str) -> str:
    """Return a column's name without what ``with_casts_told_apart`` put into it.

    >>> without_marks("sum(coalesce(coalesce(t.x))) + coalesce(t.x,t.y)")
    'sum(t.x) + coalesce(t.x,t.y)'
    """
    start = name.rfind(_MARK)
    while start >= 0:
        depth, single = 1, True
        for position in range(start + len(_MARK), len(name)):
            depth += {"(": 1, ")": -1}.get(name[position], 0)
            single = single and not (depth == 1 and name[position] == ",")
            if depth == 0:
                if single:
                    name = name[:start] + name[start + len(_MARK) : position] + name[position + 1 :]
                break
        start = name.rfind(_MARK, 0, start)
    return name


def _value(found: Sequence[Token], position: int) -> str:
    if not 0 <= position < len(found) or found[position].kind not in ("word", "sign"):
        return ""
    return found[position].value


def _length(text: str, found: Sequence[Token], position: int) -> int:
    """Return the length of a token as written."""
    end = found[position + 1].offset if position + 1 < len(found) else len(text)
    between = re.sub(r"--[^\n]*|/\*.*?\*/", lambda comment: " " * len(comment[0]), text[:end], flags=re.DOTALL)
    return len(between[found[position].offset :].rstrip())


def _after_colons(found: Sequence[Token], position: int) -> bool:
    return _value(found, position - 1) == ":" and _value(found, position - 2) == ":"


def _as_of_cast(found: Sequence[Token], opening: int) -> int | None:
    """Return the position of the AS that belongs to a cast's parenthesis."""
    depth = 0
    for position in range(opening, len(found)):
        depth += {"(": 1, ")": -1}.get(_value(found, position), 0)
        if depth == 0:
            return None
        if depth == 1 and _value(found, position) == "as":
            return position
    return None


def _type_text(text: str, found: Sequence[Token], position: int) -> str | None:
    """Return a type as written, with its digits: what tells types apart, no more."""
    if position >= len(found):
        return None
    end = position + 1
    if _value(found, end) == "(":
        while end < len(found) and _value(found, end) != ")":
            end += 1
    last = found[min(end, len(found) - 1)]
    return " ".join(text[found[position].offset : last.offset].lower().split()).rstrip(" ),")


def _start_of_operand(found: Sequence[Token], colons: int) -> int | None:
    """Return where the operand of ``::`` begins: a name, a constant, or what is in parentheses and perhaps called."""
    position = colons - 1
    if _value(found, position) == ")":
        depth = 0
        while position >= 0:
            depth += {")": 1, "(": -1}.get(_value(found, position), 0)
            if depth == 0:
                break
            position -= 1
        if (
            position > 0
            and found[position - 1].kind in ("word", "quoted")
            and found[position - 1].value not in _NO_CALLS
        ):
            position -= 1
    elif position < 0 or found[position].kind == "sign":
        return None
    if position >= 2 and _after_colons(found, position):
        return None  # a cast of a cast is told apart by the inner one
    while _value(found, position - 1) == "." and position >= 2:
        position -= 2
    return max(position, 0)
