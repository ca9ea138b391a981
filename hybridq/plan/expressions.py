"""Typed, immutable scalar and aggregate expressions.

An expression refers to columns by name; names are unique within the schema it is evaluated against. Every expression
carries the type of its result, which engines must produce exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Expression:
    """Base of all scalar expressions.

    Attributes
    ----------
    type : pyarrow.DataType
        Type of the result.
    """

    type: pa.DataType

    @property
    def children(self) -> tuple[Expression, ...]:
        """Return the operands, in order."""
        return ()

    def with_children(self, children: tuple[Expression, ...]) -> Expression:
        """Return the same expression over other operands."""
        if children:
            raise ValueError(f"{type(self).__name__} has no operands")
        return self


@dataclass(frozen=True, slots=True)
class Column(Expression):
    """A column of the input, by name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    """A constant.

    Attributes
    ----------
    value : bool, int, float, decimal.Decimal, str, bytes, datetime.date, datetime.datetime, tuple or None
        The value; ``None`` is NULL of the expression's type. An interval is a tuple of months, days and nanoseconds.
    """

    value: Any

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        if isinstance(self.value, tuple):
            units = zip(self.value, ("months", "days", "nanoseconds"), strict=True)
            return f"interval '{' '.join(f'{count} {unit}' for count, unit in units if count) or '0 days'}'"
        return "NULL" if self.value is None else str(self.value)


@dataclass(frozen=True, slots=True)
class SubqueryValue(Expression):
    """The value of a subquery that does not depend on the row: a constant once the subquery has run.

    Attributes
    ----------
    number : int
        Position of the subquery in ``hybridq.plan.nodes.Plan.subqueries``.
    """

    number: int

    def __str__(self) -> str:
        return f"subquery({self.number})"


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A scalar function of its arguments.

    Attributes
    ----------
    function : str
        One of the names in ``hybridq.plan.functions``: ``add``, ``equal``, ``and``, ``like`` and so on.
    arguments : tuple of Expression
    options : tuple of str
        Constant modifiers, such as ``("year",)`` of ``extract``.
    """

    function: str
    arguments: tuple[Expression, ...]
    options: tuple[str, ...] = ()

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.arguments

    def with_children(self, children: tuple[Expression, ...]) -> Expression:
        return replace(self, arguments=children)

    def __str__(self) -> str:
        if self.function in INFIX and len(self.arguments) >= 2:
            return "(" + f" {INFIX[self.function]} ".join(map(str, self.arguments)) + ")"
        options = () if self.function == "average" else self.options  # what it stands for is no argument
        return f"{self.function}({', '.join([*options, *map(str, self.arguments)])})"


INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "modulus": "%",
    "equal": "=", "not_equal": "<>", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
    "and": "AND", "or": "OR", "like": "LIKE",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    """Conversion to ``type``.

    Attributes
    ----------
    operand : Expression
    null_on_failure : bool
        TRY_CAST: a value that cannot be converted becomes NULL instead of an error.
    """

    operand: Expression
    null_on_failure: bool = False

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)

    def with_children(self, children: tuple[Expression, ...]) -> Expression:
        (operand,) = children
        return replace(self, operand=operand)

    def __str__(self) -> str:
        return f"{'try_cast' if self.null_on_failure else 'cast'}({self.operand} as {self.type})"


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """CASE WHEN condition THEN value ... ELSE default END.

    Attributes
    ----------
    branches : tuple of (condition, value)
        The first branch whose condition is true gives the value; its value is evaluated for those rows only.
    default : Expression
        NULL where the text has no ELSE.
    """

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression

    @property
    def children(self) -> tuple[Expression, ...]:
        return (*(part for branch in self.branches for part in branch), self.default)

    def with_children(self, children: tuple[Expression, ...]) -> Expression:
        pairs = tuple(zip(children[0:-1:2], children[1:-1:2], strict=True))
        return replace(self, branches=pairs, default=children[-1])

    def __str__(self) -> str:
        branches = " ".join(f"WHEN {condition} THEN {value}" for condition, value in self.branches)
        return f"CASE {branches} ELSE {self.default} END"


@dataclass(frozen=True, slots=True)
class In(Expression):
    """Membership in a list of constants, with SQL's three-valued logic (NULL in the list makes a miss unknown)."""

    operand: Expression
    values: tuple[Literal, ...]

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)

    def with_children(self, children: tuple[Expression, ...]) -> Expression:
        (operand,) = children
        return replace(self, operand=operand)

    def __str__(self) -> str:
        return f"{self.operand} IN ({', '.join(map(str, self.values))})"


@dataclass(frozen=True, slots=True)
class NamedExpression:
    """An expression and the name of the column it makes."""

    name: str
    expression: Expression

    def __str__(self) -> str:
        text = str(self.expression)
        return text if text == self.name else f"{text} AS {self.name}"


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate over groups of rows.

    Attributes
    ----------
    name : str
        Name of the output column.
    function : str
        In plans one of ``hybridq.plan.aggregates.AGGREGATES``; in the partial and merging forms that engines compute
        one of ``hybridq.plan.aggregates.PARTIALS``.
    argument : Expression or None
        ``None`` only for ``count``: COUNT(*).
    type : pyarrow.DataType
        Type of the result.
    distinct : bool
        Aggregate distinct values only.
    further : tuple of Expression
        Arguments after the first: the other variable of CORR, the separator of STRING_AGG, the fraction of a quantile.
    order : tuple of SortKey
        The order in which values are taken, where the function depends on it. In plans only: partial forms have the
        keys among ``further`` and their directions in ``options``.
    condition : Expression or None
        FILTER (WHERE ...), for functions that take NULLs; for all others it is a CASE around the argument.
    options : tuple of str
        Constant modifiers of partial forms.
    """

    name: str
    function: str
    argument: Expression | None
    type: pa.DataType
    distinct: bool = False
    further: tuple[Expression, ...] = ()
    order: tuple[SortKey, ...] = ()
    condition: Expression | None = None
    options: tuple[str, ...] = ()

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Return all expressions of the call: arguments, keys of its order, condition."""
        first = () if self.argument is None else (self.argument,)
        last = () if self.condition is None else (self.condition,)
        return (*first, *self.further, *(key.expression for key in self.order), *last)

    def with_expressions(self, expressions: tuple[Expression, ...]) -> AggregateCall:
        """Return the same call over other expressions, given in the order of ``expressions``."""
        rest = list(expressions)
        argument = rest.pop(0) if self.argument is not None else None
        condition = rest.pop() if self.condition is not None else None
        further = tuple(rest[: len(self.further)])
        keys = rest[len(self.further) :]
        order = tuple(replace(key, expression=new) for key, new in zip(self.order, keys, strict=True))
        return replace(self, argument=argument, further=further, order=order, condition=condition)

    @property
    def text(self) -> str:
        """Return the call as written, without its name."""
        first = "*" if self.argument is None else str(self.argument)
        arguments = ", ".join([*self.options, first, *map(str, self.further)])
        order = f" ORDER BY {', '.join(map(str, self.order))}" if self.order else ""
        where = "" if self.condition is None else f" FILTER (WHERE {self.condition})"
        return f"{self.function}({'DISTINCT ' if self.distinct else ''}{arguments}{order}){where}"

    def __str__(self) -> str:
        text = self.text
        return text if text == self.name else f"{text} AS {self.name}"


@dataclass(frozen=True, slots=True)
class SortKey:
    """One key of an ordering."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = False

    def __str__(self) -> str:
        direction = "DESC" if self.descending else "ASC"
        return f"{self.expression} {direction} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield the expression and everything below it, parents first."""
    pending = [expression]
    while pending:
        part = pending.pop()
        yield part
        pending.extend(reversed(part.children))


def substitute(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    """Put expressions in place of columns, by name; columns that are not in ``values`` stay."""
    if isinstance(expression, Column):
        return values.get(expression.name, expression)
    children = expression.children
    changed = tuple(substitute(child, values) for child in children)
    if all(new is old for new, old in zip(changed, children, strict=True)):
        return expression
    return expression.with_children(changed)


def columns_of_call(call: AggregateCall) -> frozenset[str]:
    """Return the names of the columns that an aggregate reads."""
    return frozenset().union(*(columns_of(expression) for expression in call.expressions))


def columns_of(expression: Expression) -> frozenset[str]:
    """Return the names of the columns that an expression reads."""
    return frozenset(part.name for part in walk(expression) if isinstance(part, Column))


def transform(expression: Expression, rule: Callable[[Expression], Expression]) -> Expression:
    """Rewrite bottom-up: apply ``rule`` to each node after its children; unchanged nodes are reused."""
    children = expression.children
    changed = tuple(transform(child, rule) for child in children)
    if any(new is not old for new, old in zip(changed, children, strict=True)):
        expression = expression.with_children(changed)
    return rule(expression)


def conjuncts(predicate: Expression) -> tuple[Expression, ...]:
    """Split a predicate at its top-level ANDs."""
    if isinstance(predicate, Call) and predicate.function == "and":
        return tuple(part for argument in predicate.arguments for part in conjuncts(argument))
    return (predicate,)


def conjunction(predicates: tuple[Expression, ...]) -> Expression | None:
    """Join predicates by AND; ``None`` when there are none."""
    if not predicates:
        return None
    return predicates[0] if len(predicates) == 1 else Call(pa.bool_(), "and", predicates)
