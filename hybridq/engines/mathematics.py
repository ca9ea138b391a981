"""Mathematical functions: IEEE on floats, exact on integers and decimals.

Outside of its domain a function of floats is NaN or infinite, as IEEE says, and no error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa

from hybridq import types
from hybridq.engines.arithmetic import as_float, as_int64, divide_half_away, result, to_scale, type_bounds
from hybridq.engines.column import INT64, Column, Mask, Values, combine_valid, storage_dtype, within
from hybridq.engines.comparison import compare, is_true, truth
from hybridq.engines.constants import constant
from hybridq.engines.decimals import combine_integers, divide_rounded, overflow, scale_of
from hybridq.errors import ExecutionError
from hybridq.plan.expressions import Call

LARGEST_FACTORIAL = 20
"""The factorial of 21 has more than 64 bits."""

EXACT_FLOAT = 2.0**53
"""Floats of this size are whole numbers."""

_FLOATS: Mapping[str, Callable[..., Any]] = {
    "sqrt": np.sqrt, "cbrt": np.cbrt, "power": np.power, "exp": np.exp, "ln": np.log, "log10": np.log10,
    "log2": np.log2, "sign": np.sign, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "degrees": np.degrees, "radians": np.radians,
    "cot": lambda x: 1.0 / np.tan(x),
}  # fmt: skip


def _any_null(arguments: list[Column]) -> bool:
    return any(argument.is_null_constant() for argument in arguments)


def _valid(arguments: list[Column]) -> Mask | None:
    masks = []
    for argument in arguments:
        mask = argument.validity()
        masks.append(mask[0] if mask is not None and mask.ndim and argument.constant else mask)
    return combine_valid(*(None if mask is None else np.asarray(mask) for mask in masks))


def _reals(arguments: list[Column]) -> list[Values]:
    return [np.asarray(as_float(argument)).astype(np.float64, copy=False) for argument in arguments]


def _typed(call: Call, values: Any, arguments: list[Column]) -> Column:
    return result(call.type, np.asarray(values, storage_dtype(call.type)), arguments, None, _valid(arguments))


def _of_floats(call: Call, arguments: list[Column]) -> Column:
    if _any_null(arguments):
        return constant(call.type, None)
    with np.errstate(all="ignore"):
        return _typed(call, _FLOATS[call.function](*_reals(arguments)), arguments)


def _log(call: Call, arguments: list[Column]) -> Column:
    """LOG(x) is to base 10; the base is the second argument."""
    if _any_null(arguments):
        return constant(call.type, None)
    with np.errstate(all="ignore"):
        value, *base = _reals(arguments)
        return _typed(call, np.log10(value) if not base else np.log(value) / np.log(base[0]), arguments)


# --- rounding ------------------------------------------------------------------------------------------------------


def half_away(values: Values) -> Values:
    """Round floats to whole numbers, halves away from zero."""
    whole = np.trunc(values)
    return np.asarray(np.where(np.abs(values - whole) >= 0.5, whole + np.copysign(1.0, values), whole))


_WHOLE: Mapping[str, Callable[[Values], Any]] = {
    "round": half_away, "trunc": np.trunc, "floor": np.floor, "ceil": np.ceil,
}  # fmt: skip


def _exact_whole(function: str, value: int, unit: int) -> int:
    """Return how many times a unit goes into an integer, rounded as the function says."""
    if function == "round":
        return divide_rounded(value, unit)
    if function == "trunc":
        return value // unit if value >= 0 else -(-value // unit)
    return value // unit if function == "floor" else -(-value // unit)


def _round(call: Call, arguments: list[Column]) -> Column:
    """ROUND, TRUNC (both to a number of digits, which may be negative), FLOOR and CEIL."""
    if _any_null(arguments):
        return constant(call.type, None)
    operand, *digits = arguments
    if types.is_floating(operand.type) or (types.is_floating(call.type) and not types.is_decimal(operand.type)):
        return _round_floats(call, operand, digits)
    if types.is_floating(call.type):
        return _typed(call, _WHOLE[call.function](*_reals([operand])), arguments)
    if digits and not digits[0].constant:
        return _round_each(call, operand, digits[0])
    return _round_exactly(call, operand, int(digits[0].numbers) if digits else 0)


def _round_floats(call: Call, operand: Column, digits: list[Column]) -> Column:
    (values,) = _reals([operand])
    with np.errstate(all="ignore"):
        if not digits:
            return _typed(call, _WHOLE[call.function](values), [operand])
        places = digits[0].numbers.astype(np.float64)
        factor = np.power(10.0, np.abs(places))
        scaled = np.where(places >= 0, values * factor, values / factor)
        whole = _WHOLE[call.function](scaled)
        back = np.where(places >= 0, whole / factor, whole * factor)
        # What is this large has no such digits: rounding changes it by less than its last bit.
        found = np.where(np.abs(scaled) < EXACT_FLOAT, back, values)
    if call.function == "round":
        found = _decided_ties(found, values, scaled, places)
    return _typed(call, found, [operand, digits[0]])


def _decided_ties(found: Values, values: Values, scaled: Values, places: Values) -> Values:
    """Decide what looks like half: the product with a power of ten has been rounded, the value itself is exact."""
    with np.errstate(all="ignore"):
        size = np.abs(scaled)
        near = np.abs(np.abs(scaled - np.trunc(scaled)) - 0.5) <= 4 * np.spacing(size)
        near = (near | (size >= EXACT_FLOAT / 16)) & (size < EXACT_FLOAT)
    if not np.any(near):
        return found
    found = np.atleast_1d(found).copy()
    all_places = np.broadcast_to(places, found.shape)
    flat = np.broadcast_to(values, found.shape)
    for row in np.flatnonzero(near):
        unit = Decimal(1).scaleb(-int(all_places[row]))
        with localcontext() as context:
            context.prec = 400
            found[row] = float((Decimal(float(flat[row])) / unit).to_integral_value(ROUND_HALF_UP) * unit)
    return found if scaled.ndim else np.asarray(found[0])


def _round_exactly(call: Call, operand: Column, digits: int) -> Column:
    """Round integers and decimals to so many digits after the point."""
    scale = scale_of(operand.type)
    if digits >= scale:
        return _of_type(call, to_scale(operand, _decimal_of(call), call))
    unit = 10 ** (scale - digits)
    low, high = operand.interval()
    wide = operand.array is not None or unit > INT64[1] // 4 or not within((low - unit, high + unit), INT64)
    if wide:
        back = 10 ** max(scale_of(call.type) - digits, 0)
        down = 10 ** max(digits - scale_of(call.type), 0)
        found = combine_integers(
            lambda value: _exact_whole(call.function, value, unit) * back // down, [operand], _decimal_of(call), call
        )
        return _of_type(call, found)
    values = as_int64(operand.numbers)
    if call.function == "round":
        count = divide_half_away(values, unit)
    elif call.function == "floor":
        count = np.floor_divide(values, unit)
    elif call.function == "ceil":
        count = -np.floor_divide(-values, unit)
    else:
        count = np.where(values >= 0, np.floor_divide(values, unit), -np.floor_divide(-values, unit))
    whole = Column(
        pa.decimal128(types.MAX_DECIMAL_DIGITS, scale), np.asarray(count * unit), operand.valid,
        bounds=(low - unit, high + unit), constant=operand.constant,
    )  # fmt: skip
    return _of_type(call, to_scale(whole, _decimal_of(call), call))


def _round_each(call: Call, operand: Column, digits: Column) -> Column:
    scale, target = scale_of(operand.type), scale_of(call.type)

    def rounded(value: int, places: int) -> int:
        unit = 10 ** max(scale - places, 0)
        exact = _exact_whole(call.function, value, unit) * unit
        return exact * 10 ** (target - scale) if target >= scale else divide_rounded(exact, 10 ** (scale - target))

    return _of_type(call, combine_integers(rounded, [operand, digits], _decimal_of(call), call))


def _decimal_of(call: Call) -> pa.DataType:
    return call.type if types.is_decimal(call.type) else pa.decimal128(types.MAX_DECIMAL_DIGITS, 0)


def _of_type(call: Call, column: Column) -> Column:
    """Give whole numbers their integer type, and decimals no more digits than theirs has."""
    limits = type_bounds(call.type)
    if types.is_decimal(call.type):
        limits = (1 - 10**call.type.precision, 10**call.type.precision - 1)
    if not within(column.interval(), limits) and not within(column.measured(), limits):
        raise overflow(call, call.type)
    if types.is_decimal(call.type):
        return column
    assert column.array is None or call.type == pa.uint64()
    values = column.numbers.astype(storage_dtype(call.type))
    return Column(call.type, values, column.valid, bounds=column.interval(), constant=column.constant)


# --- integers ------------------------------------------------------------------------------------------------------


def _integers(call: Call, arguments: list[Column]) -> Column:
    if _any_null(arguments):
        return constant(call.type, None)
    left, right = (argument.numbers for argument in arguments)
    if call.function in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        return _typed(call, getattr(np, call.function)(left, right), arguments)
    return _checked_integers(call, arguments)


def _checked_integers(call: Call, arguments: list[Column]) -> Column:
    """Greatest common divisors, least common multiples and shifts: what may not fit is computed in Python integers."""
    valid = _valid(arguments)
    bits = call.type.bit_width

    def shifted(value: int, by: int) -> int:
        if not 0 <= by < bits:
            raise ExecutionError(
                f"{call} shifts by {by} bits: a value of {call.type} can be shifted by 0 to {bits - 1}"
            )
        return value << by if call.function == "shift_left" else value >> by

    function: Callable[[int, int], int] = {"gcd": math.gcd, "lcm": math.lcm}.get(call.function, shifted)
    pairs = np.broadcast_arrays(*(np.asarray(argument.numbers) for argument in arguments))
    if call.function == "gcd" and pairs[0].dtype == np.int64 and pairs[0].size:
        at_least = min(int(pairs[0].min()), int(pairs[1].min()))
        if at_least > INT64[0]:
            return _typed(call, np.gcd(pairs[0], pairs[1]), arguments)
    known = np.broadcast_to(True if valid is None else valid, pairs[0].shape)
    low, high = type_bounds(call.type)
    values = np.zeros(pairs[0].shape, storage_dtype(call.type))
    flat = values.reshape(-1)
    rows = zip(pairs[0].reshape(-1).tolist(), pairs[1].reshape(-1).tolist(), known.reshape(-1).tolist(), strict=True)
    for row, (a, b, there) in enumerate(rows):
        if there:
            value = function(a, b)
            if not low <= value <= high:
                raise overflow(call, call.type)
            flat[row] = value
    return _typed(call, values, arguments)


def _factorial(call: Call, arguments: list[Column]) -> Column:
    if _any_null(arguments):
        return constant(call.type, None)
    (operand,) = arguments
    values, valid = operand.numbers, _valid(arguments)
    for wrong, error in (
        (values < 0, ExecutionError(f"the factorial of a negative number is not defined: in {call}")),
        (values > LARGEST_FACTORIAL, overflow(call, call.type)),
    ):
        if np.any(wrong if valid is None else wrong & valid):
            raise error
    table = np.array([math.factorial(number) for number in range(LARGEST_FACTORIAL + 1)], np.int64)
    return _typed(call, table[np.clip(values, 0, LARGEST_FACTORIAL)], arguments)


def _is_nan(call: Call, arguments: list[Column]) -> Column:
    (operand,) = arguments
    return truth(np.asarray(np.isnan(operand.numbers)), operand.valid)


# --- the greatest and the least ------------------------------------------------------------------------------------


def _extreme(call: Call, arguments: list[Column]) -> Column:
    """GREATEST and LEAST of the arguments that are not NULL; NaN is above all numbers."""
    from hybridq.engines.column import concatenate

    known = [argument for argument in arguments if not argument.is_null_constant()]
    if not known:
        return constant(call.type, None)
    rows = max((argument.rows for argument in known if not argument.constant), default=1)
    best, *others = (argument.expand(rows) for argument in known)
    for other in others:
        better = is_true(compare("greater" if call.function == "greatest" else "less", other, best))
        missing = best.validity()
        if missing is not None:
            better = better | ~missing
        positions = np.arange(rows, dtype=np.int64)
        best = concatenate([best, other]).take(np.where(better, positions + rows, positions))
    if all(argument.constant for argument in arguments):
        from hybridq.engines.decimals import as_constant

        return as_constant(best)
    return best


KERNELS: Mapping[str, Callable[[Call, list[Column]], Column]] = {
    **dict.fromkeys(_FLOATS, _of_floats),
    "log": _log, "round": _round, "trunc": _round, "floor": _round, "ceil": _round,
    **dict.fromkeys(("gcd", "lcm", "shift_left", "shift_right", "bitwise_and", "bitwise_or", "bitwise_xor"), _integers),
    "factorial": _factorial, "is_nan": _is_nan, "greatest": _extreme, "least": _extreme,
}  # fmt: skip
