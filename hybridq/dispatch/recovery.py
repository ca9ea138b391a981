"""When a query cannot go on as it was planned: workers are lost, or a build side is larger than was estimated.

Dask computes again what a lost worker had, as long as the tasks' inputs are known to it. Pieces of splits are not: they
are read from the workers that made them. So the driver sees to the pieces, and to what was made of pieces.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from hybridq.dispatch.chunk_states import Part
from hybridq.dispatch.stage_run import StageRun
from hybridq.physical.merges import ConcatenateMerge
from hybridq.physical.pipeline import BroadcastBuild

Users = Mapping[int, Sequence[int]]
"""By stage, the stages that read it."""


def unneeded(runs: Mapping[int, StageRun], users: Users, number: int) -> bool:
    """Tell whether a stage's output can be let go.

    A split's inputs stay until its pieces are let go, so that lost ones can be made again; only not the pieces that it
    was made of, which may be as large.
    """
    run = runs[number]
    if run.status != "done" or not users[number]:
        return False
    for user in (runs[each] for each in users[number]):
        if user.status != "done":
            return False
        if user.stage.keeps_pieces and not user.released and not run.stage.keeps_pieces:
            return False
    return True


class TooLarge(Exception):
    """What was to be in one place is larger than may be there: the query has to be planned otherwise.

    Attributes
    ----------
    parts : frozenset of int
        Build sides of joins, or what else of the plan (``hybridq.physical.pipeline.Stage.gathers``).
    size : int
        Bytes that it has at least.
    cause : str
        What has been found, for the report.
    """

    def __init__(self, parts: frozenset[int], size: int, cause: str) -> None:
        super().__init__(f"{size} bytes")
        self.parts = parts
        self.size = size
        self.cause = cause


def check_broadcast(run: StageRun, users: Iterable[StageRun], limit: int) -> None:
    """Check that a stage's output, as far as it is there, can be broadcast to the stages that join with it.

    Raises
    ------
    TooLarge
        It cannot, and these joins can be done otherwise.
    """
    size = run.output_bytes
    if run.output is None and isinstance(run.stage.merge, ConcatenateMerge):
        size = sum(part.bytes for part in run.parts)
    if size <= limit:
        return
    builds = [build for user in users for branch in user.stage.branches for build in branch.builds]
    found = [each for each in builds if isinstance(each, BroadcastBuild) and each.stage == run.stage.id]
    if any(each.splittable for each in found):
        raise TooLarge(
            frozenset(each.id for each in found if each.splittable),
            size,
            f"a build side came to {size / 2**20:.1f} MiB or more, which broadcast_limit_bytes does not let be"
            " broadcast, so both sides are split",
        )


def check_gathered(run: StageRun, limit: int) -> None:
    """Check that a stage's partial results, as far as they are there, can be merged in one place.

    Raises
    ------
    TooLarge
        They cannot, and this can be done otherwise.
    """
    if run.stage.gathers is None or run.output is not None:
        return
    parts = [*run.parts, *(part for merging in run.merging.values() for part in merging.parts)]
    size = sum(part.bytes for part in parts)
    if size > limit:
        raise TooLarge(
            frozenset({run.stage.gathers}),
            size,
            f"partial results came to {size / 2**20:.1f} MiB or more, which gather_limit_bytes does not let be merged"
            " in one place, so they are split",
        )


def lost_parts(run: StageRun, there: Collection[str]) -> list[Part]:
    """Return the partial results that were on workers that are gone and that Dask cannot compute again."""
    concerned = run.stage.keeps_pieces or bool(run.stage.split_inputs)
    if run.status == "waiting" or run.released or not concerned:
        return []
    if run.status == "done" and not run.stage.keeps_pieces:
        return []
    return [part for part in run.parts if part.address not in there]


def lost_output(runs: Mapping[int, StageRun], users: Users, number: int, there: Collection[str]) -> bool:
    """Tell whether a stage's output is gone that was made of pieces and is still needed."""
    run = runs[number]
    needed = any(runs[user].status != "done" for user in users[number])
    made_of_pieces = bool(run.stage.split_inputs) and not run.stage.keeps_pieces
    on_cluster = run.answer is None
    return run.status == "done" and made_of_pieces and needed and on_cluster and run.output_address not in there


def to_restart(runs: Mapping[int, StageRun], users: Users, lost: Iterable[int]) -> list[int]:
    """Return the stages that have to be run again from their start.

    Parameters
    ----------
    runs : mapping of int to StageRun
    users : mapping of int to sequence of int
    lost : iterable of int
        Stages that have to, for whatever reason.

    Returns
    -------
    list of int
        These, their inputs that were let go, and the stages that have begun to read what will be replaced. Inputs
        come first.
    """
    todo, found = list(lost), set[int]()
    while todo:
        number = todo.pop()
        if number in found:
            continue
        found.add(number)
        todo += [each for each in runs[number].stage.dependencies if runs[each].released]
        for user in (runs[each] for each in users[number]):
            reads_pieces = number in user.stage.split_inputs
            if user.status == "running" or (user.status == "done" and not user.released and reads_pieces):
                todo.append(user.stage.id)
    return sorted(found)
