"""Evaluation of scalar expressions on the device.

Every distinct subexpression is computed at most once. Kernels are in ``arithmetic``, ``comparison``, ``text``,
``temporal`` and ``casting``; what needs to choose the rows it evaluates on (AND, OR, CASE, COALESCE) is here: it first
computes all rows, and only if some value cannot be computed looks at the rows that need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pylibcudf as plc

from hybridq import types
from hybridq.engines.column import union_bounds
from hybridq.engines.gpu import arithmetic, casting, comparison, device, functions, temporal, text
from hybridq.engines.gpu.arithmetic import Kernel
from hybridq.engines.gpu.column import (
    Constant,
    GpuColumn,
    Operand,
    empty_column,
    has_range,
    is_null_constant,
    null_column,
)
from hybridq.engines.gpu.comparison import is_true, truth
from hybridq.engines.gpu.device import compare
from hybridq.engines.gpu.frame import Rows, SomeRows
from hybridq.engines.gpu.host import Host
from hybridq.errors import ExecutionError, Unsupported
from hybridq.plan import expressions as plan

KERNELS: Mapping[str, Kernel] = {
    **arithmetic.KERNELS,
    **comparison.KERNELS,
    **text.KERNELS,
    **functions.KERNELS,
    **temporal.KERNELS,
}


class Evaluator:
    """Evaluates expressions on some rows.

    Parameters
    ----------
    origin : Rows
        The rows.
    host : Host
        What evaluates constants and functions that the device does not have.
    """

    def __init__(self, origin: Rows, host: Host) -> None:
        self._origin = origin
        self._host = host
        self._results: dict[plan.Expression, Operand] = {}

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return self._origin.rows

    def host(self, expression: plan.Expression, operands: Sequence[Operand]) -> GpuColumn:
        """Evaluate one node on the CPU."""
        return self._host.evaluate(expression, operands)

    def column(self, expression: plan.Expression) -> GpuColumn:
        """Evaluate an expression to a column.

        Raises
        ------
        ExecutionError
            A value cannot be computed: NumericOverflow, DivisionByZero or CastFailed.
        Unsupported
            It calls a function, or has a type, that the engine does not have.
        """
        found = self.operand(expression)
        return found.expanded(self.rows) if isinstance(found, Constant) else found

    def mask(self, predicate: plan.Expression) -> plc.Column:
        """Evaluate a predicate to booleans."""
        return self.column(predicate).data

    def operand(self, expression: plan.Expression) -> Operand:
        """Evaluate an expression to a column or a constant."""
        found = self._results.get(expression)
        if found is None:
            found = self._results[expression] = self._compute(expression)
        return found

    def _compute(self, expression: plan.Expression) -> Operand:
        if isinstance(expression, plan.Column):
            return self._origin.column(expression.name)
        if isinstance(expression, plan.Literal):
            return Constant(expression.type, expression.value)
        if (
            isinstance(expression, plan.Call)
            and expression.function not in KERNELS
            and expression.function not in _LAZY
        ):
            raise Unsupported(f"function {expression.function} is not supported: in {expression}")
        if self.rows == 0:
            return empty_column(expression.type)
        if not plan.columns_of(expression):
            return self._host.constant(expression)
        if isinstance(expression, plan.Case):
            return self._case(expression)
        if isinstance(expression, plan.Call) and expression.function == "coalesce":
            return self._coalesce(expression)
        if isinstance(expression, plan.Call) and expression.function in ("and", "or"):
            return self._logic(expression)
        operands = [self.operand(child) for child in expression.children]
        if all(isinstance(operand, Constant) for operand in operands):
            literals = tuple(
                plan.Literal(operand.type, operand.value) for operand in operands if isinstance(operand, Constant)
            )
            return self._host.constant(expression.with_children(literals))
        if isinstance(expression, plan.Call):
            return KERNELS[expression.function](expression, operands, self)
        (operand,) = operands
        assert isinstance(operand, GpuColumn)
        if isinstance(expression, plan.Cast):
            return casting.cast(expression, operand, self)
        if isinstance(expression, plan.In):
            return comparison.is_in(expression, operand, self)
        raise Unsupported(f"expression {expression} is not supported")

    # -- expressions that choose their rows

    def _where(self, expression: plan.Expression, mask: plc.Column) -> GpuColumn:
        """Evaluate on the rows where a mask without NULLs is true; the others are NULL."""
        part = SomeRows(self._origin, mask)
        if part.rows == 0:
            return null_column(expression.type, self.rows)
        found = Evaluator(part, self._host).column(expression)
        return found.with_data(device.spread(found.data, mask))

    def _logic(self, call: plan.Call) -> Operand:
        """AND and OR: rows that the operands so far decide do not fail on a later operand."""
        conjunction = call.function == "and"
        result = self.operand(call.arguments[0])
        for argument in call.arguments[1:]:
            try:
                other = self.operand(argument)
            except ExecutionError:
                known = result.expanded(self.rows).data if isinstance(result, Constant) else result.data
                open_rows = device.negated(comparison.is_false(known) if conjunction else is_true(known))
                if device.count_true(open_rows) == self.rows:
                    raise
                other = self._where(argument, open_rows)
            result = self._combined(call.function, result, other)
        return result

    def _combined(self, function: str, left: Operand, right: Operand) -> Operand:
        if isinstance(left, Constant):
            left, right = right, left
        if isinstance(right, Constant) and right.value is not None:
            # TRUE AND x is x, FALSE AND x is false; OR the other way round.
            return left if bool(right.value) == (function == "and") else right
        if isinstance(left, Constant):
            return left  # both NULL
        other = right.data if isinstance(right, GpuColumn) else right.expanded(self.rows).data
        return truth(compare(function, left.data, other))

    def _coalesce(self, call: plan.Call) -> Operand:
        result = self.operand(call.arguments[0])
        for argument in call.arguments[1:]:
            if isinstance(result, Constant):
                if result.value is not None:
                    return result
                result = self.operand(argument)
                continue
            if result.nulls == 0:
                return result
            try:
                other = self.operand(argument)
            except ExecutionError:
                other = self._where(argument, device.is_null(result.data))
            if not is_null_constant(other):
                result = self._chosen(call.type, device.is_valid(result.data), result, other)
        return result

    def _case(self, case: plan.Case) -> Operand:
        try:
            return self._case_of_all(case)
        except ExecutionError:
            return self._case_by_branch(case)

    def _case_of_all(self, case: plan.Case) -> Operand:
        """Compute every branch on all rows."""
        result = self.operand(case.default)
        for condition, value in reversed(case.branches):
            test = self.operand(condition)
            if isinstance(test, Constant):
                result = self.operand(value) if test.value else result
            else:
                result = self._chosen(case.type, test.data, self.operand(value), result)
        return result

    def _case_by_branch(self, case: plan.Case) -> Operand:
        """Compute each branch on the rows that take it."""
        rest = device.full(device.scalar(True, device.BOOL), self.rows)
        result: Operand = Constant(case.type, None)
        for condition, value in case.branches:
            chosen = is_true(self._where(condition, rest).data)
            if device.any_true(chosen):
                result = self._chosen(case.type, chosen, self._where(value, chosen), result)
                rest = compare("and", rest, device.negated(chosen))
        if device.any_true(rest):
            result = self._chosen(case.type, rest, self._where(case.default, rest), result)
        return result

    def _chosen(self, data_type: pa.DataType, mask: plc.Column, yes: Operand, no: Operand) -> GpuColumn:
        """Return ``yes`` where a mask is true, else ``no``."""
        if pa.types.is_list(data_type):
            raise Unsupported("CASE and COALESCE of lists are not supported on the GPU")
        wide = types.is_decimal(data_type) and (yes.wide or no.wide)
        sides = [
            side.scalar(wide) if isinstance(side, Constant) else (side.widened() if wide else side).data
            for side in (yes, no)
        ]
        bounds = None
        if has_range(data_type):
            known = [side for side in (yes, no) if not is_null_constant(side)]
            bounds = union_bounds([side.interval() if isinstance(side, Constant) else side.bounds for side in known])
        return GpuColumn(data_type, device.choose(mask, sides[0], sides[1]), bounds)


_LAZY = frozenset({"and", "or", "coalesce"})
