"""The words of an SQL text, with their places."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

LONGEST_CHAIN = 200
"""Operators in a row that a query may have: DataFusion's export takes time with the cube of it, 1 s at 200."""

_TOKEN = re.compile(
    r"""
    (?P<blank>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<text>[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)|[nNxXbB]?'(?:[^']|'')*(?:'|\Z)|\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z))
    |"(?P<quoted>(?:[^"]|"")*)(?:"|\Z)
    |`(?P<backquoted>[^`]*)(?:`|\Z)
    |(?P<word>[^\W\d][\w$]*)
    |(?P<number>\d[\w.]*)
    |(?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word, quoted name, literal or sign of the text.

    Attributes
    ----------
    kind : str
        ``word`` (a keyword or a plain name), ``quoted`` (a name in quotes), ``text``, ``number`` or ``sign``.
    value : str
        Plain names are in lower case, as SQL folds them.
    offset : int
        Where it begins in the text.
    """

    kind: str
    value: str
    offset: int


@lru_cache(maxsize=16)
def tokens(text: str) -> tuple[Token, ...]:
    """Return the tokens of an SQL text, without blanks and comments; planning asks several times for each text."""
    return tuple(_tokens(text))


def _tokens(text: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "sign"
        if kind == "blank":
            continue
        if match["word"] is not None:
            yield Token("word", match["word"].lower(), match.start())
        elif match["quoted"] is not None:
            yield Token("quoted", match["quoted"].replace('""', '"'), match.start())
        elif match["backquoted"] is not None:
            yield Token("quoted", match["backquoted"], match.start())
        elif match["text"] is not None:
            yield Token("text", match["text"], match.start())
        else:
            yield Token(kind, match[0], match.start())


def has_multisets(text: str) -> bool:
    """Tell whether a text has INTERSECT ALL or EXCEPT ALL, which DataFusion plans as if ALL only kept left rows.

    >>> has_multisets("select a from t except all select a from u")
    True
    """
    found = [token.value if token.kind == "word" else "" for token in tokens(text)]
    pairs = set(itertools.pairwise(found))
    return bool(pairs & {("intersect", "all"), ("except", "all")})


def place(text: str, offset: int) -> tuple[int, int]:
    r"""Return line and column of an offset, both counted from 1.

    >>> place("select 1\nfrom", 9)
    (2, 1)
    """
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def offset_of(text: str, line: int, column: int) -> int:
    r"""Return the offset of a line and a column, both counted from 1.

    >>> offset_of("select 1\nfrom", 2, 1)
    9
    """
    return sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column - 1


def changed(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Return a text with parts of it written anew.

    Parameters
    ----------
    text : str
    edits : iterable of (int, int, str)
        Where each part begins and ends, and what stands there then. What is inserted at one place comes in the order of
        the edits.

    >>> changed("a + b", [(0, 0, "("), (4, 5, "c"), (5, 5, ")"), (5, 5, ";")])
    '(a + c);'
    """
    parts, done = [], 0
    for begin, end, _, written in sorted((begin, end, number, new) for number, (begin, end, new) in enumerate(edits)):
        parts += [text[done:begin], written]
        done = end
    return "".join([*parts, text[done:]])


_CONNECTIVES = frozenset({"and", "or"})
_COMPARISONS = frozenset({"=", "<", ">", "like", "ilike", "between", "in", "is"})
_OPERATORS = frozenset({"+", "-", "*", "/", "%", "|", "not", ":"})
_SEPARATORS = frozenset(
    {"select", "from", "where", "group", "having", "order", "limit", "on", "join", "union", "when", "then", "else"}
    | {"case", "end", ","}
)


def longest_chain(found: Sequence[Token]) -> int:
    """Return about how deeply the operators of a text nest, where ``a + b + c`` nests twice.

    Parentheses add up; commas and keywords begin anew.
    """
    longest = 0
    # For each open parenthesis: connectives and arithmetic operators so far, and those outside it.
    connectives, arithmetic, outside = 0, 0, 0
    stack: list[tuple[int, int, int]] = []
    for token in found:
        if token.kind not in ("word", "sign"):
            continue
        value = token.value
        if value == "(":
            stack.append((connectives, arithmetic, outside))
            connectives, arithmetic, outside = 0, 0, outside + connectives + arithmetic
        elif value == ")" and stack:
            connectives, arithmetic, outside = stack.pop()
        elif value in _CONNECTIVES:
            connectives, arithmetic = connectives + 1, 0
        elif value in _COMPARISONS:
            arithmetic = 0
        elif value in _OPERATORS:
            arithmetic += 1
        elif value in _SEPARATORS:
            connectives, arithmetic = 0, 0
        longest = max(longest, outside + connectives + arithmetic)
    return longest
