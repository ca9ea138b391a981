"""Strings by value: storage forms, dictionaries that differ between chunks, patterns, order by code point."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from .conftest import MODES, in_order, rows

FORMS = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()))


def strings(*values):
    return pa.array(values, pa.string())


def test_files_with_other_storage_forms_are_one_table(single_units, tmp_path):
    folder = tmp_path / "words"
    folder.mkdir()
    for number, form in enumerate(FORMS):
        values = strings("a", None, "é") if form == pa.string_view() else strings("a", "b", "é")
        column = values.cast(form) if not pa.types.is_dictionary(form) else values.dictionary_encode()
        pq.write_table(pa.table({"s": column}), folder / f"{number}.parquet")
    single_units.register("words", folder)
    for mode in MODES:
        answer = single_units.sql("select s, count(*) as n from words group by s").collect(mode=mode).to_arrow()
        assert answer.schema.types[0] == pa.string()
        assert rows(answer) == [("a", 4), ("b", 3), ("é", 4), (None, 1)]


def test_dictionaries_that_differ_between_chunks(single_units, tmp_path):
    chunks = (["a", "b", "a"], ["c", "b"], ["c", None])
    for number, values in enumerate(chunks):
        pq.write_table(pa.table({"s": strings(*values).dictionary_encode()}), tmp_path / f"{number}.parquet")
    single_units.register("coded", [tmp_path / f"{number}.parquet" for number in range(3)])
    for mode in MODES:
        answer = single_units.sql("select s, count(*) as n from coded group by s").collect(mode=mode).to_arrow()
        assert rows(answer) == [("a", 2), ("b", 2), ("c", 2), (None, 1)]
        answer = single_units.sql("select s from coded order by s desc nulls last limit 3").collect(mode=mode)
        assert in_order(answer.to_arrow()) == [("c",), ("c",), ("b",)]


def test_dictionaries_in_memory(single_units):
    table = pa.table({"s": strings("x", "y").dictionary_encode(), "n": [1, 2]})
    single_units.register("mem", table)
    answer = single_units.sql("select s, n from mem where s = 'y'").collect(mode="cop").to_arrow()
    assert in_order(answer) == [("y", 2)]
    assert answer.schema.types[0] == pa.string()


def test_an_empty_string_is_not_null(ask):
    t = pa.table({"s": strings("", None, "a")})
    assert rows(ask("select s from t where s = ''", t=t)) == [("",)]
    assert rows(ask("select count(*) as n, count(s) as c from t", t=t)) == [(3, 2)]
    assert rows(ask("select s from t where s is null", t=t)) == [(None,)]


def test_like_with_wildcards_and_escapes(ask):
    t = pa.table({"s": strings("abc", "a%c", "a_c", "axxc", "ABC", None, "a\nc")})
    assert rows(ask("select s from t where s like 'a_c'", t=t)) == rows(pa.table({"s": ["abc", "a%c", "a_c", "a\nc"]}))
    assert rows(ask(r"select s from t where s like 'a\_%'", t=t)) == [("a_c",)]
    assert rows(ask(r"select s from t where s like 'a\%c'", t=t)) == [("a%c",)]
    assert rows(ask("select s from t where s not like 'a%'", t=t)) == [("ABC",)]
    assert rows(ask("select s from t where s like '%x%x%'", t=t)) == [("axxc",)]


def test_strings_are_ordered_by_code_point(ask):
    values = ["Z", "a", "é", "z", "Ω", "🂡", "\uffff", "B"]
    t = pa.table({"s": strings(*values)})
    assert [s for (s,) in in_order(ask("select s from t order by s", t=t))] == sorted(values)
    assert in_order(ask("select min(s) as lo, max(s) as hi from t", t=t)) == [("B", "🂡")]


def test_joins_of_strings(ask):
    left, right = pa.table({"s": strings("a", "é", "", None)}), pa.table({"t": strings("é", "", None, "A")})
    assert rows(ask("select s from l join r on s = t", l=left, r=right)) == [("",), ("é",)]


def test_parts_of_strings(ask):
    t = pa.table({"s": strings("héllo", "", None)})
    answer = ask("select substring(s from 2 for 3) as x, substring(s from 1 for 1) as y from t", t=t)
    assert rows(answer) == rows(pa.table({"x": ["éll", "", None], "y": ["h", "", None]}))
