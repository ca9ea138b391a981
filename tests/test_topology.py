from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from hybridq.errors import ConfigurationError
from hybridq.topology import Topology, default_topology, find_gpus, load_topology

CPU = {"kind": "cpu", "processes": 1, "threads": 1}


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (4, 1), (5, 2), (16, 2)])
def test_threads_by_cores(cores: int, threads: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hybridq.topology.available_cores", lambda: cores)
    for topology in (load_topology("cluster/local.yaml"), load_topology({"workers": [{"kind": "cpu"}]})):
        assert [(group.kind, group.threads, group.processes) for group in topology.workers] == [("cpu", threads, None)]


def test_shipped_files():
    simulated = load_topology("cluster/simulated.yaml")
    assert [(group.kind, group.engine) for group in simulated.workers] == [("cpu", "cpu"), ("gpu", "simulated")]
    assert simulated.workers[1].device_memory == 2 * 2**30


def test_shipped_files_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert load_topology("cluster/local.yaml").workers


def test_gpus_that_the_environment_hides_are_not_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert find_gpus() == []


@pytest.mark.parametrize(("text", "message"), [
    ("{" * 900, "nested too deeply|not valid YAML"),
    ("- " * 3000, "nested too deeply"),
    ("workers: " + "[" * 5000, "too large"),
    ("# " + "x" * 300_000, "too large"),
])  # fmt: skip
def test_hostile_files(tmp_path: Path, text: str, message: str):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        load_topology(path)


def test_sizes():
    def memory(value):
        return load_topology({"workers": [{**CPU, "memory": value}]}).workers[0].memory

    assert [memory(value) for value in ("1GiB", "1.5 GB", "512MB", 200_000_000, "auto")] == [
        2**30,
        1_500_000_000,
        512_000_000,
        200_000_000,
        None,
    ]


def test_json_round_trip():
    topology = load_topology("cluster/simulated.yaml")
    assert Topology.from_plain(json.loads(json.dumps(topology.to_dict()))) == topology
    assert Topology.from_plain(json.loads(json.dumps(default_topology().to_dict()))) == default_topology()


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({}, "workers must be a list"),
        ({"workers": []}, "workers must be a list"),
        ({"workers": [CPU], "worker": 1}, "unknown key 'worker'"),
        ({"workers": [{**CPU, "thread": 2}]}, r"workers\[0\]: unknown key 'thread'"),
        ({"workers": [{"kind": "tpu"}]}, "kind must be cpu or gpu, not 'tpu'"),
        ({"workers": [{**CPU, "threads": 0}]}, "threads must be a whole number of at least 1, not 0"),
        ({"workers": [{**CPU, "threads": True}]}, "threads must be"),
        ({"workers": [{**CPU, "processes": "many"}]}, "processes must be"),
        ({"workers": [{**CPU, "memory": "lots"}]}, "memory must be auto or a size"),
        ({"workers": [{**CPU, "memory": "0GiB"}]}, "memory must be auto or a size"),
        ({"workers": [{**CPU, "memory": "10MiB"}]}, r"workers\[0\]: memory must be at least 100MiB .*, not '10MiB'$"),
        ({"workers": [{**CPU, "memory": 4}]}, r"memory must be at least 100MiB .*, not 4 \(a number alone is bytes\)"),
        ({"workers": [{**CPU, "speed": 1}]}, "unknown key 'speed'"),
        ({"workers": [{"kind": "gpu", "engine": "simulated", "steady": 1}]}, "steady must be true or false"),
        ({"workers": [{**CPU, "engine": "cuda"}]}, "engine must be cpu or simulated, not 'cuda'"),
        ({"workers": [{**CPU, "engine": "simulated", "speed": 2}]}, "at most 1"),
        ({"workers": [{"kind": "gpu", "engine": "opencl"}]}, "engine must be cuda or simulated"),
        ({"workers": [{"kind": "gpu", "engine": "simulated", "speed": 3}]}, "at most 1"),
        ({"workers": [CPU], "scheduler": {"port": -1}}, "port must be"),
        ({"workers": [CPU], "scheduler": {"port": 99999}}, "port must be at most 65535, not 99999"),
        (5, "a cluster is an address, a cluster file or a description, not int"),
        ({"workers": [CPU], "scheduler": {"host": 7}}, "host must be"),
        ({"workers": [CPU], "scheduler": {"host": "no.such.host.invalid"}}, "scheduler: host 'no.such.*' is not known"),
        ({"workers": [CPU], "scheduler": {"host": "x" * 80}}, "scheduler: host 'x*' is not known"),
        ({"workers": [CPU], "scheduler": {"host": "192.0.2.1"}}, "host '192.0.2.1' is no address of this machine"),
        ({"workers": [CPU], "scheduler": {"dashboard": "yes"}}, "dashboard must be true or false"),
        ({"workers": [7]}, r"workers\[0\]: expected keys"),
    ],
)
def test_mistakes_name_the_key(description, message):
    with pytest.raises(ConfigurationError, match=message):
        load_topology(description)


def test_a_port_in_use_is_named_with_the_file(tmp_path: Path):
    path = tmp_path / "cluster.yaml"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        path.write_text(f"scheduler: {{port: {port}}}\nworkers: [{{kind: cpu}}]\n")
        with pytest.raises(ConfigurationError, match=rf"cluster file {path}, scheduler: port {port} is in use"):
            load_topology(path)


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="cannot read cluster file"):
        load_topology(tmp_path / "none.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("workers: [")
    with pytest.raises(ConfigurationError, match="not valid YAML"):
        load_topology(broken)
    broken.write_bytes(b"\xff\xfeworkers")
    with pytest.raises(ConfigurationError, match="not UTF-8 text"):
        load_topology(broken)
    broken.write_text("just text")
    with pytest.raises(ConfigurationError, match="expected keys"):
        load_topology(broken)
