"""Tables partitioned by the names of their files' folders: ``year=2020/month=1/part-0.parquet``."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from hybridq.errors import DataError
from hybridq.types import Field, Schema

NULL = "__HIVE_DEFAULT_PARTITION__"
"""How the name of a folder says NULL."""

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def partition_columns(folders: Mapping[str, Sequence[str]]) -> tuple[Schema, dict[str, dict[str, Any]]]:
    """Return the columns that folders ``key=value`` are, and their values for each file.

    A column has one type for all files: int64 where every value is a whole number, date32 where every one is a date
    (``2020-12-31``), else string. ``%20`` and the like stand for the character. Folders without ``=`` say nothing.

    Parameters
    ----------
    folders : mapping of str to sequence of str
        The names of the folders that each file is in, the outermost first.

    Returns
    -------
    tuple of (Schema, dict of str to dict)
        The columns, in the order of the path; for each file the values by column: ``int``, ``datetime.date``, ``str``
        or ``None``.

    Raises
    ------
    DataError
        The files have not all the same keys in the same order, or a folder's name cannot be understood.

    >>> schema, values = partition_columns({"1.parquet": ["year=2020", "of=a%2Fb"], "2.parquet": ["year=7", "of=c"]})
    >>> [(column.name, str(column.type)) for column in schema], values["1.parquet"]
    ([('year', 'int64'), ('of', 'string')], {'year': 2020, 'of': 'a/b'})
    """
    texts = {file: _pairs(file, names) for file, names in folders.items()}
    first, keys = next(((file, list(found)) for file, found in texts.items()), ("", []))
    for file, found in texts.items():
        if list(found) != keys:
            raise DataError(
                f"the files are partitioned differently: {first} by {_listed(keys)}, {file} by {_listed(list(found))}:"
                " all need the same folders key=value, in the same order"
            )
    spelled: dict[str, str] = {}
    for key in keys:
        if (other := spelled.setdefault(key.casefold(), key)) != key:
            raise DataError(f"{first} is partitioned by {other!r} and {key!r}, whose names differ in case alone")
    values: dict[str, dict[str, Any]] = {file: {} for file in texts}
    schema = []
    for key in keys:
        column = [found[key] for found in texts.values()]
        data_type, typed = _typed(column)
        schema.append(Field(key, data_type))
        for file, value in zip(texts, typed, strict=True):
            values[file][key] = value
    return tuple(schema), values


def _pairs(file: str, folders: Sequence[str]) -> dict[str, str | None]:
    """Return the keys of a file's folders, and the texts of their values."""
    found: dict[str, str | None] = {}
    for folder in folders:
        name, equals, text = folder.partition("=")
        if not equals:
            continue
        try:
            key, value = (unquote(part, errors="strict") for part in (name, text))
            (key + value).encode()
        except UnicodeError as error:
            raise DataError(f"{file!r}: the folder {folder!r} is no text of UTF-8") from error
        if not key:
            raise DataError(f"{file}: the folder {folder!r} has no name before the =")
        if key in found:
            raise DataError(f"{file} is in two folders {key}=")
        found[key] = None if text == NULL else value
    return found


def _typed(texts: Sequence[str | None]) -> tuple[pa.DataType, list[Any]]:
    """Return the type that all values of a key have, and the values."""
    known = {text for text in texts if text is not None}
    integers = _converted(known, _INTEGER, int)
    if integers is not None and all(-(2**63) <= number < 2**63 for number in integers.values()):
        return pa.int64(), [None if text is None else integers[text] for text in texts]
    dates = _converted(known, _DATE, datetime.date.fromisoformat)
    if dates is not None:
        return pa.date32(), [None if text is None else dates[text] for text in texts]
    return pa.string(), list(texts)


def _converted(texts: set[str], form: re.Pattern[str], convert: Any) -> dict[str, Any] | None:
    """Return what texts stand for; ``None`` if one has another form, or there is none."""
    if not texts or not all(map(form.fullmatch, texts)):
        return None
    try:
        return {text: convert(text) for text in texts}
    except ValueError:  # no such day
        return None


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(map(repr, keys)) or "nothing"
