from __future__ import annotations

import itertools
import math
import random

import pytest

from hybridq.placement.choice import LARGEST_PLAN, Choice, Option, choose, parts, total_seconds

MODES = ("EXEC_CPU", "EXEC_GPU", "EXEC_COP")


def random_plan(size: int, seed: int) -> list[Choice]:
    """Stages that read any earlier ones, some of them twice, with costs of all magnitudes."""
    chance = random.Random(seed)
    plan = []
    unread: list[int] = []
    for number in range(size):
        count = min(chance.randint(0, 2), len(unread)) if number < size - 1 else len(unread)
        inputs = [unread.pop(chance.randrange(len(unread))) for _ in range(count)]
        if number and chance.random() < 0.3:  # read once more
            inputs.append(chance.randrange(number))
        places = {"EXEC_CPU": "cpu", "EXEC_GPU": "gpu", "EXEC_COP": chance.choice(["cpu", "gpu"])}
        options = {
            mode: Option(
                10 ** chance.uniform(-3, 1),
                {"EXEC_CPU": "cpu", "EXEC_GPU": "gpu", "EXEC_COP": None}[mode],
                places[mode],
            )
            for mode in MODES
            if mode == "EXEC_CPU" or chance.random() < 0.9
        }
        plan.append(Choice(number, tuple(dict.fromkeys(inputs)), options, 10 ** chance.uniform(-3, 1)))
        unread.append(number)
    return plan


def exhaustive(plan: list[Choice]) -> float:
    """The least seconds of all combinations."""
    best = math.inf
    for combination in itertools.product(*(each.options for each in plan)):
        best = min(best, total_seconds(plan, dict(zip((each.id for each in plan), combination, strict=True))))
    return best


@pytest.mark.parametrize("size", range(1, 7))
@pytest.mark.parametrize("seed", range(12))
def test_dynamic_programming_finds_what_trying_everything_finds(size, seed):
    plan = random_plan(size, seed)
    assert total_seconds(plan, choose(plan)) == pytest.approx(exhaustive(plan))


def test_it_does_so_for_ten_stages():
    plan = random_plan(LARGEST_PLAN, 3)
    assert total_seconds(plan, choose(plan)) == pytest.approx(exhaustive(plan))


@pytest.mark.parametrize("seed", range(5))
def test_larger_plans_are_cut_in_post_order(seed):
    plan = random_plan(37, seed)
    pieces = parts(plan)
    assert [len(piece) for piece in pieces] == [10, 10, 10, 7]
    done: set[int] = set()
    for choice in (each for piece in pieces for each in piece):
        assert set(choice.inputs) <= done
        done.add(choice.id)
    modes = choose(plan)
    assert modes.keys() == {each.id for each in plan}
    everywhere_cpu = total_seconds(plan, dict.fromkeys(range(37), "EXEC_CPU"))
    assert total_seconds(plan, modes) <= everywhere_cpu


def test_an_input_that_lies_on_the_gpu_draws_its_reader_there():
    first = Choice(0, (), {"EXEC_GPU": Option(1.0, "gpu", "gpu")}, move_s=5.0)
    second = {"EXEC_CPU": Option(1.0, "cpu", "cpu"), "EXEC_GPU": Option(2.0, "gpu", "gpu")}
    assert choose([first, Choice(1, (0,), second, move_s=0.1)])[1] == "EXEC_GPU"
    assert choose([first, Choice(1, (0,), second, move_s=50.0)])[1] == "EXEC_CPU"  # the answer is wanted on the CPU
