"""The little of Thrift's compact protocol that Parquet's page headers and footers need.

A struct is a run of fields, each with a byte of type and distance from the field before it, ended by a zero byte;
integers are zigzag varints of seven bits a byte (https://github.com/apache/thrift, ``thrift-compact-protocol.md``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(13)
"""Types of fields."""

LONGEST_SHIFT = 63

Field = tuple[int, int, bytes]
"""A field's number, its type, and its value as it is written."""


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Return the unsigned number at a place, and the place after it.

    >>> varint(bytes([0xAC, 0x02]), 0)
    (300, 2)
    """
    value = data[place]
    place += 1
    if value < 128:
        return value, place
    value &= 127
    shift = 7
    while shift <= LONGEST_SHIFT:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
    raise ValueError("a number has more than 64 bits")


def integer(data: bytes, place: int) -> tuple[int, int]:
    """Return the signed number at a place, and the place after it."""
    value, place = varint(data, place)
    return (value >> 1) ^ -(value & 1), place


def field(data: bytes, place: int, last: int) -> tuple[int, int, int]:
    """Return the number and the type of the field at a place (type ``STOP`` at a struct's end), and where its value is.

    Parameters
    ----------
    data : bytes
    place : int
    last : int
        Number of the struct's field before this one; 0 if there is none.
    """
    head = data[place]
    place += 1
    kind = head & 15
    if kind == STOP:
        return 0, STOP, place
    if head >> 4:
        return last + (head >> 4), kind, place
    number, place = integer(data, place)
    return number, kind, place


def items(data: bytes, place: int) -> tuple[int, int, int]:
    """Return how many elements a list has, their type, and where the first is."""
    head = data[place]
    place += 1
    count = head >> 4
    if count == 15:
        count, place = varint(data, place)
    if count > len(data) - place:  # an element has a byte at least, unless its type is its value
        raise ValueError("a list is longer than what it is in")
    return count, head & 15, place


def skip(data: bytes, place: int, kind: int) -> int:
    """Return the place after a field's value."""
    if kind in (TRUE, FALSE):
        return place
    if kind in (I16, I32, I64):
        while data[place] >= 128:
            place += 1
        return place + 1
    if kind == BINARY:
        size, place = varint(data, place)
        return place + size
    if kind == BYTE:
        return place + 1
    if kind == DOUBLE:
        return place + 8
    if kind == STRUCT:
        return _skip_struct(data, place)
    if kind in (LIST, SET):
        count, of, place = items(data, place)
        if of == STRUCT:
            for _ in range(count):
                place = _skip_struct(data, place)
        elif of in (I16, I32, I64):
            for _ in range(count):
                while data[place] >= 128:
                    place += 1
                place += 1
        else:
            for _ in range(count):
                place = _skip_element(data, place, of)
        return place
    if kind == MAP:
        count, place = varint(data, place)
        if 2 * count > len(data) - place:
            raise ValueError("a map is longer than what it is in")
        kinds = data[place] if count else 0
        place += 1 if count else 0
        for _ in range(count):
            place = _skip_element(data, place, kinds >> 4)
            place = _skip_element(data, place, kinds & 15)
        return place
    raise ValueError(f"no Thrift type {kind}")


def _skip_struct(data: bytes, place: int) -> int:
    """Return the place after a struct. Footers are made of these, so what is frequent does without calls."""
    while True:
        head = data[place]
        place += 1
        kind = head & 15
        if kind == STOP:
            return place
        if head < 16:  # the field's number follows
            while data[place] >= 128:
                place += 1
            place += 1
        if kind in (I32, I64):
            while data[place] >= 128:
                place += 1
            place += 1
        elif kind == BINARY and data[place] < 128:
            place += 1 + data[place]
        elif kind == STRUCT:
            place = _skip_struct(data, place)
        else:
            place = skip(data, place, kind)


def _skip_element(data: bytes, place: int, kind: int) -> int:
    """Pass over an element: there, unlike in a struct, a truth value takes a byte."""
    return skip(data, place, BYTE if kind in (TRUE, FALSE) else kind)


def fields(data: bytes, place: int = 0) -> Iterator[tuple[int, int, int, int]]:
    """Go through a struct: number and type of each field, where its value begins and where it ends."""
    number = 0
    while True:
        number, kind, place = field(data, place, number)
        if kind == STOP:
            return
        end = skip(data, place, kind)
        yield number, kind, place, end
        place = end


def write_varint(value: int) -> bytes:
    """Return an unsigned number's bytes.

    >>> list(write_varint(300))
    [172, 2]
    """
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_integer(value: int) -> bytes:
    """Return a signed number's bytes."""
    return write_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def write_binary(value: bytes) -> bytes:
    """Return a string's bytes."""
    return write_varint(len(value)) + value


def write_list(kind: int, elements: Sequence[bytes]) -> bytes:
    """Return a list's bytes, given those of its elements."""
    count = len(elements)
    head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + write_varint(count)
    return head + b"".join(elements)


def write_struct(fields: list[Field]) -> bytes:
    """Return a struct's bytes, given number, type and bytes of its fields, numbers ascending."""
    out, last = bytearray(), 0
    for number, kind, value in fields:
        step = number - last
        out += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + write_integer(number)
        out += value
        last = number
    out.append(STOP)
    return bytes(out)
