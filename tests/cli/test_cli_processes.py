"""The command as a process of its own: its streams, Ctrl-C, a reader that goes away."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hybridq import cli

COMMAND = (sys.executable, "-c", "from hybridq.cli import main; main()")

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parent.parent)}


def test_it_runs_as_a_process_from_any_folder(folder, tmp_path):
    command = (*COMMAND, "run", "-", "--data", folder, "--format", "csv")
    run = subprocess.run(
        command,
        input="select count(*) as n from t",
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "n\n3\n", "")


def test_it_runs_as_a_module(tmp_path):
    command = [sys.executable, "-m", "hybridq", "plans", "--nonsense"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("error: ")


def test_a_reader_that_goes_away_is_no_traceback(folder, one_worker):
    command = (
        " ".join(COMMAND[:2]) + f" '{COMMAND[2]}' run - --data {folder} --cluster {one_worker.address} --format csv"
    )
    sql = "select a.k from t a, t b where a.k = b.k"
    run = subprocess.run(
        ["bash", "-c", f"echo '{sql}' | {command} | true"], capture_output=True, text=True, timeout=200, check=False
    )
    assert run.stderr == ""


FULL_DISK = (1, "error: cannot write the answer: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_a_full_disk_behind_standard_output(query, folder, monkeypatch, form):
    with contextlib.suppress(OSError), Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code, _, err = query("select k from t", folder, "--format", form)
    assert (code, err) == FULL_DISK


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_says_nothing_more_as_the_process_ends(folder, one_worker):
    arguments = ("run", "-", "--data", folder, "--cluster", one_worker.address, "--format", "csv")
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            (*COMMAND, *arguments),
            input="select k from t",
            env=ENVIRONMENT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=200,
            check=False,
        )
    assert (run.returncode, run.stderr) == FULL_DISK


def test_a_cluster_is_served_until_interrupted(call, folder):
    process = subprocess.Popen(
        (*COMMAND, "cluster", "start", "cluster/simulated.yaml"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("tcp://")
        assert "simulated gpu" in call("devices", "--cluster", address)[1]
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert "Traceback" not in err


def test_ctrl_c_ends_a_query_with_130(tpch_folder, one_worker, tmp_path):
    # Chunks of single row groups with the slowest join there is: far longer than the signal takes to come.
    sql = "select sum(a.l_tax) as s from lineitem a join lineitem b on a.l_linenumber = b.l_linenumber"
    (tmp_path / "long.sql").write_text(sql)
    environment = {**ENVIRONMENT, "HYBRIDQ_CHUNK_UNITS": "1"}
    process = subprocess.Popen(
        (*COMMAND, "run", tmp_path / "long.sql", "--data", tpch_folder, "--cluster", one_worker.address),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        # A test run in the background passes on that interrupts are ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 200
    while not any(one_worker._connection._client.processing().values()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "error: interrupted"


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 400 Bad request syntax\r\n\r\n"], ids=["silence", "HTTP"])
def test_an_address_where_something_else_answers(tpch_folder, answer):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(200)
        opened = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    opened.append(server.accept()[0])
                    opened[-1].sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        command = (*COMMAND, "run", "tpch/q06", "--data", tpch_folder, "--cluster", address)
        environment = ENVIRONMENT | {"HYBRIDQ_CONNECT_TIMEOUT": "2"}
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert run.returncode == 1
    (line,) = run.stderr.splitlines()
    assert line.startswith(f"error: no scheduler answered at {address} within 2 s: ")
    assert "does not speak Dask's protocol" in line or "closed" in line.lower()
