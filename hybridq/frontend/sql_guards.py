"""Queries that one of DataFusion's optimizer rules would change the meaning of.

``push_down_filter`` moves conditions that name no column below any aggregate, also below one that has a row for no
rows: ``SELECT count(*) FROM t HAVING 1 = 0`` would have one. That is looked for in the text of the plan: a query that
only looks like one of these loses a rule that it could have had, and keeps its meaning.

It also moves conditions that fail for some values (``WHERE a.x / b.y > 1``, or what it concludes from that and ``a.z =
b.y``) below joins, where they see rows that the join would have dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hybridq.plan.nodes import Filter, Join, Plan, walk
from hybridq.plan.rules.helpers import can_fail, can_fail_for_some

_TEXT = re.compile(r'\w*Utf8\w*\("[^"]*"\)')
_AGGREGATE_OF_NOTHING = re.compile(r"Aggregate: groupBy=\[\[(\]|ROLLUP|CUBE|GROUPING SETS)")
_ROWS_OF_NOTHING = re.compile(rf"\s*(?:{_AGGREGATE_OF_NOTHING.pattern}|Limit: skip=[1-9])")
_SUBQUERY = re.compile(r"(?:\b(EXISTS|IN|ANY|ALL) )?\(<subquery>\)")
_PROJECTED = re.compile(r"\s*Projection: (.+?)(?: AS \S+)?$")
_DENIED = r"(?:NOT IN|(?:=|<>|!=) ALL) \(<subquery>\)"
_COMPARED = r"(?:(?:NOT )?IN|(?:=|<>|!=) (?:ANY|ALL)) \(<subquery>\)"
_OWN_NOT = re.compile(r"NOT (?:IN|EXISTS|I?LIKE|BETWEEN|NULL)\b|IS NOT ")
"""NOT that is part of a comparison, and denies nothing else."""
_OUTER = re.compile(r"outer_ref\(([^()]*)\)")
_CONDITION = re.compile(r"\bFilter: (.*)")
_EXISTS = re.compile(r"\bEXISTS ?\(<subquery>\)")
_BETWEEN = re.compile(r" BETWEEN (.+?) AND ")
_OUTER_JOIN = re.compile(r"(Left|Right|Full) Join:")
_QUALIFIED = re.compile(r'("(?:[^"]|"")+"|[^\W\d]\w*)\.("(?:[^"]|"")+"|[^\W\d]\w*)')
_COLUMN = re.compile(r'[^\W\d]\w*"?\."?[^\W\d]|\b__common_expr_')


def moves_conditions_below_aggregates(plan: str) -> bool:
    """Tell whether an aggregate that has a row for no rows reads what a condition without columns may have emptied.

    Parameters
    ----------
    plan : str
        DataFusion's plan after optimisation, indented.
    """
    lines = _lines(plan)
    for position, line in enumerate(lines):
        if not _AGGREGATE_OF_NOTHING.match(line.lstrip()):
            continue
        for below in lines[position + 1 :]:
            if _depth(below) <= _depth(line):
                break
            condition = _CONDITION.search(below)
            if "EmptyRelation: rows=0" in below or (condition and not _names_columns(condition[1])):
                return True
    return False


def has_constant_conditions_beside_aggregates(plan: str) -> bool:
    """Tell whether a query has a condition without columns, and an aggregate that has a row for no rows.

    DataFusion moves the one below the other, and then drops both where nobody needs the aggregate's values.

    Parameters
    ----------
    plan : str
        DataFusion's plan before optimisation, indented.
    """
    lines = [_EXISTS.sub("a.subquery", line) for line in _lines(plan)]
    if not any(_AGGREGATE_OF_NOTHING.match(line.lstrip()) for line in lines):
        return False
    return any((found := _CONDITION.search(line)) is not None and not _names_columns(found[1]) for line in lines)


def drops_single_rows(plan: str) -> bool:
    """Tell whether EXISTS, IN, ANY or ALL aggregates all of the rows, or skips some, that the outer query chooses.

    DataFusion looks such rows up by the outer query's values, and finds none where the aggregate is over no rows. It
    also loses a HAVING of such an aggregate, wherever the subquery is.

    Parameters
    ----------
    plan : str
        DataFusion's plan before optimisation, indented.
    """
    lines = _lines(plan)
    for position, line in enumerate(lines):
        subqueries = [each for each in _below(lines, position) if _depth(lines[each]) == _depth(line) + 2]
        subqueries = [each for each in subqueries if lines[each].strip() == "Subquery:"]
        words = [found[1] for found in _SUBQUERY.finditer(line)]
        if len(words) != len(subqueries):
            words = ["any" if any(words) else ""] * len(subqueries)
        for word, begin in zip(words, subqueries, strict=True):
            for each in _without_subqueries(lines, begin):
                having = lines[each - 1].lstrip().startswith("Filter:")
                if (word or having) and _ROWS_OF_NOTHING.match(lines[each]) and _depends(lines, each):
                    return True
    return False


def repeats_comparison(plan: str) -> bool:
    """Tell whether NOT IN is over rows that are chosen by the comparison which it makes itself.

    DataFusion drops one of the two, and then takes all rows for those that NOT IN is over, NULL among them.

    Parameters
    ----------
    plan : str
        DataFusion's plan before optimisation, indented.
    """
    lines = _lines(plan)
    for position, line in enumerate(lines):
        if "(<subquery>)" not in line or not ("NOT " in line or "ALL " in line):
            continue
        for begin in _below(lines, position):
            if lines[begin].strip() != "Subquery:" or _depth(lines[begin]) != _depth(line) + 2:
                continue
            inside = list(_without_subqueries(lines, begin))
            projected = next((found[1] for each in inside if (found := _PROJECTED.match(lines[each]))), "")
            conditions = [found[1] for each in inside if (found := _CONDITION.search(lines[each]))]
            if any(_is_repeated(condition, projected, line) for condition in conditions):
                return True
    return False


def _is_repeated(condition: str, column: str, line: str) -> bool:
    """Tell whether a part of a condition is the equality of a subquery's column with what it is compared with."""
    for part in _OUTER.sub(r"\1", condition).split(" AND "):
        first, equal, second = part.partition(" = ")
        other = second if first == column else first if second == column else ""
        compared = _COMPARED if "NOT " in _OWN_NOT.sub("", line) else _DENIED
        if equal and other and re.search(rf"(?<!\S){re.escape(other)} {compared}", line):
            return True
    return False


def mixes_up_outer_values(plan: str) -> str:
    """Tell what in a correlated subquery DataFusion would answer another question for; an empty text: nothing.

    It makes a join of such a subquery and moves what depends on the outer query up to it: past an outer join, whose
    rows without partners are lost then; past window functions, which then see the rows of all outer values; and it
    takes columns of one name, of several tables, for one.

    Parameters
    ----------
    plan : str
        DataFusion's plan before optimisation, indented.
    """
    lines = _lines(plan) if "outer_ref(" in plan else []
    for position, line in enumerate(lines):
        if line.strip() != "Subquery:":
            continue
        inside = list(_without_subqueries(lines, position))
        for each in inside:
            if lines[each].lstrip().startswith("WindowAggr:") and _depends(lines, each):
                return "a window function over rows that the outer query chooses"
            if _loses_padding(lines, each):
                return "an outer join whose condition, or side that may be NULL, names a column of the outer query"
        columns = {found for each in inside for found in _compared_with_outer(lines[each])}
        given = next((lines[each] for each in inside if lines[each].lstrip().startswith("Projection: ")), "")
        given = given.partition("Projection: ")[2]
        if columns and not _EXISTS.search(lines[position - 1]) and (found := _QUALIFIED.match(given)) is not None:
            columns.add((found[1], found[2]))
        names = [name for _, name in columns]
        if len(names) != len(set(names)):
            return "columns of one name, of several tables, that the outer query chooses rows by"
    return ""


def _loses_padding(lines: Sequence[str], position: int) -> bool:
    """Tell whether a node is an outer join whose condition, or a side that it pads, depends on the outer query."""
    found = _OUTER_JOIN.match(lines[position].lstrip())
    if found is None:
        return False
    if "outer_ref(" in lines[position]:
        return True
    below = _below(lines, position)
    # Before the two sides come the subqueries of the condition.
    *_, first, second = (each for each in below if _depth(lines[each]) == _depth(lines[position]) + 2)
    padded = {"Left": range(second, below[-1] + 1), "Right": range(first, second), "Full": below}[found[1]]
    return any("outer_ref(" in lines[each] for each in padded)


def _compared_with_outer(line: str) -> set[tuple[str, str]]:
    """Return the columns, by table and name, in those parts of a condition that name columns of the outer query."""
    if "outer_ref(" not in line:
        return set()
    parts = [line] if " BETWEEN " in line or " CASE " in line else line.split(" AND ")
    return {found for part in parts if "outer_ref(" in part for found in _QUALIFIED.findall(_OUTER.sub("", part))}


def _below(lines: Sequence[str], position: int) -> Sequence[int]:
    """Return the positions of the lines of what a plan's node reads."""
    end = position + 1
    while end < len(lines) and _depth(lines[end]) > _depth(lines[position]):
        end += 1
    return range(position + 1, end)


def _without_subqueries(lines: Sequence[str], position: int) -> Iterator[int]:
    """Yield the positions of the lines of what a plan's node reads, but for those of subqueries."""
    end = position
    for each in _below(lines, position):
        if lines[each].strip() == "Subquery:" and each > end:
            end = max([end, *_below(lines, each)])
        if each > end:
            yield each


def _depends(lines: Sequence[str], position: int) -> bool:
    return any("outer_ref(" in lines[each] for each in _below(lines, position))


def compares_outer_null_with_null(plan: str) -> bool:
    """Tell whether a subquery takes NULL of its outer query as equal to NULL, so that its join looks like INTERSECT.

    Parameters
    ----------
    plan : str
        DataFusion's plan before optimisation, indented.
    """
    for line in _lines(plan):
        # AND is part of these, and not between two conditions.
        parts = [line] if " BETWEEN " in line or "CASE " in line else line.split(" AND ")
        if any("outer_ref(" in part and "DISTINCT FROM" in part for part in parts):
            return True
    return False


def fails_below_joins(plan: Plan) -> bool:
    """Tell whether a condition that may fail is checked of rows that are joined later."""
    return any(
        isinstance(part, Filter) and (can_fail(part.predicate) or can_fail_for_some(part.predicate))
        for root in (plan.root, *plan.subqueries)
        for node in walk(root)
        if isinstance(node, Join)
        for side in node.inputs
        for part in walk(side)
    )


def _lines(plan: str) -> list[str]:
    """Return a printed plan's lines, without what texts in it say."""
    return _TEXT.sub("''", plan).splitlines()


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _names_columns(condition: str) -> bool:
    """Tell whether each part of a condition names a column; in optimised plans, their names have a table's."""
    return all(map(_COLUMN.search, _BETWEEN.sub(r" BETWEEN \1, ", condition).split(" AND ")))
