"""Writes answers for people and programs: a table on the terminal, CSV, JSON, Parquet.

CSV and JSON keep every digit: decimals are written as they are, with their full scale. In CSV, NULL is an empty field
and an empty string is ``""``. JSON is an array with one object a row, one row a line; decimals are strings, since most
readers would round a number, and NaN and infinities are the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``.
Dates and timestamps are ISO 8601, binary is Base64. Column names that repeat get ``_2``, ``_3`` in JSON and Parquet,
whose columns must differ by name.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import math
import os
import secrets
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Literal

import pyarrow as pa

from hybridq.errors import ConfigurationError, ExecutionError

Format = Literal["table", "csv", "json", "parquet"]

TERMINAL_ROWS = 40
"""Rows that a table on the terminal shows; more are cut in the middle."""


def write_answer(table: pa.Table, form: Format, path: Path | None, stdout: IO[str]) -> None:
    """Write an answer to a file, whole or not at all, or to standard output.

    Raises
    ------
    ConfigurationError
        Parquet without a file: it is no text.
    ExecutionError
        The file cannot be written.
    """
    if path is None:
        if form == "parquet":
            raise ConfigurationError("--format parquet needs a file: add -o FILE")
        try:
            _write_text(table, form, stdout)
            stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise ExecutionError(f"cannot write the answer: {error.strerror or error}") from error
        return
    if form == "table":  # its columns are as wide as their widest value
        with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            _write_table(table, file, None)
        return
    from hybridq.answer_file import answer_file

    with answer_file(path, form, table.schema) as file:
        file.begin()
        file.take(table)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``, renamed to it at the end and removed on failure.

    Raises
    ------
    ExecutionError
        The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise ExecutionError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def with_unique_names(table: pa.Table) -> pa.Table:
    """Rename columns whose names repeat: ``id``, ``id_2``, ``id_3``."""
    return table.rename_columns(unique_names(table.schema.names))


def unique_names(names: list[str]) -> list[str]:
    """Return the names with a number after each that was there before.

    >>> unique_names(["id", "id", "id_2"])
    ['id', 'id_3', 'id_2']
    """
    taken, found = set(names), []
    seen: set[str] = set()
    for name in names:
        number, candidate = 2, name
        while candidate in seen or (candidate != name and candidate in taken):
            candidate = f"{name}_{number}"
            number += 1
        seen.add(candidate)
        found.append(candidate)
    return found


def _write_text(table: pa.Table, form: Format, file: IO[str]) -> None:
    if form == "csv":
        _write_csv(table, file)
    elif form == "json":
        _write_json(table, file)
    else:
        _write_table(table, file, TERMINAL_ROWS)


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    # In batches: an answer may be large, and its rows as Python objects many times larger.
    if table.num_columns == 0:
        yield from iter([()] * table.num_rows)
        return
    for batch in table.to_batches(max_chunksize=16_384):
        yield from zip(*(_values(column) for column in batch.columns), strict=True)


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        # Python's datetime ends at microseconds; as text nothing is lost.
        texts = column.cast(pa.string()).to_pylist()
        return [None if text is None else _Text(text.replace(" ", "T", 1)) for text in texts]
    return list(column.to_pylist())


class _Text(str):
    """A value that is text already in its output form."""

    __slots__ = ()


def plain(value: Any) -> str:
    """Write a value that is not NULL as text: all digits of a decimal, ISO dates, lower-case booleans.

    >>> plain(Decimal("1E+3")), plain(Decimal("0.000000100")), plain(True)
    ('1000', '0.000000100', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, (datetime.date, datetime.time, datetime.datetime)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (list, dict)):
        return json.dumps(_json_value(value), ensure_ascii=False)
    return str(value)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _write_csv(table: pa.Table, file: IO[str]) -> None:
    file.write(csv_line(table.schema.names))
    write_csv_rows(table, file)


def write_csv_rows(table: pa.Table, file: IO[str]) -> None:
    """Write rows as CSV, without a header."""
    for row in _rows(table):
        file.write(csv_line(row))


def csv_line(values: Iterable[Any]) -> str:
    """Return a line of CSV. Not with the csv module: it cannot tell NULL from an empty string."""
    return ",".join(map(_csv_field, values)) + "\n"


def _csv_field(value: Any) -> str:
    if value is None:
        return ""
    text = plain(value)
    quoted = text == "" or any(sign in text for sign in ',"\r\n') or text != text.strip()
    return '"' + text.replace('"', '""') + '"' if quoted else text


def _json_value(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _float_text(value)
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    if isinstance(value, dict):
        return {name: _json_value(item) for name, item in value.items()}
    return plain(value)


def _write_json(table: pa.Table, file: IO[str]) -> None:
    separator = "[\n"
    for line in json_lines(table):
        file.write(separator + line)
        separator = ",\n"
    file.write("[]\n" if table.num_rows == 0 else "\n]\n")


def json_lines(table: pa.Table) -> Iterator[str]:
    """Yield each row as a JSON object."""
    names = unique_names(table.schema.names)
    for row in _rows(table):
        line = {name: _json_value(value) for name, value in zip(names, row, strict=True)}
        yield json.dumps(line, ensure_ascii=False, allow_nan=False)


def _write_table(table: pa.Table, file: IO[str], limit: int | None) -> None:
    cut = limit is not None and table.num_rows > limit
    shown = (
        table
        if not cut or limit is None
        else pa.concat_tables([table.slice(0, limit // 2), table.slice(table.num_rows - limit // 2)])
    )
    right = [
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        for kind in table.schema.types
    ]
    body = [["NULL" if value is None else _one_line(plain(value)) for value in row] for row in _rows(shown)]
    widths = [max(map(len, column)) for column in zip(table.schema.names, *body, strict=True)] if right else []

    def write(cells: list[str]) -> None:
        padded = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(cells, widths, right, strict=True)
        ]
        file.write("  ".join(padded).rstrip() + "\n")

    write(list(table.schema.names))
    file.write("  ".join("-" * width for width in widths) + "\n")
    for number, cells in enumerate(body):
        if cut and limit is not None and number == limit // 2:
            file.write(f"... {table.num_rows - limit:,} more rows: --format csv or -o FILE gives them all\n")
        write(cells)
    file.write(f"({table.num_rows:,} row{'s' if table.num_rows != 1 else ''})\n")


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def report_file(path: Path, text: str) -> None:
    """Write a report, whole or not at all."""
    with atomic_file(path) as temporary:
        temporary.write_text(text + os.linesep, encoding="utf-8")
