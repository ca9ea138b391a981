"""JOIN USING and NATURAL JOIN, written with ON before DataFusion plans them.

DataFusion takes the left table's column for the merged one, which of RIGHT and FULL JOIN is wrong, and exports no outer
join with USING. So names are looked up here: a merged column is the left one of INNER and LEFT JOIN, the right one of
RIGHT JOIN, and of FULL JOIN the first of both that is not NULL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hybridq.frontend.sql_clauses import Select
from hybridq.frontend.sql_columns import ColumnReader, Columns, NotRead, column_of, quoted
from hybridq.frontend.sql_from import Chain, Item, Join
from hybridq.frontend.sql_text import changed

_MAY_HAVE = re.compile(r"\b(?:using|natural)\b", re.IGNORECASE)
_CLAUSES = ("select", "where", "group", "having", "window", "qualify", "order")


def with_joins_spelled_out(text: str, columns_of: Columns, known: Mapping[str, Sequence[str]]) -> str:
    """Return the text with ON in the place of USING and NATURAL, and with what their merged columns stand for.

    Where a join is of a form that is not read here the text stays as it is in that place.

    Parameters
    ----------
    text : str
    columns_of : callable
        Gives the columns of a query; ``None``: it cannot be planned.
    known : mapping of str to sequence of str
        The columns of each registered table.

    >>> tables = {"t": ["a", "k"], "u": ["k", "b"]}
    >>> with_joins_spelled_out("select k, b from t full join u using (k)", lambda query: None, tables)
    'select coalesce("t"."k", "u"."k") as "k", b from t full join u on ("t"."k" = "u"."k")'
    >>> with_joins_spelled_out("select * from t natural right join u", lambda query: None, tables)
    'select "t"."a", "u"."k", "u"."b" from t  right join u on ("t"."k" = "u"."k")'
    """
    if not _MAY_HAVE.search(text):
        return text
    return _Rewriting(text, columns_of, known).result()


@dataclass(slots=True)
class _Merged:
    """The columns of some joined items, as USING leaves them.

    Attributes
    ----------
    items : list of Item
    values : dict of str to str
        What each merged column stands for.
    owners : dict of str to list of Item
        Whose columns it merges.
    """

    items: list[Item] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    owners: dict[str, list[Item]] = field(default_factory=dict)


class _Rewriting(ColumnReader):
    """Rewrites one text. Parameters: those of ``with_joins_spelled_out``, and what is read of it."""

    def result(self) -> str:
        """Return the text with all its joins spelled out that are read here."""
        edits: list[tuple[int, int, str]] = []
        for select in {at.select.begin: at.select for at in self._places if at.select is not None}.values():
            begin, end = select.clauses.get("from", (0, 0))
            if not any(self._value(each) in ("using", "natural") for each in range(begin, end)):
                continue
            try:
                edits += self._spelled_out(select)
            except NotRead:
                continue
        return changed(self._text, edits)

    def _spelled_out(self, select: Select) -> list[tuple[int, int, str]]:
        chains = self.chains(select)
        if not any(chain.by_name for chain in chains or ()):
            return []
        edits: list[tuple[int, int, str]] = []
        merged = [self._merge(chain, edits) for chain in chains or ()]
        everywhere = self._unambiguous(merged)
        named = self._named(select)
        for clause in _CLAUSES:
            begin, end = select.clauses.get(clause, (0, 0))
            for position in self._references(select, begin + 1, end, everywhere):
                name = self._found[position].value
                if clause == "order" and name in named and self._is_whole(position, select, "order"):
                    continue
                written = everywhere[name]
                if clause == "select" and self._is_whole(position, select, "select"):
                    written += f" as {quoted(name)}"
                edits.append((*self._at(position), written))
        for star in self._stars(select):
            spelled = ", ".join(written for each in merged for written in self._all(each))
            edits.append((*self._at(star), spelled))
        return edits

    # --- joins -----------------------------------------------------------------------------------------------------

    def _merge(self, chain: Chain, edits: list[tuple[int, int, str]]) -> _Merged:
        """Write ON in the place of USING in a chain, and return what becomes of its columns."""
        merged = _Merged()
        for join in chain.joins:
            right = _Merged([join.item]) if join.group is None else self._merge(join.group, edits)
            if join.by_name:
                self._by_name(join, merged, right, edits)
            if right.values.keys() & merged.values.keys():
                raise NotRead  # each of several columns that a name means is made of several
            merged.items += right.items
            merged.values |= right.values
            merged.owners |= right.owners
            if join.condition is not None:
                values = self._unambiguous([merged])
                found = self._references(self._places[join.item.begin].select, *join.condition, values)
                edits += [(*self._at(each), values[self._found[each].value]) for each in found]
        return merged

    def _by_name(self, join: Join, merged: _Merged, joined: _Merged, edits: list[tuple[int, int, str]]) -> None:
        names = join.names if join.natural is None else self._common(merged, joined)
        conditions = []
        for name in names:
            left, right = self._side(merged, name), self._side(joined, name)
            conditions.append(f"{left} = {right}")
            both = f"coalesce({left}, {right})"
            merged.values[name] = {"right": right, "full": both}.get(join.kind, left)
            merged.owners[name] += joined.owners.pop(name)
            del joined.values[name]
        written = f"on ({' and '.join(conditions) or 'true'})"
        if join.using is not None:
            edits.append((self._offset(join.using[0]), self._offset(join.using[1]) + 1, written))
        if join.natural is not None:
            edits.append((*self._at(join.natural), ""))
            last = self._at(join.item.end - 1)[1]
            edits.append((last, last, f" {written}"))

    def _side(self, merged: _Merged, name: str) -> str:
        """Return what a name stands for on one side of a join that merges it."""
        if name not in merged.values:
            owners = merged.items
            if len(owners) > 1:
                owners = [item for item in owners if name in self._columns(item)]
            if len(owners) != 1:
                raise NotRead  # there is no such column, or there are several
            merged.values[name] = column_of(owners[0], name)
            merged.owners[name] = list(owners)
        return merged.values[name]

    def _common(self, merged: _Merged, joined: _Merged) -> list[str]:
        """Return the columns that NATURAL JOIN merges."""
        right = {name for item in joined.items for name in self._columns(item)}
        return list(dict.fromkeys(name for each in merged.items for name in self._columns(each) if name in right))

    def _unambiguous(self, chains: Sequence[_Merged]) -> dict[str, str]:
        """Return what merged columns stand for, without those whose names other columns have, too."""
        found: dict[str, str] = {}
        for chain in chains:
            for name, value in chain.values.items():
                others = [item for each in chains for item in each.items if item not in chain.owners[name]]
                if not any(name in self._columns(item) for item in others):
                    found[name] = value
        return found

    def _all(self, merged: _Merged) -> Iterator[str]:
        """Yield what ``*`` stands for: a merged column is where the first of its columns is."""
        for item in merged.items:
            for name in self._columns(item):
                owners = merged.owners.get(name, [])
                if item not in owners:
                    yield column_of(item, name)
                elif item is owners[0]:
                    value = merged.values[name]
                    yield f"{value} as {quoted(name)}" if value.startswith("coalesce(") else value

    # --- references ------------------------------------------------------------------------------------------------

    def _stars(self, select: Select) -> Iterator[int]:
        """Yield where ``*`` stands for all columns."""
        begin, end = select.clauses["select"]
        for each in range(begin + 1, end):
            if self._value(each) != "*" or self._places[each].callers or self._places[each].select is not select:
                continue
            first = self._value(each - 1) in (",", "select", "distinct", "all")
            if first and (each + 1 == end or self._value(each + 1) == ","):
                yield each

    def _references(self, select: Select | None, begin: int, end: int, names: Mapping[str, str]) -> Iterator[int]:
        """Yield where columns of some names stand, without a table's name before them."""
        for each in range(begin, end):
            token = self._found[each]
            if token.kind not in ("word", "quoted") or token.value not in names or self._is_no_column(each):
                continue
            if self._refers(each, token.value, select):
                yield each

    def _refers(self, position: int, name: str, select: Select | None) -> bool:
        """Tell whether a name is one of a SELECT's, also from within subqueries."""
        inner = self._places[position].select
        while inner is not None and inner is not select:
            chains = self.chains(inner)
            if chains is None or self._has_column(chains, name):
                return False
            inner = self._places[inner.begin - 1].select if inner.begin else None
        return inner is not None

    def _is_whole(self, position: int, select: Select, clause: str) -> bool:
        """Tell whether a name is all of an item of SELECT or ORDER BY."""
        if self._places[position].callers or self._places[position].select is not select:
            return False
        before, after = self._value(position - 1), self._value(position + 1)
        ends = position + 1 == select.clauses[clause][1] or after == ","
        return before in (",", "select", "distinct", "all", "by") and (ends or after in ("asc", "desc", "nulls"))

    def _named(self, select: Select) -> frozenset[str]:
        """Return the names that the answer's columns have, or may have; all words after a set operation."""
        if self._value(select.begin - 1) in ("union", "intersect", "except", "all", "distinct"):
            return frozenset(token.value for token in self._found)
        begin, end = select.clauses["select"]
        own = [each for each in range(begin + 1, end) if self._places[each].select is select]
        own = [each for each in own if not self._places[each].callers]
        if any(self._value(each) == "*" for each in own):
            return frozenset(token.value for token in self._found)
        last = [each for each in own if each + 1 == end or self._value(each + 1) == ","]
        return frozenset(self._found[each].value for each in last if self._found[each].kind in ("word", "quoted"))
