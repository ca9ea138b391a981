from __future__ import annotations

import sys

import pyarrow as pa
import pytest

from hybridq.errors import (
    AmbiguousColumn,
    CastFailed,
    NumericOverflow,
    SqlError,
    UnknownColumn,
    UnknownTable,
    Unsupported,
)
from hybridq.frontend.sql import plan_sql
from hybridq.frontend.sql_text import longest_chain, place, tokens


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("selec 1", 1, 1, "found selec"),
        ("select 1\nfrom orders whre o_orderkey = 3", 2, 18, "found o_orderkey"),
        ("select 1\nfrom orders where (o_orderkey = 3", 2, 34, "the end of the text"),
        ("select 'abc", 1, 8, "Unterminated string"),
        ("", 1, 1, "no query"),
        (" -- nothing\n", 1, 1, "no query"),
        ("select 1;\nselect 2", 1, 9, "one statement"),
    ],
)
def test_syntax_errors_have_line_and_column(text, line, column, words, tables):
    with pytest.raises(SqlError, match=words) as raised:
        plan_sql(text, tables)
    assert (raised.value.line, raised.value.column) == (line, column)


@pytest.mark.parametrize(
    "text",
    [
        "create table x as select 1",
        "create view x as select 1",
        "create external table t stored as csv location '/etc/passwd'",
        "copy orders to 'x.csv'",
        "copy (select 1) to 'x.parquet'",
        "insert into orders select * from orders",
        "delete from orders",
        "update orders set o_orderkey = 1",
        "drop table orders",
        "set a.b = 1",
        "explain select 1",
        "/* a */ explain analyze select 1",
        "show tables",
        "describe orders",
        "prepare p as select 1",
        "execute p",
        "begin",
        "select * into x from orders",
    ],
)
def test_only_queries_are_run(text, tables, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SqlError, match="only queries are run"):
        plan_sql(text, tables)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("select n_name, count(*) from nation", r"column nation\.n_name \(line 1, column 8\) must be in GROUP BY, or"),
        ("select n_regionkey + 1, max(n_name) from nation", r"column nation\.n_regionkey .*inside an aggregate"),
        ("select count(*) from nation having n_name > 'A'", r"column nation\.n_name .*must be in GROUP BY"),
    ],
)
def test_a_column_that_is_not_grouped_is_named(text, words, tables):
    with pytest.raises(SqlError, match=words):
        plan_sql(text, tables)


@pytest.mark.parametrize("suffix", [";", " ; ; ", " -- end", "/* ; */"])
def test_a_query_may_end_in_a_semicolon_or_a_comment(suffix, tables):
    assert plan_sql(f"select ';' as s{suffix}", tables).names == ("s",)


def test_files_cannot_be_reached(tables, tmp_path):
    path = tmp_path / "secret.csv"
    path.write_text("a\n1\n")
    for name in (str(path), f"file://{path}", "https://example.org/x.parquet"):
        with pytest.raises(UnknownTable):
            plan_sql(f"select * from '{name}'", tables)
        with pytest.raises(UnknownTable):
            plan_sql(f'select * from "{name}"', tables)
    with pytest.raises(Unsupported, match="read_csv"):
        plan_sql(f"select * from read_csv('{path}')", tables)
    with pytest.raises(Unsupported, match="generate_series"):
        plan_sql("select * from generate_series(1, 3)", tables)
    with pytest.raises(UnknownTable):
        plan_sql("select * from information_schema.tables", tables)


def test_an_unknown_table_offers_the_nearest(tables):
    with pytest.raises(UnknownTable, match=r"no table ordrs \(line 1, column 15\); did you mean orders"):
        plan_sql("select * from ordrs", tables)
    with pytest.raises(UnknownTable, match='"Odd Table"'):
        plan_sql('select * from "odd table"', tables)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("select o_orderky from orders", r"no column o_orderky \(line 1, column 8\); did you mean o_orderkey"),
        ("select o.o_orderky from orders o", "no column o.o_orderky.* did you mean o_orderkey"),
        ("select n_name from nation order by nme", "no column nme .*did you mean n_name"),
        ("select n_name from nation having x = 1", r"no column x .*there are n_comment, n_name"),
        ('select a from "Odd Table"', 'no column a .*did you mean "A"'),
        ("select c.c_name from orders o", r"no column c.c_name"),
    ],
)
def test_an_unknown_column_offers_the_nearest(text, words, tables):
    with pytest.raises(UnknownColumn, match=words):
        plan_sql(text, tables)


def test_offered_columns_have_no_names_that_are_not_the_querys(tables):
    with pytest.raises(UnknownColumn, match=r"no column id_1 .*; did you mean id\?$"):
        plan_sql("select id_1 from (select * from (select 1 as id) a, (select 2 as id) b) c", tables)


def test_offered_columns_are_quoted_as_sql_wants_them():
    fields = [("a.b", pa.int64()), ('say "hi"', pa.int64()), ("x, y", pa.int64()), ("", pa.int64())]
    with pytest.raises(UnknownColumn) as raised:
        plan_sql('select a.b from "T.1" a', {"T.1": pa.schema(fields)})
    assert str(raised.value).endswith('; there are "a.b", "say ""hi""", "x, y"')


def test_an_ambiguous_column_names_both_tables(tables):
    with pytest.raises(AmbiguousColumn, match=r"n_name is in a and b: write a\.n_name or b\.n_name"):
        plan_sql("select n_name from nation a join nation as b on a.n_nationkey = b.n_regionkey", tables)
    twice = {"one": tables["nation"], "two": tables["nation"]}
    with pytest.raises(AmbiguousColumn, match="n_name is in one and two"):
        plan_sql("select n_name from one, two", twice)
    with pytest.raises(AmbiguousColumn, match="n_name"):
        plan_sql("select n_name from (select * from nation) a, (select * from nation) b", tables)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("select nosuch(n_name) from nation", "nosuch"),
        ("select uuid() from types", "another value for every row"),
        ("select week(d) from types", r"week .*: write EXTRACT\(WEEK FROM x\)"),
        ("select mod(i8) from types", "write a % b"),
        (
            "select mod(i8, 3), arg_max(i8, s) from types",
            r"\(line 1, column 20\): write first_value\(x ORDER BY y DESC NULLS",
        ),
        ("select datediff('week', d, d) from types", "datediff is not supported"),
        (
            "select i8 from types where i8 between symmetric 3 and 1",
            "column 49: BETWEEN SYMMETRIC .* write BETWEEN least",
        ),
        ("select i8 // 2 from types", "line 1, column 12: // is not supported: / of integers"),
        ("select i8 ** 2 from types", r"write power\(a, b\)"),
        ("select * exclude (i8) from types", r"SELECT \* with other words"),
        ("select i8 from types order by all", "ORDER BY 1, 2"),
        ("select * from types pivot (count(*) for i8 in (1, 2)) p", r"PIVOT is not supported: .*FILTER"),
        ('select s collate "C" from types', "COLLATE is not supported"),
        (
            "select 1 from region, lateral (select 1 from nation where n_regionkey = r_regionkey limit 1) x",
            "line 1, column 23: this LATERAL subquery is not supported",
        ),
        ("select i8 from types where (i8, i16) < (1, 2)", "a row of values"),
        ("select i8 from types where ((-i8), i16) < (1, 2)", "a row of values"),
        ("select (i8, i16) in (select i32, i64 from types) from types", "several columns"),
        ("select i8 from types where not (i8, i16) in (select i32, i64 from types)", "several columns"),
        (
            "select i8 from types a where (i8, i16) in (select 1, 2 from types b where b.i32 = a.i32)",
            "refers to the query",
        ),
        ("select sum(i8) over (order by i16 rows 2 preceding exclude ties) from types", "EXCLUDE in a window frame"),
        ("select d + i8 * interval '1 day' from types", r"INTERVAL times a number \(line 1, column 17\)"),
        ("select top 3 i8 from types", "TOP is not supported: write LIMIT"),
        ("select i8 from types limit 2, 3", "column 29: LIMIT with two numbers .* write LIMIT rows OFFSET first"),
        ("select interval '1 day' + interval '2 days'", "one interval after the other"),
        (
            "select 1 from (region a full join region b using (r_name)) as c",
            "not beside joins in parentheses with names",
        ),
        ("select to_char(d, '%Q') from types", "%Q in the format of to_char is not supported: %Y, .* are"),
        ("select to_char(d, 'YYYY-MM-DD') from types", "YYYY in the format .* write '%Y-%m-%d'$"),
        ("select to_char(d, '%Y-MM') from types", "MM in the format '%Y-MM' of to_char .* write '%Y-%m'$"),
        ("select to_char(d, 'dd Mon yyyy') from types", "dd in the format .* write '%d %b %Y'$"),
        ("select to_char(d, 'w') from types", "w in the format 'w' of to_char .* such as %Y, %m and %d$"),
        ("select nth_value(f64, 2) from types", "NTH_VALUE"),
        ("select random()", "random"),
        ("select sum(f64) ignore nulls over (partition by i8) from types", "IGNORE NULLS"),
        (
            "select array_agg(i8) filter (where i8 > 1) over () from types",
            "FILTER of a window function",
        ),
        ("select i8, sum(f64) from types group by grouping sets ((i8))", "single set"),
        ("with recursive t as (select 1 a union all select a + 1 from t where a < 3) select * from t", "RECURSIVE"),
        ("select i8 from types where 3 not in (select o_orderkey from orders)", "NOT IN over a subquery"),
        ("select i8 from types where (i64 in (select o_orderkey from orders)) is null", "IS, COALESCE"),
        (
            "select i8 from types where exists (select 1 from orders where o_orderkey = i64)"
            " or 3 in (select o_custkey from orders)",
            "IN or EXISTS under OR",
        ),
        ("select regexp_instr(s, 'a') from types", "regexp_instr"),
        ("select cast(s as time) from types", "time of day"),
        ("select lists from types", "types.lists has the type list"),
        ("select $1", "parameters"),
        ("select 99999999999999999999999999999999999999999999", "literal"),
        ("select first_value(i8 order by i16) ignore nulls from types", "IGNORE NULLS"),
        ("select i8 from types tablesample (10)", "TABLESAMPLE"),
        ("select i8 from types sample (10)", "SAMPLE"),
        ("select i8 from types connect by prior i8 = i16", "CONNECT BY"),
        ("select i8 from types with ordinality", "WITH ORDINALITY"),
        ("select extract(timezone from d) from types", "TIMEZONE"),
        ("select regexp_match(s, 'a.b', 'x') from types", "flags"),
    ],
)
def test_what_is_not_supported_is_named(text, words, tables):
    with pytest.raises(Unsupported, match=words) as raised:
        plan_sql(text, tables)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("select * from (select i8, i8 from types) t", "two columns of a subquery .* are named i8: .* AS i8_2"),
        ("select a from (select i8 as a, i16 as a from types) t", "two columns of a subquery .* are named a: .* AS"),
        ("select sum(s) from types", r"no function takes such values: sum\(VARCHAR\)"),
        ("select s + 1 from types", r"expression VARCHAR \+ BIGINT to"),
        ("select extract(year from i8) from types", r"such values: extract\(VARCHAR, TINYINT\) \(line 1, column 8\)"),
        ("select unnest(i8) from types", r"^UNNEST of a value of type TINYINT \(line 1, column 8\) is not supported"),
        ("select * from types, types", "in FROM twice"),
        ("select i8 from types group by i16", "GROUP BY"),
        ("select i8 from types where sum(i8) > 1", "WHERE"),
        ("select i8 from types where i8", "non-boolean"),
        ("select i8 from types limit -1", "LIMIT"),
        ("select " + "(" * 300 + "1" + ")" * 300, "nested too deeply"),
        # Clauses of other dialects, which DataFusion would read and ignore.
        ("select i8 from types prewhere b", "found prewhere"),
        ("select i8, count(*) from types group by i8 with rollup", "found with"),
        ("select i8 from types partition (p)", "found"),
        ("select i8 from types settings x = 1", "found settings"),
    ],
)
def test_wrong_queries(text, words, tables):
    with pytest.raises(SqlError, match=words) as raised:
        plan_sql(text, tables)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("select i8 + 1,\n s + 1 from types", 2, 4, r"VARCHAR \+ BIGINT"),
        ("select i8 + 1, i8 - i16, s - i64, i8 - i64 from types", 1, 28, r"VARCHAR - BIGINT"),
        ("select '+', s + 1, s + 2 from types", 1, 15, r"VARCHAR \+ BIGINT"),
        ("select -s, -i8 from types", 1, 8, "'-' only supports"),
        ("select i8 - 1, -u8, -i8 from types", 1, 16, "'-' only supports"),
        ("select not i8 from types where i8 not in (1) and not b", 1, 8, "'NOT' requires a boolean"),
        ("select i8 from types where b and d * 2 > d", 1, 36, r"temporal operation DATE \* BIGINT"),
        ("select i8 from types where s like 'a' and i8 like 'a%'", 1, 46, "in LIKE expression"),
        ("select i8 from types where i8 <> 1 and interval '1 day' <> 3", 1, 57, "INTERVAL != BIGINT"),
        ("select i8 from types where i8 and b", 1, 31, "TINYINT AND BOOLEAN"),
        ("select i8, (select count(*) from orders where b) from types\nwhere s", 2, 1, "non-boolean predicate"),
        ("select 1 from types x join types y on x.b = y.b join types z on z.s", 1, 62, "must be boolean"),
        ("select sum(i8), sum(s) from types", 1, 17, r"such values: sum\(VARCHAR\)"),
        ("select i8 from types union select 1, 2", 1, 22, "different number of columns"),
        ("select i8, count(*) from types group by rollup (3)", 1, 49, "the position 3, and SELECT 2 columns"),
        ("select i8, count(*) from types group by cube (1, 2)", 1, 50, "is an aggregate"),
        ("select i8, count(*) from types group by grouping sets ((1), (0))", 1, 62, "the position 0"),
    ],
)
def test_wrong_expressions_have_line_and_column(text, line, column, words, tables):
    with pytest.raises(SqlError, match=rf"^line {line}, column {column}: .*{words}") as raised:
        plan_sql(text, tables)
    assert (raised.value.line, raised.value.column) == (line, column)


@pytest.mark.parametrize("text", ["select cast('x' as int)", "select date '1998-12-41'"])
def test_constants_that_cannot_be_cast(text, tables):
    with pytest.raises(CastFailed, match="cannot cast"):
        plan_sql(text, tables)


def test_expressions_that_would_take_long_to_plan_are_refused(tables):
    with pytest.raises(Unsupported, match="200 operators"):
        plan_sql("select " + " + ".join(["i64"] * 1000) + " from types", tables)
    with pytest.raises(Unsupported, match="100 levels"):
        plan_sql("select " + " + ".join(["i64"] * 150) + " from types", tables)


@pytest.mark.parametrize("number", ["1e400", "-1.5e309", "1_0e400"])
def test_numbers_that_do_not_fit_are_errors(number, tables):
    with pytest.raises(NumericOverflow, match=r"line 1, column \d+: .*e\d+ does not fit DOUBLE"):
        plan_sql(f"select {number} as x", tables)


def test_chains_of_operators_are_measured():
    assert longest_chain(list(tokens("select a + b * c, d from t where x = 1 and y = 2 and z < 3 + 4"))) == 3
    assert longest_chain(list(tokens("select ((a + b) + (c + d))"))) == 2
    assert longest_chain(list(tokens("select 'a + b + c' -- + + +"))) == 0


def test_tokens_know_literals_comments_and_quotes():
    text = """select "a ""b" /* ; */ , 'it''s;' -- ;\n, $$ ; $$ from T"""
    found = [(token.kind, token.value) for token in tokens(text)]
    assert ("quoted", 'a "b') in found
    assert ("text", "'it''s;'") in found
    assert ("word", "t") in found
    assert ("sign", ";") not in found
    assert place(text, text.index("from")) == (2, 11)


def test_importing_the_module_does_not_import_datafusion():
    import subprocess

    code = "import sys, hybridq.frontend.sql, hybridq.frontend.builder; print('datafusion' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
