"""Constants as values of another type, where that changes nothing."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa

from hybridq.types import is_decimal, is_floating, is_integer


def exact(value: Any, data_type: pa.DataType) -> Any:
    """Return a constant as a value of that type, or ``None`` if the type does not hold exactly that value.

    >>> exact(24, pa.decimal128(15, 2))
    Decimal('24.00')
    """
    if isinstance(value, bool) or value is None:
        return value if pa.types.is_boolean(data_type) else None
    if isinstance(value, int | Decimal):
        return _exact_number(value, data_type)
    if isinstance(value, datetime):
        if pa.types.is_date(data_type) and value.tzinfo is None and value.time() == time():
            return value.date()
        return value if pa.types.is_timestamp(data_type) and (value.tzinfo is None) == (data_type.tz is None) else None
    if isinstance(value, date):
        if pa.types.is_timestamp(data_type) and data_type.tz is None:
            return datetime(value.year, value.month, value.day)
        return value if pa.types.is_date(data_type) else None
    if isinstance(value, float):
        if is_integer(data_type) and value.is_integer():
            return _exact_number(int(value), data_type)
        return value if data_type == pa.float64() else None
    return None


def _exact_number(value: int | Decimal, data_type: pa.DataType) -> Any:
    if is_decimal(data_type):
        with localcontext() as context:
            context.prec = 100
            number = Decimal(value)
            rounded = number.quantize(Decimal(1).scaleb(-data_type.scale)) if number.is_finite() else None
            if rounded is None or rounded != number or len(rounded.as_tuple().digits) > data_type.precision:
                return None
            return rounded
    if isinstance(value, Decimal) and value != value.to_integral_value():
        return float(value) if is_floating(data_type) and Decimal(float(value)) == value else None
    whole = int(value)
    if is_integer(data_type):
        unsigned = pa.types.is_unsigned_integer(data_type)
        lowest = 0 if unsigned else -(1 << data_type.bit_width - 1)
        return whole if lowest <= whole < (1 << data_type.bit_width - (0 if unsigned else 1)) else None
    if is_floating(data_type):
        digits = 24 if data_type == pa.float32() else 53
        return float(whole) if abs(whole) <= 1 << digits else None
    return None
