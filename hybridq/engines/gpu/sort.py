"""Sorting."""

from __future__ import annotations

from collections.abc import Sequence

import pylibcudf as plc
from pylibcudf.types import NullOrder, Order

from hybridq import types
from hybridq.engines.gpu import device
from hybridq.engines.gpu.column import GpuColumn
from hybridq.engines.gpu.evaluate import Evaluator
from hybridq.engines.gpu.frame import GpuFrame
from hybridq.engines.gpu.host import Host
from hybridq.plan.expressions import SortKey


def sort_frame(frame: GpuFrame, keys: Sequence[SortKey], host: Host, count: int | None = None) -> GpuFrame:
    """Order rows stably; with ``count``, return only the first so many."""
    if frame.rows > 1 and keys:
        order = _order(frame, keys, host)
        if count is not None and count < frame.rows:
            order = plc.copying.slice(order, [0, count])[0]
        return frame.gather(order)
    return frame if count is None or count >= frame.rows else frame.slice(0, count)


def _order(frame: GpuFrame, keys: Sequence[SortKey], host: Host) -> plc.Column:
    evaluator = Evaluator(frame, host)
    columns: list[plc.Column] = []
    orders: list[Order] = []
    nulls: list[NullOrder] = []
    for key in keys:
        order = Order.DESCENDING if key.descending else Order.ASCENDING
        # libcudf puts NULL below or above all values, and then reverses the order where it is descending.
        null_order = NullOrder.BEFORE if key.nulls_first != key.descending else NullOrder.AFTER
        for data in _key_columns(evaluator.column(key.expression)):
            columns.append(data)
            orders.append(order)
            nulls.append(null_order)
    return plc.sorting.stable_sorted_order(plc.Table(columns), orders, nulls)


def _key_columns(column: GpuColumn) -> list[plc.Column]:
    """Return the columns to sort by: NaN above all numbers, -0.0 equal to 0.0."""
    if not types.is_floating(column.type):
        return [column.data]
    data = device.normalized(column.data)
    if not device.has_nan(data):
        return [data]
    nan = plc.unary.is_nan(data)
    flag = device.cast(nan, device.INT8)
    if column.nulls:
        flag = device.with_nulls(flag, device.is_valid(data))
    return [flag, device.choose(nan, device.scalar(0.0, data.type()), data)]
