"""Joins: pairs of row numbers first (counted before anything is copied), then the columns that are asked for.

Where the build side has one integer key (or date, or narrow decimal) without repeats in a range that is not much larger
than its number of rows, a table over that range gives the build row of each key; it is made once. Else the keys are
hashed. Pairs are in the order of the left rows, those of one row in the order of the build rows.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property

import pyarrow as pa
import pylibcudf as plc
from pylibcudf.types import NullEquality, NullPolicy

from hybridq import types
from hybridq.engines.column import INT64, within
from hybridq.engines.gpu import device
from hybridq.engines.gpu.column import GpuColumn, null_column, same_width
from hybridq.engines.gpu.comparison import is_true
from hybridq.engines.gpu.device import compare
from hybridq.engines.gpu.evaluate import Evaluator
from hybridq.engines.gpu.frame import GpuFrame
from hybridq.engines.gpu.host import Host
from hybridq.engines.protocol import ProbeKind
from hybridq.errors import DeviceOutOfMemory, Unsupported
from hybridq.plan.expressions import Expression

SPARSITY = 64
"""Range of the keys over number of rows up to which a lookup table is made."""

SMALL_RANGE = 1 << 22
"""Range of the keys up to which a lookup table is made for any number of rows."""

MISSING = -1

Pairs = tuple[plc.Column, plc.Column]


class LookupTable:
    """The build row of each key of a range.

    Attributes
    ----------
    low, high : int
        The range.
    table : pylibcudf.Column
        Row numbers, ``MISSING`` where there is none; one more element than the range, which is always missing.
    """

    def __init__(self, low: int, high: int, table: plc.Column) -> None:
        self.low = low
        self.high = high
        self.table = table

    def find(self, key: GpuColumn) -> plc.Column:
        """Return the build row of each key, ``MISSING`` where there is none."""
        values = device.to_int64(key.data)
        past = device.scalar(self.high + 1, device.INT64)
        if key.bounds is None or not within(key.bounds, (self.low, self.high)):
            ends = [device.scalar(end, device.INT64) for end in (self.low, self.high)]
            values = plc.replace.clamp(values, ends[0], ends[1], past, past)
        values = device.fill_null(values, self.high + 1)
        if self.low:
            values = device.binary("subtract", values, device.scalar(self.low, device.INT64), device.INT64)
        return device.gather([self.table], values)[0]


def lookup_table(key: GpuColumn) -> LookupTable | None:
    """Make a lookup table for one key column; ``None`` where it would be large, or a key appears twice."""
    number = types.is_integer(key.type) or types.is_decimal(key.type) or pa.types.is_date32(key.type)
    present = key.rows - key.nulls
    if not number or present == 0:
        return None
    low, high = key.interval()
    if high - low >= max(SMALL_RANGE, SPARSITY * present):
        low, high = key.measured()
    span = high - low + 1
    if span > max(SMALL_RANGE, SPARSITY * present) or span >= device.MAX_ROWS or not within((low, high + 1), INT64):
        return None
    values = device.to_int64(key.data)
    rows = device.positions(key.rows)
    if key.nulls:
        values, rows = device.keep([values, rows], device.is_valid(values))
    slots = device.binary("subtract", values, device.scalar(low, device.INT64), device.INT64)
    target = device.full(device.scalar(MISSING, device.INT32), span + 1)
    table = device.scatter(rows, slots, target)
    del target
    if device.count_true(_found(table)) != present:
        return None
    return LookupTable(low, high, table)


def _found(rows: plc.Column) -> plc.Column:
    return compare("greater_equal", rows, device.scalar(0, device.INT32))


class GpuBuildSide:
    """The build side of a join. Threads share it."""

    def __init__(self, frame: GpuFrame, keys: Sequence[str]) -> None:
        self.frame = frame
        self.names = tuple(keys)
        self.keys = [frame.columns[key].narrowed() for key in keys]
        self.lookup = lookup_table(self.keys[0]) if len(self.keys) == 1 else None
        self._lock = threading.Lock()
        self._hashed: tuple[plc.Table, plc.join.FilteredJoin] | None = None

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return self.frame.rows

    @property
    def nbytes(self) -> int:
        """Return the bytes held, shared buffers included."""
        table = 0 if self.lookup is None else int(self.lookup.table.device_buffer_size())
        return self.frame.nbytes + table

    @cached_property
    def most_matches(self) -> int:
        """Return how many rows share one key at most."""
        if not self.keys or self.rows == 0:
            return self.rows
        if self.lookup is not None:
            return 1
        request = plc.groupby.GroupByRequest(self.keys[0].data, [plc.aggregation.count(NullPolicy.INCLUDE)])
        keys = plc.Table([device.normalized(key.data) for key in self.keys])
        _, tables = plc.groupby.GroupBy(keys, NullPolicy.EXCLUDE).aggregate([request])
        return device.extent(tables[0].columns()[0])[1]

    @cached_property
    def without_first_key(self) -> GpuBuildSide:
        """Return the same rows by the other keys."""
        return self._shared(self.frame)

    @cached_property
    def null_first_key(self) -> GpuBuildSide:
        """Return the rows whose first key is NULL, by the other keys."""
        key = self.keys[0]
        rows = self.frame.keep(device.is_null(key.data)) if key.nulls else self.frame.slice(0, 0)
        return self._shared(rows)

    def _shared(self, frame: GpuFrame) -> GpuBuildSide:
        side = GpuBuildSide(frame, self.names[1:])
        # Other threads, on other streams, may use it at once.
        device.synchronize()
        return side

    def matching(self, keys: Sequence[GpuColumn]) -> plc.Column:
        """Return the numbers of the left rows that have a match, in any order."""
        left, right = _key_tables(keys, self.keys)
        if any(key.wide for key in keys) != any(key.wide for key in self.keys):
            return plc.join.left_semi_join(left, right, NullEquality.UNEQUAL)
        with self._lock:
            if self._hashed is None:
                # The hash table refers to the keys' memory: both live as long as this object.
                hashed = right, plc.join.FilteredJoin(right, NullEquality.UNEQUAL)
                device.synchronize()
                self._hashed = hashed
        return self._hashed[1].semi_join(left)


def _key_tables(left: Sequence[GpuColumn], right: Sequence[GpuColumn]) -> tuple[plc.Table, plc.Table]:
    """Return the keys of both sides, pairwise of one physical type."""
    sides: tuple[list[plc.Column], list[plc.Column]] = ([], [])
    for pair in zip(left, right, strict=True):
        a, b = same_width(pair)
        if a.type != b.type and not (types.is_decimal(a.type) and a.type.scale == b.type.scale):
            if not (types.is_integer(a.type) and types.is_integer(b.type)):
                raise Unsupported(f"joining {a.type} with {b.type} is not supported on the GPU")
            a, b = (GpuColumn(pa.int64(), device.to_int64(key.data)) for key in (a, b))
        sides[0].append(device.normalized(a.data))
        sides[1].append(device.normalized(b.data))
    return plc.Table(sides[0]), plc.Table(sides[1])


class _Probe:
    """One probe: the left rows, the build side and the left keys."""

    def __init__(self, frame: GpuFrame, build: GpuBuildSide, keys: Sequence[Expression], host: Host) -> None:
        self.frame = frame
        self.build = build
        self.host = host
        evaluator = Evaluator(frame, host)
        self.keys = [evaluator.column(key).narrowed() for key in keys]

    @property
    def empty(self) -> bool:
        """Tell whether one side has no rows."""
        return self.frame.rows == 0 or self.build.rows == 0

    def found(self) -> plc.Column | None:
        """Return each left row's only build row by the lookup table; ``None`` where there is no such table."""
        lookup = self.build.lookup
        if lookup is None or self.keys[0].wide or self.keys[0].type != self.build.keys[0].type:
            return None
        return lookup.find(self.keys[0])

    def pairs(self) -> Pairs:
        """Return the left and the build row of every match."""
        rows = self.found()
        if rows is not None:
            left, right = device.keep([device.positions(self.frame.rows), rows], _found(rows))
            return left, right
        if not self.keys:
            return _all_pairs(self.frame.rows, self.build.rows)
        return _ordered(*plc.join.inner_join(*_key_tables(self.keys, self.build.keys), NullEquality.UNEQUAL))

    def passing(self, residual: Expression | None) -> Pairs:
        """Return the pairs that satisfy the residual."""
        left, right = self.pairs()
        if residual is None or left.size() == 0:
            return left, right
        joined = _Joined(self.frame, self.build.frame, left, right)
        left, right = device.keep([left, right], Evaluator(joined, self.host).mask(residual))
        return left, right

    def hits(self, residual: Expression | None) -> plc.Column:
        """Return which left rows have a match."""
        none = device.full(device.scalar(False, device.BOOL), self.frame.rows)
        if self.empty:
            return none
        if residual is None and not self.keys:
            return device.full(device.scalar(True, device.BOOL), self.frame.rows)
        rows = self.found() if residual is None else None
        if rows is not None:
            return _found(rows)
        matching = self.build.matching(self.keys) if residual is None and self.keys else self.passing(residual)[0]
        return device.scatter(device.scalar(True, device.BOOL), matching, none) if matching.size() else none

    def unknown(self, keys: Sequence[Expression], residual: Expression | None) -> plc.Column:
        """Return for which left rows NULL, on either side, hides if the first keys are equal for some pair."""
        found = _Probe(self.frame, self.build.null_first_key, keys[1:], self.host).hits(residual)
        if self.keys[0].nulls:
            rest = _Probe(self.frame, self.build.without_first_key, keys[1:], self.host).hits(residual)
            found = compare("or", found, compare("and", rest, device.is_null(self.keys[0].data)))
        return found


def _all_pairs(left: int, right: int) -> Pairs:
    """Return every pair of rows."""
    if left * right > device.MAX_ROWS:
        raise DeviceOutOfMemory(f"a join of {left} by {right} rows without keys has too many rows", 0, 0)
    (first,) = plc.filling.repeat(plc.Table([device.positions(left)]), right).columns()
    count = device.scalar(right, device.INT32)
    return first, device.binary("modulus", device.positions(left * right), count, device.INT32)


def _ordered(left: plc.Column, right: plc.Column) -> Pairs:
    """Order pairs by left row, then by build row: hashing gives them in an order that changes from run to run."""
    if left.size() < 2:
        return left, right
    high = device.binary("multiply", device.to_int64(left), device.scalar(2**32, device.INT64), device.INT64)
    both = device.binary("add", high, device.to_int64(right), device.INT64)
    del high, left, right
    order = [plc.types.Order.ASCENDING]
    (both,) = plc.sorting.sort(plc.Table([both]), order, [plc.types.NullOrder.AFTER]).columns()
    left = device.binary("shift_right", both, device.scalar(32, device.INT64), device.INT64)
    right = device.binary("bits", both, device.scalar(2**32 - 1, device.INT64), device.INT64)
    return device.cast(left, device.INT32), device.cast(right, device.INT32)


class _Joined:
    """Columns of both sides for pairs of rows, copied when first asked for."""

    def __init__(self, left: GpuFrame, right: GpuFrame, left_rows: plc.Column, right_rows: plc.Column) -> None:
        self._left = left
        self._right = right
        self._left_rows = left_rows
        self._right_rows = right_rows
        self._columns: dict[str, GpuColumn] = {}
        self.rows = int(left_rows.size())

    def column(self, name: str) -> GpuColumn:
        """Return a column."""
        found = self._columns.get(name)
        if found is None:
            on_left = name in self._left.columns
            origin = self._left.columns[name] if on_left else self._right.columns[name]
            rows = self._left_rows if on_left else self._right_rows
            found = self._columns[name] = origin.with_data(device.gather([origin.data], rows)[0])
        return found


def count_matches(frame: GpuFrame, build: GpuBuildSide, keys: Sequence[Expression], host: Host) -> int:
    """Count the pairs of an inner join, before any residual."""
    probe = _Probe(frame, build, keys, host)
    if probe.empty:
        return 0
    if not keys:
        return frame.rows * build.rows
    rows = probe.found()
    if rows is not None:
        return device.count_true(_found(rows))
    return int(plc.join.inner_join(*_key_tables(probe.keys, build.keys), NullEquality.UNEQUAL)[0].size())


def probe_frame(
    frame: GpuFrame,
    build: GpuBuildSide,
    kind: ProbeKind,
    keys: Sequence[Expression],
    residual: Expression | None,
    output: Sequence[str],
    host: Host,
    null_aware: bool = False,
    mark: str | None = None,
) -> GpuFrame:
    """Join; see ``Engine.probe``."""
    probe = _Probe(frame, build, keys, host)
    if kind in ("semi", "anti", "mark"):
        hits = probe.hits(residual)
        unknown = probe.unknown(keys, residual) if null_aware else None
        if kind == "mark":
            if unknown is not None:
                hits = device.with_nulls(hits, compare("or", hits, device.negated(unknown)))
            marks = GpuColumn(pa.bool_(), hits)
            return GpuFrame({name: marks if name == mark else frame.columns[name] for name in output}, frame.rows)
        if kind == "anti":
            hits = device.negated(hits if unknown is None else compare("or", hits, unknown))
        return frame.pick(output).keep(hits)
    if probe.empty:
        rows = frame.rows if kind == "left" else 0
        return _put_together(frame.slice(0, rows).columns, _nulls(build.frame, rows), output, rows)
    if residual is None and (found := probe.found()) is not None:
        return _joined_by_lookup(frame, build.frame, kind, found, output)
    left, right = probe.passing(residual)
    if kind == "left":
        left, right = _padded(left, right, frame.rows, build.rows)
    return _gathered(frame, build.frame, left, right, output, checked=kind == "left")


def _joined_by_lookup(
    frame: GpuFrame, build: GpuFrame, kind: ProbeKind, rows: plc.Column, output: Sequence[str]
) -> GpuFrame:
    """Join left rows with at most one build row each."""
    left_names = [name for name in output if name in frame.columns]
    left: Mapping[str, GpuColumn]
    mask = _found(rows)
    matches = device.count_true(mask)
    if matches == frame.rows:
        # Every row of the left side, in order: its columns stay as they are.
        left = frame.pick(left_names).columns
    elif kind == "left":
        left = frame.pick(left_names).columns
        rows = device.choose(mask, rows, device.scalar(build.rows, device.INT32))
    else:
        kept = device.keep([*(frame.columns[name].data for name in left_names), rows], mask)
        rows = kept.pop()
        left = {name: frame.columns[name].with_data(data) for name, data in zip(left_names, kept, strict=True)}
    padded = kind == "left" and matches < frame.rows
    right = _taken(build, [name for name in output if name not in frame.columns], rows, padded)
    return _put_together(left, right, output, int(rows.size()))


def _gathered(
    frame: GpuFrame, build: GpuFrame, left: plc.Column, right: plc.Column, output: Sequence[str], checked: bool
) -> GpuFrame:
    left_columns = _taken(frame, [name for name in output if name in frame.columns], left, False)
    right_columns = _taken(build, [name for name in output if name not in frame.columns], right, checked)
    return _put_together(left_columns, right_columns, output, int(left.size()))


def _taken(frame: GpuFrame, names: Sequence[str], rows: plc.Column, checked: bool) -> dict[str, GpuColumn]:
    data = device.gather([frame.columns[name].data for name in names], rows, checked)
    return {name: frame.columns[name].with_data(values) for name, values in zip(names, data, strict=True)}


def _nulls(frame: GpuFrame, rows: int) -> dict[str, GpuColumn]:
    return {name: null_column(column.type, rows) for name, column in frame.columns.items()}


def _put_together(
    left: Mapping[str, GpuColumn], right: Mapping[str, GpuColumn], output: Sequence[str], rows: int
) -> GpuFrame:
    return GpuFrame({name: left[name] if name in left else right[name] for name in output}, rows)


def _padded(left: plc.Column, right: plc.Column, rows: int, past: int) -> Pairs:
    """Add a pair with the build row ``past`` for each left row that is in no pair, keeping the order of rows."""
    alone = device.full(device.scalar(True, device.BOOL), rows)
    if left.size():
        alone = device.scatter(device.scalar(False, device.BOOL), left, alone)
    (missing,) = device.keep([device.positions(rows)], is_true(alone))
    if missing.size() == 0:
        return left, right
    filler = device.full(device.scalar(past, device.INT32), int(missing.size()))
    if left.size() == 0:
        return missing, filler
    return _ordered(plc.concatenate.concatenate([left, missing]), plc.concatenate.concatenate([right, filler]))
