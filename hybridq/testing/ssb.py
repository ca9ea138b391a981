"""Star Schema Benchmark data, made with NumPy.

The tables, their sizes and the ranges of their values are those of the benchmark (O'Neil, O'Neil, Chen: "The Star
Schema Benchmark", 2009): one fact table ``lineorder`` and the dimensions ``customer``, ``supplier``, ``part`` and
``date``. Values are drawn uniformly, as the benchmark's own generator does, but not by its sequence of random numbers:
answers are to be compared with another engine on the same files, not with published ones. Money is in cents. Names and
texts that no query reads are shorter than the original's.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import math
import multiprocessing
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from hybridq.config import cache_folder
from hybridq.errors import ConfigurationError, ExecutionError
from hybridq.testing.tpch import move_into_place

TABLES = ("date", "customer", "supplier", "part", "lineorder")

NATIONS = {
    "AFRICA": ("ALGERIA", "ETHIOPIA", "KENYA", "MOROCCO", "MOZAMBIQUE"),
    "AMERICA": ("ARGENTINA", "BRAZIL", "CANADA", "PERU", "UNITED STATES"),
    "ASIA": ("CHINA", "INDIA", "INDONESIA", "JAPAN", "VIETNAM"),
    "EUROPE": ("FRANCE", "GERMANY", "ROMANIA", "RUSSIA", "UNITED KINGDOM"),
    "MIDDLE EAST": ("EGYPT", "IRAN", "IRAQ", "JORDAN", "SAUDI ARABIA"),
}

PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
SHIP_MODES = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
COLORS = ("almond", "azure", "beige", "black", "blue", "brown", "cream", "cyan", "gold", "green", "ivory", "khaki",
          "lime", "magenta", "navy", "orange", "pink", "plum", "red", "violet", "white", "yellow")  # fmt: skip
TYPES = tuple(
    f"{size} {finish} {metal}"
    for size in ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
    for finish in ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED")
    for metal in ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER")
)
CONTAINERS = tuple(
    f"{size} {kind}"
    for size in ("SM", "LG", "MED", "JUMBO", "WRAP")
    for kind in ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM")
)

FIRST_DAY, LAST_DAY = datetime.date(1992, 1, 1), datetime.date(1998, 12, 31)
LAST_ORDER_DAY = datetime.date(1998, 8, 2)

ORDERS_OF_A_BLOCK = 250_000
"""Orders that are made at a time; each block has random numbers of its own."""

SEED = 19920101

Numbers = npt.NDArray[np.integer]


def cached(scale_factor: float) -> Path:
    """Return the folder with the data of a scale factor in the user's cache, made now if it is not there yet."""
    return generate(scale_factor, cache_folder() / "ssb" / f"sf{scale_factor:g}")


def sizes(scale_factor: float) -> dict[str, int]:
    """Return the rows of each table; of ``lineorder``, the number of orders, which have 1 to 7 lines each."""
    parts = 200_000 * (1 + math.floor(math.log2(scale_factor))) if scale_factor >= 1 else 200_000 * scale_factor
    return {
        "date": (LAST_DAY - FIRST_DAY).days + 1,
        "customer": max(round(30_000 * scale_factor), 1),
        "supplier": max(round(2_000 * scale_factor), 1),
        "part": max(round(parts), 1),
        "lineorder": max(round(1_500_000 * scale_factor), 1),
    }


def generate(
    scale_factor: float, folder: str | Path, *, row_group_rows: int = 200_000, files: int = 1, processes: int = 1
) -> Path:
    """Make the five tables as ``<table>.parquet`` in a folder; a complete earlier result is kept as it is.

    Parameters
    ----------
    scale_factor : float
        1 makes about 6 million rows of ``lineorder``.
    folder : str or Path
        Made when it does not exist; other files in it are left alone.
    row_group_rows : int
        Rows of a row group of ``lineorder``, about.
    files : int
        Of ``lineorder``, which has the same rows in the same order in any number of them; at most one a block.
        Several are ``lineorder/lineorder.<number>.parquet``.
    processes : int
        Files that are made at the same time, each by a process that needs about half a GB of memory. A script that asks
        for several must be importable (``if __name__ == "__main__"``), for they are spawned.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ConfigurationError
        The scale factor is not positive.
    ExecutionError
        The files cannot be written, or a process died.
    """
    folder = Path(folder)
    if not scale_factor > 0:
        raise ConfigurationError(f"the scale factor must be greater than 0, not {scale_factor:g}")
    if is_complete(folder, scale_factor):
        return folder
    rows = sizes(scale_factor)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as made,
            contextlib.ExitStack() as stack,
        ):
            place = Path(made)
            parts = [(path, scale_factor, blocks, row_group_rows) for path, blocks in _files(place, rows, files)]
            waiting = []
            if processes > 1 and len(parts) > 1:
                pool = stack.enter_context(ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")))
                waiting = [pool.submit(_write_blocks, *part) for part in parts]
            for name, table in (
                ("date", _date()), ("customer", _customer(rows["customer"])),
                ("supplier", _supplier(rows["supplier"])), ("part", _part(rows["part"])),
            ):  # fmt: skip
                pq.write_table(table, place / f"{name}.parquet")
            for part in () if waiting else parts:
                _write_blocks(*part)
            for each in waiting:
                each.result()
            _remove_lineorder(folder)
            move_into_place(place, folder)
    except OSError as error:
        raise ExecutionError(f"cannot make SSB data in {folder}: {error.strerror or error}") from error
    except BrokenProcessPool as error:
        raise ExecutionError(f"cannot make SSB data in {folder}: a process died (out of memory?)") from error
    return folder


def is_complete(folder: Path, scale_factor: float) -> bool:
    """Tell whether every table is there, readable to its footer, and of the right size."""
    wanted = sizes(scale_factor)
    wanted["lineorder"] = sum(int(_lines(block, orders)[1].sum()) for block, orders in _blocks(wanted))
    for name in TABLES:
        single = folder / f"{name}.parquet"
        paths = [single] if single.exists() or name != "lineorder" else sorted((folder / name).glob("*.parquet"))
        try:
            found = sum(pq.read_metadata(path).num_rows for path in paths)
        except (OSError, pa.ArrowException):
            return False
        if found != wanted[name]:
            return False
    return True


def _files(place: Path, rows: dict[str, int], files: int) -> list[tuple[Path, range]]:
    """Divide the blocks of orders evenly among files."""
    blocks = len(_blocks(rows))
    files = min(files, blocks)
    if files == 1:
        return [(place / "lineorder.parquet", range(blocks))]
    (place / "lineorder").mkdir()
    bounds = [number * blocks // files for number in range(files + 1)]
    return [
        (place / "lineorder" / f"lineorder.{number:04d}.parquet", range(first, last))
        for number, (first, last) in enumerate(itertools.pairwise(bounds), 1)
    ]


def _remove_lineorder(folder: Path) -> None:
    """Remove what is there of an incomplete ``lineorder``, which may be in another number of files."""
    (folder / "lineorder.parquet").unlink(missing_ok=True)
    for path in (folder / "lineorder").glob("lineorder.*.parquet"):
        path.unlink()
    with contextlib.suppress(OSError):  # it is not there, or there is something of the user's in it
        (folder / "lineorder").rmdir()


# --- dimensions ------------------------------------------------------------------------------------------------------


def _random(table: str, block: int = 0) -> np.random.Generator:
    return np.random.default_rng([SEED, TABLES.index(table), block])


def _picked(random: np.random.Generator, values: tuple[str, ...], rows: int) -> pa.Array:
    """Draw texts; stored as plain strings."""
    return pa.array(values).take(pa.array(random.integers(0, len(values), rows)))


def _named(prefix: str, keys: Numbers) -> pa.Array:
    return pa.array([f"{prefix}#{key:09d}" for key in keys.tolist()])


def _places(random: np.random.Generator, rows: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Draw cities (a nation's first nine letters and a digit), with their nations and regions."""
    pairs = [(nation, region) for region, nations in NATIONS.items() for nation in nations]
    nation = random.integers(0, len(pairs), rows)
    digit = random.integers(0, 10, rows)
    cities = [f"{name[:9]:9}{number}" for name, _ in pairs for number in range(10)]
    return (
        pa.array(cities).take(pa.array(nation * 10 + digit)),
        pa.array([name for name, _ in pairs]).take(pa.array(nation)),
        pa.array([region for _, region in pairs]).take(pa.array(nation)),
    )


def _phones(random: np.random.Generator, rows: int) -> pa.Array:
    numbers = zip(random.integers(10, 35, rows).tolist(), random.integers(0, 10**7, rows).tolist(), strict=True)
    return pa.array([f"{country}-{number:07d}" for country, number in numbers])


def _customer(rows: int) -> pa.Table:
    random, keys = _random("customer"), np.arange(1, rows + 1, dtype=np.int32)
    city, nation, region = _places(random, rows)
    return pa.table(
        {
            "c_custkey": keys, "c_name": _named("Customer", keys), "c_address": _named("Address", keys),
            "c_city": city, "c_nation": nation, "c_region": region, "c_phone": _phones(random, rows),
            "c_mktsegment": _picked(random, SEGMENTS, rows),
        }
    )  # fmt: skip


def _supplier(rows: int) -> pa.Table:
    random, keys = _random("supplier"), np.arange(1, rows + 1, dtype=np.int32)
    city, nation, region = _places(random, rows)
    return pa.table(
        {
            "s_suppkey": keys, "s_name": _named("Supplier", keys), "s_address": _named("Address", keys),
            "s_city": city, "s_nation": nation, "s_region": region, "s_phone": _phones(random, rows),
        }
    )  # fmt: skip


def _part(rows: int) -> pa.Table:
    """Make parts."""
    random, keys = _random("part"), np.arange(1, rows + 1, dtype=np.int32)
    maker, category, brand = (random.integers(1, last + 1, rows) for last in (5, 5, 40))
    makers = [f"MFGR#{m}" for m in range(1, 6)]
    categories = [f"{m}{c}" for m in makers for c in range(1, 6)]
    brands = [f"{c}{b}" for c in categories for b in range(1, 41)]
    category_index = (maker - 1) * 5 + category - 1
    return pa.table(
        {
            "p_partkey": keys,
            "p_name": _picked(random, COLORS, rows),
            "p_mfgr": pa.array(makers).take(pa.array(maker - 1)),
            "p_category": pa.array(categories).take(pa.array(category_index)),
            "p_brand1": pa.array(brands).take(pa.array(category_index * 40 + brand - 1)),
            "p_color": _picked(random, COLORS, rows),
            "p_type": _picked(random, TYPES, rows),
            "p_size": random.integers(1, 51, rows, dtype=np.int32),
            "p_container": _picked(random, CONTAINERS, rows),
        }
    )


def _price(part: Numbers) -> Numbers:
    """Return what parts cost, in cents: TPC-H's retail price."""
    return (90_000 + (part // 10) % 20_001 + 100 * (part % 1_000)).astype(np.int32)


def _date() -> pa.Table:
    days = [FIRST_DAY + datetime.timedelta(n) for n in range((LAST_DAY - FIRST_DAY).days + 1)]

    def numbers(values: Iterator[int]) -> pa.Array:
        return pa.array(values, pa.int32())

    seasons = {12: "Christmas", 1: "Winter", 2: "Winter", 3: "Spring", 4: "Spring", 5: "Spring", 6: "Summer",
               7: "Summer", 8: "Summer", 9: "Fall", 10: "Fall", 11: "Fall"}  # fmt: skip
    return pa.table(
        {
            "d_datekey": numbers(_key(day) for day in days),
            "d_date": [f"{day:%B} {day.day}, {day.year}" for day in days],
            "d_dayofweek": [f"{day:%A}" for day in days],
            "d_month": [f"{day:%B}" for day in days],
            "d_year": numbers(day.year for day in days),
            "d_yearmonthnum": numbers(day.year * 100 + day.month for day in days),
            "d_yearmonth": [f"{day:%b}{day.year}" for day in days],
            "d_daynuminweek": numbers(day.isoweekday() % 7 + 1 for day in days),
            "d_daynuminmonth": numbers(day.day for day in days),
            "d_daynuminyear": numbers(day.timetuple().tm_yday for day in days),
            "d_monthnuminyear": numbers(day.month for day in days),
            "d_weeknuminyear": numbers((day.timetuple().tm_yday - 1) // 7 + 1 for day in days),
            "d_sellingseason": [seasons[day.month] for day in days],
            "d_lastdayinweekfl": [day.isoweekday() == 6 for day in days],
            "d_lastdayinmonthfl": [(day + datetime.timedelta(1)).day == 1 for day in days],
            "d_holidayfl": [(day.month, day.day) in {(1, 1), (7, 4), (12, 25)} for day in days],
            "d_weekdayfl": [day.isoweekday() < 6 for day in days],
        }
    )


def _key(day: datetime.date) -> int:
    return day.year * 10_000 + day.month * 100 + day.day


# --- the fact table --------------------------------------------------------------------------------------------------

LINEORDER = pa.schema(
    [
        ("lo_orderkey", pa.int64()), ("lo_linenumber", pa.int32()), ("lo_custkey", pa.int32()),
        ("lo_partkey", pa.int32()), ("lo_suppkey", pa.int32()), ("lo_orderdate", pa.int32()),
        ("lo_orderpriority", pa.string()), ("lo_shippriority", pa.int32()), ("lo_quantity", pa.int32()),
        ("lo_extendedprice", pa.int32()), ("lo_ordtotalprice", pa.int32()), ("lo_discount", pa.int32()),
        ("lo_revenue", pa.int32()), ("lo_supplycost", pa.int32()), ("lo_tax", pa.int32()),
        ("lo_commitdate", pa.int32()), ("lo_shipmode", pa.string()),
    ]
)  # fmt: skip


def _blocks(rows: dict[str, int]) -> list[tuple[int, int]]:
    """Return the number of each block, and of its orders."""
    starts = range(0, rows["lineorder"], ORDERS_OF_A_BLOCK)
    return [(block, min(ORDERS_OF_A_BLOCK, rows["lineorder"] - start)) for block, start in enumerate(starts)]


def _lines(block: int, orders: int) -> tuple[np.random.Generator, Numbers]:
    """Draw the lines of each of a block's orders; what comes next from the generator is what is in them."""
    random = _random("lineorder", block)
    return random, random.integers(1, 8, orders)


def _write_blocks(path: Path, scale_factor: float, blocks: range, row_group_rows: int) -> None:
    """Write the lines of some blocks of orders, in order of their keys."""
    rows = sizes(scale_factor)
    with pq.ParquetWriter(path, LINEORDER) as writer:
        for block, orders in _blocks(rows)[blocks.start : blocks.stop]:
            lines = _lineorder(rows, block, orders)
            groups = max(round(lines.num_rows / row_group_rows), 1)
            writer.write_table(lines, row_group_size=max(-(-lines.num_rows // groups), 1))


def _lineorder(rows: dict[str, int], block: int, orders: int) -> pa.Table:
    """Make the lines of a block of orders."""
    days = np.array([_key(FIRST_DAY + datetime.timedelta(n)) for n in range(rows["date"])], np.int32)
    order_days = (LAST_ORDER_DAY - FIRST_DAY).days + 1
    random, lines = _lines(block, orders)
    total = int(lines.sum())
    order = np.repeat(np.arange(orders), lines)
    first = np.cumsum(lines) - lines
    day = random.integers(0, order_days, orders)
    part = random.integers(1, rows["part"] + 1, total, dtype=np.int32)
    quantity = random.integers(1, 51, total, dtype=np.int32)
    discount = random.integers(0, 11, total, dtype=np.int32)
    tax = random.integers(0, 9, total, dtype=np.int32)
    price = _price(part)
    extended = quantity * price
    revenue = (extended.astype(np.int64) * (100 - discount) // 100).astype(np.int32)
    paid = revenue.astype(np.int64) * (100 + tax) // 100
    totals = np.add.reduceat(paid, first).astype(np.int32)
    priority = random.integers(0, len(PRIORITIES), orders)
    commit = np.minimum(day[order] + random.integers(30, 91, total), len(days) - 1)
    columns = {
        "lo_orderkey": block * ORDERS_OF_A_BLOCK + order + 1,
        "lo_linenumber": np.arange(total) - first[order] + 1,
        "lo_custkey": random.integers(1, rows["customer"] + 1, orders)[order],
        "lo_partkey": part,
        "lo_suppkey": random.integers(1, rows["supplier"] + 1, total),
        "lo_orderdate": days[day][order],
        "lo_orderpriority": pa.array(PRIORITIES).take(pa.array(priority[order])),
        "lo_shippriority": np.zeros(total, np.int32),
        "lo_quantity": quantity,
        "lo_extendedprice": extended,
        "lo_ordtotalprice": totals[order],
        "lo_discount": discount,
        "lo_revenue": revenue,
        "lo_supplycost": price.astype(np.int64) * 6 // 10,
        "lo_tax": tax,
        "lo_commitdate": days[commit],
        "lo_shipmode": _picked(random, SHIP_MODES, total),
    }
    return pa.table(columns).cast(LINEORDER)
