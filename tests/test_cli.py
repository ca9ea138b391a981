"""The command: output formats, exit codes, and one clear line for everything that can be wrong with a request."""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq import cli
from hybridq.output import unique_names, write_answer


@pytest.fixture
def call(capsys):
    """Run the command in this process: ``call(*arguments) -> (exit code, stdout, stderr)``."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def query(call, one_worker, monkeypatch):
    """Run SQL given as text on a cluster that is up already."""

    def run(sql, data, *options):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(sql.encode())))
        return call("run", "-", "--data", data, "--cluster", one_worker.address, *options)

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two small tables, one of them a folder of files."""
    path = tmp_path_factory.mktemp("data")
    day = datetime.date(2020, 2, 29)
    t = pa.table(
        {
            "k": pa.array([1, 2, 3], pa.int64()),
            "d": pa.array([Decimal("0.10"), Decimal("12345678901234567890.12"), None], pa.decimal128(30, 2)),
            "s": pa.array(["", 'say "hi", you', None]),
            "day": pa.array([day, None, day], pa.date32()),
            "x": pa.array([0.1, float("nan"), None]),
        }
    )
    pq.write_table(t, path / "t.parquet", row_group_size=2)
    (path / "u").mkdir()
    for number in range(2):
        pq.write_table(pa.table({"k": [number], "word": ["no"]}), path / "u" / f"{number}.parquet")
    return path


# --- what comes out --------------------------------------------------------------------------------------------------


def test_version_and_help(call):
    assert call("--version")[1].startswith("hybridq 0.")
    code, out, err = call()
    assert (code, err) == (0, "")
    assert "run" in out
    for command in (
        ("run",),
        ("explain",),
        ("tables",),
        ("devices",),
        ("demo",),
        ("tpch", "generate"),
        ("ssb", "generate"),
        ("cluster", "start"),
    ):
        code, out, err = call(*command, "--help")
        assert (code, err) == (0, "")
        assert "Usage: hybridq " + " ".join(command) in out


def test_a_table_on_the_terminal(query, folder):
    code, out, err = query("select k, d, s from t order by k", folder)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "k                        d  s",
        "-  -----------------------  -------------",
        "1                     0.10",
        '2  12345678901234567890.12  say "hi", you',
        "3                     NULL  NULL",
        "(3 rows)",
    ]


def test_csv_keeps_digits_dates_and_null(query, folder):
    code, out, _ = query("select * from t order by k", folder, "--format", "csv")
    assert code == 0
    assert out.splitlines() == [
        "k,d,s,day,x",
        '1,0.10,"",2020-02-29,0.1',
        '2,12345678901234567890.12,"say ""hi"", you",,NaN',
        "3,,,2020-02-29,",
    ]
    assert list(csv.reader(io.StringIO(out)))[2][2] == 'say "hi", you'


def test_json_keeps_digits_dates_and_null(query, folder):
    code, out, _ = query("select * from t order by k", folder, "--format", "json")
    assert code == 0
    assert json.loads(out) == [
        {"k": 1, "d": "0.10", "s": "", "day": "2020-02-29", "x": 0.1},
        {"k": 2, "d": "12345678901234567890.12", "s": 'say "hi", you', "day": None, "x": "NaN"},
        {"k": 3, "d": None, "s": None, "day": "2020-02-29", "x": None},
    ]
    assert json.loads(query("select k from t where k > 9", folder, "--format", "json")[1]) == []


def test_parquet_keeps_the_types(query, folder, tmp_path):
    path = tmp_path / "answer.parquet"
    code, out, err = query("select * from t order by k", folder, "--format", "parquet", "-o", path)
    assert (code, out, err) == (0, "", "")
    written, read = pq.read_table(path), pq.read_table(folder / "t.parquet")
    assert written.schema.types == read.schema.types
    assert written.drop_columns("x").equals(read.drop_columns("x"))
    assert [item.name for item in tmp_path.iterdir()] == ["answer.parquet"]


def test_column_names_that_repeat(query, folder, tmp_path):
    sql = "select a.k, b.k, a.k as k_2 from t a join t b on a.k = b.k where a.k = 1"
    assert query(sql, folder, "--format", "csv")[1] == "k,k,k_2\n1,1,1\n"
    assert json.loads(query(sql, folder, "--format", "json")[1]) == [{"k": 1, "k_3": 1, "k_2": 1}]
    path = tmp_path / "answer.parquet"
    assert query(sql, folder, "--format", "parquet", "-o", path)[0] == 0
    assert pq.read_table(path).to_pylist() == [{"k": 1, "k_3": 1, "k_2": 1}]
    assert query(sql, folder)[1].splitlines()[0].split() == ["k", "k", "k_2"]


def test_a_folder_of_files_is_a_table(query, folder):
    assert query("select count(*) as n from u", folder, "--format", "csv")[1] == "n\n2\n"


def test_a_report_says_where_everything_ran(nothing_learned, query, folder, tmp_path):
    path = tmp_path / "report.json"
    code, _, _ = query("select sum(k) as s from t", folder, "--mode", "cop", "--report", path)
    assert code == 0
    report = json.loads(path.read_text())
    assert report["mode"] == "cop"
    assert set(report["seconds"]) >= {"plan", "total"}
    (stage,) = report["stages"]
    assert set(stage) >= {"id", "mode", "reason", "predicted_s", "actual_s", "devices", "retries", "fallbacks"}
    assert stage["mode"] == "EXEC_COP"
    for device in stage["devices"]:
        assert set(device) >= {"worker", "kind", "engine", "chunks", "rows", "bytes_read", "seconds"}
    assert sum(device["rows"] for device in stage["devices"]) == 3
    assert "peak_device_bytes" in report


def test_a_shipped_plan_and_a_substrait_file(call, one_worker, tpch_folder):
    options = ("--data", tpch_folder, "--cluster", one_worker.address, "--format", "csv")
    code, by_name, _ = call("run", "tpch/q03", *options)
    assert code == 0
    assert by_name.splitlines()[0] == "l_orderkey,revenue,o_orderdate,o_shippriority"
    assert call("run", "tpch/q03.json", *options)[1] == by_name


def test_explain_shows_stages_and_reasons(call, one_worker, tpch_folder):
    options = ("--data", tpch_folder, "--cluster", one_worker.address)
    code, text, _ = call("explain", "tpch/q03", *options, "--mode", "cpu")
    assert code == 0
    for part in ("mode cpu", "EXEC_CPU (cpu)", "lineitem", "join", "inlined", "estimated"):
        assert part in text
    assert "actual" not in text
    code, text, _ = call("explain", "tpch/q03", *options, "--mode", "gpu", "--analyze")
    assert code == 0
    assert "EXEC_GPU (simulated gpu)" in text
    assert "actual 10 rows" in text
    code, text, _ = call("explain", "tpch/q01", *options, "--format", "json", "--analyze")
    stage = json.loads(text)["stages"][-1]
    assert code == 0
    assert stage["mode"].startswith("EXEC_")
    assert stage["reason"]
    assert stage["actual"]["output_rows"] == 4


def test_devices_lists_every_worker(call, one_worker):
    code, out, _ = call("devices", "--cluster", one_worker.address)
    assert code == 0
    assert "simulated gpu" in out
    assert "(2 rows)" in out


def test_ssb_data_is_made(call, tmp_path):
    code, out, _ = call("ssb", "generate", "--sf", "0.001", "--out", tmp_path / "made")
    assert code == 0
    assert "5 tables" in out
    assert (tmp_path / "made" / "lineorder.parquet").is_file()
    code, _, err = call("ssb", "generate", "--sf", "0", "--out", tmp_path / "none")
    assert code == 2
    assert "scale factor" in err


def test_tpch_data_is_made(call, tmp_path):
    code, out, _ = call("tpch", "generate", "--sf", "0.001", "--out", tmp_path / "made", "--tables", "nation,region")
    assert code == 0
    assert "scale factor 0.001" in out
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["nation.parquet", "region.parquet"]


def test_timestamps_in_nanoseconds_and_other_values_as_text():
    out = io.StringIO()
    table = pa.table(
        {
            "at": pa.array([1_600_000_000_123_456_789], pa.timestamp("ns")),
            "flag": [True],
            "raw": [b"\x00\xff"],
            "big": pa.array([Decimal("1E+5")], pa.decimal128(10, 0)),
        }
    )
    write_answer(table, "csv", None, out)
    assert out.getvalue() == "at,flag,raw,big\n2020-09-13T12:26:40.123456789,true,AP8=,100000\n"


def test_a_long_table_is_cut_on_the_terminal_only(tmp_path):
    out = io.StringIO()
    table = pa.table({"x": list(range(1000))})
    write_answer(table, "table", None, out)
    assert len(out.getvalue().splitlines()) == 44
    assert "960 more rows" in out.getvalue()
    write_answer(table, "table", tmp_path / "whole.txt", out)
    assert len((tmp_path / "whole.txt").read_text().splitlines()) == 1003


def test_names_stay_unique_when_numbers_clash():
    assert unique_names(["a", "a", "a_2", "a"]) == ["a", "a_3", "a_2", "a_4"]


# --- what can be wrong -----------------------------------------------------------------------------------------------

BAD_SQL = {
    "syntax": ("select k frm t where", 2, ("line 1", "column")),
    "syntax on line 2": ("select k\nfrom t wher k = 1 (", 2, ("line 2", "column")),
    "unknown table": ("select * from tt", 2, ("table tt", "mean t?")),
    "unknown column": ("select kk from t", 2, ("kk",)),
    "ambiguous column": ("select k from t a join t b on a.k = b.k", 2, ("k",)),
    "unknown function": ("select foo(k) from t", 2, ("foo",)),
    "unsupported function": ("select nth_value(x, 2) from t", 2, ("nth_value",)),
    "unsupported node": ("select k from t where (k in (select x from t)) is null", 2, ()),
    "no text": ("", 2, ()),
    "not a query": ("drop table t", 2, ()),
    "division by zero": ("select 1 / (k - k) as q from t", 1, ("zero",)),
    "cast": ("select cast(s as int) as i from t", 1, ("cast",)),
    "overflow": ("select sum(k * 9223372036854775807) as s from t", 1, ()),
}


@pytest.mark.parametrize("case", BAD_SQL)
def test_bad_sql_is_one_clear_line(query, folder, case):
    sql, wanted, words = BAD_SQL[case]
    code, out, err = query(sql, folder)
    assert (code, out) == (wanted, ""), err
    first = err.splitlines()[0]
    assert first.startswith("error: ")
    assert len(first) > len("error: ") + 10
    assert "Traceback" not in err
    for word in words:
        assert word.lower() in first.lower()


def truncated(folder):
    whole = io.BytesIO()
    pq.write_table(pa.table({"x": list(range(1000))}), whole)
    (folder / "bad.parquet").write_bytes(whole.getvalue()[:-20])


def text_file(folder):
    (folder / "bad.parquet").write_text("this is no Parquet\n")


def empty_file(folder):
    (folder / "bad.parquet").write_bytes(b"")


def other_schemas(folder):
    (folder / "bad").mkdir()
    pq.write_table(pa.table({"x": [1], "y": [1]}), folder / "bad" / "first.parquet")
    pq.write_table(pa.table({"x": ["a"], "y": [1]}), folder / "bad" / "second.parquet")


BAD_DATA = {
    "truncated": (truncated, ("bad.parquet",)),
    "text": (text_file, ("bad.parquet",)),
    "empty file": (empty_file, ("bad.parquet",)),
    "empty folder": (lambda folder: None, ("no",)),
    "differing schemas": (other_schemas, ("first.parquet", "second.parquet", "x")),
}


@pytest.fixture
def no_cluster(monkeypatch):
    """Fail if a cluster is started."""
    monkeypatch.setattr("hybridq.deploy.start", lambda *_: pytest.fail("a cluster was started"))


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_is_one_clear_line_and_starts_no_cluster(no_cluster, call, tmp_path, case):
    make, words = BAD_DATA[case]
    make(tmp_path)
    code, out, err = call("run", "tpch/q01", "--data", tmp_path)
    assert (code, out) == (2, ""), err
    first = err.splitlines()[0]
    assert first.startswith("error: ")
    for word in words:
        assert word in first


def test_bad_data_of_one_table_is_an_error_of_its_own_queries(call, query, folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    text_file(tmp_path)
    options = (tmp_path, "--follow-links", "--format", "csv")
    assert query("select count(*) as n from t", *options) == (0, "n\n3\n", "")
    for sql in ("select * from bad", "select t.k from t join BAD on true"):
        code, out, err = query(sql, *options)
        assert (code, out) == (2, "")
        (line,) = err.splitlines()
        assert line.startswith(f"error: table 'bad': {tmp_path}/bad.parquet is not a Parquet file")
    code, out, err = call("tables", "--data", tmp_path, "--follow-links")
    assert (code, err) == (0, "")
    first, second, last = out.splitlines()[2:5]
    assert (first.split(), second.split()) == (["t", "3", "5", "ok"], ["u", "2", "2", "ok"])
    assert last.split()[:3] == ["bad", "NULL", "NULL"]
    assert "cannot be read: table 'bad'" in last


def test_a_missing_folder(call, tmp_path):
    code, _, err = call("run", "tpch/q01", "--data", tmp_path / "nowhere")
    assert code == 2
    assert err.startswith("error: ")
    assert "nowhere" in err.splitlines()[0]


def test_a_file_that_breaks_after_it_was_registered(one_worker, tmp_path):
    from hybridq.errors import HybridqError
    from hybridq.session import connect

    path = tmp_path / "late.parquet"
    pq.write_table(pa.table({"x": list(range(100_000))}), path)
    with connect(one_worker.address) as session:
        session.register("late", path)
        query = session.sql("select sum(x) as s from late")
        content = bytearray(path.read_bytes())
        content[100:4000] = b"\x00" * 3900
        path.write_bytes(bytes(content))
        with pytest.raises(HybridqError, match=r"late\.parquet"):
            query.collect()


def test_a_forced_gpu_where_there_is_none(call, without_gpu, tpch_folder):
    for mode in ("gpu", "cop"):
        options = ("--data", tpch_folder, "--cluster", without_gpu.address, "--mode", mode)
        code, out, err = call("run", "tpch/q06", *options)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert "gpu" in err.splitlines()[0].lower()


def test_an_address_where_no_scheduler_is(call, tpch_folder, monkeypatch):
    monkeypatch.setenv("HYBRIDQ_CONNECT_TIMEOUT", "60")
    start = time.perf_counter()
    code, _, err = call("run", "tpch/q06", "--data", tpch_folder, "--cluster", "tcp://127.0.0.1:9")
    assert code == 1
    assert err == "error: no scheduler answered at tcp://127.0.0.1:9: nothing listens there (connection refused)\n"
    assert time.perf_counter() - start < 30


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 400 Bad request syntax\r\n\r\n"], ids=["silence", "HTTP"])
def test_an_address_where_something_else_answers(tpch_folder, answer):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(200)
        opened = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    opened.append(server.accept()[0])
                    opened[-1].sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        command = (*COMMAND, "run", "tpch/q06", "--data", tpch_folder, "--cluster", address)
        environment = ENVIRONMENT | {"HYBRIDQ_CONNECT_TIMEOUT": "2"}
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert run.returncode == 1
    (line,) = run.stderr.splitlines()
    assert line.startswith(f"error: no scheduler answered at {address} within 2 s: ")
    assert "does not speak Dask's protocol" in line or "closed" in line.lower()


def test_the_address_of_a_worker(call, tpch_folder, one_worker):
    device = one_worker.devices()[0]
    code, _, err = call("run", "tpch/q06", "--data", tpch_folder, "--cluster", device.address)
    assert code == 1
    assert err == f"error: at {device.address} is no Dask scheduler, but a worker\n"


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("select k frm t where", "line 1"),
        ("select * from tt", "there is no table tt"),
        ("select kk from t", "there is no column kk"),
        ("select foo(k) from t", "the function foo is not supported"),
        ("select i, count(*) from u group by i", "list"),
    ],
)
def test_a_wrong_query_starts_no_cluster(no_cluster, call, monkeypatch, tmp_path, sql, word):
    pq.write_table(pa.table({"k": [1]}), tmp_path / "t.parquet")
    pq.write_table(pa.table({"i": [[1]]}), tmp_path / "u.parquet")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(sql.encode())))
    code, out, err = call("run", "-", "--data", tmp_path)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert word in line


def test_files_that_cannot_be_written_start_no_cluster(no_cluster, call, folder, tmp_path):
    long_name = tmp_path / ("x" * 300)
    for options, words in (
        (("-o", tmp_path), "it is a folder"),
        (("--report", tmp_path / "no" / "report.json"), "does not exist"),
        (("-o", long_name), "cannot write"),
        (("-o", tmp_path / "a", "--report", tmp_path / "a"), "both the answer and the report"),
    ):
        code, out, err = call("run", "tpch/q01", "--data", folder, *options)
        assert (code, out) == (2, "")
        (line,) = err.splitlines()
        assert words in line


@pytest.mark.parametrize(
    ("suffix", "content"),
    [("json", b"{]"), ("json", b'{"a": 1}'), ("bin", b"\x00\x01rubbish"), ("json", b""), ("bin", b"")],
)
def test_a_substrait_file_that_is_none(call, one_worker, folder, tmp_path, suffix, content):
    path = tmp_path / f"plan.{suffix}"
    path.write_bytes(content)
    code, _, err = call("run", path, "--data", folder, "--cluster", one_worker.address)
    assert code == 2
    assert err.startswith("error: ")
    assert "Substrait" in err.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("run", "tpch/q3", "--data", "."), "tpch/q03"),
        (("run", "tpch/q03"), "--data"),
        (("run", "tpch/q03", "--data", ".", "--mode", "fast"), "mode"),
        (("run", "tpch/q03", "--data", ".", "--format", "parquet"), "-o FILE"),
        (("run", "tpch/q03", "--data", ".", "-o", "/nowhere/at/all.csv"), "/nowhere/at"),
        (("run", "tpch/q03", "--nonsense"), "--nonsense"),
        (("tpch", "generate", "--sf", "-1", "--out", "x"), "scale factor"),
        (("cluster", "start", "nowhere.yaml"), "nowhere.yaml"),
        (("nonsense",), "nonsense"),
        (("run", "tpch/q03", "--data", ".", "--mode", "fast"), "for '--mode': 'fast' is not one of"),
        (("run", ".", "--data", "."), "is a folder"),
        (("devices", "--cluster", "localhost:8786"), "tcp://localhost:8786"),
    ],
)
def test_bad_usage_is_one_clear_line(call, arguments, word):
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert word in err.splitlines()[0]


def test_debug_shows_the_traceback(call, monkeypatch, tmp_path):
    monkeypatch.setenv("HYBRIDQ_DEBUG", "1")
    code, _, err = call("run", "tpch/q01", "--data", tmp_path / "nowhere")
    assert code == 2
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("error: ")


# --- as a process of its own -----------------------------------------------------------------------------------------

COMMAND = (sys.executable, "-c", "from hybridq.cli import main; main()")

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parent.parent)}


def test_it_runs_as_a_process_from_any_folder(folder, tmp_path):
    command = (*COMMAND, "run", "-", "--data", folder, "--format", "csv")
    run = subprocess.run(
        command,
        input="select count(*) as n from t",
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "n\n3\n", "")


def test_it_runs_as_a_module(tmp_path):
    command = [sys.executable, "-m", "hybridq", "plans", "--nonsense"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("error: ")


def test_a_reader_that_goes_away_is_no_traceback(folder, one_worker):
    command = (
        " ".join(COMMAND[:2]) + f" '{COMMAND[2]}' run - --data {folder} --cluster {one_worker.address} --format csv"
    )
    sql = "select a.k from t a, t b where a.k = b.k"
    run = subprocess.run(
        ["bash", "-c", f"echo '{sql}' | {command} | true"], capture_output=True, text=True, timeout=200, check=False
    )
    assert run.stderr == ""


FULL_DISK = (1, "error: cannot write the answer: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_a_full_disk_behind_standard_output(query, folder, monkeypatch, form):
    with contextlib.suppress(OSError), Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code, _, err = query("select k from t", folder, "--format", form)
    assert (code, err) == FULL_DISK


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_says_nothing_more_as_the_process_ends(folder, one_worker):
    arguments = ("run", "-", "--data", folder, "--cluster", one_worker.address, "--format", "csv")
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            (*COMMAND, *arguments),
            input="select k from t",
            env=ENVIRONMENT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=200,
            check=False,
        )
    assert (run.returncode, run.stderr) == FULL_DISK


def test_a_cluster_is_served_until_interrupted(call, folder):
    process = subprocess.Popen(
        (*COMMAND, "cluster", "start", "cluster/simulated.yaml"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("tcp://")
        assert "simulated gpu" in call("devices", "--cluster", address)[1]
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert "Traceback" not in err


def test_ctrl_c_ends_a_query_with_130(tpch_folder, one_worker, tmp_path):
    # Chunks of single row groups with the slowest join there is: far longer than the signal takes to come.
    sql = "select sum(a.l_tax) as s from lineitem a join lineitem b on a.l_linenumber = b.l_linenumber"
    (tmp_path / "long.sql").write_text(sql)
    environment = {**ENVIRONMENT, "HYBRIDQ_CHUNK_UNITS": "1"}
    process = subprocess.Popen(
        (*COMMAND, "run", tmp_path / "long.sql", "--data", tpch_folder, "--cluster", one_worker.address),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        # A test run in the background passes on that interrupts are ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 200
    while not any(one_worker._connection._client.processing().values()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "error: interrupted"
