"""Aggregates over distinct values: lists of them, unions of such lists, and extremes by rank."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines.column import Column, Indices, from_arrow, to_arrow
from hybridq.engines.grouping import Groups, group
from hybridq.plan.expressions import AggregateCall


def distinct_lists(argument: Column, codes: Indices, groups: int, data_type: pa.DataType) -> Column:
    """Return the list of distinct non-NULL values of each group (an empty list where there is none).

    Parameters
    ----------
    argument : Column
    codes : array of int64
        The group of each row.
    groups : int
        Number of groups.
    data_type : pyarrow.DataType
        The list type of the result.
    """
    valid = argument.validity()
    if valid is not None:
        kept = np.flatnonzero(valid)
        argument, codes = argument.take(kept), codes[kept]
        argument = argument if argument.array is not None else argument.with_valid(None)
    numbers = Column(pa.int64(), codes, bounds=(0, max(groups - 1, 0)))
    pairs: Groups = group([numbers, argument.contiguous()], len(codes))
    seen = np.zeros(pairs.cells, np.bool_)
    seen[pairs.codes] = True
    # Cells are in order of their group, for the group is the first key.
    owner, values = pairs.decode(np.flatnonzero(seen))
    lengths = np.bincount(owner.numbers.astype(np.intp), minlength=groups)
    return _lists(values, owner.numbers, lengths, data_type)


def _lists(values: Column, owners: Indices, lengths: Indices, data_type: pa.DataType) -> Column:
    order = np.argsort(owners, kind="stable")
    items = to_arrow(values.take(order)).cast(data_type.value_type)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    array = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)
    return Column(data_type, array=array.cast(data_type))


def union_lists(argument: Column, codes: Indices, groups: int, data_type: pa.DataType) -> Column:
    """Return the distinct values of all lists of each group."""
    assert argument.array is not None
    lists = argument.array
    parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    return distinct_lists(from_arrow(pc.list_flatten(lists)), codes[parents], groups, data_type)


def extreme_by_rank(argument: Column, codes: Indices, groups: int, call: AggregateCall) -> Column:
    """Return MIN or MAX of values that are not held as numbers: strings by code point, wide decimals."""
    valid = argument.validity()
    if valid is not None:
        kept = np.flatnonzero(valid)
        argument, codes = argument.take(kept), codes[kept]
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
