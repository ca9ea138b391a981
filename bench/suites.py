"""The two sets of queries that are measured: their names, their tables, their text, and where their data is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hybridq.config import cache_folder
from hybridq.shipped import find_plan
from hybridq.testing import ssb, tpch
from hybridq.testing.reference import REFERENCES, SSB_REFERENCES, Reference


@dataclass(frozen=True)
class Suite:
    """A set of queries over the same tables.

    Attributes
    ----------
    name : str
        What its queries' names begin with.
    title : str
        What a result's page calls it.
    queries : tuple of str
        All of them, such as ``q03``.
    usual : tuple of str
        Those that are measured unless others are asked for.
    tables : tuple of str
        What all queries read.
    usual_tables : tuple of str
        What the usual ones read.
    note : str
        How its results relate to published ones.
    make : callable
        Makes the data of a scale factor in a folder, with some of the tables, where it is not there yet.
    """

    name: str
    title: str
    queries: tuple[str, ...]
    usual: tuple[str, ...]
    tables: tuple[str, ...]
    usual_tables: tuple[str, ...]
    note: str
    make: Callable[[float, Path, tuple[str, ...]], Path]

    def folder(self, scale_factor: float, queries: list[str]) -> Path:
        """Return the folder in the user's cache with the data that queries need, made now if it is not there yet."""
        tables = self.usual_tables if set(queries) <= set(self.usual) else self.tables
        return self.make(scale_factor, cache_folder() / self.name / f"sf{scale_factor:g}", tables)


SUITES = {
    "tpch": Suite(
        name="tpch",
        title="TPC-H",
        queries=tuple(f"q{number:02}" for number in range(1, 23)),
        usual=("q01", "q03", "q04", "q06", "q12", "q14"),
        tables=tpch.TABLES,
        usual_tables=("lineitem", "orders", "customer", "part"),
        note="Derived from TPC-H; not comparable with published TPC-H results.",
        make=lambda scale_factor, folder, tables: tpch.generate(scale_factor, folder, tables=tables),
    ),
    "ssb": Suite(
        name="ssb",
        title="Star Schema Benchmark",
        queries=tuple(name.partition("/")[2] for name in SSB_REFERENCES),
        usual=tuple(name.partition("/")[2] for name in SSB_REFERENCES),
        tables=ssb.TABLES,
        usual_tables=ssb.TABLES,
        note="Data of the Star Schema Benchmark's sizes and ranges, of hybridq's own generator: not comparable with "
        "published results.",
        make=lambda scale_factor, folder, tables: ssb.generate(scale_factor, folder),
    ),
}


def query_text(query: str, scale_factor: float) -> str:
    """Return the SQL of a shipped query, such as ``tpch/q11``, for data of a scale factor.

    >>> "* 0.00001\\n" in query_text("tpch/q11", 10)
    True
    """
    suite, _, name = query.partition("/")
    return tpch.query_text(int(name[1:]), scale_factor) if suite == "tpch" else find_plan(query).read_text()


def reference(query: str) -> Reference:
    """Return how a shipped query's right answer is found."""
    return REFERENCES[query] if query in REFERENCES else SSB_REFERENCES[query]
