"""Makes ``docs/sql.md``: every example in it is run, so that the page cannot say what is not so.

python -m tests.sql.sql_page
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa

from hybridq.errors import HybridqError
from hybridq.plan.functions import TIME_FORMATS
from hybridq.session import Session
from hybridq.testing.in_process import connect_in_process

from .sqllogic import rows_of

PAGE = Path(__file__).parent.parent.parent / "docs" / "sql.md"

HEAD = """# SQL

What of SQL hybridq runs, what it refuses, and where it differs from others on purpose. Made by
`python -m tests.sql.sql_page`, which runs every example on this page; a test keeps it fresh. What values answers have
(types, NULL, NaN, rounding, order) is in [semantics.md](semantics.md), functions and which engine has them are in
[functions.md](functions.md).

A query is one SELECT, VALUES or WITH, in PostgreSQL's dialect, planned by DataFusion. Statements that change data or
settings are refused. What cannot be done is an error that names it, at planning wherever that can be known then; it is
never another answer. Table and column names that are not quoted are lower-case.

WITH RECURSIVE stands at the beginning of a query; each of its steps, at most 1,000, is a query over the rows of the
step before. UNNEST takes lists; NULL and an empty list have no rows, but under LEFT JOIN.

In the examples, table `t` has the columns `a integer, b integer, s varchar, d decimal(9, 2), f double, day date,
m timestamp`, and `u` has `a integer, c integer`.
"""

SECTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "Clauses": (
        ("SELECT, WHERE, aliases", "select a + 1 as x from t where b > 1"),
        ("DISTINCT", "select distinct a from t"),
        ("DISTINCT ON", "select distinct on (a) a, b from t order by a, b"),
        ("GROUP BY expressions, positions", "select a % 2 as x, count(*) as n from t group by 1"),
        ("positions in GROUPING SETS, ROLLUP, CUBE", "select a % 2 as x, count(*) as n from t group by rollup (1)"),
        ("HAVING", "select a from t group by a having count(*) > 1"),
        ("GROUPING SETS, ROLLUP, CUBE", "select a, b, count(*) as n from t group by cube (a, b)"),
        ("ORDER BY expressions, NULLS FIRST/LAST", "select a from t order by -a nulls first"),
        ("LIMIT, OFFSET", "select a from t order by a limit 3 offset 1"),
        ("FETCH FIRST n ROWS ONLY", "select a from t order by a fetch first 3 rows only"),
        ("WITH", "with w as (select a from t) select * from w"),
        (
            "WITH RECURSIVE",
            "with recursive w as (select 1 as x union all select x + 1 from w where x < 9) select * from w",
        ),
        ("columns of one name, of the answer", "select a as x, b as x from t"),
        ("VALUES", "select * from (values (1, 'x'), (2, 'y')) as v(a, b)"),
        ("TABLESAMPLE", "select a from t tablesample system (10)"),
        ("QUALIFY", "select a from t qualify row_number() over (order by a) = 1"),
    ),
    "Joins": (
        ("INNER, LEFT, RIGHT, FULL", "select t.a, c from t full join u on t.a = u.a"),
        ("USING and NATURAL", "select a, c from t full join u using (a)"),
        ("CROSS", "select t.a, c from t cross join u"),
        ("conditions without an equality", "select t.a, c from t left join u on t.a < u.a"),
        ("FULL without an equality", "select t.a, c from t full join u on t.a < u.a"),
        ("an equality and more", "select t.a, c from t left join u on t.a = u.a and t.b < u.c"),
        ("IS NOT DISTINCT FROM as the condition", "select t.a, c from t join u on t.a is not distinct from u.a"),
        ("LATERAL", "select t.a, x.c from t cross join lateral (select c from u where u.a = t.a) x"),
        (
            "LATERAL with LIMIT",
            "select t.a, x.c from t, lateral (select c from u where u.a = t.a order by c limit 1) x",
        ),
    ),
    "Subqueries": (
        ("EXISTS, NOT EXISTS", "select a from t where exists (select 1 from u where u.a = t.a and u.c <> t.b)"),
        ("IN, NOT IN", "select a from t where a not in (select a from u)"),
        ("IN under OR, as a value", "select a in (select c from u) as x from t where b = 1 or a in (select 3)"),
        (
            "IN and EXISTS under OR",
            "select a from t where a in (select c from u) or exists (select 1 from u where u.a = t.a)",
        ),
        ("scalar", "select a from t where a > (select avg(c) from u)"),
        ("scalar, correlated", "select a, (select max(c) from u where u.a = t.a) as x from t"),
        ("correlated by other comparisons", "select a, (select max(c) from u where u.a < t.a) as x from t"),
        ("EXISTS as a value", "select a, exists (select 1 from u where u.a < t.a) as x from t"),
        ("scalar, a row looked up", "select a, (select c from u where u.a = t.a and c > 5) as x from t"),
        (
            "scalar, the first row of an order",
            "select a, (select c from u where u.a = t.a order by c desc limit 1) as x from t",
        ),
        (
            "correlated by what NULL may satisfy",
            "select a, (select max(c) from u where u.a < t.a or t.a is null) as x from t",
        ),
        (
            "correlated in an outer join",
            "select a, (select count(*) from u left join t v on u.a = v.a and v.b = t.b where u.c = t.a) as x from t",
        ),
        (
            "windows over correlated rows",
            "select a, x.r from t, lateral (select rank() over (order by c) as r from u where u.a = t.a) x",
        ),
        ("comparison with ANY or ALL", "select a from t where a > all (select c from u)"),
        ("rows of several values in IN", "select a from t where (a, b) not in (select a, c from u)"),
    ),
    "Set operations": (
        ("UNION, UNION ALL", "select a from t union select a from u"),
        ("INTERSECT, EXCEPT", "select a from t except select a from u"),
        ("INTERSECT ALL, EXCEPT ALL", "select a from t intersect all select a from u"),
    ),
    "Aggregates": (
        ("COUNT, SUM, AVG, MIN, MAX", "select count(*), sum(a), avg(d), min(s), max(day) from t"),
        ("DISTINCT in them", "select count(distinct a), sum(distinct b) from t"),
        ("FILTER", "select sum(a) filter (where b > 1) as x from t"),
        ("STDDEV, VARIANCE, COVAR, CORR", "select stddev(a), var_pop(f), covar_samp(a, f), corr(a, f) from t"),
        ("MEDIAN, quantiles", "select median(f), quantile_cont(f, 0.9) from t"),
        ("BOOL_AND, BOOL_OR", "select bool_and(a > 1) as x from t"),
        ("STRING_AGG, ARRAY_AGG with ORDER BY", "select string_agg(s, ',' order by s) as x from t"),
        ("APPROX_DISTINCT", "select approx_distinct(a) as x from t"),
        ("GROUPING", "select a, grouping(a) as x from t group by rollup (a)"),
    ),
    "Window functions": (
        ("ranks", "select rank() over (partition by a order by b) as x from t"),
        ("LAG, LEAD, FIRST_VALUE, NTH_VALUE", "select lag(a, 2) over (order by b) as x from t"),
        ("aggregates over frames of rows", "select sum(a) over (order by b rows 2 preceding) as x from t"),
        ("frames of ranges", "select sum(a) over (order by b range between 1 preceding and 1 following) as x from t"),
        ("named windows", "select sum(a) over w as x from t window w as (partition by b)"),
        ("EXCLUDE", "select sum(a) over (order by b rows 2 preceding exclude current row) as x from t"),
    ),
    "Expressions": (
        ("CASE, COALESCE, NULLIF", "select case when a > 1 then s else 'x' end as x, nullif(a, b) as y from t"),
        ("IN, BETWEEN, IS DISTINCT FROM", "select a from t where a in (1, 2) or b between 1 and 3"),
        ("LIKE, ILIKE, ESCAPE", r"select s from t where s like 'a\%%' or s ilike 'X_' or s like 'b!%' escape '!'"),
        ("regular expressions", "select s from t where s ~ '^a'"),
        ("SIMILAR TO", "select s from t where s similar to 'a%'"),
        ("CAST, ::, TRY_CAST", "select cast(a as varchar) as x, s::varchar as y, try_cast(s as integer) as z from t"),
        ("EXTRACT, DATE_TRUNC", "select extract(year from day) as x, date_trunc('month', m) as y from t"),
        (f"TO_CHAR: %{', %'.join(TIME_FORMATS)}", "select to_char(m, '%Y-%m-%d %H:%M') as x from t"),
        ("TO_CHAR with the items of PostgreSQL", "select to_char(m, 'YYYY-MM-DD') as x from t"),
        ("TO_DATE, TO_TIMESTAMP with a format of digits", "select to_date(s, '%d/%m/%Y') as x from t where a < 0"),
        (
            "their items in PostgreSQL's words",
            "select to_timestamp(s, 'YYYY-MM-DD HH24:MI:SS') as x from t where a < 0",
        ),
        ("names of months in their formats", "select to_date(s, '%d %b %Y') as x from t"),
        (
            "YEAR, MONTH, ..., DATEDIFF, DATEADD, LAST_DAY, IF, MOD, LISTAGG and others of other databases",
            "select year(day) as x, datediff('month', day, m) as y, if(a > 1, mod(a, 3), 0) as z from t",
        ),
        ("dates and intervals", "select day + interval '1' month as x from t where m < now() - interval '90' day"),
        ("differences of dates", "select m - m as x from t"),
        ("array literals and subscripts", "select [a, b] as x, [a, b, 3][2:3] as y from t"),
        ("rows of values", "select a from t where (a, b + 1) in ((1, 2), (3, 4)) or (a, b) = (5, 6)"),
        ("UNNEST", "select a, unnest([a, b]) as x from t"),
        ("UNNEST in FROM, WITH ORDINALITY", "select a, x, n from t, unnest([a, b]) with ordinality as v(x, n)"),
        ("UNNEST with LEFT JOIN", "select a, x from t left join unnest([a, b]) as v(x) on x > 2"),
        ("AT TIME ZONE", "select m at time zone 'UTC' as x from t"),
        ("COLLATE", "select s collate \"de\" as x from t"),
    ),
    "Statements": (
        ("EXPLAIN (use `query.explain()`)", "explain select a from t"),
        ("CREATE, INSERT, COPY, SET", "create table x as select 1 as a"),
        ("several statements", "select 1 as a; select 2 as a"),
        ("parameters", "select a from t where a = $1"),
    ),
}  # fmt: skip

DIFFERENCES = (
    ("Integers divide to integers, towards zero, as in PostgreSQL.", "select -7 / 2 as x"),
    ("Division of integers by zero is an error.", "select 1 / (a - a) as x from t where a = 1"),
    (
        "Numbers with a point are decimals: what is computed from them is exact. Those with an exponent are DOUBLE.",
        "select 0.1 + 0.2 = 0.3 as x, 0.1 + 0.2e0 = 0.3e0 as y",
    ),
    ("A quotient of decimals is a decimal, rounded half away from zero.", "select d / 3 as x from t where a = 1"),
    ("So is the average of decimals (four more digits).", "select avg(d) as x from t"),
    ("A date plus days or months is a date.", "select day + interval '1' month as x from t where a = 1"),
    ("SIMILAR TO has the wildcards of LIKE, as the standard says.", "select s similar to 'a%' as x from t where a = 1"),
    (
        "The sum of 64-bit integers is a 64-bit integer, and an error where it does not fit.",
        "select sum(x) as y from (values (9223372036854775807), (1)) as v(x)",
    ),
    (
        "DESC puts NULL first, as in PostgreSQL: NULL is the largest. (A default of DuckDB is NULLS LAST for both.)",
        "select b from t order by b desc limit 1",
    ),
    ("NaN is equal to itself and above all numbers.", "select f = f as x, f > 1000 as y from t where a = 3"),
    ("A backslash escapes in LIKE, also without ESCAPE, as in PostgreSQL.", r"select '100%' like '100\%' as x"),
    ("NOT IN with a NULL in the list is never true.", "select a from t where a not in (1, NULL)"),
)  # fmt: skip

TABLES = """
create table t (a integer, b integer, s varchar, d decimal(9, 2), f double, day date, m timestamp);
insert into t values (1, 2, 'a', 1.00, 0.5, '2020-01-31', '2020-01-31 10:00:00'),
    (2, NULL, NULL, 0.01, 1.5, NULL, NULL), (3, 3, '12', NULL, 'nan', '1999-12-31', '1999-12-31 23:59:59.5');
create table u (a integer, c integer);
insert into u values (1, 5), (2, NULL), (1, 7);
"""


def make_page() -> str:
    """Run all examples and write the page."""
    reference = duckdb.connect()
    reference.execute(TABLES)
    with connect_in_process() as session:
        for name in ("t", "u"):
            session.register(name, reference.sql(f"select * from {name}").to_arrow_table())
        parts = [HEAD]
        for title, rows in SECTIONS.items():
            parts.append(f"## {title}\n\n| what | example | |\n|---|---|---|")
            parts += [f"| {what} | `{_cell(sql)}` | {_answer(session, sql)[1]} |" for what, sql in rows]
            parts.append("")
        parts.append("## What may surprise\n\nThe same text on hybridq and on DuckDB:\n")
        parts.append("| what hybridq does | example | hybridq | DuckDB |\n|---|---|---|---|")
        for what, sql in DIFFERENCES:
            parts.append(f"| {what} | `{_cell(sql)}` | {_shown(session, sql)} | {_duckdb(reference, sql)} |")
    reference.close()
    return "\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _answer(session: Session, sql: str) -> tuple[pa.Table | None, str]:
    try:
        return session.sql(sql).collect(mode="cpu").to_arrow(), "yes"
    except HybridqError as error:
        first = str(error).splitlines()[0]
        return None, f"no: {_cell(first if len(first) <= 120 else first[:117] + '...')}"


def _shown(session: Session, sql: str) -> str:
    answer, refusal = _answer(session, sql)
    return _lines(answer) if answer is not None else f"error: {refusal.removeprefix('no: ')}"


def _duckdb(reference: duckdb.DuckDBPyConnection, sql: str) -> str:
    try:
        return _lines(reference.sql(sql).to_arrow_table())
    except duckdb.Error as error:
        return f"error: {_cell(str(error).splitlines()[0][:80])}"


def _lines(answer: pa.Table) -> str:
    return "; ".join(row.replace("\t", ", ") for row in rows_of(answer)) or "no rows"


if __name__ == "__main__":
    PAGE.write_text(make_page())
