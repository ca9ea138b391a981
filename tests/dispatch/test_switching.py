"""A build side that turns out too large to be broadcast leads to a partitioned join while the query runs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hybridq.testing.in_process import connect_in_process

ROWS = 20_000
FEW = "select k, v from r where v % 2 = 0 and v % 3 = 0 and v % 5 = 0"  # estimated to be few rows; they are all


@pytest.fixture
def session():
    with connect_in_process(broadcast_bytes=40_000, broadcast_limit_bytes=100_000, cpu_chunk_rows=2000) as session:
        keys = np.random.default_rng(3).permutation(ROWS)
        session.register("l", pa.table({"k": keys, "n": np.arange(ROWS)}))
        session.register("r", pa.table({"k": np.arange(ROWS), "v": np.arange(ROWS) * 30}))
        yield session


QUERIES = {
    "rows": f"select count(*) c, sum(n + v) s from l join ({FEW}) t on l.k = t.k",
    "groups": f"select count(*) c, sum(n + w) s from l join (select k, sum(v) w from ({FEW}) t group by k) g"
    " on l.k = g.k",
    "semi": f"select count(*) c, sum(n) s from l where k in (select k from ({FEW}) t)",
    "anti": f"select count(*) c, sum(n) s from l where not exists (select 1 from ({FEW}) t where t.k = l.k)",
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("mode", ["cpu", "gpu", "cop"])
def test_the_join_is_partitioned_while_the_query_runs(session, name, mode):
    query = session.sql(QUERIES[name])
    assert "partitioned" not in str(query.explain())
    result = query.collect(mode=mode)
    every = ROWS * (ROWS - 1) // 2
    expected = {"rows": (ROWS, 31 * every), "groups": (ROWS, 31 * every), "semi": (ROWS, every), "anti": (0, None)}
    assert tuple(column[0].as_py() for column in result.to_arrow().columns) == expected[name]
    (join,) = [stage for stage in result.report.stages if "(partitioned)" in stage.title]
    assert "broadcast_limit_bytes" in join.reason
    assert "split" in join.reason
    # The query knows it from now on.
    again = query.collect(mode=mode)
    assert again.to_arrow().equals(result.to_arrow())
    assert not any("broadcast_limit_bytes" in stage.reason for stage in again.report.stages)
    assert any("(partitioned)" in stage.title for stage in again.report.stages)


def test_what_cannot_be_split_is_broadcast_all_the_same(session):
    query = session.sql(f"select count(*) c from l where n < 3 and exists (select 1 from ({FEW}) t where t.v < l.n)")
    result = query.collect(mode="cpu")
    assert result.to_arrow()["c"][0].as_py() == 2


def test_groups_that_are_merged_in_the_client_are_split_where_they_are_too_many_as_well(monkeypatch):
    monkeypatch.setattr("hybridq.dispatch.stage_run.MERGED_HERE_BYTES", 2**30)
    monkeypatch.setattr("hybridq.catalog.MEMORY_UNIT_ROWS", 2000)
    options = {"broadcast_bytes": 40_000, "broadcast_limit_bytes": 100_000, "cpu_chunk_rows": 2000}
    with connect_in_process(**options) as session:
        session.register("l", pa.table({"k": np.arange(ROWS), "n": np.arange(ROWS)}))
        session.register("r", pa.table({"k": np.arange(ROWS), "v": np.arange(ROWS) * 30}))
        result = session.sql(QUERIES["groups"]).collect(mode="cpu")
    assert result.to_arrow()["c"][0].as_py() == ROWS
    assert not [
        span for stage in result.report.stages for span in stage.spans if span.worker == "cpu" and span.what == "merge"
    ]
    (join,) = [stage for stage in result.report.stages if "(partitioned)" in stage.title]
    assert "broadcast_limit_bytes" in join.reason
