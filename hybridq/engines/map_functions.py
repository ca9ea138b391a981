"""Functions of maps: their keys, their values, and the value of one key."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines.column import Column, arrow_validity, from_arrow, to_arrow
from hybridq.engines.constants import constant
from hybridq.engines.grouped import list_lengths
from hybridq.engines.list_values import Lists, finished, put_together, rows_of
from hybridq.engines.text import any_null
from hybridq.plan.expressions import Call


def entries_in(column: Column, rows: int) -> tuple[Lists, Column]:
    """Take a column of maps apart: into lists of their keys, and the values that go with all of these, in order."""
    array = to_arrow(column.expand(rows))
    names = pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)])
    lists = array.cast(pa.list_(names))
    entries = pc.list_flatten(lists)
    keys, values = (from_arrow(pc.struct_field(entries, [place])) for place in (0, 1))
    return Lists(keys, list_lengths(lists), arrow_validity(lists)), values


def _keys(call: Call, arguments: list[Column]) -> Column:
    if any_null(arguments):
        return constant(call.type, None)
    keys, _ = entries_in(arguments[0], rows_of(arguments))
    return put_together(keys, call, arguments)


def _values(call: Call, arguments: list[Column]) -> Column:
    if any_null(arguments):
        return constant(call.type, None)
    keys, values = entries_in(arguments[0], rows_of(arguments))
    return put_together(Lists(values, keys.lengths, keys.valid), call, arguments)


def _length(call: Call, arguments: list[Column]) -> Column:
    """Return how many keys a map has."""
    if any_null(arguments):
        return constant(call.type, None)
    keys, _ = entries_in(arguments[0], rows_of(arguments))
    return finished(Column(call.type, keys.lengths.astype(call.type.to_pandas_dtype()), keys.valid), arguments)


def _element(call: Call, arguments: list[Column]) -> Column:
    """Return the value that a map has for a key, the last one where a file has several; NULL where it has none."""
    if any_null(arguments):
        return constant(call.type, None)
    rows = rows_of(arguments)
    keys, values = entries_in(arguments[0], rows)
    place = np.full(rows, -1)
    found = np.flatnonzero(keys.same_as(arguments[1].expand(rows)))
    place[keys.owners[found]] = found  # of several the last is written last
    return finished(values.take_padded(place).with_type(call.type), arguments)


KERNELS: Mapping[str, Callable[[Call, list[Column]], Column]] = {
    "map_keys": _keys, "map_values": _values, "map_length": _length, "map_element": _element,
}  # fmt: skip
