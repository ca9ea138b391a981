"""A simulated device that becomes five times as slow while a query runs, and recovers."""

from __future__ import annotations

import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.session import connect
from hybridq.testing.steady import change_speed

CHUNK = 64 * 1024
CHUNKS = 300
SPEED = 0.04  # some 30 ms a chunk


@pytest.fixture(scope="module")
def session():
    workers = [
        {"kind": "cpu", "engine": "simulated", "steady": True, "speed": SPEED, "processes": 1, "threads": 1},
        {"kind": "gpu", "engine": "simulated", "steady": True, "speed": SPEED, "processes": 1, "threads": 1},
    ]
    options = {"cpu_chunk_rows": CHUNK, "gpu_chunk_rows": CHUNK, "chunk_units": 1}
    with connect({"workers": [{**each, "memory": "2GiB"} for each in workers]}, **options) as found:
        yield found


@pytest.mark.slow
def test_placement_flips_within_twenty_chunks_and_recovers_within_fifty(session, tmp_path):
    path = tmp_path / "t.parquet"
    table = pa.table({"x": np.arange(CHUNKS * CHUNK, dtype=np.int64) % 8})
    pq.write_table(table, path, row_group_size=CHUNK)
    session.register("t", path)
    query = session.sql("select sum(x) as s from t where x >= 0")
    query.collect(mode="cop")  # imports, and open files
    client = session._connection._client
    gpu = next(device.address for device in session.devices() if device.kind == "gpu")
    times = []

    def spell():
        for pause, speed in ((1.5, SPEED / 5), (3.0, SPEED)):
            time.sleep(pause)
            client.run(change_speed, "gpu", speed, workers=[gpu])
            times.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    thread = threading.Thread(target=spell)
    thread.start()
    result = query.collect(mode="cop")
    thread.join()
    assert result.to_arrow().column("s").to_pylist() == [CHUNKS * CHUNK // 8 * 28]
    chunks = sorted(
        (span for span in result.report.stages[0].spans if span.what == "chunk"),
        key=lambda span: span.start_s + span.seconds,
    )

    def gpu_share(first, count):
        part = chunks[first : first + count]
        assert len(part) == count, "the query was over too soon"
        return sum(span.rows for span in part if span.kind == "gpu") / sum(span.rows for span in part)

    slow_from, fast_from = (
        next(i for i, span in enumerate(chunks) if span.start_s + span.seconds >= moment) for moment in times
    )
    assert 0.35 < gpu_share(slow_from - 20, 20) < 0.65
    assert gpu_share(slow_from + 20, 20) < 0.3  # a sixth, if both are never idle
    assert 0.35 < gpu_share(fast_from + 50, 20) < 0.65
