"""Reading an SQL text token by token, for those who write parts of it anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hybridq.errors import Unsupported
from hybridq.frontend.sql_text import Token, place


class TextReader:
    """A text and its tokens, which are named by their position; there may be none at a position.

    Parameters
    ----------
    text : str
    found : sequence of Token
        All of the text's.
    """

    def __init__(self, text: str, found: Sequence[Token]) -> None:
        self._text = text
        self._found = found

    def _value(self, position: int) -> str:
        """Return a keyword, plain name or sign; empty: something else is there, or nothing."""
        if not 0 <= position < len(self._found) or self._found[position].kind not in ("word", "sign"):
            return ""
        return self._found[position].value

    def _closing(self, opening: int) -> int:
        """Return the position of the parenthesis that closes one.

        Raises
        ------
        Unsupported
            There is none.
        """
        depth = 0
        for position in range(opening, len(self._found)):
            depth += (self._value(position) == "(") - (self._value(position) == ")")
            if depth == 0:
                return position
        raise self._refused(opening, "this parenthesis is not closed")

    def _commas(self, opening: int) -> Iterator[int]:
        """Yield the positions of the commas of a parenthesis, but for those within others."""
        depth = 0
        for position in range(opening + 1, self._closing(opening)):
            depth += (self._value(position) in ("(", "[")) - (self._value(position) in (")", "]"))
            if depth == 0 and self._value(position) == ",":
                yield position

    def _parts(self, opening: int) -> list[str]:
        """Return the texts between the commas of a parenthesis."""
        commas, closing = list(self._commas(opening)), self._closing(opening)
        begins, ends = (opening + 1, *(comma + 1 for comma in commas)), (*commas, closing)
        return [
            self._text[self._offset(begin) : self._offset(end)].rstrip()
            for begin, end in zip(begins, ends, strict=True)
        ]

    def _offset(self, position: int) -> int:
        """Return where a token begins; behind the last one, where the text ends."""
        return self._found[position].offset if position < len(self._found) else len(self._text)

    def _refused(self, position: int, words: str) -> Unsupported:
        """Return the error that says what is wrong at a token, with its line and column."""
        line, column = place(self._text, self._offset(position))
        return Unsupported(f"line {line}, column {column}: {words}")
