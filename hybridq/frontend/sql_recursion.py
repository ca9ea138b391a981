"""WITH RECURSIVE taken apart: a query for the first rows, one for each further step, and one over all of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hybridq.frontend.sql_reader import TextReader
from hybridq.frontend.sql_text import tokens


@dataclass(frozen=True, slots=True)
class RecursiveTable:
    """One table of WITH RECURSIVE that reads itself.

    Attributes
    ----------
    name : str
    columns : tuple of str
        Its columns' names; none: those of ``first``.
    first : str
        The query that gives the first rows.
    step : str
        The query that makes further rows of those of the step before, which it reads under the table's name.
    distinct : bool
        UNION: rows that have been there are left out.
    """

    name: str
    columns: tuple[str, ...]
    first: str
    step: str
    distinct: bool


@dataclass(frozen=True, slots=True)
class RecursiveText:
    """A text with WITH RECURSIVE.

    Attributes
    ----------
    tables : tuple of RecursiveTable
        In the order of the text; one may read those before it.
    rest : str
        The query over them, which reads them as tables.
    """

    tables: tuple[RecursiveTable, ...]
    rest: str


def recursive_text(text: str) -> RecursiveText | None:
    """Take a text apart; ``None``: it does not begin with WITH RECURSIVE, or nothing in it is recursive.

    Raises
    ------
    Unsupported
        A table reads itself in another way than in what follows its last UNION.

    >>> text = "with recursive w(x) as (select 1 union all select x + 1 from w where x < 3) select * from w"
    >>> found = recursive_text(text)
    >>> (table,) = found.tables
    >>> table.name, table.columns, table.first.strip(), table.step.strip(), table.distinct
    ('w', ('x',), 'select 1', 'select x + 1 from w where x < 3', False)
    >>> found.rest.strip()
    'select * from w'
    """
    found = list(tokens(text))
    if [token.value for token in found[:2]] != ["with", "recursive"] or found[0].kind != "word":
        return None
    return _Reading(text, found).result()


class _Reading(TextReader):
    """Reads one text."""

    def result(self) -> RecursiveText | None:
        plain: list[tuple[int, int]] = []
        recursive: list[RecursiveTable] = []
        position = 2
        while True:
            start, name = position, self._name(position)
            position, columns = self._columns(position + 1)
            if self._value(position) != "as":
                raise self._refused(position, "WITH RECURSIVE in this form is not supported")
            position += 1 + (self._value(position + 1) == "not")
            position += self._value(position) == "materialized"
            if self._value(position) != "(":
                raise self._refused(position, "WITH RECURSIVE in this form is not supported")
            closing = self._closing(position)
            if self._reads(name, position + 1, closing):
                recursive.append(self._table(name, columns, position, closing, plain))
            else:
                plain.append((start - bool(plain), closing + 1))  # with the comma before it
            position = closing + 1
            if self._value(position) != ",":
                break
            position += 1
        if not recursive:
            return None
        return RecursiveText(tuple(recursive), self._alone(plain, position, len(self._found)))

    def _table(
        self, name: str, columns: tuple[str, ...], opening: int, closing: int, before: Sequence[tuple[int, int]]
    ) -> RecursiveTable:
        depth, union = 0, None
        for position in range(opening + 1, closing):
            value = self._value(position)
            depth += (value == "(") - (value == ")")
            if depth == 0 and value == "union":
                union = position
            elif depth == 0 and value in ("intersect", "except", "with", "order", "limit", "offset", "fetch"):
                raise self._refused(position, f"{value.upper()} in a recursive query is not supported")
        if union is None or self._reads(name, opening + 1, union):
            raise self._refused(opening, f"{name} may read itself only in what follows its last UNION")
        step = union + 1 + (self._value(union + 1) in ("all", "distinct"))
        return RecursiveTable(
            name,
            columns,
            self._alone(before, opening + 1, union),
            self._alone(before, step, closing),
            self._value(union + 1) != "all",
        )

    def _name(self, position: int) -> str:
        if position >= len(self._found) or self._found[position].kind not in ("word", "quoted"):
            raise self._refused(position, "WITH RECURSIVE in this form is not supported")
        return self._found[position].value

    def _columns(self, position: int) -> tuple[int, tuple[str, ...]]:
        if self._value(position) != "(":
            return position, ()
        closing = self._closing(position)
        names = [self._found[each] for each in range(position + 1, closing)]
        return closing + 1, tuple(token.value for token in names if token.kind in ("word", "quoted"))

    def _reads(self, name: str, start: int, stop: int) -> bool:
        """Tell whether a part of the text names a table."""
        return any(
            token.value == name
            and token.kind in ("word", "quoted")
            and self._value(position - 1) in ("from", "join", ",")
            for position, token in enumerate(self._found[:stop])
            if position >= start
        )

    def _alone(self, plain: Sequence[tuple[int, int]], start: int, stop: int) -> str:
        """Return a part of the text with the plain queries before it, each where it is in the whole text."""
        parts, end = [], 0
        for begin, after in [*([(0, 1)] if plain else []), *plain, (start, stop)]:
            blank = re.sub(r"[^\n]", " ", self._text[end : self._offset(begin)])
            end = self._offset(after)
            parts += [blank, self._text[self._offset(begin) : end]]
        return "".join(parts).rstrip()
