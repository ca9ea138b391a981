"""Lists as rows: a node that gives one row for each element."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal as OneOf

import pyarrow as pa

from hybridq.plan.expressions import Expression, NamedExpression
from hybridq.plan.nodes import Node
from hybridq.types import Field, Schema

UnnestKind = OneOf["inner", "left", "semi", "anti"]

ORDINALITY_TYPE = pa.int64()
"""Type of the column that tells an element's place in its list."""


@dataclass(frozen=True, slots=True)
class Unnest(Node):
    """The input's rows, each once for every element of its lists.

    Several lists are gone through side by side; the shorter ones are filled up with NULL. A list that is NULL has no
    elements.

    Attributes
    ----------
    lists : tuple of NamedExpression
        Lists over the input's columns. The names are those of the columns of elements, after the input's columns.
    kind : str
        ``inner``, ``left`` (a row without elements is there once, with NULL for them), ``semi`` and ``anti`` (rows that
        have, or have no, element; once, and without it).
    ordinality : str or None
        Name of a further column: the element's place, from 1 on.
    condition : Expression or None
        Over the input's columns and the new ones: elements for which it is not true do not count.
    """

    input: Node
    lists: tuple[NamedExpression, ...]
    kind: UnnestKind = "inner"
    ordinality: str | None = None
    condition: Expression | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def elements(self) -> Schema:
        """Return the columns that an element has."""
        places = () if self.ordinality is None else (Field(self.ordinality, ORDINALITY_TYPE),)
        return tuple(Field(item.name, item.expression.type.value_type) for item in self.lists) + places

    @property
    def schema(self) -> Schema:
        return self.input.schema + (self.elements if self.kind in ("inner", "left") else ())

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        (child,) = inputs
        return replace(self, input=child)

    @property
    def label(self) -> str:
        place = f" WITH ORDINALITY {self.ordinality}" if self.ordinality is not None else ""
        condition = f" WHERE {self.condition}" if self.condition is not None else ""
        return f"Unnest {self.kind} {', '.join(map(str, self.lists))}{place}{condition}"
