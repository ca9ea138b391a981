"""Functions of other databases that mean the same in all that have them, written as what they stand for.

WEEK, ADD_MONTHS, ARG_MAX and the like do not: what to write in their place is said where they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from hybridq.frontend.sql_clauses import places
from hybridq.frontend.sql_parts import SubqueryReader
from hybridq.frontend.sql_text import changed, tokens

Written = Callable[[Sequence[str]], str | None]
"""Writes a call by the texts of its arguments; ``None``: not with these."""

_PARTS = ("year", "quarter", "month", "day", "hour", "minute", "second")
_DAYS = "(cast({1} as date) - cast({0} as date))"
_BETWEEN: Mapping[str, str] = {
    "day": _DAYS,
    "month": "((extract(year from {1}) - extract(year from {0})) * 12 + extract(month from {1}) - "
    "extract(month from {0}))",
    "quarter": "((extract(year from {1}) - extract(year from {0})) * 4 + extract(quarter from {1}) - "
    "extract(quarter from {0}))",
    "year": "(extract(year from {1}) - extract(year from {0}))",
}
"""Borders of a unit between two times."""


def _form(written: str, count: int) -> Written:
    return lambda arguments: written.format(*arguments) if len(arguments) == count else None


def _difference(arguments: Sequence[str]) -> str | None:
    """Write DATEDIFF: of (unit, from, to), of (to, from, unit), or of (to, from) in days."""
    if len(arguments) == 2:
        return _DAYS.format(arguments[1], arguments[0])
    if len(arguments) != 3:
        return None
    for unit, begin, end in (arguments, (arguments[2], arguments[1], arguments[0])):
        written = _BETWEEN.get(_unit(unit))
        if written is not None:
            return written.format(begin, end)
    return None


def _later(arguments: Sequence[str]) -> str | None:
    """Write DATEADD: of (unit, number, time), or of (time, interval)."""
    if len(arguments) == 2 and arguments[1].lower().startswith("interval "):
        return f"({arguments[0]} + {arguments[1]})"
    if len(arguments) != 3 or not re.fullmatch(r"-?\d+", arguments[1]):
        return None
    unit = _unit(arguments[0])
    return f"({arguments[2]} + interval '{arguments[1]} {unit}')" if unit in (*_PARTS, "week") else None


def _unit(text: str) -> str:
    return text.strip("'").lower().removesuffix("s")


def _time_text(arguments: Sequence[str]) -> str | None:
    plain = len(arguments) == 2 and arguments[1].startswith("'")
    return f"to_char({arguments[0]}, {arguments[1]})" if plain else None


_CHOICE = _form("(case when {0} then {1} else {2} end)", 3)

MACROS: Mapping[str, Written] = {
    **{part: _form(f"extract({part} from {{0}})", 1) for part in _PARTS},
    "weekofyear": _form("extract(week from {0})", 1),
    "dayofyear": _form("extract(doy from {0})", 1),
    "dayofmonth": _form("extract(day from {0})", 1),
    "date_diff": _difference, "datediff": _difference,
    "date_add": _later, "dateadd": _later,
    "last_day": _form("cast(date_trunc('month', {0}) + interval '1 month' - interval '1 day' as date)", 1),
    "strftime": _time_text,
    "if": _CHOICE, "iff": _CHOICE, "iif": _CHOICE,
    "mod": _form("(({0}) % ({1}))", 2), "zeroifnull": _form("coalesce({0}, 0)", 1),
    "len": _form("length({0})", 1), "ucase": _form("upper({0})", 1), "lcase": _form("lower({0})", 1),
    "charindex": _form("strpos({1}, {0})", 2),
    "variance": _form("var_samp({0})", 1), "every": _form("bool_and({0})", 1),
    "countif": _form("count(case when {0} then 1 end)", 1), "count_if": _form("count(case when {0} then 1 end)", 1),
}  # fmt: skip
"""What functions stand for, by their names."""

_INTERVAL = re.compile(r"\*\s*interval\b|\binterval\s*'[^']*'\s*\w*\s*\*", re.IGNORECASE)
_ONE_UNIT = re.compile(r"'(-?\d+)( [a-zA-Z]+)?'")
_LISTS = frozenset({"listagg", "group_concat"})
_MAY_HAVE = re.compile(rf"\b(?:{'|'.join([*MACROS, *_LISTS])})\s*\(", re.IGNORECASE)


def with_macros_spelled_out(text: str) -> str:
    """Return the text with what functions of other databases stand for.

    >>> with_macros_spelled_out("select year(day), mod(a + 1, 3) from t")
    'select extract(year from day), ((a + 1) % (3)) from t'
    >>> with_macros_spelled_out("select listagg(s, '; ') within group (order by s desc) from t")
    "select string_agg(s, '; ' order by s desc) from t"
    >>> with_macros_spelled_out("select day + 3 * interval '2 days' - interval '1' month * 4 from t")
    "select day + interval '6 days' - interval '4 month' from t"
    """
    if _INTERVAL.search(text):
        text = changed(text, _Rewriting(text).products())
    before = ""
    while text != before and _MAY_HAVE.search(text):  # one may be in another's arguments
        before, text = text, _Rewriting(text).result()
    return text


class _Rewriting(SubqueryReader):
    def __init__(self, text: str) -> None:
        found = tokens(text)
        super().__init__(text, found, places(found))

    def result(self) -> str:
        """Return the text with the innermost calls written anew."""
        edits: list[tuple[int, int, str]] = []
        for position, token in enumerate(self._found):
            if token.kind != "word" or not self._is_call(position):
                continue
            closing = self._closing(position + 1)
            if any(self._is_call(each) for each in range(position + 1, closing)):
                continue
            span, arguments = (position, closing + 1), self._parts(position + 1)
            if token.value in _LISTS:
                span, written = self._list(span, arguments)
            else:
                written = MACROS[token.value]([each.strip() for each in arguments])
            if written is not None:
                edits.append((self._offset(span[0]), self._at(span[1] - 1)[1], written))
        return changed(self._text, edits)

    def products(self) -> Iterator[tuple[int, int, str]]:
        """Yield intervals that are multiplied with whole numbers, multiplied."""
        for position in range(len(self._found) - 1):
            one = _ONE_UNIT.fullmatch(self._found[position + 1].value)
            if self._value(position) != "interval" or one is None:
                continue
            last = position + 1 if one[2] else position + 2  # INTERVAL '1 day', INTERVAL '1' DAY
            if not one[2] and self._value(last).removesuffix("s") not in (*_PARTS, "week"):
                continue
            for begin, end, at in ((position - 2, last, position - 2), (position, last + 2, last + 2)):
                sign, number = (position - 1, at) if at < position else (last + 1, at)
                if self._value(sign) == "*" and self._whole(number) is not None:
                    count = int(one[1]) * int(self._whole(number) or 0)
                    unit = one[2] or f" {self._value(last)}"
                    yield self._offset(begin), self._at(end)[1], f"interval '{count}{unit}'"
                    break

    def _whole(self, position: int) -> str | None:
        """Return a whole number at a position, if one is there."""
        if not 0 <= position < len(self._found) or self._found[position].kind != "number":
            return None
        value = self._found[position].value
        return value if value.isdigit() and self._value(position - 1) != "." else None

    def _is_call(self, position: int) -> bool:
        token = self._found[position]
        if token.kind != "word" or (token.value not in MACROS and token.value not in _LISTS):
            return False
        if self._value(position + 1) != "(" or self._value(position - 1) in (".", "as", "with", "recursive"):
            return False
        after = self._closing(position + 1) + 1
        return not (self._value(after) == "as" and self._value(after + 1) == "(")  # WITH year (...) AS (...)

    def _list(self, span: tuple[int, int], arguments: Sequence[str]) -> tuple[tuple[int, int], str | None]:
        """Write LISTAGG, with what may be behind it, and GROUP_CONCAT."""
        if len(arguments) not in (1, 2) or " separator " in arguments[-1].lower():
            return span, None
        inside = ", ".join(arguments)
        if len(arguments) == 1:
            inside = re.sub(r"(?=\s+order\s+by\s|\Z)", ", ','", inside, count=1, flags=re.IGNORECASE)
        begin, end = span
        if self._value(end) == "within" and self._value(end + 2) == "(":
            closing = self._closing(end + 2)
            inside += f" {self._written((end + 3, closing))}"
            end = closing + 1
        return (begin, end), f"string_agg({inside})"
