"""What it costs that both kinds of device work on a stage: measured on one H100 with 16 cores, replayed on the model.

Q14 at scale factor 30 took 0.39 s on the GPU and 0.81 s on both, for the build side that CPU workers had read was
copied to the GPU. Q3 at 100 took 0.96 and 1.26 s: a few CPU chunks had all partial results merged on a CPU worker, in
0.26 to 0.45 s, where the GPU takes 0.05.
"""

from __future__ import annotations

import dataclasses

import pytest

from hybridq.config import Config
from hybridq.placement.curves import Curve
from hybridq.placement.learned import Learned, merging_of
from hybridq.placement.modes import decide
from hybridq.placement.passing_on import merging_kind
from hybridq.placement.predict import CostModel, Prediction, Resources, StagePrediction
from hybridq.placement.profile import DeviceProfile, Profile, Transfer
from hybridq.placement.work import Item, Work
from hybridq.shipped import find_plan
from hybridq.testing.in_process import connect_in_process

MILLION = 1_000_000
SLOTS = {"cpu": 8, "gpu": 2}


def line(per_row, latency=1e-4):
    return Curve.fit([(rows, latency + rows * per_row) for rows in (1e3, 1e6, 1e9)])


def predicted(cpu, gpu, cop=None):
    seconds = {"EXEC_CPU": cpu, "EXEC_GPU": gpu} | ({} if cop is None else {"EXEC_COP": cop})
    places = {"EXEC_GPU": "gpu"}
    modes = {
        mode: Prediction(mode, value, {"read": value}, {}, leaves_at=places.get(mode, "cpu"))
        for mode, value in seconds.items()
    }
    return StagePrediction(modes, frozenset({"cpu", "gpu"}), True, {"cpu": 1e-8, "gpu": 1e-9}, rows=180e6)


@pytest.fixture(scope="module")
def q14(tpch_folder):
    """Q14's two stages with the sizes of scale factor 30: 6 million rows of part, with their text."""
    with connect_in_process(one_chunk_rows=0) as session:
        session.register_folder(tpch_folder)
        stages = session.sql(find_plan("tpch/q14").read_text())._physical.stages
    sizes = ((6 * MILLION, 210 * MILLION), (180 * MILLION, 100))
    return [
        dataclasses.replace(stage, input_rows=rows, estimated_bytes=size)
        for stage, (rows, size) in zip(stages, sizes, strict=True)
    ]


@pytest.mark.parametrize("mode", ["cop", "auto"])
def test_the_copying_of_a_build_side_is_counted_where_both_work(q14, mode):
    predictions = {0: predicted(0.1, 0.12, 0.09), 1: predicted(2.5, 0.3, 0.27)}
    found = decide(q14, mode, SLOTS, Config(), False, predictions)
    assert [each.mode for each in found] == ["EXEC_GPU", "EXEC_GPU"]
    if mode == "cop":
        assert "asked for by mode=cop, but the CPU is left out" in found[1].reason
        assert "0.27 s on both" in found[1].reason
    # Where the gain is larger than the copying, it is done.
    predictions[1] = predicted(2.5, 2.6, 1.3)
    assert decide(q14, mode, SLOTS, Config(), False, predictions)[1].mode == "EXEC_COP"


def test_cop_is_not_left_for_milliseconds_nor_without_ground(q14):
    predictions = {0: predicted(0.004, 0.012, 0.01), 1: predicted(0.02, 0.03, 0.025)}
    small = [dataclasses.replace(stage, estimated_bytes=1000) for stage in q14]
    assert {each.mode for each in decide(small, "cop", SLOTS, Config(), False, predictions)} == {"EXEC_COP"}
    guesses = {
        number: dataclasses.replace(each, measured=False, trusted=frozenset())
        for number, each in {0: predicted(0.1, 0.1, 9.0), 1: predicted(1.0, 0.1, 9.0)}.items()
    }
    assert {each.mode for each in decide(q14, "cop", SLOTS, Config(), False, guesses)} == {"EXEC_COP"}


def q3(learned=None, gpu_per_row=1.6e-9, groups=4 * MILLION):
    """The last stage of Q3 at scale factor 100: 600 million rows to some million groups."""
    free = Transfer(1e-4, 1e12)
    bus = Transfer(1e-4, 12e9)
    cpu = DeviceProfile("cpu", {"snappy/integer": line(1e-7)}, {"aggregate_many": line(1e-8)}, free, free)
    gpu = DeviceProfile("gpu", {"snappy/integer": line(gpu_per_row)}, {"aggregate_many": line(1e-9)}, bus, bus)
    profile = Profile({}, {"cpu": cpu, "gpu": gpu}, 1e-3, 5e-3, line(1e-7), 5e9, 16)
    items = (Item("read", "read", 1.0, codec="snappy", type_class="integer", column=("lineitem", "l_orderkey")),)
    work = Work(600e6, True, 24.0, 115_000, items, float(groups), groups / 600e6, True, (), 32.0)
    resources = Resources(SLOTS, {"cpu": 2 * MILLION, "gpu": 48 * MILLION})
    return CostModel(profile, learned or Learned()).predict(work, "q3", resources).modes


def test_the_gpu_merges_what_is_mostly_its_own():
    found = q3()
    assert found["EXEC_GPU"].leaves_at == "gpu"
    assert found["EXEC_GPU"].sections["merge"] < 0.05
    assert found["EXEC_CPU"].sections["merge"] > 0.35
    both = found["EXEC_COP"]
    assert both.leaves_at == "gpu"
    # Of 4 million partial rows of 32 bytes the CPU's part is passed on, at half a gigabyte a second.
    assert 0.02 < both.sections["merge"] < 0.2
    assert both.leaves_at == merging_kind({"cpu": 1, "gpu": 2}, 4 * MILLION)
    assert merging_kind({"cpu": 1, "gpu": 2}, 100) == "cpu"
    assert merging_kind({"cpu": 2, "gpu": 1}, 4 * MILLION) == "cpu"
    assert merging_kind({"gpu": 1}, 1) == "gpu"


def test_a_merge_on_the_cpu_counts_against_sharing():
    """A GPU no faster than the CPU: the larger half of the results is the CPU's, and so is the merge."""
    found = q3(gpu_per_row=2.6e-8)
    assert found["EXEC_COP"].leaves_at == "cpu"
    assert found["EXEC_COP"].sections["merge"] > 0.4


def test_merges_are_learned_by_the_chunks_that_they_merge():
    learned = Learned()
    for _ in range(3):
        learned.observe(merging_of("q3"), "gpu", 13, 0.05)
    found = q3(learned)
    assert found["EXEC_GPU"].sections["merge"] == pytest.approx(0.055, rel=0.1)
    assert q3()["EXEC_CPU"].sections["merge"] == found["EXEC_CPU"].sections["merge"]


def test_what_one_kind_shows_of_a_pipeline_corrects_the_other():
    learned = Learned()
    before = q3(groups=1000)
    for _ in range(3):
        learned.observe("q3", "cpu", 2 * MILLION, 0.1)  # half of what the profile says
    after = q3(learned, groups=1000)
    assert after["EXEC_CPU"].seconds == pytest.approx(before["EXEC_CPU"].seconds / 2, rel=0.05)
    assert after["EXEC_GPU"].seconds == pytest.approx(before["EXEC_GPU"].seconds / 2, rel=0.1)
