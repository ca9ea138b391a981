"""Comparisons, NULL tests and three-valued logic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pylibcudf as plc

from hybridq import types
from hybridq.engines.decimals import scale_of
from hybridq.engines.gpu import device
from hybridq.engines.gpu.arithmetic import Kernel, Run, as_float, common_width, integers_of, scaled
from hybridq.engines.gpu.column import Constant, GpuColumn, Operand, is_null_constant
from hybridq.engines.gpu.device import compare
from hybridq.engines.gpu.interop import from_arrow
from hybridq.plan.expressions import Call, In

BOOL = pa.bool_()
FEW_VALUES = 4
"""Values of an IN list up to which each is compared; longer lists are looked up in a hash set."""


def truth(data: plc.Column) -> GpuColumn:
    """Return booleans as a column."""
    return GpuColumn(BOOL, data)


def is_true(data: plc.Column) -> plc.Column:
    """Return where booleans are true, without NULLs."""
    return device.fill_null(data, False)


def is_false(data: plc.Column) -> plc.Column:
    """Return where booleans are false, without NULLs."""
    return device.negated(device.fill_null(data, True))


def compared(function: str, left: Operand, right: Operand) -> plc.Column | None:
    """Apply one of the six comparisons to operands that are not the constant NULL; ``None`` if the device cannot.

    NaN equals NaN and is above all numbers; strings compare by code point.
    """
    if types.is_floating(left.type) or types.is_floating(right.type):
        return _compared_floats(function, left, right)
    if types.is_decimal(left.type) or types.is_decimal(right.type) or _integers_of_two_types(left, right):
        return _compared_integers(function, left, right)
    if left.type != right.type or pa.types.is_nested(left.type):
        return None
    return compare(function, _plain(left), _plain(right))


def _plain(operand: Operand) -> plc.Column | plc.Scalar:
    return operand.data if isinstance(operand, GpuColumn) else operand.scalar()


def _integers_of_two_types(left: Operand, right: Operand) -> bool:
    return left.type != right.type and types.is_integer(left.type) and types.is_integer(right.type)


def _compared_integers(function: str, left: Operand, right: Operand) -> plc.Column | None:
    for operand in (left, right):
        if not (types.is_decimal(operand.type) or types.is_integer(operand.type)):
            return None
    scale = max(scale_of(left.type), scale_of(right.type))
    a = scaled(integers_of(left), scale - scale_of(left.type))
    b = scaled(integers_of(right), scale - scale_of(right.type))
    data_type = None if a is None or b is None else common_width(a, b)
    if data_type is None:
        return None
    assert a is not None
    assert b is not None
    return compare(function, a.operand(data_type), b.operand(data_type))


def _compared_floats(function: str, left: Operand, right: Operand) -> plc.Column | None:
    if types.is_decimal(left.type) or types.is_decimal(right.type):
        return None
    a, b = as_float(left), as_float(right)
    if a is None or b is None:
        return None
    result = compare(function, a, b)
    left_nan, right_nan = _nan(left, a), _nan(right, b)
    if left_nan is False and right_nan is False:
        return result
    if function in ("equal", "not_equal"):
        both = _both(left_nan, right_nan)
        if both is False:
            return result
        return _or(result, both) if function == "equal" else _and(result, _opposite(both))
    above, below = (right_nan, left_nan) if function in ("less", "less_equal") else (left_nan, right_nan)
    return _or(result, above if function.endswith("_equal") else _both(above, _opposite(below)))


Mask: TypeAlias = "plc.Column | bool"
"""Rows of a mask without NULLs; ``True`` for all, ``False`` for none."""


def _nan(operand: Operand, values: Any) -> Mask:
    """Return which rows are NaN; ``False`` for none, ``True`` for all."""
    if isinstance(operand, Constant):
        return bool(operand.value != operand.value)
    if not types.is_floating(operand.type) or not device.has_nan(values):
        return False
    return plc.unary.is_nan(values)


def _opposite(mask: Mask) -> Mask:
    return (not mask) if isinstance(mask, bool) else device.negated(mask)


def _both(left: Mask, right: Mask) -> Mask:
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    return compare("and", left, right)


def _and(result: plc.Column, mask: Mask) -> plc.Column:
    """Return AND with a mask without NULLs; a NULL result stays NULL."""
    if isinstance(mask, bool):
        return result if mask else compare("not_equal", result, result)
    return (
        device.with_nulls(compare("and", result, mask), device.is_valid(result))
        if result.null_count()
        else compare("and", result, mask)
    )


def _or(result: plc.Column, mask: Mask) -> plc.Column:
    """Return OR with a mask without NULLs; a NULL result stays NULL."""
    if isinstance(mask, bool):
        return compare("equal", result, result) if mask else result
    either = compare("or", result, mask)
    return device.with_nulls(either, device.is_valid(result)) if result.null_count() else either


# --- functions -----------------------------------------------------------------------------------------------------


def _comparison(call: Call, operands: list[Operand], run: Run) -> Operand:
    left, right = operands
    if is_null_constant(left) or is_null_constant(right):
        return Constant(BOOL, None)
    data = compared(call.function, left, right)
    return run.host(call, operands) if data is None else truth(data)


def _distinct(call: Call, operands: list[Operand], run: Run) -> Operand:
    left, right = operands
    if is_null_constant(left):
        left, right = right, left
    assert isinstance(left, GpuColumn)
    if is_null_constant(right):
        same = device.is_null(left.data)
    else:
        equal = compared("equal", left, right)
        if equal is None:
            return run.host(call, operands)
        same = is_true(equal)
        if left.nulls and isinstance(right, GpuColumn) and right.nulls:
            same = compare("or", same, compare("and", device.is_null(left.data), device.is_null(right.data)))
    return truth(same if call.function == "is_not_distinct_from" else device.negated(same))


def _null_test(call: Call, operands: list[Operand], run: Run) -> Operand:
    (operand,) = operands
    assert isinstance(operand, GpuColumn)
    return truth(device.is_null(operand.data) if call.function == "is_null" else device.is_valid(operand.data))


def _truth_test(call: Call, operands: list[Operand], run: Run) -> Operand:
    (operand,) = operands
    assert isinstance(operand, GpuColumn)
    found = is_true(operand.data) if call.function in ("is_true", "is_not_true") else is_false(operand.data)
    return truth(device.negated(found) if "_not_" in call.function else found)


def _not(call: Call, operands: list[Operand], run: Run) -> Operand:
    (operand,) = operands
    assert isinstance(operand, GpuColumn)
    return truth(device.negated(operand.data))


def is_in(expression: In, operand: GpuColumn, run: Run) -> Operand:
    """Test membership in constants; a NULL among them makes a miss unknown."""
    values = [Constant(value.type, value.value) for value in expression.values]
    known = [value for value in values if value.value is not None]
    if not known:
        # x IN () is false for every x; x IN (NULL) is unknown.
        return Constant(BOOL, None if values else False)
    hit = _hits(operand, known)
    if hit is None:
        return run.host(expression, [operand])
    if len(known) < len(values):
        hit = device.with_nulls(hit, hit)
    return truth(hit)


def _hits(operand: GpuColumn, known: list[Constant]) -> plc.Column | None:
    """Return which rows equal a constant, NULL where the row is."""
    same_type = all(value.type == operand.type for value in known) and not types.is_floating(operand.type)
    if len(known) > FEW_VALUES and same_type and not operand.wide and not any(value.wide for value in known):
        haystack = from_arrow(pa.array([value.value for value in known], operand.type))
        return plc.search.contains(haystack.data, operand.data)
    result: plc.Column | None = None
    for value in known:
        hit = compared("equal", operand, value)
        if hit is None:
            return None
        result = hit if result is None else compare("or", result, hit)
    return result


KERNELS: Mapping[str, Kernel] = {
    **dict.fromkeys(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), _comparison),
    "is_distinct_from": _distinct, "is_not_distinct_from": _distinct,
    "is_null": _null_test, "is_not_null": _null_test,
    "is_true": _truth_test, "is_false": _truth_test, "is_not_true": _truth_test, "is_not_false": _truth_test,
    "not": _not,
}  # fmt: skip
