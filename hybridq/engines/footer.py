"""Small Parquet footers: a file's own, cut down to the row groups and columns that one chunk reads.

libcudf takes a parsed footer with a read, and copies it several times on the way. Of a file of a thousand row groups
that costs far more than reading some of them, most of it for page indexes that it reads along with a footer. So a
footer is written anew for every read: a Thrift struct of a few fields a column chunk. The CPU engine writes such
footers for files that it makes in memory (``hybridq.engines.unpack``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import pyarrow.parquet as pq

from hybridq.engines import thrift
from hybridq.engines.footer_check import read_footer
from hybridq.storage import FileStamp, stamp

MAGIC = b"PAR1"
_TAIL_BYTES = 8
"""Length of the footer, and the magic bytes."""

# Numbers that stand for names (apache/parquet-format, parquet.thrift).
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

_LOGICAL_TYPE = (6, 7, 8, 10)
"""Fields of a SchemaElement: ConvertedType, scale, precision and LogicalType."""


class CannotWrite(Exception):
    """The file has what cannot be written in this form: a nested column, a codec of ambiguous name, another file."""


@dataclass(frozen=True, slots=True)
class Element:
    """A top-level column in the schema.

    Attributes
    ----------
    raw : bytes
        Its description as it is in the file.
    leaf : int
        Its place among the leaves.
    flat : bool
        It is not nested, and the only one of its name.
    """

    raw: bytes
    leaf: int
    flat: bool

    def without_logical_type(self) -> Element:
        """Return the column as what is stored: decimals as integers, say."""
        kept = [(n, kind, self.raw[a:b]) for n, kind, a, b in thrift.fields(self.raw) if n not in _LOGICAL_TYPE]
        return Element(thrift.write_struct(kept), self.leaf, self.flat)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column chunk is and what it takes, in bytes.

    Attributes
    ----------
    start : int
        What the file says of the chunk's begin.
    dictionary_page : int or None
    data_page : int
        Where the first of its data pages is.
    compressed, uncompressed : int
    """

    start: int
    dictionary_page: int | None
    data_page: int
    compressed: int
    uncompressed: int


class FileFooter:
    """The footer of one Parquet file.

    Parameters
    ----------
    path : str
        Local file.

    Attributes
    ----------
    metadata : pyarrow.parquet.FileMetaData
        All of it, as Arrow has parsed it.
    digest : str
        Of its bytes.

    Raises
    ------
    OSError, ValueError
        It is missing, no Parquet file, or its footer contradicts itself (pyarrow's errors are of these types).
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.metadata: pq.FileMetaData
        self.metadata, self.digest = read_footer(path)
        self._groups: dict[tuple[int, tuple[str, ...]], bytes] = {}
        self._column_bytes: dict[str, tuple[int, ...]] = {}

    @cached_property
    def _schema(self) -> tuple[int, dict[str, Element]]:
        with Path(self.path).open("rb") as file:
            file.seek(-_TAIL_BYTES, 2)
            length = int.from_bytes(file.read(4), "little")
            file.seek(-_TAIL_BYTES - length, 2)
            return _schema(file.read(length))

    def elements(self, columns: Sequence[str]) -> list[Element]:
        """Return the schema's part for top-level columns.

        Raises
        ------
        CannotWrite
            One is nested, missing, or there are two of its name.
        """
        _, known = self._schema
        found = [known.get(name) for name in columns]
        flat = [element for element in found if element is not None and element.flat]
        if len(flat) < len(found):
            raise CannotWrite("a column is nested, missing, or there are two of its name")
        return flat

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """The rows of each row group."""
        return tuple(int(self.metadata.row_group(number).num_rows) for number in range(self.metadata.num_row_groups))

    def column_bytes(self, column: str) -> tuple[int, ...]:
        """Return the uncompressed bytes of a column that is not nested, in each row group."""
        known = self._column_bytes.get(column)
        if known is None:
            leaf = self._schema[1][column].leaf
            groups = map(self.metadata.row_group, range(self.metadata.num_row_groups))
            known = tuple(int(group.column(leaf).total_uncompressed_size) for group in groups)
            self._column_bytes[column] = known
        return known

    def in_file_order(self, columns: Sequence[str]) -> list[str]:
        """Return columns as they come in the file: neighbours are then read in one piece. Unknown ones come last."""
        _, elements = self._schema
        last = len(elements)
        places = {name: place for place, name in enumerate(elements)}
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
        try:
            elements = self.elements(names)
            groups = [self._group(number, names, elements) for number in row_groups]
        except CannotWrite:
            return None
        return self.compose(elements, groups, sum(self.rows[number] for number in row_groups))

    def compose(self, elements: Sequence[Element], groups: Sequence[bytes], rows: int) -> bytes:
        """Write a footer, given its columns and the descriptions of its row groups, which have so many rows."""
        version, _ = self._schema
        schema = [_root(len(elements)), *(element.raw for element in elements)]
        fields: list[thrift.Field] = [
            (1, thrift.I32, thrift.write_integer(version)),
            (2, thrift.LIST, thrift.write_list(thrift.STRUCT, schema)),
            (3, thrift.I64, thrift.write_integer(rows)),
            (4, thrift.LIST, thrift.write_list(thrift.STRUCT, groups)),
        ]
        if self.metadata.created_by:
            fields.append((6, thrift.BINARY, thrift.write_binary(self.metadata.created_by.encode())))
        return thrift.write_struct(fields)

    def _group(self, number: int, names: tuple[str, ...], elements: Sequence[Element]) -> bytes:
        key = (number, names)
        if key not in self._groups:
            group = self.metadata.row_group(number)
            columns = [group.column(element.leaf) for element in elements]
            chunks = [
                column_chunk(column, name, column.compression, place_of(column))
                for column, name in zip(columns, names, strict=True)
            ]
            size = sum(column.total_uncompressed_size for column in columns)
            self._groups[key] = row_group(chunks, size, group.num_rows)
        return self._groups[key]


def footer_of(path: str) -> FileFooter:
    """Return a file's footer, parsed once as long as the file is the same.

    Raises
    ------
    DataError, OSError, ValueError
        The file cannot be read, or is no Parquet file.
    """
    return footer_at(stamp(path))


@lru_cache(maxsize=4096)
def footer_at(seen: FileStamp) -> FileFooter:
    """Return the footer of a file that has been looked at."""
    return FileFooter(seen.path)


def digest_at(seen: FileStamp) -> str:
    """Return the digest of the footer of a file that has been looked at; an empty one if it is no Parquet file.

    Raises
    ------
    DataError, OSError
        The file cannot be read.
    """
    try:
        return footer_at(seen).digest
    except ValueError:
        return ""


def place_of(column: pq.ColumnChunkMetaData) -> Place:
    """Return where a column chunk is in its own file."""
    return Place(
        start=column.file_offset,
        dictionary_page=column.dictionary_page_offset if column.has_dictionary_page else None,
        data_page=column.data_page_offset,
        compressed=column.total_compressed_size,
        uncompressed=column.total_uncompressed_size,
    )


def column_chunk(column: pq.ColumnChunkMetaData, name: str, codec: str, place: Place) -> bytes:
    """Write a column chunk's description, without its statistics.

    Raises
    ------
    CannotWrite
        It is in another file, is not the column of that name, or its codec's name is ambiguous.
    """
    if column.file_path or column.path_in_schema != name:
        raise CannotWrite(f"{name} is nested, or in another file")
    uncompressed = thrift.write_integer(place.uncompressed)
    compressed = uncompressed if place.compressed == place.uncompressed else thrift.write_integer(place.compressed)
    fields: list[thrift.Field] = [
        *_same_fields(column.physical_type, column.encodings, name, codec),
        (5, thrift.I64, thrift.write_integer(column.num_values)),
        (6, thrift.I64, uncompressed),
        (7, thrift.I64, compressed),
        (9, thrift.I64, thrift.write_integer(place.data_page)),
    ]
    if place.dictionary_page is not None:
        fields.append((11, thrift.I64, thrift.write_integer(place.dictionary_page)))
    start = thrift.write_integer(place.start)
    return thrift.write_struct([(2, thrift.I64, start), (3, thrift.STRUCT, thrift.write_struct(fields))])


@lru_cache(maxsize=4096)
def _same_fields(physical_type: str, encodings: tuple[str, ...], name: str, codec: str) -> tuple[thrift.Field, ...]:
    """Write the first fields of a ColumnMetaData struct, which are the same in most row groups."""
    try:
        physical, compression = _PHYSICAL[physical_type], _CODECS[codec]
        numbers = [thrift.write_integer(_ENCODINGS[encoding]) for encoding in encodings]
    except KeyError as error:
        raise CannotWrite(f"{name} has {error}") from error
    return (
        (1, thrift.I32, thrift.write_integer(physical)),
        (2, thrift.LIST, thrift.write_list(thrift.I32, numbers)),
        (3, thrift.LIST, thrift.write_list(thrift.BINARY, [thrift.write_binary(name.encode())])),
        (4, thrift.I32, thrift.write_integer(compression)),
    )


def row_group(chunks: Sequence[bytes], size: int, rows: int) -> bytes:
    """Write a row group's description, given those of its column chunks and their uncompressed bytes."""
    return thrift.write_struct(
        [
            (1, thrift.LIST, thrift.write_list(thrift.STRUCT, chunks)),
            (2, thrift.I64, thrift.write_integer(size)),
            (3, thrift.I64, thrift.write_integer(rows)),
        ]
    )


def _root(children: int) -> bytes:
    return thrift.write_struct(
        [(4, thrift.BINARY, thrift.write_binary(b"schema")), (5, thrift.I32, thrift.write_integer(children))]
    )


# --- reading the schema --------------------------------------------------------------------------------------------


def _schema(footer: bytes) -> tuple[int, dict[str, Element]]:
    """Return the format's version, and the top-level columns by name."""
    version, found = 1, {}
    for number, _, start, _ in thrift.fields(footer):
        if number == 1:
            version, _ = thrift.integer(footer, start)
        elif number == 2:
            found = _elements(footer, start)
            break  # the row groups, which come later, are many
    return version, found


def _elements(footer: bytes, place: int) -> dict[str, Element]:
    """Read the schema, a tree in depth-first order; a column with children is nested."""
    items = list(_described(footer, place))
    found: dict[str, Element] = {}
    position, leaf = 1, 0
    while position < len(items):
        raw, name, children = items[position]
        # A name that comes twice means neither.
        found[name] = Element(raw, leaf, flat=children == 0 and name not in found)
        open_elements = 1
        while open_elements:
            inside = items[position][2]
            open_elements += inside - 1
            leaf += inside == 0
            position += 1
    return found


def _described(footer: bytes, place: int) -> Iterator[tuple[bytes, str, int]]:
    """Yield the bytes of each element of a schema, its name and the number of its children."""
    count, kind, place = thrift.items(footer, place)
    for _ in range(count):
        begin, place = place, thrift.skip(footer, place, kind)
        raw, name, children = footer[begin:place], "", 0
        for number, _, start, _ in thrift.fields(raw):
            if number == 4:
                size, text = thrift.varint(raw, start)
                name = raw[text : text + size].decode()
            elif number == 5:
                children, _ = thrift.integer(raw, start)
        yield raw, name, children
