"""What to write instead of functions and clauses that other databases have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_PARTS = ("year", "month", "day", "hour", "minute", "second", "quarter", "week")

FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        **{part: f"EXTRACT({part.upper()} FROM x)" for part in _PARTS},
        "dayofweek": "EXTRACT(DOW FROM x)", "weekday": "EXTRACT(ISODOW FROM x)", "dayofyear": "EXTRACT(DOY FROM x)",
        "dayofmonth": "EXTRACT(DAY FROM x)", "weekofyear": "EXTRACT(WEEK FROM x)", "epoch": "EXTRACT(EPOCH FROM x)",
        "unix_timestamp": "to_unixtime(x)",
        "date_diff": "b - a (days, of dates; EXTRACT(EPOCH FROM b - a) gives seconds, of timestamps)",
        "datediff": "b - a (days, of dates; EXTRACT(EPOCH FROM b - a) gives seconds, of timestamps)",
        "timestampdiff": "EXTRACT(EPOCH FROM b - a)", "age": "b - a",
        "date_add": "x + INTERVAL '1 day'", "dateadd": "x + INTERVAL '1 day'", "date_sub": "x - INTERVAL '1 day'",
        "add_months": "x + INTERVAL '1 month'",
        "last_day": "date_trunc('month', x) + INTERVAL '1 month' - INTERVAL '1 day'",
        "strftime": "to_char(x, '%Y-%m-%d')", "strptime": "to_timestamp(x, '%Y-%m-%d')", "getdate": "now()",
        "time_bucket": "date_bin(INTERVAL '15 minutes', x)",
        "if": "CASE WHEN a THEN b ELSE c END", "iif": "CASE WHEN a THEN b ELSE c END",
        "isnull": "x IS NULL, or coalesce(a, b)", "zeroifnull": "coalesce(x, 0)",
        "mod": "a % b", "div": "a / b, of integers", "len": "length(x)", "strlen": "octet_length(x)",
        "ucase": "upper(x)", "lcase": "lower(x)", "mid": "substring(x, 1, 2)", "charindex": "strpos(x, part)",
        "locate": "strpos(x, part)", "prefix": "starts_with(x, part)", "suffix": "ends_with(x, part)",
        "string_split": "string_to_array(x, ',')", "str_split": "string_to_array(x, ',')",
        "split": "string_to_array(x, ',')", "format": "concat(a, b)", "hex": "encode(x, 'hex')",
        "base64": "encode(x, 'base64')", "unhex": "decode(x, 'hex')", "from_base64": "decode(x, 'base64')",
        "regexp_matches": "regexp_like(x, 'pattern')", "rlike": "regexp_like(x, 'pattern')",
        "regexp_extract": "(regexp_match(x, 'pattern'))[1]", "regexp_substr": "(regexp_match(x, 'pattern'))[1]",
        "approx_count_distinct": "approx_distinct(x)", "group_concat": "string_agg(x, ',')",
        "listagg": "string_agg(x, ',' ORDER BY x)", "list": "array_agg(x)", "count_if": "count(*) FILTER (WHERE x)",
        "countif": "count(*) FILTER (WHERE x)", "sum_if": "sum(x) FILTER (WHERE y)", "every": "bool_and(x)",
        "arg_max": "first_value(x ORDER BY y DESC NULLS LAST)", "max_by": "first_value(x ORDER BY y DESC NULLS LAST)",
        "arg_min": "first_value(x ORDER BY y)", "min_by": "first_value(x ORDER BY y)",
        "quantile": "quantile_disc(x, 0.5)", "to_number": "CAST(x AS DECIMAL(18, 2))",
        "list_value": "[a, b]",
    }
)  # fmt: skip
"""What may be written for functions that there are not."""

CLAUSES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), words)
    for pattern, words in (
        (r"\bpivot\b", "PIVOT is not supported: write an aggregate with FILTER (WHERE ...) for each column"),
        (r"\bunpivot\b", "UNPIVOT is not supported: write a SELECT for each column, with UNION ALL between them"),
        (r"\*\s*(exclude|except|replace|rename)\b", r"SELECT * with other words is not supported: name the columns"),
        (
            r"\border\s+by\s+all\b",
            "ORDER BY ALL is not supported: name the columns, or write ORDER BY 1, 2",
        ),
        (r"\bselect\s+top\b", "TOP is not supported: write LIMIT at the end"),
        (r"\blimit\s+\d+\s*,", "LIMIT with two numbers is not supported: write LIMIT rows OFFSET first"),
        (
            r"\bbetween\s+symmetric\b",
            "BETWEEN SYMMETRIC is not supported: write BETWEEN least(a, b) AND greatest(a, b)",
        ),
        (r"\bcollate\b", "COLLATE is not supported: strings are compared by code point"),
        (r"\blateral\b", "this LATERAL subquery is not supported: try a join, and row_number() in place of LIMIT"),
        (r"//", "// is not supported: / of integers gives an integer"),
        (r"\*\*", "** is not supported: write power(a, b)"),
        (
            r"\bexclude\s+(current|group|ties|no)\b",
            "EXCLUDE in a window frame is not supported: two windows, or CASE, may give the same",
        ),
        (r"\basof\b", "ASOF joins are not supported: try a join on >= and row_number()"),
        (r"\bmatch_recognize\b", "MATCH_RECOGNIZE is not supported"),
    )
)
"""What to say where a text with such words cannot be planned."""


NEAR = 8
"""Characters between a clause and the place at which the parser stumbles over it."""

_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


def function_hint(name: str) -> str:
    """Return the end of a message on a function that there is not: what to write instead, where that is known.

    >>> function_hint("len"), function_hint("soundex")
    (': write length(x)', '')
    """
    return f": write {FUNCTIONS[name]}" if name in FUNCTIONS else ""


def clause_hint(text: str, offset: int | None = None) -> str | None:
    """Return what to say of a clause that the text, which cannot be planned, has; ``None``: nothing is known.

    Parameters
    ----------
    text : str
    offset : int, optional
        Where the text is wrong; only a clause at that place counts.

    >>> clause_hint("select * exclude (a) from t", 9)
    'SELECT * with other words is not supported: name the columns'
    """
    bare = _QUOTED.sub(lambda match: " " * len(match[0]), text)
    for pattern, words in CLAUSES:
        for match in pattern.finditer(bare):
            if offset is None or match.start() - NEAR <= offset <= match.end() + NEAR:
                return words
    return None
