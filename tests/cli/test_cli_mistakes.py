"""Exit codes, and one clear line for everything that can be wrong with a request."""

from __future__ import annotations

import io
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
