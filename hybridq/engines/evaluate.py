"""Evaluation of scalar expressions on blocks of rows.

An ``Evaluator`` numbers the distinct subexpressions of a set of expressions once; on each block every one of them is
computed at most once. Kernels are in ``arithmetic``, ``comparison``, ``text``, ``temporal`` and ``casting``; what needs
to choose the rows it evaluates on (AND, OR, CASE, COALESCE) is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hybridq import types
from hybridq.engines import (
    arithmetic,
    calendar,
    casting,
    comparison,
    intervals,
    list_building,
    list_functions,
    map_functions,
    mathematics,
    regular_expressions,
    temporal,
    text,
    text_codes,
    text_distance,
    text_functions,
)
from hybridq.engines.column import (
    Column,
    Indices,
    combine_valid,
    concatenate,
    null_column,
    union_bounds,
)
from hybridq.engines.constants import literal_column
from hybridq.engines.finals import FINAL_VALUES
from hybridq.engines.frame import BLOCK_ROWS, Block, CpuFrame, block_of, blocks_of
from hybridq.errors import ExecutionError, Unsupported
from hybridq.plan import expressions as plan

Kernel = Callable[[plan.Call, list[Column]], Column]

KERNELS: Mapping[str, Kernel] = {
    **arithmetic.KERNELS,
    **comparison.KERNELS,
    **text.KERNELS,
    **text_functions.KERNELS,
    **text_codes.KERNELS,
    **text_distance.KERNELS,
    **regular_expressions.KERNELS,
    **mathematics.KERNELS,
    **temporal.KERNELS,
    **intervals.KERNELS,
    **calendar.KERNELS,
    **list_functions.KERNELS,
    **list_building.KERNELS,
    **map_functions.KERNELS,
    **FINAL_VALUES,
}

_TAKES_NULL = (
    comparison.NULL_TESTS
    | {"concat", "concat_ws", "greatest", "least"}
    | list_functions.TAKES_NULL
    | list_building.TAKES_NULL
)
"""Functions that may give another value than NULL for a NULL among their arguments."""

_LAZY = frozenset({"and", "or", "coalesce"})
_NEVER_FAILS = frozenset(comparison.KERNELS) | {"and", "or", "add", "subtract", "multiply", "negate", "starts_with"}
"""Functions cheap enough to compute for rows that will not use them. (Overflow, if any, is then looked into again.)"""


_OF_LIBRARIES = (pa.ArrowException, ValueError, TypeError, ArithmeticError, LookupError)
"""What kernels of Arrow and NumPy raise for values that nobody thought of."""

_SHOWN = 200
"""Characters of an expression that a message has: its constants may be long."""


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """A numbered expression."""

    number: int
    expression: plan.Expression
    operands: tuple[_Node, ...]
    kernel: Kernel | None
    cheap: bool
    constant: Column | None = None


class Evaluator:
    """Evaluates a fixed set of expressions.

    Parameters
    ----------
    expressions : sequence of Expression

    Raises
    ------
    Unsupported
        An expression calls a function that this engine does not have.
    """

    def __init__(self, expressions: Sequence[plan.Expression]) -> None:
        self._nodes: dict[plan.Expression, _Node] = {}
        self._dictionary_results: dict[tuple[int, int], tuple[pa.Array, Column]] = {}
        self._roots = tuple(self._number(expression) for expression in expressions)

    def _number(self, expression: plan.Expression) -> _Node:
        found = self._nodes.get(expression)
        if found is not None:
            return found
        operands = tuple(self._number(child) for child in expression.children)
        kernel: Kernel | None = None
        cheap = all(operand.cheap for operand in operands)
        if isinstance(expression, plan.Call):
            if expression.function not in _LAZY:
                kernel = KERNELS.get(expression.function)
                if kernel is None:
                    raise Unsupported(f"function {expression.function} is not supported: in {expression}")
            cheap = cheap and expression.function in _NEVER_FAILS
        elif isinstance(expression, plan.Cast | plan.Case):
            cheap = False
        constant = literal_column(expression) if isinstance(expression, plan.Literal) else None
        found = _Node(len(self._nodes), expression, operands, kernel, cheap, constant)
        self._nodes[expression] = found
        return found

    def evaluate(self, block: Block, index: int) -> Column:
        """Evaluate one of the expressions; the result may be a constant.

        Raises
        ------
        ExecutionError
            A value cannot be computed: NumericOverflow, DivisionByZero or CastFailed.
        """
        return self._value(self._roots[index], block)

    # -- dispatch over kinds of expression

    def _value(self, node: _Node, block: Block) -> Column:
        if node.constant is not None:
            return node.constant
        found = block.results.get(node.number)
        if found is None:
            found = block.results[node.number] = self._compute(node, block)
        return found

    def _compute(self, node: _Node, block: Block) -> Column:
        expression = node.expression
        if block.rows == 0:  # no row, no failure: ``x / 0`` is an error only for a row that needs it
            return null_column(expression.type, 0)
        if isinstance(expression, plan.Column):
            return block.column(expression.name)
        if isinstance(expression, plan.Case):
            return self._case(node, block)
        if isinstance(expression, plan.Call) and expression.function in _LAZY:
            if expression.function == "coalesce":
                return self._coalesce(node, block)
            return self._logic(node, block)
        operands = [self._value(operand, block) for operand in node.operands]
        return self._strict(node, operands)

    def _strict(self, node: _Node, operands: list[Column]) -> Column:
        """Apply a kernel; on a dictionary's values instead of on each row, where one string column is involved."""
        expression = node.expression
        varying = [index for index, operand in enumerate(operands) if not operand.constant]
        if len(varying) == 1 and (column := operands[varying[0]]).dictionary is not None:
            skips_null = isinstance(expression, plan.Call) and expression.function in _TAKES_NULL
            if not skips_null and (len(column.dictionary) <= column.rows or len(column.dictionary) <= BLOCK_ROWS):
                return self._on_dictionary(node, operands, varying[0])
        return self._apply(node, operands)

    def _apply(self, node: _Node, operands: list[Column]) -> Column:
        try:
            return self._applied(node, operands)
        except pa.ArrowCapacityError as error:
            # Fewer rows may do, as where memory does not.
            raise MemoryError(f"the texts or lists of {_named(node)} are more than 2 GiB together") from error
        except MemoryError:
            raise
        except _OF_LIBRARIES as error:
            reason = (str(error).splitlines() or [""])[0]
            raise ExecutionError(f"{_named(node)} cannot be computed: {type(error).__name__}: {reason}") from error

    def _applied(self, node: _Node, operands: list[Column]) -> Column:
        expression = node.expression
        if isinstance(expression, plan.Call):
            assert node.kernel is not None
            return node.kernel(expression, operands)
        if isinstance(expression, plan.Cast):
            return casting.cast(expression, operands[0])
        if isinstance(expression, plan.In):
            return comparison.is_in(expression, operands[0], [literal_column(value) for value in expression.values])
        raise Unsupported(f"expression {expression} is not supported")

    def _on_dictionary(self, node: _Node, operands: list[Column], position: int) -> Column:
        column = operands[position]
        dictionary = column.dictionary
        assert dictionary is not None
        assert column.values is not None
        key = (node.number, id(dictionary))
        # The dictionary is kept beside its result so that its id stays its own.
        cached = self._dictionary_results.get(key)
        if cached is None:
            inner = list(operands)
            inner[position] = Column(column.type, array=dictionary)
            try:
                result = self._apply(node, inner)
            except ExecutionError:
                # A value that no row uses must not fail the query.
                return self._apply(node, [*operands[:position], _plain(column), *operands[position + 1 :]])
            if result.array is not None and types.is_string(result.type) and not result.constant:
                result = _encode(result)
            cached = self._dictionary_results[key] = (dictionary, result)
        result = cached[1]
        if result.constant:
            return (
                result
                if column.valid is None or result.is_null_constant()
                else result.expand(column.rows).with_valid(column.valid)
            )
        codes = column.values if column.valid is None else np.where(column.valid, column.values, 0)
        if result.array is not None:
            missing = None if column.valid is None else ~column.valid
            indices = codes.astype(np.int64)
            if missing is not None:
                indices[missing] = -1
            return result.take_padded(indices)
        taken = result.take(codes)
        return taken.with_valid(combine_valid(taken.valid, column.valid))

    # -- expressions that choose their rows

    def _logic(self, node: _Node, block: Block) -> Column:
        """AND and OR: rows that the operands so far decide do not fail on a later operand."""
        assert isinstance(node.expression, plan.Call)
        conjunction = node.expression.function == "and"
        result = self._value(node.operands[0], block)
        for operand in node.operands[1:]:
            try:
                other = self._value(operand, block)
            except ExecutionError:
                if result.constant:
                    result = result.expand(block.rows)
                decided = comparison.is_false(result) if conjunction else comparison.is_true(result)
                if not decided.any():
                    raise
                other = self._scatter(operand, block, [np.flatnonzero(~decided)], plan_default(not conjunction))
            result = comparison.both(result, other) if conjunction else comparison.either(result, other)
        return result

    def _scatter(self, node: _Node, block: Block, rows: list[Indices], default: Column) -> Column:
        """Evaluate on some rows, the others having a default."""
        (indices,) = rows
        value = self._value(node, block.take(indices)).expand(len(indices))
        return _assemble(default.type, block.rows, [(indices, value)], default)

    def _case(self, node: _Node, block: Block) -> Column:
        pairs = list(zip(node.operands[0:-1:2], node.operands[1:-1:2], strict=True))
        return self._choose(node, block, pairs, node.operands[-1])

    def _coalesce(self, node: _Node, block: Block) -> Column:
        first = self._value(node.operands[0], block)
        result = first
        for operand in node.operands[1:]:
            valid = result.validity()
            if valid is None or bool(np.all(valid)):
                return result
            if result.constant:
                return self._coalesced_constant(node, block)
            missing = np.flatnonzero(~valid)
            value = self._value(operand, block.take(missing)).expand(len(missing))
            kept = np.flatnonzero(valid)
            parts = [(kept, result.take(kept)), (missing, value)]
            result = _assemble(node.expression.type, block.rows, parts, None)
        return result

    def _coalesced_constant(self, node: _Node, block: Block) -> Column:
        for operand in node.operands:
            value = self._value(operand, block)
            if not value.is_null_constant():
                if value.constant:
                    return value
                rest = node.operands[node.operands.index(operand) :]
                inner = _Node(-1, node.expression, rest, None, False)
                return self._coalesce(inner, block)
        return value

    def _choose(self, node: _Node, block: Block, pairs: list[tuple[_Node, _Node]], default: _Node) -> Column:
        """CASE: the first true condition of each row chooses its value."""
        data_type = node.expression.type
        if len(pairs) == 1 and pairs[0][1].cheap and default.cheap and types_are_numbers(data_type):
            try:
                return self._choose_eagerly(pairs[0], default, block, data_type)
            except ExecutionError:
                pass  # perhaps only for rows that take the other branch
        parts: list[tuple[Indices, Column]] = []
        rest: Indices | None = None
        current = block
        for condition_node, value_node in pairs:
            condition = self._value(condition_node, current)
            if condition.constant:
                if not bool(comparison.is_true(condition)):
                    continue
                chosen: Indices = np.arange(current.rows)
            else:
                chosen = np.flatnonzero(comparison.is_true(condition))
            if len(chosen) == 0:
                continue
            if len(chosen) == current.rows and rest is None and not parts:
                return self._value(value_node, block)
            taken = current.take(chosen)
            parts.append((chosen if rest is None else rest[chosen], self._value(value_node, taken).expand(len(chosen))))
            others = np.ones(current.rows, np.bool_)
            others[chosen] = False
            remaining = np.flatnonzero(others)
            rest = remaining if rest is None else rest[remaining]
            current = current.take(remaining)
            if current.rows == 0:
                break
        if rest is None:
            return self._value(default, block)
        if current.rows:
            parts.append((rest, self._value(default, current).expand(current.rows)))
        return _assemble(data_type, block.rows, parts, None)

    def _choose_eagerly(
        self, pair: tuple[_Node, _Node], default: _Node, block: Block, data_type: pa.DataType
    ) -> Column:
        condition = self._value(pair[0], block)
        if condition.constant:
            return self._value(pair[1] if bool(comparison.is_true(condition)) else default, block)
        chosen, other = self._value(pair[1], block), self._value(default, block)
        if not (chosen.is_numbers and other.is_numbers):
            raise ExecutionError("not numbers")
        mask = comparison.is_true(condition)
        if other.constant and other.valid is None and not other.numbers.any() and chosen.numbers.dtype.kind in "iu":
            # CASE WHEN c THEN x ELSE 0 END: a product is faster than a choice.
            values = chosen.numbers * mask
        else:
            values = np.where(mask, chosen.numbers, other.numbers)
        valid = None
        if chosen.valid is not None or other.valid is not None:
            yes = np.True_ if chosen.valid is None else chosen.valid
            no = np.True_ if other.valid is None else other.valid
            valid = np.where(mask, yes, no)
        bounds = union_bounds([_range(chosen), _range(other)])
        return Column(data_type, values, valid, bounds=bounds)


def _named(node: _Node) -> str:
    text = str(node.expression)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _range(column: Column) -> tuple[int, int] | None:
    return None if column.numbers.dtype.kind == "f" else column.interval()


def types_are_numbers(data_type: pa.DataType) -> bool:
    """Tell whether values of the type are held as numbers (if decimals are narrow)."""
    return not (types.is_string(data_type) or pa.types.is_nested(data_type) or pa.types.is_binary(data_type))


def plan_default(value: bool) -> Column:
    """Return a boolean constant."""
    return Column(pa.bool_(), np.asarray(value), constant=True)


def _plain(column: Column) -> Column:
    return Column(column.type, array=column.plain())


def _encode(column: Column) -> Column:
    """Turn strings into codes whose dictionary has no repeats."""
    from hybridq.engines.column import dictionary_encode

    return dictionary_encode(column)


def _assemble(data_type: pa.DataType, rows: int, parts: list[tuple[Indices, Column]], default: Column | None) -> Column:
    """Put values of disjoint sets of rows together; other rows have the default."""
    covered = sum(len(indices) for indices, _ in parts)
    columns = [column for _, column in parts]
    if default is not None and covered < rows:
        others = np.ones(rows, np.bool_)
        for indices, _ in parts:
            others[indices] = False
        rest = np.flatnonzero(others)
        parts = [*parts, (rest, default.expand(len(rest)))]
        columns = [column for _, column in parts]
    if not columns:
        return null_column(data_type, rows)
    order = np.empty(rows, np.int64)
    position = 0
    for indices, column in parts:
        order[indices] = np.arange(position, position + column.rows)
        position += column.rows
    return concatenate(columns).with_type(data_type).take(order)


# --- whole frames --------------------------------------------------------------------------------------------------


def evaluate_frame(frame: CpuFrame, expressions: Sequence[plan.Expression]) -> list[Column]:
    """Evaluate expressions on a frame without deselected rows."""
    assert frame.selection is None
    evaluator = Evaluator(expressions)
    if frame.stored_rows <= 2 * BLOCK_ROWS or all(isinstance(part, plan.Column | plan.Literal) for part in expressions):
        block = block_of(frame)
        return [evaluator.evaluate(block, index).expand(frame.stored_rows) for index in range(len(expressions))]
    pieces: list[list[Column]] = [[] for _ in expressions]
    for start, stop, block in blocks_of(frame):
        for index, piece in enumerate(pieces):
            piece.append(evaluator.evaluate(block, index).expand(stop - start))
    return [concatenate(piece) for piece in pieces]
