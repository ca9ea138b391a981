"""Columns of one name in an answer, which DataFusion refuses: they are planned under other names, and get theirs back.

Only the answer's own columns may have one name. Where a subquery has two of them a reference to it means neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hybridq.errors import AmbiguousColumn
from hybridq.frontend.sql_clauses import Select, places
from hybridq.frontend.sql_reader import TextReader
from hybridq.frontend.sql_text import Token, changed, tokens

SAME_NAME = re.compile(
    r'unique expression names but the expression "(?P<first>.*?)" at position (?P<p>\d+)'
    r' and ".*" at position (?P<q>\d+)'
    r"|duplicate unqualified field name (?P<name>\S+)"
    r"|and unqualified field name (?P<other>.+) which would be ambiguous",
    re.DOTALL,
)
"""What DataFusion says of two columns of one name."""

_MOST = 100
"""Columns that are renamed at most."""

Planned = TypeVar("Planned")


@dataclass(frozen=True, slots=True)
class _Item:
    """What stands between two commas of SELECT, by its first token and the one after the last."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class _Renamed:
    """A text with another name for one column of SELECT.

    Attributes
    ----------
    text : str
    position : int or None
        The column's, in the answer; ``None``: it does not name the answer's columns.
    name : str or int
        The name that it has, or the position of another of its name.
    value : str or int
        What it computes, or the position of another that computes the same.
    """

    text: str
    position: int | None
    name: str | int
    value: str | int


@dataclass(slots=True)
class _Columns:
    """The names and values of columns that were renamed, by position, as ``_Renamed`` has them."""

    names: dict[int, str | int] = field(default_factory=dict)
    values: dict[int, str | int] = field(default_factory=dict)

    def note(self, renamed: _Renamed) -> None:
        """Note a column that was renamed."""
        if renamed.position is not None:
            self.names[renamed.position] = renamed.name
            self.values[renamed.position] = renamed.value

    def restored(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names that the answer's columns have, given those that they were planned with."""
        return tuple(self._name(position, names) for position in range(len(names)))

    def _name(self, position: int, names: Sequence[str]) -> str:
        known = self.names.get(position, names[position])
        return self._name(known, names) if isinstance(known, int) else known

    def value(self, position: int) -> str | int:
        """Return the same for columns that are known to be the same."""
        known = self.values.get(position, position)
        return self.value(known) if isinstance(known, int) and known != position else known


def planned_apart(
    text: str, plan: Callable[[str], Planned], names_of: Callable[[Planned], Sequence[str]]
) -> tuple[Planned, str, tuple[str, ...]] | None:
    """Plan a text some of whose columns have one name.

    Parameters
    ----------
    text : str
    plan : callable
        Plans a text.
    names_of : callable
        Gives the columns' names of a plan.

    Returns
    -------
    tuple of (plan, str, tuple of str), or None
        The plan, the text that it is of, and the columns' names as they were meant. ``None``: it is not the answer's
        own columns that are in the way.

    Raises
    ------
    AmbiguousColumn
        ORDER BY names one of several different columns.
    """
    columns = _Columns()
    for _ in range(_MOST):
        found, error = _tried(text, plan)
        if found is not None:
            names = columns.restored(names_of(found))
            _check_order(text, names, columns)
            return found, text, names
        match = SAME_NAME.search(error)
        answer = _Answer(text, tokens(text), plan, names_of)
        for renamed in answer.renamed(match) if match else ():
            left = _tried(renamed.text, plan)[1]
            # The same error, or a wrong text: it is another part of a UNION that has the two.
            if left != error and (not left or SAME_NAME.search(left)):
                text = renamed.text
                columns.note(renamed)
                break
        else:
            return None
    return None


def without_number(name: str, known: Collection[str]) -> str:
    """Return a column's name without the number by which DataFusion tells columns of a subquery that have one name.

    Parameters
    ----------
    name : str
    known : collection of str
        The names there are.

    >>> without_number("id:1", {"id"}), without_number("id:1", {"id", "id:1"})
    ('id', 'id:1')
    """
    first, colon, number = name.rpartition(":")
    return first if colon and number.isdigit() and first in known and name not in known else name


def _tried(text: str, plan: Callable[[str], Planned]) -> tuple[Planned | None, str]:
    """Return a text's plan, or what is wrong with it."""
    try:
        return plan(text), ""
    except Exception as error:
        return None, str(error)


class _Answer(TextReader):
    """The columns of a text's answer. Parameters: those of ``planned_apart``, with the text's tokens."""

    def __init__(
        self,
        text: str,
        found: Sequence[Token],
        plan: Callable[[str], Planned],
        names_of: Callable[[Planned], Sequence[str]],
    ) -> None:
        super().__init__(text, found)
        self._count: Callable[[str], int] = lambda query: len(names_of(plan(query)))
        self._places = places(found)

    def renamed(self, match: re.Match[str]) -> Iterator[_Renamed]:
        """Yield texts with another name for one of two columns, for each SELECT that may have them."""
        name = match["name"] or match["other"]
        for number, select in enumerate(self._selects()):
            items = list(self._items(select))
            edit = self._by_alias(items, name.strip('".')) if name else self._by_position(match, select, items)
            position = None if edit is None else self._position(select, items, edit[0])
            if edit is None or position is None:
                continue
            item, alias, twin = edit
            end = item.end if alias is None else item.end - 1 - (self._value(item.end - 2) == "as")
            value = " ".join(self._written(item.begin, end).split())
            text = self._with_name(item, alias, self._unused(alias or "column"))
            known = (twin, twin) if alias is None else (alias, value)
            yield _Renamed(text, position if number == 0 else None, *known)

    def _selects(self) -> Iterator[Select]:
        """Yield each SELECT that is in no parentheses."""
        depth = 0
        for position, token in enumerate(self._found):
            depth += (token.value == "(" and token.kind == "sign") - (token.value == ")" and token.kind == "sign")
            at = self._places[position].select
            if depth == 0 and at is not None and at.begin == position:
                yield at

    def _items(self, select: Select) -> Iterator[_Item]:
        begin, end = select.clauses["select"]
        begin += 1 + (self._value(begin + 1) in ("distinct", "all"))
        depth = 0
        for position in range(begin, end):
            depth += (self._value(position) in ("(", "[")) - (self._value(position) in (")", "]"))
            if depth == 0 and self._value(position) == ",":
                yield _Item(begin, position)
                begin = position + 1
        yield _Item(begin, end)

    def _by_alias(self, items: Sequence[_Item], name: str) -> tuple[_Item, str | None, int] | None:
        found = [item for item in items if item.end - item.begin > 1 and self._found[item.end - 1].value == name]
        found = [item for item in found if self._alias(item, f" AS {name}") == name]
        return (found[-1], name, 0) if found else None

    def _by_position(
        self, match: re.Match[str], select: Select, items: Sequence[_Item]
    ) -> tuple[_Item, str | None, int] | None:
        first, second = int(match["p"]), int(match["q"])
        for position, twin in ((second, first), (first, second)):
            item = self._item_at(select, items, position)
            if item is not None and not self._is_star(item):
                return item, self._alias(item, match["first"]), twin
        return None

    def _alias(self, item: _Item, expression: str) -> str | None:
        """Return the name that a column is given; DataFusion's form of it tells an alias from a part of a type."""
        last = self._found[item.end - 1]
        if item.end - item.begin < 2 or last.kind not in ("word", "quoted"):
            return None
        said = expression.endswith(f" AS {last.value}") or expression == last.value
        return last.value if said and self._value(item.end - 2) not in (".", ":") else None

    def _is_star(self, item: _Item) -> bool:
        return self._value(item.end - 1) == "*"

    def _width(self, select: Select, item: _Item) -> int | None:
        """Return the number of columns that an item stands for; ``None``: nobody knows."""
        if not self._is_star(item):
            return 1
        begin, end = select.clauses["select"]
        edits = [(self._offset(begin + 1), self._offset(end), self._written(item.begin, item.end) + " ")]
        if "order" in select.clauses:
            begin, end = select.clauses["order"]
            edits.append((self._offset(begin), self._offset(end), ""))
        try:
            return self._count(changed(self._text, edits))
        except Exception:
            return None

    def _position(self, select: Select, items: Sequence[_Item], wanted: _Item) -> int | None:
        """Return the position of an item's column."""
        position = 0
        for item in items:
            if item is wanted:
                return position
            width = self._width(select, item)
            if width is None:
                return None
            position += width
        return None

    def _item_at(self, select: Select, items: Sequence[_Item], position: int) -> _Item | None:
        for item in items:
            width = self._width(select, item)
            if width is None:
                return None
            position -= width
            if position < 0:
                return item
        return None

    def _with_name(self, item: _Item, alias: str | None, name: str) -> str:
        quoted = '"' + name.replace('"', '""') + '"'
        if alias is None:
            end = self._offset(item.end - 1) + len(self._written(item.end - 1, item.end))
            return changed(self._text, [(end, end, f" as {quoted}")])
        begin = self._offset(item.end - 1)
        return changed(self._text, [(begin, begin + len(self._written(item.end - 1, item.end)), quoted)])

    def _unused(self, name: str) -> str:
        taken = {token.value for token in self._found}
        return next(each for number in range(2, len(taken) + 3) if (each := f"{name} ({number})") not in taken)

    def _written(self, begin: int, end: int) -> str:
        """Return a part of the text without blanks and comments at its end."""
        text = self._text[self._offset(begin) : self._offset(end)]
        return re.sub(r"(?:\s|--[^\n]*(?=\n|$)|/\*(?:(?!\*/).)*\*/)+$", "", text, flags=re.DOTALL)


def _check_order(text: str, names: Sequence[str], columns: _Columns) -> None:
    """Check that ORDER BY names no column that stands for several different ones.

    Raises
    ------
    AmbiguousColumn
        It does.
    """
    found = tokens(text)
    at = places(found)
    depth = 0
    for position, token in enumerate(found):
        depth += (token.value == "(" and token.kind == "sign") - (token.value == ")" and token.kind == "sign")
        if depth or at[position].clause != "order" or token.kind not in ("word", "quoted"):
            continue
        after = found[position + 1].value if position + 1 < len(found) else ","
        if found[position - 1].value not in ("by", ",") or after not in (
            ",",
            "asc",
            "desc",
            "nulls",
            "limit",
            "offset",
        ):
            continue
        values = {columns.value(each) for each, name in enumerate(names) if name == token.value}
        if len(values) > 1:
            raise AmbiguousColumn(
                f"ORDER BY {token.value}: {len(values)} columns of SELECT have that name: write the number of one, as"
                f" in ORDER BY {names.index(token.value) + 1}"
            )
