"""Data in many files, made part by part on all cores; of TPC-H on request with some of the columns only.

    python -m bench.data --sf 30 --out /tmp/sf30 [--tables all] [--rows-per-file 11000000]
    python -m bench.data --suite ssb --sf 30 --out /tmp/ssb30
    python -m bench.data --sf 300 --out /tmp/sf300 --queries q01 q03

With ``--queries`` only the columns that these queries read are kept: each part goes from ``tpchgen-cli`` through
memory, never whole to the disk, and is written again with the same row groups, codec, types and encodings. What is
there already is kept, so a run that was cut off goes on where it stopped. ``bench/README.md`` says what time and space
it takes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench import machine
from bench.suites import SUITES
from hybridq.testing import ssb
from hybridq.testing.tpch import ROWS_AT_SCALE_1, find_generator

ROWS = {**ROWS_AT_SCALE_1, "lineitem": 6_000_000, "nation": 25, "region": 5}
"""Rows at scale factor 1, of ``lineitem`` about; the last two have as many at any."""

ROWS_PER_FILE = 11_000_000

QUERY_COLUMNS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "q01": {
        "lineitem": (
            "l_quantity",
            "l_extendedprice",
            "l_discount",
            "l_tax",
            "l_returnflag",
            "l_linestatus",
            "l_shipdate",
        )
    },
    "q03": {
        "lineitem": ("l_orderkey", "l_extendedprice", "l_discount", "l_shipdate"),
        "orders": ("o_orderkey", "o_custkey", "o_orderdate", "o_shippriority"),
        "customer": ("c_custkey", "c_mktsegment"),
    },
}
"""What queries read; for those that data past the memory of a GPU is made for."""


UNREAD_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "lineitem": (
        "l_orderkey", "l_partkey", "l_suppkey", "l_linenumber", "l_commitdate", "l_receiptdate", "l_shipinstruct",
        "l_shipmode", "l_comment",
    ),
    "orders": ("o_orderstatus", "o_totalprice", "o_orderpriority", "o_clerk", "o_comment"),
}  # fmt: skip
"""Columns that take the generator the longest to encode, and need not be where they are dropped."""


@dataclass(frozen=True)
class Part:
    """One file to make."""

    table: str
    number: int
    count: int

    @property
    def file_name(self) -> str:
        return f"{self.table}.{self.number:04d}.parquet"


def columns_of(queries: Iterable[str]) -> dict[str, list[str]]:
    """Return the columns that any of the queries reads, by table.

    >>> columns_of(["q03"])["customer"]
    ['c_custkey', 'c_mktsegment']
    """
    found: dict[str, list[str]] = {}
    for query in queries:
        for table, names in QUERY_COLUMNS[query].items():
            kept = found.setdefault(table, [])
            kept += [name for name in names if name not in kept]
    return found


def parts_of(scale_factor: float, tables: Iterable[str], rows_per_file: int = ROWS_PER_FILE) -> list[Part]:
    """Cut tables into files of about so many rows, those of the largest table first."""
    counts = {table: max(1, round(ROWS[table] * scale_factor / rows_per_file)) for table in tables}
    order = sorted(counts, key=lambda table: ROWS[table], reverse=True)
    return [Part(table, number, counts[table]) for table in order for number in range(1, counts[table] + 1)]


def make(
    scale_factor: float,
    folder: Path,
    tables: Sequence[str],
    *,
    columns: Mapping[str, Sequence[str]] | None = None,
    rows_per_file: int = ROWS_PER_FILE,
    threads: int | None = None,
    deadline: float = float("inf"),
) -> bool:
    """Make tables as ``<folder>/<table>/<table>.<number>.parquet``; files that are there stay as they are.

    Parameters
    ----------
    columns : mapping, optional
        The columns to keep of each table; all if not given.
    threads : int, optional
        Files made at the same time; one a core if not given.
    deadline : float
        Time (of ``time.monotonic``) past which no file is begun.

    Returns
    -------
    bool
        Whether everything is there.
    """
    parts = parts_of(scale_factor, tables, rows_per_file)
    for table in tables:
        (folder / table).mkdir(parents=True, exist_ok=True)
    program = find_generator()

    def one(part: Part) -> bool:
        path = folder / part.table / part.file_name
        if path.exists():
            return True
        if time.monotonic() >= deadline:
            return False
        partial = path.with_name(f".{part.file_name}.partial")
        command = [program, "parquet", f"--scale-factor={scale_factor:g}", f"--tables={part.table}", "--stdout"]
        command += [f"--parts={part.count}", f"--part={part.number}", "--num-threads=1", "--quiet"]
        try:
            if columns is None:
                with partial.open("wb") as sink:
                    subprocess.run(command, stdout=sink, check=True)
            else:
                # What is thrown away is neither compressed nor looked through for repeated values.
                command += ["--compression=UNCOMPRESSED"]
                plain = [
                    f"{name}=PLAIN" for name in UNREAD_COLUMNS.get(part.table, ()) if name not in columns[part.table]
                ]
                command += [f"--column-encoding={','.join(plain)}"] if plain else []
                made = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
                keep_columns(pa.py_buffer(made), partial, columns[part.table], codec="SNAPPY")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return True

    with ThreadPoolExecutor(threads or machine.cores()) as pool:
        return all(list(pool.map(one, parts)))


def keep_columns(source: pa.Buffer | Path, sink: Path, columns: Sequence[str], codec: str | None = None) -> None:
    """Write some columns of a Parquet file to another: same row groups and types, and codec unless one is named."""
    file = pq.ParquetFile(pa.BufferReader(source) if isinstance(source, pa.Buffer) else source)
    kept = [field for field in file.schema_arrow if field.name in columns]
    if len(kept) != len(columns):
        raise ValueError(f"the file has columns {file.schema_arrow.names}, not all of {list(columns)}")
    names = [field.name for field in kept]
    codec = codec or file.metadata.row_group(0).column(0).compression
    # Decimals as integers: so the generator has them, and so a GPU decodes them fastest.
    options = {"compression": codec, "store_decimal_as_integer": True}
    with pq.ParquetWriter(sink, pa.schema(kept), **options) as writer:
        for number in range(file.num_row_groups):
            group = file.read_row_group(number, columns=names, use_threads=False)
            writer.write_table(group, row_group_size=max(group.num_rows, 1))


def describe(folder: Path, queries: Iterable[str] = ()) -> dict[str, object]:
    """Return files, rows and bytes of a folder's tables, and the decoded bytes of what queries read."""
    tables: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            tables[path.name] = sorted(path.glob("*.parquet"))
        elif path.suffix == ".parquet":
            tables[path.stem] = [path]
    rows = {name: sum(pq.read_metadata(path).num_rows for path in paths) for name, paths in tables.items()}
    decoded = {}
    for query in queries:
        needed = QUERY_COLUMNS[query].items()
        decoded[query] = sum(rows[table] * bytes_per_row(tables[table][0], names) for table, names in needed)
    return {
        "files": {name: len(paths) for name, paths in tables.items()},
        "rows": rows,
        "bytes": sum(path.stat().st_size for paths in tables.values() for path in paths),
        "decoded_bytes": {query: round(size) for query, size in decoded.items()},
    }


def bytes_per_row(path: Path, columns: Sequence[str]) -> float:
    """Return the bytes of a row once decoded, as a GPU holds them.

    Decimals of up to 18 digits are 8 bytes, dates 4, a string 4 for its offset and its characters, whose mean length is
    taken from the first row group.
    """
    file = pq.ParquetFile(path)
    total = 0.0
    for name in columns:
        kind = file.schema_arrow.field(name).type
        if pa.types.is_decimal(kind):
            total += 8 if kind.precision <= 18 else 16
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
            column = file.read_row_group(0, columns=[name]).column(0).cast(pa.string())
            total += 4 + (pc.mean(pc.binary_length(column)).as_py() or 0.0)
        else:
            total += kind.byte_width
    return total


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.data", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sf", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--suite", choices=SUITES, default="tpch", help="whose data (default tpch)")
    usual = SUITES["tpch"].usual_tables
    parser.add_argument(
        "--tables", nargs="+", choices=[*ROWS, "all"], default=list(usual), help=f"of TPC-H (default {' '.join(usual)})"
    )
    parser.add_argument("--queries", nargs="+", choices=list(QUERY_COLUMNS), help="of TPC-H: keep only what these read")
    parser.add_argument("--rows-per-file", type=int, default=ROWS_PER_FILE)
    parser.add_argument("--threads", type=int, default=machine.cores())
    parser.add_argument(
        "--time-limit", type=float, default=float("inf"), help="seconds after which no file of TPC-H is begun"
    )
    options = parser.parse_args()
    start = time.monotonic()
    if options.suite == "ssb":
        files = max(round(6_000_000 * options.sf / options.rows_per_file), 1)
        ssb.generate(options.sf, options.out, files=files, processes=options.threads)
        done = True
    else:
        columns = columns_of(options.queries) if options.queries else None
        tables = list(ROWS) if options.tables == ["all"] else options.tables
        done = make(
            options.sf,
            options.out,
            list(columns) if columns else tables,
            columns=columns,
            rows_per_file=options.rows_per_file,
            threads=options.threads,
            deadline=start + options.time_limit,
        )
    line = {"sf": options.sf, "complete": done, "seconds": round(time.monotonic() - start, 1)}
    with contextlib.suppress(IndexError):  # a table has no file yet
        line.update(describe(options.out, options.queries or ()))
    print(json.dumps(line))
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
