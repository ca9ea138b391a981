"""Answers judged, ratios, tables with failures in them, and a whole small run."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench.answers import RightAnswer, Verdict
from bench.gpu_scale.lines import markdown as scale_table
from bench.gpu_scale.steps import growth
from bench.peers import Setup
from bench.run import Comparison, Effort, Outcome, Writer
from bench.table import geometric_mean, markdown, ratios
from hybridq.session import Session
from hybridq.shipped import find_plan
from hybridq.testing.reference import duckdb_answer

INFO: dict[str, Any] = {
    "commit": "abc",
    "cores": 16,
    "cpu": "a CPU",
    "memory_bytes": 2**37,
    "gpus": [{"name": "a GPU", "memory_bytes": 80 * 2**30, "driver": "1"}],
    "load_before": 0.0,
    "python": "3.12",
    "versions": {"duckdb": "2"},
}


def outcome(peer: str, query: str, *seconds: float, error: str | None = None) -> Outcome:
    verdict = Verdict(exact=peer.startswith("hybridq"), difference=3e-10)
    return Outcome(peer, query, first_s=9.0, seconds=list(seconds), verdict=verdict, error=error, note="a note")


@pytest.fixture
def lines(tmp_path: Path) -> list[dict[str, Any]]:
    outcomes = [
        outcome("hybridq gpu", "tpch/q01", 1.0, 2.0, 3.0),
        outcome("duckdb", "tpch/q01", 8.0),
        outcome("cudf-polars in-memory", "tpch/q01", 1.0, error="MemoryError: out of memory"),
        outcome("hybridq gpu", "tpch/q03", 1.0),
        outcome("duckdb", "tpch/q03", 1.0),
    ]
    Writer(tmp_path / "out", {"scale_factor": 1, "repeats": 3, "slow_repeats": 1, "rounds": 1}, INFO)(outcomes)
    text = (tmp_path / "out.jsonl").read_text()
    assert (tmp_path / "out.md").read_text() == markdown([json.loads(line) for line in text.splitlines()])
    return [json.loads(line) for line in text.splitlines()]


def test_ratios_pair_by_pair(lines: list[dict[str, Any]]) -> None:
    assert ratios(lines, "hybridq gpu", "duckdb") == {"tpch/q01": 4.0, "tpch/q03": 1.0}
    assert ratios(lines, "duckdb", "hybridq gpu") == {"tpch/q01": 0.25, "tpch/q03": 1.0}
    assert ratios(lines, "hybridq gpu", "cudf-polars in-memory") == {}
    assert geometric_mean([4.0, 1.0]) == pytest.approx(2.0)


def test_table_shows_medians_ratios_and_failures(lines: list[dict[str, Any]]) -> None:
    page = markdown(lines)
    assert "| tpch/q01 | 2.000 (0.25x) / 9.00 | 8.000 / 9.00 | FAIL |" in page
    assert "| tpch/q03 | 1.000 (1.00x) / 9.00 | 1.000 / 9.00 | - |" in page
    assert "- FAIL tpch/q01, cudf-polars in-memory: MemoryError: out of memory" in page
    assert "| tpch/q01 | exact | rounded, off by 3e-10 | - |" in page
    assert "| geometric mean | hybridq gpu | - | 2.00 | - |" in page
    assert "a GPU of 80 GiB" in page


def test_equal_failures_are_told_once() -> None:
    outcomes = [outcome("duckdb", query, error="killed") for query in ("ssb/q1_1", "ssb/q1_2")]
    config = {"suite": "ssb", "scale_factor": 1, "repeats": 3, "slow_repeats": 1, "peers": {}}
    page = markdown([{**each.to_line(), "time": "now", "config": config, "machine": INFO} for each in outcomes])
    assert "# Star Schema Benchmark queries at scale factor 1" in page
    assert page.count("FAIL ssb") == 1
    assert "- FAIL ssb/q1_1, ssb/q1_2, duckdb: killed" in page


def test_table_shows_where_stages_ran(tmp_path: Path) -> None:
    ran: dict[str, object] = {
        "modes": ["EXEC_GPU", "EXEC_COP", "EXEC_CPU"],
        "stage_chunks": [{"gpu": 4}, {"cpu": 1, "gpu": 9}, {"cpu": 2}],
        "chunks": {"cuda": 13, "cpu": 3},
        "retries": 1,
        "fallbacks": 1,
        "fallback_causes": ["no a|b on the GPU"],
    }
    ours, other = outcome("hybridq auto", "tpch/q01", 1.0), outcome("hybridq cpu", "tpch/q01", 1.0)
    ours.details, other.details = ran, {"modes": ["EXEC_CPU"], "chunks": {"cpu": 3}, "retries": 0, "fallbacks": 0}
    Writer(tmp_path / "out", {"scale_factor": 1, "repeats": 3, "slow_repeats": 1, "rounds": 1}, INFO)([ours, other])
    page = (tmp_path / "out.md").read_text()
    assert "| tpch/q01 | auto | gpu:4 cop:1+9 cpu:2 | cpu 3, cuda 13 | 1 | 1: no a\\|b on the GPU |" in page
    assert "| tpch/q01 | cpu |" not in page


def test_a_failed_peer_has_no_median_but_keeps_its_runs() -> None:
    line = outcome("duckdb", "tpch/q01", 1.0, error="killed").to_line()
    assert (line["median_s"], line["seconds"], line["same_answer"], line["answer"]) == (None, [1.0], False, None)


def test_repeats_are_divided_among_rounds() -> None:
    effort = Effort(repeats=7, slow_repeats=1, rounds=3)
    assert [effort.turns("duckdb", number) - 1 for number in range(3)] == [3, 2, 2]
    assert [effort.turns("dask.dataframe", number) - 1 for number in range(3)] == [1, 0, 0]


def changed(table: pa.Table, name: str, factor: str) -> pa.Table:
    position = table.schema.names.index(name)
    values = [value * Decimal(factor) for value in table.column(name).to_pylist()]
    return table.set_column(position, name, pa.array(values, pa.decimal128(38, 12)))


def test_right_rounded_and_wrong_answers(tpch_folder: Path) -> None:
    right = RightAnswer("tpch/q03", tpch_folder)
    answer = duckdb_answer(find_plan("tpch/q03").read_text(), tpch_folder)
    assert str(right.check(answer, must_be_exact=False)) == "exact"
    rounded = changed(answer, "revenue", "1.00000001")
    verdict = right.check(rounded, must_be_exact=False)
    assert not verdict.exact
    assert verdict.difference == pytest.approx(1e-8, rel=1e-3)
    with pytest.raises(AssertionError):
        right.check(rounded, must_be_exact=True)
    with pytest.raises(AssertionError):
        right.check(changed(answer, "revenue", "1.001"), must_be_exact=False)


def test_quotients_are_checked_against_their_exact_value(tpch_folder: Path) -> None:
    right = RightAnswer("tpch/q14", tpch_folder)
    answer = duckdb_answer(find_plan("tpch/q14").read_text(), tpch_folder)
    assert right.check(answer, must_be_exact=False).difference < 1e-14
    wrong = pa.table({"promo_revenue": pc.multiply(answer.column(0).cast(pa.float64()), 1.01)})
    with pytest.raises(AssertionError):
        right.check(wrong, must_be_exact=False)


def test_a_whole_run(tpch_folder: Path, one_worker: Session) -> None:
    seen: list[int] = []
    setup = Setup(tpch_folder, threads=1, cluster=one_worker.address)
    names = ["hybridq gpu", "duckdb", "cudf-polars in-memory"]
    comparison = Comparison(names, ["tpch/q06"], setup, Effort(repeats=2), lambda found: seen.append(len(found)))
    ours, theirs, absent = comparison.run()
    assert (ours.error, theirs.error) == (None, None)
    assert (len(ours.seconds), len(theirs.seconds)) == (2, 2)
    assert str(ours.verdict) == "exact"
    assert ours.details["chunks"] == {"simulated gpu": 1}
    assert ours.details["stage_chunks"] == [{"gpu": 1}]
    assert ours.details["peak_device_bytes"]
    assert absent.error is not None
    assert absent.median_s is None
    assert seen == [2, 3]


def test_peers_without_a_query_are_left_out(tpch_folder: Path, one_worker: Session) -> None:
    setup = Setup(tpch_folder, threads=1, cluster=one_worker.address)
    names = ["hybridq cpu", "duckdb", "dask.dataframe", "cudf-polars in-memory"]
    found = Comparison(names, ["tpch/q22"], setup, Effort(repeats=1)).run()
    assert [each.peer for each in found] == ["hybridq cpu", "duckdb", "cudf-polars in-memory"]
    assert [each.error for each in found[:2]] == [None, None]


def test_nothing_is_started_once_the_time_is_up(tpch_folder: Path) -> None:
    comparison = Comparison(["duckdb"], ["tpch/q06"], Setup(tpch_folder, threads=1), Effort(deadline=0.0))
    assert comparison.run() == []
    assert comparison.cut_short


def test_the_time_is_divided_among_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    monkeypatch.setattr(Comparison, "_measure", lambda self, *_: shares.append(self._until - time.monotonic()))
    effort = Effort(rounds=2, deadline=time.monotonic() + 120)
    names = ["hybridq gpu", "duckdb", "cudf-polars streaming"]
    assert not Comparison(names, ["tpch/q06"], Setup(tmp_path, threads=1), effort).run()
    assert shares == pytest.approx([40, 30, 80, 120], abs=2)


def test_slow_peers_run_fewer_times() -> None:
    effort = Effort(repeats=3, slow=("hybridq cpu",))
    assert [effort.turns(peer, 0) - 1 for peer in ("hybridq cpu", "hybridq gpu", "dask.dataframe")] == [1, 3, 3]


def test_growth_leaves_out_the_first_tenth() -> None:
    assert growth([1000] * 10 + [10] * 80 + [15] * 10) == 5
    assert growth([1, 2, 3]) is None


def test_scale_table_shows_failures_and_leaves_out_single_runs() -> None:
    found = scale_table(
        [
            {"step": "soak", "query": "q", "peer": "p", "detail": True, "seconds": 1.0},
            {
                "step": "soak",
                "query": "q",
                "peer": "p",
                "median_s": None,
                "error": "killed",
                "peak_device_bytes": 2**21,
            },
        ]
    )
    assert found.splitlines()[2:] == ["| soak | q | p | FAIL | 2 |", "", "FAIL q, p: killed"]
