"""Exact comparison of answers, aware of ties in ORDER BY and LIMIT.

Integers, decimals, strings, dates and booleans must be equal; floating-point numbers to a relative tolerance, NaN being
equal to NaN; NULL only to NULL. Column types must be the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from hybridq.types import normalize

Row = tuple[Any, ...]
Tolerance = tuple[float, float]  # relative, absolute

RELATIVE_TOLERANCE = 1e-12


def assert_same_answer(
    actual: pa.Table,
    expected: pa.Table,
    *,
    order_by: Sequence[str | int] = (),
    unlimited: pa.Table | None = None,
    relative_tolerance: float = RELATIVE_TOLERANCE,
    absolute_tolerance: float = 0.0,
    check_names: bool = True,
) -> None:
    """Raise ``AssertionError`` unless two answers to one query are the same.

    Without ``order_by``, rows are compared as a multiset. With it, the sort keys must be equal row by row, and rows
    that are equal on all keys may come in any order. With ``unlimited``, the answer was cut by LIMIT or OFFSET: rows
    whose keys equal the first or the last row's may be any of the rows that the full answer has with those keys
    (without ``order_by``, any rows of the full answer).

    Parameters
    ----------
    actual : pyarrow.Table
        The answer under test.
    expected : pyarrow.Table
        The right answer, ordered and cut as the query says.
    order_by : sequence of str or int
        The sort keys among the columns, by name or position. The direction does not matter: ``expected`` has the order.
    unlimited : pyarrow.Table, optional
        The right answer to the query without its LIMIT.
    relative_tolerance : float
        Largest relative difference of two equal floating-point numbers.
    absolute_tolerance : float
        Largest difference of two equal floating-point numbers, for what cancels to nearly zero.
    check_names : bool
        Compare column names too.
    """
    tolerance = (relative_tolerance, absolute_tolerance)
    _check_schema(actual, expected, check_names)
    if actual.num_rows != expected.num_rows:
        raise AssertionError(f"expected {expected.num_rows} rows, got {actual.num_rows}{_difference(actual, expected)}")
    keys = [expected.schema.names.index(key) if isinstance(key, str) else key for key in order_by]
    names = expected.schema.names
    got, want = _rows(actual), _rows(expected)
    for number, (left, right) in enumerate(zip(got, want, strict=True)):
        for key in keys:
            if not _equal(left[key], right[key], tolerance):
                raise AssertionError(
                    f"row {number} is out of order or wrong: column {names[key]!r} is {left[key]!r}, "
                    f"expected {right[key]!r}\n  actual   {left}\n  expected {right}"
                )
    runs = list(_runs(want, keys, tolerance))
    for start, end in runs:
        if unlimited is not None and (start == 0 or end == len(want)):
            edge = want[start]
            allowed = [row for row in _rows(unlimited) if _equal_on(row, edge, keys, tolerance)]
            _check_subset(got[start:end], allowed, names, tolerance)
        else:
            _check_multiset(got[start:end], want[start:end], start, names, tolerance)


def _check_schema(actual: pa.Table, expected: pa.Table, check_names: bool) -> None:
    if actual.num_columns != expected.num_columns:
        raise AssertionError(f"expected columns {expected.schema.names}, got {actual.schema.names}")
    for number, (got, want) in enumerate(zip(actual.schema, expected.schema, strict=True)):
        if check_names and got.name != want.name:
            raise AssertionError(f"column {number} is named {got.name!r}, expected {want.name!r}")
        if normalize(got.type) != normalize(want.type):
            raise AssertionError(f"column {number} ({want.name!r}) has type {got.type}, expected {want.type}")


def _rows(table: pa.Table) -> list[Row]:
    # By position, not by name: names may repeat.
    if table.num_columns == 0:
        return [()] * table.num_rows
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _equal(left: Any, right: Any, tolerance: Tolerance) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right or math.isclose(left, right, rel_tol=tolerance[0], abs_tol=tolerance[1])
    if left is None or right is None:
        return left is None and right is None
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(
            _equal(one, other, tolerance) for one, other in zip(left, right, strict=True)
        )
    return bool(left == right)


def _equal_on(left: Row, right: Row, keys: Sequence[int], tolerance: Tolerance) -> bool:
    return all(_equal(left[key], right[key], tolerance) for key in keys)


def _runs(rows: Sequence[Row], keys: Sequence[int], tolerance: Tolerance) -> Iterator[tuple[int, int]]:
    start = 0
    for position in range(1, len(rows) + 1):
        if position == len(rows) or not _equal_on(rows[position], rows[start], keys, tolerance):
            yield start, position
            start = position


def _rank(value: Any) -> tuple[int, Any]:
    # A total order over the values of one column, NULL first and NaN last.
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, repr(value)) if isinstance(value, (list, dict)) else (1, value)


def _sorted(rows: Sequence[Row]) -> list[Row]:
    # Exact columns decide first, so that floats that differ in their last bits cannot pair up wrong rows.
    def key(row: Row) -> tuple[list[tuple[int, Any]], list[tuple[int, Any]]]:
        exact = [_rank(None if isinstance(value, float) else value) for value in row]
        floats = [_rank(value if isinstance(value, float) else None) for value in row]
        return exact, floats

    return sorted(rows, key=key)


def _check_multiset(
    got: Sequence[Row], want: Sequence[Row], start: int, names: list[str], tolerance: Tolerance
) -> None:
    for number, (left, right) in enumerate(zip(_sorted(got), _sorted(want), strict=True)):
        for column, (value, wanted) in enumerate(zip(left, right, strict=True)):
            if not _equal(value, wanted, tolerance):
                where = (
                    f"row {start}"
                    if len(want) == 1
                    else f"row {number} (rows {start} to {start + len(want) - 1} sorted)"
                )
                raise AssertionError(
                    f"{where}: column {names[column]!r} is {value!r}, expected {wanted!r}\n"
                    f"  actual   {left}\n  expected {right}"
                )


def _check_subset(got: Sequence[Row], allowed: Sequence[Row], names: list[str], tolerance: Tolerance) -> None:
    columns = range(len(names))
    left = list(allowed)
    for row in got:
        for position, candidate in enumerate(left):
            if _equal_on(row, candidate, columns, tolerance):
                del left[position]
                break
        else:
            raise AssertionError(
                f"row {row} is not (or not so often) among the {len(allowed)} rows that LIMIT may pick"
            )


def _difference(actual: pa.Table, expected: pa.Table) -> str:
    # Show the first rows that only one side has.
    got, want = [repr(row) for row in _rows(actual)], [repr(row) for row in _rows(expected)]
    missing, extra = [row for row in want if row not in set(got)], [row for row in got if row not in set(want)]
    lines = [f"\n  missing {row}" for row in missing[:3]] + [f"\n  extra   {row}" for row in extra[:3]]
    return "".join(lines)


def exact_quotient(numerator: Decimal | int | None, denominator: Decimal | int | None, scale: int) -> Decimal | None:
    """Divide exactly and round half away from zero to ``scale`` digits; NULL for NULL or a zero denominator.

    >>> exact_quotient(Decimal("0.03"), 2, 6)
    Decimal('0.015000')
    >>> exact_quotient(-1, 8, 2)
    Decimal('-0.13')
    """
    if numerator is None or denominator is None or denominator == 0:
        return None
    top_numerator, top_denominator = Decimal(numerator).as_integer_ratio()
    low_numerator, low_denominator = Decimal(denominator).as_integer_ratio()
    over, under = top_numerator * low_denominator * 10**scale, top_denominator * low_numerator
    digits, rest = divmod(abs(over), abs(under))
    if 2 * rest >= abs(under):
        digits += 1
    sign = 1 if (over < 0) != (under < 0) else 0
    return Decimal((sign, tuple(map(int, str(digits))), -scale))
