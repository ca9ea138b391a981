"""What ``hybridq demo`` does: two TPC-H queries on made data, in every mode, checked against DuckDB."""

from __future__ import annotations

import math
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from hybridq.errors import DeviceUnavailable
from hybridq.output import plain
from hybridq.shipped import find_plan
from hybridq.testing import tpch
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.reference import REFERENCES, duckdb_answer, duckdb_connection

if TYPE_CHECKING:
    import pyarrow as pa

    from hybridq.query import Query
    from hybridq.report import Report
    from hybridq.session import Session
    from hybridq.topology import Kind

QUERIES = ("tpch/q01", "tpch/q03")
MODES = ("cpu", "gpu", "cop", "auto")


@dataclass(slots=True)
class Measured:
    """One line of the demo's table.

    Attributes
    ----------
    seconds : float
        Planning included.
    chunks : dict of engine name to number of chunks
    same : bool
        The answer equals DuckDB's.
    left_out : str
        Why a kind of device that was asked for had nothing to do, if so.
    """

    query: str
    mode: str
    seconds: float
    chunks: dict[str, int] = field(default_factory=dict)
    same: bool = True
    left_out: str = ""


def run_demo(scale_factor: float = 1.0, cluster: str | None = None, console: Console | None = None) -> bool:
    """Run the demo and print it; tell whether every answer was DuckDB's.

    Parameters
    ----------
    scale_factor : float
        Of the TPC-H data, which is kept in the user's cache folder.
    cluster : str, optional
        As for ``hybridq.connect``; a local cluster if not given, with a simulated GPU where there is no real one.
    console : rich.console.Console, optional
        Where to print.
    """
    console = console or Console(highlight=False)
    start = time.perf_counter()
    duckdb_connection().close()  # what is missing is said before data is made
    with console.status(f"TPC-H data at scale factor {scale_factor:g}"):
        folder = tpch.cached(scale_factor)
    console.print(
        f"[bold]Data[/]     TPC-H at scale factor {scale_factor:g}, Parquet, in {_short(folder)}", soft_wrap=True
    )
    with console.status("starting a cluster"):
        session = _connect(cluster)
    with session:
        session.register_folder(folder)
        _print_devices(session, console)
        with console.status("a first run on each kind of device, which loads what workers need"):
            for kind in _kinds(session):
                session.sql(find_plan(QUERIES[0]).read_text()).collect(mode=kind)
        measured = []
        for name in QUERIES:
            measured += _run_query(session, name, folder, console)
    _print_table(measured, console)
    same = all(line.same for line in measured)
    console.print(
        f"{'Every answer is DuckDB’s, to the last digit.' if same else '[bold red]An answer differs.[/]'} ", end=""
    )
    console.print(f"The demo took {time.perf_counter() - start:.0f} s.")
    _print_next_steps(folder, console)
    return same


def _connect(cluster: str | None) -> Session:
    from hybridq.session import connect

    if cluster is not None:
        return connect(cluster)
    session = connect()
    if any(device.kind == "gpu" for device in session.devices()):
        return session
    session.close()
    return connect("cluster/simulated.yaml")


def _kinds(session: Session) -> list[Kind]:
    return sorted({device.kind for device in session.devices()})


def _print_devices(session: Session, console: Console) -> None:
    devices = session.devices()
    names = ", ".join(f"{device.worker} ({device.engine}, {_count(device.threads, 'thread')})" for device in devices)
    console.print(f"[bold]Devices[/]  {names}", soft_wrap=True)
    if any(device.engine == "simulated gpu" for device in devices):
        console.print(
            "         No GPU is used: the [bold]simulated[/] one computes on the CPU, so its times say nothing about a"
            " real GPU. It shows how a query is placed on, and shared between, two kinds of device.",
            soft_wrap=True,
        )


def _run_query(session: Session, name: str, folder: Path, console: Console) -> list[Measured]:
    text = find_plan(name).read_text()
    reference = REFERENCES[name]
    query = session.sql(text)
    connection = duckdb_connection(folder)
    expected = duckdb_answer(reference.sql or text, connection, query.schema)
    start = time.perf_counter()
    connection.sql(text).to_arrow_table()
    lines = [Measured(name, "DuckDB", time.perf_counter() - start)]
    connection.close()
    answer = None
    kinds = _kinds(session)
    for mode in MODES if "gpu" in kinds else (*kinds, "auto"):
        with console.status(f"{name} in mode {mode}"):
            line, answer = _run_mode(query, name, mode, expected, console)
        lines.append(line)
    if answer is not None:
        _print_answer(name, answer, console)
    return lines


def _run_mode(
    query: Query, name: str, mode: str, expected: pa.Table, console: Console
) -> tuple[Measured, pa.Table | None]:
    try:
        result = query.collect(mode=mode)
    except DeviceUnavailable as error:  # a cluster that was given may lack a kind
        console.print(f"{name} in mode {mode} was left out: {error}")
        return Measured(name, mode, float("nan")), None
    answer = result.to_arrow()
    report = result.report
    line = Measured(name, mode, report.seconds["total"], _chunks(report), left_out=_left_out(report))
    try:
        assert_same_answer(answer, expected, order_by=REFERENCES[name].order_by)
    except AssertionError as error:
        console.print(f"[bold red]{name} in mode {mode} differs from DuckDB:[/] {error}")
        line.same = False
    return line, answer


def _chunks(report: Report) -> dict[str, int]:
    found: dict[str, int] = {}
    for stage in report.stages:
        for device in stage.devices:
            found[device.engine] = found.get(device.engine, 0) + device.chunks
    return dict(sorted(found.items()))


def _left_out(report: Report) -> str:
    """Return why the largest stage ran on one kind of device only although both were asked for; empty: it did not."""
    largest = max(report.stages, key=lambda stage: sum(device.rows for device in stage.devices))
    return largest.reason if report.mode == "cop" and largest.mode != "EXEC_COP" else ""


def _print_answer(name: str, answer: pa.Table, console: Console) -> None:
    title = f"{name}: {_count(answer.num_rows, 'row')}"
    cells = [["NULL" if value is None else plain(value) for value in column.to_pylist()] for column in answer.columns]
    console.print()
    if answer.num_rows < answer.num_columns:  # wide and short: a row of the answer goes down the page
        _print_across(f"{title}, one a column", answer.schema.names, list(zip(*cells, strict=True)), console)
        return
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in answer.schema:
        number: Any = "right" if _is_number(column.type) else "left"
        table.add_column(column.name, justify=number, overflow="fold")
    for row in zip(*cells, strict=True):
        table.add_row(*row)
    console.print(table)


def _print_across(title: str, names: list[str], rows: list[tuple[str, ...]], console: Console) -> None:
    """Print rows side by side, as many in each table as the page has room for: no number is broken."""

    def table_of(count: int) -> Table:
        table = Table(title=title, title_justify="left", title_style="bold", show_header=False)
        table.add_column(style="bold", no_wrap=True)
        for _ in range(count):
            table.add_column(justify="right", overflow="fold")
        for name, *values in zip(names, *rows[:count], strict=True):
            table.add_row(name, *values)
        return table

    unlimited = console.options.update(width=10_000)
    count = len(rows)
    while count > 1 and console.measure(table_of(count), options=unlimited).maximum > console.width:
        count -= 1
    console.print(table_of(count))
    if rows[count:]:
        _print_across("", names, rows[count:], console)


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _print_table(measured: list[Measured], console: Console) -> None:
    table = Table(
        title="Side by side on the same files, after a first run of each", title_justify="left", title_style="bold"
    )
    for name in ("query", "mode", "seconds", "chunks by engine", "same answer"):
        table.add_column(name, justify="right" if name == "seconds" else "left")
    for previous, line in zip([None, *measured], measured, strict=False):
        first = previous is None or previous.query != line.query
        chunks = ", ".join(f"{engine} {count}" for engine, count in line.chunks.items())
        same = "" if line.mode == "DuckDB" else "yes" if line.same else "[bold red]no[/]"
        seconds = "-" if math.isnan(line.seconds) else f"{line.seconds:.2f}"
        table.add_row(line.query if first else "", line.mode, seconds, chunks, same)
    console.print()
    console.print(table)
    for line in measured:
        if line.left_out:
            console.print(f"{line.query}: {line.left_out}.", soft_wrap=True)


def _short(path: Path) -> str:
    """Write a path below the home folder with ``~``, as a shell takes it."""
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)


def _command() -> str:
    """Write the command as it was called where a shell would not find its bare name (``make demo``)."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "hybridq" and shutil.which("hybridq") is None else "hybridq"


def _print_next_steps(folder: Path, console: Console) -> None:
    data = _short(folder)
    command = _command()
    console.print("\n[bold]Next[/]")
    steps = (
        ("your own SQL", f"echo 'select count(*) from orders' | {command} run - --data {data}"),
        ("where it runs, and why", f"{command} explain tpch/q03 --data {data} --analyze"),
        ("the record of a run", f"{command} run tpch/q01 --data {data} --report report.json"),
        (
            "from Python",
            "import hybridq as hq; session = hq.connect(); session.register(...); session.sql(...).collect()",
        ),
    )
    for what, text in steps:
        console.print(f"  {what:<24}{text}", soft_wrap=True, markup=False)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number != 1 else ''}"
