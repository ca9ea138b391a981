"""Hashes of texts, and the least of them, do not depend on what other rows there are."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from hybridq.engines import sketches


def texts() -> list[str | None]:
    chooser = random.Random(3)
    lengths = [0, 3, 8, 30, 250, 256, 257, 300, 1000]
    found = ["".join(chooser.choice("abü\0") for _ in range(chooser.choice(lengths))) for _ in range(600)]
    return [*found, None, "", "a" * 256, "a" * 257, "a" * 264]


@pytest.mark.parametrize("block", [1, 7, 1 << 16])
def test_a_text_has_one_hash(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(sketches, "BLOCK_WORDS", block)
    monkeypatch.setattr(sketches, "BLOCK_ROWS", max(block, 5))
    values = texts()
    together = sketches._hashed_bytes(pa.array(values))
    alone = [sketches._hashed_bytes(pa.array([value], pa.string()))[0] for value in values]
    assert together.tolist() == alone
    assert sketches._hashed_bytes(pa.array(["x", *values], pa.large_string()).slice(1)).tolist() == alone
    assert len(set(alone)) == len({value or "" for value in values})
    assert sketches._hashed_bytes(pa.array([], pa.string())).tolist() == []


def test_words_in_another_order_are_another_text() -> None:
    words = [f"{number:08}" for number in range(64)]
    found = sketches._hashed_bytes(pa.array(["".join(words), "".join(words[::-1])]))
    assert found[0] != found[1]


def test_the_least_values() -> None:
    generator = np.random.default_rng(2)
    many = generator.integers(-(2**63), 2**63 - 1, 100_000)
    repeated = generator.integers(0, 5000, 100_000)
    few = np.array([3, 1, 3])
    for values in (many, repeated, np.repeat(few, 10_000), few, few[:0]):
        found = sketches._least_distinct(values)
        assert found.tolist() == np.unique(values)[: sketches.SKETCH_SIZE].tolist()
