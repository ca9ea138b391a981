"""What the demo prints."""

from __future__ import annotations

import io
import sys

import pyarrow as pa
import pytest
from rich.console import Console

from hybridq import demo
from hybridq.report import DeviceReport, Report, StageReport
from hybridq.testing.in_process import connect_in_process


@pytest.mark.parametrize(
    ("called", "found", "command"),
    [
        (".venv/bin/hybridq", None, ".venv/bin/hybridq"),
        ("/venv/bin/hybridq", "/venv/bin/hybridq", "hybridq"),
        ("-c", None, "hybridq"),
    ],
)
def test_the_demo_names_a_command_that_a_shell_finds(monkeypatch, tmp_path, called, found, command):
    monkeypatch.setattr(sys, "argv", [called, "demo"])
    monkeypatch.setattr(demo.shutil, "which", lambda _: found)
    text = io.StringIO()
    demo._print_next_steps(tmp_path, Console(file=text))
    assert f"| {command} run - --data {tmp_path}" in text.getvalue()
    assert f"  {command} explain" in text.getvalue()


@pytest.mark.parametrize(("width", "tables"), [(25, 4), (40, 4), (45, 2), (80, 1)])
def test_no_number_of_a_wide_answer_is_broken(width, tables):
    values = [[10**14 + row * 10 + column for row in range(4)] for column in range(5)]
    answer = pa.table({f"c{column}": each for column, each in enumerate(values)})
    text = io.StringIO()
    demo._print_answer("wide", answer, Console(file=text, width=width))
    printed = text.getvalue()
    assert all(str(value) in printed for each in values for value in each)
    assert printed.count("c0") == printed.count("c4") == tables


@pytest.mark.parametrize(
    ("mode", "reason", "said"),
    [
        ("EXEC_CPU", "asked for by mode=cop, but the GPU is left out: 1 s on the CPU, 9 s on the GPU", True),
        ("EXEC_COP", "asked for by mode=cop", False),
    ],
)
def test_why_a_kind_of_device_had_nothing_to_do_is_said(mode, reason, said):
    report = Report("q", "cop")
    small, large = (
        StageReport(0, "scan nation", "EXEC_CPU", "other, but small"),
        StageReport(1, "scan t", mode, reason),
    )
    for stage, rows in (small, 25), (large, 1000):
        stage.devices.append(DeviceReport("cpu-0", "cpu", "cpu", 1, rows))
        report.stages.append(stage)
    line = demo.Measured("tpch/q01", "cop", 0.2, {"cpu": 1}, left_out=demo._left_out(report))
    text = io.StringIO()
    demo._print_table([line], Console(file=text, width=80))
    assert (
        "tpch/q01: asked for by mode=cop, but the GPU is left out: 1 s on the CPU, 9 s on" in text.getvalue()
    ) == said
    assert ("left out" in text.getvalue()) == said


@pytest.mark.parametrize("gpu", [True, False])
def test_every_mode_that_the_devices_allow_is_run(tpch_folder, monkeypatch, gpu):
    with connect_in_process() as session:
        session.register_folder(tpch_folder)
        devices = [device for device in session.devices() if gpu or device.kind == "cpu"]
        monkeypatch.setattr(session, "devices", lambda: devices)
        lines = demo._run_query(session, "tpch/q03", tpch_folder, Console(file=io.StringIO()))
    assert [line.mode for line in lines] == ["DuckDB", "cpu", *(["gpu", "cop"] if gpu else []), "auto"]
    assert all(line.same for line in lines)
