"""SQL text as plans, planned by DataFusion."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hybridq.errors import HybridqError, SqlError, Unsupported
from hybridq.frontend import row_subqueries, row_text
from hybridq.frontend.double_values import compute_as_floating, own_decimals
from hybridq.frontend.sql_aggregates import check_aggregates
from hybridq.frontend.sql_casts import with_casts_told_apart, with_microseconds, without_marks
from hybridq.frontend.sql_chains import with_short_chains
from hybridq.frontend.sql_columns import Columns
from hybridq.frontend.sql_constants import with_constants
from hybridq.frontend.sql_correlated import correlated_by_equality
from hybridq.frontend.sql_errors import is_of_correlation, refuse_other_statements, refuse_time_zones, translated
from hybridq.frontend.sql_guards import (
    compares_outer_null_with_null,
    drops_single_rows,
    fails_below_joins,
    has_constant_conditions_beside_aggregates,
    mixes_up_outer_values,
    moves_conditions_below_aggregates,
    repeats_comparison,
)
from hybridq.frontend.sql_joins import join_notes
from hybridq.frontend.sql_macros import with_macros_spelled_out
from hybridq.frontend.sql_numbers import with_doubles, with_numbers
from hybridq.frontend.sql_places import with_place
from hybridq.frontend.sql_positions import with_positions_spelled_out
from hybridq.frontend.sql_single_rows import refused_single_row, with_single_rows_compared
from hybridq.frontend.sql_synonyms import with_synonyms
from hybridq.frontend.sql_tags import TAG, tagged_notes, with_tagged_subqueries
from hybridq.frontend.sql_text import has_multisets
from hybridq.frontend.sql_twins import SAME_NAME, planned_apart, without_number
from hybridq.frontend.sql_unnest import UnnestText, without_unnest
from hybridq.frontend.sql_using import with_joins_spelled_out
from hybridq.frontend.substrait import plan_substrait
from hybridq.frontend.substrait_reads import is_supported
from hybridq.frontend.substrait_subqueries import JoinNote
from hybridq.frontend.unnesting import UnnestNames, with_unnests
from hybridq.frontend.window_details import WindowDetail, has_groups, is_filtered, restored, window_details
from hybridq.frontend.window_text import with_rows_for_groups, with_windows_spelled_out, without_filters
from hybridq.plan.nodes import Plan
from hybridq.plan.unnesting import ORDINALITY_TYPE
from hybridq.types import Field, Schema, is_decimal

if TYPE_CHECKING:
    import datafusion

_SETTINGS = {
    # 0.06 + 0.01 is 0.07 only in decimals.
    "datafusion.sql_parser.parse_float_as_decimal": "true",
    "datafusion.sql_parser.map_string_types_to_utf8view": "false",
    # Other dialects read more clauses that DataFusion then ignores.
    "datafusion.sql_parser.dialect": "PostgreSQL",
    "datafusion.execution.target_partitions": "1",
    # TIMESTAMPTZ has no zone otherwise.
    "datafusion.execution.time_zone": "UTC",
}

_NOTHING = "EmptyRelation: rows=0"
_MAKE_NOTHING = ("eliminate_limit", "eliminate_filter", "eliminate_join", "propagate_empty_relation")
"""DataFusion's rules that put an empty table in the place of what has no rows."""

_UNREADABLE = re.compile(r"(?:Parser|Tokenizer)Error")

_OTHER_FORMS = (
    (row_text.REFUSED, row_text.with_rows_called),
    (row_subqueries.REFUSED, row_subqueries.with_rows_looked_up),
)
"""What DataFusion says of a text that it cannot plan, and what makes another of it that it perhaps can."""


def plan_sql(text: str, tables: Mapping[str, Schema], moment: datetime | None = None) -> Plan:
    """Plan one SQL query.

    Parameters
    ----------
    text : str
        A single SELECT (or WITH, or VALUES). It can read the given tables and nothing else.
    tables : mapping of str to Schema
        The registered tables.
    moment : datetime, optional
        What now() is; by default it is now.

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
    plan = _plan(text, tables, _substrait(text, tables), moment)
    if fails_below_joins(plan):
        # Perhaps it was DataFusion that put the condition there. Where it cannot do without, its plan stands.
        with contextlib.suppress(Unsupported):
            plan = _plan(text, tables, _substrait(text, tables, push_filters=False), moment)
    return plan


def _plan(text: str, tables: Mapping[str, Schema], exported: _Exported, moment: datetime | None) -> Plan:
    windows = None if exported.windows is None else iter(exported.windows)
    own = own_decimals(text)
    known = {**tables, **exported.unnests.schemas}
    plan = plan_substrait(exported.message, known, iter(exported.joins), windows, has_multisets(text), own, moment)
    plan = with_unnests(plan, exported.unnests.names)
    return replace(compute_as_floating(plan, own), names=exported.names)


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
        As ``plan_sql`` does; also ``Unsupported`` for what Substrait cannot express: NOT IN, and EXISTS and IN under
        OR, with a subquery; INTERSECT ALL and EXCEPT ALL; UNNEST; windows with DISTINCT, FILTER, IGNORE NULLS,
        GROUPS, or a RANGE of an interval or a fraction.
    """
    from google.protobuf import json_format
    from substrait.proto import Plan as SubstraitPlan

    exported = _substrait(text, tables)
    if any(note.null_aware or note.kind == "mark" for note in exported.joins):
        raise Unsupported("NOT IN with a subquery, and EXISTS under OR, cannot be written as Substrait")
    if any(detail.is_lost or detail.frame.unit == "groups" for node in exported.windows or () for detail in node):
        raise Unsupported(
            "window functions with DISTINCT, FILTER, IGNORE NULLS, GROUPS, or a RANGE of an interval or a fraction "
            "cannot be written as Substrait"
        )
    if exported.unnests.names:
        raise Unsupported("UNNEST cannot be written as Substrait")
    if has_multisets(text):
        raise Unsupported("INTERSECT ALL and EXCEPT ALL cannot be written as Substrait by DataFusion")
    parsed = SubstraitPlan()
    parsed.ParseFromString(exported.message)
    # DataFusion writes them in any order.
    parsed.extensions.sort(key=lambda item: item.extension_function.function_anchor)
    return json.dumps(json_format.MessageToDict(parsed), indent=1)


@dataclass(frozen=True, slots=True)
class _Exported:
    """A query as Substrait, and what Substrait cannot say of it.

    Attributes
    ----------
    message : bytes
    names : tuple of str
        The answer's column names.
    joins : list of JoinNote
    windows : list of tuple of WindowDetail, or None
        For each window node, parents first, what is to be known of its functions.
    unnests : Unnests
        The tables that stand for UNNEST.
    """

    message: bytes
    names: tuple[str, ...]
    joins: list[JoinNote]
    windows: list[tuple[WindowDetail, ...]] | None
    unnests: Unnests


def _substrait(text: str, tables: Mapping[str, Schema], push_filters: bool = True) -> _Exported:
    """Plan the text and return it as Substrait; with ``push_filters`` conditions may have moved below joins."""
    try:
        return _exported(text, tables, push_filters)
    except (SqlError, Unsupported) as error:
        if not is_of_correlation(error):
            raise
        context, options, known = _context(tables), _options(), _column_names(tables)
        columns_of = _columns_of(context, options, known)
        joined = with_joins_spelled_out(_rewritten(text), columns_of, known)
        for conditions in (False, True):
            other, _ = correlated_by_equality(joined, columns_of, known, conditions)
            if other != joined:
                with contextlib.suppress(HybridqError):
                    return _exported(other, tables, push_filters)
        raise correlated_by_equality(text, columns_of, known)[1] or error from None


def _rewritten(text: str) -> str:
    """Return the text with what DataFusion takes otherwise, or refuses, in words that it takes as they are meant."""
    return with_single_rows_compared(with_positions_spelled_out(with_synonyms(with_macros_spelled_out(text))))


def _options() -> datafusion.SQLOptions:
    import datafusion

    return datafusion.SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)


def _context(tables: Mapping[str, Schema]) -> datafusion.SessionContext:
    import datafusion

    context = datafusion.SessionContext(datafusion.SessionConfig(_SETTINGS).with_information_schema(False))
    for name, schema in tables.items():
        context.register_record_batches(_quoted(name), [[_planned_table(schema)]])
    # It computes constants in its own way: integers wrap, quotients are cut off. ``constant_folding`` does it instead.
    context.remove_optimizer_rule("simplify_expressions")
    return context


def _exported(text: str, tables: Mapping[str, Schema], push_filters: bool) -> _Exported:
    import datafusion
    from datafusion.substrait import Producer

    words = refuse_other_statements(text)
    refuse_time_zones(text)
    context, options = _context(tables), _options()
    if "sign" in words:
        # DataFusion has it as signum alone. It only plans the call.
        number = pa.float64()
        context.register_udf(datafusion.udf(lambda array: array, [number], number, "immutable", name="sign"))
    if not push_filters:
        context.remove_optimizer_rule("push_down_filter")
    if has_multisets(text):
        # DataFusion plans INTERSECT ALL and EXCEPT ALL as joins to which repeated rows do not matter, and may then make
        # an inner join below them a semi join, which has fewer.
        context.remove_optimizer_rule("eliminate_join")
    written = _rewritten(with_windows_spelled_out(text))

    def fails(query: str) -> str:
        try:
            _planned(context, with_doubles(with_microseconds(_rewritten(query))), options)[0].optimized_logical_plan()
        except Exception as error:
            return str(translated(error, text, tables))
        return ""

    original = text
    known = _column_names(tables)
    try:
        short = with_short_chains(with_joins_spelled_out(written, _columns_of(context, options, known), known))
        unnested = without_unnest(short)
        unnests = _registered(context, unnested, options)
        text = with_doubles(with_microseconds(short if unnested is None else unnested.text))
        try:
            frame, text = _planned(context, text, options)
            answer = tuple(frame.schema().names)
        except Exception as error:
            found = _with_names_apart(context, text, options, error)
            if found is None:
                if _UNREADABLE.search(str(error)):
                    context.sql_with_options(original, options)  # fails, too, and tells the place in the text as it is
                if text != written and unnested is None:
                    context.sql_with_options(written, options)  # in the words of the text, or nearly so
                raise
            frame, text, answer = found
        logical = frame.optimized_logical_plan()
        before = frame.logical_plan().display_indent()
        if drops_single_rows(before):
            raise refused_single_row(text)
        if mixed_up := mixes_up_outer_values(before):
            raise Unsupported(f"a subquery with {mixed_up} is not supported: write a join")
        if repeats_comparison(before):
            raise Unsupported(
                "NOT IN over a subquery with the same comparison in its WHERE (a NOT IN (SELECT b ... WHERE b = a)) is "
                "not supported: write NOT EXISTS"
            )
        harmful = _harmful_rules(logical.display_indent(), before)
        if _NOTHING in logical.display_indent() and ("decimal" in str(frame.schema()) or "Union" in before):
            # A decimal may stand in for a floating-point number, which of an empty table nobody can tell.
            harmful += _MAKE_NOTHING
        if harmful:
            for rule in harmful:
                context.remove_optimizer_rule(rule)
            frame = context.sql_with_options(text, options)
            logical = frame.optimized_logical_plan()
        if has_multisets(text) and compares_outer_null_with_null(before):
            raise Unsupported(
                "INTERSECT ALL and EXCEPT ALL beside a subquery that compares with its outer query by "
                "IS [NOT] DISTINCT FROM are not supported"
            )
        windows = window_details(logical)
        if has_groups(windows) or is_filtered(windows):
            frame = context.sql_with_options(with_rows_for_groups(without_filters(text)), options)
            logical, before = frame.optimized_logical_plan(), frame.logical_plan().display_indent()
            windows = _of_rewritten(windows or [], window_details(logical) or [])
        names = words | set(tables) | {field.name for schema in tables.values() for field in schema}
        notes = join_notes(before, logical.display_indent(), names)
        if any(note.null_aware is None for note in notes) and not (has_groups(windows) or is_filtered(windows)):
            logical, notes = _with_tags(context, text, options, logical, notes)
        message = Producer.to_substrait_plan(logical, context).encode()
        check_aggregates(logical, message)
        answer = tuple(without_number(name, names) for name in answer)
        answer = tuple(name if name in names else with_constants(with_numbers(name)) for name in answer)
        return _Exported(message, answer, notes, windows, unnests)
    except HybridqError:
        raise
    except Exception as error:  # DataFusion raises plain Exception for most failures
        refusal = translated(error, original, tables)
        raise (with_place(refusal, original, fails) if isinstance(refusal, SqlError) else refusal) from error
    except BaseException as error:
        # A panic of DataFusion's Rust code is no Exception, so that nobody hides it; the query is still at fault.
        if type(error).__name__ != "PanicException":
            raise
        raise Unsupported(f"DataFusion failed to plan the query: {str(error)[:200]}") from error


def _planned(
    context: datafusion.SessionContext, text: str, options: datafusion.SQLOptions
) -> tuple[datafusion.DataFrame, str]:
    """Plan a text; also return the text, which differs where only another form of it can be planned."""
    try:
        return context.sql_with_options(text, options), text
    except Exception as error:
        for refused, other_form in _OTHER_FORMS:
            if refused in str(error) and (changed := other_form(text)) != text:
                break
        else:
            raise
    return _planned(context, changed, options)


def _with_names_apart(
    context: datafusion.SessionContext, text: str, options: datafusion.SQLOptions, error: Exception
) -> tuple[datafusion.DataFrame, str, tuple[str, ...]] | None:
    """Plan a text that failed because two columns have one name; also return what is planned, and the names meant."""
    if not SAME_NAME.search(str(error)):
        return None
    apart = with_casts_told_apart(text)
    if apart != text:
        with contextlib.suppress(Exception):
            frame = context.sql_with_options(apart, options)
            return frame, apart, tuple(map(without_marks, frame.schema().names))
    return planned_apart(
        text, lambda query: _planned(context, query, options)[0], lambda frame: list(frame.schema().names)
    )


def _column_names(tables: Mapping[str, Schema]) -> dict[str, list[str]]:
    return {name: [field.name for field in schema] for name, schema in tables.items()}


def _columns_of(
    context: datafusion.SessionContext, options: datafusion.SQLOptions, known: Mapping[str, Sequence[str]]
) -> Columns:
    """Return what tells the columns of a query."""

    def columns_of(query: str) -> list[str] | None:
        query = with_joins_spelled_out(query, columns_of, known)
        try:
            frame, _ = _planned(context, with_doubles(with_microseconds(query)), options)
        except Exception:
            return None
        return list(frame.schema().names)

    return columns_of


def _with_tags(
    context: datafusion.SessionContext,
    text: str,
    options: datafusion.SQLOptions,
    logical: Any,
    notes: list[JoinNote],
) -> tuple[Any, list[JoinNote]]:
    """Return a plan in which names tell what joins stand for, and what they tell; those given if that fails."""
    if TAG in text.lower():
        return logical, notes
    with contextlib.suppress(Exception):  # DataFusion refuses a second name for a column
        frame = context.sql_with_options(with_tagged_subqueries(text), options)
        tagged = frame.optimized_logical_plan()
        return tagged, tagged_notes(frame.logical_plan().display_indent(), tagged.display_indent())
    return logical, notes


@dataclass(frozen=True, slots=True)
class Unnests:
    """The tables that stand for UNNEST in a query.

    Attributes
    ----------
    schemas : mapping of str to Schema
    names : mapping of str to UnnestNames
    """

    schemas: Mapping[str, Schema]
    names: Mapping[str, UnnestNames]


def _registered(
    context: datafusion.SessionContext, unnested: UnnestText | None, options: datafusion.SQLOptions
) -> Unnests:
    """Give DataFusion the tables and conditions that stand for UNNEST."""
    import datafusion

    if unnested is None:
        return Unnests({}, {})
    schemas: dict[str, Schema] = {}
    names: dict[str, UnnestNames] = {}
    probe = with_doubles(with_microseconds(unnested.probe))
    try:
        probed, _ = _planned(context, probe, options)
    except Exception as error:
        found = _with_names_apart(context, probe, options, error)
        if found is None:
            raise
        probed = found[0]
    types = unnested.list_types(probed.logical_plan().display_indent_schema())
    for table in unnested.tables:
        lists = types[table.number]
        pairs = zip(table.columns, lists, strict=True)
        elements = tuple(Field(name, data_type.value_type) for name, data_type in pairs)
        if table.ordinality is not None:
            elements += (Field(table.ordinality, ORDINALITY_TYPE),)
        planned = pa.schema([pa.field(field.name, field.type) for field in elements])
        context.register_record_batches(table.name, [[pa.RecordBatch.from_pylist([], schema=planned)]])
        takes = [*lists, *planned.types]
        # It only plans the call.
        context.register_udf(
            datafusion.udf(lambda *arrays: arrays[0], takes, pa.bool_(), "immutable", name=table.function)
        )
        schemas[table.name] = elements
        names[table.name] = UnnestNames(len(lists), tuple(table.columns), table.ordinality)
    # It joins by equal keys first, and so could join these tables with others than those that have the lists.
    context.remove_optimizer_rule("eliminate_cross_join")
    # It takes a list out of the condition that shows what is unnested.
    context.remove_optimizer_rule("common_sub_expression_eliminate")
    return Unnests(schemas, names)


def _harmful_rules(displayed: str, before: str) -> list[str]:
    """Return DataFusion's rules that have made, of a query as it is displayed, what cannot be planned as it should.

    Parameters
    ----------
    displayed, before : str
        The plan after DataFusion's rules, and before them.
    """
    moved = moves_conditions_below_aggregates(displayed) or has_constant_conditions_beside_aggregates(before)
    found = ["push_down_filter"] if moved else []
    if "__common_expr" in displayed and "struct(" in displayed:
        # Rows of values are compared one by one where they are made.
        found.append("common_sub_expression_eliminate")
    return found


def _of_rewritten(
    wanted: list[tuple[WindowDetail, ...]], found: list[tuple[WindowDetail, ...]]
) -> list[tuple[WindowDetail, ...]]:
    """Return the details of windows in a rewritten query, with the frames of the query itself."""
    if is_filtered(found):
        raise Unsupported("FILTER of a window function in this form is not supported: use CASE in its argument")
    return restored(wanted, found) if has_groups(wanted) else found


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@lru_cache(maxsize=256)
def _planned_table(schema: Schema) -> pa.RecordBatch:
    """Return an empty table for DataFusion to plan with."""
    planned = pa.schema([pa.field(field.name, _planned_type(field.type)) for field in schema])
    return pa.RecordBatch.from_pylist([], schema=planned)


def _planned_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type that DataFusion plans a column with.

    Columns of types that queries cannot use keep their place as bytes; using one is an error that names it.
    """
    return data_type if is_supported(data_type) and not _wide(data_type) else pa.binary()


def _wide(data_type: pa.DataType) -> bool:
    return is_decimal(data_type) and data_type.precision > 38
