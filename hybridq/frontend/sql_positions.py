"""Positions of SELECT's columns in ROLLUP, CUBE and GROUPING SETS, which DataFusion takes for constants there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hybridq.errors import SqlError
from hybridq.frontend.sql_clauses import Select, places
from hybridq.frontend.sql_parts import SelectItem, SubqueryReader
from hybridq.frontend.sql_text import changed, place, tokens

_MAY_HAVE = re.compile(r"\b(?:rollup|cube|sets)\s*\(", re.IGNORECASE)
_SETS = frozenset({"rollup", "cube", "sets"})


def with_positions_spelled_out(text: str) -> str:
    """Return the text with SELECT's columns in the place of their positions in ROLLUP, CUBE and GROUPING SETS.

    Raises
    ------
    SqlError
        There is no column at a position, or it is an aggregate.
    Unsupported
        ``*`` is before it.

    >>> with_positions_spelled_out("select a % 2 as x, b, count(*) from t group by rollup (1, 2)")
    'select a % 2 as x, b, count(*) from t group by rollup (a % 2, b)'
    """
    return changed(text, _Rewriting(text).edits()) if _MAY_HAVE.search(text) else text


class _Rewriting(SubqueryReader):
    def __init__(self, text: str) -> None:
        found = tokens(text)
        super().__init__(text, found, places(found))

    def edits(self) -> Iterator[tuple[int, int, str]]:
        """Yield what to write anew."""
        for position, token in enumerate(self._found):
            at = self._places[position]
            if token.kind != "number" or at.clause != "group" or at.select is None or not at.callers:
                continue
            in_sets = at.callers[0] in _SETS and at.callers[-1] in _SETS | {""}
            alone = self._value(position - 1) in ("(", ",") and self._value(position + 1) in (")", ",")
            if in_sets and alone and token.value.isdigit():
                yield (*self._at(position), self._written(self._item_at(at.select, position).span))

    def _item_at(self, select: Select, position: int) -> SelectItem:
        items, number = self._select_items(select), int(self._found[position].value)
        before = items[:number]
        if any(self._value(item.span[1] - 1) == "*" for item in before):
            raise self._refused(position, "a position in GROUPING SETS, ROLLUP or CUBE beside * is not supported")
        if not before or number > len(items):
            count = f"{len(items)} column{'s' if len(items) != 1 else ''}"
            raise self._wrong(position, f"GROUP BY has the position {number}, and SELECT {count}")
        item = items[number - 1]
        if any(self._is_aggregate(each, select) for each in range(*item.span)):
            raise self._wrong(position, f"GROUP BY {number}: that column of SELECT is an aggregate")
        return item

    def _wrong(self, position: int, words: str) -> SqlError:
        line, column = place(self._text, self._offset(position))
        return SqlError(f"line {line}, column {column}: {words}", line, column)
