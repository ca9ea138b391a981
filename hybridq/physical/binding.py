"""Values of subqueries: which a stage needs, and putting them in as constants once they are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from hybridq.errors import ExecutionError
from hybridq.physical.pipeline import Stage
from hybridq.plan.expressions import Expression, Literal, SubqueryValue, transform, walk
from hybridq.plan.parts import field_names
from hybridq.plan.rules.constant_folding import fold

Part = TypeVar("Part")


def subqueries_of(part: Any) -> frozenset[int]:
    """Return the numbers of the subqueries whose values are used anywhere in a stage, or in a piece of one."""
    return frozenset(
        inner.number
        for expression in _expressions(part)
        for inner in walk(expression)
        if isinstance(inner, SubqueryValue)
    )


def bind(stage: Stage, values: Mapping[int, Any]) -> Stage:
    """Return a stage with constants in place of subqueries.

    Parameters
    ----------
    stage : Stage
    values : mapping of int to object
        The value of each subquery, by its number; ``None`` is NULL.
    """
    if not values:
        return stage

    def put(expression: Expression) -> Expression:
        if not isinstance(expression, SubqueryValue):
            return expression
        return Literal(expression.type, values[expression.number])

    return _changed(stage, lambda expression: fold(transform(expression, put)))


def value_of(table: pa.Table, title: str) -> Any:
    """Return the value of a subquery: NULL if it has no row.

    Parameters
    ----------
    table : pyarrow.Table
        The output of its stage, of one column.
    title : str
        The stage, for the message.

    Raises
    ------
    ExecutionError
        It has more than one row.
    """
    if table.num_rows > 1:
        raise ExecutionError(f"a subquery that is used as a value gives more than one row: {title}")
    return table.column(0)[0].as_py() if table.num_rows else None


def _expressions(part: Any) -> Iterator[Expression]:
    pending = [part]
    while pending:
        part = pending.pop()
        if isinstance(part, Expression):
            yield part
        elif isinstance(part, tuple):
            pending.extend(reversed(part))
        elif (names := field_names(type(part))) is not None:
            pending.extend([getattr(part, name) for name in reversed(names)])


def _changed(part: Part, change: Callable[[Expression], Expression]) -> Part:
    """Change every expression in a piece of a stage, however the piece is nested."""
    if isinstance(part, Expression):
        return change(part)  # type: ignore[return-value]
    if isinstance(part, tuple):
        items = tuple(_changed(item, change) for item in part)
        same = all(new is old for new, old in zip(items, part, strict=True))
        return part if same else items  # type: ignore[return-value]
    if (names := field_names(type(part))) is not None:
        found = {name: getattr(part, name) for name in names}
        changed = {name: _changed(value, change) for name, value in found.items()}
        different = {name: value for name, value in changed.items() if value is not found[name]}
        return replace(part, **different) if different else part  # type: ignore[type-var]
    return part
