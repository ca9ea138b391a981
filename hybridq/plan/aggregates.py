"""The aggregate functions of a plan, the types of their results, and the partial forms that engines compute.

How the former are made of the latter is in ``hybridq.physical.decompose``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from hybridq.errors import Unsupported
from hybridq.types import MAX_DECIMAL_DIGITS, average_type, is_decimal, is_floating, is_integer, is_string, sum_type

TypeRule = Callable[[tuple[pa.DataType, ...]], pa.DataType | None]


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate function of plans.

    Attributes
    ----------
    name : str
    aliases : tuple of str
        Names in Substrait plans.
    arguments : int
        Number of arguments (COUNT alone also takes none, or several).
    rule : callable
        Type of the result from the types of the arguments; ``None`` when it does not take such arguments.
    repeats : bool
        Whether values that repeat make a difference: DISTINCT means nothing to the others.
    ordered : bool
        Whether the order of the rows makes a difference, so that it takes ORDER BY.
    takes_null : bool
        Whether NULL is a value to it; the others skip it.
    """

    name: str
    aliases: tuple[str, ...]
    arguments: int
    rule: TypeRule
    repeats: bool = True
    ordered: bool = False
    takes_null: bool = False


@dataclass(frozen=True, slots=True)
class PartialAggregate:
    """An aggregate as engines compute it on one chunk, or as they merge it.

    Attributes
    ----------
    name : str
    merge : str
        The function that merges partial results; its own is the same again.
    gpu : bool
        Whether the GPU engine has it; the CPU engine has all.
    """

    name: str
    merge: str
    gpu: bool = False


def _is_number(data_type: pa.DataType) -> bool:
    return is_decimal(data_type) or is_integer(data_type) or is_floating(data_type)


def _sum(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return sum_type(types[0]) if _is_number(types[0]) else None


def _average(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return average_type(types[0]) if _is_number(types[0]) else None


def _same(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return types[0]


def _count(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return pa.int64()


def _estimate(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return pa.uint64()


def _statistic(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return pa.float64() if all(map(_is_number, types)) else None


def _pairs(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return pa.uint64() if all(map(_is_number, types)) else None


def _boolean(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return pa.bool_() if pa.types.is_boolean(types[0]) else None


def _bits(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return types[0] if is_integer(types[0]) else None


def _median(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    (data_type,) = types
    if is_decimal(data_type):
        # One more digit holds the middle of two values exactly.
        scale = min(data_type.scale + 1, MAX_DECIMAL_DIGITS)
        return pa.decimal128(min(data_type.precision + 1, MAX_DECIMAL_DIGITS), scale)
    if is_integer(data_type):
        return pa.float64()
    return data_type if is_floating(data_type) else None


def _interpolated(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    if not (_is_number(types[0]) and _is_number(types[1])):
        return None
    return types[0] if is_floating(types[0]) else pa.float64()


def _picked(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return types[0] if not pa.types.is_nested(types[0]) and all(map(_is_number, types[1:])) else None


def _list(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return pa.list_(types[0])


def _text(types: tuple[pa.DataType, ...]) -> pa.DataType | None:
    return pa.string() if all(map(is_string, types)) else None


_REGRESSIONS = ("slope", "intercept", "r2", "avgx", "avgy", "sxx", "syy", "sxy")

AGGREGATES: Mapping[str, AggregateFunction] = MappingProxyType(
    {
        function.name: function
        for function in (
            AggregateFunction("count", ("count",), 1, _count),
            AggregateFunction("sum", ("sum",), 1, _sum),
            AggregateFunction("avg", ("avg", "mean"), 1, _average),
            AggregateFunction("min", ("min",), 1, _same, repeats=False),
            AggregateFunction("max", ("max",), 1, _same, repeats=False),
            AggregateFunction("bool_and", ("bool_and",), 1, _boolean, repeats=False),
            AggregateFunction("bool_or", ("bool_or",), 1, _boolean, repeats=False),
            AggregateFunction("bit_and", ("bit_and",), 1, _bits, repeats=False),
            AggregateFunction("bit_or", ("bit_or",), 1, _bits, repeats=False),
            AggregateFunction("bit_xor", ("bit_xor",), 1, _bits),
            AggregateFunction("var_samp", ("var", "var_samp", "var_sample"), 1, _statistic),
            AggregateFunction("var_pop", ("var_pop", "var_population"), 1, _statistic),
            AggregateFunction("stddev_samp", ("stddev", "stddev_samp"), 1, _statistic),
            AggregateFunction("stddev_pop", ("stddev_pop",), 1, _statistic),
            AggregateFunction("covar_samp", ("covar", "covar_samp"), 2, _statistic),
            AggregateFunction("covar_pop", ("covar_pop",), 2, _statistic),
            AggregateFunction("corr", ("corr",), 2, _statistic),
            AggregateFunction("regr_count", ("regr_count",), 2, _pairs),
            *(AggregateFunction(f"regr_{name}", (f"regr_{name}",), 2, _statistic) for name in _REGRESSIONS),
            AggregateFunction("median", ("median",), 1, _median),
            AggregateFunction("quantile_cont", ("percentile_cont", "quantile_cont"), 2, _interpolated),
            # Any quantile within the error that a user allows is right, so also the exact one.
            AggregateFunction("quantile_disc", ("approx_percentile_cont", "approx_median"), 2, _picked),
            AggregateFunction(
                "approx_distinct", ("approx_distinct", "approx_count_distinct"), 1, _estimate, repeats=False
            ),
            AggregateFunction("array_agg", ("array_agg",), 1, _list, ordered=True, takes_null=True),
            AggregateFunction("string_agg", ("string_agg",), 2, _text, ordered=True),
            AggregateFunction("first_value", ("first_value",), 1, _same, False, ordered=True, takes_null=True),
            AggregateFunction("last_value", ("last_value",), 1, _same, False, ordered=True, takes_null=True),
            AggregateFunction("any_value", ("any_value",), 1, _same, repeats=False),
        )
    }
)
"""Every aggregate function that a plan may call, by its name in plans."""

BY_SUBSTRAIT_NAME: Mapping[str, str] = MappingProxyType(
    {alias: function.name for function in AGGREGATES.values() for alias in function.aliases}
)
"""Names in plans by names in Substrait."""

PARTIALS: Mapping[str, PartialAggregate] = MappingProxyType(
    {
        partial.name: partial
        for partial in (
            PartialAggregate("sum", "sum", gpu=True),
            PartialAggregate("count", "sum", gpu=True),
            PartialAggregate("min", "min", gpu=True),
            PartialAggregate("max", "max", gpu=True),
            PartialAggregate("distinct", "union", gpu=True),
            PartialAggregate("union", "union", gpu=True),
            PartialAggregate("bit_and", "bit_and"),
            PartialAggregate("bit_or", "bit_or"),
            PartialAggregate("bit_xor", "bit_xor"),
            PartialAggregate("moments", "merge_moments"),
            PartialAggregate("merge_moments", "merge_moments"),
            PartialAggregate("comoments", "merge_comoments"),
            PartialAggregate("merge_comoments", "merge_comoments"),
            PartialAggregate("tally", "merge_tallies"),
            PartialAggregate("merge_tallies", "merge_tallies"),
            PartialAggregate("summary", "merge_summaries"),
            PartialAggregate("merge_summaries", "merge_summaries"),
            PartialAggregate("hashes", "merge_hashes"),
            PartialAggregate("merge_hashes", "merge_hashes"),
            PartialAggregate("collect", "merge_collected"),
            PartialAggregate("merge_collected", "merge_collected"),
            PartialAggregate("first", "merge_first"),
            PartialAggregate("merge_first", "merge_first"),
            PartialAggregate("last", "merge_last"),
            PartialAggregate("merge_last", "merge_last"),
        )
    }
)
"""Every aggregate that engines compute, by name.

=============== ======================================================================================================
``distinct``    the list of distinct non-NULL values; ``union`` merges such lists
``moments``     count, pivot, mean above the pivot, and sum of squared deviations of a variable
``comoments``   the same of two variables, and the sum of the products of their deviations
``tally``       each value with the number of its rows, ascending
``summary``     some values, ascending, each with the number of rows from the one before to itself
``hashes``      the least hashes of the distinct values: a sketch of their number
``collect``     rows as they come: a value, and the keys that they will be sorted by
``first``       the first such row in order; ``last`` the last
=============== ======================================================================================================
"""


FINAL_FUNCTIONS = frozenset(
    {
        "moment", "comoment", "quantile", "summary_bound", "estimate_distinct", "ordered_values", "row_value",
        "join_text", "aggregate_list",
    }
)  # fmt: skip
"""Functions that make final values of merged partial results. Only the CPU engine has them, for it merges."""


def aggregate_type(function: str, types: tuple[pa.DataType, ...], declared: pa.DataType | None = None) -> pa.DataType:
    """Return the type of an aggregate's result.

    Parameters
    ----------
    function : str
        A key of ``AGGREGATES``.
    types : tuple of pyarrow.DataType
        Types of the arguments.
    declared : pyarrow.DataType, optional
        What the producer of the plan says. It decides the digits of an average of decimals, nothing else.

    Raises
    ------
    Unsupported
        If the function does not take such values.

    >>> aggregate_type("median", (pa.decimal128(15, 2),))
    Decimal128Type(decimal128(16, 3))
    """
    result = AGGREGATES[function].rule(types)
    if result is None:
        raise Unsupported(f"{function} of values of type {', '.join(map(str, types))} is not supported")
    if function == "avg" and declared is not None and is_decimal(declared) and is_decimal(types[0]):
        return declared
    return result
