"""Substrait's relations as plan nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hybridq.errors import PlanFormatError, Unsupported
from hybridq.frontend import set_operations
from hybridq.frontend.construction import aggregate_type, is_true, join_node, limit_node
from hybridq.frontend.substrait_expressions import ExpressionTranslator, column_at
from hybridq.frontend.substrait_reads import read_table, read_values
from hybridq.frontend.substrait_subqueries import JoinNotes, marked, subqueries_of
from hybridq.frontend.substrait_values import arrow_type
from hybridq.plan.expressions import (
    AggregateCall,
    Call,
    Case,
    Column,
    Expression,
    Literal,
    NamedExpression,
    SortKey,
    conjunction,
    conjuncts,
)
from hybridq.plan.naming import bounded, expression_name, unique_name
from hybridq.plan.nodes import Aggregate, Filter, JoinKind, Node, Project, Sort
from hybridq.types import Schema, is_decimal, is_integer

DEEPEST_PLAN = 150
"""Levels of relations that a plan may have."""

_UNSUPPORTED = {
    "window": "window functions (OVER)",
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
_AGGREGATES = {"sum": "sum", "count": "count", "avg": "avg", "mean": "avg", "min": "min", "max": "max"}


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
    """

    def __init__(self, tables: Mapping[str, Schema], functions: Mapping[int, str], notes: JoinNotes) -> None:
        self.tables = tables
        self.expressions = ExpressionTranslator(functions)
        self.notes = notes
        self.subqueries = self.expressions.subqueries
        self.scans: Counter[str] = Counter()

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
            return Relation(*read_values(body, self.scans, self.expressions))
        if kind == "local_files":
            raise Unsupported("a plan that names files is not run: register the files as a table and name that")
        raise Unsupported(f"reading from {(kind or 'nothing').replace('_', ' ')} is not supported")

    def _filter(self, body: Any, depth: int) -> Relation:
        relation = self.translate(body.input, depth)
        predicate = self._condition(body.condition, relation.fields)
        relation = Relation(self._with_marks(relation.node), relation.fields)
        # A producer that pushed a filter into its scan may repeat it above, in case the scan does not apply it.
        known = set(conjuncts(relation.node.predicate)) if isinstance(relation.node, Filter) else set()
        rest = conjunction(tuple(part for part in conjuncts(predicate) if part not in known and not is_true(part)))
        return relation if rest is None else Relation(Filter(relation.node, rest), relation.fields)

    def _condition(self, message: Any, fields: Sequence[Column]) -> Expression:
        predicate = self.expressions.translate(message, fields)
        if not pa.types.is_boolean(predicate.type):
            raise PlanFormatError(f"the plan filters by a value of type {predicate.type}")
        return predicate

    def _project(self, body: Any, depth: int) -> Relation:
        relation = self.translate(body.input, depth)
        computed = [self.expressions.translate(expression, relation.fields) for expression in body.expressions]
        relation = Relation(self._with_marks(relation.node), relation.fields)
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

    def _join(self, body: Any, depth: int, null_aware: bool = False) -> Relation:
        if body.type not in _JOINS:
            raise Unsupported("a join that takes a single match, a right mark join, or of no type: not supported")
        kind, swapped = _JOINS[body.type]
        left = self.translate(body.left, depth)
        right = self._renamed(self.translate(body.right, depth), left.node)
        both = (*left.fields, *right.fields)
        condition = self._condition(body.expression, both) if body.HasField("expression") else None
        if swapped:
            left, right = right, left
        mark = unique_name("mark", {*(item.name for side in (left, right) for item in side.node.schema)})
        node = join_node(left.node, right.node, kind, condition, null_aware, mark if kind == "mark" else None)
        fields = left.fields if kind in ("semi", "anti") else both
        if kind == "mark":
            fields = (*left.fields, Column(pa.bool_(), mark))
        relation = Relation(node, fields)
        if body.HasField("post_join_filter"):
            predicate = self._condition(body.post_join_filter, relation.fields)
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
        elif distinct_rows:
            node = set_operations.matched(inputs[0], inputs[1], kept=kind == "intersect")
        else:
            raise Unsupported(f"{kind.upper()} ALL is not supported yet")
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
        if len(body.groupings) > 1:
            raise Unsupported("grouping sets (ROLLUP, CUBE): not supported yet")
        keys = [self.expressions.translate(expression, relation.fields) for expression in body.grouping_expressions]
        references = list(body.groupings[0].expression_references) if body.groupings else []
        if any(reference >= len(keys) for reference in references):
            raise PlanFormatError("the plan groups by an expression that it does not have")
        # The output has the grouping expressions in their order, whatever the order of the references.
        keys = [key for ordinal, key in enumerate(keys) if ordinal in set(references)]
        groups: dict[str, Expression] = {}
        names: dict[Any, str] = {}
        for key in keys:
            if key not in names:
                names[key] = unique_name(expression_name(key), groups)
                groups[names[key]] = key
                if is_decimal(key.type) and self.expressions.is_widened(key):
                    self.expressions.widened.add(names[key])
        fields = [Column(key.type, names[key]) for key in keys]
        calls: dict[tuple[str, Expression | None, bool], AggregateCall] = {}
        for measure in body.measures:
            function, argument, data_type, distinct, wider = self._measure(measure, relation.fields)
            identity = (function, argument, distinct)
            if identity not in calls:
                text = str(AggregateCall("", function, argument, data_type, distinct)).removesuffix(" AS ")
                name = unique_name(bounded(text), {*groups, *(call.name for call in calls.values())})
                calls[identity] = AggregateCall(name, function, argument, data_type, distinct)
                if is_decimal(data_type) and (wider or self._reads_widened(argument)):
                    self.expressions.widened.add(name)
            fields.append(Column(calls[identity].type, calls[identity].name))
        items = tuple(NamedExpression(name, key) for name, key in groups.items())
        if not items and not calls:
            raise PlanFormatError("the plan aggregates nothing")
        return Relation(Aggregate(relation.node, items, tuple(calls.values())), tuple(fields))

    def _measure(
        self, message: Any, fields: Sequence[Column]
    ) -> tuple[str, Expression | None, pa.DataType, bool, bool]:
        body = message.measure
        name = self.expressions.name_of(body.function_reference)
        function = _AGGREGATES.get(name)
        if function is None:
            raise Unsupported(f"the aggregate function {name} is not supported")
        if body.phase not in (0, 3):
            raise Unsupported("a plan with partial aggregates is not supported: give the whole aggregate")
        if any(part.WhichOneof("arg_type") != "value" for part in body.arguments):
            raise Unsupported(f"the aggregate function {name} with options is not supported")
        arguments = [self.expressions.translate(part.value, fields) for part in body.arguments]
        distinct = body.invocation == 2 and function not in ("min", "max")
        if function == "count":
            argument = _counted(arguments, distinct)
        elif len(arguments) == 1:
            argument = arguments[0]
        else:
            raise Unsupported(f"{name} of {len(arguments)} arguments is not supported")
        if message.HasField("filter"):
            condition = self._condition(message.filter, fields)
            value = argument if argument is not None else Literal(pa.int64(), 1)
            argument = Case(value.type, ((condition, value),), Literal(value.type, None))
        declared = arrow_type(body.output_type) if body.HasField("output_type") else None
        data_type = aggregate_type(function, argument, declared)
        # DataFusion does not write the type that it assumes for a sum, which has fewer digits.
        wider = function == "sum" and data_type != declared
        return function, argument, data_type, distinct, wider

    def _reads_widened(self, argument: Expression | None) -> bool:
        return argument is not None and self.expressions.is_widened(argument)

    def _sort(self, body: Any, depth: int) -> Relation:
        relation = self.translate(body.input, depth)
        keys = []
        for item in body.sorts:
            if item.WhichOneof("sort_kind") != "direction" or item.direction not in _SORTS:
                raise Unsupported("sorting by clusters, or by a comparison function, is not supported")
            descending, nulls_first = _SORTS[item.direction]
            keys.append(SortKey(self.expressions.translate(item.expr, relation.fields), descending, nulls_first))
        return Relation(Sort(relation.node, tuple(keys)), relation.fields) if keys else relation

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


def _counted(arguments: Sequence[Expression], distinct: bool) -> Expression | None:
    """Return what COUNT counts: ``None`` for all rows, else an expression that is NULL for rows left out."""
    if len(arguments) > 1:
        if distinct:
            raise Unsupported("COUNT(DISTINCT a, b) is not supported yet")
        tests = tuple(Call(pa.bool_(), "is_not_null", (argument,)) for argument in arguments)
        one = Literal(pa.int64(), 1)
        return Case(one.type, ((Call(pa.bool_(), "and", tests), one),), Literal(one.type, None))
    if not arguments:
        return None
    argument = arguments[0]
    constant = isinstance(argument, Literal) and argument.value is not None
    return None if constant and not distinct else argument
