"""Rows of values in subqueries: ``(a, b) IN (SELECT c, d FROM u)``, which DataFusion plans of single values only.

In a condition that decides which rows are kept it is written anew as EXISTS; there, false and unknown are the same.
``(a, b) NOT IN (SELECT c, d FROM u)`` is true if every row of the subquery differs for certain.
"""

from __future__ import annotations

from collections.abc import Iterator

from hybridq.frontend.sql_clauses import places
from hybridq.frontend.sql_reader import TextReader
from hybridq.frontend.sql_text import changed, tokens

REFUSED = "The subquery should only return one column"
"""What DataFusion says of a subquery of several."""

_CONDITIONS = frozenset({"where", "having", "qualify"})
_BEFORE = frozenset({"where", "having", "qualify", "and", "or", "("})
_AFTER = frozenset(
    {"", "and", "or", ")", ";", "group", "having", "window", "qualify", "order", "limit", "offset", "fetch", "union"}
    | {"intersect", "except"}
)


def with_rows_looked_up(text: str) -> str:
    """Return the text with EXISTS in place of IN of rows of values over subqueries, in conditions.

    >>> with_rows_looked_up("select 1 from t where (a, b) in (select c, d from u)")
    'select 1 from t where exists (select 1 from (select c, d from u) as row_5(row_5_0, row_5_1) where row_5_0 = (a) \
and row_5_1 = (b))'
    """
    return changed(text, list(_Lookups(text, tokens(text)).edits()))


class _Lookups(TextReader):
    def edits(self) -> Iterator[tuple[int, int, str]]:
        where = places(self._found)
        done = -1
        opened: list[int] = []
        for position in range(len(self._found)):
            if self._value(position) == ")" and opened:
                opened.pop()
            if self._value(position) == "(":
                clause = where[position]
                around = opened[len(opened) - len(clause.callers) :]
                if position > done and clause.clause in _CONDITIONS and self._decides(position, around):
                    edit = self._edit(position, around, clause.clause)
                    if edit is not None:
                        done, written = edit
                        yield self._offset(position), self._offset(done - 1) + 1, written
                opened.append(position)

    def _decides(self, position: int, around: list[int]) -> bool:
        """Tell whether a condition that begins at a token, within parentheses, has nothing but AND and OR around it."""
        return all(self._value(start - 1) in _BEFORE for start in (*around, position)) and not self._in_case(position)

    def _in_case(self, position: int) -> bool:
        depth = 0
        for before in range(position):
            depth += (self._value(before) == "case") - (self._value(before) == "end")
        return depth > 0

    def _edit(self, opening: int, around: list[int], clause: str) -> tuple[int, str] | None:
        """Return where a row's IN ends, and what is written for it; ``None``: it is something else."""
        values = self._parts(opening)
        after = self._closing(opening) + 1
        negated = self._value(after) == "not"
        query = after + 1 + negated
        if clause == "having" and any("(" in value for value in values):
            return None  # perhaps an aggregate, which the subquery's WHERE cannot have
        if len(values) < 2 or self._value(query - 1) != "in" or self._value(query) != "(":
            return None
        end = self._closing(query) + 1
        ends = (end, *(self._closing(start) + 1 for start in around))
        if self._value(query + 1) not in ("select", "with", "values") or any(
            self._value(e) not in _AFTER for e in ends
        ):
            return None
        name = f"row_{opening}"
        columns = [f"{name}_{place}" for place in range(len(values))]
        tests = [f"{column} = ({value})" for column, value in zip(columns, values, strict=True)]
        if negated:
            tests = [f"({test}) is not false" for test in tests]
        subquery = self._text[self._offset(query) : self._offset(end - 1) + 1]
        source = f"{subquery} as {name}({', '.join(columns)})"
        return end, f"{'not ' if negated else ''}exists (select 1 from {source} where {' and '.join(tests)})"
