"""SQL text as plans, planned by DataFusion."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from hybridq.errors import Unsupported
from hybridq.frontend.sql_aggregates import check_aggregates
from hybridq.frontend.sql_errors import refuse_other_statements, translated
from hybridq.frontend.sql_joins import join_notes
from hybridq.frontend.substrait import plan_substrait
from hybridq.frontend.substrait_reads import is_supported
from hybridq.frontend.substrait_subqueries import JoinNote
from hybridq.plan.nodes import Plan
from hybridq.types import Schema, is_decimal

_SETTINGS = {
    # 0.06 + 0.01 is 0.07 only in decimals.
    "datafusion.sql_parser.parse_float_as_decimal": "true",
    "datafusion.sql_parser.map_string_types_to_utf8view": "false",
    # Other dialects read more clauses that DataFusion then ignores.
    "datafusion.sql_parser.dialect": "PostgreSQL",
    "datafusion.execution.target_partitions": "1",
}


def plan_sql(text: str, tables: Mapping[str, Schema]) -> Plan:
    """Plan one SQL query.

    Parameters
    ----------
    text : str
        A single SELECT (or WITH, or VALUES). It can read the given tables and nothing else.
    tables : mapping of str to Schema
        The registered tables.

    Returns
    -------
    Plan
        Not yet optimised by hybridq's rules.

    Raises
    ------
    SqlError
        If the text is no query, with line and column where they are known.
    UnknownTable, UnknownColumn, AmbiguousColumn
        The message offers the nearest names.
    Unsupported
        If the query needs something that hybridq does not do; the message names it.
    """
    message, notes = _substrait(text, tables)
    return plan_substrait(message, tables, iter(notes))


def export_substrait(text: str, tables: Mapping[str, Schema]) -> str:
    """Return the Substrait plan of one SQL query as JSON, for files that ``load_substrait`` reads.

    Parameters
    ----------
    text : str
        As for ``plan_sql``.
    tables : mapping of str to Schema
        The registered tables.

    Returns
    -------
    str
        JSON in protobuf's form.

    Raises
    ------
    SqlError, UnknownTable, UnknownColumn, AmbiguousColumn, Unsupported
        As ``plan_sql`` does; also ``Unsupported`` for NOT IN, and for EXISTS and IN under OR, with a subquery, which
        Substrait cannot express.
    """
    from google.protobuf import json_format
    from substrait.proto import Plan as SubstraitPlan

    message, notes = _substrait(text, tables)
    if any(note.null_aware or note.kind == "mark" for note in notes):
        raise Unsupported("NOT IN with a subquery, and EXISTS under OR, cannot be written as Substrait")
    parsed = SubstraitPlan()
    parsed.ParseFromString(message)
    # DataFusion writes them in any order.
    parsed.extensions.sort(key=lambda item: item.extension_function.function_anchor)
    return json.dumps(json_format.MessageToDict(parsed), indent=1)


def _substrait(text: str, tables: Mapping[str, Schema]) -> tuple[bytes, list[JoinNote]]:
    """Plan the text and return it as Substrait, and what that cannot say of the joins."""
    import datafusion
    from datafusion.substrait import Producer

    words = refuse_other_statements(text)
    context = datafusion.SessionContext(datafusion.SessionConfig(_SETTINGS).with_information_schema(False))
    for name, schema in tables.items():
        planned = pa.schema([pa.field(field.name, _planned_type(field.type)) for field in schema])
        context.register_record_batches(_quoted(name), [[pa.RecordBatch.from_pylist([], schema=planned)]])
    options = datafusion.SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
    try:
        frame = context.sql_with_options(text, options)
        logical = frame.optimized_logical_plan()
        names = words | set(tables) | {field.name for schema in tables.values() for field in schema}
        notes = join_notes(frame.logical_plan().display_indent(), logical.display_indent(), names)
        message = Producer.to_substrait_plan(logical, context).encode()
        check_aggregates(logical, message)
        return message, notes
    except Exception as error:  # DataFusion raises plain Exception for most failures
        raise translated(error, text, tables) from error
    except BaseException as error:
        # A panic of DataFusion's Rust code is no Exception, so that nobody hides it; the query is still at fault.
        if type(error).__name__ != "PanicException":
            raise
        raise Unsupported(f"DataFusion failed to plan the query: {str(error)[:200]}") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _planned_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type that DataFusion plans a column with.

    Columns of types that queries cannot use keep their place as bytes; using one is an error that names it.
    """
    return data_type if is_supported(data_type) and not _wide(data_type) else pa.binary()


def _wide(data_type: pa.DataType) -> bool:
    return is_decimal(data_type) and data_type.precision > 38
