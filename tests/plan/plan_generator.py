"""Random small tables and random valid plans over them."""

from __future__ import annotations

import itertools
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from hybridq.plan.expressions import (
    AggregateCall,
    Call,
    Case,
    Cast,
    Column,
    Expression,
    In,
    Literal,
    NamedExpression,
    SortKey,
)
from hybridq.plan.nodes import Aggregate, Filter, Join, Limit, Node, Project, Scan, ScanColumn, Sort

INTEGER, TEXT, BOOLEAN, MONEY = pa.int64(), pa.string(), pa.bool_(), pa.decimal128(10, 2)

TABLES: dict[str, dict[str, pa.DataType]] = {
    "t": {"a": INTEGER, "b": INTEGER, "s": TEXT},
    "u": {"a": INTEGER, "c": INTEGER},
    "v": {"k": INTEGER, "d": MONEY, "s": TEXT},
}


class Generator:
    """Makes plans whose rows do not depend on the order in which rows come."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._names = itertools.count(1)

    def table(self, name: str) -> pa.Table:
        """Return up to eight random rows."""
        rows = self._random.choice([0, 2, 4, 5, 6, 7, 8])
        columns = {
            column: pa.array([self._value(data_type) for _ in range(rows)], data_type)
            for column, data_type in TABLES[name].items()
        }
        return pa.table(columns)

    def plan(self, depth: int) -> Node:
        """Return a plan of at most so many nodes from root to leaf."""
        if depth <= 1:
            return self._scan()
        kinds = ["filter", "filter", "project", "join", "join", "join", "aggregate", "order", "rename", "scan"]
        match self._random.choice(kinds):
            case "filter":
                below = self.plan(depth - 1)
                return Filter(below, self.boolean(below.schema, 2))
            case "project":
                below = self.plan(depth - 1)
                count = self._random.randint(1, 4)
                return Project(below, tuple(self._named(self._any(below.schema)) for _ in range(count)))
            case "rename":
                below = self.plan(depth - 1)
                kept = [item for item in below.schema if self._random.random() < 0.7]
                return Project(below, tuple(self._named(Column(item.type, item.name)) for item in kept or below.schema))
            case "join":
                return self._join(depth)
            case "aggregate":
                return self._aggregate(self.plan(depth - 1))
            case "order":
                return self._order(self.plan(depth - 1))
        return self._scan()

    def _scan(self) -> Node:
        table = self._random.choice(list(TABLES))
        number = next(self._names)
        columns = tuple(ScanColumn(f"{table}{number}.{n}", n, data_type) for n, data_type in TABLES[table].items())
        scan = Scan(table, columns)
        if self._random.random() < 0.2:
            scan = Scan(table, columns, self.boolean(scan.schema, 1, division=False))
        return scan

    def _join(self, depth: int) -> Node:
        left, right = self.plan(depth - 1), self.plan(depth - 1)
        kind = self._random.choice(["inner", "inner", "inner", "left", "semi", "anti", "full", "mark"])
        left_keys: list[Expression] = []
        right_keys: list[Expression] = []
        for _ in range(self._random.choice([0, 1, 1, 1, 2])):
            left_keys.append(self.integer(left.schema, self._random.choice([0, 0, 1])))
            right_keys.append(self.integer(right.schema, self._random.choice([0, 0, 1])))
        both = left.schema + right.schema
        residual = self.boolean(both, 1) if self._random.random() < 0.4 else None
        null_aware = kind in ("anti", "mark") and bool(left_keys) and self._random.random() < 0.5
        mark = self._name() if kind == "mark" else None
        return Join(left, right, kind, tuple(left_keys), tuple(right_keys), residual, null_aware, mark)  # type: ignore[arg-type]

    def _aggregate(self, below: Node) -> Node:
        groups = tuple(self._named(self._any(below.schema)) for _ in range(self._random.randrange(3)))
        calls = []
        for _ in range(self._random.randrange(0 if groups else 1, 4)):
            function = self._random.choice(["sum", "count", "min", "max", "avg"])
            argument = self.integer(below.schema, 1)
            distinct = self._random.random() < 0.2
            if function == "count" and self._random.random() < 0.5:
                calls.append(AggregateCall(self._name(), "count", None, INTEGER))
            else:
                data_type = pa.float64() if function == "avg" else INTEGER
                calls.append(AggregateCall(self._name(), function, argument, data_type, distinct))
        return Aggregate(below, groups, tuple(calls))

    def _order(self, below: Node) -> Node:
        # By all columns, so that a limit keeps the same rows whatever order ties come in.
        keys = [
            SortKey(Column(item.type, item.name), self._random.random() < 0.5, self._random.random() < 0.5)
            for item in below.schema
        ]
        self._random.shuffle(keys)
        ordered: Node = Sort(below, tuple(keys))
        if self._random.random() < 0.3:
            ordered = Project(ordered, tuple(self._named(Column(item.type, item.name)) for item in below.schema))
        if self._random.random() < 0.7:
            count = self._random.choice([0, 1, 3, None])
            ordered = Limit(ordered, self._random.choice([0, 0, 1]), count)
        if isinstance(ordered, Limit) and self._random.random() < 0.3:
            ordered = Limit(ordered, self._random.choice([0, 1]), self._random.choice([2, None]))
        return ordered

    # --- expressions -------------------------------------------------------------------------------------------------

    def _name(self) -> str:
        return f"x{next(self._names)}"

    def _named(self, expression: Expression) -> NamedExpression:
        return NamedExpression(self._name(), expression)

    def _any(self, schema: Any) -> Expression:
        if self._random.random() < 0.5:
            return self._column(schema, None) or self._literal(INTEGER)
        return self.integer(schema, 2) if self._random.random() < 0.8 else self.boolean(schema, 1)

    def _column(self, schema: Any, data_type: pa.DataType | None) -> Expression | None:
        fitting = [item for item in schema if data_type is None or item.type == data_type]
        if not fitting:
            return None
        item = self._random.choice(fitting)
        return Column(item.type, item.name)

    def _value(self, data_type: pa.DataType) -> Any:
        if self._random.random() < 0.2:
            return None
        if data_type == INTEGER:
            return self._random.randint(-1, 3)
        if data_type == MONEY:
            return Decimal(self._random.randint(-100, 300)) / 100
        if data_type == BOOLEAN:
            return self._random.random() < 0.5
        return self._random.choice(["", "a", "ab", "b"])

    def _literal(self, data_type: pa.DataType) -> Literal:
        return Literal(data_type, self._value(data_type))

    def integer(self, schema: Any, depth: int, division: bool = True) -> Expression:
        """Return a random expression of integers."""
        if depth == 0 or self._random.random() < 0.3:
            column = self._column(schema, INTEGER)
            return column if column is not None and self._random.random() < 0.8 else self._literal(INTEGER)

        def part() -> Expression:
            return self.integer(schema, depth - 1, division)

        match self._random.choice(["add", "subtract", "multiply", "negate", "divide", "case", "coalesce"]):
            case "negate":
                return Call(INTEGER, "negate", (part(),))
            case "case":
                branches = tuple((self.boolean(schema, depth - 1, division), part()) for _ in range(2))
                return Case(INTEGER, branches, part())
            case "coalesce":
                return Call(INTEGER, "coalesce", (part(), part()))
            case "divide" if division:
                return Call(INTEGER, self._random.choice(["divide", "modulus"]), (part(), part()))
            case function:
                return Call(INTEGER, "add" if function == "divide" else function, (part(), part()))

    def boolean(self, schema: Any, depth: int, division: bool = True) -> Expression:
        """Return a random condition."""
        if depth > 0 and self._random.random() < 0.6:
            function = self._random.choice(["and", "and", "or", "not", "is_null", "is_not_true"])
            count = self._random.randint(2, 3) if function in ("and", "or") else 1
            return Call(
                BOOLEAN, function, tuple(self.boolean(schema, depth - 1, division) for _ in range(count))
            )  # fmt: skip
        comparison = self._random.choice(["equal", "equal", "not_equal", "less", "less_equal", "greater"])
        match self._random.choice(["compare", "compare", "compare", "in", "text", "money", "literal", "column"]):
            case "compare":
                sides = (self.integer(schema, depth, division), self.integer(schema, depth, division))
                return Call(BOOLEAN, comparison, sides)
            case "in":
                values = tuple(self._literal(INTEGER) for _ in range(self._random.randint(1, 3)))
                return In(BOOLEAN, self.integer(schema, 0), values)
            case "text":
                text = self._column(schema, TEXT) or self._literal(TEXT)
                if self._random.random() < 0.5:
                    pattern = self._random.choice(["a%", "%b", "a", "%", "_b"])
                    return Call(BOOLEAN, "like", (text, Literal(TEXT, pattern)))
                return Call(BOOLEAN, comparison, (text, self._literal(TEXT)))
            case "money":
                money = self._column(schema, MONEY) or Cast(MONEY, Literal(INTEGER, 1))
                return Call(BOOLEAN, comparison, (money, self._literal(MONEY)))
            case "column":
                column = self._column(schema, BOOLEAN)
                if column is not None:
                    return column
        return self._literal(BOOLEAN)
