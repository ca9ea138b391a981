from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from engine_helpers import (
    BOOL,
    DATE,
    DOUBLE,
    INT,
    LONG,
    TEXT,
    call,
    cast,
    col,
    duck,
    lit,
    matching,
    money,
    project,
    values,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.engines.cpu import CpuEngine
from hybridq.errors import CastFailed, ExecutionError, Unsupported
from hybridq.plan.expressions import Case, In

NAN = float("nan")
TRUTH = [True, False, None]


def as_dictionary(table):
    return pa.table({name: table[name].combine_chunks().dictionary_encode() for name in table.column_names})


def plain(found):
    """NaN as text, so that it equals itself."""
    return ["NaN" if isinstance(value, float) and value != value else value for value in found]


# --- logic ---------------------------------------------------------------------------------------------------------


def test_three_valued_logic(engine):
    pairs = [(a, b) for a in TRUTH for b in TRUTH]
    table = pa.table({"a": pa.array([a for a, _ in pairs], BOOL), "b": pa.array([b for _, b in pairs], BOOL)})
    a, b = col("a", BOOL), col("b", BOOL)
    both = [False if False in pair else None if None in pair else True for pair in pairs]
    either = [True if True in pair else None if None in pair else False for pair in pairs]
    assert values(engine, call("and", a, b), table) == both
    assert values(engine, call("or", a, b), table) == either
    assert values(engine, call("not", a), table) == [None if x is None else not x for x, _ in pairs]
    for constant in TRUTH:
        literal = lit(constant, BOOL)
        expected = [False if False in (x, constant) else None if None in (x, constant) else True for x, _ in pairs]
        assert values(engine, call("and", literal, a), table) == expected
        expected = [True if True in (x, constant) else None if None in (x, constant) else False for x, _ in pairs]
        assert values(engine, call("or", a, literal), table) == expected


def test_tests_of_null_and_truth(engine):
    table = pa.table({"a": pa.array(TRUTH, BOOL)})
    expected = {
        "is_null": [False, False, True], "is_not_null": [True, True, False], "is_true": [True, False, False],
        "is_false": [False, True, False], "is_not_true": [False, True, True], "is_not_false": [True, False, True],
    }  # fmt: skip
    for function, wanted in expected.items():
        assert values(engine, call(function, col("a", BOOL)), table) == wanted, function
    texts = pa.table({"s": pa.array(["a", None, ""])})
    for table in (texts, as_dictionary(texts)):
        assert values(engine, call("is_null", col("s", TEXT)), table) == [False, True, False]


def test_is_distinct_from(engine):
    table = pa.table({"a": [1, None, 1, None], "b": [1, None, 2, 2]})
    assert values(engine, call("is_distinct_from", col("a"), col("b")), table) == [False, False, True, True]
    assert values(engine, call("is_not_distinct_from", col("a"), lit(None, LONG)), table) == [False, True, False, True]


def test_only_true_rows_pass_a_filter(engine):
    table = pa.table({"x": [1, None, 3]})
    assert matching(engine, table, call("greater", col("x"), lit(1))) == [(3,)]
    assert matching(engine, table, call("not", call("greater", col("x"), lit(1)))) == [(1,)]
    assert matching(engine, table, lit(None, BOOL)) == []
    assert len(matching(engine, table, lit(True))) == 3


def test_in_with_null(engine):
    table = pa.table({"x": pa.array([1, 2, None], LONG)})
    listed = In(BOOL, col("x"), (lit(1), lit(None, LONG)))
    assert values(engine, listed, table) == [True, None, None]
    assert matching(engine, table, call("not", listed)) == []
    assert values(engine, In(BOOL, col("x"), tuple(map(lit, range(2, 30)))), table) == [False, True, None]
    assert values(engine, In(BOOL, lit(None, LONG), (lit(1),)), table) == [None] * 3
    texts = pa.table({"s": pa.array(["a", "b", None, ""])})
    for table in (texts, as_dictionary(texts)):
        assert values(engine, In(BOOL, col("s", TEXT), (lit("a"), lit(""))), table) == [True, False, None, True]


# --- comparison ----------------------------------------------------------------------------------------------------


def test_nan_equals_itself_and_is_above_all_numbers(engine):
    numbers = [1.0, NAN, None, float("inf"), -0.0, 0.0]
    pairs = [(a, b) for a in numbers for b in numbers]
    table = pa.table({"a": pa.array([a for a, _ in pairs], DOUBLE), "b": pa.array([b for _, b in pairs], DOUBLE)})
    symbols = {"equal": "=", "not_equal": "<>", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
    for function, symbol in symbols.items():
        expected = duck(table, f"select a {symbol} b from t").fetchall()
        assert values(engine, call(function, col("a", DOUBLE), col("b", DOUBLE)), table) == [x for (x,) in expected]
    assert values(engine, call("is_null", col("a", DOUBLE)), table.slice(0, 13)) == [False] * 12 + [True]


def test_strings_compare_by_code_point(engine):
    texts = ["", "Z", "a", "aa", "é", "z", "￿", "😀", None]
    pairs = [(a, b) for a in texts for b in texts]
    table = pa.table({"a": pa.array([a for a, _ in pairs]), "b": pa.array([b for _, b in pairs])})
    expected = [None if a is None or b is None else a < b for a, b in pairs]
    for found in (table, as_dictionary(table)):
        assert values(engine, call("less", col("a", TEXT), col("b", TEXT)), found) == expected
        equal = [None if a is None or b is None else a == b for a, b in pairs]
        assert values(engine, call("equal", col("a", TEXT), col("b", TEXT)), found) == equal
        assert values(engine, call("greater", lit("a"), col("b", TEXT)), found) == [
            None if b is None else b < "a" for _, b in pairs
        ]


def test_decimals_of_different_scale_compare(engine):
    wide = pa.decimal128(38, 4)
    table = pa.table({
        "a": pa.array([Decimal("1.50"), Decimal("2.00"), Decimal("9999999999999.99")], money()),
        "b": pa.array([Decimal("1.5000"), Decimal("3.0000"), Decimal("1e30")], wide),
    })  # fmt: skip
    assert values(engine, call("equal", col("a", money()), col("b", wide)), table) == [True, False, False]
    assert values(engine, call("less", col("a", money()), col("b", wide)), table) == [False, True, True]
    assert values(engine, call("greater_equal", col("b", wide), lit(Decimal("3.0"))), table) == [False, True, True]


def test_dates_compare(engine):
    days = [datetime.date(1998, 9, 2), datetime.date(1998, 9, 3), None]
    table = pa.table({"d": pa.array(days, DATE)})
    assert values(engine, call("less_equal", col("d", DATE), lit(datetime.date(1998, 9, 2))), table) == [
        True,
        False,
        None,
    ]


# --- CASE and COALESCE ---------------------------------------------------------------------------------------------


def test_case(engine):
    table = pa.table({"x": [1, 2, 3, None], "s": ["a", "b", None, "d"]})
    one, two = call("equal", col("x"), lit(1)), call("equal", col("x"), lit(2))
    assert values(engine, Case(TEXT, ((one, lit("one")), (two, col("s", TEXT))), lit(None, TEXT)), table) == [
        "one", "b", None, None,
    ]  # fmt: skip
    # NULL as a condition is not true: the ELSE branch.
    assert values(engine, Case(LONG, ((one, lit(10)),), lit(0)), table) == [10, 0, 0, 0]
    assert values(engine, Case(LONG, ((lit(None, BOOL), lit(10)),), col("x")), table) == [1, 2, 3, None]
    assert values(engine, Case(LONG, ((lit(True), lit(10)),), col("x")), table) == [10] * 4
    amount = Case(pa.decimal128(38, 4), ((one, lit(Decimal("1.2345"))),), lit(Decimal("0.0000"), pa.decimal128(5, 4)))
    assert values(engine, amount, table) == [Decimal("1.2345"), *[Decimal("0.0000")] * 3]


def test_case_over_no_rows(engine):
    table = pa.table({"x": pa.array([], LONG)})
    assert values(engine, Case(LONG, ((call("equal", col("x"), lit(1)), lit(10)),), lit(0)), table) == []


def test_coalesce(engine):
    table = pa.table({"a": [None, 2, None], "b": [1, None, None]})
    assert values(engine, call("coalesce", col("a"), col("b"), lit(9), returns=LONG), table) == [1, 2, 9]
    assert values(engine, call("coalesce", lit(None, LONG), col("b"), returns=LONG), table) == [1, None, None]
    assert values(engine, call("coalesce", lit(None, TEXT), lit("x"), returns=TEXT), table) == ["x"] * 3
    texts = pa.table({"s": pa.array(["a", None])})
    for found in (texts, as_dictionary(texts)):
        assert values(engine, call("coalesce", col("s", TEXT), lit("?"), returns=TEXT), found) == ["a", "?"]


# --- strings -------------------------------------------------------------------------------------------------------

PATTERNS = [
    "",
    "%",
    "_",
    "a%",
    "%a",
    "%a%",
    "a_",
    "_a%",
    "%a%b%",
    "a%b",
    r"a\%",
    "%%a",
    "__",
    "é%",
    "%(%",
    "a.b",
    "%\n%",
]
TEXTS = ["", "a", "b", "ab", "ba", "aab", "a%", "a%b", "abab", "é", "éa", "a.b", "axb", "(a)", "a\nb", "\n", "\\", None]


@pytest.mark.parametrize("encode", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_like(engine, pattern, encode):
    table = pa.table({"s": TEXTS})
    expected = [x for (x,) in duck(table, "select s like ? escape '\\' from t", [pattern]).fetchall()]
    found = as_dictionary(table) if encode else table
    assert values(engine, call("like", col("s", TEXT), lit(pattern)), found) == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.text("ab%_é\n.", max_size=6), max_size=12), st.text("ab%_é\n.", max_size=5))
def test_like_matches_duckdb(texts, pattern):
    table = pa.table({"s": pa.array(texts, TEXT), "p": pa.array([pattern] * len(texts), TEXT)})
    expected = [x for (x,) in duck(table, "select s like p escape '\\' from t").fetchall()]
    assert values(CpuEngine(), call("like", col("s", TEXT), lit(pattern)), table) == expected
    assert values(CpuEngine(), call("like", col("s", TEXT), col("p", TEXT)), table) == expected


def test_contained_literals_of_any_length(engine):
    """Hits must not run over the borders of strings, and slices must not see their neighbours."""
    texts = ["abc", "ab", "cab", None, "", "abcabc", "xxabc", "a", "bc", "é abc é", "aabc"] * 40
    for storage in (pa.string(), pa.large_string()):
        array = pa.array(texts, storage)
        for start, size in ((0, len(texts)), (3, 100), (1, 1)):
            part = array.slice(start, size)
            for word in ("a", "ab", "abc", "abca", "é a", "zzz", "abcabcd"):
                expected = [None if text is None else word in text for text in part.to_pylist()]
                table = pa.table({"s": part})
                assert values(engine, call("like", col("s", TEXT), lit(f"%{word}%")), table) == expected, (word, start)
                ordered = [
                    None if text is None else word in text and "b" in text.split(word, 1)[1]
                    for text in part.to_pylist()
                ]
                assert values(engine, call("like", col("s", TEXT), lit(f"%{word}%b%")), table) == ordered, (word, start)


def test_like_with_another_escape(engine):
    table = pa.table({"s": ["a%b", "axb", "a\\b"]})
    assert values(engine, call("like", col("s", TEXT), lit("a!%b"), options=("escape", "!")), table) == [
        True,
        False,
        False,
    ]
    assert values(engine, call("like", col("s", TEXT), lit("a\\b"), options=("escape", "!")), table) == [
        False,
        False,
        True,
    ]
    with pytest.raises(ExecutionError, match="ends in its escape"):
        values(engine, call("like", col("s", TEXT), lit("a!"), options=("escape", "!")), table)


def test_ilike(engine):
    table = pa.table({"s": ["ABC", "abd", "É", None]})
    assert values(engine, call("ilike", col("s", TEXT), lit("aB%")), table) == [True, True, False, None]


@pytest.mark.parametrize("encode", [False, True])
def test_string_functions(engine, encode):
    table = pa.table({"s": ["héllo", "", "ABC", None]})
    table = as_dictionary(table) if encode else table
    s = col("s", TEXT)
    assert values(engine, call("upper", s, returns=TEXT), table) == ["HÉLLO", "", "ABC", None]
    assert values(engine, call("lower", s, returns=TEXT), table) == ["héllo", "", "abc", None]
    assert values(engine, call("length", s, returns=INT), table) == [5, 0, 3, None]
    assert values(engine, call("starts_with", s, lit("h")), table) == [True, False, False, None]
    assert values(engine, call("concat", s, lit("-"), s, returns=TEXT), table) == ["héllo-héllo", "-", "ABC-ABC", None]
    for arguments, expected in (
        ((1, 2), ["hé", "", "AB", None]), ((2,), ["éllo", "", "BC", None]), ((0, 2), ["h", "", "A", None]),
        ((-3,), ["héllo", "", "ABC", None]), ((9, 2), ["", "", "", None]), ((2, 0), ["", "", "", None]),
    ):  # fmt: skip
        cut = call("substring", s, *map(lit, arguments), returns=TEXT)
        assert values(engine, cut, table) == expected, arguments
    with pytest.raises(ExecutionError, match="negative length"):
        values(engine, call("substring", s, lit(1), lit(-1), returns=TEXT), table)


def test_substring_of_varying_length(engine):
    table = pa.table({"s": ["abcd", "abcd", None], "n": [1, 3, 2]})
    assert values(engine, call("substring", col("s", TEXT), lit(2), col("n"), returns=TEXT), table) == [
        "b",
        "bcd",
        None,
    ]


def test_string_storage_types_give_one_type(engine):
    for storage in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.large_string())):
        table = pa.table({"s": pa.array(["b", "", None, "b"]).cast(storage)})
        result = project(engine, table, s=col("s", TEXT), same=call("equal", col("s", TEXT), lit("b")))
        assert result.schema.types == [TEXT, BOOL], storage
        assert result.to_pydict() == {"s": ["b", "", None, "b"], "same": [True, False, None, True]}


def test_a_dictionary_with_repeats_and_nulls(engine):
    codes, dictionary = pa.array([0, 1, 2, 3, None], pa.int32()), pa.array(["a", "a", None, "b"])
    table = pa.table({"s": pa.DictionaryArray.from_arrays(codes, dictionary)})
    assert values(engine, call("equal", col("s", TEXT), lit("a")), table) == [True, True, None, False, None]


# --- dates ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [1, 1000])
def test_components_of_dates(engine, days):
    start = datetime.date(1995, 12, 29)
    dates = [*(start + datetime.timedelta(day) for day in range(days)), None, datetime.date(1969, 12, 31)]
    table = pa.table({"d": pa.array(dates, DATE)})
    for part in ("year", "quarter", "month", "day", "dow", "isodow", "doy", "week"):
        expected = [x for (x,) in duck(table, f"select extract({part} from d) from t").fetchall()]
        assert values(engine, call("extract", col("d", DATE), returns=INT, options=(part,)), table) == expected, part
    epoch = call("extract", col("d", DATE), returns=DOUBLE, options=("epoch",))
    assert values(engine, epoch, table)[-2:] == [None, -86400.0]


def test_components_of_timestamps(engine):
    moment = datetime.datetime(1996, 2, 29, 13, 45, 59, 250000)
    table = pa.table({"t": pa.array([moment, None], pa.timestamp("us"))})
    expected = {"year": 1996, "month": 2, "day": 29, "hour": 13, "minute": 45, "second": 59, "doy": 60}
    for part, value in expected.items():
        extract = call("extract", col("t", pa.timestamp("us")), returns=INT, options=(part,))
        assert values(engine, extract, table) == [value, None]


def test_an_unknown_function_or_component_is_named(engine):
    table = pa.table({"d": pa.array([datetime.date(2000, 1, 1)], DATE)})
    with pytest.raises(Unsupported, match="soundex"):
        values(engine, call("soundex", col("d", DATE), returns=TEXT), table)
    with pytest.raises(Unsupported, match="fortnight"):
        values(engine, call("extract", col("d", DATE), returns=INT, options=("fortnight",)), table)


# --- casts ---------------------------------------------------------------------------------------------------------

CASTS = [
    (TEXT, ["1", " 2 ", "-3", None, "x", "1.5", "99999999999"], INT, [1, 2, -3, None, *[CastFailed] * 3]),
    (TEXT, ["1.005", "-1.005", "1e2", "abc", None, "NaN"], money(), [
        Decimal("1.01"), Decimal("-1.01"), Decimal("100.00"), CastFailed, None, CastFailed]),
    (TEXT, ["1.5", "nan", "x", None], DOUBLE, [1.5, NAN, CastFailed, None]),
    (TEXT, ["1995-03-15", "nonsense", None], DATE, [datetime.date(1995, 3, 15), CastFailed, None]),
    (TEXT, ["true", "F", "maybe", None], BOOL, [True, False, CastFailed, None]),
    (LONG, [1, 2**31, None], INT, [1, CastFailed, None]),
    (LONG, [5, -(10**13), None], money(), [Decimal("5.00"), CastFailed, None]),
    (LONG, [2**53 + 1, None], TEXT, ["9007199254740993", None]),
    (DOUBLE, [2.5, 3.5, -2.5, 1e300, NAN, None], LONG, [2, 4, -2, CastFailed, CastFailed, None]),
    (DOUBLE, [0.125, 1e20, NAN, None], money(), [Decimal("0.13"), CastFailed, CastFailed, None]),
    (DOUBLE, [2.675, -2.675], money(), [Decimal("2.68"), Decimal("-2.68")]),
    (money(), ["1.50", "-1.50", "1.49", None], LONG, [2, -2, 1, None]),
    (money(), ["1.50", "-0.05", None], TEXT, ["1.50", "-0.05", None]),
    (money(), ["1.25", None], DOUBLE, [1.25, None]),
    (money(), ["1.25", "-1.25", "1.24"], pa.decimal128(10, 1), [Decimal("1.3"), Decimal("-1.3"), Decimal("1.2")]),
    (money(), ["999.99", "1.00"], pa.decimal128(4, 2), [CastFailed, Decimal("1.00")]),
    (pa.decimal128(38, 0), ["12345678901234567890123456789012345678"], pa.decimal128(38, 2), [CastFailed]),
    (pa.decimal128(38, 0), ["9223372036854775808", "-9223372036854775808"], LONG, [CastFailed, -(2**63)]),
    (BOOL, [True, False, None], INT, [1, 0, None]),
    (INT, [0, 7, None], BOOL, [False, True, None]),
    (DATE, [datetime.date(1969, 12, 31), None], pa.timestamp("us"), [datetime.datetime(1969, 12, 31), None]),
    (pa.timestamp("us"), [datetime.datetime(1969, 12, 31, 23, 59), None], DATE, [datetime.date(1969, 12, 31), None]),
    (DATE, [datetime.date(1995, 3, 5), None], TEXT, ["1995-03-05", None]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASTS, ids=lambda case: f"{case[0]} to {case[2]}")
def test_casts(engine, case):
    source, given_values, target, expected = case
    if pa.types.is_decimal(source):
        given_values = [None if value is None else Decimal(value) for value in given_values]
    column = col("x", source)
    for value, wanted in zip(given_values, expected, strict=True):
        table = pa.table({"x": pa.array([value], source)})
        if wanted is CastFailed:
            with pytest.raises(CastFailed, match="cast"):
                values(engine, cast(column, target), table)
        else:
            assert plain(values(engine, cast(column, target), table)) == plain([wanted])
            assert plain(values(engine, cast(lit(value, source), target), table)) == plain([wanted])
    table = pa.table({"x": pa.array(given_values, source)})
    lenient = [None if wanted is CastFailed else wanted for wanted in expected]
    assert plain(values(engine, cast(column, target, True), table)) == plain(lenient)


def test_a_cast_of_a_dictionary_ignores_unused_values(engine):
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["1", "not a number"]))
    table = pa.table({"s": dictionary})
    assert values(engine, cast(col("s", TEXT), LONG), table) == [1, 1]


def test_nan_and_null_stay_apart(engine):
    table = pa.table({"x": pa.array([1.0, NAN, None], DOUBLE)})
    assert plain(values(engine, cast(col("x", DOUBLE), pa.float32()), table)) == [1.0, "NaN", None]
