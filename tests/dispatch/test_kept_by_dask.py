"""A scheduler keeps nothing of the queries that it has answered, but for the last messages."""

from __future__ import annotations

import gc
import time
from collections import Counter

import pyarrow as pa

import hybridq as hq

FEW = 8
"""The last message to each worker is kept, and some tasks are those of other tests' last queries."""


def settled(client):
    """Return what is kept once it is little, or after some seconds: tasks are forgotten some time after an answer."""

    def kept(dask_scheduler):
        gc.collect()
        kinds = Counter(type(each).__name__ for each in gc.get_objects())
        return {name: kinds[name] for name in ("Span", "TaskState", "ChunkTask")}

    now, deadline = client.run_on_scheduler(kept), time.monotonic() + 10
    while max(now.values()) > FEW and time.monotonic() < deadline:
        time.sleep(0.1)
        now = client.run_on_scheduler(kept)
    return now


def test_the_keys_of_tasks_are_forgotten(two_workers):
    def many():
        from dask.utils import key_split

        for number in range(3000):
            key_split(f"hybridq_cpu_chunk-{number}-0-0-0")
        return key_split.cache_info().currsize

    def kept():
        from dask.utils import key_split

        return key_split.cache_info().currsize

    session = hq.connect(two_workers.address)
    try:
        client = session._connection._client
        assert min([*client.run(many).values(), client.run_on_scheduler(many)]) >= 3000
        deadline = time.monotonic() + 20
        while (now := max([*client.run(kept).values(), client.run_on_scheduler(kept)])) > 2000:
            assert time.monotonic() < deadline, now
            time.sleep(0.1)
    finally:
        session.close()


def test_nothing_is_kept_of_queries_that_have_ended(two_workers):
    session = hq.connect(two_workers.address)
    try:
        session.register("t", pa.table({"a": list(range(100))}))
        client = session._connection._client
        for limit in range(20):
            answer = session.sql(f"select a, count(*) as n from t where a < {limit} group by a").collect(mode="cpu")
            assert answer.to_arrow().num_rows == limit
        now = settled(client)
        assert now["Span"] == 0
        assert max(now.values()) <= FEW
    finally:
        session.close()
