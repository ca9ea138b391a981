"""Runs one query on hybridq, in several modes and chunkings, and on DuckDB, and tells whether all agree."""

from __future__ import annotations

import random
import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from hybridq.engines.protocol import Engine
from hybridq.errors import (
    CastFailed,
    DivisionByZero,
    NumericOverflow,
    SqlError,
    Unsupported,
)
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import DENOMINATOR, NUMERATOR, conform
from hybridq.types import normalize

from .data import TableSpec
from .tree import Query

Verdict = Literal["same", "same error", "unsupported", "undecided", "different"]

TOLERANCE, TOLERANCE_OF_SINGLES = 1e-9, 1e-6
"""Relative: functions and variances differ in their last digits, and DuckDB computes some of float32 in more digits."""

REWRITES = "expression_rewriter,statistics_propagation"
"""DuckDB's optimizers that replace an expression by another: ``(a + b) IS NULL`` becomes a look at both operands."""

DUST = 1e-9
"""Floating-point results of rounding functions that are nearer to zero than this count as zero."""

MODES = (
    (("cpu", 1), ("gpu", 0), ("cop", 1)),
    (("cpu", 0), ("gpu", 1), ("cop", 1)),
    (("cpu", 2), ("gpu", 2), ("cop", 1)),
)
"""Mode, and row groups in a chunk (0: all); one line of these for each set of tables."""

MAY_SPARE = ("FILTER", "WHERE", "CASE", "coalesce", "JOIN", "HAVING", " AND ", " OR ", "EXISTS")
"""Words of queries in which one engine need not compute what overflows in the other."""


@dataclass(frozen=True)
class Outcome:
    """What came of a query.

    Attributes
    ----------
    verdict : str
        ``undecided``: DuckDB refuses it, or an error depends on the order of evaluation.
    detail : str
        What differs, or why it is unsupported or undecided.
    """

    verdict: Verdict
    detail: str = ""
    rows: int = 0


class Checker:
    """Holds one set of tables, registered everywhere.

    Parameters
    ----------
    tables : tuple of TableSpec
    choose : random.Random
        Decides how tables are stored.
    gpu : Engine, optional
        What runs GPU chunks; a simulated GPU if left out.
    """

    def __init__(self, tables: tuple[TableSpec, ...], choose: random.Random, gpu: Engine | None = None) -> None:
        self.tables = tables
        self._folder = tempfile.TemporaryDirectory()
        self._duckdb = duckdb.connect()
        self._duckdb.execute("SET threads = 1; SET TimeZone = 'UTC'")
        # A build side too large to broadcast is joined in another way.
        options = {"broadcast_bytes": choose.choice((1, 64 * 2**20))}
        self._singles = any(pa.types.is_float32(column.type) for spec in tables for column in spec.columns)
        self._modes = choose.choice(MODES)
        self._sessions = {n: connect_in_process(gpu=gpu, chunk_units=n, **options) for n in {n for _, n in self._modes}}
        for spec in tables:
            self._duckdb.register("arriving", spec.table)
            self._duckdb.execute(f"CREATE TABLE {spec.name} AS SELECT * FROM arriving")
            source: Any = spec.table
            if spec.row_group:
                source = Path(self._folder.name) / f"{spec.name}.parquet"
                pq.write_table(spec.table, source, row_group_size=spec.row_group, use_dictionary=choose.random() < 0.7)
            for session in self._sessions.values():
                session.register(spec.name, source)

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._duckdb.close()
        self._folder.cleanup()

    def check(self, query: Query) -> Outcome:
        """Run a query everywhere."""
        sql = query.sql("hybridq")
        answers: list[pa.Table | Exception] = []
        for mode, units in self._modes:
            try:
                answers.append(self._sessions[units].sql(sql).collect(mode=mode).to_arrow())
            except Unsupported as error:
                return Outcome("unsupported", _reason(str(error)))
            except Exception as error:  # whatever leaves hybridq is an answer to be judged
                # DataFusion names cast(x as bigint) "x", and refuses two expressions of one name.
                if isinstance(error, SqlError) and ("are named" in str(error) or "duplicate" in str(error)):
                    return Outcome("unsupported", "two expressions of one name")
                answers.append(error)
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        expected, unlimited, refusal = self._ask_duckdb(query)
        arithmetic = all(isinstance(error, (NumericOverflow, DivisionByZero, CastFailed)) for error in errors)
        if errors and refusal is not None and not _is_arithmetic(refusal):
            return Outcome("undecided", f"DuckDB: {str(refusal).splitlines()[0]}")
        if errors and (len(errors) < len(self._modes) or not arithmetic):
            shown = [f"{mode}/{units}: {_told(each)}" for (mode, units), each in zip(self._modes, answers, strict=True)]
            # A LIMIT may be reached before the row at fault; anything else must not depend on chunks.
            return Outcome("undecided" if query.limit is not None and arithmetic else "different", "\n".join(shown))
        if errors:
            return self._judge_error(query, errors[0], expected, refusal)
        if refusal is not None:
            if _is_arithmetic(refusal) and not any(word in sql for word in MAY_SPARE):
                return Outcome("different", f"DuckDB fails with {refusal}, hybridq gives {answers[0].num_rows} rows")
            return Outcome("undecided", f"DuckDB: {str(refusal).splitlines()[0]}")
        assert expected is not None
        if query.limit is not None and expected.num_rows > query.limit:
            return Outcome("undecided", "DuckDB gives more rows than LIMIT says")
        for (mode, units), answer in zip(self._modes, answers, strict=True):
            try:
                _compare(answer, expected, unlimited, query, TOLERANCE_OF_SINGLES if self._singles else TOLERANCE)
            except AssertionError as error:
                return Outcome("different", f"{mode}, {units} row groups a chunk: {error}")
        return Outcome("same", rows=expected.num_rows)

    def _ask_duckdb(self, query: Query) -> tuple[pa.Table | None, pa.Table | None, duckdb.Error | None]:
        try:
            expected = self._duckdb.sql(query.sql("duckdb")).to_arrow_table()
            whole = query.unlimited
            return expected, self._duckdb.sql(whole.sql("duckdb")).to_arrow_table() if whole else None, None
        except duckdb.Error as error:
            return None, None, error

    def _ask_duckdb_as_written(self, query: Query) -> duckdb.Error | None:
        """Run a query on DuckDB with its expressions as the text has them; return its error, if any."""
        self._duckdb.execute(f"SET disabled_optimizers = '{REWRITES}'")
        try:
            self._duckdb.sql(query.sql("duckdb")).fetchall()
        except duckdb.Error as error:
            return error
        finally:
            self._duckdb.execute("RESET disabled_optimizers")
        return None

    def _judge_error(
        self, query: Query, error: Exception, expected: pa.Table | None, refusal: duckdb.Error | None
    ) -> Outcome:
        if refusal is not None:
            same = _is_arithmetic(refusal)
            return Outcome("same error" if same else "undecided", f"{error} / {str(refusal).splitlines()[0]}")
        assert expected is not None
        if isinstance(error, CastFailed) and "timestamp[ns]" in str(error):
            return Outcome("undecided", "a year that nanoseconds do not reach")
        if isinstance(error, NumericOverflow) and _beyond(expected):
            return Outcome("same error", str(error))
        written = self._ask_duckdb_as_written(query)
        if written is not None and _is_arithmetic(written):
            # The value that does not exist is not in the answer, and DuckDB had replaced what computes it.
            return Outcome("same error", f"{error} / {str(written).splitlines()[0]}, but for its rewriting")
        return Outcome("different", f"hybridq fails with {type(error).__name__}: {error}, DuckDB gives an answer")


def _told(answer: pa.Table | Exception) -> str:
    return f"{type(answer).__name__}: {answer}" if isinstance(answer, Exception) else f"{answer.num_rows} rows"


def _reason(message: str) -> str:
    first = message.splitlines()[0].split(", in:")[0].split(":")[0]
    return re.sub(r"\(.*\)", "(...)", first)[:100]


def _is_arithmetic(error: duckdb.Error) -> bool:
    text = str(error).lower()
    words = ("overflow", "out of range", "division by zero", "conversion error", "could not cast", "not in range")
    return any(word in text for word in words)


def _beyond(table: pa.Table) -> bool:
    """Tell whether a wide integer of DuckDB's is past 64 bits, which is an error in hybridq."""
    return any(
        abs(value) >= 2**63
        for column in table.columns
        if pa.types.is_decimal(column.type) and column.type.scale == 0
        for value in column.to_pylist()
        if value is not None
    )


def _compare(answer: pa.Table, expected: pa.Table, unlimited: pa.Table | None, query: Query, tolerance: float) -> None:
    schema = pa.schema([pa.field(f.name, _compared_type(f.type)) for f in answer.schema])
    right = conform(_lenient(expected, schema), schema)
    whole = None if unlimited is None else conform(_lenient(unlimited, schema), schema)
    # Differences of almost equal numbers have no digit that is certain.
    rounded = [number for number, item in enumerate(query.items) if not item.exact and item.kind == "float"]
    answer, right = _without_dust(answer.cast(schema), rounded), _without_dust(right, rounded)
    whole = None if whole is None else _without_dust(whole, rounded)
    # Python's dates end with the year 9999.
    days = pa.schema([pa.field(f.name, pa.int32() if pa.types.is_date32(f.type) else f.type) for f in schema])
    answer, right, whole = (None if table is None else table.cast(days) for table in (answer, right, whole))
    order = [number for number, _ in query.order]
    assert_same_answer(answer, right, order_by=order, unlimited=whole, relative_tolerance=tolerance)


def _without_dust(table: pa.Table, columns: list[int]) -> pa.Table:
    for position in columns:
        values = [0.0 if v is not None and abs(v) < DUST else v for v in table.column(position).to_pylist()]
        field = table.schema.field(position)
        table = table.set_column(position, field, pa.array(values, field.type))
    return table


def _compared_type(data_type: pa.DataType) -> pa.DataType:
    return pa.float64() if pa.types.is_floating(data_type) else data_type


def _lenient(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Bring the float columns, and those of a type that has no other value than NULL, to the declared types."""
    names = [name for name in table.schema.names if not name.endswith(DENOMINATOR)]
    for name, field in zip(names, schema, strict=True):
        position = table.schema.names.index(name)
        have, want = normalize(table.schema.field(position).type), normalize(field.type)
        if name.endswith(NUMERATOR) or have == want:
            continue
        floats = pa.types.is_floating(have) and pa.types.is_floating(want)
        # DataFusion's common type of unsigned and signed 64-bit integers.
        widened = pa.types.is_integer(have) and want == pa.decimal128(20, 0)
        if floats or widened or table.column(position).null_count == table.num_rows:
            table = table.set_column(position, name, table.column(position).cast(want, safe=False))
    return table


# --- smaller cases ---------------------------------------------------------------------------------------------------


def without_rows(tables: tuple[TableSpec, ...]) -> list[tuple[TableSpec, ...]]:
    """Return the same tables with fewer rows: halves first, then single rows left out."""
    found = []
    for position, spec in enumerate(tables):
        rows = spec.table.num_rows
        cuts = [(0, rows // 2), (rows // 2, rows)] if rows > 1 else []
        smaller = [spec.table.slice(start, stop - start) for start, stop in cuts]
        if 0 < rows <= 12:
            smaller += [pa.concat_tables([spec.table.slice(0, n), spec.table.slice(n + 1)]) for n in range(rows)]
        found += [(*tables[:position], replace(spec, table=table), *tables[position + 1 :]) for table in smaller]
    return found
