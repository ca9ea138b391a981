"""A table joined with itself on the key by which it is sorted is read once by a chunk on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.session import Session
from hybridq.testing.asserts import assert_same_answer
from hybridq.testing.in_process import connect_in_process
from hybridq.testing.reference import duckdb_answer

BOTH = """
    select count(*) as n, sum(a.x) as x from t a
    where a.late > 3
    and exists (select 1 from t b where b.k = a.k and b.s <> a.s)
    and not exists (select 1 from t c where c.k = a.k and c.s <> a.s and c.late > 3)
"""
ALONE = "select count(*) as n, sum(a.x) as x from t a where a.late > 3"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Rows of several for each key, whose row groups end within keys; some keys are NULL."""
    random = np.random.default_rng(5)
    rows = 20_000
    keys = pa.array(np.sort(random.integers(0, 6_000, rows)), mask=np.arange(rows) >= rows - 50)
    others = {
        name: pa.array(random.integers(0, 9, rows), mask=random.random(rows) < 0.1) for name in ("s", "late", "x")
    }
    pq.write_table(pa.table({"k": keys, **others}), tmp_path / "t.parquet", row_group_size=1_000)
    return tmp_path / "t.parquet"


@pytest.fixture
def session(file: Path) -> Iterator[Session]:
    with connect_in_process(broadcast_bytes=1, chunk_units=3) as session:
        session.register("t", file)
        yield session


def bytes_read(result: Any) -> int:
    return sum(device.bytes_read for stage in result.report.stages for device in stage.devices)


@pytest.mark.parametrize("mode", ["cpu", "gpu", "cop"])
def test_the_answer_is_that_of_reading_each_side(session: Session, file: Path, mode: Any) -> None:
    result = session.sql(BOTH).collect(mode=mode)
    assert "aligned" in result.report.stages[-1].title
    answer = result.to_arrow()
    assert_same_answer(answer, duckdb_answer(BOTH, file.parent, answer.schema))


def test_a_gpu_reads_each_column_once(session: Session) -> None:
    alone, both = (session.sql(query).collect(mode="gpu") for query in (ALONE, BOTH))
    every = session.sql("select count(k) as k, sum(s) as s, sum(late) as late, sum(x) as x from t").collect(mode="gpu")
    # Row groups at the ends of chunks are read with both: keys go on from one to the next.
    assert bytes_read(alone) < bytes_read(every) <= bytes_read(both) < 1.8 * bytes_read(every)
