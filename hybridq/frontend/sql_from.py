"""What FROM of a SELECT joins, as it is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hybridq.frontend.sql_clauses import Place, Select
from hybridq.frontend.sql_reader import TextReader
from hybridq.frontend.sql_text import Token

JOIN_WORDS = frozenset({"join", "cross", "inner", "left", "right", "full", "natural"})
NOT_ALIASES = JOIN_WORDS | frozenset(
    {"on", "using", "where", "group", "having", "window", "qualify", "order", "limit", "offset", "fetch", "for"}
    | {"union", "intersect", "except", "lateral", "tablesample", "with"}
)
"""Words that are no alias where one could be."""


@dataclass(slots=True, eq=False)
class Item:
    """A table, a subquery or joins in parentheses, in FROM.

    Attributes
    ----------
    begin, end : int
        Its first token, and the one after its alias and the names of its columns.
    name : str
        What its columns are qualified with; empty: it has no name.
    table : str
        The table that it is; empty: it is something else.
    """

    begin: int
    end: int
    name: str
    table: str


@dataclass(slots=True, eq=False)
class Join:
    """An item, and how it is joined with those before it.

    Attributes
    ----------
    item : Item
    group : Chain or None
        What the item joins, if it is joins in parentheses.
    kind : str
        ``inner``, ``left``, ``right``, ``full``, ``cross``; empty: it is the first one.
    natural : int or None
        Where the word NATURAL is.
    using : tuple of (int, int) or None
        Where the word USING is, and the parenthesis that ends its columns.
    names : tuple of str
        Its columns.
    condition : tuple of (int, int) or None
        Where the condition after ON begins and ends.
    """

    item: Item
    group: Chain | None = None
    kind: str = ""
    natural: int | None = None
    using: tuple[int, int] | None = None
    names: tuple[str, ...] = ()
    condition: tuple[int, int] | None = None

    @property
    def by_name(self) -> bool:
        """Whether columns of one name are joined and merged."""
        return self.natural is not None or self.using is not None


@dataclass(slots=True)
class Chain:
    """Items that are joined, from one comma of FROM to the next; the first one stands alone."""

    joins: list[Join] = field(default_factory=list)

    @property
    def by_name(self) -> bool:
        """Whether columns of one name are joined and merged somewhere in it."""
        return any(join.by_name or (join.group is not None and join.group.by_name) for join in self.joins)

    def items(self) -> Iterator[Item]:
        """Yield the tables and subqueries, also those in parentheses."""
        for join in self.joins:
            if join.group is None:
                yield join.item
            else:
                yield from join.group.items()


class FromReader(TextReader):
    """Reads FROM.

    Parameters
    ----------
    text : str
    found : sequence of Token
    at : sequence of Place
        Where each token is.
    """

    def __init__(self, text: str, found: Sequence[Token], at: Sequence[Place]) -> None:
        super().__init__(text, found)
        self._places = at

    def chains(self, select: Select) -> list[Chain] | None:
        """Return what a SELECT joins; ``None``: it is in a form that is not read here."""
        return self._chains_of(*select.clauses["from"]) if "from" in select.clauses else []

    def _chains_of(self, position: int, end: int) -> list[Chain] | None:
        """Return what is joined from the word or sign before the first item on."""
        found: list[Chain] = []
        while position < end:
            if not found or self._value(position) == ",":
                join = self._joined(position + 1)
                found.append(Chain())
            else:
                join = self._join_at(position, end)
            if join is None:
                return None
            found[-1].joins.append(join)
            ends = [join.item.end, *(part[1] for part in (join.condition,) if part)]
            position = max([*ends, *(part[1] + 1 for part in (join.using,) if part)])
        return found

    def _joined(self, position: int) -> Join | None:
        """Return an item at a position, with what it joins."""
        if self._value(position) != "(" or self._value(position + 1) in ("select", "with", "values"):
            item = self._item(position)
            return None if item is None else Join(item)
        closing = self._closing(position)
        chains = self._chains_of(position, closing)
        if chains is None or len(chains) != 1 or self._value(closing + 1) == "as" or self.is_name(closing + 1):
            return None
        return Join(Item(position, closing + 1, "", ""), chains[0])

    def is_name(self, position: int) -> bool:
        """Tell whether an alias may be at a position."""
        if not 0 <= position < len(self._found):
            return False
        token = self._found[position]
        return token.kind == "quoted" or (token.kind == "word" and token.value not in NOT_ALIASES)

    def _join_at(self, position: int, end: int) -> Join | None:
        natural = position if self._value(position) == "natural" else None
        position += natural is not None
        kind = "inner"
        if self._value(position) in JOIN_WORDS - {"join", "natural"}:
            kind = self._value(position)
            position += 1 + (self._value(position + 1) == "outer")
        join = self._joined(position + 1) if self._value(position) == "join" else None
        if join is None:
            return None
        item, join.kind, join.natural = join.item, kind, natural
        if self._value(item.end) == "using" and self._value(item.end + 1) == "(":
            closing = self._closing(item.end + 1)
            join.using = item.end, closing
            join.names = tuple(token.value for token in self._found[item.end + 2 : closing] if token.value != ",")
        elif self._value(item.end) == "on":
            join.condition = item.end + 1, self._end_of_condition(item.end + 1, end)
        return join

    def _item(self, position: int) -> Item | None:
        begin = position
        position += self._value(position) == "lateral"
        table = name = ""
        if self._value(position) == "(":
            if self._value(position + 1) not in ("select", "with", "values"):
                return None
            position = self._closing(position) + 1
        elif not self.is_name(position):
            return None
        else:
            while self._value(position + 1) == "." and position + 2 < len(self._found):
                position += 2
            table = name = self._found[position].value
            position += 1
            if self._value(position) == "(":  # a function
                table, position = "", self._closing(position) + 1
        position += self._value(position) == "as"
        if self.is_name(position):
            name = self._found[position].value
            position += 1
            if self._value(position) == "(":
                table, position = "", self._closing(position) + 1
        return Item(begin, position, name, table)

    def _end_of_condition(self, position: int, end: int) -> int:
        """Return where the condition after ON ends."""
        depth = 0
        for each in range(position, end):
            value = self._value(each)
            depth += (value == "(") - (value == ")")
            if depth:
                continue
            if value in (",", "join") or (value in JOIN_WORDS and self._value(each + 1) in (*JOIN_WORDS, "outer")):
                return each
        return end
