"""Peers that raise, hang or die are failed measurements, and the run goes on."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bench.peers import Peer, Setup
from bench.processes import PeerFailed, PeerProcess, shared
from bench.run import together


class Scripted:
    """A peer whose queries are names of what it shall do."""

    must_be_exact = False
    uses_gpu = False
    note = "scripted"

    def __init__(self, name: str) -> None:
        self.name = name

    def start(self, folder: Path) -> None:
        if self.name == "cannot start":
            raise RuntimeError("no such engine\nsecond line")

    def run(self, query: str) -> pa.Table:
        if query == "raise":
            raise ValueError("first line\nsecond line")
        if query == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if query == "leave":
            sys.stderr.write("the last words\n")
            sys.stderr.flush()
            os._exit(3)
        if query == "hang":
            time.sleep(60)
        return pa.table({"environment": [os.environ["CUDA_VISIBLE_DEVICES"]]})

    def details(self) -> dict[str, object]:
        return {"kept": 1}

    def worker_pids(self) -> list[int]:
        return []

    def close(self) -> None:
        pass


def scripted(names: tuple[str, ...], setup: Setup) -> list[Peer]:
    return [Scripted(name) for name in names]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[PeerProcess]:
    made = PeerProcess(("one",), Setup(tmp_path, 1), scripted)
    yield made
    made.close()


def test_first_and_later_runs_are_told_apart(process: PeerProcess) -> None:
    first, second, other = (process.run("one", query, 30) for query in ("a", "a", "b"))
    assert [first.first, second.first, other.first] == [True, False, True]
    assert first.details == {"kept": 1}
    assert first.seconds > 0
    assert first.resident_bytes > 0
    assert process.notes == {"one": "scripted"}


def test_a_peer_without_gpu_sees_none(process: PeerProcess) -> None:
    assert process.run("one", "a", 30).answer.column(0).to_pylist() == [""]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("raise", "ValueError: first line"),
        ("die", "killed by SIGKILL (out of memory?)"),
        ("leave", "the process ended with code 3: the last words"),
        ("hang", "no answer after 0.5 s (hang)"),
    ],
)
def test_a_failure_has_one_line_and_the_next_query_works(process: PeerProcess, query: str, message: str) -> None:
    process.start()
    with pytest.raises(PeerFailed) as failure:
        process.run("one", query, 0.5 if query == "hang" else 30)
    assert str(failure.value) == message
    after = process.run("one", "a", 30)
    assert after.first


def test_a_peer_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = PeerProcess(("cannot start",), Setup(tmp_path, 1), scripted)
    try:
        with pytest.raises(PeerFailed, match=r"^RuntimeError: no such engine$"):
            process.start()
        with pytest.raises(PeerFailed, match=r"^RuntimeError: no such engine$"):
            process.run("cannot start", "a", 30)
        monkeypatch.setattr("multiprocessing.get_context", lambda method: pytest.fail("it is started again"))
        for _ in range(3):
            with pytest.raises(PeerFailed, match=r"^not started again: RuntimeError: no such engine$"):
                process.run("cannot start", "a", 30)
    finally:
        process.close()


def test_one_gpu_holder_in_each_group() -> None:
    names = ["cudf-polars streaming", "duckdb", "hybridq auto", "cudf-polars in-memory", "hybridq gpu"]
    assert shared(names)[0] == ("hybridq auto", "hybridq gpu")
    groups = together(names)
    assert groups == [
        [("hybridq auto", "hybridq gpu"), ("duckdb",)],
        [("cudf-polars streaming",)],
        [("cudf-polars in-memory",)],
    ]
