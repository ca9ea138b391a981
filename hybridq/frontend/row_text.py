"""Rows of values in an SQL text: DataFusion's parser reads those of names and constants only.

``(length(s), a) = (1, 2)`` is written anew as ``struct(length(s), a) = struct(1, 2)``, which it makes of the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from hybridq.frontend.sql_reader import TextReader
from hybridq.frontend.sql_text import changed, tokens

REFUSED = "literals are supported in tuples"
"""What DataFusion says of a row of anything else."""

_BEFORE_VALUES = frozenset(
    {"select", "distinct", "where", "on", "having", "qualify", "by", "and", "or", "not", "case", "when", "then", "else"}
)
"""Words that stand before a value, so that a parenthesis after them is no call and no list of names."""


def with_rows_called(text: str) -> str:
    """Return the text with a call in place of each row of values that is compared by =, <> or IN.

    >>> with_rows_called("select (f(a), b) not in ((1, 2), (3, 4)) from t where (a, b) <> (1, 2)")
    'select struct(f(a), b) not in (struct(1, 2), struct(3, 4)) from t where struct(a, b) <> struct(1, 2)'
    """
    places = dict.fromkeys(_Rows(text, tokens(text)).offsets())
    return changed(text, [(offset, offset, "struct") for offset in places])


class _Rows(TextReader):
    def offsets(self) -> Iterator[int]:
        """Yield where each row that is compared begins."""
        for position in range(len(self._found)):
            if self._value(position) != "(" or not self._is_row(position):
                continue
            after = self._closing(position) + 1
            if self._value(after) == "not":
                after += 1
            if self._value(after) == "in" and self._value(after + 1) == "(":
                yield self._offset(position)
                yield from self._options(after + 1)
            elif self._is_comparison(after, 1) or self._is_comparison(position - 1, -1):
                yield self._offset(position)

    def _is_row(self, opening: int) -> bool:
        """Tell whether a parenthesis holds several values."""
        if opening and self._found[opening - 1].kind != "sign" and self._value(opening - 1) not in _BEFORE_VALUES:
            return False
        return bool(self._value(opening + 1) != "select" and list(self._commas(opening)))

    def _options(self, opening: int) -> Iterator[int]:
        for before in (opening, *self._commas(opening)):
            if self._value(before + 1) == "(" and self._is_row(before + 1):
                yield self._offset(before + 1)

    def _is_comparison(self, position: int, step: int) -> bool:
        """Tell whether =, <> or != begins at a token, read forwards (``step`` 1) or backwards (-1)."""
        signs = self._value(position), self._value(position + step)
        return signs[0] == "=" or signs in {("<", ">"), (">", "<"), ("!", "=")}
