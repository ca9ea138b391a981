"""Stage times recorded on simulated devices, as expectations: what the rules of the choice would lose with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from enlarged import EnlargedCatalog

from hybridq.config import Config
from hybridq.placement.modes import decide
from hybridq.placement.predict import Prediction, StagePrediction
from hybridq.placement.review import CLOSE_S, CLOSE_SHARE, FORCED
from hybridq.planning import logical_plan, physical_plan
from hybridq.shipped import find_plan

RECORDED = Path(__file__).parents[2] / "bench" / "results" / "placement-simulated.jsonl"
CONFIG = Config(gpu_chunk_rows=1_500_000, one_chunk_rows=0)
RUN_AS = {mode: name for name, mode in FORCED.items()}


def recorded():
    """Return the seconds of each stage in each mode: by scale factor and the GPU's speed over the CPU's, and plan."""
    found, table = {}, None
    for line in map(json.loads, RECORDED.read_text().splitlines()):
        if line["line"] == "cluster":
            chosen = line["suite"] == "tpch" and not line.get("busy")
            table = found.setdefault((line["scale_factor"], line["gpu_over_cpu"]), {}) if chosen else None
        elif line["line"] == "plan" and table is not None:
            table[line["plan"]] = {stage["id"]: stage["seconds"] for stage in line["stages"]}
    return found


@pytest.mark.parametrize(("scale_factor", "speed"), recorded())
def test_with_right_expectations_the_choice_is_close_to_the_best_forced_mode(
    tpch_folder, scale_factor, speed, monkeypatch
):
    monkeypatch.setattr("hybridq.physical.stages.INLINING_ROWS", 256 * 1024)  # as it was recorded
    catalog = EnlargedCatalog(tpch_folder, round(scale_factor / 0.01))
    compared, far = 0, []
    for name, seconds in recorded()[scale_factor, speed].items():
        stages = physical_plan(logical_plan(find_plan(name).read_text(), catalog), catalog, CONFIG).stages
        if {stage.id for stage in stages} != seconds.keys():
            continue  # it is planned otherwise by now
        predictions = {
            stage.id: StagePrediction(
                {
                    FORCED[mode]: Prediction(FORCED[mode], taken, {"read": taken}, {}, leaves_at=mode)
                    if mode != "cop"
                    else Prediction("EXEC_COP", taken, {"read": taken}, {})
                    for mode, taken in seconds[stage.id].items()
                },
                measured=True,
                seconds_per_row={"cpu": 1e-7, "gpu": 1e-7},
                rows=stage.input_rows,
            )
            for stage in stages
        }
        decisions = decide(stages, "auto", {"cpu": 1, "gpu": 1}, CONFIG, predictions=predictions)
        chosen = sum(seconds[each.stage][RUN_AS[each.mode]] for each in decisions)
        best = min(sum(stage[mode] for stage in seconds.values()) for mode in FORCED)
        compared += 1
        if chosen - best > max(CLOSE_S, CLOSE_SHARE * best):
            far.append((name, chosen, best))
    assert compared >= 0.7 * len(recorded()[scale_factor, speed])
    assert far == []
