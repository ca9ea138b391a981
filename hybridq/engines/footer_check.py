"""Reading a file's footer with pyarrow, which ends the process over some that contradict themselves.

Where what the footer says of a column chunk does not go with its schema, some of pyarrow's accessors throw a C++
exception that nobody catches. So what they rely on is checked first, and pyarrow gets just the bytes that were.

Checking a footer takes about ten times as long as reading it. Workers need not repeat what the planner did: with a file
they are told the digest of the footer that was checked, and check only one that is another.
"""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from hybridq.engines import thrift
from hybridq.storage import open_source

MAGIC = b"PAR1"
_TAIL_BYTES = 8
"""Length of the footer, and the magic bytes."""

_BYTE_ARRAY, _FIXED_LENGTH = 6, 7
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes of a value of each physical type but the last two."""

_CODECS = range(8)
_VARINTS = (thrift.I32, thrift.I64)
_REQUIRED, _OPTIONAL, _REPEATED = _REPETITIONS = range(3)

Leaf = tuple[int, int, int, int]
"""A column's physical type, its greatest definition and repetition levels, and the bytes of a value; 0: any number."""


class CheckedFooter(NamedTuple):
    """A footer that may be handed to pyarrow.

    Attributes
    ----------
    metadata : pyarrow.parquet.FileMetaData
    digest : str
        Of its bytes.
    """

    metadata: pq.FileMetaData
    digest: str


_checked: dict[str, str] = {}
"""By path, the digest of a footer that was checked by whoever planned the query."""


def trust(path: str, digest: str) -> None:
    """Take a footer for checked, as long as the file has the one of this digest."""
    _checked[path] = digest


def read_footer(path: str) -> CheckedFooter:
    """Read the footer of a Parquet file.

    Parameters
    ----------
    path : str
        Local path, or URL.

    Raises
    ------
    DataError, OSError, pyarrow.ArrowInvalid
        It cannot be read, is none, or contradicts itself.
    """
    source = open_source(path)
    with Path(source).open("rb") if isinstance(source, str) else nullcontext(source) as file:
        try:
            footer = _footer(file)
        finally:
            if file is source:
                file.close()
    digest = hashlib.blake2b(footer, digest_size=16).hexdigest()
    if _checked.get(path) != digest:
        check(footer)
    tail = len(footer).to_bytes(4, "little") + MAGIC
    return CheckedFooter(pq.read_metadata(pa.BufferReader(b"".join((MAGIC, footer, tail)))), digest)


def _footer(file: IO[bytes] | Any) -> bytes:
    size = file.seek(0, 2)
    if size < len(MAGIC) + _TAIL_BYTES:
        raise pa.ArrowInvalid(f"{size} bytes are fewer than a Parquet file has")
    file.seek(size - _TAIL_BYTES)
    tail = file.read(_TAIL_BYTES)
    if tail[4:] == b"PARE":
        raise pa.ArrowInvalid("its footer is encrypted, which is not supported")
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > size - len(MAGIC) - _TAIL_BYTES:
        raise pa.ArrowInvalid("Parquet's magic bytes are not at its end, or a footer longer than the file")
    file.seek(size - _TAIL_BYTES - length)
    footer: bytes = file.read(length)
    return footer


def check(footer: bytes) -> None:
    """Check that what a footer says of column chunks goes with its schema.

    Raises
    ------
    pyarrow.ArrowInvalid
        It does not, or it is damaged.
    """
    try:
        leaves: list[Leaf] = []
        groups: list[int] = []
        for number, kind, place, _ in thrift.fields(footer):
            if number == 2 and kind == thrift.LIST:
                leaves = _leaves(footer, place)
            elif number == 4 and kind == thrift.LIST:
                groups.append(place)
        for place in groups:
            count, kind, place = thrift.items(footer, place)
            for group in range(count):
                place = _check_group(footer, place, leaves, group)
    except (IndexError, ValueError, RecursionError) as error:
        raise pa.ArrowInvalid(f"its footer is damaged: {error}") from error


def _leaves(footer: bytes, place: int) -> list[Leaf]:
    """Return the columns of a schema, a tree in depth-first order."""
    count, _, place = thrift.items(footer, place)
    found: list[Leaf] = []
    inside: list[list[int]] = []  # of each open element: children to come, definition and repetition levels
    for index in range(count):
        physical, length, repetition, children = -1, 0, _REQUIRED, 0
        last = 0
        while True:
            last, kind, place = thrift.field(footer, place, last)
            if kind == thrift.STOP:
                break
            if kind == thrift.I32 and last in (1, 2, 3, 5):
                value, place = thrift.integer(footer, place)
                if last == 1:
                    physical = value
                elif last == 2:
                    length = value
                elif last == 3:
                    repetition = value
                else:
                    children = value
            else:
                place = thrift.skip(footer, place, kind)
        if index == 0:
            inside.append([children, 0, 0])
            continue
        while inside and inside[-1][0] == 0:
            inside.pop()
        if not inside or children < 0 or repetition not in _REPETITIONS:
            raise ValueError("its schema is no tree, or has a column that is neither required, optional nor repeated")
        inside[-1][0] -= 1
        definition = inside[-1][1] + (repetition != _REQUIRED)
        repeated = inside[-1][2] + (repetition == _REPEATED)
        if children:
            inside.append([children, definition, repeated])
        else:
            width = length if physical == _FIXED_LENGTH else _WIDTHS.get(physical, 0)
            found.append((physical, definition, repeated, width))
    if any(left for left, _, _ in inside):
        raise ValueError("its schema ends too early")
    return found


def _check_group(footer: bytes, place: int, leaves: list[Leaf], group: int) -> int:
    """Check a row group, and return the place after it."""
    last, columns = 0, -1
    while True:
        last, kind, place = thrift.field(footer, place, last)
        if kind == thrift.STOP:
            break
        if last != 1 or kind != thrift.LIST:
            place = thrift.skip(footer, place, kind)
            continue
        columns, _, place = thrift.items(footer, place)
        if columns != len(leaves):
            break
        for number, leaf in enumerate(leaves):
            place = _check_chunk(footer, place, leaf, f"column {number} of row group {group}")
    if columns != len(leaves):
        raise ValueError(f"row group {group} has {max(columns, 0)} columns, and the schema {len(leaves)}")
    return place


def _check_chunk(footer: bytes, place: int, leaf: Leaf, where: str) -> int:
    # A footer may have a hundred thousand of these: what is frequent here and below does without calls.
    last, known = 0, False
    while True:
        head = footer[place]
        place += 1
        kind = head & 15
        if kind == thrift.STOP:
            break
        if head < 16:
            last, place = thrift.integer(footer, place)
        else:
            last += head >> 4
        if kind in _VARINTS:
            while footer[place] >= 128:
                place += 1
            place += 1
        elif last == 3 and kind == thrift.STRUCT:
            place = _check_column(footer, place, leaf, where)
            known = True
        elif last in (8, 9):
            raise ValueError(f"{where} is encrypted, which is not supported")
        else:
            place = thrift.skip(footer, place, kind)
    if not known:
        raise ValueError(f"{where} is not described")
    return place


def _check_column(footer: bytes, place: int, leaf: Leaf, where: str) -> int:
    last, physical, codec = 0, -1, -1
    while True:
        head = footer[place]
        place += 1
        kind = head & 15
        if kind == thrift.STOP:
            break
        if head < 16:
            last, place = thrift.integer(footer, place)
        else:
            last += head >> 4
        if last == 1 and kind == thrift.I32:
            physical, place = thrift.integer(footer, place)
        elif last == 4 and kind == thrift.I32:
            codec, place = thrift.integer(footer, place)
        elif kind in _VARINTS:
            while footer[place] >= 128:
                place += 1
            place += 1
        elif last == 12 and kind == thrift.STRUCT:
            place = _check_statistics(footer, place, leaf[3], where)
        elif last == 16 and kind == thrift.STRUCT:
            place = _check_sizes(footer, place, leaf, where)
        else:
            place = thrift.skip(footer, place, kind)
    if physical != leaf[0]:
        raise ValueError(f"{where} is of physical type {physical}, and in the schema of {leaf[0]}")
    if codec not in _CODECS:
        raise ValueError(f"{where} is compressed by an unknown codec, {codec}")
    return place


def _check_statistics(footer: bytes, place: int, width: int, where: str) -> int:
    """Check that bounds have as many bytes as values have."""
    last = 0
    while True:
        head = footer[place]
        place += 1
        kind = head & 15
        if kind == thrift.STOP:
            return place
        if head < 16:
            last, place = thrift.integer(footer, place)
        else:
            last += head >> 4
        if kind == thrift.BINARY:
            length, place = thrift.varint(footer, place)
            if width and length != width and last in (1, 2, 5, 6):
                raise ValueError(f"{where} has a bound of {length} bytes, and values of {width}")
            place += length
        else:
            place = thrift.skip(footer, place, kind)


def _check_sizes(footer: bytes, place: int, leaf: Leaf, where: str) -> int:
    """Check size statistics: histograms have one number for each level, or none at all."""
    physical, definition, repeated, _ = leaf
    last = 0
    while True:
        last, kind, place = thrift.field(footer, place, last)
        if kind == thrift.STOP:
            return place
        if last == 1 and physical != _BYTE_ARRAY:
            raise ValueError(f"{where} has sizes of texts, and is of none")
        if last in (2, 3) and kind == thrift.LIST:
            count, _, _ = thrift.items(footer, place)
            levels = (repeated if last == 2 else definition) + 1
            if count not in (0, levels):
                raise ValueError(f"{where} has a histogram of {count} levels, and {levels} levels")
        place = thrift.skip(footer, place, kind)
