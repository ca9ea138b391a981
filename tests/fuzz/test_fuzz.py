"""A small run of random queries; a long one is ``python -m tests.fuzz --count 5000 --seed N``."""

from __future__ import annotations

import random

import pytest

from .check import Checker, Outcome
from .data import random_tables
from .features import find_features
from .runner import Case, cases, run, shrink
from .tree import Expr, Query, Relation, Select

QUERIES = 60


@pytest.fixture(scope="module")
def features():
    return find_features()


def test_random_queries(features):
    tally = run(20260101, QUERIES, features)
    shown = "\n\n".join(f"{case}\n  {outcome.detail}" for case, outcome in tally.differences)
    assert not tally.differences, f"{shown}\n{tally}"
    assert tally.total == QUERIES
    # A run that is mostly refused proves nothing.
    assert tally.verdicts["unsupported"] <= 0.05 * tally.total + 2, str(tally)
    assert tally.verdicts["undecided"] <= 0.02 * tally.total + 2, str(tally)
    assert tally.empty <= tally.total / 2, str(tally)


def test_a_seed_gives_the_same_queries(features):
    first = [case.query.sql("hybridq") for case, _ in cases(7, 0, 30, features)]
    assert first == [case.query.sql("hybridq") for case, _ in cases(7, 0, 30, features)]
    assert first[25:] == [case.query.sql("hybridq") for case, _ in cases(7, 25, 5, features)]
    assert len(set(first)) == 30


def test_a_difference_is_seen_and_made_small():
    tables = random_tables(random.Random("shrink"))
    name = tables[0].name
    # DuckDB is asked for something else, as if hybridq answered wrongly.
    wrong = Expr("int", "r0.i0 + 1", duckdb="r0.i0 + 2")
    items = (Expr("int", "r0.i1"), Expr("int", "({0} * 1)", (wrong,)))
    where = Expr("bool", "(r0.i0 IS NOT NULL)")
    query = Query(Select(items, (Relation("r0", name),), where), ((0, ""),), limit=5)
    checker = Checker(tables, random.Random(1))
    outcome = checker.check(query)
    checker.close()
    assert outcome.verdict == "different"
    case, outcome = shrink(Case(1, 0, tables, query), outcome, 10)
    assert outcome.verdict == "different"
    assert case.query == Query(Select((wrong,), (Relation("r0", name),)))
    assert case.tables[0].table.num_rows == 1
    assert "r0.i0 + 1" in str(case)


@pytest.mark.parametrize(
    ("hybridq", "duckdb", "verdict"),
    [
        ("r0.i0", None, "same"),
        ("r0.i0 / (r0.i0 - r0.i0)", "r0.i0 // (r0.i0 - r0.i0)", "same error"),
        ("r0.i0 / (r0.i0 - r0.i0)", "r0.i0", "different"),
        ("r0.i0", "r0.i0 // (r0.i0 - r0.i0)", "different"),
        ("cast(r0.i0 as varchar)", "r0.i0", "different"),
        ("r0.i0 + 1", "nonsense(r0.i0)", "undecided"),
        ("r0.nonsense", "r0.i0", "different"),
        ("r0.u2 similar to r0.u2", "r0.i0", "unsupported"),
    ],
)
def test_verdicts(hybridq, duckdb, verdict):
    tables = random_tables(random.Random("verdicts"))
    assert tables[0].table.column("i0").null_count < tables[0].table.num_rows
    checker = Checker(tables, random.Random(1))
    outcome = checker.check(Query(Select((Expr("int", hybridq, duckdb=duckdb),), (Relation("r0", tables[0].name),))))
    checker.close()
    assert isinstance(outcome, Outcome)
    assert outcome.verdict == verdict, outcome
