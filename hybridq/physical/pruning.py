"""Which row groups a predicate rules out, by their statistics alone.

A predicate over rows that are only known by bounds has a set of possible outcomes out of true, false and NULL. The set
worked out here always contains every outcome that really occurs, so a unit is ruled out only where true is not in it.
All units of a table are looked at together, and bounds that many units have but once.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hybridq.plan.expressions import Call, Cast, Column, Expression, In, Literal
from hybridq.plan.statistics import ColumnStatistics, UnitBounds
from hybridq.types import is_decimal, is_floating, is_integer

TRUE, FALSE, NULL = 1, 2, 4
ANYTHING = TRUE | FALSE | NULL

Outcomes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


def excluded(predicate: Expression, statistics: Callable[[str], ColumnStatistics | None]) -> bool:
    """Tell whether it is certain that the predicate is true for no row of a unit.

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
    return bool(excluded_units(predicate, lambda name: UnitBounds.of([statistics(name)]), 1)[0])


def excluded_units(predicate: Expression, bounds: Callable[[str], UnitBounds], units: int) -> Mask:
    """Tell for each unit whether it is certain that the predicate is true for none of its rows.

    Parameters
    ----------
    predicate : Expression
        A boolean expression; it may read any columns.
    bounds : callable
        Bounds of a column in every unit, by its name in the predicate.
    units : int
        Number of units.

    Returns
    -------
    numpy.ndarray of bool
        One element a unit.
    """
    outcomes = np.broadcast_to(_outcomes(predicate, bounds), (units,))
    dropped: Mask = np.equal(outcomes & TRUE, 0)
    return dropped


@dataclass(frozen=True, slots=True)
class _Values:
    """What the values of an expression may be: an element for all units, one for each, or those that ``units`` says.

    Attributes
    ----------
    low, high : array of object
        Bounds of values that are neither NULL nor NaN; ``None``: no bound.
    null : array of bool
        There may be NULLs.
    never : array of bool
        All are NULL.
    nan : bool
        There may be NaN.
    units : array of int or None
        The element that each unit has.
    """

    low: npt.NDArray[np.object_]
    high: npt.NDArray[np.object_]
    null: Mask
    never: Mask
    nan: bool
    units: npt.NDArray[np.intp] | None = None

    def spread(self) -> _Values:
        """Return the same with an element for each unit."""
        if self.units is None:
            return self
        units = self.units
        return _Values(self.low[units], self.high[units], self.null[units], self.never[units], self.nan)

    def of_units(self, outcomes: Outcomes) -> Outcomes:
        """Return the outcomes for each unit, of those for each element."""
        return outcomes if self.units is None else outcomes[self.units]


def _constant(value: Any) -> npt.NDArray[np.object_]:
    array = np.empty(1, object)
    array[0] = value
    return array


_YES, _NO, _NOTHING = np.ones(1, np.bool_), np.zeros(1, np.bool_), _constant(None)
_ALL_NULL = _Values(_NOTHING, _NOTHING, _YES, _YES, nan=False)

_Bounds = Callable[[str], UnitBounds]


def _same(outcome: int) -> Outcomes:
    return np.array([outcome], np.uint8)


def _outcomes(expression: Expression, bounds: _Bounds) -> Outcomes:
    """Return the sets of outcomes that a boolean expression may have."""
    if isinstance(expression, Call):
        return _call_outcomes(expression, bounds)
    if isinstance(expression, In):
        operand, result = _values(expression.operand, bounds), _same(FALSE)
        for value in expression.values:
            result = _either(result, _compare("equal", operand, _values(value, bounds)))
        return result
    if isinstance(expression, Literal):
        return _same(NULL if expression.value is None else (TRUE if expression.value else FALSE))
    if isinstance(expression, Column):
        return _of_boolean(_values(expression, bounds))
    return _same(ANYTHING)


def _call_outcomes(call: Call, bounds: _Bounds) -> Outcomes:
    function = call.function
    if function == "and":
        result = _same(TRUE)
        for argument in call.arguments:
            result = _AND[result, _outcomes(argument, bounds)]
        return result
    if function == "or":
        result = _same(FALSE)
        for argument in call.arguments:
            result = _either(result, _outcomes(argument, bounds))
        return result
    if function == "not":
        return _NOT[_outcomes(call.arguments[0], bounds)]
    if function in _COMPARISONS:
        left, right = call.arguments
        return _compare(function, _values(left, bounds), _values(right, bounds))
    if function in ("is_null", "is_not_null"):
        return _null_test(function, _values(call.arguments[0], bounds))
    if function in _TRUTH_TESTS:
        return _truth_test(function, _outcomes(call.arguments[0], bounds))
    if function in ("like", "starts_with"):
        return _prefix_test(call, bounds)
    return _same(ANYTHING)


def _values(expression: Expression, bounds: _Bounds) -> _Values:
    """Return what is known of an expression's values."""
    nan = is_floating(expression.type)
    if isinstance(expression, Literal):
        value = expression.value
        if value is None:
            return _ALL_NULL
        if value != value:
            return _Values(_NOTHING, _NOTHING, _NO, _NO, nan=True)
        return _Values(_constant(value), _constant(value), _NO, _NO, nan=False)
    if isinstance(expression, Column):
        known = bounds(expression.name)
        # Writers leave NaN out of the bounds, so a column of floats may always hold it.
        return _Values(known.low, known.high, known.null, known.never, nan, known.units)
    if isinstance(expression, Cast):
        convert = _conversion(expression.operand.type, expression.type)
        operand = _values(expression.operand, bounds)
        if convert is not None:
            null = operand.null | expression.null_on_failure
            low, high = convert(operand.low), convert(operand.high)
            return _Values(low, high, null, operand.never, operand.nan, operand.units)
    return _Values(_NOTHING, _NOTHING, _YES, _NO, nan)


_Convert = Callable[[npt.NDArray[np.object_]], npt.NDArray[np.object_]]


def _conversion(source: pa.DataType, target: pa.DataType) -> _Convert | None:
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
        return _midnights
    return None


def _unchanged(values: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    return values


def _midnights(values: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    result = np.empty(len(values), object)
    for i, value in enumerate(values):
        result[i] = None if value is None else datetime.datetime.combine(value, datetime.time())
    return result


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


def _compare(function: str, left: _Values, right: _Values) -> Outcomes:
    if len(left.low) == 1 and left.units is None:
        return right.of_units(_compared(function, left, right))
    if len(right.low) == 1 and right.units is None:
        return left.of_units(_compared(function, left, right))
    return _compared(function, left.spread(), right.spread())


def _compared(function: str, left: _Values, right: _Values) -> Outcomes:
    """Compare element by element."""
    when_less, when_equal, when_greater, left_nan, right_nan = _COMPARISONS[function]
    try:
        # Only < and <= are asked: == says False where the types cannot be compared at all.
        apart = _holds(np.less, left.high, right.low) | _holds(np.less, right.high, left.low)
        never_less = _holds(np.less_equal, right.high, left.low)
        never_greater = _holds(np.less_equal, left.high, right.low)
    except TypeError:
        apart = never_less = never_greater = _NO
    always = (left_nan if left.nan else 0) | (right_nan if right.nan else 0)
    if left.nan and right.nan:
        always |= TRUE | FALSE
    result = _pick(never_less, 0, when_less) | _pick(apart, 0, when_equal) | _pick(never_greater, 0, when_greater)
    result = result | _pick(left.null | right.null, NULL, 0) | _same(always)
    return _pick(left.never | right.never, NULL, result)


def _pick(mask: Mask, when_true: int | Outcomes, when_false: int | Outcomes) -> Outcomes:
    return np.where(mask, when_true, when_false).astype(np.uint8)


def _holds(test: np.ufunc, left: npt.NDArray[np.object_], right: npt.NDArray[np.object_]) -> Mask:
    """Tell where two bounds are both known and the test holds for them."""
    left, right = np.broadcast_arrays(left, right)
    known = np.not_equal(left, None) & np.not_equal(right, None)  # type: ignore[call-overload]
    result = np.zeros(len(left), np.bool_)
    result[known] = test(left[known], right[known], dtype=object).astype(np.bool_)
    return result


def _null_test(function: str, values: _Values) -> Outcomes:
    result = _pick(values.never, TRUE, _pick(values.null, TRUE | FALSE, FALSE))
    return values.of_units(result if function == "is_null" else _NOT[result])


_TRUTH_TESTS = {
    # The outcome for which the test is true, and whether the test is turned round.
    "is_true": (TRUE, False),
    "is_false": (FALSE, False),
    "is_not_true": (TRUE, True),
    "is_not_false": (FALSE, True),
}


def _truth_test(function: str, outcomes: Outcomes) -> Outcomes:
    wanted, inverted = _TRUTH_TESTS[function]
    met, missed = np.not_equal(outcomes & wanted, 0), np.not_equal(outcomes & (ANYTHING & ~wanted), 0)
    result = _pick(met, TRUE, 0) | _pick(missed, FALSE, 0)
    return _NOT[result] if inverted else result


def _of_boolean(values: _Values) -> Outcomes:
    no_false = _holds(np.equal, values.low, _constant(True))
    no_true = _holds(np.equal, values.high, _constant(False))
    result = _pick(no_false, 0, FALSE) | _pick(no_true, 0, TRUE) | _pick(values.null, NULL, 0)
    return values.of_units(_pick(values.never, NULL, result))


def _prefix_test(call: Call, bounds: _Bounds) -> Outcomes:
    """Bound ``value LIKE 'prefix...'`` and ``starts_with(value, 'prefix')``."""
    operand, pattern = call.arguments[0], call.arguments[1]
    if not isinstance(pattern, Literal) or len(call.arguments) > 2:
        return _same(ANYTHING)
    if pattern.value is None:
        return _same(NULL)
    if not isinstance(pattern.value, str):
        return _same(ANYTHING)
    if call.function == "starts_with":
        prefix, just_prefix = pattern.value, True
    else:
        prefix = _literal_prefix(pattern.value, call.options)
        if prefix == pattern.value:
            return _compare("equal", _values(operand, bounds), _values(pattern, bounds))
        just_prefix = pattern.value == prefix + "%"
    values = _values(operand, bounds)
    pairs = zip(values.low, values.high, strict=True)
    result = np.array([_prefix_outcomes(low, high, prefix, just_prefix) for low, high in pairs], np.uint8)
    return values.of_units(_pick(values.never, NULL, result | _pick(values.null, NULL, 0)))


def _prefix_outcomes(low: Any, high: Any, prefix: str, just_prefix: bool) -> int:
    if not isinstance(low, str) or not isinstance(high, str):
        return TRUE | FALSE
    # What starts with the prefix stands together in the order, from the prefix itself on.
    if high < prefix or (low > prefix and not low.startswith(prefix)):
        return FALSE
    return TRUE if just_prefix and low.startswith(prefix) and high.startswith(prefix) else TRUE | FALSE


def _literal_prefix(pattern: str, options: tuple[str, ...]) -> str:
    """Return what a LIKE pattern starts with before its first wildcard or escape."""
    special = {"%", "_", "\\", *options[1:]}
    for position, character in enumerate(pattern):
        if character in special:
            return pattern[:position]
    return pattern


def _and(left: int, right: int) -> int:
    result = (left | right) & FALSE
    if left & TRUE and right & TRUE:
        result |= TRUE
    if (left & NULL and right & (NULL | TRUE)) or (right & NULL and left & TRUE):
        result |= NULL
    return result


_AND = np.array([[_and(left, right) for right in range(8)] for left in range(8)], np.uint8)
_NOT = np.array([(s & NULL) | ((s & TRUE) << 1) | ((s & FALSE) >> 1) for s in range(8)], np.uint8)


def _either(left: Outcomes, right: Outcomes) -> Outcomes:
    return _NOT[_AND[_NOT[left], _NOT[right]]]
