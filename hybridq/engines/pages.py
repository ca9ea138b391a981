"""Decodes Parquet column chunks with compiled loops: row by row codes into a dictionary, or values.

Only what most files have is handled: numbers, dates, decimals that are stored as integers and strings, not nested, in
pages of plain values or of codes. Everything else raises ``CannotDecode`` and is pyarrow's to read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hybridq import types
from hybridq.engines.column import Mask, Values

PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8
"""Encodings, by the numbers that Parquet's format gives them."""
DICTIONARIES = (PLAIN_DICTIONARY, RLE_DICTIONARY)
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)
"""Kinds of pages, by theirs."""

ENCODINGS = frozenset({"PLAIN", "RLE", "PLAIN_DICTIONARY", "RLE_DICTIONARY"})
CODECS = frozenset({"SNAPPY", "UNCOMPRESSED"})
_NUMBERS: Mapping[str, np.dtype[Any]] = {
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FLOAT": np.dtype("<f4"),
    "DOUBLE": np.dtype("<f8"),
}

DICTIONARY_BYTES = 4.0
"""Uncompressed bytes a row up to which a string column is read as a dictionary: short codes and few distinct values."""

FIRST_PAGES = 64
"""Pages of a column chunk that are expected at most; of more, the headers are read twice."""


HAS_NULLS = -2
"""What ``encoded_pages`` returns of pages that it leaves to others."""


class CannotDecode(Exception):
    """The column chunk has something that is not handled here, or is damaged."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of one column chunk.

    Attributes
    ----------
    codes : array of int32 or None
        Positions in ``table``, 0 for NULL; ``None``: ``table`` has a value a row.
    table : array
        Values, of the type that the column has in frames.
    valid : array of bool or None
        Rows that are not NULL; ``None``: all.
    texts : pyarrow.Array or None
        Of a string column: ``codes`` are positions in it, and there is no ``table``.
    """

    codes: Values | None
    table: Values | None
    valid: Mask | None
    texts: pa.Array | None = None


def decodable(metadata: pq.FileMetaData, leaf: int, group: int, data_type: pa.DataType, scaled: bool) -> bool:
    """Tell whether a column chunk can be decoded here, going by the file's footer.

    Parameters
    ----------
    metadata : pyarrow.parquet.FileMetaData
    leaf, group : int
        Which column chunk.
    data_type : pyarrow.DataType
        What the column is to be.
    scaled : bool
        It is a decimal, and what is stored are its digits.
    """
    stored = metadata.schema.column(leaf)
    chunk = metadata.row_group(group).column(leaf)
    return (
        stored.max_repetition_level == 0
        and stored.max_definition_level <= 1
        and _fits(stored.physical_type, data_type, scaled)
        and chunk.compression in CODECS
        and ENCODINGS.issuperset(chunk.encodings)
        and not chunk.file_path
    )


def _fits(physical: str, data_type: pa.DataType, scaled: bool) -> bool:
    """Tell whether values of a physical type are those of a logical type, as they are or as shorter integers."""
    if types.is_decimal(data_type):
        return scaled and physical in ("INT32", "INT64")
    if types.is_string(data_type):
        return physical == "BYTE_ARRAY"
    if pa.types.is_date32(data_type) or pa.types.is_signed_integer(data_type):
        return physical == ("INT64" if pa.types.is_int64(data_type) else "INT32")
    return (pa.types.is_float32(data_type) and physical == "FLOAT") or (
        pa.types.is_float64(data_type) and physical == "DOUBLE"
    )


def short_dictionaries(metadata: pq.FileMetaData, leaf: int, groups: Sequence[int]) -> bool:
    """Tell whether a string column is worth reading as codes."""
    chunks = [metadata.row_group(group).column(leaf) for group in groups]
    values = sum(chunk.num_values for chunk in chunks)
    size = sum(chunk.total_uncompressed_size for chunk in chunks)
    return all(chunk.has_dictionary_page for chunk in chunks) and size <= DICTIONARY_BYTES * values


class _Room(threading.local):
    """Memory that a thread uses again for every column chunk."""

    def __init__(self) -> None:
        self._arrays = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def of(self, which: int, size: int) -> Values:
        """Return at least so many bytes, of one of two places."""
        if len(self._arrays[which]) < size:
            self._arrays[which] = np.empty(size + size // 4, np.uint8)
        return self._arrays[which]


_ROOM = _Room()


def decode(
    kernels: ModuleType,
    file: int,
    chunk: pq.ColumnChunkMetaData,
    rows: int,
    nullable: bool,
    dtype: np.dtype[Any] | None,
) -> Decoded:
    """Read and decode a column chunk that ``decodable`` has allowed.

    Parameters
    ----------
    kernels : module
        ``hybridq.engines.compiled.kernels``.
    file : int
        Descriptor of the open file.
    chunk : pyarrow.parquet.ColumnChunkMetaData
    rows : int
        Rows of the row group.
    nullable : bool
        The column may have NULLs.
    dtype : numpy.dtype or None
        Of the values in frames; ``None``: strings.

    Raises
    ------
    CannotDecode
        It has something that is not handled here, or is damaged.
    OSError
        The file cannot be read.
    """
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
        start = min(start, chunk.dictionary_page_offset)
    size = chunk.total_compressed_size
    if start < 0 or size <= 0:
        raise CannotDecode("a column chunk without pages")
    data = _ROOM.of(0, size + kernels.PADDING)
    if os.preadv(file, [data[:size].data], start) != size:
        raise CannotDecode("the file ends within a column chunk")
    headers = np.empty((FIRST_PAGES, kernels.HEADER_FIELDS), np.int64)
    pages = kernels.page_headers(data, size, headers)
    if pages > FIRST_PAGES:
        headers = np.empty((pages, kernels.HEADER_FIELDS), np.int64)
        pages = kernels.page_headers(data, size, headers)
    if pages < 0:
        raise CannotDecode("a damaged page header")
    physical: np.dtype[Any] | None = _NUMBERS.get(chunk.physical_type)
    found = headers[:pages].tolist()
    if any(header[kernels.SIZE] > chunk.total_uncompressed_size for header in found):
        raise CannotDecode("a page larger than its column chunk")
    reader = _ChunkReader(kernels, data, chunk.compression == "SNAPPY", rows, nullable, physical, dtype)
    if not reader.all_encoded(found):
        for header in found:
            reader.page(header)
    return reader.result()


class _ChunkReader:
    """Decodes the pages of one column chunk."""

    def __init__(
        self,
        kernels: ModuleType,
        data: Values,
        snappy: bool,
        rows: int,
        nullable: bool,
        physical: np.dtype[Any] | None,
        dtype: np.dtype[Any] | None,
    ) -> None:
        self._kernels = kernels
        self._data = data
        self._snappy = snappy
        self._rows = rows
        self._nullable = nullable
        self._physical = physical
        self._dtype = dtype
        self._done = 0
        self._table: Values | None = None
        self._texts: pa.Array | None = None
        self._codes: Values | None = None
        self._values: Values | None = None
        self._valid: Mask | None = None

    def all_encoded(self, headers: list[list[int]]) -> bool:
        """Take all pages at once, if they are a dictionary and then codes, and no row is NULL; else take none."""
        fields = self._kernels
        kind, encoding = fields.KIND, fields.ENCODING
        if (
            len(headers) < 2
            or headers[0][kind] != DICTIONARY_PAGE
            or any(each[kind] != DATA_PAGE or each[encoding] not in DICTIONARIES for each in headers[1:])
            or sum(each[fields.VALUES] for each in headers[1:]) != self._rows
        ):
            return False
        self._dictionary(headers[0])
        places = []
        if self._snappy:
            begin = 0
            room = _ROOM.of(1, sum(each[fields.SIZE] for each in headers[1:]) + fields.PADDING)
            for each in headers[1:]:
                end = begin + each[fields.SIZE]
                self._decompress(each[fields.BODY], each[fields.COMPRESSED], room, begin, end)
                places.append((begin, end, each[fields.VALUES]))
                begin = end
        else:
            room = self._data
            for each in headers[1:]:
                if each[fields.COMPRESSED] != each[fields.SIZE]:
                    raise CannotDecode("a page has not the size that its header says")
                places.append((each[fields.BODY], each[fields.BODY] + each[fields.SIZE], each[fields.VALUES]))
        codes = np.empty(self._rows, np.int32)
        largest = fields.encoded_pages(room, np.array(places), self._nullable, codes)
        if largest == HAS_NULLS:
            return False
        known = self._texts if self._table is None else self._table
        if largest < 0 or known is None or largest >= len(known):
            raise CannotDecode("damaged codes")
        self._codes, self._done = codes, self._rows
        return True

    def _decompress(self, start: int, compressed: int, room: Values, begin: int, end: int) -> None:
        """Decompress some of the column chunk's bytes to a place in ``room``."""
        try:
            made = cramjam.snappy.decompress_raw_into(self._data[start : start + compressed].data, room[begin:end].data)
        except cramjam.DecompressionError as error:
            raise CannotDecode(str(error)) from error
        if made != end - begin:
            raise CannotDecode("a page has not the size that its header says")

    def page(self, header: list[int]) -> None:
        """Take the next page."""
        kind = header[self._kernels.KIND]
        if kind == DICTIONARY_PAGE:
            self._dictionary(header)
        elif kind in (DATA_PAGE, DATA_PAGE_V2):
            self._rows_of(header, second=kind == DATA_PAGE_V2)
        elif kind != INDEX_PAGE:
            raise CannotDecode(f"a page of kind {kind}")

    def result(self) -> Decoded:
        """Return all rows."""
        if self._done != self._rows:
            raise CannotDecode("the pages have not as many rows as their row group")
        valid = None if self._valid is None or bool(self._valid.all()) else self._valid
        if self._values is not None:
            return Decoded(None, self._values, valid)
        if self._codes is None:
            raise CannotDecode("a column chunk without rows")
        table, texts = self._table, self._texts
        # Where all rows are NULL, the dictionary may be empty, and code 0 would be none of it.
        if table is not None and len(table) == 0:
            table = np.zeros(1, table.dtype)
        if texts is not None and len(texts) == 0:
            texts = pa.array([""], pa.string())
        return Decoded(self._codes, table, valid, texts)

    def _body(self, header: list[int]) -> tuple[Values, int, int]:
        """Return a page's bytes, decompressed: where they are, from and to."""
        fields = self._kernels
        begin, compressed, size = header[fields.BODY], header[fields.COMPRESSED], header[fields.SIZE]
        plain = header[fields.PLAIN_LEVELS]
        if plain > min(size, compressed):
            raise CannotDecode("levels larger than their page")
        if not self._snappy or not header[fields.IS_COMPRESSED]:
            if compressed != size:
                raise CannotDecode("a page has not the size that its header says")
            return self._data, begin, begin + size
        room = _ROOM.of(1, size + fields.PADDING)
        room[:plain] = self._data[begin : begin + plain]
        if size > plain:
            self._decompress(begin + plain, compressed - plain, room, plain, size)
        return room, 0, size

    def _dictionary(self, header: list[int]) -> None:
        fields = self._kernels
        if header[fields.ENCODING] not in (PLAIN, PLAIN_DICTIONARY) or self._codes is not None:
            raise CannotDecode("a dictionary that is encoded, or comes late")
        data, place, end = self._body(header)
        count = header[fields.VALUES]
        if self._physical is None:
            self._texts = self._strings(data, place, end, count)
        else:
            self._table = self._numbers(data, place, end, count)

    def _numbers(self, data: Values, place: int, end: int, count: int) -> Values:
        """Return a copy of plain numbers, in the type that frames have."""
        assert self._physical is not None
        if count * self._physical.itemsize > end - place:
            raise CannotDecode("a page has fewer values than its header says")
        numbers = np.frombuffer(data, self._physical, count, place)
        return numbers.astype(self._dtype)

    def _strings(self, data: Values, place: int, end: int, count: int) -> pa.Array:
        offsets = np.empty(count + 1, np.int32)
        if count > end - place or (size := self._kernels.text_offsets(data, place, end, count, offsets)) < 0:
            raise CannotDecode("a page has fewer values than its header says")
        text = np.empty(size, np.uint8)
        self._kernels.copy_texts(data, place, count, offsets, text)
        return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])

    def _rows_of(self, header: list[int], second: bool) -> None:
        """Take a data page."""
        fields = self._kernels
        data, place, end = self._body(header)
        count = header[fields.VALUES]
        if count > self._rows - self._done:
            raise CannotDecode("the pages have more rows than their row group")
        valid: Mask | None = None
        if second:
            levels, place = place, place + header[fields.PLAIN_LEVELS]
            if self._nullable:
                valid = self._levels(data, levels, place, count)
        elif self._nullable:
            if header[fields.LEVELS] != RLE or end - place < 4:
                raise CannotDecode("levels that are not in runs")
            levels = place + 4
            place = levels + int.from_bytes(data[place:levels].tobytes(), "little")
            if place > end:
                raise CannotDecode("levels larger than their page")
            valid = self._levels(data, levels, place, count)
        if valid is not None:
            if self._valid is None:
                self._valid = np.ones(self._rows, np.bool_)
            self._valid[self._done : self._done + count] = valid
        if header[fields.ENCODING] in DICTIONARIES:
            self._encoded(data, place, end, count, valid)
        elif header[fields.ENCODING] == PLAIN and self._physical is not None:
            self._plain(data, place, end, count, valid)
        else:
            raise CannotDecode("an encoding that is not handled")
        self._done += count

    def _levels(self, data: Values, place: int, end: int, count: int) -> Mask | None:
        """Return which rows of a page are not NULL; ``None``: all."""
        levels = np.empty(count, np.int32)
        if self._kernels.run_lengths(data, place, end, 1, count, levels, 0) < 0:
            raise CannotDecode("damaged levels")
        valid = levels.view(np.uint32) == 1
        return None if valid.all() else valid

    def _encoded(self, data: Values, place: int, end: int, count: int, valid: Mask | None) -> None:
        known = self._texts if self._table is None else self._table
        if known is None:
            raise CannotDecode("codes without a dictionary")
        if self._codes is None:
            self._codes = np.empty(self._rows, np.int32)
        present = count if valid is None else int(np.count_nonzero(valid))
        if not present:
            self._codes[self._done : self._done + count] = 0
        else:
            target, start = (self._codes, self._done) if valid is None else (np.empty(present, np.int32), 0)
            width = int(data[place]) if place < end else -1
            largest = self._kernels.run_lengths(data, place + 1, end, width, present, target, start)
            if largest < 0 or largest >= len(known):
                raise CannotDecode("damaged codes")
            if valid is not None:
                self._kernels.spread(target, valid, self._codes[self._done : self._done + count])
        if self._values is not None and self._table is not None and len(self._table):
            rows = slice(self._done, self._done + count)
            gather(self._kernels, self._table, self._codes[rows], None, self._values[rows])

    def _plain(self, data: Values, place: int, end: int, count: int, valid: Mask | None) -> None:
        if self._values is None:
            assert self._dtype is not None
            self._values = np.zeros(self._rows, self._dtype)
            if self._done and self._codes is not None and self._table is not None and len(self._table):
                gather(self._kernels, self._table, self._codes[: self._done], None, self._values[: self._done])
        target = self._values[self._done : self._done + count]
        if valid is None:
            target[:] = self._numbers(data, place, end, count)
        else:
            target[valid] = self._numbers(data, place, end, int(np.count_nonzero(valid)))


_BITS = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def gather(kernels: ModuleType, table: Values, codes: Values | None, rows: Values | None, out: Values) -> None:
    """Write the values of some rows (``None``: all), given all rows' codes (``None``: the table has a value a row)."""
    bits = _BITS[table.dtype.itemsize]
    if codes is None:
        if rows is None:
            out[:] = table
        else:
            kernels.gather(table.view(bits), rows, out.view(bits))
    elif rows is None:
        kernels.gather(table.view(bits), codes, out.view(bits))
    else:
        kernels.gather_rows(table.view(bits), codes, rows, out.view(bits))
