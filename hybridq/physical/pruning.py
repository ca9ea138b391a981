"""Which row groups a predicate rules out, by their statistics alone.

A predicate over rows that are only known by bounds has a set of possible outcomes out of true, false and NULL. The set
worked out here always contains every outcome that really occurs, so a unit is ruled out only where true is not in it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hybridq.plan.expressions import Call, Cast, Column, Expression, In, Literal
from hybridq.plan.statistics import ColumnStatistics
from hybridq.types import is_decimal, is_floating, is_integer

TRUE, FALSE, NULL = 1, 2, 4
ANYTHING = TRUE | FALSE | NULL

StatisticsOf = Callable[[str], ColumnStatistics | None]


def excluded(predicate: Expression, statistics: StatisticsOf) -> bool:
    """Tell whether it is certain that the predicate is true for no row.

    Parameters
    ----------
    predicate : Expression
        A boolean expression; it may read any columns.
    statistics : callable
        Bounds of a column, by its name in the predicate; ``None`` where nothing is known.

    >>> age = Column(pa.int64(), "age")
    >>> bounds = ColumnStatistics(18, 30, null_count=0, rows=100)
    >>> excluded(Call(pa.bool_(), "greater", (age, Literal(pa.int64(), 65))), lambda name: bounds)
    True
    """
    return not _outcomes(predicate, statistics) & TRUE


@dataclass(frozen=True, slots=True)
class _Values:
    """What the values of an expression may be.

    ``low`` and ``high`` bound those that are neither NULL nor NaN (``None``: no bound). ``never``: all are NULL.
    """

    low: Any = None
    high: Any = None
    null: bool = True
    nan: bool = False
    never: bool = False


_ALL_NULL = _Values(never=True)


def _outcomes(expression: Expression, statistics: StatisticsOf) -> int:
    """Return the set of outcomes that a boolean expression may have."""
    if isinstance(expression, Call):
        function = expression.function
        if function == "and":
            result = TRUE
            for argument in expression.arguments:
                result = _AND[result][_outcomes(argument, statistics)]
            return result
        if function == "or":
            result = FALSE
            for argument in expression.arguments:
                result = _negated(_AND[_negated(result)][_negated(_outcomes(argument, statistics))])
            return result
        if function == "not":
            return _negated(_outcomes(expression.arguments[0], statistics))
        if function in _COMPARISONS:
            left, right = expression.arguments
            return _compare(function, _values(left, statistics), _values(right, statistics))
        if function in ("is_null", "is_not_null"):
            return _null_test(function, _values(expression.arguments[0], statistics))
        if function in _TRUTH_TESTS:
            return _truth_test(function, _outcomes(expression.arguments[0], statistics))
        if function in ("like", "starts_with"):
            return _prefix_test(expression, statistics)
        return ANYTHING
    if isinstance(expression, In):
        operand, result = _values(expression.operand, statistics), FALSE
        for value in expression.values:
            same = _compare("equal", operand, _values(value, statistics))
            result = _negated(_AND[_negated(result)][_negated(same)])
        return result
    if isinstance(expression, Literal):
        return NULL if expression.value is None else (TRUE if expression.value else FALSE)
    if isinstance(expression, Column):
        return _of_boolean(_values(expression, statistics))
    return ANYTHING


def _values(expression: Expression, statistics: StatisticsOf) -> _Values:
    """Return what is known of an expression's values."""
    if isinstance(expression, Literal):
        value = expression.value
        if value is None:
            return _ALL_NULL
        if value != value:
            return _Values(null=False, nan=True)
        return _Values(value, value, null=False)
    nan = is_floating(expression.type)
    if isinstance(expression, Column):
        known = statistics(expression.name)
        if known is None:
            return _Values(nan=nan)
        if known.all_null:
            return _ALL_NULL
        # Writers leave NaN out of the bounds, so a column of floats may always hold it.
        return _Values(known.minimum, known.maximum, known.null_count != 0, nan)
    if isinstance(expression, Cast):
        convert = _conversion(expression.operand.type, expression.type)
        operand = _values(expression.operand, statistics)
        if operand.never:
            return _ALL_NULL
        if convert is not None:
            null = operand.null or expression.null_on_failure
            return _Values(_applied(convert, operand.low), _applied(convert, operand.high), null, operand.nan)
    return _Values(nan=nan)


def _applied(convert: Callable[[Any], Any], bound: Any) -> Any:
    return None if bound is None else convert(bound)


def _conversion(source: pa.DataType, target: pa.DataType) -> Callable[[Any], Any] | None:
    """Return what a cast does to bounds, where it keeps their order; ``None`` where it may not.

    A value that does not fit the target fails the cast, or becomes NULL: either way it satisfies nothing.
    """
    if is_integer(source) and (is_integer(target) or (is_decimal(target) and target.scale >= 0)):
        return _unchanged
    if is_decimal(source) and is_decimal(target) and target.scale >= source.scale:
        return _unchanged
    if is_floating(source) and is_floating(target) and target.bit_width >= source.bit_width:
        return _unchanged
    if pa.types.is_date32(source) and pa.types.is_timestamp(target) and target.tz is None:
        return _midnight
    return None


def _unchanged(value: Any) -> Any:
    return value


def _midnight(value: Any) -> Any:
    return datetime.datetime.combine(value, datetime.time())


_COMPARISONS = {
    # Outcomes where the left value is less, equal and greater; then where only the left, and only the right, is NaN.
    # NaN is above all numbers; where plain floating-point comparison says otherwise, both outcomes are allowed for.
    "equal": (FALSE, TRUE, FALSE, FALSE, FALSE),
    "not_equal": (TRUE, FALSE, TRUE, TRUE, TRUE),
    "less": (TRUE, FALSE, FALSE, FALSE, TRUE | FALSE),
    "less_equal": (TRUE, TRUE, FALSE, FALSE, TRUE | FALSE),
    "greater": (FALSE, FALSE, TRUE, TRUE | FALSE, FALSE),
    "greater_equal": (FALSE, TRUE, TRUE, TRUE | FALSE, FALSE),
}


def _compare(function: str, left: _Values, right: _Values) -> int:
    if left.never or right.never:
        return NULL
    when_less, when_equal, when_greater, left_nan, right_nan = _COMPARISONS[function]
    result = NULL if left.null or right.null else 0
    try:
        # Only <= and < are asked: == says False where the types cannot be compared at all.
        apart_below = left.high is not None and right.low is not None and left.high < right.low
        apart_above = left.low is not None and right.high is not None and right.high < left.low
        never_less = left.low is not None and right.high is not None and right.high <= left.low
        never_greater = left.high is not None and right.low is not None and left.high <= right.low
    except TypeError:
        return result | TRUE | FALSE
    if not never_less:
        result |= when_less
    if not (apart_below or apart_above):
        result |= when_equal
    if not never_greater:
        result |= when_greater
    if left.nan:
        result |= left_nan
    if right.nan:
        result |= right_nan
    if left.nan and right.nan:
        result |= TRUE | FALSE
    return result


def _null_test(function: str, values: _Values) -> int:
    result = TRUE if values.never else ((TRUE | FALSE) if values.null else FALSE)
    return result if function == "is_null" else _negated(result)


_TRUTH_TESTS = {
    # The outcome for which the test is true, and whether the test is turned round.
    "is_true": (TRUE, False),
    "is_false": (FALSE, False),
    "is_not_true": (TRUE, True),
    "is_not_false": (FALSE, True),
}


def _truth_test(function: str, outcomes: int) -> int:
    wanted, inverted = _TRUTH_TESTS[function]
    result = (TRUE if outcomes & wanted else 0) | (FALSE if outcomes & ~wanted else 0)
    return _negated(result) if inverted else result


def _of_boolean(values: _Values) -> int:
    if values.never:
        return NULL
    result = NULL if values.null else 0
    if values.low is not True:
        result |= FALSE
    if values.high is not False:
        result |= TRUE
    return result


def _prefix_test(call: Call, statistics: StatisticsOf) -> int:
    """Bound ``value LIKE 'prefix...'`` and ``starts_with(value, 'prefix')``."""
    operand, pattern = call.arguments[0], call.arguments[1]
    if not isinstance(pattern, Literal) or len(call.arguments) > 2:
        return ANYTHING
    values = _values(operand, statistics)
    if pattern.value is None or values.never:
        return NULL
    if not isinstance(pattern.value, str):
        return ANYTHING
    if call.function == "starts_with":
        prefix, just_prefix = pattern.value, True
    else:
        prefix = _literal_prefix(pattern.value, call.options)
        just_prefix = pattern.value == prefix + "%"
    result = (NULL if values.null else 0) | TRUE | FALSE
    low, high = values.low, values.high
    if not isinstance(low, str) or not isinstance(high, str):
        return result
    # What starts with the prefix stands together in the order, from the prefix itself on.
    if high < prefix or (low > prefix and not low.startswith(prefix)):
        result &= ~TRUE
    elif just_prefix and low.startswith(prefix) and high.startswith(prefix):
        result &= ~FALSE
    return result


def _literal_prefix(pattern: str, options: tuple[str, ...]) -> str:
    """Return what a LIKE pattern starts with before its first wildcard or escape."""
    special = {"%", "_", "\\", *options[1:]}
    for position, character in enumerate(pattern):
        if character in special:
            return pattern[:position]
    return pattern


def _negated(outcomes: int) -> int:
    return (outcomes & NULL) | ((outcomes & TRUE) << 1) | ((outcomes & FALSE) >> 1)


def _and(left: int, right: int) -> int:
    result = (left | right) & FALSE
    if left & TRUE and right & TRUE:
        result |= TRUE
    if (left & NULL and right & (NULL | TRUE)) or (right & NULL and left & TRUE):
        result |= NULL
    return result


_AND = [[_and(left, right) for right in range(8)] for left in range(8)]
