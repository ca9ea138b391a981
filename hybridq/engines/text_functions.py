"""String functions that take text apart or make new text, on code points."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines.column import Column, arrow_validity, from_arrow, take_array
from hybridq.engines.comparison import from_mask_array
from hybridq.engines.constants import constant
from hybridq.engines.decimals import as_constant
from hybridq.engines.text import any_null, row_by_row, text_result
from hybridq.errors import ExecutionError
from hybridq.plan.expressions import Call

Kernel = Callable[[Call, list[Column]], Column]

_WORD = re.compile(r"[^\W_]+")
HIGHEST_CODE_POINT = 0x10FFFF


def each_value(function: Callable[..., Any], call: Call, arguments: list[Column]) -> Column:
    """Apply a Python function to rows without a NULL, once for each distinct string where only one argument varies."""
    varying = [position for position, argument in enumerate(arguments) if not argument.constant]
    if len(varying) == 1 and arguments[varying[0]].array is not None:
        place = varying[0]
        codes = arguments[place].plain().dictionary_encode()
        inner = list(arguments)
        inner[place] = Column(arguments[place].type, array=codes.dictionary)
        values = row_by_row(function, call, inner)
        found = from_arrow(take_array(values, codes.indices.fill_null(0).to_numpy(), ~_valid(codes.indices)))
    else:
        found = from_arrow(row_by_row(function, call, arguments))
    return found if varying else as_constant(found)


def _valid(array: pa.Array) -> Any:
    valid = arrow_validity(array)
    return np.ones(len(array), np.bool_) if valid is None else valid


def _python(function: Callable[..., Any]) -> Kernel:
    """Make a kernel of a Python function."""

    def kernel(call: Call, arguments: list[Column]) -> Column:
        if any_null(arguments):
            return constant(call.type, None)
        return each_value(function, call, arguments)

    return kernel


def _number(column: Column) -> int:
    return int(column.numbers)


def _text(column: Column) -> str:
    return str(column.plain()[0].as_py())


def _rest_constant(arguments: list[Column]) -> bool:
    return all(argument.constant for argument in arguments[1:])


# --- pieces --------------------------------------------------------------------------------------------------------


def _left_of(text: str, count: int) -> str:
    return text[:count] if count else ""


def _right_of(text: str, count: int) -> str:
    return text[-count:] if count else ""


def _left(call: Call, arguments: list[Column]) -> Column:
    if any_null(arguments):
        return constant(call.type, None)
    if not _rest_constant(arguments):
        return each_value(_left_of, call, arguments)
    count = _number(arguments[1])
    array = arguments[0].plain()
    return text_result(pc.utf8_slice_codeunits(array, 0, count), arguments, call.type)


def _right(call: Call, arguments: list[Column]) -> Column:
    if any_null(arguments):
        return constant(call.type, None)
    if not _rest_constant(arguments):
        return each_value(_right_of, call, arguments)
    count = _number(arguments[1])
    array = arguments[0].plain()
    cut = pc.utf8_slice_codeunits(array, -count, None) if count else pc.utf8_slice_codeunits(array, 0, 0)
    return text_result(cut, arguments, call.type)


def split_part_of(text: str, separator: str, number: int) -> str:
    """Return a part of a text, counted from 1 or, if negative, from the end; an empty one where there is none.

    >>> split_part_of("a,b,c", ",", -1), split_part_of("a,b,c", ",", 4), split_part_of("abc", "", 1)
    ('c', '', 'abc')
    """
    parts = text.split(separator) if separator else [text]
    position = number - 1 if number > 0 else number
    return parts[position] if -len(parts) <= position < len(parts) else ""


def _split_part(call: Call, arguments: list[Column]) -> Column:
    if any_null(arguments):
        return constant(call.type, None)
    numbers = np.atleast_1d(arguments[2].numbers)
    known = np.atleast_1d(True if arguments[2].valid is None else arguments[2].valid)
    if np.any((numbers == 0) & known):
        raise ExecutionError(f"part 0 of a text in {call}: parts are counted from 1")
    if not _rest_constant(arguments) or not _text(arguments[1]) or _number(arguments[2]) < 0:
        return each_value(split_part_of, call, arguments)
    array, number = arguments[0].plain(), _number(arguments[2])
    parts = pc.split_pattern(array, pattern=_text(arguments[1]), max_splits=number)
    if number > 2**31 - 2:
        return each_value(split_part_of, call, arguments)
    there = pc.list_value_length(parts).fill_null(0).to_numpy() >= number
    offsets = parts.offsets.to_numpy()[:-1].astype(np.int64)
    found = take_array(parts.values, np.where(there, offsets + number - 1, 0), ~there)
    empty = pa.scalar("", array.type)
    return text_result(pc.if_else(pc.is_valid(array), pc.fill_null(found, empty), None), arguments, call.type)


def _strpos(call: Call, arguments: list[Column]) -> Column:
    """Return where a text begins in another, counted in characters from 1; 0: nowhere."""
    if any_null(arguments):
        return constant(call.type, None)
    column, part = arguments
    array = column.plain()
    if part.constant and pc.all(pc.string_is_ascii(array), min_count=0).as_py() is not False:
        found = from_arrow(pc.add(pc.find_substring(array, pattern=_text(part)), 1).cast(call.type))
        return as_constant(found) if column.constant else found
    return each_value(lambda text, wanted: text.find(wanted) + 1, call, arguments)


# --- changed text --------------------------------------------------------------------------------------------------

_TRIMS: Mapping[str, Callable[..., Any]] = {
    "trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim,
}  # fmt: skip
_STRIPS: Mapping[str, Callable[[str, str], str]] = {
    "trim": lambda text, characters: text.strip(characters),
    "ltrim": lambda text, characters: text.lstrip(characters),
    "rtrim": lambda text, characters: text.rstrip(characters),
}


def _trim(call: Call, arguments: list[Column]) -> Column:
    """Remove spaces, or any of the characters given, from the ends."""
    if any_null(arguments):
        return constant(call.type, None)
    if not _rest_constant(arguments):
        return each_value(_STRIPS[call.function], call, arguments)
    characters = _text(arguments[1]) if len(arguments) > 1 else " "
    array = arguments[0].plain()
    return text_result(
        _TRIMS[call.function](array, characters=characters) if characters else array, arguments, call.type
    )


def padding(text: str, length: int, fill: str) -> str:
    """Return what a text lacks to a length, made of repeated ``fill``."""
    missing = max(length - len(text), 0)
    return (fill * (missing // len(fill) + 1))[:missing] if fill else ""


def _pad(call: Call, arguments: list[Column]) -> Column:
    """Fill a text up to a length (with spaces by default), or cut it to that length."""
    if any_null(arguments):
        return constant(call.type, None)
    at_left = call.function == "lpad"

    def padded(text: str, length: int, fill: str = " ") -> str:
        kept = text[: max(length, 0)]
        return padding(text, length, fill) + kept if at_left else kept + padding(text, length, fill)

    fill = (_text(arguments[2]) if len(arguments) > 2 else " ") if _rest_constant(arguments) else ""
    if len(fill) != 1:
        return each_value(padded, call, arguments)
    length = max(_number(arguments[1]), 0)
    pad = pc.utf8_lpad if at_left else pc.utf8_rpad
    array = pad(arguments[0].plain(), width=length, padding=fill)
    return text_result(pc.utf8_slice_codeunits(array, 0, length), arguments, call.type)


def _replace(call: Call, arguments: list[Column]) -> Column:
    if any_null(arguments):
        return constant(call.type, None)
    if not _rest_constant(arguments):
        return each_value(lambda text, old, new: text.replace(old, new) if old else text, call, arguments)
    array, old, new = arguments[0].plain(), _text(arguments[1]), _text(arguments[2])
    changed = pc.replace_substring(array, pattern=old, replacement=new) if old else array
    return text_result(changed, arguments, call.type)


def _reverse(call: Call, arguments: list[Column]) -> Column:
    return text_result(pc.utf8_reverse(arguments[0].plain()), arguments, call.type)


def _repeat(call: Call, arguments: list[Column]) -> Column:
    if any_null(arguments):
        return constant(call.type, None)
    if not _rest_constant(arguments):
        return each_value(lambda text, count: text * max(count, 0), call, arguments)
    return text_result(pc.binary_repeat(arguments[0].plain(), max(_number(arguments[1]), 0)), arguments, call.type)


def _translated(text: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for position, character in enumerate(old):
        table.setdefault(ord(character), new[position] if position < len(new) else None)
    return text.translate(table)


def _capitals(text: str) -> str:
    """Put each word, a run of letters and digits, in lower case with a first capital."""
    return _WORD.sub(lambda match: _title(match[0]), text)


def _title(word: str) -> str:
    first, rest = word[0].upper(), word[1:].lower()
    # A letter whose capital is several letters stays as it is.
    return (first if len(first) == 1 else word[0]) + rest


def _concat_separated(call: Call, arguments: list[Column]) -> Column:
    """Join the strings that are not NULL, a separator between them."""
    if arguments[0].is_null_constant():
        return constant(call.type, None)
    varying = any(not argument.constant for argument in arguments)
    arrays = [argument.plain() for argument in arguments]
    if any(pa.types.is_large_string(array.type) for array in arrays):
        arrays = [array.cast(pa.large_string()) for array in arrays]
    separator, *parts = (
        array[0] if argument.constant and varying else array for array, argument in zip(arrays, arguments, strict=True)
    )
    # Arrow leaves out rows in which there is nothing to join.
    nothing = reduce(pc.and_, map(pc.is_null, parts))
    parts[0] = pc.if_else(nothing, pa.scalar("", arrays[0].type), parts[0])
    joined = pc.binary_join_element_wise(*parts, separator, null_handling="skip")
    return text_result(joined, arguments, call.type)


# --- numbers from text and text from numbers -----------------------------------------------------------------------


def _bytes(call: Call, arguments: list[Column]) -> Column:
    (column,) = arguments
    if column.is_null_constant():
        return constant(call.type, None)
    counts = pc.binary_length(column.plain())
    found = from_arrow((pc.multiply(counts, 8) if call.function == "bit_length" else counts).cast(call.type))
    return as_constant(found) if column.constant else found


def _character(code: int) -> str:
    if not 0 < code <= HIGHEST_CODE_POINT or 0xD800 <= code < 0xE000:
        raise ExecutionError(f"chr({code}): there is no such character")
    return chr(code)


def _hexadecimal(number: int) -> str:
    """Return a number in base 16, negative ones in 64 bits."""
    return f"{number % 2**64:x}"


def _place_in_set(text: str, listed: str) -> int:
    """Return which part of a text with commas a text is, from 1 on; 0: none."""
    parts = listed.split(",") if listed else []
    return parts.index(text) + 1 if text in parts else 0


def _up_to(text: str, separator: str, count: int) -> str:
    """Return a text up to the separator of that number, or what is after it, counted from the end.

    >>> _up_to("a.b.c", ".", 2), _up_to("a.b.c", ".", -2), _up_to("a.b.c", ".", 9), _up_to("abc", "", 1)
    ('a.b', 'b.c', 'a.b.c', '')
    """
    if not separator or not count:
        return ""
    parts = text.split(separator)
    return separator.join(parts[:count] if count > 0 else parts[count:])


def _search(call: Call, arguments: list[Column]) -> Column:
    """CONTAINS and ENDS_WITH."""
    if any_null(arguments):
        return constant(call.type, None)
    column, part = arguments
    if part.constant:
        find = pc.match_substring if call.function == "contains" else pc.ends_with
        return from_mask_array(find(column.plain(), pattern=_text(part)), column.constant)
    test = str.__contains__ if call.function == "contains" else str.endswith
    return from_mask_array(row_by_row(test, call, arguments))


KERNELS: Mapping[str, Kernel] = {
    "left": _left, "right": _right, "split_part": _split_part, "strpos": _strpos,
    "trim": _trim, "ltrim": _trim, "rtrim": _trim, "lpad": _pad, "rpad": _pad,
    "replace": _replace, "reverse": _reverse, "repeat": _repeat, "translate": _python(_translated),
    "initcap": _python(_capitals), "concat_ws": _concat_separated,
    "octet_length": _bytes, "bit_length": _bytes, "contains": _search, "ends_with": _search,
    "ascii": _python(lambda text: ord(text[0]) if text else 0), "chr": _python(_character),
    "to_hex": _python(_hexadecimal), "find_in_set": _python(_place_in_set), "substr_index": _python(_up_to),
}  # fmt: skip
