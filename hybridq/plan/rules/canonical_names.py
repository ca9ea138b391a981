"""Name columns by what they are, so that one query gives one plan however it was written."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa

from hybridq.plan.expressions import AggregateCall, Column, Expression, NamedExpression, substitute
from hybridq.plan.naming import bounded, expression_name, unique_name
from hybridq.plan.nodes import SET_NUMBER_TYPE, Aggregate, Join, Node, Project, Scan, Union, Values, Window
from hybridq.plan.rules.helpers import is_identity, map_expressions
from hybridq.plan.unnesting import Unnest
from hybridq.plan.windows import WindowCall


def canonical_names(root: Node) -> Node:
    """Rename all columns: ``table.column`` where they are read, the text of what computes them elsewhere.

    The second Scan of one table, depth-first and left to right, has ``table#2.column``; a name that would repeat within
    a schema, or on both sides of a join, gets ``#2`` appended. The keys of a join are put in order.

    >>> import pyarrow as pa
    >>> from hybridq.plan.nodes import ScanColumn, render
    >>> scan = Scan("t", (ScanColumn("x", "a", pa.int64()),))
    >>> node = canonical_names(Aggregate(scan, (), (AggregateCall("y", "sum", Column(pa.int64(), "x"), pa.int64()),)))
    >>> [field.name for field in node.schema]
    ['sum(t.a)']
    """
    return _Renamer().rename(root, frozenset())[0]


_Names = dict[str, Expression]


class _Renamer:
    """Renames a plan from its leaves up; counts the Scans of each table."""

    def __init__(self) -> None:
        self._scans: Counter[str] = Counter()

    def rename(self, node: Node, taken: frozenset[str]) -> tuple[Node, _Names]:
        """Return a renamed node and what its columns are called now.

        Parameters
        ----------
        node : Node
            With whatever names.
        taken : frozenset of str
            Names of columns that it will be joined with.
        """
        if isinstance(node, Scan):
            return self._scan(node)
        if isinstance(node, Values):
            return self._values(node)
        if isinstance(node, Join):
            return self._join(node, taken)
        if isinstance(node, Union):
            return self._union(node, taken)
        (child,) = node.inputs
        below, names = self.rename(child, taken)
        changed = map_expressions(node.with_inputs((below,)), lambda expression: substitute(expression, names))
        if isinstance(changed, Project):
            items, made = _named(changed.expressions, taken)
            project = replace(changed, expressions=items)
            return (below if is_identity(project) else project), made
        if isinstance(changed, Aggregate):
            groups, made = _named(changed.groups, taken)
            calls: list[AggregateCall] = []
            used = {item.name for item in groups} | taken
            if changed.sets is not None:
                number = unique_name("grouping set", used)
                used.add(number)
                made[changed.sets.name] = Column(SET_NUMBER_TYPE, number)
                changed = replace(changed, sets=replace(changed.sets, name=number))
            for call in changed.aggregates:
                name = unique_name(bounded(call.text), used)
                used.add(name)
                calls.append(replace(call, name=name))
                made[call.name] = Column(call.type, name)
            return replace(changed, groups=groups, aggregates=tuple(calls)), made
        if isinstance(changed, Window):
            windows: list[WindowCall] = []
            used = {item.name for item in below.schema} | taken
            made = dict(names)
            for window in changed.calls:
                name = unique_name(bounded(window.text), used)
                used.add(name)
                windows.append(window.renamed(name))
                made[window.name] = Column(window.type, name)
            return replace(changed, calls=tuple(windows)), made
        if isinstance(changed, Unnest):
            return _unnest(changed, taken, names)
        return changed, names

    def _alias(self, table: str) -> str:
        self._scans[table] += 1
        return table if self._scans[table] == 1 else f"{table}#{self._scans[table]}"

    def _scan(self, node: Scan) -> tuple[Node, _Names]:
        alias = self._alias(node.table)
        columns = tuple(replace(column, name=f"{alias}.{column.source}") for column in node.columns)
        names: _Names = {old.name: Column(old.type, new.name) for old, new in zip(node.columns, columns, strict=True)}
        predicate = None if node.predicate is None else substitute(node.predicate, names)
        return Scan(node.table, columns, predicate), names

    def _values(self, node: Values) -> tuple[Node, _Names]:
        alias = self._alias("values")
        fields = node.schema
        renamed = [f"{alias}.{position}" for position in range(1, len(fields) + 1)]
        names: _Names = {field.name: Column(field.type, name) for field, name in zip(fields, renamed, strict=True)}
        return Values(node.table.rename_columns(renamed)), names

    def _union(self, node: Union, taken: frozenset[str]) -> tuple[Node, _Names]:
        parts = tuple(self.rename(part, frozenset())[0] for part in node.parts)
        used = set(taken)
        renamed: list[str] = []
        for item in parts[0].schema:
            renamed.append(unique_name(item.name, used))
            used.add(renamed[-1])
        made: _Names = {field.name: Column(field.type, name) for field, name in zip(node.schema, renamed, strict=True)}
        return Union(parts, tuple(renamed)), made

    def _join(self, node: Join, taken: frozenset[str]) -> tuple[Node, _Names]:
        left, left_names = self.rename(node.left, taken)
        right, right_names = self.rename(node.right, taken | {item.name for item in left.schema})
        names = left_names | right_names
        if node.mark is not None:
            mark = unique_name("mark", taken | {item.name for side in (left, right) for item in side.schema})
            left_names[node.mark] = Column(pa.bool_(), mark)
            node = replace(node, mark=mark)
        changed = map_expressions(node.with_inputs((left, right)), lambda expression: substitute(expression, names))
        if isinstance(changed, Join) and len(changed.left_keys) > 1 and not node.null_aware:
            pairs = sorted(
                zip(changed.left_keys, changed.right_keys, strict=True), key=lambda pair: (str(pair[0]), str(pair[1]))
            )
            changed = replace(
                changed, left_keys=tuple(pair[0] for pair in pairs), right_keys=tuple(pair[1] for pair in pairs)
            )
        return changed, left_names if node.kind in ("semi", "anti", "mark") else names


def _unnest(node: Unnest, taken: frozenset[str], names: _Names) -> tuple[Node, _Names]:
    used = {item.name for item in node.input.schema} | taken
    made: _Names = {}
    for item in node.elements:
        text = next((f"unnest({each.expression})" for each in node.lists if each.name == item.name), "ordinality")
        name = unique_name(bounded(text), used)
        used.add(name)
        made[item.name] = Column(item.type, name)
    new = {old: column.name for old, column in made.items() if isinstance(column, Column)}
    renamed = replace(
        node,
        lists=tuple(NamedExpression(new[item.name], item.expression) for item in node.lists),
        ordinality=None if node.ordinality is None else new[node.ordinality],
        condition=None if node.condition is None else substitute(node.condition, made),
    )
    return renamed, names if node.kind in ("semi", "anti") else names | made


def _named(items: tuple[NamedExpression, ...], taken: frozenset[str]) -> tuple[tuple[NamedExpression, ...], _Names]:
    """Name expressions by their text; a column keeps its name."""
    # Columns first: a computed text must not take the name of a column that passes.
    used = set(taken)
    chosen: dict[int, str] = {}
    for position, item in enumerate(items):
        if isinstance(item.expression, Column):
            # What passes here is not new, so what it will be joined with cannot have its name.
            name = item.expression.name
            chosen[position] = unique_name(name, set(chosen.values()))
    used |= set(chosen.values())
    for position, item in enumerate(items):
        if position not in chosen:
            chosen[position] = unique_name(expression_name(item.expression), used)
            used.add(chosen[position])
    renamed = tuple(NamedExpression(chosen[i], item.expression) for i, item in enumerate(items))
    made: _Names = {item.name: Column(item.expression.type, chosen[i]) for i, item in enumerate(items)}
    return renamed, made
