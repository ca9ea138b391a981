"""Subqueries that aggregate all rows, and so have one row whatever the data are.

Of EXISTS, IN, ANY and ALL over one DataFusion makes a join, and of a subquery that depends on the query around it a
join with one row for each value that there is: where no row is found, the row that says so (a count of 0) is missing.
Compared with as a value, the same subquery is right, but for its HAVING, which is lost: that is a condition of the
value here.
"""

from __future__ import annotations

import re

from hybridq.errors import Unsupported
from hybridq.frontend.sql_clauses import Select, places
from hybridq.frontend.sql_parts import SubqueryReader
from hybridq.frontend.sql_text import changed, tokens

_MAY_HAVE = re.compile(
    r"\b(?:exists|in|any|some|all)\s*\(\s*select\b|\(\s*select\b.*\bhaving\b", re.IGNORECASE | re.DOTALL
)
_WORDS = frozenset({"exists", "in", "any", "some", "all"})
_NO_VALUE = frozenset({"", "from", "join", "lateral", "as", "union", "intersect", "except", "distinct"})
"""What is before a subquery that is a table, or a part of UNION."""
_READ = frozenset({"select", "from", "where", "having"})
_OPERATORS = frozenset("=<>!")


def with_single_rows_compared(text: str) -> str:
    """Return the text with comparisons in the place of IN, ANY and ALL over aggregates of all rows.

    EXISTS over one is whether a count is at least 0; with HAVING, it is that condition.

    >>> with_single_rows_compared("select a from t where a not in (select max(c) from u where u.a = t.a)")
    'select a from t where a <> (select max(c) from u where u.a = t.a)'
    >>> with_single_rows_compared("select a from t where exists (select max(c) from u having count(*) > 1)")
    'select a from t where coalesce((select (count(*) > 1) from u ), false)'
    >>> with_single_rows_compared("select (select max(c) as m from u where u.a = t.a having count(*) > 1) from t")
    'select (select case when count(*) > 1 then max(c) end from u where u.a = t.a ) from t'
    """
    return changed(text, _Rewriting(text).edits()) if _MAY_HAVE.search(text) else text


def refused_single_row(text: str) -> Unsupported:
    """Return the error for a text in which something is left that cannot be compared so, with its place."""
    return _Rewriting(text).refused()


class _Rewriting(SubqueryReader):
    def __init__(self, text: str) -> None:
        found = tokens(text)
        super().__init__(text, found, places(found))

    def edits(self) -> list[tuple[int, int, str]]:
        """Return what to write anew."""
        found: list[tuple[int, int, str]] = []
        for opening in self._subqueries():
            if self._has_one_row(opening):
                found += self._compared(opening)
        for opening in self._values():
            select = self._select(opening)
            if select is not None and {"having"} <= select.clauses.keys() <= _READ and self._aggregates(select):
                found += self._conditional(opening, select)
        return found

    def refused(self) -> Unsupported:
        """Return the error for the first such subquery."""
        begins = range(len(self._found))
        all_of_them = (each for each in begins if self._value(each) == "(" and self._value(each + 1) == "select")
        opening = next((each for each in all_of_them if self._skips_or_aggregates(each)), None)
        words = (
            "a subquery that depends on the query around it, and aggregates all its rows or skips some (OFFSET), is "
            "not supported with HAVING, nor after EXISTS, IN, ANY or ALL in this form: compare with its value"
        )
        return Unsupported(words) if opening is None else self._refused(opening, words)

    def _subqueries(self) -> list[int]:
        """Return where the parentheses of subqueries after EXISTS, IN, ANY and ALL begin."""
        begins = (each for each in range(1, len(self._found)) if self._value(each - 1) in _WORDS)
        return [each for each in begins if self._value(each) == "(" and self._value(each + 1) == "select"]

    def _values(self) -> list[int]:
        """Return where the parentheses of subqueries that are a value begin."""
        found = []
        for each in range(1, len(self._found)):
            before = self._value(each - 1)
            if self._value(each) != "(" or self._value(each + 1) != "select" or before in _NO_VALUE | _WORDS:
                continue
            if self._places[each].clause != "from" or before not in ("(", ","):
                found.append(each)
        return found

    def _has_one_row(self, opening: int) -> bool:
        select = self._select(opening)
        if select is None or not self._aggregates(select):
            return False
        if not select.clauses.keys() <= _READ:
            return False
        return self._value(opening - 1) == "exists" or not ("having" in select.clauses or self._has_commas(select))

    def _has_commas(self, select: Select) -> bool:
        begin, end = select.clauses["select"]
        own = (each for each in range(begin, end) if self._places[each].select is select)
        return any(self._value(each) == "," and not self._places[each].callers for each in own)

    def _skips_or_aggregates(self, opening: int) -> bool:
        select = self._select(opening)
        return select is None or "offset" in select.clauses or self._aggregates(select)

    def _conditional(self, opening: int, select: Select) -> list[tuple[int, int, str]]:
        """Make HAVING a condition of the value."""
        first, last = select.clauses["select"]
        last = next((each for each in range(first, last) if self._is_alias_of(each, select)), last)
        value = self._text[self._offset(first + 1) : self._offset(last)].rstrip()
        begin, end = self._offset(first), self._offset(select.clauses["select"][1])
        from_having = self._offset(select.clauses["having"][0])
        return [
            (begin, end, f"select case when {self._condition(select)} then {value} end "),
            (from_having, self._offset(self._closing(opening)), ""),
        ]

    def _is_alias_of(self, position: int, select: Select) -> bool:
        """Tell whether a token is the word AS before a column's name."""
        at = self._places[position]
        return self._value(position) == "as" and at.select is select and not at.callers

    def _condition(self, select: Select) -> str:
        first, last = select.clauses["having"]
        return self._text[self._offset(first + 1) : self._offset(last)].rstrip()

    def _compared(self, opening: int) -> list[tuple[int, int, str]]:
        select, word = self._places[opening + 1].select, self._value(opening - 1)
        begin = self._offset(opening - 1)
        if word == "exists" and select is not None:
            return self._exists(opening, select)
        if word == "in":
            denied = self._value(opening - 2) == "not"
            return [(self._offset(opening - 1 - denied), self._offset(opening), "<> " if denied else "= ")]
        return [(begin, self._offset(opening), "")] if self._value(opening - 2) in _OPERATORS else []

    def _exists(self, opening: int, select: Select) -> list[tuple[int, int, str]]:
        begin, end = (self._offset(each) for each in select.clauses["select"])
        before, inside, after = self._offset(opening - 1), self._offset(opening), self._offset(self._closing(opening))
        if "having" not in select.clauses:
            return [(before, inside, "("), (begin, end, "select count(*) "), (after + 1, after + 1, " >= 0)")]
        return [
            (before, inside, "coalesce("),
            (begin, end, f"select ({self._condition(select)}) "),
            (self._offset(select.clauses["having"][0]), after, ""),
            (after + 1, after + 1, ", false)"),
        ]
