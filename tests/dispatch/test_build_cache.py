from __future__ import annotations

import gc
import threading
import time

import pyarrow as pa

from hybridq.dispatch.worker import BuildCache


def test_one_thread_makes_it_and_the_others_wait():
    cache, table, made, got = BuildCache(), pa.table({"x": [1]}), [], []

    def make():
        time.sleep(0.05)
        made.append(object())
        return made[-1]

    threads = [threading.Thread(target=lambda: got.append(cache.get(table, "x", make))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert got == made * 4


def test_labels_are_apart():
    cache, table = BuildCache(), pa.table({"x": [1]})
    assert cache.get(table, "x", object) is not cache.get(table, "y", object)


def test_a_build_side_goes_with_its_table():
    cache, table = BuildCache(), pa.table({"x": [1]})
    cache.get(table, "x", object)
    del table
    gc.collect()
    assert len(cache) == 0


def test_the_least_recently_used_goes_first():
    cache = BuildCache(capacity=2)
    tables = [pa.table({"x": [number]}) for number in range(3)]
    first = cache.get(tables[0], "x", object)
    cache.get(tables[1], "x", object)
    assert cache.get(tables[0], "x", object) is first
    cache.get(tables[2], "x", object)
    assert len(cache) == 2
    assert cache.get(tables[0], "x", object) is first


def test_a_failure_is_not_kept():
    cache, table = BuildCache(), pa.table({"x": [1]})

    def fail():
        raise MemoryError

    for _ in range(2):
        try:
            cache.get(table, "x", fail)
        except MemoryError:
            continue
        raise AssertionError
    assert cache.get(table, "x", lambda: "made") == "made"
