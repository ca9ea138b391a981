"""Substrait's relations as plan nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from hybridq.errors import PlanFormatError, Unsupported
from hybridq.frontend import set_operations
from hybridq.frontend.construction import is_true, join_node, limit_node
from hybridq.frontend.double_values import Digits
from hybridq.frontend.substrait_aggregates import DISTINCT, AggregateTranslator
from hybridq.frontend.substrait_expressions import ExpressionTranslator, column_at
from hybridq.frontend.substrait_reads import read_table, read_values
from hybridq.frontend.substrait_subqueries import JoinNotes, marked, subqueries_of
from hybridq.frontend.window_details import WindowDetail
from hybridq.frontend.window_functions import frame_of, window_call
from hybridq.plan.aggregates import BY_SUBSTRAIT_NAME
from hybridq.plan.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    NamedExpression,
    SortKey,
    conjunction,
    conjuncts,
)
from hybridq.plan.naming import bounded, expression_name, unique_name
from hybridq.plan.nodes import Filter, JoinKind, Node, Project, Sort, Window
from hybridq.plan.windows import PICKS, WindowCall
from hybridq.types import Schema, is_decimal, is_integer

DEEPEST_PLAN = 150
"""Levels of relations that a plan may have."""

_UNSUPPORTED = {
    "lateral_join": "a lateral join",
    "expand": "grouping sets (ROLLUP, CUBE)",
    "write": "writing tables",
    "ddl": "changing tables",
    "update": "changing tables",
    "top_n": "the physical relation top-n",
}
_JOINS: dict[int, tuple[JoinKind, bool]] = {
    1: ("inner", False), 2: ("full", False), 3: ("left", False), 4: ("left", True),
    5: ("semi", False), 6: ("anti", False), 8: ("semi", True), 9: ("anti", True), 11: ("mark", False),
}  # fmt: skip
_LEFT_ANTI, _RIGHT_ANTI, _LEFT_MARK = 6, 9, 11
_SETS = {
    1: ("except", True), 7: ("except", False), 2: ("except", True), 3: ("intersect", True), 4: ("intersect", True),
    8: ("intersect", False), 5: ("union", True), 6: ("union", False),
}  # fmt: skip
"""Substrait's set operations; those named after the primary input and after multisets are the same for two inputs."""
_SORTS = {1: (False, True), 2: (False, False), 3: (True, True), 4: (True, False)}


@dataclass(frozen=True, slots=True)
class Relation:
    """A translated relation: its node, and the node's column behind each ordinal of the relation's output."""

    node: Node
    fields: tuple[Column, ...]


class RelationTranslator:
    """Translates the relations of one plan.

    Parameters
    ----------
    tables : mapping of str to Schema
        Registered tables.
    functions : mapping of int to str
        Function names by anchor.
    notes : JoinNotes
        What Substrait cannot say of the plan's joins.
    windows : iterator of tuple of WindowDetail, optional
        For each relation with window functions, in the plan's order, what Substrait cannot say of them.
    multisets : bool
        Joins that take NULL as equal to NULL in all columns stand for INTERSECT ALL and EXCEPT ALL.
    own : set of (precision, scale), optional
        Decimals that the query names, where DataFusion has made others of floating-point numbers.
    moment : datetime, optional
        What now() is; by default it is now.
    """

    def __init__(
        self,
        tables: Mapping[str, Schema],
        functions: Mapping[int, str],
        notes: JoinNotes,
        windows: Iterator[tuple[WindowDetail, ...]] | None = None,
        multisets: bool = False,
        own: Digits | None = None,
        moment: datetime | None = None,
    ) -> None:
        self.tables = tables
        self.expressions = ExpressionTranslator(functions)
        if moment is not None:
            self.expressions.moment = moment
        self.notes = notes
        self.windows = windows
        self.multisets = multisets
        self.own = own
        self.subqueries = self.expressions.subqueries
        self.scans: Counter[str] = Counter()
        self.grouping_id = False

    def translate(self, message: Any, depth: int = 0) -> Relation:
        """Convert a ``substrait.Rel``.

        Raises
        ------
        Unsupported, PlanFormatError, UnknownTable, UnknownColumn, DataError
        """
        if depth > DEEPEST_PLAN:
            raise Unsupported(f"a plan deeper than {DEEPEST_PLAN} relations is not supported")
        kind = message.WhichOneof("rel_type")
        if kind is None:
            raise PlanFormatError("the plan has an empty relation")
        body = getattr(message, kind)
        method = getattr(self, f"_{kind}", None)
        if method is None:
            plain = _UNSUPPORTED.get(kind, f"the relation {kind.replace('_', ' ')}")
            raise Unsupported(f"{plain}: not supported yet")
        note = None
        if kind == "join" and body.type in (_LEFT_ANTI, _RIGHT_ANTI, _LEFT_MARK):
            note = self.notes.null_aware("mark" if body.type == _LEFT_MARK else "anti")
        for subquery in subqueries_of(body):
            self._add_subquery(subquery, depth + 1)
        relation: Relation = method(body, depth + 1) if note is None else self._join(body, depth + 1, note)
        if self.subqueries.take_marks():
            raise Unsupported("IN over a subquery is supported in WHERE and in SELECT, and not here")
        if body.common.WhichOneof("emit_kind") == "emit":
            fields = tuple(column_at(ordinal, relation.fields) for ordinal in body.common.emit.output_mapping)
            return Relation(relation.node, fields)
        return relation

    def _add_subquery(self, message: Any, depth: int) -> None:
        kind = message.WhichOneof("subquery_type")
        if kind == "scalar":
            below = message.scalar.input
        elif kind == "in_predicate" and len(message.in_predicate.needles) == 1:
            below = message.in_predicate.haystack
        elif kind == "set_predicate" and message.set_predicate.predicate_op == 1:
            below = message.set_predicate.tuples
        else:
            raise Unsupported("ANY, ALL, UNIQUE and IN of several values over a subquery are not supported")
        relation = self.translate(below, depth)
        self.subqueries.add(message, relation.node, relation.fields)
        if kind != "set_predicate" and self.expressions.is_widened(relation.fields[0]):
            self.expressions.widened.add(str(self.subqueries.expression(message, relation.fields[0])))
            self.subqueries.take_marks()

    def _with_marks(self, node: Node) -> Node:
        """Add a column for each IN over a subquery that was met in expressions over the node."""
        for mark, needle, haystack, column in self.subqueries.take_marks():
            right = self._renamed(Relation(haystack, (column,)), node)
            node = marked(node, mark, needle, right.node, right.fields[0])
        return node

    def _read(self, body: Any, depth: int) -> Relation:
        kind = body.WhichOneof("read_type")
        if kind == "named_table":
            return Relation(*read_table(body, self.tables, self.scans, self.expressions))
        if kind == "virtual_table":
            return Relation(*read_values(body, self.scans, self.expressions, self.own))
        if kind == "local_files":
            raise Unsupported("a plan that names files is not run: register the files as a table and name that")
        raise Unsupported(f"reading from {(kind or 'nothing').replace('_', ' ')} is not supported")

    def _filter(self, body: Any, depth: int) -> Relation:
        relation = self.translate(body.input, depth)
        predicate = self.expressions.condition(body.condition, relation.fields)
        relation = Relation(self._with_marks(relation.node), relation.fields)
        # A producer that pushed a filter into its scan may repeat it above, in case the scan does not apply it.
        known = set(conjuncts(relation.node.predicate)) if isinstance(relation.node, Filter) else set()
        rest = conjunction(tuple(part for part in conjuncts(predicate) if part not in known and not is_true(part)))
        return relation if rest is None else Relation(Filter(relation.node, rest), relation.fields)

    def _project(self, body: Any, depth: int) -> Relation:
        windows = [
            item.window_function for item in body.expressions if item.WhichOneof("rex_type") == "window_function"
        ]
        details = self._window_details(len(windows))
        relation = self.translate(body.input, depth)
        calls = [
            self._window_call(item, item.partitions, item.sorts, relation.fields, detail)
            for item, detail in zip(windows, details, strict=True)
        ]
        node, results = self._with_windows(relation.node, calls)
        computed: list[Expression] = [
            next(results)
            if expression.WhichOneof("rex_type") == "window_function"
            else self.expressions.translate(expression, relation.fields)
            for expression in body.expressions
        ]
        relation = Relation(self._with_marks(node), relation.fields)
        ordinals = range(len(relation.fields) + len(computed))
        if body.common.WhichOneof("emit_kind") == "emit":
            emitted = set(body.common.emit.output_mapping)
        else:
            emitted = set(ordinals)
        outputs = [*relation.fields, *computed]
        if all(isinstance(outputs[ordinal], Column) for ordinal in emitted if ordinal in ordinals):
            # Only renames and reorders: the ordinals say so, and no node is needed. What is not emitted is not read.
            unused = Column(pa.null(), "")
            fields = tuple(output if isinstance(output, Column) else unused for output in outputs)
            return Relation(relation.node, fields)
        items: dict[str, Expression] = {}
        names: dict[Expression, str] = {}
        for ordinal in sorted(emitted):
            if ordinal not in ordinals or outputs[ordinal] in names:
                continue
            expression = outputs[ordinal]
            name = unique_name(expression_name(expression), items)
            names[expression], items[name] = name, expression
            if is_decimal(expression.type) and self.expressions.is_widened(expression):
                self.expressions.widened.add(name)
        node = Project(relation.node, tuple(NamedExpression(name, item) for name, item in items.items()))
        fields = tuple(Column(output.type, names.get(output, "")) for output in outputs)
        return Relation(node, fields)

    def _window(self, body: Any, depth: int) -> Relation:
        relation = self.translate(body.input, depth)
        calls = [
            self._window_call(item, body.partition_expressions, body.sorts, relation.fields, None)
            for item in body.window_functions
        ]
        node, results = self._with_windows(relation.node, calls)
        return Relation(node, (*relation.fields, *results))

    def _window_details(self, count: int) -> Sequence[WindowDetail | None]:
        """Return what Substrait cannot say of the next relation's window functions."""
        if not count or self.windows is None:
            return [None] * count
        found = next(self.windows, ())
        if len(found) != count:
            raise Unsupported("window functions in this form are not supported: give each one a subquery of its own")
        return found

    def _window_call(
        self, message: Any, partitions: Any, sorts: Any, fields: Sequence[Column], detail: WindowDetail | None
    ) -> WindowCall:
        name = self.expressions.name_of(message.function_reference)
        if detail is not None and detail.function != name:
            raise Unsupported(
                f"the window function {name} in this form is not supported: give it a subquery of its own"
            )
        if any(part.WhichOneof("arg_type") != "value" for part in message.arguments):
            raise Unsupported(f"the window function {name} with options is not supported")
        arguments = [self.expressions.translate(part.value, fields) for part in message.arguments]
        aggregate = None
        if name in BY_SUBSTRAIT_NAME and name not in PICKS:
            distinct = message.invocation == DISTINCT or (detail is not None and detail.distinct)
            aggregate = self._aggregates.call(name, arguments, distinct, (), None, None)[0]
        partition = tuple(self.expressions.translate(item, fields) for item in partitions)
        order = self._sort_keys(sorts, fields)
        return window_call(name, arguments, aggregate, partition, order, frame_of(message), detail)

    def _with_windows(self, node: Node, calls: Sequence[WindowCall]) -> tuple[Node, Iterator[Column]]:
        """Add window functions to a node's columns; also return the column of each."""
        if not calls:
            return node, iter(())
        names: dict[WindowCall, str] = {}
        taken = {field.name for field in node.schema}
        for call in calls:
            if call not in names:
                names[call] = unique_name(bounded(call.text), taken)
                taken.add(names[call])
                reads = [*call.arguments, *(() if call.aggregate is None else call.aggregate.expressions)]
                wider = call.aggregate is not None and call.aggregate.function in ("sum", "median")
                if is_decimal(call.type) and (wider or any(map(self.expressions.is_widened, reads))):
                    self.expressions.widened.add(names[call])
        window = Window(node, tuple(call.renamed(name) for call, name in names.items()))
        return window, iter([Column(call.type, names[call]) for call in calls])

    def _join(self, body: Any, depth: int, null_aware: bool = False) -> Relation:
        if body.type not in _JOINS:
            raise Unsupported("a join that takes a single match, a right mark join, or of no type: not supported")
        kind, swapped = _JOINS[body.type]
        left = self.translate(body.left, depth)
        right = self._renamed(self.translate(body.right, depth), left.node)
        both = (*left.fields, *right.fields)
        condition = self.expressions.condition(body.expression, both) if body.HasField("expression") else None
        if self.multisets and kind in ("semi", "anti") and _tells_null_from_null(condition):
            pairs = conjuncts(condition) if condition is not None else ()
            whole = len(pairs) == len(left.fields) == len(right.fields) and all(map(_tells_null_from_null, pairs))
            if swapped or not whole:
                raise Unsupported("INTERSECT ALL and EXCEPT ALL of constant columns are not supported")
            inputs = (left.node, left.fields), (right.node, right.fields)
            matched = set_operations.matched(*inputs, kept=kind == "semi", multiset=True)
            return Relation(matched, set_operations.columns_of_node(matched))
        if swapped:
            left, right = right, left
        mark = unique_name("mark", {*(item.name for side in (left, right) for item in side.node.schema)})
        node = join_node(left.node, right.node, kind, condition, null_aware, mark if kind == "mark" else None)
        fields = left.fields if kind in ("semi", "anti") else both
        if kind == "mark":
            fields = (*left.fields, Column(pa.bool_(), mark))
        relation = Relation(node, fields)
        if body.HasField("post_join_filter"):
            predicate = self.expressions.condition(body.post_join_filter, relation.fields)
            return Relation(Filter(node, predicate), relation.fields)
        return relation

    def _set(self, body: Any, depth: int) -> Relation:
        if body.op not in _SETS:
            raise Unsupported("a set operation of no kind is not supported")
        kind, distinct_rows = _SETS[body.op]
        if not body.inputs:
            raise PlanFormatError("the plan has a set operation without inputs")
        if kind != "union" and len(body.inputs) != 2:
            raise Unsupported("INTERSECT and EXCEPT of other than two inputs at once are not supported: nest them")
        relations = [self.translate(part, depth) for part in body.inputs]
        inputs = [(relation.node, relation.fields) for relation in relations]
        if not relations[0].fields and (distinct_rows or kind != "union"):
            raise Unsupported("UNION, INTERSECT and EXCEPT of inputs without columns are not supported")
        node: Node
        if kind == "union":
            node = set_operations.union_all(inputs)
        else:
            node = set_operations.matched(inputs[0], inputs[1], kept=kind == "intersect", multiset=not distinct_rows)
        for position, field in enumerate(node.schema):
            if any(self.expressions.is_widened(relation.fields[position]) for relation in relations):
                self.expressions.widened.add(field.name)
        if distinct_rows:
            node = set_operations.distinct(node)
        return Relation(node, set_operations.columns_of_node(node))

    def _cross(self, body: Any, depth: int) -> Relation:
        left = self.translate(body.left, depth)
        right = self._renamed(self.translate(body.right, depth), left.node)
        return Relation(join_node(left.node, right.node, "inner", None), (*left.fields, *right.fields))

    def _renamed(self, relation: Relation, other: Node) -> Relation:
        """Rename the columns that the other side of a join has too."""
        taken = {field.name for field in other.schema}
        if taken.isdisjoint(field.name for field in relation.node.schema):
            return relation
        names: dict[str, str] = {}
        for item in relation.node.schema:
            names[item.name] = unique_name(item.name, taken | set(names.values()))
            if item.name in self.expressions.widened:
                self.expressions.widened.add(names[item.name])
        items = tuple(NamedExpression(names[item.name], Column(item.type, item.name)) for item in relation.node.schema)
        fields = tuple(Column(column.type, names[column.name]) for column in relation.fields)
        return Relation(Project(relation.node, items), fields)

    def _aggregate(self, body: Any, depth: int) -> Relation:
        relation = self.translate(body.input, depth)
        return Relation(*self._aggregates.translate(body, relation.node, relation.fields))

    @property
    def _aggregates(self) -> AggregateTranslator:
        return AggregateTranslator(self.expressions, self._sort_keys, self.grouping_id)

    def _sort(self, body: Any, depth: int) -> Relation:
        relation = self.translate(body.input, depth)
        keys = self._sort_keys(body.sorts, relation.fields)
        return Relation(Sort(relation.node, keys), relation.fields) if keys else relation

    def _sort_keys(self, messages: Sequence[Any], fields: Sequence[Column]) -> tuple[SortKey, ...]:
        keys = []
        for item in messages:
            if item.WhichOneof("sort_kind") != "direction" or item.direction not in _SORTS:
                raise Unsupported("sorting by clusters, or by a comparison function, is not supported")
            descending, nulls_first = _SORTS[item.direction]
            keys.append(SortKey(self.expressions.translate(item.expr, fields), descending, nulls_first))
        return tuple(keys)

    def _fetch(self, body: Any, depth: int) -> Relation:
        relation = self.translate(body.input, depth)
        offset = self._rows(body.offset_expr, "OFFSET") if body.HasField("offset_expr") else None
        count = self._rows(body.count_expr, "LIMIT") if body.HasField("count_expr") else None
        return Relation(limit_node(relation.node, offset or 0, count), relation.fields)

    def _rows(self, message: Any, clause: str) -> int | None:
        value = self.expressions.translate(message, ())
        if not isinstance(value, Literal) or not (value.value is None or is_integer(value.type)):
            raise Unsupported(f"{clause} must be a constant number of rows")
        if value.value is not None and value.value < 0:
            raise PlanFormatError(f"{clause} {value.value} is negative")
        rows: int | None = value.value
        return rows


def _tells_null_from_null(condition: Expression | None) -> bool:
    """Tell whether any part of a condition takes NULL as equal to NULL."""
    parts = () if condition is None else conjuncts(condition)
    return any(isinstance(part, Call) and part.function == "is_not_distinct_from" for part in parts)
