"""Reading Substrait's protobuf messages: deep ones, old ones, and ones that are none.

Protobuf drops fields that it does not know. A plan of an older or newer Substrait could so lose its LIMIT without a
word, hence unknown fields are refused, but for old forms that are converted here.
"""

from __future__ import annotations

import threading
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from substrait.proto import Plan as SubstraitPlan

from hybridq.errors import PlanFormatError, Unsupported

DEEPEST_MESSAGE = 3000
"""Levels of messages in messages. Protobuf's own limit, 100, is some 30 levels of expressions."""

_VARINT, _FIXED64, _LENGTH, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_HARMLESS = {
    ("substrait.Plan", 1),
    ("substrait.extensions.SimpleExtensionDeclaration.ExtensionFunction", 1),
    ("substrait.extensions.SimpleExtensionDeclaration.ExtensionType", 1),
    ("substrait.extensions.SimpleExtensionDeclaration.ExtensionTypeVariation", 1),
}
"""Where older plans say in which file a function is declared."""

_OFFSET, _COUNT, _GROUPING_EXPRESSIONS = 3, 4, 1
_GROUPING = "substrait.AggregateRel.Grouping"
_parsing = threading.Lock()


def parse(content: bytes) -> Any:
    """Return a ``substrait.Plan`` from its binary form.

    Raises
    ------
    PlanFormatError
        If the bytes are no such message.
    Unsupported
        If it is nested too deeply, or made by a Substrait too new or too old.
    """
    message = SubstraitPlan()
    try:
        message.ParseFromString(content)
    except DecodeError:
        if nesting(content) <= 100:
            raise PlanFormatError("it is not a Substrait message") from None
        message = _parse_deep(content)
    known = SubstraitPlan()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    _upgrade(message, known)
    return message


def _parse_deep(content: bytes) -> Any:
    if nesting(content) > DEEPEST_MESSAGE:
        raise Unsupported("a plan nested this deeply is not supported")
    # The C implementation recurses, so its limit may be lifted only for messages whose depth is known to be sane.
    from google.protobuf.internal import api_implementation

    message = SubstraitPlan()
    with _parsing:
        try:
            if api_implementation.Type() == "upb":
                from google._upb import _message

                _message.SetAllowOversizeProtos(True)
                try:
                    message.ParseFromString(content)
                finally:
                    _message.SetAllowOversizeProtos(False)
            else:
                message.ParseFromString(content)
        except DecodeError:
            raise PlanFormatError("it is not a Substrait message") from None
    return message


def nesting(content: bytes) -> int:
    """Return the depth of messages in a binary ``substrait.Plan``, without recursion.

    Groups, which Substrait does not have, count too. Bytes that are no message count as far as they make sense.
    """
    deepest = 0
    pending: list[tuple[int, int, Any, int]] = [(0, len(content), SubstraitPlan.DESCRIPTOR, 1)]
    while pending:
        position, end, descriptor, depth = pending.pop()
        groups = 0
        deepest = max(deepest, depth)
        while position < end:
            tag, position = _varint(content, position, end)
            number, wire_type = tag >> 3, tag & 7
            if wire_type == _VARINT:
                _, position = _varint(content, position, end)
            elif wire_type == _FIXED64:
                position += 8
            elif wire_type == _FIXED32:
                position += 4
            elif wire_type == _LENGTH:
                length, position = _varint(content, position, end)
                field = descriptor.fields_by_number.get(number)
                if field is not None and field.message_type is not None and not groups:
                    pending.append((position, min(position + length, end), field.message_type, depth + 1))
                position += length
            elif wire_type == _START_GROUP:
                groups += 1
                deepest = max(deepest, depth + groups)
            elif wire_type == _END_GROUP:
                groups -= 1
            else:
                break
    return deepest


def _varint(content: bytes, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = content[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    return value, position


def _upgrade(plan: Any, known: Any) -> None:
    """Convert old forms in place, and refuse fields that are not known.

    Parameters
    ----------
    plan : substrait.Plan
    known : substrait.Plan
        The same without fields that are not known: where it is as large there is nothing to look for, which asking each
        message would take longer to find out.
    """
    pending = [(plan, known)]
    while pending:
        message, rest = pending.pop()
        if message.ByteSize() == rest.ByteSize():
            continue
        for (field, value), (_, clean) in zip(message.ListFields(), rest.ListFields(), strict=True):
            if field.message_type is None or field.message_type.GetOptions().map_entry:
                continue
            pending.extend(zip(value, clean, strict=True) if field.is_repeated else [(value, clean)])
        if message.DESCRIPTOR.full_name == "substrait.AggregateRel":
            for added in _upgrade_groupings(message):
                clean = type(added)()
                clean.CopyFrom(added)
                clean.DiscardUnknownFields()
                pending.append((added, clean))
        for unknown in UnknownFieldSet(message):
            _upgrade_field(message, unknown.field_number, unknown.data)


def _upgrade_groupings(aggregate: Any) -> list[Any]:
    """Move expressions that an old plan has within its groupings; newer plans may have them in both places.

    Returns
    -------
    list of substrait.Expression
        Those that were moved.
    """
    moved = []
    for grouping in aggregate.groupings:
        old = [item.data for item in UnknownFieldSet(grouping) if item.field_number == _GROUPING_EXPRESSIONS]
        if grouping.expression_references or not all(isinstance(data, bytes) for data in old):
            continue
        for data in old:
            grouping.expression_references.append(len(aggregate.grouping_expressions))
            expression = aggregate.grouping_expressions.add()
            try:
                expression.ParseFromString(data)
            except DecodeError:
                raise PlanFormatError("the plan has a grouping that is not an expression") from None
            moved.append(expression)
    return moved


def _upgrade_field(message: Any, number: int, data: Any) -> None:
    name = message.DESCRIPTOR.full_name
    if (name, number) in _HARMLESS or (name, number) == (_GROUPING, _GROUPING_EXPRESSIONS):
        return
    if name == "substrait.FetchRel" and number in (_OFFSET, _COUNT) and isinstance(data, int):
        # An old count of -1 means all rows. Varints are unsigned here.
        rows = data - (1 << 64) if data >= 1 << 63 else data
        if number == _OFFSET:
            message.offset_expr.literal.i64 = rows
        elif rows != -1:
            message.count_expr.literal.i64 = rows
        return
    raise Unsupported(
        f"the plan uses field {number} of {name}, which this version of Substrait does not have: make the plan with a "
        "newer or older producer"
    )


def upgrade_json(content: Any) -> Any:
    """Return a plan's JSON with old forms converted.

    Raises
    ------
    RecursionError
    """
    if isinstance(content, list):
        return [upgrade_json(item) for item in content]
    if not isinstance(content, dict):
        return content
    upgraded = {key: upgrade_json(value) for key, value in content.items()}
    for key in ("extensionUris", "extensionUriReference", "extension_uris", "extension_uri_reference"):
        upgraded.pop(key, None)
    fetch = upgraded.get("fetch")
    if isinstance(fetch, dict):
        for old, new in (("offset", "offsetExpr"), ("count", "countExpr")):
            if old in fetch:
                rows = fetch.pop(old)
                if str(rows) != "-1":
                    fetch[new] = {"literal": {"i64": rows}}
    return upgraded
