"""Window functions over rows that are cut into ranges: what one range has to know of all others is condensed.

``Condensation`` says which rows stay as they are. Where the condensed rows of all other ranges are put before and after
the rows of one range, windows over all of them are right for the rows of that range.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hybridq.engines.aggregate import aggregate_frame
from hybridq.engines.column import Column, Indices, Mask, concatenate
from hybridq.engines.evaluate import evaluate_frame
from hybridq.engines.frame import CpuFrame
from hybridq.engines.frame_bounds import frame_bounds
from hybridq.engines.framed import running
from hybridq.engines.partitions import WindowOrder
from hybridq.engines.windows import window_frame
from hybridq.plan import expressions as plan
from hybridq.plan.expressions import NamedExpression
from hybridq.plan.windows import (
    END,
    RANGE_START,
    RANGE_STOP,
    STANDS_FOR_PEERS,
    STANDS_FOR_ROWS,
    START,
    Condensation,
    Frame,
    WindowCall,
)

NUMBER = pa.int64()
SEGMENT = "segment"


def condense(frame: CpuFrame, how: Condensation) -> CpuFrame:
    """Put the rows of a range into few.

    Parameters
    ----------
    frame : CpuFrame
        At least one row, and ``RANGE_START``; rows that tie are in order.
    how : Condensation

    Returns
    -------
    CpuFrame
        The columns of ``how`` and ``RANGE_START``, ``STANDS_FOR_ROWS`` and ``STANDS_FOR_PEERS``, in order.
    """
    rows = _columns(frame, how)
    order = WindowOrder(rows, (), how.order)
    rows = rows.take(order.indices)
    starts = _segments(rows, order, how)
    lengths = np.diff(np.append(starts, order.rows))
    peer = order.peers.number[starts]
    # Those between the first that a row stands for, and the one that the next row shows.
    hidden = np.append(np.maximum(np.diff(peer) - 1, 0), 0)
    alone = np.where(lengths == 1, starts, -1)
    states = {call.name for call in how.states}
    columns = {
        name: column.take_padded(alone) if name in how.arguments else column.take(starts)
        for name, column in rows.columns.items()
        if name not in states
    }
    columns |= _states(rows, how, np.repeat(np.arange(len(starts)), lengths))
    columns[STANDS_FOR_ROWS] = _number(lengths)
    columns[STANDS_FOR_PEERS] = _number(hidden)
    columns[RANGE_START] = frame.columns[RANGE_START].take(order.indices[starts])
    return CpuFrame(columns, len(starts))


def carried_window(frame: CpuFrame, condensed: CpuFrame, how: Condensation, calls: Sequence[WindowCall]) -> CpuFrame:
    """Return the rows of a range with a column more for each call.

    Parameters
    ----------
    frame : CpuFrame
        With ``RANGE_START`` and ``RANGE_STOP``; rows that tie are in order.
    condensed : CpuFrame
        What ``condense`` gives of all ranges.
    how : Condensation
    calls : sequence of WindowCall
        Over the columns of condensed rows.
    """
    here = _columns(frame, how)
    one = _number(np.ones(here.stored_rows, np.int64))
    none = _number(np.zeros(here.stored_rows, np.int64))
    here = CpuFrame({**here.columns, STANDS_FOR_ROWS: one, STANDS_FOR_PEERS: none}, here.stored_rows)
    places = condensed.columns[RANGE_START].numbers
    order = np.argsort(places, kind="stable")
    first = int(np.searchsorted(places[order], frame.columns[RANGE_START].numbers[:1].sum(), "left"))
    last = int(np.searchsorted(places[order], frame.columns[RANGE_STOP].numbers[:1].sum(), "left"))
    others = condensed.pick({name: name for name in here.columns})
    parts = [others.take(order[:first]), here, others.take(order[last:])]
    joined = {name: concatenate([part.columns[name] for part in parts]) for name in here.columns}
    whole = window_frame(CpuFrame(joined, sum(part.stored_rows for part in parts)), calls, condensed=True)
    found = {call.name: whole.columns[call.name].slice(first, first + here.stored_rows) for call in calls}
    return CpuFrame({**frame.columns, **found}, frame.stored_rows)


def _columns(frame: CpuFrame, how: Condensation) -> CpuFrame:
    """Return what windows read of each row."""
    found = evaluate_frame(frame, [item.expression for item in how.columns])
    columns = {item.name: column.contiguous() for item, column in zip(how.columns, found, strict=True)}
    return CpuFrame(columns, frame.stored_rows)


def _number(values: Indices) -> Column:
    return Column(NUMBER, values)


def _states(rows: CpuFrame, how: Condensation, segment: Indices) -> dict[str, Column]:
    """Aggregate each segment."""
    if not how.states:
        return {}
    columns = {call.name: rows.columns[call.name] for call in how.states}
    columns[SEGMENT] = Column(NUMBER, segment, bounds=(0, int(segment[-1])))
    key = NamedExpression(SEGMENT, plan.Column(NUMBER, SEGMENT))
    found = aggregate_frame(CpuFrame(columns, rows.stored_rows), [key], how.states)
    order = np.argsort(found.columns[SEGMENT].numbers, kind="stable")
    return {call.name: found.columns[call.name].take(order) for call in how.states}


def _segments(rows: CpuFrame, order: WindowOrder, how: Condensation) -> Indices:
    """Return where each run of rows begins that becomes one."""
    groups = order.peers.starts
    first, last = _near_peers(rows, order, how)
    # The first groups, what comes after them, and the last groups.
    borders = np.union1d(groups[: first + 1], groups[max(len(groups) - last, 0) :])
    if not how.reach:
        return borders
    edges = np.append(borders, order.rows)
    stays = _around(edges, how.reach, order.rows)
    for name in how.present:
        valid = rows.columns[name].validity()
        if valid is not None:
            places = np.flatnonzero(valid)
            stays[places[_around(running(valid)[edges], how.reach, len(places))]] = True
    new = np.zeros(order.rows, np.bool_)
    new[borders] = True
    new |= stays
    new[1:] |= stays[:-1]
    return np.flatnonzero(new)


def _around(places: Indices, reach: int, rows: int) -> Mask:
    """Return which rows are less than so many before a place, or after it."""
    change = np.zeros(rows + 1, np.int64)
    np.add.at(change, np.maximum(places - reach, 0), 1)
    np.add.at(change, np.minimum(places + reach, rows), -1)
    found: Mask = np.cumsum(change)[:rows] > 0
    return found


def _near_peers(rows: CpuFrame, order: WindowOrder, how: Condensation) -> tuple[int, int]:
    """Return how many of the first and of the last groups of ties a frame of another range may begin or end between."""
    number, count = order.peers.number, len(order.peers.starts)
    first = last = how.peers + 1
    for frame in how.distances:
        (key,) = how.order
        values = rows.columns[str(key.expression)]
        start, _ = frame_bounds(order, Frame("range", frame.start, END), values, key)
        _, end = frame_bounds(order, Frame("range", START, frame.end), values, key)
        # No frame of earlier rows reaches further than that of the first row, none of later ones than that of the last.
        reached = max(0 if frame.start == START else int(start[0]), 0 if frame.end == END else int(end[0]))
        left = min(
            order.rows if frame.start == START else int(start[-1]), order.rows if frame.end == END else int(end[-1])
        )
        first = max(first, int(number[min(reached, order.rows - 1)]) + 1)
        last = max(last, count - int(number[min(left, order.rows - 1)]) + 1)
    return first, last
