from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hybridq import deploy
from hybridq.errors import ClusterUnreachable, ConfigurationError
from hybridq.leftovers import PREFIX
from hybridq.topology import load_topology

ONE_WORKER = {"workers": [{"kind": "cpu", "processes": 1, "threads": 1, "memory": "1GiB"}]}


def processes_under(root: int) -> set[int]:
    """Return a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, queue = set(), [root]
    while queue:
        process = queue.pop()
        found.add(process)
        queue += children.get(process, [])
    return found


def alive(processes: set[int]) -> set[int]:
    """Return those that still run; a zombie does not."""
    running = set()
    for process in processes:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state != "Z":
            running.add(process)
    return running


def gone_within(processes: set[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while alive(processes) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(processes)


def test_close_leaves_nothing_behind():
    cluster = deploy.start(load_topology(ONE_WORKER), 30)
    cluster.wait_until_ready()
    assert cluster.address.startswith("tcp://127.0.0.1:")
    processes = processes_under(cluster.pid)
    assert len(processes) >= 2
    cluster.close()
    cluster.close()
    assert gone_within(processes, 60)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_client_takes_its_cluster_along(how, tmp_path):
    program = (
        "import hybridq.deploy as d, hybridq.topology as t, time;"
        f"c = d.start(t.load_topology({ONE_WORKER!r}), 30); c.wait_until_ready();"
        "print(c.pid, flush=True); time.sleep(60)"
    )
    client = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    processes = processes_under(int(client.stdout.readline()))
    assert len(alive(processes)) >= 2
    os.kill(client.pid, how)
    client.wait()
    client.stdout.close()
    assert gone_within(processes, 60)


@pytest.mark.parametrize("how", ["the client is killed", "SIGTERM"])
def test_a_cluster_that_nobody_waits_for_any_more_does_not_go_on_starting(how):
    (group,) = ONE_WORKER["workers"]
    topology = {"workers": [{**group, "processes": 40}]}  # which takes some time
    program = (
        "import hybridq.deploy as d, hybridq.topology as t, time;"
        f"c = d.start(t.load_topology({topology!r}), 30); print(c.pid, flush=True); time.sleep(60)"
    )
    client = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    cluster = int(client.stdout.readline())
    deadline = time.monotonic() + 60
    while len(processes := processes_under(cluster)) < 6 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 6 <= len(processes) < 40
    os.kill(cluster if how == "SIGTERM" else client.pid, signal.SIGTERM if how == "SIGTERM" else signal.SIGKILL)
    assert gone_within(processes_under(cluster) | processes | {cluster}, 5)
    client.kill()
    client.wait()
    client.stdout.close()


def test_a_cluster_that_does_not_start_says_why():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        topology = replace(load_topology(ONE_WORKER), port=taken.getsockname()[1])  # taken after it was looked at
        cluster = deploy.start(topology, 30)
        with pytest.raises(ClusterUnreachable, match=r"the local cluster did not start: .*in use"):
            cluster.wait_until_ready()
    assert gone_within({cluster.pid}, 60)


def test_a_cluster_that_is_too_slow_is_ended():
    cluster = deploy.start(load_topology(ONE_WORKER), 30)
    with pytest.raises(ClusterUnreachable, match=r"not ready after 0\.01 s"):
        cluster.wait_until_ready(timeout=0.01)
    assert gone_within({cluster.pid}, 60)


def test_a_gpu_that_is_not_there_is_said_to_be_missing():
    with pytest.raises(ConfigurationError, match=r"GPU workers need as many NVIDIA GPUs \(0 GPUs found\)"):
        deploy.start(load_topology({"workers": [{"kind": "gpu"}]}), 30)


def test_more_workers_than_a_machine_can_start_are_refused():
    with pytest.raises(ConfigurationError, match=r"1000000 cpu worker processes are more .* at most \d+\): lower proc"):
        deploy.start(load_topology({"workers": [{"kind": "cpu", "processes": 1_000_000}]}), 30)


def test_a_shadowing_file_in_the_current_folder_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "select.py").write_text("raise RuntimeError('shadowed')")
    monkeypatch.chdir(tmp_path)
    cluster = deploy.start(load_topology(ONE_WORKER), 30)
    try:
        cluster.wait_until_ready()
    finally:
        cluster.close()


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


@pytest.fixture
def short_folder(monkeypatch) -> Iterator[Path]:
    """Where temporary files are: pytest's own folders have names that are too long for a socket in them."""
    with tempfile.TemporaryDirectory(prefix="deploy-", dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        yield Path(folder)


def test_workers_are_forked_from_a_process_that_has_imported_what_they_need(short_folder):
    (group,) = ONE_WORKER["workers"]
    cluster = deploy.start(load_topology({"workers": [{**group, "processes": 2}]}), 30)
    try:
        cluster.wait_until_ready()
        parents = {process: parent_of(process) for process in processes_under(cluster.pid) - {cluster.pid}}
        (server,) = set(parents.values()) - {cluster.pid}
        assert parents[server] == cluster.pid
        workers = [process for process, parent in parents.items() if parent == server]
        assert len(workers) == 2
        environment = Path(f"/proc/{server}/environ").read_text()
        assert all(f"{name}=" in environment for name in ("MALLOC_ARENA_MAX", "MIMALLOC_PURGE_DELAY"))
        # Its socket is where the next start sweeps, if this cluster is killed.
        assert [path.parent.name[: len(PREFIX)] for path in short_folder.glob("*/pymp-*")] == [PREFIX]
        os.kill(cluster.pid, signal.SIGKILL)
        assert gone_within({*parents, cluster.pid}, 60)
    finally:
        cluster.close()


def test_nothing_is_forked_beside_gpus_or_where_a_socket_cannot_be(tmp_path, monkeypatch):
    environment = dict(os.environ)
    monkeypatch.setattr(deploy, "find_gpus", lambda: ["nvidia0"])
    assert not deploy._start_fork_server(tmp_path)
    monkeypatch.setattr(deploy, "find_gpus", list)
    assert not deploy._start_fork_server(tmp_path / ("long" * 30))
    assert list(tmp_path.iterdir()) == []
    assert dict(os.environ) == environment


def test_a_prepared_process_that_is_not_wanted_leaves_nothing_behind(short_folder):
    deploy.prepare()
    (prepared,) = deploy._PREPARED
    deadline = time.monotonic() + 30
    while len(processes := processes_under(prepared.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    deploy.give_up_prepared()
    assert gone_within(processes, 5)
    assert list(short_folder.iterdir()) == []


def test_a_prepared_process_becomes_the_next_cluster_or_ends():
    deploy.prepare()
    (prepared,) = deploy._PREPARED
    deploy.give_up_prepared()
    assert deploy._PREPARED == []
    assert gone_within({prepared.pid}, 5)
    deploy.prepare()
    (prepared,) = deploy._PREPARED
    cluster = deploy.start(load_topology(ONE_WORKER), 30)
    assert (cluster, deploy._PREPARED) == (prepared, [])
    deploy.give_up_prepared()
    cluster.wait_until_ready()
    assert cluster.address.startswith("tcp://127.0.0.1:")
    cluster.close()


def test_a_prepared_process_whose_client_ends_does_too():
    deploy.prepare()
    prepared = deploy._PREPARED.pop()
    prepared.close()  # as the end of the client closes its standard input
    assert prepared._process.returncode == 0
