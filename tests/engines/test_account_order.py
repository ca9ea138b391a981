"""Chunks are admitted in the order in which they come, and refused with figures when nothing becomes free."""

from __future__ import annotations

import threading
import time

import pytest

from hybridq.engines.account import DeviceAccount
from hybridq.errors import DeviceOutOfMemory


class Idle(DeviceAccount):
    used = 0

    def restart_peak(self):
        return 0


def test_a_small_chunk_does_not_overtake_a_large_one():
    account = Idle(100)
    order, started = [], []

    def run(wanted):
        with account.admitted(wanted):
            order.append(wanted)

    with account.admitted(60):
        for wanted in (80, 10, 70):
            thread = threading.Thread(target=run, args=(wanted,), daemon=True)
            thread.start()
            started.append(thread)
            deadline = time.monotonic() + 5
            while len(account._waiting) < len(started) and time.monotonic() < deadline:
                time.sleep(0.001)
        assert order == []
    for thread in started:
        thread.join(10)
    assert order == [80, 10, 70]


def test_what_waits_in_vain_is_told_how_much_it_wants_what_is_free_and_what_to_do():
    account = Idle(100, patience=0.05)
    with (
        account.admitted(70),
        pytest.raises(DeviceOutOfMemory, match=r"wants 40 bytes .* no more than 30 of 100 .*gpu_chunk_rows") as caught,
        account.admitted(40),
    ):
        pass
    assert (caught.value.wanted, caught.value.free) == (40, 30)
    with account.admitted(100):
        pass  # nothing is left behind by the one that was refused


def test_what_is_kept_may_shrink_without_anybody_telling(monkeypatch):
    monkeypatch.setattr("hybridq.engines.account.LOOK_AGAIN_SECONDS", 0.01)
    account, kept = Idle(100, patience=10), [50]
    account.keeps(lambda: kept[0])
    entered = threading.Event()

    def run():
        with account.admitted(60):
            entered.set()

    with account.admitted(10):
        threading.Thread(target=run, daemon=True).start()
        assert not entered.wait(0.05)
        kept[0] = 0
        assert entered.wait(5)
