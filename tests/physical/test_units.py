from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.catalog import Catalog
from hybridq.config import Config
from hybridq.dispatch.memory import footprint
from hybridq.physical.chunks import Chunk, MemoryUnits, ParquetUnits
from hybridq.physical.merges import ConcatenateMerge
from hybridq.physical.pipeline import AlignedBuild, CollectSink, Pipeline, Stage, StageSource, TableSource
from hybridq.physical.units import ChunkSource, KeyRanges, alignment_overhead, surviving_units
from hybridq.plan.expressions import Call, Column, Literal
from hybridq.plan.nodes import ScanColumn
from hybridq.types import Field

I64 = pa.int64()
KEY = Column(I64, "t.k")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """Table t: 20 row groups of 10 rows over 2 files; table u: every tenth key of t, 4 row groups of 5 rows."""
    (tmp_path / "t").mkdir()
    for part in range(2):
        keys = pa.table({"k": np.arange(part * 100, part * 100 + 100)})
        pq.write_table(keys, tmp_path / "t" / f"{part}.parquet", row_group_size=10)
    pq.write_table(pa.table({"k": np.arange(0, 200, 10)}), tmp_path / "u.parquet", row_group_size=5)
    catalog = Catalog()
    catalog.register_folder(tmp_path)
    return catalog


def source(table: str, predicate: Call | None = None) -> TableSource:
    return TableSource(table, (ScanColumn(f"{table}.k", "k", I64),), predicate, (f"{table}.k",))


def stage(pipeline_source: TableSource | StageSource, builds: tuple[AlignedBuild, ...] = ()) -> Stage:
    schema = (Field("t.k", I64),)
    return Stage(
        0,
        Pipeline(pipeline_source, (), CollectSink(schema)),
        builds,
        ConcatenateMerge(schema),
        (),
        schema,
        1,
        1,
        1,
        "t",
    )


def rows_in(chunk: Chunk) -> int:
    assert chunk.source is not None
    return chunk.source.rows


def drain(chunks: ChunkSource, rows: int) -> list[Chunk]:
    found = []
    while (chunk := chunks.take(rows)) is not None:
        found.append(chunk)
    return found


@pytest.mark.parametrize(("rows", "sizes"), [(1, [10] * 20), (70, [70, 70, 60]), (10**9, [200])])
def test_chunks_cover_every_row_once(catalog: Catalog, rows: int, sizes: list[int]) -> None:
    chunks = ChunkSource(stage(source("t")), catalog, Config())
    assert (chunks.total_rows, chunks.remaining_rows) == (200, 200)
    found = drain(chunks, rows)
    assert [rows_in(chunk) for chunk in found] == sizes
    groups = [
        (path, group)
        for chunk in found
        if isinstance(chunk.source, ParquetUnits)
        for path, members in chunk.source.files
        for group in members
    ]
    assert len(groups) == len(set(groups)) == 20
    assert chunks.remaining_rows == 0
    assert chunks.exhausted


def test_a_fixed_number_of_units_wins_over_rows(catalog: Catalog) -> None:
    found = drain(ChunkSource(stage(source("t")), catalog, Config(chunk_units=7)), 1)
    assert [rows_in(chunk) for chunk in found] == [70, 70, 60]


def test_statistics_give_bounds(catalog: Catalog) -> None:
    chunk = ChunkSource(stage(source("t")), catalog, Config()).take(30)
    assert chunk is not None
    assert isinstance(chunk.source, ParquetUnits)
    assert chunk.source.bounds == (("k", 0, 29),)
    assert chunk.source.bytes > 0


def test_row_groups_that_cannot_match_are_not_read(catalog: Catalog) -> None:
    predicate = Call(pa.bool_(), "greater_equal", (KEY, Literal(I64, 185)))
    units = surviving_units(source("t", predicate), catalog)
    assert sum(unit.rows for unit in units) == 20
    assert ChunkSource(stage(source("t", predicate)), catalog, Config()).total_rows == 20


@pytest.mark.parametrize(("round_rows", "sizes"), [(200, []), (70, [60, 70, 70]), (40, [40] * 5), (1, [10] * 20)])
def test_rounds_are_the_chunk_in_parts(catalog: Catalog, round_rows: int, sizes: list[int]) -> None:
    chunks = ChunkSource(stage(source("t")), catalog, Config(cpu_chunk_rows=round_rows))
    whole = chunks.take(10**9)
    assert whole is not None
    assert not whole.rounds
    found = chunks.in_rounds(whole)
    assert [rows_in(each) for each in found.rounds] == sizes
    assert [each.order for each in found.rounds] == [(0, number) for number in range(len(sizes))]
    assert found.id == whole.id
    if sizes:
        assert isinstance(found.source, ParquetUnits)
        pieces = [each.source.files for each in found.rounds if isinstance(each.source, ParquetUnits)]
        groups = [group for files in pieces for _, members in files for group in members]
        assert groups == [group for _, members in found.source.files for group in members]
        assert footprint(found) < footprint(whole)


def test_halving_keeps_every_unit_and_the_order(catalog: Catalog) -> None:
    chunks = ChunkSource(stage(source("t")), catalog, Config())
    whole = chunks.take(50)
    assert whole is not None
    halves = chunks.halve(whole)
    assert halves is not None
    first, second = halves
    assert (rows_in(first), rows_in(second)) == (20, 30)
    assert whole.order < first.order < second.order < (whole.order[0] + 1,)
    assert len({whole.id, first.id, second.id}) == 3
    quarter = chunks.halve(first)
    assert quarter is not None
    assert chunks.halve(quarter[0]) is None


def test_an_earlier_stages_output_is_one_chunk(catalog: Catalog) -> None:
    chunks = ChunkSource(stage(StageSource(0, (Field("t.k", I64),))), catalog, Config())
    assert not chunks.exhausted
    chunk = chunks.take(1)
    assert chunk is not None
    assert chunk.source is None
    assert chunks.take(1) is None
    assert chunks.exhausted
    assert chunks.halve(chunk) is None


def aligned() -> AlignedBuild:
    inner = Pipeline(source("u"), (), CollectSink((Field("u.k", I64),)))
    return AlignedBuild(7, inner, ("u.k",), "k", "k")


def test_an_aligned_chunk_brings_just_the_overlapping_build_units(catalog: Catalog) -> None:
    found = drain(ChunkSource(stage(source("t"), (aligned(),)), catalog, Config(chunk_units=3)), 1)
    for chunk in found:
        ((build, units),) = chunk.aligned
        assert build == 7
        assert isinstance(units, ParquetUnits)
        assert isinstance(chunk.source, ParquetUnits)
        low, high = chunk.source.bounds[0][1:]
        wanted = {key // 50 for key in range(0, 200, 10) if low <= key <= high}
        assert {group for _, members in units.files for group in members} >= wanted
        assert chunk.rows == chunk.source.rows + units.rows


def test_breadth_counts_the_rows_of_aligned_build_sides(catalog: Catalog) -> None:
    assert ChunkSource(stage(source("t")), catalog, Config()).breadth == 1.0
    wide = ChunkSource(stage(source("t"), (aligned(),)), catalog, Config())
    assert wide.breadth == pytest.approx(1 + 20 / 200)


def test_overhead_counts_build_rows_read_again(catalog: Catalog) -> None:
    t, u = catalog.table("t").units, catalog.table("u").units
    probe, build = KeyRanges.of(t, "k"), KeyRanges.of(u, "k")
    assert probe is not None
    assert build is not None
    sizes = [unit.rows for unit in t], [unit.rows for unit in u]
    assert alignment_overhead(probe, build, *sizes, chunk_rows=200) == 1.0
    assert alignment_overhead(probe, build, *sizes, chunk_rows=50) == 1.0
    assert alignment_overhead(probe, build, *sizes, chunk_rows=10) == 5.0


def test_in_memory_tables_are_sliced(catalog: Catalog) -> None:
    catalog.register("m", pa.table({"k": pa.array(range(1000), I64)}))
    chunks = ChunkSource(stage(source("m")), catalog, Config())
    found = drain(chunks, 1)
    assert all(isinstance(chunk.source, MemoryUnits) for chunk in found)
    assert sum(rows_in(chunk) for chunk in found) == 1000
