"""Clauses of standard SQL that DataFusion does not read or export as they are meant, as ones that it does.

FETCH FIRST n ROWS ONLY is LIMIT n. SIMILAR TO is a regular expression, of which ``%`` and ``_`` are part. A
comparison by IS DISTINCT FROM, of which DataFusion takes all the AND and OR that follow to be part, is put into
parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hybridq.errors import SqlError, Unsupported
from hybridq.frontend.sql_text import Token, changed, place, tokens

_PLAIN = re.compile(r"'((?:[^']|'')*)'")
_SAME = frozenset("|*+?(){}")
"""What SIMILAR TO has of regular expressions."""

_MAY_HAVE = re.compile(r"\b(?:fetch|similar|distinct\s+from)\b", re.IGNORECASE)
_ENDS = frozenset(
    {
        "and",
        "or",
        "is",
        ")",
        "]",
        ",",
        ";",
        "then",
        "else",
        "end",
        "when",
        "as",
        "asc",
        "desc",
        "nulls",
        "from",
        "where",
    }
    | {"group", "having", "window", "qualify", "order", "limit", "offset", "fetch", "union", "intersect", "except"}
    | {"join", "inner", "left", "right", "full", "cross", "natural", "on", "over", "for", "rows", "range", "groups"}
)
"""What is behind the second operand of IS DISTINCT FROM."""

_BEGINS = frozenset(
    {"and", "or", "not", "(", "[", ",", ";", "select", "distinct", "all", "where", "having", "qualify", "on", "by"}
    | {"when", "then", "else", "case"}
)
"""What may be before the first operand of IS DISTINCT FROM."""

Edit = tuple[int, int, str]


def with_synonyms(text: str) -> str:
    r"""Return the text with LIMIT for FETCH FIRST, in as many characters, ~ for SIMILAR TO, and parentheses.

    Raises
    ------
    Unsupported
        A pattern is no constant.
    SqlError
        A pattern ends in its escape character.

    >>> with_synonyms("select a from t where s not similar to 'a%(b|c.)' fetch first 3 rows only")
    "select a from t where s !~ '(?s)^(?:a.*(?:b|c\\.))$' limit 3                "
    """
    if not _MAY_HAVE.search(text):
        return text
    found = list(tokens(text))
    edits: list[Edit] = []
    for position in range(len(found)):
        words = [_word(found, each) for each in range(position, position + 2)]
        if words[0] == "fetch" and words[1] in ("first", "next"):
            edits += _limit(found, position)
        elif words == ["similar", "to"]:
            edits.append(_regular_expression(text, found, position))
        elif words == ["distinct", "from"] and _word(found, position - 1) in ("is", "not"):
            is_at = position - 1 - (_word(found, position - 1) == "not")
            edits += _comparison(found, is_at, position + 2)
    return changed(text, edits)


def _word(found: Sequence[Token], position: int) -> str:
    return found[position].value if 0 <= position < len(found) and found[position].kind == "word" else ""


def _sign(found: Sequence[Token], position: int) -> str:
    return found[position].value if 0 <= position < len(found) and found[position].kind == "sign" else ""


def _limit(found: Sequence[Token], position: int) -> list[Edit]:
    given = position + 2 < len(found) and found[position + 2].kind == "number"
    last = position + 3 + given
    if _word(found, last - 1) not in ("row", "rows") or _word(found, last) != "only":
        return []
    begin, end = found[position].offset, found[last].offset + len("only")
    limit = f"limit {found[position + 2].value if given else 1}"
    return [(begin, end, limit.ljust(end - begin))]


def _comparison(found: Sequence[Token], is_at: int, start: int) -> list[Edit]:
    """Put a comparison by IS DISTINCT FROM into parentheses, if what follows is not part of it.

    Parameters
    ----------
    found : sequence of Token
    is_at, start : int
        Where the word IS is, and where the second operand begins.
    """
    end = _end_of_operand(found, start)
    if _word(found, end) not in ("and", "or", "is"):
        return []
    begin = _begin_of_operand(found, is_at - 1)
    return [(found[begin].offset, found[begin].offset, "("), (found[end].offset, found[end].offset, ") ")]


def _end_of_operand(found: Sequence[Token], start: int) -> int:
    depth, pending = 0, 0
    for position in range(start, len(found)):
        value = found[position].value if found[position].kind in ("word", "sign") else ""
        called = value in ("left", "right") and _sign(found, position + 1) == "("
        ends = value in _ENDS and position > start and not called
        if depth == 0 and ends and not (value == "and" and pending):
            return position
        depth += (value in ("(", "[", "case")) - (value in (")", "]", "end"))
        pending += (depth == 0) * ((value == "between") - (value == "and"))
    return len(found)


def _begin_of_operand(found: Sequence[Token], last: int) -> int:
    depth, bound = 0, None
    for position in range(last, -1, -1):
        value = found[position].value if found[position].kind in ("word", "sign") else ""
        if depth == 0 and value == "between":
            bound = None  # the AND that was met is its own
        elif depth == 0 and value == "and" and bound is None:
            bound = position + 1
        elif depth == 0 and value in _BEGINS:
            return position + 1 if bound is None else bound
        depth += (value in (")", "]", "end")) - (value in ("(", "[", "case"))
    return bound or 0


def _regular_expression(text: str, found: Sequence[Token], position: int) -> Edit:
    pattern = found[position + 2] if position + 2 < len(found) else None
    line, column = place(text, found[position].offset)
    if pattern is None or (match := _PLAIN.match(text, pattern.offset)) is None or pattern.kind != "text":
        raise Unsupported(f"line {line}, column {column}: SIMILAR TO is supported with a constant pattern")
    end, escape = match.end(), "\\"
    if _word(found, position + 3) == "escape" and position + 4 < len(found):
        chosen = _PLAIN.match(text, found[position + 4].offset)
        if chosen is None or len(chosen[1].replace("''", "'")) > 1:
            raise Unsupported(f"line {line}, column {column}: ESCAPE is supported with one constant character")
        end, escape = chosen.end(), chosen[1].replace("''", "'")
    expression = _translated(match[1].replace("''", "'"), escape)
    if expression is None:
        raise SqlError(f"line {line}, column {column}: the pattern ends in its escape character", line, column)
    denied = _word(found, position - 1) == "not"
    begin = found[position - denied].offset
    written = expression.replace("'", "''")
    return begin, end, f"{'!' * denied}~ '{written}'"


def _translated(pattern: str, escape: str) -> str | None:
    """Return the regular expression of a pattern; ``None``: it ends in its escape character."""
    parts: list[str] = []
    in_brackets = False
    position = 0
    while position < len(pattern):
        character = pattern[position]
        position += 1
        if escape and character == escape:
            if position == len(pattern):
                return None
            parts.append(re.escape(pattern[position]))
            position += 1
        elif in_brackets:
            in_brackets = character != "]"
            parts.append("\\\\" if character == "\\" else character)
        elif character == "[":
            in_brackets = True
            parts.append(character)
        elif character in "%_":
            parts.append(".*" if character == "%" else ".")
        elif character == "(":
            parts.append("(?:")
        else:
            parts.append(character if character in _SAME else re.escape(character))
    return f"(?s)^(?:{''.join(parts)})$"
