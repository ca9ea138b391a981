"""Binding the Python builder's frames to tables: what their names mean, and what they show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from hybridq.errors import AmbiguousColumn, UnknownColumn, Unsupported
from hybridq.frontend.builder_expressions import Expr
from hybridq.frontend.coercion import cast_to
from hybridq.frontend.substrait_reads import nearest
from hybridq.plan.expressions import AggregateCall, Call, Column, Expression, NamedExpression, columns_of
from hybridq.plan.functions import common_type
from hybridq.plan.naming import bounded, expression_name, unique_name
from hybridq.plan.nodes import Node, Project
from hybridq.types import Schema


@dataclass(frozen=True, slots=True)
class Entry:
    """What a frame shows as one column: its name there, its table if it comes from one, and what it is.

    A column of the frame's node, mostly; what is computed becomes one in ``projected``.
    """

    name: str
    table: str | None
    value: Expression | Unsupported


@dataclass(slots=True)
class Bound:
    """A frame bound to tables: a node, and what the frame shows of it. Also the scope of its expressions."""

    node: Node
    entries: tuple[Entry, ...]
    calls: dict[tuple[str, Expression | None, bool], AggregateCall] | None = None
    taken: frozenset[str] = frozenset()

    def column(self, name: str) -> Expression:
        found = [entry for entry in self.entries if entry.name == name]
        if not found and "." in name:
            table, _, bare = name.rpartition(".")
            found = [entry for entry in self.entries if entry.table == table and entry.name == bare]
        if len(found) > 1:
            choices = [f"{entry.table}.{name}" if entry.table else name for entry in found]
            tables = " and ".join(dict.fromkeys(entry.table or "a computed column" for entry in found))
            raise AmbiguousColumn(f"the column {name} is in {tables}: write {' or '.join(dict.fromkeys(choices))}")
        if not found:
            bare = name.rpartition(".")[2]
            raise UnknownColumn(
                f"there is no column {name}{nearest(bare, list(dict.fromkeys(entry.name for entry in self.entries)))}"
            )
        value = found[0].value
        if isinstance(value, Unsupported):
            raise value
        return value

    def aggregate(self, function: str, argument: Expression | None, data_type: pa.DataType, distinct: bool) -> Column:
        if self.calls is None:
            raise Unsupported(f"the aggregate {function} outside of agg() is not supported")
        if function in ("min", "max"):
            distinct = False
        identity = (function, argument, distinct)
        if identity not in self.calls:
            text = bounded(str(AggregateCall("", function, argument, data_type, distinct)).removesuffix(" AS "))
            name = unique_name(text, self.taken | {call.name for call in self.calls.values()})
            self.calls[identity] = AggregateCall(name, function, argument, data_type, distinct)
        return Column(self.calls[identity].type, self.calls[identity].name)


@dataclass(slots=True)
class Binder:
    """What binding a whole query needs: the tables, and how often each was scanned so far."""

    tables: Mapping[str, Schema]
    scans: Counter[str] = field(default_factory=Counter)


def shown_name(name: str | None, source: Expr, value: Expression, bound: Bound) -> str:
    """Return the name that a column has in the result: the one given, its own without its table, or its text."""
    own = name or source.output_name
    if name is None and own is not None and all(entry.name != own for entry in bound.entries):
        table, _, bare = own.rpartition(".")
        if any(entry.table == table and entry.name == bare for entry in bound.entries):
            return bare
    return own or expression_name(value)


def table_of(bound: Bound, expression: Expression) -> str | None:
    """Return the table that a column comes from, if it does."""
    return next((entry.table for entry in bound.entries if entry.value == expression), None)


def usable(entry: Entry) -> Column:
    """Return the column that an entry shows, or raise why it cannot be used."""
    if isinstance(entry.value, Unsupported):
        raise entry.value
    assert isinstance(entry.value, Column)
    return entry.value


def projected(node: Node, entries: Sequence[Entry]) -> Bound:
    """Compute what is more than a column; columns alone need no node."""
    computed: dict[Expression, str] = {}
    if all(isinstance(entry.value, Column | Unsupported) for entry in entries):
        return Bound(node, tuple(entries))
    names: dict[str, NamedExpression] = {}
    for entry in entries:
        value = entry.value
        if isinstance(value, Unsupported) or value in computed:
            continue
        name = unique_name(expression_name(value), names)
        computed[value] = name
        names[name] = NamedExpression(name, value)
    shown = tuple(
        entry
        if isinstance(entry.value, Unsupported)
        else Entry(entry.name, entry.table, Column(entry.value.type, computed[entry.value]))
        for entry in entries
    )
    return Bound(Project(node, tuple(names.values())), shown)


def check_grouped(expression: Expression, available: set[str]) -> None:
    """Check that an output of ``agg`` reads only keys and aggregates."""
    missing = sorted(columns_of(expression) - available)
    if missing:
        raise Unsupported(f"{missing[0]} in agg() is neither a key of group_by() nor in an aggregate")


def equality(first: Expression, second: Expression) -> Expression:
    """Return the condition that two keys are equal."""
    data_type = common_type(first.type, second.type)
    if data_type is None:
        raise Unsupported(f"a join of {first} with {second}, of types {first.type} and {second.type}, is not supported")
    return Call(pa.bool_(), "equal", (cast_to(first, data_type), cast_to(second, data_type)))


def renamed(bound: Bound, other: Node) -> Bound:
    """Rename the columns that the other side of a join has too."""
    taken = {item.name for item in other.schema}
    if taken.isdisjoint(item.name for item in bound.node.schema):
        return bound
    names: dict[str, str] = {}
    for item in bound.node.schema:
        names[item.name] = unique_name(item.name, taken | set(names.values()))
    items = tuple(NamedExpression(names[item.name], Column(item.type, item.name)) for item in bound.node.schema)
    entries = []
    for entry in bound.entries:
        value = entry.value
        if isinstance(value, Column):
            value = Column(value.type, names[value.name])
        entries.append(Entry(entry.name, entry.table, value))
    return Bound(Project(bound.node, items), tuple(entries))
