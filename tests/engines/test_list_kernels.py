"""Functions of lists beside the same in plain Python, on random lists with NULLs, NaN and empty ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridq.engines.column import from_arrow, to_arrow
from hybridq.engines.evaluate import KERNELS
from hybridq.plan.expressions import Call
from hybridq.plan.functions import result_type

DOUBLES = pa.list_(pa.float64())
NUMBERS = st.one_of(st.none(), st.sampled_from([0.0, 1.0, -1.0, 2.5, math.nan]))
LISTS = st.one_of(st.none(), st.lists(NUMBERS, max_size=6))
ROWS = st.lists(st.tuples(LISTS, LISTS, NUMBERS, st.integers(-4, 7)), max_size=12)


def key(value: Any) -> Any:
    """Equal exactly for values that SQL takes as one."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def order(value: Any) -> Any:
    return (value is None, value is not None and math.isnan(value), value if key(value) not in (None, "NaN") else 0.0)


def distinct(values: list[Any]) -> list[Any]:
    return [value for place, value in enumerate(values) if key(value) not in [key(each) for each in values[:place]]]


def cut(values: list[Any], start: int, stop: int) -> list[Any]:
    size = len(values)
    first = max(start if start >= 0 else size + start + 1, 1)
    last = stop if stop >= 0 else size + stop + 1
    return values[first - 1 : max(last, 0)]


def resized(values: list[Any], count: int, fill: Any) -> list[Any]:
    return (values + [fill] * count)[:count]


def call_on(name: str, arrays: list[pa.Array], options: tuple[str, ...] = ()) -> list[Any]:
    """Run a kernel on columns, sliced so that nothing begins at the start of its buffers."""
    data_type = result_type(name, tuple(array.type for array in arrays))
    shifted = [pa.concat_arrays([array.slice(0, 1), array]).slice(min(1, len(array))) for array in arrays]
    found = KERNELS[name](Call(data_type, name, (), options), [from_arrow(array) for array in shifted])
    array = to_arrow(found.expand(len(arrays[0])))
    assert array.type == data_type
    array.validate(full=True)
    return [[*map(key, value)] if isinstance(value, list) else key(value) for value in array.to_pylist()]


def expected(function: Callable[..., Any], *columns: list[Any]) -> list[Any]:
    found = [None if row[0] is None else function(*row) for row in zip(*columns, strict=True)]
    return [[*map(key, value)] if isinstance(value, list) else key(value) for value in found]


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_as_in_python(rows: list[tuple[Any, Any, Any, int]]) -> None:
    first, second, value, number = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    lists, others = pa.array(first, DOUBLES), pa.array(second, DOUBLES)
    values, numbers = pa.array(value, pa.float64()), pa.array(number, pa.int64())
    counts = [abs(each) for each in number]

    assert call_on("array_sort", [lists]) == expected(lambda a: sorted(a, key=order), first)
    assert call_on("array_sort", [lists], ("desc", "nulls_first")) == expected(
        lambda a: sorted(a, key=order, reverse=True), first
    )
    assert call_on("array_distinct", [lists]) == expected(distinct, first)
    assert call_on("array_reverse", [lists]) == expected(lambda a: a[::-1], first)
    assert call_on("array_compact", [lists]) == expected(lambda a: [x for x in a if x is not None], first)
    assert call_on("array_max", [lists]) == expected(
        lambda a: max((x for x in a if x is not None), key=order, default=None), first
    )
    assert call_on("array_position", [lists, values]) == expected(
        lambda a, x: next((place for place, each in enumerate(a, 1) if key(each) == key(x)), None), first, value
    )
    assert call_on("array_remove", [lists, values], ("all",)) == expected(
        lambda a, x: [each for each in a if key(each) != key(x)], first, value
    )
    assert call_on("array_slice", [lists, numbers, numbers]) == expected(cut, first, number, number)
    assert call_on("array_resize", [lists, pa.array(counts, pa.int64()), values]) == expected(
        resized, first, counts, value
    )
    both = [None if a is None or b is None else a for a, b in zip(first, second, strict=True)]
    assert call_on("array_union", [lists, others]) == expected(lambda a, b: distinct(a + b), both, second)
    for name, wanted in (("array_intersect", True), ("array_except", False)):
        assert call_on(name, [lists, others]) == expected(
            lambda a, b, wanted=wanted: [x for x in distinct(a) if (key(x) in map(key, b)) == wanted], both, second
        )
    assert call_on("array_has_all", [lists, others]) == expected(
        lambda a, b: all(x is not None and key(x) in map(key, a) for x in b), both, second
    )
    joined = [a if b is None else b if a is None else a + b for a, b in zip(first, second, strict=True)]
    assert call_on("array_concat", [lists, others]) == expected(lambda a: a, joined)
    assert call_on("make_array", [values, values]) == [[key(x), key(x)] for x in value]


TEXTS = st.text(st.sampled_from("abé🎉"), max_size=7)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.one_of(st.none(), TEXTS), TEXTS), min_size=1, max_size=20))
def test_distances_of_texts(pairs: list[tuple[str | None, str]]) -> None:
    def distance(a: str, b: str) -> int:
        line = list(range(len(b) + 1))
        for row, left in enumerate(a, 1):
            following = [row]
            for column, right in enumerate(b, 1):
                following.append(min(following[-1] + 1, line[column] + 1, line[column - 1] + (left != right)))
            line = following
        return line[-1]

    lefts, rights = (list(column) for column in zip(*pairs, strict=True))
    found = call_on("levenshtein", [pa.array(lefts, pa.string()), pa.array(rights, pa.string())])
    assert found == expected(distance, lefts, rights)


def test_ends_of_the_range_of_numbers() -> None:
    least, most = -(2**63), 2**63 - 1
    assert call_on("range", [pa.array([5]), pa.array([least])]) == [[]]
    assert call_on("range", [pa.array([most - 2]), pa.array([most])]) == [[most - 2, most - 1]]
    past = pa.array([2**64 - 1], pa.uint64())
    assert call_on("array_element", [pa.array([[1, 2, 3]]), past]) == [None]


def test_distances_of_long_texts() -> None:
    long = "a" * 3000
    pairs = [(long, long + "b"), ("kitten", "sitting"), *((long + str(number), "") for number in range(3))]
    left, right = (pa.array(list(side)) for side in zip(*pairs, strict=True))
    assert call_on("levenshtein", [left, right]) == [1, 3, 3001, 3001, 3001]
