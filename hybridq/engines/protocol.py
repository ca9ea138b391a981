"""What every engine can do.

An engine runs the operators of a pipeline on one chunk. ``hybridq.engines.cpu`` and ``hybridq.engines.gpu`` have the
same functions; one suite of tests runs on each engine present. A frame is an engine's own form of a table with uniquely
named, typed columns: callers hand frames back to the engine that made them and look at ``rows`` and ``nbytes`` only.

Semantics are SQL's and exact, as the plan's types say (NULLs, NaN above all numbers, decimals to the last digit,
integer sums that never wrap).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa

from hybridq.config import JoinMethod
from hybridq.engines.cache import ColumnCache
from hybridq.plan.expressions import AggregateCall, Expression, NamedExpression, SortKey
from hybridq.types import Schema

ProbeKind = Literal["inner", "left", "semi", "anti", "mark"]
UnnestKind = Literal["inner", "left", "semi", "anti"]


class Frame(Protocol):
    """An engine's table."""

    @property
    def rows(self) -> int:
        """Return the number of rows."""

    @property
    def nbytes(self) -> int:
        """Return the bytes held, shared buffers included."""


class BuildSide(Protocol):
    """The build side of a join, in the engine's form, with its hash or lookup table. Threads share it."""

    @property
    def rows(self) -> int:
        """Return the number of rows."""

    @property
    def nbytes(self) -> int:
        """Return the bytes held."""

    @property
    def most_matches(self) -> int:
        """Return how many rows share one key at most."""


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column to read.

    Attributes
    ----------
    name : str
        Name in the frame.
    source : str
        Name in the file.
    type : pyarrow.DataType
        Type that the frame's column has.
    """

    name: str
    source: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class FileConstant:
    """A column that has one value in each file, and is in none of them.

    Attributes
    ----------
    name : str
        Name in the frame.
    source : str
        Name in ``ReadRequest.bounds``.
    type : pyarrow.DataType
        A type of integers, dates or strings.
    values : tuple of int, datetime.date, str or None
        One a file, in the order of ``ReadRequest.files``; ``None``: NULL.
    """

    name: str
    source: str
    type: pa.DataType
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What to read from Parquet.

    Attributes
    ----------
    files : tuple of (path, row group numbers)
    columns : tuple of ReadColumn
    predicate : Expression or None
        Only rows for which it is true, over ``columns`` and ``constants``.
    output : tuple of str
        Columns that the frame has; the others are there for the predicate alone.
    bounds : tuple of (source column, minimum, maximum)
        Value ranges known from statistics.
    keep : tuple of str
        Source columns that stay decoded on the device, where the engine has a cache for them.
    partners : tuple of (column, BuildSide)
        Columns of ``output``, each the only key of a join with a build side: rows that find no partner there may be
        left out already, after the predicate.
    constants : tuple of FileConstant
        Columns besides those that are read.
    cache : ColumnCache or None
        Where the columns of ``keep`` stay; ``None``: in the engine's own, from query to query.
    """

    files: tuple[tuple[str, tuple[int, ...]], ...]
    columns: tuple[ReadColumn, ...]
    predicate: Expression | None
    output: tuple[str, ...]
    bounds: tuple[tuple[str, object, object], ...] = ()
    keep: tuple[str, ...] = ()
    partners: tuple[tuple[str, BuildSide], ...] = ()
    constants: tuple[FileConstant, ...] = ()
    cache: ColumnCache[Any] | None = None

    @property
    def types(self) -> dict[str, pa.DataType]:
        """Return the type of each column by its name in the frame."""
        found = {column.name: column.type for column in self.columns}
        return found | {constant.name: constant.type for constant in self.constants}


class Engine(Protocol):
    """The operators of one kind of device.

    Attributes
    ----------
    name : str
        ``"cpu"``, ``"gpu"`` or ``"simulated gpu"``: what reports call it.
    """

    name: str

    def read(self, request: ReadRequest) -> Frame:
        """Read row groups.

        Raises
        ------
        DataError
            A file is missing, truncated or not what the catalog saw; the message names it.
        """

    def settle(self) -> None:
        """Wait until all that this thread has asked of the device is done: other threads may use its frames then."""

    def from_arrow(self, table: pa.Table) -> Frame:
        """Take over an Arrow table."""

    def to_arrow(self, frame: Frame, schema: Schema) -> pa.Table:
        """Give the frame's columns named in ``schema``, in that order, with exactly those types."""

    def concatenate(self, frames: Sequence[Frame]) -> Frame:
        """Put frames of equal columns one below the other. At least one frame."""

    def slice(self, frame: Frame, offset: int, count: int | None) -> Frame:
        """Return rows ``offset`` to ``offset + count`` (to the end, if ``None``)."""

    def filter(self, frame: Frame, predicate: Expression) -> Frame:
        """Keep rows for which the predicate is true."""

    def project(self, frame: Frame, expressions: Sequence[NamedExpression]) -> Frame:
        """Compute new columns; the result has those only."""

    def build(self, frame: Frame, keys: Sequence[str], method: JoinMethod = "auto") -> BuildSide:
        """Make the build side of a join. Rows with a NULL key never match."""

    def count_matches(self, frame: Frame, build: BuildSide, keys: Sequence[Expression]) -> int:
        """Count the pairs that an inner join would make, before any residual."""

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
        """Join ``frame`` (the left side) with ``build``.

        Parameters
        ----------
        frame : Frame
        build : BuildSide
        kind : str
        keys : sequence of Expression
            Over ``frame``, pairwise with those of ``build``. None: every pair of rows.
        residual : Expression or None
            Over columns of both sides.
        output : sequence of str
            The result's columns, from both sides; with ``mark`` also that.
        null_aware : bool
            With ``anti`` and ``mark``: the first key is that of IN. A left row that has no match is not kept, or marked
            NULL, where a NULL on either side leaves it unknown whether it would have one.
        mark : str or None
            With ``mark``: name of a boolean column, which tells whether a left row has a match.
        """

    def aggregate(self, frame: Frame, groups: Sequence[NamedExpression], aggregates: Sequence[AggregateCall]) -> Frame:
        """Group and compute ``sum``, ``count``, ``min``, ``max``, ``distinct`` and ``union``.

        Columns are the groups, then the aggregates. Without groups there is exactly one row, also for an empty frame.

        Raises
        ------
        NumericOverflow
            A sum does not fit its call's type.
        """

    def sort(self, frame: Frame, keys: Sequence[SortKey]) -> Frame:
        """Order rows, stably."""

    def top_k(self, frame: Frame, keys: Sequence[SortKey], count: int) -> Frame:
        """Return the first ``count`` rows in order; among ties, earlier rows first."""
