"""Small Parquet footers: a file's own, cut down to the row groups and columns that one chunk reads.

libcudf takes a parsed footer with a read, and copies it several times on the way. Of a file of a thousand row groups
that costs far more than reading some of them, most of it for page indexes that it reads along with a footer. So a
footer is written anew, with the same offsets, for every read: a Thrift structure of a few fields a column chunk.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from hybridq.storage import FileStamp, stamp

MAGIC = b"PAR1"

# Types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)

_PHYSICAL = {
    "BOOLEAN": 0, "INT32": 1, "INT64": 2, "INT96": 3, "FLOAT": 4, "DOUBLE": 5, "BYTE_ARRAY": 6,
    "FIXED_LEN_BYTE_ARRAY": 7,
}  # fmt: skip
_ENCODINGS = {
    "PLAIN": 0, "PLAIN_DICTIONARY": 2, "RLE": 3, "BIT_PACKED": 4, "DELTA_BINARY_PACKED": 5,
    "DELTA_LENGTH_BYTE_ARRAY": 6, "DELTA_BYTE_ARRAY": 7, "RLE_DICTIONARY": 8, "BYTE_STREAM_SPLIT": 9,
}  # fmt: skip
# Arrow calls two codecs LZ4; they are left out.
_CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6}


@dataclass(frozen=True, slots=True)
class _Element:
    """A top-level column in the schema: its description as it is in the file, and its place among the leaves."""

    raw: bytes
    leaf: int
    flat: bool


class FileFooter:
    """The footer of one Parquet file.

    Parameters
    ----------
    path : str
        Local file.

    Raises
    ------
    OSError, ValueError
        It is missing, or no Parquet file (pyarrow's errors are of these types).
    """

    def __init__(self, path: str) -> None:
        self._metadata: Any = pq.read_metadata(path)
        with Path(path).open("rb") as file:
            file.seek(-8, 2)
            length = struct.unpack("<I", file.read(4))[0]
            file.seek(-8 - length, 2)
            # The schema comes before the row groups: version, schema, rows, row groups.
            self._version, self._elements = _schema(file.read(length))
        self._groups: dict[tuple[int, tuple[str, ...]], bytes | None] = {}
        self._column_bytes: dict[str, tuple[int, ...]] = {}

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """The rows of each row group."""
        return tuple(int(self._metadata.row_group(number).num_rows) for number in range(self._metadata.num_row_groups))

    def column_bytes(self, column: str) -> tuple[int, ...]:
        """Return the uncompressed bytes of a column that is not nested, in each row group."""
        known = self._column_bytes.get(column)
        if known is None:
            leaf = self._elements[column].leaf
            groups = map(self._metadata.row_group, range(self._metadata.num_row_groups))
            known = tuple(int(group.column(leaf).total_uncompressed_size) for group in groups)
            self._column_bytes[column] = known
        return known

    def in_file_order(self, columns: Sequence[str]) -> list[str]:
        """Return columns as they come in the file: neighbours are then read in one piece. Unknown ones come last."""
        last = len(self._elements)
        places = {name: place for place, name in enumerate(self._elements)}
        return sorted(columns, key=lambda name: places.get(name, last))

    def cut(self, row_groups: Sequence[int], columns: Sequence[str]) -> bytes | None:
        """Return a footer of some row groups and top-level columns, in that order.

        Parameters
        ----------
        row_groups : sequence of int
        columns : sequence of str
            Names of top-level columns.

        Returns
        -------
        bytes or None
            Without its length and the magic bytes at the end; ``None`` where the file has what cannot be written in
            this form (a nested column, a codec of ambiguous name, column chunks in other files).
        """
        names = tuple(columns)
        elements = [self._elements.get(name) for name in names]
        if not all(element is not None and element.flat for element in elements):
            return None
        groups = [self._group(number, names) for number in row_groups]
        if any(group is None for group in groups):
            return None
        rows = sum(self.rows[number] for number in row_groups)
        schema = [_root(len(names)), *(element.raw for element in elements if element is not None)]
        fields = [(1, _I32, _number(self._version)), (2, _LIST, _list(_STRUCT, schema)), (3, _I64, _number(rows))]
        fields.append((4, _LIST, _list(_STRUCT, [group for group in groups if group is not None])))
        if self._metadata.created_by:
            fields.append((6, _BINARY, _text(self._metadata.created_by)))
        return _structure(fields)

    def _group(self, number: int, names: tuple[str, ...]) -> bytes | None:
        key = (number, names)
        if key not in self._groups:
            self._groups[key] = self._written(number, names)
        return self._groups[key]

    def _written(self, number: int, names: tuple[str, ...]) -> bytes | None:
        group = self._metadata.row_group(number)
        chunks, size = [], 0
        for name in names:
            column = group.column(self._elements[name].leaf)
            chunk = _chunk(column, name)
            if chunk is None:
                return None
            chunks.append(chunk)
            size += int(column.total_uncompressed_size)
        fields = [(1, _LIST, _list(_STRUCT, chunks)), (2, _I64, _number(size)), (3, _I64, _number(group.num_rows))]
        return _structure(fields)


def footer_of(path: str) -> FileFooter:
    """Return a file's footer, parsed once as long as the file is the same.

    Raises
    ------
    DataError, OSError, ValueError
        The file cannot be read, or is no Parquet file.
    """
    return footer_at(stamp(path))


@lru_cache(maxsize=1024)
def footer_at(seen: FileStamp) -> FileFooter:
    """Return the footer of a file that has been looked at."""
    return FileFooter(seen.path)


def _chunk(column: Any, name: str) -> bytes | None:
    """Write a column chunk's description, without its statistics."""
    codec, physical = _CODECS.get(column.compression), _PHYSICAL.get(column.physical_type)
    encodings = [_ENCODINGS.get(encoding) for encoding in column.encodings]
    if codec is None or physical is None or None in encodings or column.file_path or column.path_in_schema != name:
        return None
    fields = [
        (1, _I32, _number(physical)),
        (2, _LIST, _list(_I32, [_number(encoding) for encoding in encodings if encoding is not None])),
        (3, _LIST, _list(_BINARY, [_text(name)])),
        (4, _I32, _number(codec)),
        (5, _I64, _number(column.num_values)),
        (6, _I64, _number(column.total_uncompressed_size)),
        (7, _I64, _number(column.total_compressed_size)),
        (9, _I64, _number(column.data_page_offset)),
    ]
    if column.has_dictionary_page and column.dictionary_page_offset is not None:
        fields.append((11, _I64, _number(column.dictionary_page_offset)))
    return _structure([(2, _I64, _number(column.file_offset)), (3, _STRUCT, _structure(fields))])


def _root(children: int) -> bytes:
    return _structure([(4, _BINARY, _text("schema")), (5, _I32, _number(children))])


# --- writing -------------------------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _number(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _text(value: str) -> bytes:
    data = value.encode()
    return _varint(len(data)) + data


def _list(kind: int, items: Sequence[bytes]) -> bytes:
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + _varint(len(items))
    return head + b"".join(items)


def _structure(fields: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Write a structure; its fields in the order of their numbers, which are at most 15 apart."""
    parts, last = [], 0
    for number, kind, data in fields:
        parts += [bytes([number - last << 4 | kind]), data]
        last = number
    return b"".join([*parts, b"\0"])


# --- reading the schema --------------------------------------------------------------------------------------------


class _Reader:
    """Reads Thrift's compact protocol, just enough to find where things are."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def byte(self) -> int:
        value = self.data[self.position]
        self.position += 1
        return value

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def number(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def text(self) -> str:
        length = self.varint()
        self.position += length
        return self.data[self.position - length : self.position].decode()

    def list_head(self) -> tuple[int, int]:
        """Return the number of items and their type."""
        head = self.byte()
        return (head >> 4 if head >> 4 < 15 else self.varint()), head & 15

    def fields(self) -> Iterator[tuple[int, int]]:
        """Go through a structure's fields: number and type. The caller reads or skips each."""
        number = 0
        while (head := self.byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self.number()
            yield number, head & 15

    def skip(self, kind: int, in_list: bool = False) -> None:
        """Pass over a value."""
        if kind in (_TRUE, _FALSE):
            self.position += in_list  # a field's is in its head
        elif kind == _BYTE:
            self.position += 1
        elif kind in (_I16, _I32, _I64):
            self.varint()
        elif kind == _DOUBLE:
            self.position += 8
        elif kind == _BINARY:
            self.position += self.varint()
        elif kind in (_LIST, _SET):
            count, item = self.list_head()
            for _ in range(count):
                self.skip(item, in_list=True)
        elif kind == _MAP:
            count = self.varint()
            kinds = self.byte() if count else 0
            for _ in range(count):
                self.skip(kinds >> 4, in_list=True)
                self.skip(kinds & 15, in_list=True)
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        else:
            raise ValueError(f"not a type of Thrift's: {kind}")


def _schema(footer: bytes) -> tuple[int, dict[str, _Element]]:
    """Return the format's version, and the top-level columns by name."""
    reader = _Reader(footer)
    version, found = 1, {}
    for number, kind in reader.fields():
        if number == 1:
            version = reader.number()
        elif number == 2:
            count, _ = reader.list_head()
            found = _elements(reader, count)
            break
        else:
            reader.skip(kind)
    return version, found


def _elements(reader: _Reader, count: int) -> dict[str, _Element]:
    """Read the schema, a tree in depth-first order; a column with children is nested."""
    items = [_element(reader) for _ in range(count)]
    found: dict[str, _Element] = {}
    position, leaf = 1, 0
    while position < count:
        raw, name, children = items[position]
        # A name that comes twice means neither.
        found[name] = _Element(raw, leaf, flat=children == 0 and name not in found)
        open_elements = 1
        while open_elements:
            inside = items[position][2]
            open_elements += inside - 1
            leaf += inside == 0
            position += 1
    return found


def _element(reader: _Reader) -> tuple[bytes, str, int]:
    """Return an element's bytes, its name and the number of its children."""
    start, name, children = reader.position, "", 0
    for number, kind in reader.fields():
        if number == 4:
            name = reader.text()
        elif number == 5:
            children = reader.number()
        else:
            reader.skip(kind)
    return reader.data[start : reader.position], name, children
