"""Expressions of the Python builder: recorded as they are written, typed when a frame is bound to tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from hybridq.errors import CastFailed, Unsupported
from hybridq.frontend.builder_types import (
    aggregable,
    comparable,
    computable,
    constant,
    flattened,
    named_type,
    retyped,
)
from hybridq.frontend.coercion import common_type_of, membership
from hybridq.plan.aggregates import aggregate_type
from hybridq.plan.exact_values import exact
from hybridq.plan.expressions import Call, Case, Cast, Column, Expression, Literal
from hybridq.plan.functions import ARITHMETIC, COMPARISONS, DATE_PARTS, result_type


class Scope(Protocol):
    """What the names in an expression mean."""

    def column(self, name: str) -> Expression:
        """Return the column of that name, which may be qualified by its table."""
        ...

    def aggregate(self, function: str, argument: Expression | None, data_type: pa.DataType, distinct: bool) -> Column:
        """Return the column that will hold an aggregate."""
        ...


class Expr:
    """A column, a constant, or something computed from them.

    Python's operators build larger ones: ``+ - * / %``, comparisons, and ``& | ~`` for AND, OR and NOT (with
    parentheses around comparisons: ``(col("a") > 1) & (col("b") < 2)``).

    Decimals stay exact as long as they meet integers and decimals. A Python ``float`` in arithmetic makes the result a
    ``double``, so constants in computations with money want ``decimal.Decimal``: ``col("price") * Decimal("0.9")``.
    """

    __hash__ = object.__hash__

    def bind(self, scope: Scope) -> Expression:
        """Return the typed expression.

        Raises
        ------
        UnknownColumn, AmbiguousColumn, Unsupported, CastFailed
        """
        raise NotImplementedError

    @property
    def output_name(self) -> str | None:
        """Return the name that the expression has as a column of a result, if it has one of its own."""
        return None

    def alias(self, name: str) -> Expr:
        """Name the expression in the result."""
        return _Named(self, name)

    def __bool__(self) -> bool:
        raise TypeError("an expression is neither true nor false: use & | ~ instead of and, or, not, and .between()")

    def __add__(self, other: Any) -> Expr:
        return _call("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return _call("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return _call("subtract", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return _call("subtract", other, self)

    def __mul__(self, other: Any) -> Expr:
        return _call("multiply", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return _call("multiply", other, self)

    def __truediv__(self, other: Any) -> Expr:
        """Divide; as in SQL, the quotient of integers is an integer, truncated."""
        return _call("divide", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return _call("divide", other, self)

    def __mod__(self, other: Any) -> Expr:
        """Return the remainder, which has the dividend's sign, as in SQL."""
        return _call("modulus", self, other)

    def __rmod__(self, other: Any) -> Expr:
        return _call("modulus", other, self)

    def __neg__(self) -> Expr:
        return _call("negate", self)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _call("equal", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _call("not_equal", self, other)

    def __lt__(self, other: Any) -> Expr:
        return _call("less", self, other)

    def __le__(self, other: Any) -> Expr:
        return _call("less_equal", self, other)

    def __gt__(self, other: Any) -> Expr:
        return _call("greater", self, other)

    def __ge__(self, other: Any) -> Expr:
        return _call("greater_equal", self, other)

    def __and__(self, other: Any) -> Expr:
        return _call("and", self, other)

    def __rand__(self, other: Any) -> Expr:
        return _call("and", other, self)

    def __or__(self, other: Any) -> Expr:
        return _call("or", self, other)

    def __ror__(self, other: Any) -> Expr:
        return _call("or", other, self)

    def __invert__(self) -> Expr:
        return _call("not", self)

    def is_null(self) -> Expr:
        """Tell whether the value is NULL."""
        return _call("is_null", self)

    def is_not_null(self) -> Expr:
        """Tell whether the value is not NULL."""
        return _call("is_not_null", self)

    def is_in(self, values: Iterable[Any]) -> Expr:
        """Tell whether the value is one of the given ones."""
        return _Membership(self, tuple(map(_wrapped, values)))

    def between(self, low: Any, high: Any) -> Expr:
        """Tell whether the value lies between two others, both included."""
        return _call("and", self >= low, self <= high)

    def like(self, pattern: str, escape: str | None = None) -> Expr:
        """Match a pattern in which ``%`` stands for any text and ``_`` for any character."""
        return _Call("like", (self, lit(pattern)), () if escape is None else ("escape", escape))

    def ilike(self, pattern: str, escape: str | None = None) -> Expr:
        """Match as ``like`` does, whatever the case of letters."""
        return _Call("ilike", (self, lit(pattern)), () if escape is None else ("escape", escape))

    def starts_with(self, prefix: Any) -> Expr:
        """Tell whether a string begins with another."""
        return _call("starts_with", self, prefix)

    def substring(self, start: int, length: int | None = None) -> Expr:
        """Return part of a string; its first character has the number 1."""
        return _call("substring", self, start, *(() if length is None else (length,)))

    def upper(self) -> Expr:
        """Return a string in upper case."""
        return _call("upper", self)

    def lower(self) -> Expr:
        """Return a string in lower case."""
        return _call("lower", self)

    def length(self) -> Expr:
        """Return the number of characters of a string."""
        return _call("length", self)

    def concat(self, *others: Any) -> Expr:
        """Append strings; NULL if one is NULL."""
        return _call("concat", self, *others)

    def abs(self) -> Expr:
        """Return the absolute value."""
        return _call("abs", self)

    def fill_null(self, value: Any) -> Expr:
        """Return the value, or another where it is NULL."""
        return _call("coalesce", self, value)

    def extract(self, component: str) -> Expr:
        """Return a component of a date or timestamp: ``"year"``, ``"month"``, ``"day"`` and so on."""
        return _Call("extract", (self,), (component.lower(),))

    def cast(self, data_type: pa.DataType | str) -> Expr:
        """Convert to an Arrow type, given as such or by name: ``"int64"``, ``"decimal(15, 2)"``, ``"date"``."""
        return _Cast(self, named_type(data_type))

    def asc(self, nulls_first: bool = False) -> Ordering:
        """Sort by this, ascending."""
        return Ordering(self, False, nulls_first)

    def desc(self, nulls_first: bool = True) -> Ordering:
        """Sort by this, descending; NULLs come first, as in SQL here, unless told otherwise."""
        return Ordering(self, True, nulls_first)

    def sum(self) -> Expr:
        """Add the values up; NULL if there are none."""
        return _Aggregate("sum", self)

    def mean(self) -> Expr:
        """Average the values; NULL if there are none."""
        return _Aggregate("avg", self)

    def count(self) -> Expr:
        """Count the values that are not NULL."""
        return _Aggregate("count", self)

    def min(self) -> Expr:
        """Return the least value."""
        return _Aggregate("min", self)

    def max(self) -> Expr:
        """Return the greatest value."""
        return _Aggregate("max", self)

    def n_unique(self) -> Expr:
        """Count the distinct values that are not NULL."""
        return _Aggregate("count", self, distinct=True)


@dataclass(frozen=True, slots=True, eq=False)
class Ordering:
    """An expression to sort by, and its direction."""

    expression: Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Column(Expr):
    name: str

    @property
    def output_name(self) -> str:
        return self.name

    def bind(self, scope: Scope) -> Expression:
        return scope.column(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class _Literal(Expr):
    literal: Literal

    def bind(self, scope: Scope) -> Expression:
        return self.literal


@dataclass(frozen=True, slots=True, eq=False)
class _Named(Expr):
    expression: Expr
    name: str

    @property
    def output_name(self) -> str:
        return self.name

    def bind(self, scope: Scope) -> Expression:
        return self.expression.bind(scope)


@dataclass(frozen=True, slots=True, eq=False)
class _Call(Expr):
    function: str
    arguments: tuple[Expr, ...]
    options: tuple[str, ...] = ()

    def bind(self, scope: Scope) -> Expression:
        arguments = [argument.bind(scope) for argument in self.arguments]
        if self.function in ("and", "or"):
            arguments = [part for argument in arguments for part in flattened(self.function, argument)]
        elif self.function in COMPARISONS:
            arguments = comparable(arguments)
        elif self.function in ARITHMETIC:
            arguments = computable(self.function, arguments)
        elif self.function == "coalesce":
            arguments = common_type_of(arguments, "fill_null")
        if self.function == "extract" and self.options[0] not in DATE_PARTS:
            raise Unsupported(f"EXTRACT of {self.options[0]} is not supported: {', '.join(sorted(DATE_PARTS))} are")
        data_type = result_type(self.function, tuple(argument.type for argument in arguments))
        if self.options == ("epoch",):
            data_type = pa.float64()
        return Call(data_type, self.function, tuple(arguments), self.options)


@dataclass(frozen=True, slots=True, eq=False)
class _Cast(Expr):
    operand: Expr
    data_type: pa.DataType

    @property
    def output_name(self) -> str | None:
        return self.operand.output_name

    def bind(self, scope: Scope) -> Expression:
        operand = self.operand.bind(scope)
        return operand if operand.type == self.data_type else Cast(self.data_type, operand)


@dataclass(frozen=True, slots=True, eq=False)
class _Membership(Expr):
    operand: Expr
    values: tuple[Expr, ...]

    def bind(self, scope: Scope) -> Expression:
        operand, *values = retyped([self.operand.bind(scope), *(value.bind(scope) for value in self.values)])
        return membership(operand, values)


@dataclass(frozen=True, slots=True, eq=False)
class _Case(Expr):
    branches: tuple[tuple[Expr, Expr], ...]
    default: Expr

    def bind(self, scope: Scope) -> Expression:
        conditions = [condition.bind(scope) for condition, _ in self.branches]
        result_type("and", tuple(condition.type for condition in conditions))
        bound = [*(value.bind(scope) for _, value in self.branches), self.default.bind(scope)]
        *values, default = common_type_of(bound, "when/then/otherwise")
        return Case(default.type, tuple(zip(conditions, values, strict=True)), default)


@dataclass(frozen=True, slots=True, eq=False)
class _Aggregate(Expr):
    function: str
    argument: Expr | None
    distinct: bool = False

    def bind(self, scope: Scope) -> Expression:
        argument = None if self.argument is None else self.argument.bind(_NoAggregates(scope))
        if argument is not None:
            argument = aggregable(self.function, argument)
        data_type = aggregate_type(self.function, () if argument is None else (argument.type,))
        return scope.aggregate(self.function, argument, data_type, self.distinct)


@dataclass(frozen=True, slots=True)
class _NoAggregates:
    """The scope within an aggregate, where no other may be."""

    scope: Scope

    def column(self, name: str) -> Expression:
        return self.scope.column(name)

    def aggregate(self, function: str, argument: Expression | None, data_type: pa.DataType, distinct: bool) -> Column:
        raise Unsupported(f"an aggregate within an aggregate ({function}) is not supported")


@dataclass(frozen=True, slots=True, eq=False)
class When:
    """A condition that waits for its value: ``when(condition).then(value)``."""

    condition: Expr
    earlier: tuple[tuple[Expr, Expr], ...] = ()

    def then(self, value: Any) -> Then:
        """Give the value for rows where the condition is true."""
        return Then((*self.earlier, (self.condition, _wrapped(value))))


@dataclass(frozen=True, slots=True, eq=False)
class Then(Expr):
    """A CASE that may have more branches; NULL where no condition is true, unless ``otherwise`` says what."""

    branches: tuple[tuple[Expr, Expr], ...] = field(default=())

    def when(self, condition: Expr) -> When:
        """Add a condition, tested where those before are not true."""
        return When(condition, self.branches)

    def otherwise(self, value: Any) -> Expr:
        """Give the value for all other rows."""
        return _Case(self.branches, _wrapped(value))

    def bind(self, scope: Scope) -> Expression:
        return self.otherwise(None).bind(scope)


def col(name: str) -> Expr:
    """Refer to a column.

    Parameters
    ----------
    name : str
        Its name, or ``table.name`` where several tables have it.
    """
    return _Column(name)


def lit(value: Any, data_type: pa.DataType | str | None = None) -> Expr:
    """Make a constant.

    Parameters
    ----------
    value : bool, int, float, decimal.Decimal, str, bytes, datetime.date, datetime.datetime or None
        Integers are int64, floats double, decimals have just the digits that they show.
    data_type : pyarrow.DataType or str, optional
        Another type, which must hold the value exactly.

    Raises
    ------
    CastFailed
        If the type does not hold the value.
    TypeError
        If the value is of another kind.
    """
    if data_type is None:
        return _Literal(constant(value))
    wanted = named_type(data_type)
    given = constant(value)
    converted = value if given.type == wanted else exact(value, wanted)
    if converted is None and value is not None:
        raise CastFailed(f"{value!r} is not exactly a value of type {wanted}")
    return _Literal(Literal(wanted, converted))


def count() -> Expr:
    """Count rows."""
    return _Aggregate("count", None)


def when(condition: Expr) -> When:
    """Begin a CASE: ``when(a > 1).then("many").when(a == 1).then("one").otherwise("none")``."""
    return When(condition)


def _wrapped(value: Any) -> Expr:
    return value if isinstance(value, Expr) else lit(value)


def _call(function: str, *arguments: Any) -> Expr:
    return _Call(function, tuple(map(_wrapped, arguments)))
