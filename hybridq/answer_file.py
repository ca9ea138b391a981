"""Files that answers are written to part by part: an answer may be larger than this process's memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa

from hybridq.answers import as_declared
from hybridq.errors import ExecutionError, RequestError
from hybridq.output import atomic_file, csv_line, json_lines, unique_names, write_csv_rows

FileFormat = Literal["csv", "json", "parquet"]
FORMATS: tuple[FileFormat, ...] = ("csv", "json", "parquet")

ROW_GROUP_ROWS, ROW_GROUP_BYTES = 1_000_000, 64 * 2**20
"""Rows, and bytes in memory, from which what has come is written as a row group of its own."""


def file_format(path: Path, form: str | None) -> FileFormat:
    """Return the format of a file: the one asked for, or else the one that its name says.

    >>> file_format(Path("answer.csv"), None)
    'csv'

    Raises
    ------
    RequestError
        There is no such format.
    """
    wanted = path.suffix.lower().lstrip(".") if form is None else form
    for known in FORMATS:
        if wanted == known:
            return known
    what = f"format {form!r}" if form is not None else f"the name of {path}"
    raise RequestError(f"{what} is not one of {', '.join(FORMATS)}" + ("" if form else ": say which with format="))


@contextlib.contextmanager
def answer_file(path: Path, form: FileFormat, schema: pa.Schema) -> Iterator[AnswerFile]:
    """Give what writes an answer to a file, which is there when the block ends, and is not if that fails.

    Parameters
    ----------
    path : Path
    form : str
    schema : pyarrow.Schema
        Names and types of the answer's columns.

    Raises
    ------
    ExecutionError
        The file cannot be written.
    """
    with atomic_file(path) as temporary:
        file = AnswerFile(path, temporary, form, schema)
        try:
            yield file
            file.close()
        finally:
            file.abandon()


class AnswerFile:
    """Takes an answer in, part by part. Made by ``answer_file``."""

    def __init__(self, path: Path, temporary: Path, form: FileFormat, schema: pa.Schema) -> None:
        self._path = path
        self._temporary = temporary
        self._form = form
        self._schema = schema
        self._writer: _Writer | None = None

    def begin(self) -> None:
        """Forget all that has come: the first rows come next."""
        self.abandon()
        with self._writing():
            self._writer = _WRITERS[self._form](self._temporary, self._schema)

    def take(self, table: pa.Table) -> None:
        """Write the next rows.

        Raises
        ------
        ExecutionError
            The file cannot be written, or the rows are not of the answer's types.
        """
        if self._writer is None:
            raise RuntimeError("the answer has not begun")
        with self._writing():
            self._writer.write(as_declared(table, self._schema))

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            with self._writing():
                self._writer.close()
            self._writer = None

    def abandon(self) -> None:
        """Give up what has been written, if it is not whole."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(Exception):  # the error that led here counts
                writer.abandon()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ExecutionError(f"cannot write {self._path}: {error.strerror or error}") from error


class _Writer(Protocol):
    def write(self, table: pa.Table) -> None:
        """Write rows."""

    def close(self) -> None:
        """Write what is left, and the end."""

    def abandon(self) -> None:
        """Close the file as it is."""


class _CsvWriter:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._file.write(csv_line(schema.names))

    def write(self, table: pa.Table) -> None:
        write_csv_rows(table, self._file)

    def close(self) -> None:
        self._file.close()

    abandon = close


class _JsonWriter:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._empty = True

    def write(self, table: pa.Table) -> None:
        for line in json_lines(table):
            self._file.write(("[\n" if self._empty else ",\n") + line)
            self._empty = False

    def close(self) -> None:
        self._file.write("[]\n" if self._empty else "\n]\n")
        self._file.close()

    def abandon(self) -> None:
        self._file.close()


class _ParquetWriter:
    """Collects parts until they are worth a row group."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._names = unique_names(schema.names)
        types = zip(self._names, schema.types, strict=True)
        self._writer = pq.ParquetWriter(path, pa.schema([pa.field(name, kind) for name, kind in types]))
        self._waiting: list[pa.Table] = []

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table.rename_columns(self._names))
        rows = sum(part.num_rows for part in self._waiting)
        if rows >= ROW_GROUP_ROWS or sum(part.nbytes for part in self._waiting) >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=ROW_GROUP_ROWS)
            self._waiting = []


_WRITERS: Mapping[FileFormat, Callable[[Path, pa.Schema], _Writer]] = {
    "csv": _CsvWriter,
    "json": _JsonWriter,
    "parquet": _ParquetWriter,
}
