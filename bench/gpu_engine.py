"""Time the GPU engine alone on TPC-H Q1, Q3 and Q6, chunk by chunk in one thread, without planner or Dask.

    python bench/gpu_engine.py DATA_FOLDER [--chunk-files 4] [--repeat 3] [--only q1,q6] [--memory 0.8] [--check]

DATA_FOLDER holds lineitem.parquet (or a folder lineitem/ of Parquet files), and orders and customer for Q3. Prints one
JSON line a query: the median of the repetitions after one run to warm up, in all and by section, the rows read in a
second, the peak of the device's memory, and how often the CPU had to help. ``--check`` compares the answers with the
CPU engine's.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hybridq.engines.cpu import CpuEngine
from hybridq.engines.protocol import Engine, Frame, ReadColumn, ReadRequest
from hybridq.merge.aggregate import merge_partials
from hybridq.physical.merges import AggregateMerge
from hybridq.plan.expressions import AggregateCall, Call, Column, Expression, Literal, NamedExpression, SortKey
from hybridq.plan.functions import result_type
from hybridq.types import Field, Schema, normalize, sum_type

BOOL = pa.bool_()

Files = list[tuple[str, tuple[int, ...]]]


class Table:
    """A table's files, types and value ranges."""

    def __init__(self, folder: Path, name: str) -> None:
        single = folder / f"{name}.parquet"
        paths = [single] if single.exists() else sorted((folder / name).glob("*.parquet"))
        if not paths:
            raise SystemExit(f"there is no {single} and no folder {folder / name}")
        self.files: Files = []
        self.rows = 0
        self.types: dict[str, pa.DataType] = {}
        self._ranges: dict[str, tuple[object, object] | None] = {}
        for path in paths:
            metadata = pq.read_metadata(path)
            self.rows += metadata.num_rows
            self.files.append((str(path), tuple(range(metadata.num_row_groups))))
            self.types = {field.name: normalize(field.type) for field in metadata.schema.to_arrow_schema()}
            self._widen(metadata)

    def _widen(self, metadata: pq.FileMetaData) -> None:
        for group in range(metadata.num_row_groups):
            for index in range(metadata.num_columns):
                column = metadata.row_group(group).column(index)
                name, known = column.path_in_schema, column.statistics
                if known is None or not known.has_min_max or self._ranges.get(name, ()) is None:
                    self._ranges[name] = None
                    continue
                old = self._ranges.get(name)
                low, high = known.min, known.max
                self._ranges[name] = (low, high) if old is None else (min(old[0], low), max(old[1], high))

    def request(self, files: Files, names: list[str], predicate: Expression | None, output: list[str]) -> ReadRequest:
        """Return what to read."""
        bounds = tuple((name, *self._ranges[name]) for name in names if self._ranges.get(name) is not None)
        read = tuple(ReadColumn(name, name, self.types[name]) for name in names)
        return ReadRequest(tuple(files), read, predicate, tuple(output), bounds)

    def column(self, name: str) -> Column:
        """Return a reference to a column."""
        return Column(self.types[name], name)

    def chunks(self, files: int) -> Iterator[Files]:
        """Cut the files into chunks; a single file by row groups, into as many as there would be files of 11 M rows."""
        if len(self.files) > 1:
            yield from (self.files[start : start + files] for start in range(0, len(self.files), files))
            return
        ((path, groups),) = self.files
        parts = max(1, round(self.rows / (files * 11_000_000)))
        size = -(-len(groups) // parts)
        yield from ([(path, groups[start : start + size])] for start in range(0, len(groups), size))


class Clock:
    """Seconds by section, the device waited for."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self.seconds: dict[str, float] = {}
        self._wait = wait

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._wait()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def literal(text: str) -> Literal:
    value = Decimal(text)
    digits = value.as_tuple()
    scale = max(-int(digits.exponent), 0)
    return Literal(pa.decimal128(max(len(digits.digits), scale), scale), value)


def typed(function: str, left: Expression, right: Expression) -> Call:
    return Call(result_type(function, (left.type, right.type)), function, (left, right))


def compare(function: str, left: Expression, right: Expression) -> Call:
    return Call(BOOL, function, (left, right))


def both(*predicates: Expression) -> Call:
    return Call(BOOL, "and", predicates)


def day(text: str) -> Literal:
    return Literal(pa.date32(), datetime.date.fromisoformat(text))


def total(name: str, argument: Expression) -> AggregateCall:
    return AggregateCall(name, "sum", argument, sum_type(argument.type))


def merged(
    parts: list[pa.Table], groups: list[NamedExpression], calls: list[AggregateCall], schema: Schema
) -> pa.Table:
    merge_calls = tuple(AggregateCall(call.name, "sum", Column(call.type, call.name), call.type) for call in calls)
    return merge_partials(AggregateMerge(tuple(item.name for item in groups), merge_calls, (), schema), parts)


def schema_of(groups: list[NamedExpression], calls: list[AggregateCall]) -> Schema:
    return tuple(Field(item.name, item.expression.type) for item in groups) + tuple(
        Field(call.name, call.type) for call in calls
    )


def discounted(table: Table) -> Call:
    return typed(
        "multiply", table.column("l_extendedprice"), typed("subtract", literal("1"), table.column("l_discount"))
    )


def q1(engine: Engine, tables: dict[str, Table], clock: Clock, chunk_files: int) -> pa.Table:
    lineitem = tables["lineitem"]
    names = ["l_returnflag", "l_linestatus", "l_quantity", "l_extendedprice", "l_discount", "l_tax", "l_shipdate"]
    predicate = compare("less_equal", lineitem.column("l_shipdate"), day("1998-09-02"))
    groups = [NamedExpression(name, lineitem.column(name)) for name in names[:2]]
    price = discounted(lineitem)
    calls = [
        total("sum_qty", lineitem.column("l_quantity")),
        total("sum_base_price", lineitem.column("l_extendedprice")),
        total("sum_disc_price", price),
        total("sum_charge", typed("multiply", price, typed("add", literal("1"), lineitem.column("l_tax")))),
        total("sum_disc", lineitem.column("l_discount")),
        AggregateCall("count_order", "count", None, pa.int64()),
    ]
    return aggregated(engine, lineitem, names, predicate, names[:-1], groups, calls, clock, chunk_files)


def q6(engine: Engine, tables: dict[str, Table], clock: Clock, chunk_files: int) -> pa.Table:
    lineitem = tables["lineitem"]
    names = ["l_shipdate", "l_discount", "l_quantity", "l_extendedprice"]
    predicate = both(
        compare("greater_equal", lineitem.column("l_shipdate"), day("1994-01-01")),
        compare("less", lineitem.column("l_shipdate"), day("1995-01-01")),
        compare("greater_equal", lineitem.column("l_discount"), literal("0.05")),
        compare("less_equal", lineitem.column("l_discount"), literal("0.07")),
        compare("less", lineitem.column("l_quantity"), literal("24.00")),
    )
    product = typed("multiply", lineitem.column("l_extendedprice"), lineitem.column("l_discount"))
    calls = [total("revenue", product)]
    return aggregated(
        engine, lineitem, names, predicate, ["l_extendedprice", "l_discount"], [], calls, clock, chunk_files
    )


def aggregated(
    engine: Engine,
    table: Table,
    names: list[str],
    predicate: Expression,
    output: list[str],
    groups: list[NamedExpression],
    calls: list[AggregateCall],
    clock: Clock,
    chunk_files: int,
) -> pa.Table:
    """Read, filter and aggregate chunk by chunk; merge on the CPU."""
    schema = schema_of(groups, calls)
    parts = []
    for files in table.chunks(chunk_files):
        with clock.section("read and filter"):
            frame = engine.read(table.request(files, names, predicate, output))
        with clock.section("aggregate"):
            frame = engine.aggregate(frame, groups, calls)
        with clock.section("to Arrow"):
            parts.append(engine.to_arrow(frame, schema))
    with clock.section("merge"):
        return merged(parts, groups, calls, schema)


def q3(engine: Engine, tables: dict[str, Table], clock: Clock, chunk_files: int) -> pa.Table:
    customer, orders, lineitem = tables["customer"], tables["orders"], tables["lineitem"]
    with clock.section("build customer"):
        segment = compare("equal", customer.column("c_mktsegment"), Literal(pa.string(), "BUILDING"))
        request = customer.request(customer.files, ["c_custkey", "c_mktsegment"], segment, ["c_custkey"])
        customers = engine.build(engine.read(request), ["c_custkey"])
    kept = ["o_orderkey", "o_orderdate", "o_shippriority"]
    found: list[Frame] = []
    before = compare("less", orders.column("o_orderdate"), day("1995-03-15"))
    for files in orders.chunks(chunk_files):
        with clock.section("read orders"):
            frame = engine.read(orders.request(files, [*kept, "o_custkey"], before, [*kept, "o_custkey"]))
        with clock.section("probe customer"):
            found.append(engine.probe(frame, customers, "semi", [orders.column("o_custkey")], None, kept))
    with clock.section("build orders"):
        build = engine.build(engine.concatenate(found), ["o_orderkey"])
    names = ["l_orderkey", "l_extendedprice", "l_discount", "l_shipdate"]
    after = compare("greater", lineitem.column("l_shipdate"), day("1995-03-15"))
    groups = [NamedExpression("l_orderkey", lineitem.column("l_orderkey"))]
    groups += [NamedExpression(name, orders.column(name)) for name in kept[1:]]
    calls = [total("revenue", discounted(lineitem))]
    schema = schema_of(groups, calls)
    keys = [SortKey(Column(calls[0].type, "revenue"), descending=True), SortKey(orders.column("o_orderdate"))]
    output = ["l_orderkey", "l_extendedprice", "l_discount", *kept[1:]]
    parts = []
    for files in lineitem.chunks(chunk_files):
        with clock.section("read lineitem"):
            frame = engine.read(lineitem.request(files, names, after, names[:-1]))
        with clock.section("probe orders"):
            frame = engine.probe(frame, build, "inner", [lineitem.column("l_orderkey")], None, output)
        with clock.section("aggregate"):
            frame = engine.aggregate(frame, groups, calls)
        with clock.section("to Arrow"):
            parts.append(engine.to_arrow(frame, schema))
    with clock.section("merge"):
        sums = engine.from_arrow(pa.concat_tables(parts))
        again = [AggregateCall("revenue", "sum", Column(calls[0].type, "revenue"), calls[0].type)]
        sums = engine.aggregate(sums, [NamedExpression(f.name, Column(f.type, f.name)) for f in schema[:-1]], again)
        return engine.to_arrow(engine.top_k(sums, keys, 10), schema)


QUERIES = {"q1": (q1, ["lineitem"]), "q3": (q3, ["customer", "orders", "lineitem"]), "q6": (q6, ["lineitem"])}


def ordered_rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the GPU engine alone on Q1, Q3 and Q6.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chunk-files", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="q1,q3,q6")
    parser.add_argument("--memory", type=float, default=0.8, help="share of the device's memory, or bytes above 1")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()

    from hybridq.engines.gpu.device import synchronize
    from hybridq.engines.gpu.engine import GpuEngine
    from hybridq.engines.gpu.memory import start_device

    memory = start_device(arguments.memory if arguments.memory <= 1 else int(arguments.memory))
    engine = GpuEngine(memory)
    for name in arguments.only.split(","):
        query, needed = QUERIES[name]
        tables = {table: Table(arguments.folder, table) for table in needed}
        runs = []
        for _ in range(arguments.repeat + 1):
            memory.restart_peak()
            clock = Clock(synchronize)
            start = time.perf_counter()
            answer = query(engine, tables, clock, arguments.chunk_files)
            runs.append((time.perf_counter() - start, clock.seconds, memory.restart_peak()))
        seconds = statistics.median(run[0] for run in runs[1:])
        sections = {part: round(statistics.median(run[1][part] for run in runs[1:]), 4) for part in runs[0][1]}
        line: dict[str, object] = {
            "query": name,
            "seconds": round(seconds, 4),
            "first_run": round(runs[0][0], 4),
            "sections": sections,
            "rows_per_second": round(sum(table.rows for table in tables.values()) / seconds),
            "peak_bytes": max(run[2] for run in runs),
            "host_evaluations": engine.host_evaluations,
            "rows": answer.num_rows,
        }
        if arguments.check:
            expected = query(CpuEngine(), tables, Clock(lambda: None), arguments.chunk_files)
            line["right"] = ordered_rows(answer) == ordered_rows(expected)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
