"""What is known of the chunks that are out, without a look at all of them."""

from __future__ import annotations

import pytest

from hybridq.dispatch import chunk_states
from hybridq.dispatch.chunk_states import ChunksOut, ChunkState
from hybridq.physical.chunks import Chunk, ParquetUnits
from hybridq.placement.cost import PullPolicy


def state(number: int, kind: str, rows: int) -> ChunkState:
    chunk = Chunk(number, (number,), ParquetUnits((), rows, 8 * rows), ())
    return ChunkState(chunk, kind, f"k{number}", complete=False)


@pytest.fixture
def policy():
    found = PullPolicy(("cpu", "gpu"), {"cpu": 1, "gpu": 1}, {"cpu": 1000, "gpu": 1000})
    found.observe("cpu", 1000, 1.0)
    found.observe("gpu", 1000, 0.1)
    return found


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

    monkeypatch.setattr(chunk_states.time, "perf_counter", lambda: Clock.now)
    return Clock


def test_chunks_are_counted_by_kind_whichever_way_they_go():
    out = ChunksOut()
    for number, kind in enumerate(["cpu", "cpu", "gpu", "cpu"]):
        out[f"k{number}"] = state(number, kind, 100)
    assert out.count == {"cpu": 3, "gpu": 1}
    assert out.pop("k0").chunk.id == 0
    assert out.pop("k0", None) is None
    del out["k2"]
    assert out.count == {"cpu": 2, "gpu": 0}
    out.clear()
    assert (len(out), out.count) == (0, {})


def test_of_chunks_that_run_the_rows_left_count_and_of_queued_ones_all(policy, clock):
    out = ChunksOut()
    for number, (kind, rows) in enumerate([("cpu", 1000), ("cpu", 500), ("gpu", 1000)]):
        out[f"k{number}"] = state(number, kind, rows)
    assert out.rows_left(policy) == {"cpu": 1500, "gpu": 1000}
    clock.now += 0.05
    assert out.rows_left(policy) == {"cpu": 950 + 500, "gpu": 500}
    del out["k0"]
    assert out.rows_left(policy) == {"cpu": 500, "gpu": 500}
    clock.now += 0.02  # the second CPU chunk is seen to run only now
    assert out.rows_left(policy) == {"cpu": 500, "gpu": 300}
    clock.now += 0.2
    assert out.rows_left(policy) == {"cpu": 300, "gpu": 50}


def test_an_estimate_that_is_young_for_their_number_stays_but_for_what_comes_and_goes(policy, clock):
    out = ChunksOut()
    for number in range(1000):
        out[f"k{number}"] = state(number, "gpu", 1000)
    assert out.rows_left(policy) == {"gpu": 1_000_000}
    clock.now += 1000 * chunk_states.LOOK_SECONDS / 2
    out["more"] = state(1000, "cpu", 70)
    del out["k999"]
    assert out.rows_left(policy) == {"gpu": 999_000, "cpu": 70}
    clock.now += 1000 * chunk_states.LOOK_SECONDS
    assert out.rows_left(policy) == {"gpu": 999_000 - 750, "cpu": 70}
