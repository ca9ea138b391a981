"""The words of an SQL text, with their places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

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


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of an SQL text, without blanks and comments."""
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


def place(text: str, offset: int) -> tuple[int, int]:
    r"""Return line and column of an offset, both counted from 1.

    >>> place("select 1\nfrom", 9)
    (2, 1)
    """
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1
