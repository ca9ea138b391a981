"""Aggregates that keep rows: lists of values in order, the first and the last value, text put together.

A kept row is a struct of a value and the keys by which it will be ordered.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hybridq.engines.column import Column, Indices, from_arrow
from hybridq.engines.frame import CpuFrame
from hybridq.engines.grouped import GroupedRows, fields_of, group_numbers, list_lengths, lists_of, struct_of
from hybridq.engines.grouping import group
from hybridq.plan.expressions import AggregateCall, Call, NamedExpression, SortKey
from hybridq.plan.expressions import Column as ColumnReference


def collect(rows: GroupedRows) -> Column:
    """Return the rows of each group as a list, in their order in the table."""
    if rows.call.distinct:
        pairs = group([rows.group_column(), rows.columns[0].contiguous()], len(rows.codes))
        rows = rows.take(np.unique(pairs.codes, return_index=True)[1])
    rows = rows.take(np.argsort(rows.codes, kind="stable"))
    data_type = rows.call.type
    lengths = np.bincount(rows.codes, minlength=rows.groups)
    return lists_of(struct_of(rows.columns, data_type.value_type), lengths, data_type)


def merge_collected(rows: GroupedRows) -> Column:
    """Put lists of rows together, in the order in which they come."""
    return collect(rows.unnested())


def first(rows: GroupedRows) -> Column:
    """Return the first row of each group in order; among ties, the earliest. NULL for a group of no rows."""
    return _end(rows, last=False)


def last(rows: GroupedRows) -> Column:
    """Return the last row of each group in order; among ties, the latest. NULL for a group of no rows."""
    return _end(rows, last=True)


def merge_first(rows: GroupedRows) -> Column:
    """Return the first of the rows of each group."""
    return _end(_kept_rows(rows), last=False)


def merge_last(rows: GroupedRows) -> Column:
    """Return the last of the rows of each group."""
    return _end(_kept_rows(rows), last=True)


def _kept_rows(rows: GroupedRows) -> GroupedRows:
    array = rows.columns[0].array
    assert array is not None
    kept = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
    columns = tuple(column.take(kept) for column in fields_of(array))
    return GroupedRows(rows.call, columns, rows.codes[kept], rows.groups)


def _end(rows: GroupedRows, last: bool) -> Column:
    order = _order(rows.codes, rows.groups, rows.columns[1:], rows.call.options)
    position = np.full(rows.groups, -1, np.int64)
    if last:
        # Of equal indices the last assignment stays.
        position[rows.codes[order]] = order
    else:
        backwards = order[::-1]
        position[rows.codes[backwards]] = backwards
    columns = [column.take_padded(position) for column in rows.columns]
    return Column(rows.call.type, array=struct_of(columns, rows.call.type, position >= 0))


def _order(codes: Indices, groups: int, keys: tuple[Column, ...], directions: tuple[str, ...]) -> Indices:
    """Return the stable order of rows by group and keys."""
    from hybridq.engines.ordering import order_of  # which needs the evaluator, which needs this module

    sort_keys = [SortKey(ColumnReference(pa.int64(), "group"))]
    for key, direction in zip(keys, directions, strict=True):
        reference = ColumnReference(key.type, "key")
        sort_keys.append(SortKey(reference, direction.startswith("descending"), direction.endswith("first")))
    return order_of([group_numbers(codes, groups), *keys], sort_keys)


# --- final values --------------------------------------------------------------------------------------------------


def ordered_values(call: Call, operands: list[Column]) -> Column:
    """Return the values of kept rows as lists, in order (that of the values where rows have no keys); NULL of none.

    Options are the directions of the keys; without any, rows stay as they are.
    """
    array = operands[0].array
    assert array is not None
    lengths = list_lengths(array)
    columns = fields_of(array.flatten())
    values = columns[0]
    if call.options:
        codes = np.repeat(np.arange(len(lengths)), lengths)
        order = _order(codes, len(lengths), columns[1:] or columns[:1], call.options)
        values = values.take(order)
    rows = struct_of([values], pa.struct([("value", values.type)])).field(0)
    return lists_of(rows, lengths, call.type, lengths > 0)


def row_value(call: Call, operands: list[Column]) -> Column:
    """Return the value of a kept row; NULL where there is none."""
    array = operands[0].array
    assert array is not None
    return fields_of(array)[0].with_type(call.type)


def join_text(call: Call, operands: list[Column]) -> Column:
    """Put lists of text together with a separator between; NULL of none."""
    lists, separator = operands
    assert lists.array is not None
    between = separator.plain()[0]
    return from_arrow(pc.binary_join(lists.array, between)).with_type(call.type)


def aggregate_list(call: Call, operands: list[Column]) -> Column:
    """Aggregate the elements of each list; the option names the aggregate. NULL of a list without elements."""
    from hybridq.engines.aggregate import aggregate_frame  # which needs the evaluator, which needs this module

    array = operands[0].array
    assert array is not None
    lengths = list_lengths(array)
    number = group_numbers(np.repeat(np.arange(len(lengths)), lengths), len(lengths))
    (function,) = call.options
    elements = from_arrow(array.flatten())
    frame = CpuFrame({"list": number, "element": elements}, elements.rows)
    key = NamedExpression("list", ColumnReference(number.type, "list"))
    of_elements = AggregateCall("result", function, ColumnReference(elements.type, "element"), call.type)
    found = aggregate_frame(frame, [key], [of_elements])
    position = np.full(len(lengths), -1, np.int64)
    position[found.columns["list"].numbers] = np.arange(found.rows)
    return found.columns["result"].take_padded(position)
