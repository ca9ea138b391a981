"""Grouped and global aggregates.

An aggregate is planned as one or more of libcudf's aggregations over computed columns, and what to make of their
results. All aggregations of a call run in one pass over the groups. Sums of 64-bit integers that might not fit 64 bits
are summed as two halves; minima and maxima of floats set NaN aside, which is above all numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pylibcudf as plc
from pylibcudf.aggregation import Aggregation
from pylibcudf.types import NanEquality, NullEquality, NullPolicy

from hybridq import types
from hybridq.engines.arithmetic import type_bounds
from hybridq.engines.column import INT64, Bounds, within
from hybridq.engines.decimals import overflow, scale_of
from hybridq.engines.gpu import device
from hybridq.engines.gpu.arithmetic import INT128, Integers, typed
from hybridq.engines.gpu.column import GpuColumn, empty_column, null_column
from hybridq.engines.gpu.device import compare
from hybridq.engines.gpu.evaluate import Evaluator
from hybridq.engines.gpu.frame import GpuFrame
from hybridq.engines.gpu.host import Host
from hybridq.engines.gpu.interop import from_arrow
from hybridq.errors import Unsupported
from hybridq.plan.expressions import AggregateCall, Column, NamedExpression

HALF_BITS = 32
HALF_MASK = (1 << HALF_BITS) - 1

_AGGREGATIONS: dict[str, Callable[[], Aggregation]] = {
    "sum": plc.aggregation.sum,
    "min": plc.aggregation.min,
    "max": plc.aggregation.max,
    "count": lambda: plc.aggregation.count(NullPolicy.EXCLUDE),
    "rows": lambda: plc.aggregation.count(NullPolicy.INCLUDE),
    "set": lambda: plc.aggregation.collect_set(NullPolicy.EXCLUDE, NullEquality.EQUAL, NanEquality.ALL_EQUAL),
    "lists": lambda: plc.aggregation.collect_list(NullPolicy.EXCLUDE),
}

Results = Callable[[int], plc.Column]
"""Gives the result of an aggregation by its ticket."""

Finish = Callable[[Results], GpuColumn]


class _TooLargeError(Exception):
    """The sums cannot be proven to fit 128 bits."""


class _Grouping(Protocol):
    """Collects aggregations, and runs them."""

    rows: int

    def add(self, values: plc.Column, kind: str) -> int:
        """Ask for an aggregation; returns its ticket."""

    def add_rows(self) -> int:
        """Ask for the number of rows; returns its ticket."""


class _Groups:
    """Aggregations by group."""

    def __init__(self, keys: Sequence[plc.Column], rows: int) -> None:
        self.rows = rows
        self._keys = [device.normalized(key) for key in keys]
        self._values: list[plc.Column] = []
        self._kinds: list[list[str]] = []
        self._tickets: list[tuple[int, int] | None] = []

    def add(self, values: plc.Column, kind: str) -> int:
        """Ask for an aggregation; returns its ticket."""
        self._tickets.append(self._place(values, kind))
        return len(self._tickets) - 1

    def add_rows(self) -> int:
        """Ask for the number of rows; returns its ticket."""
        self._tickets.append(None)
        return len(self._tickets) - 1

    def _place(self, values: plc.Column, kind: str) -> tuple[int, int]:
        """Return the request, and the place in it, of an aggregation."""
        request = next((index for index, known in enumerate(self._values) if known is values), len(self._values))
        if request == len(self._values):
            self._values.append(values)
            self._kinds.append([])
        kinds = self._kinds[request]
        if kind not in kinds:
            kinds.append(kind)
        return request, kinds.index(kind)

    def run(self) -> tuple[list[plc.Column], Results]:
        """Return the groups' keys, and the results."""
        rows = (0, 0)
        if not self._values or None in self._tickets:
            # Along with the first values, for numbers are cheaper to aggregate than text keys.
            rows = self._place(self._values[0] if self._values else self._keys[0], "rows")
        requests = [
            plc.groupby.GroupByRequest(values, [_AGGREGATIONS[kind]() for kind in kinds])
            for values, kinds in zip(self._values, self._kinds, strict=True)
        ]
        keys, tables = plc.groupby.GroupBy(plc.Table(self._keys), NullPolicy.INCLUDE).aggregate(requests)

        def result(ticket: int) -> plc.Column:
            place = self._tickets[ticket]
            request, position = rows if place is None else place
            return tables[request].columns()[position]

        return list(keys.columns()), result


class _Everything:
    """Aggregations over all rows, of which there is at least one."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._results: list[plc.Column] = []

    def add(self, values: plc.Column, kind: str) -> int:
        """Compute an aggregation; returns its ticket."""
        self._results.append(self._computed(values, kind))
        return len(self._results) - 1

    def add_rows(self) -> int:
        """Note the number of rows; returns its ticket."""
        self._results.append(device.full(device.scalar(self.rows, device.INT64), 1))
        return len(self._results) - 1

    def _computed(self, values: plc.Column, kind: str) -> plc.Column:
        if kind == "count":
            return device.full(device.scalar(int(values.size() - values.null_count()), device.INT64), 1)
        if kind in ("set", "lists"):
            groups = _Groups([device.full(device.scalar(0, device.INT8), values.size())], int(values.size()))
            ticket = groups.add(values, kind)
            return groups.run()[1](ticket)
        data_type = values.type()
        if kind == "sum" and not plc.traits.is_floating_point(data_type) and not device.is_wide(values):
            data_type = device.INT64
        return device.full(device.reduce(values, _AGGREGATIONS[kind](), data_type), 1)

    def run(self) -> tuple[list[plc.Column], Results]:
        """Return no keys, and the results."""
        return [], self._results.__getitem__


@dataclass(frozen=True, slots=True)
class _Planned:
    """An aggregate, and how to make it of the results of its aggregations."""

    call: AggregateCall
    finish: Finish


def aggregate_frame(
    frame: GpuFrame, groups: Sequence[NamedExpression], calls: Sequence[AggregateCall], host: Host
) -> GpuFrame:
    """Group and aggregate; see ``Engine.aggregate``."""
    for call in calls:
        if call.function not in _PLANS and call.function != "count":
            raise Unsupported(f"aggregate function {call.function} is not supported: in {call}")
        if call.distinct and call.function not in ("min", "max"):
            raise Unsupported(f"aggregate {call} is not supported on the GPU: its DISTINCT is not decomposed")
    if frame.rows == 0:
        return _of_nothing(groups, calls)
    evaluator = Evaluator(frame, host)
    keys = [evaluator.column(item.expression) for item in groups]
    arguments = [None if call.argument is None else evaluator.column(call.argument) for call in calls]
    grouping: _Groups | _Everything = _Everything(frame.rows)
    if groups:
        grouping = _Groups([key.data for key in keys], frame.rows)
    try:
        planned = [_plan(call, argument, grouping) for call, argument in zip(calls, arguments, strict=True)]
    except _TooLargeError:
        return _on_host(frame.rows, groups, keys, calls, arguments, host)
    found, results = grouping.run()
    columns = {item.name: key.with_data(data) for item, key, data in zip(groups, keys, found, strict=True)}
    for item in planned:
        columns[item.call.name] = item.finish(results)
    return GpuFrame(columns, int(found[0].size()) if found else 1)


def _of_nothing(groups: Sequence[NamedExpression], calls: Sequence[AggregateCall]) -> GpuFrame:
    if groups:
        columns = {item.name: empty_column(item.expression.type) for item in groups}
        return GpuFrame(columns | {call.name: empty_column(call.type) for call in calls}, 0)
    return GpuFrame({call.name: _of_no_rows(call) for call in calls}, 1)


def _of_no_rows(call: AggregateCall) -> GpuColumn:
    if call.function == "count":
        return GpuColumn(call.type, device.full(device.scalar(0, device.physical(call.type)), 1), (0, 0))
    if call.function in ("distinct", "union"):
        return from_arrow(pa.array([[]], call.type), call.type)
    return null_column(call.type, 1)


def _on_host(
    rows: int,
    groups: Sequence[NamedExpression],
    keys: Sequence[GpuColumn],
    calls: Sequence[AggregateCall],
    arguments: Sequence[GpuColumn | None],
    host: Host,
) -> GpuFrame:
    """Aggregate computed columns on the CPU."""
    columns = {item.name: key for item, key in zip(groups, keys, strict=True)}
    moved = []
    for index, (call, argument) in enumerate(zip(calls, arguments, strict=True)):
        if argument is None:
            moved.append(call)
            continue
        name = f"argument {index}"
        columns[name] = argument
        moved.append(AggregateCall(call.name, call.function, Column(argument.type, name), call.type))
    found = host.aggregate(columns, rows, [item.name for item in groups], moved)
    return GpuFrame(found, next(iter(found.values())).rows if found else 1)


# --- planning of single aggregates ---------------------------------------------------------------------------------


def _plan(call: AggregateCall, argument: GpuColumn | None, grouping: _Grouping) -> _Planned:
    if call.function == "count":
        return _Planned(call, _count(call, argument, grouping))
    assert argument is not None
    return _Planned(call, _PLANS[call.function](call, argument, grouping))


def _count(call: AggregateCall, argument: GpuColumn | None, grouping: _Grouping) -> Finish:
    bounds = (0, grouping.rows)
    data_type = device.physical(call.type)
    ticket = grouping.add(argument.data, "count") if argument is not None and argument.nulls else grouping.add_rows()
    return lambda results: GpuColumn(call.type, device.cast(results(ticket), data_type), bounds)


def _sum(call: AggregateCall, argument: GpuColumn, grouping: _Grouping) -> Finish:
    if types.is_floating(call.type):
        values = device.cast(argument.data, device.physical(call.type))
        ticket = grouping.add(values, "sum")
        return lambda results: GpuColumn(call.type, results(ticket))
    scale = scale_of(argument.type)
    low, high = argument.interval()
    if not within(_total((low, high), grouping.rows), INT64):
        low, high = argument.measured()
    total = _total((low, high), grouping.rows)
    if not argument.wide and within((low, high), INT64):
        if within(total, INT64):
            values = argument.data
            if values.type().id() in _UNSIGNED:
                values = device.to_int64(values)
            ticket = grouping.add(values, "sum")
            return lambda results: _summed(call, device.to_int64(results(ticket)), total, scale)
        return _sum_of_halves(call, device.to_int64(argument.data), total, scale, grouping)
    if not within(total, INT128):
        raise _TooLargeError
    ticket = grouping.add(device.to_int128(argument.data), "sum")
    return lambda results: _summed(call, results(ticket), total, scale)


_UNSIGNED = frozenset({plc.TypeId.UINT8, plc.TypeId.UINT16, plc.TypeId.UINT32, plc.TypeId.UINT64})


def _total(bounds: Bounds, rows: int) -> Bounds:
    """Return the range of sums of up to so many values."""
    return min(bounds[0], bounds[0] * rows), max(bounds[1], bounds[1] * rows)


def _sum_of_halves(call: AggregateCall, values: plc.Column, total: Bounds, scale: int, grouping: _Grouping) -> Finish:
    """Sum the upper and the lower 32 bits apart: neither sum can pass 64 bits."""
    low = device.binary("bits", values, device.scalar(HALF_MASK, device.INT64), device.INT64)
    high = device.binary("shift_right", values, device.scalar(HALF_BITS, device.INT64), device.INT64)
    tickets = grouping.add(low, "sum"), grouping.add(high, "sum")

    def finish(results: Results) -> GpuColumn:
        lower, upper = (device.to_int128(device.to_int64(results(ticket))) for ticket in tickets)
        shift = device.scalar(1 << HALF_BITS, device.INT128)
        upper = device.binary("multiply", upper, shift, device.INT128)
        return _summed(call, device.binary("add", upper, lower, device.INT128), total, scale)

    return finish


def _summed(call: AggregateCall, values: plc.Column, bounds: Bounds, scale: int) -> GpuColumn:
    """Return sums as the call's type.

    Raises
    ------
    NumericOverflow
        One does not fit.
    """
    if types.is_decimal(call.type):
        column = typed(Integers(values, bounds), scale, call.type)
        if column is None:
            raise overflow(call, call.type)
        return column
    column = GpuColumn(call.type, values, bounds)
    limits = type_bounds(call.type)
    if not within(bounds, limits) and not within(column.measured(), limits):
        raise overflow(call, call.type)
    data_type = device.physical(call.type)
    data = device.to_int64(values) if within(column.interval(), INT64) else values
    return GpuColumn(call.type, device.cast(data, data_type), column.bounds)


def _extreme(call: AggregateCall, argument: GpuColumn, grouping: _Grouping) -> Finish:
    kind = call.function
    data = argument.data
    if pa.types.is_boolean(argument.type):
        ticket = grouping.add(device.cast(data, device.INT8), kind)
        return lambda results: GpuColumn(call.type, device.cast(results(ticket), device.BOOL))
    if types.is_floating(argument.type) and device.has_nan(data):
        return _extreme_with_nan(call, data, grouping)
    if pa.types.is_nested(argument.type):
        raise Unsupported(f"{call.text} of {argument.type} is not supported on the GPU")
    ticket = grouping.add(data, kind)
    return lambda results: GpuColumn(call.type, results(ticket), argument.bounds)


def _extreme_with_nan(call: AggregateCall, data: plc.Column, grouping: _Grouping) -> Finish:
    nan = plc.unary.is_nan(data)
    number = grouping.add(device.with_nulls(data, device.negated(nan)), call.function)
    nans = grouping.add(device.cast(nan, device.INT8), "max")

    def finish(results: Results) -> GpuColumn:
        values = results(number)
        seen = compare("greater", results(nans), device.scalar(0, device.INT8))
        if call.function == "min":
            # NaN is the least value where it is the only one.
            seen = compare("and", seen, device.is_null(values))
        return GpuColumn(call.type, device.choose(seen, device.scalar(float("nan"), values.type()), values))

    return finish


def _distinct(call: AggregateCall, argument: GpuColumn, grouping: _Grouping) -> Finish:
    ticket = grouping.add(device.normalized(argument.data), "set")
    return lambda results: GpuColumn(call.type, results(ticket))


def _union(call: AggregateCall, argument: GpuColumn, grouping: _Grouping) -> Finish:
    ticket = grouping.add(argument.data, "lists")

    def finish(results: Results) -> GpuColumn:
        ignore = plc.lists.ConcatenateNullPolicy.IGNORE
        merged = plc.lists.concatenate_list_elements(results(ticket), ignore)
        distinct = plc.lists.distinct(merged, NullEquality.EQUAL, NanEquality.ALL_EQUAL)
        return GpuColumn(call.type, distinct)

    return finish


_PLANS: dict[str, Callable[[AggregateCall, GpuColumn, _Grouping], Finish]] = {
    "sum": _sum, "min": _extreme, "max": _extreme, "distinct": _distinct, "union": _union,
}  # fmt: skip
