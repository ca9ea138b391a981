"""Each query as Polars has it gives DuckDB's answer, and so does each text at another scale factor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.answers import RightAnswer
from bench.peers import Setup
from bench.peers.duckdb_peer import DuckdbPeer
from bench.suites import SUITES
from hybridq.testing import ssb, tpch

SCALE_FACTORS = {"tpch": 0.02, "ssb": 0.05}
"""Small ones at which Q17 and Q3.3 of the Star Schema Benchmark have an answer: Polars' sum of no rows is not NULL."""

QUERIES = [f"{suite.name}/{query}" for suite in SUITES.values() for query in suite.queries]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("polars")
    return {
        "tpch": tpch.generate(SCALE_FACTORS["tpch"], place / "tpch"),
        "ssb": ssb.generate(SCALE_FACTORS["ssb"], place / "ssb"),
    }


@pytest.fixture(scope="module")
def tables(folders: dict[str, Path]) -> dict[str, dict[str, Any]]:
    polars = pytest.importorskip("polars")
    return {
        suite: {path.stem: polars.scan_parquet(path) for path in folder.glob("*.parquet")}
        for suite, folder in folders.items()
    }


@pytest.mark.parametrize("query", QUERIES)
def test_the_answer_is_duckdbs(query: str, folders: dict[str, Path], tables: dict[str, dict[str, Any]]) -> None:
    from bench.peers.polars_queries import QUERIES as FRAMES

    suite = query.partition("/")[0]
    factor = 1.0 if query == "tpch/q11" else SCALE_FACTORS[suite]  # with its own fraction it has no row here
    answer = FRAMES[query](**tables[suite], scale_factor=factor).collect(engine="streaming").to_arrow()
    right = RightAnswer(query, folders[suite], factor)
    right.check(answer, must_be_exact=False)
    assert answer.schema.names == right.names
    if query != "ssb/q3_4":  # two cities of 250, in one month
        assert answer.num_rows > 0


def test_the_fraction_of_q11_follows_the_scale_factor(folders: dict[str, Path]) -> None:
    right = RightAnswer("tpch/q11", folders["tpch"], SCALE_FACTORS["tpch"])
    for factor, is_right in ((SCALE_FACTORS["tpch"], True), (1.0, False)):
        peer = DuckdbPeer(Setup(folders["tpch"], 1, scale_factor=factor))
        peer.start(folders["tpch"])
        answer = peer.run("tpch/q11")
        peer.close()
        if is_right:
            assert right.check(answer, must_be_exact=False).exact
        else:
            with pytest.raises(AssertionError):
                right.check(answer, must_be_exact=False)
