"""Rows by group: what aggregates that look at all rows of a chunk at once are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines.column import Column, Indices, Mask, Values, from_arrow, to_arrow
from hybridq.errors import ExecutionError
from hybridq.plan.expressions import AggregateCall

LONGEST_LISTS = 2**31 - 1
"""Elements that the lists of one Arrow array may have together."""


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """The arguments of an aggregate, and which group each row belongs to.

    Attributes
    ----------
    call : AggregateCall
    columns : tuple of Column
        The argument, then the further ones; no constants.
    codes : array of int64
        The group of each row.
    groups : int
        Codes are below it. A group may have no row.
    """

    call: AggregateCall
    columns: tuple[Column, ...]
    codes: Indices
    groups: int

    def take(self, indices: Indices) -> GroupedRows:
        """Return some of the rows."""
        return replace(
            self, columns=tuple(column.take(indices) for column in self.columns), codes=self.codes.take(indices)
        )

    def known(self) -> GroupedRows:
        """Return the rows in which no argument is NULL."""
        masks = [mask for column in self.columns if (mask := column.validity()) is not None]
        if not masks:
            return self
        rows = self.take(np.flatnonzero(np.logical_and.reduce(masks)))
        return replace(rows, columns=tuple(c if c.array is not None else c.with_valid(None) for c in rows.columns))

    def group_column(self) -> Column:
        """Return the groups' numbers as a column."""
        return group_numbers(self.codes, self.groups)

    def unnested(self) -> GroupedRows:
        """Return one row for each element of the lists that the argument has; the elements' fields are the columns."""
        lists = self.columns[0].array
        assert lists is not None
        parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        return replace(self, columns=fields_of(pc.list_flatten(lists)), codes=self.codes[parents])


def group_numbers(codes: Indices, groups: int) -> Column:
    """Return group numbers as a column."""
    return Column(pa.int64(), codes, bounds=(0, max(groups - 1, 0)))


def fields_of(array: pa.Array) -> tuple[Column, ...]:
    """Return the fields of structs, each NULL where the struct is; values that are no structs are their only field."""
    if not pa.types.is_struct(array.type):
        return (from_arrow(array),)
    return tuple(from_arrow(pc.struct_field(array, [index])) for index in range(array.type.num_fields))


def struct_of(columns: Sequence[Column], data_type: pa.DataType, valid: Mask | None = None) -> pa.Array:
    """Put columns side by side as structs."""
    arrays = [
        to_arrow(column.with_type(field.type)).cast(field.type)
        for column, field in zip(columns, data_type.fields, strict=True)
    ]
    mask = None if valid is None else pa.array(~valid)
    return pa.StructArray.from_arrays(arrays, fields=data_type.fields, mask=mask)


def lists_of(items: pa.Array, lengths: Indices, data_type: pa.DataType, valid: Mask | None = None) -> Column:
    """Cut items that lie in order into lists.

    Raises
    ------
    ExecutionError
        There are more items than Arrow's lists can hold.
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > LONGEST_LISTS:
        raise ExecutionError(f"the groups' values are {offsets[-1]} together, and one result can hold {LONGEST_LISTS}")
    mask = None if valid is None or bool(valid.all()) else pa.array(~valid)
    array = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), items, mask=mask)
    return Column(data_type, array=array if array.type == data_type else array.cast(data_type))


def list_lengths(array: pa.Array) -> Indices:
    """Return the number of elements of lists, 0 for NULL."""
    lengths: Values = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return lengths.astype(np.int64)
