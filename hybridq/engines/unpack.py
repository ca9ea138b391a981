"""Decompresses the pages of Parquet column chunks before the Parquet reader sees them.

pyarrow's builds decompress Snappy at about 0.4 GB/s, cramjam at 1.2 GB/s (one core, l_extendedprice of TPC-H), and
Snappy is what most writers choose. So the wanted column chunks are copied into a small Parquet file in memory, with
their large Snappy pages decompressed, and pyarrow reads that. Nothing is decoded here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from io import FileIO
from pathlib import Path

import cramjam
import pyarrow as pa
import pyarrow.parquet as pq

from hybridq.engines import thrift
from hybridq.engines.footer import MAGIC, CannotWrite, FileFooter, Place, column_chunk, row_group

WORTHWHILE_BYTES = 256 * 1024
"""Uncompressed bytes of a column chunk from which its pages are decompressed here: smaller ones cost more than they
save."""

# Numbers of fields: of PageHeader and DataPageHeaderV2 (apache/parquet-format, parquet.thrift).
UNCOMPRESSED_SIZE, COMPRESSED_SIZE, DATA_PAGE_HEADER_V2 = 2, 3, 8
DEFINITION_LEVELS_SIZE, REPETITION_LEVELS_SIZE, IS_COMPRESSED = 5, 6, 7

_HEADER_ROOM = 16 * 1024
_FOOTER_ROOM = 1024 * 1024


class CannotUnpack(Exception):
    """The file has something that is not handled here; pyarrow is to read it as it is."""


def worth_unpacking(footer: FileFooter, groups: Sequence[int], names: Sequence[str]) -> bool:
    """Tell whether some column has pages that are better decompressed here, going by the first row group."""
    wanted, metadata = set(names), footer.metadata
    leaves = [leaf for leaf in range(metadata.num_columns) if metadata.schema.column(leaf).path in wanted]
    return any(_pays(metadata.row_group(group).column(leaf)) for group in groups[:1] for leaf in leaves)


def unpack(footer: FileFooter, groups: Sequence[int], names: Sequence[str], stored: Collection[str] = ()) -> pa.Buffer:
    """Return a Parquet file in memory that has only some row groups and columns of a local file.

    Parameters
    ----------
    footer : FileFooter
        The file's.
    groups : sequence of int
        Row groups.
    names : sequence of str
        Columns.
    stored : collection of str
        Columns that are to be read as what is stored: decimals as integers, say.

    Raises
    ------
    CannotUnpack
        The file has something that is not handled here.
    OSError
        The file cannot be read.
    """
    try:
        names = footer.in_file_order(names)
        elements = footer.elements(names)
        row_groups = [footer.metadata.row_group(group) for group in groups]
        # A row group without rows may have no pages to point at.
        row_groups = [group for group in row_groups if group.num_rows]
        chunks = [[group.column(element.leaf) for element in elements] for group in row_groups]
        out = _Output(len(MAGIC) + sum(_room(chunk) for columns in chunks for chunk in columns) + _FOOTER_ROOM)
        out.write(MAGIC)
        with Path(footer.path).open("rb", buffering=0) as source:
            written = [
                _row_group(source, columns, names, group.num_rows, out)
                for columns, group in zip(chunks, row_groups, strict=True)
            ]
        shown = [e.without_logical_type() if n in stored else e for e, n in zip(elements, names, strict=True)]
        end = footer.compose(shown, written, sum(group.num_rows for group in row_groups))
        return out.finish(end + len(end).to_bytes(4, "little") + MAGIC)
    except (IndexError, ValueError, KeyError, CannotWrite, cramjam.DecompressionError) as error:
        raise CannotUnpack(f"{type(error).__name__}: {error}") from error


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
            raise ValueError("what is written is larger than the file's footer says")
        self.place += size
        return self._bytes[self.place - size : self.place]

    def finish(self, footer: bytes) -> pa.Buffer:
        self.write(footer)
        return self._buffer.slice(0, self.place)


def _pays(chunk: pq.ColumnChunkMetaData) -> bool:
    return bool(chunk.compression == "SNAPPY" and chunk.total_uncompressed_size >= WORTHWHILE_BYTES)


def _room(chunk: pq.ColumnChunkMetaData) -> int:
    """Return the most bytes that a column chunk will take. A header may grow by the four bytes of a larger size."""
    return int(max(chunk.total_uncompressed_size, chunk.total_compressed_size)) + _HEADER_ROOM


def _row_group(
    source: FileIO, chunks: Sequence[pq.ColumnChunkMetaData], names: Sequence[str], rows: int, out: _Output
) -> bytes:
    """Copy a row group's column chunks; return its description."""
    start = out.place
    described = []
    for chunk, name in zip(chunks, names, strict=True):
        first = chunk.data_page_offset
        if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
            first = min(first, chunk.dictionary_page_offset)
        begin, pays = out.place, _pays(chunk)
        source.seek(first)
        if pays:
            data = source.read(chunk.total_compressed_size)
            if len(data) != chunk.total_compressed_size:
                raise ValueError("the file ends within a column chunk")
            data_page = begin + _decompress(data, chunk.data_page_offset - first, out)
        else:
            room = out.room(chunk.total_compressed_size)
            if source.readinto(room) != len(room):
                raise ValueError("the file ends within a column chunk")
            data_page = begin + chunk.data_page_offset - first
        size = out.place - begin
        place = Place(begin, begin if data_page > begin else None, data_page, size, size)
        described.append(column_chunk(chunk, name, "UNCOMPRESSED" if pays else chunk.compression, place))
    return row_group(described, out.place - start, rows)


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
    size, compressed = 0, True
    for number, kind, start, _ in thrift.fields(data, place):
        if number in (DEFINITION_LEVELS_SIZE, REPETITION_LEVELS_SIZE):
            size += thrift.integer(data, start)[0]
        elif number == IS_COMPRESSED:
            compressed = kind == thrift.TRUE
    return size, compressed
