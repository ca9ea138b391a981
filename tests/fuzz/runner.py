"""Many random queries in a row; the smallest form of those that go wrong."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from hybridq.engines.protocol import Engine

from .check import Checker, Outcome, without_rows
from .data import TableSpec, random_tables
from .features import Features
from .generate import Generator
from .tree import Query, smaller

QUERIES_OF_A_DATASET = 20


@dataclass(frozen=True)
class Case:
    """One query over its tables."""

    seed: int
    number: int
    tables: tuple[TableSpec, ...]
    query: Query

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, query {self.number}", f"  hybridq: {self.query.sql('hybridq')}"]
        lines.append(f"  DuckDB:  {self.query.sql('duckdb')}")
        used = self.query.sql("hybridq")
        for spec in self.tables:
            if f" {spec.name} AS " in used:
                place = f"row groups of {spec.row_group}" if spec.row_group else "in memory"
                lines.append(f"  {spec.name} ({place}): {spec.table.schema.types}")
                lines += [f"    {row}" for row in spec.table.to_pylist()[:20]]
        return "\n".join(lines)


@dataclass
class Tally:
    """What came of all queries."""

    verdicts: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    undecided: Counter[str] = field(default_factory=Counter)
    empty: int = 0
    differences: list[tuple[Case, Outcome]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def total(self) -> int:
        return sum(self.verdicts.values())

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.verdicts.most_common())
        lines = [f"{self.total} queries in {self.seconds:.0f} s: {counts} ({self.empty} of the same have no rows)"]
        for name, counter in (("unsupported", self.unsupported), ("undecided", self.undecided)):
            lines += [f"  {name} {count}: {reason}" for reason, count in counter.most_common(12)]
        return "\n".join(lines)


def cases(seed: int, start: int, count: int, features: Features) -> Iterator[tuple[Case, random.Random]]:
    """Make queries; each depends on nothing but the seed and its number."""
    for number in range(start, start + count):
        dataset = number // QUERIES_OF_A_DATASET
        tables = random_tables(random.Random(f"{seed}/tables/{dataset}"))
        choose = random.Random(f"{seed}/query/{number}")
        query = Generator(choose, tables, features).query()
        yield Case(seed, number, tables, query), random.Random(f"{seed}/storage/{dataset}")


def run(
    seed: int,
    count: int,
    features: Features,
    *,
    start: int = 0,
    gpu: Engine | None = None,
    shrink_seconds: float = 0.0,
    on_difference: Callable[[Case, Outcome], None] | None = None,
    until: float | None = None,
) -> Tally:
    """Run random queries.

    Parameters
    ----------
    shrink_seconds : float
        Time to look for a smaller form of each difference.
    until : float, optional
        Stop at this time (``time.monotonic``).
    """
    tally = Tally()
    began = time.monotonic()
    checker: Checker | None = None
    dataset = -1
    for case, storage in cases(seed, start, count, features):
        if until is not None and time.monotonic() > until:
            break
        if case.number // QUERIES_OF_A_DATASET != dataset:
            dataset = case.number // QUERIES_OF_A_DATASET
            if checker is not None:
                checker.close()
            checker = Checker(case.tables, storage, gpu)
        assert checker is not None
        outcome = checker.check(case.query)
        tally.verdicts[outcome.verdict] += 1
        tally.empty += outcome.verdict == "same" and outcome.rows == 0
        if outcome.verdict == "unsupported":
            tally.unsupported[outcome.detail] += 1
        elif outcome.verdict == "undecided":
            tally.undecided[outcome.detail.splitlines()[0][:110]] += 1
        elif outcome.verdict == "different":
            if shrink_seconds:
                first, told = case.query.sql("hybridq"), outcome.detail
                case, outcome = shrink(case, outcome, shrink_seconds, gpu)
                outcome = replace(outcome, detail=f"{outcome.detail}\n  at first: {told}\n    {first}")
            tally.differences.append((case, outcome))
            if on_difference is not None:
                on_difference(case, outcome)
    if checker is not None:
        checker.close()
    tally.seconds = time.monotonic() - began
    return tally


def shrink(case: Case, outcome: Outcome, seconds: float, gpu: Engine | None = None) -> tuple[Case, Outcome]:
    """Look for the smallest query and tables that still go wrong in the same way."""
    deadline = time.monotonic() + seconds
    kind = _kind(outcome)

    def fails(tables: tuple[TableSpec, ...], query: Query, checker: Checker | None = None) -> Outcome | None:
        own = checker or Checker(tables, random.Random(case.seed), gpu)
        try:
            found = own.check(query)
        except Exception:  # a tree that was cut in the wrong place
            return None
        finally:
            if checker is None:
                own.close()
        return found if found.verdict == "different" and _kind(found) == kind else None

    progress = True
    while progress and time.monotonic() < deadline:
        progress = False
        checker = Checker(case.tables, random.Random(case.seed), gpu)
        for query in smaller(case.query):
            if time.monotonic() > deadline:
                break
            found = fails(case.tables, query, checker)
            if found is not None:
                case, outcome, progress = Case(case.seed, case.number, case.tables, query), found, True
                break
        checker.close()
        if progress:
            continue
        for tables in without_rows(case.tables):
            if time.monotonic() > deadline:
                break
            found = fails(tables, case.query)
            if found is not None:
                case, outcome, progress = Case(case.seed, case.number, tables, case.query), found, True
                break
    return case, outcome


def _kind(outcome: Outcome) -> str:
    """Tell apart the ways of going wrong, so that a smaller case shows the same fault."""
    errors = set(re.findall(r"\b[A-Z]\w+(?=: )", outcome.detail))
    for word in ("DuckDB fails", "hybridq fails", "rows, got", "type"):
        if word in outcome.detail:
            return f"{word} {sorted(errors)}"
    return f"value {sorted(errors)}"
