"""Functions of lists: how long they are, what they have, and one of their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines.column import Column, from_arrow, to_arrow
from hybridq.engines.constants import constant
from hybridq.engines.decimals import as_constant
from hybridq.engines.text import any_null
from hybridq.plan.expressions import Call


def _arrays(arguments: list[Column]) -> list[pa.Array]:
    """Return the arguments as Arrow arrays of equal length: one row where all are constants."""
    rows = max((argument.rows for argument in arguments if not argument.constant), default=1)
    return [to_arrow(argument.expand(rows)) for argument in arguments]


def _finished(found: pa.Array, call: Call, arguments: list[Column]) -> Column:
    column = from_arrow(found.cast(call.type))
    return as_constant(column) if all(argument.constant for argument in arguments) else column


def _length(call: Call, arguments: list[Column]) -> Column:
    if any_null(arguments):
        return constant(call.type, None)
    return _finished(pc.list_value_length(_arrays(arguments)[0]), call, arguments)


def _element(call: Call, arguments: list[Column]) -> Column:
    """Return the value at a position from 1 on, or from the end where it is negative; NULL where there is none."""
    if any_null(arguments):
        return constant(call.type, None)
    lists, positions = _arrays(arguments)
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    wanted = positions.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    there = (wanted != 0) & (np.abs(wanted) <= lengths)
    place = np.where(wanted > 0, wanted - 1, lengths + wanted) + lists.offsets.to_numpy(zero_copy_only=False)[:-1]
    return _finished(lists.values.take(pa.array(np.where(there, place, 0), mask=~there)), call, arguments)


def _has(call: Call, arguments: list[Column]) -> Column:
    """Tell whether a list has a value; NULL where the list or the value is."""
    if any_null(arguments):
        return constant(call.type, None)
    lists, wanted = _arrays(arguments)
    owners = pc.list_parent_indices(lists)
    equal = pc.equal(pc.list_flatten(lists), wanted.take(owners)).fill_null(False).to_numpy(zero_copy_only=False)
    found = np.zeros(len(lists), np.bool_)
    found[owners.to_numpy()[equal]] = True
    known = pc.and_(lists.is_valid(), wanted.is_valid()).to_numpy(zero_copy_only=False)
    return _finished(pa.array(found, mask=~known), call, arguments)


KERNELS: Mapping[str, Callable[[Call, list[Column]], Column]] = {
    "array_length": _length, "array_element": _element, "array_has": _has,
}  # fmt: skip
