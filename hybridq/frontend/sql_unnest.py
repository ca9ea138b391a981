"""UNNEST, which DataFusion plans and cannot export, written in another way before the text is planned.

``UNNEST(l) AS u(x)`` becomes a table that stands for all values there are, with a condition that chooses those of the
list: ``FROM t, unnest_1 AS u WHERE unnests_1(t.l, u.x)``. That is a join like any other, so that whatever DataFusion
does to joins is right for it; ``unnesting`` makes ``Unnest`` nodes of what comes back. In the list of SELECT it is the
same, with a table that is joined with all that FROM has.

The types of elements, which the tables need, are those that DataFusion finds in the text as it was (``probe``).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from hybridq.errors import Unsupported
from hybridq.frontend.arrow_names import type_at
from hybridq.frontend.sql_clauses import Place, Select, places
from hybridq.frontend.sql_from import JOIN_WORDS, NOT_ALIASES
from hybridq.frontend.sql_reader import TextReader
from hybridq.frontend.sql_text import Token, changed, tokens
from hybridq.plan.aggregates import BY_SUBSTRAIT_NAME as AGGREGATES

TABLE, FUNCTION = "hybridq_unnest_", "hybridq_unnests_"
"""Beginnings of the names of what stands for UNNEST."""

_FIRST_MARK = 9_000_000_000_000_000
"""Lists are looked up in plans by this bound of a slice, and what follows it: longer than any list."""

_BEFORE_VALUES = frozenset({"when", "then", "else", "case", "and", "or", "not", "in", "like", "select", "distinct"})
_USE_SUBQUERY = "give what stands beside it a subquery of its own"


@dataclass(slots=True)
class UnnestTable:
    """What stands for one UNNEST, or for all those in the list of one SELECT.

    Attributes
    ----------
    number : int
    lists : list of str
        The lists, as they are written.
    columns : list of str
        Names of the elements' columns.
    ordinality : str or None
        Name of the column of their places.
    marks : list of int
        What the lists are found by in the plan of ``UnnestText.probe``.
    """

    number: int
    lists: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    ordinality: str | None = None
    marks: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{TABLE}{self.number}"

    @property
    def function(self) -> str:
        return f"{FUNCTION}{self.number}"

    def condition(self, alias: str) -> str:
        """Return the condition that an element is one of the lists'."""
        names = [*self.columns, *([] if self.ordinality is None else [self.ordinality])]
        return f"{self.function}({', '.join([*self.lists, *(f'{alias}.{_quoted(name)}' for name in names)])})"


@dataclass(frozen=True, slots=True)
class UnnestText:
    """An SQL text with UNNEST.

    Attributes
    ----------
    text : str
        With tables in the place of UNNEST.
    probe : str
        With UNNEST, and marks by which its lists are found in the plan.
    tables : tuple of UnnestTable
    """

    text: str
    probe: str
    tables: tuple[UnnestTable, ...]

    def list_types(self, displayed: str) -> Mapping[int, tuple[pa.DataType, ...]]:
        """Return the types of each table's lists.

        Parameters
        ----------
        displayed : str
            The plan of ``probe``, with schemas.

        Raises
        ------
        Unsupported
            A type is not found, or it is no list.
        """
        return {table.number: tuple(_list_type(displayed, mark) for mark in table.marks) for table in self.tables}


def without_unnest(text: str) -> UnnestText | None:
    r"""Return a text without UNNEST; ``None``: it has none.

    Raises
    ------
    Unsupported
        UNNEST stands where it is not supported; with the place.

    >>> without_unnest("select a, x from t, unnest(t.l) as u(x) where a > 1").text
    'select a, x from t, hybridq_unnest_1 as "u" where  hybridq_unnests_1(t.l, "u"."x") and (a > 1\n) '
    >>> without_unnest("select unnest(l) as x from t").text.splitlines()[1:]
    [', hybridq_unnest_1 ', ' where hybridq_unnests_1(l, "hybridq_unnest_1"."unnest(l)") ']
    """
    found = list(tokens(text))
    if not any(_calls(found, position) for position in range(len(found))):
        return None
    if any(token.value.startswith((TABLE, FUNCTION)) for token in found):
        raise Unsupported(f"UNNEST beside names that begin with {TABLE} is not supported: rename them")
    return _Rewriting(text, found).result()


def _calls(found: Sequence[Token], position: int) -> bool:
    """Tell whether UNNEST is called at a position."""
    token = found[position]
    if token.kind != "word" or token.value != "unnest" or position + 1 == len(found):
        return False
    return found[position + 1].value == "(" and (position == 0 or found[position - 1].value != ".")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _list_type(displayed: str, mark: int) -> pa.DataType:
    found: list[tuple[int, pa.DataType]] = []
    for match in re.finditer(rf"Int64\({mark}\)[)\]]+:", displayed):
        known = type_at(displayed, match.end())
        if known is not None and pa.types.is_list(known[0]):
            found.append((known[1] - match.end(), known[0]))
    if not found:
        raise Unsupported("UNNEST of a value of this type is not supported: it takes lists")
    # The shorter ones are those of elements, which may be lists as well.
    return max(found, key=lambda each: each[0])[1]


class _Rewriting(TextReader):
    """Rewrites one text. Parameters: the text and its tokens."""

    def __init__(self, text: str, found: Sequence[Token]) -> None:
        super().__init__(text, found)
        self._places = places(found)
        self._tables: list[UnnestTable] = []
        self._edits: list[tuple[int, int, str]] = []
        self._probes: list[tuple[int, int, str]] = []
        self._of_selects: dict[int, tuple[Select, UnnestTable]] = {}
        self._conditions: dict[int, tuple[Select, list[str]]] = {}

    def result(self) -> UnnestText:
        calls = [position for position in range(len(self._found)) if _calls(self._found, position)]
        end = -1
        for position in calls:
            if position < end:
                raise self._refused(position, "UNNEST within UNNEST is not supported: use flatten, or a subquery")
            end = self._closing(position + 1)
        # What GROUP BY and ORDER BY may repeat has to be known first.
        for position in sorted(calls, key=lambda each: self._places[each].clause not in ("select", "from")):
            at = self._places[position]
            if at.select is None or at.clause not in ("select", "from", "group", "order"):
                raise self._refused(position, "UNNEST is supported in FROM and in the list of SELECT, and not here")
            if at.clause == "from":
                self._in_from(position, at.select, at)
            else:
                self._in_select(position, at.select, at)
        for select, table in self._of_selects.values():
            begun = "from" in select.clauses
            tail = select.clauses["from" if begun else "select"][1]
            self._insert(tail, f"\n{',' if begun else ' from'} {table.name} ")
            self._require(select, table.condition(_quoted(table.name)))
        for select, conditions in self._conditions.values():
            self._add_conditions(select, conditions)
        return UnnestText(changed(self._text, self._edits), changed(self._text, self._probes), tuple(self._tables))

    def _require(self, select: Select, condition: str) -> None:
        self._conditions.setdefault(select.begin, (select, []))[1].append(condition)

    # --- in FROM ---------------------------------------------------------------------------------------------------

    def _in_from(self, position: int, select: Select, at: Place) -> None:
        if at.callers:
            raise self._refused(position, "UNNEST in parentheses of FROM is not supported: write CROSS JOIN UNNEST")
        first = position - 1 if self._value(position - 1) == "lateral" else position
        table = self._new_table()
        table.lists = self._arguments(position)
        after, alias = self._alias(position, table)
        quoted = _quoted(alias)
        named = f"{table.name} as {quoted}"
        self._probe_in_from(position, after, table, alias)
        before = self._value(first - 1)
        if before in (",", "from"):
            if self._padded_later(after, select):
                raise self._refused(position, f"UNNEST before RIGHT or FULL JOIN is not supported: {_USE_SUBQUERY}")
            self._edit(first, after, named + " ")
            self._require(select, table.condition(quoted))
            return
        start, kind = self._join(first - 1)
        if before != "join" or kind not in ("cross", "inner", "left"):
            raise self._refused(position, "UNNEST is supported after a comma, CROSS JOIN, JOIN and LEFT JOIN")
        if kind == "cross":
            self._edit(start, after, f"join {named} on {table.condition(quoted)} ")
            return
        if self._value(after) != "on":
            raise self._refused(position, "JOIN UNNEST needs ON: write ON TRUE, or CROSS JOIN")
        self._edit(first, after, named + " ")
        self._insert(after + 1, f" {table.condition(quoted)} and (")
        self._insert(self._end_of_condition(after + 1, select), "\n) ")

    def _alias(self, position: int, table: UnnestTable) -> tuple[int, str]:
        """Read what follows UNNEST in FROM, and name the table's columns; return where that ends, and the alias."""
        after = self._closing(position + 1) + 1
        places_too = self._value(after) == "with" and self._value(after + 1) == "ordinality"
        after += 2 if places_too else 0
        after += self._value(after) == "as"
        alias, names = "unnest", list[str]()
        if self._is_name(after):
            alias = self._found[after].value
            after += 1
            if self._value(after) == "(":
                end = self._closing(after)
                names = [self._found[each].value for each in range(after + 1, end) if self._value(each) != ","]
                after = end + 1
        count = len(table.lists)
        if len(names) > count + places_too:
            has = f"UNNEST of {count} {'list' if count == 1 else 'lists'} has {count + places_too}"
            raise self._refused(position, f"{has} column{'s' * (count + places_too > 1)}, and not {len(names)}")
        usual = [alias] if count == 1 else [f"unnest_{number}" for number in range(1, count + 1)]
        columns = [*names, *[*usual, "ordinality"][len(names) :]]
        table.columns = columns[:count]
        table.ordinality = columns[count] if places_too else None
        if len(set(columns)) < len(columns):
            raise self._refused(position, "two columns of UNNEST have the same name")
        return after, alias

    def _probe_in_from(self, position: int, after: int, table: UnnestTable, alias: str) -> None:
        lists = [self._marked(each, table) for each in table.lists]
        names = [*table.columns]
        if table.ordinality is not None:
            lists.append("[1]")
            names.append(table.ordinality)
        written = f"unnest({', '.join(lists)}) as {_quoted(alias)}({', '.join(map(_quoted, names))}) "
        self._probes.append((*self._span(position, after), written))

    def _padded_later(self, position: int, select: Select) -> bool:
        """Tell whether a RIGHT or FULL JOIN follows, up to the next comma of FROM."""
        for each in range(position, select.clauses["from"][1]):
            if self._places[each].callers or self._places[each].select is not select:
                continue
            if self._value(each) == ",":
                break
            if self._value(each) in ("right", "full") and self._value(each + 1) in ("join", "outer"):
                return True
        return False

    def _join(self, position: int) -> tuple[int, str]:
        """Return where a join begins whose word JOIN is at a position, and its kind."""
        start = position - (self._value(position - 1) == "outer")
        kind = self._value(start - 1)
        if kind not in JOIN_WORDS - {"join"}:
            return position, "inner"
        return (start - 1, kind) if self._value(start - 2) != "natural" else (start - 2, "natural")

    def _end_of_condition(self, position: int, select: Select) -> int:
        """Return where the condition after ON ends."""
        last = select.clauses["from"][1]
        for each in range(position, last):
            if self._places[each].callers or self._places[each].select is not select:
                continue
            value = self._value(each)
            if value == "," or (value in JOIN_WORDS and self._value(each + 1) in (*JOIN_WORDS, "outer")):
                return each
            if value == "join":
                return each
        return last

    # --- in the list of SELECT -------------------------------------------------------------------------------------

    def _in_select(self, position: int, select: Select, at: Place) -> None:
        if any(name in AGGREGATES for name in at.callers):
            raise self._refused(position, f"UNNEST within an aggregate is not supported: {_USE_SUBQUERY}")
        begin, end = select.clauses["select"]
        if "qualify" in select.clauses or any(
            self._value(each) == "over" and self._places[each].select is select
            for each in range(begin, select.clauses.get("order", (end, end))[1])
        ):
            raise self._refused(position, f"UNNEST beside window functions is not supported: {_USE_SUBQUERY}")
        arguments = self._arguments(position)
        if len(arguments) != 1:
            raise self._refused(position, "UNNEST in the list of SELECT takes one list")
        (written,) = arguments
        closing = self._closing(position + 1)
        inner = self._found[position + 2 : closing]
        words = {token.value for token, after in itertools.pairwise(inner) if after.value == "("}
        if words & AGGREGATES.keys() and not any(token.value == "select" for token in inner):
            raise self._refused(position, f"UNNEST of an aggregate is not supported: {_USE_SUBQUERY}")
        _, table = self._of_selects.get(select.begin, (select, None))
        name = f"unnest({' '.join(written.split())})"
        if at.clause != "select" and (table is None or name not in table.columns):
            raise self._refused(position, f"UNNEST in {at.clause.upper()} BY is supported as it is in SELECT only")
        if table is None:
            table = self._new_table()
            self._of_selects[select.begin] = select, table
            self._spell_out_stars(select)
        if name not in table.columns:
            table.lists.append(written)
            table.columns.append(name)
            table.marks.append(_FIRST_MARK + sum(len(each.marks) for each in self._tables))
        mark = table.marks[table.columns.index(name)]
        after = closing + 1
        self._edit(position, after, f"{_quoted(table.name)}.{_quoted(name)} ")
        self._probes.append((*self._span(position, after), f"unnest(array_slice({written}\n, 1, {mark})) "))

    def _spell_out_stars(self, select: Select) -> None:
        """Write the tables' names before each * in the list of SELECT, which would have the new table's columns too."""
        begin, end = select.clauses["select"]
        for each in range(begin + 1, end):
            at = self._places[each]
            if self._value(each) != "*" or at.callers or at.select is not select:
                continue
            ends = each + 1 == end or self._value(each + 1) == ","
            if ends and self._value(each - 1) != ".":
                self._edit(each, each + 1, ", ".join(f"{_quoted(name)}.*" for name in self._aliases(select)) + " ")

    def _aliases(self, select: Select) -> list[str]:
        """Return what the tables of FROM are called."""
        begin, end = select.clauses.get("from", (0, 0))
        own = [
            each for each in range(begin, end) if self._places[each].select is select and not self._places[each].callers
        ]
        if any(self._value(each) in ("using", "natural") for each in own):
            raise self._refused(begin, "SELECT * with UNNEST beside JOIN USING is not supported: name the columns")
        found = []
        for each in own:
            if self._value(each) not in ("from", ",", "join"):
                continue
            name = each + 1 + (self._value(each + 1) == "lateral")
            last = self._closing(name) if self._value(name) == "(" else name
            while self._value(last + 1) == ".":
                last += 2
            if self._value(last + 1) == "(":  # a function
                last = self._closing(last + 1)
            alias = last + 1 + (self._value(last + 1) == "as")
            named = alias if self._is_name(alias) else last
            if self._found[named].kind not in ("word", "quoted"):
                raise self._refused(begin, "SELECT * with UNNEST needs names for all subqueries of FROM")
            found.append(self._found[named].value)
        return found

    # --- text ------------------------------------------------------------------------------------------------------

    def _add_conditions(self, select: Select, conditions: Sequence[str]) -> None:
        """Put conditions into the WHERE of a SELECT."""
        condition = " and ".join(conditions)
        if "where" in select.clauses:
            begin, end = select.clauses["where"]
            self._insert(begin + 1, f" {condition} and (")
            self._insert(end, "\n) ")
            return
        tail = select.clauses.get("from", select.clauses["select"])[1]
        self._insert(tail, f"\n where {condition} ")

    def _new_table(self) -> UnnestTable:
        self._tables.append(UnnestTable(len(self._tables) + 1))
        return self._tables[-1]

    def _marked(self, written: str, table: UnnestTable) -> str:
        mark = _FIRST_MARK + sum(len(each.marks) for each in self._tables)
        table.marks.append(mark)
        # DataFusion does not find the columns of tables before UNNEST in [a, b], as it does in make_array(a, b).
        return f"array_slice({_with_calls(written)}\n, 1, {mark})"

    def _arguments(self, position: int) -> list[str]:
        """Return what UNNEST at a position is called with."""
        if self._closing(position + 1) == position + 2:
            raise self._refused(position, "UNNEST takes a list")
        return self._parts(position + 1)

    def _is_name(self, position: int) -> bool:
        if not 0 <= position < len(self._found):
            return False
        token = self._found[position]
        return token.kind == "quoted" or (token.kind == "word" and token.value not in NOT_ALIASES)

    def _span(self, start: int, stop: int) -> tuple[int, int]:
        return self._offset(start), self._offset(stop)

    def _edit(self, start: int, stop: int, written: str) -> None:
        self._edits.append((*self._span(start, stop), written))

    def _insert(self, position: int, written: str) -> None:
        self._edits.append((self._offset(position), self._offset(position), written))


def _with_calls(text: str) -> str:
    """Return an expression with calls of make_array in place of lists in brackets.

    >>> _with_calls("case when l[1] = 1 then [a, b[2]] else array[[x]] end")
    'case when l[1] = 1 then make_array(a, b[2]) else make_array(make_array(x)) end'
    """
    found = list(tokens(text))
    edits: list[tuple[int, int, str]] = []
    literal: list[bool] = []
    for position, token in enumerate(found):
        if token.kind != "sign":
            continue
        if token.value == "[":
            before = found[position - 1] if position else None
            named = before is not None and before.kind == "word" and before.value == "array"
            subscript = before is not None and (
                before.value in (")", "]")
                or before.kind == "quoted"
                or (before.kind == "word" and before.value not in _BEFORE_VALUES)
            )
            literal.append(named or not subscript)
            if literal[-1]:
                start = before.offset if named and before is not None else token.offset
                edits.append((start, token.offset + 1, "make_array("))
        elif token.value == "]" and literal and literal.pop():
            edits.append((token.offset, token.offset + 1, ")"))
    return changed(text, edits)
