"""Long chains of AND and OR, written in another way before the text is planned.

DataFusion nests ``a OR b OR c`` once for each operator, and its export takes time with the cube of that. In parentheses
that halve the chain again and again it takes no more than any other condition. It puts conditions with AND between them
into such a chain once more, whatever the parentheses; so ``a AND b AND c`` becomes ``NOT (NOT a OR NOT b OR NOT c)``,
which is the same, also for NULL (``substrait_expressions`` turns it round again).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hybridq.frontend.sql_clauses import places
from hybridq.frontend.sql_text import Token, changed, tokens

LONG = 50
"""Terms up to which a chain stays as it is."""

_CLAUSES = ("where", "having", "qualify")
_NO_CONDITION = frozenset(
    {"as", "select", "with", "values", "by", "from", "over", "when", "then", "else", "for", "order"}
)

Edit = tuple[int, int, str]


def with_short_chains(text: str) -> str:
    """Return a text whose conditions nest little, however many AND and OR they have in a row.

    >>> chain = " or ".join(f"a = {number}" for number in range(60))
    >>> with_short_chains(f"select 1 from t where {chain} order by 1")[:50]
    'select 1 from t where ((((a = 0 or a = 1 or a = 2 '
    >>> with_short_chains("select 1 from t where a or b") == "select 1 from t where a or b"
    True
    """
    if text.lower().count("and") <= LONG and text.lower().count("or") <= LONG:
        return text
    found = list(tokens(text))
    edits: list[Edit] = []
    for start, stop in _conditions(found):
        edits += _edits(text, found, start, stop)
    # A comment may be last.
    return changed(text, [(begin, end, "\n" * (begin == len(text)) + written) for begin, end, written in edits])


def _conditions(found: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield the first token of each part of the text that may be a condition, and the one after it."""
    seen = set()
    for place in places(found):
        if place.select is not None and place.select.begin not in seen:
            seen.add(place.select.begin)
            for clause in _CLAUSES:
                if clause in place.select.clauses:
                    start, stop = place.select.clauses[clause]
                    yield start + 1, stop
    opened: list[int] = []
    for position, token in enumerate(found):
        if token.kind == "sign" and token.value == "(":
            opened.append(position)
        elif token.kind == "sign" and token.value == ")" and opened:
            yield opened.pop() + 1, position


def _edits(text: str, found: Sequence[Token], start: int, stop: int) -> list[Edit]:
    """Return how the long chains of a condition are put into parentheses; none, if it is no condition."""
    ors, ands = [start], [start]
    pending, depth = 0, 0
    for position in range(start, stop):
        token = found[position]
        if token.kind not in ("word", "sign"):
            continue
        depth += (token.value in ("(", "[", "case")) - (token.value in (")", "]", "end"))
        if depth or token.value == "end":
            continue
        if token.value == "," or (token.value in _NO_CONDITION and not _is_of_distinct(found, position)):
            return []
        if token.value == "between":
            pending += 1
        elif token.value == "and" and pending:
            pending -= 1
        elif token.value in ("and", "or"):
            (ors if token.value == "or" else ands).append(position + 1)
    edits: list[Edit] = []
    for begin, end in _spans(ors, stop):
        terms = list(_spans([begin, *(place for place in ands if begin < place < end)], end))
        if len(terms) > LONG:
            edits += _turned(text, found, terms)
    whole = list(_spans(ors, stop))
    return [*_halved(text, found, whole), *edits] if len(whole) > LONG else edits


def _is_of_distinct(found: Sequence[Token], position: int) -> bool:
    return found[position].value == "from" and found[position - 1].value == "distinct"


def _spans(starts: Sequence[int], stop: int) -> Iterator[tuple[int, int]]:
    """Yield where each term begins, and the operator after it, of terms that begin at some tokens."""
    ends = [*(start - 1 for start in starts[1:]), stop]
    yield from zip(starts, ends, strict=True)


def _halved(text: str, found: Sequence[Token], terms: Sequence[tuple[int, int]]) -> list[Edit]:
    """Put halves of a chain into parentheses, and halves of these."""
    if len(terms) <= 4:
        return []
    middle = len(terms) // 2
    edits: list[Edit] = []
    for half in (terms[:middle], terms[middle:]):
        before, after = _begin(found, half[0][0]), _end(text, found, half[-1][1])
        edits += [(before, before, "("), *_halved(text, found, half), (after, after, ") ")]
    return edits


def _turned(text: str, found: Sequence[Token], terms: Sequence[tuple[int, int]]) -> list[Edit]:
    """Make a chain of AND one of OR between negations."""
    first, last = _begin(found, terms[0][0]), _end(text, found, terms[-1][1])
    edits: list[Edit] = [(first, first, "(not ("), *_halved(text, found, terms)]
    for begin, end in terms:
        edits.append((_begin(found, begin), _begin(found, begin), "(not ("))
        edits.append((_end(text, found, end), _end(text, found, end), ")) "))
        if end != terms[-1][1]:
            edits.append((found[end].offset, found[end].offset + len("and"), "or"))
    return [*edits, (last, last, ")) ")]


def _begin(found: Sequence[Token], position: int) -> int:
    return found[position].offset


def _end(text: str, found: Sequence[Token], position: int) -> int:
    """Return where the token before a position ends, or where one can tell that it has ended."""
    return found[position].offset if position < len(found) else len(text)
