"""The compiled loops. Importing this module compiles them, or loads what was compiled before.

None of them checks where it reads or writes beyond what it says: callers have made sure of the rest. All release the
interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

PADDING = 40
"""Bytes that may be read after the last one of a page: eight numbers of up to 31 bits are unpacked at a time, also
where fewer are left, and eight bytes are read for each."""

# Columns of what ``page_headers`` fills in.
KIND, BODY, COMPRESSED, SIZE, VALUES, ENCODING, LEVELS, PLAIN_LEVELS, IS_COMPRESSED = range(9)
HEADER_FIELDS = 9

_BYTES, _WORDS = numba.uint8[::1], numba.uint64[::1]
_INT = numba.int64
_CODES = numba.int32[::1]
_WIDTHS = (numba.uint8, numba.uint16, numba.uint32, numba.uint64)


def _read_only(element: Any) -> Any:
    """Return the type of arrays that are not written: they, too, may be given that may not be."""
    return numba.types.Array(element, 1, "C", readonly=True)


def _compiled(*signatures: Any) -> Callable[[Function], Function]:
    """Compile a function for some types of arguments."""
    return cast(
        "Callable[[Function], Function]",
        numba.njit(list(signatures), nogil=True, cache=True, boundscheck=False, error_model="numpy"),
    )


def _load_word(typing: Any, data: Any, place: Any) -> Any:
    """Return the eight bytes at a place as one number; numba itself reads them one by one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]])
        loaded = builder.load(builder.bitcast(pointer, ir.IntType(64).as_pointer()))
        loaded.align = 1
        return loaded

    return numba.uint64(data, place), generate


_word: Any = intrinsic(_load_word)


def _count_ones(typing: Any, word: Any) -> Any:
    """Return the number of bits set in a number of 64 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return numba.uint64(numba.uint64), generate


_ones: Any = intrinsic(_count_ones)


# --- Parquet pages -------------------------------------------------------------------------------------------------


@_compiled("Tuple((int64, int64))(uint8[::1], int64, int64)")
def _varint(data: Any, place: Any, end: Any) -> Any:
    """Return the unsigned number at a place, and the place after it; that is -1 where there is none."""
    value = np.int64(0)
    shift = 0
    while place < end and shift < 63:
        byte = np.int64(data[place])
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
    return value, -1


@_compiled(_INT(_BYTES, _INT, _INT, _INT))
def _skip_simple(data: Any, place: Any, end: Any, kind: Any) -> Any:
    """Return the place after a value that is no struct, list, set or map; -1 where it does not end."""
    if kind == 1 or kind == 2:  # true, false: the type is the value
        return place
    if kind == 3:
        place += 1
    elif kind == 4 or kind == 5 or kind == 6:
        _, place = _varint(data, place, end)
    elif kind == 7:
        place += 8
    elif kind == 8:
        size, place = _varint(data, place, end)
        if place < 0 or size < 0 or size > end - place:
            return -1
        place += size
    else:
        return -1
    return place if place <= end else -1


@_compiled(_INT(_BYTES, _INT, numba.int64[:, ::1]))
def page_headers(data: Any, end: Any, found: Any) -> Any:
    """Read the headers of a column chunk's pages.

    Parameters
    ----------
    data : array of uint8
        The column chunk: its first ``end`` bytes.
    end : int
    found : array of int64
        A row for each page, to be filled in; pages that have none are left out.

    Returns
    -------
    int
        The number of pages; -1 where a header is damaged or has what Parquet's headers do not have.
    """
    pages = 0
    place = np.int64(0)
    last = np.zeros(4, np.int64)
    within = np.zeros(4, np.int64)  # the field of the outermost struct that each depth is inside of
    header = np.zeros(HEADER_FIELDS, np.int64)
    while place < end:
        for field in range(HEADER_FIELDS):
            header[field] = 0
        header[KIND] = -1
        header[IS_COMPRESSED] = 1
        depth = 0
        last[0] = 0
        while depth >= 0:
            if place >= end:
                return -1
            head = np.int64(data[place])
            place += 1
            kind = head & 15
            if kind == 0:
                depth -= 1
                continue
            if head >> 4:
                number = last[depth] + (head >> 4)
            else:
                number, place = _varint(data, place, end)
                if place < 0:
                    return -1
                number = (number >> 1) ^ -(number & 1)
            last[depth] = number
            if kind == 12:
                if depth == 3:
                    return -1
                if depth == 0:
                    within[1] = number
                else:
                    within[depth + 1] = 0
                depth += 1
                last[depth] = 0
                continue
            if kind == 5:
                value, place = _varint(data, place, end)
                if place < 0:
                    return -1
                value = (value >> 1) ^ -(value & 1)
                if value > 0x7FFFFFFF or value < -0x80000000:
                    return -1
                if depth == 0:
                    if number == 1:
                        header[KIND] = value
                    elif number == 2:
                        header[SIZE] = value
                    elif number == 3:
                        header[COMPRESSED] = value
                elif depth == 1 and (within[1] == 5 or within[1] == 7):
                    if number == 1:
                        header[VALUES] = value
                    elif number == 2:
                        header[ENCODING] = value
                    elif number == 3 and within[1] == 5:
                        header[LEVELS] = value
                elif depth == 1 and within[1] == 8:
                    if number == 1:
                        header[VALUES] = value
                    elif number == 4:
                        header[ENCODING] = value
                    elif number == 5 or number == 6:
                        if value < 0:
                            return -1
                        header[PLAIN_LEVELS] += value
                continue
            if depth == 1 and within[1] == 8 and number == 7:
                header[IS_COMPRESSED] = np.int64(kind == 1)
            place = _skip_simple(data, place, end, kind)
            if place < 0:
                return -1
        if header[COMPRESSED] < 0 or header[SIZE] < 0 or header[VALUES] < 0 or header[COMPRESSED] > end - place:
            return -1
        header[BODY] = place
        place += header[COMPRESSED]
        if pages < len(found):
            for field in range(HEADER_FIELDS):
                found[pages, field] = header[field]
        pages += 1
    return pages


@_compiled(numba.void(_BYTES, _INT, _INT, _INT, _CODES, _INT))
def _unpack(data: Any, place: Any, width: Any, groups: Any, out: Any, start: Any) -> None:
    """Unpack groups of eight numbers of some bits each; after the last there are ``PADDING`` bytes more."""
    bits = np.uint64(width)
    mask = (np.uint64(1) << bits) - np.uint64(1)
    seven, three, eight = np.uint64(7), np.uint64(3), np.uint64(8)
    first, row = np.uint64(place), np.uint64(start)
    # Places are unsigned: for others, numba looks whether they count from the end, and the loops are not vectorised.
    if width <= 8:
        for _ in range(groups):
            word = _word(data, first)
            for part in range(8):
                out[row + np.uint64(part)] = np.int32((word >> (bits * np.uint64(part))) & mask)
            first += bits
            row += eight
    elif width <= 14:
        half = bits << np.uint64(2)
        for _ in range(groups):
            word = _word(data, first)
            second = _word(data, first + (half >> three)) >> (half & seven)
            for part in range(4):
                out[row + np.uint64(part)] = np.int32((word >> (bits * np.uint64(part))) & mask)
            for part in range(4):
                out[row + np.uint64(4 + part)] = np.int32((second >> (bits * np.uint64(part))) & mask)
            first += bits
            row += eight
    else:
        for _ in range(groups):
            for part in range(8):
                bit = bits * np.uint64(part)
                out[row + np.uint64(part)] = np.int32((_word(data, first + (bit >> three)) >> (bit & seven)) & mask)
            first += bits
            row += eight


@_compiled(numba.int32(_CODES, _INT, _INT))
def _largest(values: Any, start: Any, stop: Any) -> Any:
    """Return the largest of some numbers, none of which is negative."""
    largest = np.int32(0)
    for row in range(np.uint64(start), np.uint64(stop)):
        value = values[row]
        largest = value if value > largest else largest
    return largest


@_compiled(_INT(_BYTES, _INT, _INT, _INT, _INT, _CODES, _INT))
def run_lengths(data: Any, place: Any, end: Any, width: Any, count: Any, out: Any, start: Any) -> Any:
    """Decode numbers of up to 31 bits that are in runs, of one value or packed side by side.

    Parameters
    ----------
    data : array of uint8
        With ``PADDING`` bytes after ``end`` that may be read.
    place, end : int
        Where the runs are.
    width : int
        Bits of a number.
    count : int
        How many are wanted.
    out : array of int32
        Receives them.
    start : int
        From here on.

    Returns
    -------
    int
        The largest number; -1 where the runs are damaged or too few.
    """
    if width < 0 or width > 31 or start < 0 or start + count > len(out):
        return -1
    value_bytes = (width + 7) >> 3
    done = np.int64(0)
    last_group = np.zeros(8, np.int32)
    largest = np.int32(0)
    while done < count:
        header, place = _varint(data, place, end)
        if place < 0:
            return -1
        length = header >> 1
        if header & 1:
            if length > (1 << 40):
                return -1
            wanted = min(length * 8, count - done)
            if wanted == 0 or ((wanted * width + 7) >> 3) > end - place:
                return -1
            whole = wanted >> 3
            _unpack(data, place, width, whole, out, start + done)
            rest = wanted & 7
            if rest:
                _unpack(data, place + whole * width, width, 1, last_group, 0)
                for part in range(rest):
                    out[start + done + whole * 8 + part] = last_group[part]
            place += length * width
            # A packed run may be cut off after the last value that is wanted.
            place = min(place, end)
            largest = max(largest, _largest(out, start + done, start + done + wanted))
            done += wanted
        else:
            if length == 0 or value_bytes > end - place:
                return -1
            value = np.int64(0)
            for part in range(value_bytes):
                value |= np.int64(data[place + part]) << (8 * part)
            if value > 0x7FFFFFFF:
                return -1
            place += value_bytes
            wanted = min(length, count - done)
            for row in range(np.uint64(start + done), np.uint64(start + done + wanted)):
                out[row] = np.int32(value)
            largest = max(largest, np.int32(value))
            done += wanted
    return np.int64(largest)


@_compiled(_INT(_BYTES, numba.int64[:, ::1], numba.boolean, _CODES))
def encoded_pages(data: Any, pages: Any, levels: Any, out: Any) -> Any:
    """Decode the codes of pages that have no NULL.

    Parameters
    ----------
    data : array of uint8
        With ``PADDING`` bytes after each page that may be read.
    pages : array of int64
        For each page where it starts, where it ends, and its rows.
    levels : bool
        A page begins with levels that say which rows are NULL, and before them their length.
    out : array of int32
        Receives the codes of all pages.

    Returns
    -------
    int
        The largest code; -1 where a page is damaged, -2 where there are NULLs, or it would take longer to know.
    """
    largest = np.int64(0)
    done = np.int64(0)
    for number in range(len(pages)):
        place, end, count = pages[number, 0], pages[number, 1], pages[number, 2]
        if levels:
            if end - place < 4:
                return -1
            size = np.int64(_word(data, np.uint64(place)) & np.uint64(0xFFFFFFFF))
            place += 4
            if size > end - place:
                return -1
            header, value = _varint(data, place, place + size)
            if value < 0 or value >= place + size:
                return -1
            if header & 1 or (header >> 1) < count or data[value] != 1:
                return -2
            place += size
        if place >= end:
            return -1
        found = run_lengths(data, place + 1, end, np.int64(data[place]), count, out, done)
        if found < 0:
            return -1
        largest = max(largest, found)
        done += count
    return largest


@_compiled(_INT(_BYTES, _INT, _INT, _INT, numba.int32[::1]))
def text_offsets(data: Any, place: Any, end: Any, count: Any, offsets: Any) -> Any:
    """Find strings that follow each other, each after four bytes of length.

    Returns
    -------
    int
        The bytes of all strings together, with ``offsets`` filled in; -1 where they do not fit.
    """
    total = np.int64(0)
    for number in range(count):
        offsets[number] = total
        if end - place < 4:
            return -1
        size = np.int64(_word(data, np.uint64(place)) & np.uint64(0xFFFFFFFF))
        place += 4
        if size > end - place:
            return -1
        place += size
        total += size
    offsets[count] = total
    return total


@_compiled(numba.void(_BYTES, _INT, _INT, numba.int32[::1], _BYTES))
def copy_texts(data: Any, place: Any, count: Any, offsets: Any, out: Any) -> None:
    """Copy the strings that ``text_offsets`` has found."""
    for number in range(count):
        place += 4
        size = offsets[number + 1] - offsets[number]
        for part in range(size):
            out[offsets[number] + part] = data[place + part]
        place += size


# --- choosing and gathering ----------------------------------------------------------------------------------------


@_compiled(_INT(numba.boolean[::1], _CODES, _CODES))
def rows_where(wanted: Any, codes: Any, rows: Any) -> Any:
    """Write the rows whose code is wanted, in order; return how many. ``rows`` has one place more than ``codes``."""
    found = np.uint64(0)
    for row in range(len(codes)):
        rows[found] = row
        found += np.uint64(wanted[np.uint64(codes[row])])
    return np.int64(found)


@_compiled(_INT(numba.boolean[::1], _CODES, _CODES, _INT))
def keep_where(wanted: Any, codes: Any, rows: Any, count: Any) -> Any:
    """Keep those of the first ``count`` rows whose code is wanted; return how many."""
    found = np.uint64(0)
    for number in range(np.uint64(count)):
        row = rows[number]
        rows[found] = row
        found += np.uint64(wanted[np.uint64(codes[np.uint64(row)])])
    return np.int64(found)


@_compiled(*(numba.void(width[::1], _CODES, width[::1]) for width in _WIDTHS))
def gather(table: Any, codes: Any, out: Any) -> None:
    """Write the table's value of each code; codes are not negative."""
    for row in range(len(codes)):
        out[row] = table[np.uint64(codes[row])]


@_compiled(*(numba.void(width[::1], _CODES, _CODES, width[::1]) for width in _WIDTHS))
def gather_rows(table: Any, codes: Any, rows: Any, out: Any) -> None:
    """Write the table's value of the code of some rows."""
    for number in range(len(rows)):
        out[number] = table[np.uint64(codes[np.uint64(rows[number])])]


@_compiled(numba.void(_CODES, numba.boolean[::1], _CODES))
def spread(dense: Any, valid: Any, out: Any) -> None:
    """Give the rows that have a value theirs, in order, and the others 0."""
    number = np.uint64(0)
    for row in range(len(out)):
        if valid[row]:
            out[row] = dense[number]
            number += np.uint64(1)
        else:
            out[row] = 0


# --- lookups -------------------------------------------------------------------------------------------------------


@_compiled(numba.void(_read_only(numba.uint64), _read_only(numba.int32), _read_only(numba.int64), _CODES))
def find_in_bitmap(words: Any, before: Any, codes: Any, out: Any) -> None:
    """Write how many bits are set before the bit of each code, and -1 for codes whose bit is not set."""
    one = np.uint64(1)
    for row in range(len(codes)):
        code = np.uint64(codes[row])
        place = code >> np.uint64(6)
        if place >= np.uint64(len(words)):  # a file's bounds of a column may be wrong
            out[row] = np.int32(-1)
            continue
        bit = one << (code & np.uint64(63))
        word = words[place]
        found = before[place] + np.int32(_ones(word & (bit - one)))
        out[row] = found if word & bit else np.int32(-1)


@_compiled(numba.void(_read_only(numba.int64), _read_only(numba.int32), numba.int64, _read_only(numba.int64), _CODES))
def find_in_buckets(known: Any, starts: Any, shift: Any, codes: Any, out: Any) -> None:
    """Write the position of each code among sorted ones, and -1 for those that are not there.

    ``starts`` says where the codes of each range of ``2 ** shift`` start; its last entry is their number.
    """
    for row in range(len(codes)):
        code = codes[row]
        bucket = np.uint64(code) >> np.uint64(shift)
        found = np.int32(-1)
        if bucket + np.uint64(1) >= np.uint64(len(starts)):  # a file's bounds of a column may be wrong
            out[row] = found
            continue
        for place in range(starts[bucket], starts[bucket + np.uint64(1)]):
            if known[np.uint64(place)] == code:
                found = np.int32(place)
                break
        out[row] = found


@_compiled(numba.void(_read_only(numba.int64), _WORDS))
def set_bits(codes: Any, words: Any) -> None:
    """Set the bit of each code."""
    for row in range(len(codes)):
        code = np.uint64(codes[row])
        words[code >> np.uint64(6)] |= np.uint64(1) << (code & np.uint64(63))


@_compiled(
    *(
        numba.void(_read_only(width), _INT, _INT, _read_only(numba.uint64), numba.boolean[::1])
        for width in (numba.int32, numba.int64)
    )
)
def bits_of(values: Any, low: Any, size: Any, words: Any, out: Any) -> None:
    """Write for each value whether the bit of its distance from ``low`` is set; bit ``size``, and all above it, is not.

    Distances wrap around as numbers of 64 bits do, where two of these differ by more: they are above ``size`` then.
    """
    last = np.uint64(size)
    for row in range(len(values)):
        code = np.uint64(np.int64(values[row]) - low)
        code = code if code < last else last
        out[row] = (words[code >> np.uint64(6)] >> (code & np.uint64(63))) & np.uint64(1) != np.uint64(0)
