"""Aggregates over distinct values: lists of them, unions of such lists, and extremes by rank."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines.column import Column, Indices, from_arrow, to_arrow
from hybridq.engines.grouped import GroupedRows, lists_of, struct_of
from hybridq.engines.grouping import Groups, group


def distinct(rows: GroupedRows) -> Column:
    """Return the list of distinct values of each group (an empty list where there is none).

    Values of several columns are structs, and are left out where any is NULL.
    """
    rows = rows.known()
    data_type = rows.call.type
    pairs: Groups = group([rows.group_column(), *(column.contiguous() for column in rows.columns)], len(rows.codes))
    seen = np.zeros(pairs.cells, np.bool_)
    seen[pairs.codes] = True
    owner, *values = pairs.decode(np.flatnonzero(seen))
    lengths = np.bincount(owner.numbers.astype(np.intp), minlength=rows.groups)
    order = np.argsort(owner.numbers, kind="stable")
    ordered = [column.take(order) for column in values]
    if pa.types.is_struct(data_type.value_type):
        items = struct_of(ordered, data_type.value_type)
    else:
        items = to_arrow(ordered[0]).cast(data_type.value_type)
    return lists_of(items, lengths, data_type)


def union(rows: GroupedRows) -> Column:
    """Return the distinct values of all lists of each group."""
    return distinct(rows.unnested())


def extreme(rows: GroupedRows) -> Column:
    """Return MIN or MAX of values that are not held as numbers: strings by code point, wide decimals."""
    call, groups = rows.call, rows.groups
    rows = rows.known()
    (argument,), codes = rows.columns, rows.codes
    ranks, ordered = ranked(argument)
    smallest = call.function == "min"
    best = np.full(groups, len(ordered) if smallest else -1, np.int64)
    (np.minimum if smallest else np.maximum).at(best, codes, ranks)
    none = (best < 0) | (best == len(ordered))
    return from_arrow(ordered).take_padded(np.where(none, -1, best)).with_type(call.type)


def ranked(column: Column) -> tuple[Indices, pa.Array]:
    """Return each row's position among the distinct values in order, and those values. NULLs get any rank."""
    if column.dictionary is not None:
        assert column.values is not None
        dictionary, codes = column.dictionary, column.values
    else:
        encoded = to_arrow(column).dictionary_encode()
        dictionary, codes = encoded.dictionary, encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    order = pc.sort_indices(dictionary).to_numpy()
    if len(order) == 0:
        return np.zeros(column.rows, np.int64), dictionary
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], dictionary.take(pa.array(order))
