"""The ``hybridq`` command.

Every error is one line on standard error that starts with ``error:`` (details may follow), never a traceback, unless
``HYBRIDQ_DEBUG=1``. Exit codes: 0 done, 2 the request is wrong, 1 it failed while running, 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from hybridq import __version__
from hybridq.errors import ExecutionError, HybridqError, RequestError

# Everything else is imported where it is used: `hybridq --help` must not wait for Arrow or Dask.
if TYPE_CHECKING:
    from hybridq.query import Query
    from hybridq.session import Session

INTERRUPTED = 130

app = typer.Typer(
    name="hybridq",
    help="Run SQL over Parquet on CPUs and GPUs at the same time, on a Dask cluster.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
tpch_app = typer.Typer(help="TPC-H data.", invoke_without_command=True, rich_markup_mode=None)
cluster_app = typer.Typer(help="Clusters.", invoke_without_command=True, rich_markup_mode=None)
ssb_app = typer.Typer(help="Star Schema Benchmark data.", invoke_without_command=True, rich_markup_mode=None)
app.add_typer(tpch_app, name="tpch")
app.add_typer(ssb_app, name="ssb")
app.add_typer(cluster_app, name="cluster")
bench_app = typer.Typer(help="Measurements of hybridq itself.", invoke_without_command=True, rich_markup_mode=None)
app.add_typer(bench_app, name="bench")


class Mode(StrEnum):
    """Which devices run the stages."""

    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"
    cop = "cop"


class OutputFormat(StrEnum):
    """How an answer is written."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


class ExplainFormat(StrEnum):
    """How a plan is shown."""

    text = "text"
    json = "json"
    html = "html"


class StartingPoint(StrEnum):
    """What predictions start from."""

    kept = "kept"
    now = "now"
    none = "none"


class FigureFormat(StrEnum):
    """How figures are shown."""

    text = "text"
    json = "json"


PlanArgument = Annotated[
    str,
    typer.Argument(help="A .sql file, a Substrait .json or .bin, a shipped name (tpch/q03), or - for SQL on stdin."),
]
DataOption = Annotated[
    Path, typer.Option("--data", help="Folder: each NAME.parquet and each folder NAME/ of Parquet files is a table.")
]
LinksOption = Annotated[bool, typer.Option("--follow-links", help="Links in the data folder may lead out of it.")]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", help="A scheduler's address (tcp://...) or a cluster file; started here if left out."),
]
ModeOption = Annotated[Mode, typer.Option("--mode", help="auto decides stage by stage; the others force every stage.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hybridq {__version__}")
        raise typer.Exit


@tpch_app.callback()
@ssb_app.callback()
@cluster_app.callback()
@bench_app.callback()
def group(context: typer.Context) -> None:
    """Show help when no command is given."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Hold the options of the command itself."""
    group(context)


@app.command()
def demo(
    scale_factor: Annotated[float, typer.Option("--sf", help="TPC-H scale factor of the data that it makes.")] = 1.0,
    cluster: ClusterOption = None,
) -> None:
    """TPC-H Q1 and Q3 on made data, in every mode, each answer checked against DuckDB."""
    from hybridq.demo import run_demo

    if not run_demo(scale_factor, cluster):
        raise typer.Exit(1)


@app.command()
def run(
    plan: PlanArgument,
    data: DataOption,
    mode: ModeOption = Mode.auto,
    cluster: ClusterOption = None,
    form: Annotated[
        OutputFormat | None, typer.Option("--format", help="Of the answer; else what FILE ends in, or a table.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the answer to this file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write where everything ran, and why, to this JSON file.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail rather than move a chunk to another device.")] = False,
    progress: Annotated[
        bool | None, typer.Option("--progress/--no-progress", help="Show progress; the default on a terminal.")
    ] = None,
    follow_links: LinksOption = False,
) -> None:
    """Run a query and print its answer."""
    if form is OutputFormat.parquet and output is None:
        raise RequestError("--format parquet needs a file: add -o FILE")
    _check_outputs(output, report)
    if form is None:
        form = OutputFormat.table if output is None else _format_of(output)
    source = _read_plan(plan)
    with _connect(cluster, data, source, follow_links) as session:
        from hybridq.output import report_file, write_answer

        query = _query(session, source)
        shown = sys.stderr.isatty() if progress is None else progress
        if output is not None and form is not OutputFormat.table:
            record = query.write(output, form.value, mode=mode.value, strict=strict, progress=shown)
        else:
            result = query.collect(mode=mode.value, strict=strict, progress=shown)
            write_answer(result.to_arrow(), form.value, output, sys.stdout)
            record = result.report
        if report is not None:
            report_file(report, record.to_json())


@app.command()
def explain(
    plan: PlanArgument,
    data: DataOption,
    mode: ModeOption = Mode.auto,
    cluster: ClusterOption = None,
    analyze: Annotated[bool, typer.Option("--analyze", help="Run it, and show what happened beside it.")] = False,
    form: Annotated[
        ExplainFormat | None,
        typer.Option("--format", help="Of the explanation; html is one page with pictures. Else what FILE ends in."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write it to this file.")] = None,
    follow_links: LinksOption = False,
) -> None:
    """Show a query's stages: where each runs, why, how its joins work and what is estimated."""
    _check_outputs(output)
    source = _read_plan(plan)
    with _connect(cluster, data, source, follow_links) as session:
        from hybridq.output import report_file

        explanation = _query(session, source).explain(mode=mode.value, analyze=analyze)
    if form is None:
        ending = "" if output is None else output.suffix.removeprefix(".").lower()
        form = ExplainFormat(ending) if ending in set(ExplainFormat) else ExplainFormat.text
    text = {"json": explanation.to_json, "html": explanation.to_html, "text": explanation.__str__}[form.value]()
    if output is None:
        typer.echo(text)
    else:
        report_file(output, text)


@app.command()
def tables(data: DataOption, follow_links: LinksOption = False) -> None:
    """List the tables of a data folder, and what is wrong with those that cannot be read."""
    import pyarrow as pa

    from hybridq.catalog import Catalog
    from hybridq.output import write_answer

    catalog = Catalog()
    names = catalog.register_folder(data, follow_links)
    found = [catalog.table(name) for name in names]
    rows: list[dict[str, Any]] = [
        {"table": each.name, "rows": each.rows, "columns": len(each.schema), "state": "ok"} for each in found
    ]
    rows += [{"table": name, "state": f"cannot be read: {why}"} for name, why in catalog.unreadable.items()]
    write_answer(pa.Table.from_pylist(rows), "table", None, sys.stdout)


@app.command()
def devices(cluster: ClusterOption = None) -> None:
    """List a cluster's devices."""
    from dataclasses import asdict

    import pyarrow as pa

    from hybridq.output import write_answer
    from hybridq.session import connect

    with connect(cluster, calibrate=0) as session:
        rows = [asdict(device) for device in session.devices()]
        write_answer(pa.Table.from_pylist(rows), "table", None, sys.stdout)


@app.command()
def calibrate(
    cluster: ClusterOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Seconds instead of most of a minute; less exact.")] = False,
    form: Annotated[FigureFormat, typer.Option("--format", help="Of the figures.")] = FigureFormat.text,
) -> None:
    """Measure how fast each kind of device reads, moves and computes; later queries are placed by it."""
    import json

    from hybridq.placement.summary import describe
    from hybridq.session import connect

    with connect(cluster, calibrate=0) as session:
        profile = session.calibrate(quick=quick)
    typer.echo(json.dumps(profile.to_dict(), indent=2) if form is FigureFormat.json else describe(profile))


@bench_app.command()
def placement(
    data: DataOption,
    plans: Annotated[
        list[str] | None, typer.Argument(help="SQL files or shipped names; all of TPC-H and SSB that the data allows.")
    ] = None,
    cluster: ClusterOption = None,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds after the three that train.")] = 3,
    profile: Annotated[
        StartingPoint,
        typer.Option(help="Predictions start from the profile that is kept, one measured now, or assumptions (none)."),
    ] = StartingPoint.kept,
    time_limit: Annotated[float | None, typer.Option(help="Seconds after which no further plan is begun.")] = None,
    form: Annotated[FigureFormat, typer.Option("--format", help="text is Markdown, json is JSON lines.")] = (
        FigureFormat.text
    ),
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Add JSON lines to this file as plans are done.")
    ] = None,
    follow_links: LinksOption = False,
) -> None:
    """Run queries in every mode and report how well auto placed them, and how good its predictions were."""
    import json

    from hybridq import model_report
    from hybridq.catalog import Catalog
    from hybridq.session import connect

    _check_outputs(output)
    Catalog().register_folder(data, follow_links)  # before a cluster starts
    options: dict[str, Any] = {"calibrate": 0} if profile is StartingPoint.none else {}
    with connect(cluster, None, **options) as session:
        session.register_folder(data, follow_links)
        texts = model_report.plans_over(session, plans or ())
        effort = model_report.Effort(repeats, profile.value, time_limit)
        lines = []
        for line in model_report.run(session, texts, effort, lambda text: typer.echo(text, err=True)):
            lines.append(line)
            if output is not None:
                model_report.append(output, line)
            if form is FigureFormat.json:
                typer.echo(json.dumps(line))
        if form is FigureFormat.text:
            typer.echo(model_report.markdown(lines))


@tpch_app.command()
def generate(
    scale_factor: Annotated[float, typer.Option("--sf", help="1 makes about 0.35 GB of Parquet.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the files; made when it does not exist.")],
    tables: Annotated[str | None, typer.Option(help="Comma-separated names; all eight if left out.")] = None,
) -> None:
    """Make TPC-H tables as Parquet with tpchgen-cli; a complete earlier result is kept."""
    from hybridq.testing import tpch

    wanted = tpch.TABLES if tables is None else tuple(name.strip() for name in tables.split(","))
    folder = tpch.generate(scale_factor, out, tables=wanted)
    size = sum((folder / f"{table}.parquet").stat().st_size for table in wanted)
    typer.echo(f"TPC-H at scale factor {scale_factor:g} is in {folder} ({len(wanted)} tables, {size / 1e6:,.0f} MB)")


@ssb_app.command("generate")
def generate_ssb(
    scale_factor: Annotated[float, typer.Option("--sf", help="1 makes about 6 million rows of lineorder.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the files; made when it does not exist.")],
) -> None:
    """Make the five tables of the Star Schema Benchmark as Parquet; a complete earlier result is kept."""
    from hybridq.testing import ssb

    folder = ssb.generate(scale_factor, out)
    size = sum((folder / f"{table}.parquet").stat().st_size for table in ssb.TABLES)
    typer.echo(f"SSB at scale factor {scale_factor:g} is in {folder} ({len(ssb.TABLES)} tables, {size / 1e6:,.0f} MB)")


@cluster_app.command()
def start(description: Annotated[str, typer.Argument(metavar="YAML", help="A cluster file.")]) -> None:
    """Start a cluster on this machine, print its address, and serve until interrupted."""
    from hybridq import deploy
    from hybridq.config import Config
    from hybridq.topology import load_topology

    stops = {signal.SIGINT, signal.SIGTERM}
    topology = load_topology(description)
    cluster = deploy.start(topology, Config.load().stall_timeout)
    try:
        cluster.wait_until_ready()
        typer.echo(cluster.address)
        typer.echo("serving; Ctrl-C stops it", err=True)
        sys.stdout.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, stops)
        while signal.sigtimedwait(stops, 0.5) is None:
            if os.waitid(os.P_PID, cluster.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                raise ExecutionError(f"the cluster ended by itself\n{cluster.log_tail()}")
    finally:
        cluster.close()


def _format_of(output: Path) -> OutputFormat:
    """Return the format that a file's name asks for.

    Raises
    ------
    RequestError
        None does.
    """
    ending = output.suffix.removeprefix(".").lower()
    if ending == "txt":
        return OutputFormat.table
    if ending not in set(OutputFormat):
        raise RequestError(
            f"the name of {output} says no format: end it in .csv, .json, .parquet or .txt, or add --format "
            f"{'|'.join(OutputFormat)}"
        )
    return OutputFormat(ending)


def _check_outputs(*paths: Path | None) -> None:
    """Raise RequestError if a file could not be written after the query has run."""
    written: set[Path] = set()
    for path in paths:
        if path is None:
            continue
        folder = path.absolute().parent
        try:
            if not folder.is_dir():
                raise RequestError(f"cannot write {path}: the folder {folder} does not exist")
            if path.is_dir():
                raise RequestError(f"cannot write {path}: it is a folder")
            if path.exists() and not path.is_file():
                raise RequestError(f"cannot write {path}: it is no regular file")
        except OSError as error:  # a name that is too long, a folder that may not be looked into
            raise RequestError(f"cannot write {path}: {error.strerror}") from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise RequestError(f"cannot write {path}: no permission to write to {folder}")
        if path.absolute() in written:
            raise RequestError(f"cannot write both the answer and the report to {path}")
        written.add(path.absolute())


def _read_plan(plan: str) -> str | bytes:
    """Return SQL as text, Substrait as bytes."""
    from hybridq.shipped import find_plan

    if plan == "-":
        return _decode(sys.stdin.buffer.read(), "standard input")
    path = find_plan(plan)
    if path.suffix == ".sql":
        try:
            return _decode(path.read_bytes(), str(path))
        except OSError as error:
            raise RequestError(f"cannot read {path}: {error.strerror}") from None
    from hybridq.frontend.substrait import load_substrait

    message: bytes = load_substrait(path)
    return message


def _decode(text: bytes, name: str) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RequestError(f"{name} is not UTF-8 text") from None


def _connect(cluster: str | None, data: Path, source: str | bytes, follow_links: bool) -> Session:
    from hybridq.pandas_later import leave_pandas_for_later

    leave_pandas_for_later()  # DataFusion's import would have it imported
    from hybridq.catalog import Catalog
    from hybridq.planning import check_query
    from hybridq.session import connect

    # What is wrong with the data or the query is said before a cluster starts; footers are read once.
    catalog = Catalog()
    catalog.register_folder(data, follow_links)
    check_query(source, catalog)
    session = connect(cluster)
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    try:
        session.register_folder(data, follow_links)
    except BaseException:
        session.close()
        raise
    return session


def _query(session: Session, source: str | bytes) -> Query:
    return session.sql(source) if isinstance(source, str) else session.substrait(source)


def _fail(message: str, code: int) -> NoReturn:
    if os.environ.get("HYBRIDQ_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)


def _quiet_libraries() -> None:
    """Keep Dask from printing tracebacks of what the command says itself, in one line."""
    import logging

    logging.disable(logging.ERROR)
    sys.unraisablehook = lambda unraisable: None


def _run_app(arguments: Sequence[str] | None) -> Any:
    """Parse the arguments and run what they ask for, beside the start of the cluster's process if that needs one."""
    from hybridq import deploy

    given = sys.argv[1:] if arguments is None else list(arguments)
    queries = given[:1] in (["run"], ["explain"])
    if queries and arguments is None:
        gc.disable()  # what is imported stays: to look through it again and again takes a tenth of a second
    if queries and not any(each.startswith(("--cluster", "--help")) for each in given):
        deploy.prepare()  # the parser imports for a tenth of a second, and then there is Arrow
    try:
        return app(args=arguments, prog_name="hybridq", standalone_mode=False)
    finally:
        deploy.give_up_prepared()
        if arguments is None:
            gc.freeze()  # at the interpreter's end all that was imported would be looked through


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit."""
    if arguments is None and os.environ.get("HYBRIDQ_DEBUG") != "1":
        _quiet_libraries()
    try:
        code = _run_app(arguments)
        sys.stdout.flush()
        if code == INTERRUPTED:  # the parser turns Ctrl-C into this code
            _fail("interrupted", INTERRUPTED)
    except HybridqError as error:
        _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader has gone (`| head`); Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        # Usage errors of the command-line parser know how they read.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            context = getattr(error, "ctx", None)
            hint = f" (see {context.command_path} --help)" if context is not None else ""
            message = error.format_message().replace("Value error, ", "")  # the parser's validator names itself
            _fail(f"{message}{hint}", error.exit_code)
        _fail(f"{type(error).__name__}: {error} (HYBRIDQ_DEBUG=1 shows where; please report it)", 1)
    sys.exit(code if isinstance(code, int) else 0)
