"""Functions that make lists: of values, of other lists, and of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines.column import Column, Indices, Mask, arrow_validity, combine_valid, concatenate, from_arrow
from hybridq.engines.constants import constant
from hybridq.engines.grouped import LONGEST_LISTS
from hybridq.engines.list_functions import sorted_places
from hybridq.engines.list_values import (
    Lists,
    codes_of,
    first_of_each,
    joined,
    lists_in,
    numbers_of,
    put_together,
    ranges,
    rows_of,
)
from hybridq.engines.text import any_null
from hybridq.errors import ExecutionError
from hybridq.plan.expressions import Call

Kernel = Callable[[Call, list[Column]], Column]


def _on_one(function: Callable[[Call, Lists], Lists]) -> Kernel:
    """Make a kernel of a function of one list."""

    def kernel(call: Call, arguments: list[Column]) -> Column:
        if any_null(arguments):
            return constant(call.type, None)
        return put_together(function(call, lists_in(arguments[0], rows_of(arguments))), call, arguments)

    return kernel


# --- of values -----------------------------------------------------------------------------------------------------


def _of_values(call: Call, arguments: list[Column]) -> Column:
    """Return a list of the arguments."""
    if not arguments:
        return Column(call.type, array=pa.array([[]], call.type), constant=True)
    rows = rows_of(arguments)
    count = len(arguments)
    values = concatenate([argument.expand(rows).contiguous() for argument in arguments])
    indices = (np.arange(count) * rows + np.arange(rows)[:, None]).ravel()
    return put_together(Lists(values.take(indices), np.full(rows, count), None), call, arguments)


def _repeated(call: Call, arguments: list[Column]) -> Column:
    """Return a list of one value, so many times."""
    rows = rows_of(arguments)
    counts, known = numbers_of(arguments[1], rows)
    lengths = _limited(np.maximum(counts, 0), call)
    items = arguments[0].expand(rows).take(np.repeat(np.arange(rows), lengths))
    return put_together(Lists(items, lengths, known), call, arguments)


def _series(call: Call, arguments: list[Column]) -> Column:
    """Return whole numbers from one to another; RANGE stops before that one."""
    if any_null(arguments):
        return constant(call.type, None)
    rows = rows_of(arguments)
    (start, valid), (stop, known) = (numbers_of(argument, rows) for argument in arguments[:2])
    step, stepped = numbers_of(arguments[2], rows) if len(arguments) > 2 else (np.ones(rows, np.int64), valid)
    valid = valid & known & stepped
    if bool((valid & (step == 0)).any()):
        raise ExecutionError(f"a step of 0 in {call}")
    step = np.where(valid, step, 1)
    # Python's integers do not wrap, which the difference of two ends may.
    last = stop.astype(object) - (np.sign(step) if call.function == "range" else 0)
    wide = (last - start.astype(object)) // step.astype(object) + 1 if rows else np.zeros(0, np.int64)
    lengths = _limited(np.where(valid, np.clip(wide, 0, LONGEST_LISTS).astype(np.int64), 0), call)
    return put_together(Lists(Column(pa.int64(), ranges(start, lengths, step)), lengths, valid), call, arguments)


def _limited(lengths: Indices, call: Call) -> Indices:
    """Check that lists are not too long before they are made."""
    if int(np.minimum(lengths, LONGEST_LISTS).sum()) >= LONGEST_LISTS:
        raise ExecutionError(f"the lists of {call} have {LONGEST_LISTS} elements or more together")
    return lengths


# --- of other lists ------------------------------------------------------------------------------------------------


def _joined(call: Call, arguments: list[Column]) -> Column:
    """Put lists one after the other; one that is NULL is left out."""
    rows = rows_of(arguments)
    return put_together(joined([lists_in(argument, rows) for argument in arguments]), call, arguments)


def _sorted(call: Call, lists: Lists) -> Lists:
    """Sort the elements: ``desc`` and ``nulls_first`` are options."""
    order = sorted_places(lists, "desc" in call.options, "nulls_first" in call.options)
    return replace(lists, items=lists.items.take(order))


def _distinct(call: Call, lists: Lists) -> Lists:
    """Keep the first of equal elements."""
    return lists.kept(first_of_each(codes_of([lists])[0]))


def _reversed(call: Call, lists: Lists) -> Lists:
    return replace(lists, items=lists.items.take(ranges(lists.starts + lists.lengths - 1, lists.lengths, -1)))


def _without_null(call: Call, lists: Lists) -> Lists:
    valid = lists.items.validity()
    return lists if valid is None else lists.kept(valid)


def _flattened(call: Call, lists: Lists) -> Lists:
    """Put the elements of the lists that a list is of one after the other."""
    inner = lists_in(lists.items, lists.items.rows)
    lengths = np.bincount(lists.owners, weights=inner.lengths, minlength=lists.rows).astype(np.int64)
    return Lists(inner.items, lengths, lists.valid)


def _set_operation(call: Call, arguments: list[Column]) -> Column:
    """Return the distinct elements that both lists have, that the first has alone, or that one of them has."""
    if any_null(arguments):
        return constant(call.type, None)
    rows = rows_of(arguments)
    left, right = (lists_in(argument, rows) for argument in arguments)
    valid = combine_valid(left.valid, right.valid)
    if call.function == "array_union":
        both = joined([left, right]).with_valid(valid)
        return put_together(_emptied(both.kept(first_of_each(codes_of([both])[0])), valid), call, arguments)
    own, others = codes_of([left, right])
    there = np.isin(own, others)
    kept = first_of_each(own) & (there if call.function == "array_intersect" else ~there)
    return put_together(_emptied(left.kept(kept).with_valid(valid), valid), call, arguments)


def _emptied(lists: Lists, valid: Mask | None) -> Lists:
    """Take the elements out of lists that are NULL."""
    return lists if valid is None or bool(valid.all()) else lists.kept(valid[lists.owners])


def _slice(call: Call, arguments: list[Column]) -> Column:
    """Return the elements from one place to another; negative ones count from the end, and a step may skip some."""
    if any_null(arguments):
        return constant(call.type, None)
    rows = rows_of(arguments)
    lists = lists_in(arguments[0], rows)
    (start, known), (stop, also) = (numbers_of(argument, rows) for argument in arguments[1:3])
    valid = known & also
    step = np.ones(rows, np.int64)
    if len(arguments) > 3:
        step, stepped = numbers_of(arguments[3], rows)
        valid = valid & stepped
        if bool((valid & (step < 1)).any()):
            raise ExecutionError(f"a step below 1 in {call}")
        step = np.where(valid, step, 1)
    start = np.clip(np.where(start < 0, lists.lengths + start + 1, start), 1, lists.lengths + 1)
    stop = np.clip(np.where(stop < 0, lists.lengths + stop + 1, stop), 0, lists.lengths)
    lengths = np.where(valid, np.maximum((stop - start) // step + 1, 0), 0)
    places = ranges(lists.starts + start - 1, lengths, step)
    return put_together(lists.chosen(places, lengths).with_valid(combine_valid(lists.valid, valid)), call, arguments)


def _resized(call: Call, arguments: list[Column]) -> Column:
    """Cut a list to a length, or fill it up to it, with NULL or a value."""
    if any_null(arguments[:2]):
        return constant(call.type, None)
    rows = rows_of(arguments)
    lists = lists_in(arguments[0], rows)
    wanted, known = numbers_of(arguments[1], rows)
    if bool((known & (wanted < 0)).any()):
        raise ExecutionError(f"a length below 0 in {call}")
    valid = combine_valid(lists.valid, known)
    lengths = _limited(wanted if valid is None else np.where(valid, wanted, 0), call)
    places = ranges(np.zeros(rows, np.int64), lengths)
    owners = np.repeat(np.arange(rows), lengths)
    inside = places < lists.lengths[owners]
    items, beyond = lists.items, np.full(len(owners), -1)
    if len(arguments) > 2:
        items = concatenate([items.contiguous(), arguments[2].expand(rows).contiguous()])
        beyond = owners + lists.items.rows
    found = items.take_padded(np.where(inside, lists.starts[owners] + places, beyond))
    return put_together(Lists(found, lengths, valid), call, arguments)


def _ordinals(lists: Lists, found: Mask) -> Indices:
    """Number the marked elements of each list from 1 on; others have the number of those before them."""
    counted: Indices = np.cumsum(found)
    before: Indices = np.concatenate([np.zeros(1, np.int64), counted])[lists.starts]
    return counted - before[lists.owners]


def _changed(call: Call, arguments: list[Column]) -> Column:
    """Remove a value from a list, or replace it: the first time it is there, the first so many times, or always."""
    if arguments[0].is_null_constant():
        return constant(call.type, None)
    rows = rows_of(arguments)
    lists = lists_in(arguments[0], rows)
    found = lists.same_as(arguments[1].expand(rows))
    replacing = call.function == "array_replace"
    counts = arguments[2 + replacing :]
    if counts:
        most, known = numbers_of(counts[0], rows)
        lists = lists.with_valid(combine_valid(lists.valid, known))
        found = found & (_ordinals(lists, found) <= most[lists.owners])
    elif "all" not in call.options:
        found = found & (_ordinals(lists, found) <= 1)
    if not replacing:
        return put_together(lists.kept(~found), call, arguments)
    items = concatenate([lists.items.contiguous(), arguments[2].expand(rows).contiguous()])
    indices = np.where(found, lists.items.rows + lists.owners, np.arange(lists.items.rows))
    return put_together(replace(lists, items=items.take(indices)), call, arguments)


# --- of texts ------------------------------------------------------------------------------------------------------


def _split(call: Call, arguments: list[Column]) -> Column:
    """Cut a text at a separator: NULL cuts at every character, and an empty one nowhere. An empty text has no part.

    Parts that are equal to the third argument are NULL.
    """
    text, separator, *rest = arguments
    if text.is_null_constant():
        return constant(call.type, None)
    rows = rows_of(arguments)
    if separator.constant and not separator.is_null_constant() and (pattern := separator.plain()[0].as_py()):
        array = text.expand(rows).plain()
        lists = lists_in(from_arrow(pc.split_pattern(array, pattern=pattern)), rows)
        empty = pc.equal(pc.binary_length(array), 0).fill_null(False).to_numpy(zero_copy_only=False)
        lists = lists.kept(~empty[lists.owners])
    else:
        pairs = zip(text.expand(rows).plain().to_pylist(), separator.expand(rows).plain().to_pylist(), strict=True)
        found = pa.array([None if each is None else _parts(each, cut) for each, cut in pairs], pa.list_(pa.string()))
        lists = Lists(from_arrow(found.flatten()), _lengths(found), arrow_validity(found))
    if rest and not rest[0].is_null_constant():
        own = rest[0].expand(rows)
        known = own.validity()
        same = lists.same_as(own) & (np.True_ if known is None else known[lists.owners])
        places = np.arange(lists.items.rows)
        lists = replace(lists, items=lists.items.take_padded(np.where(same, -1, places)))
    return put_together(lists, call, arguments)


def _lengths(lists: pa.Array) -> Indices:
    found: Indices = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _parts(text: str, separator: str | None) -> list[str]:
    if not text:
        return []
    if separator is None:
        return list(text)
    return text.split(separator) if separator else [text]


KERNELS: Mapping[str, Kernel] = {
    "make_array": _of_values, "array_repeat": _repeated, "generate_series": _series, "range": _series,
    "array_concat": _joined, "array_sort": _on_one(_sorted), "array_distinct": _on_one(_distinct),
    "array_reverse": _on_one(_reversed), "array_compact": _on_one(_without_null), "flatten": _on_one(_flattened),
    "array_union": _set_operation, "array_intersect": _set_operation, "array_except": _set_operation,
    "array_slice": _slice, "array_resize": _resized, "array_remove": _changed, "array_replace": _changed,
    "string_to_array": _split,
}  # fmt: skip

TAKES_NULL = frozenset(
    {"make_array", "array_repeat", "array_concat", "array_resize", "array_remove", "array_replace", "string_to_array"}
)
"""Functions that may give another value than NULL for a NULL among their arguments."""
