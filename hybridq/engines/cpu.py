"""The CPU engine: interpreted kernels of NumPy and pyarrow on one thread.

Threads may share an engine: it holds no state but Parquet footers.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hybridq.config import JoinMethod
from hybridq.engines import column as columns
from hybridq.engines.aggregate import aggregate_frame
from hybridq.engines.carrying import carried_window, condense
from hybridq.engines.column import Column, Indices
from hybridq.engines.evaluate import evaluate_frame
from hybridq.engines.frame import CpuFrame
from hybridq.engines.joining import CpuBuildSide, count_matches, probe_frame
from hybridq.engines.ordering import sort_indices, top_indices
from hybridq.engines.output import to_table
from hybridq.engines.protocol import BuildSide, Frame, ProbeKind, ReadRequest, UnnestKind
from hybridq.engines.read import read_frame
from hybridq.engines.selecting import select
from hybridq.engines.unnesting import count_elements, unnest_frame
from hybridq.engines.windows import window_frame
from hybridq.plan.expressions import AggregateCall, Expression, NamedExpression, SortKey
from hybridq.plan.expressions import Column as ColumnReference
from hybridq.plan.windows import Condensation, WindowCall
from hybridq.types import Schema


class CpuEngine:
    """Runs a pipeline's operators on one CPU thread; see ``hybridq.engines.protocol.Engine`` for each.

    Examples
    --------
    >>> engine = CpuEngine()
    >>> frame = engine.from_arrow(pa.table({"x": [3, 1, None]}))
    >>> engine.sort(frame, [SortKey(ColumnReference(pa.int64(), "x"), nulls_first=True)]).rows
    3
    """

    name = "cpu"

    def read(self, request: ReadRequest) -> Frame:
        return read_frame(request)

    def settle(self) -> None:
        pass  # every operator is done when it returns

    def from_arrow(self, table: pa.Table) -> Frame:
        found = {name: columns.from_arrow(table.column(index)) for index, name in enumerate(table.column_names)}
        return CpuFrame(found, table.num_rows)

    def to_arrow(self, frame: Frame, schema: Schema) -> pa.Table:
        return to_table(own(frame).compact(), schema)

    def concatenate(self, frames: Sequence[Frame]) -> Frame:
        parts = [own(frame).compact() for frame in frames]
        names = parts[0].columns
        joined = {name: columns.concatenate([part.columns[name] for part in parts]) for name in names}
        return CpuFrame(joined, sum(part.stored_rows for part in parts))

    def slice(self, frame: Frame, offset: int, count: int | None) -> Frame:
        found = own(frame).compact()
        start = min(offset, found.stored_rows)
        stop = found.stored_rows if count is None else min(start + count, found.stored_rows)
        return found.slice(start, stop)

    def filter(self, frame: Frame, predicate: Expression) -> Frame:
        found = own(frame)
        return CpuFrame(found.columns, found.stored_rows, select(found, predicate))

    def project(self, frame: Frame, expressions: Sequence[NamedExpression]) -> Frame:
        found = own(frame)
        picked = {item.name: item.expression for item in expressions}
        if all(isinstance(expression, ColumnReference) for expression in picked.values()):
            return found.pick({name: str(expression) for name, expression in picked.items()})
        found = found.compact()
        computed = evaluate_frame(found, list(picked.values()))
        typed: dict[str, Column] = dict(zip(picked, computed, strict=True))
        return CpuFrame(typed, found.stored_rows)

    def build(self, frame: Frame, keys: Sequence[str], method: JoinMethod = "auto") -> BuildSide:
        return CpuBuildSide(own(frame), keys, method)

    def count_matches(self, frame: Frame, build: BuildSide, keys: Sequence[Expression]) -> int:
        assert isinstance(build, CpuBuildSide)
        return count_matches(own(frame), build, keys)

    def probe(
        self,
        frame: Frame,
        build: BuildSide,
        kind: ProbeKind,
        keys: Sequence[Expression],
        residual: Expression | None,
        output: Sequence[str],
        null_aware: bool = False,
        mark: str | None = None,
    ) -> Frame:
        assert isinstance(build, CpuBuildSide)
        return probe_frame(own(frame), build, kind, keys, residual, output, null_aware, mark)

    def aggregate(self, frame: Frame, groups: Sequence[NamedExpression], aggregates: Sequence[AggregateCall]) -> Frame:
        return aggregate_frame(own(frame), groups, aggregates)

    def sort(self, frame: Frame, keys: Sequence[SortKey]) -> Frame:
        found = own(frame).compact()
        return found.take(sort_indices(found, keys))

    def order(self, frame: Frame, keys: Sequence[SortKey]) -> Indices:
        """Return the rows' numbers in the order that ``sort`` puts them into."""
        return sort_indices(own(frame).compact(), keys)

    def top_k(self, frame: Frame, keys: Sequence[SortKey], count: int) -> Frame:
        found = own(frame).compact()
        return found.take(top_indices(found, keys, count))

    def window(self, frame: Frame, calls: Sequence[WindowCall]) -> Frame:
        """Return the frame with a column more for each window function; aggregates are in partial form.

        Raises
        ------
        NumericOverflow
            A sum does not fit its call's type.
        ExecutionError
            An aggregate without a fast way over frames would have to look at too many rows.
        """
        return window_frame(own(frame).compact(), calls)

    def count_elements(self, frame: Frame, lists: Sequence[str]) -> int:
        """Count the rows that ``unnest`` would make of these columns, before any condition."""
        return count_elements(own(frame), lists)

    def unnest(
        self,
        frame: Frame,
        lists: Sequence[tuple[str, str]],
        kind: UnnestKind,
        ordinality: str | None,
        condition: Expression | None,
        output: Sequence[str],
    ) -> Frame:
        """Return the rows once for every element of their lists.

        Parameters
        ----------
        frame : Frame
        lists : sequence of (list column, element column)
            Lists that are gone through side by side; the shorter ones are filled up with NULL.
        kind : str
            ``inner``, ``left`` (a row without elements stays, with NULL), ``semi`` or ``anti`` (rows with, or without,
            elements).
        ordinality : str or None
            Name of a column (int64) for the place of each element, from 1 on.
        condition : Expression or None
            Over the frame's columns and the new ones: elements for which it is not true do not count.
        output : sequence of str
            The result's columns.
        """
        return unnest_frame(own(frame), lists, kind, ordinality, condition, output)

    def condense(self, frame: Frame, how: Condensation) -> Frame:
        """Put the rows of a range into few; see ``hybridq.plan.windows.Condensation``."""
        return condense(own(frame).compact(), how)

    def carried_window(
        self, frame: Frame, condensed: BuildSide, how: Condensation, calls: Sequence[WindowCall]
    ) -> Frame:
        """Return the rows of a range as ``window`` does, the rows of all other ranges being condensed.

        Parameters
        ----------
        frame : Frame
        condensed : BuildSide
            What ``condense`` gives of all ranges, without keys.
        how : Condensation
        calls : sequence of WindowCall
            Over the columns of condensed rows.
        """
        assert isinstance(condensed, CpuBuildSide)
        return carried_window(own(frame).compact(), condensed.frame, how, calls)


def own(frame: Frame) -> CpuFrame:
    """Check that a frame is this engine's."""
    if not isinstance(frame, CpuFrame):
        raise TypeError(f"the CPU engine cannot use a {type(frame).__name__}")
    return frame
