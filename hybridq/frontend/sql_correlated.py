"""Correlated subqueries that DataFusion does not take apart, written as ones that it does.

It takes apart those whose rows are chosen by equalities with values of the outer query. So a subquery that is chosen
otherwise (``u.a < t.a``) is joined with the different values that the outer query's table has, and those are equal to
the outer query's. A value that is NULL has to choose no rows: where that is not certain nothing is written anew. The
first row of an order becomes an aggregate, so does a single row, beside the number of rows; EXISTS becomes a count, and
LATERAL with LIMIT a condition on row_number().
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hybridq.errors import Unsupported
from hybridq.frontend.sql_clauses import Select
from hybridq.frontend.sql_columns import ColumnReader, Columns, NotRead, column_of, quoted
from hybridq.frontend.sql_from import Item
from hybridq.frontend.sql_parts import SelectItem, Span, SubqueryReader
from hybridq.frontend.sql_text import changed

_STRICT_WORDS = frozenset({"between", "and", "interval", "date", "timestamp", "like", "ilike"})
_STRICT_SIGNS = frozenset("+-*/%<>=!().,")
_COMPARISONS = frozenset({"=", "<", ">", "between", "like", "ilike"})
_SEVERAL = "a subquery that is used as a value gives more than one row"
_LIMITED = frozenset({"select", "from", "where", "group", "having", "order", "limit", "offset"})


def correlated_by_equality(
    text: str, columns_of: Columns, known: Mapping[str, Sequence[str]], conditions: bool = False
) -> tuple[str, Unsupported | None]:
    r"""Return the text with its correlated subqueries correlated by equality, and an error that places the first one.

    What is of a form that is not read here stays as it is.

    Parameters
    ----------
    text : str
    columns_of : callable
    known : mapping of str to sequence of str
        The columns of each registered table.
    conditions : bool
        Also write EXISTS in WHERE anew, which DataFusion mostly takes apart itself, and better.

    Returns
    -------
    tuple of (str, Unsupported or None)
        ``None``: no subquery is seen to be correlated.

    >>> tables = {"t": ["a"], "u": ["b", "c"]}
    >>> text = "select (select max(c) from u where b < a) from t"
    >>> print(correlated_by_equality(text, lambda query: None, tables)[0].replace(" where", "\n where"))
    select (select max(c) from u cross join (select distinct "t"."a" as "1" from t) as "outer 1"
     where b < "outer 1"."1" and "outer 1"."1" = "t"."a") from t
    """
    return _Rewriting(text, columns_of, known).result(conditions)


@dataclass(frozen=True, slots=True)
class _Reference:
    """A column of the outer query within a subquery: where it is, by tokens, and whose it is."""

    span: Span
    item: Item
    name: str


@dataclass(frozen=True, slots=True)
class _Choice:
    """How the outer query chooses a subquery's rows.

    Attributes
    ----------
    names : dict of Span to str
        What is written in the place of parts of the subquery.
    source : str
        What its FROM joins as well.
    rest : list of str
        Conditions that are no equalities with the outer query.
    pairs : list of (str, str)
        What is equal: a value of the subquery, and one of the outer query.
    """

    names: dict[Span, str]
    source: str
    rest: list[str]
    pairs: list[tuple[str, str]]

    @property
    def condition(self) -> str:
        """Return all conditions."""
        return " and ".join([*self.rest, *(f"{inner} = {outer}" for inner, outer in self.pairs)])


class _Rewriting(ColumnReader, SubqueryReader):
    """Rewrites one text. Parameters: those of ``correlated_by_equality``."""

    def result(self, conditions: bool) -> tuple[str, Unsupported | None]:
        """Return what ``correlated_by_equality`` does."""
        self._nested: int | None = None  # a subquery within which another one refers to the query around both
        edits: list[tuple[int, int, str]] = []
        first: Unsupported | None = None
        end = 0
        for opening in range(1, len(self._found)):
            if self._value(opening) != "(" or self._value(opening + 1) != "select":
                continue
            try:
                references = self._references_outside(opening)
                if references and first is None:
                    first = self._error(opening)
                left = self._value(opening - 1) == "exists" and self._places[opening].clause == "where"
                if references and opening > end and (conditions or not left):
                    edits.append(self._written_anew(opening, references, len(edits) + 1))
                    end = self._closing(opening)  # what is inside has been copied as it was
            except NotRead:
                continue
        if first is None and self._nested is not None:
            first = self._error(self._nested)
        return changed(self._text, edits), first

    def _error(self, opening: int) -> Unsupported:
        if self._value(opening - 1) == "lateral":
            words = "this LATERAL subquery is not supported: try a join, and row_number() in place of LIMIT"
            return self._refused(opening - 1, words)
        words = "a subquery that refers to the query around it in this way is not supported: write a join"
        return self._refused(opening, words)

    # --- what a subquery refers to ---------------------------------------------------------------------------------

    def _references_outside(self, opening: int) -> list[_Reference]:
        """Return the columns of the outer query that a subquery names.

        Raises
        ------
        NotRead
            A subquery within this one names some, or it is of a form that is not read here.
        """
        outer, inner = self._places[opening].select, self._select(opening)
        if outer is None or inner is None or inner is outer:
            return []
        own, around = self._items(inner), self._items(outer)
        if self._places[opening].clause == "from":
            around = [item for item in around if item.end <= opening]
        found = []
        for position in range(opening + 1, self._closing(opening)):
            reference = self._reference(position, own, around)
            if reference is None:
                continue
            select = self._places[position].select
            if select is inner:
                found.append(reference)
            elif select is None or self._reference(position, self._items(select), around) is not None:
                self._nested = opening if self._nested is None else self._nested
                raise NotRead
        return found

    def _items(self, select: Select) -> list[Item]:
        chains = self.chains(select)
        if chains is None:
            raise NotRead
        return [item for chain in chains for item in chain.items()]

    def _reference(self, position: int, own: Sequence[Item], around: Sequence[Item]) -> _Reference | None:
        """Return the column of the outer query that is named at a position, if one is."""
        token = self._found[position]
        if token.kind not in ("word", "quoted") or self._value(position - 1) == ".":
            return None
        if self._value(position + 1) == "." and position + 2 < len(self._found):
            if any(item.name == token.value for item in own):
                return None
            owners = [item for item in around if item.name == token.value]
            span, name = (position, position + 3), self._found[position + 2].value
        else:
            if self._is_no_column(position) or any(token.value in self._columns(item) for item in own):
                return None
            owners = [item for item in around if token.value in self._columns(item)]
            span, name = (position, position + 1), token.value
        if len(owners) > 1:
            raise NotRead
        return _Reference(span, owners[0], name) if owners else None

    # --- what it becomes -------------------------------------------------------------------------------------------

    def _written_anew(self, opening: int, references: Sequence[_Reference], number: int) -> tuple[int, int, str]:
        outer, inner = self._places[opening].select, self._places[opening + 1].select
        if outer is None or inner is None:
            raise NotRead
        choice = self._choice(outer, inner, references, f"outer {number}")
        begin, end = self._offset(opening), self._at(self._closing(opening))[1]
        before = self._value(opening - 1)
        if before == "lateral" and "limit" in inner.clauses:
            return begin, end, self._numbered(inner, choice, quoted(f"outer {number}"))
        if before == "exists":
            self._check_clauses(inner, {"select", "from", "where", "order"}, aggregates=False)
            return self._offset(opening - 1), end, f"({self._chosen('count(*)', inner, choice)} > 0)"
        if before in ("in", "any", "some", "all"):
            raise NotRead
        if self._aggregates(inner):
            self._check_clauses(inner, {"select", "from", "where"}, aggregates=True)
            return begin, end, self._chosen(self._words(inner, "select", choice), inner, choice)
        if before in ("lateral", "from", "join"):
            raise NotRead
        if "limit" in inner.clauses:
            return begin, end, self._chosen(self._first(inner, choice), inner, choice)
        return begin, end, self._only(inner, choice)

    def _check_clauses(self, inner: Select, clauses: set[str], aggregates: bool) -> None:
        if self._aggregates(inner) is not aggregates or not inner.clauses.keys() <= clauses:
            raise NotRead

    def _chosen(self, columns: str, inner: Select, choice: _Choice) -> str:
        return f"(select {columns} from {self._words(inner, 'from', choice)}{choice.source} where {choice.condition})"

    def _words(self, inner: Select, clause: str, choice: _Choice) -> str:
        span = self._span(inner, clause)
        if span is None:
            raise NotRead
        return self._written(span, choice.names)

    def _first(self, inner: Select, choice: _Choice) -> str:
        """Return the aggregate that is the first row of a subquery with LIMIT 1."""
        self._check_clauses(inner, {"select", "from", "where", "order", "limit"}, aggregates=False)
        items = self._select_items(inner)
        if len(items) != 1 or "limit" not in inner.clauses or self._words(inner, "limit", choice) != "1":
            raise NotRead
        value = self._written(items[0].span, choice.names)
        if "order" not in inner.clauses:
            return f"min({value})"  # any row will do
        return f"first_value({value} order by {self._order(inner, items, choice)})"

    def _only(self, inner: Select, choice: _Choice) -> str:
        """Return the value of a subquery's only row, whose number is checked where it is used: other rows need not."""
        self._check_clauses(inner, {"select", "from", "where", "order"}, aggregates=False)
        items = self._select_items(inner)
        if len(items) != 1 or self._value(inner.clauses["select"][0] + 1) == "distinct":
            raise NotRead
        count = self._chosen("count(*)", inner, choice)
        value = self._chosen(f"min({self._written(items[0].span, choice.names)})", inner, choice)
        single = f"cast(case when {count} > 1 then '{_SEVERAL}' else 'true' end as boolean)"
        return f"(case when {single} then {value} end)"

    def _order(self, inner: Select, items: Sequence[SelectItem], choice: _Choice) -> str:
        """Return ORDER BY with the columns of SELECT that it names by position or alias written out."""
        span = self._span(inner, "order")
        if span is None:
            raise NotRead
        names = dict(choice.names)
        for first, _ in self._separated(span, frozenset({","})):
            token = self._found[first]
            alone = first + 1 == span[1] or self._value(first + 1) in (",", "asc", "desc", "nulls")
            if alone and token.kind == "number":
                if not token.value.isdigit() or not 1 <= int(token.value) <= len(items):
                    raise NotRead
                names[first, first + 1] = self._written(items[int(token.value) - 1].span, choice.names)
            elif alone:
                named = [item for item in items if item.name == token.value]
                if named:
                    names[first, first + 1] = self._written(named[0].span, choice.names)
        return self._written(span, names)

    def _numbered(self, inner: Select, choice: _Choice, rows: str) -> str:
        """Return a LATERAL subquery with a condition on the number of each row in the place of LIMIT.

        Parameters
        ----------
        inner : Select
        choice : _Choice
        rows : str
            A name for the rows with their numbers, quoted.
        """
        begin, _ = inner.clauses["select"]
        if self._aggregates(inner) or not inner.clauses.keys() <= _LIMITED or self._value(begin + 1) == "distinct":
            raise NotRead
        items = self._select_items(inner)
        named = list(self._named(inner, items, choice))
        if len({name for _, name in named}) < len(named):
            raise NotRead
        limit, offset = (self._number(inner, clause, choice) for clause in ("limit", "offset"))
        keys = ", ".join(key for key, _ in choice.pairs)
        order = f" order by {self._order(inner, items, choice)}" if "order" in inner.clauses else ""
        columns = [f"{value} as {quoted(name)}" for value, name in named]
        columns += [f'{key} as "key {number}"' for number, (key, _) in enumerate(choice.pairs)]
        columns.append(f'row_number() over (partition by {keys}{order}) as "row"')
        where = f" where {' and '.join(choice.rest)}" if choice.rest else ""
        group = f" group by {self._words(inner, 'group', choice)}, {keys}" if "group" in inner.clauses else ""
        having = f" having {self._words(inner, 'having', choice)}" if "having" in inner.clauses else ""
        source = f"{self._words(inner, 'from', choice)}{choice.source}"
        numbered = f"select {', '.join(columns)} from {source}{where}{group}{having}"
        names = ", ".join(f"{rows}.{quoted(name)}" for _, name in named)
        equal = [f'{rows}."key {number}" = {outer}' for number, (_, outer) in enumerate(choice.pairs)]
        wanted = f'{rows}."row" between {offset + 1} and {offset + limit}'
        return f"(select {names} from ({numbered}) as {rows} where {' and '.join([*equal, wanted])})"

    def _named(self, inner: Select, items: Sequence[SelectItem], choice: _Choice) -> Iterator[tuple[str, str]]:
        """Yield each column of SELECT, and its name."""
        for item in items:
            value = self._written(item.span, choice.names)
            if value == "*":
                yield from ((column_of(own, name), name) for own in self._items(inner) for name in self._columns(own))
            elif not item.name:
                raise NotRead
            else:
                yield value, item.name

    def _number(self, inner: Select, clause: str, choice: _Choice) -> int:
        if clause not in inner.clauses:
            return 0
        words = self._words(inner, clause, choice)
        if not words.isdigit():
            raise NotRead
        return int(words)

    # --- how rows are chosen ---------------------------------------------------------------------------------------

    def _choice(self, outer: Select, inner: Select, references: Sequence[_Reference], name: str) -> _Choice:
        where = self._span(inner, "where")
        conditions = self._conjuncts(where)
        if where is None or any(self._is_in(each, self._span(inner, "from")) for each in references):
            raise NotRead
        pairs = []
        rest = []
        for condition in conditions:
            if not any(self._is_in(each, condition) for each in references):
                rest.append(self._written(condition))
            elif (pair := self._equality(condition, references)) is not None:
                pairs.append(pair)
        if len(pairs) + len(rest) == len(conditions) and all(self._is_in(each, where) for each in references):
            return _Choice({}, "", rest, pairs)
        return self._domain(outer, conditions, references, name)

    def _is_in(self, reference: _Reference, span: Span | None) -> bool:
        return span is not None and span[0] <= reference.span[0] < span[1]

    def _equality(self, condition: Span, references: Sequence[_Reference]) -> tuple[str, str] | None:
        """Return the two sides of an equality of a value of the subquery with one of the outer query."""
        sides = list(self._separated(condition, frozenset({"="})))
        if len(sides) != 2 or self._value(sides[0][1] - 1) in ("<", ">", "!"):
            return None
        if any(self._value(each) in ("<", ">", "!", "or", "not", "is", "between", "in") for each in range(*condition)):
            return None
        outer = [any(self._is_in(each, side) for each in references) for side in sides]
        if outer.count(True) != 1:
            return None
        there, here = sides[outer.index(True)], sides[outer.index(False)]
        found = [each for each in references if self._is_in(each, there)]
        if len(found) < self._columns_in(there):
            return None  # it has a column of the subquery, too
        return self._written(here), self._written(there, {each.span: column_of(each.item, each.name) for each in found})

    def _columns_in(self, span: Span) -> int:
        """Return the number of columns that a part may name."""
        names = (each for each in range(*span) if self._found[each].kind in ("word", "quoted"))
        return sum(not self._is_no_column(each) or self._value(each + 1) == "." for each in names)

    def _domain(
        self, outer: Select, conditions: Sequence[Span], references: Sequence[_Reference], name: str
    ) -> _Choice:
        """Join the subquery with the outer query's values, of one table."""
        item = references[0].item
        if any(each.item is not item for each in references) or self._is_made(item):
            raise NotRead
        columns = list(dict.fromkeys(each.name for each in references))
        for column in columns:
            own = [each for each in references if each.name == column]
            if not any(self._is_strict(part) and any(self._is_in(each, part) for each in own) for part in conditions):
                raise NotRead
        keys = {column: f'{quoted(name)}."{number}"' for number, column in enumerate(columns, 1)}
        names = {each.span: keys[each.name] for each in references}
        values = ", ".join(f'{column_of(item, column)} as "{number}"' for number, column in enumerate(columns, 1))
        of_item = [
            self._written(part) for part in self._conjuncts(self._span(outer, "where")) if self._is_of(part, item)
        ]
        where = f" where {' and '.join(of_item)}" if of_item else ""
        source = f" cross join (select distinct {values} from {self._written((item.begin, item.end))}{where}) as "
        pairs = [(keys[column], column_of(item, column)) for column in columns]
        rest = [self._written(part, names) for part in conditions]
        return _Choice(names, source + quoted(name), rest, pairs)

    def _is_made(self, item: Item) -> bool:
        """Tell whether an item of FROM is neither a table nor a subquery that stands for itself."""
        return self._value(item.begin) == "lateral" or not (item.table or self._value(item.begin) == "(")

    def _is_strict(self, condition: Span) -> bool:
        """Tell whether a condition is not true where one of its values is NULL, for certain."""
        compares = False
        for position in range(*condition):
            token = self._found[position]
            compares |= self._value(position) in _COMPARISONS
            if token.kind == "sign" and token.value not in _STRICT_SIGNS:
                return False
            if token.kind == "word" and token.value not in _STRICT_WORDS:
                called = self._value(position + 1) == "("
                is_column = not self._is_no_column(position) or "." in (
                    self._value(position - 1),
                    self._value(position + 1),
                )
                unit = self._found[position - 1].kind == "text"
                if called or not (is_column or unit) or token.value in ("null", "not", "is", "or", "in", "case"):
                    return False
        return compares

    def _is_of(self, condition: Span, item: Item) -> bool:
        """Tell whether a condition of the outer query is on one table's columns and constants only, for certain."""
        if not self._is_strict(condition):
            return False
        for position in range(*condition):
            token = self._found[position]
            if token.kind not in ("word", "quoted") or self._value(position - 1) == ".":
                continue
            if self._value(position + 1) == ".":
                if token.value != item.name:
                    return False
            elif not self._is_no_column(position) and token.value not in {*self._columns(item), *_STRICT_WORDS}:
                return False
        return True
