"""Names that tell, in DataFusion's plans, the joins which it makes of IN from those which it makes of EXISTS.

The column that a subquery of IN gives gets a name that nothing else has: ``a IN (SELECT b FROM u)`` is written anew as
``a IN (SELECT b AS in_tag_0 FROM u)``. A join that stands for it compares with that name first; one that has none
of them stands for EXISTS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hybridq.frontend.sql_clauses import places
from hybridq.frontend.sql_text import Token, changed, tokens
from hybridq.frontend.substrait_subqueries import JoinNote

TAG = "in_tag_"
"""How the names begin."""

_JOIN = re.compile(r"(?P<kind>\w+) Join:(?P<conditions>.*)")
_IN = re.compile(r" (NOT )?IN \(<subquery>\)")
_TAGGED = re.compile(rf" AS {TAG}(\d+)")
_FIRST = re.compile(
    rf"(?:(?!__correlated_sq_).)+ = __correlated_sq_\d+\.{TAG}(?P<number>\d+)(?:,| Filter: | null_aware|$)"
)


def with_tagged_subqueries(text: str) -> str:
    """Return the text with a name of its own for the column of each subquery of IN that gives a single one.

    >>> with_tagged_subqueries("select a in (select f(b, 1) as c from u) from t where a not in (select 1)")
    'select a in (select f(b, 1)  as in_tag_0 from u) from t where a not in (select 1 as in_tag_1)'
    """
    found = tokens(text)
    where = places(found)
    edits: list[tuple[int, int, str]] = []
    for position, token in enumerate(found):
        select = where[position].select
        if token.value != "select" or select is None or select.begin != position or not _follows_in(found, position):
            continue
        begin, end = select.clauses["select"]
        items = found[begin + 1 : end]
        if not items or items[-1].value == "*" or any(_separators(items)):
            continue
        start = stop = found[end].offset if end < len(found) else len(text)
        if len(items) > 2 and items[-2].kind == "word" and items[-2].value == "as":
            start = items[-2].offset
        edits.append((start, stop, f" as {TAG}{len(edits)}{' ' if found[end].kind == 'word' else ''}"))
    return changed(text, edits)


def tagged_notes(planned: str, optimized: str) -> list[JoinNote]:
    """Return what is to be known of each anti and mark join of a plan made from a text with tagged subqueries.

    Parameters
    ----------
    planned, optimized : str
        The logical plan before and after optimisation, as DataFusion prints them.

    Returns
    -------
    list of JoinNote
        Nothing is known of the joins if a tag is not what a join compares first: a condition without one could then
        be what is left of an IN.
    """
    joins = [match for line in optimized.splitlines() if (match := _JOIN.match(line.lstrip()))]
    tags = [found["number"] if (found := _FIRST.match(join["conditions"])) else None for join in joins]
    met = [tag for tag in tags if tag is not None]
    certain = sorted(met) == sorted(set(_TAGGED.findall(planned))) and len(met) == len(_IN.findall(planned))
    notes = []
    for join, tag in zip(joins, tags, strict=True):
        null_aware: bool | None = tag is not None
        if join["kind"] in ("LeftAnti", "RightAnti"):
            marked = join["conditions"].endswith(" null_aware")
            null_aware = None if marked and tag is None else marked
            notes.append(JoinNote("anti", null_aware if certain else None))
        elif join["kind"] == "LeftMark":
            notes.append(JoinNote("mark", null_aware if certain else None))
    return notes


def _follows_in(found: Sequence[Token], position: int) -> bool:
    return position > 1 and found[position - 1].value == "(" and found[position - 2].value == "in"


def _separators(items: Sequence[Token]) -> Iterator[bool]:
    """Yield whether each sign outside of parentheses is a comma."""
    depth = 0
    for token in items:
        if token.kind == "sign":
            depth += (token.value in ("(", "[")) - (token.value in (")", "]"))
            yield token.value == "," and depth == 0
