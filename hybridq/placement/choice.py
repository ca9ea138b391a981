"""Chooses a mode for every stage of a plan at once, knowing where each stage's output lies.

After He et al. (ACM TODS 2009, section 5): up to ten nodes the best of all combinations, larger plans in parts, in post
order. The best combination is found by dynamic programming: what has been decided matters to the rest only through
where the outputs lie that are still to be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hybridq.topology import Kind

StageMode = Literal["EXEC_CPU", "EXEC_GPU", "EXEC_COP"]

LARGEST_PLAN = 10
"""Stages that are chosen for together."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run a stage.

    Attributes
    ----------
    seconds : float
        Without fetching inputs from elsewhere.
    reads_at : str or None
        Where its inputs have to be, ``cpu`` or ``gpu``; ``None``: both kinds work on it, so what each needs whole has
        to be brought to the other.
    leaves_at : str
        Where its output then is.
    """

    seconds: float
    reads_at: Kind | None
    leaves_at: Kind


@dataclass(frozen=True, slots=True)
class Choice:
    """A stage to be placed.

    Attributes
    ----------
    id : int
    inputs : tuple of int
        Stages whose output it reads; they come before it.
    options : mapping of mode to Option
        At least one.
    move_s : float
        Seconds to bring its output from one kind of device to the other.
    whole : tuple of int
        Inputs that every device at work needs whole: build sides that are broadcast.
    """

    id: int
    inputs: tuple[int, ...]
    options: Mapping[StageMode, Option]
    move_s: float = 0.0
    whole: tuple[int, ...] = ()


def choose(plan: Sequence[Choice], answer_at: Kind = "cpu") -> dict[int, StageMode]:
    """Return the mode of each stage for which the whole plan takes least time.

    Parameters
    ----------
    plan : sequence of Choice
        Inputs before the stages that read them; the last one gives the answer.
    answer_at : str
        Where the answer is wanted.
    """
    found: dict[int, StageMode] = {}
    fixed: dict[int, Kind] = {}
    for part in parts(plan):
        modes = _best(part, {each.id: each for each in plan}, fixed, answer_at)
        found |= modes
        fixed |= {each.id: each.options[modes[each.id]].leaves_at for each in part}
    return found


def parts(plan: Sequence[Choice]) -> list[list[Choice]]:
    """Cut a plan into parts of at most ``LARGEST_PLAN`` stages, each after those that it reads.

    >>> len(parts([Choice(i, (i - 1,) if i else (), {"EXEC_CPU": Option(1.0, None, "cpu")}) for i in range(25)]))
    3
    """
    ordered = _post_order(plan)
    return [ordered[start : start + LARGEST_PLAN] for start in range(0, len(ordered), LARGEST_PLAN)]


def _post_order(plan: Sequence[Choice]) -> list[Choice]:
    """Return the stages so that each subtree is together, inputs first."""
    by_id = {each.id: each for each in plan}
    found: dict[int, Choice] = {}

    def visit(choice: Choice) -> None:
        for number in choice.inputs:
            if number in by_id and number not in found:
                visit(by_id[number])
        found[choice.id] = choice

    for choice in reversed(plan):
        if choice.id not in found:
            visit(choice)
    return list(found.values())


def _best(
    part: Sequence[Choice], plan: Mapping[int, Choice], fixed: Mapping[int, Kind], answer_at: Kind
) -> dict[int, StageMode]:
    """Choose for one part; ``fixed`` says where the outputs of earlier parts are."""
    last_use = {number: position for position, each in enumerate(part) for number in each.inputs}
    # Where the outputs lie that are still to be read -> (seconds so far, modes so far).
    states: dict[tuple[tuple[int, Kind], ...], tuple[float, tuple[StageMode, ...]]] = {(): (0.0, ())}
    for position, each in enumerate(part):
        after: dict[tuple[tuple[int, Kind], ...], tuple[float, tuple[StageMode, ...]]] = {}
        for live, (seconds, modes) in states.items():
            where = {**fixed, **dict(live)}
            for mode, option in each.options.items():
                total = seconds + cost_of(each, option, plan, where, answer_at if _is_answer(each, plan) else None)
                kept = tuple(item for item in live if last_use.get(item[0], -1) > position)
                if last_use.get(each.id, -1) > position:
                    kept = (*kept, (each.id, option.leaves_at))
                if kept not in after or total < after[kept][0]:
                    after[kept] = (total, (*modes, mode))
        states = after
    _, modes = min(states.values(), key=lambda state: state[0])
    return {each.id: mode for each, mode in zip(part, modes, strict=True)}


def _is_answer(choice: Choice, plan: Mapping[int, Choice]) -> bool:
    return choice.id == [*plan][-1]


def cost_of(
    choice: Choice, option: Option, plan: Mapping[int, Choice], where: Mapping[int, Kind], answer_at: Kind | None
) -> float:
    """Return the seconds of a stage in one mode, with fetching its inputs, and the answer if it gives that."""
    total = option.seconds + fetching_seconds(choice, option.reads_at, plan, where)
    if answer_at is not None and option.leaves_at != answer_at:
        total += choice.move_s
    return total


def fetching_seconds(
    choice: Choice, reads_at: Kind | None, plan: Mapping[int, Choice], where: Mapping[int, Kind]
) -> float:
    """Return the seconds of fetching a stage's inputs from where they are (those of which nothing is known: none)."""
    return sum(
        plan[number].move_s
        for number in choice.inputs
        if number in where and ((number in choice.whole) if reads_at is None else (where[number] != reads_at))
    )


def total_seconds(plan: Sequence[Choice], modes: Mapping[int, StageMode], answer_at: Kind = "cpu") -> float:
    """Return the predicted seconds of a plan with given modes."""
    by_id = {each.id: each for each in plan}
    where = {each.id: each.options[modes[each.id]].leaves_at for each in plan}
    return sum(
        cost_of(each, each.options[modes[each.id]], by_id, where, answer_at if _is_answer(each, by_id) else None)
        for each in plan
    )
