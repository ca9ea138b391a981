"""Functions whose calls in Substrait have another form than in plans: options among the arguments, other names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce

import pyarrow as pa

from hybridq.errors import Unsupported
from hybridq.frontend.coercion import cast_to, common_type_of
from hybridq.frontend.list_forms import call_of, list_form
from hybridq.frontend.time_formats import parsed
from hybridq.plan.expressions import Call, Case, Cast, Expression, Literal
from hybridq.plan.functions import TIME_FORMATS, TRUNCATIONS
from hybridq.types import is_integer, is_interval, is_string, is_time

REGULAR_EXPRESSIONS: Mapping[str, tuple[bool, str]] = {
    "regex_match": (True, ""), "regex_not_match": (False, ""),
    "regex_imatch": (True, "i"), "regex_not_imatch": (False, "i"),
}  # fmt: skip
"""DataFusion's names of ``~`` and its kin: whether a match makes them true, and flags."""

_WITH_FLAGS = {"regexp_like": 2, "regexp_replace": 3, "regexp_count": 2, "regexp_match": 2}
"""Functions of regular expressions, and how many arguments come before the flags."""

_FLAGS = frozenset("cigs")
"""``i``: any case; ``g``: all matches (of REGEXP_REPLACE); ``s``: a dot matches a line's end; ``c``: as without it."""


OF_THE_MOMENT = frozenset({"now", "current_timestamp", "current_date", "today"})
"""Functions of the time at which the query was planned."""


_OF_EACH_ROW = frozenset({"random", "uuid"})


def moment_value(name: str, moment: datetime) -> Literal:
    """Return what a function of ``OF_THE_MOMENT`` is in a query of that moment, in UTC."""
    if name in ("current_date", "today"):
        return Literal(pa.date32(), moment.date())
    return Literal(pa.timestamp("ns", "UTC"), moment)


def special_form(name: str, arguments: Sequence[Expression]) -> Expression | None:
    """Return a call that needs more than a new name; ``None``: it does not.

    Parameters
    ----------
    name : str
        In Substrait.
    arguments : sequence of Expression

    Raises
    ------
    Unsupported
        An argument that must be constant is not, or has a value that is not supported.
    """
    if name == "pi" and not arguments:
        return Literal(pa.float64(), math.pi)
    if name == "nullif" and len(arguments) == 2:
        return _null_if(*arguments)
    if name in TIMES_OF:
        return _moment_of(name, arguments)
    if name in ("to_char", "date_format") and len(arguments) == 2:
        return _formatted(*arguments)
    if name == "to_unixtime" and len(arguments) == 1 and is_time(arguments[0].type):
        return Call(pa.int64(), "extract", tuple(arguments), ("epoch",))
    if name == "iszero" and len(arguments) == 1:
        return Call(pa.bool_(), "equal", (arguments[0], Cast(arguments[0].type, Literal(pa.int64(), 0))))
    if name == "nanvl" and len(arguments) == 2:
        value, other = common_type_of(arguments, name)
        return Case(value.type, ((call_of("is_nan", [value]), other),), value)
    if name in ("nvl", "ifnull") and len(arguments) == 2:
        return call_of("coalesce", common_type_of(arguments, name))
    if name == "nvl2" and len(arguments) == 3:
        test, *values = arguments
        chosen, other = common_type_of(values, name)
        return Case(chosen.type, ((Call(pa.bool_(), "is_not_null", (test,)), chosen),), other)
    if name in REGULAR_EXPRESSIONS and len(arguments) == 2:
        wanted, flags = REGULAR_EXPRESSIONS[name]
        match = call_of("regexp_like", arguments, tuple(flags))
        return match if wanted else Call(pa.bool_(), "not", (match,))
    if name in _WITH_FLAGS:
        return _regular_expression(name, arguments)
    if name == "date_trunc" and len(arguments) == 2:
        return _truncation(*arguments)
    if name in ("greatest", "least"):
        return call_of(name, common_type_of(arguments, name))
    if name in ("add", "subtract") and len(arguments) == 2:
        return _of_times(name, *arguments)
    if name == "get_field" and len(arguments) > 1:
        return reduce(_field, arguments[1:], arguments[0])
    if name == "cardinality" and len(arguments) == 1 and pa.types.is_map(arguments[0].type):
        return call_of("map_length", arguments)
    if name in _OF_EACH_ROW:
        raise Unsupported(f"{name}() gives another value for every row and run, which is not supported")
    if name == "overlay" and len(arguments) in (3, 4):
        return _overlaid(*arguments)
    if name in ("encode", "decode") and len(arguments) == 2:
        return _coded(name, *arguments)
    if name == "digest" and len(arguments) == 2:
        return _digest(*arguments)
    return list_form(name, arguments)


def _field(value: Expression, name: Expression) -> Expression:
    """Return a field of a struct, or what a map has for a key."""
    if pa.types.is_map(value.type):
        return call_of("map_element", [value, cast_to(name, value.type.key_type)])
    known = [field.name for field in value.type] if pa.types.is_struct(value.type) else []
    if not isinstance(name, Literal) or name.value not in known:
        raise Unsupported(f"a field {name} of {value}, which is of type {value.type}, is not supported")
    return Call(value.type.field(name.value).type, "get_field", (value,), (name.value,))


def _overlaid(text: Expression, part: Expression, start: Expression, length: Expression | None = None) -> Expression:
    """Return a text with a part put in the place of another, which is as long unless ``length`` says otherwise."""
    length = cast_to(call_of("length", [part]) if length is None else length, pa.int64())
    start = cast_to(start, pa.int64())
    one = Literal(pa.int64(), 1)
    before = call_of("substring", [text, one, call_of("subtract", [start, one])])
    return call_of("concat", [before, part, call_of("substring", [text, call_of("add", [start, length])])])


def _coded(name: str, value: Expression, form: Expression) -> Expression:
    written = form.value.lower() if isinstance(form, Literal) and isinstance(form.value, str) else None
    forms = {"hex": "hex", "base64": "base64", "base64pad": "base64"}
    if written not in forms:
        raise Unsupported(f"{name} in another form than the constants 'hex' and 'base64' is not supported")
    return call_of(name, [value], (forms[written],))


def _digest(value: Expression, name: Expression) -> Expression:
    known = ("md5", "sha224", "sha256", "sha384", "sha512")
    if not isinstance(name, Literal) or name.value not in known:
        raise Unsupported(f"digest of another kind than the constants {', '.join(known)} is not supported")
    if name.value == "md5":
        return call_of("decode", [call_of("md5", [value])], ("hex",))
    return call_of(name.value, [value])


TIMES_OF: Mapping[str, tuple[pa.DataType, str]] = {
    "to_date": (pa.date32(), ""),
    "to_timestamp": (pa.timestamp("ns", "UTC"), "s"),
    "to_timestamp_seconds": (pa.timestamp("s", "UTC"), "s"),
    "to_timestamp_millis": (pa.timestamp("ms", "UTC"), "ms"),
    "to_timestamp_micros": (pa.timestamp("us", "UTC"), "us"),
    "to_timestamp_nanos": (pa.timestamp("ns", "UTC"), "ns"),
    "from_unixtime": (pa.timestamp("s"), "s"),
}
"""Functions that make dates and timestamps: their type, and the unit of whole numbers since 1970."""


def _moment_of(name: str, arguments: Sequence[Expression]) -> Expression:
    data_type, unit = TIMES_OF[name]
    value, *formats = arguments
    if len(formats) > 1 or (formats and name not in ("to_date", "to_timestamp")):
        raise Unsupported(f"{name} with several formats or a zone is not supported")
    if formats and not is_string(value.type):
        raise Unsupported(f"{name} with a format reads texts, not {value.type}")
    if formats:
        return parsed(name, value, formats[0], data_type)
    if is_integer(value.type) and unit:
        counted = Cast(pa.timestamp(unit, data_type.tz), cast_to(value, pa.int64()))
        return counted if counted.type == data_type else Cast(data_type, counted)
    if not is_string(value.type) and not is_time(value.type):
        kinds = "texts, dates and whole numbers" if unit else "texts and dates"
        raise Unsupported(f"{name} of a {value.type} is not supported: of {kinds}")
    return value if value.type == data_type else Cast(data_type, value)


_OTHER_FORMATS = {
    "YYYY": "Y", "YY": "y", "MM": "m", "MONTH": "B", "MON": "b", "DDD": "j", "DD": "d", "DAY": "A", "DY": "a",
    "HH24": "H", "HH": "H", "MI": "M", "SS": "S",
}  # fmt: skip
"""Items of PostgreSQL's formats, as ones that ``to_char`` has."""

_ANY_ITEMS = re.compile(rf"(?<![A-Za-z%])(?:{'|'.join(_OTHER_FORMATS)})(?![A-Za-z])", re.IGNORECASE)
_ITEMS = re.compile(rf"(?<![A-Za-z%])(?:{'|'.join(_OTHER_FORMATS)}|yyyy|yy|mm|dd|hh24|mi|ss)(?![A-Za-z])")
"""Those that no one means as they are: a word such as Day may be."""


def _formatted(value: Expression, pattern: Expression) -> Expression:
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        raise Unsupported("to_char with a format that is not a constant is not supported")
    unknown = [part for part in re.findall(r"%(.?)", pattern.value, re.DOTALL) if part not in TIME_FORMATS]
    if unknown:
        known = ", ".join(f"%{part}" for part in TIME_FORMATS)
        raise Unsupported(f"%{unknown[0]} in the format of to_char is not supported: {known} are")
    plain = re.sub("%.", " ", pattern.value)
    foreign = _ITEMS.search(plain) or (plain == pattern.value and re.search("[A-Za-z]+", plain))
    if foreign:
        instead = _ANY_ITEMS.sub(lambda item: f"%{_OTHER_FORMATS[item[0].upper()]}", pattern.value)
        known = f"write '{instead}'" if instead != pattern.value else "its items are such as %Y, %m and %d"
        raise Unsupported(f"{foreign[0]} in the format '{pattern.value}' of to_char is not supported: {known}")
    return call_of("to_char", [value], (pattern.value,))


def _null_if(value: Expression, other: Expression) -> Expression:
    pair = common_type_of([value, other], "nullif")
    return Case(value.type, ((Call(pa.bool_(), "equal", tuple(pair)), Literal(value.type, None)),), value)


def _regular_expression(name: str, arguments: Sequence[Expression]) -> Expression:
    count = _WITH_FLAGS[name]
    operands, flags = arguments[:count], arguments[count:]
    if name == "regexp_count" and flags:
        start, *flags = flags
        if not isinstance(start, Literal) or start.value != 1:
            raise Unsupported("regexp_count from another character than the first is not supported")
    if not flags:
        return call_of(name, operands)
    (given,) = flags
    if not isinstance(given, Literal) or not isinstance(given.value, str):
        raise Unsupported(f"{name} with flags that are not a constant is not supported")
    unknown = set(given.value) - _FLAGS
    if unknown or (name != "regexp_replace" and "g" in given.value):
        raise Unsupported(f"flags {given.value!r} of {name} are not supported: i, s, c and (to replace) g are")
    # Of i and c the last one counts.
    last = next((flag for flag in reversed(given.value) if flag in "ci"), "c")
    kept = {flag for flag in given.value if flag in "gs"} | ({"i"} if last == "i" else set())
    return call_of(name, operands, tuple(sorted(kept)))


def _truncation(unit: Expression, value: Expression) -> Expression:
    if not isinstance(unit, Literal) or not isinstance(unit.value, str):
        raise Unsupported("date_trunc to a unit that is not a constant is not supported")
    name = unit.value.lower()
    if name not in TRUNCATIONS:
        raise Unsupported(f"date_trunc to {unit.value!r} is not supported: {', '.join(TRUNCATIONS)} are")
    return call_of("date_trunc", [value], (name,))


def _of_times(name: str, left: Expression, right: Expression) -> Expression | None:
    """Return a sum or difference of dates, timestamps and intervals."""
    if is_interval(left.type) and is_interval(right.type):
        raise Unsupported("a sum of intervals is not supported: add one interval after the other to a date or time")
    if name == "add" and is_time(right.type) and not is_time(left.type):
        left, right = right, left
    if not is_time(left.type):
        return None
    if is_interval(right.type) or pa.types.is_duration(right.type):
        return call_of("add_interval" if name == "add" else "subtract_interval", [left, right])
    if name == "subtract" and is_time(right.type):
        return call_of("time_difference", common_type_of([left, right], "subtract"))
    return None
