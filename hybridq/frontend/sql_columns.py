"""The columns of what FROM names, and where an SQL text refers to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hybridq.frontend.sql_clauses import places
from hybridq.frontend.sql_from import Chain, FromReader, Item
from hybridq.frontend.sql_text import tokens
from hybridq.frontend.sql_with import visible_names

_BEFORE_OPERANDS = frozenset(
    {"select", "distinct", "all", "by", "and", "or", "not", "case", "when", "then", "else", "in", "like", "ilike", "is"}
    | {"between", "on", "where", "having", "from", "qualify", "any", "some", "escape", "similar", "to", "for"}
    | {"both", "leading", "trailing", "placing"}
)
"""Words before an operand: a name after another word is an alias."""

Columns = Callable[[str], Sequence[str] | None]
"""Gives the columns of a query; ``None``: it cannot be planned."""


class NotRead(Exception):
    """A part of a text has a form that is not read here."""


class ColumnReader(FromReader):
    """Looks columns up, as far as their names and places tell.

    Parameters
    ----------
    text : str
    columns_of : callable
    known : mapping of str to sequence of str
        The columns of each registered table.
    """

    def __init__(self, text: str, columns_of: Columns, known: Mapping[str, Sequence[str]]) -> None:
        found = tokens(text)
        super().__init__(text, found, places(found))
        self._columns_of = columns_of
        self._known = known
        self._kept: dict[int, Sequence[str]] = {}

    def _columns(self, item: Item) -> Sequence[str]:
        if item.begin not in self._kept:
            self._kept[item.begin] = self._looked_up(item)
        return self._kept[item.begin]

    def _looked_up(self, item: Item) -> Sequence[str]:
        before = visible_names(self._text, self._found, item.begin)
        if item.table in self._known and item.table not in before:
            return self._known[item.table]
        written = self._text[self._offset(item.begin) : self._at(item.end - 1)[1]]
        clauses = ", ".join(before.values())
        found = self._columns_of(f"{f'with {clauses} ' if clauses else ''}select * from {written}")
        if found is None:
            raise NotRead
        return found

    def _has_column(self, chains: Sequence[Chain], name: str) -> bool:
        """Tell whether something in FROM has a column, as far as one can tell."""
        try:
            return any(name in self._columns(item) for chain in chains for item in chain.items())
        except NotRead:
            return True

    def _is_no_column(self, position: int) -> bool:
        """Tell whether a name at a position is an alias, a function, a type or part of a longer name."""
        before, after = self._value(position - 1), self._value(position + 1)
        if before in (".", "as", ":") or after in (".", "("):
            return True
        previous = self._found[position - 1]
        following = self._found[position + 1] if position + 1 < len(self._found) else None
        if following is not None and following.kind == "text":  # date '2020-01-01'
            return True
        if after == "from" and self._places[position].callers[-1:] == ("extract",):
            return True
        if previous.kind == "sign":
            return previous.value in (")", "]")
        return previous.kind != "word" or previous.value not in _BEFORE_OPERANDS

    def _at(self, position: int) -> tuple[int, int]:
        """Return where a word, name or sign begins and ends in the text."""
        begin, end = self._offset(position), self._offset(position + 1)
        token = self._found[position]
        if token.kind == "quoted":
            return begin, begin + len(token.value) + token.value.count('"') + 2
        return begin, min(end, begin + len(token.value))


def column_of(item: Item, name: str) -> str:
    """Return a column with its table's name before it.

    Raises
    ------
    NotRead
        The table has no name.
    """
    if not item.name:
        raise NotRead
    return f"{quoted(item.name)}.{quoted(name)}"


def quoted(name: str) -> str:
    """Return a name in double quotes."""
    return '"' + name.replace('"', '""') + '"'
