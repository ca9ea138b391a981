"""What chunks are expected to take of a device's memory, once some have shown what they take."""

from __future__ import annotations

import doctest

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hybridq.dispatch.footprint
from hybridq.dispatch.footprint import CHUNKS_SEEN, LEAST_FACTOR, MARGIN, Footprint
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.simulated import SimulatedGpuEngine


def test_the_example_in_its_text():
    assert doctest.testmod(hybridq.dispatch.footprint).failed == 0


def seen(footprint, predicted, peak, times=CHUNKS_SEEN):
    for _ in range(times):
        footprint.observe({"predicted_bytes": predicted, "peak_bytes": peak})
    return footprint.factor


def test_it_is_not_believed_at_once():
    assert seen(Footprint(3.0), 100, 40, CHUNKS_SEEN - 1) == 3.0


def test_it_stays_what_the_chunks_take_when_less_is_predicted():
    footprint = Footprint(3.0)
    factor = seen(footprint, 300_000, 150_000)
    assert factor == pytest.approx(1.5 * MARGIN)
    # The same chunks, predicted with the new factor.
    assert seen(footprint, 100_000 * factor, 150_000) == pytest.approx(factor, rel=1e-3)


def test_it_never_rises_above_what_was_assumed_nor_falls_too_low():
    assert seen(Footprint(3.0), 100, 500) == 3.0
    assert seen(Footprint(3.0), 100, 1) == LEAST_FACTOR


def test_chunks_grow_on_a_small_device(tmp_path):
    rows = 200_000
    pq.write_table(pa.table({"k": range(rows), "v": range(rows)}), tmp_path / "t.parquet", row_group_size=2_000)
    with connect_in_process(SimulatedGpuEngine(4 * 2**20)) as session:
        session.register_folder(tmp_path)
        result = session.sql("select sum(v) s from t where k >= 0").collect(mode="gpu")
        assert result.to_arrow().column("s").to_pylist() == [rows * (rows - 1) // 2]
        (stage,) = result.report.stages
        sizes = [span.rows for span in stage.spans if span.what == "chunk"]
        assert len(sizes) > CHUNKS_SEEN
        assert max(sizes[CHUNKS_SEEN:]) > sizes[0]
        assert 0 < result.report.peak_device_bytes <= 4 * 2**20
