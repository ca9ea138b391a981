"""The logical plan: typed, immutable relational nodes.

A node's ``schema`` lists its output columns; names are unique within it. Rules make new nodes and never change one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from typing import Literal as OneOf

import pyarrow as pa

from hybridq.plan.expressions import AggregateCall, Expression, NamedExpression, SortKey
from hybridq.plan.windows import WindowCall
from hybridq.types import Field, Schema

JoinKind = OneOf["inner", "left", "full", "semi", "anti", "mark"]


class _Remembers:
    """Room, in objects that never change, for what ``remembered`` has computed; no part of their value."""

    __slots__ = ("_schema",)


class remembered:  # noqa: N801 -- it stands where ``property`` would
    """A property of a node that is a schema, which rules ask for again and again: it is computed once.

    Parameters
    ----------
    make : callable
        Computes it.
    """

    def __init__(self, make: Callable[[Any], Schema]) -> None:
        self.__doc__ = make.__doc__
        self._make = make

    def __get__(self, node: Any, owner: type | None = None) -> Schema:
        if node is None:
            return self  # type: ignore[return-value]
        try:
            found: Schema = node._schema
        except AttributeError:
            found = self._make(node)
            object.__setattr__(node, "_schema", found)
        return found


@dataclass(frozen=True, slots=True)
class Node(_Remembers):
    """Base of all plan nodes."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Return the nodes whose rows this one reads."""
        return ()

    @remembered
    def schema(self) -> Schema:
        """Return the output columns, in order."""
        raise NotImplementedError

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        """Return the same node over other inputs."""
        if inputs:
            raise ValueError(f"{type(self).__name__} has no inputs")
        return self

    @property
    def label(self) -> str:
        """Return one line that describes the node without its inputs."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ScanColumn:
    """A column that a scan reads.

    Attributes
    ----------
    name : str
        Name in the plan, ``table.column``, or ``table#2.column`` for the second scan of the same table.
    source : str
        Name in the table.
    type : pyarrow.DataType
    """

    name: str
    source: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Scan(Node):
    """Rows of a registered table, those for which ``predicate`` is true.

    Attributes
    ----------
    table : str
    columns : tuple of ScanColumn
        Columns that the output has. May be empty: only the number of rows matters then.
    predicate : Expression or None
        May read only ``columns`` (those that only the predicate needs are dropped by a Project above).
    """

    table: str
    columns: tuple[ScanColumn, ...]
    predicate: Expression | None = None

    @remembered
    def schema(self) -> Schema:
        return tuple(Field(column.name, column.type) for column in self.columns)

    @property
    def label(self) -> str:
        where = f" WHERE {self.predicate}" if self.predicate is not None else ""
        return f"Scan {self.table} [{', '.join(column.source for column in self.columns)}]{where}"


@dataclass(frozen=True, slots=True)
class Values(Node):
    """A constant table.

    Attributes
    ----------
    table : pyarrow.Table
    """

    table: pa.Table

    @remembered
    def schema(self) -> Schema:
        return tuple(Field(field.name, field.type) for field in self.table.schema)

    @property
    def label(self) -> str:
        return f"Values [{self.table.num_rows} rows]"

    def __hash__(self) -> int:
        return hash((type(self), str(self.table.schema), self.table.num_rows))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Values) and bool(self.table.equals(other.table))


@dataclass(frozen=True, slots=True)
class Filter(Node):
    """Rows for which the predicate is true (neither false nor NULL)."""

    input: Node
    predicate: Expression

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @remembered
    def schema(self) -> Schema:
        return self.input.schema

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        (child,) = inputs
        return Filter(child, self.predicate)

    @property
    def label(self) -> str:
        return f"Filter {self.predicate}"


@dataclass(frozen=True, slots=True)
class Project(Node):
    """New columns computed row by row."""

    input: Node
    expressions: tuple[NamedExpression, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @remembered
    def schema(self) -> Schema:
        return tuple(Field(item.name, item.expression.type) for item in self.expressions)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        (child,) = inputs
        return Project(child, self.expressions)

    @property
    def label(self) -> str:
        return f"Project {', '.join(map(str, self.expressions))}"


@dataclass(frozen=True, slots=True)
class Join(Node):
    """Pairs of rows whose keys are equal (NULL equals nothing) and for which the residual is true.

    Attributes
    ----------
    left, right : Node
        Their column names do not overlap.
    kind : str
        ``inner``, ``left`` (unmatched left rows are padded with NULL), ``full``, ``semi`` and ``anti`` (left rows that
        have, or have no, match; only left columns come out), ``mark`` (all left rows, and whether each has a match).
        A right join is a left join with its inputs swapped.
    left_keys, right_keys : tuple of Expression
        Pairwise equal types. Empty: a cross join (or a non-equi join, with a residual).
    residual : Expression or None
        Further condition on a pair of rows, over columns of both inputs.
    null_aware : bool
        Only with ``anti`` and ``mark``: the first pair of keys is that of IN, where a NULL makes the test unknown. NOT
        IN (``anti``) then drops the row, and ``mark`` is NULL. The other conditions only choose the rows that the
        left one is compared with.
    mark : str or None
        With ``mark``: the name of the column that says whether there is a match.
    """

    left: Node
    right: Node
    kind: JoinKind
    left_keys: tuple[Expression, ...]
    right_keys: tuple[Expression, ...]
    residual: Expression | None = None
    null_aware: bool = False
    mark: str | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @remembered
    def schema(self) -> Schema:
        if self.kind in ("semi", "anti"):
            return self.left.schema
        if self.mark is not None:
            return (*self.left.schema, Field(self.mark, pa.bool_()))
        return self.left.schema + self.right.schema

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        left, right = inputs
        return replace(self, left=left, right=right)

    @property
    def label(self) -> str:
        keys = " AND ".join(f"{a} = {b}" for a, b in zip(self.left_keys, self.right_keys, strict=True))
        residual = f" AND {self.residual}" if self.residual is not None else ""
        return f"Join {self.kind} ON {keys or 'TRUE'}{residual}{' NULL-AWARE' if self.null_aware else ''}"


SET_NUMBER_TYPE = pa.int32()
"""Type of the column that tells which grouping set a row belongs to."""


@dataclass(frozen=True, slots=True)
class GroupingSets:
    """The sets of groups that an Aggregate groups by.

    Attributes
    ----------
    name : str
        Output column (int32, after the groups) with the position of a row's set in ``members``: it tells a group that
        is NULL from one that is not in the set, and equal sets apart.
    members : tuple of tuple of int
        For each set the positions of its groups, ascending. Groups that are not in a row's set are NULL there. An empty
        set gives exactly one row, whatever the input.
    """

    name: str
    members: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Aggregate(Node):
    """One row a group (NULL is a key like any other); exactly one row when there are no ``groups``.

    Attributes
    ----------
    groups : tuple of NamedExpression
    aggregates : tuple of AggregateCall
        Empty: DISTINCT of the groups.
    sets : GroupingSets or None
        Group once for each set of groups, as GROUPING SETS, ROLLUP and CUBE do.
    """

    input: Node
    groups: tuple[NamedExpression, ...]
    aggregates: tuple[AggregateCall, ...]
    sets: GroupingSets | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @remembered
    def schema(self) -> Schema:
        keys = tuple(Field(item.name, item.expression.type) for item in self.groups)
        number = () if self.sets is None else (Field(self.sets.name, SET_NUMBER_TYPE),)
        return keys + number + tuple(Field(call.name, call.type) for call in self.aggregates)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        (child,) = inputs
        return Aggregate(child, self.groups, self.aggregates, self.sets)

    @property
    def label(self) -> str:
        by = f" BY {', '.join(map(str, self.groups))}" if self.groups else ""
        sets = ""
        if self.sets is not None:
            texts = [f"({', '.join(self.groups[index].name for index in members)})" for members in self.sets.members]
            sets = f" SETS {', '.join(texts)}"
        return f"Aggregate {', '.join(map(str, self.aggregates))}{by}{sets}"


@dataclass(frozen=True, slots=True)
class Sort(Node):
    """Rows in order."""

    input: Node
    keys: tuple[SortKey, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @remembered
    def schema(self) -> Schema:
        return self.input.schema

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        (child,) = inputs
        return Sort(child, self.keys)

    @property
    def label(self) -> str:
        return f"Sort {', '.join(map(str, self.keys))}"


@dataclass(frozen=True, slots=True)
class Limit(Node):
    """Rows ``offset`` to ``offset + count`` of the input; ``count`` ``None`` means all that follow."""

    input: Node
    offset: int
    count: int | None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @remembered
    def schema(self) -> Schema:
        return self.input.schema

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        (child,) = inputs
        return Limit(child, self.offset, self.count)

    @property
    def label(self) -> str:
        return f"Limit {'ALL' if self.count is None else self.count} OFFSET {self.offset}"


@dataclass(frozen=True, slots=True)
class TopK(Node):
    """Sort and Limit in one: the rows ``offset`` to ``offset + count`` of the ordered input."""

    input: Node
    keys: tuple[SortKey, ...]
    offset: int
    count: int

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @remembered
    def schema(self) -> Schema:
        return self.input.schema

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        (child,) = inputs
        return TopK(child, self.keys, self.offset, self.count)

    @property
    def label(self) -> str:
        return f"TopK {self.count} OFFSET {self.offset} BY {', '.join(map(str, self.keys))}"


@dataclass(frozen=True, slots=True)
class Union(Node):
    """All rows of several inputs, which have columns of the same types in the same order (UNION ALL).

    Attributes
    ----------
    parts : tuple of Node
        At least one.
    names : tuple of str
        Of the output columns, by position.
    """

    parts: tuple[Node, ...]
    names: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    @remembered
    def schema(self) -> Schema:
        types = (item.type for item in self.parts[0].schema)
        return tuple(Field(name, data_type) for name, data_type in zip(self.names, types, strict=True))

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return Union(inputs, self.names)

    @property
    def label(self) -> str:
        return f"Union {', '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class Window(Node):
    """The input's rows with window functions beside them: one new column a call, after the input's columns."""

    input: Node
    calls: tuple[WindowCall, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @remembered
    def schema(self) -> Schema:
        return self.input.schema + tuple(Field(call.name, call.type) for call in self.calls)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        (child,) = inputs
        return Window(child, self.calls)

    @property
    def label(self) -> str:
        return f"Window {', '.join(map(str, self.calls))}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole query.

    Attributes
    ----------
    root : Node
    names : tuple of str
        The names that its columns have in the answer, which may repeat.
    subqueries : tuple of Node
        What each ``SubqueryValue`` stands for: the first column of the only row, or NULL where there is no row. One may
        use the values of those before it.
    of_the_moment : bool
        It has the time at which it was made as a constant (of now(), say), so another time needs another plan.
    """

    root: Node
    names: tuple[str, ...]
    subqueries: tuple[Node, ...] = ()
    of_the_moment: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        parts = [f"{', '.join(self.names)}\n{render(self.root)}"]
        parts += [f"subquery({number}):\n{render(node, 1)}" for number, node in enumerate(self.subqueries)]
        return "\n".join(parts)


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and everything below it, parents first."""
    yield node
    for child in node.inputs:
        yield from walk(child)


def transform(node: Node, rule: Callable[[Node], Node]) -> Node:
    """Rewrite bottom-up: apply ``rule`` to each node after its inputs; unchanged nodes are reused."""
    inputs = node.inputs
    changed = tuple(transform(child, rule) for child in inputs)
    if any(new is not old for new, old in zip(changed, inputs, strict=True)):
        node = node.with_inputs(changed)
    return rule(node)


def render(node: Node, indent: int = 0) -> str:
    """Return the plan as an indented tree, one node a line."""
    lines = ["  " * indent + node.label]
    lines += [render(child, indent + 1) for child in node.inputs]
    return "\n".join(lines)
