"""Which queries of WITH can be named at a place of an SQL text."""

from __future__ import annotations

from collections.abc import Sequence

from hybridq.frontend.sql_text import Token


def visible_names(text: str, found: Sequence[Token], position: int) -> dict[str, str]:
    """Return the queries that WITH names for a place, with their definitions as written.

    Parameters
    ----------
    text : str
    found : sequence of Token
        The text's.
    position : int
        Of a token.

    >>> from hybridq.frontend.sql_text import tokens
    >>> text = "with u as (select 1 as x), v (y) as (select x from u) select * from v"
    >>> visible_names(text, tokens(text), 19)
    {'u': 'u as (select 1 as x)'}
    >>> list(visible_names(text, tokens(text), len(tokens(text)) - 1))
    ['u', 'v']
    """
    result: dict[str, str] = {}
    open_queries = [0]
    for each, token in enumerate(found[:position]):
        if token.kind == "sign" and token.value == "(":
            open_queries.append(each + 1)
        elif token.kind == "sign" and token.value == ")" and len(open_queries) > 1:
            open_queries.pop()
    for begin in open_queries:
        if found[begin].kind == "word" and found[begin].value == "with":
            result |= _definitions(text, found, begin + 1, position)
    return result


def _definitions(text: str, found: Sequence[Token], begin: int, position: int) -> dict[str, str]:
    """Return the definitions after a word WITH that end before a place."""
    result: dict[str, str] = {}
    begin += found[begin].value == "recursive"
    depth, named = 0, begin
    for each in range(begin, position):
        token = found[each]
        if token.kind != "sign":
            continue
        depth += (token.value == "(") - (token.value == ")")
        after = found[each + 1].value if each + 1 < len(found) else ""
        if depth == 0 and token.value == ")" and after != "as":
            result[found[named].value] = text[found[named].offset : token.offset + 1]
            if after != ",":
                break
            named = each + 2
    return result
