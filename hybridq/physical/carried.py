"""Windows that are not partitioned, over more rows than one worker holds: range by range of what they are ordered by.

The rows are sorted as for ORDER BY: runs of them stay on the workers, and chunks are ranges of these. A first stage
condenses each range to a few rows (``hybridq.plan.windows.Condensation``). The next computes the windows of each range
over its own rows, with the condensed rows of all other ranges before and after them. So a row that ties with rows of
other ranges is nothing special: those are there, condensed to few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from hybridq.config import Config
from hybridq.errors import Unsupported
from hybridq.physical import fragments
from hybridq.physical.decompose import decompose
from hybridq.physical.fragments import OpenPipeline, OpenUnion, PendingSort
from hybridq.physical.pipeline import CarriedWindowStep, ProjectStep
from hybridq.physical.ranges import CELLS, blocks_for
from hybridq.plan.aggregates import PARTIALS
from hybridq.plan.expressions import (
    AggregateCall,
    Call,
    Case,
    Cast,
    Column,
    Expression,
    Literal,
    NamedExpression,
    SortKey,
    substitute,
)
from hybridq.plan.windows import (
    PICKS,
    RANGE_START,
    RANKS,
    SHIFTS,
    STANDS_FOR_PEERS,
    STANDS_FOR_ROWS,
    Bound,
    Condensation,
    Frame,
    WindowCall,
)
from hybridq.types import Field, Schema, is_splittable

MOST_REACH = 1000
"""Rows that are not condensed on either side of a border, at most."""

MERGED_AS_ROWS = frozenset({"sum", "count", "min", "max"})
"""Partial aggregates of which that of a single row is an expression."""

NUMBER = pa.int64()

Order = tuple[SortKey, ...]


def can_be_carried(call: WindowCall, distinct_keys: Callable[[Expression], float], most_keys: float) -> bool:
    """Tell whether a window function needs no more of other ranges than condensed rows.

    Parameters
    ----------
    call : WindowCall
    distinct_keys : callable
        Estimates the different values of a sort key.
    most_keys : float
        Different values that may stay apart in condensed rows, where a RANGE frame has offsets.
    """
    if call.partition:
        return False
    if call.function in RANKS:
        return True
    if call.function in SHIFTS:
        return _distance(call) <= MOST_REACH
    frame = call.frame
    if frame.unit == "range" and _has_offset(frame):
        (key,) = call.order
        if distinct_keys(key.expression) > most_keys:
            return False
    elif _steps(frame.start) > MOST_REACH or _steps(frame.end) > MOST_REACH:
        return False
    if call.function in PICKS:
        return _reach(call) <= MOST_REACH
    return _partials(call) is not None


def is_total(call: WindowCall) -> bool:
    """Tell whether a window function is an aggregate of all rows, the same for each of them."""
    return call.aggregate is not None and not call.partition and call.frame.is_whole and is_splittable(call.type)


def by_order(calls: Sequence[WindowCall]) -> list[tuple[Order, tuple[WindowCall, ...]]]:
    """Group window functions by the order of rows that they need; those in the table's order come first.

    An aggregate of all rows needs none.

    Examples
    --------
    >>> a, b = (SortKey(Column(pa.int64(), name)) for name in "ab")
    >>> made = [WindowCall(str(n), "rank", (), pa.uint64(), (), by) for n, by in enumerate([(a,), (b,), (), (a,)])]
    >>> [([str(key.expression) for key in order], [call.name for call in found]) for order, found in by_order(made)]
    [([], ['2']), (['a'], ['0', '3']), (['b'], ['1'])]
    """
    found: dict[Order, list[WindowCall]] = {}
    anywhere = [call for call in calls if call.aggregate is not None and call.frame.is_whole]
    for call in calls:
        if call not in anywhere:
            found.setdefault(call.order, []).append(call)
    if anywhere:
        found.setdefault(next(iter(found), ()), []).extend(anywhere)
    return sorted(((order, tuple(members)) for order, members in found.items()), key=lambda group: bool(group[0]))


def window_by_ranges(
    inner: OpenPipeline | OpenUnion,
    order: Order,
    calls: Sequence[WindowCall],
    identifiers: tuple[int, int],
    chunks: int,
    config: Config,
) -> OpenPipeline:
    """Return window functions as steps of a pipeline whose chunks are ranges of the rows in order.

    Parameters
    ----------
    inner : OpenPipeline or OpenUnion
        Gives their input.
    order : tuple of SortKey
        As ``by_order`` gives it.
    calls : sequence of WindowCall
    identifiers : tuple of int
        Of the windows, and of the condensed rows.
    chunks : int
        Of the input, about.
    config : Config
    """
    schema, rows, size = inner.schema, inner.rows, inner.bytes
    keys = order
    if not order:  # the table's: rows that tie stay in order
        constant = NamedExpression("order", Literal(pa.int8(), 0))
        fragments.append(inner, ProjectStep((*fragments.identity(schema), constant)))
        inner.schema = (*schema, Field(constant.name, pa.int8()))
        keys = (SortKey(Column(pa.int8(), constant.name)),)
    windows, identifier = identifiers
    blocks = blocks_for(CELLS * size, chunks, config)
    source = PendingSort(inner, keys, blocks, windows, numbered=True)
    how, carried, final = condensation(calls, order)
    found = OpenPipeline(source, schema + tuple(Field(call.name, call.type) for call in calls), rows, size)
    found.steps += [CarriedWindowStep(identifier, how, carried), ProjectStep(fragments.identity(schema) + final)]
    return found


def condensed_schema(how: Condensation) -> Schema:
    """Return the columns of condensed rows."""
    columns = tuple(Field(item.name, item.expression.type) for item in how.columns)
    return columns + tuple(Field(name, NUMBER) for name in (STANDS_FOR_ROWS, STANDS_FOR_PEERS, RANGE_START))


def condensed_rows(how: Condensation) -> int:
    """Return how many rows a range is condensed to, if no RANGE frame has an offset."""
    borders = 2 * how.peers + 4
    return borders * (2 * how.reach + 1)


def condensation(
    calls: Sequence[WindowCall], order: Order
) -> tuple[Condensation, tuple[WindowCall, ...], tuple[NamedExpression, ...]]:
    """Say what of a range its neighbours need, and how the calls are computed from that.

    Parameters
    ----------
    calls : sequence of WindowCall
        They can be carried.
    order : tuple of SortKey
        That of all calls but aggregates of all rows.

    Returns
    -------
    Condensation
    tuple of WindowCall
        Over its columns; equal calls appear once.
    tuple of NamedExpression
        The calls themselves, over those.

    Examples
    --------
    >>> mean = AggregateCall("", "avg", Column(pa.int64(), "x"), pa.float64())
    >>> how, made, final = condensation([WindowCall("mean", "aggregate", (), pa.float64(), (), (), aggregate=mean)], ())
    >>> [str(item) for item in how.columns]
    ['cast(x as decimal128(38, 0)) AS state:0', 'CASE WHEN is_not_null(x) THEN 1 ELSE NULL END AS state:1']
    >>> [call.text for call in made]
    ['sum(state:0) OVER ()', 'sum(state:1) OVER ()']
    """
    parts = _Parts()
    keys = tuple(replace(key, expression=parts.column("key", key.expression)) for key in order)
    names: dict[WindowCall, str] = {}
    final = []
    for call in calls:
        own = replace(call, name="", order=keys if call.order else ())

        def column(made: WindowCall) -> Column:
            return Column(made.type, names.setdefault(made, f"window:{len(names)}"))

        if call.aggregate is None:
            given = tuple(parts.argument(value) for value in call.arguments)
            final.append(NamedExpression(call.name, column(replace(own, arguments=given))))
            if call.ignore_nulls and isinstance(given[0], Column):
                parts.present[given[0].name] = None
            continue
        found = _partials(call)
        assert found is not None
        partial, expression = found
        narrow = _is_narrowed_sum(partial, expression)
        values: dict[str, Expression] = {}
        for each in partial:
            merged = replace(each, name="", function=PARTIALS[each.function].merge, argument=parts.state(each))
            result = call.type if narrow else each.type
            values[each.name] = column(replace(own, type=result, aggregate=replace(merged, type=result)))
        final.append(NamedExpression(call.name, values[partial[0].name] if narrow else substitute(expression, values)))
    how = Condensation(
        order=keys,
        columns=tuple(NamedExpression(name, expression) for (_, expression), name in parts.names.items()),
        states=tuple(parts.states),
        arguments=tuple(name for name in parts.names.values() if name.startswith("argument")),
        present=tuple(parts.present),
        reach=max((_reach(call) for call in calls), default=0),
        peers=max((_groups(call.frame) for call in calls), default=0),
        distances=tuple(dict.fromkeys(call.frame for call in calls if _has_distance(call))),
    )
    return how, tuple(call.renamed(name) for call, name in names.items()), tuple(final)


@dataclass(slots=True)
class _Parts:
    """The columns of condensed rows so far."""

    names: dict[tuple[str, Expression], str] = field(default_factory=dict)
    states: list[AggregateCall] = field(default_factory=list)
    present: dict[str, None] = field(default_factory=dict)

    def column(self, what: str, expression: Expression) -> Column:
        number = sum(known == what for known, _ in self.names)
        return Column(expression.type, self.names.setdefault((what, expression), f"{what}:{number}"))

    def argument(self, expression: Expression) -> Expression:
        return expression if isinstance(expression, Literal) else self.column("argument", expression)

    def state(self, call: AggregateCall) -> Column:
        """Return a partial aggregate's column."""
        merge = PARTIALS[call.function].merge
        what = f"state of {merge}"
        known = len(self.states)
        key = (what, _of_row(call))
        if key not in self.names:
            self.names[key] = f"state:{known}"
            self.states.append(AggregateCall(self.names[key], merge, Column(call.type, self.names[key]), call.type))
        return Column(call.type, self.names[key])


def _of_row(call: AggregateCall) -> Expression:
    """Return a partial aggregate of a single row."""
    argument = call.argument
    if call.function == "count":
        one = Literal(NUMBER, 1)
        if argument is None:
            return one
        known = Call(pa.bool_(), "is_not_null", (argument,))
        return Case(NUMBER, ((known, one),), Literal(NUMBER, None))
    assert argument is not None
    return argument if argument.type == call.type else Cast(call.type, argument)


def _partials(call: WindowCall) -> tuple[tuple[AggregateCall, ...], Expression] | None:
    """Return the partial aggregates that a call is made of, and itself over these; ``None``: there are others."""
    if call.aggregate is None:
        return None
    try:
        parts = decompose([replace(call.aggregate, name=call.name)])
    except Unsupported:
        return None
    plain = all(
        each.function in MERGED_AS_ROWS and not (each.distinct or each.further or each.options or each.condition)
        for each in parts.partial
    )
    return (parts.partial, parts.final[0].expression) if plain else None


def _is_narrowed_sum(partial: Sequence[AggregateCall], expression: Expression) -> bool:
    """Tell whether a call is a sum of a wider type, cast to its own: what does not fit is then no error of a cast."""
    sums = {each.name for each in partial if each.function == "sum" and pa.types.is_decimal(each.type)}
    narrowed = isinstance(expression, Cast) and pa.types.is_integer(expression.type)
    return narrowed and isinstance(expression.children[0], Column) and expression.children[0].name in sums


# --- how far frames reach ------------------------------------------------------------------------------------------


def _distance(call: WindowCall) -> float:
    """Return how many rows away LAG or LEAD looks."""
    distance = call.arguments[1]
    if not isinstance(distance, Literal):
        return float("inf")
    return 0 if distance.value is None else abs(int(distance.value))


def _reach(call: WindowCall) -> int:
    """Return how many rows next to a border a call may look at."""
    if call.function in RANKS:
        return 0
    if call.function in SHIFTS:
        return int(_distance(call))
    within = max(_steps(call.frame.start), _steps(call.frame.end)) if call.frame.unit == "rows" else 0
    if call.function not in PICKS:
        return within
    place = call.arguments[1] if call.function == "nth_value" else None
    return within + (int(place.value) if isinstance(place, Literal) else 1)


def _groups(frame: Frame) -> int:
    return max(_steps(frame.start), _steps(frame.end)) if frame.unit == "groups" else 0


def _has_distance(call: WindowCall) -> bool:
    return call.function not in RANKS | SHIFTS and call.frame.unit == "range" and _has_offset(call.frame)


def _has_offset(frame: Frame) -> bool:
    return frame.start.offset is not None or frame.end.offset is not None


def _steps(bound: Bound) -> int:
    return bound.offset if isinstance(bound.offset, int) else 0
