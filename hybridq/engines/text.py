"""String functions, on code points."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines.column import Column, Indices, from_arrow
from hybridq.engines.comparison import from_mask_array
from hybridq.engines.constants import constant
from hybridq.engines.scan import rows_containing
from hybridq.errors import ExecutionError
from hybridq.plan.expressions import Call

ANY_TEXT, ANY_CHARACTER = object(), object()
DEFAULT_ESCAPE = "\\"


def text_result(array: pa.Array, arguments: list[Column], data_type: pa.DataType) -> Column:
    """Return a computed string column, constant if all arguments are."""
    if all(argument.constant for argument in arguments):
        return Column(data_type, array=array, constant=True)
    return Column(data_type, array=array)


def any_null(arguments: list[Column]) -> bool:
    """Tell whether an argument is the constant NULL."""
    return any(argument.is_null_constant() for argument in arguments)


def _texts(arguments: list[Column]) -> list[list[Any]]:
    """Return arguments as equally long lists of Python values."""
    rows = max((argument.rows for argument in arguments if not argument.constant), default=1)
    lists = []
    for argument in arguments:
        array = argument.plain() if not argument.is_numbers else None
        values = array.to_pylist() if array is not None else _python_numbers(argument)
        lists.append(values * rows if argument.constant else values)
    return lists


def _python_numbers(column: Column) -> list[Any]:
    values = np.atleast_1d(column.numbers)
    valid = np.ones(values.shape, np.bool_) if column.valid is None else np.atleast_1d(column.valid)
    return [value if known else None for value, known in zip(values.tolist(), valid.tolist(), strict=True)]


def row_by_row(
    function: Callable[..., Any], call: Call, arguments: list[Column], arrow_type: pa.DataType | None = None
) -> pa.Array:
    """Apply a Python function to rows without a NULL."""
    rows = zip(*_texts(arguments), strict=True)
    results = [None if any(value is None for value in row) else function(*row) for row in rows]
    return pa.array(results, arrow_type or call.type)


# --- LIKE ----------------------------------------------------------------------------------------------------------


def parse_pattern(pattern: str, escape: str) -> list[object]:
    r"""Split a LIKE pattern into literal strings, ``ANY_TEXT`` and ``ANY_CHARACTER``.

    Raises
    ------
    ExecutionError
        The pattern ends in its escape character.

    >>> [part if isinstance(part, str) else "*" for part in parse_pattern(r"a\%b%", "\\")]
    ['a%b', '*']
    """
    parts: list[object] = []
    literal: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            following = next(characters, None)
            if following is None:
                raise ExecutionError(f"LIKE pattern {pattern!r} ends in its escape character {escape!r}")
            literal.append(following)
        elif character in "%_":
            if literal:
                parts.append("".join(literal))
                literal = []
            if character == "_":
                parts.append(ANY_CHARACTER)
            elif not parts or parts[-1] is not ANY_TEXT:
                parts.append(ANY_TEXT)
        else:
            literal.append(character)
    if literal:
        parts.append("".join(literal))
    return parts


def _regex(parts: list[object], quote: Callable[[str], str], end: str = "$") -> str:
    """Return the pattern as a regular expression to search for; unanchored where any text may come before or after."""
    start = "" if parts and parts[0] is ANY_TEXT else "^"
    end = "" if parts and parts[-1] is ANY_TEXT else end
    middle = parts[not start : len(parts) - (not end)]
    pieces = [".*" if part is ANY_TEXT else "." if part is ANY_CHARACTER else quote(str(part)) for part in middle]
    return start + "".join(pieces) + end


def _quote(literal: str) -> str:
    """Quote for RE2, which takes any escaped ASCII punctuation."""
    return "".join("\\" + c if ord(c) < 128 and not c.isalnum() and c != "\0" else "\\x00" if c == "\0" else c
                   for c in literal)  # fmt: skip


def match_pattern(array: pa.Array, parts: list[object], ignore_case: bool = False) -> pa.Array:
    """Match every string of an Arrow array with a parsed LIKE pattern; NULL where the string is NULL."""
    shape = tuple("text" if isinstance(part, str) else part for part in parts)
    if shape == (ANY_TEXT,):
        return pc.if_else(pc.is_valid(array), True, pa.scalar(None, pa.bool_()))
    if not ignore_case:
        if not parts:
            return pc.equal(array, pa.scalar("", array.type))
        if shape == ("text",):
            return pc.equal(array, pa.scalar(parts[0], array.type))
        if shape == ("text", ANY_TEXT):
            return pc.starts_with(array, pattern=parts[0])
        if shape == (ANY_TEXT, "text"):
            return pc.ends_with(array, pattern=parts[1])
        if shape == (ANY_TEXT, "text", ANY_TEXT):
            return _at_rows(array, rows_containing(array, str(parts[1])))
    regex = "(?s)" + _regex(parts, _quote)
    literals = [part for part in parts if isinstance(part, str)]
    if ignore_case or not literals:
        return pc.match_substring_regex(array, pattern=regex, ignore_case=ignore_case)
    # Few rows have the longest literal; the slow regular expression sees those only.
    rows = rows_containing(array, max(literals, key=len))
    if len(rows) > len(array) // 2:
        return pc.match_substring_regex(array, pattern=regex)
    found = pc.match_substring_regex(array.take(pa.array(rows)), pattern=regex).to_numpy(zero_copy_only=False)
    return _at_rows(array, rows[found.astype(np.bool_)])


def _at_rows(array: pa.Array, rows: Indices) -> pa.Array:
    """Return true at some rows, NULL where the array is NULL, else false."""
    matched = np.zeros(len(array), np.bool_)
    matched[rows] = True
    return pa.array(matched, mask=None if array.null_count == 0 else ~pc.is_valid(array).to_numpy(zero_copy_only=False))


def _like(call: Call, arguments: list[Column]) -> Column:
    if any_null(arguments):
        return constant(call.type, None)
    column, pattern = arguments
    ignore_case = call.function == "ilike"
    escape = call.options[1] if call.options[:1] == ("escape",) else DEFAULT_ESCAPE
    if pattern.constant:
        parts = parse_pattern(pattern.plain()[0].as_py(), escape)
        array = match_pattern(column.plain(), parts, ignore_case)
        return from_mask_array(array, column.constant)
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    compiled: dict[str, re.Pattern[str]] = {}

    def matches(text: str, wanted: str) -> bool:
        regex = compiled.get(wanted)
        if regex is None:
            # Python's $ also matches before a last line feed.
            source = _regex(parse_pattern(wanted, escape), re.escape, r"\Z")
            regex = compiled[wanted] = re.compile(source, flags)
        return regex.search(text) is not None

    return from_mask_array(row_by_row(matches, call, arguments))


def _starts_with(call: Call, arguments: list[Column]) -> Column:
    if any_null(arguments):
        return constant(call.type, None)
    column, prefix = arguments
    if prefix.constant:
        return from_mask_array(pc.starts_with(column.plain(), pattern=prefix.plain()[0].as_py()), column.constant)
    return from_mask_array(row_by_row(str.startswith, call, arguments))


# --- pieces and lengths --------------------------------------------------------------------------------------------


def _substring(call: Call, arguments: list[Column]) -> Column:
    """SUBSTRING(text, start[, length]): positions count characters from 1 and may lie outside of the text."""
    if any_null(arguments):
        return constant(call.type, None)
    if all(argument.constant for argument in arguments[1:]):
        start, stop = _span(*(int(argument.numbers) for argument in arguments[1:]))
        return text_result(pc.utf8_slice_codeunits(arguments[0].plain(), start, stop), arguments, call.type)

    def cut(text: str, *where: int) -> str:
        start, stop = _span(*where)
        return text[start:stop]

    return text_result(row_by_row(cut, call, arguments), arguments, call.type)


def _span(start: int, length: int | None = None) -> tuple[int, int | None]:
    """Return the 0-based start and stop of a substring.

    Raises
    ------
    ExecutionError
        The length is negative.

    >>> _span(0, 3)
    (0, 2)
    """
    if length is None:
        return max(start - 1, 0), None
    if length < 0:
        raise ExecutionError(f"substring of negative length {length}: the third argument must not be below 0")
    return max(start - 1, 0), max(start - 1 + length, 0)


def _length(call: Call, arguments: list[Column]) -> Column:
    if any_null(arguments):
        return constant(call.type, None)
    lengths = from_arrow(pc.utf8_length(arguments[0].plain()).cast(call.type))
    if arguments[0].constant:
        return constant(call.type, int(lengths.numbers[0]))
    return lengths


def _upper(call: Call, arguments: list[Column]) -> Column:
    return text_result(pc.utf8_upper(arguments[0].plain()), arguments, call.type)


def _lower(call: Call, arguments: list[Column]) -> Column:
    return text_result(pc.utf8_lower(arguments[0].plain()), arguments, call.type)


def _concat(call: Call, arguments: list[Column]) -> Column:
    """Join strings; NULL if one is."""
    if any_null(arguments):
        return constant(call.type, None)
    arrays = [argument.plain() for argument in arguments]
    if any(pa.types.is_large_string(array.type) for array in arrays):
        arrays = [array.cast(pa.large_string()) for array in arrays]
    varying = any(not argument.constant for argument in arguments)
    parts = [
        array[0] if argument.constant and varying else array for array, argument in zip(arrays, arguments, strict=True)
    ]
    separator = pa.scalar("", arrays[0].type)
    return text_result(pc.binary_join_element_wise(*parts, separator), arguments, call.type)


KERNELS: Mapping[str, Callable[[Call, list[Column]], Column]] = {
    "like": _like, "ilike": _like, "starts_with": _starts_with, "substring": _substring, "length": _length,
    "upper": _upper, "lower": _lower, "concat": _concat,
}  # fmt: skip
