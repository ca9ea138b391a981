"""Window functions as engines compute them: aggregates over frames in partial form, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hybridq.physical.decompose import decompose
from hybridq.plan.expressions import Column, Expression, NamedExpression, substitute
from hybridq.plan.windows import WindowCall

DIRECT = frozenset({"sum", "count", "min", "max"})
"""Aggregates that are computed over a frame in one piece."""


def decompose_windows(calls: Sequence[WindowCall]) -> tuple[tuple[WindowCall, ...], tuple[NamedExpression, ...]]:
    """Split aggregates over frames as those over groups are split, but for those that need no other form.

    Parameters
    ----------
    calls : sequence of WindowCall
        As in the plan.

    Returns
    -------
    tuple of WindowCall
        What is computed over the frames; equal calls appear once.
    tuple of NamedExpression
        The calls themselves, over those columns.

    Raises
    ------
    Unsupported
        An aggregate has no partial form; the message names it.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from hybridq.plan.expressions import AggregateCall
    >>> mean = AggregateCall("", "avg", Column(pa.int64(), "x"), pa.float64())
    >>> partial, final = decompose_windows([WindowCall("mean", "aggregate", (), pa.float64(), (), (), aggregate=mean)])
    >>> [call.text for call in partial]
    ['sum(x) OVER ()', 'count(x) OVER ()']
    >>> [str(item) for item in final]
    ['average(window:0, window:1) AS mean']
    """
    names: dict[WindowCall, str] = {}

    def column(call: WindowCall) -> Column:
        return Column(call.type, names.setdefault(call.renamed(""), f"window:{len(names)}"))

    final: list[NamedExpression] = []
    for call in calls:
        aggregate = call.aggregate
        if aggregate is None or (aggregate.function in DIRECT and not aggregate.distinct and not aggregate.further):
            final.append(NamedExpression(call.name, column(call)))
            continue
        parts = decompose([replace(aggregate, name=call.name)])
        values: dict[str, Expression] = {
            partial.name: column(replace(call, type=partial.type, aggregate=replace(partial, name="")))
            for partial in parts.partial
        }
        (item,) = parts.final
        final.append(NamedExpression(call.name, substitute(item.expression, values)))
    return tuple(call.renamed(name) for call, name in names.items()), tuple(final)
