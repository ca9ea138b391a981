"""Conversions between types: exact, or an error (NULL for TRY_CAST)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq import types
from hybridq.engines.arithmetic import as_float, to_scale, type_bounds
from hybridq.engines.column import (
    INTERVAL,
    INTERVAL_WORDS,
    TICKS,
    UTC,
    Column,
    Mask,
    arrow_validity,
    combine_valid,
    from_arrow,
    null_column,
    pack_bits,
    storage_dtype,
    to_arrow,
    within,
)
from hybridq.engines.constants import constant, scaled
from hybridq.engines.decimals import (
    as_constant,
    divide_rounded,
    from_integers,
    overflow,
    scale_of,
    to_integers,
)
from hybridq.engines.grouped import list_lengths, lists_of
from hybridq.errors import CastFailed, NumericOverflow, Unsupported
from hybridq.plan.expressions import Cast

SECONDS_TEXT = len("2000-01-01 00:00:00")
"""Length of a timestamp's text without a fraction."""


def cast(expression: Cast, operand: Column) -> Column:
    """Convert a column.

    Raises
    ------
    CastFailed
        A value cannot be converted; the message shows it. With ``null_on_failure`` it becomes NULL.
    """
    source, target = operand.type, expression.type
    if operand.is_null_constant() or pa.types.is_null(source):
        return constant(target, None) if operand.constant else null_column(target, operand.rows)
    if source == target:
        return operand
    if operand.constant:
        return as_constant(_convert(expression, operand.expand(1)))
    return _convert(expression, operand)


def _convert(expression: Cast, operand: Column) -> Column:
    source, target = operand.type, expression.type
    if pa.types.is_list(source):
        return _of_elements(expression, operand)
    if types.is_string(source):
        return _from_string(expression, operand)
    if pa.types.is_binary(source) and types.is_string(target):
        return _decoded(expression, operand)
    if types.is_string(target):
        return _to_string(expression, operand)
    if types.is_interval(target) and pa.types.is_duration(source):
        return _to_interval(expression, operand)
    if pa.types.is_boolean(target):
        return _to_bool(operand)
    if types.is_decimal(target):
        return _to_decimal(expression, operand)
    if types.is_floating(target):
        return _to_float(expression, operand)
    if types.is_integer(target) and not pa.types.is_temporal(source):
        return _to_integer(expression, operand)
    return _through_arrow(expression, operand)


def _of_elements(expression: Cast, operand: Column) -> Column:
    """Convert the elements of lists."""
    array = to_arrow(operand)
    elements = cast(
        Cast(expression.type.value_type, expression.operand, expression.null_on_failure), from_arrow(array.flatten())
    )
    items = to_arrow(elements).cast(expression.type.value_type)
    return lists_of(items, list_lengths(array), expression.type, arrow_validity(array))


def _failed(expression: Cast, value: object) -> CastFailed:
    return CastFailed(
        f"cannot cast {value!s:.80} to {expression.type} in {expression}: correct it, or use TRY_CAST to get NULL"
    )


def _check(expression: Cast, operand: Column, failed: Mask, valid: Mask | None) -> Mask | None:
    """Raise for the first value that failed, or return the validity with such values NULL."""
    if valid is not None:
        failed = failed & valid
    if not failed.any():
        return valid
    if not expression.null_on_failure:
        row = int(np.flatnonzero(failed)[0])
        value = to_arrow(operand.take(np.array([row])))[0].as_py()
        raise _failed(expression, value)
    return combine_valid(valid, ~failed)


# --- numbers -------------------------------------------------------------------------------------------------------


def _to_integer(expression: Cast, operand: Column) -> Column:
    target = expression.type
    dtype = storage_dtype(target)
    limits = type_bounds(target)
    if types.is_floating(operand.type):
        # As in PostgreSQL and DuckDB a float rounds half to even.
        with np.errstate(all="ignore"):
            values = np.rint(operand.numbers.astype(np.float64))
        # 2**63 is a float but no int64: the upper limit itself is excluded where it is not exact.
        upper = float(limits[1] + 1)
        failed = ~((values >= float(limits[0])) & (values < upper))
        valid = _check(expression, operand, failed, operand.valid)
        return Column(target, np.where(failed, 0, values).astype(dtype), valid)
    if types.is_decimal(operand.type):
        try:
            operand = to_scale(operand, pa.decimal128(types.MAX_DECIMAL_DIGITS, 0), expression)
        except NumericOverflow as error:
            raise _failed(expression, error) from error
        if operand.array is not None:
            integers, valid = to_integers(operand)
            failed = np.array([not limits[0] <= value <= limits[1] for value in integers], np.bool_)
            valid = _check(expression, operand, failed, valid)
            return Column(target, np.where(failed, 0, integers).astype(dtype), valid)
    elif pa.types.is_boolean(operand.type):
        return Column(target, operand.numbers.astype(dtype), operand.valid, bounds=(0, 1))
    bounds = operand.interval()
    valid = operand.valid
    if not within(bounds, limits):
        values = operand.numbers
        failed = (values < max(limits[0], -(2**63))) | (values > min(limits[1], 2**64 - 1))
        valid = _check(expression, operand, failed, valid)
        bounds = (max(bounds[0], limits[0]), min(bounds[1], limits[1]))
    return Column(target, operand.numbers.astype(dtype, copy=False), valid, bounds=bounds)


def _to_float(expression: Cast, operand: Column) -> Column:
    values, valid = np.asarray(as_float(operand)), operand.validity()
    with np.errstate(over="ignore"):
        found = values.astype(storage_dtype(expression.type), copy=False)
    if expression.type == pa.float32() and types.is_floating(operand.type):
        valid = _check(expression, operand, np.isinf(found) & ~np.isinf(values), valid)
    return Column(expression.type, found, valid)


def _to_decimal(expression: Cast, operand: Column) -> Column:
    target = expression.type
    limit = 10**target.precision - 1
    if types.is_floating(operand.type):
        return _float_to_decimal(expression, operand, limit)
    if pa.types.is_boolean(operand.type):
        operand = Column(pa.int64(), operand.numbers.astype(np.int64), operand.valid, bounds=(0, 1))
    if not (types.is_decimal(operand.type) or types.is_integer(operand.type)):
        return _through_arrow(expression, operand)
    if operand.array is None and operand.numbers.dtype == np.uint64:
        integers, valid = to_integers(operand)
        operand = from_integers(integers, valid, pa.decimal128(20, 0), expression)
    try:
        column = to_scale(operand, target, expression)
    except NumericOverflow:
        column = None
    if column is not None and within(column.interval(), (-limit, limit)):
        return column
    # Some value has too many digits: find which.
    integers, valid = to_integers(operand)
    shift = target.scale - scale_of(operand.type)
    results = [value * 10**shift if shift >= 0 else divide_rounded(value, 10**-shift) for value in integers]
    return _checked_decimal(expression, operand, results, valid, limit)


def _checked_decimal(expression: Cast, operand: Column, results: list[int], valid: Mask | None, limit: int) -> Column:
    failed = np.array([abs(value) > limit for value in results], np.bool_)
    valid = _check(expression, operand, failed, valid)
    kept = np.empty(len(results), object)
    kept[:] = [0 if bad else value for value, bad in zip(results, failed, strict=True)]
    return from_integers(kept, valid, expression.type, expression)


def _float_to_decimal(expression: Cast, operand: Column, limit: int) -> Column:
    """Round the value that the shortest text of a float stands for, half away from zero."""
    scale = expression.type.scale
    valid = np.ones(operand.rows, np.bool_) if operand.valid is None else operand.valid
    results: list[int] = []
    for value, known in zip(operand.numbers.tolist(), valid.tolist(), strict=True):
        if not known:
            results.append(0)
        elif value - value != 0:  # NaN or infinite
            results.append(limit + 1)
        else:
            numerator, denominator = Decimal(repr(value)).as_integer_ratio()
            results.append(divide_rounded(numerator * 10**scale, denominator))
    return _checked_decimal(expression, operand, results, operand.valid, limit)


def _to_bool(operand: Column) -> Column:
    if operand.array is not None:
        integers, valid = to_integers(operand)
        return Column(pa.bool_(), integers != 0, valid)
    return Column(pa.bool_(), operand.numbers != 0, operand.valid)


# --- strings -------------------------------------------------------------------------------------------------------

_TRUE, _FALSE = frozenset({"true", "t", "yes", "y", "on", "1"}), frozenset({"false", "f", "no", "n", "off", "0"})


def _from_string(expression: Cast, operand: Column) -> Column:
    target = expression.type
    if types.is_decimal(target):
        return _parsed(expression, operand, _decimal_parser(target))
    if pa.types.is_boolean(target):
        return _parsed(expression, operand, _parse_bool)
    if pa.types.is_binary(target):
        return Column(target, array=operand.plain().cast(pa.string()).cast(target))
    text = pc.utf8_trim_whitespace(operand.plain())
    if types.is_integer(target) or types.is_floating(target) or pa.types.is_temporal(target):
        try:
            return from_arrow(text.cast(target))
        except pa.ArrowInvalid:
            pass
    if types.is_integer(target):
        low, high = type_bounds(target)
        return _parsed(expression, operand, lambda value: _parse_integer(value, low, high))
    if types.is_floating(target):
        return _parsed(expression, operand, float)
    return from_arrow(pa.array(_parsed_values(expression, operand, lambda value: _parse_time(value, target)), target))


def _parse_time(value: str, target: pa.DataType) -> Any:
    """Parse a date or timestamp; a text without a zone is in UTC, and a date is that of a timestamp's text."""
    text = pa.array([value], pa.string())
    try:
        return text.cast(target)[0]
    except pa.ArrowInvalid:
        if pa.types.is_date(target):
            return pc.floor_temporal(text.cast(pa.timestamp("us")), unit="day").cast(target)[0]
        if pa.types.is_timestamp(target) and target.tz is not None:
            return text.cast(pa.timestamp(target.unit)).cast(target)[0]
        raise


def _parsed(expression: Cast, operand: Column, parse: Callable[[str], Any]) -> Column:
    """Parse each string with a function that raises ValueError, ArithmeticError or ArrowInvalid."""
    return from_arrow(pa.array(_parsed_values(expression, operand, parse), expression.type))


def _parsed_values(expression: Cast, operand: Column, parse: Callable[[str], Any]) -> list[Any]:
    results: list[Any] = []
    for value in operand.plain().to_pylist():
        try:
            results.append(None if value is None else parse(value.strip()))
        except (ValueError, ArithmeticError, pa.ArrowInvalid) as error:
            if not expression.null_on_failure:
                raise _failed(expression, repr(value)) from error
            results.append(None)
    return results


def _parse_integer(value: str, low: int, high: int) -> int:
    if "_" in value:
        raise ValueError(value)
    number = int(value)
    if not low <= number <= high:
        raise ValueError(value)
    return number


def _decimal_parser(target: pa.DataType) -> Callable[[str], Decimal]:
    limit = 10**target.precision - 1

    def parse(value: str) -> Decimal:
        if "_" in value:
            raise ValueError(value)
        try:
            number = Decimal(value)
        except InvalidOperation as error:
            raise ValueError(value) from error
        if not number.is_finite() or number.adjusted() > types.MAX_DECIMAL_DIGITS:
            raise ValueError(value)
        if number.adjusted() < -target.scale - 1:
            return Decimal(0)
        numerator, denominator = number.as_integer_ratio()
        rounded = divide_rounded(numerator * 10**target.scale, denominator)
        if abs(rounded) > limit:
            raise ValueError(value)
        return scaled(rounded, target.scale)

    return parse


def _parse_bool(value: str) -> bool:
    lower = value.lower()
    if lower in _TRUE:
        return True
    if lower in _FALSE:
        return False
    raise ValueError(value)


def _decoded(expression: Cast, operand: Column) -> Column:
    """Take bytes as UTF-8."""
    array = to_arrow(operand)
    try:
        return Column(expression.type, array=array.cast(expression.type))
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        for value in array.to_pylist():
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError as error:
                if not expression.null_on_failure:
                    raise _failed(expression, value) from error
                texts.append(None)
        return Column(expression.type, array=pa.array(texts, pa.string()))


def _to_string(expression: Cast, operand: Column) -> Column:
    array = to_arrow(operand)
    if pa.types.is_timestamp(array.type):
        return Column(pa.string(), array=_time_texts(expression, array))
    if types.is_floating(operand.type):
        # The shortest text that stands for the value in its own width.
        values = array.to_numpy(zero_copy_only=False) if array.type == pa.float32() else array.to_pylist()
        known = array.is_valid().to_pylist()
        texts = [_float_text(value) if there else None for value, there in zip(values, known, strict=True)]
        return Column(pa.string(), array=pa.array(texts, pa.string()))
    if types.is_decimal(operand.type):
        # Arrow writes very small decimals with an exponent.
        texts = [None if value is None else format(value, "f") for value in array.to_pylist()]
        return Column(pa.string(), array=pa.array(texts, pa.string()))
    return Column(pa.string(), array=array.cast(pa.string()))


def _time_texts(expression: Cast, array: pa.Array) -> pa.Array:
    """Write timestamps without zeros at the end of a second's fraction, those of UTC with +00."""
    zone = array.type.tz
    if zone is not None and zone not in UTC:
        raise Unsupported(f"text of a timestamp of zone {zone} in {expression}: convert it to UTC first")
    texts = array.cast(pa.timestamp(array.type.unit)).cast(pa.string())
    if array.type.unit != "s":
        texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, characters="0"), characters=".")
        # A whole minute has lost the zeros of its seconds, too.
        missing = pc.subtract(SECONDS_TEXT, pc.binary_length(texts))
        padded = pc.utf8_rpad(texts, width=SECONDS_TEXT, padding="0")
        texts = pc.if_else(pc.greater(missing, 0), padded, texts)
    return texts if zone is None else pc.binary_join_element_wise(texts, "+00", "")


def _float_text(value: Any) -> str:
    if value != value:
        return "NaN"
    if not isinstance(value, np.float32):
        return repr(value)
    if np.isinf(value):
        return repr(float(value))
    # As Python writes doubles: an exponent outside of 1e-4 to 1e16.
    if value == 0 or 1e-4 <= abs(value) < 1e16:
        return np.format_float_positional(value, unique=True, trim="0")
    return np.format_float_scientific(value, unique=True, trim="-", exp_digits=2)


def _to_interval(expression: Cast, operand: Column) -> Column:
    """Turn a duration into an interval of days and nanoseconds."""
    found = np.zeros(operand.rows, INTERVAL_WORDS)
    per_second = TICKS[operand.type.unit]
    days, rest = np.divmod(operand.numbers, 86400 * per_second)
    known = days if operand.valid is None else days[operand.valid]
    if known.size and not within((int(known.min()), int(known.max())), type_bounds(pa.int32())):
        raise overflow(expression, INTERVAL)
    found["days"], found["nanoseconds"] = days, rest * (10**9 // per_second)
    buffers = [pack_bits(operand.valid), pa.py_buffer(found)]
    return Column(INTERVAL, array=pa.Array.from_buffers(INTERVAL, operand.rows, buffers))


def _through_arrow(expression: Cast, operand: Column) -> Column:
    """Dates, times and what else Arrow converts."""
    array = to_arrow(operand)
    target = expression.type
    if pa.types.is_date32(target) and pa.types.is_timestamp(array.type):
        # A date is the day that a timestamp falls in: no error for a time of day that is lost.
        array = pc.floor_temporal(array if array.type.tz is None else pc.local_timestamp(array), unit="day")
    try:
        return from_arrow(array.cast(target))
    except pa.ArrowNotImplementedError as error:
        raise CastFailed(
            f"cannot cast {operand.type} to {target} in {expression}: there is no such conversion"
        ) from error
    except pa.ArrowInvalid as error:
        if not expression.null_on_failure:
            raise CastFailed(f"cannot cast to {target} in {expression}: {error}") from error
    results = []
    for value in array:
        try:
            results.append(value.cast(target).as_py())
        except pa.ArrowInvalid:
            results.append(None)
    return from_arrow(pa.array(results, target))
