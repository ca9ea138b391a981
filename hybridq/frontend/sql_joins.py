"""What DataFusion's plans say of joins that Substrait cannot: NOT IN and NOT EXISTS both become anti joins.

DataFusion marks the anti joins of NOT IN, in the text that it prints of a plan and nowhere else. The joins that it
makes of IN and EXISTS under OR (mark joins) it does not mark; which of the two one is shows in the plan before
optimisation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hybridq.errors import Unsupported
from hybridq.frontend.substrait_subqueries import JoinNote

_JOIN = re.compile(r"(LeftAnti|RightAnti|LeftMark) Join:(?P<conditions>.*)")
_NULL_AWARE = " null_aware"
_IN = re.compile(r" (NOT )?IN \(<subquery>\)")
_TESTED = re.compile(r"IN \(<subquery>\)\)* IS ")
_CALL = re.compile(r"(?:coalesce|nvl2?|ifnull|nullif)(?=\()", re.IGNORECASE)


def join_notes(planned: str, optimized: str, names: frozenset[str]) -> list[JoinNote]:
    """Return what is to be known of each anti and mark join of a plan, in the order in which it prints them.

    Parameters
    ----------
    planned, optimized : str
        The logical plan before and after optimisation, as DataFusion prints them.
    names : frozenset of str
        All words of the query, and all names of tables and columns.

    Raises
    ------
    Unsupported
        A name could be taken for DataFusion's mark.
    """
    if _TESTED.search(planned) or any(_has_in(planned[call.end() :]) for call in _CALL.finditer(planned)):
        # DataFusion takes the result of IN for one that is never NULL.
        raise Unsupported("a test whether IN over a subquery is NULL (IS, COALESCE) is not supported")
    lines = [match for line in optimized.splitlines() if (match := _JOIN.match(line.lstrip()))]
    if not lines:
        return []
    if any("null_aware" in name for name in names):
        raise Unsupported("NOT EXISTS, NOT IN and EXCEPT beside the name null_aware are not supported: rename it")
    both = _IN.search(planned) is not None and "EXISTS (<subquery>)" in planned
    notes = []
    for match in lines:
        conditions = match["conditions"]
        if match[1] == "LeftMark":
            is_in = _IN.search(planned) is not None
            null_aware = None if both or (is_in and not _compares_in(planned, conditions)) else is_in
            notes.append(JoinNote("mark", null_aware))
        elif conditions.endswith(_NULL_AWARE):
            conditions = conditions.removesuffix(_NULL_AWARE)
            notes.append(JoinNote("anti", True if _compares_in(planned, conditions) else None))
        else:
            notes.append(JoinNote("anti", False))
    return notes


def _has_in(rest: str) -> bool:
    """Tell whether IN is tested in the parentheses that a text begins with; yes, if a text in quotes could hide it."""
    line, depth = rest.partition("\n")[0], 0
    for end, character in enumerate(line):
        depth += (character == "(") - (character == ")")
        if depth == 0 and '"' not in line[:end]:
            return _IN.search(line, 0, end) is not None
    return _IN.search(line) is not None


def _compares_in(planned: str, conditions: str) -> bool:
    """Tell whether a join's first condition is that of an IN: others may be left once DataFusion has moved it."""
    left, equal, _ = conditions.strip().partition(" = ")
    if not equal or " Filter: " in left or left.startswith("Filter: "):
        return False
    return any(
        _IN.match(planned, found.end()) is not None
        for text in _uncast(left)
        for found in re.finditer(r"(?<![\w.\"])" + re.escape(text), planned)
    )


def _uncast(text: str) -> Iterator[str]:
    """Yield a printed expression, and what it is before casts that the optimiser may have added."""
    yield text
    while (match := re.fullmatch(r"CAST\((.*) AS [^()]*(\([^()]*\))?\)", text)) is not None:
        text = match[1]
        yield text
