"""Rows repeated for each element of their lists, on the CPU engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hybridq.engines.column import Column, Indices
from hybridq.engines.frame import CpuFrame
from hybridq.engines.list_values import Lists, lists_in, ranges
from hybridq.engines.protocol import UnnestKind
from hybridq.engines.selecting import select
from hybridq.plan.expressions import Expression, columns_of


def count_elements(frame: CpuFrame, lists: Sequence[str]) -> int:
    """Return how many elements the lists of a frame's rows have: of several side by side, those of the longest."""
    return int(_lengths(_lists(frame.compact(), lists)).sum())


def unnest_frame(
    frame: CpuFrame,
    lists: Sequence[tuple[str, str]],
    kind: UnnestKind,
    ordinality: str | None,
    condition: Expression | None,
    output: Sequence[str],
) -> CpuFrame:
    """Return a frame's rows once for every element of their lists; for the arguments, see ``CpuEngine.unnest``.

    Raises
    ------
    ExecutionError
        The condition cannot be computed for an element.
    """
    frame = frame.compact()
    found = _lists(frame, [source for source, _ in lists])
    lengths = _lengths(found)
    owners = np.repeat(np.arange(frame.rows), lengths)
    places = ranges(np.zeros(frame.rows, np.int64), lengths)
    elements = {name: _element(each, owners, places) for (_, name), each in zip(lists, found, strict=True)}
    if ordinality is not None:
        elements[ordinality] = Column(pa.int64(), places + 1)
    if condition is not None:
        kept = _kept(frame, elements, owners, condition)
        elements = {name: column.take(kept) for name, column in elements.items()}
        owners = owners[kept]
        lengths = np.bincount(owners, minlength=frame.rows)
    if kind in ("semi", "anti"):
        rows = np.flatnonzero(lengths == 0 if kind == "anti" else lengths > 0)
        return CpuFrame({name: frame.columns[name] for name in output}, frame.rows).take(rows)
    if kind == "left" and (alone := lengths == 0).any():
        counts = np.maximum(lengths, 1)
        numbers = np.full(int(counts.sum()), -1)
        numbers[np.repeat(~alone, counts)] = np.arange(len(owners))
        elements = {name: column.take_padded(numbers) for name, column in elements.items()}
        owners = np.repeat(np.arange(frame.rows), counts)
    columns = {
        name: elements[name] if name in elements else frame.columns[name].contiguous().take(owners) for name in output
    }
    return CpuFrame(columns, len(owners))


def _lists(frame: CpuFrame, names: Sequence[str]) -> list[Lists]:
    return [lists_in(frame.columns[name], frame.rows) for name in names]


def _lengths(lists: Sequence[Lists]) -> Indices:
    lengths: Indices = np.maximum.reduce([each.lengths for each in lists])
    return lengths


def _element(lists: Lists, owners: Indices, places: Indices) -> Column:
    """Return the elements of some rows' lists at some places, from 0 on; NULL where a list is shorter."""
    if len(lists.owners) == len(owners):
        return lists.items.contiguous()
    there = places < lists.lengths[owners]
    return lists.items.contiguous().take_padded(np.where(there, lists.starts[owners] + places, -1))


def _kept(frame: CpuFrame, elements: dict[str, Column], owners: Indices, condition: Expression) -> Indices:
    """Return the elements for which the condition is true."""
    read = columns_of(condition)
    columns = {name: column for name, column in elements.items() if name in read}
    columns |= {name: frame.columns[name].contiguous().take(owners) for name in read if name not in columns}
    mask = select(CpuFrame(columns, len(owners)), condition)
    return np.arange(len(owners)) if mask is None else np.flatnonzero(mask)
