"""Lookups of join keys: every kind finds the same positions, and each has the keys that it is for."""

from __future__ import annotations

import numpy as np
import pytest

from hybridq.engines import lookup as lookups
from hybridq.engines.compiled import Kernels
from hybridq.engines.joining import _Matching
from hybridq.engines.lookup import (
    BitmapLookup,
    BucketLookup,
    DirectLookup,
    HashLookup,
    IndexLookup,
    MergeLookup,
    make_lookup,
)

GENERATOR = np.random.default_rng(3)
EVEN = np.unique(GENERATOR.integers(0, 10**14, 50_000))
CLUSTERED = np.unique(np.concatenate([GENERATOR.integers(0, 10**5, 5_000), GENERATOR.integers(0, 10**14, 5_000)]))


@pytest.mark.parametrize("loops", ["never", "always"])
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
def test_positions(codes: np.ndarray, size: int, kind: type, loops: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "KERNELS", Kernels(loops))
    lookup = make_lookup(codes, size)
    assert isinstance(lookup, kind)
    if kind is not HashLookup or len(codes):
        assert lookup.nbytes > 0
    near = np.concatenate([codes - 1, codes, codes + 1, GENERATOR.integers(0, size, 1000), [0, size - 1]])
    wanted = near[(near >= 0) & (near < size)]
    places = {int(code): position for position, code in enumerate(codes)}
    assert lookup.find(wanted).tolist() == [places.get(int(code), -1) for code in wanted]
    every_second = np.repeat(wanted, 2)[::2]  # not side by side in memory
    every_second.flags.writeable = False
    assert lookup.find(every_second).tolist() == lookup.find(wanted).tolist()


@pytest.mark.parametrize(("method", "kind"), [("hash", HashLookup), ("index", IndexLookup), ("merge", MergeLookup)])
def test_a_lookup_that_is_asked_for_finds_the_same(method, kind) -> None:
    for codes, size in ((np.arange(0, 3000, 3), 3000), (CLUSTERED, 10**14), (np.array([5]), 9), (EVEN[:0], 9)):
        lookup = make_lookup(codes, size, method)
        assert isinstance(lookup, kind)
        wanted = np.concatenate([codes, GENERATOR.integers(0, size, 1000)])
        places = {int(code): position for position, code in enumerate(codes)}
        for order in (GENERATOR.permutation(len(wanted)), np.argsort(wanted)):
            own = wanted[order]
            assert lookup.find(own).tolist() == [places.get(int(code), -1) for code in own]
        assert lookup.find(wanted[:0]).tolist() == []


@pytest.mark.parametrize("some_unknown", [False, True])
@pytest.mark.parametrize("repeated", [False, True])
def test_rows_of_each_key_whatever_their_order(some_unknown: bool, repeated: bool) -> None:
    codes = np.repeat(np.arange(0, 900, 3), GENERATOR.integers(1, 4, 300) if repeated else 1)
    known = GENERATOR.random(len(codes)) < 0.8 if some_unknown else None
    shuffled = GENERATOR.permutation(len(codes))
    for order in (np.arange(len(codes)), shuffled):
        own = codes[order]
        known_rows = None if known is None else known[order]
        matching = _Matching.of(own, known_rows, 900)
        for code in range(900):
            position = int(matching.lookup.find(np.array([code]))[0])
            found = [] if position < 0 else [position]
            if position >= 0 and matching.starts is not None:
                found = list(range(matching.starts[position], matching.starts[position + 1]))
            rows = found if matching.order is None else matching.order[found].tolist()
            expected = np.flatnonzero((own == code) & (True if known_rows is None else known_rows))
            assert rows == expected.tolist()


def test_compiled_lookups_of_codes_past_their_range() -> None:
    """A file's bounds of a column may be wrong, and what is looked up then is anything."""
    loops = Kernels().load()
    far = np.array([0, 3, 2**40, 2**62], np.int64)
    found = np.empty(len(far), np.int32)
    loops.find_in_bitmap(np.array([9], np.uint64), np.zeros(1, np.int32), far, found)
    assert found.tolist() == [0, 1, -1, -1]
    loops.find_in_buckets(np.array([0, 3], np.int64), np.array([0, 2], np.int32), 3, far, found)
    assert found.tolist() == [0, 1, -1, -1]
