"""Errors of SQL texts: statements that are no queries, and DataFusion's errors in hybridq's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from hybridq.errors import (
    AmbiguousColumn,
    CastFailed,
    DivisionByZero,
    HybridqError,
    NumericOverflow,
    SqlError,
    UnknownColumn,
    UnknownTable,
    Unsupported,
)
from hybridq.frontend.sql_chains import with_short_chains
from hybridq.frontend.sql_constants import with_constants
from hybridq.frontend.sql_hints import clause_hint, function_hint
from hybridq.frontend.sql_text import LONGEST_CHAIN, Token, longest_chain, offset_of, place, tokens
from hybridq.frontend.sql_twins import without_number
from hybridq.frontend.substrait_reads import nearest
from hybridq.types import Schema

_UTC = frozenset({"utc", "etc/utc", "gmt", "z", "+00:00"})


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STATEMENTS = _words(
    "alter analyze attach begin call close comment commit copy create deallocate declare delete desc describe detach "
    "do drop execute explain export fetch grant import insert install kill load lock merge msck optimize pragma "
    "pivot prepare refresh release replace reset revoke rollback savepoint set show start summarize truncate unload "
    "unlock unpivot update use vacuum"
)
_ONLY_QUERIES = "only queries are run: SELECT, WITH or VALUES"
# Clauses that DataFusion parses and then leaves out of the plan without a word, as a word and the one that follows.
_IGNORED: Mapping[tuple[str, str | None], str] = {
    ("tablesample", None): "TABLESAMPLE",
    ("sample", "("): "SAMPLE",
    ("connect", "by"): "CONNECT BY",
    ("with", "ordinality"): "WITH ORDINALITY",
    ("for", "json"): "FOR JSON",
    ("for", "xml"): "FOR XML",
}


def refuse_time_zones(text: str) -> None:
    """Refuse conversions to time zones other than UTC: Substrait has no place for a zone, and it would be lost.

    Raises
    ------
    Unsupported
        With the position.
    """
    found = tokens(text)
    words = [token.value if token.kind == "word" else "" for token in found]
    casts = "arrow_cast" in words
    for position, token in enumerate(found):
        zone = token.value.strip("'").lower()
        named = words[position - 3 : position] == ["at", "time", "zone"] and position >= 3
        quoted = casts and token.kind == "text" and "timestamp" in zone and '"' in zone
        if (named and zone not in _UTC) or (quoted and zone.split('"')[1] not in _UTC):
            line, column = place(text, token.offset)
            raise Unsupported(
                f"a time zone other than UTC is not supported: {token.value} (line {line}, column {column})"
            )


def refuse_other_statements(text: str) -> frozenset[str]:
    """Check that a text holds one query, and return its words and names.

    Raises
    ------
    SqlError
        If it holds another statement, several, or none.
    Unsupported
        If it has a clause that would be ignored, or an expression that would take seconds to plan.
    """
    found = tokens(text)
    while found and found[-1].value == ";" and found[-1].kind == "sign":
        found = found[:-1]
    if not found:
        raise SqlError("there is no query in the text", 1, 1)
    first = next((token for token in found if token.value != "("), found[0])
    if first.kind == "word" and first.value in _STATEMENTS:
        raise _at(f"{_ONLY_QUERIES}, not {first.value.upper()}", text, first.offset)
    of_unnest = False
    opened: list[bool] = []  # for each open parenthesis, whether it is that of UNNEST
    for before, token, following in zip([None, *found], found, [*found[1:], None], strict=False):
        if token.kind == "sign" and token.value == "(":
            opened.append(before is not None and before.kind == "word" and before.value == "unnest")
        if token.kind == "sign" and token.value == ";":
            raise _at("only one statement is run at a time", text, token.offset)
        if token.kind == "word":
            ignored = _IGNORED.get((token.value, None)) or (
                _IGNORED.get((token.value, following.value)) if following else None
            )
            if ignored is not None and not of_unnest:
                raise Unsupported(f"{ignored} is not supported{_where(token.value, text)}")
        of_unnest = bool(token.kind == "sign" and token.value == ")" and opened and opened.pop())
    if longest_chain(list(tokens(with_short_chains(text)))) > LONGEST_CHAIN:
        raise Unsupported(
            f"an expression of more than {LONGEST_CHAIN} operators in a row is not supported: use IN for many values"
        )
    return frozenset(token.value for token in found if token.kind in ("word", "quoted"))


def translated(error: BaseException, text: str, tables: Mapping[str, Schema]) -> HybridqError:
    """Return the error of hybridq for an error that DataFusion raised on a text."""
    if isinstance(error, HybridqError):
        return error
    message = _cleaned(str(error))
    for pattern, convert in _CONVERSIONS:
        match = pattern.search(message)
        if match:
            found = convert(match, text, tables)
            return _with_hint(found, text) if convert in _UNCLEAR or "column all " in str(found) else found
    return SqlError(_last_cause(message))


_CORRELATION = re.compile(
    r"subquery that refers to the query around it|LATERAL subquery|Correlated scalar subquery"
    r"|single expression required"
)


def is_of_correlation(error: HybridqError) -> bool:
    """Tell whether an error is that DataFusion cannot take a correlated subquery apart; it does not say which one."""
    return _CORRELATION.search(str(error)) is not None


def _with_hint(found: HybridqError, text: str) -> HybridqError:
    """Return an error that says what is known of a clause instead of what the parser or planner says."""
    if isinstance(found, SqlError) and found.line is not None and found.column is not None:
        hint = clause_hint(text, offset_of(text, found.line, found.column))
        return found if hint is None else Unsupported(f"line {found.line}, column {found.column}: {hint}")
    hint = clause_hint(text)
    return found if hint is None else Unsupported(hint)


def _cleaned(message: str) -> str:
    for noise in (r"\s*This issue was likely caused by a bug.*?issues\.?\s*", r"Internal error: ", r"\s*Backtrace:.*"):
        message = re.sub(noise, " ", message, flags=re.DOTALL)
    return message.strip()


_TYPES = {
    "Utf8": "VARCHAR", "LargeUtf8": "VARCHAR", "Utf8View": "VARCHAR", "Boolean": "BOOLEAN", "Binary": "BYTEA",
    "Int8": "TINYINT", "Int16": "SMALLINT", "Int32": "INTEGER", "Int64": "BIGINT", "UInt8": "UTINYINT",
    "UInt16": "USMALLINT", "UInt32": "UINTEGER", "UInt64": "UBIGINT", "Float32": "REAL", "Float64": "DOUBLE",
    "Date32": "DATE", "Decimal128": "DECIMAL", "List": "LIST", "Struct": "STRUCT", "Map": "MAP", "Null": "NULL",
}  # fmt: skip
"""Arrow's types, as DataFusion writes them, in SQL."""

_TYPE = re.compile(rf"(?<![\w.'\"])(?:{'|'.join(_TYPES)})(?![\w'\"])")


def in_sql(message: str) -> str:
    """Return a message with constants and types as SQL writes them, where it has those of DataFusion.

    >>> in_sql('Cannot coerce arithmetic expression Utf8 + Timestamp(ns, "UTC") in max(Int64(1)) + Utf8("a")')
    "Cannot coerce arithmetic expression VARCHAR + TIMESTAMP WITH TIME ZONE in max(1) + 'a'"
    """
    message = with_constants(message)
    message = re.sub(r'\bTimestamp\([^(),]*, "[^"]*"\)', "TIMESTAMP WITH TIME ZONE", message)
    message = re.sub(r"\bTimestamp\([^()]*\)", "TIMESTAMP", message)
    message = re.sub(r"\bInterval\([^()]*\)", "INTERVAL", message)
    return _TYPE.sub(lambda found: _TYPES[found[0]], message)


def _last_cause(message: str) -> str:
    cause = message.split("\ncaused by\n")[-1]
    cause = re.sub(
        r"^(?:DataFusion error|Error during planning|Schema error|SQL error|type_coercion|Arrow error|"
        r"Invalid argument error|Execution error|Optimizer rule '\w+' failed|Context)\s*:\s*",
        "",
        cause,
    )
    cause = re.sub(r"^Parser error:\s*", "", cause)
    lines = [line.strip() for line in in_sql(cause).splitlines() if line.strip()]
    return " ".join(lines).removesuffix('")')[:500] if lines else "the query cannot be planned"


def _at(message: str, text: str, offset: int) -> SqlError:
    line, column = place(text, offset)
    return SqlError(f"line {line}, column {column}: {message}", line, column)


def _syntax(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    body = match["body"].replace('\\"', '"').replace("\\'", "'").replace("\\n", " ").replace("\\\\", "\\")
    position = re.search(r"(?: at|,)? Line: (\d+),? Column:? (\d+)", body)
    if position:
        line, column = int(position[1]), int(position[2])
        body = body[: position.start()] + body[position.end() :]
    else:
        line, column = place(text, len(text.rstrip()))
    body = re.sub(r"^Expected: ", "expected ", body.strip()).replace("found: EOF", "found: the end of the text")
    return SqlError(f"line {line}, column {column}: {body.replace('found: ', 'found ')}", line, column)


def _unknown_table(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    name = re.sub(r"^datafusion\.(?:public\.)?", "", match["name"])
    hint = _quoted(nearest(name, list(tables)), tables)
    return UnknownTable(f"there is no table {name}{_where(name, text)}{hint}", name)


def _in_quotes(found: re.Match[str]) -> str:
    doubled = found[0].replace('"', '""')
    return f'"{doubled}"'


def _quoted(ending: str, names: Sequence[str] | Mapping[str, Schema]) -> str:
    """Put names that need them into double quotes, in the end of a message."""
    special = [name for name in names if not re.fullmatch(r"[a-z_][a-z0-9_]*", name)]
    for name in sorted(special, key=len, reverse=True):
        ending = re.sub(rf'(?<![\w"]){re.escape(name)}(?![\w"])', _in_quotes, ending, count=1)
    return ending


_QUALIFIED = re.compile(r'(?:(?:"(?:[^"]|"")*"|[^.",\s]+)\.)*("(?:[^"]|"")*"|[^.",\s]+)(?=,|\s|$)')
"""A column's name behind those of its table, each in double quotes where it needs them."""


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


_CORRELATED = "a subquery that refers to the query around it in this way is not supported"


def _bare(text: str) -> str:
    """Return a text without blanks and double quotes, in small letters."""
    return re.sub(r'[\s"]', "", text).lower()


def _unknown_column(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    name = match["name"].replace('"', "")
    bare = name.rpartition(".")[2]
    if "." in name and name.lower() not in _bare(text) and "(select" in _bare(text):
        # DataFusion has made that name itself, of a column of the query around a subquery.
        return Unsupported(f"{_CORRELATED}{_where(bare, text)}: write a join")
    # Offer plain column names; "orders"."o x" is how DataFusion writes names that need quotes.
    valid = [found[1] for found in _QUALIFIED.finditer((match["valid"] or "").strip().removesuffix("."))]
    columns = [_unquoted(part) for part in valid if part != '""']
    columns = list(dict.fromkeys(without_number(column, set(columns) - {column}) for column in columns))
    ending = _quoted(nearest(bare, columns), columns)
    return UnknownColumn(f"there is no column {name}{_where(bare, text)}{ending}")


def _where(name: str, text: str) -> str:
    """Return the place of a name, if it is in the text just once."""
    found = [token for token in tokens(text) if token.value == name and token.kind in ("word", "quoted")]
    if len(found) != 1:
        return ""
    line, column = place(text, found[0].offset)
    return f" (line {line}, column {column})"


_NOT_ALIASES = _words(
    "as on where join inner left right full cross natural group order having limit offset union except intersect "
    "using window qualify fetch for set"
)


def _ambiguous(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    name = match["name"].strip().strip('"')
    candidates = []
    found = [token for token in tokens(text) if token.kind != "text"]
    for position, token in enumerate(found):
        if not _names_table(found, position, tables):
            continue
        if not any(field.name == name for field in tables[token.value]):
            continue
        candidates.append(_alias(found, position) or token.value)
    choices = list(dict.fromkeys(candidates))
    if len(choices) < 2:
        return AmbiguousColumn(f"the column {name} is in several tables: write table.{name}")
    written = " or ".join(f"{choice}.{name}" for choice in choices)
    return AmbiguousColumn(f"the column {name} is in {' and '.join(choices)}: write {written}")


def _names_table(found: Sequence[Token], position: int, tables: Mapping[str, Schema]) -> bool:
    """Tell whether a token is the name of a table in FROM, rather than the qualifier of a column."""
    token = found[position]
    if token.kind not in ("word", "quoted") or token.value not in tables or position == 0:
        return False
    before = found[position - 1].value
    after = found[position + 1].value if position + 1 < len(found) else ""
    return before in ("from", "join", ",", "(") and after != "."


def _alias(found: Sequence[Token], position: int) -> str | None:
    following = list(found[position + 1 : position + 3])
    if following and following[0].value == "as":
        following.pop(0)
    if not following or following[0].kind not in ("word", "quoted"):
        return None
    token = following[0]
    return None if token.kind == "word" and token.value in _NOT_ALIASES else token.value


def _same_names(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    name = re.sub(r"^.* AS (\w+)$", r"\1", match["name"]).rpartition(".")[2].strip('"')
    return SqlError(
        f"two columns of a subquery (or of * twice) are named {name}: give one another name, as in ... AS {name}_2"
    )


def _function(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    name = match["name"]
    return Unsupported(f"the function {name} is not supported{_where(name, text)}{function_hint(name)}")


_PLAN_TYPES = {
    "Unnest": "UNNEST", "RecursiveQuery": "WITH RECURSIVE", "CopyTo": "COPY", "Dml": "changing tables",
    "DmlStatement": "changing tables", "Explain": "EXPLAIN", "Analyze": "EXPLAIN ANALYZE", "Ddl": "changing tables",
    "DescribeTable": "DESCRIBE", "Statement": "other statements than queries",
}  # fmt: skip


def _plan_type(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    return Unsupported(f"{_PLAN_TYPES.get(match['name'], match['name'])}: not supported yet")


def _outer_reference(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    return Unsupported(f"{_CORRELATED}: write a join")


def _conversion(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    if match["name"] == "OuterReferenceColumn":
        return _outer_reference(match, text, tables)
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", match["name"]).upper()
    return Unsupported(f"{words}: not supported yet")


_WRITTEN = {"substr": "substring", "date_part": "extract", "array_element": "[...]", "strpos": "position"}
"""What is written for functions that DataFusion calls otherwise."""


def _arguments(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    name, signature = match["name"], in_sql(match["signature"])
    words = {token.value for token in tokens(text)}
    if name == "array_slice" and name not in words and "unnest" in words:
        given = signature.removeprefix("array_slice(").partition(",")[0]
        return SqlError(f"UNNEST of a value of type {given}{_where('unnest', text)} is not supported: it takes lists")
    written = _WRITTEN.get(name, name) if name not in words else name
    signature = signature.replace(name, written, 1)
    return SqlError(
        f"no function takes such values: {signature}{_where(written, text)}: cast them to types that go together"
    )


def _repeated_table(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    table = match["name"].rpartition(".")[0]
    return SqlError(f"the table {table} is in FROM twice: give one of them another name with AS")


def _too_deep(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    return SqlError("the query is nested too deeply: at most 50 levels of parentheses and subqueries are read")


def _feature(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    return Unsupported(f"not supported: {_last_cause(match['rest'])[:200]}")


def _statement(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    return SqlError(_ONLY_QUERIES)


def _not_grouped(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    name = match["name"]
    return SqlError(
        f"the column {name}{_where(name.rpartition('.')[2].strip(chr(34)), text)} must be in GROUP BY, or inside an"
        " aggregate function such as sum or min"
    )


def _long_row(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    return Unsupported("a row of values with such an expression is not supported: name the expression in a subquery")


def _wide_subquery(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    return Unsupported(
        "a subquery of several columns is supported after IN, for a row of values in WHERE with nothing but AND and OR "
        "around it: write EXISTS with a condition for each column"
    )


def _interval_product(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    return Unsupported(
        f"INTERVAL times a number{_where('interval', text)} is not supported, but for a whole number that is "
        "written out: add days to a date as date + n"
    )


def _using(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    return Unsupported(
        "USING and NATURAL are supported between tables and subqueries with names, and not beside joins in parentheses "
        "with names:"
        " write ON a.x = b.x, and a.x, b.x or coalesce(a.x, b.x) for x"
    )


def _cast(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    return CastFailed(f"a constant cannot be converted: {_last_cause(match['rest'])}")


def _zero(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    return DivisionByZero("the query divides by the constant zero")


def _overflow(match: re.Match[str], text: str, tables: Mapping[str, Schema]) -> HybridqError:
    return NumericOverflow(f"a constant of the query overflows: {_last_cause(match['rest'])}")


_CONVERSIONS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str, Mapping[str, Schema]], HybridqError]], ...] = (
    (re.compile(r'(?:Parser|Tokenizer)Error\("(?P<body>.*?)"\)', re.DOTALL), _syntax),
    (re.compile(r"(?:DDL|DML|Statement) not supported", re.IGNORECASE), _statement),
    (re.compile(r"table function '(?P<name>[^']*)' not found"), _function),
    (re.compile(r"table '(?P<name>.*?)' not found"), _unknown_table),
    (
        re.compile(r"No field named (?P<name>.+?)\.(?=\s|$)(?:.*?Valid fields are (?P<valid>.*))?", re.DOTALL),
        _unknown_column,
    ),
    (re.compile(r"Ambiguous reference to unqualified field (?P<name>\S+)"), _ambiguous),
    (re.compile(r"Invalid function '(?P<name>[^']*)'"), _function),
    (re.compile(r'unique expression names but the expression "(?P<name>.*?)" at position', re.DOTALL), _same_names),
    (re.compile(r"and unqualified field name (?P<name>.+) which would be ambiguous"), _same_names),
    (re.compile(r"duplicate unqualified field name (?P<name>\S+)"), _same_names),
    (re.compile(r"duplicate qualified field name (?P<name>\S+)"), _repeated_table),
    (re.compile(r"RecursionLimitExceeded"), _too_deep),
    (
        re.compile(r"No function matches the given name and argument types '(?P<signature>(?P<name>\w+)[^']*)'"),
        _arguments,
    ),
    (re.compile(r'column "(?P<name>\S+)" must appear in the GROUP BY clause'), _not_grouped),
    (re.compile(r"Unsupported plan type: (?P<name>\w+)"), _plan_type),
    (re.compile(r"Cannot convert (?P<name>\w+)"), _conversion),
    (re.compile(r"literals are supported in tuples"), _long_row),
    (re.compile(r"FieldNotFound.*__correlated_sq_", re.DOTALL), _outer_reference),
    (re.compile(r"The subquery should only return one column"), _wide_subquery),
    (re.compile(r"temporal operation (?:\w+ [*/] Interval|Interval\(\w+\) [*/])"), _interval_product),
    (re.compile(r"Cast error: (?P<rest>.*)", re.DOTALL), _cast),
    (re.compile(r"Divide by zero", re.IGNORECASE), _zero),
    (re.compile(r"(?:Arithmetic overflow|Overflow happened)(?P<rest>.*)", re.DOTALL), _overflow),
    (re.compile(r"join constraint: `using`"), _using),
    (re.compile(r"(?:This feature is not implemented: |NotImplemented\(\"?)(?P<rest>.*)", re.DOTALL), _feature),
)

_UNCLEAR = (_syntax, _feature, _plan_type, _conversion)
"""What tells more of DataFusion than of the text."""
