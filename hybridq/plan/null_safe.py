"""Keys of joins that are equal where both are NULL, too."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

from hybridq.plan.expressions import Call, Expression, Literal
from hybridq.types import is_decimal, is_floating, is_integer


def null_safe_keys(left: Expression, right: Expression) -> list[tuple[Expression, Expression]]:
    """Return pairs of keys for one pair: whether they are NULL, and their values without NULL.

    Parameters
    ----------
    left, right : Expression
        Of one type.

    Returns
    -------
    list of (Expression, Expression)
        None for types that have no constants here.

    Examples
    --------
    >>> from hybridq.plan.expressions import Column
    >>> pairs = null_safe_keys(Column(pa.int64(), "a"), Column(pa.int64(), "b"))
    >>> [(str(left), str(right)) for left, right in pairs]
    [('is_null(a)', 'is_null(b)'), ('coalesce(a, 0)', 'coalesce(b, 0)')]
    """
    filler = _filler(left.type)
    if filler is None:
        return []
    found: list[tuple[Expression, Expression]] = []
    for function, data_type, others in (
        ("is_null", pa.bool_(), ()),
        ("coalesce", left.type, (Literal(left.type, filler),)),
    ):
        found.append((Call(data_type, function, (left, *others)), Call(data_type, function, (right, *others))))
    return found


def _filler(data_type: pa.DataType) -> object | None:
    """Return some value of a type; ``None`` for types that have no constants here."""
    if pa.types.is_boolean(data_type):
        return False
    if is_integer(data_type):
        return 0
    if is_floating(data_type):
        return 0.0
    if is_decimal(data_type):
        return Decimal(0)
    if pa.types.is_string(data_type):
        return ""
    if pa.types.is_binary(data_type):
        return b""
    if pa.types.is_date32(data_type):
        return date(1970, 1, 1)
    if pa.types.is_timestamp(data_type):
        return datetime(1970, 1, 1, tzinfo=None if data_type.tz is None else UTC)
    return None
