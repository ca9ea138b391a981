"""Whether an answer is right: DuckDB's answers, the comparison, and how far a rounded answer is off."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from bench.suites import query_text, reference
from hybridq.catalog import Catalog
from hybridq.frontend.sql import plan_sql
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.reference import DENOMINATOR, NUMERATOR, conform, duckdb_answer, duckdb_connection

if TYPE_CHECKING:
    from pathlib import Path

ROUNDING_TOLERANCE = 1e-6
"""Largest relative difference that passes as rounding. (Polars keeps two digits of each product of two decimals.)"""

TIES = 1000
"""Rows past a LIMIT that are fetched too: those equal to the last row on all sort keys may stand in its place."""


@dataclass(frozen=True)
class Verdict:
    """What became of the comparison with the right answer.

    Attributes
    ----------
    exact : bool
        Every value is equal, and every type that of the plan.
    difference : float
        Else the largest relative difference of a number.
    """

    exact: bool
    difference: float = 0.0

    def __str__(self) -> str:
        if self.exact:
            return "exact"
        return f"rounded, off by {self.difference:.1g}" if self.difference else "equal as floats"


class RightAnswer:
    """DuckDB's answer to a shipped query over a folder.

    Parameters
    ----------
    query : str
        Name, such as ``tpch/q03``.
    folder : Path
    scale_factor : float
        Of the data: TPC-H's Q11 asks for a fraction that depends on it.
    """

    def __init__(self, query: str, folder: Path, scale_factor: float = 1) -> None:
        self._reference = reference(query)
        self._schema = declared_schema(query, folder)
        text = self._reference.sql or query_text(query, scale_factor)
        limit = self._reference.limit
        connection = duckdb_connection(folder)
        self._ample: pa.Table | None = None
        if limit is None:
            self._expected = duckdb_answer(text, connection)
        else:
            longer = re.sub(r"limit\s+\d+\s*;?\s*$", f"limit {limit + TIES}", text.strip(), flags=re.IGNORECASE)
            self._ample = duckdb_answer(longer, connection)
            self._expected = self._ample.slice(0, limit)
        connection.close()

    @property
    def names(self) -> list[str]:
        """Return the names of the answer's columns."""
        return list(self._schema.names)

    def check(self, answer: pa.Table, must_be_exact: bool) -> Verdict:
        """Compare.

        Raises
        ------
        AssertionError
            The answer is wrong: not equal where it must be exact, else off by more than ``ROUNDING_TOLERANCE``.
        """
        try:
            exact = [conform(t, self._schema) if t is not None else None for t in (self._expected, self._ample)]
            self._compare(answer, exact[0], exact[1], 1e-12)
            return Verdict(exact=True)
        except AssertionError:
            if must_be_exact:
                raise
        got, expected = loosen(answer), loosen(self._expected)
        self._compare(got, expected, None if self._ample is None else loosen(self._ample), ROUNDING_TOLERANCE)
        return Verdict(exact=False, difference=relative_difference(got, expected))

    def _compare(self, answer: pa.Table, expected: pa.Table, ample: pa.Table | None, tolerance: float) -> None:
        order = self._reference.order_by
        assert_same_answer(answer, expected, order_by=order, unlimited=ample, relative_tolerance=tolerance)


def declared_schema(query: str, folder: Path) -> pa.Schema:
    """Return the names and types that hybridq's plan declares."""
    catalog = Catalog()
    catalog.register_folder(folder)
    plan = plan_sql(query_text(query, 1), catalog.schemas())
    return pa.schema([pa.field(name, item.type) for name, item in zip(plan.names, plan.root.schema, strict=True)])


def loosen(table: pa.Table) -> pa.Table:
    """Turn numbers to floats, dates and strings to one form each, for peers with types of their own."""
    columns: list[pa.ChunkedArray] = []
    names: list[str] = []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        kind = column.type
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            column = column.cast(pa.date32())
        elif pa.types.is_decimal(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            column = column.cast(pa.float64())
        else:
            column = column.cast(pa.string())
        if name.endswith(DENOMINATOR):
            columns[-1] = pc.divide(columns[-1], column)
        else:
            columns.append(column)
            names.append(name.removesuffix(NUMERATOR))
    return pa.Table.from_arrays(columns, names=names)


def relative_difference(got: pa.Table, expected: pa.Table) -> float:
    """Return the largest relative difference of two numbers in the same place of two tables that are alike."""
    worst = 0.0
    for left, right in zip(got.columns, expected.columns, strict=True):
        if pa.types.is_floating(left.type):
            for found, right_value in zip(left.to_pylist(), right.to_pylist(), strict=True):
                if found is not None and right_value:
                    worst = max(worst, abs(found - right_value) / abs(right_value))
    return worst
