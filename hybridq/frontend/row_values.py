"""Rows of several values, (a, b) = (1, 2) and (a, b) IN ((1, 2), (3, 4)), as comparisons of single values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from hybridq.errors import PlanFormatError
from hybridq.frontend.coercion import common_type_of
from hybridq.plan.expressions import Call, Expression

NAMES = frozenset({"struct", "row"})
"""Functions that make a row of values, in DataFusion's plans."""


def parts_of(message: Any, name_of: Callable[[int], str]) -> list[Any] | None:
    """Return the messages of the values that an expression makes a row of; ``None``: it makes none.

    Parameters
    ----------
    message : substrait.Expression
    name_of : callable
        Gives the name of a function by its anchor.
    """
    if message.WhichOneof("rex_type") == "cast":
        message = message.cast.input  # to the types of the row that it is compared with
    if message.WhichOneof("rex_type") != "scalar_function" or not message.scalar_function.arguments:
        return None
    if name_of(message.scalar_function.function_reference) not in NAMES:
        return None
    return [argument.value for argument in message.scalar_function.arguments]


def equal_rows(left: Sequence[Expression], right: Sequence[Expression]) -> Expression:
    """Return that two rows are equal: all their values are; it is unknown only where none differs and one is unknown.

    Raises
    ------
    PlanFormatError
        The rows have different lengths.
    """
    if len(left) != len(right):
        raise PlanFormatError(f"a row of {len(left)} values is compared with one of {len(right)}")
    tests = [Call(pa.bool_(), "equal", tuple(common_type_of(pair, "equal"))) for pair in zip(left, right, strict=True)]
    return tests[0] if len(tests) == 1 else Call(pa.bool_(), "and", tuple(tests))
