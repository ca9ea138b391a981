"""Time the CPU engine's kernels on pipelines of TPC-H, chunk by chunk on one thread, without planner or Dask.

    python bench/kernels.py DATA_FOLDER [--groups 16] [--repeat 3] [--only q1,q3]

DATA_FOLDER holds lineitem.parquet, orders.parquet and so on. Prints processor seconds by section: the best of the
repetitions, after one run to warm up. ``decode`` is what pyarrow alone takes to read the columns.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hybridq.engines.cpu import CpuEngine
from hybridq.engines.protocol import ReadColumn, ReadRequest
from hybridq.merge.aggregate import merge_partials
from hybridq.physical.merges import AggregateMerge
from hybridq.plan.expressions import (
    AggregateCall,
    Call,
    Case,
    Column,
    Expression,
    In,
    Literal,
    NamedExpression,
    SortKey,
)
from hybridq.types import Field, Schema

MONEY = pa.decimal128(15, 2)
BOOL, DATE, KEY, TEXT = pa.bool_(), pa.date32(), pa.int64(), pa.string()
COLUMN_TYPES = {
    "l_orderkey": KEY, "l_partkey": KEY, "l_suppkey": KEY, "l_quantity": MONEY, "l_extendedprice": MONEY,
    "l_discount": MONEY, "l_tax": MONEY, "l_returnflag": TEXT, "l_linestatus": TEXT, "l_shipdate": DATE,
    "l_commitdate": DATE, "l_receiptdate": DATE, "l_shipmode": TEXT,
    "o_orderkey": KEY, "o_custkey": KEY, "o_orderdate": DATE, "o_shippriority": pa.int32(), "o_orderpriority": TEXT,
    "o_comment": TEXT, "c_custkey": KEY, "c_mktsegment": TEXT, "p_partkey": KEY, "p_type": TEXT,
}  # fmt: skip


class Clock:
    """Processor seconds by section."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start


def column(name: str) -> Column:
    return Column(COLUMN_TYPES[name], name)


def decimal(text: str) -> Literal:
    value = Decimal(text)
    digits = value.as_tuple()
    return Literal(pa.decimal128(max(len(digits.digits), -digits.exponent), -digits.exponent), value)


def date(text: str) -> Literal:
    return Literal(DATE, datetime.date.fromisoformat(text))


def call(function: str, *arguments: Expression, returns: pa.DataType = BOOL) -> Call:
    return Call(returns, function, arguments)


def every(*conditions: Expression) -> Call:
    return call("and", *conditions)


def total(argument: Expression) -> AggregateCall:
    scale = argument.type.scale
    return AggregateCall(f"sum({argument})", "sum", argument, pa.decimal128(38, scale))


ONE = decimal("1")
DISCOUNTED = call(
    "multiply", column("l_extendedprice"),
    call("subtract", ONE, column("l_discount"), returns=pa.decimal128(16, 2)), returns=pa.decimal128(32, 4),
)  # fmt: skip
CHARGED = call(
    "multiply", DISCOUNTED, call("add", ONE, column("l_tax"), returns=pa.decimal128(16, 2)),
    returns=pa.decimal128(38, 6),
)  # fmt: skip
ROWS = AggregateCall("count(*)", "count", None, pa.int64())


class Table:
    """A Parquet file and how its row groups make chunks."""

    def __init__(self, folder: Path, name: str, groups: int) -> None:
        self.path = str(folder / f"{name}.parquet")
        self.metadata = pq.read_metadata(self.path)
        count = self.metadata.num_row_groups
        self.chunks = [tuple(range(start, min(start + groups, count))) for start in range(0, count, groups)]
        self.bounds = self._bounds()

    def _bounds(self) -> dict[str, tuple[object, object]]:
        found = {}
        for index in range(self.metadata.num_columns):
            statistics = [self.metadata.row_group(group).column(index).statistics
                          for group in range(self.metadata.num_row_groups)]  # fmt: skip
            if all(item is not None and item.has_min_max for item in statistics):
                name = self.metadata.schema.column(index).path
                found[name] = (min(item.min for item in statistics), max(item.max for item in statistics))
        return found

    def request(
        self, chunk: tuple[int, ...], names: list[str], predicate: Expression | None, output: list[str]
    ) -> ReadRequest:
        columns = tuple(ReadColumn(name, name, COLUMN_TYPES[name]) for name in names)
        bounds = tuple((name, *self.bounds[name]) for name in names if name in self.bounds)
        return ReadRequest(((self.path, chunk),), columns, predicate, tuple(output), bounds)

    def decode(self, names: list[str], dictionaries: list[str]) -> None:
        for chunk in self.chunks:
            file = pq.ParquetFile(self.path, metadata=self.metadata, read_dictionary=dictionaries)
            file.read_row_groups(list(chunk), columns=names, use_threads=False)


def aggregate_chunks(
    engine: CpuEngine,
    clock: Clock,
    frames: Iterator[object],
    groups: list[NamedExpression],
    calls: list[AggregateCall],
) -> pa.Table:
    schema: Schema = tuple(Field(item.name, item.expression.type) for item in groups) + tuple(
        Field(item.name, item.type) for item in calls
    )
    partials = []
    for frame in frames:
        with clock.section("aggregate"):
            partials.append(engine.to_arrow(engine.aggregate(frame, groups, calls), schema))
    names = tuple(item.name for item in groups)
    merged = tuple(
        AggregateCall(
            item.name, "sum" if item.function == "count" else item.function, Column(item.type, item.name), item.type
        )
        for item in calls
    )
    with clock.section("merge"):
        return merge_partials(AggregateMerge(names, merged, (), schema), partials)


def read_chunks(
    engine: CpuEngine, clock: Clock, table: Table, names: list[str], predicate: Expression | None, output: list[str]
) -> Iterator[object]:
    for chunk in table.chunks:
        with clock.section("read"):
            frame = engine.read(table.request(chunk, names, predicate, output))
        yield frame


def named(*names: str) -> list[NamedExpression]:
    return [NamedExpression(name, column(name)) for name in names]


def q1(engine: CpuEngine, clock: Clock, tables: Callable[[str], Table]) -> pa.Table:
    names = ["l_quantity", "l_extendedprice", "l_discount", "l_tax", "l_returnflag", "l_linestatus", "l_shipdate"]
    lineitem = tables("lineitem")
    with clock.section("decode"):
        lineitem.decode(names, ["l_returnflag", "l_linestatus"])
    predicate = call("less_equal", column("l_shipdate"), date("1998-09-02"))
    frames = read_chunks(engine, clock, lineitem, names, predicate, names[:-1])
    sums = [
        total(item)
        for item in (column("l_quantity"), column("l_extendedprice"), DISCOUNTED, CHARGED, column("l_discount"))
    ]
    return aggregate_chunks(engine, clock, frames, named("l_returnflag", "l_linestatus"), [*sums, ROWS])


def q6(engine: CpuEngine, clock: Clock, tables: Callable[[str], Table]) -> pa.Table:
    names = ["l_quantity", "l_extendedprice", "l_discount", "l_shipdate"]
    lineitem = tables("lineitem")
    with clock.section("decode"):
        lineitem.decode(names, [])
    predicate = every(
        call("greater_equal", column("l_shipdate"), date("1994-01-01")),
        call("less", column("l_shipdate"), date("1995-01-01")),
        call("greater_equal", column("l_discount"), decimal("0.05")),
        call("less_equal", column("l_discount"), decimal("0.07")),
        call("less", column("l_quantity"), decimal("24")),
    )
    frames = read_chunks(engine, clock, lineitem, names, predicate, ["l_extendedprice", "l_discount"])
    revenue = call("multiply", column("l_extendedprice"), column("l_discount"), returns=pa.decimal128(31, 4))
    return aggregate_chunks(engine, clock, frames, [], [total(revenue)])


def build_orders(engine: CpuEngine, clock: Clock, tables: Callable[[str], Table]) -> object:
    """Orders before 15 March 1995 of customers in BUILDING, as a build side on o_orderkey."""
    customer, orders = tables("customer"), tables("orders")
    segment = call("equal", column("c_mktsegment"), Literal(TEXT, "BUILDING"))
    customers = [engine.read(customer.request(chunk, ["c_custkey", "c_mktsegment"], segment, ["c_custkey"]))
                 for chunk in customer.chunks]  # fmt: skip
    frames = []
    names = ["o_orderkey", "o_custkey", "o_orderdate", "o_shippriority"]
    before = call("less", column("o_orderdate"), date("1995-03-15"))
    with clock.section("build"):
        chosen = engine.build(engine.concatenate(customers), ["c_custkey"])
        for chunk in orders.chunks:
            frame = engine.read(orders.request(chunk, names, before, names))
            output = ["o_orderkey", "o_orderdate", "o_shippriority"]
            frames.append(engine.probe(frame, chosen, "semi", [column("o_custkey")], None, output))
        return engine.build(engine.concatenate(frames), ["o_orderkey"])


def q3(engine: CpuEngine, clock: Clock, tables: Callable[[str], Table]) -> pa.Table:
    lineitem = tables("lineitem")
    names = ["l_orderkey", "l_extendedprice", "l_discount", "l_shipdate"]
    with clock.section("decode"):
        lineitem.decode(names, [])
    build = build_orders(engine, clock, tables)
    predicate = call("greater", column("l_shipdate"), date("1995-03-15"))

    def probed() -> Iterator[object]:
        output = ["l_orderkey", "l_extendedprice", "l_discount", "o_orderdate", "o_shippriority"]
        for frame in read_chunks(engine, clock, lineitem, names, predicate, names[:-1]):
            with clock.section("probe"):
                found = engine.probe(frame, build, "inner", [column("l_orderkey")], None, output)
            yield found

    groups = named("l_orderkey", "o_orderdate", "o_shippriority")
    table = aggregate_chunks(engine, clock, probed(), groups, [total(DISCOUNTED)])
    with clock.section("top"):
        revenue = Column(table.schema.types[-1], table.column_names[-1])
        engine.top_k(engine.from_arrow(table), [SortKey(revenue, True), SortKey(column("o_orderdate"))], 10)
    return table


def many_groups(engine: CpuEngine, clock: Clock, tables: Callable[[str], Table]) -> pa.Table:
    """GROUP BY l_orderkey: neighbours share a group (the inner query of Q18)."""
    lineitem = tables("lineitem")
    names = ["l_orderkey", "l_quantity"]
    with clock.section("decode"):
        lineitem.decode(names, [])
    frames = read_chunks(engine, clock, lineitem, names, None, names)
    return aggregate_chunks(engine, clock, frames, named("l_orderkey"), [total(column("l_quantity"))])


def scattered_groups(engine: CpuEngine, clock: Clock, tables: Callable[[str], Table]) -> pa.Table:
    """GROUP BY l_partkey, l_suppkey: many groups in no order."""
    lineitem = tables("lineitem")
    names = ["l_partkey", "l_suppkey", "l_quantity"]
    with clock.section("decode"):
        lineitem.decode(names, [])
    frames = read_chunks(engine, clock, lineitem, names, None, names)
    return aggregate_chunks(engine, clock, frames, named("l_partkey", "l_suppkey"), [total(column("l_quantity")), ROWS])


def q12(engine: CpuEngine, clock: Clock, tables: Callable[[str], Table]) -> pa.Table:
    """Strings: CASE and IN over dictionaries, a build side of all orders."""
    lineitem, orders = tables("lineitem"), tables("orders")
    with clock.section("build"):
        frames = [
            engine.read(
                orders.request(chunk, ["o_orderkey", "o_orderpriority"], None, ["o_orderkey", "o_orderpriority"])
            )
            for chunk in orders.chunks
        ]
        build = engine.build(engine.concatenate(frames), ["o_orderkey"])
    names = ["l_orderkey", "l_shipmode", "l_shipdate", "l_commitdate", "l_receiptdate"]
    predicate = every(
        In(BOOL, column("l_shipmode"), (Literal(TEXT, "MAIL"), Literal(TEXT, "SHIP"))),
        call("less", column("l_commitdate"), column("l_receiptdate")),
        call("less", column("l_shipdate"), column("l_commitdate")),
        call("greater_equal", column("l_receiptdate"), date("1994-01-01")),
        call("less", column("l_receiptdate"), date("1995-01-01")),
    )
    with clock.section("decode"):
        lineitem.decode(names, ["l_shipmode"])

    def probed() -> Iterator[object]:
        for frame in read_chunks(engine, clock, lineitem, names, predicate, names[:2]):
            with clock.section("probe"):
                found = engine.probe(
                    frame, build, "inner", [column("l_orderkey")], None, ["l_shipmode", "o_orderpriority"]
                )
            yield found

    urgent = In(BOOL, column("o_orderpriority"), (Literal(TEXT, "1-URGENT"), Literal(TEXT, "2-HIGH")))
    one, zero = Literal(pa.int64(), 1), Literal(pa.int64(), 0)
    high = Case(pa.int64(), ((urgent, one),), zero)
    low = Case(pa.int64(), ((urgent, zero),), one)
    calls = [AggregateCall("high", "sum", high, pa.int64()), AggregateCall("low", "sum", low, pa.int64())]
    return aggregate_chunks(engine, clock, probed(), named("l_shipmode"), calls)


def q13(engine: CpuEngine, clock: Clock, tables: Callable[[str], Table]) -> pa.Table:
    """LIKE on long strings."""
    orders = tables("orders")
    names = ["o_custkey", "o_comment"]
    with clock.section("decode"):
        orders.decode(names, [])
    unlike = call("not", call("like", column("o_comment"), Literal(TEXT, "%special%requests%")))
    frames = read_chunks(engine, clock, orders, names, unlike, ["o_custkey"])
    return aggregate_chunks(engine, clock, frames, named("o_custkey"), [ROWS])


PIPELINES = {
    "q1": q1,
    "q6": q6,
    "q3": q3,
    "q12": q12,
    "q13": q13,
    "many_groups": many_groups,
    "scattered_groups": scattered_groups,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--groups", type=int, default=16, help="row groups a chunk")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default=",".join(PIPELINES))
    options = parser.parse_args()
    pa.set_cpu_count(1)
    known: dict[str, Table] = {}

    def tables(name: str) -> Table:
        if name not in known:
            known[name] = Table(options.folder, name, options.groups)
        return known[name]

    engine = CpuEngine()
    for name in options.only.split(","):
        best: dict[str, float] = {}
        rows = 0
        for repetition in range(options.repeat + 1):
            clock = Clock()
            rows = PIPELINES[name](engine, clock, tables).num_rows
            work = sum(seconds for section, seconds in clock.seconds.items() if section != "decode")
            if repetition and (not best or work < best["total"]):
                best = {**clock.seconds, "total": work}
        sections = "  ".join(f"{section} {seconds:.3f}" for section, seconds in best.items())
        print(f"{name:17s} {rows:9d} rows  {sections}", flush=True)


if __name__ == "__main__":
    main()
