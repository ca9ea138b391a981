"""Window functions: what is computed for each row from the rows around it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal as OneOf

import pyarrow as pa

from hybridq.plan.expressions import AggregateCall, Expression, NamedExpression, SortKey, columns_of, columns_of_call

RANKS = frozenset({"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile"})
SHIFTS = frozenset({"lag", "lead"})
PICKS = frozenset({"first_value", "last_value", "nth_value"})
"""Functions that look at a row's place, at the rows before and after it, and at the rows of its frame."""

Unit = OneOf["rows", "range", "groups"]
BoundKind = OneOf["unbounded preceding", "preceding", "current row", "following", "unbounded following"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A length of time."""

    months: int = 0
    days: int = 0
    nanoseconds: int = 0

    def __str__(self) -> str:
        return f"INTERVAL {self.months} months {self.days} days {self.nanoseconds} ns"


Offset = int | float | Decimal | Interval


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a frame.

    Attributes
    ----------
    kind : str
    offset : int, float, decimal.Decimal, Interval or None
        How far ``preceding`` and ``following`` reach: rows, groups of peers, or a difference of the sort key. Not
        negative.
    """

    kind: BoundKind
    offset: Offset | None = None

    def __str__(self) -> str:
        return self.kind.upper() if self.offset is None else f"{self.offset} {self.kind.upper()}"


START = Bound("unbounded preceding")
CURRENT = Bound("current row")
END = Bound("unbounded following")


@dataclass(frozen=True, slots=True)
class Frame:
    """Which rows of its partition a row's window function sees.

    Attributes
    ----------
    unit : str
        ``rows``; ``range``: values of the sort key, rows that tie with the current one included; ``groups``: rows that
        tie count as one.
    start, end : Bound
        Both belong to the frame. A frame may be empty.
    """

    unit: Unit
    start: Bound
    end: Bound

    @property
    def is_whole(self) -> bool:
        """Tell whether the frame is the partition, for every row."""
        return self.start == START and self.end == END

    def __str__(self) -> str:
        return f"{self.unit.upper()} BETWEEN {self.start} AND {self.end}"


WHOLE = Frame("rows", START, END)


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A window function.

    Attributes
    ----------
    name : str
        Name of the output column.
    function : str
        One of ``RANKS``, ``SHIFTS`` or ``PICKS``, or ``aggregate``.
    arguments : tuple of Expression
        ``ntile``: the number of tiles. ``lag`` and ``lead``: the value, how many rows away (forwards if negative, for
        ``lag``), and what stands where there is no such row. ``first_value`` and ``last_value``: the value;
        ``nth_value``: also which one, from 1.
    type : pyarrow.DataType
        Type of the result.
    partition : tuple of Expression
        Rows that are equal on all of them, NULLs being equal, make a partition.
    order : tuple of SortKey
        None: all rows of a partition tie.
    frame : Frame
        Of no effect on ``RANKS`` and ``SHIFTS``.
    ignore_nulls : bool
        ``SHIFTS`` and ``PICKS`` pass over rows whose value is NULL.
    aggregate : AggregateCall or None
        With the function ``aggregate``: what is computed over the frame. Its name is not used.
    """

    name: str
    function: str
    arguments: tuple[Expression, ...]
    type: pa.DataType
    partition: tuple[Expression, ...]
    order: tuple[SortKey, ...]
    frame: Frame = WHOLE
    ignore_nulls: bool = False
    aggregate: AggregateCall | None = None

    @property
    def text(self) -> str:
        """Return the call as written, without its name."""
        if self.aggregate is not None:
            call = self.aggregate.text
        else:
            call = f"{self.function}({', '.join(map(str, self.arguments))})"
        window = []
        if self.partition:
            window.append(f"PARTITION BY {', '.join(map(str, self.partition))}")
        if self.order:
            window.append(f"ORDER BY {', '.join(map(str, self.order))}")
        if self.function not in RANKS | SHIFTS and not self.frame.is_whole:
            window.append(str(self.frame))
        return f"{call}{' IGNORE NULLS' if self.ignore_nulls else ''} OVER ({' '.join(window)})"

    def renamed(self, name: str) -> WindowCall:
        """Return the same call under another name."""
        return replace(self, name=name)

    def __str__(self) -> str:
        text = self.text
        return text if text == self.name else f"{text} AS {self.name}"


def columns_of_window(call: WindowCall) -> frozenset[str]:
    """Return the names of the columns that a window function reads."""
    expressions = (*call.arguments, *call.partition, *(key.expression for key in call.order))
    aggregate = frozenset() if call.aggregate is None else columns_of_call(call.aggregate)
    return aggregate.union(*map(columns_of, expressions))


@dataclass(frozen=True, slots=True)
class Condensation:
    """How a range of rows in the order of windows is put into few rows, for the windows of rows in other ranges.

    Rows of a frame that reaches into another range are all of that range, or end at its borders, at a border between
    rows that tie, or at most ``reach`` rows from one of these. So the rows near these places stay as they are, and all
    others between two such places become one, which has their aggregates.

    Attributes
    ----------
    order : tuple of SortKey
        Over ``columns``.
    columns : tuple of NamedExpression
        What a row has: sort keys, arguments of functions that choose a row, and the partial aggregates of a single row.
    states : tuple of AggregateCall
        How the partial aggregates of several rows become one; same names.
    arguments : tuple of str
        Columns that are NULL where a row stands for several.
    present : tuple of str
        Of these, those whose NULLs are passed over: so many rows that are not NULL count for ``reach``.
    reach : int
    peers : int
        Groups of rows that tie which a frame may reach into another range.
    distances : tuple of Frame
        RANGE frames with offsets: all groups of rows that tie and are within reach of another range stay apart.
    """

    order: tuple[SortKey, ...]
    columns: tuple[NamedExpression, ...]
    states: tuple[AggregateCall, ...]
    arguments: tuple[str, ...]
    present: tuple[str, ...]
    reach: int
    peers: int
    distances: tuple[Frame, ...] = ()


RANGE_START, RANGE_STOP = "range:start", "range:stop"
"""Columns that tell which range of an order a row is in: the places of its first row, and of the one after its last."""

STANDS_FOR_ROWS, STANDS_FOR_PEERS = "stands for:rows", "stands for:peers"
"""Columns of a condensed range: how many rows one stands for, and how many groups of ties that no other row shows."""
