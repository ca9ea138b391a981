"""What queries may use: a feature is generated if hybridq answers its probe, so that new ones join by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from hybridq.errors import HybridqError, Unsupported
from hybridq.testing.in_process import connect_in_process

PROBE_TABLE = pa.table(
    {
        "int": pa.array([1], pa.int64()), "unsigned": pa.array([1], pa.uint32()), "float": pa.array([1.0]),
        "decimal": pa.array([1], pa.decimal128(9, 2)), "bool": pa.array([True]), "text": pa.array(["a"]),
        "date": pa.array([0], pa.date32()), "moment": pa.array([0], pa.timestamp("us")),
    }
)  # fmt: skip


@dataclass(frozen=True)
class Function:
    """A function of the generator.

    Attributes
    ----------
    kind : str
        Of the result.
    arguments : tuple of str
        Kinds of the arguments.
    text : str
        With ``{0}``... for the arguments.
    duckdb : str or None
        DuckDB's text where it differs.
    exact : bool
        The result has no rounding of floating-point numbers.
    tame : bool
        Arguments must be without extremes.
    """

    kind: str
    arguments: tuple[str, ...]
    text: str
    duckdb: str | None = None
    exact: bool = True
    tame: bool = False


def _functions(*rows: tuple[str, str, str] | tuple[str, str, str, str]) -> tuple[Function, ...]:
    return tuple(Function(row[0], tuple(row[1].split()), *row[2:]) for row in rows)


FUNCTIONS = (
    *_functions(
        ("int", "text", "character_length({0})", "length({0})"),
        ("int", "text text", "strpos({0}, {1})"),
        ("int", "date", "extract(year from {0})", "cast(extract(year from {0}) as bigint)"),
        ("int", "date", "extract(quarter from {0})", "cast(extract(quarter from {0}) as bigint)"),
        ("int", "date", "extract(month from {0})", "cast(extract(month from {0}) as bigint)"),
        ("int", "date", "extract(day from {0})", "cast(extract(day from {0}) as bigint)"),
        ("int", "date", "extract(doy from {0})", "cast(extract(doy from {0}) as bigint)"),
        ("int", "date", "extract(dow from {0})", "cast(extract(dow from {0}) as bigint)"),
        ("int", "moment", "extract(year from {0})", "cast(extract(year from {0}) as bigint)"),
        ("int", "moment", "extract(hour from {0})", "cast(extract(hour from {0}) as bigint)"),
        ("int", "moment", "extract(minute from {0})", "cast(extract(minute from {0}) as bigint)"),
        ("int", "bool", "cast({0} as integer)"),
        ("int", "decimal", "cast({0} as bigint)"),
        ("int", "int", "cast({0} as smallint)"),
        ("int", "int", "abs({0})"),
        ("int", "int", "cast(sign({0}) as bigint)"),
        ("int", "text text", "levenshtein({0}, {1})"),
        ("int", "text", "regexp_count({0}, 'b')", "length(regexp_extract_all({0}, 'b'))"),
        ("int", "text text", "cast(array_length([{0}, {1}, 'a']) as bigint)", "len([{0}, {1}, 'a'])"),
        (
            "int",
            "text",
            "cast(array_length(string_to_array({0}, 'b')) as bigint)",
            "CASE WHEN {0} <> '' THEN len(string_split({0}, 'b')) WHEN {0} = '' THEN 0 END",
        ),
        ("int", "int int", "cast(array_position([{0}, {1}, 1], 1) as bigint)", "list_position([{0}, {1}, 1], 1)"),
        ("int", "int int", "array_max([{0}, {1}, 0])", "list_max([{0}, {1}, 0])"),
        ("int", "int int", "array_element(array_sort([{0}, {1}, 0]), 2)", "list_extract(list_sort([{0}, {1}, 0]), 2)"),
        (
            "int",
            "int int",
            "array_element(array_distinct([{0}, 1, {1}]), 2)",
            "CASE WHEN {0} = 1 THEN CASE WHEN {1} = 1 THEN NULL ELSE {1} END ELSE 1 END",
        ),
        ("int", "text", "try_cast({0} as integer)"),
        ("int", "int int", "greatest({0}, {1})"),
        ("int", "int int", "least({0}, {1})"),
        ("float", "int", "cast({0} as double)"),
        ("float", "int", "({0} * 1e0)"),
        ("float", "decimal", "coalesce({0}, 2.5e-1)"),
        (
            "float",
            "float float",
            "array_element(array_sort([{0}, {1}], 'DESC'), 1)",
            "list_extract(list_sort([{0}, {1}], 'DESC', 'NULLS FIRST'), 1)",
        ),
        ("float", "decimal", "cast({0} as double)"),
        ("float", "float", "abs({0})"),
        ("float", "float", "floor({0})"),
        ("float", "float", "ceil({0})"),
        ("float", "float", "trunc({0})"),
        ("float", "float float", "greatest({0}, {1})"),
        ("float", "float float", "least({0}, {1})"),
        ("decimal", "decimal", "abs({0})"),
        ("decimal", "decimal", "cast({0} as decimal(18, 1))"),
        ("decimal", "int", "cast({0} as decimal(18, 2))"),
        ("decimal", "decimal", "round({0}, 1)"),
        ("decimal", "decimal", "floor(cast({0} as decimal(20, 4)))"),
        ("decimal", "decimal", "ceil(cast({0} as decimal(20, 4)))"),
        ("decimal", "decimal decimal", "greatest({0}, {1})"),
        ("text", "text", "upper({0})"),
        ("text", "text", "lower({0})"),
        ("text", "text", "trim({0})"),
        ("text", "text", "ltrim({0})"),
        ("text", "text", "rtrim({0})"),
        ("text", "text", "trim(both 'a' from {0})", "trim({0}, 'a')"),
        ("text", "text text", "replace({0}, 'b', {1})"),
        ("text", "text", "substring({0} from 2 for 2)"),
        ("text", "text", "substring({0} from 3)"),
        ("text", "text", "left({0}, 2)"),
        ("text", "text", "right({0}, 2)"),
        ("text", "text", "reverse({0})"),
        ("text", "text text", "({0} || {1})"),
        ("text", "text text", "concat({0}, '-', {1})"),
        ("text", "text", "lpad({0}, 4, '*')"),
        ("text", "text", "rpad({0}, 4, '*')"),
        ("text", "text", "repeat({0}, 2)"),
        ("text", "text", "split_part({0}, 'b', 1)"),
        ("text", "text", "md5({0})"),
        ("text", "text", "encode(sha256({0}), 'hex')", "sha256({0})"),
        ("text", "text", "encode({0}, 'base64')", "base64(encode({0}))"),
        (
            "text",
            "text text",
            "overlay({0} placing {1} from 2 for 1)",
            "(substring({0}, 1, 1) || {1} || substring({0}, 3))",
        ),
        (
            "text",
            "text",
            "array_element(regexp_match({0}, '([a-c]+)'), 1)",
            "nullif(regexp_extract({0}, '[a-c]+'), '')",
        ),
        (
            "text",
            "text",
            "array_element(string_to_array({0}, 'b'), 2)",
            "list_extract(CASE WHEN {0} <> '' THEN string_split({0}, 'b') END, 2)",
        ),
        ("text", "text text", "array_to_string([{0}, {1}], '-')", "coalesce(array_to_string([{0}, {1}], '-'), '')"),
        (
            "text",
            "text text",
            "array_to_string(array_concat([{0}], string_to_array({1}, 'a')), '+', '?')",
            "(coalesce({0}, '?') || CASE WHEN {1} <> '' THEN '+' || replace({1}, 'a', '+') ELSE '' END)",
        ),
        ("text", "int", "cast({0} as varchar)"),
        ("text", "date", "cast({0} as varchar)"),
        ("text", "bool", "cast({0} as varchar)"),
        ("text", "text text", "greatest({0}, {1})"),
        ("text", "moment", "to_char({0}, '%H:%M:%S')", "strftime({0}, '%H:%M:%S')"),
        ("float", "float float", "nanvl({0}, {1})", "CASE WHEN isnan({0}) THEN {1} ELSE {0} END"),
        ("bool", "text", "({0} LIKE 'a%')"),
        ("bool", "text", "({0} LIKE '%b_%')"),
        ("bool", "text", "({0} NOT LIKE '_')"),
        ("bool", "text", r"({0} LIKE '%\%%')", r"({0} LIKE '%\%%' ESCAPE '\')"),
        ("bool", "text", "({0} ILIKE 'A%')"),
        ("bool", "text text", "starts_with({0}, {1})"),
        ("bool", "text text", "ends_with({0}, {1})"),
        ("bool", "text text", "contains({0}, {1})"),
        ("bool", "text", "({0} ~ '^[a-c]+$')", "regexp_matches({0}, '^[a-c]+$')"),
        ("bool", "float", "isnan({0})"),
        ("bool", "int int", "array_has([{0}, 1, 2], {1})", "list_contains([{0}, 1, 2], {1})"),
        ("bool", "int int", "(({0}, {1}) = (1, 2))", "({0} = 1 AND {1} = 2)"),
        (
            "bool",
            "int text",
            "(({0}, {1}) IN ((1, 'a'), (2, 'b')))",
            "(({0} = 1 AND {1} = 'a') OR ({0} = 2 AND {1} = 'b'))",
        ),
        ("bool", "float float", "array_has_any([{0}, 1e0], [{1}])", "list_has_any([{0}, 1e0], [{1}])"),
        ("date", "moment", "cast({0} as date)"),
        ("date", "date", "cast(date_trunc('month', {0}) as date)"),
        ("date", "date", "cast({0} + interval '1' day as date)"),
        ("date", "date", "cast({0} - interval '1' month as date)"),
        ("date", "date date", "least({0}, {1})"),
        ("moment", "moment", "date_trunc('hour', {0})"),
        ("moment", "moment", "({0} + interval '90' minute)"),
        ("moment", "date", "cast({0} as timestamp(6))", "cast({0} as timestamp)"),
    ),
    Function("float", ("float",), "sqrt(abs({0}))", exact=False, tame=True),
    Function("float", ("float",), "power({0}, 2)", exact=False, tame=True),
    Function("float", ("float",), "ln(abs({0}) + 1)", exact=False, tame=True),
    Function("float", ("float",), "round({0})", exact=False, tame=True),
    Function("float", ("float",), "sin({0} / 8)", exact=False, tame=True),
)

AGGREGATES = (
    *_functions(
        ("int", "any", "count({0})"),
        ("int", "any", "count(DISTINCT {0})"),
        ("same", "any", "min({0})"),
        ("same", "any", "max({0})"),
        ("bool", "bool", "bool_and({0})"),
        ("bool", "bool", "bool_or({0})"),
        ("text", "text", "string_agg({0}, ',' ORDER BY {0})"),
    ),
    Function("int", ("int",), "sum({0})", tame=True),
    Function("int", ("int",), "sum(DISTINCT {0})", tame=True),
    Function("float", ("float",), "sum({0})", tame=True),
    Function("decimal", ("decimal",), "sum({0})", tame=True),
    Function("decimal", ("decimal",), "sum(DISTINCT {0})", tame=True),
    Function("float", ("int",), "avg({0})", exact=False, tame=True),
    Function("float", ("float",), "avg({0})", exact=False, tame=True),
    # Of floats, DuckDB makes NaN of two infinities.
    Function("float", ("int",), "median({0})", tame=True),
    Function("float", ("int",), "stddev({0})", exact=False, tame=True),
    Function("float", ("int",), "var_pop({0})", exact=False, tame=True),
    Function("float", ("int", "int"), "covar_pop({0}, {1})", exact=False, tame=True),
)

WINDOWS = (
    *_functions(
        ("int", "", "row_number() OVER ({0})"),
        ("int", "", "rank() OVER ({0})"),
        ("int", "", "dense_rank() OVER ({0})"),
        ("int", "", "ntile(3) OVER ({0})"),
        ("int", "", "count(*) OVER ({0})"),
        ("same", "any", "lag({1}) OVER ({0})"),
        ("same", "any", "lead({1}, 2) OVER ({0})"),
        ("same", "any", "first_value({1}) OVER ({0})"),
        ("same", "any", "last_value({1}) OVER ({0})"),
        ("same", "any", "min({1}) OVER ({0})"),
        ("same", "any", "max({1}) OVER ({0})"),
        ("int", "any", "count({1}) OVER ({0})"),
        ("same", "any", "min({1}) OVER ({0} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)"),
        ("int", "any", "count({1}) OVER ({0} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"),
        ("same", "any", "max({1}) OVER ()"),
        ("int", "any", "count({1}) OVER ()"),
    ),
    Function("int", ("int",), "sum({1}) OVER ()", tame=True),
    Function("int", ("int",), "sum({1}) OVER ({0})", tame=True),
    Function("decimal", ("decimal",), "sum({1}) OVER ({0})", tame=True),
    Function("int", ("int",), "sum({1}) OVER ({0} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)", tame=True),
)

CLAUSES: Mapping[str, str] = {
    "left join": "select 1 as x from p a left join p b on a.int = b.int",
    "right join": "select 1 as x from p a right join p b on a.int = b.int",
    "full join": "select a.int from p a full join p b on a.int = b.int",
    "cross join": "select a.int from p a cross join p b",
    "theta join": "select a.int from p a join p b on a.int < b.int",
    "left theta join": "select a.int, b.int from p a left join p b on a.int < b.int",
    "residual": "select a.int, b.int from p a left join p b on a.int = b.int and a.float < b.float",
    "exists": "select int from p a where exists (select 1 from p b where a.int = b.int)",
    "exists theta": "select int from p a where exists (select 1 from p b where a.int = b.int and b.float <> a.float)",
    "not exists": "select int from p a where not exists (select 1 from p b where a.int = b.int)",
    "exists alone": "select int from p a where exists (select 1 from p b where b.int > 3)",
    "in": "select int from p a where int in (select int from p b)",
    "not in": "select int from p a where int not in (select int from p b)",
    "in or": "select int from p a where int in (select int from p b) or text = 'x'",
    "not in or": "select int from p a where int not in (select int from p b) or text = 'x'",
    "in value": "select int in (select int from p b) as x from p a",
    "scalar": "select int from p a where int > (select min(int) from p b)",
    "scalar value": "select (select max(int) from p b) as x, int from p a",
    "correlated scalar": "select int from p a where int > (select min(int) from p b where b.text = a.text)",
    "correlated value": "select (select count(*) from p b where b.text = a.text) as x, int from p a",
    "union all": "select int from p union all select int from p",
    "union": "select int from p union select int from p",
    "intersect": "select int from p intersect select int from p",
    "except": "select int from p except select int from p",
    "intersect all": "select int from p intersect all select int from p",
    "except all": "select int from p except all select int from p",
    "rollup": "select int, count(*) as x from p group by rollup(int)",
    "cube": "select int, text, count(*) as x from p group by cube(int, text)",
    "grouping sets": "select int, count(*) as x from p group by grouping sets ((int), ())",
    "filter": "select sum(int) filter (where bool) as x from p",
    "window": "select row_number() over (order by int) as x from p",
    "partition": "select row_number() over (partition by text order by int) as x from p",
    "window of groups": "select text, rank() over (order by count(*)) as x from p group by text",
    "unnest": "select a.int, b.c0 from p a cross join unnest([a.int, 2]) as b(c0)",
    "left unnest": "select a.int, b.c0 from p a left join unnest([a.int, 2]) as b(c0) on b.c0 < a.int",
    "not distinct": "select int from p where int is not distinct from unsigned and float is distinct from 1e0 or bool",
    "having": "select int from p group by int having count(*) > 1",
    "distinct": "select distinct int, text from p",
    "quotient": "select decimal / nullif(decimal, 0) as x from p",
    "average of decimals": "select avg(decimal) as x from p",
}


@dataclass(frozen=True)
class Features:
    """What hybridq supports now.

    Attributes
    ----------
    missing : mapping of str to str
        Each feature that is left out, and hybridq's reason.
    """

    clauses: frozenset[str]
    functions: tuple[Function, ...]
    aggregates: tuple[Function, ...]
    windows: tuple[Function, ...]
    missing: Mapping[str, str]


def find_features() -> Features:
    """Ask hybridq what it plans and runs."""
    session = connect_in_process()
    session.register("p", PROBE_TABLE)
    missing: dict[str, str] = {}

    def works(name: str, sql: str) -> bool:
        try:
            session.sql(sql).collect(mode="cpu")
        except Unsupported as error:
            missing[name] = str(error).splitlines()[0]
            return False
        except HybridqError as error:
            missing[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            return False
        return True

    def arguments(function: Function) -> Sequence[str]:
        return [f"p.{'int' if kind == 'any' else kind}" for kind in function.arguments]

    clauses = frozenset(name for name, sql in CLAUSES.items() if works(name, sql))
    functions = tuple(f for f in FUNCTIONS if works(f.text, f"select {f.text.format(*arguments(f))} as x from p"))
    # Beside others: DISTINCT alone is planned in another way.
    beside = "count(distinct p.text) as y, count(*) as z"
    aggregates = tuple(
        f for f in AGGREGATES if works(f.text, f"select {f.text.format(*arguments(f))} as x, {beside} from p")
    )
    windows = tuple(
        f for f in WINDOWS if works(f.text, f"select {f.text.format('order by p.int', *arguments(f))} as x from p")
    )
    session.close()
    return Features(clauses, functions, aggregates, windows, missing)
