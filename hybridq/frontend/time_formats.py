"""TO_DATE and TO_TIMESTAMP of texts in other formats: each text is written as casts read it, and is cast then.

Casts are exact: there is no 30th of February. A text of another format fails as a text does that is no date.
"""

from __future__ import annotations

import re

import pyarrow as pa

from hybridq.errors import Unsupported
from hybridq.frontend.list_forms import call_of
from hybridq.plan.expressions import Call, Case, Cast, Expression, Literal

_DIGITS = {
    "Y": r"(\d{4})",
    "m": r"(\d{1,2})",
    "d": r"(\d{1,2})",
    "H": r"(\d{1,2})",
    "M": r"(\d{1,2})",
    "S": r"(\d{1,2})",
}
_ITEMS_OF_POSTGRES = {"YYYY": "%Y", "MM": "%m", "DD": "%d", "HH24": "%H", "MI": "%M", "SS": "%S"}
_READ = "%Y, %m, %d, %H, %M and %S (YYYY, MM, DD, HH24, MI and SS) are"


def parsed(name: str, value: Expression, form: Expression, data_type: pa.DataType) -> Expression:
    """Return a text as a date or timestamp, of a format.

    Parameters
    ----------
    name : str
        The function's, for messages.
    value, form : Expression
    data_type : pyarrow.DataType

    Raises
    ------
    Unsupported
        The format is no constant, or has other items than digits of years, months, days, hours, minutes and seconds.
    """
    if not isinstance(form, Literal) or not isinstance(form.value, str):
        raise Unsupported(f"{name} with a format that is not a constant is not supported")
    order, pattern = _pattern(name, form.value.strip())
    groups = {item: rf"\{number}" for number, item in enumerate(order, 1)}
    parts = [groups.get(item, "01") for item in "md"] + [groups.get(item, "00") for item in "HMS"]
    written = f"{groups['Y']}-{parts[0]}-{parts[1]}"
    if set(order) & set("HMS"):
        written += f" {parts[2]}:{parts[3]}:{parts[4]}"
    text = call_of("trim", [value])
    iso = call_of("regexp_replace", [text, _text(pattern), _text(written)])
    padded = call_of("regexp_replace", [iso, _text(r"\b(\d)\b"), _text(r"0\1")], ("g",))
    other = call_of("concat", [value, _text(f" is not of the format {form.value}")])
    fits = call_of("regexp_like", [text, _text(pattern)])
    # NULL does neither fit nor not, and is NULL.
    misfit = Call(pa.bool_(), "not", (fits,))
    return Case(data_type, ((misfit, Cast(data_type, other)),), Cast(data_type, padded))


def _pattern(name: str, form: str) -> tuple[list[str], str]:
    """Return the items of a format in their order, and the regular expression of its texts."""
    if "%" not in form:
        found = re.compile("|".join(_ITEMS_OF_POSTGRES), re.IGNORECASE)
        rest = found.sub("", form)
        if re.search("[A-Za-z]", rest):
            raise Unsupported(f"{rest.strip()} in the format '{form}' of {name} is not supported: {_READ}")
        form = found.sub(lambda item: _ITEMS_OF_POSTGRES[item[0].upper()], form)
    order: list[str] = []
    pattern = ""
    for item, plain in re.findall(r"%(.?)|([^%]+)", form, re.DOTALL):
        if plain or item == "%":
            pattern += re.escape(plain or "%")
        elif item not in _DIGITS:
            raise Unsupported(f"%{item} in the format '{form}' of {name} is not supported: {_READ}")
        else:
            order.append(item)
            pattern += _DIGITS[item]
    if "Y" not in order or len(set(order)) < len(order):
        raise Unsupported(f"the format '{form}' of {name} is not supported: it needs each item once, and a year")
    return order, f"^{pattern}$"


def _text(value: str) -> Literal:
    return Literal(pa.string(), value)
