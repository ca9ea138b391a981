"""What a crash leaves is found and removed at the next start; what is in use is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import hybridq as hq
from hybridq import leftovers
from hybridq.leftovers import Scratch, sweep

OWNER = """
import sys, time
from hybridq.leftovers import Scratch
scratch = Scratch(sys.argv[1])
(scratch.folder / "piece.arrow").write_bytes(b"x" * 1000)
print(scratch.folder, flush=True)
time.sleep(60)
"""


def owner(folder):
    """Start a process that owns a scratch folder."""
    root = str(Path(hq.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_only_folders_of_the_dead_are_removed(tmp_path):
    alive, kept = owner(tmp_path)
    dead, left = owner(tmp_path)
    own = Scratch(tmp_path)
    other = tmp_path / "something-else"
    other.mkdir()
    try:
        assert sweep(tmp_path) == []
        dead.kill()
        dead.wait(10)
        assert sweep(tmp_path) == [left]
        assert sorted(tmp_path.iterdir()) == sorted([kept, own.folder, other])
        assert (kept / "piece.arrow").exists()
    finally:
        alive.kill()
        alive.wait(10)
    assert sweep(tmp_path) == [kept]
    own.close()
    own.close()
    assert sorted(tmp_path.iterdir()) == [other]


def test_a_folder_without_a_lock_may_be_young_and_a_link_is_never_followed(tmp_path, monkeypatch):
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").write_text("keep")
    (tmp_path / f"{leftovers.PREFIX}link").symlink_to(target)
    (tmp_path / f"{leftovers.PREFIX}young").mkdir()
    assert sweep(tmp_path) == []
    monkeypatch.setattr(leftovers, "YOUNG_SECONDS", -1.0)
    assert sweep(tmp_path) == [tmp_path / f"{leftovers.PREFIX}young"]
    assert (target / "file").read_text() == "keep"


def test_a_cluster_that_was_killed_is_cleaned_up_after_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    description = {"workers": [{"kind": "cpu", "processes": 1, "threads": 1, "memory": "1GiB"}]}
    session = hq.connect(description)
    (left,) = tmp_path.glob(f"{leftovers.PREFIX}*")
    worker = session.devices()[0].pid
    os.kill(session._finalizer.peek()[2][1].pid, signal.SIGKILL)
    session.close()
    deadline = time.monotonic() + 120
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{worker}").exists(), "a worker outlives its cluster"
    assert left.exists()
    with hq.connect(description) as second:
        while left.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left.exists()
        assert len(second.devices()) == 1
    assert list(tmp_path.glob(f"{leftovers.PREFIX}*")) == []
