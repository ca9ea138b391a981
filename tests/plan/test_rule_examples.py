"""Every rule shows what it does: an example in its docstring, which tests/test_doctests.py runs."""

from __future__ import annotations

import doctest
import importlib

import pytest

from hybridq.plan import rules

RULE_MODULES = sorted({f"hybridq.plan.rules.{rule.__name__}" for rule in rules.RULES})


@pytest.mark.parametrize("name", RULE_MODULES)
def test_every_rule_has_an_example(name: str) -> None:
    examples = doctest.DocTestFinder().find(importlib.import_module(name))
    assert any(example.examples for example in examples)
