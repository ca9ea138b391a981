"""Ranges of sorted runs are handed out so that every row is read exactly once, in order, wherever rows tie."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.config import Config
from hybridq.dispatch.pieces import _within
from hybridq.engines.ranges import places, rows_before
from hybridq.physical.merges import ConcatenateMerge
from hybridq.physical.partitions import SplitChunk
from hybridq.physical.pipeline import CollectSink, Pipeline, RangeSource, Stage
from hybridq.physical.ranges import MOST_SAMPLES, RangeChunks, blocks_for
from hybridq.plan.expressions import Column, SortKey
from hybridq.types import Field

SCHEMA = (Field("k", pa.int64()), Field("n", pa.int64()))
KEYS = (SortKey(Column(pa.int64(), "k"), False, False),)


def sorted_runs(values, blocks):
    """Return the runs' tables, where their blocks begin, and what the driver knows of them."""
    tables = [
        pa.table({"k": np.sort(run), "n": 1000 * number + np.arange(len(run))}) for number, run in enumerate(values)
    ]
    starts = [np.arange(min(blocks, len(run)) + 1) * len(run) // max(min(blocks, len(run)), 1) for run in values]
    samples = [table.select(["k"]).take(pa.array(own[:-1])) for table, own in zip(tables, starts, strict=True)]
    found = places(samples, KEYS) if samples else []
    chunks = [
        SplitChunk((number,), np.diff(own), 16 * len(run), sample, place)
        for number, (run, own, sample, place) in enumerate(zip(values, starts, samples, found, strict=True))
    ]
    return tables, starts, chunks


def chunks_of(runs, **options):
    stage = Stage(
        1,
        Pipeline(RangeSource(0, SCHEMA, KEYS, 0), (), CollectSink(SCHEMA)),
        (),
        ConcatenateMerge(SCHEMA),
        (),
        SCHEMA,
        1,
        8,
        0,
        "ranges",
    )
    return RangeChunks(stage, Config(**options), runs)


RUNS = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=30).map(np.array), max_size=5)


@given(RUNS, st.integers(1, 8), st.lists(st.integers(1, 20), min_size=1, max_size=3), st.sampled_from([1, 100, 10**6]))
@settings(max_examples=150, deadline=None)
def test_every_row_is_read_once_and_in_order(values, blocks, sizes, partition_bytes):
    tables, starts, runs = sorted_runs(values, blocks)
    source = chunks_of(runs, partition_bytes=partition_bytes)
    assert source.total_rows == sum(map(len, values))
    taken, rows = [], []
    while (chunk := source.take(sizes[len(taken) % len(sizes)], largest=len(taken) % 2 == 0)) is not None:
        taken += source.halve(chunk) or [chunk] if len(taken) % 3 == 1 else [chunk]
    assert [chunk.order for chunk in taken] == sorted(chunk.order for chunk in taken)
    assert sum(chunk.rows for chunk in taken) == source.total_rows
    assert source.exhausted
    assert source.remaining_rows == 0
    for chunk in taken:
        own = []
        for cut in chunk.source.cuts:
            (number,) = cut.order
            first, stop = int(starts[number][cut.first]), int(starts[number][cut.stop])
            own.append(_within(tables[number].slice(first, stop - first), cut, chunk.source, KEYS))
        rows += (
            pa.concat_tables([tables[0].slice(0, 0), *own])
            .sort_by([("k", "ascending"), ("n", "ascending")])
            .to_pylist()
        )
    everything = [row for table in tables for row in table.to_pylist()]
    assert rows == sorted(everything, key=lambda row: (row["k"], row["n"]))


@given(RUNS)
def test_ranges_are_of_the_size_asked_for(values):
    _, _, runs = sorted_runs(values, 4)
    source = chunks_of(runs)
    largest = max((int(run.rows.max()) for run in runs), default=0)
    while (chunk := source.take(5)) is not None:
        assert chunk.rows <= max(5, largest)


@pytest.mark.parametrize(("ties", "before"), [(False, 1), (True, 3)])
def test_rows_that_tie_are_before_or_after(ties, before):
    run = pa.table({"k": [1, 2, 2, 3]})
    assert rows_before(run, pa.table({"k": [2]}), KEYS, ties) == before


def test_blocks_are_bounded():
    config = Config(partition_bytes=2**20)
    assert blocks_for(1, 1, config) == 16
    assert blocks_for(2**40, 1, config) == 1024
    assert blocks_for(2**40, 10_000, config) == MOST_SAMPLES // 10_000
