"""Predicates on frames: which rows satisfy all conditions.

Conditions are evaluated block by block, those on numbers first. Once few rows of a block are left, the other conditions
see those rows only.
"""

from __future__ import annotations

import numpy as np

from hybridq import types
from hybridq.engines.column import Indices, Mask
from hybridq.engines.comparison import is_true
from hybridq.engines.evaluate import Evaluator
from hybridq.engines.frame import Block, CpuFrame, blocks_of
from hybridq.errors import ExecutionError
from hybridq.plan.expressions import Call, Case, Cast, Expression, conjuncts, walk

FEW = 0.25
"""Share of rows below which gathering them pays for evaluating a condition on them alone."""


def select(frame: CpuFrame, predicate: Expression) -> Mask | None:
    """Return which stored rows are selected and satisfy the predicate; ``None``: all.

    Raises
    ------
    ExecutionError
        A condition cannot be computed for a row that satisfies the ones before it.
    """
    if frame.stored_rows == 0:
        return None
    conditions = sorted(conjuncts(predicate), key=costly)
    evaluator = Evaluator(conditions)
    mask = np.empty(frame.stored_rows, np.bool_)
    for start, stop, block in blocks_of(frame):
        before = None if frame.selection is None else frame.selection[start:stop]
        mask[start:stop] = _Candidates(block, before).narrow(evaluator, len(conditions))
    return None if mask.all() else mask


def costly(condition: Expression) -> bool:
    """Tell whether a condition may be slow, or fail."""
    return any(
        isinstance(part, Case | Cast)
        or types.is_string(part.type)
        or (isinstance(part, Call) and part.function in ("divide", "modulus"))
        for part in walk(condition)
    )


class _Candidates:
    """Rows of a block that satisfy the conditions so far."""

    def __init__(self, block: Block, before: Mask | None) -> None:
        self._size = block.rows
        self._current = block
        # Rows of the block that ``current`` has (None: all), and which of those are left (None: all).
        self._rows: Indices | None = None
        self._left = before

    def narrow(self, evaluator: Evaluator, conditions: int) -> Mask:
        """Apply all conditions; returns which rows of the block are left."""
        for index in range(conditions):
            left = self._current.rows if self._left is None else int(np.count_nonzero(self._left))
            if left == 0:
                break
            if left < FEW * self._current.rows:
                self._gather()
            try:
                column = evaluator.evaluate(self._current, index)
            except ExecutionError:
                # Perhaps only a row that is out already has a value that cannot be computed.
                if self._left is None or self._left.all():
                    raise
                self._gather()
                column = evaluator.evaluate(self._current, index)
            true = is_true(column)
            if column.constant:
                true = np.full(self._current.rows, bool(true))
            self._left = true if self._left is None else self._left & true
        if self._left is None:
            self._left = np.ones(self._current.rows, np.bool_)
        if self._rows is None:
            return self._left
        result = np.zeros(self._size, np.bool_)
        result[self._rows[self._left]] = True
        return result

    def _gather(self) -> None:
        assert self._left is not None
        kept = np.flatnonzero(self._left)
        self._rows = kept if self._rows is None else self._rows[kept]
        self._current = self._current.take(kept)
        self._left = None
