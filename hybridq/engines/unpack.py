"""Decompresses the pages of Parquet column chunks before the Parquet reader sees them.

pyarrow's builds decompress Snappy at about 0.4 GB/s, cramjam at 1.2 GB/s (one core, l_extendedprice of TPC-H), and
Snappy is what most writers choose. So the wanted column chunks are copied into a small Parquet file in memory, with
their large Snappy pages decompressed, and pyarrow reads that. Nothing is decoded here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from io import FileIO
from pathlib import Path

import cramjam
import pyarrow as pa
import pyarrow.parquet as pq

from hybridq.engines import thrift
from hybridq.storage import FileStamp

WORTHWHILE_BYTES = 256 * 1024
"""Uncompressed bytes of a column chunk from which its pages are decompressed here: smaller ones cost more than they
save."""

MAGIC = b"PAR1"
TAIL_BYTES = 8
SCHEMA_BYTES = 64 * 1024
"""Bytes at the start of a footer in which its schema is looked for first."""

PHYSICAL_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6, "LZ4_RAW": 7}
ENCODINGS = (
    "PLAIN",
    "",
    "PLAIN_DICTIONARY",
    "RLE",
    "BIT_PACKED",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
    "RLE_DICTIONARY",
    "BYTE_STREAM_SPLIT",
)

# Numbers of fields: of PageHeader, DataPageHeaderV2 and SchemaElement (apache/parquet-format, parquet.thrift).
UNCOMPRESSED_SIZE, COMPRESSED_SIZE, DATA_PAGE_HEADER_V2 = 2, 3, 8
DEFINITION_LEVELS_SIZE, REPETITION_LEVELS_SIZE, IS_COMPRESSED = 5, 6, 7
NUMBER_OF_CHILDREN = 5
LOGICAL_TYPE = (6, 7, 8, 10)
"""ConvertedType, scale, precision and LogicalType."""

_HEADER_ROOM = 16 * 1024
_FOOTER_ROOM = 1024 * 1024


class CannotUnpack(Exception):
    """The file has something that is not handled here; pyarrow is to read it as it is."""


def worth_unpacking(metadata: pq.FileMetaData, groups: Sequence[int], names: Sequence[str]) -> bool:
    """Tell whether some column has pages that are better decompressed here, going by the first row group."""
    positions = _positions(metadata, names)
    return any(_pays(metadata.row_group(group).column(index)) for group in groups[:1] for index in positions)


def unpack(
    file: FileStamp, metadata: pq.FileMetaData, groups: Sequence[int], names: Sequence[str], raw: Collection[str] = ()
) -> pa.Buffer:
    """Return a Parquet file in memory that has only some row groups and columns of a local file.

    Parameters
    ----------
    file : FileStamp
        The file, on a local disk.
    metadata : pyarrow.parquet.FileMetaData
        Its footer.
    groups : sequence of int
        Row groups.
    names : sequence of str
        Columns.
    raw : collection of str
        Columns whose logical type is left out, so that they are read as what is stored: decimals as integers, say.

    Raises
    ------
    CannotUnpack
        The file has something that is not handled here.
    OSError
        The file cannot be read.
    """
    positions = _positions(metadata, names)
    if len(positions) != len(set(names)):
        raise CannotUnpack("a column is nested, or there are two of a name")
    # A row group without rows may have no pages to point at.
    groups = [group for group in groups if metadata.row_group(group).num_rows]
    chunks = [[metadata.row_group(group).column(index) for index in positions] for group in groups]
    with Path(file.path).open("rb", buffering=0) as source:
        try:
            root, *elements = _schema_elements(file)
            if len(elements) != metadata.num_columns:
                raise CannotUnpack("a column is nested")
            stored = [(elements[i], metadata.schema.column(i).path in raw) for i in positions]
            schema = [_root(root, len(positions)), *(_without_logical(e) if plain else e for e, plain in stored)]
            out = _Output(len(MAGIC) + sum(_room(chunk) for row_group in chunks for chunk in row_group) + _FOOTER_ROOM)
            out.write(MAGIC)
            row_groups = [_row_group(source, columns, out) for columns in chunks]
        except (IndexError, ValueError, KeyError, cramjam.DecompressionError) as error:
            raise CannotUnpack(f"{type(error).__name__}: {error}") from error
    rows = [metadata.row_group(group).num_rows for group in groups]
    described = [
        thrift.write_struct([*fields, (3, thrift.I64, thrift.write_integer(count))])
        for fields, count in zip(row_groups, rows, strict=True)
    ]
    footer = thrift.write_struct(
        [
            (1, thrift.I32, thrift.write_integer(2)),
            (2, thrift.LIST, thrift.write_list(thrift.STRUCT, schema)),
            (3, thrift.I64, thrift.write_integer(sum(rows))),
            (4, thrift.LIST, thrift.write_list(thrift.STRUCT, described)),
        ]
    )
    return out.finish(footer + len(footer).to_bytes(4, "little") + MAGIC)


class _Output:
    """A buffer that is written from its start; it must be large enough for all but the footer."""

    def __init__(self, size: int) -> None:
        self._buffer = pa.allocate_buffer(size)
        self._bytes = memoryview(self._buffer).cast("B")
        self.place = 0

    def write(self, data: bytes) -> None:
        self.room(len(data))[:] = data

    def room(self, size: int) -> memoryview:
        """Return the next bytes, to be filled by the caller."""
        if self.place + size > len(self._bytes):
            raise ValueError("a column chunk is larger than its footer says")
        self.place += size
        return self._bytes[self.place - size : self.place]

    def finish(self, footer: bytes) -> pa.Buffer:
        if self.place + len(footer) > len(self._bytes):
            raise CannotUnpack("the footer is too large")
        self.write(footer)
        return self._buffer.slice(0, self.place)


def _positions(metadata: pq.FileMetaData, names: Sequence[str]) -> list[int]:
    wanted = set(names)
    return [i for i in range(metadata.num_columns) if metadata.schema.column(i).path in wanted]


def _pays(chunk: pq.ColumnChunkMetaData) -> bool:
    return bool(chunk.compression == "SNAPPY" and chunk.total_uncompressed_size >= WORTHWHILE_BYTES)


def _room(chunk: pq.ColumnChunkMetaData) -> int:
    """Return the most bytes that a column chunk will take. A header may grow by the four bytes of a larger size."""
    return int(max(chunk.total_uncompressed_size, chunk.total_compressed_size)) + _HEADER_ROOM


def _row_group(source: FileIO, chunks: Sequence[pq.ColumnChunkMetaData], out: _Output) -> list[thrift.Field]:
    """Copy a row group's column chunks; return the first fields of its description."""
    start = out.place
    columns = []
    for chunk in chunks:
        first = chunk.data_page_offset
        if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
            first = min(first, chunk.dictionary_page_offset)
        begin, pays = out.place, _pays(chunk)
        source.seek(first)
        if pays:
            data = source.read(chunk.total_compressed_size)
            if len(data) != chunk.total_compressed_size:
                raise ValueError("the file ends within a column chunk")
            data_place = begin + _decompress(data, chunk.data_page_offset - first, out)
        else:
            room = out.room(chunk.total_compressed_size)
            if source.readinto(room) != len(room):
                raise ValueError("the file ends within a column chunk")
            data_place = begin + chunk.data_page_offset - first
        codec = "UNCOMPRESSED" if pays else chunk.compression
        columns.append(_described(chunk, codec, begin, data_place, out.place - begin))
    return [
        (1, thrift.LIST, thrift.write_list(thrift.STRUCT, columns)),
        (2, thrift.I64, thrift.write_integer(out.place - start)),
    ]


def _decompress(data: bytes, first_data_page: int, out: _Output) -> int:
    """Copy a column chunk's pages, decompressed; return how far from its start the first data page now is."""
    begin, place, data_page = out.place, 0, 0
    while place < len(data):
        if place == first_data_page:
            data_page = out.place - begin
        header, body, compressed, size, plain = _page_header(data, place)
        place = body + compressed
        if place > len(data):
            raise ValueError("a page is larger than its column chunk")
        out.write(header)
        if plain:
            out.write(data[body : body + plain])
        if size > plain:
            room = out.room(size - plain)
            made = cramjam.snappy.decompress_raw_into(memoryview(data)[body + plain : place], room)
            if made != size - plain:
                raise ValueError("a page has not the size that its header says")
    return data_page


def _page_header(data: bytes, place: int) -> tuple[bytes, int, int, int, int]:
    """Read a page's header.

    Returns
    -------
    (bytes, int, int, int, int)
        The header of the decompressed page (a checksum in it stays, and is wrong: nobody looks at it); where the body
        is; its compressed and its decompressed size; and how many of its first bytes are not compressed.
    """
    begin = place
    number = plain = size = compressed_size = 0
    size_place = size_end = 0
    while True:
        number, kind, place = thrift.field(data, place, number)
        if kind == thrift.STOP:
            break
        if number == UNCOMPRESSED_SIZE:
            size, place = thrift.integer(data, place)
        elif number == COMPRESSED_SIZE:
            size_place = place
            compressed_size, place = thrift.integer(data, place)
            size_end = place
        else:
            if number == DATA_PAGE_HEADER_V2:
                plain, compressed = _levels(data, place)
                if not compressed:
                    plain = size
            place = thrift.skip(data, place, kind)
    if not size_end:
        raise ValueError("a page header without a size")
    header = data[begin:size_place] + thrift.write_integer(size) + data[size_end:place]
    return header, place, compressed_size, size, plain


def _levels(data: bytes, place: int) -> tuple[int, bool]:
    """Return the bytes of levels that precede a page's values, and whether the values are compressed."""
    number, size, compressed = 0, 0, True
    while True:
        number, kind, place = thrift.field(data, place, number)
        if kind == thrift.STOP:
            return size, compressed
        if number in (DEFINITION_LEVELS_SIZE, REPETITION_LEVELS_SIZE):
            size += thrift.integer(data, place)[0]
        elif number == IS_COMPRESSED:
            compressed = kind == thrift.TRUE
        place = thrift.skip(data, place, kind)


def _described(chunk: pq.ColumnChunkMetaData, codec: str, begin: int, data_page: int, size: int) -> bytes:
    """Return a ColumnChunk struct."""
    size_written = thrift.write_integer(size)
    fields: list[thrift.Field] = [
        *_column_fields(chunk.physical_type, chunk.encodings, chunk.path_in_schema, codec),
        (5, thrift.I64, thrift.write_integer(chunk.num_values)),
        (6, thrift.I64, size_written),
        (7, thrift.I64, size_written),
        (9, thrift.I64, thrift.write_integer(data_page)),
    ]
    begin_written = thrift.write_integer(begin)
    if data_page > begin:
        fields.append((11, thrift.I64, begin_written))
    return thrift.write_struct([(2, thrift.I64, begin_written), (3, thrift.STRUCT, thrift.write_struct(fields))])


@lru_cache(maxsize=4096)
def _column_fields(physical_type: str, encodings: tuple[str, ...], path: str, codec: str) -> list[thrift.Field]:
    """Return the first fields of a ColumnMetaData struct, which are the same in most row groups."""
    return [
        (1, thrift.I32, thrift.write_integer(PHYSICAL_TYPES.index(physical_type))),
        (2, thrift.LIST, thrift.write_list(thrift.I32, [thrift.write_integer(ENCODINGS.index(e)) for e in encodings])),
        (3, thrift.LIST, thrift.write_list(thrift.BINARY, [thrift.write_binary(path.encode())])),
        (4, thrift.I32, thrift.write_integer(CODECS[codec])),
    ]


@lru_cache(maxsize=4096)
def _schema_elements(file: FileStamp) -> tuple[bytes, ...]:
    """Return the SchemaElement structs of a file's footer, the root's first."""
    with Path(file.path).open("rb") as source:
        source.seek(file.size - TAIL_BYTES)
        size = int.from_bytes(source.read(4), "little")
        start = file.size - TAIL_BYTES - size
        if start < 0:
            raise ValueError("the footer is larger than the file")
        wanted = SCHEMA_BYTES
        while True:
            source.seek(start)
            data = source.read(min(wanted, size))
            try:
                return tuple(_elements(data))
            except IndexError:
                if wanted >= size:
                    raise
                wanted *= 8


def _elements(footer: bytes) -> Iterator[bytes]:
    place = number = 0
    while True:
        number, kind, place = thrift.field(footer, place, number)
        if kind == thrift.STOP:
            raise ValueError("a footer without a schema")
        if number == 2:
            break
        place = thrift.skip(footer, place, kind)
    count, kind, place = thrift.items(footer, place)
    for _ in range(count):
        end = thrift.skip(footer, place, kind)
        if end > len(footer):
            raise IndexError("the schema goes on")
        yield footer[place:end]
        place = end


def _fields(struct: bytes) -> list[thrift.Field]:
    fields: list[thrift.Field] = []
    place = number = 0
    while True:
        number, kind, place = thrift.field(struct, place, number)
        if kind == thrift.STOP:
            return fields
        end = thrift.skip(struct, place, kind)
        fields.append((number, kind, struct[place:end]))
        place = end


def _root(element: bytes, columns: int) -> bytes:
    kept = [field for field in _fields(element) if field[0] != NUMBER_OF_CHILDREN]
    kept.append((NUMBER_OF_CHILDREN, thrift.I32, thrift.write_integer(columns)))
    return thrift.write_struct(sorted(kept, key=lambda field: field[0]))


def _without_logical(element: bytes) -> bytes:
    return thrift.write_struct([field for field in _fields(element) if field[0] not in LOGICAL_TYPE])
