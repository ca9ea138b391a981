"""Every ``.slt`` file of this folder, and the runner itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from .sqllogic import FormatError, parse, run_file

FILES = sorted(Path(__file__).parent.glob("*.slt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file(path, tmp_path):
    records, wrong = run_file(path, tmp_path)
    assert records > 0
    assert not wrong, "\n".join(wrong)


def run(text, tmp_path):
    path = tmp_path / "made.slt"
    path.write_text(text)
    return run_file(path, tmp_path)


TABLE = "statement ok\ncreate table t as select * from (values (1, 'a'), (2, NULL), (3, '')) v(x, s)\n\n"


def test_a_right_file_has_nothing_wrong(tmp_path):
    text = TABLE + "query IT rowsort\nselect x, s from t\n----\n3\t(empty)\n1\ta\n2\tNULL\n\nhalt\n\nnonsense\n"
    assert run(text, tmp_path) == (2, [])


@pytest.mark.parametrize(
    ("record", "what"),
    [
        ("query I nosort\nselect x from t order by x desc\n----\n1\n2\n3\n", "another order"),
        ("query I rowsort\nselect x from t\n----\n1\n2\n", "3 rows for 2"),
        ("query T rowsort\nselect x from t\n----\n1\n2\n3\n", "types int32, not T"),
        ("query R nosort\nselect sum(x) / 4.0 as q from t\n----\n1.6\n", "missing"),
        ("statement error nothing\nselect y from t\n", "fails with UnknownColumn"),
        ("statement error nothing\nselect x from t\n", "no error"),
        ("onlyif duckdb\nquery I nosort\nselect count(*) from t\n----\n4\n", "DuckDB"),
        ("query I nosort\nselect count(*) from t\n", "no rows are given"),
        ("query I nosort a\nselect 1 as x\n----\n1\n\nquery I nosort a\nselect 2 as x\n----\n2\n", "label"),
    ],
)
def test_what_is_wrong_is_told(record, what, tmp_path):
    _, wrong = run(TABLE + record, tmp_path)
    assert any(what in each for each in wrong), wrong
    assert all(each.startswith("made.slt:") for each in wrong)


def test_skipped_records_are_not_run(tmp_path):
    text = TABLE + "skipif duckdb\nskipif hybridq\nquery I nosort\nselect nonsense\n----\n1\n"
    assert run(text, tmp_path) == (2, [])


def test_what_is_no_record_is_an_error():
    with pytest.raises(FormatError):
        list(parse("quary I nosort\nselect 1\n"))
    with pytest.raises(FormatError):
        list(parse("query X nosort\nselect 1\n"))
