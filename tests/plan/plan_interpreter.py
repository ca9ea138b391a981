"""A slow, plain reading of plans: rows are dictionaries, one at a time, with SQL's rules written out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

from hybridq.plan.expressions import AggregateCall, Call, Case, Cast, Column, Expression, In, Literal, SortKey
from hybridq.plan.nodes import Aggregate, Filter, Join, Limit, Node, Project, Scan, Sort, TopK, Values

Row = dict[str, Any]
Tables = dict[str, list[Row]]


class PlanError(Exception):
    """The plan raises an error when it runs (division by zero)."""


def run(node: Node, tables: Tables) -> list[Row]:
    """Return the rows of a plan."""
    match node:
        case Scan():
            rows = [{column.name: row[column.source] for column in node.columns} for row in tables[node.table]]
            return rows if node.predicate is None else [r for r in rows if evaluate(node.predicate, r) is True]
        case Values():
            return node.table.to_pylist()
        case Filter():
            return [row for row in run(node.input, tables) if evaluate(node.predicate, row) is True]
        case Project():
            rows = run(node.input, tables)
            return [{item.name: evaluate(item.expression, row) for item in node.expressions} for row in rows]
        case Join():
            return _join(node, run(node.left, tables), run(node.right, tables))
        case Aggregate():
            return _aggregate(node, run(node.input, tables))
        case Sort():
            return _sort(run(node.input, tables), node.keys)
        case TopK():
            return _sort(run(node.input, tables), node.keys)[node.offset :][: node.count]
        case Limit():
            rows = run(node.input, tables)[node.offset :]
            return rows if node.count is None else rows[: node.count]
    raise TypeError(type(node).__name__)


def _join(node: Join, left: list[Row], right: list[Row]) -> list[Row]:
    # Keys are computed for all rows, the residual for pairs of equal keys.
    left_keys = [[evaluate(key, row) for key in node.left_keys] for row in left]
    right_keys = [[evaluate(key, row) for key in node.right_keys] for row in right]

    def matches(i: int, j: int) -> bool:
        if None in left_keys[i] or left_keys[i] != right_keys[j] or None in right_keys[j]:
            return False
        return node.residual is None or evaluate(node.residual, left[i] | right[j]) is True

    def unknown(i: int) -> bool:
        """Tell whether a NULL hides if the first keys of a pair, which is one by all other conditions, are equal."""
        for j in range(len(right)):
            others = None not in left_keys[i][1:] and left_keys[i][1:] == right_keys[j][1:]
            passes = node.residual is None or evaluate(node.residual, left[i] | right[j]) is True
            if others and passes and (left_keys[i][0] is None or right_keys[j][0] is None):
                return True
        return False

    found_by_left = [[j for j in range(len(right)) if matches(i, j)] for i in range(len(left))]
    if node.kind == "mark":
        assert node.mark is not None
        misses = [None if node.null_aware and unknown(i) else False for i in range(len(left))]
        marks = zip(left, found_by_left, misses, strict=True)
        return [row | {node.mark: True if found else miss} for row, found, miss in marks]
    pairs = [(row, [right[j] for j in found]) for row, found in zip(left, found_by_left, strict=True)]
    if node.kind == "semi":
        return [a for a, found in pairs if found]
    if node.kind == "anti":
        hidden = [node.null_aware and unknown(i) for i in range(len(left))]
        return [a for (a, found), hide in zip(pairs, hidden, strict=True) if not found and not hide]
    rows = [a | b for a, found in pairs for b in found]
    no_right = {item.name: None for item in node.right.schema}
    if node.kind in ("left", "full"):
        rows += [a | no_right for a, found in pairs if not found]
    if node.kind == "full":
        no_left = {item.name: None for item in node.left.schema}
        matched = {j for found in found_by_left for j in found}
        rows += [no_left | row for j, row in enumerate(right) if j not in matched]
    return rows


def _aggregate(node: Aggregate, rows: list[Row]) -> list[Row]:
    groups: dict[tuple[Any, ...], list[Row]] = {} if node.groups else {(): []}
    for row in rows:
        groups.setdefault(tuple(evaluate(item.expression, row) for item in node.groups), []).append(row)
    result = []
    for key, members in groups.items():
        out = {item.name: value for item, value in zip(node.groups, key, strict=True)}
        out |= {call.name: _call(call, members) for call in node.aggregates}
        result.append(out)
    return result


def _call(call: AggregateCall, rows: list[Row]) -> Any:
    if call.argument is None:
        return len(rows)
    values = [evaluate(call.argument, row) for row in rows]
    values = [value for value in values if value is not None]
    if call.distinct:
        values = list(dict.fromkeys(values))
    if call.function == "count":
        return len(values)
    if not values:
        return None
    functions: dict[str, Callable[[list[Any]], Any]] = {
        "sum": sum, "min": min, "max": max, "avg": lambda items: sum(items) / len(items),
    }  # fmt: skip
    return functions[call.function](values)


def _sort(rows: list[Row], keys: Iterable[SortKey]) -> list[Row]:
    def compare(a: Row, b: Row) -> int:
        for key in keys:
            x, y = evaluate(key.expression, a), evaluate(key.expression, b)
            if x is None and y is None:
                continue
            if x is None or y is None:
                return -1 if (x is None) == key.nulls_first else 1
            if x != y:
                return -1 if (x < y) != key.descending else 1
        return 0

    return sorted(rows, key=cmp_to_key(compare))


def evaluate(expression: Expression, row: Row) -> Any:
    """Return the value of an expression for a row."""
    match expression:
        case Column():
            return row[expression.name]
        case Literal():
            return expression.value
        case Cast():
            value = evaluate(expression.operand, row)
            return Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value
        case Case():
            for condition, value in expression.branches:
                if evaluate(condition, row) is True:
                    return evaluate(value, row)
            return evaluate(expression.default, row)
        case In():
            value = evaluate(expression.operand, row)
            return _any([_strict(lambda a, b: a == b, value, item.value) for item in expression.values])
        case Call():
            return _function(expression, [evaluate(argument, row) for argument in expression.arguments])
    raise TypeError(type(expression).__name__)


def _any(values: list[bool | None]) -> bool | None:
    return True if True in values else (None if None in values else False)


def _strict(function: Callable[..., Any], *values: Any) -> Any:
    return None if any(value is None for value in values) else function(*values)


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise PlanError
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _like(text: str, pattern: str) -> bool:
    parts = {"%": ".*", "_": "."}
    return re.fullmatch("".join(parts.get(c, re.escape(c)) for c in pattern), text, re.DOTALL) is not None


_STRICT: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": _divide,
    "modulus": lambda a, b: a - b * _divide(a, b),
    "negate": lambda a: -a,
    "abs": abs,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "not": lambda a: not a,
    "like": _like,
    "starts_with": lambda a, b: a.startswith(b),
}
_OTHER: dict[str, Callable[[list[Any]], Any]] = {
    "and": lambda values: _negated(_any([_negated(value) for value in values])),
    "or": _any,
    "is_null": lambda values: values[0] is None,
    "is_not_null": lambda values: values[0] is not None,
    "is_true": lambda values: values[0] is True,
    "is_false": lambda values: values[0] is False,
    "is_not_true": lambda values: values[0] is not True,
    "is_not_false": lambda values: values[0] is not False,
    "coalesce": lambda values: next((value for value in values if value is not None), None),
}


def _function(call: Call, values: list[Any]) -> Any:
    if call.function in _OTHER:
        return _OTHER[call.function](values)
    return _strict(_STRICT[call.function], *values)


def check(node: Node) -> None:
    """Check that a plan is well formed: names unique, every column there with its type, join sides apart."""
    for child in node.inputs:
        check(child)
    names = [item.name for item in node.schema]
    assert len(set(names)) == len(names), node.label
    match node:
        case Scan():
            _reads([] if node.predicate is None else [node.predicate], node, [node])
        case Filter():
            _reads([node.predicate], node, [node.input])
        case Project():
            _reads([item.expression for item in node.expressions], node, [node.input])
        case Aggregate():
            arguments = [call.argument for call in node.aggregates if call.argument is not None]
            _reads([*(item.expression for item in node.groups), *arguments], node, [node.input])
        case Sort() | TopK():
            _reads([key.expression for key in node.keys], node, [node.input])
        case Join():
            left, right = ({item.name for item in side.schema} for side in node.inputs)
            assert not left & right, node.label
            _reads(node.left_keys, node, [node.left])
            _reads(node.right_keys, node, [node.right])
            _reads([] if node.residual is None else [node.residual], node, [node.left, node.right])
            for one, other in zip(node.left_keys, node.right_keys, strict=True):
                assert one.type == other.type, node.label


def _reads(expressions: Iterable[Expression], node: Node, inputs: list[Node]) -> None:
    types = {item.name: item.type for child in inputs for item in child.schema}

    def visit(expression: Expression) -> None:
        if isinstance(expression, Column):
            assert expression.name in types, f"{expression.name} is not below {node.label}"
            assert types[expression.name] == expression.type, node.label
        for child in expression.children:
            visit(child)

    for expression in expressions:
        visit(expression)
