"""Runs files in the sqllogictest format on hybridq and on DuckDB.

A file is records divided by blank lines, each of which may have comments (``#``) before it:

    statement ok                 CREATE TABLE, INSERT, DROP TABLE: DuckDB makes the tables, hybridq gets them as Parquet
    statement error REGEX        the text must fail, in hybridq with a message that the pattern matches
    query TYPES MODE [LABEL]     a query, then ``----``, then the right rows, one a line, columns divided by tabs
    skipif ENGINE, onlyif ENGINE before a record: ENGINE is ``hybridq`` or ``duckdb``
    halt                         the rest of the file is not run

TYPES has a letter a column: I integer, R decimal or floating-point, T text, B boolean, D date or time, L list.
MODE is ``nosort`` (the order matters), ``rowsort`` or ``valuesort``. Queries with the same LABEL have the same answer.
NULL is ``NULL``, an empty text ``(empty)``; line ends and tabs inside a text are ``\\n`` and ``\\t``. Decimals and
integers must be equal, floating-point numbers to a relative 1e-12. The values in a file are what is right: where DuckDB
differs, the record says ``skipif duckdb`` and a comment says why.

hybridq runs each query twice: on the CPU with every row group a chunk of its own, on the simulated GPU with all rows in
one chunk.

    python -m tests.sql.sqllogic FILE...             run files
    python -m tests.sql.sqllogic --complete FILE...  write DuckDB's rows under queries that have none (to be reviewed)
"""

from __future__ import annotations

import argparse
import datetime
import math
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from hybridq.errors import HybridqError
from hybridq.session import Session
from hybridq.testing.in_process import connect_in_process
from hybridq.types import normalize

ROWS_OF_A_GROUP = 2
CONFIGURATIONS = (("cpu", 1), ("gpu", 0))
"""Mode, and row groups in a chunk (0: all)."""

TOLERANCE = 1e-12

LETTERS = {
    "I": pa.types.is_integer,
    "R": lambda kind: pa.types.is_floating(kind) or pa.types.is_decimal(kind),
    "T": lambda kind: pa.types.is_string(kind) or pa.types.is_binary(kind),
    "B": pa.types.is_boolean,
    "D": pa.types.is_temporal,
    "L": pa.types.is_nested,
}


@dataclass
class Record:
    """One statement or query of a file."""

    line: int
    kind: str
    text: str
    types: str = ""
    mode: str = "nosort"
    label: str | None = None
    error: str | None = None
    expected: list[str] | None = None
    only: set[str] = field(default_factory=set)
    skip: set[str] = field(default_factory=set)

    def runs_on(self, engine: str) -> bool:
        return engine not in self.skip and (not self.only or engine in self.only)


class FormatError(Exception):
    """A file is not in the format."""


def parse(text: str) -> Iterator[Record]:
    """Read the records of a file, up to ``halt``."""
    lines = text.split("\n")
    position = 0
    while position < len(lines):
        if not lines[position].strip() or lines[position].startswith("#"):
            position += 1
            continue
        only: set[str] = set()
        skip: set[str] = set()
        while lines[position].startswith(("skipif", "onlyif", "#")):
            if not lines[position].startswith("#"):
                word, engine = lines[position].split()[:2]
                (only if word == "onlyif" else skip).add(engine)
            position += 1
        start, words = position + 1, lines[position].split()
        position += 1
        if words[0] == "halt":
            return
        body = []
        while position < len(lines) and lines[position].strip() and lines[position] != "----":
            body.append(lines[position])
            position += 1
        record = Record(start, words[0], "\n".join(body), only=only, skip=skip)
        if words[0] == "statement" and words[1:2] == ["ok"]:
            pass
        elif words[0] == "statement" and words[1:2] == ["error"]:
            record.error = lines[start - 1].split("error", 1)[1].strip()
        elif words[0] == "query" and len(words) in (3, 4):
            record.types, record.mode, record.label = words[1], words[2], words[3] if len(words) == 4 else None
            if set(record.types) - set(LETTERS) or record.mode not in ("nosort", "rowsort", "valuesort"):
                raise FormatError(f"line {start}: {lines[start - 1]!r} has an unknown type or sort mode")
            if position < len(lines) and lines[position] == "----":
                position += 1
                record.expected = []
                while position < len(lines) and lines[position] != "":
                    record.expected.append(lines[position])
                    position += 1
        else:
            raise FormatError(f"line {start}: {lines[start - 1]!r} is no record")
        yield record


# --- answers as text -------------------------------------------------------------------------------------------------


def show(value: Any) -> str:
    """Write a value as the files have it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return repr(value) if math.isfinite(value) else f"{'-' if value < 0 else ''}Infinity"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(show, value)) + "]"
    text = str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
    return text or "(empty)"


def rows_of(table: pa.Table) -> list[str]:
    """Write a table's rows as lines."""
    columns = [map(show, column.to_pylist()) for column in table.columns]
    return ["\t".join(row) for row in zip(*columns, strict=True)]


def arrange(lines: list[str], mode: str) -> list[str]:
    """Sort as the record says."""
    if mode == "rowsort":
        return sorted(lines)
    return sorted(value for line in lines for value in line.split("\t")) if mode == "valuesort" else lines


def same(actual: list[str], record: Record, exact: Sequence[bool]) -> bool:
    """Compare lines with the expected ones: numbers as numbers, those of ``exact`` columns to the last digit."""
    got, want = arrange(actual, record.mode), arrange(record.expected or [], record.mode)
    if got == want:
        return True
    if len(got) != len(want) or "R" not in record.types or record.mode == "valuesort":
        return False
    if record.mode == "nosort":
        return all(_same_row(left, right, record.types, exact) for left, right in zip(got, want, strict=True))
    # Numbers may be written in other ways, and so sort elsewhere.
    for row in got:
        match = next((other for other in want if _same_row(row, other, record.types, exact)), None)
        if match is None:
            return False
        want.remove(match)
    return True


def _same_row(left: str, right: str, types: str, exact: Sequence[bool]) -> bool:
    got, want = left.split("\t"), right.split("\t")
    return len(got) == len(want) == len(types) and all(
        a == b or (kind == "R" and _same_number(a, b, digits))
        for a, b, kind, digits in zip(got, want, types, exact, strict=True)
    )


def _same_number(left: str, right: str, exact: bool) -> bool:
    try:
        if Decimal(left) == Decimal(right):
            return True
        return not exact and math.isclose(float(left), float(right), rel_tol=TOLERANCE, abs_tol=0.0)
    except (InvalidOperation, ValueError):
        return False


# --- running ---------------------------------------------------------------------------------------------------------


class Runner:
    """Runs the records of one file.

    Parameters
    ----------
    folder : Path
        For the tables' Parquet files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._duckdb = duckdb.connect()
        self._duckdb.execute("SET threads = 1; SET TimeZone = 'UTC'")
        self._sessions: dict[int, Session] = {}
        self._changed = True
        self._version = 0
        self._labels: dict[str, list[str]] = {}
        self.records = 0

    def close(self) -> None:
        self._duckdb.close()
        self._close_sessions()

    def _close_sessions(self) -> None:
        for session in self._sessions.values():
            session.close()

    def run(self, record: Record) -> list[str]:
        """Run a record; return what is wrong."""
        self.records += 1
        if record.kind == "statement" and record.error is None:
            self._duckdb.execute(record.text)
            self._changed = True
            return []
        if self._changed:
            self._hand_over()
        if record.error is not None:
            return self._check_error(record)
        return self._check_query(record)

    def _hand_over(self) -> None:
        """Give hybridq the tables that DuckDB has now."""
        self._changed = False
        self._version += 1
        names = [name for (name,) in self._duckdb.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        self._close_sessions()
        self._sessions = {units: connect_in_process(chunk_units=units) for _, units in CONFIGURATIONS}
        for name in names:
            path = self._folder / f"{name}.{self._version}.parquet"
            table = self._duckdb.sql(f'SELECT * FROM "{name}"').to_arrow_table()
            pq.write_table(table, path, row_group_size=ROWS_OF_A_GROUP)
            for session in self._sessions.values():
                session.register(name, path)

    def _check_error(self, record: Record) -> list[str]:
        found = []
        if record.runs_on("hybridq"):
            for mode, units in CONFIGURATIONS:
                try:
                    answer = self._sessions[units].sql(record.text).collect(mode=mode).to_arrow()
                    found.append(f"hybridq ({mode}) gives {answer.num_rows} rows, no error")
                except HybridqError as error:
                    if not re.search(record.error or "", str(error), re.IGNORECASE):
                        found.append(f"hybridq ({mode}) fails with {type(error).__name__}: {error}")
        if record.runs_on("duckdb"):
            try:
                self._duckdb.execute(record.text).fetchall()
                found.append("DuckDB gives no error")
            except duckdb.Error:
                pass
        return found

    def _check_query(self, record: Record) -> list[str]:
        if record.expected is None:
            return ["no rows are given"]
        found = []
        if record.label is not None:
            first = self._labels.setdefault(record.label, arrange(record.expected, record.mode))
            if first != arrange(record.expected, record.mode):
                found.append(f"other queries with the label {record.label} have other rows")
        if record.runs_on("hybridq"):
            for mode, units in CONFIGURATIONS:
                wrong = self._ask_hybridq(record, self._sessions[units], mode)
                found += (
                    [f"hybridq ({mode}, {'single row groups' if units else 'one chunk'}): {wrong}"] if wrong else []
                )
        if record.runs_on("duckdb"):
            try:
                lines = rows_of(self._duckdb.sql(record.text).to_arrow_table())
            except duckdb.Error as error:
                return [*found, f"DuckDB fails with {error}"]
            if not same(lines, record, [False] * len(record.types)):
                found.append(f"DuckDB: {_difference(lines, record)}")
        return found

    def _ask_hybridq(self, record: Record, session: Session, mode: str) -> str | None:
        try:
            query = session.sql(record.text)
            answer = query.collect(mode=mode).to_arrow()
        except HybridqError as error:
            return f"fails with {type(error).__name__}: {error}"
        types = [normalize(kind) for kind in answer.schema.types]
        if len(types) != len(record.types):
            return f"gives {len(types)} columns, not {len(record.types)}"
        for kind, letter in zip(types, record.types, strict=True):
            if not LETTERS[letter](kind) and not pa.types.is_null(kind):
                return f"gives types {', '.join(map(str, types))}, not {record.types}"
        lines = rows_of(answer)
        exact = [not pa.types.is_floating(kind) for kind in types]
        return None if same(lines, record, exact) else _difference(lines, record)

    def duckdb_rows(self, record: Record) -> list[str]:
        """Return the rows that DuckDB (or hybridq, where DuckDB is left out) gives, to be reviewed."""
        if record.runs_on("duckdb"):
            return arrange(rows_of(self._duckdb.sql(record.text).to_arrow_table()), record.mode)
        if self._changed:
            self._hand_over()
        return arrange(rows_of(self._sessions[1].sql(record.text).collect(mode="cpu").to_arrow()), record.mode)


def _difference(lines: list[str], record: Record) -> str:
    got, want = arrange(lines, record.mode), arrange(record.expected or [], record.mode)
    missing = [line for line in want if line not in got]
    extra = [line for line in got if line not in want]
    detail = f"missing {missing[:3]}, extra {extra[:3]}" if missing or extra else "another order or count"
    return f"{len(got)} rows for {len(want)}: {detail}"


def run_file(path: Path, folder: Path) -> tuple[int, list[str]]:
    """Run a file; return how many records it has, and what is wrong with which."""
    runner = Runner(folder)
    found = []
    try:
        for record in parse(path.read_text()):
            try:
                wrong = runner.run(record)
            except Exception as error:  # a fault of one record must not hide those of the others
                wrong = [f"{type(error).__name__}: {error}"]
            found += [f"{path.name}:{record.line}: {each}\n    {record.text}" for each in wrong]
    finally:
        runner.close()
    return runner.records, found


def complete(path: Path, folder: Path) -> None:
    """Write rows under the queries of a file that have none."""
    runner = Runner(folder)
    lines = path.read_text().split("\n")
    filled: dict[int, list[str]] = {}
    for record in parse("\n".join(lines)):
        if record.kind == "statement" and record.error is None:
            runner.run(record)
        elif record.kind == "query" and record.expected is None:
            try:
                filled[record.line + record.text.count("\n") + 1] = ["----", *runner.duckdb_rows(record)]
            except (duckdb.Error, HybridqError) as error:
                print(f"{path.name}:{record.line}: {error}", file=sys.stderr)
    runner.close()
    for position in sorted(filled, reverse=True):
        lines[position:position] = filled[position]
    path.write_text("\n".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sql.sqllogic", description="Run sqllogictest files.")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--complete", action="store_true", help="write DuckDB's rows where there are none")
    arguments = parser.parse_args()
    wrong = 0
    for path in arguments.files:
        with tempfile.TemporaryDirectory() as folder:
            if arguments.complete:
                complete(path, Path(folder))
                continue
            records, found = run_file(path, Path(folder))
            wrong += len(found)
            print("\n".join(found) if found else f"{path.name}: {records} records")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
