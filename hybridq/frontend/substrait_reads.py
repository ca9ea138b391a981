"""Substrait's reads: registered tables and constant tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from hybridq.errors import DataError, HybridqError, PlanFormatError, UnknownColumn, UnknownTable, Unsupported
from hybridq.frontend.coercion import cast_to
from hybridq.frontend.double_values import Digits, is_stand_in
from hybridq.frontend.substrait_expressions import ExpressionTranslator, column_at
from hybridq.frontend.substrait_values import arrow_type, name_count
from hybridq.plan.expressions import Cast, Column, Expression, NamedExpression, columns_of
from hybridq.plan.naming import unique_name
from hybridq.plan.nodes import Filter, Node, Project, Scan, ScanColumn, Values
from hybridq.plan.rules.constant_folding import value_of
from hybridq.types import Schema, is_decimal, is_floating, is_integer, is_interval, is_nested, is_string, same_shape

Read = tuple[Node, tuple[Column, ...]]


def is_supported(data_type: pa.DataType) -> bool:
    """Tell whether queries can compute with columns of that (normalised) type."""
    return bool(
        pa.types.is_boolean(data_type)
        or is_integer(data_type)
        or (is_floating(data_type) and data_type != pa.float16())
        or (is_decimal(data_type) and data_type.scale >= 0)
        or is_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_date32(data_type)
        or pa.types.is_timestamp(data_type)
        or pa.types.is_duration(data_type)
        or is_interval(data_type)
        or (pa.types.is_list(data_type) and is_supported(data_type.value_type))
        or (pa.types.is_struct(data_type) and _has_plain_fields(data_type))
        or (pa.types.is_map(data_type) and _has_plain_keys(data_type) and is_supported(data_type.item_type))
    )


def _has_plain_fields(data_type: pa.DataType) -> bool:
    names = [field.name for field in data_type]
    return len(set(names)) == len(names) > 0 and all(is_supported(field.type) for field in data_type)


def _has_plain_keys(data_type: pa.DataType) -> bool:
    keys = data_type.key_type
    return is_supported(keys) and not is_nested(keys) and not is_interval(keys)


def nearest(name: str, names: Sequence[str]) -> str:
    """Return the end of an error message that offers the nearest names, or else all of a few.

    >>> nearest("ordrs", ["orders", "part"])
    '; did you mean orders?'
    """
    folded = {candidate.casefold(): candidate for candidate in names}
    close = [folded[match] for match in get_close_matches(name.casefold(), folded, n=3, cutoff=0.6)]
    if close:
        return f"; did you mean {' or '.join(close)}?"
    if not names:
        return "; there are none"
    return f"; there are {', '.join(sorted(names)[:10])}{' and others' if len(names) > 10 else ''}"


def find_table(parts: Sequence[str], tables: Mapping[str, Schema]) -> str:
    """Return the registered table that a plan names, whatever its catalog, schema and case.

    Raises
    ------
    UnknownTable
    """
    if not parts:
        raise PlanFormatError("the plan reads a table of no name")
    for name in (".".join(parts), parts[-1]):
        if name in tables:
            return name
    if parts[-1].endswith("()"):
        raise Unsupported(f"the table function {parts[-1].removesuffix('()')} is not supported")
    folded = [name for name in tables if name.casefold() == parts[-1].casefold()]
    if len(folded) == 1:
        return folded[0]
    message = f"there is no table {'.'.join(parts)}{nearest(parts[-1], list(tables))}"
    raise UnknownTable(message, parts[-1])


def read_table(body: Any, tables: Mapping[str, Schema], scans: Counter[str], expressions: ExpressionTranslator) -> Read:
    """Convert a ``substrait.ReadRel`` of a named table.

    Only columns that the plan uses need exist, and have the types that the plan declares.

    Raises
    ------
    UnknownTable, UnknownColumn, DataError, Unsupported, PlanFormatError
    """
    table = find_table(body.named_table.names, tables)
    scans[table] += 1
    prefix = table if scans[table] == 1 else f"{table}#{scans[table]}"
    columns = {field.name: field.type for field in tables[table]}
    sources: dict[str, str] = {}
    base: list[Column | HybridqError] = []
    for name, declared in _base_columns(body.base_schema):
        source = _find_column(name, list(columns))
        if isinstance(source, UnknownColumn):
            base.append(UnknownColumn(f"the plan reads column {table}.{name}, which does not exist{source}"))
            continue
        column = _matched(table, source, columns[source], declared, f"{prefix}.{source}")
        sources[f"{prefix}.{source}"] = source
        base.append(column)
    if body.HasField("projection"):
        ordinals = [item.field for item in body.projection.select.struct_items]
        if any(item.HasField("child") for item in body.projection.select.struct_items):
            raise Unsupported("reading part of a nested column is not supported")
    else:
        ordinals = list(range(len(base)))
    fields = tuple(column_at(ordinal, base) for ordinal in ordinals)
    predicate = expressions.translate(body.filter, base) if body.HasField("filter") else None
    needed = {column.name: column.type for column in fields}
    if predicate is not None:
        if not pa.types.is_boolean(predicate.type):
            raise PlanFormatError(f"the plan filters by a value of type {predicate.type}")
        read = columns_of(predicate)
        needed |= {item.name: item.type for item in base if isinstance(item, Column) and item.name in read}
    scan = Scan(table, tuple(ScanColumn(name, sources[name], data_type) for name, data_type in needed.items()))
    return (scan if predicate is None else Filter(scan, predicate)), fields


def _base_columns(schema: Any) -> list[tuple[str, Any]]:
    """Return names and types of a schema's columns, leaving out the names of nested fields."""
    columns = []
    position = 0
    for data_type in schema.struct.types:
        if position >= len(schema.names):
            raise PlanFormatError("the plan has a table with fewer column names than columns")
        columns.append((schema.names[position], data_type))
        position += 1 + name_count(data_type)
    if position != len(schema.names):
        raise PlanFormatError("the plan has a table with more column names than columns")
    return columns


def _find_column(name: str, columns: Sequence[str]) -> str | UnknownColumn:
    if name in columns:
        return name
    folded = [column for column in columns if column.casefold() == name.casefold()]
    return folded[0] if len(folded) == 1 else UnknownColumn(nearest(name, columns))


def _matched(table: str, source: str, actual: pa.DataType, declared: Any, name: str) -> Column | HybridqError:
    """Return the column if its type is what the plan declares, else the error for when it is used."""
    if not is_supported(actual):
        return Unsupported(f"column {table}.{source} has the type {actual}, which queries cannot use yet")
    try:
        expected = arrow_type(declared)
    except HybridqError as error:
        return error
    if same_shape(expected, actual):
        return Column(actual, name)
    # Substrait has no time zones: a timestamp either has one or not.
    if pa.types.is_timestamp(actual) and pa.types.is_timestamp(expected):
        same_zone = (actual.tz is None) == (expected.tz is None)
        if same_zone and actual.unit == expected.unit:
            return Column(actual, name)
    return DataError(f"column {table}.{source} has the type {actual}, but the plan was made for {expected}")


def read_values(body: Any, scans: Counter[str], expressions: ExpressionTranslator, own: Digits | None = None) -> Read:
    """Convert a ``substrait.ReadRel`` of a constant table.

    Parameters
    ----------
    own : set of (precision, scale), optional
        See ``plan_substrait``. What DataFusion has made a decimal of is a floating-point number in the table, and cast
        above it.

    Raises
    ------
    Unsupported, PlanFormatError
    """
    scans[""] += 1
    prefix = "values" if scans[""] == 1 else f"values#{scans['']}"
    rows = body.virtual_table.expressions
    columns: list[Column] = []
    arrays: list[pa.Array] = []
    casts: dict[str, Expression] = {}
    for ordinal, (name, declared) in enumerate(_base_columns(body.base_schema)):
        data_type = arrow_type(declared)
        kind = None if own is None else _floating_kind(rows, ordinal, data_type, expressions, own)
        values = [_constant(row, ordinal, kind or data_type, expressions, kind is not None) for row in rows]
        try:
            arrays.append(pa.array(values, kind or data_type))
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise PlanFormatError(f"a constant of the plan does not fit its type: {error}") from error
        taken = {column.name for column in columns}
        column = Column(kind or data_type, unique_name(f"{prefix}.{name}", taken))
        columns.append(column)
        if kind is not None:
            casts[column.name] = Cast(data_type, column)
    if not columns:
        # A table of no columns still has rows: SELECT 1 reads one. Arrow counts the rows of its columns.
        names, arrays = [f"{prefix}.row"], [pa.nulls(len(rows), pa.bool_())]
    else:
        names = [column.name for column in columns]
    node: Node = Values(pa.table(arrays, names=names))
    if casts:
        node = Project(node, tuple(NamedExpression(each.name, casts.get(each.name, each)) for each in columns))
        columns = [Column(item.type, item.name) for item in node.schema]
    fields = tuple(columns)
    if body.HasField("filter"):
        node = Filter(node, expressions.translate(body.filter, fields))
    if body.HasField("projection"):
        fields = tuple(column_at(item.field, fields) for item in body.projection.select.struct_items)
    return node, fields


def _floating_kind(
    rows: Any, ordinal: int, data_type: pa.DataType, expressions: ExpressionTranslator, own: Digits
) -> pa.DataType | None:
    """Return the floating-point type that a column of constants has been made a decimal of, if it has."""
    if not is_decimal(data_type):
        return None
    cells = [row.fields[ordinal].cast.input for row in rows if _is_cast(row, ordinal)]
    kinds = {expressions.translate(cell, ()).type for cell in cells}
    found = [kind for kind in (pa.float64(), pa.float32()) if kind in kinds and is_stand_in(kind, data_type, own)]
    return found[0] if found else None


def _is_cast(row: Any, ordinal: int) -> bool:
    return ordinal < len(row.fields) and row.fields[ordinal].WhichOneof("rex_type") == "cast"


def _constant(
    row: Any, ordinal: int, data_type: pa.DataType, expressions: ExpressionTranslator, bare: bool = False
) -> Any:
    """Return a constant's value; if ``bare``, as it was before the plan cast it."""
    if ordinal >= len(row.fields):
        raise PlanFormatError("the plan has a row of constants with too few values")
    cell = row.fields[ordinal]
    if bare and _is_cast(row, ordinal):
        cell = cell.cast.input
    value = value_of(cast_to(expressions.translate(cell, ()), data_type))
    if value is None:
        raise Unsupported("VALUES with anything but constants is not supported")
    return value.value
