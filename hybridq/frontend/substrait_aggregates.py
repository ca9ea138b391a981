"""Substrait's aggregates: measures, and grouping sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from hybridq.errors import PlanFormatError, Unsupported
from hybridq.frontend.substrait_expressions import ExpressionTranslator
from hybridq.frontend.substrait_values import arrow_type
from hybridq.plan.aggregates import AGGREGATES, BY_SUBSTRAIT_NAME, aggregate_type
from hybridq.plan.expressions import AggregateCall, Call, Case, Column, Expression, Literal, NamedExpression, SortKey
from hybridq.plan.naming import bounded, expression_name, unique_name
from hybridq.plan.nodes import SET_NUMBER_TYPE, Aggregate, GroupingSets, Node, Project
from hybridq.types import is_decimal

DISTINCT = 2
"""Substrait's way to call an aggregate over distinct values."""


@dataclass(frozen=True, slots=True)
class AggregateTranslator:
    """Translates aggregate relations.

    Attributes
    ----------
    expressions : ExpressionTranslator
    sort_keys : callable
        Translates sort fields over an input.
    grouping_id : bool
        The plan is DataFusion's: with grouping sets, a bitmap of the keys that are not in a row's set lies between the
        keys and the measures, of which Substrait itself knows nothing. Its last column is the number of the set.
    """

    expressions: ExpressionTranslator
    sort_keys: Callable[[Sequence[Any], Sequence[Column]], tuple[SortKey, ...]]
    grouping_id: bool

    def translate(self, body: Any, node: Node, fields: Sequence[Column]) -> tuple[Node, tuple[Column, ...]]:
        """Convert a ``substrait.AggregateRel`` over a translated input.

        Returns
        -------
        tuple of (Node, tuple of Column)
            The node, and the column behind each ordinal of its output.
        """
        keys = [self.expressions.translate(expression, fields) for expression in body.grouping_expressions]
        sets = [list(grouping.expression_references) for grouping in body.groupings]
        if any(reference >= len(keys) for references in sets for reference in references):
            raise PlanFormatError("the plan groups by an expression that it does not have")
        # DataFusion exports a single grouping set like a plain GROUP BY: what tells them apart is lost, but not needed
        # where nothing asks for the bitmap, which is 0.
        used = {reference for references in sets for reference in references}
        # The output has the grouping expressions in their order, whatever the order of the references. Keys of equal
        # values are one key of a plain GROUP BY; of grouping sets, one may be in a set without the other.
        several = len(sets) > 1
        groups: dict[str, Expression] = {}
        names: dict[Expression | bytes, str] = {}
        name_of: dict[int, str] = {}
        for ordinal, key in enumerate(keys):
            if ordinal not in used:
                continue
            identity = body.grouping_expressions[ordinal].SerializeToString(deterministic=True) if several else key
            if identity not in names:
                names[identity] = unique_name(expression_name(key), groups)
                groups[names[identity]] = key
                if is_decimal(key.type) and self.expressions.is_widened(key):
                    self.expressions.widened.add(names[identity])
            name_of[ordinal] = names[identity]
        calls: dict[AggregateCall, AggregateCall] = {}
        measures: list[Column] = []
        for measure in body.measures:
            bare, wider = self._measure(measure, fields)
            if bare not in calls:
                taken = {*groups, *(call.name for call in calls.values())}
                calls[bare] = replace(bare, name=unique_name(bounded(bare.text), taken))
                if is_decimal(bare.type) and (wider or any(map(self.expressions.is_widened, bare.expressions))):
                    self.expressions.widened.add(calls[bare].name)
            measures.append(Column(bare.type, calls[bare].name))
        items = tuple(NamedExpression(name, key) for name, key in groups.items())
        if not several:
            if not items and not calls:
                raise PlanFormatError("the plan aggregates nothing")
            columns = [Column(keys[ordinal].type, name) for ordinal, name in name_of.items()]
            return Aggregate(node, items, tuple(calls.values())), (*columns, *measures)
        positions = {name: position for position, name in enumerate(groups)}
        members = tuple(tuple(sorted({positions[name_of[each]] for each in references})) for references in sets)
        number = unique_name("grouping set", {*groups, *(call.name for call in calls.values())})
        aggregate = Aggregate(node, items, tuple(calls.values()), GroupingSets(number, members))
        columns = [Column(key.type, name) for name, key in groups.items()]
        if not self.grouping_id:
            return aggregate, (*columns, *measures, Column(SET_NUMBER_TYPE, number))
        bitmap = _bitmap(Column(SET_NUMBER_TYPE, number), members, len(groups))
        passing = [NamedExpression(field.name, Column(field.type, field.name)) for field in aggregate.schema]
        name = unique_name("grouping id", {item.name for item in passing})
        project = Project(aggregate, (*passing, NamedExpression(name, bitmap)))
        return project, (*columns, Column(bitmap.type, name), *measures)

    def _measure(self, message: Any, fields: Sequence[Column]) -> tuple[AggregateCall, bool]:
        """Return an aggregate without a name, and whether its decimals have more digits than the producer assumed."""
        body = message.measure
        name = self.expressions.name_of(body.function_reference)
        if name not in BY_SUBSTRAIT_NAME and name != "nth_value":
            raise Unsupported(f"the aggregate function {name} is not supported")
        if body.phase not in (0, 3):
            raise Unsupported("a plan with partial aggregates is not supported: give the whole aggregate")
        if any(part.WhichOneof("arg_type") != "value" for part in body.arguments):
            raise Unsupported(f"the aggregate function {name} with options is not supported")
        arguments = [self.expressions.translate(part.value, fields) for part in body.arguments]
        if name == "nth_value":
            name, arguments = _picked(arguments)
        condition = self.expressions.condition(message.filter, fields) if message.HasField("filter") else None
        order = self.sort_keys(body.sorts, fields)
        declared = arrow_type(body.output_type) if body.HasField("output_type") else None
        return self.call(name, arguments, body.invocation == DISTINCT, order, condition, declared)

    @staticmethod
    def call(
        name: str,
        arguments: list[Expression],
        distinct: bool,
        order: tuple[SortKey, ...],
        condition: Expression | None,
        declared: pa.DataType | None,
    ) -> tuple[AggregateCall, bool]:
        """Return an aggregate without a name, and whether its decimals have more digits than the producer assumed.

        Parameters
        ----------
        name : str
            One of ``BY_SUBSTRAIT_NAME``.
        arguments, distinct, order, condition
            As in the plan.
        declared : pyarrow.DataType or None
            The type that the plan says the result has.

        Raises
        ------
        Unsupported
            The function does not take such arguments.
        """
        function = BY_SUBSTRAIT_NAME[name]
        rules = AGGREGATES[function]
        if function == "quantile_disc" and len(arguments) == 1:
            arguments = [*arguments, Literal(pa.float64(), 0.5)]
        distinct = distinct and rules.repeats
        if function == "count":
            arguments = _counted(arguments, distinct, condition)
        elif len(arguments) != rules.arguments:
            raise Unsupported(f"{name} of {len(arguments)} arguments is not supported")
        if condition is not None and not rules.takes_null:
            value = arguments[0]
            arguments = [Case(value.type, ((condition, value),), Literal(value.type, None)), *arguments[1:]]
            condition = None
        if order and not rules.ordered and not function.startswith("quantile"):
            # Of a function whose result does not depend on it.
            order = ()
        types = tuple(argument.type for argument in arguments)
        data_type = aggregate_type(function, types, declared)
        argument = arguments[0] if arguments else None
        call = AggregateCall("", function, argument, data_type, distinct, tuple(arguments[1:]), order, condition)
        # DataFusion does not write the type that it assumes for these, which has fewer digits.
        wider = function in ("sum", "median") and data_type != declared
        return call, wider


def _picked(arguments: list[Expression]) -> tuple[str, list[Expression]]:
    """Return the function that NTH_VALUE is, which DataFusion also makes of an element of ARRAY_AGG."""
    value, place = arguments if len(arguments) == 2 else (None, None)
    names = {1: "first_value", -1: "last_value"}
    if value is None or not isinstance(place, Literal) or place.value not in names:
        raise Unsupported(
            "NTH_VALUE as an aggregate, and an element of ARRAY_AGG, are supported for the first and the last value: "
            "make the list in a subquery for others"
        )
    return names[place.value], [value]


def _counted(arguments: list[Expression], distinct: bool, condition: Expression | None) -> list[Expression]:
    """Return what COUNT counts: nothing for all rows, else expressions that are not NULL in the rows that count."""
    if not arguments or (not distinct and len(arguments) == 1 and _is_known(arguments[0])):
        # Rows, all or some.
        return [] if condition is None else [Literal(pa.int64(), 1)]
    if len(arguments) == 1 or distinct:
        return arguments
    tests = tuple(Call(pa.bool_(), "is_not_null", (argument,)) for argument in arguments)
    one = Literal(pa.int64(), 1)
    return [Case(one.type, ((Call(pa.bool_(), "and", tests), one),), Literal(one.type, None))]


def _is_known(expression: Expression) -> bool:
    return isinstance(expression, Literal) and expression.value is not None


def _bitmap(number: Column, members: Sequence[Sequence[int]], keys: int) -> Expression:
    """Return DataFusion's grouping id: the first key's bit is the highest, and set where the key is not in the set."""
    types = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    data_type = next((each for each in types if keys <= each.bit_width), None)
    if data_type is None:
        raise Unsupported(f"grouping sets of {keys} keys are not supported: at most 64 are")
    branches = []
    for position, kept in enumerate(members):
        bits = sum(1 << (keys - 1 - key) for key in range(keys) if key not in kept)
        test = Call(pa.bool_(), "equal", (number, Literal(number.type, position)))
        branches.append((test, Literal(data_type, bits)))
    return Case(data_type, tuple(branches), Literal(data_type, None))
