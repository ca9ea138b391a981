"""Random queries over random tables."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace

from .data import DAYS, MOMENTS, TEXTS, TableSpec
from .features import Features, Function
from .tree import Expr, Query, Relation, Select, SetOperation

COMPARED = ("int", "float", "decimal", "text", "date", "moment")
"""Kinds of which two different columns can be compared."""

POSITIONAL = ("row_number", "ntile", "lag", "lead")
"""Starts of window functions that tell apart rows which tie on all keys."""

NULL_TYPES = {
    "int": "bigint", "unsigned": "bigint unsigned", "float": "double", "decimal": "decimal(9, 2)", "bool": "boolean",
    "text": "varchar", "date": "date", "moment": "timestamp",
}  # fmt: skip


@dataclass(frozen=True)
class Scope:
    """Columns that an expression may use: of the query itself, and of those around it."""

    columns: tuple[Expr, ...]

    def of(self, kind: str, tame: bool = False) -> list[Expr]:
        return [column for column in self.columns if column.kind == kind and not (tame and column.wild)]


class Generator:
    """Makes queries.

    Parameters
    ----------
    choose : random.Random
    tables : tuple of TableSpec
    features : Features
    """

    def __init__(self, choose: random.Random, tables: tuple[TableSpec, ...], features: Features) -> None:
        self.choose = choose
        self.tables = tables
        self.features = features
        self._aliases = 0

    def chance(self, probability: float) -> bool:
        return self.choose.random() < probability

    def has(self, clause: str) -> bool:
        return clause in self.features.clauses

    # --- expressions -----------------------------------------------------------------------------------------------

    def literal(self, kind: str) -> Expr:
        if self.chance(0.08):
            return self.null(kind)
        if kind == "int":
            value = str(self.choose.choice((0, 1, 2, 3, -1, -2, 7)))
            value = f"({value})" if value.startswith("-") else value
            return Expr(kind, value, duckdb=f"{value}::bigint")
        if kind == "float":
            return Expr(kind, f"cast({self.choose.choice(('0.5', '1', '2.25', '-1', '0'))} as double)")
        if kind == "decimal":
            return Expr(kind, self.choose.choice(("0.5", "1.25", "10.0", "(-0.1)", "3.00")))
        if kind == "bool":
            return Expr(kind, self.choose.choice(("true", "false")))
        if kind == "text":
            return Expr(kind, "'" + self.choose.choice(TEXTS[:19]) + "'")
        if kind == "date":
            return Expr(kind, f"DATE '{self.choose.choice(DAYS[:10]).isoformat()}'")
        if kind == "moment":
            return Expr(kind, f"TIMESTAMP '{self.choose.choice(MOMENTS)}'")
        return self.null(kind)

    def null(self, kind: str) -> Expr:
        name = NULL_TYPES.get(kind, kind)
        return Expr(kind, f"cast(NULL as {name})", duckdb=f"cast(NULL as {name.replace('bigint unsigned', 'ubigint')})")

    def leaf(self, kind: str, scope: Scope, tame: bool = False) -> Expr:
        columns = scope.of(kind, tame)
        return self.choose.choice(columns) if columns and self.chance(0.85) else self.literal(kind)

    def value(self, kind: str, scope: Scope, depth: int, tame: bool = False) -> Expr:
        """Make an expression of a kind."""
        if depth <= 0 or self.chance(0.35):
            return self.leaf(kind, scope, tame)
        if kind == "bool":
            return self.condition(scope, depth)
        choice = self.choose.random()
        if choice < 0.15:
            branch = self.condition(scope, depth - 1)
            parts = (branch, self.value(kind, scope, depth - 1, tame), self.value(kind, scope, depth - 1, tame))
            if self.chance(0.3):
                return _made(kind, "CASE WHEN {0} THEN {1} END", parts[:2])
            return _made(kind, "CASE WHEN {0} THEN {1} ELSE {2} END", parts)
        if choice < 0.25:
            name = self.choose.choice(("coalesce", "nullif"))
            return _made(
                kind, name + "({0}, {1})", (self.value(kind, scope, depth - 1, tame), self.leaf(kind, scope, tame))
            )
        functions = [f for f in self.features.functions if f.kind == kind]
        if functions and (choice < 0.6 or kind not in ("int", "float", "decimal")):
            return self.call(self.choose.choice(functions), scope, depth, tame)
        if kind in ("int", "float", "decimal"):
            return self.arithmetic(kind, scope, depth)
        return self.leaf(kind, scope, tame)

    def call(self, function: Function, scope: Scope, depth: int, tame: bool) -> Expr:
        parts = tuple(self.value(kind, scope, depth - 1, tame or function.tame) for kind in function.arguments)
        return _made(function.kind, function.text, parts, function.duckdb, function.exact)

    def arithmetic(self, kind: str, scope: Scope, depth: int) -> Expr:
        tame = self.chance(0.97)
        if kind == "decimal":
            # More digits than 38 are an error in one engine sooner than in the other.
            left, right = self.leaf(kind, scope, True), self.leaf(kind, scope, True)
            return _made(
                kind, self.choose.choice(("({0} + {1})", "({0} - {1})", "({0} * {1})", "(- {0})")), (left, right)
            )
        left, right = self.value(kind, scope, depth - 1, tame), self.value(kind, scope, depth - 2, tame)
        if kind == "float":
            if self.chance(0.15):
                return _made(kind, "({0} / {1})", (left, right), exact=False)
            return _made(
                kind, self.choose.choice(("({0} + {1})", "({0} - {1})", "({0} * {1})", "(- {0})")), (left, right)
            )
        text, duckdb = self.choose.choice(
            (
                ("({0} + {1})", None), ("({0} - {1})", None), ("({0} * {1})", None), ("(- {0})", None),
                ("({0} / nullif({1}, 0))", "({0} // nullif({1}, 0))"), ("({0} % nullif({1}, 0))", None),
                ("({0} / {1})", "({0} // {1})") if self.chance(0.05) else ("({0} + {1})", None),
            )
        )  # fmt: skip
        return _made(kind, text, (left, right), duckdb)

    def condition(self, scope: Scope, depth: int, subqueries: bool = False) -> Expr:
        """Make a boolean expression."""
        if depth <= 0:
            columns = scope.of("bool")
            return self.choose.choice(columns) if columns and self.chance(0.3) else self.comparison(scope, 0)
        choice = self.choose.random()
        if subqueries and choice < 0.25:
            found = self.subquery_condition(scope, depth)
            if found is not None:
                return found
        if choice < 0.5:
            return self.comparison(scope, depth - 1)
        if choice < 0.7:
            both = self.chance(0.4)
            # A subquery under OR or NOT is a feature of its own.
            inner = subqueries and (both or (self.has("in or") and self.has("not in or")))
            parts = (self.condition(scope, depth - 1, inner), self.condition(scope, depth - 1, inner))
            return _made("bool", "({0} AND {1})" if both else "({0} OR {1})", parts)
        if choice < 0.75:
            inner = subqueries and self.has("not in") and self.has("not in or")
            return _made("bool", "(NOT {0})", (self.condition(scope, depth - 1, inner),))
        if choice < 0.85:
            how = self.choose.choice(("IS NULL", "IS NOT NULL"))
            return _made("bool", "({0} " + how + ")", (self.any_value(scope, depth - 1),))
        if choice < 0.9:
            how = self.choose.choice(("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE"))
            return _made("bool", "({0} " + how + ")", (self.condition(scope, depth - 1),))
        if choice < 0.94 and self.has("not distinct"):
            # AND and OR bind less than the comparison, without parentheses.
            kind = self.choose.choice(("int", "text", "bool"))
            parts = (self.leaf(kind, scope), self.leaf(kind, scope), self.condition(scope, depth - 1))
            how = self.choose.choice(("IS DISTINCT FROM {1} AND", "IS NOT DISTINCT FROM {1} OR"))
            return _made("bool", "({0} " + how + " {2})", parts)
        functions = [f for f in self.features.functions if f.kind == "bool"]
        return self.call(self.choose.choice(functions), scope, depth, False) if functions else self.comparison(scope, 0)

    def comparison(self, scope: Scope, depth: int) -> Expr:
        present = sorted({column.kind for column in scope.columns} - {"bool"}) or ["int"]
        kind = self.choose.choice(present)
        if kind in COMPARED:
            left, right = self.value(kind, scope, depth), self.value(kind, scope, depth)
            if left == right and self.chance(0.9):
                right = self.literal(kind)
        else:
            # Extremes, decimals of other scales and unsigned integers have no common type with each other.
            left = self.choose.choice(scope.of(kind))
            right = self.choose.choice(scope.of(kind))
        choice = self.choose.random()
        if kind in COMPARED and choice < 0.15:
            values = ", ".join(f"{{{number}}}" for number in range(1, self.choose.randint(2, 5)))
            parts = (left, *(self.literal(kind) for _ in range(values.count("{"))))
            return _made("bool", "({0} " + self.choose.choice(("IN", "NOT IN")) + " (" + values + "))", parts)
        if kind in COMPARED and choice < 0.25:
            parts = (left, self.leaf(kind, scope), right)
            return _made("bool", "({0} " + self.choose.choice(("", "", "NOT ")) + "BETWEEN {1} AND {2})", parts)
        operator = self.choose.choice(
            ("=", "<>", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
        )
        return _made("bool", "({0} " + operator + " {1})", (left, right))

    def any_value(self, scope: Scope, depth: int) -> Expr:
        kinds = [column.kind for column in scope.columns] or ["int"]
        return self.value(self.choose.choice(kinds), scope, depth)

    # --- subqueries ------------------------------------------------------------------------------------------------

    def subquery_condition(self, scope: Scope, depth: int) -> Expr | None:
        name = self.choose.choice(
            (
                "exists",
                "exists",
                "not exists",
                "exists theta",
                "exists alone",
                "in",
                "in",
                "not in",
                "scalar",
                "correlated scalar",
            )
        )
        if not self.has(name):
            return None
        alias, columns = self.table()
        inner = Scope(columns[1])
        relation = (Relation(alias, columns[0]),)
        pair = self.pair(scope, inner)
        if pair is None:
            return None
        outer_key, inner_key = pair
        condition = _made("bool", "({0} = {1})", (inner_key, outer_key))
        if name == "exists theta":
            other = self.pair(scope, inner)
            assert other is not None
            condition = _made("bool", "({0} AND {1} <> {2})", (condition, *other))
        if self.chance(0.4):
            condition = _made("bool", "({0} AND {1})", (condition, self.condition(inner, 1)))
        if name.startswith(("exists", "not exists")):
            where = self.condition(inner, 1) if name == "exists alone" else condition
            body = Query(Select((Expr("int", "1"),), relation, where))
            return _made("bool", "NOT EXISTS ({0})" if name == "not exists" else "EXISTS ({0})", (body,))
        where = self.condition(inner, 1) if self.chance(0.5) else None
        if name in ("in", "not in"):
            body = Query(Select((inner_key,), relation, where))
            return _made("bool", "({0} " + name.upper() + " ({1}))", (outer_key, body))
        aggregate = _made(inner_key.kind, self.choose.choice(("min({0})", "max({0})")), (inner_key,))
        body = Query(Select((aggregate,), relation, condition if name == "correlated scalar" else where))
        return _made("bool", "({0} " + self.choose.choice(("=", "<", ">=")) + " ({1}))", (outer_key, body))

    def pair(self, left: Scope, right: Scope) -> tuple[Expr, Expr] | None:
        """Choose two columns that can be compared."""
        kinds = [kind for kind in COMPARED if left.of(kind) and right.of(kind)]
        if not kinds:
            return None
        kind = self.choose.choice([*kinds, *(kind for kind in kinds if kind in ("int", "text"))])
        return self.choose.choice(left.of(kind)), self.choose.choice(right.of(kind))

    # --- FROM ------------------------------------------------------------------------------------------------------

    def table(self, depth: int = 0) -> tuple[str, tuple[str | Query, tuple[Expr, ...]]]:
        """Choose a table, or make a subquery, under a new alias."""
        alias = f"r{self._aliases}"
        self._aliases += 1
        if depth > 0 and self.chance(0.2):
            query = self.query(depth - 1, nested=True)
            columns = tuple(
                Expr(item.kind, f"{alias}.c{number}", exact=item.exact, wild=item.wild)
                for number, item in enumerate(query.items)
            )
            return alias, (query, columns)
        spec = self.choose.choice(self.tables)
        found = []
        for column in spec.columns:
            kind = column.kind
            if column.wild and kind == "decimal":
                kind = f"decimal({column.type.precision}, {column.type.scale})"
            found.append(Expr(kind, f"{alias}.{column.name}", wild=column.wild))
        return alias, (spec.name, tuple(found))

    def relations(self, depth: int) -> tuple[tuple[Relation, ...], Scope]:
        alias, (source, columns) = self.table(depth)
        found, scope = [Relation(alias, source)], Scope(columns)
        for _ in range(self.choose.choice((0, 0, 0, 1, 1, 2))):
            alias, (source, columns) = self.table(depth)
            inner = Scope(columns)
            joins = [j for j in ("join", "join", "left join", "right join", "full join") if j == "join" or self.has(j)]
            join = self.choose.choice(joins)
            pair = self.pair(scope, inner)
            if pair is None or (self.has("cross join") and self.chance(0.06)):
                if not self.has("cross join"):
                    continue
                found.append(Relation(alias, source, "CROSS JOIN"))
                scope = Scope(scope.columns + columns)
                continue
            both = Scope(scope.columns + columns)
            condition = _made("bool", "({0} = {1})", pair)
            if self.chance(0.25) and (other := self.pair(scope, inner)):
                condition = _made("bool", "({0} AND {1} = {2})", (condition, *other))
            theta = "theta join" if join == "join" else "left theta join"
            if join != "full join" and self.has(theta) and self.chance(0.12):
                condition = _made("bool", "({0} " + self.choose.choice(("<", ">=", "<>")) + " {1})", pair)
            elif self.has("residual") and join != "full join" and self.chance(0.2):
                condition = _made("bool", "({0} AND {1})", (condition, self.condition(both, 1)))
            found.append(Relation(alias, source, join.upper(), condition))
            scope = both
        if self.has("unnest") and self.chance(0.08):
            relation, columns = self.unnest(scope)
            found.append(relation)
            scope = Scope(scope.columns + columns)
        return tuple(found), scope

    def unnest(self, scope: Scope) -> tuple[Relation, tuple[Expr, ...]]:
        """Make rows of lists of values of one kind, and perhaps of their places."""
        alias = f"r{self._aliases}"
        self._aliases += 1
        kind = self.choose.choice([kind for kind in COMPARED if scope.of(kind)] or ["int"])
        values = tuple(self.leaf(kind, scope) for _ in range(self.choose.randint(1, 3)))
        text = "[" + ", ".join(f"{{{number}}}" for number in range(len(values))) + "]"
        if scope.of("bool") and self.chance(0.4):
            text = f"CASE WHEN {{{len(values)}}} THEN {text} END"
            values += (self.choose.choice(scope.of("bool")),)
        place = " WITH ORDINALITY" if self.chance(0.3) else ""
        columns = (Expr(kind, f"{alias}.c0", wild=any(value.wild for value in values)),)
        if place:
            columns += (Expr("int", f"{alias}.c1"),)
        named = f"{alias}({', '.join(column.text.partition('.')[2] for column in columns)})"
        source = _made("rows", f"UNNEST({text}){place}", values)
        if self.has("left unnest") and self.chance(0.4):
            condition = self.condition(Scope(scope.columns + columns), 1)
            return Relation(named, source, "LEFT JOIN", condition), columns
        return Relation(named, source, "CROSS JOIN"), columns

    # --- queries ---------------------------------------------------------------------------------------------------

    def query(self, depth: int = 2, nested: bool = False) -> Query:
        """Make a query; nested ones have an answer that does not depend on chance."""
        body = self.body(depth, nested)
        if not nested and self.chance(0.15):
            body = self.set_operation(body) or body
        orderable = [number for number, item in enumerate(body.items) if not item.quotient and item.exact]
        if not orderable or self.chance(0.5):
            limit = self.choose.choice((1, 3, 10, 50)) if not nested and self.chance(0.1) else None
            return Query(body, (), limit)
        if nested:
            if len(orderable) < len(body.items) or self.chance(0.7):
                return Query(body)
            picked = self.choose.sample(orderable, len(orderable))
        else:
            picked = self.choose.sample(orderable, self.choose.randint(1, min(3, len(orderable))))
        order = tuple((number, self.direction()) for number in picked)
        limit = self.choose.choice((0, 1, 2, 5, 5, 20, 20)) if nested or self.chance(0.4) else None
        offset = self.choose.choice((1, 3)) if self.chance(0.15) else None
        return Query(body, order, limit, offset)

    def direction(self) -> str:
        return self.choose.choice((" ", " DESC")) + self.choose.choice((" NULLS FIRST", " NULLS LAST"))

    def body(self, depth: int, nested: bool) -> Select:
        relations, scope = self.relations(depth)
        where = self.condition(scope, 2, subqueries=True) if self.chance(0.45) else None
        if self.chance(0.4):
            return self.grouped(relations, scope, where, nested)
        items = tuple(self.item(scope) for _ in range(self.choose.randint(1, 5)))
        # The last digits of what is not exact would decide what comes first.
        exact = all(column.exact for column in scope.columns)
        if not nested and self.features.windows and self.has("window") and self.chance(0.25) and exact:
            # Rows that are alike may be numbered in any order, and by two functions in two.
            items += (self.window(scope, self.features.windows),)
            if self.chance(0.5):
                peers = tuple(
                    f for f in self.features.windows if not f.text.startswith(POSITIONAL) and "ROWS" not in f.text
                )
                items += (self.window(scope, peers),)
        elif not nested and self.has("quotient") and self.chance(0.08):
            parts = (self.value("decimal", scope, 1, True), self.leaf("decimal", scope, True))
            divisor = _made("decimal", "nullif({0}, 0)", parts[1:])
            items += (Expr("decimal", "({0} / {1})", (parts[0], divisor), quotient=True),)
        elif not nested and self.has("correlated value") and self.chance(0.08):
            items += (self.correlated_value(scope),)
        distinct = self.has("distinct") and all(i.exact and not i.quotient for i in items) and self.chance(0.15)
        return Select(items, relations, where, distinct=distinct)

    def item(self, scope: Scope) -> Expr:
        return self.choose.choice(scope.columns) if self.chance(0.5) else self.any_value(scope, 2)

    def correlated_value(self, scope: Scope) -> Expr:
        alias, (source, columns) = self.table()
        pair = self.pair(scope, Scope(columns))
        if pair is None:
            return self.item(scope)
        condition = _made("bool", "({0} = {1})", pair)
        chosen = self.choose.choice((Expr("int", "count(*)"), _made(pair[1].kind, "max({0})", (pair[1],))))
        return _made(chosen.kind, "({0})", (Query(Select((chosen,), (Relation(alias, source),), condition)),))

    def grouped(self, relations: tuple[Relation, ...], scope: Scope, where: Expr | None, nested: bool) -> Select:
        count = self.choose.choice((0, 1, 1, 2, 3))
        groups = tuple(self.group(scope) for _ in range(count))
        grouping = "{0}"
        if groups:
            sets = [("rollup", "ROLLUP ({0})"), ("cube", "CUBE ({0})"), ("grouping sets", "GROUPING SETS (({0}), ())")]
            possible = [text for name, text in sets if self.has(name)]
            if possible and len(groups) < 3 and len({g.text for g in groups}) == len(groups) and self.chance(0.2):
                grouping = self.choose.choice(possible)
        items = [group for group in groups if self.chance(0.85)]
        items += [self.aggregate(scope) for _ in range(self.choose.randint(0 if items else 1, 4))]
        if not nested and self.has("average of decimals") and self.chance(0.15):
            argument = self.value("decimal", scope, 1, True)
            parts = (_made("decimal", "sum({0})", (argument,)), _made("int", "count({0})", (argument,)), argument)
            items.append(Expr("decimal", "avg({2})", parts, quotient=True))
        having = None
        if self.has("having") and self.chance(0.25):
            # NULL groups of grouping sets make conditions on keys a matter of their own.
            keys = groups if grouping == "{0}" else ()
            having = self.condition(Scope((*keys, *(self.aggregate(scope) for _ in range(2)))), 1)
        return Select(tuple(items), relations, where, groups, grouping, having)

    def group(self, scope: Scope) -> Expr:
        if self.chance(0.75):
            return self.choose.choice(scope.columns)
        made = self.any_value(scope, 1)
        return made if made.exact and _uses_columns(made) else self.choose.choice(scope.columns)

    def aggregate(self, scope: Scope) -> Expr:
        if self.chance(0.2):
            return Expr("int", "count(*)")
        function = self.choose.choice(self.features.aggregates)
        if function.arguments == ("any",):
            argument = self.any_value(scope, 1)
            kind = argument.kind if function.kind == "same" else function.kind
            found = _made(kind, function.text, (argument,), function.duckdb)
        else:
            parts = tuple(self.value(each, scope, 1, function.tame) for each in function.arguments)
            if not all(part.exact for part in parts):
                parts = tuple(self.leaf(each, scope, True) for each in function.arguments)
            found = _made(
                parts[0].kind if function.kind == "same" else function.kind, function.text, parts, function.duckdb
            )
            if function.kind == "int" or "avg" in function.text:
                found = replace(found, wild=True)
            found = replace(found, exact=function.exact)
        if self.has("filter") and self.chance(0.12) and "ORDER BY" not in found.text:
            where = f" FILTER (WHERE {{{len(found.parts)}}})"
            found = replace(found, text=found.text + where, parts=(*found.parts, self.condition(scope, 1)))
        return _wide_in_duckdb(found) if function.kind == "decimal" else found

    def window(self, scope: Scope, functions: tuple[Function, ...]) -> Expr:
        """Make a window function whose order is total but for rows that are alike."""
        order = ", ".join(f"{{{number}}}{self.direction()}" for number in range(len(scope.columns)))
        columns = self.choose.sample(scope.columns, len(scope.columns))
        window = _made("window", "ORDER BY " + order, tuple(columns))
        if self.has("partition") and self.chance(0.6):
            keys = tuple(self.choose.choice(scope.columns) for _ in range(self.choose.randint(1, 2)))
            window = _made(
                "window",
                "PARTITION BY " + ", ".join(f"{{{n}}}" for n in range(1, len(keys) + 1)) + " {0}",
                (window, *keys),
            )
        function = self.choose.choice(functions)
        if function.arguments == ("any",):
            argument = self.choose.choice(scope.columns)
            return _made(argument.kind if function.kind == "same" else function.kind, function.text, (window, argument))
        parts = tuple(self.leaf(kind, scope, True) for kind in function.arguments)
        return _wide_in_duckdb(_made(function.kind, function.text, (window, *parts)))

    def set_operation(self, left: Select) -> SetOperation | None:
        names = [n for n in ("union all", "union", "intersect", "except", "intersect all", "except all") if self.has(n)]
        if not names or any(not item.exact or item.quotient for item in left.items):
            return None
        relations, scope = self.relations(0)
        items = tuple(self.value(kind, scope, 1) if "(" not in kind else self.leaf(kind, scope) for kind in left.kinds)
        if any(not item.exact for item in items):
            return None
        where = self.condition(scope, 1) if self.chance(0.3) else None
        return SetOperation(self.choose.choice(names).upper(), left, Select(items, relations, where))


def _made(kind: str, text: str, parts: tuple[Expr | Query, ...], duckdb: str | None = None, exact: bool = True) -> Expr:
    expressions = [part for part in parts if isinstance(part, Expr)]
    exact = exact and all(part.exact for part in expressions)
    return Expr(kind, text, parts, duckdb, exact, any(part.wild for part in expressions))


def _wide_in_duckdb(expression: Expr) -> Expr:
    """Return an aggregate whose decimals have digits to spare in DuckDB."""
    if expression.kind != "decimal":
        return expression
    # Its common type of decimal(38, 1) and decimal(3, 2) has one digit after the point.
    return _made("decimal", "{0}", (expression,), duckdb="cast({0} as decimal(38, 12))")


def _uses_columns(expression: Expr) -> bool:
    return re.search(r"\br\d+\.", expression.sql("hybridq")) is not None
