"""How many rows a plan's nodes have, guessed from statistics in the manner of System R.

Values are taken to be spread evenly and columns to be independent; a join keeps one pair in as many as the key has
values. Guesses are finite and at least one row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import singledispatchmethod

import pyarrow as pa

from hybridq.plan import nodes
from hybridq.plan.expressions import Call, Expression
from hybridq.plan.selectivity import ColumnProfile, Selectivity, distinct_after, unknown_profile, value_width
from hybridq.plan.statistics import TableStatistics
from hybridq.plan.unnesting import Unnest
from hybridq.types import is_string

MOST_ROWS = 1e18
"""Estimates go no higher."""


RESIDUAL_SHARE = 0.7
"""Share of rows with a match whose match also meets a semi join's further condition."""

USUAL_ELEMENTS = 4.0
"""Elements that a list is taken to have."""

LEAST_ANTI_SHARE = 0.05
"""An anti join is not expected to keep less, for what it drops is guessed from keys that may never meet."""


class Estimator:
    """Estimates rows, bytes and distinct values of plan nodes, each node once.

    Parameters
    ----------
    statistics : callable
        Table statistics by table name, such as ``Catalog.table``.
    """

    def __init__(self, statistics: Callable[[str], TableStatistics]) -> None:
        self._statistics = statistics
        # By identity, since equal nodes have equal estimates but hashing a tree is slow; nodes are kept alive.
        self._rows: dict[int, tuple[nodes.Node, float]] = {}
        self._profiles: dict[tuple[int, str], ColumnProfile] = {}
        self._stored: dict[tuple[str, str], ColumnProfile] = {}

    def rows(self, node: nodes.Node) -> float:
        """Return the estimated rows of a node's output, at least 1."""
        known = self._rows.get(id(node))
        if known is None:
            estimate = self._rows_of(node)
            known = (node, min(max(estimate, 1.0), MOST_ROWS) if math.isfinite(estimate) else MOST_ROWS)
            self._rows[id(node)] = known
        return known[1]

    def bytes(self, node: nodes.Node) -> float:
        """Return the estimated bytes of a node's output in memory, as Arrow."""
        return self.rows(node) * self.row_bytes(node)

    def row_bytes(self, node: nodes.Node) -> float:
        """Return the estimated bytes of one row of a node's output."""
        return max(sum(self.profile(node, item.name).width for item in node.schema), 1.0)

    def distinct(self, node: nodes.Node, column: str) -> float:
        """Return the estimated distinct values of an output column, at least 1 and at most the rows."""
        return max(min(self.profile(node, column).distinct, self.rows(node)), 1.0)

    def profile(self, node: nodes.Node, column: str) -> ColumnProfile:
        """Return what is guessed of an output column's values."""
        key = (id(node), column)
        found = self._profiles.get(key)
        if found is None:
            self.rows(node)  # keeps the node, and so its identity
            found = self._profiles[key] = self._profile_of(node, column)
        return found

    def expression_profile(self, node: nodes.Node, expression: Expression) -> ColumnProfile:
        """Return what is guessed of an expression's values over a node's output."""
        return self._selectivity(node).profile(expression)

    def selectivity(self, node: nodes.Node, predicate: Expression) -> float:
        """Return the share of a node's output rows for which a predicate is true."""
        return self._selectivity(node).of(predicate)

    def join_selectivity(
        self,
        left: nodes.Node,
        right: nodes.Node,
        keys: Sequence[tuple[Expression, Expression]],
    ) -> float:
        """Return the share of all pairs of rows whose keys are equal.

        Parameters
        ----------
        left, right : Node
            The sides before the join.
        keys : sequence of (left key, right key)
            None: every pair.
        """
        if not keys:
            return 1.0
        domains = [1.0, 1.0]
        not_null = 1.0
        for pair in keys:
            for side, (node, key) in enumerate(zip((left, right), pair, strict=True)):
                profile = self.expression_profile(node, key)
                domains[side] *= profile.domain
                not_null *= 1 - profile.null_fraction
        if len(keys) > 1:
            # Several keys together have no more values than the table that they are the key of has rows.
            limit = min(self.base_rows(left), self.base_rows(right))
            domains = [min(domain, limit) for domain in domains]
        return not_null / max(*domains, 1.0)

    # --- rows, one method a node -----------------------------------------------------------------------------------

    @singledispatchmethod
    def _rows_of(self, node: nodes.Node) -> float:
        """Estimate a node's rows."""
        raise TypeError(f"no estimate for {type(node).__name__}")

    @_rows_of.register
    def _(self, node: nodes.Scan) -> float:
        rows = float(self._statistics(node.table).rows)
        if node.predicate is None:
            return rows
        return rows * self._scan_selectivity(node).of(node.predicate)

    @_rows_of.register
    def _(self, node: nodes.Values) -> float:
        return float(node.table.num_rows)

    @_rows_of.register
    def _(self, node: nodes.Filter) -> float:
        return self.rows(node.input) * self.selectivity(node.input, node.predicate)

    @_rows_of.register
    def _(self, node: nodes.Project) -> float:
        return self.rows(node.input)

    @_rows_of.register
    def _(self, node: nodes.Sort) -> float:
        return self.rows(node.input)

    @_rows_of.register
    def _(self, node: nodes.Limit) -> float:
        rest = max(self.rows(node.input) - node.offset, 0.0)
        return rest if node.count is None else min(rest, float(node.count))

    @_rows_of.register
    def _(self, node: nodes.TopK) -> float:
        return min(max(self.rows(node.input) - node.offset, 0.0), float(node.count))

    @_rows_of.register
    def _(self, node: nodes.Aggregate) -> float:
        rows = self.rows(node.input)
        distinct = [max(self.expression_profile(node.input, item.expression).distinct, 1.0) for item in node.groups]
        sets = (tuple(range(len(distinct))),) if node.sets is None else node.sets.members
        return sum(min(math.prod(distinct[index] for index in members), rows) if members else 1.0 for members in sets)

    @_rows_of.register
    def _(self, node: nodes.Join) -> float:
        left, right = self.rows(node.left), self.rows(node.right)
        pairs = tuple(zip(node.left_keys, node.right_keys, strict=True))
        if node.kind in ("semi", "anti"):
            matched = self._matched_share(node, pairs)
            if node.residual is not None:
                matched *= RESIDUAL_SHARE
            return left * matched if node.kind == "semi" else left * max(1 - matched, LEAST_ANTI_SHARE)
        inner = left * right * self.join_selectivity(node.left, node.right, pairs)
        if node.residual is not None:
            both = replace(node, kind="inner", residual=None)
            inner *= Selectivity(lambda name: self._side_profile(both, name)).of(node.residual)
        if node.kind == "mark":
            return left
        if node.kind == "left":
            return max(inner, left)
        if node.kind == "full":
            return max(inner, left, right)
        return inner

    @_rows_of.register
    def _(self, node: nodes.Window) -> float:
        return self.rows(node.input)

    @_rows_of.register
    def _(self, node: Unnest) -> float:
        rows = self.rows(node.input)
        if node.kind in ("semi", "anti"):
            return rows * (RESIDUAL_SHARE if node.condition is not None else 1.0)
        lengths = [
            float(len(item.expression.arguments))
            for item in node.lists
            if isinstance(item.expression, Call) and item.expression.function == "make_array"
        ]
        elements = rows * max(lengths, default=USUAL_ELEMENTS)
        if node.condition is not None:
            elements *= RESIDUAL_SHARE
        return max(elements, rows) if node.kind == "left" else elements

    @_rows_of.register
    def _(self, node: nodes.Union) -> float:
        return sum(self.rows(part) for part in node.parts)

    def _matched_share(self, node: nodes.Join, pairs: Sequence[tuple[Expression, Expression]]) -> float:
        """Return the share of left rows that have a match on the right."""
        if not pairs:
            return 1.0
        present = domain = 1.0
        for left, right in pairs:
            right_profile = self.expression_profile(node.right, right)
            present *= max(right_profile.distinct, 1.0)
            domain *= max(right_profile.domain, self.expression_profile(node.left, left).domain, 1.0)
        present = min(present, self.rows(node.right))
        return min(present / max(min(domain, self.base_rows(node.left)), present), 1.0)

    def base_rows(self, node: nodes.Node) -> float:
        """Return the rows of the largest table below a node, before any filter."""
        largest = 1.0
        for part in nodes.walk(node):
            if isinstance(part, nodes.Scan):
                largest = max(largest, float(self._statistics(part.table).rows))
            elif isinstance(part, nodes.Values):
                largest = max(largest, float(part.table.num_rows))
        return largest

    def streamed_rows(self, node: nodes.Node) -> float:
        """Return the rows that enter the last pipeline which gives a node's rows.

        Those of the table that its filters and probes work on, or of the last node that has to see all its input first.
        """
        while isinstance(node, nodes.Filter | nodes.Project | nodes.Join):
            node = node.inputs[0]
        if isinstance(node, nodes.Scan):
            return float(self._statistics(node.table).rows)
        return self.rows(node)

    # --- columns, one method a node --------------------------------------------------------------------------------

    @singledispatchmethod
    def _profile_of(self, node: nodes.Node, column: str) -> ColumnProfile:
        """Profile an output column of a node."""
        (child,) = node.inputs
        return self._thinned(self.profile(child, column), self.rows(child), self.rows(node))

    @_profile_of.register
    def _(self, node: nodes.Scan, column: str) -> ColumnProfile:
        profile = self._scan_profile(node, column)
        if node.predicate is None:
            return profile
        profile, share = self._scan_selectivity(node).restricted(column, profile, node.predicate)
        return self._thinned(profile, share * float(self._statistics(node.table).rows), self.rows(node))

    @_profile_of.register
    def _(self, node: nodes.Filter, column: str) -> ColumnProfile:
        profile = self.profile(node.input, column)
        profile, share = self._selectivity(node.input).restricted(column, profile, node.predicate)
        return self._thinned(profile, share * self.rows(node.input), self.rows(node))

    @_profile_of.register
    def _(self, node: nodes.Values, column: str) -> ColumnProfile:
        data_type = node.table.schema.field(column).type
        return unknown_profile(data_type, value_width(data_type), float(node.table.num_rows))

    @_profile_of.register
    def _(self, node: nodes.Project, column: str) -> ColumnProfile:
        for item in node.expressions:
            if item.name == column:
                return self.expression_profile(node.input, item.expression)
        raise KeyError(column)

    @_profile_of.register
    def _(self, node: nodes.Join, column: str) -> ColumnProfile:
        if column == node.mark:
            return unknown_profile(pa.bool_(), value_width(pa.bool_()), 2.0)
        left_names = {item.name for item in node.left.schema}
        side = node.left if column in left_names else node.right
        return self._thinned(self.profile(side, column), self.rows(side), self.rows(node))

    @_profile_of.register
    def _(self, node: nodes.Aggregate, column: str) -> ColumnProfile:
        rows = self.rows(node)
        for item in node.groups:
            if item.name == column:
                profile = self.expression_profile(node.input, item.expression)
                distinct = rows if len(node.groups) == 1 else min(profile.distinct, rows)
                return replace(profile, distinct=max(distinct, 1.0))
        for call in node.aggregates:
            if call.name == column:
                if call.function in ("min", "max") and call.argument is not None:
                    profile = self.expression_profile(node.input, call.argument)
                    return replace(profile, distinct=max(min(profile.distinct, rows), 1.0))
                return unknown_profile(call.type, value_width(call.type), rows)
        if node.sets is not None and node.sets.name == column:
            return unknown_profile(nodes.SET_NUMBER_TYPE, value_width(nodes.SET_NUMBER_TYPE), len(node.sets.members))
        raise KeyError(column)

    @_profile_of.register
    def _(self, node: nodes.Window, column: str) -> ColumnProfile:
        for call in node.calls:
            if call.name == column:
                return unknown_profile(call.type, value_width(call.type), self.rows(node))
        return self.profile(node.input, column)

    @_profile_of.register
    def _(self, node: Unnest, column: str) -> ColumnProfile:
        for item in node.elements:
            if item.name == column:
                return unknown_profile(item.type, value_width(item.type), self.rows(node))
        return self._thinned(self.profile(node.input, column), self.rows(node.input), self.rows(node))

    @_profile_of.register
    def _(self, node: nodes.Union, column: str) -> ColumnProfile:
        position = node.names.index(column)
        profiles = [self.profile(part, part.schema[position].name) for part in node.parts]
        ends = [(profile.minimum, profile.maximum) for profile in profiles]
        known = all(low is not None and high is not None for low, high in ends)
        rows = self.rows(node)
        nulls = sum(p.null_fraction * self.rows(part) for p, part in zip(profiles, node.parts, strict=True))
        return replace(
            profiles[0],
            # Inputs mostly share their values; where they do not, there are no more than all together.
            distinct=max(min(max(profile.distinct for profile in profiles), rows), 1.0),
            domain=max(profile.domain for profile in profiles),
            minimum=min(low for low, _ in ends) if known else None,
            maximum=max(high for _, high in ends) if known else None,
            null_fraction=min(nulls / rows, 1.0),
            width=max(profile.width for profile in profiles),
        )

    def _side_profile(self, node: nodes.Join, column: str) -> ColumnProfile:
        """Profile a column of a join's sides, right ones of semi and anti joins included."""
        side = node.left if any(item.name == column for item in node.left.schema) else node.right
        return self.profile(side, column)

    def _selectivity(self, node: nodes.Node) -> Selectivity:
        return Selectivity(lambda name: self.profile(node, name))

    def _scan_selectivity(self, node: nodes.Scan) -> Selectivity:
        return Selectivity(lambda name: self._scan_profile(node, name))

    def _scan_profile(self, node: nodes.Scan, name: str) -> ColumnProfile:
        """Profile a column of a scan before its predicate."""
        column = next(item for item in node.columns if item.name == name)
        key = node.table, column.source
        found = self._stored.get(key)
        if found is None:
            found = self._stored[key] = self._stored_profile(node.table, column)
        return found

    def _stored_profile(self, name: str, column: nodes.ScanColumn) -> ColumnProfile:
        """Profile a table's column."""
        table = self._statistics(name)
        rows = float(table.rows)
        summary = table.summary(column.source)
        width = value_width(column.type)
        if summary is None:
            return unknown_profile(column.type, width, rows)
        if is_string(column.type) or pa.types.is_binary(column.type):
            stored = table.column_bytes(column.source) / rows if rows else 0.0
            if isinstance(summary.minimum, str | bytes):
                width = 4.0 + (len(summary.minimum) + len(summary.maximum)) / 2
            # Dictionaries make stored text smaller than it is in memory, never larger.
            width = max(width, stored)
        distinct = max(min(summary.distinct if summary.distinct is not None else rows, rows), 1.0)
        nulls = (summary.null_count or 0) / rows if rows else 0.0
        return ColumnProfile(column.type, distinct, distinct, summary.minimum, summary.maximum, min(nulls, 1.0), width)

    @staticmethod
    def _thinned(profile: ColumnProfile, before: float, after: float) -> ColumnProfile:
        """Return a column's profile once only so many of its rows are left."""
        distinct = distinct_after(profile.distinct, before, after)
        return profile if distinct == profile.distinct else replace(profile, distinct=distinct)
