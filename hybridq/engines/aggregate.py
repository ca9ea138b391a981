"""Grouped and global aggregates.

Rows are taken block by block: arguments are computed and added to one accumulator a group while they are in the cache.
Deselected rows go to a spare cell past the groups when they are few; else the frame is compacted first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from hybridq import types
from hybridq.engines import collecting, lists, moments, sketches, tallies
from hybridq.engines.accumulators import Accumulator, Fold, Sum
from hybridq.engines.column import Column, Indices, Values
from hybridq.engines.comparison import is_true
from hybridq.engines.evaluate import Evaluator, evaluate_frame
from hybridq.engines.frame import BLOCK_ROWS, CpuFrame, blocks_of
from hybridq.engines.grouped import GroupedRows
from hybridq.engines.grouping import Groups, group, widened
from hybridq.errors import ExecutionError, Unsupported
from hybridq.plan.expressions import AggregateCall, NamedExpression, columns_of, columns_of_call

FEW_DESELECTED = 0.25
"""Share of deselected rows up to which they are carried along."""


def aggregate_frame(frame: CpuFrame, groups: Sequence[NamedExpression], calls: Sequence[AggregateCall]) -> CpuFrame:
    """Group and aggregate; see ``Engine.aggregate``."""
    names = frozenset().union(*(columns_of(item.expression) for item in groups), *map(columns_of_call, calls))
    frame = frame.pick({name: name for name in frame.columns if name in names})
    carry = frame.selection is not None and frame.rows >= (1 - FEW_DESELECTED) * frame.stored_rows and bool(groups)
    if frame.selection is not None and not carry:
        frame = frame.compact()
    try:
        return _aggregate(frame, groups, calls)
    except ExecutionError:
        # Perhaps only a deselected row has a value that cannot be computed.
        if not carry:
            raise
        return _aggregate(frame.compact(), groups, calls)


def _aggregate(frame: CpuFrame, groups: Sequence[NamedExpression], calls: Sequence[AggregateCall]) -> CpuFrame:
    cells = _Cells.of(frame, groups)
    accumulators = [_accumulator(call, cells) for call in calls]
    streams = [index for index, accumulator in enumerate(accumulators) if accumulator is not None]
    arguments = [call.argument for call in calls if call.argument is not None]
    evaluator = Evaluator(arguments)
    positions: dict[int, int] = {}
    for index, call in enumerate(calls):
        if call.argument is not None:
            positions[index] = len(positions)
    cells.prepare(frame)
    if streams or cells.groups is not None:
        for start, stop, block in blocks_of(frame, BLOCK_ROWS):
            codes = cells.block(start, stop)
            for index in streams:
                accumulator = accumulators[index]
                assert accumulator is not None
                if not accumulator.whole:
                    column = evaluator.evaluate(block, positions[index]).expand(block.rows)
                    accumulator.add(codes, column)
    present = cells.present()
    columns = dict(zip((item.name for item in groups), cells.keys(present), strict=True))
    for call, accumulator in zip(calls, accumulators, strict=True):
        if accumulator is not None and not accumulator.whole:
            columns[call.name] = accumulator.finish(present, cells.counts)
        elif call.argument is None:
            columns[call.name] = Column(call.type, cells.counts[present].astype(np.int64))
        else:
            columns[call.name] = _whole(call, frame, cells, present)
    return CpuFrame(columns, len(present))


@dataclass(slots=True)
class _Cells:
    """The cell of each row, and how many rows each cell has."""

    groups: Groups | None
    size: int
    codes: Values | None
    counts: Indices = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(cls, frame: CpuFrame, groups: Sequence[NamedExpression]) -> _Cells:
        if not groups:
            return cls(None, 1, None)
        everything = CpuFrame(frame.columns, frame.stored_rows)
        keys = evaluate_frame(everything, [item.expression for item in groups])
        found = group([key.contiguous() for key in keys], frame.stored_rows)
        codes = found.codes
        if frame.selection is not None:
            codes = widened(codes, found.cells + 1)
            # Widening copies unless the type is wide already, in which case the array may be a column's own.
            codes = np.where(frame.selection, codes, codes.dtype.type(found.cells))
        return cls(found, found.cells, codes)

    def prepare(self, frame: CpuFrame) -> None:
        if self.groups is None:
            self.counts = np.array([frame.rows], np.int64)
        else:
            self.counts = np.zeros(self.size + 1, np.int64)

    def block(self, start: int, stop: int) -> Indices | None:
        """Return the cells of some rows, and count them."""
        if self.codes is None:
            return None
        codes = self.codes[start:stop].astype(np.intp)
        if self.size < stop - start:
            self.counts += np.bincount(codes, minlength=self.size + 1)
        else:
            np.add.at(self.counts, codes, 1)
        return codes

    def present(self) -> Indices:
        """Return the cells that have rows: the groups."""
        if self.groups is None:
            return np.zeros(1, np.int64)
        return np.flatnonzero(self.counts[: self.size])

    def keys(self, present: Indices) -> list[Column]:
        return [] if self.groups is None else self.groups.decode(present)


_WHOLE: Mapping[str, Callable[[GroupedRows], Column]] = {
    "min": lists.extreme, "max": lists.extreme, "distinct": lists.distinct, "union": lists.union,
    "moments": moments.moments, "merge_moments": moments.merge_moments,
    "comoments": moments.comoments, "merge_comoments": moments.merge_comoments,
    "tally": tallies.tally, "merge_tallies": tallies.merge_tallies,
    "summary": tallies.summary, "merge_summaries": tallies.merge_summaries,
    "hashes": sketches.hashes, "merge_hashes": sketches.merge_hashes,
    "collect": collecting.collect, "merge_collected": collecting.merge_collected,
    "first": collecting.first, "merge_first": collecting.merge_first,
    "last": collecting.last, "merge_last": collecting.merge_last,
}  # fmt: skip
"""Aggregates that need the arguments of all rows at once."""


def _accumulator(call: AggregateCall, cells: _Cells) -> Accumulator | None:
    """Return what takes a call's argument block by block; ``None`` where that is not possible or needed."""
    if call.function == "count":
        return None if call.argument is None else Sum(call, cells.size, counts_only=True)
    if call.function == "sum":
        return Sum(call, cells.size)
    if call.function in ("min", "max", "bit_and", "bit_or", "bit_xor"):
        held_as_array = types.is_string(call.type) or pa.types.is_binary(call.type) or pa.types.is_nested(call.type)
        return None if held_as_array else Fold(call, cells.size)
    if call.function in _WHOLE:
        return None
    raise Unsupported(f"aggregate function {call.function} is not supported: in {call}")


def _whole(call: AggregateCall, frame: CpuFrame, cells: _Cells, present: Indices) -> Column:
    """Compute an aggregate that needs the arguments of all rows at once."""
    everything = CpuFrame(frame.columns, frame.stored_rows)
    arguments = evaluate_frame(everything, call.expressions)
    codes = np.zeros(frame.stored_rows, np.int64) if cells.codes is None else cells.codes.astype(np.int64)
    number = np.full(cells.size + 1, -1, np.int64)
    number[present] = np.arange(len(present))
    selected = frame.selection
    if call.condition is not None:
        true = is_true(arguments.pop())
        selected = true if selected is None else selected & true
    rows = GroupedRows(call, tuple(arguments), number[codes], len(present))
    return _WHOLE[call.function](rows if selected is None else rows.take(np.flatnonzero(selected)))
