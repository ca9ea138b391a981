from __future__ import annotations

import gc

import pyarrow as pa
import pytest

from hybridq.dispatch.output_parts import TOGETHER, TogetherCache, inputs_of
from hybridq.dispatch.tasks import OutOfMemory
from hybridq.errors import ExecutionError


def tables(count: int) -> list[pa.Table]:
    return [pa.table({"x": [number]}) for number in range(count)]


def test_the_parts_of_a_stage_are_one_table_in_order():
    first, second, other = tables(3)
    found = inputs_of((4, 7, 4), [second, other, first])
    assert found[4].column("x").to_pylist() == [1, 0]
    assert found[7] is other


def test_tasks_that_read_the_same_parts_get_the_same_table_as_long_as_they_are_there():
    cache, parts = TogetherCache(), tables(2)
    whole = cache.get(parts)
    assert cache.get(parts) is whole
    assert cache.get(parts[::-1]) is not whole
    assert len(cache) == 2
    del parts[0]
    gc.collect()
    assert len(cache) == 0


def test_a_part_that_was_lost_and_does_not_fit_again_is_one_clear_error():
    with pytest.raises(ExecutionError, match="lost with its worker"):
        inputs_of((1, 1), [tables(1)[0], OutOfMemory("no room", 2, 1)])
    assert len(TOGETHER) == 0
