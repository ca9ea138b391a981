"""Functions that ask something of lists and structs: how long lists are, what they have, and single values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines import casting
from hybridq.engines.column import Column, Indices, Mask, from_arrow, to_arrow
from hybridq.engines.comparison import truth
from hybridq.engines.constants import constant
from hybridq.engines.list_values import Lists, codes_of, finished, lists_in, numbers_of, put_together, rows_of
from hybridq.engines.ranks import ascending
from hybridq.engines.text import any_null, text_result
from hybridq.plan.expressions import Call, Cast


def _known(lists: Lists) -> Mask:
    return np.ones(lists.rows, np.bool_) if lists.valid is None else lists.valid


def _length(call: Call, arguments: list[Column]) -> Column:
    """Return how many elements a list has."""
    if any_null(arguments):
        return constant(call.type, None)
    lists = lists_in(arguments[0], rows_of(arguments))
    lengths = lists.lengths.astype(call.type.to_pandas_dtype())
    return finished(Column(call.type, lengths, lists.valid), arguments)


def _element(call: Call, arguments: list[Column]) -> Column:
    """Return the value at a position from 1 on, or from the end where it is negative; NULL where there is none."""
    if any_null(arguments):
        return constant(call.type, None)
    rows = rows_of(arguments)
    lists = lists_in(arguments[0], rows)
    wanted, _ = numbers_of(arguments[1], rows)
    there = (wanted != 0) & (np.abs(wanted) <= lists.lengths)
    place = np.where(wanted > 0, wanted - 1, lists.lengths + wanted) + lists.starts
    return finished(lists.items.take_padded(np.where(there, place, -1)).with_type(call.type), arguments)


def _has(call: Call, arguments: list[Column]) -> Column:
    """Tell whether a list has a value; NULL where the list or the value is."""
    if any_null(arguments):
        return constant(call.type, None)
    rows = rows_of(arguments)
    lists, wanted = lists_in(arguments[0], rows), arguments[1].expand(rows)
    valid = wanted.validity()
    known = _known(lists) & (np.True_ if valid is None else valid)
    return finished(truth(_any(lists, lists.same_as(wanted)) & known, known), arguments)


def _any(lists: Lists, mask: Mask) -> Mask:
    """Tell which lists have an element that is marked."""
    found = np.zeros(lists.rows, np.bool_)
    found[lists.owners[mask]] = True
    return found


def _has_several(call: Call, arguments: list[Column]) -> Column:
    """Tell whether a list has any, or all, of the elements of another; a NULL among them is no element that it has."""
    if any_null(arguments):
        return constant(call.type, None)
    rows = rows_of(arguments)
    lists, wanted = (lists_in(argument, rows) for argument in arguments)
    own, others = codes_of([lists, wanted])
    valid = wanted.items.validity()
    there = np.isin(others, own) & (np.True_ if valid is None else valid)
    values = _any(wanted, there) if call.function == "array_has_any" else ~_any(wanted, ~there)
    known = _known(lists) & _known(wanted)
    return finished(truth(values & known, known), arguments)


def _position(call: Call, arguments: list[Column]) -> Column:
    """Return where a list has a value for the first time, from 1 on, perhaps not before some place; NULL: nowhere."""
    if arguments[0].is_null_constant():
        return constant(call.type, None)
    rows = rows_of(arguments)
    lists = lists_in(arguments[0], rows)
    found = lists.same_as(arguments[1].expand(rows))
    if len(arguments) > 2:
        start, known = numbers_of(arguments[2], rows)
        found = found & known[lists.owners] & (lists.places >= start[lists.owners] - 1)
    position = np.zeros(rows, np.int64)
    places = np.flatnonzero(found)[::-1]  # of several the first is written last
    position[lists.owners[places]] = lists.places[places] + 1
    return finished(Column(call.type, position.astype(call.type.to_pandas_dtype()), position > 0), arguments)


def _positions(call: Call, arguments: list[Column]) -> Column:
    """Return all places at which a list has a value."""
    if arguments[0].is_null_constant():
        return constant(call.type, None)
    rows = rows_of(arguments)
    lists = lists_in(arguments[0], rows)
    places = Column(pa.int64(), lists.places + 1)
    found = lists.same_as(arguments[1].expand(rows))
    return put_together(Lists(places, lists.lengths, lists.valid).kept(found), call, arguments)


def _extreme(call: Call, arguments: list[Column]) -> Column:
    """Return the greatest or the least value of a list, of those that are not NULL."""
    if any_null(arguments):
        return constant(call.type, None)
    lists = lists_in(arguments[0], rows_of(arguments))
    valid = lists.items.validity()
    lists = lists if valid is None else lists.kept(valid)
    order = sorted_places(lists, descending=call.function == "array_max", nulls_first=False)
    first = np.full(lists.rows, -1)
    filled = lists.lengths > 0
    first[filled] = order[lists.starts[filled]]
    return finished(lists.items.take_padded(first).with_type(call.type), arguments)


def sorted_places(lists: Lists, descending: bool, nulls_first: bool) -> Indices:
    """Return the order of all elements by list, and within each by value; equal ones as they are."""
    values = ascending(lists.items)[0] if lists.items.rows else np.zeros(0, np.int64)
    values = ~values if descending else values
    valid = lists.items.validity()
    if valid is None:
        return np.lexsort((values, lists.owners))
    return np.lexsort((np.where(valid, values, 0), valid if nulls_first else ~valid, lists.owners))


def _to_text(call: Call, arguments: list[Column]) -> Column:
    """Join the elements of a list as texts; one that is NULL is left out, or has a text of its own."""
    if any_null(arguments[:2]):
        return constant(call.type, None)
    rows = rows_of(arguments)
    lists = lists_in(arguments[0], rows)
    texts = casting.cast(Cast(pa.string(), call.arguments[0]), lists.items)
    valid = texts.validity()
    lists = Lists(texts, lists.lengths, lists.valid)
    if len(arguments) > 2 and valid is not None:
        own = to_arrow(arguments[2].expand(rows).take(lists.owners))
        filled = pc.coalesce(to_arrow(texts).cast(pa.string()), own.cast(pa.string()))
        lists = Lists(Column(pa.string(), array=filled), lists.lengths, lists.valid)
        valid = lists.items.validity()
    lists = lists if valid is None else lists.kept(valid)
    together = put_together(lists, Call(pa.list_(pa.string()), call.function, ()), ())
    separator = arguments[1].plain()
    found = pc.binary_join(to_arrow(together), separator[0] if arguments[1].constant else separator)
    return text_result(found, arguments, call.type)


def _field(call: Call, arguments: list[Column]) -> Column:
    """Return a field of structs; NULL where the struct is."""
    (name,) = call.options
    structs = to_arrow(arguments[0].expand(1))
    # By number: a name with a dot in front would be taken for a path.
    field = pc.struct_field(structs, [structs.type.get_field_index(name)])
    return finished(from_arrow(field).with_type(call.type), arguments)


KERNELS: Mapping[str, Callable[[Call, list[Column]], Column]] = {
    "array_length": _length, "array_element": _element, "array_has": _has,
    "array_has_any": _has_several, "array_has_all": _has_several,
    "array_position": _position, "array_positions": _positions,
    "array_max": _extreme, "array_min": _extreme, "array_to_string": _to_text,
    "get_field": _field,
}  # fmt: skip

TAKES_NULL = frozenset({"array_position", "array_positions", "array_to_string"})
"""Functions that may give another value than NULL for a NULL among their arguments."""
