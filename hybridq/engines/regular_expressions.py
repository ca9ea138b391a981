"""Regular expressions, in RE2's syntax: the one that Arrow and DuckDB use.

A pattern of RE2 takes time linear in the text. What PostgreSQL's syntax has besides, such as references back to a group
of the pattern, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines.column import Column, from_arrow
from hybridq.engines.comparison import from_mask_array
from hybridq.engines.constants import constant
from hybridq.engines.decimals import as_constant
from hybridq.engines.text import any_null, text_result
from hybridq.errors import ExecutionError, Unsupported
from hybridq.plan.expressions import Call

_GROUP = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|\((?!\?)|\(\?P?<\w+>", re.DOTALL)
"""What may hold a parenthesis that begins no group, and the beginnings of groups that are captured."""

_REFERENCE = re.compile(r"\\(.?)", re.DOTALL)


def _pattern(call: Call, pattern: str) -> str:
    """Put the call's flags before its pattern."""
    flags = "".join(call.options)
    return "(?" + "s" * ("s" in flags) + "i" * ("i" in flags) + ")" + pattern if set(flags) & {"i", "s"} else pattern


def _run(call: Call, arguments: list[Column], kernel: Callable[[pa.Array, list[str]], pa.Array]) -> pa.Array:
    """Run a kernel that takes constant patterns; where they vary, row by row."""
    column, *rest = arguments
    try:
        if all(argument.constant for argument in rest):
            return kernel(column.plain(), [argument.plain()[0].as_py() for argument in rest])
        rows = max(argument.rows for argument in arguments if not argument.constant)
        lists = [argument.expand(rows).plain() for argument in arguments]
        pieces = []
        for row in range(rows):
            texts = [values[row].as_py() for values in lists[1:]]
            known = all(text is not None for text in texts)
            pieces.append(kernel(lists[0].slice(row, 1), texts) if known else pa.nulls(1, call.type))
        return pa.concat_arrays([piece.cast(call.type) for piece in pieces]) if pieces else pa.nulls(0, call.type)
    except pa.ArrowInvalid as error:
        raise ExecutionError(f"not a regular expression in {call}: {error}") from error


def _matches(call: Call, arguments: list[Column]) -> Column:
    if any_null(arguments):
        return constant(call.type, None)
    found = _run(call, arguments, lambda array, rest: pc.match_substring_regex(array, pattern=_pattern(call, rest[0])))
    return from_mask_array(found, all(argument.constant for argument in arguments))


def _count(call: Call, arguments: list[Column]) -> Column:
    if any_null(arguments):
        return constant(call.type, None)

    def counted(array: pa.Array, rest: list[str]) -> pa.Array:
        return pc.count_substring_regex(array, pattern=_pattern(call, rest[0])).cast(call.type)

    found = from_arrow(_run(call, arguments, counted))
    return as_constant(found) if all(argument.constant for argument in arguments) else found


def _check_replacement(call: Call, replacement: str) -> None:
    for match in _REFERENCE.finditer(replacement):
        if match[1] not in "0123456789\\" or not match[1]:
            raise Unsupported(f"{match[0]} in the replacement of {call}: \\0 to \\9 and \\\\ are supported")


def _replace(call: Call, arguments: list[Column]) -> Column:
    if any_null(arguments):
        return constant(call.type, None)
    most: Any = None if "g" in "".join(call.options) else 1

    def replaced(array: pa.Array, rest: list[str]) -> pa.Array:
        pattern, replacement = rest
        _check_replacement(call, replacement)
        return pc.replace_substring_regex(
            array, pattern=_pattern(call, pattern), replacement=replacement, max_replacements=most
        )

    return text_result(_run(call, arguments, replaced), arguments, call.type)


def named_groups(pattern: str) -> tuple[str, int]:
    r"""Return a pattern whose captured groups have the names g1, g2 and so on, and how many there are.

    >>> named_groups(r"(a)(?:b)\([(]")
    ('(?P<g1>a)(?:b)\\([(]', 1)
    """
    count = 0

    def named(match: re.Match[str]) -> str:
        nonlocal count
        if not match[0].startswith("("):
            return match[0]
        count += 1
        return f"(?P<g{count}>"

    changed = _GROUP.sub(named, pattern)
    return changed, count


def _groups(call: Call, arguments: list[Column]) -> Column:
    """Return what the groups of the first match matched, or all of it where there are none; NULL: no match."""
    if any_null(arguments):
        return constant(call.type, None)

    def found(array: pa.Array, rest: list[str]) -> pa.Array:
        pattern, count = named_groups(rest[0])
        pattern = _pattern(call, pattern if count else f"(?P<g1>{pattern})")
        texts, spans = (find(array, pattern=pattern) for find in (pc.extract_regex, pc.extract_regex_span))
        count = max(count, 1)
        # A group that took no part has no span, and an empty text.
        parts = [
            pc.if_else(spans.field(group).is_valid(), texts.field(group), pa.scalar(None, array.type))
            for group in range(count)
        ]
        rows = len(array)
        order = (np.arange(count) * rows + np.arange(rows)[:, None]).ravel()
        items = pa.concat_arrays(parts).take(pa.array(order)).cast(pa.string())
        offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * count)
        return pa.ListArray.from_arrays(offsets, items, mask=pc.invert(texts.is_valid()))

    found_column = from_arrow(_run(call, arguments, found))
    return as_constant(found_column) if all(argument.constant for argument in arguments) else found_column


KERNELS: Mapping[str, Callable[[Call, list[Column]], Column]] = {
    "regexp_like": _matches, "regexp_replace": _replace, "regexp_count": _count, "regexp_match": _groups,
}  # fmt: skip
