"""Every stage of every shipped query says in one line, with numbers, why it runs where it runs."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from hybridq.placement.modes import decide
from hybridq.placement.placer import Placer
from hybridq.placement.profile import DeviceProfile, Transfer, assumed
from hybridq.shipped import find_plan, plan_names
from hybridq.testing import ssb
from hybridq.testing.in_process import connect_in_process

PLANS = [name for name in plan_names() if name.startswith(("tpch/", "ssb/")) and find_plan(name).suffix == ".sql"]
SLOTS = {"cpu": 1, "gpu": 1}
WORDS = {"EXEC_CPU": "on the CPU", "EXEC_GPU": "on the GPU", "EXEC_COP": "on both"}


def slower(device: DeviceProfile, factor: float) -> DeviceProfile:
    def moved(transfer: Transfer) -> Transfer:
        return Transfer(transfer.latency_s * factor, transfer.bytes_per_s / factor)

    return replace(
        device,
        read={name: curve.scaled(factor) for name, curve in device.read.items()},
        operators={name: curve.scaled(factor) for name, curve in device.operators.items()},
        to_device=moved(device.to_device),
        from_device=moved(device.from_device),
    )


@pytest.fixture(scope="module")
def sessions(tpch_folder, tmp_path_factory):
    folders = {"tpch": tpch_folder, "ssb": ssb.generate(0.01, tmp_path_factory.mktemp("ssb"))}
    found = {name: connect_in_process(cpu_chunk_rows=10_000) for name in folders}
    for name, session in found.items():
        session.register_folder(folders[name])
    yield found
    for session in found.values():
        session.close()


def placed(session, query, gpu_factor, work_factor):
    """Return the decisions with a GPU so many times as fast, where everything takes so many times as long."""
    profile = assumed({"cpu": "cpu", "gpu": "simulated gpu"}, 2)
    factors = {"cpu": work_factor, "gpu": work_factor / gpu_factor}
    devices = {kind: slower(profile.devices[kind], factor) for kind, factor in factors.items()}
    session._placer = Placer(session.devices(), None)
    session._placer.profile = replace(profile, devices=devices, measured=True)
    predictions = query._predict(SLOTS)
    return decide(query._physical.stages, "auto", SLOTS, session.config, False, predictions)


@pytest.mark.parametrize("name", PLANS)
def test_why_a_stage_runs_where_it_does(sessions, name):
    session = sessions[name.split("/")[0]]
    query = session.sql(find_plan(name).read_text())
    for gpu_factor, work_factor in ((0.2, 100), (1, 1), (4, 100), (20, 1)):
        for decision in placed(session, query, gpu_factor, work_factor):
            reason, predicted = decision.reason, decision.prediction.modes
            assert "\n" not in reason
            assert len(reason) < 350, reason
            expected = f"{predicted[decision.mode].seconds:.3g} s expected {WORDS[decision.mode]}"
            assert expected in reason, reason
            others = [mode for mode in predicted if f" s {WORDS[mode]}" not in reason and mode != decision.mode]
            if others:  # a device that cannot do it needs no number, but a cause
                assert decision.kinds == ("cpu",), reason
                assert "the GPU engine" in reason, reason
            elif predicted[decision.mode].seconds > min(each.seconds for each in predicted.values()):
                assert re.search(r"(would save|whole query would take) -?[\d.e-]+ s", reason), reason


def test_where_nothing_is_known_the_reason_has_rows_or_slots(sessions):
    for name, session in sessions.items():
        stages = [
            stage
            for plan in PLANS
            if plan.startswith(name)
            for stage in session.sql(find_plan(plan).read_text())._physical.stages
        ]
        for slots in (SLOTS, {"cpu": 1}):
            for stage, decision in zip(stages, decide(stages, "auto", slots, session.config), strict=True):
                assert re.search(r"\d+ (rows|CPU slots)|the GPU engine", decision.reason), (
                    stage.title,
                    decision.reason,
                )
