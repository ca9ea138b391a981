"""Reading with compiled loops: the columns of the predicate first, and of the others only rows that satisfy it.

A condition on one column is evaluated on the values of the row group's dictionary, where it has one, and looked up for
each row. Columns that ``hybridq.engines.pages`` does not decode are read by pyarrow, of row groups with rows left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hybridq import types
from hybridq.engines import pages
from hybridq.engines.column import (
    Column,
    Mask,
    Values,
    combine_valid,
    concatenate_valid,
    from_arrow,
    storage_dtype,
)
from hybridq.engines.comparison import is_true
from hybridq.engines.constants import column_bounds
from hybridq.engines.evaluate import Evaluator
from hybridq.engines.file_constants import constant_chunk
from hybridq.engines.footer import CannotWrite, FileFooter, footer_at
from hybridq.engines.frame import Block, CpuFrame
from hybridq.engines.joining import CpuBuildSide
from hybridq.engines.pages import CannotDecode, Decoded
from hybridq.engines.protocol import FileConstant, ReadColumn, ReadRequest
from hybridq.engines.selecting import costly, select
from hybridq.errors import ExecutionError
from hybridq.plan.expressions import Expression, columns_of, conjunction, conjuncts
from hybridq.storage import is_url, stamp

SHORT_DICTIONARY = 0.5
"""Distinct values, as a share of the rows, up to which conditions are evaluated on them instead of on rows."""

MOST_ROWS = 2**31 - 2
"""Rows of a row group that have numbers of 32 bits, and one more."""

MOST_PARTNERS = 0.2
"""Share of a row group's rows that find a partner in a join above which rows without one are left to the join."""

ReadOthers = Callable[[ReadRequest], CpuFrame]


@dataclass(slots=True)
class _Group:
    """One row group of the chunk.

    Attributes
    ----------
    place : int
        Of its file among those of the request.
    file : int
        Descriptor of the open file.
    rows : int
    kept : array of int32 or None
        The rows that are left, ascending; ``None``: all.
    held : dict of str to Column
        What has been decoded, by name: the rows that are left.
    """

    place: int
    file: int
    path: str
    number: int
    metadata: pq.FileMetaData
    rows: int
    kept: Values | None = None
    held: dict[str, Column] = field(default_factory=dict)

    @property
    def left(self) -> int:
        return self.rows if self.kept is None else len(self.kept)

    def narrow(self, mask: Mask | None) -> None:
        """Keep some of the rows that are left; ``None``: all."""
        if mask is None or mask.all():
            return
        chosen = np.flatnonzero(mask)
        self.kept = chosen.astype(np.int32) if self.kept is None else self.kept[chosen]
        self.held = {name: column.take(chosen) for name, column in self.held.items()}


def read_selected(request: ReadRequest, kernels: ModuleType, read_others: ReadOthers) -> CpuFrame | None:
    """Read row groups.

    Parameters
    ----------
    request : ReadRequest
    kernels : module
        ``hybridq.engines.compiled.kernels``.
    read_others : callable
        Reads columns in another way: all rows.

    Returns
    -------
    CpuFrame or None
        Rows that do not satisfy the predicate are left out. ``None``: it is better, or only possible, to read
        everything in another way, also where something is wrong, which will be found then.
    """
    if any(is_url(path) for path, _ in request.files):
        return None
    try:
        with ExitStack() as files:
            return _Reading(request, kernels, read_others, files).frame()
    except ExecutionError:
        return None  # perhaps of a row that a cheaper condition drops when all columns are there
    except (CannotDecode, MemoryError, OSError, ValueError, KeyError, IndexError, pa.ArrowException):
        return None


@lru_cache(maxsize=4096)
def decodable(footer: FileFooter, source: str, data_type: pa.DataType) -> frozenset[int]:
    """Return the row groups of which a column is decoded here, and worth it, if it is to have some type."""
    try:
        (element,) = footer.elements([source])
    except CannotWrite:  # nested, or missing
        return frozenset()
    metadata = footer.metadata
    stored = metadata.schema.column(element.leaf)
    scaled = False
    if types.is_decimal(data_type):
        scaled = (stored.precision, stored.scale) == (data_type.precision, data_type.scale)
    elif types.normalize(metadata.schema.to_arrow_schema().field(source).type) != data_type:
        return frozenset()
    short = not types.is_string(data_type)
    return frozenset(
        group
        for group in range(metadata.num_row_groups)
        if pages.decodable(metadata, element.leaf, group, data_type, scaled)
        and (short or pages.short_dictionaries(metadata, element.leaf, (group,)))
    )


class _Reading:
    """One request."""

    def __init__(self, request: ReadRequest, kernels: ModuleType, read_others: ReadOthers, files: ExitStack) -> None:
        self._request = request
        self._kernels = kernels
        self._read_others = read_others
        self._constants = {constant.name: constant for constant in request.constants}
        self._columns: dict[str, ReadColumn | FileConstant] = {column.name: column for column in request.columns}
        self._columns |= self._constants
        self._groups: list[_Group] = []
        self._needed: set[str] = set()
        footers = [(path, numbers, footer_at(stamp(path))) for path, numbers in request.files]
        decoded = {
            column.name: column
            for column in request.columns
            if all(decodable(footer, column.source, column.type).issuperset(numbers) for _, numbers, footer in footers)
        }
        self._native = {*decoded, *self._constants}
        if not self._native:
            raise CannotDecode("no column is decoded here")
        self._leaves = {
            (path, name): footer.elements([column.source])[0].leaf
            for path, _, footer in footers
            for name, column in decoded.items()
        }
        for place, (path, numbers, footer) in enumerate(footers):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            files.callback(os.close, descriptor)
            self._groups += [
                _Group(place, descriptor, path, number, footer.metadata, rows)
                for number in numbers
                if (rows := footer.metadata.row_group(number).num_rows)
            ]
        if any(group.rows > MOST_ROWS for group in self._groups):
            raise CannotDecode("a row group whose rows have no numbers of 32 bits")

    def frame(self) -> CpuFrame:
        """Read and filter everything."""
        conditions = sorted(() if self._request.predicate is None else conjuncts(self._request.predicate), key=costly)
        own = [condition for condition in conditions if columns_of(condition) <= self._native]
        others = conjunction(tuple(condition for condition in conditions if condition not in own))
        self._needed = {*self._request.output, *(columns_of(others) if others is not None else ())}
        if own:
            choice = _Conditions(own)
            for group in self._groups:
                self._choose(group, choice)
        fetched: dict[str, Column] = {}
        if others is not None:
            fetched = self._filter_rest(others)
        for name, build in self._request.partners:
            if not fetched and name in self._native and isinstance(build, CpuBuildSide):
                self._drop_lonely(name, build)
        columns = {
            name: self._output(self._columns[name]) if name in self._native else fetched.get(name)
            for name in self._request.output
        }
        missing = [name for name, column in columns.items() if column is None]
        if missing:
            columns |= self._fetch(missing)
        found = {name: column for name, column in columns.items() if column is not None}
        return CpuFrame(found, sum(group.left for group in self._groups))

    def _decode(self, group: _Group, name: str) -> Decoded:
        if name in self._constants:
            return constant_chunk(self._constants[name], group.place, group.rows)
        leaf = self._leaves[group.path, name]
        chunk = group.metadata.row_group(group.number).column(leaf)
        nullable = group.metadata.schema.column(leaf).max_definition_level == 1
        dtype = storage_dtype(self._columns[name].type)
        return pages.decode(self._kernels, group.file, chunk, group.rows, nullable, dtype)

    # -- the predicate

    def _choose(self, group: _Group, conditions: _Conditions) -> None:
        """Apply the conditions on columns that are decoded here to one row group."""
        decoded: dict[str, Decoded] = {}
        later = list(conditions.several)
        for name, alone in conditions.alone.items():
            if group.left == 0:
                break
            found = decoded[name] = self._decode(group, name)
            wanted = conditions.on_dictionary(alone, self._columns[name], found, group.rows)
            if wanted is None:
                later += alone
            elif not wanted.all():
                group.kept = self._rows_where(group, wanted, found.codes)
        used = set(self._request.output)
        if later and group.left:
            used.update(*map(columns_of, later))
        for name in conditions.columns:
            if name in used and group.left and (name in decoded or later):
                group.held[name] = self._kept(group, name, decoded.get(name))
        predicate = conjunction(tuple(later))
        if predicate is not None and group.left:
            group.narrow(select(CpuFrame(group.held, group.left), predicate))
        group.held = {name: column for name, column in group.held.items() if name in self._needed}

    def _rows_where(self, group: _Group, wanted: Mask, codes: Values | None) -> Values:
        assert codes is not None
        if group.kept is None:
            rows = np.empty(group.rows + 1, np.int32)
            return rows[: self._kernels.rows_where(wanted, codes, rows)]
        return group.kept[: self._kernels.keep_where(wanted, codes, group.kept, len(group.kept))]

    def _kept(self, group: _Group, name: str, decoded: Decoded | None = None, out: Values | None = None) -> Column:
        """Return a column's rows that are left; numbers are written to ``out``, if it is given."""
        found = self._decode(group, name) if decoded is None else decoded
        data_type = self._columns[name].type
        valid = found.valid if found.valid is None or group.kept is None else found.valid[group.kept]
        if found.texts is not None:
            codes = found.codes if group.kept is None else self._take(found.codes, group.kept)
            return Column(data_type, codes, valid, dictionary=found.texts)
        assert found.table is not None
        values = np.empty(group.left, found.table.dtype) if out is None else out
        pages.gather(self._kernels, found.table, found.codes, group.kept, values)
        return Column(data_type, values, valid)

    def _take(self, values: Values | None, rows: Values) -> Values:
        assert values is not None
        out = np.empty(len(rows), values.dtype)
        pages.gather(self._kernels, values, None, rows, out)
        return out

    def _filter_rest(self, predicate: Expression) -> dict[str, Column]:
        """Apply the conditions that need other columns; returns those columns, of the rows that are left."""
        names = columns_of(predicate)
        others = [name for name in names if name not in self._native]
        columns = self._fetch(others)
        for name in names:
            if name in self._native:
                columns[name] = self._output(self._columns[name], hold=True)
        rows = sum(group.left for group in self._groups)
        mask = select(CpuFrame(columns, rows), predicate)
        if mask is not None:
            start = 0
            for group in self._groups:
                stop = start + group.left
                group.narrow(mask[start:stop])
                start = stop
        chosen = None if mask is None else np.flatnonzero(mask)
        return {name: columns[name] if chosen is None else columns[name].take(chosen) for name in others}

    def _drop_lonely(self, name: str, build: CpuBuildSide) -> None:
        """Leave out rows that a join by one of the columns drops, so that their other columns are not looked up."""
        for group in self._groups:
            if group.left == 0:
                continue
            part = group.held.get(name)
            if part is None:
                part = group.held[name] = self._kept(group, name)
            found = build.present_in(part)
            few = found is not None and np.count_nonzero(found) <= MOST_PARTNERS * group.left
            if not few and name not in self._constants:
                return  # it would be much the same with the next ones
            group.narrow(found)

    # -- the other columns

    def _output(self, column: ReadColumn | FileConstant, hold: bool = False) -> Column:
        """Return a column's rows that are left, of all row groups.

        Parameters
        ----------
        column : ReadColumn or FileConstant
        hold : bool
            The row groups keep their part.
        """
        groups = [group for group in self._groups if group.left]
        if not groups:
            return _empty(column.type)
        dtype = storage_dtype(column.type)
        values = None if dtype is None else np.empty(sum(group.left for group in groups), dtype)
        dictionary: pa.Array | None = None
        parts, start = [], 0
        for group in groups:
            out = None if values is None else values[start : start + group.left]
            start += group.left
            part = group.held.get(column.name)
            if part is None:
                part = self._kept(group, column.name, out=out)
                if hold:
                    group.held[column.name] = part
            elif out is not None:
                out[:] = part.numbers
            parts.append(part)
        if values is None:
            joined = _one_dictionary(self._kernels, parts)
            values, dictionary = joined.values, joined.dictionary
        bounds = {source: (low, high) for source, low, high in self._request.bounds}
        bounds_here = column_bounds(column.type, *bounds.get(column.source, (None, None)))
        return Column(column.type, values, concatenate_valid(parts), dictionary=dictionary, bounds=bounds_here)

    def _fetch(self, names: Sequence[str]) -> dict[str, Column]:
        """Have columns read in another way, of row groups with rows left; returns those rows."""
        groups = [group for group in self._groups if group.left]
        wanted = {column.name: column for column in self._request.columns}
        columns = tuple(wanted[name] for name in names)
        files: list[tuple[str, tuple[int, ...]]] = []
        for group in groups:
            if files and files[-1][0] == group.path:
                files[-1] = (group.path, (*files[-1][1], group.number))
            else:
                files.append((group.path, (group.number,)))
        if not files:
            return {column.name: _empty(column.type) for column in columns}
        frame = self._read_others(ReadRequest(tuple(files), columns, None, tuple(names), self._request.bounds))
        if any(group.kept is not None for group in groups):
            starts = np.cumsum([0, *(group.rows for group in groups)])
            rows = [
                np.arange(start, start + group.rows) if group.kept is None else group.kept.astype(np.int64) + start
                for group, start in zip(groups, starts.tolist(), strict=False)
            ]
            frame = frame.take(np.concatenate(rows, dtype=np.int64))
        return dict(frame.columns)


def _empty(data_type: pa.DataType) -> Column:
    return from_arrow(pa.array([], data_type))


class _Conditions:
    """The conditions on columns that are decoded here.

    Attributes
    ----------
    alone : dict of str to list of Expression
        Those on one column, by its name.
    several : list of Expression
        The others.
    columns : tuple of str
        All of their columns.
    """

    def __init__(self, conditions: Sequence[Expression]) -> None:
        self.alone: dict[str, list[Expression]] = {}
        self.several: list[Expression] = []
        for condition in conditions:
            names = columns_of(condition)
            if len(names) == 1:
                self.alone.setdefault(next(iter(names)), []).append(condition)
            else:
                self.several.append(condition)
        self.columns = tuple(dict.fromkeys(name for condition in conditions for name in sorted(columns_of(condition))))
        self._evaluators: Mapping[str, Evaluator] = {name: Evaluator(alone) for name, alone in self.alone.items()}

    def on_dictionary(
        self, conditions: Sequence[Expression], column: ReadColumn | FileConstant, found: Decoded, rows: int
    ) -> Mask | None:
        """Return for each value of a dictionary whether it satisfies conditions; ``None``: look at the rows instead."""
        if found.codes is None or found.valid is not None:
            return None
        if found.texts is not None:
            values = Column(column.type, array=found.texts)
        else:
            assert found.table is not None
            values = Column(column.type, found.table)
        if values.rows > SHORT_DICTIONARY * rows:
            return None
        block = Block({column.name: values}, values.rows)
        evaluator = self._evaluators[column.name]
        wanted: Mask | None = None
        try:
            for index in range(len(conditions)):
                result = evaluator.evaluate(block, index).expand(values.rows)
                wanted = combine_valid(wanted, is_true(result))
        except ExecutionError:
            return None  # perhaps only a row that another condition drops has that value
        return None if wanted is None else np.ascontiguousarray(wanted)


def _one_dictionary(kernels: ModuleType, parts: Sequence[Column]) -> Column:
    """Put string columns, each with a dictionary of its own, one below the other."""
    dictionaries = [part.dictionary for part in parts if part.dictionary is not None]
    codes = np.concatenate([part.values for part in parts if part.values is not None])
    first, valid = dictionaries[0], concatenate_valid(parts)
    if all(dictionary.equals(first) for dictionary in dictionaries[1:]) and len(first.unique()) == len(first):
        return Column(parts[0].type, codes, valid, dictionary=first)
    together = pa.concat_arrays(dictionaries).dictionary_encode()
    numbers = together.indices.to_numpy().copy()  # the loops take no array that may not be written
    start = place = 0
    for part, dictionary in zip(parts, dictionaries, strict=True):
        own = codes[start : start + part.rows]
        pages.gather(kernels, numbers[place : place + len(dictionary)], own, None, own)
        start += part.rows
        place += len(dictionary)
    return Column(parts[0].type, codes, valid, dictionary=together.dictionary)
