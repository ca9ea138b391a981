"""Choose the order of inner joins, and which side each is built from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import pyarrow as pa

from hybridq.plan.cardinality import Estimator
from hybridq.plan.expressions import Call, Expression, columns_of, conjunction, conjuncts
from hybridq.plan.nodes import Filter, Join, Node, Project
from hybridq.plan.rules.helpers import can_fail, filtered, passing
from hybridq.plan.selectivity import Selectivity

EXHAUSTIVE_RELATIONS = 10
"""Relations up to which every order is looked at."""

CLEARLY_CHEAPER = 0.999
"""A new order must cost less than this share of the given one, so that equal orders stay as they were written."""

LARGE_BUILD_BYTES, PLAIN_WIDTH, WIDTH_OF_A_ROW = 64e6, 128.0, 4.0
"""Bytes from which the width of a build side's rows counts, for it goes to every worker; bytes of a row that cost
nothing more; how many further ones cost as much as a row."""


def join_order(root: Node, estimator: Estimator) -> Node:
    """Reorder trees of inner joins by estimated rows.

    The cost of a join is the rows that it gives plus what its build side costs, the right one (``build_cost``); every
    order without cross joins is looked at for up to 10 relations, and the cheapest next pair is taken for more.
    Relations that nothing connects are cross joined last. Other joins keep their sides; they are relations of the trees
    around them.

    >>> import pyarrow as pa
    >>> from types import SimpleNamespace
    >>> from hybridq.plan.expressions import Column
    >>> from hybridq.plan.nodes import Scan, ScanColumn, render
    >>> def scan(name):
    ...     return Scan(name, (ScanColumn(f"{name}.k", "k", pa.int64()),))
    >>> key = [Column(pa.int64(), f"{name}.k") for name in ("small", "large")]
    >>> def statistics(name):
    ...     rows = {"small": 10, "large": 1000}[name]
    ...     return SimpleNamespace(rows=rows, summary=lambda source: None, column_bytes=lambda source: 8 * rows)
    >>> joined = Join(scan("small"), scan("large"), "inner", (key[0],), (key[1],))
    >>> print(render(join_order(joined, Estimator(statistics))))
    Project small.k, large.k
      Join inner ON large.k = small.k
        Scan large [k]
        Scan small [k]
    """
    if _may_reorder(root) or _filters_joins(root):
        return _reordered(root, estimator)
    inputs = root.inputs
    changed = tuple(join_order(child, estimator) for child in inputs)
    return root if all(a is b for a, b in zip(changed, inputs, strict=True)) else root.with_inputs(changed)


def _may_reorder(node: Node) -> TypeGuard[Join]:
    """Tell whether a node is an inner join whose conditions can be checked for any pairs without failing."""
    if not isinstance(node, Join) or node.kind != "inner":
        return False
    conditions = [*node.left_keys, *node.right_keys, *([] if node.residual is None else [node.residual])]
    return not any(can_fail(condition) for condition in conditions)


def _filters_joins(node: Node) -> TypeGuard[Filter]:
    """Tell whether a node filters the rows of such a join, by conditions that may as well be the join's."""
    return isinstance(node, Filter) and _may_reorder(node.input) and not can_fail(node.predicate)


def _reordered(root: Node, estimator: Estimator) -> Node:
    tree = _JoinTree()
    given = tree.collect(root)
    names = [item.name for leaf in tree.leaves for item in leaf.schema]
    if len(set(names)) != len(names):
        raise ValueError(f"a column name stands for two columns below {root.label}")
    tree.leaves = [join_order(leaf, estimator) for leaf in tree.leaves]
    graph = _JoinGraph(tree.leaves, tree.predicates, estimator)
    best = graph.best_order()
    if not graph.cost(best) < CLEARLY_CHEAPER * graph.cost(given):
        best = given
    result = filtered(graph.build(best), graph.constant)
    wanted = root.schema
    return result if result.schema == wanted else Project(result, passing(wanted))


_Order = int | tuple["_Order", "_Order"]
"""A join order: a leaf's number, or (probe side, build side)."""


@dataclass(slots=True)
class _JoinTree:
    """The relations below a tree of inner joins and all its conditions."""

    leaves: list[Node] = field(default_factory=list)
    predicates: list[Expression] = field(default_factory=list)

    def collect(self, node: Node) -> _Order:
        """Take a tree apart and return the order it had."""
        if _may_reorder(node):
            left, right = self.collect(node.left), self.collect(node.right)
            for pair in zip(node.left_keys, node.right_keys, strict=True):
                self.predicates.append(Call(pa.bool_(), "equal", pair))
            if node.residual is not None:
                self.predicates += conjuncts(node.residual)
            return left, right
        if _filters_joins(node):
            order = self.collect(node.input)
            self.predicates += conjuncts(node.predicate)
            return order
        self.leaves.append(node)
        return len(self.leaves) - 1


@dataclass(frozen=True, slots=True)
class _Condition:
    """A condition and the leaves (as bits) that it reads; for an equality also those of each side."""

    predicate: Expression
    reads: int
    sides: tuple[int, int] | None


class _JoinGraph:
    """Relations, numbered and named by bits, and the conditions between them."""

    def __init__(self, leaves: Sequence[Node], predicates: Iterable[Expression], estimator: Estimator) -> None:
        self._estimator = estimator
        self._owner = {item.name: number for number, leaf in enumerate(leaves) for item in leaf.schema}
        self.constant: list[Expression] = []
        filters: list[list[Expression]] = [[] for _ in leaves]
        shared: list[tuple[Expression, int]] = []
        for predicate in dict.fromkeys(predicates):
            reads = self._mask(predicate)
            if not reads:
                self.constant.append(predicate)
            elif reads.bit_count() == 1:
                filters[reads.bit_length() - 1].append(predicate)
            else:
                shared.append((predicate, reads))
        self._leaves = [filtered(leaf, parts) for leaf, parts in zip(leaves, filters, strict=True)]
        self._leaf_rows = [estimator.rows(leaf) for leaf in self._leaves]
        self._streamed = [estimator.streamed_rows(leaf) for leaf in self._leaves]
        self._widths = [estimator.row_bytes(leaf) for leaf in self._leaves]
        self._rows: dict[int, float] = {}
        self._build_costs: dict[int, float] = {}
        self._conditions: list[_Condition] = []
        self._neighbours = [0] * len(leaves)
        for predicate, reads in shared:
            self._add(predicate, reads)
        self._shares = self._pair_selectivities()

    def _add(self, predicate: Expression, reads: int) -> None:
        sides = None
        if isinstance(predicate, Call) and predicate.function == "equal":
            one, other = (self._mask(argument) for argument in predicate.arguments)
            same_type = predicate.arguments[0].type == predicate.arguments[1].type
            if one and other and not one & other and same_type:
                sides = (one, other)
        self._conditions.append(_Condition(predicate, reads, sides))
        if sides is not None and reads.bit_count() == 2:
            left, right = sides[0].bit_length() - 1, sides[1].bit_length() - 1
            self._neighbours[left] |= sides[1]
            self._neighbours[right] |= sides[0]

    def _mask(self, expression: Expression) -> int:
        mask = 0
        for name in columns_of(expression):
            mask |= 1 << self._owner[name]
        return mask

    def _selectivity(self) -> Selectivity:
        return Selectivity(lambda name: self._estimator.profile(self._leaves[self._owner[name]], name))

    def _pair_selectivities(self) -> list[tuple[int, float]]:
        """Return, for sets of leaves that conditions read, the share of their pairs that meet them."""
        keys: dict[int, list[tuple[Expression, Expression]]] = {}
        shares: list[tuple[int, float]] = []
        for condition in self._conditions:
            if condition.sides is None or condition.reads.bit_count() > 2:
                shares.append((condition.reads, self._selectivity().of(condition.predicate)))
                continue
            one, other = condition.predicate.children
            low_first = condition.sides[0] < condition.sides[1]
            keys.setdefault(condition.reads, []).append((one, other) if low_first else (other, one))
        for reads, pairs in keys.items():
            low = (reads & -reads).bit_length() - 1
            high = reads.bit_length() - 1
            share = self._estimator.join_selectivity(self._leaves[low], self._leaves[high], pairs)
            shares.append((reads, share))
        return shares

    def rows(self, mask: int) -> float:
        """Return the estimated rows of the join of some leaves, in whatever order."""
        known = self._rows.get(mask)
        if known is None:
            known = 1.0
            for number, rows in enumerate(self._leaf_rows):
                if mask >> number & 1:
                    known *= rows
            for reads, share in self._shares:
                if reads & ~mask == 0:
                    known *= share
            self._rows[mask] = known = max(known, 1.0)
        return known

    def build_cost(self, mask: int) -> float:
        """Return what it costs to build from the join of some leaves, in rows.

        It is the mean (geometric) of the rows expected and the most rows that stream through its relations: all of
        those go through before the first row is probed, and the fewer rows a filter is thought to leave the worse it is
        to be wrong about it. To it come the bytes of many wide rows.
        """
        known = self._build_costs.get(mask)
        if known is None:
            members = [number for number in range(len(self._leaves)) if mask >> number & 1]
            largest = max(self._streamed[number] for number in members)
            width = sum(self._widths[number] for number in members)
            rows = self.rows(mask)
            known = math.sqrt(rows * largest)
            if rows * width > LARGE_BUILD_BYTES:
                known += rows * max(width - PLAIN_WIDTH, 0.0) / WIDTH_OF_A_ROW
            self._build_costs[mask] = known
        return known

    def cost(self, order: _Order) -> float:
        """Return what an order costs: the rows of every join and the cost of every build side."""
        return self._cost(order)[0]

    def _cost(self, order: _Order) -> tuple[float, int]:
        if isinstance(order, int):
            return 0.0, 1 << order
        (left, left_mask), (right, right_mask) = self._cost(order[0]), self._cost(order[1])
        mask = left_mask | right_mask
        return left + right + self.rows(mask) + self.build_cost(right_mask), mask

    # --- search ------------------------------------------------------------------------------------------------------

    def best_order(self) -> _Order:
        """Return the cheapest order found."""
        parts = []
        for component in self._components():
            if component.bit_count() <= EXHAUSTIVE_RELATIONS:
                parts.append((component, self._exhaustive(component)))
            else:
                parts.append((component, self._greedy(component)))
        # What nothing connects is cross joined at the end, largest first as the probe side.
        parts.sort(key=lambda part: -self.rows(part[0]))
        order = parts[0][1]
        for _, other in parts[1:]:
            order = (order, other)
        return order

    def _components(self) -> list[int]:
        left = (1 << len(self._leaves)) - 1
        found = []
        while left:
            component = left & -left
            while True:
                grown = component | self._reach(component)
                if grown == component:
                    break
                component = grown
            found.append(component)
            left &= ~component
        return found

    def _reach(self, mask: int) -> int:
        reach = 0
        while mask:
            low = mask & -mask
            reach |= self._neighbours[low.bit_length() - 1]
            mask ^= low
        return reach

    def _oriented(self, one: int, one_order: _Order, other: int, other_order: _Order) -> _Order:
        """Put the side that is cheaper to build from to the right."""
        if self.build_cost(other) <= self.build_cost(one):
            return one_order, other_order
        return other_order, one_order

    def _exhaustive(self, component: int) -> _Order:
        """Find the cheapest order of connected leaves by dynamic programming over their connected subsets."""
        best: dict[int, tuple[float, _Order]] = {}
        numbers = [number for number in range(len(self._leaves)) if component >> number & 1]
        reach: dict[int, int] = {}
        for number in numbers:
            best[1 << number] = (0.0, number)
            reach[1 << number] = self._neighbours[number]
        for count in range(2, len(numbers) + 1):
            for chosen in itertools.combinations(numbers, count):
                mask = sum(1 << number for number in chosen)
                found = self._best_split(mask, best, reach)
                if found is not None:
                    best[mask] = found
                    reach[mask] = self._reach(mask)
        return best[component][1]

    def _best_split(
        self, mask: int, best: dict[int, tuple[float, _Order]], reach: dict[int, int]
    ) -> tuple[float, _Order] | None:
        low = mask & -mask
        rest = mask ^ low
        build_cost = self.build_cost
        found: tuple[float, int, int] | None = None
        # Each split once: one side has the lowest leaf.
        part = (rest - 1) & rest
        while True:
            one = part | low
            other = mask ^ one
            if one in best and other in best and reach[one] & other:
                cost = best[one][0] + best[other][0] + min(build_cost(one), build_cost(other))
                if found is None or cost < found[0]:
                    found = (cost, one, other)
            if not part:
                break
            part = (part - 1) & rest
        if found is None:
            return None
        cost, one, other = found
        return cost + self.rows(mask), self._oriented(one, best[one][1], other, best[other][1])

    def _greedy(self, component: int) -> _Order:
        """Join the connected pair with the fewest rows, again and again."""
        parts: dict[int, _Order] = {
            1 << number: number for number in range(len(self._leaves)) if component >> number & 1
        }
        while len(parts) > 1:
            pairs = [
                (self.rows(one | other) + min(self.build_cost(one), self.build_cost(other)), one, other)
                for one, other in itertools.combinations(parts, 2)
                if self._reach(one) & other
            ]
            _, one, other = min(pairs, key=lambda pair: pair[0])
            parts[one | other] = self._oriented(one, parts.pop(one), other, parts.pop(other))
        return next(iter(parts.values()))

    # --- making the tree ---------------------------------------------------------------------------------------------

    def build(self, order: _Order) -> Node:
        """Make the joins of an order, each condition as low as it can be checked."""
        return self._build(order)[0]

    def _build(self, order: _Order) -> tuple[Node, int]:
        if isinstance(order, int):
            return self._leaves[order], 1 << order
        (left, left_mask), (right, right_mask) = self._build(order[0]), self._build(order[1])
        mask = left_mask | right_mask
        left_keys: list[Expression] = []
        right_keys: list[Expression] = []
        residual: list[Expression] = []
        for condition in self._conditions:
            if condition.reads & ~mask or not condition.reads & ~left_mask or not condition.reads & ~right_mask:
                continue
            sides = condition.sides
            one, other = condition.predicate.children if sides is not None else (condition.predicate,) * 2
            if sides is not None and not sides[0] & ~left_mask and not sides[1] & ~right_mask:
                left_keys.append(one)
                right_keys.append(other)
            elif sides is not None and not sides[0] & ~right_mask and not sides[1] & ~left_mask:
                left_keys.append(other)
                right_keys.append(one)
            else:
                residual.append(condition.predicate)
        joined = Join(left, right, "inner", tuple(left_keys), tuple(right_keys), conjunction(tuple(residual)))
        return joined, mask
