"""Substrait's scalar expressions as plan expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from hybridq.errors import HybridqError, PlanFormatError, Unsupported
from hybridq.frontend.coercion import common_type_of, is_convertible, membership
from hybridq.frontend.list_forms import is_of_lists
from hybridq.frontend.row_values import NAMES as ROWS
from hybridq.frontend.row_values import equal_rows, parts_of
from hybridq.frontend.sql_chains import LONG
from hybridq.frontend.sql_unnest import FUNCTION as UNNESTS
from hybridq.frontend.substrait_functions import OF_THE_MOMENT, moment_value, special_form
from hybridq.frontend.substrait_subqueries import Subqueries
from hybridq.frontend.substrait_values import arrow_type, constant, literal
from hybridq.plan.expressions import Call, Case, Cast, Column, Expression, In, Literal, SubqueryValue, columns_of, walk
from hybridq.plan.functions import BY_SUBSTRAIT_NAME, COMPARISONS, DATE_PARTS, result_type
from hybridq.plan.rules.comparison_forms import formed_alone
from hybridq.plan.rules.constant_folding import computed, value_of
from hybridq.types import is_decimal, is_floating, is_nested, is_string, same_shape

DEEPEST_EXPRESSION = 100
"""Levels of nesting that an expression may have; chains of AND and OR count as one."""

Fields = Sequence[Column | HybridqError]
"""What each ordinal of an input stands for: a column, or the reason why it cannot be used."""

_PLAIN_NAMES = {
    "window_function": "a window function (OVER) within an expression",
    "dynamic_parameter": "parameters ($1, ?)",
    "multi_or_list": "membership of several values at once",
    "nested": "nested values (struct, list, map)",
}
_OF_NESTED = frozenset({"is_null", "is_not_null", "coalesce", "get_field"})
"""Functions that take lists and structs as they take other values."""
_GAIN_A_DIGIT = frozenset({"round", "ceil", "floor"})
"""Functions whose decimal results DataFusion declares one digit too short."""
_DATE_PART_ALIASES = {"day_of_year": "doy", "iso_week": "week"}


@dataclass(slots=True)
class ExpressionTranslator:
    """Translates the expressions of one plan.

    Attributes
    ----------
    functions : mapping of int to str
        Names of the plan's functions by their anchors, without signatures.
    widened : set of str
        Columns whose decimal type has more digits than the producer of the plan assumed: sums, which hybridq gives
        38 digits. Types that the plan declares for expressions over them are derived anew.
    moment : datetime
        What now() is throughout the query.
    of_the_moment : bool
        Something asked for it.
    """

    functions: Mapping[int, str]
    widened: set[str] = field(default_factory=set)
    subqueries: Subqueries = field(default_factory=Subqueries)
    moment: datetime = field(default_factory=lambda: datetime.now(UTC))
    of_the_moment: bool = False

    def condition(self, message: Any, fields: Fields) -> Expression:
        """Convert an expression that rows are filtered by.

        Raises
        ------
        PlanFormatError
            It is no boolean.
        """
        predicate = self.translate(message, fields)
        if not pa.types.is_boolean(predicate.type):
            raise PlanFormatError(f"the plan filters by a value of type {predicate.type}")
        return predicate

    def translate(self, message: Any, fields: Fields, depth: int = 0) -> Expression:
        """Convert a ``substrait.Expression`` over the given input.

        Raises
        ------
        Unsupported, PlanFormatError
        """
        if depth > DEEPEST_EXPRESSION:
            raise Unsupported(f"an expression nested deeper than {DEEPEST_EXPRESSION} levels is not supported")
        # Much of what must be constant in a plan (a pattern's flags, a list's values) may be computed in the text.
        expression = formed_alone(self._translate(message, fields, depth))
        if isinstance(expression, Cast) and isinstance(expression.operand, Literal):
            if is_string(expression.operand.type):
                return value_of(expression) or expression  # a date with 13 months is wrong wherever it stands
            if is_floating(expression.operand.type) and is_decimal(expression.type):
                return expression  # perhaps it only stands in for the floating-point number
        return computed(expression)

    def _translate(self, message: Any, fields: Fields, depth: int) -> Expression:
        kind = message.WhichOneof("rex_type")
        if kind == "literal":
            return constant(message.literal)
        if kind == "selection":
            return _column(message.selection, fields)
        if kind == "scalar_function":
            return self._function(message.scalar_function, fields, depth + 1)
        if kind == "cast":
            return self._cast(message.cast, fields, depth + 1)
        if kind == "if_then":
            return self._case(message.if_then, fields, depth + 1)
        if kind == "switch_expression":
            return self._switch(message.switch_expression, fields, depth + 1)
        if kind == "singular_or_list":
            body = message.singular_or_list
            if (row := self._row(body.value, fields, depth)) is not None:
                return self._row_membership(row, body.options, fields, depth)
            operand = self.translate(body.value, fields, depth + 1)
            return membership(operand, [self.translate(option, fields, depth + 1) for option in body.options])
        if kind == "subquery":
            needles = message.subquery.in_predicate.needles
            needle = self.translate(needles[0], fields, depth + 1) if needles else None
            return self.subqueries.expression(message.subquery, needle)
        if kind is None:
            raise PlanFormatError("the plan has an empty expression")
        raise Unsupported(f"{_PLAIN_NAMES.get(kind, kind.replace('_', ' '))}: not supported yet")

    def is_widened(self, expression: Expression) -> bool:
        """Tell whether the expression is, or reads, something wider than the plan's producer assumed."""
        if any(
            isinstance(part, Call) and part.function in _GAIN_A_DIGIT and is_decimal(part.type)
            for part in walk(expression)
        ):
            return True
        if not self.widened:
            return False
        values = (str(part) for part in walk(expression) if isinstance(part, SubqueryValue))
        return not self.widened.isdisjoint({*columns_of(expression), *values})

    def name_of(self, reference: int) -> str:
        """Return the name of the function with that anchor."""
        try:
            return self.functions[reference]
        except KeyError:
            raise PlanFormatError(f"the plan calls function {reference}, which it does not declare") from None

    def _function(self, message: Any, fields: Fields, depth: int) -> Expression:
        substrait_name = self.name_of(message.function_reference)
        if substrait_name in ("and", "or"):
            return self._connective(substrait_name, message, fields, depth)
        if substrait_name in ("extract", "date_part"):
            return self._extract(message, fields, depth)
        if substrait_name in ("equal", "not_equal") and len(message.arguments) == 2:
            rows = [self._row(_value(part, substrait_name), fields, depth) for part in message.arguments]
            if rows[0] is not None and rows[1] is not None:
                same = equal_rows(rows[0], rows[1])
                return same if substrait_name == "equal" else Call(pa.bool_(), "not", (same,))
        arguments = [self.translate(_value(part, substrait_name), fields, depth) for part in message.arguments]
        if substrait_name.startswith(UNNESTS):
            return Call(pa.bool_(), substrait_name, tuple(arguments))
        if substrait_name in OF_THE_MOMENT and not arguments:
            self.of_the_moment = True
            return moment_value(substrait_name, self.moment)
        if substrait_name == "arrow_cast" and arguments:
            return _converted(arguments[0], arrow_type(message.output_type), returns_null=False)
        nested = next((argument for argument in arguments if is_nested(argument.type)), None)
        if nested is not None and not is_of_lists(substrait_name) and substrait_name not in _OF_NESTED:
            raise Unsupported(f"the function {substrait_name} of {nested}, of type {nested.type}, is not supported")
        if (special := special_form(substrait_name, arguments)) is not None:
            return special
        if substrait_name == "not" and (parts := _negated_parts(arguments)) is not None:
            return Call(pa.bool_(), "and", parts)
        if substrait_name == "concat_skipping_null":
            arguments = [_empty_if_null(argument) for argument in arguments]
            substrait_name = "concat"
        if substrait_name == "coalesce" and len(arguments) == 1:
            return arguments[0]
        name = BY_SUBSTRAIT_NAME.get(substrait_name)
        if substrait_name in ROWS:
            raise Unsupported("a row of values is supported on both sides of =, <> and IN: compare single values")
        if name is None:
            raise Unsupported(f"the function {substrait_name} is not supported")
        options: tuple[str, ...] = ()
        if name in ("like", "ilike") and len(arguments) == 3:
            options = _escape(arguments.pop())
        if name == "coalesce" or (name in COMPARISONS and len(arguments) == 2):
            arguments = common_type_of(arguments, name)
        derived = result_type(name, tuple(argument.type for argument in arguments))
        if is_nested(derived):
            return Call(derived, name, tuple(arguments), options)  # with the names of structs' fields
        wider = name in _GAIN_A_DIGIT and is_decimal(derived)
        declared = message.HasField("output_type") and not wider and not any(map(self.is_widened, arguments))
        data_type = arrow_type(message.output_type) if declared else derived
        if pa.types.is_boolean(derived) != pa.types.is_boolean(data_type):
            raise PlanFormatError(f"the plan declares {data_type} as the type of {substrait_name}")
        return Call(data_type, name, tuple(arguments), options)

    def _row(self, message: Any, fields: Fields, depth: int) -> list[Expression] | None:
        """Return the values that an expression makes a row of; ``None``: it makes none."""
        parts = parts_of(message, self.name_of)
        return None if parts is None else [self.translate(part, fields, depth + 1) for part in parts]

    def _row_membership(self, row: list[Expression], options: Sequence[Any], fields: Fields, depth: int) -> Expression:
        tests = []
        for option in options:
            other = self._row(option, fields, depth)
            if other is None:
                raise Unsupported("IN of a row of values among others than rows is not supported")
            tests.append(equal_rows(row, other))
        return tests[0] if len(tests) == 1 else Call(pa.bool_(), "or", tuple(tests))

    def _connective(self, name: str, message: Any, fields: Fields, depth: int) -> Expression:
        """Flatten a chain of AND or of OR, which producers nest by pairs."""
        terms: list[Expression] = []
        pending = [_value(part, name) for part in reversed(message.arguments)]
        while pending:
            part = pending.pop()
            inner = part.scalar_function if part.WhichOneof("rex_type") == "scalar_function" else None
            if inner is not None and self.name_of(inner.function_reference) == name:
                pending.extend(_value(argument, name) for argument in reversed(inner.arguments))
            else:
                terms.append(self.translate(part, fields, depth))
        if not terms:
            raise PlanFormatError(f"the plan has an {name.upper()} of nothing")
        result_type(name, tuple(term.type for term in terms))
        if len(terms) == 1:
            return terms[0]
        if name == "or" and (merged := _merged_membership(terms)) is not None:
            return merged
        return Call(pa.bool_(), name, tuple(terms))

    def _extract(self, message: Any, fields: Fields, depth: int) -> Expression:
        """Convert EXTRACT, whose component is an enumeration or a string; an indexing enumeration may follow it."""
        words = [part.enum for part in message.arguments if part.WhichOneof("arg_type") == "enum"]
        values = [part.value for part in message.arguments if part.WhichOneof("arg_type") == "value"]
        if not words and values and values[0].WhichOneof("rex_type") == "literal":
            words, values = [values[0].literal.string], values[1:]
        if not words or len(values) != 1 or "ZERO" in words[1:]:
            raise Unsupported("EXTRACT in this form is not supported: it takes one constant component and one value")
        component = _DATE_PART_ALIASES.get(words[0].lower(), words[0].lower())
        if component not in DATE_PARTS:
            raise Unsupported(f"EXTRACT of {words[0]} is not supported: {', '.join(sorted(DATE_PARTS))} are")
        operand = self.translate(values[0], fields, depth)
        data_type = result_type("extract", (operand.type,))
        if message.HasField("output_type"):
            data_type = arrow_type(message.output_type)
        if pa.types.is_duration(operand.type) and component not in ("day", "epoch"):
            raise Unsupported(
                f"EXTRACT of {words[0]} from a difference of timestamps is not supported: DAY and EPOCH are"
            )
        return Call(data_type, "extract", (operand,), (component,))

    def _cast(self, message: Any, fields: Fields, depth: int) -> Expression:
        operand = self.translate(message.input, fields, depth)
        return _converted(operand, arrow_type(message.type), message.failure_behavior == 1)

    def _case(self, message: Any, fields: Fields, depth: int) -> Expression:
        clauses = list(message.ifs)
        operand = None
        # DataFusion writes CASE operand WHEN value as a first clause that has no result.
        if clauses and not clauses[0].HasField("then"):
            operand = self.translate(getattr(clauses.pop(0), "if"), fields, depth)
        branches = []
        for clause in clauses:
            condition = self.translate(getattr(clause, "if"), fields, depth)
            if operand is not None:
                condition = Call(pa.bool_(), "equal", tuple(common_type_of([operand, condition], "CASE")))
            branches.append((condition, self.translate(clause.then, fields, depth)))
        default = self.translate(getattr(message, "else"), fields, depth) if message.HasField("else") else None
        return _case(branches, default)

    def _switch(self, message: Any, fields: Fields, depth: int) -> Expression:
        operand = self.translate(message.match, fields, depth)
        branches = []
        for clause in message.ifs:
            pair = common_type_of([operand, literal(getattr(clause, "if"))], "CASE")
            branches.append((Call(pa.bool_(), "equal", tuple(pair)), self.translate(clause.then, fields, depth)))
        default = self.translate(getattr(message, "else"), fields, depth) if message.HasField("else") else None
        return _case(branches, default)


def _converted(operand: Expression, data_type: pa.DataType, returns_null: bool) -> Expression:
    if same_shape(operand.type, data_type):
        return operand
    if not is_convertible(operand.type, data_type):
        raise Unsupported(f"a cast of {operand.type} to {data_type} is not supported: in {operand}")
    return Cast(data_type, operand, returns_null)


def _column(message: Any, fields: Fields) -> Column:
    if message.WhichOneof("root_type") not in (None, "root_reference"):
        raise Unsupported("a subquery that refers to its outer query is not supported in this form")
    if message.WhichOneof("reference_type") != "direct_reference":
        raise Unsupported("a reference to part of a nested value is not supported")
    reference = message.direct_reference
    if reference.WhichOneof("reference_type") != "struct_field" or reference.struct_field.HasField("child"):
        raise Unsupported("a reference to part of a nested value is not supported")
    return column_at(reference.struct_field.field, fields)


def column_at(ordinal: int, fields: Fields) -> Column:
    """Return the column at a position of the input.

    Raises
    ------
    PlanFormatError
        If the input has fewer columns.
    """
    if not 0 <= ordinal < len(fields):
        raise PlanFormatError(f"the plan refers to column {ordinal} of an input that has {len(fields)}")
    column = fields[ordinal]
    if isinstance(column, HybridqError):
        raise column
    return column


def _value(argument: Any, function: str) -> Any:
    if argument.WhichOneof("arg_type") != "value":
        raise Unsupported(f"the function {function} with options as arguments is not supported")
    return argument.value


def _negated_parts(arguments: Sequence[Expression]) -> tuple[Expression, ...] | None:
    """Return what NOT of a long OR has AND between (``sql_chains`` writes it so); ``None``: it is something else."""
    if len(arguments) != 1 or not isinstance(arguments[0], Call) or arguments[0].function != "or":
        return None
    parts = arguments[0].arguments
    if len(parts) <= LONG:
        return None
    return tuple(
        part.arguments[0]
        if isinstance(part, Call) and part.function == "not"
        else formed_alone(Call(pa.bool_(), "not", (part,)))
        for part in parts
    )


def _empty_if_null(argument: Expression) -> Expression:
    if isinstance(argument, Literal):
        return Literal(argument.type, "") if argument.value is None else argument
    return Call(argument.type, "coalesce", (argument, Literal(argument.type, "")))


def _escape(argument: Expression) -> tuple[str, ...]:
    if not isinstance(argument, Literal):
        raise Unsupported("LIKE with an ESCAPE that is not a constant is not supported")
    if argument.value is None:
        return ()
    if not isinstance(argument.value, str) or len(argument.value) != 1:
        raise Unsupported("LIKE with an ESCAPE other than one character is not supported")
    return ("escape", argument.value)


def _merged_membership(terms: Sequence[Expression]) -> Expression | None:
    """Return ``x IN (a, b)`` for ``x = a OR x = b``, also beside ``x IN (c)``, and ``None`` for any other OR."""
    values: list[Literal] = []
    operand: Expression | None = None
    for term in terms:
        if isinstance(term, In):
            found: Expression = term.operand
            values += term.values
        elif isinstance(term, Call) and term.function == "equal" and isinstance(term.arguments[1], Literal):
            found = term.arguments[0]
            values.append(term.arguments[1])
        else:
            return None
        if operand is not None and found != operand:
            return None
        operand = found
    return None if operand is None else membership(operand, values)


def _case(branches: Sequence[tuple[Expression, Expression]], default: Expression | None) -> Expression:
    if not branches:
        raise PlanFormatError("the plan has a CASE without branches")
    values = [value for _, value in branches] + ([] if default is None else [default])
    values = common_type_of(values, "CASE")
    result_type("and", tuple(condition.type for condition, _ in branches))
    if default is None:
        values.append(Literal(values[0].type, None))
    pairs = tuple((condition, value) for (condition, _), value in zip(branches, values[:-1], strict=True))
    return Case(values[0].type, pairs, values[-1])
