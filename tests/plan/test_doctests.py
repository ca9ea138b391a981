"""The examples in the documentation of plans and rules work."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import hybridq.plan
from hybridq.plan import rules

MODULES = [name for _, name, _ in pkgutil.walk_packages(hybridq.plan.__path__, "hybridq.plan.")]
RULE_MODULES = [f"hybridq.plan.rules.{rule.__name__}" for rule in rules.RULES]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


@pytest.mark.parametrize("name", sorted(set(RULE_MODULES)))
def test_every_rule_has_an_example(name: str) -> None:
    examples = doctest.DocTestFinder().find(importlib.import_module(name))
    assert any(example.examples for example in examples)


@pytest.mark.parametrize(
    "name", ["hybridq.types", "hybridq.storage", "hybridq.summaries", "hybridq.catalog", "hybridq.physical.pruning"]
)
def test_examples_outside_plans(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
