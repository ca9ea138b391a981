"""What DataFusion cannot export of window functions, written in another way before the text is planned.

FILTER is left out where a window follows: ``f(x) FILTER (WHERE p) OVER w`` is ``f(CASE WHEN p THEN x END) OVER w`` for
every aggregate that skips NULL. GROUPS frames are refused: they are exported as ROWS, and put right afterwards. The
name of a window at the head of another window's definition is passed over: the definition is put in its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from hybridq.errors import Unsupported
from hybridq.frontend.sql_text import Token, tokens
from hybridq.plan.aggregates import AGGREGATES, BY_SUBSTRAIT_NAME

MOST_NAMED_WINDOWS = 100
"""Names of windows that are spelled out."""

_WINDOW_WORDS = frozenset({"partition", "order", "rows", "range", "groups", ")"})


def with_windows_spelled_out(text: str) -> str:
    """Return the text with definitions in place of names of windows that other windows begin with.

    Raises
    ------
    Unsupported
        A name has no definition, or has several.

    >>> with_windows_spelled_out("select sum(x) over (w order by y) from t window w as (partition by z)")
    'select sum(x) over (partition by z order by y) from t window w as (partition by z)'
    """
    for _ in range(MOST_NAMED_WINDOWS):
        found = tokens(text)
        named = [position for position in range(2, len(found)) if _is_window_name(found, position)]
        if not named:
            return text
        # The last first, so that what a definition refers to is spelled out in its turn.
        position = named[-1]
        name = found[position].value
        definitions = [
            place
            for place in range(len(found) - 3)
            if found[place].kind in ("word", "quoted")
            and found[place].value == name
            and _word(found, place + 1) == "as"
            and _word(found, place + 2) == "("
            and (_word(found, place + 3) in _WINDOW_WORDS or _is_window_name(found, place + 3))
        ]
        closing = _closing(found, definitions[0] + 2) if len(definitions) == 1 else None
        if closing is None:
            raise Unsupported(
                f"the window {name} cannot be extended: it has {len(definitions)} definitions in the text"
            )
        content = text[found[definitions[0] + 2].offset + 1 : found[closing].offset]
        end = found[position + 1].offset if position + 1 < len(found) else len(text)
        text = text[: found[position].offset] + content.strip() + " " + text[end:]
    raise Unsupported("windows that extend each other without end are not supported")


def _is_window_name(found: Sequence[Token], position: int) -> bool:
    """Tell whether a token is a window's name at the head of the definition of another one."""
    token = found[position]
    if token.kind not in ("word", "quoted") or (token.kind == "word" and token.value in _WINDOW_WORDS):
        return False
    if _word(found, position - 1) != "(":
        return False
    if _word(found, position - 2) == "over":
        return True
    defines = position >= 4 and _word(found, position - 2) == "as" and _word(found, position - 4) in ("window", ",")
    return defines and _word(found, position + 1) in _WINDOW_WORDS


def without_filters(text: str) -> str:
    """Return the text with the filters of window functions moved into their arguments.

    >>> without_filters("select sum(x) filter (where y > 1) over () from t")
    'select sum(CASE WHEN y > 1 THEN x END)  over () from t'
    >>> without_filters("select count(*) filter (where y) over (), count(*) filter (where z) from t")
    'select count(CASE WHEN y THEN 1 END)  over (), count(*) filter (where z) from t'
    """
    while (changed := _one_less(text)) is not None:
        text = changed
    return text


def with_rows_for_groups(text: str) -> str:
    """Return the text with ROWS in place of GROUPS in window frames.

    >>> with_rows_for_groups("sum(groups) over (order by x groups between 1 preceding and current row)")
    'sum(groups) over (order by x rows between 1 preceding and current row)'
    """
    found = tokens(text)
    for position in range(len(found) - 1, -1, -1):
        if _is(found[position], "groups") and _begins_frame(found, position + 1):
            begin = found[position].offset
            text = text[:begin] + "rows" + text[begin + len("groups") :]
    return text


def _begins_frame(found: Sequence[Token], position: int) -> bool:
    """Tell whether the bounds of a frame follow."""
    position += _word(found, position) == "between"
    follows = {_word(found, position), _word(found, position + 1)}
    return bool(follows & {"preceding", "following"}) or follows == {"current", "row"}


def _one_less(text: str) -> str | None:
    """Move the first filter of a window function; ``None`` where there is none."""
    found = tokens(text)
    for position, token in enumerate(found):
        if not (_is(token, "filter") and _word(found, position + 1) == "(" and _word(found, position + 2) == "where"):
            continue
        closing = _closing(found, position + 1)
        opening = _opening(found, position - 1)
        if closing is None or opening is None or _word(found, closing + 1) != "over":
            continue
        function = BY_SUBSTRAIT_NAME.get(_word(found, opening - 1))
        if function is None or AGGREGATES[function].takes_null:
            continue
        condition = text[found[position + 3].offset : found[closing].offset].strip()
        begin, end = found[opening].offset + 1, found[position - 1].offset
        distinct = ""
        if _word(found, opening + 1) in ("distinct", "all"):
            distinct = found[opening + 1].value + " "
            begin = found[opening + 2].offset
        argument, separator, others = _first_argument(found, opening, position - 1, text, begin, end)
        value = "1" if argument == "*" else argument
        call = f"{distinct}CASE WHEN {condition} THEN {value} END{separator}{others})"
        return text[: found[opening].offset + 1] + call + " " + text[found[closing].offset + 1 :]
    return None


def _first_argument(
    found: Sequence[Token], opening: int, closing: int, text: str, begin: int, end: int
) -> tuple[str, str, str]:
    """Cut the arguments of a call at the first comma between them."""
    depth = 0
    for token in found[opening + 1 : closing]:
        if token.kind != "sign":
            continue
        depth += (token.value in "([") - (token.value in ")]")
        if token.value == "," and depth == 0:
            return text[begin : token.offset].strip(), ", ", text[token.offset + 1 : end].strip()
    return text[begin:end].strip(), "", ""


def _is(token: Token, word: str) -> bool:
    return token.kind == "word" and token.value == word


def _word(found: Sequence[Token], position: int) -> str:
    """Return a plain word or a sign at some position, and nothing for what is quoted."""
    if not 0 <= position < len(found) or found[position].kind not in ("word", "sign"):
        return ""
    return found[position].value


def _closing(found: Sequence[Token], opening: int) -> int | None:
    depth = 0
    for position in range(opening, len(found)):
        depth += (_word(found, position) == "(") - (_word(found, position) == ")")
        if depth == 0:
            return position
    return None


def _opening(found: Sequence[Token], closing: int) -> int | None:
    if _word(found, closing) != ")":
        return None
    depth = 0
    for position in range(closing, -1, -1):
        depth += (_word(found, position) == ")") - (_word(found, position) == "(")
        if depth == 0:
            return position
    return None
