"""The CPU engine as a helper: constants, and the few functions that the device does not compute exactly."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa

from hybridq.engines.cpu import CpuEngine
from hybridq.engines.gpu.column import Constant, GpuColumn, Operand
from hybridq.engines.gpu.interop import from_arrow, to_arrow
from hybridq.engines.protocol import ReadRequest
from hybridq.plan.expressions import AggregateCall, Column, Expression, Literal, NamedExpression
from hybridq.types import Field, Schema

RESULT = "result"


class Host:
    """Evaluates on the CPU what the device cannot, and counts how often.

    Attributes
    ----------
    evaluations : int
        How often columns were taken to the CPU, for reports. Constants are not counted.
    """

    def __init__(self) -> None:
        self.engine = CpuEngine()
        self.evaluations = 0
        self._lock = threading.Lock()

    def count(self) -> None:
        """Note that rows were taken to the CPU."""
        with self._lock:
            self.evaluations += 1

    def constant(self, expression: Expression) -> Constant:
        """Evaluate an expression that refers to no column.

        Raises
        ------
        ExecutionError
            It cannot be computed.
        """
        array = self._project(pa.table({"row": pa.array([0])}), expression)
        return Constant(expression.type, array[0].as_py())

    def evaluate(self, expression: Expression, operands: Sequence[Operand]) -> GpuColumn:
        """Evaluate one node whose operands are computed, at least one of them a column.

        Raises
        ------
        ExecutionError
            A value cannot be computed.
        """
        self.count()
        inner: list[Expression] = []
        arrays: dict[str, pa.Array] = {}
        for index, operand in enumerate(operands):
            if isinstance(operand, Constant):
                inner.append(Literal(operand.type, operand.value))
            else:
                name = f"operand {index}"
                inner.append(Column(operand.type, name))
                arrays[name] = to_arrow(operand)
        array = self._project(pa.table(arrays), expression.with_children(tuple(inner)))
        return from_arrow(array, expression.type)

    def _project(self, table: pa.Table, expression: Expression) -> pa.ChunkedArray:
        frame = self.engine.project(self.engine.from_arrow(table), [NamedExpression(RESULT, expression)])
        return self.engine.to_arrow(frame, (Field(RESULT, expression.type),)).column(RESULT)

    def aggregate(
        self, columns: dict[str, GpuColumn], rows: int, groups: Sequence[str], calls: Sequence[AggregateCall]
    ) -> dict[str, GpuColumn]:
        """Aggregate computed columns on the CPU; the calls' arguments are columns."""
        self.count()
        table = pa.table({name: to_arrow(column) for name, column in columns.items()})
        if not columns:
            table = pa.table({"row": pa.nulls(rows)})
        named = [NamedExpression(name, Column(columns[name].type, name)) for name in groups]
        schema = tuple(Field(name, columns[name].type) for name in groups)
        schema += tuple(Field(call.name, call.type) for call in calls)
        result = self.engine.to_arrow(self.engine.aggregate(self.engine.from_arrow(table), named, calls), schema)
        return {field.name: from_arrow(result.column(field.name), field.type) for field in schema}

    def read(self, request: ReadRequest, schema: Schema) -> tuple[int, dict[str, GpuColumn]]:
        """Read with the CPU engine's reader; returns the number of rows, and device columns by name."""
        self.count()
        frame = self.engine.read(request)
        table = self.engine.to_arrow(frame, schema)
        return frame.rows, {field.name: from_arrow(table.column(field.name), field.type) for field in schema}
