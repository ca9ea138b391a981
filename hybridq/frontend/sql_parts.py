"""The parts of subqueries, as they are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hybridq.frontend.sql_clauses import Select
from hybridq.frontend.sql_from import FromReader
from hybridq.frontend.sql_text import changed
from hybridq.plan.aggregates import AGGREGATES, BY_SUBSTRAIT_NAME

Span = tuple[int, int]
"""The first token of a part, and the one after its last."""

_SETS = frozenset({"union", "intersect", "except"})


@dataclass(frozen=True, slots=True)
class SelectItem:
    """A column of SELECT.

    Attributes
    ----------
    span : Span
        What it computes.
    name : str
        Empty: it has none that can be told from the text.
    """

    span: Span
    name: str


class SubqueryReader(FromReader):
    """Reads subqueries of one SELECT. Parameters: those of ``FromReader``."""

    def _select(self, opening: int) -> Select | None:
        """Return the SELECT of the subquery in a parenthesis; ``None``: it has several."""
        own = self._places[opening + 1].select
        inside = range(opening + 1, self._closing(opening))
        several = any(self._value(each) in _SETS and self._places[each].select is own for each in inside)
        return None if several else own

    def _aggregates(self, select: Select) -> bool:
        """Tell whether a SELECT aggregates all rows."""
        if "group" in select.clauses:
            return False
        begin, end = select.clauses["select"]
        return "having" in select.clauses or any(self._is_aggregate(each, select) for each in range(begin, end))

    def _is_aggregate(self, position: int, select: Select) -> bool:
        token = self._found[position]
        called = token.kind == "word" and self._value(position + 1) == "(" and self._places[position].select is select
        if not called or (token.value not in AGGREGATES and token.value not in BY_SUBSTRAIT_NAME):
            return False
        after = self._closing(position + 1) + 1
        while self._value(after) in ("filter", "within"):  # FILTER (...), WITHIN GROUP (...)
            after = self._closing(after + 1 + (self._value(after) == "within")) + 1
        return self._value(after) != "over"

    def _span(self, select: Select, clause: str) -> Span | None:
        """Return what is in a clause, behind its words; ``None``: there is no such clause."""
        if clause not in select.clauses:
            return None
        begin, end = select.clauses[clause]
        return begin + 1 + (clause in ("group", "order")), end

    def _written(self, span: Span, names: Mapping[Span, str] | None = None) -> str:
        """Return the text of a part, with other names for some parts of it."""
        begin, end = self._offset(span[0]), self._at(span[1] - 1)[1]
        edits = [
            (self._offset(first) - begin, self._at(last - 1)[1] - begin, name)
            for (first, last), name in (names or {}).items()
            if span[0] <= first < span[1]
        ]
        return changed(self._text[begin:end], edits)

    def _at(self, position: int) -> tuple[int, int]:
        """Return where a token begins and ends in the text."""
        begin, end = self._offset(position), self._offset(position + 1)
        return begin, begin + len(self._text[begin:end].rstrip())

    def _separated(self, span: Span, words: frozenset[str]) -> Iterator[Span]:
        """Yield the parts of a part between some words or signs, which are in no parentheses or CASE."""
        begin, depth, bounds = span[0], 0, 0
        for position in range(*span):
            value = self._value(position)
            depth += (value in ("(", "[", "case")) - (value in (")", "]", "end"))
            if depth:
                continue
            bounds += value == "between"
            if value == "and" and bounds:
                bounds -= 1
            elif value in words:
                yield begin, position
                begin = position + 1
        yield begin, span[1]

    def _conjuncts(self, span: Span | None) -> list[Span]:
        """Return the conditions that a condition consists of by AND."""
        if span is None:
            return []
        alternatives = list(self._separated(span, frozenset({"or"})))
        return [span] if len(alternatives) > 1 else list(self._separated(span, frozenset({"and"})))

    def _select_items(self, select: Select) -> list[SelectItem]:
        begin, end = select.clauses["select"]
        begin += 1 + (self._value(begin + 1) in ("distinct", "all"))
        return [self._select_item(part) for part in self._separated((begin, end), frozenset({","}))]

    def _select_item(self, span: Span) -> SelectItem:
        first, end = span
        last = self._found[end - 1]
        named = last.kind in ("word", "quoted")
        if named and self._value(end - 2) == "as":
            return SelectItem((first, end - 2), last.value)
        if named and (end - first == 1 or (end - first == 3 and self._value(first + 1) == ".")):
            return SelectItem(span, last.value)
        if named and last.value != "end" and end - first > 1:
            before = self._found[end - 2]
            if before.kind == "number" or (before.kind == "sign" and before.value == ")"):
                return SelectItem((first, end - 1), last.value)  # an alias without AS
            column = end - first == 2 or (end - first == 4 and self._value(first + 1) == ".")
            if column and before.kind in ("word", "quoted"):
                return SelectItem((first, end - 1), last.value)
        return SelectItem(span, "")
