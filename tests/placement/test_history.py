from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.placement import history
from hybridq.placement.history import RateHistory
from hybridq.testing.in_process import connect_in_process


@pytest.fixture
def stages(tmp_path):
    """Stages of three queries, of which the first two do the same."""
    pq.write_table(pa.table({"k": [1, 2], "x": [1, 2]}), tmp_path / "t.parquet")
    with connect_in_process() as session:
        session.register_folder(tmp_path)
        texts = ["select sum(x) from t", "select sum(x) as s from t", "select sum(k) from t"]
        yield [session.sql(text)._physical.stages[0] for text in texts]


def test_rates_are_known_by_what_a_stage_does(stages):
    same, again, other = stages
    known = RateHistory()
    assert known.known(same) == {}
    known.note(same, {"cpu": 1.0})
    known.note(again, {"gpu": 0.1})
    known.note(again, {"cpu": 2.0})
    assert known.known(same) == {"cpu": 2.0, "gpu": 0.1}
    assert known.known(other) == {}


def test_the_oldest_are_forgotten(stages, monkeypatch):
    monkeypatch.setattr(history, "CAPACITY", 1)
    known = RateHistory()
    known.note(stages[0], {"cpu": 1.0})
    known.note(stages[2], {"cpu": 3.0})
    assert known.known(stages[0]) == {}
    assert known.known(stages[2]) == {"cpu": 3.0}


def test_a_session_remembers(tmp_path):
    pq.write_table(pa.table({"x": list(range(100))}), tmp_path / "t.parquet", row_group_size=10)
    with connect_in_process(chunk_units=1) as session:
        session.register_folder(tmp_path)
        query = session.sql("select sum(x) as s from t")
        for _ in range(2):
            assert query.collect(mode="cop").to_arrow().to_pylist() == [{"s": 4950}]
        rates = session._history.known(query._physical.stages[0])
    assert set(rates) <= {"cpu", "gpu"}
    assert all(rate > 0 for rate in rates.values())
    assert rates
