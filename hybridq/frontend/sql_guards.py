"""Queries that some of DataFusion's optimizer rules would change the meaning of, and which rules those are.

``simplify_expressions`` joins IN lists on the same value as sets, which forgets NULL, in the value or in a list:
``x NOT IN (1) OR x NOT IN (2)`` becomes true also where ``x`` is NULL. ``push_down_filter`` moves conditions that name
no column below any aggregate, also below one that has a row for no rows. Both are looked for in the text of the plans:
a query that only looks like one of these loses a rule that it could have had, and keeps its meaning.
"""

from __future__ import annotations

import re

_LIST = re.compile(r"\b(NOT )?IN \(\[")
_NULL_IN_LIST = re.compile(r"\bIN \(\[(?:[^\]]*[^\w'\"])?NULL\b")
_TEXT = re.compile(r'\w*Utf8\w*\("[^"]*"\)')
_NOT = re.compile(r"\bNOT (?!LIKE|ILIKE|NULL|BETWEEN|SIMILAR|EXISTS)")
_AGGREGATE_OF_NOTHING = re.compile(r"Aggregate: groupBy=\[\[(\]|ROLLUP|CUBE|GROUPING SETS)")
_PASSED = ("Projection:", "SubqueryAlias:")
_NAMES_NO_COLUMN = re.compile(r"<subquery>|\bBoolean\(|\bNULL\b")


def rules_to_leave_out(written: str, optimized: str) -> tuple[str, ...]:
    """Return the optimizer rules that a query must be planned without.

    Parameters
    ----------
    written : str
        DataFusion's plan before optimisation, indented.
    optimized : str
        The plan that all rules make of it.
    """
    found = []
    if any(map(_joins_lists, _TEXT.sub("''", written).splitlines())):
        found.append("simplify_expressions")
    if _constant_condition_below_aggregate(optimized):
        found.append("push_down_filter")
    return tuple(found)


def _joins_lists(line: str) -> bool:
    """Tell whether lists in a node's expressions may be joined, and NULL may matter where they are."""
    several = len(_LIST.findall(line)) > 1 and (" AND " in line or " OR " in line)
    return several and bool(_NOT.search(line) or _NULL_IN_LIST.search(line))


def _constant_condition_below_aggregate(plan: str) -> bool:
    """Tell whether an aggregate that has a row for no rows reads what a condition without columns may have emptied."""
    lines = [line.strip() for line in plan.splitlines()]
    for position, line in enumerate(lines):
        if not _AGGREGATE_OF_NOTHING.match(line):
            continue
        below = next((each for each in lines[position + 1 :] if not each.startswith(_PASSED)), "")
        if below.startswith("EmptyRelation") or (below.startswith("Filter:") and _NAMES_NO_COLUMN.search(below)):
            return True
    return False
