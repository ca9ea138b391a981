"""Conditions on columns that have one value in each unit of a table, which are known for certain before it is read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from hybridq.engines.constant_values import values_for
from hybridq.errors import ExecutionError, Unsupported
from hybridq.plan.expressions import Column, Expression, walk
from hybridq.plan.statistics import UnitBounds


def with_outcomes(predicate: Expression, keys: Mapping[str, UnitBounds]) -> tuple[Expression, dict[str, UnitBounds]]:
    """Put a column in place of each condition that reads keys alone, whatever functions are in it.

    Conditions that cannot be computed for some value stay as they are.

    Parameters
    ----------
    predicate : Expression
        A boolean expression; it may read other columns as well.
    keys : mapping of str to UnitBounds
        By name the columns that have one value, or NULL alone, in each unit.

    Returns
    -------
    tuple of (Expression, dict of str to UnitBounds)
        The predicate, and what the new columns are in each unit. Their names are none of the predicate's.

    >>> from hybridq.plan.expressions import Call, Literal
    >>> from hybridq.plan.statistics import ColumnStatistics
    >>> year = UnitBounds.of([ColumnStatistics(value, value, 0, 9) for value in (2020, 2021)])
    >>> two = Call(pa.int64(), "modulus", (Column(pa.int64(), "year"), Literal(pa.int64(), 2)))
    >>> even = Call(pa.bool_(), "equal", (two, Literal(pa.int64(), 0)))
    >>> predicate, outcomes = with_outcomes(even, {"year": year})
    >>> [bounds.low[bounds.units].tolist() for bounds in outcomes.values()]
    [[True, False]]
    """
    longest = "".join(part.name for part in walk(predicate) if isinstance(part, Column))
    outcomes: dict[str, UnitBounds] = {}

    def replaced(expression: Expression) -> Expression:
        read = {part.name: part for part in walk(expression) if isinstance(part, Column)}
        if read.keys().isdisjoint(keys):
            return expression
        if expression.type == pa.bool_() and read.keys() <= keys.keys():
            try:
                found = _outcomes(expression, list(read.values()), keys)
            except (ExecutionError, Unsupported, MemoryError):
                pass
            else:
                name = f"{longest} {len(outcomes)}"
                outcomes[name] = found
                return Column(pa.bool_(), name)
        return (
            expression.with_children(tuple(map(replaced, expression.children))) if expression.children else expression
        )

    return replaced(predicate), outcomes


def _outcomes(condition: Expression, read: list[Column], keys: Mapping[str, UnitBounds]) -> UnitBounds:
    """Compute a condition for each combination of values that there is."""
    codes = np.stack([keys[column.name].units for column in read])
    combinations, units = np.unique(codes, axis=1, return_inverse=True)
    columns = {
        column.name: pa.array(keys[column.name].low[chosen].tolist(), column.type)
        for column, chosen in zip(read, combinations, strict=True)
    }
    found = values_for(condition, columns)
    low = np.array(found.to_pylist(), object)
    null = np.equal(low, None)  # type: ignore[call-overload]
    return UnitBounds(low, low, null, null, units.reshape(-1))
