"""Comparisons, NULL tests and three-valued logic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq import types
from hybridq.engines.column import (
    INT64,
    Column,
    Mask,
    Values,
    combine_valid,
    unpack_bits,
    within,
)
from hybridq.engines.decimals import wide_array
from hybridq.plan.expressions import Call, In

BOOL = pa.bool_()
NULL_TESTS = frozenset({
    "is_null", "is_not_null", "is_true", "is_false", "is_not_true", "is_not_false", "is_distinct_from",
    "is_not_distinct_from",
})  # fmt: skip
"""Functions that do not give NULL for NULL."""

_UFUNCS: Mapping[str, np.ufunc] = {
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal,
}  # fmt: skip
_ARROW: Mapping[str, Callable[..., Any]] = {
    "equal": pc.equal, "not_equal": pc.not_equal, "less": pc.less, "less_equal": pc.less_equal,
    "greater": pc.greater, "greater_equal": pc.greater_equal,
}  # fmt: skip


def truth(values: Values, valid: Mask | None = None) -> Column:
    """Return a boolean column, constant if its values have no dimension."""
    constant = values.ndim == 0 and (valid is None or valid.ndim == 0)
    if not constant and values.ndim == 0:
        assert valid is not None
        values = np.broadcast_to(values, valid.shape)
    elif not constant and valid is not None and valid.ndim == 0:
        valid = np.broadcast_to(valid, values.shape)
    return Column(BOOL, np.asarray(values), valid if valid is None else np.asarray(valid), constant=constant)


def is_true(column: Column) -> Mask:
    """Return which rows are true (neither false nor NULL)."""
    values: Mask = column.numbers
    return values if column.valid is None else values & column.valid


def is_false(column: Column) -> Mask:
    """Return which rows are false (neither true nor NULL)."""
    values: Mask = ~column.numbers
    return values if column.valid is None else values & column.valid


def both(left: Column, right: Column) -> Column:
    """AND: false if either is, else NULL if either is."""
    if left.valid is None and right.valid is None:
        return truth(left.numbers & right.numbers)
    values = is_true(left) & is_true(right)
    return truth(values, values | is_false(left) | is_false(right))


def either(left: Column, right: Column) -> Column:
    """OR: true if either is, else NULL if either is."""
    if left.valid is None and right.valid is None:
        return truth(left.numbers | right.numbers)
    values = is_true(left) | is_true(right)
    return truth(values, values | (is_false(left) & is_false(right)))


def compare(function: str, left: Column, right: Column) -> Column:
    """Apply one of the six comparisons. NaN equals NaN and is above all numbers; strings compare by code point."""
    if types.is_string(left.type) or not (left.is_numbers and right.is_numbers) or _differ(left, right):
        return _compare_arrow(function, left, right)
    a, b = left.numbers, right.numbers
    valid = combine_valid(left.valid, right.valid)
    if a.dtype.kind == "f" or b.dtype.kind == "f":
        return truth(_compare_floats(function, a, b), valid)
    if types.is_decimal(left.type) or types.is_decimal(right.type):
        left_scale, right_scale = _scale(left.type), _scale(right.type)
        scale = max(left_scale, right_scale)
        a = a if scale == left_scale else a * 10 ** (scale - left_scale)
        b = b if scale == right_scale else b * 10 ** (scale - right_scale)
    return truth(np.asarray(_UFUNCS[function](a, b)), valid)


def _scale(data_type: pa.DataType) -> int:
    return int(data_type.scale) if types.is_decimal(data_type) else 0


def _differ(left: Column, right: Column) -> bool:
    """Tell whether the stored numbers cannot be compared as they are, or after scaling, in 64 bits."""
    if left.type == right.type:
        return False
    if types.is_decimal(left.type) or types.is_decimal(right.type):
        if types.is_floating(left.type) or types.is_floating(right.type):
            return False
        scale = max(_scale(left.type), _scale(right.type))
        for column in (left, right):
            factor = 10 ** (scale - _scale(column.type))
            low, high = column.interval()
            if factor != 1 and not within((low * factor, high * factor), INT64):
                return True
        return False
    return bool(pa.types.is_temporal(left.type) or pa.types.is_temporal(right.type))


def _compare_floats(function: str, a: Values, b: Values) -> Mask:
    result: Mask = np.asarray(_UFUNCS[function](a, b))
    left_nan, right_nan = np.isnan(a), np.isnan(b)
    if not left_nan.any() and not right_nan.any():
        return result
    if function == "equal":
        return result | (left_nan & right_nan)
    if function == "not_equal":
        return result & ~(left_nan & right_nan)
    if function in ("less", "less_equal"):
        above, below = right_nan, left_nan
    else:
        above, below = left_nan, right_nan
    return result | above if function.endswith("_equal") else result | (above & ~below)


def _compare_arrow(function: str, left: Column, right: Column) -> Column:
    if left.dictionary is not None and left.dictionary is right.dictionary and function in ("equal", "not_equal"):
        assert left.values is not None
        assert right.values is not None
        same = _UFUNCS[function](left.values, right.values)
        return truth(np.asarray(same), combine_valid(left.valid, right.valid))
    return from_mask_array(_ARROW[function](*comparable(left, right)), left.constant and right.constant)


def comparable(left: Column, right: Column) -> tuple[Any, Any]:
    """Return two columns as Arrow values of one type, scalars for constants."""
    if types.is_decimal(left.type) or types.is_decimal(right.type):
        scale = max(_scale(left.type), _scale(right.type))
        a, b = wide_array(left, scale), wide_array(right, scale)
    elif types.is_string(left.type):
        a, b = left.plain(), right.plain()
    else:
        from hybridq.engines.column import to_arrow

        a, b = to_arrow(left.expand(1)), to_arrow(right.expand(1))
    if a.type != b.type:
        if types.is_decimal(left.type) or types.is_decimal(right.type):
            target = max(a.type, b.type, key=lambda data_type: data_type.precision)
        else:
            target = pa.large_string() if pa.types.is_large_string(a.type) else b.type
        a, b = a.cast(target), b.cast(target)
    if left.constant and right.constant:
        return a, b
    return (a[0] if left.constant else a), (b[0] if right.constant else b)


def from_mask_array(array: pa.Array, constant: bool = False) -> Column:
    """Take over an Arrow boolean array, its first element as a constant if asked for."""
    buffers = array.buffers()
    values = unpack_bits(buffers[1], array.offset, len(array)) if len(array) else np.zeros(0, np.bool_)
    valid = None
    if array.null_count:
        valid = unpack_bits(buffers[0], array.offset, len(array))
    if constant:
        return truth(np.asarray(values[0]), None if valid is None else np.asarray(valid[0]))
    return truth(values, valid)


def _comparison(call: Call, arguments: list[Column]) -> Column:
    left, right = arguments
    if left.is_null_constant() or right.is_null_constant():
        return truth(np.asarray(False), np.asarray(False))
    return compare(call.function, left, right)


def _distinct(call: Call, arguments: list[Column]) -> Column:
    left, right = arguments
    if left.is_null_constant() and right.is_null_constant():
        return truth(np.asarray(call.function == "is_not_distinct_from"))
    left_valid, right_valid = _valid_or_true(left), _valid_or_true(right)
    if left.is_null_constant() or right.is_null_constant():
        same = ~left_valid & ~right_valid
    else:
        equal = compare("equal", left, right)
        same = is_true(equal) | (~left_valid & ~right_valid)
    return truth(np.asarray(same if call.function == "is_not_distinct_from" else ~same))


def _valid_or_true(column: Column) -> Mask:
    valid = column.validity()
    if valid is None:
        return np.asarray(True)
    return np.asarray(valid[0]) if column.constant and valid.ndim else valid


def _null_test(call: Call, arguments: list[Column]) -> Column:
    (column,) = arguments
    valid = column.validity()
    if valid is None:
        values: Mask = np.asarray(True) if column.constant else np.ones(column.rows, np.bool_)
    else:
        values = _valid_or_true(column)
    return truth(values if call.function == "is_not_null" else np.asarray(~values))


def _truth_test(call: Call, arguments: list[Column]) -> Column:
    (column,) = arguments
    values = is_true(column) if call.function in ("is_true", "is_not_true") else is_false(column)
    return truth(np.asarray(~values if "_not_" in call.function else values))


def _not(call: Call, arguments: list[Column]) -> Column:
    (column,) = arguments
    return truth(np.asarray(~column.numbers), column.valid)


def is_in(expression: In, operand: Column, values: list[Column]) -> Column:
    """Test membership in constants; a NULL among them makes a miss unknown."""
    known = [value for value in values if not value.is_null_constant()]
    has_null = len(known) < len(values)
    if operand.is_null_constant() or not known:
        # x IN () is false for every x; x IN (NULL) is unknown.
        unknown = operand.is_null_constant() or has_null
        return truth(np.asarray(False), np.asarray(not unknown) if values else None)
    hit = _hits(operand, known)
    valid = operand.validity()
    if operand.constant and valid is not None and valid.ndim:
        valid = np.asarray(valid[0])
    if valid is not None:
        hit = hit & valid
    if not has_null:
        return truth(hit, valid)
    return truth(hit, hit)


def _hits(operand: Column, known: list[Column]) -> Mask:
    simple = operand.is_numbers and operand.numbers.dtype.kind in "iub" and not operand.constant
    if simple and len(known) > 8 and all(value.is_numbers and value.type == operand.type for value in known):
        return np.isin(operand.numbers, np.asarray([value.numbers for value in known]))
    if types.is_string(operand.type) and not operand.constant:
        array = operand.plain()
        options = pa.array([value.plain()[0].as_py() for value in known], array.type)
        return is_true(from_mask_array(pc.is_in(array, value_set=options)))
    hit = is_true(compare("equal", operand, known[0]))
    for value in known[1:]:
        hit = hit | is_true(compare("equal", operand, value))
    return hit


KERNELS: Mapping[str, Callable[[Call, list[Column]], Column]] = {
    **dict.fromkeys(_UFUNCS, _comparison),
    "is_distinct_from": _distinct, "is_not_distinct_from": _distinct,
    "is_null": _null_test, "is_not_null": _null_test,
    "is_true": _truth_test, "is_false": _truth_test, "is_not_true": _truth_test, "is_not_false": _truth_test,
    "not": _not,
}  # fmt: skip
