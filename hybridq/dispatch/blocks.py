"""Build sides that are too large to be whole in one task: their rows are taken in blocks, one after the other.

Rows of one key cannot be divided among partitions. A block at a time is joined with all probing rows of the chunk;
those that no block has a match for are known after the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from hybridq.engines.protocol import BuildSide
from hybridq.physical.pipeline import ProbeStep
from hybridq.plan.expressions import columns_of

Rows = TypeVar("Rows")

Joined = Callable[[Rows, ProbeStep, BuildSide], Iterator[Rows]]
"""Joins rows with a build side, whatever step the build side was for; several pieces are one below the other."""


@dataclass(frozen=True, slots=True)
class BuildBlocks:
    """A build side in blocks.

    Attributes
    ----------
    read : callable
        Gives the blocks, from the first on: at least one, which may be empty.
    make : callable
        Makes a build side of one.
    columns : frozenset of str
        Names of the columns that a block has.
    """

    read: Callable[[], Iterator[pa.Table]]
    make: Callable[[pa.Table], BuildSide]
    columns: frozenset[str]

    def join(
        self, rows: Rows, step: ProbeStep, joined: Joined[Rows], together: Callable[[list[Rows]], Rows]
    ) -> Iterator[Rows]:
        """Yield what a join of rows with the whole build side gives, in any order.

        Parameters
        ----------
        rows : Frame
        step : ProbeStep
            Not null-aware.
        joined : callable
        together : callable
            Puts rows one below the other.
        """
        last: BuildSide | None = None
        kept = _columns_of_rows(step, self.columns)
        alone = replace(step, kind="anti", mark=None, output=kept)
        some = replace(step, kind="semi", mark=None, output=kept)
        left = rows  # those that have no match yet
        for table in self.read():
            last = None  # two are not to be in memory
            last = self.make(table)
            if step.kind in ("inner", "left"):
                yield from joined(rows, replace(step, kind="inner"), last)
            elif step.kind == "semi":
                yield from joined(left, step, last)
            elif step.kind == "mark":
                for matched in joined(left, some, last):
                    yield from joined(matched, step, last)
            if step.kind != "inner":
                left = together(list(joined(left, alone, last)))
        if last is not None and step.kind in ("left", "anti", "mark"):
            yield from joined(left, step, last)  # any block tells that they have no match


def _columns_of_rows(step: ProbeStep, build: frozenset[str]) -> tuple[str, ...]:
    """Return the columns of the probing rows that a join reads or passes on."""
    read = frozenset().union(*(columns_of(key) for key in step.keys))
    if step.residual is not None:
        read |= columns_of(step.residual)
    return tuple(sorted((read | set(step.output)) - build - {step.mark or ""}))
