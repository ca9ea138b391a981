"""Which clause of which SELECT each word of an SQL text is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hybridq.frontend.sql_text import Token

_QUERIES = frozenset({"select", "with", "values"})
_AFTER_FROM = frozenset(
    {"where", "group", "having", "window", "qualify", "order", "limit", "offset", "fetch", "for"}
    | {"union", "intersect", "except"}
)


@dataclass(slots=True, eq=False)
class Select:
    """One SELECT of a text, by the positions of its tokens.

    Attributes
    ----------
    begin : int
        Of the word SELECT.
    clauses : dict of str to (int, int)
        Where each clause begins (at its first word) and ends (at the word or sign after it).
    """

    begin: int
    clauses: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a token is.

    Attributes
    ----------
    select : Select or None
        The SELECT that it belongs to.
    clause : str
        The first word of its clause.
    callers : tuple of str
        The words before the parentheses around it, within the clause; empty: it is in none.
    """

    select: Select | None
    clause: str
    callers: tuple[str, ...]


@dataclass(slots=True)
class _Level:
    """What a parenthesis holds: a query, or part of a clause."""

    query: bool
    select: Select | None = None
    clause: str = ""
    since: int = 0
    callers: tuple[str, ...] = ()

    def turn(self, position: int, clause: str) -> None:
        """End the clause before a token, and begin another one."""
        if self.query and self.select is not None and self.clause:
            self.select.clauses.setdefault(self.clause, (self.since, position))
        self.clause, self.since = clause, position


def places(found: Sequence[Token]) -> list[Place]:
    """Return where each token of a text is; parentheses count to what is around them.

    >>> from hybridq.frontend.sql_text import tokens
    >>> found = places(list(tokens("select f(a) from t where b in (select c from u)")))
    >>> [(place.clause, place.callers) for place in found][3:6]
    [('select', ('f',)), ('select', ()), ('from', ())]
    >>> found[-1].clause, found[-1].select is found[0].select, found[0].select.clauses
    ('where', True, {'select': (0, 5), 'from': (5, 7), 'where': (7, 16)})
    """
    levels = [_Level(query=True)]
    result: list[Place] = []
    for position, token in enumerate(found):
        level = levels[-1]
        if token.value == ")" and token.kind == "sign" and len(levels) > 1:
            level.turn(position, "")
            levels.pop()
            level = levels[-1]
        elif level.query and token.kind == "word" and not _is_name(found, position):
            if token.value == "select":
                level.turn(position, "")
                level.select = Select(position)
                level.turn(position, "select")
            elif (token.value == "from" and level.clause == "select") or token.value in _AFTER_FROM:
                level.turn(position, token.value)
        elif token.value == ";" and token.kind == "sign":
            level.turn(position, "")
        result.append(Place(level.select, level.clause, level.callers))
        if token.value == "(" and token.kind == "sign":
            levels.append(_inner(found, position, level))
    while levels:
        levels.pop().turn(len(found), "")
    return result


def _inner(found: Sequence[Token], position: int, level: _Level) -> _Level:
    following = found[position + 1] if position + 1 < len(found) else None
    if following is not None and following.kind == "word" and following.value in _QUERIES:
        return _Level(query=True)
    before = found[position - 1] if position else None
    caller = before.value if before is not None and before.kind == "word" else ""
    return _Level(False, level.select, level.clause, callers=(*level.callers, caller))


def _is_name(found: Sequence[Token], position: int) -> bool:
    """Tell whether a word that could begin a clause is a name, or part of an operator, where it stands."""
    before = found[position - 1] if position else None
    following = found[position + 1] if position + 1 < len(found) else None
    if (before is not None and before.value in (".", "as")) or (following is not None and following.value == "."):
        return True
    distinct = before is not None and before.kind == "word" and before.value == "distinct"
    earlier = found[position - 2].value if position > 1 else ""
    return found[position].value == "from" and distinct and earlier in ("is", "not")
