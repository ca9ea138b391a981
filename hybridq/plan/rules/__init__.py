"""Rewrites of the logical plan, one rule a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hybridq.plan.cardinality import Estimator
from hybridq.plan.nodes import Node, Plan
from hybridq.plan.rules.canonical_names import canonical_names
from hybridq.plan.rules.column_pruning import column_pruning
from hybridq.plan.rules.comparison_forms import comparison_forms
from hybridq.plan.rules.constant_folding import constant_folding
from hybridq.plan.rules.early_aggregates import early_aggregates
from hybridq.plan.rules.early_conditions import early_conditions
from hybridq.plan.rules.join_order import join_order
from hybridq.plan.rules.merge_projections import merge_projections
from hybridq.plan.rules.predicate_pushdown import predicate_pushdown
from hybridq.plan.rules.reduce_aggregates import reduce_aggregates
from hybridq.plan.rules.semi_joins import semi_joins
from hybridq.plan.rules.top_k import top_k
from hybridq.plan.statistics import TableStatistics

Rule = Callable[[Node], Node] | Callable[[Node, Estimator], Node]

RULES: tuple[Rule, ...] = (
    constant_folding,
    comparison_forms,
    merge_projections,
    predicate_pushdown,
    merge_projections,
    semi_joins,
    join_order,
    early_aggregates,
    reduce_aggregates,
    merge_projections,
    early_conditions,
    top_k,
    column_pruning,
    canonical_names,
)
"""The rules in the order they are applied; those in ``WITH_ESTIMATES`` also take an estimator."""

WITH_ESTIMATES: tuple[Rule, ...] = (semi_joins, join_order, early_aggregates, reduce_aggregates)

MOST_ROUNDS = 5
"""Rounds of all rules after which a plan is taken as it is; mostly one changes it and one does not."""


def optimize(plan: Plan, statistics: Callable[[str], TableStatistics]) -> Plan:
    """Apply the rules until they change nothing.

    Parameters
    ----------
    plan : Plan
        As a front end made it.
    statistics : callable
        Table statistics by table name, such as ``Catalog.table``.

    Returns
    -------
    Plan
        With the same rows, column types and names. ``optimize`` changes it no further.
    """
    estimator = Estimator(statistics)
    subqueries = tuple(_optimized(node, estimator) for node in plan.subqueries)
    return replace(plan, root=_optimized(plan.root, estimator), subqueries=subqueries)


def _optimized(root: Node, estimator: Estimator) -> Node:
    before: list[Node] = []  # what each rule was given in the round before this one
    last = root  # what that round made
    for _ in range(MOST_ROUNDS):
        given: list[Node] = []
        for number, rule in enumerate(RULES):
            if before and root == before[number]:
                return last  # from here on this round would do what that one did
            given.append(root)
            root = rule(root, estimator) if rule in WITH_ESTIMATES else rule(root)  # type: ignore[call-arg]
        if root == given[0]:
            break
        before, last = given, root
    return root
