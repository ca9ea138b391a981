"""Lookups of join keys: every kind finds the same positions, and each has the keys that it is for."""

from __future__ import annotations

import numpy as np
import pytest

from hybridq.engines.lookup import BitmapLookup, BucketLookup, DirectLookup, HashLookup, make_lookup

GENERATOR = np.random.default_rng(3)
EVEN = np.unique(GENERATOR.integers(0, 10**14, 50_000))
CLUSTERED = np.unique(np.concatenate([GENERATOR.integers(0, 10**5, 5_000), GENERATOR.integers(0, 10**14, 5_000)]))


@pytest.mark.parametrize(
    ("codes", "size", "kind"),
    [
        (np.arange(0, 3000, 3), 3000, DirectLookup),
        (np.unique(GENERATOR.integers(0, 10**7, 40_000)), 10**7, BitmapLookup),
        (EVEN, 10**14, BucketLookup),
        (EVEN, 2**62, HashLookup),  # all in one corner of the range
        (CLUSTERED, 10**14, HashLookup),
        (np.array([0, 10**14 - 1]), 10**14, BucketLookup),
        (np.zeros(0, np.int64), 10**14, BucketLookup),
    ],
)
def test_positions(codes: np.ndarray, size: int, kind: type) -> None:
    lookup = make_lookup(codes, size)
    assert isinstance(lookup, kind)
    if kind is not HashLookup or len(codes):
        assert lookup.nbytes > 0
    near = np.concatenate([codes - 1, codes, codes + 1, GENERATOR.integers(0, size, 1000), [0, size - 1]])
    wanted = near[(near >= 0) & (near < size)]
    places = {int(code): position for position, code in enumerate(codes)}
    assert lookup.find(wanted).tolist() == [places.get(int(code), -1) for code in wanted]
