"""Where in an SQL text the expression is that DataFusion finds wrong, of which it only tells types and operator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hybridq.errors import SqlError
from hybridq.frontend.sql_text import Token, changed, place, tokens

_MOST = 50
"""Operators that are tried at most, each by planning the text once."""

_OPERATOR = re.compile(r"(?:expression|operation) .+? (?P<binary>AND|OR|[-+*/%<>=!~|^&#]+) [A-Z]")
_LIKE = re.compile(r"in (?P<like>I?LIKE) expression")
_UNARY = re.compile(r"Unary operator '(?P<unary>-|NOT)'")
_CONDITION = re.compile(r"(?P<filter>filter with non-boolean predicate)|(?P<join>Join condition must be boolean)")
_CALL = re.compile(r"no function takes such values: (?P<call>\w+)\(")
_SETS = re.compile(r"(?P<sets>UNION|INTERSECT|EXCEPT) queries have different number of columns")
_PATTERNS = (_OPERATOR, _LIKE, _UNARY, _CONDITION, _CALL, _SETS)

_BEFORE_OPERANDS = frozenset(
    {"select", "distinct", "all", "where", "and", "or", "not", "on", "by", "when", "then", "else", "case", "having"}
    | {"between", "in", "like", "ilike", "is", "qualify", "limit", "offset"}
)
"""Words after which - is no difference."""


def with_place(error: SqlError, text: str, fails: Callable[[str], str]) -> SqlError:
    """Return an error that begins with line and column of the expression that is wrong, where it can be found.

    Each operator that it may be is exchanged for another: where that gives another error, or none, it was this one.

    Parameters
    ----------
    error : SqlError
        Without a place.
    text : str
        The query.
    fails : callable
        Plans another query, and returns what is wrong with it in the words of the error.

    >>> def fails(query):
    ...     return "expression VARCHAR + BIGINT" if "b + 1" in query else ""
    >>> print(with_place(SqlError("expression VARCHAR + BIGINT"), "select a + 1, b + 1 from t", fails))
    line 1, column 17: expression VARCHAR + BIGINT
    """
    message = str(error)
    if " column " in message and re.search(r"line \d+, column \d+", message):
        return error
    found = next((match for pattern in _PATTERNS if (match := pattern.search(message))), None)
    if found is None:
        return error
    kind = str(found.lastgroup)
    edits = list(_candidates(kind, found[kind], tokens(text)))[:_MOST]
    if kind == "sets" or found[kind] in ("AND", "OR"):  # nothing can stand in their place
        return _placed(message, text, edits[0][0]) if len(edits) == 1 else error
    for number in range(len(edits) - 1, -1, -1):
        if fails(changed(text, edits[number:])) != message:
            return _placed(message, text, edits[number][0])
    return error


def _placed(message: str, text: str, offset: int) -> SqlError:
    line, column = place(text, offset)
    return SqlError(f"line {line}, column {column}: {message}", line, column)


def _candidates(kind: str, what: str, found: tuple[Token, ...]) -> Iterator[tuple[int, int, str]]:
    """Yield where each operator is that it may be, and what may stand in its place."""
    for position, token in enumerate(found):
        before = found[position - 1] if position else None
        after = found[position + 1] if position + 1 < len(found) else None
        value, begin = token.value, token.offset
        if kind == "binary" and token.kind == "sign" and not _is_unary(before) and not _continues(before, token):
            signs = "".join(each.value for each in found[position : position + _together(found, position)])
            if signs == what or {signs, what} == {"<>", "!="}:
                yield begin, begin + len(signs), " = " if what == "||" else " || "
        elif kind == "unary" and what == "-" and value == "-" and _is_unary(before):
            yield begin, begin + 1, " "
        elif token.kind != "word":
            continue
        elif kind == "unary" and what == "NOT" and value == "not":
            if after is not None and after.value not in ("in", "like", "ilike", "between", "similar", "null", "exists"):
                yield begin, begin + 3, " "
        elif kind in ("like", "binary", "sets") and value == what.lower():
            yield begin, begin + len(value), "||"
        elif kind == "filter" and value in ("where", "having", "qualify"):
            yield begin, begin + len(value), f"{value} true and "
        elif kind == "join" and value == "on":
            yield begin, begin + 2, "on true and "
        elif kind == "call" and value == what and after is not None and after.value == "(":
            yield begin, begin + len(value), "concat"


def _is_unary(before: Token | None) -> bool:
    """Tell whether a sign after a token is no operator of two values."""
    if before is None:
        return True
    if before.kind == "sign":
        return before.value not in (")", "]")
    return before.kind == "word" and before.value in _BEFORE_OPERANDS


def _together(found: tuple[Token, ...], position: int) -> int:
    """Return the number of signs that stand together from a position on."""
    count = 1
    while position + count < len(found):
        one, other = found[position + count - 1], found[position + count]
        if other.kind != "sign" or other.offset != one.offset + 1 or other.value not in "<>=!~|^&#*/%":
            break
        count += 1
    return count


def _continues(before: Token | None, token: Token) -> bool:
    """Tell whether a sign is a further one of an operator."""
    if before is None or before.kind != "sign":
        return False
    return before.offset + 1 == token.offset and before.value in "<>=!~|^&#"
