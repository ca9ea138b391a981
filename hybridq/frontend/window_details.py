"""What DataFusion knows of window functions and does not write to Substrait.

Substrait has no place for IGNORE NULLS and FILTER in a window, DataFusion leaves out DISTINCT, and it writes a RANGE
bound that is no whole number, such as an interval, as if there were none. All of that is read from the logical plan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from hybridq.errors import Unsupported
from hybridq.plan.windows import CURRENT, END, START, Bound, Frame, Interval, Offset

_INTERVAL = r"IntervalMonthDayNano \{ months: -?\d+, days: -?\d+, nanoseconds: -?\d+ \}"
_BOUND = rf"(?:UNBOUNDED|CURRENT ROW|(?:-?[\d.]+(?:[eE][-+]?\d+)?|{_INTERVAL}))(?: PRECEDING| FOLLOWING)?"
_FRAME = re.compile(rf"(?P<unit>ROWS|RANGE|GROUPS) BETWEEN (?P<start>{_BOUND}) AND (?P<end>{_BOUND})\Z")
_PLAIN_OFFSET = re.compile(r"(?:BETWEEN|AND) '?\d+'? (?:PRECEDING|FOLLOWING)")
_SUBTLE = re.compile(
    r"IGNORE NULLS|FILTER \(WHERE|\(DISTINCT |IntervalMonthDayNano|BETWEEN [\d.]*\.\d* |AND [\d.]*\.\d* |GROUPS BETWEEN"
)


@dataclass(frozen=True, slots=True)
class WindowDetail:
    """What belongs to one window function.

    Attributes
    ----------
    function : str
    frame : Frame
    distinct, ignore_nulls, filtered : bool
        The call has DISTINCT, IGNORE NULLS, FILTER (WHERE ...).
    """

    function: str
    frame: Frame
    distinct: bool = False
    ignore_nulls: bool = False
    filtered: bool = False

    @property
    def is_lost(self) -> bool:
        """Tell whether Substrait cannot say it."""
        bounds = (self.frame.start.offset, self.frame.end.offset)
        return (
            self.distinct
            or self.ignore_nulls
            or self.filtered
            or (self.frame.unit == "range" and any(not isinstance(offset, int | None) for offset in bounds))
        )


def window_details(logical: Any) -> list[tuple[WindowDetail, ...]] | None:
    """Return the details of each of a logical plan's window nodes, parents first.

    Parameters
    ----------
    logical : datafusion.LogicalPlan

    Returns
    -------
    list of tuple of WindowDetail, or None
        ``None``: there are windows within scalar subqueries, where they cannot be matched; none of the plan's windows
        has a detail that Substrait cannot say.

    Raises
    ------
    Unsupported
        A window cannot be read, or one within a subquery needs what Substrait cannot say.
    """
    lines = [line.strip() for line in logical.display_indent().splitlines()]
    written = [line for line in lines if line.startswith("WindowAggr: ")]
    found: list[tuple[WindowDetail, ...]] = []
    pending = [logical]
    while pending and written:
        node = pending.pop()
        if node.display().startswith("WindowAggr: "):
            window = node.to_variant()
            found.append(tuple(_detail(window, call) for call in window.get_window_expr()))
        pending.extend(reversed(node.inputs()))
    if len(found) == len(written):
        return found
    if any(_SUBTLE.search(line) for line in written):
        raise Unsupported(
            "FILTER, DISTINCT, IGNORE NULLS, and RANGE with an interval or a fraction, beside window functions within "
            "a scalar subquery, are not supported: join with the subquery instead"
        )
    return None


def restored(
    wanted: Sequence[tuple[WindowDetail, ...]], found: Sequence[tuple[WindowDetail, ...]]
) -> list[tuple[WindowDetail, ...]]:
    """Return the details of a rewritten query with the frames that were wanted.

    Raises
    ------
    Unsupported
        The rewritten query has other windows than the query itself.
    """
    if [len(node) for node in wanted] != [len(node) for node in found]:
        raise Unsupported("GROUPS frames beside equal ROWS frames are not supported: give each one a subquery")
    both: list[tuple[WindowDetail, ...]] = []
    for before, after in zip(wanted, found, strict=True):
        for old, new in zip(before, after, strict=True):
            unit = "rows" if old.frame.unit == "groups" else old.frame.unit
            if (old.function, unit, old.frame.start, old.frame.end) != (
                new.function, new.frame.unit, new.frame.start, new.frame.end,
            ):  # fmt: skip
                raise Unsupported("GROUPS frames in this form are not supported: give each one a subquery")
        both.append(tuple(replace(new, frame=old.frame) for old, new in zip(before, after, strict=True)))
    return both


def has_groups(details: Sequence[tuple[WindowDetail, ...]] | None) -> bool:
    """Tell whether any frame is one of GROUPS."""
    return any(detail.frame.unit == "groups" for node in details or () for detail in node)


def is_filtered(details: Sequence[tuple[WindowDetail, ...]] | None) -> bool:
    """Tell whether any window function has a FILTER."""
    return any(detail.filtered for node in details or () for detail in node)


def _detail(window: Any, call: Any) -> WindowDetail:
    """Read one window function from its text, whose middle is known."""
    alias = ""
    if call.variant_name() == "Alias":
        variant = call.to_variant()
        alias, call = variant.alias(), variant.expr()
    text, name = call.canonical_name(), window.window_func_name(call)
    arguments = ", ".join(argument.canonical_name() for argument in window.get_args(call))
    match = _FRAME.search(text)
    plain, distinct = f"{name}({arguments})", f"{name}(DISTINCT {arguments})"
    before = next((begin for begin in (plain, distinct) if text.startswith(begin)), None)
    if match is None or before is None:
        raise Unsupported(f"this window function is not supported: {text[:200]}")
    rest = text[len(before) : match.start()].lstrip()
    frame = Frame(_unit(match["unit"]), _bound(match["start"], START), _bound(match["end"], END))
    if any(isinstance(bound.offset, Interval) for bound in (frame.start, frame.end)) and _PLAIN_OFFSET.search(alias):
        # DataFusion takes a number without a unit for months.
        raise Unsupported("RANGE over dates or times needs intervals as offsets, such as INTERVAL '3 days'")
    return WindowDetail(
        function=name.lower(),
        frame=frame,
        distinct=before == distinct,
        ignore_nulls=rest.startswith("IGNORE NULLS"),
        filtered=rest.removeprefix("IGNORE NULLS").removeprefix("RESPECT NULLS").lstrip().startswith("FILTER (WHERE "),
    )


def _unit(word: str) -> Any:
    return word.lower()


def _bound(text: str, unbounded: Bound) -> Bound:
    if text == "CURRENT ROW":
        return CURRENT
    amount, _, direction = text.rpartition(" ")
    if amount == "UNBOUNDED":
        return unbounded if direction == ("PRECEDING" if unbounded == START else "FOLLOWING") else _other(unbounded)
    return Bound("preceding" if direction == "PRECEDING" else "following", _offset(amount))


def _other(bound: Bound) -> Bound:
    return END if bound == START else START


def _offset(text: str) -> Offset:
    if text.startswith("Interval"):
        months, days, nanoseconds = (int(number) for number in re.findall(r"-?\d+", text))
        if min(months, days, nanoseconds) < 0:
            raise Unsupported(f"a window frame with the negative offset {text} is not supported")
        return Interval(months, days, nanoseconds)
    number = Decimal(text)
    if number < 0:
        raise Unsupported(f"a window frame with the negative offset {text} is not supported")
    return int(number) if number == number.to_integral_value() and "." not in text else number
