"""Admission of chunks to a device, and the watch on its memory."""

from __future__ import annotations

import threading

import pytest

from hybridq.engines.account import DeviceAccount


class Counted(DeviceAccount):
    """Memory that the test itself allocates."""

    def __init__(self, limit):
        super().__init__(limit)
        self.now = self.top = 0

    @property
    def used(self):
        return self.now

    def allocate(self, size):
        self.now += size
        self.top = max(self.top, self.now)

    def restart_peak(self):
        peak, self.top = self.top, self.now
        return peak


def enters(account, wanted, inside, leave):
    """Start a thread that runs a chunk until it is told to leave."""

    def run():
        with account.admitted(wanted):
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_a_chunk_waits_until_it_fits():
    account = Counted(100)
    inside, leave = threading.Event(), threading.Event()
    with account.admitted(60) as first:
        assert first.predicted == 60
        with account.admitted(40) as second:
            assert second.predicted == 100
            thread = enters(account, 30, inside, leave)
            assert not inside.wait(0.05)
        assert inside.wait(10)
        leave.set()
        thread.join(10)
    with account.admitted(100) as alone:
        assert alone.predicted == 100


def test_what_is_too_large_runs_alone():
    account = Counted(100)
    inside, leave = threading.Event(), threading.Event()
    with account.admitted(1):
        thread = enters(account, 500, inside, leave)
        assert not inside.wait(0.05)
    assert inside.wait(10)
    leave.set()
    thread.join(10)


def test_what_is_kept_counts_and_makes_room():
    account = Counted(100)
    cached = [50]

    def evict(wanted):
        freed = min(cached[0], -(-wanted // 10) * 10)
        cached[0] -= freed
        return freed

    account.keeps(lambda: 20)
    account.keeps(lambda: cached[0], evict)
    assert account.kept == 70
    with account.admitted(30) as watch:
        assert (watch.predicted, cached) == (100, [50])
    with account.admitted(45) as watch:
        assert (watch.predicted, cached) == (95, [30])
    with account.admitted(90) as watch:
        assert (watch.predicted, cached) == (110, [0])


def test_each_chunk_sees_the_peak_of_its_own_time():
    account = Counted(100)
    account.allocate(80)
    account.now = 5
    with account.admitted(10) as outer:
        account.allocate(20)
        account.now = 5
        with account.admitted(10) as inner:
            account.allocate(5)
        account.now = 5
    assert (inner.peak, outer.peak) == (10, 25)


def test_a_failed_chunk_leaves_its_place():
    account = Counted(100)
    with pytest.raises(ValueError, match="wrong"), account.admitted(100):
        raise ValueError("wrong")
    with account.admitted(100) as watch:
        assert watch.predicted == 100
