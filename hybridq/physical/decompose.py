"""Partial and merged forms of aggregates: the one table that says how each aggregate is split over chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Protocol

import pyarrow as pa

from hybridq.errors import Unsupported
from hybridq.plan.aggregates import AGGREGATES, PARTIALS
from hybridq.plan.expressions import (
    AggregateCall,
    Call,
    Case,
    Cast,
    Column,
    Expression,
    Literal,
    NamedExpression,
    columns_of_call,
)
from hybridq.plan.naming import bounded
from hybridq.types import MAX_DECIMAL_DIGITS, is_integer, is_splittable, sum_type

COUNT_TYPE = pa.int64()
REAL = pa.float64()
MOMENTS_TYPE = pa.struct([("count", COUNT_TYPE), ("pivot", REAL), ("mean", REAL), ("m2", REAL)])
COMOMENTS_TYPE = pa.struct(
    [("count", COUNT_TYPE)]
    + [(f"{part}_{variable}", REAL) for variable in "yx" for part in ("pivot", "mean", "m2")]
    + [("c", REAL)]
)
HASHES_TYPE = pa.list_(pa.int64())


@dataclass(frozen=True, slots=True)
class Decomposition:
    """How a set of aggregates is computed in two steps.

    Attributes
    ----------
    partial : tuple of AggregateCall
        What each chunk computes; equal partials of several aggregates appear once.
    merge : tuple of AggregateCall
        How each partial column is merged; same names as ``partial``.
    final : tuple of NamedExpression
        The aggregates themselves, over the merged columns.
    """

    partial: tuple[AggregateCall, ...]
    merge: tuple[AggregateCall, ...]
    final: tuple[NamedExpression, ...]


def wide_sum_type(argument: pa.DataType) -> pa.DataType:
    """Return a type in which partial sums cannot overflow although their total fits the sum's own type.

    Sums of integers are kept as decimal(38, 0) until the merge is done: a chunk's sum may pass 64 bits where the total,
    with terms of both signs, does not.
    """
    return pa.decimal128(MAX_DECIMAL_DIGITS, 0) if is_integer(argument) else sum_type(argument)


class _Columns(Protocol):
    """Gives the merged columns that a final expression is made of."""

    def column(
        self,
        function: str,
        argument: Expression | None,
        data_type: pa.DataType,
        further: tuple[Expression, ...] = (),
        options: tuple[str, ...] = (),
    ) -> Expression:
        """Return a partial aggregate, merged."""


@dataclass(slots=True)
class _Partials:
    """Partial columns collected so far, each once."""

    calls: dict[AggregateCall, str] = field(default_factory=dict)

    def add(self, call: AggregateCall) -> Column:
        """Return the column of a partial aggregate (whose name is left empty), adding it where it is new."""
        name = self.calls.setdefault(call, f"{call.function}:{len(self.calls)}")
        return Column(call.type, name)

    def column(
        self,
        function: str,
        argument: Expression | None,
        data_type: pa.DataType,
        further: tuple[Expression, ...] = (),
        options: tuple[str, ...] = (),
    ) -> Expression:
        return self.add(AggregateCall("", function, argument, data_type, further=further, options=options))


@dataclass(frozen=True, slots=True)
class _OfDistinct:
    """Partial columns computed at the end, from the list of a group's distinct values."""

    values: Column

    def column(
        self,
        function: str,
        argument: Expression | None,
        data_type: pa.DataType,
        further: tuple[Expression, ...] = (),
        options: tuple[str, ...] = (),
    ) -> Expression:
        if further or options:
            raise Unsupported(f"DISTINCT with {function} of several arguments is not supported")
        if function == "count":
            return Call(COUNT_TYPE, "list_length", (self.values,))
        return Call(data_type, "aggregate_list", (self.values,), (function,))


def decompose(calls: Sequence[AggregateCall]) -> Decomposition:
    """Split aggregates into a partial, a merge and a final step.

    Parameters
    ----------
    calls : sequence of AggregateCall
        As in the plan.

    Raises
    ------
    Unsupported
        An aggregate has no partial form yet; the message names it.

    Examples
    --------
    >>> price = Column(pa.decimal128(15, 2), "price")
    >>> parts = decompose([AggregateCall("mean", "avg", price, pa.decimal128(19, 6))])
    >>> [str(call) for call in parts.partial]
    ['sum(price) AS sum:0', 'count(price) AS count:1']
    >>> [str(call) for call in parts.merge]
    ['sum(sum:0) AS sum:0', 'sum(count:1) AS count:1']
    >>> [str(item) for item in parts.final]
    ['average(sum:0, count:1) AS mean']
    """
    partials = _Partials()
    final = tuple(NamedExpression(call.name, _final(call, partials)) for call in calls)
    partial = tuple(replace(call, name=name) for call, name in partials.calls.items())
    return Decomposition(partial, tuple(map(_merging, partial)), final)


def _merging(call: AggregateCall) -> AggregateCall:
    """Return how the column of a partial aggregate is merged."""
    merged = Column(call.type, call.name)
    return replace(call, function=PARTIALS[call.function].merge, argument=merged, further=(), order=(), condition=None)


@dataclass(frozen=True, slots=True)
class ValueDecomposition:
    """How aggregates are computed, some of them over DISTINCT, where each distinct value becomes a row of its own.

    Attributes
    ----------
    partial : tuple of AggregateCall
        What each chunk computes: aggregates of all rows, and lists of distinct values.
    partial_merge : tuple of AggregateCall
        How a chunk's own partial results are merged, lists included.
    lists : tuple of (list column, value column)
        The lists among these, and the columns that have one of their values a row.
    unite : tuple of AggregateCall
        How the other partial columns are merged when equal values of a group become one row.
    second : tuple of AggregateCall
        Partial aggregates over what that gives.
    merge : tuple of AggregateCall
    final : tuple of NamedExpression
        As in ``Decomposition``, for the second partial aggregates.
    """

    partial: tuple[AggregateCall, ...]
    partial_merge: tuple[AggregateCall, ...]
    lists: tuple[tuple[str, str], ...]
    unite: tuple[AggregateCall, ...]
    second: tuple[AggregateCall, ...]
    merge: tuple[AggregateCall, ...]
    final: tuple[NamedExpression, ...]


def distinct_arguments(calls: Sequence[AggregateCall]) -> tuple[Expression, ...] | None:
    """Return what aggregates over DISTINCT are over; ``None``: for some of them a list of values is not enough.

    Those that give a list, or are put together of one, are not meant: all of it has to be in one place anyway.

    Examples
    --------
    >>> price = Column(pa.decimal128(15, 2), "price")
    >>> distinct_arguments([AggregateCall("n", "count", price, COUNT_TYPE, distinct=True)])
    (Column(type=Decimal128Type(decimal128(15, 2)), name='price'),)
    """
    found: dict[Expression, None] = {}
    for call in calls:
        if call.function not in AGGREGATES:
            return None
        if not _is_over_distinct(call) or call.argument is None:
            continue
        if call.further or not is_splittable(call.argument.type):
            return None
        found[call.argument] = None
    return tuple(found)


def _is_over_distinct(call: AggregateCall) -> bool:
    """Tell whether an aggregate is over distinct values, not itself their list, and would be another over all."""
    return (
        call.distinct
        and call.argument is not None
        and AGGREGATES[call.function].repeats
        and call.function not in _COLLECTING
    )


def decompose_by_values(calls: Sequence[AggregateCall]) -> ValueDecomposition:
    """Split aggregates, of which ``distinct_arguments`` gives some, so that their distinct values need not meet.

    Examples
    --------
    >>> price = Column(pa.int64(), "price")
    >>> count = AggregateCall("n", "count", price, COUNT_TYPE, distinct=True)
    >>> parts = decompose_by_values([count, AggregateCall("m", "count", None, COUNT_TYPE)])
    >>> [str(call) for call in parts.partial]
    ['count(*) AS count:1', 'distinct(price) AS list:0']
    >>> [str(call) for call in parts.second]
    ['sum(count:1) AS count:1', 'count(value:0) AS count:0']
    >>> [str(item) for item in parts.final]
    ['coalesce(count:0, 0) AS n', 'coalesce(count:1, 0) AS m']
    """
    arguments = distinct_arguments(calls) or ()
    values = {argument: Column(argument.type, f"value:{index}") for index, argument in enumerate(arguments)}
    partials, final = _Partials(), []
    for call in calls:
        if _is_over_distinct(call) and call.argument is not None:
            call = replace(call, argument=values[call.argument], distinct=False)
        final.append(NamedExpression(call.name, _final(call, partials)))
    named = tuple(replace(call, name=name) for call, name in partials.calls.items())
    columns = {column.name for column in values.values()}
    of_values = tuple(call for call in named if columns & columns_of_call(call))
    others = tuple(call for call in named if not columns & columns_of_call(call))
    lists = tuple(
        AggregateCall(f"list:{index}", "distinct", argument, pa.list_(argument.type))
        for index, argument in enumerate(arguments)
    )
    unite = tuple(map(_merging, others))
    return ValueDecomposition(
        partial=others + lists,
        partial_merge=tuple(map(_merging, others + lists)),
        lists=tuple((call.name, f"value:{index}") for index, call in enumerate(lists)),
        unite=unite,
        second=unite + of_values,
        merge=tuple(map(_merging, unite + of_values)),
        final=tuple(final),
    )


def _final(call: AggregateCall, partials: _Partials) -> Expression:
    """Register the partials of one aggregate and return its final expression over their merged columns."""
    if call.function == "summary" and call.argument is not None:  # the planner's own
        return partials.add(replace(call, name=""))
    function = AGGREGATES.get(call.function)
    if function is None:
        raise Unsupported(f"aggregate function {call.function} is not supported")
    if call.argument is None:
        if call.function != "count":
            raise Unsupported(f"aggregate {call} has no argument: only COUNT(*) may go without")
        return _count(partials, None)
    if call.function in _COLLECTING:
        return _COLLECTING[call.function](call, partials)
    columns: _Columns = partials
    if call.distinct and function.repeats:
        columns = _OfDistinct(_distinct(call, call.argument, partials))
        if call.function == "count":
            return columns.column("count", None, COUNT_TYPE)
    return _FINALS[call.function](call, call.argument, columns)


def _distinct(call: AggregateCall, argument: Expression, partials: _Partials) -> Column:
    if not call.further:
        return partials.add(AggregateCall("", "distinct", argument, pa.list_(argument.type)))
    if call.function != "count":
        if all(isinstance(value, Literal) for value in call.further):
            # A fraction: the same for all rows.
            return partials.add(AggregateCall("", "distinct", argument, pa.list_(argument.type)))
        raise Unsupported(f"aggregate {call} is not supported: DISTINCT with several arguments works in COUNT only")
    fields = [(str(index), value.type) for index, value in enumerate((argument, *call.further))]
    values = pa.list_(pa.struct(fields))
    return partials.add(AggregateCall("", "distinct", argument, values, further=call.further))


# --- functions of what is counted and summed -----------------------------------------------------------------------


def _count(columns: _Columns, argument: Expression | None) -> Expression:
    """Return a count that is 0, not NULL, where no chunk contributed."""
    return Call(COUNT_TYPE, "coalesce", (columns.column("count", argument, COUNT_TYPE), Literal(COUNT_TYPE, 0)))


def _counted(call: AggregateCall, argument: Expression, columns: _Columns) -> Expression:
    if call.further:
        # Rows count where no argument is NULL.
        tests = tuple(Call(pa.bool_(), "is_not_null", (value,)) for value in (argument, *call.further))
        one = Literal(COUNT_TYPE, 1)
        argument = Case(COUNT_TYPE, ((Call(pa.bool_(), "and", tests), one),), Literal(COUNT_TYPE, None))
    return _count(columns, argument)


def _sum(call: AggregateCall, argument: Expression, columns: _Columns) -> Expression:
    wide = wide_sum_type(argument.type)
    column = columns.column("sum", argument, wide)
    return column if wide == call.type else Cast(call.type, column)


def _average(call: AggregateCall, argument: Expression, columns: _Columns) -> Expression:
    total = columns.column("sum", argument, wide_sum_type(argument.type))
    count = columns.column("count", argument, COUNT_TYPE)
    # Messages name what was written.
    return Call(call.type, "average", (total, count), (bounded(str(call).removesuffix(f" AS {call.name}")),))


def _itself(partial: str) -> _Final:
    def final(call: AggregateCall, argument: Expression, columns: _Columns) -> Expression:
        return columns.column(partial, argument, argument.type)

    return final


# --- statistics ----------------------------------------------------------------------------------------------------


def _real(argument: Expression) -> Expression:
    return argument if argument.type == REAL else Cast(REAL, argument)


def _moment(call: AggregateCall, argument: Expression, columns: _Columns) -> Expression:
    state = columns.column("moments", _real(argument), MOMENTS_TYPE)
    return Call(call.type, "moment", (state,), (call.function,))


def _comoment(call: AggregateCall, argument: Expression, columns: _Columns) -> Expression:
    (other,) = call.further
    state = columns.column("comoments", _real(argument), COMOMENTS_TYPE, (_real(other),))
    return Call(call.type, "comoment", (state,), (call.function,))


_KINDS = {"quantile_cont": "interpolated", "quantile_disc": "picked", "median": "middle"}


def is_quantile(call: AggregateCall) -> bool:
    """Tell whether an aggregate is a value at some place in the order of all."""
    return call.function in _KINDS


def quantile_rank(call: AggregateCall) -> tuple[str, Fraction]:
    """Return what a quantile does between two values, and the fraction of all rows at which it is.

    Raises
    ------
    Unsupported
        The fraction is no constant from 0 to 1.
    """
    fraction = Fraction(1, 2)
    if len(call.further) % 2:
        given = call.further[0]
        if not isinstance(given, Literal) or given.value is None or not 0 <= given.value <= 1:
            raise Unsupported(f"{call.text} needs a constant from 0 to 1 as its fraction")
        # The number as it was written: 0.7 is seven tenths.
        fraction = Fraction(str(given.value))
    if call.order and call.order[0].descending:
        fraction = 1 - fraction
    return _KINDS[call.function], fraction


def tally_type(argument: pa.DataType) -> pa.DataType:
    """Return the type of a list of values, each with the number of its rows."""
    return pa.list_(pa.struct([("value", argument), ("count", COUNT_TYPE)]))


def _quantile(call: AggregateCall, argument: Expression, columns: _Columns) -> Expression:
    kind, fraction = quantile_rank(call)
    options = (kind, str(fraction))
    if len(call.further) < 2:
        return Call(call.type, "quantile", (columns.column("tally", argument, tally_type(argument.type)),), options)
    # It is known between which values it is, NULL being no bound: only those are kept.
    low, high = call.further[-2:]
    not_below, not_above = (
        Call(pa.bool_(), "coalesce", (Call(pa.bool_(), comparison, (argument, value)), Literal(pa.bool_(), True)))
        for comparison, value in (("greater_equal", low), ("less_equal", high))
    )
    one, nothing = Literal(COUNT_TYPE, 1), Literal(argument.type, None)
    inside = Case(argument.type, ((Call(pa.bool_(), "and", (not_below, not_above)), argument),), nothing)
    below = Case(COUNT_TYPE, ((Call(pa.bool_(), "less", (argument, low)), one),), Literal(COUNT_TYPE, None))
    tally = columns.column("tally", inside, tally_type(argument.type))
    return Call(call.type, "quantile", (tally, _count(columns, below), _count(columns, argument)), options)


def _estimate(call: AggregateCall, argument: Expression, columns: _Columns) -> Expression:
    return Call(call.type, "estimate_distinct", (columns.column("hashes", argument, HASHES_TYPE),))


# --- functions of rows in order ------------------------------------------------------------------------------------


def _row_type(argument: Expression, call: AggregateCall) -> pa.DataType:
    keys = [(f"key {index}", key.expression.type) for index, key in enumerate(call.order)]
    return pa.struct([("value", argument.type), *keys])


def _directions(call: AggregateCall) -> tuple[str, ...]:
    return tuple(
        f"{'descending' if key.descending else 'ascending'} nulls {'first' if key.nulls_first else 'last'}"
        for key in call.order
    )


def _rows(call: AggregateCall, partials: _Partials) -> Expression:
    """Return a group's values as a list, in order."""
    argument, order = call.argument, call.order
    assert argument is not None
    if call.distinct:
        if any(key.expression != argument for key in order):
            raise Unsupported(f"{call.text} is not supported: with DISTINCT, order by the argument itself")
        # One order is as good as another, but it must not depend on the chunks.
        directions = _directions(call)[:1] or ("ascending nulls last",)
        order = ()
    else:
        directions = _directions(call)
    bare = replace(call, order=order)
    state = partials.add(
        AggregateCall(
            "", "collect", argument, pa.list_(_row_type(argument, bare)), call.distinct,
            further=tuple(key.expression for key in order), condition=call.condition,
        )
    )  # fmt: skip
    return Call(pa.list_(argument.type), "ordered_values", (state,), directions)


def _text(call: AggregateCall, partials: _Partials) -> Expression:
    (separator,) = call.further
    if not isinstance(separator, Literal):
        raise Unsupported(f"{call.text} needs a constant separator")
    assert call.argument is not None
    known = Call(pa.bool_(), "is_not_null", (call.argument,))
    return Call(call.type, "join_text", (_rows(replace(call, further=(), condition=known), partials), separator))


def _chosen(partial: str) -> Callable[[AggregateCall, _Partials], Expression]:
    def final(call: AggregateCall, partials: _Partials) -> Expression:
        assert call.argument is not None
        condition = call.condition
        if not AGGREGATES[call.function].takes_null:
            condition = Call(pa.bool_(), "is_not_null", (call.argument,))
        keys = tuple(key.expression for key in call.order)
        row = _row_type(call.argument, call)
        bare = AggregateCall("", partial, call.argument, row, further=keys, condition=condition)
        state = partials.add(replace(bare, options=_directions(call)))
        return Call(call.type, "row_value", (state,))

    return final


_Final = Callable[[AggregateCall, Expression, _Columns], Expression]

_FINALS: Mapping[str, _Final] = {
    "count": _counted, "sum": _sum, "avg": _average,
    "min": _itself("min"), "max": _itself("max"), "bool_and": _itself("min"), "bool_or": _itself("max"),
    "bit_and": _itself("bit_and"), "bit_or": _itself("bit_or"), "bit_xor": _itself("bit_xor"),
    **dict.fromkeys(("var_samp", "var_pop", "stddev_samp", "stddev_pop"), _moment),
    **dict.fromkeys((name for name in AGGREGATES if name.startswith(("covar_", "corr", "regr_"))), _comoment),
    "median": _quantile, "quantile_cont": _quantile, "quantile_disc": _quantile, "approx_distinct": _estimate,
}  # fmt: skip

_COLLECTING: Mapping[str, Callable[[AggregateCall, _Partials], Expression]] = {
    "array_agg": _rows, "string_agg": _text,
    "first_value": _chosen("first"), "last_value": _chosen("last"), "any_value": _chosen("first"),
}  # fmt: skip
