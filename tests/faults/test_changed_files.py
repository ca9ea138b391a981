"""Files that change under a query, and readers that fail now and then."""

from __future__ import annotations

import os
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.dispatch import reading
from hybridq.engines.cpu import CpuEngine
from hybridq.errors import DataError
from hybridq.testing.in_process import connect_in_process

ROWS = 6_000
TOTAL = "select count(*) as n, sum(x) as s from t"


@pytest.fixture
def session(tmp_path):
    table = pa.table({"x": pa.array(range(ROWS), pa.int64()), "s": [str(i % 7) for i in range(ROWS)]})
    for part in range(3):
        (tmp_path / "t").mkdir(exist_ok=True)
        pq.write_table(table.slice(part * 2000, 2000), tmp_path / "t" / f"{part}.parquet", row_group_size=500)
    with connect_in_process(chunk_units=1) as opened:
        opened.register("t", tmp_path / "t")
        yield opened


@pytest.fixture
def victim(tmp_path, session):
    return tmp_path / "t" / "1.parquet"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(reading, "READ_PAUSES", (0.0, 0.0))


def rewritten(path):
    pq.write_table(pq.read_table(path), path, row_group_size=500)
    os.utime(path, ns=(0, 1))  # clocks are coarse: the new time of change must differ


def replaced(path):
    pq.write_table(pq.read_table(path).slice(0, 700), path)


def truncated(path):
    os.truncate(path, path.stat().st_size // 2)


def removed(path):
    path.unlink()


def a_folder_instead(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("mode", ["cpu", "gpu"])
@pytest.mark.parametrize(
    ("change", "message"),
    [(rewritten, "written again since"), (replaced, "bytes then"), (truncated, "bytes then"),
     (removed, "has been removed since it was registered"), (a_folder_instead, "has changed since")],
)  # fmt: skip
def test_a_file_that_changes_between_planning_and_reading_is_named(session, victim, change, message, mode):
    query = session.sql(TOTAL)
    change(victim)
    with pytest.raises(DataError, match=message) as caught:
        query.collect(mode=mode)
    assert str(victim) in str(caught.value).splitlines()[0]
    assert "register the table again" in str(caught.value)


def test_a_file_that_changes_in_mid_query(session, victim, monkeypatch):
    query = session.sql(TOTAL)
    original, seen = CpuEngine.read, []

    def read(engine, request):
        seen.append(request.files)
        if len(seen) == 3:
            truncated(victim)
        return original(engine, request)

    monkeypatch.setattr(CpuEngine, "read", read)
    with pytest.raises(DataError, match=f"{victim} has changed since"):
        query.collect(mode="cpu")


@pytest.mark.parametrize("change", [truncated, removed, replaced])
def test_a_file_that_changes_while_it_is_read(session, victim, change, monkeypatch):
    """Whatever the reader makes of it, even an answer, the file is what is said to be wrong."""
    query = session.sql(TOTAL)
    original = CpuEngine.read

    def read(engine, request):
        mine = request.files[0][0] == str(victim)
        if mine and change is not replaced:
            change(victim)
        frame = original(engine, request)
        if mine and change is replaced:
            change(victim)
        return frame

    monkeypatch.setattr(CpuEngine, "read", read)
    with pytest.raises(DataError, match=f"{victim} has (changed|been removed) since"):
        query.collect(mode="cpu")


def test_registering_again_takes_the_new_file(session, victim):
    replaced(victim)
    session.register("t", victim.parent)
    assert session.sql(TOTAL).collect().to_arrow()["n"].to_pylist() == [ROWS - 2000 + 700]


def failing(monkeypatch, errors):
    """Let reads fail with the given errors, one after the other, and then work."""
    original, pending, lock = CpuEngine.read, list(errors), threading.Lock()

    def read(engine, request):
        with lock:
            error = pending.pop(0) if pending else None
        if error is not None:
            raise error
        return original(engine, request)

    monkeypatch.setattr(CpuEngine, "read", read)
    return pending


def unreadable(cause):
    error = DataError("cannot read t")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("mode", ["cpu", "gpu"])
@pytest.mark.parametrize("wrap", [unreadable, lambda cause: cause], ids=["named", "bare"])
def test_an_input_output_error_that_passes_is_read_over(session, monkeypatch, wrap, mode):
    failing(monkeypatch, [wrap(OSError(5, "Input/output error")), wrap(ConnectionResetError("reset"))])
    result = session.sql(TOTAL).collect(mode=mode)
    assert result.to_arrow().to_pylist() == [{"n": ROWS, "s": sum(range(ROWS))}]
    assert result.report.stages[0].read_again == 2


def test_an_input_output_error_that_stays_ends_the_query(session, monkeypatch):
    pending = failing(monkeypatch, [unreadable(OSError(5, "Input/output error"))] * 9)
    with pytest.raises(DataError, match="cannot read t"):
        session.sql(TOTAL).collect(mode="cpu")
    assert len(pending) <= 9 - (1 + len(reading.READ_PAUSES))


@pytest.mark.parametrize("cause", [ValueError("no Parquet"), PermissionError(13, "denied")])
def test_what_another_attempt_would_only_repeat_is_not_tried_again(session, monkeypatch, cause):
    pending = failing(monkeypatch, [unreadable(cause)] * 9)
    with pytest.raises(DataError):
        session.sql(TOTAL).collect(mode="cpu")
    # Other chunks may have been under way.
    assert len(pending) > 9 - (1 + len(reading.READ_PAUSES))


def test_learning_never_fails_a_finished_query(session, monkeypatch, caplog):
    from hybridq.placement.placer import Placer

    def broken(*arguments):
        raise KeyError("stage")

    monkeypatch.setattr(Placer, "learn", broken)
    assert len(session.sql(TOTAL).collect(mode="auto")) == 1
    assert "nothing was learned from a query: KeyError" in caplog.text
