"""Functions of strings and floats, in constant and in varying forms, beside DuckDB: on every engine."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from engine_helpers import BOOL, DOUBLE, INT, LONG, TEXT, call, col, duck, lit, values

TEXTS = ["", "a", "  padded  ", "Straße", "été", "日本語", "aXbXc", "xxabcxx", "\ttab\n", "100%", "aaa", None]
PARTS = ["a", "", " ", "ß", "é", "語", "X", "x", "\n", "%", "aa", "z"]
COUNTS = [0, 1, 2, 3, 1, 2, 0, 4, 5, None, 100, 1]
NUMBERS = [0.0, -0.0, 1.0, 2.25, -2.5, 1e300, 5e-324, math.nan, math.inf, -math.inf, 0.49999999999999994, None]
TABLE = pa.table(
    {
        "s": pa.array(TEXTS, TEXT),
        "p": pa.array(PARTS, TEXT),
        "n": pa.array(COUNTS, LONG),
        "f": pa.array(NUMBERS, DOUBLE),
    }
)
S, P, N, F = col("s", TEXT), col("p", TEXT), col("n"), col("f", DOUBLE)

CASES = {
    "contains(s, 'a')": call("contains", S, lit("a")),
    "contains(s, '')": call("contains", S, lit("")),
    "contains(s, p)": call("contains", S, P),
    "ends_with(s, 'xx')": call("ends_with", S, lit("xx")),
    "ends_with(s, '')": call("ends_with", S, lit("")),
    "ends_with(s, p)": call("ends_with", S, P),
    "trim(s)": call("trim", S, returns=TEXT),
    "ltrim(s, 'xa')": call("ltrim", S, lit("xa"), returns=TEXT),
    "rtrim(s, 'é語')": call("rtrim", S, lit("é語"), returns=TEXT),
    "trim(s, '')": call("trim", S, lit(""), returns=TEXT),
    "trim(s, p)": call("trim", S, P, returns=TEXT),
    "replace(s, 'X', '--')": call("replace", S, lit("X"), lit("--"), returns=TEXT),
    "replace(s, 'aa', 'é')": call("replace", S, lit("aa"), lit("é"), returns=TEXT),
    "replace(s, 'a', '')": call("replace", S, lit("a"), lit(""), returns=TEXT),
    "replace(s, '', 'y')": call("replace", S, lit(""), lit("y"), returns=TEXT),
    "replace(s, p, '<>')": call("replace", S, P, lit("<>"), returns=TEXT),
    "left(s, 2)": call("left", S, lit(2), returns=TEXT),
    "left(s, 0)": call("left", S, lit(0), returns=TEXT),
    "left(s, -1)": call("left", S, lit(-1), returns=TEXT),
    "left(s, n)": call("left", S, N, returns=TEXT),
    "left(s, 4000000000)": call("left", S, lit(4_000_000_000), returns=TEXT),
    "reverse(s)": call("reverse", S, returns=TEXT),
    "strlen(s)": call("octet_length", S, returns=INT),
    "sqrt(f)": call("sqrt", F, returns=DOUBLE),
    "floor(f)": call("floor", F, returns=DOUBLE),
    "ceil(f)": call("ceil", F, returns=DOUBLE),
    "isnan(f)": call("is_nan", F, returns=BOOL),
    "trim(null::varchar)": call("trim", lit(None, TEXT), returns=TEXT),
    "replace(s, null, 'a')": call("replace", S, lit(None, TEXT), lit("a"), returns=TEXT),
}


def comparable(found):
    """Floats by their text: NaN equals itself, and -0.0 is not 0.0."""
    return [repr(value) if isinstance(value, float) else value for value in found]


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("rows", ["all", "none", "dictionary"])
def test_as_duckdb(engine, text, rows):
    table = TABLE
    if rows == "none":
        table = TABLE.slice(0, 0)
    elif rows == "dictionary":
        table = TABLE.set_column(0, "s", TABLE["s"].dictionary_encode())
    expected = [row[0] for row in duck(table, f"select {text} from t").fetchall()]
    assert comparable(values(engine, CASES[text], table)) == comparable(expected)
