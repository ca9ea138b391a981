"""Partitions are handed out so that every row of the probing side is read exactly once, with its whole build side."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.config import Config
from hybridq.physical.chunks import PieceUnits
from hybridq.physical.merges import ConcatenateMerge
from hybridq.physical.partitions import (
    LEAST_PARTITIONS,
    MOST_PARTITIONS,
    PartitionChunks,
    SplitChunk,
    in_range,
    partitions_for,
)
from hybridq.physical.pipeline import CollectSink, PartitionedBuild, PartitionSource, Pipeline, Stage
from hybridq.types import Field

SCHEMA = (Field("k", pa.int64()),)
PARTITIONS = 8


def chunks_of(probe, build, block_bytes=None, **options):
    """Make what hands out the partitions of a join of stage 0 with stage 1; rows take 8 bytes."""
    pipeline = Pipeline(PartitionSource(0, SCHEMA, ("k",)), (), CollectSink(SCHEMA))
    builds = (PartitionedBuild(0, 1, ("k",), ("k",), SCHEMA, block_bytes=block_bytes),)
    stage = Stage(2, pipeline, builds, ConcatenateMerge(SCHEMA), (), SCHEMA, 1, 8, 0, "join")
    splits = {
        number: [SplitChunk((i,), np.array(rows, np.int64), 8 * sum(rows)) for i, rows in enumerate(side)]
        for number, side in enumerate((probe, build))
    }
    return PartitionChunks(stage, Config(**options), splits)


def everything(chunks, sizes=(100,), halved=()):
    """Take all chunks, some of which are halved once more."""
    found, taken = [], 0
    while (chunk := chunks.take(sizes[taken % len(sizes)], largest=taken % 3 == 0)) is not None:
        halves = chunks.halve(chunk) if taken in halved else None
        found += [chunk] if halves is None else halves
        taken += 1
    assert chunks.exhausted
    assert chunks.remaining_rows == 0
    return found


SIDES = st.lists(st.lists(st.integers(0, 50), min_size=PARTITIONS, max_size=PARTITIONS), max_size=6)


@given(
    probe=SIDES,
    build=SIDES,
    limit=st.integers(1, 2000),
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    halved=st.sets(st.integers(0, 8)),
)
@settings(deadline=None, max_examples=200)
def test_every_piece_is_read_once(probe, build, limit, sizes, halved):
    chunks = chunks_of(probe, build, partition_bytes=limit, cpu_chunk_rows=60)
    total = sum(map(sum, probe))
    assert chunks.total_rows == chunks.remaining_rows == total
    found = everything(chunks, sizes, halved)
    assert len({chunk.id for chunk in found}) == len({chunk.order for chunk in found}) == len(found)
    assert sum(chunk.rows for chunk in found) == total
    # Of each piece, the shares of all chunks that read it make one whole.
    shares = np.zeros((len(probe), PARTITIONS))
    for chunk in found:
        units = chunk.source
        assert isinstance(units, PieceUnits)
        for number in units.partitions:
            for position in range(len(probe)):
                if in_range((position,), units):
                    shares[position, number] += 1 / units.parts
    for position, rows in enumerate(probe):
        for number, count in enumerate(rows):
            assert count == 0 or shares[position, number] == 1


def test_small_partitions_go_together_and_large_ones_alone():
    chunks = chunks_of([[10, 10, 10, 10, 500, 10, 10, 10]], [[1] * 8], partition_bytes=10_000)
    first = chunks.take(60)
    assert first is not None
    assert len(first.source.partitions) == 6
    largest = chunks.take(60, largest=True)
    assert largest is not None
    assert (largest.source.partitions, largest.rows) == ((4,), 500)


def test_a_large_build_side_is_split_in_another_round():
    chunks = chunks_of([[100] * 8], [[450] * 8], partition_bytes=1000)
    parts = [chunk.source for chunk in everything(chunks) if chunk.source.partitions == (7,)]
    assert [(units.part, units.parts) for units in sorted(parts, key=lambda units: units.part)] == [
        (0, 4), (1, 4), (2, 4), (3, 4),
    ]  # fmt: skip


def test_a_frequent_key_of_the_build_side_is_one_chunk_of_its_size():
    """Each part would read all of its rows again, and one would keep them."""
    chunks = chunks_of([[100] * 8], [[100] * 7 + [4500]], partition_bytes=2000)
    (hot,) = [chunk for chunk in everything(chunks) if 7 in chunk.source.partitions]
    assert hot.source.parts == 1
    assert hot.decoded_bytes >= 8 * 4500


def test_of_a_build_side_that_is_taken_in_blocks_one_counts():
    build = [[100] * 7 + [4500]]
    chunks = chunks_of([[100] * 8], build, block_bytes=2000, partition_bytes=2000)
    (hot,) = [chunk for chunk in everything(chunks) if 7 in chunk.source.partitions]
    assert (hot.source.parts, hot.decoded_bytes, hot.bytes) == (1, 800 + 2000, 800 + 8 * 4500)
    # Where both sides have many rows of a key, the probing side is cut as beside any build side of that size.
    chunks = chunks_of([[10] * 7 + [1000]] * 5, build, block_bytes=2000, partition_bytes=2000)
    hot = [chunk for chunk in everything(chunks) if 7 in chunk.source.partitions]
    assert len(hot) == 5
    assert all(chunk.decoded_bytes == 8000 + 2000 for chunk in hot)
    halves = chunks.halve(hot[0])
    assert halves is None or all(each.decoded_bytes <= 8000 + 2000 for each in halves)


def test_a_frequent_key_of_the_probing_side_is_cut_by_chunks():
    chunks = chunks_of([[5000] + [1] * 7] * 10, [[1] * 8], partition_bytes=100_000, cpu_chunk_rows=10_000)
    parts = [chunk.source for chunk in everything(chunks) if 0 in chunk.source.partitions]
    assert len(parts) >= 5
    assert sum(units.rows for units in parts) == 50_000
    assert all(units.parts == 1 and units.rows <= 10_000 for units in parts)


def test_the_number_of_partitions_follows_the_estimate():
    config = Config(partition_bytes=100)
    assert partitions_for(0, config) == LEAST_PARTITIONS
    assert partitions_for(5000, config) == 100
    assert partitions_for(1e12, config) == MOST_PARTITIONS
