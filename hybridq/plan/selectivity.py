"""What share of rows a predicate keeps, guessed from what is known of the columns it reads."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from hybridq.plan.expressions import Call, Cast, Column, Expression, In, Literal, columns_of, conjuncts
from hybridq.types import is_decimal, is_integer

EQUAL_SHARE = 0.1
"""Share for an equality about which nothing is known."""

RANGE_SHARE = 1 / 3
"""Share for a comparison with a constant about which nothing is known."""

COLUMNS_SHARE = 0.5
"""Share for ``<`` or ``>`` between two columns."""

LIKE_SHARE = 0.1
"""Share for LIKE with a wildcard first."""

UNKNOWN_SHARE = 0.25
"""Share for any other predicate."""

MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}

DATE_PART_VALUES = {
    "quarter": 4.0, "month": 12.0, "week": 53.0, "day": 31.0, "doy": 366.0, "dow": 7.0, "hour": 24.0, "minute": 60.0,
    "second": 60.0,
}  # fmt: skip
"""Values of the date parts that repeat."""


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """What is guessed of a column's values at some point of a plan.

    Attributes
    ----------
    type : pyarrow.DataType
    distinct : float
        Distinct values among the rows that are left.
    domain : float
        Distinct values before rows were filtered away: what join keys are compared by.
    minimum, maximum : object or None
        Bounds, where known.
    null_fraction : float
        Share of NULLs, 0 to 1.
    width : float
        Bytes of a value in memory.
    """

    type: pa.DataType
    distinct: float
    domain: float
    minimum: Any
    maximum: Any
    null_fraction: float
    width: float


def unknown_profile(data_type: pa.DataType, width: float, rows: float) -> ColumnProfile:
    """Return the profile of a column of which only the number of rows is known."""
    distinct = min(max(rows, 1.0), 2.0) if pa.types.is_boolean(data_type) else max(rows, 1.0)
    return ColumnProfile(data_type, distinct, distinct, None, None, 0.0, width)


def distinct_after(distinct: float, before: float, after: float) -> float:
    """Return how many distinct values are left among ``after`` of ``before`` rows drawn at random.

    >>> distinct_after(10.0, 1000.0, 1000.0), round(distinct_after(1000.0, 1000.0, 100.0))
    (10.0, 100)
    """
    if after >= before or distinct <= 1.0:
        return max(min(distinct, after), 1.0)
    share = after / before
    # Each value has before / distinct rows; it is gone once all of them are.
    left = distinct * -math.expm1(before / distinct * math.log1p(-share))
    return max(min(left, after), 1.0)


class Selectivity:
    """Guesses shares of rows over columns whose profiles are known.

    Parameters
    ----------
    profile_of : callable
        Profile of a column by name.
    """

    def __init__(self, profile_of: Callable[[str], ColumnProfile]) -> None:
        self._profile_of = profile_of

    def of(self, predicate: Expression) -> float:
        """Return the share of rows for which a predicate is true, 0 to 1."""
        parts = conjuncts(predicate)
        share = 1.0
        ranges: dict[str, list[tuple[str, Any]]] = {}
        for part in parts:
            bound = _range_of(part)
            if bound is None:
                share *= self._single(part)
            else:
                column, function, value = bound
                ranges.setdefault(column, []).append((function, value))
        for column, bounds in ranges.items():
            # Together, for a < x and x < b are anything but independent.
            share *= self._between(self._profile_of(column), bounds)
        return min(max(share, 0.0), 1.0)

    def restricted(self, column: str, profile: ColumnProfile, predicate: Expression) -> tuple[ColumnProfile, float]:
        """Look at what a predicate says of one column alone.

        Returns
        -------
        ColumnProfile
            The column among the rows for which that part of the predicate is true.
        float
            The share of those rows.
        """
        bounds: list[tuple[str, Any]] = []
        alone = [part for part in conjuncts(predicate) if columns_of(part) == {column}]
        if not alone:
            return profile, 1.0
        share_kept = self.of(Call(pa.bool_(), "and", tuple(alone)))
        for part in alone:
            found = _range_of(part)
            if found is not None:
                bounds.append((found[1], found[2]))
            elif isinstance(part, In) and isinstance(part.operand, Column):
                count = float(len(part.values))
                profile = replace(profile, distinct=min(profile.distinct, count), null_fraction=0.0)
            elif isinstance(part, Call) and part.function == "equal" and _literal_of(part) is not None:
                value = _literal_of(part)
                profile = replace(profile, distinct=1.0, minimum=value, maximum=value, null_fraction=0.0)
        if bounds:
            share = self._between(replace(profile, null_fraction=0.0), bounds)
            low, high = profile.minimum, profile.maximum
            for function, value in bounds:
                try:
                    if function.startswith("greater") and (low is None or value > low):
                        low = value
                    elif function.startswith("less") and (high is None or value < high):
                        high = value
                except TypeError:
                    continue
            profile = replace(
                profile,
                distinct=max(profile.distinct * share, 1.0),
                minimum=low,
                maximum=high,
                null_fraction=0.0,
            )
        return profile, share_kept

    def profile(self, expression: Expression) -> ColumnProfile:
        """Return what is guessed of an expression's values."""
        if isinstance(expression, Column):
            return self._profile_of(expression.name)
        width = value_width(expression.type)
        if isinstance(expression, Literal):
            null = 1.0 if expression.value is None else 0.0
            return ColumnProfile(expression.type, 1.0, 1.0, expression.value, expression.value, null, width)
        if isinstance(expression, Cast):
            inner = self.profile(expression.operand)
            keeps_order = _is_number(expression.type) and _is_number(expression.operand.type)
            low, high = (inner.minimum, inner.maximum) if keeps_order else (None, None)
            return replace(inner, type=expression.type, width=width, minimum=low, maximum=high)
        if isinstance(expression, Call) and expression.function == "extract" and expression.options:
            inner = self.profile(expression.arguments[0])
            values = _date_part_values(expression.options[0], inner)
            return replace(inner, type=expression.type, distinct=min(values, inner.distinct),
                           domain=min(values, inner.domain), minimum=None, maximum=None, width=width)  # fmt: skip
        distinct = domain = 1.0
        for name in sorted(columns_of(expression)):
            inner = self._profile_of(name)
            distinct *= max(inner.distinct, 1.0)
            domain *= max(inner.domain, 1.0)
        if pa.types.is_boolean(expression.type):
            distinct, domain = min(distinct, 2.0), min(domain, 2.0)
        limit = 1e15
        return ColumnProfile(expression.type, min(distinct, limit), min(domain, limit), None, None, 0.0, width)

    def _single(self, predicate: Expression) -> float:
        """Return the share of a predicate that is no conjunction."""
        if isinstance(predicate, Literal):
            return 1.0 if predicate.value is True else 0.0
        if isinstance(predicate, In):
            each = [self._equal(predicate.operand, value) for value in predicate.values if value.value is not None]
            return min(sum(each), 1.0)
        if isinstance(predicate, Column):
            return 0.5
        if not isinstance(predicate, Call):
            return UNKNOWN_SHARE
        return self._call(predicate)

    def _call(self, call: Call) -> float:
        function, arguments = call.function, call.arguments
        if function == "and":
            return self.of(call)
        if function == "or":
            return _either(self.of(argument) for argument in arguments)
        if function in ("not", "is_not_true"):
            return 1.0 - self.of(arguments[0])
        if function in ("is_true", "is_false"):
            share = self.of(arguments[0])
            return share if function == "is_true" else 1.0 - share
        if function in ("is_null", "is_not_null"):
            nulls = self.profile(arguments[0]).null_fraction
            return nulls if function == "is_null" else 1.0 - nulls
        if function in ("equal", "is_not_distinct_from"):
            return self._equal(*arguments)
        if function in ("not_equal", "is_distinct_from"):
            return 1.0 - self._equal(*arguments)
        if function in MIRRORED:
            return self._comparison(call)
        if function in ("like", "ilike", "starts_with"):
            return self._like(call)
        return UNKNOWN_SHARE

    def _comparison(self, call: Call) -> float:
        left, right = call.arguments
        if columns_of(left) and columns_of(right):
            return COLUMNS_SHARE
        function = call.function
        if isinstance(left, Literal):
            left, right, function = right, left, MIRRORED[function]
        if not isinstance(right, Literal):
            return RANGE_SHARE
        return self._between(self.profile(left), [(function, right.value)])

    def _equal(self, left: Expression, right: Expression) -> float:
        one, other = self.profile(left), self.profile(right)
        if isinstance(left, Literal) or isinstance(right, Literal):
            column, literal = (other, left) if isinstance(left, Literal) else (one, right)
            value = literal.value if isinstance(literal, Literal) else None
            if value is None or _outside(value, column):
                return 0.0
            return (1 - column.null_fraction) / max(column.distinct, 1.0)
        if not columns_of(left) or not columns_of(right):
            return EQUAL_SHARE
        return (1 - one.null_fraction) * (1 - other.null_fraction) / max(one.distinct, other.distinct, 1.0)

    def _like(self, call: Call) -> float:
        pattern = call.arguments[1] if len(call.arguments) > 1 else None
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            return LIKE_SHARE
        text = pattern.value
        if call.function == "starts_with":
            text += "%"
        if not any(character in text for character in "%_"):
            return self._equal(call.arguments[0], pattern)
        prefix = text.split("%")[0].split("_")[0]
        if prefix and call.function != "ilike":
            profile = self.profile(call.arguments[0])
            if isinstance(profile.minimum, str) and not (profile.minimum[: len(prefix)] <= prefix <= profile.maximum):
                return 0.0
            # Few values: one or some of them start like this.
            return max(LIKE_SHARE / 2, min(1.0 / max(profile.distinct, 1.0), 1.0))
        return 1.0 - self.profile(call.arguments[0]).null_fraction if text.strip("%") == "" else LIKE_SHARE

    @staticmethod
    def _between(profile: ColumnProfile, bounds: list[tuple[str, Any]]) -> float:
        """Return the share of a column's values that meet all of some comparisons with constants."""
        present = 1.0 - profile.null_fraction
        if any(value is None for _, value in bounds):
            return 0.0
        scale = _scale_of(profile, [value for _, value in bounds])
        if scale is None:
            sides = {function.split("_")[0] for function, _ in bounds}
            return present * (RANGE_SHARE if len(sides) == 1 else RANGE_SHARE / 2)
        position, low, high, step = scale
        start, end = low, high + step
        for function, value in bounds:
            at = position(value)
            if function == "less":
                end = min(end, at)
            elif function == "less_equal":
                end = min(end, at + step)
            elif function == "greater":
                start = max(start, at + step)
            else:
                start = max(start, at)
        width = high + step - low
        if width <= 0:
            # One value in a type without steps: it is met or it is not.
            return present if start <= low and end >= high else 0.0
        return present * min(max((end - start) / width, 0.0), 1.0)


def value_width(data_type: pa.DataType) -> float:
    """Return the bytes taken for a value in memory; 24 where its length varies."""
    if pa.types.is_null(data_type):
        return 0.0
    try:
        return float(data_type.bit_width) / 8
    except ValueError:
        return 24.0


def _either(shares: Iterable[float]) -> float:
    neither = 1.0
    for share in shares:
        neither *= 1.0 - share
    return 1.0 - neither


def _is_number(data_type: pa.DataType) -> bool:
    return is_integer(data_type) or is_decimal(data_type) or bool(pa.types.is_floating(data_type))


def _date_part_values(part: str, profile: ColumnProfile) -> float:
    if part == "year" and isinstance(profile.minimum, datetime.date) and isinstance(profile.maximum, datetime.date):
        return float(max(profile.maximum.year - profile.minimum.year + 1, 1))
    if part == "year":
        return 10.0
    return DATE_PART_VALUES.get(part, profile.distinct)


def _range_of(predicate: Expression) -> tuple[str, str, Any] | None:
    """Read a predicate as ``column <, <=, > or >= constant``."""
    if not isinstance(predicate, Call) or predicate.function not in MIRRORED:
        return None
    left, right = predicate.arguments
    function = predicate.function
    if isinstance(left, Literal):
        left, right, function = right, left, MIRRORED[function]
    while isinstance(left, Cast) and _is_number(left.type) and _is_number(left.operand.type):
        left = left.operand
    if isinstance(left, Column) and isinstance(right, Literal):
        return left.name, function, right.value
    return None


def _literal_of(call: Call) -> Any:
    """Return the constant that a column is compared with, or ``None``."""
    for side, other in (call.arguments, call.arguments[::-1]):
        if isinstance(side, Column) and isinstance(other, Literal):
            return other.value
    return None


def _outside(value: Any, profile: ColumnProfile) -> bool:
    if profile.minimum is None or profile.maximum is None:
        return False
    try:
        return bool(value < profile.minimum or value > profile.maximum)
    except TypeError:
        return False


_Scale = tuple[Callable[[Any], float], float, float, float]


def _scale_of(profile: ColumnProfile, values: list[Any]) -> _Scale | None:
    """Return how values map to numbers, the column's bounds as numbers, and the distance of neighbouring values."""
    low, high = profile.minimum, profile.maximum
    if low is None or high is None:
        return None
    position: Callable[[Any], float] = _number
    step = 0.0
    if all(isinstance(item, str) for item in (low, high, *values)):
        shared = len(_common_prefix(low, high))
        prefix = low[:shared]
        position = _text_position(prefix)
    elif is_integer(profile.type) or pa.types.is_date(profile.type):
        step = 1.0
    elif is_decimal(profile.type):
        step = 10.0**-profile.type.scale
    try:
        for value in values:
            position(value)
        return position, position(low), position(high), step
    except (TypeError, ValueError, OverflowError):
        return None


def _number(value: Any) -> float:
    """Map a value to a number, in order."""
    if isinstance(value, bool | int | float | decimal.Decimal):
        result = float(value)
    elif isinstance(value, datetime.datetime):
        start = datetime.datetime(1970, 1, 1, tzinfo=value.tzinfo)
        result = (value - start).total_seconds()
    elif isinstance(value, datetime.date):
        result = float(value.toordinal())
    elif isinstance(value, datetime.timedelta):
        result = value.total_seconds()
    else:
        raise TypeError(f"no number for {type(value).__name__}")
    if not math.isfinite(result):
        raise ValueError("not finite")
    return result


def _common_prefix(left: str, right: str) -> str:
    for position, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return left[:position]
    return left if len(left) < len(right) else right


def _text_position(prefix: str) -> Callable[[Any], float]:
    """Return a map of texts to numbers, in order, that looks at what follows a shared prefix."""

    def position(text: Any) -> float:
        if not text.startswith(prefix):
            return -1.0 if text < prefix else 2.0
        result, weight = 0.0, 1.0
        for character in text[len(prefix) : len(prefix) + 6]:
            weight /= 128.0
            result += min(ord(character), 127) * weight
        return result

    return position
