"""Partial and merged forms of aggregates: the one table that says how each aggregate is split over chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from hybridq.errors import Unsupported
from hybridq.plan.expressions import AggregateCall, Call, Cast, Column, Expression, Literal, NamedExpression
from hybridq.types import MAX_DECIMAL_DIGITS, is_integer, sum_type

COUNT_TYPE = pa.int64()


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


@dataclass(slots=True)
class _Partials:
    """Partial columns collected so far, each once."""

    calls: dict[tuple[str, Expression | None, pa.DataType], str] = field(default_factory=dict)

    def column(self, function: str, argument: Expression | None, data_type: pa.DataType) -> Column:
        """Return the column of a partial aggregate, adding it where it is new."""
        key = (function, argument, data_type)
        name = self.calls.setdefault(key, f"{function}:{len(self.calls)}")
        return Column(data_type, name)


MERGE_FUNCTIONS = {"sum": "sum", "count": "sum", "min": "min", "max": "max", "distinct": "union"}


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
    partial, merge = [], []
    for (function, argument, data_type), name in partials.calls.items():
        partial.append(AggregateCall(name, function, argument, data_type))
        merge.append(AggregateCall(name, MERGE_FUNCTIONS[function], Column(data_type, name), data_type))
    return Decomposition(tuple(partial), tuple(merge), final)


def _final(call: AggregateCall, partials: _Partials) -> Expression:
    """Register the partials of one aggregate and return its final expression over their merged columns."""
    argument = call.argument
    if argument is None:
        if call.function != "count":
            raise Unsupported(f"aggregate {call} has no argument: only COUNT(*) may go without")
        return _count(partials, None)
    if call.distinct and call.function not in ("min", "max"):
        if call.function != "count":
            raise Unsupported(f"aggregate {call} is not supported: DISTINCT works in COUNT, MIN and MAX only so far")
        distinct = partials.column("distinct", argument, pa.list_(argument.type))
        return Call(COUNT_TYPE, "list_length", (distinct,))
    if call.function in ("min", "max"):
        return partials.column(call.function, argument, argument.type)
    if call.function == "count":
        return _count(partials, argument)
    if call.function == "sum":
        wide = wide_sum_type(argument.type)
        column = partials.column("sum", argument, wide)
        return column if wide == call.type else Cast(call.type, column)
    if call.function == "avg":
        total = partials.column("sum", argument, wide_sum_type(argument.type))
        return Call(call.type, "average", (total, partials.column("count", argument, COUNT_TYPE)))
    raise Unsupported(f"aggregate function {call.function} is not supported: use sum, count, avg, min or max")


def _count(partials: _Partials, argument: Expression | None) -> Expression:
    """Return a count that is 0, not NULL, where no chunk contributed."""
    return Call(COUNT_TYPE, "coalesce", (partials.column("count", argument, COUNT_TYPE), Literal(COUNT_TYPE, 0)))
