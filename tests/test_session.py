from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hybridq as hq
from hybridq.dispatch.executor import DaskExecutor
from hybridq.errors import (
    ClusterUnreachable,
    ConfigurationError,
    DeviceUnavailable,
    DivisionByZero,
    ExecutionError,
    FallbackForbidden,
    QueryCancelled,
    RequestError,
)
from hybridq.testing.in_process import connect_in_process

ROWS = 40_000
UNITS = 200
TOTAL = "select g, count(*) as n, sum(x) as s from t group by g order by g"
CPU = {"kind": "cpu", "processes": 1, "threads": 1, "memory": "2GiB"}
GPU = {"kind": "gpu", "engine": "simulated", "memory": "2GiB"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One Parquet file of many small row groups."""
    folder = tmp_path_factory.mktemp("data")
    table = pa.table({"x": pa.array(range(ROWS), pa.int64()), "g": pa.array([i % 3 for i in range(ROWS)], pa.int32())})
    pq.write_table(table, folder / "t.parquet", row_group_size=ROWS // UNITS)
    pq.write_table(table.slice(0, 20_000), folder / "whole.parquet", row_group_size=20_000)
    return folder


@pytest.fixture(scope="module")
def session(data):
    """A CPU worker and a simulated GPU, chunks of 20 units."""
    with hq.connect({"workers": [CPU, {**GPU, "device_memory": "1GiB"}]}, chunk_units=20) as opened:
        opened.register_folder(data)
        yield opened


def expected() -> list[dict[str, int]]:
    return [{"g": g, "n": len(range(g, ROWS, 3)), "s": sum(range(g, ROWS, 3))} for g in range(3)]


def rows(result) -> list[dict[str, object]]:
    return [{**row, "s": int(row["s"])} for row in result.to_arrow().to_pylist()]


# --- modes and reports ---------------------------------------------------------------------------------------------


def test_sql_takes_text(session):
    with pytest.raises(RequestError, match=r"sql takes text, not \w+; hybridq\.scan\(\.\.\.\) goes to query"):
        session.sql(hq.scan("t"))


@pytest.mark.parametrize(
    ("mode", "stage_mode", "kinds"),
    [
        ("cpu", "EXEC_CPU", {"cpu"}),
        ("gpu", "EXEC_GPU", {"gpu"}),
        ("cop", "EXEC_COP", {"cpu", "gpu"}),
        ("auto", None, {"cpu", "gpu"}),
    ],
)
def test_every_mode_gives_the_same_answer_and_says_where(session, mode, stage_mode, kinds):
    result = session.sql(TOTAL).collect(mode=mode)
    assert rows(result) == expected()
    first = result.report.stages[0]
    # What auto chooses depends on what earlier queries took: a simulated GPU is as fast as a CPU worker.
    assert first.mode == (stage_mode or first.mode)
    assert first.reason
    found = {device.kind for device in first.devices}
    # Of the two kinds one may be left alone, where it would only make the stage last longer.
    assert found == kinds or (mode in ("cop", "auto") and found < kinds and found)
    assert sum(device.rows for device in first.devices) == ROWS
    assert sum(device.chunks for device in first.devices) == UNITS // 20
    assert all(device.seconds["total"] > 0 and device.bytes_read > 0 for device in first.devices)
    assert {device.engine for device in first.devices} <= {"cpu", "simulated gpu"}
    assert (result.report.peak_device_bytes > 0) == ("gpu" in found)
    assert result.report.seconds["total"] >= result.report.seconds["execute"]
    assert first.fallbacks == []


def test_an_answer_of_few_rows_takes_one_hop(session, monkeypatch, tmp_path):
    def forbidden(self, *arguments):
        raise AssertionError("a second hop")

    monkeypatch.setattr(DaskExecutor, "merge", forbidden)
    monkeypatch.setattr(DaskExecutor, "fetch", forbidden)
    result = session.sql(TOTAL).collect(mode="cpu")
    assert rows(result) == expected()
    merges = [span for span in result.report.stages[0].spans if span.what == "merge"]
    assert [(span.worker, span.rows) for span in merges] == [("client", 3)]
    few = session.sql("select x from t where x in (7, 31000)")
    few.write(tmp_path / "few.parquet", mode="cpu")
    assert pq.read_table(tmp_path / "few.parquet").column("x").to_pylist() == [7, 31000]


def test_auto_runs_both_kinds_on_large_input(nothing_learned, session, data):
    with hq.connect(session.address, chunk_units=20, cpu_chunk_rows=2000) as other:
        other.register_folder(data)
        result = other.sql(TOTAL).collect()
        assert rows(result) == expected()
        assert result.report.stages[0].mode == "EXEC_COP"
        assert result.report.stages[0].cost_ratio > 0
        assert "cost ratio" in result.report.stages[0].reason


def test_names_may_repeat_and_types_are_the_plans(session):
    query = session.sql("select a.x, b.x, a.g from t a join t b on a.x = b.x where a.x < 2 order by a.x")
    result = query.collect()
    assert result.to_arrow().column_names == ["x", "x", "g"]
    assert result.to_arrow().schema.types == [pa.int64(), pa.int64(), pa.int32()] == query.schema.types
    assert len(result) == 2


def test_memory_tables_in_every_mode(session):
    table = pa.table({"k": pa.array(range(3_000_000), pa.int64())})
    session.register("m", table)
    small = pa.table({"k": [1, 2, None], "name": pa.array(["one", "two", "none"]).dictionary_encode()})
    session.register("names", small)
    for mode in ("cpu", "gpu", "cop"):
        assert session.sql("select sum(k) as s from m where k >= 10").collect(mode=mode).to_arrow()[
            "s"
        ].to_pylist() == [sum(range(10, 3_000_000))]
        joined = session.sql("select m.k, name from m join names on m.k = names.k order by m.k").collect(mode=mode)
        assert joined.to_arrow().to_pylist() == [{"k": 1, "name": "one"}, {"k": 2, "name": "two"}]


def test_count_of_no_columns_and_empty_inputs(session):
    assert session.sql("select count(*) as n from t").collect().to_arrow()["n"].to_pylist() == [ROWS]
    assert session.sql("select sum(x) as s, count(*) as n from t where x < 0").collect().to_arrow().to_pylist() == [
        {"s": None, "n": 0}
    ]
    assert len(session.sql("select x from t where x < 0").collect()) == 0
    session.register("nothing", pa.table({"x": pa.array([], pa.int64())}))
    assert len(session.sql("select x from nothing").collect(mode="cop")) == 0
    assert len(session.sql("select x from t limit 7").collect()) == 7


def test_explain_before_and_after(session):
    query = session.sql(TOTAL)
    assert "EXEC_" in str(query.explain())  # which, depends on what earlier queries took
    assert "EXEC_CPU" in str(query.explain(mode="cpu"))
    assert "EXEC_GPU" in str(query.explain(mode="gpu"))
    assert f"{ROWS:,} rows" in str(query.explain(mode="cop", analyze=True))


def test_pandas_keeps_types(session):
    frame = session.sql("select x, cast(x as decimal(10, 2)) as d from t where x < 2").collect().to_pandas()
    assert frame.dtypes["d"].pyarrow_dtype == pa.decimal128(10, 2)


def test_devices(session):
    devices = session.devices()
    assert [(each.kind, each.engine, each.threads) for each in devices] == [
        ("cpu", "cpu", 1),
        ("gpu", "simulated gpu", 1),
    ]
    assert all(each.memory == 2 * 2**30 for each in devices)
    assert devices[1].device_memory == 2**30
    assert devices[0].to_dict()["worker"] == "cpu-0"


# --- errors --------------------------------------------------------------------------------------------------------


def test_errors_of_tasks_keep_their_class(session):
    with pytest.raises(DivisionByZero) as caught:
        session.sql("select x / (x - 5) as q from t").collect()
    assert "in stage 0" in caught.value.__notes__[0]
    assert len(session.sql(TOTAL).collect()) == 3


def test_unknown_mode_and_option(session):
    with pytest.raises(ConfigurationError, match="mode must be one of"):
        session.sql(TOTAL).collect(mode="tpu")
    with pytest.raises(ConfigurationError, match="unknown option 'window_size'"):
        hq.connect(window_size=3)


def test_a_closed_session(data, without_gpu):
    session = hq.connect(without_gpu.address)
    session.register_folder(data)
    query = session.sql(TOTAL)
    with pytest.raises(DeviceUnavailable, match="mode=gpu needs what the cluster does not have: no GPU worker"):
        query.collect(mode="gpu")
    with pytest.raises(DeviceUnavailable, match="no GPU worker"):
        query.explain(mode="cop")
    session.close()
    session.close()
    for use in (
        query.collect,
        query.explain,
        lambda: session.sql(TOTAL),
        lambda: session.substrait(b""),
        lambda: session.query(hq.scan("lineitem")),
        lambda: session.register("t", pa.table({"x": [1]})),
        lambda: session.register_folder(data),
        lambda: session.cache("lineitem"),
        session.devices,
        session.calibrate,
    ):
        with pytest.raises(ExecutionError, match="the session is closed"):
            use()


def test_a_query_whose_session_is_closed_says_so(data, without_gpu):
    session = hq.connect(without_gpu.address, chunk_units=1)
    session.register_folder(data)
    slow = "select count(*) as n from t a, t b where a.x < b.x"
    handle = session.sql(slow).submit()
    session.close()
    with pytest.raises(QueryCancelled, match="the session was closed while the query ran"):
        handle.result(timeout=60)


@pytest.mark.parametrize("address", ["tcp://foo", "tls://foo:", "tcp://[::1]"])
def test_an_address_without_a_port_is_refused_at_once(address):
    with pytest.raises(ConfigurationError, match="has no port"):
        hq.connect(address)


@pytest.mark.parametrize("address", ["http://localhost:8787", "https://h:1/", "htp://foo:8786", "://x:1"])
def test_an_address_of_another_kind_is_refused_at_once(address):
    with pytest.raises(ConfigurationError, match=rf"{address} is no scheduler's address.*tcp:// or tls://.*tcp://HOST"):
        hq.connect(address)


def test_unreachable_address():
    start = time.monotonic()
    with pytest.raises(ClusterUnreachable, match=r"no scheduler answered at tcp://127\.0\.0\.1:9: .* refused"):
        hq.connect("tcp://127.0.0.1:9", connect_timeout=60.0)
    assert time.monotonic() - start < 30


def test_workers_without_resources_are_not_used():
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        with pytest.raises(DeviceUnavailable, match=r"has 1 workers, none of which .*dask worker .*--resources CPU=N"):
            hq.connect(cluster.scheduler_address)
        assert any("without a CPU or GPU resource are not used" in str(each.message) for each in caught)


# --- several at once, cancelling -----------------------------------------------------------------------------------


def test_two_queries_at_once_and_a_second_session(session, data):
    with hq.connect(session.address, chunk_units=20) as other, ThreadPoolExecutor(4) as pool:
        other.register_folder(data)
        queries = [each.sql(TOTAL) for each in (session, other, session, other)]
        modes = ("cop", "gpu", "cpu", "cop")
        results = [pool.submit(query.collect, mode=mode) for query, mode in zip(queries, modes, strict=True)]
        assert all(rows(result.result()) == expected() for result in results)
    assert rows(session.sql(TOTAL).collect()) == expected()


def test_cancel_frees_everything_and_the_session_goes_on(session, data):
    with hq.connect(session.address, chunk_units=1) as other:
        other.register_folder(data)
        handle = other.sql(TOTAL).submit(mode="cpu")
        with pytest.raises(TimeoutError):
            handle.result(timeout=0.1)
        assert not handle.progress().finished
        handle.cancel()
        with pytest.raises(QueryCancelled):
            handle.result(timeout=60)
        handle.cancel()
        assert rows(other.sql(TOTAL).collect(mode="cpu")) == expected()
        client = other._connection._client
        deadline = time.monotonic() + 60
        while any(client.has_what().values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(client.has_what().values())


# --- memory --------------------------------------------------------------------------------------------------------


def test_chunks_that_do_not_fit_are_halved_and_moved(data):
    unit_bytes = ROWS // UNITS * 12
    tight = {"workers": [CPU, {**GPU, "device_memory": 8 * unit_bytes}]}
    with hq.connect(tight, chunk_units=20) as session:
        session.register_folder(data)
        halved = session.sql(TOTAL).collect(mode="gpu")
        assert rows(halved) == expected()
        assert halved.report.stages[0].retries > 0
        assert halved.report.stages[0].fallbacks == []
        assert 0 < halved.report.peak_device_bytes <= 8 * unit_bytes
        query = session.sql(TOTAL.replace("from t", "from whole"))  # a single row group
        moved = query.collect(mode="gpu")
        assert rows(moved) == rows(query.collect(mode="cpu"))
        (fallback,) = moved.report.stages[0].fallbacks
        assert "out of memory on the simulated GPU" in fallback.cause
        assert fallback.action == "moved to the CPU"
        assert {device.kind for device in moved.report.stages[0].devices} == {"cpu"}
        with pytest.raises(FallbackForbidden, match=r"\d+ bytes wanted, \d+ free"):
            query.collect(mode="gpu", strict=True)


# --- death ---------------------------------------------------------------------------------------------------------


def test_workers_killed_in_mid_query(data):
    workers = [{**CPU, "processes": 2}, {**GPU, "speed": 0.3}]
    with hq.connect({"workers": workers}, chunk_units=1) as session:
        session.register_folder(data)
        query = session.sql(TOTAL)
        for victim in ("cpu-1", "gpu-0"):
            pid = next(device.pid for device in session.devices() if device.worker == victim)
            handle = query.submit(mode="cop")
            while handle.progress().rows_done < ROWS // 4:
                time.sleep(0.01)
            os.kill(pid, signal.SIGKILL)
            result = handle.result(timeout=200)
            assert rows(result) == expected()
            assert handle.progress().rows_done == ROWS


# --- how the caller was started ------------------------------------------------------------------------------------

SCRIPT = """
import hybridq as hq
session = hq.connect({"workers": [{"kind": "cpu", "processes": 1, "threads": 1}]})
session.register_folder(DATA)
print(session.sql("select count(*) as n from t").collect().to_arrow()["n"][0].as_py())
"""


def run(arguments: list[str], **options) -> subprocess.CompletedProcess[str]:
    root = str(Path(hq.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=200, env=environment, **options
    )


def test_script_without_a_main_guard(data, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("DATA", repr(str(data))))
    done = run([str(script)], cwd=tmp_path)
    assert (done.stdout.strip(), done.stderr) == (str(ROWS), "")


def test_program_on_standard_input(data, tmp_path):
    done = run(["-"], input=SCRIPT.replace("DATA", repr(str(data))), cwd=tmp_path)
    assert (done.stdout.strip(), done.stderr) == (str(ROWS), "")


def test_interrupt_cancels_and_the_session_remains_usable(session, data):
    program = textwrap.dedent(f"""
        import os, signal, threading
        import hybridq as hq
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what runs in the background
        with hq.connect({session.address!r}, chunk_units=1) as session:
            session.register_folder({str(data)!r})
            query = session.sql({TOTAL!r})
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                query.collect(mode="cpu")
            except KeyboardInterrupt:
                print("interrupted", len(query.collect(mode="cpu")))
    """)
    done = run(["-c", program])
    assert done.stdout.strip() == "interrupted 3", done.stderr


def test_tables_stay_what_they_are_while_a_query_runs():
    """Its stages read them one after the other, and all read what was there when it began."""
    text = "select max(k) as high, (select min(k) from t) as low, (select count(*) from t) as n from t"

    def numbers(k):
        return pa.table({"k": pa.array([k] * 1000, pa.int64())})

    with connect_in_process(chunk_units=1) as session:
        session.register("t", numbers(1))
        query = session.sql(text)
        for new in (2, 3):
            handle = query.submit()
            session.register("t", numbers(new))
            assert handle.result().to_arrow().to_pylist() == [{"high": new - 1, "low": new - 1, "n": 1000}]


def test_a_registered_data_frame_may_be_changed():
    frame = pd.DataFrame({"a": [1, 2, 3], "f": [1.0, None, 3.0]})
    with connect_in_process() as session:
        session.register("t", frame)
        frame.loc[:, "a"] = [10, 20, 30]
        frame.loc[:, "f"] = 9.0
        assert session.sql("select sum(a) as a, sum(f) as f from t").collect().to_arrow().to_pylist() == [
            {"a": 6, "f": 4.0}
        ]
