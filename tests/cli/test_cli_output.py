"""What the command prints and writes."""

from __future__ import annotations

import csv
import io
import json
import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybridq.output import unique_names, write_answer


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


@pytest.mark.parametrize("name", ["answer.xyz", "answer", "answer.parq"])
def test_a_name_that_says_no_format_is_refused(query, folder, tmp_path, name):
    path = tmp_path / name
    code, out, err = query("select k from t", folder, "-o", path)
    assert (code, out, path.exists()) == (2, "", False)
    endings, option = r"\.csv, \.json, \.parquet or \.txt", r"--format table\|csv\|json\|parquet"
    assert re.fullmatch(rf"error: the name of \S*{name} says no format: end it in {endings}, or add {option}\n", err)
    assert query("select count(*) as n from t", folder, "-o", path, "--format", "csv") == (0, "", "")
    assert path.read_text() == "n\n3\n"


def test_a_text_file_has_the_table(query, folder, tmp_path):
    assert query("select k from t where k = 1", folder, "-o", tmp_path / "a.txt") == (0, "", "")
    assert (tmp_path / "a.txt").read_text().split() == ["k", "-", "1", "(1", "row)"]


def test_an_explanation_has_the_format_of_its_file(call, folder, tmp_path, one_worker):
    sql = tmp_path / "q.sql"
    sql.write_text("select k from t")
    for name, begin in (("p.html", "<!"), ("p.json", "{"), ("p.txt", "mode auto")):
        options = ("--data", folder, "--cluster", one_worker.address, "-o", tmp_path / name)
        assert call("explain", sql, *options) == (0, "", "")
        assert (tmp_path / name).read_text().startswith(begin)


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


def test_keys_of_folders_are_columns(query, call, tmp_path):
    for year in (2020, 2021):
        (tmp_path / "sales" / f"year={year}").mkdir(parents=True)
        pq.write_table(pa.table({"x": [year, 1]}), tmp_path / "sales" / f"year={year}" / "1.parquet")
    code, out, err = query("select year, sum(x) as x from sales group by year order by 1", tmp_path, "--format", "csv")
    assert (code, out, err) == (0, "year,x\n2020,2021\n2021,2022\n", "")
    code, out, err = call("tables", "--data", tmp_path)
    assert (code, err) == (0, "")
    assert out.splitlines()[2].split() == ["sales", "4", "2", "ok"]


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
