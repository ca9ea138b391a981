"""Substrait plans, from bytes, JSON or files, as plans of hybridq."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from substrait.proto import Plan as SubstraitPlan

from hybridq.errors import PlanFormatError, Unsupported
from hybridq.frontend.construction import with_columns
from hybridq.frontend.double_values import Digits
from hybridq.frontend.substrait_messages import parse, upgrade_json
from hybridq.frontend.substrait_relations import Relation, RelationTranslator
from hybridq.frontend.substrait_subqueries import JoinNote, JoinNotes
from hybridq.frontend.substrait_values import names_below
from hybridq.frontend.window_details import WindowDetail
from hybridq.plan.nodes import Node, Plan
from hybridq.types import Schema

DEEPEST_JSON = 2000


def load_substrait(path: str | Path) -> bytes:
    """Read a Substrait plan from a file, in Substrait's binary form or in JSON.

    Parameters
    ----------
    path : str or Path
        A file of the plan itself; which of the two forms it has shows in its first byte.

    Returns
    -------
    bytes
        The plan in binary form, for ``plan_substrait``.

    Raises
    ------
    PlanFormatError
        If the file cannot be read, or is no Substrait plan.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise PlanFormatError(f"cannot read the plan {path}: {error.strerror or error}") from error
    try:
        if content.lstrip()[:1] == b"{":
            return bytes(_from_json(content).SerializeToString())
        parse(content)
    except PlanFormatError as error:
        raise PlanFormatError(f"{path} is not a Substrait plan: {error}") from error
    return content


def _from_json(content: bytes) -> Any:
    try:
        return _from_dictionary(json.loads(content))
    except (ValueError, RecursionError) as error:
        raise PlanFormatError(f"it is not JSON ({error})") from error


def _from_dictionary(content: Any) -> Any:
    if not isinstance(content, dict):
        raise PlanFormatError("it is not a JSON object")
    try:
        upgraded = upgrade_json(content)
        message = json_format.ParseDict(upgraded, SubstraitPlan(), max_recursion_depth=DEEPEST_JSON)
    except RecursionError:
        raise Unsupported("a JSON plan nested this deeply is not supported: use Substrait's binary form") from None
    except (json_format.ParseError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise PlanFormatError(str(error).splitlines()[0] if str(error) else "it has a wrong structure") from error
    return message


def plan_substrait(
    message: bytes | Mapping[str, Any],
    tables: Mapping[str, Schema],
    notes: Iterator[JoinNote] | None = None,
    windows: Iterator[tuple[WindowDetail, ...]] | None = None,
    multisets: bool = False,
    own: Digits | None = None,
    moment: datetime | None = None,
) -> Plan:
    """Convert a Substrait plan.

    Parameters
    ----------
    message : bytes or mapping
        The plan in Substrait's binary form, or its JSON as a dictionary.
    tables : mapping of str to Schema
        The registered tables.
    notes : iterator of JoinNote, optional
        What Substrait cannot say of the plan's anti and mark joins, see ``JoinNotes``.
    windows : iterator of tuple of WindowDetail, optional
        What Substrait cannot say of window functions, for each relation that has some, in the plan's order.
    multisets : bool
        Semi and anti joins that take NULL as equal to NULL stand for INTERSECT ALL and EXCEPT ALL.
    own : set of (precision, scale), optional
        Decimals that the query names, where DataFusion has made others of floating-point numbers.
    moment : datetime, optional
        What now() is; by default it is now.

    Returns
    -------
    Plan
        Not yet optimised.

    Raises
    ------
    PlanFormatError
        If the bytes are no Substrait plan, or contradict themselves.
    UnknownTable, UnknownColumn, DataError
        If the tables are not what the plan was made for.
    Unsupported
        If the plan needs something that hybridq does not do; the message names it.
    """
    parsed = parse(message) if isinstance(message, bytes) else _from_dictionary(dict(message))
    try:
        translator = RelationTranslator(tables, _functions(parsed), JoinNotes(notes), windows, multisets, own, moment)
        return _translate(parsed, translator)
    except RecursionError:
        raise Unsupported("a plan nested this deeply is not supported") from None


def _functions(message: Any) -> dict[int, str]:
    """Return the names of a plan's functions by anchor."""
    functions = {
        item.extension_function.function_anchor: item.extension_function.name.partition(":")[0].lower()
        for item in message.extensions
        if item.WhichOneof("mapping_type") == "extension_function"
    }
    if message.version.producer == "datafusion":
        # SQL's concat() skips NULLs, and || does not; DataFusion calls the latter str_concat.
        functions = {key: "concat_skipping_null" if name == "concat" else name for key, name in functions.items()}
    return functions


def _translate(message: Any, translator: RelationTranslator) -> Plan:
    relations = [item for item in message.relations if item.WhichOneof("rel_type") is not None]
    if not relations:
        raise PlanFormatError("this Substrait plan has no relations")
    if len(relations) > 1:
        raise Unsupported("a Substrait plan of several relations is not supported: it must have one root")
    translator.grouping_id = message.version.producer == "datafusion"
    if relations[0].WhichOneof("rel_type") == "root":
        relation = translator.translate(relations[0].root.input)
        names = tuple(relations[0].root.names)
    else:
        relation = translator.translate(relations[0].rel)
        names = tuple(column.name for column in relation.fields)
    names = _of_columns(names, relation)
    if not names:
        raise Unsupported("a query without columns is not supported")
    translator.notes.check_used()
    subqueries = tuple(translator.subqueries.values)
    return Plan(rooted(relation), names, subqueries, translator.expressions.of_the_moment)


def _of_columns(names: tuple[str, ...], relation: Relation) -> tuple[str, ...]:
    """Leave out the names of nested fields."""
    places = list(accumulate((1 + names_below(column.type) for column in relation.fields), initial=0))
    if len(names) == len(relation.fields):
        return names
    if len(names) != places[-1]:
        raise PlanFormatError(f"the plan names {len(names)} columns and has {len(relation.fields)}")
    return tuple(names[place] for place in places[:-1])


def rooted(relation: Relation) -> Node:
    """Return a node whose columns are exactly the relation's, in order; a repeated column gets a second name."""
    return with_columns(relation.node, relation.fields)
